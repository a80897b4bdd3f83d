"""Several processes, on one host or many, that share a sweep; `jax.distributed` has joined them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax._background import in_background

LONGEST_WAIT = 30 * 24 * 3600 * 1000  # milliseconds


def is_first() -> bool:
    """Is this the process that opens the folder for all and shows progress?"""
    return jax.process_index() == 0


def check(out: str | Path | None) -> None:
    if jax.process_count() > 1 and out is None:
        _checks.fail("out", out, f"{jax.process_count()} processes need a folder that all of them see")


def own(share: np.ndarray) -> np.ndarray:
    """Which runs are this process's, by numbers that do not depend on what is found on disk."""
    return share % jax.process_count() == jax.process_index()


def wait(moment: str) -> None:
    """Until all processes are here, however long the slowest of them plays.

    JAX's own barrier is a computation on all devices, which fails on CPUs if a process comes 30 s after another; the
    service that joined the processes waits for as long as all of them are alive.
    """
    if jax.process_count() > 1:
        from jax._src import distributed  # JAX has no public way to reach the service

        service: Any = distributed.global_state.client
        _waits[moment] += 1

        def arrive() -> Iterator[None]:
            yield service.wait_at_barrier(f"fedbandit {moment} {_waits[moment]}", LONGEST_WAIT)

        with closing(in_background([arrive()])) as arrived:
            next(arrived)


_waits = Counter[str]()  # a barrier is used once

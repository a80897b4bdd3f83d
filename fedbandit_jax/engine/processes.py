"""Several processes, on one host or many, that share a sweep; `jax.distributed` has joined them."""

from pathlib import Path

import jax
import numpy as np

from fedbandit_jax import _checks


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
    """Until all processes are here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"fedbandit {moment}")

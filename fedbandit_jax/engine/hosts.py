"""Several processes, on one host or many, that share a sweep; `jax.distributed` has joined them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbandit_jax import _checks


@dataclass(frozen=True)
class Hosts:
    """This process among the others."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """The one that opens the folder for all and shows progress."""
        return self.index == 0

    def check(self, out: str | Path | None) -> None:
        if self.count > 1 and out is None:
            _checks.fail("out", out, f"{self.count} processes need a folder that all of them see")

    def own(self, share: np.ndarray) -> np.ndarray:
        """Which runs are this process's, by numbers that do not depend on what is found on disk."""
        return share % self.count == self.index

    def wait(self, moment: str) -> None:
        """Until all processes are here."""
        if self.count > 1:
            from jax.experimental import multihost_utils

            multihost_utils.sync_global_devices(f"fedbandit {moment}")

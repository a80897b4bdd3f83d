"""The kernel of a stretch of rounds, as compiled for GPUs of data centres: nothing is spilled."""

import pytest

from fedbandit_jax.linalg import pulls
from tests.accelerators import programs, stretches

programs.needs("h100")
# The paper's size, the largest of each dimension, and odd ones, which are laid out in another way.
SIZES = ("100x50", "256x64", "255x64", "1024x32", "1023x32", "1024x16", "128x128", "127x127", "64x64", "10x5")


@pytest.mark.parametrize("target", ["h100", "a100"])
def test_nothing_is_spilled_or_copied(target):
    for size, found in stretches.ask(target, *SIZES).items():
        assert found["arch"].startswith({"h100": "sm_90", "a100": "sm_80"}[target])
        threads = 32 * pulls.warps(*map(int, size.split("x")))
        assert found["spills"] == 0, size
        assert found["registers"] * threads <= 65536, size  # or it could not be launched
        assert found["kernels"] == 1, size
        assert not found["large"], size

"""The paper's bounds, as numbers."""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def log_term(arms: Any, clients: Any, horizon: Any, delta: Any, xp: ModuleType = np) -> Any:
    """LOG = log(2 K M log(T) / delta); T is taken as 2 at least. `xp` is numpy or jax.numpy."""
    return xp.log(2 * arms * clients * xp.log(xp.maximum(horizon, 2)) / delta)


def regret_upper_bound(
    horizon: ArrayLike,
    *,
    dim: int,
    clients: ArrayLike,
    arms: ArrayLike,
    delta: float = 0.1,
    N: float = 1.0,
    sigma: float = 1.0,
) -> np.ndarray:
    """32 sigma sqrt(N d M T LOG) + 4 d (d + 1) sqrt(N M), which holds with probability 1 - delta.

    The second term pays for rounding pulls up, on a design of at most d (d + 1) / 2 arms; the designs here may
    use all K, so that the larger of the two numbers enters. sigma = 1 is the paper's.
    """
    T, M, K = (np.asarray(x, float) for x in (horizon, clients, arms))
    log = log_term(K, M, T, delta)
    support = np.maximum(dim * (dim + 1) / 2, K)
    return np.asarray(32 * sigma * np.sqrt(N * dim * M * T * log) + 8 * support * np.sqrt(N * M))


def regret_lower_bound(horizon: ArrayLike, *, dim: int, clients: ArrayLike) -> np.ndarray:
    """(e^-4 / 8) sqrt((d - 1) M T): what no algorithm beats on its worst instance, sigma = 1."""
    T, M = (np.asarray(x, float) for x in (horizon, clients))
    return np.asarray(np.exp(-4) / 8 * np.sqrt((dim - 1) * M * T))

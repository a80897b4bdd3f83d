"""The paper's bounds, as numbers."""

import numpy as np
from numpy.typing import ArrayLike

from fedbandit_jax.clocks.elimination import log_term


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


def communication_bound(horizon: ArrayLike, *, dim: int, clients: ArrayLike) -> np.ndarray:
    """M log2(T) (3 d^2 + 5 d) scalars: every client uploads all d eigenpairs in each of at most log2 T phases.

    A phase of a client: up d (1 + d) for the pairs and d^2 + d for G and W, down d (2 + d) for key terms and d for
    theta_hat.
    """
    T, M = (np.asarray(x, float) for x in (horizon, clients))
    return np.asarray(M * np.log2(T) * (3 * dim**2 + 5 * dim))


def question_fraction_bound(eps: ArrayLike, lambda_min: ArrayLike, *, dim: int, N: float, C: float) -> np.ndarray:
    """(3 / (4 (1 - eps^2)) - d N lambda_min) / (N C^2), of a phase's pulls; 0 where lambda_min is at least s."""
    eps, least = np.asarray(eps, float), np.asarray(lambda_min, float)
    return np.asarray(np.maximum(3 / (4 * (1 - eps**2)) - dim * N * least, 0) / (N * C**2))


def active_gap_bound(eps: ArrayLike, *, clients: ArrayLike, N: float) -> np.ndarray:
    """8 sqrt(N/M) eps: the largest gap of an arm that is active in a phase, on the good event."""
    return np.asarray(8 * np.sqrt(N / np.asarray(clients, float)) * np.asarray(eps, float))

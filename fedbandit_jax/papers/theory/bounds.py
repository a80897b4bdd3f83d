"""The paper's bounds, as numbers."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedbandit_jax import _checks
from fedbandit_jax.clocks.elimination import log_term

MOST_DIMENSIONS = 10**9  # the bounds take powers of it


def numbers_in(name: str, value: Any, low: float, high: float = math.inf, ends: str = "[)") -> np.ndarray:
    """One number or an array of numbers within an interval, as float64; NaN, for runs that have none, passes."""
    found = _checks.floats(_checks.plain(value))
    if found is None:
        _checks.fail(name, value, "it must be a number or an array of numbers")
    above = found < low if ends[0] == "[" else found <= low
    below = found > high if ends[1] == "]" else found >= high
    wrong = found[above | below | (np.isnan(found) if found.ndim == 0 else False)]
    if wrong.size:
        _checks.fail(name, float(wrong.flat[0]), f"it must be in {ends[0]}{low:g}, {high:g}{ends[1]}")
    return found


def regret_upper_bound(
    horizon: ArrayLike,
    *,
    dim: int,
    clients: ArrayLike,
    arms: ArrayLike,
    delta: ArrayLike = 0.1,
    N: ArrayLike = 1.0,
    sigma: ArrayLike = 1.0,
) -> np.ndarray:
    """32 sigma sqrt(N d M T LOG) + 4 d (d + 1) sqrt(N M), which holds with probability 1 - delta.

    The second term pays for rounding pulls up, on a design of at most d (d + 1) / 2 arms; the designs here may
    use all K, so that the larger of the two numbers enters. sigma = 1 is the paper's.
    """
    T, M, K = numbers_in("horizon", horizon, 1), numbers_in("clients", clients, 1), numbers_in("arms", arms, 1)
    dim, delta = _checks.whole("dim", dim, 1, MOST_DIMENSIONS), numbers_in("delta", delta, 0, 1, "()")
    N, sigma = numbers_in("N", N, 0, ends="()"), numbers_in("sigma", sigma, 0)
    log = log_term(K, M, T, delta)
    support = np.maximum(dim * (dim + 1) / 2, K)
    return np.asarray(32 * sigma * np.sqrt(N * dim * M * T * log) + 8 * support * np.sqrt(N * M))


def regret_lower_bound(horizon: ArrayLike, *, dim: int, clients: ArrayLike) -> np.ndarray:
    """(e^-4 / 8) sqrt((d - 1) M T): what no algorithm beats on its worst instance, sigma = 1."""
    T, M, dim = (
        numbers_in("horizon", horizon, 1),
        numbers_in("clients", clients, 1),
        _checks.whole("dim", dim, 1, MOST_DIMENSIONS),
    )
    return np.asarray(np.exp(-4) / 8 * np.sqrt((dim - 1) * M * T))


def communication_bound(horizon: ArrayLike, *, dim: int, clients: ArrayLike) -> np.ndarray:
    """M log2(T) (3 d^2 + 5 d) scalars: every client uploads all d eigenpairs in each of at most log2 T phases.

    A phase of a client: up d (1 + d) for the pairs and d^2 + d for G and W, down d (2 + d) for key terms and d for
    theta_hat.
    """
    T, M, dim = (
        numbers_in("horizon", horizon, 1),
        numbers_in("clients", clients, 1),
        _checks.whole("dim", dim, 1, MOST_DIMENSIONS),
    )
    return np.asarray(M * np.log2(T) * (3 * dim**2 + 5 * dim))


def question_fraction_bound(
    eps: ArrayLike, lambda_min: ArrayLike, *, dim: int, N: ArrayLike, C: ArrayLike
) -> np.ndarray:
    """(3 / (4 (1 - eps^2)) - d N lambda_min) / (N C^2), of a phase's pulls; 0 where lambda_min is at least s."""
    eps, least = numbers_in("eps", eps, 0, 1, "()"), numbers_in("lambda_min", lambda_min, 0, math.inf, "[]")
    dim, N = _checks.whole("dim", dim, 1, MOST_DIMENSIONS), numbers_in("N", N, 0, ends="()")
    C = numbers_in("C", C, 0, 1, "(]")
    return np.asarray(np.maximum(3 / (4 * (1 - eps**2)) - dim * N * least, 0) / (N * C**2))


def active_gap_bound(eps: ArrayLike, *, clients: ArrayLike, N: ArrayLike) -> np.ndarray:
    """8 sqrt(N/M) eps: the largest gap of an arm that is active in a phase, on the good event."""
    M, eps = numbers_in("clients", clients, 1), numbers_in("eps", eps, 0, 1, "(]")
    return np.asarray(8 * np.sqrt(numbers_in("N", N, 0, ends="()") / M) * eps)

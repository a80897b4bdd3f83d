"""How often intervals hold the truth, and how often true claims are refuted, by simulation.

A run's metric is its mean times one plus what its user and its seed add, both normal. Half of the users' variance is
the same for all algorithms and all values of a parameter. Skewed metrics are lognormal. Every trial draws new users.
A share near 95 % of 20,000 trials has a standard error of 0.15 %.

    python -m benchmarks.coverage
"""

from collections.abc import Sequence

import numpy as np

from fedbandit_jax.papers import verdict
from fedbandit_jax.results import statistics

TRIALS = 20_000
USERS, SEEDS = (2, 3, 5, 10), (1, 4)
USER_SPREAD, SEED_SPREAD = 0.25, 0.2  # relative; 0.04 to 0.46 and 0.08 to 0.69 in runs on the synthetic data
SKEWED_SPREAD = 0.8  # of logarithms, between users
RATIO, CLIENTS, EXPONENT = 0.7, (3, 6, 9, 12, 15), 1.0
NAMES = {False: "normal", True: "lognormal"}
COLUMNS = ("summary", 'summary "log"', "compare", "exponent")


def unit_means(
    rng: np.random.Generator, means: Sequence[float], users: int, seeds: int, trials: int = TRIALS, skew: bool = False
) -> np.ndarray:
    """Users' means over their seeds, (trials, users, columns), of a metric with these means."""
    shape = (trials, users, len(means))
    shared, own = rng.normal(size=(*shape[:2], 1)), rng.normal(size=shape)
    user = (shared + own) / np.sqrt(2)
    seed = rng.normal(size=(*shape[:2], seeds, shape[2]))
    if not skew:
        return np.asarray(means) * (1 + USER_SPREAD * user + SEED_SPREAD * seed.mean(axis=2))
    logarithms = SKEWED_SPREAD * user[:, :, None] + SEED_SPREAD * seed
    expected = np.exp((SKEWED_SPREAD**2 + SEED_SPREAD**2) / 2)
    return np.asarray(means) * np.exp(logarithms).mean(axis=2) / expected


def held(value: np.ndarray, half: np.ndarray, truth: float) -> float:
    """The share of intervals value ± half with the truth in them."""
    return float((np.abs(value - truth) <= half).mean())


def coverage(users: int, seeds: int, skew: bool, trials: int = TRIALS) -> dict[str, float]:
    """The share of 95 % intervals that hold the truth, of the summary, compare and exponent."""
    rng = np.random.default_rng(0)
    one = unit_means(rng, [1.0], users, seeds, trials, skew)
    two = unit_means(rng, [RATIO, 1.0], users, seeds, trials, skew)
    law = unit_means(rng, np.asarray(CLIENTS, float) ** EXPONENT, users, seeds, trials, skew)
    slope = statistics.slope_weights(np.asarray(CLIENTS, float))
    logarithmic = [
        (one, np.ones(1), 0.0),
        (two, np.array([1.0, -1.0]), np.log(RATIO)),
        (law, slope, EXPONENT),
    ]
    found = [held(one.mean(axis=1)[:, 0], statistics.half_width(one[..., 0], axis=1), 1.0)]
    for units, weights, truth in logarithmic:
        with np.errstate(invalid="ignore"):  # a normal metric of few users may be negative: that counts as a miss
            value = np.log(units.mean(axis=1)) @ weights
        found.append(held(value, statistics.log_half_width(units, weights), truth))
    return dict(zip(COLUMNS, found, strict=True))


def refuted(users: int, baselines: int, confidence: float, skew: bool = False, trials: int = TRIALS) -> float:
    """How often one of some baselines that are linear in M, of one seed, is said not to be, from M = 5 and 10."""
    rng = np.random.default_rng(1)
    clients = np.array([5.0, 10.0])
    weights = statistics.slope_weights(clients)
    said = np.zeros(trials, bool)
    for _ in range(baselines):
        units = unit_means(rng, clients, users, 1, trials, skew)
        exponent = np.log(units.mean(axis=1)) @ weights
        half = statistics.log_half_width(units, weights, confidence)
        said |= np.abs(exponent - 1) - verdict.TOLERANCE > half
    return float(said.mean())


def main() -> None:
    for skew in (False, True):
        print(f"\n{NAMES[skew]} users: intervals that hold the truth\n\n| users | seeds | {' | '.join(COLUMNS)} |")
        print("| --- " * (2 + len(COLUMNS)) + "|")
        for users in USERS:
            for seeds in SEEDS:
                found = coverage(users, seeds, skew)
                print(f"| {users} | {seeds} | {' | '.join(f'{found[name]:.1%}' for name in COLUMNS)} |")
    for skew in (False, True):
        print(f"\n{NAMES[skew]} users, six of them: a baseline that is linear in M is said not to be\n")
        print("| baselines | each at 95 % | together at 95 % |\n| --- | --- | --- |")
        for baselines in (1, 4, 6):
            together = verdict.confidence_of_each(baselines)
            shares = (refuted(6, baselines, confidence, skew) for confidence in (statistics.CONFIDENCE, together))
            print(f"| {baselines} | {' | '.join(f'{share:.1%}' for share in shares)} |")


if __name__ == "__main__":
    main()

"""How often intervals hold the truth, and how often true claims are refuted, by simulation.

A run's metric is its mean times one plus what its user and its seed add, both normal. Half of the users' variance is
the same for all algorithms and all values of a parameter. Skewed metrics are lognormal. Every trial draws new users.
A share near 95 % of 20,000 trials has a standard error of 0.15 %.

    python -m benchmarks.coverage           # or: python -m benchmarks.coverage hard
"""

import sys
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from fedbandit_jax.papers import verdict
from fedbandit_jax.results import statistics

TRIALS = 20_000
USERS, SEEDS = (2, 3, 5, 10), (1, 4)
USER_SPREAD, SEED_SPREAD = 0.25, 0.2  # relative; 0.04 to 0.46 and 0.08 to 0.69 in runs on the synthetic data
SKEWED_SPREAD = 0.8  # of logarithms, between users
RATIO, CLIENTS, EXPONENT = 0.7, (3, 6, 9, 12, 15), 1.0
NAMES = {False: "normal", True: "lognormal"}
# "before": with degrees of freedom of all users, whatever they weigh.
COLUMNS = ("summary", 'summary "t"', 'summary "log"', "compare", "exponent", "compare before", "exponent before")
SHAPES = {"normal 0.25": 0.25, "lognormal 0.4": 0.4, "lognormal 0.8": 0.8, "lognormal 1.2": 1.2, "exponential": 1.0}
RESAMPLES = 499
HARD = ("lognormal 1.2", "lognormal 2.0", "one in 20 loses 20 times", "left-skewed 0.5", "left-skewed 0.8")
# Spreads of the logarithms of two learners' users, and the correlation of these logarithms.
PAIRS = ((0.8, 0.8, 0.9), (2.0, 2.0, 0.9), (2.0, 1.0, 0.9), (1.0, 2.0, 0.9), (1.2, 0.3, 0.5))


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


def held(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    """The share of intervals that do not leave out the truth; a mean that is refused one, NaN, misleads nobody."""
    return 1 - float(((low > truth) | (truth > high)).mean())


def held_where_given(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    """The share of the intervals that there are which hold the truth; NaN if there is none."""
    given = np.isfinite(low)
    return held(low[given], high[given], truth) if given.any() else float("nan")


def refused(low: np.ndarray) -> float:
    """The share of trials without an interval, as too few users carry the mean."""
    return float(np.isnan(low).mean())


def coverage(users: int, seeds: int, skew: bool, trials: int = TRIALS) -> dict[str, float]:
    """The share of 95 % intervals that do not leave out the truth, of the summary, compare and exponent."""
    rng = np.random.default_rng(0)
    one = unit_means(rng, [1.0], users, seeds, trials, skew)[..., 0].T
    two = unit_means(rng, [RATIO, 1.0], users, seeds, trials, skew)
    law = unit_means(rng, np.asarray(CLIENTS, float) ** EXPONENT, users, seeds, trials, skew)
    slope = statistics.slope_weights(np.asarray(CLIENTS, float))
    contrasts = [(two, np.array([1.0, -1.0]), np.log(RATIO)), (law, slope, EXPONENT)]
    with np.errstate(invalid="ignore"):  # a normal metric of few users may be negative: that counts as a miss
        found = [held(*statistics.mean_ends(one, one.mean(axis=0), name), 1.0) for name in statistics.INTERVALS]
        for before in (False, True):
            for units, weights, truth in contrasts:
                value = np.log(units.mean(axis=1)) @ weights
                half = statistics.t_quantile(users) * statistics.log_error(units, weights)
                low, high = (-half, half) if before else statistics.log_ends(units, weights)
                found.append(held(value + low, value + high, truth))
    return dict(zip(COLUMNS, found, strict=True))


def drawn(shape: str, users: int, trials: int) -> np.ndarray:
    """Users with a mean of one, (users, trials)."""
    rng, spread = np.random.default_rng(2), SHAPES[shape]
    if shape == "exponential":
        return rng.exponential(size=(users, trials))
    normal = spread * rng.normal(size=(users, trials))
    return 1 + normal if shape.startswith("normal") else np.exp(normal - spread**2 / 2)


def bootstrap_ends(units: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What resampling gives in place of `mean_ends`: the bootstrap-t, and BCa (Efron's, as scipy.stats has it)."""
    n, trials = units.shape
    shares = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n
    mean, means = units.mean(axis=0), shares @ units
    spread = np.sqrt(np.maximum(shares @ units**2 - means**2, 0))
    t = np.divide(means - mean, spread, out=np.sign(means - mean) * 1e3, where=spread > 1e-9)
    first, last = np.quantile(t, [0.025, 0.975], axis=0) * units.std(axis=0)
    centred = units - mean
    a = (centred**3).sum(axis=0) / (6 * (centred**2).sum(axis=0) ** 1.5)
    z0 = ndtri(np.clip((means < mean).mean(axis=0), 1e-3, 1 - 1e-3))
    levels = [ndtr(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in ndtri([0.025, 0.975])]
    at = [np.minimum((level * RESAMPLES).astype(int), RESAMPLES - 1) for level in levels]
    ordered = np.sort(means, axis=0)
    low, high = (ordered[i, np.arange(trials)] for i in at)
    return {"bootstrap-t": (mean - last, mean - first), "BCa": (low, high)}


def shapes(users: int, trials: int = 4000) -> dict[str, dict[str, tuple[float, float]]]:
    """For each way to make an interval of a mean and each shape: coverage, and its median length in that of "t"."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for shape in SHAPES:
        units = drawn(shape, users, trials)
        mean = units.mean(axis=0)
        ways = {name: statistics.mean_ends(units, mean, name) for name in statistics.INTERVALS} | bootstrap_ends(units)
        low, high = ways["t"]
        for name, ends in ways.items():
            length = float(np.nanmedian((ends[1] - ends[0]) / (high - low)))
            found.setdefault(name, {})[shape] = held(*ends, 1.0), length
    return found


def refuted(users: int, baselines: int, confidence: float, skew: bool = False, trials: int = TRIALS) -> float:
    """How often one of some baselines that are linear in M, of one seed, is said not to be, from M = 5 and 10."""
    rng = np.random.default_rng(1)
    clients = np.array([5.0, 10.0])
    weights = statistics.slope_weights(clients)
    said = np.zeros(trials, bool)
    for _ in range(baselines):
        units = unit_means(rng, clients, users, 1, trials, skew)
        exponent = np.log(units.mean(axis=1)) @ weights
        low, high = statistics.log_ends(units, weights, confidence)
        said |= (exponent + low > 1 + verdict.TOLERANCE) | (exponent + high < 1 - verdict.TOLERANCE)
    return float(said.mean())


def falsely_decided(
    users: int, looks: Sequence[int], spend: bool, user_spread: float, seed_spread: float, trials: int = TRIALS
) -> float:
    """How often "at least 30 % below", true of a ratio of just 0.7, is decided, with a look after each count of seeds.

    The first look that decides ends it. With `spend` looks have the confidence that verdicts have, else 95 % each.
    """
    rng = np.random.default_rng(3)
    weights = np.array([1.0, -1.0])
    user = user_spread * rng.normal(size=(trials, users, 2))
    total, seeds, said = np.zeros_like(user), 0, np.zeros(trials, bool)
    for k, count in enumerate(looks, start=1):
        total += seed_spread * np.sqrt(count - seeds) * rng.normal(size=total.shape)
        seeds = count
        units = np.array([RATIO, 1.0]) * np.maximum(1 + user + total / seeds, 1e-3)
        confidence = verdict.confidence_of_look(k, last=k == len(looks)) if spend else statistics.CONFIDENCE
        value = np.log(units.mean(axis=1)) @ weights - np.log(RATIO)
        low, high = statistics.log_ends(units, weights, confidence)
        said |= (value + low > 0) | (value + high < 0)
    return float(said.mean())


def hard_users(case: str, users: int, trials: int) -> tuple[np.ndarray, float, float]:
    """Users for whom intervals of means are hard, (users, trials), with their true mean and median."""
    rng = np.random.default_rng(4)
    z = rng.normal(size=(users, trials))
    if case == "one in 20 loses 20 times":
        # Factors of 1 and 20 do not overlap, so that the median is the 0.5 / 0.95 quantile of the former.
        rare = rng.random((users, trials)) < 0.05
        return np.where(rare, 20, 1) * np.exp(0.2 * z - 0.02), 1.95, float(np.exp(0.2 * ndtri(0.5 / 0.95) - 0.02))
    spread = float(case.split()[-1])
    skewed = np.exp(spread * z)
    if case.startswith("lognormal"):
        return skewed, float(np.exp(spread**2 / 2)), 1.0
    top = 12.0  # left-skewed: what is left of it
    return top - skewed, top - float(np.exp(spread**2 / 2)), top - 1.0


def hard_means(case: str, users: int, trials: int = TRIALS) -> dict[str, float]:
    """How `summary` does: means that are refused an interval, and shares of experiments that do not mislead."""
    units, mean, median = hard_users(case, users, trials)
    low, high = statistics.mean_ends(units, units.mean(axis=0))
    of_t = statistics.mean_ends(units, units.mean(axis=0), "t")
    ends = np.array([statistics.median_interval(column)[1:] for column in units.T[:2000]])
    return {
        "no interval": refused(low),
        "mean": held(low, high, mean),
        "mean, where given": held_where_given(low, high, mean),
        'mean "t"': held(*of_t, mean),
        "median": held(*ends.T, median) if users > 5 else float("nan"),
    }


def hard_pairs(case: tuple[float, float, float], users: int, trials: int = TRIALS) -> dict[str, float]:
    """How `compare` does, for learners whose users have these spreads of logarithms, with this correlation."""
    rng = np.random.default_rng(5)
    one, other, correlation = case
    z = rng.normal(size=(2, trials, users))
    second = correlation * z[0] + np.sqrt(1 - correlation**2) * z[1]
    units = np.stack([RATIO * np.exp(one * z[0]), np.exp(other * second)], axis=-1)
    weights = np.array([1.0, -1.0])
    truth = float(np.log(RATIO) + (one**2 - other**2) / 2)
    value = np.log(units.mean(axis=1)) @ weights
    low, high = (value + end for end in statistics.log_ends(units, weights))
    # log(ours / theirs) is normal, so that the share of users for which it is negative and its mean are known.
    spread = np.sqrt(one**2 + other**2 - 2 * correlation * one * other)
    share = float(ndtr(-np.log(RATIO) / spread))
    better = np.array([list(statistics.better_for(pair).values())[2:] for pair in units[:2000]])
    typical = np.array([list(statistics.typical_below(pair).values())[1:] for pair in units[:2000]])
    return {
        "no interval": refused(low),
        "percent_below": held(low, high, truth),
        "percent_below, where given": held_where_given(low, high, truth),
        "better_for": held(*better.T, share),
        "typical_below": held(*typical.T, 100 * (1 - RATIO)),
    }


def print_hard_cases() -> None:
    for title, cases, judge in (("summary", HARD, hard_means), ("compare", PAIRS, hard_pairs)):
        names = tuple(judge(cases[0], 5, 10))
        print(
            f"\n{title}, users that differ by factors: shares of experiments\n\n| users | case | {' | '.join(names)} |"
        )
        print("| --- " * (2 + len(names)) + "|")
        for case in cases:
            for users in (5, 6, 10, 20, 40):
                found = judge(case, users)
                told = case if isinstance(case, str) else "spreads {} and {}, correlation {}".format(*case)
                print(f"| {users} | {told} | {' | '.join(f'{share:.1%}' for share in found.values())} |")


def main() -> None:
    print_hard_cases()
    if "hard" in sys.argv[1:]:
        return
    for skew in (False, True):
        print(f"\n{NAMES[skew]} users: intervals that hold the truth\n\n| users | seeds | {' | '.join(COLUMNS)} |")
        print("| --- " * (2 + len(COLUMNS)) + "|")
        for users in USERS:
            for seeds in SEEDS:
                found = coverage(users, seeds, skew)
                print(f"| {users} | {seeds} | {' | '.join(f'{found[name]:.1%}' for name in COLUMNS)} |")
    print(f"\nmeans: coverage, and median length in that of t\n\n| users | interval | {' | '.join(SHAPES)} |")
    print("| --- " * (2 + len(SHAPES)) + "|")
    for users in (3, 5, 10, 20):
        for name, told in shapes(users).items():
            cells = (f"{share:.1%}, {length:.2f}" for share, length in told.values())
            print(f"| {users} | {name} | {' | '.join(cells)} |")
    for skew in (False, True):
        print(f"\n{NAMES[skew]} users, six of them: a baseline that is linear in M is said not to be\n")
        print("| baselines | each at 95 % | together at 95 % |\n| --- | --- | --- |")
        for baselines in (1, 4, 6):
            together = verdict.confidence_of_each(baselines)
            shares = (refuted(6, baselines, confidence, skew) for confidence in (statistics.CONFIDENCE, together))
            print(f"| {baselines} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    print("\nten users, a claim at its boundary: decided at one of some looks, with twice the seeds each time\n")
    print("| looks | users differ by | seeds by | each at 95 % | as verdicts do |\n| --- | --- | --- | --- | --- |")
    for looks in (1, 3, 6):
        for spreads in ((0.25, 0.2), (0.02, 0.25)):
            counts = [4 * 2**i for i in range(looks)]
            shares = (falsely_decided(10, counts, spend, *spreads) for spend in (False, True))
            told = " | ".join([*map(str, spreads), *(f"{share:.1%}" for share in shares)])
            print(f"| {looks} | {told} |")


if __name__ == "__main__":
    main()

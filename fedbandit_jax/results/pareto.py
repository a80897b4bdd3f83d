"""Who is on the Pareto front of two final metrics, by paired intervals.

One setting dominates another if it has no more of either metric and less of one. Of every pair the differences are
known within intervals only, so a setting is

    on the front    every other is known to have more of one metric: by intervals of the given confidence
    dominated       some other is known to dominate it: by intervals widened for the number of others, as one decides
    undecided       neither; more users or seeds may tell
"""

import numpy as np
import pandas as pd

from fedbandit_jax.results import statistics

ON_FRONT, DOMINATED, UNDECIDED = "on the front", "dominated", "undecided"


def front_table(final: pd.DataFrame, x: str, y: str, confidence: float = statistics.CONFIDENCE) -> pd.DataFrame:
    """A row for each label at each place: both means with their intervals, the word, and `by` whom, if by one.

    Only settings that have both metrics are there, and each pair is compared on the runs that both have.
    """
    where = statistics.places(final)
    rows = []
    for place, group in final.dropna(subset=[x, y]).groupby(where, sort=False, dropna=False):
        labels = list(group["label"].unique())
        runs = {m: group.pivot_table(index=["user", "seed"], columns="label", values=m)[labels] for m in (x, y)}
        for i, word, by in judge(runs[x], runs[y], confidence):
            own = group[group["label"] == labels[i]]
            row = {"label": labels[i], "algorithm": own["algorithm"].iloc[0], **dict(zip(where, place, strict=True))}
            for metric in (x, y):
                found = statistics.mean_interval(own, metric, confidence=confidence)
                row |= {metric: found["mean"], f"{metric}_low": found["low"], f"{metric}_high": found["high"]}
            rows.append(row | {"front": word, "by": "" if by is None else labels[by]})
    return pd.DataFrame(rows)


def judge(x: pd.DataFrame, y: pd.DataFrame, confidence: float) -> list[tuple[int, str, int | None]]:
    """(place, word, by whom) of every column; rows are runs, of index (user, seed)."""
    count, means = x.shape[1], y.mean().to_numpy()
    wide = 1 - (1 - confidence) / max(count - 1, 1)
    plain, widened = (np.stack([signs(x, level), signs(y, level)], axis=-1) for level in (confidence, wide))
    # Entries (j, i): whether j is ruled out as one that dominates i, and whether it is known to be one.
    ruled_out = np.asarray((plain > 0).any(axis=-1) | (plain == 0).all(axis=-1))
    dominates = np.asarray((widened <= 0).all(axis=-1) & (widened < 0).any(axis=-1))
    found: list[tuple[int, str, int | None]] = []
    for i in range(count):
        do, may = np.flatnonzero(dominates[:, i]), np.flatnonzero(~ruled_out[:, i])
        word = DOMINATED if len(do) else UNDECIDED if len(may) else ON_FRONT
        by = do if len(do) else may
        found.append((i, word, int(by[means[by].argmin()]) if len(by) else None))
    return found


def signs(table: pd.DataFrame, confidence: float) -> np.ndarray:
    """Sign of mean[j] - mean[i] at [j, i]: 0 if all runs tie, NaN if undecided."""
    count = table.shape[1]
    j, i = np.triu_indices(count, 1)
    if table.notna().all(axis=None):
        units = statistics.interval_units(table)
        found = known_signs(np.stack([units[:, j], units[:, i]], axis=-1).swapaxes(0, 1), confidence)
    else:
        found = np.full(len(j), np.nan)
        for k, pair in enumerate(zip(j, i, strict=True)):
            runs = table.iloc[:, list(pair)].dropna()
            if len(runs):
                found[k] = known_signs(statistics.interval_units(runs)[None], confidence)[0]
    matrix = np.zeros((count, count))
    matrix[j, i], matrix[i, j] = found, -found
    return matrix


def known_signs(units: np.ndarray, confidence: float) -> np.ndarray:
    """Signs of the differences of pairs of means whose units are (pairs, units, 2); NaN if not known.

    By the interval of the ratio, as users may differ by factors, or of the difference where there is none; not known
    if too few units carry a mean. Of counts, which are never negative, more than nothing is known to be more.
    """
    means, least = units.mean(axis=1), units.min(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.log(means[:, 0] / means[:, 1])
        low, high = statistics.log_ends(units, np.array([1.0, -1.0]), confidence)
    difference = units[..., 0] - units[..., 1]
    half = statistics.half_width(difference, axis=1, confidence=confidence)
    half = np.where(statistics.too_few_carry(units).any(axis=1), np.nan, half)
    plain = ~np.isfinite(middle) | ~np.isfinite(low)
    middle = np.where(plain, difference.mean(axis=1), middle)
    low, high = middle + np.where(plain, -half, low), middle + np.where(plain, half, high)
    found = np.where(low > 0, 1.0, np.where(high < 0, -1.0, np.nan))
    nothing = (units == 0).all(axis=1) & (units.shape[1] > 1)
    one_has = nothing.any(axis=1) & (means > 0).any(axis=1) & (least >= 0).all(axis=1)
    found = np.where(one_has, np.sign(means[:, 0] - means[:, 1]), found)
    return np.where((difference == 0).all(axis=1), 0.0, found)

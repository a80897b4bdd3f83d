"""Statistics of runs: intervals whose units are users, quantiles, paired comparisons, fitted exponents."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.results.labels import labels_of

CONFIDENCE = 0.95
INTERVALS = ("auto", "t", "log")
ENOUGH = 5  # users, to correct intervals for their skew
LEAST_SHARE = 1e-9  # of a mean: what the other users have less of than this, they do not have
PLACES = ("dataset", "clients", "arms", "horizon", "noise")  # where algorithms meet, besides their world


def interval_units(runs: pd.DataFrame) -> np.ndarray:
    """The independent units behind means, (units, columns): users (each its mean over seeds), or one user's seeds."""
    by_user = runs.groupby(level="user").mean()
    return (by_user if len(by_user) > 1 else runs).to_numpy(float)


def half_width(units: np.ndarray, axis: int = 0, confidence: float = CONFIDENCE) -> np.ndarray:
    """Half the t-interval of the mean of independent units; NaN for a single one."""
    n = units.shape[axis]
    if n < 2:
        return np.full(units.mean(axis=axis).shape, np.nan)
    return np.asarray(t_quantile(n, confidence) * units.std(axis=axis, ddof=1) / np.sqrt(n))


def mean_ends(
    units: np.ndarray, mean: np.ndarray, interval: str = "auto", confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """Low and high ends of the intervals of means, whose units are (units, columns).

    "t" is mean ± half, "log" the t-interval of the mean's logarithm. "auto" is for users that may differ by factors:
    with h = half / mean from mean e^-h to mean e^(h + 2/3 h min(h, 1)), which is t where they are alike. Few skewed
    users seldom have the largest among them, and then spread and mean are both too small: so the upper end is further.
    How far, simulation says (benchmarks/coverage.py). It is t for fewer than five users, and where one is negative.
    """
    half = half_width(units, confidence=confidence)
    if interval == "log":
        half = t_quantile(len(units), confidence) * log_error(units.T[..., None], np.ones(1))
        return mean * np.exp(-half), mean * np.exp(half)
    if interval == "t" or len(units) < ENOUGH:
        return mean - half, mean + half
    positive = (mean > 0) & (units.min(axis=0) >= 0)
    h = np.where(positive, half, 0) / np.where(positive, mean, 1)
    low, high = mean * np.exp(-h), mean * np.exp(h + 2 / 3 * h * np.minimum(h, 1))
    return np.where(positive, low, mean - half), np.where(positive, high, mean + half)


def log_error(units: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Standard error of log(means) @ weights, of units (..., units, columns), by the jackknife.

    It is that of the mean of Tukey's pseudo-values, U f - (U - 1) f_without_u. NaN for a single unit, or if one has all
    there is.
    """
    n = units.shape[-2]
    total = units.sum(axis=-2, keepdims=True)
    others = (total - units) / max(n - 1, 1)
    others = np.where(others > np.maximum(LEAST_SHARE * total / n, 0), others, np.nan)
    pseudo = (n - 1) * (np.log(others) @ weights)
    return np.asarray(pseudo.std(axis=-1, ddof=min(n - 1, 1)) / np.sqrt(n))


def effective_units(units: np.ndarray) -> np.ndarray:
    """How many units of one size would weigh as much: (sum x)^2 / sum x^2 (Kish), in the column where it is most.

    Two at least; and all of fewer than five, who say little of their skew.
    """
    n = units.shape[-2]
    squares = (units**2).sum(axis=-2)
    found = (units.sum(axis=-2) ** 2 / np.where(squares > 0, squares, np.nan)).max(axis=-1)
    return np.asarray(np.maximum(found, 2 if n >= ENOUGH else n))


def log_half_width(units: np.ndarray, weights: np.ndarray, confidence: float = CONFIDENCE) -> np.ndarray:
    """Half the t-interval of a contrast log(means) @ weights, of units (..., units, columns), by the jackknife.

    Logarithms, as units may differ by factors. Where a few have most of all there is, only they count: the degrees of
    freedom are those of the effective units. NaN for a single unit, or if one has all there is.
    """
    return np.asarray(t_quantile(effective_units(units), confidence) * log_error(units, weights))


def t_quantile(units: Any, confidence: float = CONFIDENCE) -> Any:
    """Of Student's t, for an interval of the mean of some units."""
    from scipy.special import stdtrit  # here, as it is slow to import

    return stdtrit(np.asarray(units) - 1.0, (1 + confidence) / 2)


def half_width_given_users(group: pd.DataFrame, metric: str) -> float:
    """Half the 95 % t-interval of the mean over these very users: only seeds vary, strata are users.

    sqrt(sum_u s_u^2 / n_u) / U, with the s_u^2 of all users pooled; NaN if no user has two seeds.
    """
    by_user = group.groupby("user")[metric]
    seeds = by_user.count().to_numpy()
    freedom = int((seeds - 1).sum())
    if freedom == 0:
        return float("nan")
    pooled = float(((seeds - 1) * by_user.var(ddof=1).fillna(0).to_numpy()).sum()) / freedom
    return float(t_quantile(freedom + 1) * np.sqrt(pooled * (1 / seeds).sum()) / len(seeds))


def share_interval(count: int, total: int) -> tuple[float, float]:
    """The exact 95 % interval of a share, `count` of `total` (Clopper and Pearson)."""
    from scipy.stats import binomtest  # here, as it is slow to import

    found = binomtest(count, total).proportion_ci(confidence_level=CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def mean_interval(
    group: pd.DataFrame, metric: str, interval: str = "auto", confidence: float = CONFIDENCE
) -> pd.Series:
    """Count, mean, standard deviation over runs, and the interval of the mean."""
    mean = group[metric].mean()
    low, high = mean_ends(interval_units(group.set_index("user")[[metric]]), np.array([mean]), interval, confidence)
    return pd.Series({"count": len(group), "mean": mean, "sd": group[metric].std(), "low": low[0], "high": high[0]})


def paired(pairs: pd.DataFrame, confidence: float = CONFIDENCE) -> dict[str, float]:
    """Two columns of paired runs, index (user, seed): percent the first lies below, and difference, with intervals.

    The ratio's interval is one of its logarithm. It is a point if the first is 0 in every run.
    """
    units = interval_units(pairs)
    ours, theirs = units.mean(axis=0)
    ratio = ours / theirs if theirs != 0 else float("nan")
    nothing = len(units) > 1 and not units[:, 0].any()
    factor = 1.0 if nothing else float(np.exp(log_half_width(units, np.array([1.0, -1.0]), confidence)))
    half = float(half_width(units[:, 0] - units[:, 1], confidence=confidence))
    return {
        "pairs": len(pairs),
        "percent_below": 100 * (1 - ratio),
        "low": 100 * (1 - ratio * factor),
        "high": 100 * (1 - ratio / factor),
        "difference": ours - theirs,
        "difference_low": ours - theirs - half,
        "difference_high": ours - theirs + half,
    }


def quantile_table(table: pd.DataFrame, keys: Sequence[str], metric: str, levels: Sequence[float]) -> pd.DataFrame:
    """Quantiles over the runs of each group, in columns q10, q50 ..."""
    found = table.groupby(list(keys), dropna=False, sort=False)[metric].quantile(list(levels)).unstack(level=-1)
    return found.rename(columns=lambda level: f"q{100 * level:g}").rename_axis(columns=None).reset_index()


def power_law(table: pd.DataFrame, parameter: str, metric: str, confidence: float = CONFIDENCE) -> dict[str, float]:
    """Least squares of log(mean) = log(factor) + exponent log(parameter), with the exponent's interval.

    The interval is of the users and seeds that all values of the parameter share. NaN where a value or a mean is not
    positive.
    """
    nothing = dict.fromkeys(("exponent", "low", "high", "factor"), float("nan"))
    runs = table.assign(**{parameter: table[parameter].astype(float)})
    runs = runs.pivot_table(index=["user", "seed"], columns=parameter, values=metric, aggfunc="mean")
    at = runs.columns.to_numpy(float)
    means = np.nanmean(interval_units(runs), axis=0)
    if len(at) < 2 or at.min() <= 0 or not means.min() > 0:
        return {"points": len(at), **nothing}
    weights = slope_weights(at)
    exponent = float(weights @ np.log(means))
    factor = float(np.exp(np.log(means).mean() - exponent * np.log(at).mean()))
    common = runs.dropna()
    half = float(log_half_width(interval_units(common), weights, confidence)) if len(common) else float("nan")
    return {"points": len(at), "exponent": exponent, "low": exponent - half, "high": exponent + half, "factor": factor}


def slope_weights(at: np.ndarray) -> np.ndarray:
    """What the least-squares slope over log(at) weighs its points with."""
    log = np.log(at) - np.log(at).mean()
    return log / (log @ log)


def setting_columns(table: pd.DataFrame) -> list[str]:
    """The columns that tell one setting from another."""
    return [c for c in table.columns[: table.columns.get_loc("round")] if c not in ("user", "seed")]


def metric_columns(table: pd.DataFrame) -> list[str]:
    """The columns behind "round"; one that an algorithm does not tell is NaN there."""
    return list(table.columns[table.columns.get_loc("round") + 1 :])


def places(table: pd.DataFrame) -> list[str]:
    """Where algorithms meet: the columns of PLACES, and those of their world, which stand before the noise."""
    columns = list(table.columns)
    world = columns[columns.index("horizon") + 1 : columns.index("noise")] if {"horizon", "noise"} <= {*columns} else []
    return [*(c for c in PLACES if c in table), *world]


def varied_places(table: pd.DataFrame) -> list[str]:
    """The places that take several values."""
    return [c for c in places(table) if table[c].nunique(dropna=False) > 1]


def varied_parameters(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns of numbers that take several values for one algorithm."""
    found = []
    for name in columns:
        if name in ("dataset", "algorithm", "label"):
            continue
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.groupby(table["algorithm"]).nunique().max() > 1:
            found.append(name)
    return found


def check_varied(argument: str, name: str, varied: Sequence[str]) -> None:
    """`name` is one of the parameters that vary."""
    if not isinstance(name, str) or name not in varied:
        options = " or ".join(repr(option) for option in varied) or "none does"
        _checks.fail(argument, name, f"it must be a number that varies in these results, here {options}")


def lines(table: pd.DataFrame, *swept: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(label, place, rows) for all that differs besides the swept parameters, which labels then do not name.

    The place says which data set, clients, arms, horizon, noise and world, if these vary: "clients=3, arms=100".
    """
    table = table.assign(label=labels_without(table, [name for name in swept if name not in places(table)]))
    for name in swept:
        numbers = pd.to_numeric(table[name], errors="coerce")
        table = table[numbers.notna()].assign(**{name: numbers[numbers.notna()]})
    where = [c for c in varied_places(table) if c not in swept]
    for key, rows in table.groupby(["label", *where], sort=False, dropna=False):
        yield key[0], ", ".join(f"{c}={show(v)}" for c, v in zip(where, key[1:], strict=True)), rows


def labels_without(table: pd.DataFrame, swept: Sequence[str]) -> pd.Series:
    """The labels of the rows, without some hyperparameters."""
    if not swept:
        return table["label"]
    variants = table.drop_duplicates("label").sort_values("label", key=lambda labels: labels.map(by_number))
    given = [c for c in setting_columns(table) if c not in ("algorithm", "label", *places(table))]
    kept = [c for c in given if c not in swept]
    # Functions of the same name have the same text in a table, and only numbers in labels tell them apart: the first at
    # one swept value is the first at the next, in whatever order the runs are.
    twin = variants.groupby(["algorithm", *given], sort=False, dropna=False).cumcount()
    line = variants.groupby(["algorithm", *kept, twin], sort=False, dropna=False).ngroup()
    first = variants[~line.duplicated()]
    own = first[kept].astype(object).where(first[kept].notna(), None)
    names = labels_of([(title, own.loc[i].to_dict()) for i, title in first["algorithm"].items()])
    return table["label"].map(dict(zip(variants["label"], (names[i] for i in line), strict=True)))


def by_number(label: str) -> tuple[int, str]:
    """The order of labels that only a number at their end tells apart: (2) comes before (10)."""
    return len(label), label


def swept_lines(table: pd.DataFrame, parameter: str) -> list[tuple[str, str, pd.DataFrame]]:
    """The lines along which the parameter varies."""
    return [line for line in lines(table, parameter) if line[2][parameter].nunique() > 1]


def show(value: Any) -> str:
    """A number without needless digits, a word as it is."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)

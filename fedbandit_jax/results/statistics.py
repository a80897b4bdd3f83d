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
LEAST_TAIL = 1.1  # tail index of users from which a mean has an interval: below 1 there would be no mean
TAIL_USERS = 10  # fewer tell nothing of a tail
CALM = 0.5  # relative spread of users up to which a ratio of means is not corrected for skew
ALIKE = 0.1  # skew corrections of two means that differ by less than this cancel in the logarithm of their ratio
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
    with h = half / mean it reaches from mean e^(-h - 3 h g / sqrt(U)) to mean e^(h + 2/3 h min(h, 1)), where g is by
    how much the users' skewness to the left exceeds 1/2; that is t where users are alike. A few skewed users rarely
    include the extreme ones, and then spread and mean are both off to one side: so that side is longer. How long,
    simulation says (benchmarks/coverage.py). It is t for fewer than five users, and where one is negative; and NaN
    where too few users carry the mean (`too_few_carry`).
    """
    half = half_width(units, confidence=confidence)
    if interval == "log":
        half = t_quantile(len(units), confidence) * log_error(units.T[..., None], np.ones(1))
        return mean * np.exp(-half), mean * np.exp(half)
    low, high = mean - half, mean + half
    if interval == "t":
        return low, high
    if len(units) >= ENOUGH:
        positive = (mean > 0) & (units.min(axis=0) >= 0)
        h = np.where(positive, half, 0) / np.where(positive, mean, 1)
        longer = 1 + 3 / np.sqrt(len(units)) * np.maximum(left_skewness(units) - 0.5, 0)
        low = np.where(positive, mean * np.exp(-h * longer), low)
        high = np.where(positive, mean * np.exp(h + 2 / 3 * h * np.minimum(h, 1)), high)
    few = too_few_carry(units)
    return np.where(few, np.nan, low), np.where(few, np.nan, high)


def left_skewness(units: np.ndarray) -> np.ndarray:
    """Skewness of the units of each column, positive where they are skewed to the left."""
    centred = units - units.mean(axis=0)
    scale = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(-(centred**3).mean(axis=0) / np.where(scale > 0, scale, 1) ** 3)


def too_few_carry(units: np.ndarray) -> np.ndarray:
    """True for means that so few units carry that none of their intervals can be trusted, of (..., units, columns).

    There are two signs: fewer effective units than the square root of all, and from ten units on a tail index below
    1.1 in the upper quarter (Hill's estimate). Columns with a negative entry have none.
    """
    n = units.shape[-2]
    if n < 2:
        return np.zeros((*units.shape[:-2], units.shape[-1]), bool)
    found = effective_units(units) < np.sqrt(n)
    if n >= TAIL_USERS:
        largest = np.sort(units, axis=-2)[..., -(n // 4) - 1 :, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = np.log(largest[..., 1:, :] / largest[..., :1, :]).mean(axis=-2)
        found |= tail > 1 / LEAST_TAIL
    return np.asarray(found & (units.min(axis=-2) >= 0))


def carriers(units: np.ndarray) -> int:
    """How many of the units, the largest first, carry half of their sum; 0 if one is negative or all are 0."""
    if units.min() < 0 or not units.any():
        return 0
    shares = np.cumsum(np.sort(units)[::-1]) / units.sum()
    return int(np.searchsorted(shares, 0.5 * (1 - 1e-12)) + 1)


def too_few(units: np.ndarray, names: Sequence[str] = ("",), what: str = "users") -> str:
    """Why the means of some columns have no interval: "too few users: 1 of 5 carries half"; else ""."""
    told = []
    for name, column in zip(names, units.T, strict=True):
        if too_few_carry(column[:, None])[0]:
            count = carriers(column)
            told.append(f"{count} of {len(column)} {'carries' if count == 1 else 'carry'} half{name and ' of ' + name}")
    return f"too few {what}: {', '.join(told)}" if told else ""


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
    """How many units of one size would weigh as much (Kish), of (..., units, columns): (sum x)^2 / sum x^2."""
    squares = (units**2).sum(axis=-2)
    return np.asarray(units.sum(axis=-2) ** 2 / np.where(squares > 0, squares, np.nan))


def log_ends(units: np.ndarray, weights: np.ndarray, confidence: float = CONFIDENCE) -> tuple[np.ndarray, np.ndarray]:
    """Low and high ends of a contrast log(means) @ weights, less its value, of units (..., units, columns).

    A t-interval by the jackknife, of logarithms, as units may differ by factors. Where a few units have most of all
    there is, only they count: the degrees of freedom are those of the effective units, two at least, in the column
    where these are most; fewer than five units all count, as they say little of their skew. From five units on, the
    mean of skewed users is corrected upwards much as in `mean_ends`: by 3/2 h min(h, 1), for the part of
    h = half / mean that is due to a spread beyond CALM. What both sides of a ratio share cancels. NaN for a single
    unit, if one has all there is, or if too few units carry the mean of a column whose correction does not cancel.
    """
    n = units.shape[-2]
    error = log_error(units, weights)
    if n < ENOUGH:
        half = t_quantile(n, confidence) * error
        return np.asarray(-half), np.asarray(half)
    count = np.maximum(effective_units(units).max(axis=-1), 2)
    half = t_quantile(count, confidence) * error
    mean = units.mean(axis=-2)
    scale = t_quantile(n, confidence) / np.sqrt(n)
    spread = units.std(axis=-2, ddof=1) / np.where(mean > 0, mean, np.nan)
    shift = (1.5 * scale * np.maximum(spread - CALM, 0) * np.minimum(scale * spread, 1)) @ weights
    few = too_few_carry(units).any(axis=-1) & (np.abs(shift) > ALIKE)
    half, shift = np.where(few, np.nan, half), np.nan_to_num(shift)
    return np.asarray(np.minimum(shift, 0) - half), np.asarray(np.maximum(shift, 0) + half)


def t_quantile(units: Any, confidence: float = CONFIDENCE) -> Any:
    """Quantile of Student's t, for an interval of the mean of some units."""
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


def share_interval(count: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a share, `count` of `total` (Clopper and Pearson)."""
    from scipy.special import betaincinv  # here, as it is slow to import

    tail = (1 - confidence) / 2
    low = betaincinv(count, total - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, total - count, 1 - tail) if count < total else 1.0
    return float(low), float(high)


def median_interval(units: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median of some units, and the order statistics that hold that of all users, whatever their distribution.

    The ends are NaN where even the least and the largest unit do not have the confidence: below six units, for 95 %.
    """
    from scipy.special import bdtr  # here, as it is slow to import

    n = len(units)
    ordered = np.sort(units)
    below = bdtr(np.arange(n), n, 0.5)  # the chance that at most so many units are below the median of all users
    outside = int((below <= (1 - confidence) / 2).sum()) - 1  # units that may be left out on either side
    if outside < 0:
        return float(np.median(units)), float("nan"), float("nan")
    return float(np.median(units)), float(ordered[outside]), float(ordered[n - 1 - outside])


def mean_interval(
    group: pd.DataFrame, metric: str, interval: str = "auto", confidence: float = CONFIDENCE
) -> pd.Series:
    """Count, mean, standard deviation over runs, and the interval of the mean."""
    mean = group[metric].mean()
    low, high = mean_ends(interval_units(group.set_index("user")[[metric]]), np.array([mean]), interval, confidence)
    return pd.Series({"count": len(group), "mean": mean, "sd": group[metric].std(), "low": low[0], "high": high[0]})


def median_and_note(group: pd.DataFrame, metric: str, confidence: float = CONFIDENCE) -> pd.Series:
    """The median over users with its interval, and why no interval of the mean can be trusted ("" if one can)."""
    units = interval_units(group.set_index("user")[[metric]])
    median, low, high = median_interval(units[:, 0], confidence)
    note = too_few(units, what=unit_name(group))
    return pd.Series({"median": median, "median_low": low, "median_high": high, "note": note})


def unit_name(runs: pd.DataFrame) -> str:
    """What the units of intervals are called, of runs with a column or an index level `user`."""
    users = runs["user"] if "user" in runs else runs.index.get_level_values("user")
    return "users" if users.nunique() > 1 else "seeds"


def paired(pairs: pd.DataFrame, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Compare two columns of paired runs, index (user, seed).

    Returns:
        `percent_below`: how many percent the first mean lies below the second, with the interval of the logarithm of
        their ratio, `low` and `high`: a point if the first is 0 in every run, NaN if too few users carry a mean, which
        `note` then says. `difference`: of the means. `better`, `worse`: for how many users the first is less, and
        more; with the exact interval of the share of users for which it is less, `better_low` and `better_high`.
        `typical_below`: how many percent below for a typical user, by the ratio of geometric means. `unit`: "users", or
        "seeds" where one user plays.
    """
    units = interval_units(pairs)
    ours, theirs = units.mean(axis=0)
    ratio = ours / theirs if theirs != 0 else float("nan")
    nothing = len(units) > 1 and not units[:, 0].any()
    arms = (0.0, 0.0) if nothing else log_ends(units, np.array([1.0, -1.0]), confidence)
    known = bool(np.isfinite(arms[0]))
    half = float(half_width(units[:, 0] - units[:, 1], confidence=confidence))
    note = "" if known else too_few(units, [str(name) for name in pairs.columns], unit_name(pairs))
    return {
        "pairs": len(pairs),
        "percent_below": 100 * (1 - ratio),
        "low": 100 * (1 - ratio * float(np.exp(arms[1]))),
        "high": 100 * (1 - ratio * float(np.exp(arms[0]))),
        "difference": ours - theirs,
        "difference_low": ours - theirs - half if not note else float("nan"),
        "difference_high": ours - theirs + half if not note else float("nan"),
        **better_for(units, confidence),
        **typical_below(units, confidence),
        "unit": unit_name(pairs),
        "note": note,
    }


def better_for(units: np.ndarray, confidence: float = CONFIDENCE) -> dict[str, float]:
    """For how many units the first of two columns is less and more, and the exact interval of the share it is less for.

    Units for which both are equal say nothing, and are left out of the share.
    """
    better, worse = int((units[:, 0] < units[:, 1]).sum()), int((units[:, 0] > units[:, 1]).sum())
    ends = share_interval(better, better + worse, confidence) if better + worse else (float("nan"), float("nan"))
    return {"better": better, "worse": worse, "better_low": ends[0], "better_high": ends[1]}


def typical_below(units: np.ndarray, confidence: float = CONFIDENCE) -> dict[str, float]:
    """How many percent the first of two geometric means lies below the second, with the t-interval of its logarithm."""
    if units.min() <= 0:
        return dict.fromkeys(("typical_below", "typical_low", "typical_high"), float("nan"))
    logs = np.log(units[:, 0] / units[:, 1])
    half = float(half_width(logs, confidence=confidence))
    below = [100 * (1 - float(np.exp(logs.mean() + side * half))) for side in (0, 1, -1)]
    return dict(zip(("typical_below", "typical_low", "typical_high"), below, strict=True))


def quantile_table(table: pd.DataFrame, keys: Sequence[str], metric: str, levels: Sequence[float]) -> pd.DataFrame:
    """Quantiles over the runs of each group, in columns q10, q50 ..."""
    found = table.groupby(list(keys), dropna=False, sort=False)[metric].quantile(list(levels)).unstack(level=-1)
    return found.rename(columns=lambda level: f"q{100 * level:g}").rename_axis(columns=None).reset_index()


def power_law(table: pd.DataFrame, parameter: str, metric: str, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Least squares of log(mean) = log(factor) + exponent log(parameter), with the exponent's interval.

    The interval is of the users and seeds that all values of the parameter share. NaN where a value or a mean is not
    positive, or where too few users carry a mean: `note` says so.
    """
    nothing = dict.fromkeys(("exponent", "low", "high", "factor"), float("nan"))
    runs = table.assign(**{parameter: table[parameter].astype(float)})
    runs = runs.pivot_table(index=["user", "seed"], columns=parameter, values=metric, aggfunc="mean")
    at = runs.columns.to_numpy(float)
    means = np.nanmean(interval_units(runs), axis=0)
    if len(at) < 2 or at.min() <= 0 or not means.min() > 0:
        return {"points": len(at), **nothing, "note": ""}
    weights = slope_weights(at)
    exponent = float(weights @ np.log(means))
    factor = float(np.exp(np.log(means).mean() - exponent * np.log(at).mean()))
    common = runs.dropna()
    arms = log_ends(interval_units(common), weights, confidence) if len(common) else (np.nan, np.nan)
    low, high = (exponent + float(arm) for arm in arms)
    note = "" if np.isfinite(low) or not len(common) else too_few_at(common, parameter)
    return {"points": len(at), "exponent": exponent, "low": low, "high": high, "factor": factor, "note": note}


def too_few_at(runs: pd.DataFrame, parameter: str) -> str:
    """Why the means at some values of a parameter, a column each, have no interval."""
    return too_few(interval_units(runs), [f"{parameter}={show(value)}" for value in runs], unit_name(runs))


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

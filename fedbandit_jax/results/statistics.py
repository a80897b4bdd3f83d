"""Statistics of runs: intervals whose units are users, quantiles, paired comparisons, fitted exponents."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.results.labels import labels_of

CONFIDENCE = 0.95
LEAST_SHARE = 1e-3  # of a mean that a resampled mean may have where it divides
RESAMPLES = 4000
INTERVALS = ("t", "bootstrap")
PLACES = ("dataset", "clients", "arms", "horizon", "noise")  # where algorithms meet
_DRAWS_AT_ONCE = 2_000_000


def interval_units(group: pd.DataFrame, metric: str) -> np.ndarray:
    """The independent units behind a mean: users where they differ (each its mean over seeds), else seeds."""
    by_user = group.groupby("user")[metric].mean()
    return by_user.to_numpy() if len(by_user) > 1 else group[metric].to_numpy()


def half_width(units: np.ndarray, axis: int = 0) -> np.ndarray:
    """Half the 95 % t-interval of the mean of independent units; NaN for a single one."""
    n = units.shape[axis]
    if n < 2:
        return np.full(units.mean(axis=axis).shape, np.nan)
    return np.asarray(t_quantile(n) * units.std(axis=axis, ddof=1) / np.sqrt(n))


def t_quantile(units: int) -> float:
    """Of Student's t, for an interval of the mean of some units."""
    from scipy.special import stdtrit  # here, as it is slow to import

    return float(stdtrit(units - 1, (1 + CONFIDENCE) / 2))


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


def mean_interval(group: pd.DataFrame, metric: str, interval: str = "t") -> pd.Series:
    """Count, mean, standard deviation over runs, and the 95 % interval of the mean."""
    mean = group[metric].mean()
    if interval == "bootstrap":
        means, units = bootstrap_means(group[[metric]].to_numpy(), group["user"].to_numpy(), np.ones(1))
        low, high = percentile_interval(means[:, 0], units)
    else:
        half = float(half_width(interval_units(group, metric)))
        low, high = mean - half, mean + half
    return pd.Series({"count": len(group), "mean": mean, "sd": group[metric].std(), "low": low, "high": high})


def bootstrap_means(
    values: np.ndarray, users: np.ndarray, direction: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[np.ndarray, int]:
    """Means of resampled runs (resamples, C), and the number of units; `values` has a row per run, C columns.

    Users are drawn with replacement, then seeds within each drawn user; with one user, seeds alone. A user's mean
    already carries the noise of its seeds, so drawing seeds as well would count that noise twice. User means are
    therefore shrunk towards the centre, by the factor that makes the variance of the resampled mean of
    values @ direction equal to s^2 / U, the unbiased one (Davison and Hinkley 1997, section 3.8).
    """
    _, users = np.unique(users, return_inverse=True)
    if users.max() == 0:
        users = np.arange(len(values))
    order = np.argsort(users, kind="stable")
    values, users = values[order].astype(float), users[order]
    seeds = np.bincount(users)
    begin = np.cumsum(seeds) - seeds
    U = len(seeds)
    user_means = np.add.reduceat(values, begin) / seeds[:, None]
    center = user_means.mean(axis=0)
    spread = np.sqrt(seeds / np.maximum(seeds - 1, 1))  # so that a residual's variance is the unbiased one
    residuals = (values - user_means[users]) * spread[users][:, None]
    between = (((user_means - center) @ direction) ** 2).sum()
    within = ((residuals @ direction) ** 2 / seeds[users] ** 2).sum()
    unbiased = U / max(U - 1, 1)
    shrink = np.sqrt(max(unbiased - within / between, 0)) if between > 0 else np.sqrt(unbiased)
    deviations = shrink * (user_means - center)

    rng = np.random.default_rng(seed)
    most = int(seeds.max())
    at_once = max(1, _DRAWS_AT_ONCE // (U * most))
    parts = []
    for start in range(0, resamples, at_once):
        drawn = rng.integers(U, size=(min(at_once, resamples - start), U))
        means = center + deviations[drawn].mean(axis=1)
        if most > 1:
            count = seeds[drawn][..., None]
            run = begin[drawn][..., None] + (rng.random((*drawn.shape, most)) * count).astype(int)
            real = (np.arange(most) < count) / count
            means += np.stack([(column[run] * real).sum(axis=2).mean(axis=1) for column in residuals.T], axis=1)
        parts.append(means)
    return np.concatenate(parts), U


def percentile_interval(draws: np.ndarray, units: int) -> tuple[float, float]:
    """The 95 % interval between quantiles of bootstrap draws; NaN for a single unit.

    Quantiles lie further out for few units, as those of t lie beyond the normal ones (Hesterberg 2015). Below five
    units a bootstrap has too few distinct draws to follow that: 92 % coverage with four single runs, 83 % with three.
    """
    if units < 2:
        return float("nan"), float("nan")
    tail = math.erfc(t_quantile(units) / math.sqrt(2)) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def paired(pairs: pd.DataFrame) -> dict[str, float]:
    """Two columns of paired runs, index (user, seed): percent the first lies below, and difference, with intervals."""
    values, users = pairs.to_numpy(), pairs.index.get_level_values("user").to_numpy()
    by_user = pairs.groupby(level="user").mean() if len(set(users)) > 1 else pairs
    ours, theirs = by_user.mean()
    found: dict[str, float] = {"pairs": len(pairs)}
    if theirs == 0:
        found |= dict.fromkeys(("percent_below", "low", "high"), float("nan"))
    else:
        means, units = bootstrap_means(values, users, np.array([1, -ours / theirs]))
        # No metric is negative, but a resampled mean of few, very different runs can be: then one of the two is next
        # to nothing, and so is the ratio, or it is large.
        largest = np.maximum(means[:, 0], 0) / (LEAST_SHARE * theirs)
        ratios = means[:, 0] / means[:, 1]
        ratios = np.where(ratios >= 0, ratios, np.where(means[:, 1] > 0, 0, largest))
        low, high = percentile_interval(100 * (1 - ratios), units)
        found |= {"percent_below": 100 * (1 - ours / theirs), "low": low, "high": high}
    means, units = bootstrap_means(values, users, np.array([1.0, -1.0]))
    low, high = percentile_interval(means[:, 0] - means[:, 1], units)
    return found | {"difference": ours - theirs, "difference_low": low, "difference_high": high}


def quantile_table(table: pd.DataFrame, keys: Sequence[str], metric: str, levels: Sequence[float]) -> pd.DataFrame:
    """Quantiles over the runs of each group, in columns q10, q50 ..."""
    found = table.groupby(list(keys), dropna=False, sort=False)[metric].quantile(list(levels)).unstack(level=-1)
    return found.rename(columns=lambda level: f"q{100 * level:g}").rename_axis(columns=None).reset_index()


def power_law(table: pd.DataFrame, parameter: str, metric: str) -> dict[str, float]:
    """Least squares of log(mean) = log(factor) + exponent log(parameter), with the exponent's 95 % interval.

    Resampled are the users and seeds that all values of the parameter share, and the exponent follows their means to
    first order, as a resampled mean near 0 has no useful logarithm. NaN where a value or a mean is not positive.
    """
    nothing = dict.fromkeys(("exponent", "low", "high", "factor"), float("nan"))
    runs = table.assign(**{parameter: table[parameter].astype(float)})
    runs = runs.pivot_table(index=["user", "seed"], columns=parameter, values=metric, aggfunc="mean")
    at = runs.columns.to_numpy(float)
    means = (runs.groupby(level="user").mean() if runs.index.get_level_values("user").nunique() > 1 else runs).mean()
    means = means.to_numpy()
    if len(at) < 2 or at.min() <= 0 or not means.min() > 0:
        return {"points": len(at), **nothing}
    log = np.log(at) - np.log(at).mean()
    weights = log / (log @ log)
    exponent = float(weights @ np.log(means))
    factor = float(np.exp(np.log(means).mean() - exponent * np.log(at).mean()))
    low = high = float("nan")
    common = runs.dropna()
    if len(common):
        users = common.index.get_level_values("user").to_numpy()
        draws, units = bootstrap_means(common.to_numpy(), users, weights / means)
        low, high = percentile_interval(exponent + (draws / means - 1) @ weights, units)
    return {"points": len(at), "exponent": exponent, "low": low, "high": high, "factor": factor}


def setting_columns(table: pd.DataFrame) -> list[str]:
    """The columns that tell one setting from another."""
    return [c for c in table.columns[: table.columns.get_loc("round")] if c not in ("user", "seed")]


def metric_columns(table: pd.DataFrame) -> list[str]:
    """The columns behind "round"; one that an algorithm does not tell is NaN there."""
    return list(table.columns[table.columns.get_loc("round") + 1 :])


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
    if name not in varied:
        options = " or ".join(repr(option) for option in varied) or "none does"
        _checks.fail(argument, name, f"it must be a number that varies in these results, here {options}")


def lines(table: pd.DataFrame, *swept: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(label, place, rows) for all that differs besides the swept parameters, which labels then do not name.

    The place says which data set, clients, arms, horizon and noise, if these vary: "clients=3, arms=100".
    """
    table = table.assign(label=labels_without(table, [name for name in swept if name not in PLACES]))
    for name in swept:
        numbers = pd.to_numeric(table[name], errors="coerce")
        table = table[numbers.notna()].assign(**{name: numbers[numbers.notna()]})
    where = [c for c in PLACES if c in table and c not in swept and table[c].nunique() > 1]
    for key, rows in table.groupby(["label", *where], sort=False):
        yield key[0], ", ".join(f"{c}={show(v)}" for c, v in zip(where, key[1:], strict=True)), rows


def labels_without(table: pd.DataFrame, swept: Sequence[str]) -> pd.Series:
    """The labels of the rows, without some hyperparameters."""
    if not swept:
        return table["label"]
    variants = table.drop_duplicates("label").sort_values("label", key=lambda labels: labels.map(by_number))
    given = [c for c in setting_columns(table) if c not in ("algorithm", "label", *PLACES)]
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

"""Kinds of claims, and how results judge them.

A claim holds, does not hold or is undecided by intervals, as in `verdict`. One about a published figure compares two
means: the interval of their difference allows for the standard errors of both. It does not hold if that interval leaves
out 0, holds if it has 0 and reaches no further than a tenth of the figure, and is undecided if it is wider.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax.papers.verdict import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Row,
    apart,
    beaten_least,
    decide,
    decide_each,
    exponent_figure,
    percent_below,
)
from fedbandit_jax.results import statistics
from fedbandit_jax.results.numbers import number, with_half
from fedbandit_jax.results.results import Results

NEAR = 0.1  # of a published figure: an interval that is wider says too little to agree


@dataclass(frozen=True)
class Published:
    """A mean over some runs, and their standard deviation, None if it is not told; `source` if no paper has it."""

    mean: float
    sd: float | None = None
    runs: int = 1
    source: str = ""

    def __str__(self) -> str:
        spread = "" if self.sd is None else f", sd {number(self.sd)}"
        source = f", {self.source}" if self.source else ""
        return f"{number(self.mean)} ({self.runs} runs{spread}{source})"


@dataclass(frozen=True)
class Claim:
    """A sentence, and how results judge it: a row of verdict, value, low, high and figure."""

    text: str
    judge: Callable[[Results], Row]
    why: str = ""  # what is known of the reason, if it does not hold


def row(verdict: str, value: float, low: float, high: float, figure: str) -> Row:
    return {"verdict": verdict, "value": value, "low": low, "high": high, "figure": figure}


def agrees(
    label: str, metrics: str | Sequence[str], published: Published, *, per: float = 1.0, what: str = "", why: str = ""
) -> Claim:
    """A final metric, or the sum of several, `per` so many, has the published mean within the errors of both."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    what = what or names[0]

    def judge(results: Results) -> Row:
        final = results.only(label).final()
        runs = final.set_index("user")[names].sum(axis=1, skipna=False).to_frame()
        values = statistics.interval_units(runs)[:, 0] / per
        mean, half = float(values.mean()), float(welch(values, published))
        low, high = (100 * (mean + side * half - published.mean) / published.mean for side in (-1, 1))
        differs = 100 * (mean / published.mean - 1)
        verdict = decide(low, high, -100 * NEAR, 100 * NEAR) if low <= 0 <= high else FAILS
        figure = f"{with_half(mean, own_half(values))} {what}, {differs:+.1f} % [{low:+.1f}, {high:+.1f}]"
        return row(verdict if np.isfinite(half) else UNDECIDED, differs, low, high, figure)

    return Claim(f"{label}: {published} {what}", judge, why)


def own_half(values: np.ndarray) -> float:
    return float(statistics.half_width(values)) if len(values) > 1 else float("nan")


def welch(values: np.ndarray, published: Published) -> float:
    """Half the 95 % interval of our mean less the published one; a spread that is not told is taken to be ours."""
    n, N = len(values), published.runs
    if n < 2:
        return float("nan")
    own = float(values.var(ddof=1))
    theirs = own if published.sd is None else published.sd**2
    parts = own / n, theirs / N
    if sum(parts) == 0:
        return 0.0
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / max(N - 1, 1))
    return float(statistics.t_quantile(freedom + 1) * np.sqrt(sum(parts)))


def below(
    label: str,
    other: str,
    metrics: str | Sequence[str] = "regret",
    what: str = "",
    why: str = "",
    *,
    errors: bool = False,
) -> Claim:
    """A final metric, or the sum of several, is lower than another algorithm's, paired.

    With `errors` the figure tells by how many standard errors of the paired difference.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    what = what or names[0]

    def judge(results: Results) -> Row:
        pairs = pairs_of(results, label, other, names)
        found = statistics.paired(pairs)
        value, low, high = percent_below(found)
        told = f", {standard_errors(pairs):.1f} standard errors" if errors else ""
        figure = f"{what} {apart(found, other)}{told}"
        return row(decide(low, high, least=0.0), value, low, high, figure)

    return Claim(f"{label}: {less(what)} than {other}", judge, why)


def less(what: str) -> str:
    """Regret and errors are measured, messages and bits counted."""
    return f"{'less' if what.startswith(('regret', 'error')) else 'fewer'} {what}"


def pairs_of(results: Results, label: str, other: str, names: Sequence[str]) -> pd.DataFrame:
    """The sums of some final metrics of two algorithms, in the runs that both have."""
    table = results.final()
    table = table.assign(value=table[list(names)].sum(axis=1, skipna=False))
    return table.pivot_table(index=["user", "seed"], columns="label", values="value")[[label, other]].dropna()


def standard_errors(pairs: pd.DataFrame) -> float:
    """How many of the paired difference the first lies below the second, over users."""
    units = statistics.interval_units(pairs)
    differences = units[:, 1] - units[:, 0]
    if len(differences) < 2 or not differences.std(ddof=1) > 0:
        return float("nan")
    return float(differences.mean() * np.sqrt(len(differences)) / differences.std(ddof=1))


def below_all(label: str, others: Sequence[str], percent: float, text: str, why: str = "") -> Claim:
    """The final regret lies at least so many percent below that of each of the others; one that does not decides."""

    def judge(results: Results) -> Row:
        def comparisons(confidence: float) -> pd.DataFrame:
            rows = [statistics.paired(pairs_of(results, label, other, ["regret"]), confidence) for other in others]
            return pd.DataFrame(rows).assign(other=list(others))

        verdict, worst = beaten_least(decide_each(comparisons, least=percent))
        value, low, high = percent_below(worst)
        return row(verdict, value, low, high, f"regret {apart(worst, worst['other'])}")

    return Claim(text, judge, why)


def changes(label: str, other: str, least: float, most: float, text: str, why: str = "") -> Claim:
    """The final regret lies between so many percent below another's, paired; negative ones are above it."""

    def judge(results: Results) -> Row:
        found = statistics.paired(pairs_of(results, label, other, ["regret"]))
        value, low, high = percent_below(found)
        return row(decide(low, high, least, most), value, low, high, f"regret {apart(found, other)}")

    return Claim(text, judge, why)


def grows(label: str, parameter: str, least: float, most: float, text: str, why: str = "") -> Claim:
    """The final regret is a power of a swept parameter, with an exponent in a range."""

    def judge(results: Results) -> Row:
        found = results.exponent(parameter, label=label).iloc[0]
        return {"verdict": decide(found["low"], found["high"], least, most), **exponent_figure(found)}

    return Claim(text, judge, why)


def bounded(algorithm: str, metric: str, text: str, bound: Callable[[Any], Any]) -> Claim:
    """A final metric is within a bound, which is a function of the table, in every run of an algorithm."""

    def judge(results: Results) -> Row:
        final = results.final()
        final = final[final["algorithm"] == algorithm]
        share = (final[metric] / bound(final)).to_numpy(float)
        inside, low, high = share <= 1, float(share.min()), float(share.max())
        figure = f"{inside.sum()} of {len(share)} runs; {low:.0%} to {high:.0%} of the bound"
        return row(HOLDS if inside.all() else FAILS, 100 * high, 100 * low, 100 * high, figure)

    return Claim(text, judge)

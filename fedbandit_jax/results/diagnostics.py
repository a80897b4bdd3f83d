"""Diagnostics of phases: their columns, and their means over the runs that reach a phase."""

from collections.abc import Iterable, Sequence

import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.results.statistics import mean_interval


def columns_of(phases: pd.DataFrame) -> list[str]:
    """The numbers and flags behind "phase" that some run tells."""
    if not len(phases):
        return []
    behind = phases.iloc[:, phases.columns.get_loc("phase") + 1 :]
    return [c for c in behind.select_dtypes(["number", "bool"]) if behind[c].notna().any()]


def check(argument: str, name: str, phases: pd.DataFrame, also: Iterable[str] = ()) -> None:
    """`name` is a diagnostic, or one of the others that are allowed."""
    known = columns_of(phases)
    if not known:
        _checks.fail(argument, name, "no algorithm of these results tells it by phase")
    _checks.choice(argument, name, dict.fromkeys([*also, *known]))


def means(phases: pd.DataFrame, settings: Sequence[str], names: Sequence[str], intervals: bool) -> pd.DataFrame:
    """A row per setting and phase: the count of runs, and of each diagnostic the mean, or also low and high."""
    keys = [*(c for c in settings if c in phases), "phase"]
    groups = phases.astype(dict.fromkeys(names, float)).groupby(keys, dropna=False, sort=False)
    found = groups[list(names)].mean()
    if intervals:
        for name in names:
            ends = groups.apply(mean_interval, name, "t", include_groups=False)
            found = found.assign(**{f"{name}_low": ends["low"], f"{name}_high": ends["high"]})
        found = found[[c for name in names for c in (name, f"{name}_low", f"{name}_high")]]
    found.insert(0, "count", groups.size())
    return found.reset_index()

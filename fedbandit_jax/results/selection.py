"""Which runs of results, and which of their columns: filters by setting, and the settings that vary."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_integer_dtype

from fedbandit_jax import _checks
from fedbandit_jax.results.statistics import places, setting_columns, show, varied_places

COLUMNS = ("few", "all")  # of a table: what varies, or every setting
MOST_NAMED = 12  # values in an error


def chosen(
    curves: pd.DataFrame, phases: pd.DataFrame, conditions: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both tables that meet all conditions; some run does."""
    known = list(curves.columns[: curves.columns.get_loc("round")])
    for name, value in conditions.items():
        if name not in known:
            _checks.fail(name, value, f"it must be a setting, here {', '.join(known)}{hint(name, known)}")
        check_values(name, value, curves[name])
    kept = curves[meets(curves, conditions)].reset_index(drop=True)
    if not len(kept):
        asked = ", ".join(f"{name}={_checks.shown(value)}" for name, value in conditions.items())
        raise ValueError(f"{asked} is not allowed: there are runs of each, but none of all together")
    return kept, phases[meets(phases, conditions)].reset_index(drop=True)


def meets(table: pd.DataFrame, conditions: Mapping[str, Any]) -> np.ndarray:
    """Rows that have one of the values of every condition; a column that is not there has none.

    An algorithm that is named, by its title or label, is not asked for hyperparameters that it does not have.
    """
    named = "algorithm" in conditions or "label" in conditions
    of_all = ("algorithm", "label", *places(table), "user", "seed")
    found = np.ones(len(table), bool)
    for name, value in conditions.items():
        column = table[name] if name in table else pd.Series(np.nan, table.index)
        missing = [None] if named and name not in of_all else []
        found &= np.any([equals(column, entry) for entry in (*_checks.as_list(name, value), *missing)], axis=0)
    return found


def equals(column: pd.Series, value: Any) -> np.ndarray:
    """Numbers are equal to single precision, whole ones exactly; None and NaN are what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return column.isna().to_numpy()
    if isinstance(value, str):
        return np.array([entry == value for entry in column], bool)  # Arrow's own == fails for half a letter
    if not isinstance(value, bool) and not _checks.is_finite(value):
        return np.zeros(len(column), bool)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    return np.isclose(numbers, float(value), rtol=0 if is_integer_dtype(column) else 1e-7, atol=0)


def check_values(name: str, value: Any, column: pd.Series) -> None:
    """Each value occurs."""
    entries = _checks.as_list(name, value)
    there = pd.Series(column.unique())
    if not entries:
        _checks.fail(name, value, "it must name at least one value")
    for entry in entries:
        if not equals(there, entry).any():
            words = [v for v in there if isinstance(v, str)]
            _checks.fail(name, entry, f"it must be {listed(there)}{hint(entry, words)}")


def listed(values: pd.Series) -> str:
    """The values, or the first of many: 1 or 2 or None."""
    ordered = values if any(isinstance(v, str) for v in values) else values.sort_values()
    names = ["None" if pd.isna(v) else repr(v) if isinstance(v, str) else show(v) for v in ordered]
    more = f" or {len(names) - MOST_NAMED} others" if len(names) > MOST_NAMED else ""
    return " or ".join(names[:MOST_NAMED]) + more


def hint(word: Any, known: Sequence[str]) -> str:
    """The name that was meant, if one is close."""
    close = _checks.nearest(word, known) if isinstance(word, str) else None
    return f"; did you mean {close}?" if close else ""


def varied_settings(table: pd.DataFrame) -> list[str]:
    """The places that vary, and the hyperparameters that vary for one algorithm."""
    titles = table["algorithm"] if "algorithm" in table else pd.Series("", table.index)

    own = [c for c in setting_columns(table) if c not in ("algorithm", "label", *places(table))]
    varies = [c for c in own if table[c].groupby(titles).nunique(dropna=False).max() > 1]
    return [*varied_places(table), *varies]


def told_settings(table: pd.DataFrame, columns: str) -> list[str]:
    """The columns that a table tells of its settings: the label and what varies, or all."""
    _checks.choice("columns", columns, COLUMNS)
    if columns == "all":
        return setting_columns(table)
    return ["label", *varied_settings(table)]

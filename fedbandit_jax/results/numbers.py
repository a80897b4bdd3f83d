"""How numbers are written: "90 ± 190", "90 [40, 310]", "1,505", "0.0123"."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

DIGITS = 4  # of a number that has no interval
NOTHING = 1e-6  # of a mean: half an interval below is rounding in single precision
WIDTH = 120  # letters of a printed table
PLAIN = (1e-4, 1e15)  # between these, no powers of ten


class Table(pd.DataFrame):
    """A table that prints its numbers in few digits, and has all of them; what is made of it is a plain DataFrame."""

    def __repr__(self) -> str:
        whole = ("display.max_columns", None, "display.max_colwidth", None)
        with pd.option_context("display.float_format", number, "display.width", WIDTH, *whole):
            return str(super().__repr__())

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.float_format", number):
            return super()._repr_html_()


def number(value: float) -> str:
    """Four digits, or all of a larger number."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if not PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{value:.{DIGITS}g}"
    short = float(f"{value:.{DIGITS}g}")
    return f"{value:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def with_half(mean: float, half: float) -> str:
    """A mean with half its interval, which has two digits; the mean ends where they end."""
    if not math.isfinite(half) or half <= NOTHING * abs(mean):
        return number(mean)
    largest = max(abs(mean), half)
    if PLAIN[0] <= largest < PLAIN[1]:
        return " ± ".join(cut(value, places(half)) for value in (mean, half))
    power = math.floor(math.log10(largest))
    mean, half = mean / 10.0**power, half / 10.0**power
    return f"({cut(mean, places(half))} ± {cut(half, places(half))})e{power:+03d}"


def with_interval(mean: float, low: float, high: float) -> str:
    """A mean with half its interval where that says it in two digits, else with both ends: "90 [40, 310]"."""
    below, above = mean - low, high - mean
    plain = with_half(mean, above)
    if not math.isfinite(above) or with_half(mean, below) == plain:
        return plain
    largest = max(abs(mean), abs(high))
    power = 0 if PLAIN[0] <= largest < PLAIN[1] else math.floor(math.log10(largest))
    end = places(min(below, above) / 10.0**power)
    told, first, last = (cut(value / 10.0**power, end) for value in (mean, low, high))
    return f"{told} [{first}, {last}]" if power == 0 else f"({told} [{first}, {last}])e{power:+03d}"


def mean_and_interval(row: "pd.Series") -> str:
    """The mean of a summary's row with its interval, or with the reason that it has none."""
    told = with_interval(row["mean"], row["low"], row["high"])
    return f"{told}, {reason(row)}" if row.get("note") else told


def reason(row: "pd.Series") -> str:
    """Why the mean of a summary's row has no interval: "1 of 5 carries half"; "" if it has one."""
    return str(row["note"]).rpartition(": ")[2]


def share_in_words(row: "Mapping[str, Any] | pd.Series", unit: str = "") -> str:
    """For how many users a paired comparison is better, with the interval of their share: "9 of 10 [0.56, 1.00]"."""
    total = row["better"] + row["worse"]
    counted = f"{row['better']} of {total}{unit and ' ' + unit}"
    return f"{counted} [{row['better_low']:.2f}, {row['better_high']:.2f}]" if total else counted


def places(half: float) -> int:
    """Where two digits end: 2 for 0.19, -1 for 190."""
    return 1 - int(f"{half:.1e}".partition("e")[2])


def cut(value: float, end: int) -> str:
    """A number rounded to 10^-end."""
    return f"{round(value, end) + 0.0:,.{max(end, 0)}f}"  # 0.0 makes 0 of -0

"""What numbers mean: growth as an exponent, what differs beyond the noise, which limit binds. Pure functions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .measure import Row

LEAST_RATIO = 1.1  # a smaller change is no news, however certain
LEAST_SAMPLES = 3
EXPLAINS = 0.5  # a limit that accounts for less of the measured time than this does not bind


class Exponent(NamedTuple):
    """y ~ x^value."""

    value: float
    error: float  # standard error; NaN from two points only


def fitted_exponent(x: Sequence[float], y: Sequence[float]) -> Exponent:
    """Slope of log y over log x by least squares."""
    a, b = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(set(x)) < 2:
        raise ValueError(f"x={list(x)!r} is not allowed: an exponent needs two different sizes")
    centred = a - a.mean()
    slope = centred @ b / (centred @ centred)
    residuals = b - b.mean() - slope * centred
    error = math.sqrt(residuals @ residuals / (len(a) - 2) / (centred @ centred)) if len(a) > 2 else math.nan
    return Exponent(float(slope), error)


class Change(NamedTuple):
    suite: str
    case: str
    metric: str
    factor: float  # how many times better (> 1) or worse (< 1) than before
    verdict: str  # "faster", "slower", "same", "not judged"


def verdict(old: Row, new: Row) -> tuple[float, str]:
    """Better by the ratio of medians; different only if the ranges of samples do not overlap and it is 1.1 at least."""
    if old.better not in ("lower", "higher") or min(old.median, new.median) <= 0:
        return math.nan, "not judged"
    factor = old.median / new.median if old.better == "lower" else new.median / old.median
    if min(len(old.samples), len(new.samples)) < LEAST_SAMPLES:
        return factor, "not judged"
    apart = new.low > old.high or new.high < old.low
    if not apart or max(factor, 1 / factor) < LEAST_RATIO:
        return factor, "same"
    return factor, "faster" if factor > 1 else "slower"


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every figure that two files of results share; a ValueError if they are of different devices."""
    was, now = (tuple(found["environment"][name] for name in ("device", "device_count")) for found in (old, new))
    if was != now:
        raise ValueError(
            f"these results cannot be compared: the old ones are of {was[1]} x {was[0]}, the new ones of "
            f"{now[1]} x {now[0]}"
        )
    before, after = rows_by_name(old), rows_by_name(new)
    return [Change(*name, *verdict(before[name], row)) for name, row in after.items() if name in before]


def rows_by_name(results: Mapping[str, Any]) -> dict[tuple[str, str, str], Row]:
    rows = ((suite, Row.from_json(row)) for suite, found in results["suites"].items() for row in found["rows"])
    return {(suite, row.case, row.metric): row for suite, row in rows}


def chance_of_false_alarm(samples: Iterable[int]) -> float:
    """Expected number of figures whose ranges miss each other although nothing changed: 2 / C(2n, n) each."""
    return sum(2 / math.comb(2 * n, n) for n in samples)


class Limit(NamedTuple):
    name: str
    share: float  # of the measured time that it accounts for
    binds: bool


def binding_limit(least_seconds: Mapping[str, float], measured: float) -> Limit:
    """The limit that accounts for most of the measured time; it binds if that is half of it at least."""
    name = max(least_seconds, key=lambda limit: least_seconds[limit])
    share = least_seconds[name] / measured
    return Limit(name, share, share >= EXPLAINS)

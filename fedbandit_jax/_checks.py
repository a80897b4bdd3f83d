"""Checks of arguments: one sentence that names the argument, its value and what is allowed."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def fail(name: str, value: Any, allowed: str) -> None:
    raise ValueError(f"{name}={value!r} is not allowed: {allowed}")


def whole(name: str, value: Any, least: int = 1, most: int | None = None, why: str = "") -> int:
    """A whole number within [least, most]."""
    allowed = f"it must be a whole number of at least {least}" + (
        f" and at most {most}{' (' + why + ')' if why else ''}" if most is not None else ""
    )
    is_whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value).is_integer()
    if not is_whole or value < least or (most is not None and value > most):
        fail(name, value, allowed)
    return int(value)


def real(name: str, value: Any, low: float, high: float, ends: str = "[]", also: str = "") -> float:
    """A finite number from low to high, with those ends that `ends` says; `also` tells what else is allowed."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if ok:
        above = value >= low if ends[0] == "[" else value > low
        below = value <= high if ends[1] == "]" else value < high
        ok = above and below
    if not ok:
        upper = "infinity)" if math.isinf(high) else f"{high:g}{ends[1]}"
        fail(name, value, f"it must be a number in {ends[0]}{low:g}, {upper}{also}")
    return float(value)


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of a few words."""
    options = tuple(options)
    if value not in options:
        fail(name, value, "it must be " + " or ".join(repr(option) for option in options))
    return str(value)


def real_or_word(name: str, value: Any, low: float, high: float, ends: str, words: Iterable[str]) -> Any:
    """A finite number from low to high, or one of a few words."""
    words = tuple(words)
    if not (isinstance(value, str) and value in words):
        real(name, value, low, high, ends, "".join(f" or {word!r}" for word in words))
    return value


def indices(name: str, value: Any, available: int | None = None, what: str = "") -> list[int]:
    """A count n, meaning 0..n-1, or a list of distinct indices, each below `available`."""
    if isinstance(value, numbers.Real):
        return list(range(whole(name, value, 1, available, what)))
    entries = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []
    if not entries:
        fail(name, value, "it must be a whole number of at least 1 or a list of indices")
    found = [whole(name, v, 0, None if available is None else available - 1, what) for v in entries]
    if len(set(found)) < len(found):
        fail(name, value, "its indices must differ")
    return found


def is_list(value: Any) -> bool:
    """Is it a list, tuple, range or array of values, rather than one value?"""
    return (isinstance(value, Sequence) and not isinstance(value, str)) or getattr(value, "ndim", 0) > 0


def as_list(value: Any) -> list[Any]:
    """A list, tuple, range or array as a list; anything else as a list of one, array scalars as plain numbers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain for entry in value for plain in as_list(entry)]
    if getattr(value, "ndim", None) in (0, 1) and hasattr(value, "tolist"):
        return np.atleast_1d(value).tolist()
    return [value]

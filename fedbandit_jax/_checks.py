"""Checks of arguments: one sentence that names the argument, its value and what is allowed."""

import difflib
import errno
import itertools
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
import pandas as pd

LONGEST_SHOWN = 200  # letters of a value in a sentence
MOST_VALUES = 10**5  # of a list
SMALLEST, LARGEST = 1e-37, 3e38  # sizes of numbers: beyond them, float32 has only 0 and infinity
REASONS = {  # why the system refuses a path
    errno.ENOTDIR: "a part of its path is a file",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ENOENT: "no folder can be made there",
    errno.ENOSPC: "the disk is full",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "it may not be written to"),
}


def fail(name: str, value: Any, allowed: str) -> NoReturn:
    raise ValueError(f"{name}={shown(value)} is not allowed: {allowed}")


def shown(value: Any) -> str:
    """A value in one line that is not too long, or its type where it has no text."""
    if type(value) in (list, tuple) and len(value) > 2 * LONGEST_SHOWN:
        value = value[:LONGEST_SHOWN] + value[-LONGEST_SHOWN:]  # the text of those between would be cut out anyway
    try:
        return in_one_line(repr(value))
    except Exception:  # a user's own `repr` may raise anything, and Python's does for integers of many digits
        return f"<{type(value).__name__} that cannot be shown>"


def in_one_line(text: str) -> str:
    """A text in one line that is not too long."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 30]} ... {text[-25:]}"


# ----------------------------------------------------------------------------------------------------- numbers


def plain(value: Any) -> Any:
    """A number or word of any kind as Python's own int, float or str; other values, and bools, as they are.

    Arrays without axes are numbers, too, and so are fractions and decimals.
    """
    if is_array(value) and value.ndim == 0 and isinstance(value.dtype, np.dtype) and not masked(value):
        value = value.item()
    kind = type(value)
    if kind in (bool, int, float, str):
        return value
    try:
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, numbers.Integral):
            return int(value)
        return float(value) if issubclass(kind, numbers.Real | Decimal) else value
    except Exception:  # beyond all floats, or a user's own class whose methods raise
        return value


def is_array(value: Any) -> bool:
    """Is it an array or a scalar of NumPy or JAX?"""
    return isinstance(value, np.ndarray | np.generic | jax.Array)


def masked(value: Any) -> bool:
    """Is it an array that may hide some of its entries?"""
    return isinstance(value, np.ma.MaskedArray)


def is_number(value: Any) -> bool:
    """Is it an int or a float, rather than a bool or another kind of value? `plain` makes numbers of others."""
    return type(value) in (int, float)


def is_finite(value: Any) -> bool:
    """Is it a finite int or float?"""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def whole(name: str, value: Any, least: int = 1, most: int | None = None, why: str = "") -> int:
    """A whole number within [least, most]."""
    value = plain(value)
    if not is_finite(value) or int(value) != value or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}{' (' + why + ')' if why else ''}"
        fail(name, value, f"it must be a whole number of at least {least}{limit}")
    return int(value)


def real(name: str, value: Any, low: float, high: float, ends: str = "[]", also: str = "") -> float:
    """A finite number from low to high, with the ends that `ends` names; `also` says what else is allowed."""
    value = plain(value)
    ok = is_finite(value)
    if ok:
        above = value >= low if ends[0] == "[" else value > low
        below = value <= high if ends[1] == "]" else value < high
        ok = above and below
    upper = "infinity)" if math.isinf(high) else f"{high:g}{ends[1]}"
    if not ok:
        fail(name, value, f"it must be a number in {ends[0]}{low:g}, {upper}{also}")
    if value != 0 and not SMALLEST <= abs(value) <= LARGEST:
        size = f"with a size from {SMALLEST:g} to {LARGEST:g}, as programs compute in single precision"
        fail(name, value, f"it must be a number in {ends[0]}{low:g}, {upper}{also}, {size}")
    return float(value)


def real_or_word(name: str, value: Any, low: float, high: float, ends: str, words: Iterable[str]) -> Any:
    """A finite number from low to high, or one of a few words."""
    value, words = plain(value), tuple(words)
    if not (isinstance(value, str) and value in words):
        real(name, value, low, high, ends, "".join(f" or {word!r}" for word in words))
    return value


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        fail(name, value, "it must be True or False")
    return value


def indices(name: str, value: Any, available: int | None = None, what: str = "") -> Sequence[int]:
    """A count n, meaning 0..n-1, or a list of distinct indices, each below `available`."""
    value = plain(value)
    if is_number(value):
        return range(whole(name, value, 1, available, what))
    entries = entries_of(name, value)
    if not entries:
        fail(name, value, "it must be a whole number of at least 1 or a list of indices")
    found = [whole(name, v, 0, None if available is None else available - 1, what) for v in entries]
    if len(set(found)) < len(found):
        fail(name, value, "its indices must differ")
    return found


# ------------------------------------------------------------------------------------------------------- lists


def is_list(value: Any) -> bool:
    """Is it a list, tuple, range, column or array of values, rather than one value?"""
    if is_array(value) or isinstance(value, pd.Series | pd.Index):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def as_list(name: str, value: Any) -> list[Any]:
    """A list, tuple, range or array with one axis as a list; anything else as a list of one."""
    if not is_list(value) or masked(value) or getattr(value, "ndim", 1) > 1:
        return [plain(value)]
    return [plain(entry) for entry in entries_of(name, value)]


def entries_of(name: str, value: Any) -> list[Any]:
    """Entries of a list, an array with one axis or any other iterable; none for words, tables and other arrays.

    A generator may have no end, so that no more than MOST_VALUES entries are taken.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping) or masked(value):
        return []
    try:
        if getattr(value, "ndim", 1) != 1:
            return []
        if isinstance(value, np.ndarray | jax.Array | pd.Series | pd.Index):
            found = value[: MOST_VALUES + 1].tolist()
        else:
            found = list(itertools.islice(value, MOST_VALUES + 1))
    except Exception as error:  # a user's own iterator may raise anything
        raise ValueError(f"{name}={shown(value)} is not allowed: its values cannot be read") from error
    if len(found) > MOST_VALUES:
        fail(name, value, f"it must have at most {MOST_VALUES} values")
    return found


def axis(name: str, value: Any) -> list[Any]:
    """The values of an axis of a grid: a number or a list of numbers."""
    entries = as_list(name, value)
    if not entries:
        fail(name, entries, "it must not be empty")
    for entry in entries:
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes):
            fail(name, value, "it must be a number or a list of numbers, such as [1, 2]")
    found = [entry for entry in entries if is_number(entry)]
    if len(set(found)) < len(found):
        fail(name, entries, "its values must differ")
    return entries


def floats(value: Any) -> np.ndarray | None:
    """Numbers in an array, or in lists of lists, as float64; None for words, dates, masked arrays and other values."""
    if masked(value) or (isinstance(value, range) and value[MOST_VALUES:]):  # a range holds nothing, its array would
        return None
    try:
        found = np.asarray(value)
        return found.astype(np.float64) if found.dtype.kind in "biufO" else None
    except Exception:  # lists of different lengths, or a user's own methods, which may raise anything
        return None


# ------------------------------------------------------------------------------------------------------- words


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of a few words."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        fail(name, value, "it must be " + " or ".join(repr(option) for option in options))
    return value


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was meant, if one is close; upper and lower case are the same mistake, n for N."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word[:LONGEST_SHOWN].lower(), folded, n=1)
    return folded[found[0]] if found else None


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what was meant, or all that there is."""
    known = list(known)
    close = nearest(word, known)
    if close:
        return f"did you mean {close!r}?"
    return f"there is {', '.join(known)}" if known else "it has none"


# ------------------------------------------------------------------------------------------------------- paths


def path(name: str, value: Any, what: str = "a folder") -> Path:
    """A path that a file system could have."""
    try:
        text = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
    except Exception:  # a user's own `__fspath__` may raise anything
        text = None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        fail(name, value, f"it must be the path of {what}")
    found = Path(text)
    with reasons(name, value, ValueError):
        found.exists()
    return found


def folder(name: str, value: Any) -> Path:
    """A folder, which is made if it is not there."""
    found = path(name, value)
    if found.exists() and not found.is_dir():
        fail(name, str(found), "it must be a folder, but there is a file of that name")
    with reasons(name, str(found)):
        found.mkdir(parents=True, exist_ok=True)
    return found


def missing(value: Any, what: str) -> FileNotFoundError:
    """The error for a path that does not exist."""
    return FileNotFoundError(f"{in_one_line(str(value))} does not exist; it must be {what}")


@contextmanager
def reasons(name: str, value: Any, kind: type[Exception] = OSError) -> Iterator[None]:
    """Re-raise OSErrors about a path as one readable message; lock errors pass through."""
    try:
        yield
    except BlockingIOError:
        raise
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, OSError):
            why = REASONS.get(error.errno or 0, error.strerror or str(error))
        else:
            why = "its name has letters that no file may have"
        raise kind(f"{name}={shown(value)} is not allowed: it must be a path that can be used, but {why}") from error

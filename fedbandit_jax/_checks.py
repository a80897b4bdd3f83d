"""Checks of arguments: one sentence that names the argument, its value and what is allowed."""

import difflib
import errno
import math
import numbers
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

LONGEST_SHOWN = 200  # letters of a value in a sentence
REASONS = {  # why the system refuses a path
    errno.ENOTDIR: "a part of its path is a file",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ENOENT: "no folder can be made there",
    errno.ENOSPC: "the disk is full",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "it may not be written to"),
}


def fail(name: str, value: Any, allowed: str) -> None:
    raise ValueError(f"{name}={shown(value)} is not allowed: {allowed}")


def shown(value: Any) -> str:
    """A value in one line that is not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 30]} ... {text[-25:]}"


# ----------------------------------------------------------------------------------------------------- numbers


def plain(value: Any) -> Any:
    """An array without axes, or a scalar of NumPy or JAX, as Python's own number or word."""
    if getattr(value, "ndim", None) == 0 and isinstance(getattr(value, "dtype", None), np.dtype) and not masked(value):
        return value.item()
    return value


def masked(value: Any) -> bool:
    """Is it an array that may hide some of its entries?"""
    return isinstance(value, np.ma.MaskedArray)


def is_finite(value: Any) -> bool:
    """Is it a finite real number?"""
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def whole(name: str, value: Any, least: int = 1, most: int | None = None, why: str = "") -> int:
    """A whole number within [least, most]."""
    value = plain(value)
    if not is_finite(value) or int(value) != value or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}{' (' + why + ')' if why else ''}"
        fail(name, value, f"it must be a whole number of at least {least}{limit}")
    return int(value)


def real(name: str, value: Any, low: float, high: float, ends: str = "[]", also: str = "") -> float:
    """A finite number from low to high, with those ends that `ends` says; `also` tells what else is allowed."""
    value = plain(value)
    ok = is_finite(value)
    if ok:
        above = value >= low if ends[0] == "[" else value > low
        below = value <= high if ends[1] == "]" else value < high
        ok = above and below
    if not ok:
        upper = "infinity)" if math.isinf(high) else f"{high:g}{ends[1]}"
        fail(name, value, f"it must be a number in {ends[0]}{low:g}, {upper}{also}")
    return float(value)


def real_or_word(name: str, value: Any, low: float, high: float, ends: str, words: Iterable[str]) -> Any:
    """A finite number from low to high, or one of a few words."""
    value, words = plain(value), tuple(words)
    if not (isinstance(value, str) and value in words):
        real(name, value, low, high, ends, "".join(f" or {word!r}" for word in words))
    return value


def indices(name: str, value: Any, available: int | None = None, what: str = "") -> Sequence[int]:
    """A count n, meaning 0..n-1, or a list of distinct indices, each below `available`."""
    value = plain(value)
    if isinstance(value, numbers.Real):
        return range(whole(name, value, 1, available, what))
    entries = entries_of(value)
    if not entries:
        fail(name, value, "it must be a whole number of at least 1 or a list of indices")
    found = [whole(name, v, 0, None if available is None else available - 1, what) for v in entries]
    if len(set(found)) < len(found):
        fail(name, value, "its indices must differ")
    return found


# ------------------------------------------------------------------------------------------------------- lists


def is_list(value: Any) -> bool:
    """Is it a list, tuple, range or array of values, rather than one value?"""
    return (isinstance(value, Sequence) and not isinstance(value, str | bytes)) or getattr(value, "ndim", 0) > 0


def as_list(value: Any) -> list[Any]:
    """A list, tuple, range or array with one axis as a list; anything else as a list of one."""
    if not is_list(value) or masked(value) or getattr(value, "ndim", 1) > 1:
        return [plain(value)]
    return [plain(entry) for entry in (value.tolist() if hasattr(value, "tolist") else value)]


def entries_of(value: Any) -> list[Any]:
    """What is in a list, an array or anything else that one can go through; nothing for words and tables."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping) or masked(value):
        return []
    return list(value) if getattr(value, "ndim", 1) else []


def axis(name: str, value: Any) -> list[Any]:
    """The values of an axis of a grid: a number or a list of numbers."""
    entries = as_list(value)
    if not entries:
        fail(name, entries, "it must not be empty")
    for entry in entries:
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes):
            fail(name, value, "it must be a number or a list of numbers, such as [1, 2]")
    if len(set(entries)) < len(entries):
        fail(name, entries, "its values must differ")
    return entries


# ------------------------------------------------------------------------------------------------------- words


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """One of a few words."""
    value, options = plain(value), tuple(options)
    if not isinstance(value, str) or value not in options:
        fail(name, value, "it must be " + " or ".join(repr(option) for option in options))
    return str(value)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was meant, if one is close; upper and lower case are the same mistake, n for N."""
    folded = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), folded, n=1)
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
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        fail(name, value, f"it must be the path of {what}")
    found = Path(value)
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


@contextmanager
def reasons(name: str, value: Any, kind: type[Exception] = OSError) -> Iterator[None]:
    """An error of the system about a path becomes a sentence; one that says who else uses it is one already."""
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

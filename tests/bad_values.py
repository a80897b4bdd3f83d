"""Values of all kinds that a user might pass by mistake, by name, for `tests.bad_inputs`.

A value is a function that makes it, as generators can be used once only.
"""

import array
import collections
import datetime
import decimal
import enum
import fractions
import itertools
import math
import pathlib
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy import sparse

import fedbandit_jax as fb


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("this method always fails")


def failing(base: type, *methods: str) -> type:
    """A class whose methods of these names raise."""
    return type(f"Failing{base.__name__.title()}", (base,), dict.fromkeys(methods, refuse))


TEXT = ("__repr__", "__str__", "__format__")
COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__")
COUNTED = ("__iter__", "__len__", "__getitem__", "__contains__")
CONVERTED = ("__float__", "__int__", "__index__", "__array__", "__fspath__", "__trunc__")


class Colour(enum.IntEnum):
    RED = 1


class Pair(NamedTuple):
    a: int = 1
    b: int = 2


def recursive_list() -> list:
    found: list = [1]
    found.append(found)
    return found


def recursive_dict() -> dict:
    found: dict = {"a": 1}
    found["b"] = found
    return found


def deep(depth: int) -> list:
    found: list = [1]
    for _ in range(depth):
        found = [found]
    return found


def empty_sized(size: tuple[int, ...]) -> np.ndarray:
    return np.empty(size)


def object_array(*entries: Any) -> np.ndarray:
    found = np.empty(len(entries), object)
    found[:] = entries
    return found


def of_no_axes(entry: Any) -> np.ndarray:
    found = np.empty((), object)
    found[()] = entry
    return found


def fails(t: Any) -> Any:
    raise RuntimeError("this function always fails")


NUMBERS: dict[str, Any] = {
    **{repr(x): x for x in (None, True, False, 0, -1, 1, 2, 3, -0.0, 0.5, 1.5, -2.5)},
    **{repr(x): x for x in (math.nan, math.inf, -math.inf)},
    **{repr(x): x for x in (1e-320, 5e-324, -1e-320, 2.3e-308, 1e-300, 1e-160, 1e-60, 1e-45, 1e-39, 1e-37, 1e-20)},
    **{repr(x): x for x in (1e20, 1e37, 3e38, 1e39, 1e100, 1e160, 1e300, -1e300, 1.7e308)},
    **{repr(x): x for x in (2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**12, 10**30, -(2**63))},
    "10**400": 10**400,
    "-10**400": -(10**400),
    "10**5000": 10**5000,
    "1/3": fractions.Fraction(1, 3),
    "Fraction(2)": fractions.Fraction(2),
    "Fraction(10**400)": fractions.Fraction(10**400),
    "Fraction(1, 10**400)": fractions.Fraction(1, 10**400),
    **{f"Decimal({x})": decimal.Decimal(x) for x in ("0.5", "2", "NaN", "sNaN", "Infinity", "1e-400", "1e9999")},
    **{repr(x): x for x in (1j, 1 + 0j, complex("nan"))},
    **{repr(x): x for x in (np.float16(0.5), np.float32("nan"), np.float64(1e-320), np.int8(-1), np.uint64(2**63))},
    **{repr(x): x for x in (np.bool_(True), np.complex64(1), np.longdouble(2), np.str_("theory"), np.bytes_(b"x"))},
    **{repr(x): x for x in (np.datetime64("NaT"), np.datetime64("2020"), np.timedelta64(3, "s"), np.void(b"abc"))},
    "Colour.RED": Colour.RED,
    "an int whose text fails": failing(int, *TEXT)(3),
    "an int whose methods fail": failing(int, *TEXT, *COMPARED, *CONVERTED)(3),
    "a float whose text fails": failing(float, *TEXT)(0.5),
    "a float whose methods fail": failing(float, *TEXT, *COMPARED, *CONVERTED)(0.5),
}

WORDS: dict[str, Any] = {
    "''": "",
    "blanks": " \t ",
    "NUL": "\0",
    "a word with NUL": "lo\0g",
    "half a letter": "\ud800",
    "two lines": "two\nlines\n",
    "a long word": "x" * 100_000,
    "a long path": "a/" * 5000,
    "a number": "1",
    "nan as a word": "nan",
    "400 digits": "1" * 400,
    "5000 digits": "1" * 5000,
    "Eastern digits": "\u0663 log",
    "5 every 0": "5 every 0",
    "999999 every 999999999": "999999 every 999999999",
    "log": "log",
    "theory": "theory",
    "4GB": "4GB",
    "1e400GB": "9" * 400 + "GB",
    "markup": "[red]{x}%s{0!r}[/]",
    "a letter that is no letter": "\u202e\U0001f600",
    "bytes": b"log",
    "bytes that are no text": b"\xff\xfe",
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"abc"),
    "a word whose text fails": failing(str, *TEXT)("log"),
    "a path": pathlib.Path("nowhere/at all"),
    "/dev/null/x": "/dev/null/x",
}

LISTS: dict[str, Callable[[], Any]] = {
    "[]": list,
    "()": tuple,
    "{}": dict,
    "set()": set,
    "[[]]": lambda: [[]],
    "[None]": lambda: [None],
    "[1, None]": lambda: [1, None],
    "[1, 'a']": lambda: [1, "a"],
    "[1, 1]": lambda: [1, 1],
    "[1, 1.0, True]": lambda: [1, 1.0, True],
    "[2, 10**400]": lambda: [2, 10**400],
    "[2, 1e-320]": lambda: [2, 1e-320],
    "[1, nan]": lambda: [1, math.nan],
    "[nan, nan]": lambda: [math.nan, math.nan],
    "[[1, 2], [3]]": lambda: [[1, 2], [3]],
    "[[1, 2]]": lambda: [[1, 2]],
    "[{}]": lambda: [{}],
    "(1, 2)": lambda: (1, 2),
    "['log', 5]": lambda: ["log", 5],
    "{'a': 1}": lambda: {"a": 1},
    "{1: 2}": lambda: {1: 2},
    "dict keys": lambda: {1: 2, 3: 4}.keys(),
    "{1, 2}": lambda: {1, 2},
    "frozenset": lambda: frozenset({1}),
    "a generator": lambda: (x for x in (1, 2, 3)),
    "a generator that fails": lambda: (1 // x for x in (1, 0)),
    "an endless generator": itertools.count,
    "an endless generator of one word": lambda: itertools.repeat("log"),
    "an iterator": lambda: iter([1, 2]),
    "map": lambda: map(int, "12"),
    "zip": lambda: zip([1], [2], strict=True),
    "deque": lambda: collections.deque([1, 2]),
    "namedtuple": Pair,
    "range(3)": lambda: range(3),
    "range(10**6)": lambda: range(10**6),
    "range(10**9)": lambda: range(10**9),
    "range(10**30)": lambda: range(10**30),
    "a million numbers": lambda: list(range(1, 10**6 + 1)),
    "a million equal words": lambda: ["log"] * 10**6,
    "a million floats": lambda: np.linspace(0.1, 0.9, 10**6),
    "a million in a tuple": lambda: tuple(np.linspace(0.1, 0.9, 10**6).tolist()),
    "ten million zeros": lambda: np.zeros(10**7),
    "recursive list": recursive_list,
    "recursive dict": recursive_dict,
    "1000 deep": lambda: deep(1000),
    "100000 deep": lambda: deep(100_000),
    "array.array": lambda: array.array("d", [1.0, 2.0]),
    "a list whose methods fail": lambda: failing(list, *COUNTED, *TEXT)([1]),
    "a tuple whose length fails": lambda: failing(tuple, "__len__")([1]),
    "a dict whose methods fail": lambda: failing(dict, *COUNTED, *TEXT, *COMPARED)(),
}

ARRAYS: dict[str, Callable[[], Any]] = {
    "np 0-d": lambda: np.array(2),
    "np 0-d float": lambda: np.array(0.5),
    "np 0-d word": lambda: np.array("log"),
    "np 0-d object": lambda: of_no_axes([1, 2]),
    "np 0-d None": lambda: of_no_axes(None),
    "np (0,)": lambda: empty_sized((0,)),
    "np (0, 3)": lambda: empty_sized((0, 3)),
    "np (3, 0)": lambda: empty_sized((3, 0)),
    "np [1, 2]": lambda: np.array([1, 2]),
    "np [0.5, nan]": lambda: np.array([0.5, math.nan]),
    "np (2, 2)": lambda: np.ones((2, 2)),
    "np (1, 1, 1)": lambda: np.ones((1, 1, 1)),
    "np complex": lambda: np.array([1j]),
    "np words": lambda: np.array(["log", "linear"]),
    "np bools": lambda: np.array([True, False]),
    "np dates": lambda: np.array(["2020"], "datetime64[D]"),
    "np structured": lambda: np.zeros(2, [("a", int), ("b", float)]),
    "np records": lambda: np.rec.array([(1, 2.0)]),
    "np objects": lambda: object_array(1, "a", None),
    "np objects that fail": lambda: object_array(failing(object, *TEXT, *COMPARED)()),
    "np lists": lambda: object_array([1], [2, 3]),
    "np matrix": lambda: np.asmatrix([[1.0]]),
    "masked": lambda: np.ma.array([1.0, 2.0], mask=[True, False]),
    "masked 0-d": lambda: np.ma.array(1.0, mask=True),
    "np.ma.masked": lambda: np.ma.masked,
    "masked without masks": lambda: np.ma.array([1.0, 2.0]),
    "jnp 0-d": lambda: jnp.array(2),
    "jnp [1, 2]": lambda: jnp.array([1, 2]),
    "jnp nan": lambda: jnp.array(math.nan),
    "jnp (2, 2)": lambda: jnp.ones((2, 2)),
    "jnp deleted": lambda: deleted(),
    "key": lambda: jax.random.key(0),
    "keys": lambda: jax.random.split(jax.random.key(0)),
    "PRNGKey": lambda: jax.random.PRNGKey(0),
    "ShapeDtypeStruct": lambda: jax.ShapeDtypeStruct((), jnp.float32),
    "ShapeDtypeStruct (3,)": lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
    "ShapeDtypeStruct (3, 2)": lambda: jax.ShapeDtypeStruct((3, 2), jnp.float32),
    "np.dtype": lambda: np.dtype(float),
    "jax device": lambda: jax.devices()[0],
    "Series": lambda: pd.Series([1, 2]),
    "Series of words": lambda: pd.Series(["log", None]),
    "empty Series": lambda: pd.Series(dtype=float),
    "DataFrame": lambda: pd.DataFrame({"a": [1, 2]}),
    "empty DataFrame": pd.DataFrame,
    "Index": lambda: pd.Index([1, 2]),
    "MultiIndex": lambda: pd.MultiIndex.from_tuples([(1, 2)]),
    "Categorical": lambda: pd.Categorical(["a", "b"]),
    "Int64 with NA": lambda: pd.array([1, None], dtype="Int64"),
    "pd.NA": lambda: pd.NA,
    "pd.NaT": lambda: pd.NaT,
    "Timestamp": lambda: pd.Timestamp("2020-01-01"),
    "Interval": lambda: pd.Interval(0, 1),
    "sparse": lambda: sparse.csr_array(np.eye(2)),
    "sparse matrix": lambda: sparse.csr_matrix(np.eye(2)),
    "sparse (10**9, 10**9)": lambda: sparse.coo_array(([1.0], ([0], [0])), shape=(10**9, 10**9)),
}

OBJECTS: dict[str, Callable[[], Any]] = {
    "object()": object,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "slice": lambda: slice(1, 2),
    "int": lambda: int,
    "type": lambda: type,
    "a function of a class": lambda: failing,
    "fb.LinUCB": lambda: fb.LinUCB,
    "fb.World": lambda: fb.World,
    "fb.Catalog": lambda: fb.Catalog,
    "LinUCB()": fb.LinUCB,
    "LinUCB(alpha=10**400)": lambda: fb.LinUCB(alpha=10**400),
    "World()": fb.World,
    "World of bad fields": lambda: fb.World(contexts=10**400, charged=failing(object, *TEXT, *COMPARED)()),
    "lambda: 5": lambda: lambda: 5,
    "lambda t: t": lambda: lambda t: t,
    "lambda t: -t": lambda: lambda t: -t,
    "lambda t: 'a'": lambda: lambda t: "a",
    "lambda t: 10**400": lambda: lambda t: 10**400,
    "lambda t: None": lambda: lambda t: None,
    "lambda t: array": lambda: lambda t: np.arange(t),
    "a function that fails": lambda: fails,
    "len": lambda: len,
    "math.sqrt": lambda: math.sqrt,
    "sentinel": lambda: mock.sentinel.nothing,
    "ValueError": lambda: ValueError,
    "an exception": lambda: ValueError("two\nlines"),
    "StopIteration()": StopIteration,
    "numpy": lambda: np,
    "jax.numpy": lambda: jnp,
    "math": lambda: math,
    "a module": lambda: types.ModuleType("bad\nname"),
    "a pattern": lambda: re.compile("a"),
    "a lock": threading.Lock,
    "a date": lambda: datetime.date(2020, 1, 1),
    "a time": lambda: datetime.datetime(2020, 1, 1),
    "a span": lambda: datetime.timedelta(1),
    "MagicMock": mock.MagicMock,
    "Mock": mock.Mock,
    "a file": lambda: sys.stderr,
    "text fails": lambda: failing(object, *TEXT)(),
    "comparisons fail": lambda: failing(object, *COMPARED)(),
    "counting fails": lambda: failing(object, *COUNTED)(),
    "conversions fail": lambda: failing(object, *CONVERTED)(),
    "calls fail": lambda: failing(object, "__call__", *TEXT)(),
    "attributes fail": lambda: failing(object, "__getattr__", *TEXT)(),
    "everything fails": lambda: failing(object, "__getattr__", "__call__", *TEXT, *COMPARED, *COUNTED, *CONVERTED)(),
}


def deleted() -> jax.Array:
    """An array whose memory was given back."""
    found = jnp.array([1.0, 2.0])
    found.delete()
    return found


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


VALUES: dict[str, Callable[[], Any]] = {
    **{name: constant(value) for name, value in (NUMBERS | WORDS).items()},
    **LISTS,
    **ARRAYS,
    **OBJECTS,
}
# Arguments that come from a shell: texts only.
TEXTS = {name: constant(word) for name, word in WORDS.items() if isinstance(word, str) and "fails" not in name}
TEXTS = {name: make for name, make in TEXTS.items() if "methods" not in name and name != "half a letter"}
TEXTS |= {
    text: constant(text)
    for text in ("0", "-1", "2", "0.5", "inf", "-inf", "NaN", "1e-320", "1e300", "1e400", "1_0", "0x10", "None", "[1]")
}
# What may stand behind `key =` in a TOML file.
IN_TOML = {
    text: constant(text)
    for text in (
        *("0", "-1", "1", "2", "2.5", "-0.0", "inf", "-inf", "nan", "1e-320", "1e300", "1e400", "0x1F", "1_000"),
        *("true", "false", '""', '" "', '"log"', '"theory"', '"\\u0000"', '"two\\nlines"', '"4GB"', "''"),
        *("[]", "[[]]", "[1, 1]", "[1, 'a']", "[1, nan]", "[nan, nan]", "[[1, 2]]", "{}", "{ a = 1 }", "[{}]"),
        *("[{ a = 1 }, 2]", "2020-01-01", "07:32:00", "2020-01-01T07:32:00Z", "[2020-01-01]", "2020-02-31"),
        *("", "?", '"', "[1", "{ a = { a = { a = 1 } } }", '["log", 5]', "[true, false]", "9223372036854775808"),
    )
}
IN_TOML |= {
    "400 digits": constant("1" * 400),
    "5000 digits": constant("1" * 5000),
    "a list with 400 digits": constant(f"[2, {'1' * 400}]"),
    "a long word": constant(f'"{"x" * 100_000}"'),
    "100 deep": constant("[" * 100 + "]" * 100),
    "1000 deep": constant("[" * 1000 + "]" * 1000),
    "1000 tables deep": constant("{ a = " * 1000 + "1" + " }" * 1000),
    "100000 deep": constant("[" * 100_000),
    "a million numbers": lambda: "[" + ",".join(map(str, range(1, 10**6 + 1))) + "]",
    "a million words": lambda: "[" + '"a",' * 10**6 + "]",
    "a control character": constant('"\x01"'),
}

"""Base of Algorithm and World: validated dataclass fields as a pytree (numbers are leaves, words static)."""

import dataclasses
import inspect
import itertools
import math
import numbers
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, ClassVar, TypeVar

import jax

from fedbandit_jax import _checks

Kind = TypeVar("Kind", bound="Configured")
Hyperparameter = Any  # a number or a word, or in a sweep a list of them; one traced number inside `run`
MAX_CELLS = 10**5  # of a sweep: to check so many takes five seconds
DIGITS = 4  # of a number that a tuner tries, so that it can be written down


@dataclass(frozen=True)
class Between:
    """Where a tuner looks: between two numbers, uniformly in the logarithm or, with log=False, in the number itself."""

    low: float
    high: float
    log: bool = True

    def __post_init__(self) -> None:
        _checks.flag("log", self.log)
        low = _checks.real("low", self.low, 0 if self.log else -math.inf, math.inf, "()")
        high = _checks.real("high", self.high, -math.inf, math.inf, "()")
        if high <= low:
            _checks.fail("high", high, f"it must be a number above low={low:g}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def at(self, place: float) -> float:
        """The number at a place in [0, 1], in four digits."""
        ratio, width = self.high / self.low if self.log else 1.0, self.high - self.low
        value = self.low * ratio**place if self.log else self.low + width * place
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def place(self, value: float) -> float:
        """Where a number is: 0 is the lower end, 1 the upper one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else -math.inf
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class OneOf:
    """Where a tuner looks: among a few words."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        words = tuple(_checks.plain(word) for word in _checks.entries_of("words", self.words))
        if not words or not all(isinstance(word, str) for word in words):
            _checks.fail("words", self.words, "it must be a list of words, one at least")
        object.__setattr__(self, "words", words)

    def at(self, place: float) -> str:
        """The word at a place in [0, 1]."""
        return self.words[min(int(place * len(self.words)), len(self.words) - 1)]


@dataclass(frozen=True)
class Parameter:
    """What a hyperparameter may be: a number in an interval, one of some words, or either."""

    low: float | None = None  # None: no number
    high: float = math.inf
    ends: str = "[]"  # which ends of the interval belong to it
    words: tuple[str, ...] = ()
    optional: bool = False  # may be None
    static: bool = False  # a number, but fixed at compile time
    search: Between | OneOf | None = None
    infinite: bool = False  # may be infinity

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, in one sentence, for a value that is not allowed."""
        value = _checks.plain(value)
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return
        if self.infinite and type(value) is float and value == math.inf:
            return
        if self.low is None:
            _checks.choice(name, value, self.words)
        else:
            _checks.real_or_word(name, value, self.low, self.high, self.ends, self.words)


def param(
    default: Any,
    *,
    low: float | None = None,
    high: float = math.inf,
    ends: str = "[]",
    words: tuple[str, ...] = (),
    static: bool = False,
    search: Between | OneOf | None = None,
    infinite: bool = False,
) -> Any:
    """A field of an algorithm: `alpha: Hyperparameter = param(0.5, low=0, words=("theory",), search=Between(0.01, 2))`.

    Args:
        default: its value where none is given; with None, the algorithm works out its own.
        low, high, ends: the interval that a number must lie in; `ends` is "[]", "()", "[)" or "(]".
        words: words that are allowed, beside numbers or, without `low`, in their place; another word is another
            program.
        static: the number is fixed at compile time, too.
        search: where a tuner looks; it leaves hyperparameters without it alone.
        infinite: infinity is allowed, too.
    """
    about = Parameter(low, high, ends, words, default is None, static, search, infinite)
    return dataclasses.field(default=default, metadata={"param": about})


def annotated(kind: type) -> list[str]:
    """The attributes that a class itself annotates, without those of the class alone."""
    return [name for name, hint in inspect.get_annotations(kind).items() if "ClassVar" not in str(hint)]


def declared(kind: type) -> dict[str, Parameter]:
    """What a class of algorithms declares of its hyperparameters: its own first, then inherited ones."""
    return _declared(kind)


@cache
def _declared(kind: type) -> dict[str, Parameter]:
    own = annotated(kind)
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.name not in own)
    return {field.name: field.metadata["param"] for field in fields if "param" in field.metadata}


def search_space(kind: type) -> dict[str, Between | OneOf]:
    """Where a tuner looks, by hyperparameter."""
    return {name: about.search for name, about in declared(kind).items() if about.search is not None}


class Configured:
    """A frozen dataclass as a pytree: numbers are traced leaves, so that a new value never recompiles.

    Strings, None, bools and functions are static, and so are numbers that `static` or param(static=True) names.
    """

    static: ClassVar[tuple[str, ...]] = ()  # numbers that are fixed at compile time, besides those param() says are

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, cls._unflatten, _flatten)

    def hyperparameters(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def replace(self: Kind, **changes: Any) -> Kind:
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def _unflatten(cls: type[Kind], static: tuple, leaves: Any) -> Kind:
        names, fixed = static
        new = object.__new__(cls)
        for name, value in [*zip(names, leaves, strict=True), *fixed]:
            object.__setattr__(new, name, value)
        return new


def check_no_methods(what: str, kind: type) -> None:
    """No field has the name of a method that it would hide."""
    for name in (name for part in kind.__mro__ for name in annotated(part)):
        for part in kind.__mro__[1:]:
            method = isinstance(vars(part).get(name), FunctionType | property | classmethod)
            if method and name not in annotated(part):
                _checks.fail(what, name, f"that name is a method of {part.__name__}")


def static_names(kind: type[Configured]) -> set[str]:
    """The fields that are fixed at compile time whatever they are."""
    return {*kind.static, *(name for name, about in declared(kind).items() if about.static)}


def static_fields(configured: Configured) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """Names of the traced fields, and names and values of the static ones."""
    static = static_names(type(configured))

    def is_static(name: str, value: Any) -> bool:
        return name in static or value is None or isinstance(value, str | bool) or callable(value)

    items = configured.hyperparameters().items()
    names = tuple(name for name, value in items if not is_static(name, value))
    return names, tuple((name, value) for name, value in items if is_static(name, value))


def _flatten(configured: Configured) -> tuple[tuple, tuple]:
    names, fixed = static_fields(configured)
    return tuple(getattr(configured, name) for name in names), (names, fixed)


def _flatten_with_keys(configured: Configured) -> tuple[tuple, tuple]:
    leaves, (names, fixed) = _flatten(configured)
    keys = (jax.tree_util.GetAttrKey(name) for name in names)
    return tuple(zip(keys, leaves, strict=True)), (names, fixed)


def is_decorated(kind: type, base: type) -> bool:
    """Are the annotated attributes of a class and its parents, down to `base`, fields of a dataclass?"""
    for part in kind.__mro__:
        if issubclass(part, base) and annotated(part) and "__dataclass_fields__" not in vars(part):
            return False
    return dataclasses.is_dataclass(kind)


def lists(configured: Configured) -> dict[str, list[Any]]:
    """The values of each of its fields, checked as far as the class declares what they may be."""
    kind = type(configured)
    about, static = declared(kind), static_names(kind)
    fields = {}
    for name, given in configured.hyperparameters().items():
        where = f"{name} of {kind.__name__}"
        values = fields[name] = _checks.as_list(where, given)
        if not values:
            _checks.fail(where, values, "it must not be empty")
        for value in values:
            if not (is_constant(value) if name in static else is_simple(value)):
                _checks.fail(where, value, "it must be a number or a word, or a list of them")
            if name in about:
                about[name].check(name, value)
    return fields


def is_constant(value: Any) -> bool:
    """Can it be compared and written down, as the key of a compiled program is?"""
    try:
        hash(value), repr(value)
    except Exception:  # a user's own methods may raise anything
        return False
    return True


def is_simple(value: Any) -> bool:
    """Is it a number, a word, a function, or a structure of JAX's of these, rather than a list or table?"""
    if isinstance(value, str):
        return True
    if isinstance(value, Iterable) or not is_constant(value):
        return False
    return all(isinstance(leaf, str) or is_traceable(leaf) or callable(leaf) for leaf in jax.tree.leaves(value))


def is_traceable(value: Any) -> bool:
    """Is it a number that an array can hold?"""
    try:
        return isinstance(value, numbers.Real) and isinstance(float(value), float)
    except OverflowError:
        return False


def check_count(cells: int) -> None:
    """Refuse more combinations than a sweep may have, before they are made."""
    if cells > MAX_CELLS:
        raise ValueError(f"a sweep of {cells} cells is not allowed: give shorter lists, of {MAX_CELLS} cells at most")


def combinations(configured: Configured) -> int:
    """How many there are of the lists among its fields."""
    return math.prod(map(len, lists(configured).values()))


def expand(configured: Kind) -> Iterator[Kind]:
    """One for each combination of the lists among its fields."""
    fields = lists(configured)
    check_count(math.prod(map(len, fields.values())))
    for combination in itertools.product(*fields.values()):
        yield configured.replace(**dict(zip(fields, combination, strict=True)))

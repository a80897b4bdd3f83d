"""Hyperparameters that declare themselves: what they may be, whether they are traced, and where a tuner looks."""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedbandit_jax import _checks

Hyperparameter = Any  # a number or a word, or in a sweep a list of them; one traced number inside `run`
DIGITS = 4  # of a number that a tuner tries, so that it can be written down


@dataclass(frozen=True)
class Between:
    """Where a tuner looks: between two numbers, uniformly in the logarithm or, with log=False, in the number itself."""

    low: float
    high: float
    log: bool = True

    def __post_init__(self) -> None:
        _checks.real("low", self.low, 0 if self.log else -math.inf, math.inf, "()")
        _checks.real("high", self.high, self.low, math.inf, "()")

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

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, in one sentence, for a value that is not allowed."""
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
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
) -> Any:
    """A field of an algorithm: `alpha: Hyperparameter = param(0.5, low=0, words=("theory",), search=Between(0.01, 2))`.

    Args:
        default: its value where none is given; with None, the algorithm works out its own.
        low, high, ends: the interval that a number must lie in; `ends` is "[]", "()", "[)" or "(]".
        words: words that are allowed, beside numbers or, without `low`, in their place; another word is another
            program.
        static: the number is fixed at compile time, too.
        search: where a tuner looks; it leaves hyperparameters without it alone.
    """
    about = Parameter(low, high, ends, words, default is None, static, search)
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

"""Hyperparameters that declare themselves: what they may be, whether they are traced, and where a tuner looks."""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fedbandit_jax import _checks

Hyperparameter = Any  # a number or a word, or in a sweep a list of them; one traced number inside `run`


@dataclass(frozen=True)
class Between:
    """Where a tuner looks: between two numbers, uniformly in the logarithm or, with log=False, in the number itself."""

    low: float
    high: float
    log: bool = True

    def draw(self, rng: np.random.Generator) -> float:
        if not self.log:
            return float(rng.uniform(self.low, self.high))
        return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))


@dataclass(frozen=True)
class OneOf:
    """Where a tuner looks: among a few words."""

    words: tuple[str, ...]

    def draw(self, rng: np.random.Generator) -> str:
        return self.words[rng.integers(len(self.words))]


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


def declared(kind: type) -> dict[str, Parameter]:
    """What a class of algorithms declares of its hyperparameters: its own first, then inherited ones."""
    return _declared(kind)


@cache
def _declared(kind: type) -> dict[str, Parameter]:
    own = inspect.get_annotations(kind)
    fields = sorted(dataclasses.fields(kind), key=lambda field: field.name not in own)
    return {field.name: field.metadata["param"] for field in fields if "param" in field.metadata}

"""Schedules of questions: how many may be asked by which round."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from fedbandit_jax import _checks

WORDS = re.compile(r"(\d{1,6}) (log|linear|every (\d{1,9}))")
MOST = 2**31 - 1  # questions: the programs count them in 32 bits
LONGEST_TABLE = 10**7  # rounds of a schedule that is a function: ten seconds
MUST = "it must be 'log', 'linear', 'C log', 'C linear' or 'C every N' with whole numbers, or a function b(t)"


@dataclass(frozen=True)
class Schedule:
    """b(t), the questions allowed by round t, as the rounds at which it grows and by how much."""

    name: str
    rounds: tuple[int, ...]
    growth: tuple[int, ...]
    every: int = 0  # instead of rounds: more questions every so many
    # Left out of repr, which is part of the run ID: `name` already encodes them.
    count: int = field(default=1, repr=False)  # so many more
    after: int = field(default=0, repr=False)  # the rounds that do not count

    @classmethod
    def of(cls, given: Any, horizon: int) -> "Schedule":
        """ "log": 5 floor(log t). "linear": floor(t / 50). Or any function of t, tabulated up to the horizon.

        With whole numbers, "C log" is C floor(log t), "C linear" is C floor(t / 50), and "C every N" is C questions
        after every N rounds, C floor((t - 1) / N).
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls.of_words(given)
        if not callable(given):
            _checks.fail("schedule", given, MUST)
        if horizon > LONGEST_TABLE:
            allowed = f"a function is tabulated, up to horizon={LONGEST_TABLE} and not {horizon}; use 'log' or 'linear'"
            _checks.fail("schedule", given, allowed)
        table = np.array([_checks.whole("schedule(t)", called(given, t), 0, MOST) for t in range(1, horizon + 1)])
        growth = np.diff(table, prepend=0)
        if (growth < 0).any():
            _checks.fail("schedule", given, f"b(t) must not fall, but does at t={np.argmax(growth < 0) + 1}")
        grows = np.flatnonzero(growth)
        return cls(getattr(given, "__name__", "custom"), tuple((grows + 1).tolist()), tuple(growth[grows].tolist()))

    @classmethod
    def of_words(cls, given: str) -> "Schedule":
        found = WORDS.fullmatch({"log": "5 log", "linear": "1 linear"}.get(given, given))
        if found is None or int(found[1]) < 1 or (found[3] is not None and int(found[3]) < 1):
            _checks.fail("schedule", given, MUST)
        assert found is not None
        count = int(found[1])
        if found[2] == "log":
            rounds = tuple(math.ceil(math.exp(k)) for k in range(1, 22))  # e^21 > 10^9
            return cls(given, rounds, (count,) * len(rounds))
        if found[2] == "linear":
            return cls(given, (), (), every=50, count=count)
        return cls(given, (), (), every=int(found[3]), count=count, after=1)

    def __call__(self, t: int) -> int:
        """b(t)."""
        if self.every:
            return self.count * (max(t - self.after, 0) // self.every)
        return sum(growth for start, growth in zip(self.rounds, self.growth, strict=True) if start <= t)

    def __str__(self) -> str:
        return self.name

    def due(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """b(t) - b(t-1)."""
        if self.every:
            since = t - self.after
            return jnp.where((since > 0) & (since % self.every == 0), self.count, 0).astype(jnp.int32)
        if not self.rounds:
            return jnp.int32(0)
        rounds, growth = (jnp.asarray(x, jnp.int32) for x in (self.rounds, self.growth))
        index = jnp.minimum(jnp.searchsorted(rounds, t), len(self.rounds) - 1)
        return jnp.where(rounds[index] == t, growth[index], 0)

    def quiet_until(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """The last round, t at least, before one after t that asks; a large number if none does."""
        if self.every:
            return ((t - self.after) // self.every + 1) * self.every + self.after - 1
        if not self.rounds:
            return jnp.int32(2**31 - 1)
        rounds = jnp.asarray((*self.rounds, 2**31 - 1), jnp.int32)
        return rounds[jnp.searchsorted(rounds, t, side="right")] - 1


def called(function: Callable[[int], Any], t: int) -> Any:
    """b(t) of a user's function."""
    try:
        return function(t)
    except Exception as error:
        raises = f"it must be a function b(t), but at t={t} it raises {_checks.shown(error)}"
        raise ValueError(f"schedule={_checks.shown(function)} is not allowed: {raises}") from error


NEVER = Schedule("never", (), ())

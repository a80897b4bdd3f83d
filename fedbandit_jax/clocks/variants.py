"""Learners that differ only in what they ask, as one program: a number says whose questions are asked.

LinUCB, ArmCon and ConLinUCB with its three strategies play the same rounds. Compiled apart, each pays for them; as one
program they are compiled once. The number is the same in all lanes of a chunk, so that a branch is a branch, and a
round costs what it costs alone.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax._parameters import static_fields
from fedbandit_jax.clocks.base import Algorithm, Trace
from fedbandit_jax.clocks.client import Client, Info, Questions
from fedbandit_jax.clocks.rounds import RoundAlgorithm, context_of, state_and_info
from fedbandit_jax.clocks.schedule import MOST, NEVER, Schedule
from fedbandit_jax.worlds.problem import Problem

# What a class may have otherwise than the class above it and still play the same rounds.
OF_QUESTIONS = {"ask", "context", "asks_key_terms"}
BEFORE_COMPILING = {"name", "title", "prepare", "check", "for_catalog", "made_for", "revision"}


def rounds_class(kind: type) -> type:
    """The class that says how rounds are played: the first one above that differs in more than what it asks."""
    above = kind.__mro__[1]
    if not dataclasses.is_dataclass(above):
        return kind
    changed = {name for name in vars(kind) if hasattr(above, name) and not name.startswith("__")}
    return kind if changed - field_names(above) - OF_QUESTIONS - BEFORE_COMPILING else rounds_class(above)


def field_names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


class Member(NamedTuple):
    """One of the learners: its class, and the fields that it has besides those of the class of the rounds."""

    kind: type
    fields: tuple[tuple[str, Any], ...]


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Variants:
    """Several learners of the same rounds, with the numbers of the one that plays."""

    rounds: RoundAlgorithm
    members: tuple[Member, ...]

    def tree_flatten(self) -> tuple[tuple, tuple]:
        return (self.rounds,), self.members

    @classmethod
    def tree_unflatten(cls, members: tuple, children: tuple) -> "Variants":
        return cls(children[0], members)

    @property
    def learners(self) -> list[RoundAlgorithm]:
        numbers = self.rounds.hyperparameters()
        return [kind(**numbers, **dict(fields)) for kind, fields in self.members]

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> tuple:
        """The context of each learner."""
        return tuple(context_of(learner, key_terms, links) for learner in self.learners)

    def run(
        self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"], playing: Int[Array, ""]
    ) -> Trace:
        """Play one federation, as learner number `playing` would."""
        if problem.context is None:
            problem = problem._replace(context=self.context(problem.key_terms, problem.links))
        return self.rounds.run_asking(key, problem, checkpoints, AnyOf(self.learners, playing))


@dataclass(frozen=True)
class AnyOf:
    """Asks what one of several learners would."""

    learners: Sequence[RoundAlgorithm]
    playing: Int[Array, ""]  # the same in all lanes

    def question_schedule(self) -> "Schedule | OnlyIf":
        """That of all who ask; nothing is due where another one plays."""
        schedules = [learner.question_schedule() for learner in self.learners]
        asking = [schedule for schedule in schedules if schedule is not NEVER]
        if not asking:
            return NEVER
        does_ask = jnp.array([schedule is not NEVER for schedule in schedules])
        return OnlyIf(does_ask[self.playing], asking[0])

    def ask(self, state: Any, client: Client, questions: Questions) -> tuple[Any, Info]:
        def ask_as(i: int, state: Any) -> tuple[Any, Info]:
            client_of_it = client._replace(context=client.context[i])
            return state_and_info(self.learners[i].ask(state, client_of_it, questions), state)

        infos = [jax.eval_shape(partial(ask_as, i), state)[1] for i in range(len(self.learners))]
        zeros = {name: jnp.zeros(x.shape, x.dtype) for info in infos for name, x in info.items()}

        def branch(i: int, state: Any) -> tuple[Any, Info]:
            state, info = ask_as(i, state)
            return state, {**zeros, **info}

        branches = [partial(branch, i) for i in range(len(self.learners))]
        return lax.switch(self.playing, branches, state)


@dataclass(frozen=True)
class OnlyIf:
    """A schedule where a condition holds, which is the same in all lanes; elsewhere nothing is ever due."""

    asks: Bool[Array, ""]
    schedule: Schedule

    def due(self, t: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.where(self.asks, self.schedule.due(t), 0)

    def quiet_until(self, t: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.where(self.asks, self.schedule.quiet_until(t), MOST)


def rounds_of(algorithm: Algorithm) -> RoundAlgorithm | None:
    """The learner of its rounds alone, with its numbers; None if it has others, or takes no part in this."""
    kind = rounds_class(type(algorithm))
    if not isinstance(algorithm, RoundAlgorithm) or not algorithm.independent_clients:
        return None
    names = field_names(kind)
    traced, _ = static_fields(algorithm)
    if set(traced) - names:
        return None
    return kind(**{name: getattr(algorithm, name) for name in names})


def member_of(algorithm: RoundAlgorithm) -> Member:
    names = field_names(rounds_class(type(algorithm)))
    own = {name: value for name, value in algorithm.hyperparameters().items() if name not in names}
    return Member(type(algorithm), tuple(own.items()))

"""The round clock: one learner per client, a pull every round, questions when the schedule allows them.

Rounds are played in stretches that end at a checkpoint, before a round with questions, or with a block of noise,
whichever is first. The clock is the same for all runs of a batch, so questions cost only where they are asked.
Nothing of size T is kept.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks, _runtime
from fedbandit_jax.algorithms.base import Algorithm, Trace
from fedbandit_jax.problem import Problem

BLOCK = 64
REFRESH = 32  # blocks between exact recomputations, 2048 rounds: float32 widths stay within 1e-3 (benchmarks/drift.py)

STRIDE = 8  # rounds that a GPU plays before it asks whether to go on; stretches are about 27 long at the defaults


class Client(NamedTuple):
    """What one learner may see and play, and what the world answers."""

    arms: Float[Array, "K d"]
    mask: Bool[Array, " K"]
    key_terms: Float[Array, "J d"]
    theta: Float[Array, " d"]  # the truth: for rewards and answers only
    noise: Float[Array, ""]
    context: Any = ()  # what the learner worked out from the key terms, see RoundAlgorithm.context

    def answer(self, x: Float[Array, " d"], z: Float[Array, ""]) -> Float[Array, ""]:
        """What the user says of an arm or key term, given a standard normal."""
        return x @ self.theta + self.noise * z


@dataclass(frozen=True)
class Schedule:
    """b(t), the questions allowed by round t, as the rounds at which it grows and by how much."""

    name: str
    rounds: tuple[int, ...]
    growth: tuple[int, ...]
    every: int = 0  # instead of rounds: one more question every so many

    @classmethod
    def of(cls, given: Any, horizon: int) -> "Schedule":
        """ "log": 5 floor(log t). "linear": floor(t / 50). Or any function of t, tabulated up to the horizon."""
        if isinstance(given, cls):
            return given
        if given == "log":
            rounds = tuple(math.ceil(math.exp(k)) for k in range(1, 22))  # e^21 > 10^9
            return cls("log", rounds, (5,) * len(rounds))
        if given == "linear":
            return cls("linear", (), (), every=50)
        if not callable(given):
            _checks.fail("schedule", given, "it must be 'log', 'linear' or a function b(t)")
        table = np.array([_checks.whole("schedule(t)", given(t), 0) for t in range(1, horizon + 1)])
        growth = np.diff(table, prepend=0)
        if (growth < 0).any():
            _checks.fail("schedule", given, f"b(t) must not fall, but does at t={np.argmax(growth < 0) + 1}")
        grows = np.flatnonzero(growth)
        return cls(getattr(given, "__name__", "custom"), tuple((grows + 1).tolist()), tuple(growth[grows].tolist()))

    def __call__(self, t: int) -> int:
        """b(t)."""
        if self.every:
            return t // self.every
        return sum(growth for start, growth in zip(self.rounds, self.growth, strict=True) if start <= t)

    def __str__(self) -> str:
        return self.name

    def due(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """b(t) - b(t-1)."""
        if self.every:
            return (t % self.every == 0).astype(jnp.int32)
        if not self.rounds:
            return jnp.int32(0)
        rounds, growth = (jnp.asarray(x, jnp.int32) for x in (self.rounds, self.growth))
        index = jnp.minimum(jnp.searchsorted(rounds, t), len(self.rounds) - 1)
        return jnp.where(rounds[index] == t, growth[index], 0)

    def quiet_until(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """The last round, t at least, before one after t that asks; a large number if none does."""
        if self.every:
            return (t // self.every + 1) * self.every - 1
        if not self.rounds:
            return jnp.int32(2**31 - 1)
        rounds = jnp.asarray((*self.rounds, 2**31 - 1), jnp.int32)
        return rounds[jnp.searchsorted(rounds, t, side="right")] - 1


NEVER = Schedule("never", (), ())


class RoundAlgorithm(Algorithm, abstract=True):
    """Base class of learners that play round by round, each client for itself.

    A subclass says how its state starts, which arm to pull, what to learn from a reward and, if it asks questions,
    how; the clock, the batching and the curves come from here.
    """

    independent_clients: ClassVar[bool] = True

    def lanes(self, arms: int, dim: int) -> int:
        """The power of two from which on arms and state fill half of a core's L2 cache: measured to be fastest."""

        def arms_and_state() -> tuple:
            one = jnp.zeros((1, dim))
            client = Client(jnp.zeros((arms, dim)), jnp.zeros(arms, bool), one, one[0], one[0, 0])
            return client.arms, self.start(client)

        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(arms_and_state)))
        return 2 ** math.ceil(math.log2(max(_runtime.l2_cache() / 2 / size, 1)))

    def question_schedule(self) -> Schedule:
        """When to ask; a field named `schedule` says it, without one never."""
        return Schedule.of(getattr(self, "schedule", NEVER), 0)

    def prepare(self, horizon: int) -> Algorithm:
        """A schedule given as a function becomes a table."""
        if not hasattr(self, "schedule"):
            return self
        return self.replace(schedule=Schedule.of(self.schedule, horizon))

    def context(self, key_terms: Float[Array, "J d"]) -> Any:
        """What to work out once from the key terms, which all clients and runs share."""
        return ()

    def start(self, client: Client) -> Any:
        """The state before the first round."""
        raise NotImplementedError

    def choose(self, state: Any, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        """The arm to pull; the key is new in every round."""
        raise NotImplementedError

    def learn(self, state: Any, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> Any:
        """The state after a pull."""
        raise NotImplementedError

    def ask(self, state: Any, client: Client, first: Int[Array, ""], count: Int[Array, ""], key: Key[Array, ""]) -> Any:
        """The state after `count` questions, the first of which is number `first` of the run, from 0."""
        return state

    def refresh(self, state: Any, client: Client) -> Any:
        """The state recomputed without rounding drift, every 2048 rounds."""
        return state

    def theta_hat(self, state: Any) -> Float[Array, " d"]:
        """The estimate of theta."""
        raise NotImplementedError

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        context = self.context(problem.key_terms)
        curves = jax.vmap(
            lambda arms, mask, gaps, i: play_rounds(
                self,
                jax.random.fold_in(key, i),
                Client(arms, mask, problem.key_terms, problem.theta, problem.noise, context),
                gaps,
                checkpoints,
            )
        )(problem.arms, problem.arm_mask, problem.gaps, problem.client_ids)
        real = problem.client_mask
        return Trace(
            regret=jnp.where(real[:, None], curves.regret, 0).sum(axis=0),
            conversations=curves.asked[0],
            communication=jnp.zeros_like(checkpoints),
            theta_error=jnp.where(real[:, None], curves.theta_error, 0).sum(axis=0) / problem.num_clients,
            phases={},
        )


class Curves(NamedTuple):
    regret: Float[Array, " P"]
    asked: Float[Array, " P"]
    theta_error: Float[Array, " P"]


def keys_of(key: Key[Array, "*n"]) -> tuple[Key[Array, "*n"], Key[Array, ""], Key[Array, ""]]:
    """Keys for the noise of rewards, one a client, for the questions and for the learner's own choices."""
    if key.ndim == 0:
        three = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, np.arange(3, dtype=np.uint32))
        return three[0], three[1], three[2]
    return jax.vmap(lambda k: jax.random.fold_in(k, 0))(key), *keys_of(key[0])[1:]


def block_noise(key: Key[Array, ""], block: Int[Array, ""] | int, dtype: Any) -> Float[Array, " BLOCK"]:
    """Standard normals of the rounds 64 block + 1, ...; in float32, so that both precisions play the same run."""
    return jax.random.normal(jax.random.fold_in(key, block), (BLOCK,), jnp.float32).astype(dtype)


def question_noise(key: Key[Array, ""], question: Int[Array, ""] | int, dtype: Any) -> Float[Array, ""]:
    """Standard normal of a question's answer."""
    return jax.random.normal(jax.random.fold_in(key, question), (), jnp.float32).astype(dtype)


def strided_loop(
    step: Callable[[Int[Array, ""], Any], Any], first: Int[Array, ""], end: Int[Array, ""], carry: Any
) -> Any:
    """As lax.fori_loop, in strides of a fixed number of steps, of which those beyond the end leave no trace.

    A GPU returns to the host before every pass of a loop whose end the host does not know: here, once a stride.
    """

    def one(i: Int[Array, ""], carry: Any) -> Any:
        return jax.tree.map(lambda new, old: jnp.where(i < end, new, old), step(i, carry), carry)

    def stride(moving: tuple) -> tuple:
        i, carry = moving
        return i + STRIDE, lax.fori_loop(0, STRIDE, lambda j, carry: one(i + j, carry), carry)

    return lax.while_loop(lambda moving: moving[0] < end, stride, (first, carry))[1]


class Game(NamedTuple):
    """Where a client's run stands; the clock (t, row, asked) is the same in all runs of a batch."""

    t: Int[Array, ""]  # rounds played
    row: Int[Array, ""]  # checkpoints passed
    asked: Int[Array, ""]
    state: Any
    regret: Float[Array, ""]
    rounded_off: Float[Array, ""]  # of the regret, which small gaps would never move in float32
    curves: Curves


def play_rounds(
    learner: RoundAlgorithm,
    key: Key[Array, "*n"],
    client: Client,
    gaps: Float[Array, " K"],
    checkpoints: Float[Array, " P"],
) -> Curves:
    """Play one client to the last checkpoint; with an axis of n keys, n pulls a round.

    Four loops, one inside another: from one question or recomputation to the next, as these copy the state; over blocks
    of noise; from checkpoint to checkpoint; and over rounds.
    """
    schedule = learner.question_schedule()
    dtype = checkpoints.dtype
    stops = checkpoints.astype(jnp.int32)
    means = client.arms @ client.theta
    reward_key, question_key, choice_key = keys_of(key)
    draw_block = block_noise if key.ndim == 0 else jax.vmap(block_noise, in_axes=(0, None, None), out_axes=1)

    def play_to_checkpoint(until: Int[Array, ""], noise: Float[Array, "BLOCK *n"], game: Game) -> Game:
        """To the next checkpoint, or `until`."""
        end = jnp.minimum(stops[game.row], until)

        def one_round(t: Int[Array, ""], carry: tuple) -> tuple:
            state, regret = carry
            arm = learner.choose(state, client, jax.random.fold_in(choice_key, t))
            state = learner.learn(state, client, arm, means[arm] + noise[t % BLOCK])
            return state, regret + gaps[arm].sum()

        def plain_loop(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            return lax.fori_loop(first, end, one_round, carry)

        strided = partial(strided_loop, one_round)
        start = game.state, jnp.zeros((), dtype)
        state, lost = lax.platform_dependent(game.t, end, start, cuda=strided, rocm=strided, default=plain_loop)
        lost = lost + game.rounded_off
        regret = game.regret + lost
        rounded_off = lost - (regret - game.regret)
        error = jnp.linalg.norm(learner.theta_hat(state) - client.theta)
        # Every stretch writes into the row of the next checkpoint; the one that ends there is the last to do so.
        values = Curves(regret, game.asked.astype(dtype), error)
        curves = jax.tree.map(lambda curve, value: curve.at[game.row].set(value), game.curves, values)
        return Game(end, game.row + (end == stops[game.row]), game.asked, state, regret, rounded_off, curves)

    def play_block(until: Int[Array, ""], game: Game) -> Game:
        """To the end of a block of noise, or `until`."""
        block = game.t // BLOCK
        end = jnp.minimum((block + 1) * BLOCK, until)
        noise = client.noise * draw_block(reward_key, block, dtype)
        return lax.while_loop(lambda game: game.t < end, lambda game: play_to_checkpoint(end, noise, game), game)

    def play_between_events(game: Game) -> Game:
        """Ask what is due, play until the next question or recomputation, recompute if that is due."""
        due = schedule.due(game.t + 1)
        state = lax.cond(
            due > 0,
            lambda state: learner.ask(state, client, game.asked, due, question_key),
            lambda state: state,
            game.state,
        )
        refresh = (game.t // (BLOCK * REFRESH) + 1) * BLOCK * REFRESH
        until = jnp.minimum(jnp.minimum(refresh, stops[-1]), schedule.quiet_until(game.t + 1))
        game = lax.while_loop(
            lambda game: game.t < until,
            lambda game: play_block(until, game),
            game._replace(state=state, asked=game.asked + due),
        )
        state = lax.cond(
            game.t == refresh, lambda state: learner.refresh(state, client), lambda state: state, game.state
        )
        return game._replace(state=state)

    zeros = jnp.zeros_like(checkpoints)
    start, zero = jnp.int32(0), jnp.zeros((), dtype)
    game = Game(start, start, start, learner.start(client), zero, zero, Curves(zeros, zeros, zeros))
    return lax.while_loop(lambda game: game.t < stops[-1], play_between_events, game).curves

"""The phase clock: phases end together, arms are played in blocks, the last phase is cut at T.

Inside a phase a client plays its list of pulls: n_1 times its first arm, n_2 times its second, and so on, from
the start again when the list ends before the phase does; and it asks one question a round, or `Phase.pace`, from the
phase's start until they are used up. So all curves are piecewise linear in between and exact at every checkpoint, and
a phase costs the same whatever its length. With `Phase.rest`, a client whose list is through plays that arm instead.

Messages pass when a phase opens and when it closes. What opens it is in the curves from its first round on, what closes
it from its last. Every client's copy counts.

Counts are whole numbers kept as floats: exact to 2^24 in float32 and to 2^53 in float64.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.clocks.base import Algorithm, MadeFor, Trace
from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.portable import for_each_lane, traced
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import uniforms
from fedbandit_jax.worlds.world import World, normal

MAX_PHASES = 48  # more are never needed for T <= 10^9 unless sigma < 1e-9; the last one runs to T
CEIL_SLACK = 1e-4  # so that 2.0000001, a rounding error, counts as 2
LEAST_WEIGHT = 1e-6  # design weights below count as 0
FLAGS = ("complete", "lemma_holds", "good_event", "best_arm_active")  # diagnostics that are true or false


class PhaseAlgorithm(Algorithm, abstract=True):
    """Base class of algorithms on this clock: arms that stay, and phases that end together for all clients."""

    made_for: ClassVar[MadeFor] = {
        "contexts": ("plays phases on fixed arms", ("fixed",)),
        "arrivals": ("plays phases that end together for all clients", ("all",)),
    }
    needs: ClassVar[str] = "a phase needs means that stay, and `sum_of_rewards` where `reward` is the world's own"
    to_shorten: ClassVar[str] = ""  # what a user may do about a first phase that is longer than the horizon

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        super().check(dim=dim, clients=clients, arms=arms, horizon=horizon, noise=noise)
        shortest = self.first_phase(dim, clients, arms, horizon, noise)
        if horizon < shortest:
            warnings.warn(
                f"horizon={horizon} is shorter than the first phase of {self.title}, at least {shortest:.0f} rounds "
                f"here: no arm will be eliminated{self.to_shorten}",
                stacklevel=2,
            )

    def plays_in(self, world: World) -> bool:
        return world.knows_sums

    def first_phase(self, dim: int, clients: int, arms: int, horizon: int, noise: float) -> float:
        """Rounds until arms may be eliminated for the first time, before rounding up."""
        raise NotImplementedError


class Clock(NamedTuple):
    phase: Int[Array, ""]  # 1, 2, ...
    start: Float[Array, ""]  # rounds played before the phase
    horizon: Float[Array, ""]

    @property
    def eps(self) -> Float[Array, ""]:
        return jnp.exp2(-self.phase.astype(self.start.dtype))


class Messages(NamedTuple):
    """What is sent at one time, over all clients; bits where an algorithm counts them, and then always."""

    uploads: Real = 0.0  # messages from clients; one that would say nothing is not sent
    downloads: Real = 0.0  # to clients
    scalars_up: Real = 0.0
    scalars_down: Real = 0.0
    bits_up: Real | None = None
    bits_down: Real | None = None


class Phase(NamedTuple):
    """What a phase did, as the clock needs it to draw the curves."""

    counts: Float[Array, "M K"]  # each client's list of pulls
    length: Float[Array, ""]
    client_mask: Bool[Array, " M"]
    opening: Messages  # sent before the first round of the phase
    closing: Messages  # sent after its last
    theta_error: Float[Array, ""]  # of the estimate made at its end
    info: OrderedDict[str, Array]  # diagnostics, one number each; JAX would sort a plain dict
    asked: Float[Array, " M"] | None = None  # questions
    pace: Real = 1.0  # questions a round, a whole number
    rest: Int[Array, " M"] | None = None  # the arm that a client plays when its list is through; None: the list again


class Randomness(NamedTuple):
    """A client's random numbers in one phase."""

    pulls: Float[Array, " K"]  # standard normals, one per arm
    questions: Float[Array, " d"]  # standard normals, one per eigenpair
    rounding: Float[Array, " 2"]  # uniforms: for the pulls and for the questions
    keys: Key[Array, " 2"] | None = None  # for the rewards of pulls and questions, where normals do not do


POWERS = 2.0 ** np.arange(64)


def power_of_two(n: Int[Array, ""], dtype: DTypeLike) -> Float[Array, ""]:
    """2^n, 0 <= n < 64; exact, as exp2 is not."""
    return jnp.asarray(POWERS, dtype)[n]


def bits_for(n: Real) -> Float[Array, ""]:
    """ceil(log2 n), the bits that tell n things apart; exact, as a logarithm is not."""
    return (jnp.asarray(n) > POWERS.astype(jnp.result_type(n))).sum().astype(jnp.result_type(n))


def draw(
    key: Key[Array, ""],
    client: Int[Array, ""],
    phase: Int[Array, ""],
    K: int,
    d: int,
    dtype: DTypeLike,
    with_keys: bool = False,
) -> Randomness:
    """Depends on (key, client, phase) alone, and a smaller K gives a prefix.

    Whether an algorithm asks questions or not, it has the numbers for d kinds of them, so that all meet the same pulls.
    All from one call, as every call of the generator costs half a second to compile; and always in float32, so
    that both precisions play the same run.
    """
    own_key = jax.random.fold_in(key, client * (MAX_PHASES + 1) + phase)
    u = uniforms(own_key, (2 + d + K,), jnp.float32)
    normals = normal(u).astype(dtype)
    keys = jax.random.split(jax.random.fold_in(own_key, 1)) if with_keys else None
    return Randomness(normals[2 + d :], normals[2 : 2 + d], ((u[:2] + 1) / 2).astype(dtype), keys)


def draw_for_clients(key: Key[Array, ""], problem: Problem, clock: Clock) -> Randomness:
    """Every client's random numbers in a phase; a leading axis M throughout."""
    _, K, d = problem.arms.shape
    with_keys = problem.world.rewards != "gaussian" or type(problem.world) is not World
    return jax.vmap(lambda i: draw(key, i, clock.phase, K, d, problem.theta.dtype, with_keys))(problem.client_ids)


def sums_of_rewards(problem: Problem, pulls: Float[Array, "M K"], random: Randomness) -> Float[Array, "M K"]:
    """Sum of the rewards of every client's pulls, arm by arm."""

    def of_client(pulls: Float[Array, " K"], means: Float[Array, " K"], random: Randomness) -> Float[Array, " K"]:
        pull_key = None if random.keys is None else random.keys[0]
        return problem.world.sum_of_rewards(pulls, means, problem.noise, random.pulls, pull_key)

    return jax.vmap(of_client)(pulls, problem.means, random)


def round_counts(
    amounts: Float[Array, " n"], wanted: Bool[Array, " n"], rounding: str, u: Float[Array, ""]
) -> Float[Array, " n"]:
    """Whole numbers for real amounts.

    "ceil": the next whole number, at least 1 where wanted. "unbiased": floor(c_a + u) - floor(c_{a-1} + u) with
    the running sum c, which has mean amounts_a and a total within 1 of theirs.
    """
    if rounding == "ceil":
        return jnp.where(wanted, jnp.maximum(jnp.ceil(amounts - CEIL_SLACK), 1), 0)
    steps = jnp.floor(jnp.cumsum(jnp.where(wanted, amounts, 0)) + u)
    return jnp.diff(steps, prepend=0)


def pull_counts(
    weights: Float[Array, " K"], total: Float[Array, ""], rounding: str, u: Float[Array, ""]
) -> Float[Array, " K"]:
    """How often to pull each arm of a design so that they add up to about `total`, and to at least 1."""
    wanted = weights >= LEAST_WEIGHT
    amounts = total * jnp.where(wanted, weights, 0)
    if rounding == "unbiased":
        shares = jnp.where(wanted, weights, 0) / jnp.maximum(weights.sum(), LEAST_WEIGHT)
        amounts = jnp.where(amounts.sum() < 1, shares, amounts)
    return round_counts(amounts, wanted, rounding, u)


def end_together(counts: Float[Array, "M K"], clock: Clock) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Length of a phase, as long as its slowest client needs but cut at T; and whether it is whole."""
    return cut_at_horizon(counts.sum(axis=1).max(), clock)


def cut_at_horizon(needed: Float[Array, ""], clock: Clock) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Length of a phase that needs so many rounds, cut at T; and whether it is whole."""
    remaining = clock.horizon - clock.start
    # A federation of padding has nothing to play and must not hold up its batch.
    to_the_end = (needed >= remaining) | (clock.phase >= MAX_PHASES) | (needed == 0)
    return jnp.where(to_the_end, remaining, needed), needed <= remaining


def pulls_after(rounds: Float[Array, ""], counts: Float[Array, " K"]) -> Float[Array, " K"]:
    """Pulls of each arm after some rounds of a list played in blocks, again and again."""
    length = jnp.maximum(counts.sum(), 1)
    cycles = jnp.floor(rounds / length)
    begin = jnp.cumsum(counts) - counts
    return cycles * counts + jnp.clip(rounds - cycles * length - begin, 0, counts)


def pulls_with_rest(rounds: Float[Array, ""], counts: Float[Array, " K"], rest: Int[Array, ""]) -> Float[Array, " K"]:
    """Pulls of each arm after some rounds of a list played in blocks, and then of the arm `rest`."""
    listed = jnp.clip(rounds - (jnp.cumsum(counts) - counts), 0, counts)
    return listed + jnp.where(jnp.arange(counts.size) == rest, jnp.maximum(rounds - counts.sum(), 0), 0)


def asked_after(turns: Float[Array, ""], counts: Float[Array, " n"]) -> Float[Array, " n"]:
    """Questions of each kind after some turns, one a turn in order, each kind once."""
    return jnp.clip(turns - (jnp.cumsum(counts) - counts), 0, counts)


def run_phases(
    play: Callable[[Clock, Any], tuple[Any, Phase]],
    state: Any,
    problem: Problem,
    checkpoints: Float[Array, " P"],
) -> Trace:
    """Play phases until T; `play` is one of them."""
    dtype, gaps, horizon = checkpoints.dtype, problem.gaps, problem.horizon
    nothing_known = problem.theta_error(jnp.zeros_like(problem.theta[0]))

    def regret_after(rounds: Float[Array, ""], phase: Phase) -> Float[Array, ""]:
        if phase.rest is None:
            return (gaps * jax.vmap(pulls_after, in_axes=(None, 0))(rounds, phase.counts)).sum()
        pulls = jax.vmap(pulls_with_rest, in_axes=(None, 0, 0))(rounds, phase.counts, phase.rest)
        return (gaps * pulls).sum()

    def one_phase(carry: tuple) -> tuple:
        clock, state, curves, sent, table = carry
        state, phase = play_phase(clock, state)
        end = clock.start + phase.length
        elapsed = jnp.clip(checkpoints - clock.start, 0, phase.length)
        if phase.asked is not None:
            in_turn = jnp.minimum(phase.pace * elapsed[:, None], phase.asked[None, :])
            asked = jnp.where(phase.client_mask[None, :], in_turn, 0)
            curves = curves._replace(conversations=curves.conversations + asked.sum(axis=1) / phase.client_mask.sum())
        curves = curves._replace(
            regret=curves.regret + jax.vmap(regret_after, in_axes=(0, None))(elapsed, phase),
            theta_error=jnp.where(checkpoints >= end, phase.theta_error, curves.theta_error),
        )
        sent = jax.tree.map(
            lambda before, opening, closing: (
                before + jnp.where(checkpoints > clock.start, opening, 0) + jnp.where(checkpoints >= end, closing, 0)
            ),
            sent,
            phase.opening,
            phase.closing,
        )
        values = [clock.phase, clock.start, phase.length, *(phase.info[name] for name in diagnostics)]
        row = jnp.stack([jnp.asarray(x, dtype) for x in values])
        table = table.at[clock.phase - 1].set(row)
        return clock._replace(phase=clock.phase + 1, start=end), state, curves, sent, table

    clock = Clock(jnp.int32(1), jnp.zeros((), dtype), horizon)
    play_phase, (_, told) = traced(play, clock, state)
    diagnostics = tuple(told.info)
    fields = ("phase", "start", "length", *diagnostics)
    zeros = jnp.zeros_like(checkpoints)
    curves = Trace(zeros, zeros, zeros, jnp.full_like(zeros, nothing_known))
    sent = jax.tree.map(lambda _: zeros, told.closing)
    table = jnp.zeros((MAX_PHASES, len(fields)), dtype)
    first = for_each_lane(problem.theta, (clock, state, curves, sent, table))
    *_, curves, sent, table = lax.while_loop(lambda carry: carry[0].start < horizon, one_phase, first)
    return curves._replace(
        communication=sent.scalars_up + sent.scalars_down,
        phases=OrderedDict(zip(fields, table.T, strict=True)),
        counts=OrderedDict((name, curve) for name, curve in sent._asdict().items() if curve is not None),
    )

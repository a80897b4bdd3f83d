"""The stage on which a learner plays: the arms of each round, and the user, who knows theta and answers with noise.

Three of them: a client alone, all clients of a federation side by side, and one client at a time. What a client meets
in its own round t is the same on all three. Each can

    begin()                   what it has to remember from round to round, at first
    draw(block)               the random numbers of 64 rounds
    round(drawn, t, seen)     round t, counted from 0, and what it remembers then
    reward(mean, chance)      rewards of pulls
    error(theta_hat, t, seen) |theta_hat - theta|, a mean over clients
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.linalg.portable import in_turn
from fedbandit_jax.linalg.sampling import fold_in, high_word, random_words
from fedbandit_jax.worlds import channels
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.world import World, normal

# Of a question's keys, besides its answer's, which is the key itself, and that of a learner's choice, 1: of sums of
# answers, and of the two sides of a comparison.
SUMS, SIDES = 2, 3
BLOCK = 64  # rounds whose random numbers are drawn at a time


class Round(NamedTuple):
    """What there is in a round; K is M K if several clients are played as one."""

    arms: Float[Array, "K d"]
    mask: Bool[Array, " K"]
    means: Float[Array, " K"]  # expected rewards, for the clock alone, as what follows
    losses: Float[Array, " K"]  # regret of each arm; NaN for padding
    chance: Float[Array, "*n"]  # what the rewards are made of, one a client
    who: Int[Array, ""] | None = None  # comes, where one client comes at a time
    links: Int[Array, "K n"] | None = None  # key terms of the arms, padded with J, where they are known


class Drawn(NamedTuple):
    """The random numbers of 64 rounds of a client."""

    chance: Float[Array, " BLOCK"]
    arms: Any = None  # of World.draw, where arms are redrawn


class Alone(NamedTuple):
    """One client."""

    world: World
    pool: Float[Array, "A d"] | None  # what arms are redrawn from
    arms: Float[Array, "K d"]  # NaN where they are redrawn
    mask: Bool[Array, " K"]
    theta: Float[Array, " d"]
    noise: Float[Array, ""]
    arms_key: Key[Array, ""]
    reward_key: Key[Array, ""]
    question_key: Key[Array, ""]
    standing: tuple[Float[Array, " K"], Float[Array, " K"]] | None = None  # means and losses, if they never change
    pool_means: Float[Array, " A"] | None = None  # if they never change, and arms are taken from the pool
    key_terms: Float[Array, "J d"] | None = None
    links: Int[Array, "A n"] | None = None  # key terms of the pool's arms, padded with J, where they are known
    arm_links: Int[Array, "K n"] | None = None  # of its own arms; J throughout where they are redrawn
    answers: Float[Array, " J"] | None = None  # expected ones, if they never change and a world needs them
    uniform: tuple | None = None  # (): chances stay as they are drawn

    def begin(self) -> tuple:
        return ()

    def draw(self, block: Int[Array, ""] | int) -> Drawn:
        if self.world.fixed:
            return Drawn(self.draw_chance(block))
        rounds = jnp.asarray(block, jnp.int32) * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)
        return Drawn(self.draw_chance(block), self.draw_arms(rounds))

    def draw_chance(self, block: Int[Array, ""] | int) -> Float[Array, " BLOCK"]:
        u = uniforms(fold_in(self.reward_key, block), (BLOCK,), self.noise.dtype)
        # What is added to a mean is known before the mean.
        return self.world.reward(jnp.zeros_like(u), u, self.noise) if self.additive else u

    def draw_arms(self, rounds: Int[Array, " n"]) -> Any:
        assert self.pool is not None
        keys = jax.vmap(lambda t: jax.random.fold_in(self.arms_key, t))(rounds)
        return self.world.draw(keys, self.pool, self.mask.size)

    def round(self, drawn: Drawn, t: Int[Array, ""], seen: tuple = ()) -> tuple[Round, tuple]:
        place = t % BLOCK
        redrawn = jax.tree.map(lambda x: x[place], drawn.arms)
        return self.with_arms(redrawn, t, drawn.chance[place]), seen

    def round_alone(self, t: Int[Array, ""]) -> Round:
        """Round t, drawn without the others of its block."""
        redrawn = None if self.world.fixed else jax.tree.map(lambda x: x[0], self.draw_arms(t[None]))
        return self.with_arms(redrawn, t, self.draw_chance(t // BLOCK)[t % BLOCK])

    def with_arms(self, redrawn: Any, t: Int[Array, ""], chance: Float[Array, ""]) -> Round:
        if self.standing is not None:
            return Round(self.arms, self.mask, *self.standing, chance, links=self.arm_links)
        arms, links = self.arms, self.arm_links
        if not self.world.fixed:
            assert self.pool is not None
            arms = in_turn(arms_or_padding, self.world, redrawn, self.pool, self.mask)
            if self.links is not None and self.world.of_pool:
                assert self.key_terms is not None
                links = in_turn(partial(channels.of_arms, J=len(self.key_terms)), self.links, redrawn, self.mask)
        if self.pool_means is None:
            means = whole(self.world.mean(arms, self.world.theta_at(self.theta, t)), self.mask)
        else:
            means = jnp.where(self.mask, self.pool_means[redrawn], 0)
        return Round(arms, self.mask, means, losses(means, self.mask), chance, links=links)

    def reward(self, mean: Float[Array, "*n"], chance: Float[Array, "*n"]) -> Float[Array, "*n"]:
        return mean + chance if self.additive else self.world.reward(mean, chance, self.noise)

    def wins(self, difference: Float[Array, ""], chance: Float[Array, ""]) -> Bool[Array, ""]:
        """Does an arm beat another, whose mean is less by that difference? With probability sigmoid(difference).

        A chance is uniform in (-1, 1), and 2 sigmoid(x) - 1 = tanh(x / 2).
        """
        return chance < jnp.tanh(difference / 2)

    # ------------------------------------------------------------------------------------------------- questions

    def mean_of(self, x: Float[Array, " d"], t: Int[Array, ""]) -> Float[Array, ""]:
        """What the user says of an arm or key term x before the pull of round t, without noise."""
        return self.world.mean(x[None], self.world.theta_at(self.theta, t))[0]

    def expected_answers(self, t: Int[Array, ""]) -> Float[Array, " J"]:
        """About each key term, before the pull of round t."""
        if self.answers is not None:
            return self.answers
        assert self.key_terms is not None
        theta = self.world.theta_at(self.theta, t)
        return channels.expected_answers(self.world, self.key_terms, theta, self.pool, self.links)

    def say(self, mean: Float[Array, ""], round: Round, question: Int[Array, ""] | int) -> Float[Array, ""]:
        """An answer of that mean; questions of a run count from 0."""
        if self.world.shared_noise:
            return self.reward(mean, round.chance)
        u = uniforms(fold_in(self.question_key, question), (), mean.dtype)
        return self.world.reward(mean, u, self.noise)

    def say_often(
        self, mean: Float[Array, ""], round: Round, question: Int[Array, ""] | int, n: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The sum of n answers of that mean, as one draw; one Gaussian answer is that of `say`."""
        if self.world.shared_noise:
            return n * self.reward(mean, round.chance)
        if not self.world.sums_up:
            name = type(self.world).__name__
            raise ValueError(
                f"{name}.sum_of_rewards is missing: a sum of answers needs it, as {name} has its own `reward`"
            )
        key = fold_in(self.question_key, question)
        z = normal(uniforms(key, (1,), mean.dtype))
        return self.world.sum_of_rewards(n[None], mean[None], self.noise, z, fold_in(key, SUMS))[0]

    def compare(
        self, first: Float[Array, ""], second: Float[Array, ""], question: Int[Array, ""] | int
    ) -> Bool[Array, ""]:
        """Is the first of two means the larger one, each with Gaussian noise of its own?"""
        key = fold_in(fold_in(self.question_key, question), SIDES)
        z = self.noise * normal(uniforms(key, (2,), first.dtype))
        return first + z[0] > second + z[1]

    def duel(self, difference: Float[Array, ""], question: Int[Array, ""] | int) -> Bool[Array, ""]:
        """Does a vector beat another, as `wins` of arms?"""
        u = uniforms(fold_in(self.question_key, question), (), difference.dtype)
        return self.wins(difference, u)

    def error(self, theta_hat: Float[Array, " d"], t: Int[Array, ""], seen: Any = ()) -> Float[Array, ""]:
        return jnp.linalg.norm(theta_hat - self.world.theta_at(self.theta, t))

    @property
    def additive(self) -> bool:
        own = type(self.world).reward is not World.reward
        return self.uniform is None and not own and self.world.rewards in ("gaussian", "uniform")


# What a client has of its own.
EACH = (
    *("arms", "mask", "theta", "arms_key", "reward_key", "question_key"),
    *("standing", "pool_means", "arm_links", "answers"),
)
EACH_CLIENT: Any = Alone(*(0 if name in EACH else None for name in Alone._fields))  # type: ignore[arg-type]


def stages_of(problem: Problem, key: Key[Array, ""]) -> Alone:
    """The stages of all clients, with an axis M as EACH_CLIENT says; `key` is that of the run."""
    client_keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(problem.client_ids)
    chances = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    world, pool, standing, pool_means, answers = problem.world, problem.pool, None, None, None
    if world.stationary and world.fixed:
        means = jax.vmap(whole)(problem.means, problem.arm_mask)
        standing = means, jax.vmap(losses)(means, problem.arm_mask)
    elif world.stationary and world.of_pool:
        assert pool is not None
        pool_means = jax.vmap(lambda theta: world.mean(pool, theta))(problem.theta)
    if world.stationary and (world.charged or world.answers != "mean"):
        answers = jax.vmap(
            lambda theta: channels.expected_answers(world, problem.key_terms, theta, pool, problem.links)
        )(problem.theta)
    return Alone(
        world=world,
        pool=pool,
        arms=problem.arms,
        mask=problem.arm_mask,
        theta=problem.theta,
        noise=problem.noise,
        arms_key=problem.arms_keys,
        reward_key=chances(client_keys, 0),
        question_key=chances(client_keys, 1),
        standing=standing,
        pool_means=pool_means,
        key_terms=problem.key_terms,
        links=problem.links,
        arm_links=problem.arm_links,
        answers=answers,
    )


def one_of(clients: Alone, i: Int[Array, ""] | int) -> Alone:
    """The stage of client i; `clients` have an axis M."""
    return clients._replace(**{name: jax.tree.map(lambda x: x[i], getattr(clients, name)) for name in EACH})


class Together(NamedTuple):
    """All clients of a federation, side by side: as one client with all their arms, who pulls one of each."""

    clients: Alone  # an axis M, as EACH_CLIENT says

    @property
    def world(self) -> World:
        return self.clients.world

    def begin(self) -> tuple:
        return ()

    def draw(self, block: Int[Array, ""] | int) -> Drawn:
        return jax.vmap(lambda one: one.draw(block), in_axes=(EACH_CLIENT,))(self.clients)

    def round(self, drawn: Drawn, t: Int[Array, ""], seen: tuple = ()) -> tuple[Round, tuple]:
        rounds = jax.vmap(lambda one, drawn: one.round(drawn, t)[0], in_axes=(EACH_CLIENT, 0))(self.clients, drawn)
        M, K, d = rounds.arms.shape
        mask, means, lost = (x.reshape(M * K) for x in (rounds.mask, rounds.means, rounds.losses))
        links = None if rounds.links is None else rounds.links.reshape(M * K, -1)
        return Round(rounds.arms.reshape(M * K, d), mask, means, lost, rounds.chance, links=links), seen

    def reward(self, mean: Float[Array, " M"], chance: Float[Array, " M"]) -> Float[Array, " M"]:
        return jax.vmap(self.clients.reward)(mean, chance)

    def error(self, theta_hat: Float[Array, "*M d"], t: Int[Array, ""], seen: Any = ()) -> Float[Array, ""]:
        return mean_error(self.clients, theta_hat, jnp.broadcast_to(t, self.clients.theta.shape[:1]))


class OneByOne(NamedTuple):
    """All clients of a federation, one of whom comes in each round; it meets what it would meet alone."""

    clients: Alone  # an axis M, as EACH_CLIENT says
    key: Key[Array, ""]  # of arrivals
    federation: Int[Array, ""]  # clients in all

    @property
    def world(self) -> World:
        return self.clients.world

    def begin(self) -> Int[Array, " M"]:
        """How often each has come."""
        return jnp.zeros(len(self.clients.theta), jnp.int32)

    def draw(self, block: Int[Array, ""] | int) -> Int[Array, " BLOCK"]:
        return arrivals(self.key, block, self.federation)

    def round(
        self, drawn: Int[Array, " BLOCK"], t: Int[Array, ""], seen: Int[Array, " M"]
    ) -> tuple[Round, Int[Array, " M"]]:
        who = drawn[t % BLOCK]
        own = seen[who]  # its own round
        return one_of(self.clients, who).round_alone(own)._replace(who=who), seen.at[who].add(1)

    def reward(self, mean: Float[Array, ""], chance: Float[Array, ""]) -> Float[Array, ""]:
        return self.clients.reward(mean, chance)

    def error(self, theta_hat: Float[Array, "*M d"], t: Int[Array, ""], seen: Any) -> Float[Array, ""]:
        return mean_error(self.clients, theta_hat, seen)


Stage = Alone | Together | OneByOne


def mean_error(clients: Alone, theta_hat: Float[Array, "*M d"], t: Int[Array, " M"]) -> Float[Array, ""]:
    """|theta_hat - theta_i| in round t_i, over the real clients; theta_hat is one for all, or each has its own."""
    real = clients.mask.any(axis=1)
    theirs = jnp.broadcast_to(theta_hat, clients.theta.shape)
    errors = jax.vmap(lambda one, mine, t: one.error(mine, t), in_axes=(EACH_CLIENT, 0, 0))(clients, theirs, t)
    return jnp.where(real, errors, 0).sum() / real.sum()


def arms_or_padding(world: World, redrawn: Any, pool: Float[Array, "A d"], mask: Bool[Array, " K"]) -> Any:
    return jnp.where(mask[:, None], world.arms(redrawn, pool), 0)


def whole(means: Float[Array, " K"], mask: Bool[Array, " K"]) -> Float[Array, " K"]:
    """NaN throughout if a real arm's mean is NaN, as that of a world of one's own may be: a maximum would skip it."""
    return jnp.where((mask & jnp.isnan(means)).any(), jnp.nan, means)


def losses(means: Float[Array, " K"], mask: Bool[Array, " K"]) -> Float[Array, " K"]:
    """Best mean less the arm's; NaN for padding, as a learner that pulls it has no regret that counts.

    A padded client has no arm at all, and loses nothing.
    """
    best = jnp.where(mask, means, -jnp.inf).max()
    return jnp.where(mask, best - means, jnp.where(mask.any(), jnp.nan, 0))


def uniforms(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Uniform in (-1, 1); drawn in float32, so that both precisions play the same run."""
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    words = random_words(key[None], math.prod(shape))[:, 0].reshape(shape)
    places = lax.bitcast_convert_type(words >> 9 | 0x3F800000, jnp.float32) - 1  # as jax.random.uniform does it
    return jnp.maximum(lowest, places * (1 - lowest) + lowest).astype(dtype)


# --------------------------------------------------------------------------------------------------------- arrivals


def arrivals(key: Key[Array, ""], block: Int[Array, ""] | int, clients: Int[Array, ""]) -> Int[Array, " BLOCK"]:
    """Which client comes in each round of a block, uniformly."""
    words = jax.random.bits(jax.random.fold_in(key, block), (BLOCK,), jnp.uint32)
    return high_word(words, clients.astype(jnp.uint32)).astype(jnp.int32)


def own_rounds(
    key: Key[Array, ""], client: Int[Array, ""], clients: Int[Array, ""], stops: Int[Array, " P"]
) -> Int[Array, " P"]:
    """How often a client has come by each of some rounds, in rising order."""

    def to_the_next_stop(carry: tuple) -> tuple:
        t, row, came, counts = carry
        block = t // BLOCK
        end = jnp.minimum(stops[row], (block + 1) * BLOCK)
        rounds = block * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)
        hits = (arrivals(key, block, clients) == client) & (rounds >= t) & (rounds < end)
        came = came + hits.sum(dtype=jnp.int32)
        return end, row + (end == stops[row]), came, counts.at[row].set(came)

    nothing = jnp.int32(0)
    start = (nothing, nothing, nothing, jnp.zeros_like(stops))
    return jax.lax.while_loop(lambda carry: carry[0] < stops[-1], to_the_next_stop, start)[3]

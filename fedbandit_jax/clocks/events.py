"""The event clock: on fixed arms, a client whose model stands still between messages pulls one arm all the time.

So it is known beforehand when its next message comes, and all that happens until then is drawn at once. A run costs as
much as it has messages, whatever its horizon.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.federation import per_message
from fedbandit_jax.linalg import Real, pooling
from fedbandit_jax.linalg.pooling import Sums
from fedbandit_jax.linalg.portable import any_lane, argmax
from fedbandit_jax.linalg.regression import squared_norms
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import stages_of, uniforms
from fedbandit_jax.worlds.world import normal


class Stretch(NamedTuple):
    """From one message of a client to the next."""

    arm: Int[Array, ""]
    first: Float[Array, ""]  # rounds played before
    last: Float[Array, ""]  # the round after which the next message comes

    @property
    def pulls(self) -> Float[Array, "*M"]:
        return self.last - self.first


class Going(NamedTuple):
    """Where a run stands."""

    stretches: Stretch  # an axis M
    server: Sums
    sent: Int[Array, " M"]  # messages so far
    regret: Float[Array, " P"]  # of stretches that are over
    messages: Float[Array, " P"]
    errors: Float[Array, "M P"]  # |theta_hat - theta| of each client


def play_events(
    key: Key[Array, ""],
    problem: Problem,
    checkpoints: Float[Array, " P"],
    prior: Real,
    radius: Float[Array, ""],
    pulls_until_message: Callable[[Float[Array, ""]], Float[Array, ""]],
) -> Trace:
    """Every client pulls argmax x.theta_hat + radius sqrt(x' V^-1 x) until it sends what it saw and is told all.

    `pulls_until_message` of x' V^-1 x says how often. Messages of a round pass in the order of the clients.
    """
    world, gaps, means = problem.world, problem.gaps, problem.means
    rewards = stages_of(problem, key).reward_key
    T, real = checkpoints[-1], problem.client_mask
    M = len(real)

    def next_stretch(
        now: Float[Array, ""], i: Int[Array, ""], estimates: Float[Array, " K"], widths: Float[Array, " K"]
    ) -> Stretch:
        scores = estimates + radius * jnp.sqrt(widths)
        arm = argmax(jnp.where(problem.arm_mask[i], scores, -jnp.inf))
        pulls = pulls_until_message(widths[arm])
        # Beyond the horizon it does not matter when; a padded client never sends.
        return Stretch(arm, now, now + jnp.where(real[i], jnp.minimum(pulls, T + 1), T + 1))

    def one_message(going: Going) -> Going:
        i = jnp.argmin(going.stretches.last).astype(jnp.int32)
        stretch: Stretch = jax.tree.map(lambda x: x[i], going.stretches)
        n, x, mean = stretch.pulls, problem.arms[i, stretch.arm], means[i, stretch.arm]
        own_key = jax.random.fold_in(rewards[i], going.sent[i])
        z = normal(uniforms(own_key, (1,), n.dtype))
        total = world.sum_of_rewards(n[None], mean[None], problem.noise, z, own_key)[0]
        seen = Sums(n * jnp.outer(x, x), (total - n * (x @ going.server.reference)) * x, going.server.reference, n)
        server = going.server.plus(seen)
        fitted = pooling.fit(server, prior)
        arms = problem.arms[i]
        after = next_stretch(stretch.last, i, arms @ fitted.theta, pooling.squared_lengths(arms, fitted.root))
        error = jnp.linalg.norm(fitted.theta - problem.theta[i])
        told = checkpoints >= stretch.last
        moved = Going(
            stretches=jax.tree.map(lambda all_, new: all_.at[i].set(new), going.stretches, after),
            server=server.about(fitted.theta),
            sent=going.sent.at[i].add(1),
            regret=going.regret + gaps[i, stretch.arm] * jnp.clip(checkpoints - stretch.first, 0, n),
            messages=going.messages + told,
            errors=going.errors.at[i].set(jnp.where(told, error, going.errors[i])),
        )
        return jax.tree.map(lambda new, old: jnp.where(stretch.last <= T, new, old), moved, going)

    zeros = jnp.zeros_like(checkpoints)
    server = pooling.nothing(problem.theta[0])
    numbers = jnp.arange(M, dtype=jnp.int32)
    widths = jax.vmap(squared_norms)(problem.arms) / prior
    first = jax.vmap(next_stretch, in_axes=(None, 0, 0, 0))(zeros[0], numbers, jnp.zeros_like(widths), widths)
    errors = jnp.broadcast_to(jnp.linalg.norm(problem.theta, axis=1)[:, None], (M, zeros.size))
    going = Going(first, server, jnp.zeros(M, jnp.int32), zeros, zeros, errors)
    going = lax.while_loop(lambda going: any_lane((going.stretches.last <= T).any()), one_message, going)

    open_ = going.stretches
    lost = jnp.take_along_axis(gaps, open_.arm[:, None], axis=1)
    rest = lost * jnp.clip(checkpoints[None, :] - open_.first[:, None], 0, open_.pulls[:, None])
    counts = per_message(going.messages, going.messages, problem.dim**2 + problem.dim)
    return Trace(
        regret=going.regret + rest.sum(axis=0),
        conversations=zeros,
        communication=counts["scalars_up"] + counts["scalars_down"],
        theta_error=jax.vmap(problem.mean_over_clients, in_axes=1)(going.errors),
        counts=counts,
    )

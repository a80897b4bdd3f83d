"""Channels: what the user says of key terms, and which of them may be asked about.

Axis letters: A arms of the pool, K arms of a round, J key terms, n key terms of an arm at most, d dimensions.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.worlds.world import World


def of_arms(links: Int[Array, "A n"], chosen: Int[Array, " K"], mask: Bool[Array, " K"], J: int) -> Int[Array, "K n"]:
    """The key terms of some arms of the pool; padding has none."""
    return jnp.where(mask[:, None], links[chosen], J)


def related(links: Int[Array, "*K n"], J: int) -> Bool[Array, " J"]:
    """The key terms that some arm carries; all of them if none does."""
    carried = jnp.zeros(J, bool).at[links].set(True, mode="drop")
    return carried | ~carried.any()


def expected_answers(
    world: World,
    key_terms: Float[Array, "J d"],
    theta: Float[Array, " d"],
    pool: Float[Array, "A d"] | None,
    links: Int[Array, "A n"] | None,
) -> Float[Array, " J"]:
    """Expected answer about each key term, as `World.answers` says; a key term without arms answers its own mean."""
    own: Any = world.mean(key_terms, theta)
    if world.answers == "mean":
        return own
    assert pool is not None
    assert links is not None
    J, means = len(key_terms), world.mean(pool, theta)
    of_links = jnp.broadcast_to(means[:, None], links.shape).ravel()
    largest = jax.ops.segment_max(of_links, links.ravel(), J + 1)[:J]
    return world.discount * jnp.where(jnp.isneginf(largest), own, largest)

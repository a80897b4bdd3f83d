"""Optimistic rounds on fixed arms: on a CUDA GPU a stretch of them is one kernel, see linalg/pulls.py.

A learner is `optimistic` if its state is a Ridge, it chooses the arm of the highest mean + radius sqrt(width), and
learns by `regression.pull`. Of the state its `radius` must read `observations` alone, so that the radii of a stretch
are known before it. Rewards must be those of World, and their means stay as they are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedbandit_jax.clocks.client import Client
from fedbandit_jax.linalg import pulls
from fedbandit_jax.linalg.portable import fori_loop, may_be_cuda, on_cuda
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.stage import BLOCK, Alone, Stage
from fedbandit_jax.worlds.world import World


def player(learner: Any, stage: Stage, client: Client) -> Callable[..., tuple]:
    """play(drawn, first, end, step, carry), as fori_loop(first, end, step, carry) does it for rounds of a block.

    A carry is that of the round clock: the state, what the stage remembers, and sums.
    """

    def by_rounds(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        return fori_loop(first, end, step, carry)

    if not (may_be_cuda() and is_optimistic(learner) and isinstance(stage, Alone) and is_known(stage)):
        return by_rounds
    columns = client.arms.T  # here, as XLA would do it again before every stretch

    def play(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        radii = radii_of(learner, carry[0], client)
        if radii is None:
            return by_rounds(drawn, first, end, step, carry)

        def at_once(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            ridge, seen, sums = carry
            means, losses = stage.standing
            met = pulls.Stretch(
                *(client.arms, columns, client.mask, means, losses, drawn.chance, radii, jnp.full_like(radii, jnp.inf)),
                *(first % BLOCK, end - first),
            )
            ridge, _, lost, _ = pulls.optimistic_pulls(ridge, jnp.zeros_like(ridge.log_det), met, stage.reward)
            return ridge, seen, sums | {"regret": sums["regret"] + lost}

        return on_cuda(at_once, lambda *given: by_rounds(drawn, *given[:2], step, given[2]), first, end, carry)

    return play


def is_optimistic(learner: Any) -> bool:
    """Unless a subclass of the learner that says so chooses or learns in its own way."""
    for cls in type(learner).__mro__:
        if "optimistic" in vars(cls):
            return bool(cls.optimistic) and not learner.asks_every_round
        if vars(cls).keys() & {"choose", "learn", "ucb"}:
            return False
    return False


def is_known(stage: Alone) -> bool:
    """Does the kernel know its rewards, and is it small enough?"""
    own = type(stage.world).reward is not World.reward
    return stage.standing is not None and not own and pulls.fits(*stage.arms.shape[-2:], stage.arms.dtype)


def radii_of(learner: Any, ridge: Ridge, client: Client) -> Float[Array, " BLOCK"] | None:
    """Of the next 64 rounds; None if it takes more than the number of observations to tell."""
    # Arrays with a shape and without numbers: whoever computes with them gets a TypeError.
    unknown: Ridge = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), ridge)
    after = ridge.observations + jnp.arange(BLOCK, dtype=ridge.observations.dtype)
    try:
        return jax.vmap(lambda n: learner.radius(unknown._replace(observations=n), client))(after)
    except TypeError:
        return None

"""A stretch of rounds that all clients of a federation play side by side, from a round of its own on.

For algorithms whose time is not that of the round clock: where a stretch starts and how long it lasts may depend on
what was seen, and so be different in every lane of a batch. All lanes play blocks of 64 rounds, as many as the longest
stretch of them has; in a lane, rounds before and after its own leave no trace. So loops need no masks under `vmap`, and
a round meets the very rewards that it has on the round clock.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.clocks.rounds import REFRESH
from fedbandit_jax.linalg.portable import largest_of_lanes
from fedbandit_jax.worlds.stage import BLOCK, EACH_CLIENT, Alone

# Of a client and its state: its arm; the state after a reward, unchanged unless it is playing; the state without drift.
Choose = Callable[[Any, Any], Int[Array, ""]]
Learn = Callable[[Any, Any, Int[Array, ""], Float[Array, ""], Bool[Array, ""]], Any]
Refresh = Callable[[Any, Any], Any]


def play_stretch(
    choose: Choose,
    learn: Learn,
    refresh: Refresh,
    clients: Any,
    state: Any,
    stages: Alone,
    start: Int[Array, ""],
    length: Int[Array, ""],
    checkpoints: Float[Array, " P"],
) -> tuple[Any, Float[Array, " P"]]:
    """The clients' state after the rounds start, ..., start + length - 1, and their regret in these by each checkpoint.

    `clients` is what each of them knows throughout; like `state` and `stages` it has a leading axis M. Means of rewards
    must stay as they are.
    """
    assert stages.standing is not None
    means, losses = stages.standing
    first = start // BLOCK
    blocks = jnp.where(length > 0, (start + length - 1) // BLOCK - first + 1, 0)

    def play_block(b: Int[Array, ""], carry: tuple) -> tuple:
        state, regret = carry
        begin = (first + b) * BLOCK
        chances = jax.vmap(lambda stage: stage.draw_chance(first + b), in_axes=(EACH_CLIENT,))(stages)

        def play_round(i: Int[Array, ""], carry: tuple) -> tuple:
            state, lost = carry
            playing = (begin + i >= start) & (begin + i < start + length)

            def one(client: Any, state: Any, means: Any, losses: Any, chance: Any) -> tuple[Any, Float[Array, ""]]:
                arm = choose(client, state)
                reward = stages.reward(means[arm], chance)
                # As on the round clock, an arm that does not exist is NaN, like padding.
                loss = losses.at[arm].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
                return learn(client, state, arm, reward, playing), loss

            state, loss = jax.vmap(one)(clients, state, means, losses, chances[:, i])
            return state, lost.at[i + 1].set(jnp.where(playing, loss.sum(), 0))

        state, lost = lax.fori_loop(0, BLOCK, play_round, (state, jnp.zeros(BLOCK + 1, regret.dtype)))
        passed = jnp.clip(checkpoints.astype(jnp.int32) - begin, 0, BLOCK)
        due = b % REFRESH == REFRESH - 1  # the same in all lanes, so that it is a branch
        state = lax.cond(due, lambda state: jax.vmap(refresh)(clients, state), lambda state: state, state)
        return state, regret + jnp.cumsum(lost)[passed]

    return lax.fori_loop(0, largest_of_lanes(blocks), play_block, (state, jnp.zeros_like(checkpoints)))

"""Rounds of learners that pass messages, when their state says so.

By rounds, all runs of a batch stop where in one of them a message is due. In a kernel, see clocks/optimistic.py, every
run goes on to its own next message.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from fedbandit_jax.clocks.client import Client, Info
from fedbandit_jax.clocks.optimistic import Federated, can, is_optimistic, knows
from fedbandit_jax.linalg.portable import any_lane, may_be_cuda, on_cuda, when
from fedbandit_jax.worlds.stage import Stage, Together


def player(learner: Any, stage: Stage, client: Client, silence: dict) -> Callable[..., tuple]:
    """play(drawn, first, end, step, carry): rounds from `first` on, with the messages that are due after them.

    Returns the round before which it stopped, `end` or an earlier one, the carry, and counts of what was sent;
    `silence` are those of nothing.
    """

    def send_if_due(state: Any, t: Int[Array, ""], playing: Bool[Array, ""] | None = None) -> tuple[Any, Info]:
        """Messages of the runs in which they are due, if these are still playing."""

        def send(carry: tuple[Any, Info]) -> tuple[Any, Info]:
            after, info = learner.exchange(carry[0], client, t)
            sent = after, {name: jnp.asarray(info[name], nothing.dtype) for name, nothing in silence.items()}
            if learner.minds_who_is_due and playing is None:
                return sent
            return jax.tree.map(lambda new, old: jnp.where(due, new, old), sent, carry)

        due = learner.due(state, client, t)
        due = due if playing is None else due & playing
        return when(any_lane(due), send, (state, silence))

    def by_rounds(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        def one(moving: tuple) -> tuple:
            t, carry, _ = moving
            carry = step(t, carry)
            return t + 1, carry, any_lane(learner.due(carry[0], client, t + 1))

        going = lax.while_loop(lambda moving: (moving[0] < end) & ~moving[2], one, (first, carry, jnp.bool_(False)))
        t, (state, seen, sums), _ = going
        state, sent = send_if_due(state, t)
        return t, (state, seen, sums), sent

    if not (may_be_cuda() and is_optimistic(learner) and isinstance(stage, Together) and knows(stage.clients)):
        return by_rounds
    kernel = Federated(learner, stage.clients, client, jnp.swapaxes(client.arms, 1, 2))

    def play(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        if not can(jax.vmap(kernel.radii), carry[0].members):
            return by_rounds(drawn, first, end, step, carry)

        def at_once(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            def to_the_next_message(moving: tuple) -> tuple:
                t, state, lost, told = moving
                state, news, n = kernel.play_to_message(state, drawn.chance, t, end)
                state, sent = send_if_due(state, t + n, n > 0)
                return t + n, state, lost + news, jax.tree.map(jnp.add, told, sent)

            state, seen, sums = carry
            moving = first, state, jnp.zeros_like(sums["regret"]), silence
            _, state, lost, told = lax.while_loop(lambda moving: any_lane(moving[0] < end), to_the_next_message, moving)
            return end, (state, seen, sums | {"regret": sums["regret"] + lost}), told

        def plain(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            return by_rounds(drawn, first, end, step, carry)

        return on_cuda(at_once, plain, first, end, carry)

    return play

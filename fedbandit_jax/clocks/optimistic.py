"""Optimistic rounds on fixed arms: on a CUDA GPU a stretch of them is one kernel, see linalg/pulls.py.

A learner is `optimistic` if its state is a Ridge, it chooses the arm of the highest mean + radius sqrt(width), and
learns by `regression.pull`. Of the state its `radius` must read `observations` alone, so that the radii of a stretch
are known before it. Rewards must be those of World, and their means stay as they are.

Clients of a federation play in kernels of their own, each until it has a message itself. The first of them ends the
stretch for all; clients that ran past it are replayed up to that round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedbandit_jax.clocks.client import Client
from fedbandit_jax.linalg import pulls
from fedbandit_jax.linalg.portable import any_lane, may_be_cuda, on_cuda
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.stage import BLOCK, EACH_CLIENT, Alone, Stage
from fedbandit_jax.worlds.world import World


def is_optimistic(learner: Any) -> bool:
    """Do the classes say so from which it has how it plays? A subclass that plays in its own way does not."""
    kind = type(learner)
    parts = [name for name in ("choose", "learn", "ucb") if hasattr(kind, name)]
    parts += ["due"] if learner.passes_messages else []
    homes = [next(cls for cls in kind.__mro__ if name in vars(cls)) for name in parts]
    return all(vars(home).get("optimistic", False) for home in homes) and not learner.asks_every_round


def knows(stage: Alone) -> bool:
    """Does the kernel know its rewards, and is it small enough?"""
    own = type(stage.world).reward is not World.reward
    K, d = stage.arms.shape[-2:]
    return stage.standing is not None and not own and pulls.fits(K, d, stage.arms.dtype)


def unknown(state: Any) -> Any:
    """Arrays with a shape and without numbers: whoever computes with them gets a TypeError."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)


def player(learner: Any, stage: Stage, client: Client) -> Callable[..., tuple]:
    """play(drawn, first, end, step, carry), as fori_loop(first, end, step, carry) does it for rounds of a block.

    A carry is that of the round clock: the state, what the stage remembers, and sums.
    """

    def by_rounds(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        return lax.fori_loop(first, end, step, carry)

    if not (may_be_cuda() and is_optimistic(learner) and isinstance(stage, Alone) and knows(stage)):
        return by_rounds
    columns = client.arms.T  # here, as XLA would do it again before every stretch

    def radii(ridge: Ridge) -> Float[Array, " BLOCK"]:
        after = ridge.observations + jnp.arange(BLOCK, dtype=ridge.observations.dtype)
        return jax.vmap(lambda n: learner.radius(unknown(ridge)._replace(observations=n), client))(after)

    def play(drawn: Any, first: Int[Array, ""], end: Int[Array, ""], step: Any, carry: tuple) -> tuple:
        def at_once(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            ridge, seen, sums = carry
            known, no_limit = radii(ridge), jnp.full(BLOCK, jnp.inf, ridge.theta.dtype)
            met = met_by(stage, columns, drawn.chance, known, no_limit, first, end - first)
            ridge, _, lost, _ = pulls.optimistic_pulls(ridge, jnp.zeros_like(ridge.log_det), met, stage.reward)
            return ridge, seen, sums | {"regret": sums["regret"] + lost}

        def plain(first: Int[Array, ""], end: Int[Array, ""], carry: tuple) -> tuple:
            return by_rounds(drawn, first, end, step, carry)

        if not can(radii, carry[0]):
            return plain(first, end, carry)
        return on_cuda(at_once, plain, first, end, carry)

    return play


def can(radii: Callable[[Any], Any], state: Any) -> bool:
    """Does it take no more than counts to tell the radii?"""
    try:
        jax.eval_shape(radii, state)
    except TypeError:
        return False
    return True


def met_by(
    stage: Alone,
    columns: Float[Array, "d K"],
    chance: Float[Array, " BLOCK"],
    radii: Float[Array, " BLOCK"],
    limits: Float[Array, " BLOCK"],
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> pulls.Stretch:
    """What a client meets from its round `first` on."""
    assert stage.standing is not None
    return pulls.Stretch(stage.arms, columns, stage.mask, *stage.standing, chance, radii, limits, first % BLOCK, count)


class Federated(NamedTuple):
    """Clients of a federation that act on all that they know, see clocks/federation.py."""

    learner: Any
    stages: Alone  # an axis M, as EACH_CLIENT says
    client: Client
    columns: Float[Array, "M d K"]  # their arms

    def radii(self, member: Any) -> Float[Array, " BLOCK"]:
        """Confidence radii of the client's next BLOCK rounds."""

        def after(n: Float[Array, ""]) -> Float[Array, ""]:
            counted = unknown(member.ridge)._replace(observations=member.ridge.observations + n)
            return self.learner.radius_of(
                unknown(member)._replace(ridge=counted, unsent=member.unsent + n), self.client
            )

        return jax.vmap(after)(jnp.arange(BLOCK, dtype=member.unsent.dtype))

    def limits(self, member: Any, t: Int[Array, ""]) -> Float[Array, " BLOCK"]:
        """By how much log det V may grow up to each of a client's next rounds, before it has a message."""
        steps = jnp.arange(1, BLOCK + 1, dtype=jnp.int32)
        unsent = member.unsent + steps.astype(member.unsent.dtype)
        return jax.vmap(lambda unsent, t: self.learner.limit(self.client, unsent, t))(unsent, t + steps)

    def play_to_message(
        self, state: Any, chances: Float[Array, "M BLOCK"], t: Int[Array, ""], end: Int[Array, ""]
    ) -> tuple[Any, Float[Array, ""], Int[Array, ""]]:
        """From round t to the first message, or `end`; what is known then, what was lost, and the number of rounds."""

        def play(members: Any, limits: Float[Array, "M BLOCK"], count: Int[Array, ""]) -> tuple:
            def one(member: Any, stage: Alone, columns: Any, chance: Any, limits: Any) -> tuple:
                met = met_by(stage, columns, chance, self.radii(member), limits, t, count)
                ridge, growth, lost, n = pulls.optimistic_pulls(member.ridge, member.growth, met, stage.reward)
                return member._replace(ridge=ridge, growth=growth, unsent=member.unsent + n), lost, n

            axes = (0, EACH_CLIENT, 0, 0, 0)
            return jax.vmap(one, in_axes=axes)(members, self.stages, self.columns, chances, limits)

        before, limits = state.members, jax.vmap(lambda member: self.limits(member, t))(state.members)
        after, lost, rounds = play(before, limits, end - t)
        n = rounds.min()
        too_far = (rounds > n).any()

        def again(after: Any, lost: Any) -> tuple:
            """In the runs in which somebody has played too far."""
            start = jax.tree.map(lambda old, new: jnp.where(too_far, old, new), before, after)
            members, lost_then, _ = play(start, jnp.full_like(limits, jnp.inf), jnp.where(too_far, n, 0))
            return members, jnp.where(too_far, lost_then, lost)

        members, lost = lax.cond(any_lane(too_far), again, lambda *same: same, after, lost)
        return state._replace(members=members), lost.sum(), n

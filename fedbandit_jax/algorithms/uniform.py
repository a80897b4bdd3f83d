"""Uniform play: the yardstick of no learning at all."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from fedbandit_jax.clocks.base import Algorithm, Trace
from fedbandit_jax.clocks.phases import pulls_after
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Uniform(Algorithm):
    r"""Every client plays its arms in turn, for ever; nothing is estimated, so theta_hat = 0.

    $$ x_t = a_{1 + (t-1) \bmod K} $$

    When: as the yardstick; a learner that is not far below it has learned nothing.

    Paper: none of its own; Lattimore and Szepesvári, "Bandit Algorithms", Cambridge University Press 2020, say why a
    learner must do better than regret linear in T.
    """

    independent_clients: ClassVar[bool] = True

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        once = problem.arm_mask.astype(checkpoints.dtype)

        def regret(rounds: Float[Array, ""]) -> Float[Array, ""]:
            return (problem.gaps * jax.vmap(pulls_after, in_axes=(None, 0))(rounds, once)).sum()

        zeros = jnp.zeros_like(checkpoints)
        error = jnp.full_like(zeros, jnp.linalg.norm(problem.theta))
        return Trace(jax.vmap(regret)(checkpoints), zeros, zeros, error)

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
    """Every client plays its arms in turn, for ever; nothing is estimated, so theta_hat = 0."""

    independent_clients: ClassVar[bool] = True

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        once = problem.arm_mask.astype(checkpoints.dtype)

        def regret(rounds: Float[Array, ""]) -> Float[Array, ""]:
            return (problem.gaps * jax.vmap(pulls_after, in_axes=(None, 0))(rounds, once)).sum()

        zeros = jnp.zeros_like(checkpoints)
        error = jnp.full_like(zeros, jnp.linalg.norm(problem.theta))
        return Trace(jax.vmap(regret)(checkpoints), zeros, zeros, error)

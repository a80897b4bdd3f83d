"""Uniform play: the yardstick of no learning at all."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import MadeFor, Trace
from fedbandit_jax.clocks.phases import pulls_after
from fedbandit_jax.clocks.rounds import Client, RoundAlgorithm
from fedbandit_jax.worlds.problem import Problem


class State(NamedTuple):
    played: Int[Array, ""]  # rounds
    theta_hat: Float[Array, " d"]  # 0


@dataclass(frozen=True, kw_only=True)
class Uniform(RoundAlgorithm):
    r"""Every client plays its arms in turn, for ever; nothing is estimated, so theta_hat = 0.

    $$ x_t = a_{1 + (t-1) \bmod K} $$

    When: as the yardstick; a learner that is not far below it has learned nothing.

    Paper: none of its own; Lattimore and Szepesvári, "Bandit Algorithms", Cambridge University Press 2020, say why a
    learner must do better than regret linear in T.
    """

    made_for: ClassVar[MadeFor] = {}

    def clients_per_core(self, arms: int, dim: int) -> int:
        """As many as of LinUCB, so that both share the program that draws their federations."""
        return LinUCB().clients_per_core(arms, dim)

    def start(self, client: Client) -> State:
        return State(jnp.int32(0), jnp.zeros(client.arms.shape[1], client.arms.dtype))

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        return state.played % jnp.maximum(client.mask.sum(dtype=jnp.int32), 1)

    def learn(self, state: State, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> State:
        return state._replace(played=state.played + 1)

    def theta_hat(self, state: State) -> Float[Array, " d"]:
        return state.theta_hat

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        world = problem.world
        if not (world.fixed and world.stationary and world.arrivals == "all"):
            return super().run(key, problem, checkpoints)
        once = problem.arm_mask.astype(checkpoints.dtype)  # its regret is known without playing

        def regret(rounds: Float[Array, ""]) -> Float[Array, ""]:
            return (problem.gaps * jax.vmap(pulls_after, in_axes=(None, 0))(rounds, once)).sum()

        zeros = jnp.zeros_like(checkpoints)
        error = jnp.full_like(zeros, problem.theta_error(jnp.zeros_like(problem.theta[0])))
        return Trace(jax.vmap(regret)(checkpoints), zeros, zeros, error)

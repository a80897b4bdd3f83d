"""Pooled LinUCB: what communication without limit buys."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.rounds import Client, Info, play_rounds
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class SharedLinUCB(LinUCB):
    r"""LinUCB on the observations of all clients, shared after every round.

    $$ x_{i,t} = \arg\max_{x \in \mathcal A_i} \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{i=1}^{M} \sum_{s<t} x_{i,s} x_{i,s}^\top $$

    In a round all clients choose with the same V, then all their rewards enter it. A round costs M (d + 1) scalars up
    and d^2 + d down. To the clock the federation is one client with M K arms that pulls M of them at once.

    When: to see what messages without limit would buy.

    Paper: Abbasi-Yadkori, Pál and Szepesvári, NeurIPS 2011, played by all clients at once: what distributed learners
    are measured by, as in Wang, Hu, Chen and Wang, "Distributed Bandit Learning: Near-Optimal Regret with Efficient
    Communication", ICLR 2020, [arXiv 1904.06309](https://arxiv.org/abs/1904.06309).
    """

    independent_clients: ClassVar[bool] = False

    def choose(self, state: Ridge, client: Client, key: Key[Array, ""]) -> Int[Array, " M"]:
        first = client.context
        scores = self.ucb(state, client).reshape(len(first), -1)
        return first + jax.vmap(argmax)(scores)

    def learn(  # type: ignore[override]
        self, state: Ridge, client: Client, arm: Int[Array, " M"], reward: Float[Array, " M"]
    ) -> tuple[Ridge, Info]:
        def add(i: Int[Array, ""], state: Ridge) -> Ridge:
            return regression.pull(state, client.arms, arm[i], reward[i])

        d = state.theta.size
        real = client.mask.reshape(len(arm), -1).any(axis=1).sum()  # padded clients see and send nothing
        learned = lax.fori_loop(0, len(arm), add, state)
        sent = real * (d + 1) + d * d + d
        return learned._replace(observations=state.observations + real), {"communication": sent}

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        M, K, d = problem.arms.shape
        together = Client(
            problem.arms.reshape(M * K, d),
            problem.arm_mask.reshape(M * K),
            problem.key_terms,
            problem.noise,
            context=K * jnp.arange(M, dtype=jnp.int32),  # the first arm of each client
            user_bound=problem.user_bound,
        )
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(problem.client_ids)
        curves = play_rounds(self, keys, together, problem.theta, problem.losses.reshape(M * K), checkpoints)
        counts = curves.counts
        return Trace(counts["regret"], curves.asked, counts["communication"], curves.theta_error)

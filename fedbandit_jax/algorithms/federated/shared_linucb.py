"""Pooled LinUCB: what communication without limit buys."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.rounds import CHOICES, Client, client_of, play_rounds
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import OneByOne, Stage, Together, stages_of


@dataclass(frozen=True, kw_only=True)
class SharedLinUCB(LinUCB):
    r"""LinUCB on the observations of all clients, shared after every round.

    $$ x_{i,t} = \arg\max_{x \in \mathcal A_i} \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{i=1}^{M} \sum_{s<t} x_{i,s} x_{i,s}^\top $$

    In a round all clients choose with the same V, then all their rewards enter it. A round costs M uploads of d + 1
    scalars, or one where one client comes at a time, and M downloads of d^2 + d scalars. To the clock the federation is
    one client with M K arms that pulls M of them at once, or one whose arms are those of the client that comes.

    When: to see what messages without limit would buy.

    Paper: Abbasi-Yadkori, Pál and Szepesvári, NeurIPS 2011, played by all clients at once: what distributed learners
    are measured by, as in Wang, Hu, Chen and Wang, "Distributed Bandit Learning: Near-Optimal Regret with Efficient
    Communication", ICLR 2020, [arXiv 1904.06309](https://arxiv.org/abs/1904.06309).
    """

    independent_clients: ClassVar[bool] = False
    revision: ClassVar[int] = 2

    def choose(self, state: Ridge, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        scores = self.ucb(state, client)
        if client.who is not None:
            return argmax(scores)
        first, _ = client.context
        return first + jax.vmap(argmax)(scores.reshape(len(first), -1))

    def learn(self, state: Ridge, client: Client, arm: Int[Array, "*M"], reward: Float[Array, "*M"]) -> Ridge:
        if client.who is not None:
            return regression.pull(state, client.arms, arm, reward)
        _, columns = client.context
        real = client.mask.reshape(len(arm), -1).any(axis=1).sum()  # padded clients see nothing
        return regression.pull_together(state, client.arms, columns, arm, reward, real)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        stages = stages_of(problem, key)
        M, K, d = problem.arms.shape
        client = client_of(problem, stages, None)
        choice_key = jax.random.fold_in(jax.random.fold_in(key, problem.client_ids[0]), CHOICES)
        if problem.world.arrivals == "one":
            # Whoever comes brings other arms, so that to the learner they are redrawn.
            stage: Stage = OneByOne(stages, problem.arrivals_key, problem.federation)
            client = client._replace(arms=jnp.full_like(client.arms[0], jnp.nan), mask=client.mask[0], fixed=False)
        else:
            stage = Together(stages)
            first = K * jnp.arange(M, dtype=jnp.int32)  # arm of each client
            arms = client.arms.reshape(M * K, d)
            client = client._replace(arms=arms, mask=client.mask.reshape(M * K), context=(first, arms.T))
        curves = play_rounds(self, stage, client, choice_key, checkpoints)
        down = checkpoints * problem.num_clients
        up = checkpoints if problem.world.arrivals == "one" else down
        counts = {"uploads": up, "downloads": down, "scalars_up": up * (d + 1), "scalars_down": down * (d * d + d)}
        sent = counts["scalars_up"] + counts["scalars_down"]
        return Trace(curves.counts["regret"], curves.asked, sent, curves.theta_error, counts=counts)

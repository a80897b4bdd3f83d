"""Phase elimination without conversations: FedLinPE pools naively, LinPE leaves each client alone."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax.algorithms.base import Hyperparameter, Trace
from fedbandit_jax.algorithms.fedconpe import State, close_phase, explore, first_state, play
from fedbandit_jax.algorithms.phases import (
    Clock,
    Phase,
    PhaseElimination,
    draw,
    end_together,
    pull_counts,
    pulls_after,
    run_phases,
)
from fedbandit_jax.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FedLinPE(PhaseElimination):
    """FedConPE without key terms: the server pools what the clients saw, and the threshold is 2 sqrt(N/M) eps.

    Clients with different arms do not learn in each other's directions, so the good event may well fail: the paper
    says that this cannot beat M separate learners.
    """

    N: Hyperparameter = 1.0

    def check(self, **setting: Any) -> None:
        _checks.real("N", self.N, 0, float("inf"), "()")
        super().check(**setting)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        return run_pooled(self, key, problem, checkpoints, self.N)


@dataclass(frozen=True, kw_only=True)
class LinPE(PhaseElimination):
    """Each client alone: phase elimination with its own design, threshold 2 eps, no server.

    (Lattimore and Szepesvari 2020, chapter 22.) The clients' phases are not synchronised.
    """

    independent_clients: ClassVar[bool] = True

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        def alone(arms: Float[Array, "K d"], mask: Bool[Array, " K"], i: Int[Array, ""]) -> Trace:
            own = problem._replace(arms=arms[None], arm_mask=mask[None], client_ids=i[None])
            return run_pooled(self, key, own, checkpoints, 1.0)

        traces = jax.vmap(alone)(problem.arms, problem.arm_mask, problem.client_ids)
        real = problem.client_mask[:, None]
        return Trace(
            regret=jnp.where(real, traces.regret, 0).sum(axis=0),
            conversations=jnp.zeros_like(checkpoints),
            communication=jnp.zeros_like(checkpoints),
            theta_error=jnp.where(real, traces.theta_error, 0).sum(axis=0) / problem.num_clients,
            phases={},
        )


def run_pooled(
    algorithm: PhaseElimination,
    key: Key[Array, ""],
    problem: Problem,
    checkpoints: Float[Array, " P"],
    N: Hyperparameter,
) -> Trace:
    """Phase elimination of clients who share one least-squares estimate."""
    _, K, d = problem.arms.shape
    no_questions = jnp.zeros((0, d), problem.theta.dtype), jnp.zeros(0, problem.theta.dtype)

    def play_phase(clock: Clock, state: State) -> tuple[State, Phase]:
        total = algorithm.pulls_in_all(problem, clock)
        radius = jnp.sqrt(N / problem.num_clients) * clock.eps
        random = jax.vmap(lambda i: draw(key, i, clock.phase, K, 0, total.dtype))(problem.client_ids)
        weights, _ = jax.vmap(
            lambda arms, active: explore(arms, active, algorithm.design_tol, algorithm.design_method)
        )(problem.arms, state.active)
        counts = jax.vmap(lambda pi, u: pull_counts(pi, total, algorithm.rounding, u))(weights, random.rounding[:, 0])
        length, complete = end_together(counts, clock)
        pulls = jax.vmap(pulls_after, in_axes=(None, 0))(length, counts)
        statistics = jax.vmap(lambda arms, n, z: play(arms, n, *no_questions, z, problem.theta, problem.noise))(
            problem.arms, pulls, random
        )
        state, closing_scalars, found = close_phase(algorithm, problem, state, statistics, radius)
        info = OrderedDict(eps=clock.eps, complete=complete, **found)
        phase = Phase(
            counts=counts,
            length=length,
            asked=jnp.zeros_like(counts[:, 0]),
            client_mask=problem.client_mask,
            opening_scalars=jnp.zeros_like(length),
            closing_scalars=closing_scalars,
            theta_error=info["theta_error"],
            info=info,
        )
        return state, phase

    return run_phases(
        play_phase,
        first_state(problem),
        gaps=problem.gaps,
        horizon=problem.horizon,
        checkpoints=checkpoints,
        theta_error=jnp.linalg.norm(problem.theta),
    )

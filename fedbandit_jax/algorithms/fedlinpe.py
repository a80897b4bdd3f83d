"""FedLinPE: phase elimination whose clients pool what they saw, without conversations."""

from dataclasses import dataclass

from jaxtyping import Array, Float

from fedbandit_jax.clocks.elimination import PhaseElimination, pooled_radius
from fedbandit_jax.clocks.parameters import Hyperparameter, param
from fedbandit_jax.clocks.phases import Clock
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FedLinPE(PhaseElimination):
    """FedConPE without key terms: the server pools what the clients saw, and the threshold is 2 sqrt(N/M) eps.

    Clients with different arms do not learn in each other's directions, so the good event may well fail: the paper
    says that this cannot beat M separate learners.
    """

    N: Hyperparameter = param(1.0, low=0, ends="()")

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        return pooled_radius(self.N, problem, clock)

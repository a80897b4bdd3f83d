"""FedLinPE: phase elimination whose clients pool what they saw, without conversations."""

from dataclasses import dataclass

from jaxtyping import Array, Float

from fedbandit_jax._parameters import Hyperparameter, param
from fedbandit_jax.clocks.elimination import PhaseElimination, pooled_radius
from fedbandit_jax.clocks.phases import Clock
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FedLinPE(PhaseElimination):
    r"""FedConPE without key terms: the server pools what the clients saw.

    $$ \hat\theta = \left( \sum_i G_i \right)^{-1} \sum_i W_i, \qquad
       \text{keep } a \text{ if } \; \max_b \; (b - a)^\top \hat\theta \le 2 \sqrt{N/M} \, 2^{-\ell} $$

    Clients with different arms do not learn in each other's directions, so the good event may well fail: the paper
    says that this cannot beat M separate learners.

    When: beside FedConPE, to see what the questions are worth.

    Paper: Li, Liu and Lui, "FedConPE", IJCAI 2024, [arXiv 2405.02881](https://arxiv.org/abs/2405.02881), where it is
    the naive federation that the paper argues against.
    """

    N: Hyperparameter = param(1.0, low=0, ends="()")

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        return pooled_radius(self.N, problem, clock)

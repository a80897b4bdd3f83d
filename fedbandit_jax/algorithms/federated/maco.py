"""MACO (Dai et al. 2025): FedConPE's phases and questions with a uniform design in place of the G-optimal one."""

from dataclasses import dataclass, fields
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedbandit_jax._parameters import Hyperparameter, param
from fedbandit_jax.algorithms.federated.fedconpe import FedConPE, Outlook, coverage
from fedbandit_jax.clocks.base import Algorithm, MadeFor
from fedbandit_jax.clocks.elimination import DESIGNS, PhaseElimination, PhaseQuestions, pooled_radius
from fedbandit_jax.clocks.phases import CEIL_SLACK, Clock, Randomness
from fedbandit_jax.linalg import Real
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class MACO(PhaseElimination):
    r"""Multi-agent conversational phase elimination that plays all active arms alike and asks where they tell little.

    In phase p a client pulls each of its active arms as often as the others. Where the eigenvalue $\lambda_j$ of their
    mean $x x^\top$ is below $h_p$, it asks about the key term nearest to the eigenvector:

    $$ n(a) = \left\lceil \frac{2^{2p+1} d \sigma^2 L}{|A_p|} \right\rceil, \quad
       n(k) = \left\lceil \frac{2 d \sigma^2 (h_p - \lambda_j) \, 2^{2p} L}{\beta^2} \right\rceil, \quad
       h_p = \frac{3}{4 (1 - 2^{-2p}) d}, \quad L = \log \frac{2KM \, \log T}{\delta} $$

    $$ \hat\theta_p = G^{-1} W, \qquad
       \text{keep } a \text{ if } \; \max_b \; (b - a)^\top \hat\theta_p \le 2^{-p+1} / \sqrt{M} $$

    G and W add up all clients and phases. beta is the least |k.v| that the key terms offer every unit v (Condition 1):
    a number, or "catalog" for the catalog's `realised_C`. A client asks ceil(1/beta^2) questions a round at most, as
    the paper needs no more. `key_term_rule` is "absolute", the largest |k.v|, as an eigenvector has no sign of its own,
    or "signed", the largest k.v, as it is written. With a `design_method` that is G-optimal, this is FedConPE with
    N = 1, the paper's "MACO with G". The paper has sigma = 1. The other hyperparameters are those of
    `PhaseElimination`, the diagnostics those of `FedConPE`.

    Scalars: d + 1 of every weak direction, each way; then d^2 + d up and d down of every client.

    The public code is not the paper: its phases grow like sqrt(2)^p, it finds weak directions in sums over phases, and
    warms up on random arms. Nothing of that is here.

    When: as FedConPE, where designs take too long: there is nothing to solve but an eigenproblem.

    Paper: Dai, Xie, Liu, Wang, Li, Wang and Lui, "Multi-Agent Conversational Online Learning for Adaptive LLM Response
    Identification", 2025, [arXiv 2501.01849](https://arxiv.org/abs/2501.01849v1); at AAAI 2026 as "A Multi-Agent
    Conversational Bandit Approach to Online Evaluation and Selection of User-Aligned LLM Responses".
    """

    revision: ClassVar[int] = 4
    asks_key_terms: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = FedConPE.made_for

    beta: Hyperparameter = param(1.0, low=0, high=1, ends="(]", words=("catalog",))
    key_term_rule: Hyperparameter = param("absolute", words=("absolute", "signed"))
    design_method: Hyperparameter = param("uniform", words=DESIGNS)

    def for_catalog(self, catalog: Catalog) -> Algorithm:
        return self.replace(beta=coverage("beta", self.beta, catalog)) if self.beta == "catalog" else self

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        return pooled_radius(1.0, problem, clock)

    def questions_a_round(self) -> Real:
        """Questions are at most 1/beta^2 of the pulls of a phase, before rounding up."""
        return jnp.ceil(1 / self.beta**2 - CEIL_SLACK)

    @property
    def twin(self) -> FedConPE:
        """FedConPE with N = 1 and C = beta."""
        shared = {field.name: getattr(self, field.name) for field in fields(PhaseElimination)}
        return FedConPE(N=1.0, C=self.beta, key_term_rule=self.key_term_rule, **shared)

    def outlook(self, arms: Float[Array, "K d"], active: Bool[Array, " K"], key_terms: Float[Array, "J d"]) -> Outlook:
        return self.twin.outlook(arms, active, key_terms)

    def questions(self, problem: Problem, clock: Clock, outlooks: Outlook, random: Randomness) -> PhaseQuestions:
        """FedConPE's; a key term goes down as its vector and how often to ask."""
        found = self.twin.questions(problem, clock, outlooks, random)
        return found._replace(sent=found.sent._replace(scalars_down=found.sent.scalars_up))

"""LinPE: phase elimination of each client alone."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.elimination import PhaseElimination
from fedbandit_jax.clocks.phases import Clock
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class LinPE(PhaseElimination):
    r"""Each client alone: phase elimination with its own design, no server.

    $$ n(a) = \left\lceil \frac{2 d \sigma^2 \pi(a)}{\varepsilon^2} \, \log \frac{2 K \, \log T}{\delta} \right\rceil $$

    $$ \text{keep } a \text{ if } \; \max_b \; (b - a)^\top \hat\theta \le 2 \varepsilon, \; \varepsilon = 2^{-\ell} $$

    The clients' phases are not synchronised.

    When: to see what a phase elimination does without a federation.

    Paper: Lattimore and Szepesvári, "Bandit Algorithms", Cambridge University Press 2020, chapter 22.
    """

    independent_clients: ClassVar[bool] = True

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        return clock.eps

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        def alone(
            arms: Float[Array, "K d"], mask: Bool[Array, " K"], theta: Float[Array, " d"], i: Int[Array, ""]
        ) -> Trace:
            own = problem._replace(arms=arms[None], arm_mask=mask[None], theta=theta[None], client_ids=i[None])
            return super(LinPE, self).run(key, own, checkpoints)

        traces = jax.vmap(alone)(problem.arms, problem.arm_mask, problem.theta, problem.client_ids)
        real = problem.client_mask[:, None]
        return Trace(
            regret=jnp.where(real, traces.regret, 0).sum(axis=0),
            conversations=jnp.zeros_like(checkpoints),
            communication=jnp.zeros_like(checkpoints),  # it has no server, though its clock counts messages to one
            theta_error=jnp.where(real, traces.theta_error, 0).sum(axis=0) / problem.num_clients,
        )

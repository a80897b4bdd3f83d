"""Async-LinUCB (Li and Wang 2022): a client talks when it has learned enough, the server when it knows enough more."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.federation import Federation, Member, Synchronised, pass_on
from fedbandit_jax.clocks.rounds import Client, Info


@dataclass(frozen=True, kw_only=True)
class AsyncLinUCB(Synchronised, LinUCB):
    r"""LinUCB whose clients send when they saw enough that is new, and are told when the server knows enough more.

    $$ \text{client } i \text{ sends if } \; \frac{\det V_i}{\det (V_i - \Delta V_i)} > \gamma_U, \qquad
       \text{then each } j \text{ is told if } \; \frac{\det V_g}{\det (V_g - \Delta V_{-j})} > \gamma_D $$

    V_i is all that client i knows, Delta V_i what of it the server does not; V_g is all that the server knows,
    Delta V_-j what of it client j does not. gamma_U and gamma_D are gamma where they are None. gamma=1 is SharedLinUCB,
    gamma=inf LinUCB. alpha, lam, delta and sigma are LinUCB's. A message is d^2 + d scalars.

    In a round all clients choose with what they knew before it; then messages pass, lower numbers first.

    When: where clients come at different times, so that nobody waits for the others.

    Paper: Li and Wang, "Asynchronous Upper Confidence Bound Algorithms for Federated Linear Bandits", AISTATS 2022,
    [arXiv 2110.01463](https://arxiv.org/abs/2110.01463). Its theory is for arms that are redrawn; the learner plays on
    fixed ones too.
    """

    minds_who_is_due: ClassVar[bool] = True

    gamma: Hyperparameter = param(6.0, low=1, infinite=True, search=Between(1.01, 100))
    gamma_U: Hyperparameter = param(None, low=1, infinite=True)
    gamma_D: Hyperparameter = param(None, low=1, infinite=True)

    def limit(self, client: Client, unsent: Float[Array, ""], t: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.log(jnp.asarray(self.gamma if self.gamma_U is None else self.gamma_U, unsent.dtype))

    def is_told(self, member: Member, log_det: Float[Array, ""]) -> Bool[Array, ""]:
        gamma = self.gamma if self.gamma_D is None else self.gamma_D
        return log_det - member.shared_log_det > jnp.log(gamma)

    def exchange(self, state: Federation, client: Client, t: Int[Array, ""]) -> tuple[Federation, Info]:
        def sends(member: Member) -> Bool[Array, ""]:
            return member.growth > self.limit(client, member.unsent, t)

        return pass_on(state, client, sends, self.is_told)

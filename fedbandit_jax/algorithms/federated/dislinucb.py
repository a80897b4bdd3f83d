"""DisLinUCB (Wang et al. 2020): everybody talks when somebody has learned enough for long enough."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.federation import Federation, Setting, Synchronised, synchronise
from fedbandit_jax.clocks.rounds import Client, Info


@dataclass(frozen=True, kw_only=True)
class DisLinUCB(Synchronised, LinUCB):
    r"""LinUCB whose clients all share what they saw as soon as one of them has learned enough.

    $$ \text{synchronise if for some } i: \;
       \log \frac{\det V_i}{\det V_{\mathrm{last}}} \, (t - t_{\mathrm{last}}) > D $$

    V_i has what all clients saw up to the last synchronisation and what client i saw since; V_last is V_i without the
    latter. D is a number or "theory", T log(M T) / (d M): then the number of synchronisations does not grow with T.
    D=0 is SharedLinUCB, D=inf LinUCB. alpha, lam, delta and sigma are LinUCB's. A synchronisation is d^2 + d scalars up
    and as many down for each client. Where one client comes at a time, T is its own number of rounds, M T that of all,
    and t - t_last counts its own: the learner is then known as Sync-LinUCB.

    When: as the first federated baseline; on any arms.

    Paper: Wang, Hu, Chen and Wang, "Distributed Bandit Learning: Near-Optimal Regret with Efficient Communication",
    ICLR 2020, [arXiv 1904.06309](https://arxiv.org/abs/1904.06309). Sync-LinUCB: Li and Wang, AISTATS 2022.
    """

    revision: ClassVar[int] = 1

    D: Hyperparameter = param("theory", low=0, infinite=True, words=("theory",), search=Between(1, 1e4))

    def threshold(self, setting: Setting, dim: int) -> Float[Array, ""]:
        """D of the formula."""
        if not isinstance(self.D, str):
            return jnp.asarray(self.D, setting.horizon.dtype)
        M, T = setting.clients, setting.horizon
        return T * jnp.log(M * T) / (dim * M)

    def limit(self, client: Client, unsent: Float[Array, ""], t: Int[Array, ""]) -> Float[Array, ""]:
        return self.threshold(client.context, client.arms.shape[-1]) / unsent

    def exchange(self, state: Federation, client: Client, t: Int[Array, ""]) -> tuple[Federation, Info]:
        return synchronise(state, client)

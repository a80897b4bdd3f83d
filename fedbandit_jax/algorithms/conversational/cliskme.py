"""CLiSK-ME (Liu et al. 2025): CLiME's questions, about key terms perturbed as CLiSK's are."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.conversational.clime import CLiME
from fedbandit_jax.algorithms.conversational.clisk import CLiSK, perturbed
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.client import Client, Questions


@dataclass(frozen=True, kw_only=True)
class CLiSKME(CLiME):
    r"""CLiME with CLiSK's noise: asks when a direction is too uncertain, about the perturbed key term nearest to it.

    $$ k_i = \arg\max_k \; |(k + \varepsilon_k)^\top v_i|, \qquad
       n_i = \left\lceil \frac{\ell t - \lambda_i}{c_0^2} \right\rceil \text{ times about } k_i + \varepsilon_{k_i},
       \qquad \varepsilon_k \sim \mathcal N(0, \rho^2 I) $$

    for every eigenpair of V with $\lambda_i < \ell t$, in rounds that check. Every direction perturbs all key terms
    anew, and its questions are all about the same perturbed one. rho, R and `normalise_smoothed` are those of `CLiSK`,
    all others those of `CLiME`, and so is what is not checked against the paper's text.

    When: as CLiME, where key terms are few or far from some directions.

    Paper: Liu, Li, Dai and Lui, "Leveraging the Power of Conversations: Optimal Key Term Selection in Conversational
    Contextual Bandits", KDD 2025, [arXiv 2505.21393](https://arxiv.org/abs/2505.21393), where it is called CLiSK-ME.
    """

    made_for: ClassVar[MadeFor] = CLiSK.made_for

    rho: Hyperparameter = param(0.2, low=0, ends="[)", search=Between(0.01, 2))
    R: Hyperparameter = param(None, low=0, ends="()")
    normalise_smoothed: Hyperparameter = False

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        _checks.flag("normalise_smoothed", self.normalise_smoothed)

    def near(
        self, client: Client, direction: Float[Array, " d"], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, " d"]]:
        return perturbed(client, direction, key, self.rho, self.R, normalise=self.normalise_smoothed, either_way=True)

    def answers(
        self, questions: Questions, i: Int[Array, ""], k: Int[Array, ""], x: Float[Array, " d"], n: Float[Array, ""]
    ) -> Float[Array, ""]:
        return questions.answer(i, x, n)

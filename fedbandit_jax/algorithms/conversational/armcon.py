"""Arm-Con: LinUCB that asks about arms."""

from dataclasses import dataclass

from jaxtyping import Array, Int

from fedbandit_jax._parameters import Hyperparameter
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.rounds import Client, Info, Questions, ask_in_turn
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge


@dataclass(frozen=True, kw_only=True)
class ArmCon(LinUCB):
    r"""LinUCB that also asks: about the arm with the highest upper confidence bound; the answer enters V.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{\mathrm{pulls}} x x^\top + \sum_{\mathrm{questions}} x x^\top $$

    When: to see what questions buy without key terms.

    Paper: Christakopoulou, Radlinski and Hofmann, "Towards Conversational Recommender Systems", KDD 2016, as the
    literature on conversational bandits has it.
    """

    schedule: Hyperparameter = "log"

    def ask(self, state: Ridge, client: Client, questions: Questions) -> tuple[Ridge, Info]:
        def one(i: Int[Array, ""], state: Ridge) -> tuple[Ridge, Int[Array, ""]]:
            arm = argmax(self.ucb(state, client))
            x = client.arms[arm]
            return regression.observe(state, client.arms, x, questions.answer(i, x))[0], arm

        return ask_in_turn(questions, one, state, questions.cost_of_arm)

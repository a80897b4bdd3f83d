"""LinUCB, and Arm-Con: LinUCB that asks about arms."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks, regression
from fedbandit_jax._argmax import argmax
from fedbandit_jax.algorithms.base import Hyperparameter
from fedbandit_jax.algorithms.rounds import Client, RoundAlgorithm, question_noise
from fedbandit_jax.regression import Ridge


def check_ucb(algorithm: Any) -> None:
    """The constants that all ridge-regression learners share."""
    if isinstance(algorithm.alpha, str):
        _checks.choice("alpha", algorithm.alpha, ("theory",))
    else:
        _checks.real("alpha", algorithm.alpha, 0, float("inf"), "[)")
    _checks.real("delta", algorithm.delta, 0, 1, "()")
    if algorithm.sigma is not None:
        _checks.real("sigma", algorithm.sigma, 0, float("inf"), "[)")


@dataclass(frozen=True, kw_only=True)
class LinUCB(RoundAlgorithm):
    """Pull argmax_x x.theta_hat + alpha sqrt(x' V^-1 x), with V = lam I + sum x x' (Abbasi-Yadkori et al. 2011).

    alpha is a constant or "theory": sigma sqrt(2 log(1/delta) + d log(1 + n/(lam d))) + sqrt(lam) after n
    observations. sigma=None means the noise of the problem.
    """

    alpha: Hyperparameter = 0.5
    lam: Hyperparameter = 1.0
    delta: Hyperparameter = 0.1
    sigma: Hyperparameter = None

    def check(self, **setting: Any) -> None:
        check_ucb(self)
        _checks.real("lam", self.lam, 0, float("inf"), "()")

    def start(self, client: Client) -> Ridge:
        return regression.start(client.arms, self.lam)

    def choose(self, state: Ridge, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        return argmax(self.ucb(state, client))

    def learn(self, state: Ridge, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> Ridge:
        return regression.pull(state, client.arms, arm, reward)

    def refresh(self, state: Ridge, client: Client) -> Ridge:
        return regression.exact(state, client.arms, self.lam)

    def theta_hat(self, state: Ridge) -> Float[Array, " d"]:
        return state.theta

    def radius(self, state: Ridge, client: Client) -> Float[Array, ""]:
        """alpha of the formulas."""
        if not isinstance(self.alpha, str):
            return jnp.asarray(self.alpha, state.theta.dtype)
        sigma = client.noise if self.sigma is None else self.sigma
        return regression.confidence_radius(state.theta.size, state.observations, self.lam, self.delta, sigma)

    def ucb(self, state: Ridge, client: Client) -> Float[Array, " K"]:
        scores = state.means + self.radius(state, client) * state.lengths()
        return jnp.where(client.mask, scores, -jnp.inf)


@dataclass(frozen=True, kw_only=True)
class ArmCon(LinUCB):
    """LinUCB that also asks: about the arm with the highest upper confidence bound; the answer enters V.

    (Christakopoulou et al. 2016, as in the conversational bandit literature.)
    """

    schedule: Hyperparameter = "log"

    def ask(
        self, state: Ridge, client: Client, first: Int[Array, ""], count: Int[Array, ""], key: Key[Array, ""]
    ) -> Ridge:
        def one(i: Int[Array, ""], state: Ridge) -> Ridge:
            x = client.arms[argmax(self.ucb(state, client))]
            answer = client.answer(x, question_noise(key, first + i, x.dtype))
            return regression.observe(state, client.arms, x, answer)[0]

        return lax.fori_loop(0, count, one, state)

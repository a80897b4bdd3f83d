"""LinUCB: the optimistic linear bandit, each client alone."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.rounds import Client, RoundAlgorithm
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge


@dataclass(frozen=True, kw_only=True)
class LinUCB(RoundAlgorithm):
    r"""Pull the arm of the highest upper confidence bound.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad V = \lambda I + \sum x x^\top $$

    alpha is a constant or "theory": sigma sqrt(2 log(1/delta) + d log(1 + n/(lam d))) + sqrt(lam) S after n
    observations, S the largest norm of the catalog's users. sigma=None means the noise of the problem.

    When: as the first baseline; hard to beat by one client alone once alpha is tuned.

    Paper: Abbasi-Yadkori, Pál and Szepesvári, "Improved Algorithms for Linear Stochastic Bandits", NeurIPS 2011.
    """

    made_for: ClassVar[MadeFor] = {}
    optimistic: ClassVar[bool] = True

    alpha: Hyperparameter = param(0.5, low=0, ends="[)", words=("theory",), search=Between(0.01, 2))
    lam: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 10))
    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")

    def start(self, client: Client) -> Ridge:
        return regression.start(client.arms, self.lam, fixed=client.fixed)

    def choose(self, state: Ridge, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        return argmax(self.ucb(state, client))

    def learn(self, state: Ridge, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> Ridge:
        return regression.pull(state, client.arms, arm, reward)

    def refresh(self, state: Ridge, client: Client) -> Ridge:
        return regression.recompute(state, client.arms, self.lam)

    def theta_hat(self, state: Ridge) -> Float[Array, " d"]:
        return state.theta

    def radius(self, state: Ridge, client: Client) -> Float[Array, ""]:
        """alpha of the formulas."""
        if not isinstance(self.alpha, str):
            return jnp.asarray(self.alpha, state.theta.dtype)
        sigma = client.noise if self.sigma is None else self.sigma
        return regression.confidence_radius(
            state.theta.size, state.observations, self.lam, self.delta, sigma, client.user_bound
        )

    def ucb(self, state: Ridge, client: Client) -> Float[Array, " K"]:
        means, widths = regression.means_and_widths(state, client.arms)
        scores = means + self.radius(state, client) * regression.square_root(widths)
        return jnp.where(client.mask, scores, -jnp.inf)

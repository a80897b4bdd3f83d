"""FedLinUCB (He et al. 2022): a client's model stands still until it sends what it saw and is told what all saw."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor, Trace
from fedbandit_jax.clocks.events import play_events
from fedbandit_jax.clocks.federation import Federation, Member, Setting, Synchronised, pass_on, setting_of
from fedbandit_jax.clocks.rounds import Client, Info
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.regression import Estimate
from fedbandit_jax.worlds.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FedLinUCB(Synchronised):
    r"""Each client acts on what the server told it last, until it has seen enough that is new.

    $$ x_t = \arg\max_x \; x^\top \hat\theta_m + \beta \sqrt{x^\top \Sigma_m^{-1} x}, \qquad
       \text{send if } \; \det(\Sigma_m + \Sigma_m^{\mathrm{loc}}) > (1 + \alpha) \det \Sigma_m $$

    alpha is the trigger, beta the width. What a client has not sent yet is not in its own Sigma_m either. After a
    message of d^2 + d scalars up it is told what all have sent, d^2 + d down. "theory" is alpha = 1/M^2, and beta =
    sqrt(lam) S + (sqrt(1 + M alpha) + M sqrt(2 alpha)) (sigma sqrt(d log((1 + T/(min(alpha, 1) lam)) / delta)) +
    sqrt(lam) S) with T the plays of all clients; this beta is so wide that at horizons up to 10^5 hardly anything is
    learned: beta is the constant to scale, and 0.5 the one of the paper's experiments.

    On fixed arms where all clients play, a run goes from message to message: its cost does not grow with T. Elsewhere
    it goes round by round.

    When: as the asynchronous baseline with few messages, one client at a time.

    Paper: He, Wang, Min and Gu, "A Simple and Provably Efficient Algorithm for Asynchronous Federated Contextual Linear
    Bandits", NeurIPS 2022, [arXiv 2207.03106](https://arxiv.org/abs/2207.03106).
    """

    made_for: ClassVar[MadeFor] = {}
    lazy: ClassVar[bool] = True
    minds_who_is_due: ClassVar[bool] = True

    alpha: Hyperparameter = param(1.0, low=0, words=("theory",), infinite=True, search=Between(0.01, 10))
    beta: Hyperparameter = param(0.5, low=0, words=("theory",), search=Between(0.01, 2))
    lam: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 10))
    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")

    def trigger(self, setting: Setting) -> Float[Array, ""]:
        """alpha of the formulas."""
        if isinstance(self.alpha, str):
            return 1 / setting.clients**2
        return jnp.asarray(self.alpha, setting.horizon.dtype)

    def width(self, setting: Setting, dim: int, noise: Float[Array, ""], S: Float[Array, ""]) -> Float[Array, ""]:
        """beta of the formulas."""
        if not isinstance(self.beta, str):
            return jnp.asarray(self.beta, setting.horizon.dtype)
        M, alpha = setting.clients, self.trigger(setting)
        sigma, bias = noise if self.sigma is None else self.sigma, jnp.sqrt(self.lam) * S
        plays = 1 + M * setting.horizon / (jnp.minimum(alpha, 1) * self.lam)
        return bias + (jnp.sqrt(1 + M * alpha) + M * jnp.sqrt(2 * alpha)) * (
            sigma * jnp.sqrt(dim * jnp.log(plays / self.delta)) + bias
        )

    def ucb(self, state: Estimate, client: Client) -> Float[Array, " K"]:
        means, widths = regression.means_and_widths(state, client.arms)
        beta = self.width(client.context, state.theta.size, client.noise, jnp.asarray(client.user_bound))
        return jnp.where(client.mask, means + beta * regression.square_root(widths), -jnp.inf)

    def due(self, state: Federation, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        return self.sends(state.members, client.context).any()

    def sends(self, member: Member, setting: Setting) -> Bool[Array, "*M"]:
        return member.growth > jnp.log1p(self.trigger(setting))

    def exchange(self, state: Federation, client: Client, t: Int[Array, ""]) -> tuple[Federation, Info]:
        setting = client.context
        return pass_on(state, client, lambda member: self.sends(member, setting))

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        world = problem.world
        if not (world.fixed and world.arrivals == "all" and world.knows_sums):
            return super().run(key, problem, checkpoints)
        setting = setting_of(problem, key)
        alpha = self.trigger(setting)
        # det(Sigma + n x x') / det Sigma = 1 + n q with q = x' Sigma^-1 x.
        return play_events(
            key,
            problem,
            checkpoints,
            self.prior(setting, problem.dim),
            self.width(setting, problem.dim, problem.sigma, jnp.asarray(problem.user_bound)),
            lambda q: jnp.floor(alpha / q) + 1,
        )

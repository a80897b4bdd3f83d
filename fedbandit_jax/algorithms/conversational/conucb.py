"""ConUCB (Zhang et al. 2020): one regression on key terms, one on arms that is drawn towards it."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.rounds import Client, Info, Questions, RoundAlgorithm, ask_in_turn
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax, matvec
from fedbandit_jax.linalg.regression import Ridge, learn_pull


class State(NamedTuple):
    """Arm level: M = (1-lam) I + lam sum x x', theta = M^-1 (lam sum x r + (1-lam) theta_t). Key-term level: Mt."""

    ridge: Ridge  # arm level; its extra moment is (1-lam) theta_t
    gram: Float[Array, "d d"]  # sum k k'
    moment: Float[Array, " d"]  # sum k r
    inverse: Float[Array, "d d"]  # Mt^-1 = (lam_t I + sum k k')^-1
    spread: Float[Array, "*K"]  # x' M^-1 Mt^-1 M^-1 x of every arm of a fixed set, or else the matrix itself
    questions: Float[Array, ""]  # asked so far


@dataclass(frozen=True, kw_only=True)
class ConUCB(RoundAlgorithm):
    r"""One regression on key terms, and one on arms that is drawn towards it.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \lambda \alpha \, \lVert x \rVert_{M^{-1}}
       + (1-\lambda) \, \tilde\alpha \, \lVert x \rVert_{M^{-1} \tilde M^{-1} M^{-1}} $$

    It asks about the key term that tells most of the client's arms X:

    $$ k_t = \arg\max_k \; \frac{\lVert X M^{-1} \tilde M^{-1} k \rVert^2}{1 + k^\top \tilde M^{-1} k} $$

    lam is the weight of the arms, lam_t the ridge of the key terms. alpha and alpha_t are constants or
    "theory": alpha = sigma sqrt(d log((1 + lam t/((1-lam) d)) / delta)) after t pulls, alpha_t =
    sigma sqrt(2 (d log 6 + log(2 (q+1)/delta))) + 2 sqrt(lam_t) S after q questions, S the largest norm of the users.

    When: as the conversational baseline that most papers compare with.

    Paper: Zhang, Xie, Li and Lui, "Conversational Contextual Bandit: Algorithm and Application", WWW 2020,
    [arXiv 1906.01219](https://arxiv.org/abs/1906.01219).
    """

    asks_key_terms: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = {}

    lam: Hyperparameter = param(0.5, low=0, high=1, ends="()", search=Between(0.05, 0.95, log=False))
    lam_t: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 10))
    alpha: Hyperparameter = param(0.25, low=0, ends="[)", words=("theory",), search=Between(0.01, 2))
    alpha_t: Hyperparameter = param(0.25, low=0, ends="[)", words=("theory",), search=Between(0.01, 2))
    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")
    schedule: Hyperparameter = "log"

    def start(self, client: Client) -> State:
        ridge = regression.start(client.arms, 1 - self.lam, fixed=client.fixed)
        zero = jnp.zeros_like(ridge.inverse)
        inverse = jnp.eye(len(zero), dtype=zero.dtype) / self.lam_t
        # Unit arms start with the same spread, exactly, so that ties break by index.
        spread = ridge.widths if client.fixed else ridge.inverse
        return State(ridge, zero, zero[0], inverse, spread / ((1 - self.lam) * self.lam_t), zero[0, 0])

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        alpha, alpha_t = self.radii(state, client)
        means, widths = regression.means_and_widths(state.ridge, client.arms)
        spread = state.spread
        if not client.fixed:
            first = 1 / (state.ridge.prior**2 * self.lam_t)
            spread = regression.rounded_to(first, regression.quadratic_forms(client.arms, state.spread))
        lengths, lengths_t = regression.square_root(widths), regression.square_root(spread)
        scores = means + self.lam * alpha * lengths + (1 - self.lam) * alpha_t * lengths_t
        return argmax(jnp.where(client.mask, scores, -jnp.inf))

    def learn(self, state: State, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> State:
        """With u = M^-1 x and v = M^-1 Mt^-1 u, M^-1 Mt^-1 M^-1 changes by -g (u v' + v u') + g^2 (u' Mt^-1 u) u u'."""
        update = regression.update_of_pull(state.ridge, client.arms, arm, self.lam)
        g, u = update.gain, update.u
        w = matvec(state.inverse, u)
        v = matvec(state.ridge.inverse, w)
        if update.projections is not None:
            along, across = update.projections, matvec(client.arms, v)
            change = g * along * (g * state.spread[arm] * along - 2 * across)  # u' Mt^-1 u is the arm's own spread
        else:
            half = g * jnp.outer(u, g * (u @ w) / 2 * u - v)
            change = half + half.T
        ridge = learn_pull(state.ridge, update, client.arms, arm, reward)
        return state._replace(ridge=ridge, spread=state.spread + change)

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        terms = client.key_terms
        onto_arms = client.arms @ state.ridge.inverse  # X M^-1, fixed while questions are asked
        onto_terms = onto_arms.T @ onto_arms

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            gram, moment, inverse, influence, widths = carry
            number = argmax(client.among_candidates(influence / (1 + widths)))
            k, answer = terms[number], questions.about(i, number)
            # Mt^-1 - gain w w' with w = Mt^-1 k; influence_k = |X M^-1 Mt^-1 k|^2 follows in O(J d).
            w = inverse @ k
            gain = 1 / (1 + k @ w)
            shadow = onto_terms @ w
            along, across = terms @ w, terms @ (inverse @ shadow)
            influence = influence + gain * along * (gain * (w @ shadow) * along - 2 * across)
            learned = (
                gram + jnp.outer(k, k),
                moment + answer * k,
                inverse - gain * jnp.outer(w, w),
                influence,
                widths - gain * along**2,
            )
            return learned, number

        widths = ((terms @ state.inverse) * terms).sum(axis=1)
        influence = ((terms @ (state.inverse @ onto_terms @ state.inverse)) * terms).sum(axis=1)
        init = (state.gram, state.moment, state.inverse, influence, widths)
        (gram, moment, *_), info = ask_in_turn(questions, one, init)
        asked = state._replace(gram=gram, moment=moment, questions=state.questions + questions.count)
        return self.refresh(asked, client), info

    def refresh(self, state: State, client: Client) -> State:
        eye = jnp.eye(len(state.gram), dtype=state.gram.dtype)
        factor = jnp.linalg.cholesky(self.lam_t * eye + state.gram, symmetrize_input=False)
        half = lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)
        inverse = half.T @ half
        ridge = state.ridge._replace(extra_moment=(1 - self.lam) * (inverse @ state.moment))
        ridge = regression.recompute(ridge, client.arms, 1 - self.lam, self.lam)
        root = ridge.inverse @ half.T  # M^-1 Mt^-1 M^-1 is its square
        spread = ((client.arms @ root) ** 2).sum(axis=1) if client.fixed else root @ root.T
        return state._replace(ridge=ridge, inverse=inverse, spread=spread)

    def theta_hat(self, state: State) -> Float[Array, " d"]:
        return state.ridge.theta

    def radii(self, state: State, client: Client) -> tuple[Hyperparameter, Hyperparameter]:
        """alpha and alpha_t of the formulas."""
        sigma = client.noise if self.sigma is None else self.sigma
        d = len(state.moment)
        alpha, alpha_t = self.alpha, self.alpha_t
        if isinstance(alpha, str):
            growth = 1 + self.lam * state.ridge.observations / ((1 - self.lam) * d)
            alpha = sigma * jnp.sqrt(d * jnp.log(growth / self.delta))
        if isinstance(alpha_t, str):
            inside = d * jnp.log(6.0) + jnp.log(2 * (state.questions + 1) / self.delta)
            alpha_t = sigma * jnp.sqrt(2 * inside) + 2 * jnp.sqrt(self.lam_t) * client.user_bound
        return alpha, alpha_t

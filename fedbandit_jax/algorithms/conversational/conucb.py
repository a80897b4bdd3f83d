"""ConUCB (Zhang et al. 2020): one regression on key terms, one on arms that is drawn towards it."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.client import Number
from fedbandit_jax.clocks.rounds import Client, Info, Questions, RoundAlgorithm, ask_in_turn
from fedbandit_jax.linalg import regression, spread
from fedbandit_jax.linalg.forms import forms_of_columns
from fedbandit_jax.linalg.portable import argmax, two_products
from fedbandit_jax.linalg.spread import Spread

Square = Float[Array, "d d"]


class State(NamedTuple):
    """Arm level: M = (1-lam) I + lam sum x x', theta = M^-1 (lam sum x r + (1-lam) theta_t). Key-term level: Mt."""

    level: Spread  # arm level, with x' M^-1 Mt^-1 M^-1 x of the arms; its extra moment is (1-lam) theta_t
    gram: Float[Array, "d d"]  # sum k k'
    moment: Float[Array, " d"]  # sum k r
    inverse: Float[Array, "d d"]  # Mt^-1 = (lam_t I + sum k k')^-1
    questions: Float[Array, ""]  # asked so far
    # k' Mt^-1 k of all key terms; None if nobody asks for them, or about others each time. They are not recomputed, as
    # rounding hardly moves 1 + k' Mt^-1 k: they only fall, and by less and less.
    term_widths: Float[Array, " J"] | None


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

    def clients_per_core(self, arms: int, dim: int) -> int:
        """As of LinUCB: rounds touch the columns of the arms, and little of what the state has besides."""
        return LinUCB().clients_per_core(arms, dim)

    def start(self, client: Client) -> State:
        level = spread.start(client.arms, 1 - self.lam, self.lam_t, fixed=client.fixed)
        eye = jnp.eye(client.arms.shape[1], dtype=client.arms.dtype)
        zero = jnp.zeros_like(eye)
        widths = regression.squared_norms(client.key_terms) / self.lam_t
        return State(level, zero, zero[0], eye / self.lam_t, zero[0, 0], widths)

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        alpha, alpha_t = self.radii(state, client)
        means, widths, spreads = spread.means_widths_and_spread(state.level, client.arms, self.lam_t)
        lengths, lengths_t = regression.square_root(widths), regression.square_root(spreads)
        scores = means + self.lam * alpha * lengths + (1 - self.lam) * alpha_t * lengths_t
        return argmax(jnp.where(client.mask, scores, -jnp.inf))

    def learn(self, state: State, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> State:
        return state._replace(level=spread.pull(state.level, state.inverse, client.arms, arm, reward, self.lam))

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        columns, shadow = client.key_terms.T, spread.shadow(state.level, client.arms)

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            state, credits = carry
            number = argmax(client.among_candidates(credits.of_terms()))
            k, answer = client.key_terms[number], questions.about(i, number)
            return (heard(state, credits, k, answer), credits.after(k, columns, shadow)), number

        start = state, credits_of(columns, state.inverse, shadow, state.term_widths)
        (state, credits), info = ask_in_turn(questions, one, start)
        return self.believe(state, client, credits, questions.count), info

    def believe(self, state: State, client: Client, credits: "Credits", count: Number) -> State:
        """What follows from answers that have been heard: Mt^-1, the spreads, and theta, which is drawn to theta_t."""
        inverse = credits.inverse
        change = (1 - self.lam) * (inverse @ state.moment) - state.level.ridge.extra_moment
        level = spread.after_rows(state.level, inverse)
        return state._replace(
            level=spread.add_to_moment(level, inverse, client.arms, change, self.lam),
            inverse=inverse,
            questions=state.questions + count,
            term_widths=None if state.term_widths is None else credits.widths,
        )

    def refresh(self, state: State, client: Client) -> State:
        root, half, inverse, drawn_to = self.key_term_level(state)
        ridge = state.level.ridge._replace(extra_moment=drawn_to)
        ridge = regression.recompute(ridge, client.arms, 1 - self.lam, self.lam)
        return state._replace(level=spread.of(ridge, client.arms, root, half), inverse=inverse)

    def key_term_level(self, state: State) -> tuple[Square, Square, Square, Float[Array, " d"]]:
        """L with Mt = L L', L^-1, Mt^-1 and (1-lam) theta_t, from the sums."""
        eye = jnp.eye(len(state.gram), dtype=state.gram.dtype)
        root = regression.cholesky(self.lam_t * eye + state.gram)
        half = lax.linalg.triangular_solve(root, eye, left_side=True, lower=True)
        inverse = half.T @ half
        return root, half, inverse, (1 - self.lam) * (inverse @ state.moment)

    def theta_hat(self, state: State) -> Float[Array, " d"]:
        return spread.theta_of(state.level)

    def radii(self, state: State, client: Client) -> tuple[Hyperparameter, Hyperparameter]:
        """alpha and alpha_t of the formulas."""
        sigma = client.noise if self.sigma is None else self.sigma
        d = len(state.moment)
        alpha, alpha_t = self.alpha, self.alpha_t
        if isinstance(alpha, str):
            growth = 1 + self.lam * state.level.ridge.observations / ((1 - self.lam) * d)
            alpha = sigma * jnp.sqrt(d * jnp.log(growth / self.delta))
        if isinstance(alpha_t, str):
            inside = d * jnp.log(6.0) + jnp.log(2 * (state.questions + 1) / self.delta)
            alpha_t = sigma * jnp.sqrt(2 * inside) + 2 * jnp.sqrt(self.lam_t) * client.user_bound
        return alpha, alpha_t


class Credits(NamedTuple):
    """What key terms tell of the arms X, c(k) = |X M^-1 Mt^-1 k|^2 / (1 + k' Mt^-1 k), while Mt alone grows.

    Their shadow M^-1 X'X M^-1 tells a key term's effect on the arms without them.
    """

    inverse: Square  # Mt^-1
    influence: Float[Array, " J"]  # |X M^-1 Mt^-1 k|^2
    widths: Float[Array, " J"]  # k' Mt^-1 k

    def of_terms(self) -> Float[Array, " J"]:
        return self.influence / (1 + self.widths)

    def after(self, row: Float[Array, " d"], columns: Float[Array, "d J"], shadow: Square) -> "Credits":
        """With row row' in Mt, in O(J d): Mt^-1 - gain w w' with w = Mt^-1 row; a row of zeros changes nothing."""
        w = self.inverse @ row
        gain = 1 / (1 + row @ w)
        cast = shadow @ w
        along, across = two_products(w, self.inverse @ cast, columns)
        change = gain * along * (gain * (w @ cast) * along - 2 * across)
        inverse = self.inverse - gain * jnp.outer(w, w)
        return Credits(inverse, self.influence + change, self.widths - gain * along**2)


def credits_of(
    columns: Float[Array, "d J"], inverse: Square, shadow: Square, widths: Float[Array, " J"] | None = None
) -> Credits:
    """Credits of key terms given as columns, in O(J d^2); twice that if their widths are not known."""
    influence = forms_of_columns(columns, inverse @ shadow @ inverse)
    return Credits(inverse, influence, forms_of_columns(columns, inverse) if widths is None else widths)


def heard(state: State, credits: Credits, row: Float[Array, " d"], target: Float[Array, ""]) -> State:
    """Add one (feature, target) pair to the key-term regression; `credits` have Mt^-1 before that."""
    level = spread.widen(state.level, row, credits.inverse @ row)
    return state._replace(level=level, gram=state.gram + jnp.outer(row, row), moment=state.moment + target * row)

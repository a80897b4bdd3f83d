"""CLiSK (Liu et al. 2025): LinUCB that asks about key terms which it has perturbed at random."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.client import Client, Info, Questions, ask_in_turn
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.linalg.sampling import many_uniforms
from fedbandit_jax.worlds.world import normal

Score = Callable[[Float[Array, " n"], Bool[Array, " n"]], Float[Array, " n"]]  # of products and what is allowed
ROWS = 128  # key terms that are perturbed at a time, where all of them are


@dataclass(frozen=True, kw_only=True)
class CLiSK(LinUCB):
    r"""LinUCB that asks about the perturbed key term that it likes best; the answer enters the same regression.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{\mathrm{pulls}} x x^\top + \sum_{\mathrm{questions}} \hat k \hat k^\top $$

    $$ \hat k = \arg\max_k \; (k + \varepsilon_k)^\top \hat\theta, \qquad
       \varepsilon_k \sim \mathcal N(0, \rho^2 I), \; \text{each entry given that it is in } [-R, R] $$

    Every question perturbs every key term anew, and the user is asked about the perturbed one. No bonus: what
    explores is the noise. With rho = 0 it asks about one key term for ever. R = None does not truncate: then all
    products with theta_hat are drawn first and the noise of the winner given its product, J + d numbers a question.
    With an R, or with `normalise_smoothed`, J d numbers are drawn, `ROWS` key terms at a time: with 1,000 key terms
    of 50 dimensions and 40 questions in 6,000 rounds, such a run takes three to four times as long.

    Noise makes a key term longer, k' k = 1 + d rho^2 in the mean, while the noise of an answer stays: a larger rho also
    buys answers that tell more. `normalise_smoothed` gives perturbed key terms the length 1, to see how much of a gain
    that is. alpha is a constant or "theory": sigma sqrt(2 log(1/delta) + log(det V / lam^d)) + sqrt(lam) S.

    The rule, the noise and the schedule are as the paper describes them. Defaults are this package's: the paper's
    constants, and that it has no other radius, are not checked against its text.

    When: to explore by questions without looking for directions that are still uncertain.

    Paper: Liu, Li, Dai and Lui, "Leveraging the Power of Conversations: Optimal Key Term Selection in Conversational
    Contextual Bandits", KDD 2025, [arXiv 2505.21393](https://arxiv.org/abs/2505.21393).
    """

    asks_key_terms: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = {
        "answers": ("asks about perturbed key terms", ("mean",)),
        "rewards": ("asks about perturbed key terms, whose means may be too large for clicks", ("gaussian", "uniform")),
    }

    rho: Hyperparameter = param(0.2, low=0, ends="[)", search=Between(0.01, 2))
    R: Hyperparameter = param(None, low=0, ends="()")
    normalise_smoothed: Hyperparameter = False
    schedule: Hyperparameter = "log"

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        _checks.flag("normalise_smoothed", self.normalise_smoothed)

    def radius(self, state: Ridge, client: Client) -> Float[Array, ""]:
        """alpha of the formulas."""
        return theory_or_number(self, state, client)

    def ask(self, state: Ridge, client: Client, questions: Questions) -> tuple[Ridge, Info]:
        def one(i: Int[Array, ""], state: Ridge) -> tuple[Ridge, Int[Array, ""]]:
            k, x = perturbed(client, state.theta, questions.key(i), self.rho, self.R, normalise=self.normalise_smoothed)
            return regression.observe(state, client.arms, x, questions.answer(i, x))[0], k

        return ask_in_turn(questions, one, state)


def theory_or_number(learner: LinUCB, ridge: Ridge, client: Client) -> Float[Array, ""]:
    """A radius by the determinant of V, as questions may be about vectors of any length, and be asked many times."""
    if not isinstance(learner.alpha, str):
        return jnp.asarray(learner.alpha, ridge.theta.dtype)
    sigma = client.noise if learner.sigma is None else learner.sigma
    return regression.determinant_radius(ridge, learner.delta, sigma, client.user_bound)


def perturbed(
    client: Client,
    direction: Float[Array, " d"],
    key: Key[Array, ""],
    rho: Hyperparameter,
    R: Hyperparameter,
    *,
    normalise: bool,
    either_way: bool = False,
) -> tuple[Int[Array, ""], Float[Array, " d"]]:
    """The number of the perturbed key term of the largest product with a direction, or `either_way`; and itself."""
    choose = perturbed_lazily if R is None and not normalise else perturbed_by_blocks

    def score(products: Float[Array, " n"], allowed: Bool[Array, " n"]) -> Float[Array, " n"]:
        return jnp.where(allowed, jnp.abs(products) if either_way else products, -jnp.inf)

    return choose(client, direction, key, rho, R, normalise, score)


def perturbed_lazily(
    client: Client,
    direction: Float[Array, " d"],
    key: Key[Array, ""],
    rho: Hyperparameter,
    R: None,
    normalise: bool,
    score: Score,
) -> tuple[Int[Array, ""], Float[Array, " d"]]:
    """Draw each key term's noise along `direction` only; draw the orthogonal part for the winner.

    Gaussian noise along a direction g of length 1 is rho z, so z of all key terms decides the winner.
    """
    assert client.term_mask is not None
    J, d = client.key_terms.shape
    z = normal(many_uniforms(key, J + d)).astype(direction.dtype)
    length = jnp.linalg.norm(direction)
    g = direction / jnp.where(length > 0, length, 1)
    k = argmax(score(client.key_terms @ direction + rho * length * z[:J], client.term_mask))
    across = z[J:] - (g @ z[J:]) * g
    # All of it is across a direction that is 0.
    return k, client.key_terms[k] + rho * (across + z[k] * g)


def perturbed_by_blocks(
    client: Client,
    direction: Float[Array, " d"],
    key: Key[Array, ""],
    rho: Hyperparameter,
    R: Hyperparameter,
    normalise: bool,
    score: Score,
) -> tuple[Int[Array, ""], Float[Array, " d"]]:
    """All key terms are perturbed, some at a time: J x d numbers of every run of a batch would fill a GPU's memory."""
    assert client.term_mask is not None
    J, d = client.key_terms.shape
    rows = min(J, ROWS)
    blocks = -(-J // rows)
    terms = jnp.pad(client.key_terms, ((0, blocks * rows - J), (0, 0)))
    mask = jnp.pad(client.term_mask, (0, blocks * rows - J))

    def block(i: Int[Array, ""], best: tuple) -> tuple:
        at = lax.dynamic_slice_in_dim(terms, i * rows, rows)
        x = at + noise_of_rows(jax.random.fold_in(key, i), rows, d, rho, R).astype(at.dtype)
        if normalise:
            x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        scores = score(x @ direction, lax.dynamic_slice_in_dim(mask, i * rows, rows))
        j = argmax(scores)
        found = (scores[j], i * rows + j, x[j])
        return jax.tree.map(lambda new, old: jnp.where(scores[j] > best[0], new, old), found, best)

    start = (jnp.asarray(-jnp.inf, terms.dtype), jnp.int32(0), terms[0])
    return lax.fori_loop(0, blocks, block, start)[1:]


def noise_of_rows(
    key: Key[Array, ""], rows: int, dim: int, rho: Hyperparameter, R: Hyperparameter
) -> Float[Array, "rows dim"]:
    """Normal numbers, each given that it is in [-R, R], by the inverse of their distribution.

    In float32, so that both precisions play the same run.
    """
    rho = jnp.asarray(rho, jnp.float32)
    u = many_uniforms(key, rows * dim).reshape(rows, dim)
    if R is not None:
        u = u * lax.erf(jnp.asarray(R, jnp.float32) / (rho * math.sqrt(2)))  # what is in [-R, R]; all, if rho is 0
    return rho * normal(u)

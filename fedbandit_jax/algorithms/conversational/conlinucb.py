"""ConLinUCB: LinUCB whose questions about key terms enter the same regression (Wang et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.rounds import Client, Info, Questions, ask_in_turn
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.linalg.representatives import Spanner, barycentric_spanner

DEFAULT_LAM = {"BS": 0.15, "MCR": 0.15, "UCB": 0.2}  # of the public code


@dataclass(frozen=True, kw_only=True)
class ConLinUCB(LinUCB):
    r"""LinUCB that asks about key terms, which enter the same regression; a strategy chooses them.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{\mathrm{pulls}} x x^\top + \sum_{\mathrm{questions}} k k^\top $$

    "BS": uniformly from a barycentric spanner of the key terms (`spanner_factor` is its c). "MCR": the key term with
    the largest confidence width, k' V^-1 k. "UCB": the largest k.theta_hat + alpha sqrt(k' V^-1 k). lam=None is the
    constant of the public code: 0.15 for BS and MCR, 0.2 for UCB.

    When: as the strongest conversational baseline of a single client; "BS" needs no sweep over key terms.

    Paper: Wang, Liu, Li and Lui, "Efficient Explorative Key-term Selection Strategies for Conversational Contextual
    Bandits", AAAI 2023, [arXiv 2303.00315](https://arxiv.org/abs/2303.00315).
    """

    asks_key_terms: ClassVar[bool] = True

    strategy: Hyperparameter = param("BS", words=tuple(DEFAULT_LAM))
    alpha: Hyperparameter = param(0.1, low=0, ends="[)", words=("theory",), search=Between(0.01, 2))
    lam: Hyperparameter = param(None, low=0, ends="()", search=Between(0.01, 10))
    schedule: Hyperparameter = "log"
    # Static, so that all runs of a batch share one spanner.
    spanner_factor: Hyperparameter = param(2.0, low=1, ends="()", static=True)

    @property
    def title(self) -> str:
        return f"{self.name}-{self.strategy}"

    def prepare(self, horizon: int) -> Algorithm:
        lam = DEFAULT_LAM.get(self.strategy) if self.lam is None else self.lam
        return super().prepare(horizon).replace(lam=lam)

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> Spanner | None:
        return barycentric_spanner(key_terms, self.spanner_factor) if self.strategy == "BS" else None

    def ask(self, state: Ridge, client: Client, questions: Questions) -> tuple[Ridge, Info]:
        terms = client.key_terms

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            ridge, widths = carry
            k = self.choose_key_term(ridge, widths, client, questions.key(i))
            ridge, update = regression.observe(ridge, client.arms, terms[k], questions.about(i, k))
            if widths is not None:
                widths = widths - update.gain * (terms @ update.u) ** 2
            return (ridge, widths), k

        # The widths of all J key terms cost O(J d^2) once, then O(J d) a question.
        widths = None if self.strategy == "BS" else ((terms @ state.inverse) * terms).sum(axis=1)
        (state, _), info = ask_in_turn(questions, one, (state, widths))
        return state, info

    def choose_key_term(
        self, ridge: Ridge, widths: Float[Array, " J"] | None, client: Client, key: Key[Array, ""]
    ) -> Int[Array, ""]:
        """The strategy; `widths` are k' V^-1 k, `key` is the question's."""
        if widths is None:
            return spanner_term(key, client)
        if self.strategy == "MCR":
            return argmax(client.among_candidates(widths))
        lengths = jnp.sqrt(jnp.maximum(widths, 0))
        scores = client.key_terms @ ridge.theta + self.radius(ridge, client) * lengths
        return argmax(client.among_candidates(scores))


def spanner_term(key: Key[Array, ""], client: Client) -> Int[Array, ""]:
    """A member of the spanner that may be asked about; any such key term where the spanner has none."""
    spanner: Spanner = client.context
    if client.every_term:
        return spanner.indices[spanner_pick(key, spanner.rank)]
    assert client.term_mask is not None
    members = jnp.arange(spanner.indices.size) < spanner.rank
    inside = jnp.zeros_like(client.term_mask)
    inside = inside.at[jnp.where(members, spanner.indices, inside.size)].set(True, mode="drop")
    allowed = client.term_mask & inside
    allowed = jnp.where(allowed.any(), allowed, client.term_mask)
    place = spanner_pick(key, allowed.sum(dtype=jnp.int32))
    return argmax((jnp.cumsum(allowed) > place).astype(client.key_terms.dtype))  # the first with so many before it


def spanner_pick(key: Key[Array, ""], rank: Int[Array, ""]) -> Int[Array, ""]:
    """A uniform draw from range(rank)."""
    return jax.random.randint(key, (), 0, rank, jnp.int32)

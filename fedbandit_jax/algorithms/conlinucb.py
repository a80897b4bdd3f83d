"""ConLinUCB: LinUCB whose questions about key terms enter the same regression (Wang et al. 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks, regression
from fedbandit_jax._argmax import argmax
from fedbandit_jax.algorithms.base import Algorithm, Hyperparameter
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.algorithms.rounds import Client, question_noise
from fedbandit_jax.regression import Ridge
from fedbandit_jax.spanner import Spanner, barycentric_spanner

DEFAULT_LAM = {"BS": 0.15, "MCR": 0.15, "UCB": 0.2}  # of the public code


@dataclass(frozen=True, kw_only=True)
class ConLinUCB(LinUCB):
    """LinUCB that asks about key terms, chosen by a strategy:

    "BS": uniformly from a barycentric spanner of the key terms (`spanner_factor` is its c). "MCR": the key term with
    the largest confidence width, k' V^-1 k. "UCB": the largest k.theta_hat + alpha sqrt(k' V^-1 k). lam=None is the
    constant of the public code: 0.15 for BS and MCR, 0.2 for UCB.
    """

    asks_key_terms: ClassVar[bool] = True
    static: ClassVar[tuple[str, ...]] = ("spanner_factor",)  # so that all runs of a batch share one spanner

    strategy: Hyperparameter = "BS"
    alpha: Hyperparameter = 0.1
    lam: Hyperparameter = None
    schedule: Hyperparameter = "log"
    spanner_factor: Hyperparameter = 2.0

    @property
    def title(self) -> str:
        return f"{self.name}-{self.strategy}"

    def check(self, **setting: Any) -> None:
        _checks.choice("strategy", self.strategy, DEFAULT_LAM)
        _checks.real("spanner_factor", self.spanner_factor, 1, float("inf"), "()")
        super().check(**setting)

    def prepare(self, horizon: int) -> Algorithm:
        lam = DEFAULT_LAM[_checks.choice("strategy", self.strategy, DEFAULT_LAM)] if self.lam is None else self.lam
        return super().prepare(horizon).replace(lam=lam)

    def context(self, key_terms: Float[Array, "J d"]) -> Spanner | None:
        return barycentric_spanner(key_terms, self.spanner_factor) if self.strategy == "BS" else None

    def ask(
        self, state: Ridge, client: Client, first: Int[Array, ""], count: Int[Array, ""], key: Key[Array, ""]
    ) -> Ridge:
        terms = client.key_terms

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            ridge, widths = carry
            k = terms[self.choose_key_term(ridge, widths, client, jax.random.fold_in(key, first + i))]
            answer = client.answer(k, question_noise(key, first + i, k.dtype))
            ridge, step = regression.observe(ridge, client.arms, k, answer)
            if widths is not None:
                widths = widths - step.gain * (terms @ step.u) ** 2
            return ridge, widths

        # The widths of all J key terms cost O(J d^2) once, then O(J d) a question.
        widths = None if self.strategy == "BS" else ((terms @ state.inverse) * terms).sum(axis=1)
        return lax.fori_loop(0, count, one, (state, widths))[0]

    def choose_key_term(
        self, ridge: Ridge, widths: Float[Array, " J"] | None, client: Client, key: Key[Array, ""]
    ) -> Int[Array, ""]:
        """The strategy; `widths` are k' V^-1 k, `key` is the question's."""
        if widths is None:
            spanner = client.context
            return spanner.indices[spanner_pick(key, spanner.rank)]
        if self.strategy == "MCR":
            return argmax(widths)
        lengths = jnp.sqrt(jnp.maximum(widths, 0))
        return argmax(client.key_terms @ ridge.theta + self.radius(ridge, client) * lengths)


def spanner_pick(key: Key[Array, ""], rank: Int[Array, ""]) -> Int[Array, ""]:
    """A uniform draw from range(rank), from another key than the question's noise."""
    return jax.random.randint(jax.random.fold_in(key, 1), (), 0, rank, jnp.int32)

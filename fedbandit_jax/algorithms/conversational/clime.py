"""CLiME (Liu et al. 2025): LinUCB that asks when, and as often as, a direction is too uncertain."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Hyperparameter, param
from fedbandit_jax.algorithms.conversational.clisk import theory_or_number
from fedbandit_jax.algorithms.federated.fedconpe import coverage
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.client import Client, Info, Questions
from fedbandit_jax.clocks.phases import CEIL_SLACK
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.eigenvalues import eigenpairs
from fedbandit_jax.linalg.portable import any_lane, argmax, largest_of_lanes
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

POWERS = tuple(2**k for k in range(31))  # of two, up to 10^9 rounds
SHARE = 0.5  # level=None: so many questions a round at most


@dataclass(frozen=True, kw_only=True)
class CLiME(LinUCB):
    r"""LinUCB that sees to the least eigenvalue of V: where it lags behind, questions make up for it.

    $$ x_t = \arg\max_x \; x^\top \hat\theta + \alpha \sqrt{x^\top V^{-1} x}, \qquad
       V = \lambda I + \sum_{\mathrm{pulls}} x x^\top + \sum_{\mathrm{questions}} k k^\top
         = \sum_i \lambda_i v_i v_i^\top $$

    In a round t that checks, for every direction with $\lambda_i < \ell t$, it asks about the key term nearest to it:

    $$ k_i = \arg\max_k \; |k^\top v_i|, \qquad n_i = \left\lceil \frac{\ell t - \lambda_i}{c_0^2} \right\rceil
       \text{ times} $$

    All directions of a check come from one eigendecomposition, before its first question. `level` is l, the paper's
    exploration level alpha, below c0^2/d; None is half of that. Then it asks less than one question a round, level d /
    c0^2, taken over the run. c0 is the least |k.v| that the key terms offer every unit v; None is the catalog's
    `realised_C`. A level of 0.05, the public setting, is at the edge in ten dimensions, as it needs c0 > 0.707: where
    the key terms offer 0.693, c0^2/d is 0.048 and level=0.05 is refused.

    `checks` says when: "exponential", in rounds 1, 2, 4, 8 and so on; "interval", every `interval` rounds;
    "continuous", in every round, at the cost of an eigendecomposition each. alpha is LinUCB's: a constant or "theory",
    sigma sqrt(2 log(1/delta) + log(det V / lam^d)) + sqrt(lam) S.

    No eigenvalue is below lam, so it asks nothing before round lam / level.

    The structure is the paper's; the number of questions, what c0 is to it, and the rules for checking are from memory,
    not checked against its text. SHARE and the other defaults are this package's.

    When: questions may come in bursts, and should stop where pulls have told enough.

    Paper: Liu, Li, Dai and Lui, "Leveraging the Power of Conversations: Optimal Key Term Selection in Conversational
    Contextual Bandits", KDD 2025, [arXiv 2505.21393](https://arxiv.org/abs/2505.21393).
    """

    asks_key_terms: ClassVar[bool] = True
    asks_as_it_likes: ClassVar[bool] = True
    needs: ClassVar[str] = "it asks a question many times, which needs `sum_of_rewards` where `reward` is its own"

    level: Hyperparameter = param(None, low=0, ends="()")
    c0: Hyperparameter = param(None, low=0, high=1, ends="(]")
    checks: Hyperparameter = param("exponential", words=("exponential", "interval", "continuous"))
    interval: Hyperparameter = param(50, low=1, static=True)

    def check(self, *, dim: int, **setting: Any) -> None:
        super().check(dim=dim, **setting)
        _checks.whole("interval", self.interval)
        if self.level is None or self.c0 is None:
            return
        most = self.c0**2 / dim
        if self.level >= most:
            allowed = f"it must be below c0^2/d = {most:.6g}, or questions would be more than rounds"
            _checks.fail("level", self.level, f"{allowed}; None takes {SHARE * most:.3g}")

    def for_catalog(self, catalog: Catalog) -> Algorithm:
        return self.replace(c0=coverage("c0", self.c0, catalog)) if self.c0 is None else self

    def plays_in(self, world: World) -> bool:
        return world.sums_up

    def question_schedule(self) -> Schedule:
        """The rounds that check."""
        if self.checks == "exponential":
            return Schedule(self.checks, POWERS, (1,) * len(POWERS))
        return Schedule(self.checks, (), (), every=1 if self.checks == "continuous" else int(self.interval))

    def radius(self, state: Ridge, client: Client) -> Float[Array, ""]:
        """alpha of the formulas."""
        return theory_or_number(self, state, client)

    def ask(self, state: Ridge, client: Client, questions: Questions) -> tuple[Ridge, Info]:
        if self.c0 is None:
            _checks.fail("c0", self.c0, "outside simulate and sweep, call algorithm.for_catalog(catalog) first")
        level = SHARE * self.c0**2 / state.theta.size if self.level is None else self.level
        goal = level * (state.observations + 1)  # these are pulls alone: see below

        nothing = dict.fromkeys(("conversations", "regret"), jnp.zeros_like(goal))

        def look(state: Ridge) -> tuple[Ridge, Info]:
            # Without the prior, as directions that nobody has seen get a basis that rounding does not change.
            eigenvalues, vectors = eigenpairs(regression.seen(state, client.arms))
            lacking = jnp.ceil((goal - self.lam - eigenvalues) / self.c0**2 - CEIL_SLACK)
            times = jnp.maximum(lacking, 0)
            return lax.cond(any_lane(times.any()), talk, lambda state, *_: (state, nothing), state, vectors, times)

        def talk(state: Ridge, vectors: Float[Array, "d d"], times: Float[Array, " d"]) -> tuple[Ridge, Info]:
            numbers = jnp.arange(times.size, dtype=jnp.int32)

            # One direction after another: products of all of them and all key terms would be large. Those that lack
            # something come first, as eigenvalues ascend.
            def look_near(i: Int[Array, ""], found: tuple) -> tuple:
                term, row = self.near(client, vectors[:, i], questions.key(i))
                return found[0].at[i].set(term), found[1].at[i].set(row)

            nothing_yet = (jnp.zeros_like(numbers), jnp.zeros_like(vectors))
            terms, rows = lax.fori_loop(0, largest_of_lanes((times > 0).sum(dtype=jnp.int32)), look_near, nothing_yet)
            sums = jax.vmap(lambda *given: self.answers(questions, *given))(numbers, terms, rows, times)
            # Questions do not count as observations, so that these tell the round.
            asked = self.refresh(regression.observe_sums(state, rows, times, sums), client)
            spent = (times * jax.vmap(questions.cost)(terms)).sum()
            return asked, {"conversations": times.sum(), "regret": spent}

        # No eigenvalue is below lam.
        state, told = lax.cond(any_lane(goal > self.lam), look, lambda state: (state, nothing), state)
        return state, told if questions.charged else {"conversations": told["conversations"]}

    def near(
        self, client: Client, direction: Float[Array, " d"], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Float[Array, " d"]]:
        """The key term to ask about for the sake of a direction: its number, and the vector that the user is asked."""
        k = argmax(client.among_candidates(jnp.abs(client.key_terms @ direction)))
        return k, client.key_terms[k]

    def answers(
        self, questions: Questions, i: Int[Array, ""], k: Int[Array, ""], x: Float[Array, " d"], n: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The sum of n answers."""
        return questions.about(i, k, n)

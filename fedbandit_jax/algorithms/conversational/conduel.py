"""ConDuel (Yang et al. 2024): the user compares two arms in every round, and two key terms in every question."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.rounds import Client, Info, Questions, RoundAlgorithm
from fedbandit_jax.linalg import logistic, regression
from fedbandit_jax.linalg.logistic import Logistic
from fedbandit_jax.linalg.portable import argmax, matvec
from fedbandit_jax.linalg.sampling import random_words
from fedbandit_jax.linalg.spanner import Spanner, barycentric_spanner


class State(NamedTuple):
    duels: Logistic  # of arms and key terms
    gram: Float[Array, "d d"]  # sum z z' of the differences z
    inverse: Float[Array, "d d"]  # M^-1 = (lam kappa I + sum z z')^-1
    squares: Float[Array, "..."]  # (x - y)' M^-1 (x - y) of all pairs of a fixed arm set; nothing of redrawn arms
    rounds: Int[Array, ""]  # played so far
    unfitted: Int[Array, ""]  # duels since the last fit


@dataclass(frozen=True, kw_only=True)
class ConDuel(RoundAlgorithm):
    r"""Duels: the user says which of two arms is better, and in a question which of two key terms.

    $$ P(x \succ y) = \sigma\left((x - y)^\top \theta\right), \qquad
       C_t = \left\{ x : (x - y)^\top \hat\theta + \alpha \lVert x - y \rVert_{M^{-1}} \ge 0 \;\; \forall y \right\} $$

    The first arm of a duel is drawn from the confidence set C, the second is the one of C that is least known
    beside it:

    $$ x_t \sim U(C_t), \qquad y_t = \arg\max_{y \in C_t} \; \lVert y - x_t \rVert_{M^{-1}}, \qquad
       M = \lambda \bar\kappa I + \sum_{\mathrm{duels}} z z^\top, \quad z = x - y $$

    theta_hat is the logistic maximum-likelihood estimate with the penalty lam/2 |theta|^2 from all duels, questions
    included. kappa = 1/(s (1-s)) with s = sigmoid(S), S a bound on the norm of theta. A round's regret is the mean loss
    of its two arms; `weak_regret` is that of the better one, `strong_regret` of the worse.

    "BS" asks about two random members of a barycentric spanner of the key terms (`spanner_factor` is its c), "random"
    about two random key terms, "max" about a random one and the one that is least known beside it. The schedule counts
    comparisons.

    The arms of the first `length` rounds are drawn at random. The public code plays such duels before its first round
    and does not count their regret; here they are rounds like all others.

    theta_hat is fitted anew after each of the first `every` rounds, and then as soon as there are so many new duels,
    as in the public code, whose versions differ in these numbers. The last `window` duels are kept as they are and
    older ones as a quadratic, the expansion of their likelihood around the estimate of the time at which they left: so
    memory does not grow with the horizon. A window of all duels and questions gives the exact estimate.

    On fixed arms C may shrink to a single arm, which then duels with itself: from there on only questions teach
    anything. The constants of the public code, which redraws arms, let that happen early; a larger alpha delays it.

    When: users compare, and do not rate.

    Paper: Yang, Yuan, Zhang, Wang, Zhang and Wang, "Conversational Dueling Bandits in Generalized Linear Models",
    KDD 2024, [arXiv 2407.18488](https://arxiv.org/abs/2407.18488).
    """

    asks_key_terms: ClassVar[bool] = True
    duels: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = {
        "answers": ("compares key terms as vectors", ("mean",)),
        "candidates": ("asks about any key term", ("all",)),
    }

    strategy: Hyperparameter = param("BS", words=("BS", "random", "max"))
    alpha: Hyperparameter = param(1.5, low=0, ends="[)", search=Between(0.05, 5))
    lam: Hyperparameter = param(5.0, low=0, ends="()", search=Between(0.1, 20))
    S: Hyperparameter = param(2.0, low=0, ends="[)")
    length: Hyperparameter = param(50, low=0, ends="[)")
    schedule: Hyperparameter = "10 linear"
    # Static, so that a fit is rare in a whole batch at once.
    every: Hyperparameter = param(100, low=1, ends="[)", static=True)
    window: Hyperparameter = param(256, low=1, ends="[)", static=True)
    spanner_factor: Hyperparameter = param(2.0, low=1, ends="()", static=True)

    @property
    def title(self) -> str:
        return self.name if self.strategy == "BS" else f"{self.name}-{self.strategy}"

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        super().check(dim=dim, clients=clients, arms=arms, horizon=horizon, noise=noise)
        for name in ("length", "every", "window"):
            _checks.whole(name, getattr(self, name), 0 if name == "length" else 1)

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None = None) -> Spanner | None:
        return barycentric_spanner(key_terms, self.spanner_factor) if self.strategy == "BS" else None

    def start(self, client: Client) -> State:
        d, dtype = client.arms.shape[1], client.arms.dtype
        zero, inverse = jnp.zeros((d, d), dtype), jnp.eye(d, dtype=dtype) / jnp.asarray(self.prior(), dtype)
        duels, none = logistic.start(d, self.window, dtype), jnp.int32(0)
        return State(duels, zero, inverse, of_pairs(client, inverse), none, none)

    def prior(self) -> Float[Array, ""]:
        """lam kappa."""
        s = jax.nn.sigmoid(self.S)
        return self.lam / (s * (1 - s))

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, " 2"]:
        lots = draw_lots(key, len(client.arms))
        means = matvec(client.arms, state.duels.theta)
        squares = jnp.maximum(state.squares if client.fixed else squared_distances(client.arms, state.inverse), 0)
        # Squared and added up by a product, as XLA shares roots and reductions of so many numbers out to threads.
        behind = jnp.where(client.mask, means, -jnp.inf)[None, :] - means[:, None]  # padding is ahead of nobody
        beaten = (behind * jnp.abs(behind) > self.alpha**2 * squares).astype(means.dtype)
        candidates = client.mask & (matvec(beaten, jnp.ones_like(means)) == 0)
        first = one_of(candidates, lots)
        second = argmax(jnp.where(candidates, squares[first], -jnp.inf))
        return jnp.where(state.rounds < self.length, two_of(client.mask, lots), jnp.stack([first, second]))

    def learn(self, state: State, client: Client, arm: Int[Array, " 2"], reward: Float[Array, ""]) -> State:
        state = self.observe(state, client, client.arms[arm[0]] - client.arms[arm[1]], reward)
        due = (state.rounds < self.every) | (state.unfitted >= self.every)
        # The clock alone decides this. A loop of no or one pass, as a branch would copy the window in every round.
        theta = lax.fori_loop(
            0,
            due.astype(jnp.int32),
            lambda _, theta: logistic.fit(state.duels._replace(theta=theta), self.lam).theta,
            state.duels.theta,
        )
        return state._replace(
            duels=state.duels._replace(theta=theta),
            rounds=state.rounds + 1,
            unfitted=jnp.where(due, 0, state.unfitted),
        )

    def observe(self, state: State, client: Client, z: Float[Array, " d"], won: Float[Array, ""]) -> State:
        """After a duel of a difference z, of arms or key terms; theta_hat is not fitted anew."""
        u = matvec(state.inverse, z)
        gain = 1 / (1 + z @ u)
        if client.fixed:
            along = matvec(client.arms, u)
            state = state._replace(squares=state.squares - gain * (along[:, None] - along[None, :]) ** 2)
        return state._replace(
            duels=logistic.observe(state.duels, z, won),
            gram=state.gram + jnp.outer(z, z),
            inverse=state.inverse - gain * jnp.outer(u, u),
            unfitted=state.unfitted + 1,
        )

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        terms = client.key_terms

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            state, lost = carry
            k, other = self.choose_key_terms(state, client, questions.key(i))
            won = questions.duel(i, terms[k], terms[other]).astype(terms.dtype)
            cost = (questions.cost(k) + questions.cost(other)) / 2
            return self.observe(state, client, terms[k] - terms[other], won), lost + cost

        start = (state, jnp.zeros((), terms.dtype))
        state, lost = lax.fori_loop(0, questions.count, one, start)
        return state, {"regret": lost}

    def choose_key_terms(self, state: State, client: Client, key: Key[Array, ""]) -> tuple:
        """The strategy; `key` is the question's."""
        terms = client.key_terms
        anyone = jnp.ones(len(terms), bool)
        if self.strategy == "BS":
            spanner = client.context
            places = jnp.arange(spanner.indices.size) < spanner.rank
            return tuple(spanner.indices[two_of(places, draw_lots(key, places.size))])
        lots = draw_lots(key, len(terms))
        if self.strategy == "random":
            return tuple(two_of(anyone, lots))
        first = one_of(anyone, lots)
        widths = regression.quadratic_forms(terms - terms[first][None, :], state.inverse)
        return first, argmax(widths)

    def refresh(self, state: State, client: Client) -> State:
        eye = jnp.eye(len(state.gram), dtype=state.gram.dtype)
        factor = regression.cholesky(self.prior() * eye + state.gram)
        half = lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)
        inverse = half.T @ half
        return state._replace(inverse=inverse, squares=of_pairs(client, inverse))

    def theta_hat(self, state: State) -> Float[Array, " d"]:
        return state.duels.theta


def squared_distances(arms: Float[Array, "K d"], inverse: Float[Array, "d d"]) -> Float[Array, "K K"]:
    """(x - y)' M^-1 (x - y) of all pairs."""
    inner = (arms @ inverse) @ arms.T
    own = jnp.diag(inner)
    return own[:, None] + own[None, :] - (inner + inner.T)


def of_pairs(client: Client, inverse: Float[Array, "d d"]) -> Float[Array, "..."]:
    """`squared_distances` of a fixed arm set."""
    return squared_distances(client.arms, inverse) if client.fixed else jnp.zeros(0, inverse.dtype)


def draw_lots(key: Key[Array, ""], n: int) -> Float[Array, " n"]:
    """A number for each of n, in float32 so that both precisions play the same run; fewer are a prefix of more."""
    return (random_words(key[None], n)[:, 0] >> 9).astype(jnp.float32) * 2.0**-23


def one_of(mask: Bool[Array, " n"], lots: Float[Array, " n"]) -> Int[Array, ""]:
    """Whoever has drawn the largest lot: uniform among those that the mask allows."""
    return argmax(jnp.where(mask, lots, -1))


def two_of(mask: Bool[Array, " n"], lots: Float[Array, " n"]) -> Int[Array, " 2"]:
    """Those with the two largest lots; one twice if there are no two."""
    first = one_of(mask, lots)
    others = mask & (jnp.arange(mask.size) != first)
    return jnp.stack([first, jnp.where(others.any(), one_of(others, lots), first)])

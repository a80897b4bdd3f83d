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
from fedbandit_jax.linalg import Real, logistic
from fedbandit_jax.linalg.design import half_inverse
from fedbandit_jax.linalg.forms import quadratic_forms
from fedbandit_jax.linalg.logistic import Logistic
from fedbandit_jax.linalg.portable import argmax, in_turn, matvec, when
from fedbandit_jax.linalg.representatives import Spanner, barycentric_spanner
from fedbandit_jax.linalg.sampling import random_words

Square = Float[Array, "d d"]
MOST_PAIRS = 10**6  # that `window` may keep


class Pairs(NamedTuple):
    """State for a fixed arm set. A duel updates it without M^-1, which is computed only where questions need it."""

    means: Float[Array, " K"]  # x.theta_hat
    squares: Float[Array, "K K"]  # (x - y)' M^-1 (x - y)


class State(NamedTuple):
    duels: Logistic  # of arms and key terms
    gram: Square  # sum z z' of the differences z
    known: Pairs | Square  # of arms that are redrawn, M^-1 = (lam kappa I + sum z z')^-1
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
        _checks.whole("length", self.length, 0)
        _checks.whole("every", self.every)
        _checks.whole("window", self.window, 1, MOST_PAIRS, "every client keeps so many pairs of arms")

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None = None) -> Spanner | None:
        return barycentric_spanner(key_terms, self.spanner_factor) if self.strategy == "BS" else None

    def start(self, client: Client) -> State:
        d, dtype = client.arms.shape[1], client.arms.dtype
        zero, inverse = jnp.zeros((d, d), dtype), jnp.eye(d, dtype=dtype) / jnp.asarray(self.prior(), dtype)
        duels, none = logistic.start(d, int(self.window), dtype), jnp.int32(0)
        return State(duels, zero, known_of(client, inverse, duels), none, none)

    def prior(self) -> Float[Array, ""]:
        """lam kappa."""
        s = jax.nn.sigmoid(jnp.asarray(self.S, float))
        return jnp.asarray(self.lam, float) / (s * (1 - s))

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, " 2"]:
        known = state.known
        means, squares = known if isinstance(known, Pairs) else pairs_of(client, known, state.duels)
        at_first = state.rounds < self.length
        candidates = client.mask & (at_first | in_turn(unbeaten, means, squares, client.mask, self.alpha))
        lots = draw_lots(key, len(client.arms))
        first = one_of(candidates, lots)
        others = jnp.where(jnp.arange(lots.size) == first, -1, lots).astype(means.dtype)
        distances = jnp.where(at_first, others, jnp.maximum(squares[first], 0))
        return jnp.stack([first, argmax(jnp.where(candidates, distances, -jnp.inf))])

    def learn(self, state: State, client: Client, arm: Int[Array, " 2"], reward: Float[Array, ""]) -> State:
        z = client.arms[arm[0]] - client.arms[arm[1]]
        known = state.known
        if isinstance(known, Pairs):
            # Of x' M^-1 z only differences count, and 2 (x - y)' M^-1 z are those of |x - second|^2 - |x - first|^2.
            first, second = known.squares[arm[0]], known.squares[arm[1]]
            known = known._replace(squares=less(known.squares, (second - first) / 2, 1 / (1 + second[arm[0]])))
        else:
            known = after(known, z)[0]
        state = self.observe(state, z, reward)._replace(known=known)
        due = (state.rounds < self.every) | (state.unfitted >= self.every)

        def fit(fitted: tuple) -> tuple:
            theta = in_turn(theta_of_fit, state.duels._replace(theta=fitted[0]), self.lam)
            return (theta, *(matvec(client.arms, theta) for _ in fitted[1:]))

        before = (state.duels.theta, *([known.means] if isinstance(known, Pairs) else []))
        theta, *means = when(due, fit, before)  # the clock alone decides this
        return state._replace(
            duels=state.duels._replace(theta=theta),
            known=known._replace(means=means[0]) if isinstance(known, Pairs) else known,
            rounds=state.rounds + 1,
            unfitted=jnp.where(due, 0, state.unfitted),
        )

    def observe(self, state: State, z: Float[Array, " d"], won: Float[Array, ""]) -> State:
        """The sums after a duel of a difference z, of arms or key terms; nothing that follows from them."""
        duels, gram = logistic.observe(state.duels, z, won), state.gram + jnp.outer(z, z)
        return state._replace(duels=duels, gram=gram, unfitted=state.unfitted + 1)

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        terms = client.key_terms

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            state, inverse, lost = carry
            k, other = self.choose_key_terms(inverse, client, questions.key(i))
            z, won = terms[k] - terms[other], questions.duel(i, terms[k], terms[other]).astype(terms.dtype)
            inverse, u, gain = after(inverse, z)
            if isinstance(state.known, Pairs):
                squares = less(state.known.squares, matvec(client.arms, u), gain)
                state = state._replace(known=state.known._replace(squares=squares))
            cost = (questions.cost(k) + questions.cost(other)) / 2
            return self.observe(state, z, won), inverse, lost + cost

        inverse = self.inverse(state) if isinstance(state.known, Pairs) else state.known
        start = (state, inverse, jnp.zeros((), terms.dtype))
        state, inverse, lost = lax.fori_loop(0, questions.count, one, start)
        return state if client.fixed else state._replace(known=inverse), {"regret": lost}

    def choose_key_terms(self, inverse: Square, client: Client, key: Key[Array, ""]) -> tuple:
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
        widths = quadratic_forms(terms - terms[first][None, :], inverse)
        return first, argmax(widths)

    def refresh(self, state: State, client: Client) -> State:
        return state._replace(known=known_of(client, self.inverse(state), state.duels))

    def inverse(self, state: State) -> Square:
        """M^-1, from the sum."""
        half = half_inverse(self.prior() * jnp.eye(len(state.gram), dtype=state.gram.dtype) + state.gram)
        return half.T @ half

    def theta_hat(self, state: State) -> Float[Array, " d"]:
        return state.duels.theta


def squared_distances(arms: Float[Array, "K d"], inverse: Square) -> Float[Array, "K K"]:
    """(x - y)' M^-1 (x - y) of all pairs."""
    inner = (arms @ inverse) @ arms.T
    own = jnp.diag(inner)
    return own[:, None] + own[None, :] - (inner + inner.T)


def pairs_of(client: Client, inverse: Square, duels: Logistic) -> Pairs:
    return Pairs(matvec(client.arms, duels.theta), squared_distances(client.arms, inverse))


def known_of(client: Client, inverse: Square, duels: Logistic) -> Pairs | Square:
    """What rounds need."""
    return pairs_of(client, inverse, duels) if client.fixed else inverse


def theta_of_fit(duels: Logistic, lam: Real) -> Float[Array, " d"]:
    return logistic.fit(duels, lam).theta


def after(inverse: Square, z: Float[Array, " d"]) -> tuple[Square, Float[Array, " d"], Float[Array, ""]]:
    """(M + z z')^-1 = M^-1 - gain u u'; u = M^-1 z and the gain."""
    u = matvec(inverse, z)
    gain = 1 / (1 + z @ u)
    return inverse - gain * jnp.outer(u, u), u, gain


def less(squares: Float[Array, "K K"], along: Float[Array, " K"], gain: Float[Array, ""]) -> Float[Array, "K K"]:
    """The squares after a duel whose M^-1 z has these products with the arms."""
    return squares - gain * (along[:, None] - along[None, :]) ** 2


def unbeaten(
    means: Float[Array, " K"], squares: Float[Array, "K K"], mask: Bool[Array, " K"], alpha: Real
) -> Bool[Array, " K"]:
    """Which arms no other is ahead of by more than alpha |x - y|.

    Squared, as roots of so many numbers take long, and added up by a product, as CPUs sum one entry after another.
    """
    behind = jnp.where(mask, means, -jnp.inf)[None, :] - means[:, None]  # padding is ahead of nobody
    beaten = (behind * jnp.abs(behind) > alpha**2 * jnp.maximum(squares, 0)).astype(means.dtype)
    return matvec(beaten, jnp.ones_like(means)) == 0


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

"""FedConPE (IJCAI 2024): its client, its server, and the messages through which alone they meet.

A phase, eps = 2^-l, LOG = log(2 K M log(T) / delta), s = 3 / (4 (1 - eps^2) d N):

    client  find_uncertain_directions   G-optimal design; eigenpairs below s          -> UncertainDirections
    server  choose_key_terms            the nearest key term to each, and how often   -> KeyTerms
    client  play                        pulls and questions, their sums               -> Statistics
    server  estimate                    least squares over all clients and phases     -> theta_hat
    client  eliminate                   keeps arms within 2 sqrt(N/M) eps of the best
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._argmax import argmax_rows
from fedbandit_jax.algorithms.base import Hyperparameter, Trace
from fedbandit_jax.algorithms.phases import (
    Clock,
    Phase,
    PhaseElimination,
    Randomness,
    asked_after,
    diagnose,
    draw,
    end_together,
    pull_counts,
    pulls_after,
    round_counts,
    run_phases,
)
from fedbandit_jax.design import g_optimal_design, random_rotation
from fedbandit_jax.eigenvalue import least_eigenvalue
from fedbandit_jax.problem import Problem

LEAST_ALIGNMENT = 1e-6  # with C="realised", a key term further off than this is no help at any price


class UncertainDirections(NamedTuple):
    """Client to server: eigenpairs of V(pi), ascending, of which those below s are uploaded."""

    uploaded: Bool[Array, " d"]
    eigenvalues: Float[Array, " d"]
    eigenvectors: Float[Array, "d d"]  # one a row


class KeyTerms(NamedTuple):
    """Server to client: a key term for every uploaded pair, and how often to ask about it."""

    sent: Bool[Array, " d"]
    indices: Int[Array, " d"]
    vectors: Float[Array, "d d"]
    repetitions: Float[Array, " d"]


class Statistics(NamedTuple):
    """Client to server: Gram matrix G_i and moment vector W_i of everything seen in the phase."""

    gram: Float[Array, "d d"]
    moment: Float[Array, " d"]


class Estimate(NamedTuple):
    """Server to client."""

    theta_hat: Float[Array, " d"]


def scalars(message: UncertainDirections | KeyTerms | Statistics | Estimate) -> Float[Array, ""]:
    """Numbers in a message; where it has entries that may be empty, its first field says which are sent."""
    dtype = message[-1].dtype
    if isinstance(message, UncertainDirections | KeyTerms):
        return message[0].sum().astype(dtype) * sum(part[0].size for part in message[1:])
    return jnp.asarray(sum(part.size for part in message), dtype)


class State(NamedTuple):
    active: Bool[Array, "M K"]  # the clients'
    gram: Float[Array, "d d"]  # the server's, as the next three
    moment: Float[Array, " d"]
    theta_hat: Float[Array, " d"]


class Constants(NamedTuple):
    """Numbers of a phase."""

    wanted: Float[Array, ""]  # s, the least information wanted in every direction
    total: Float[Array, ""]  # 2 d sigma^2 LOG / eps^2, times exploration_scale: a client's pulls before rounding
    radius: Float[Array, ""]  # sqrt(N/M) eps


class Plan(NamedTuple):
    """What the clients will do in a phase; a leading axis M throughout."""

    weights: Float[Array, "M K"]  # pi
    V: Float[Array, "M d d"]  # V(pi)
    directions: UncertainDirections
    terms: KeyTerms
    counts: Float[Array, "M K"]
    random: Randomness


@dataclass(frozen=True, kw_only=True)
class FedConPE(PhaseElimination):
    """Federated conversational phase elimination.

    N trades conversations for regret; C is the least |k.v| that the key terms offer every unit v (Assumption 2), or
    "realised" for each pair's own. `key_term_rule` is "absolute", the largest |k.v|, or "signed", the largest k.v. The
    other hyperparameters are those of `PhaseElimination`.

    Diagnostics of a phase besides those of `diagnose`: eigenpairs uploaded, questions asked and dropped (they did not
    fit into the phase at one a round), each a mean over clients; wanted_information, which is s; lambda_min of V(pi)
    and lambda_min_after with the questions added, the least over clients; lemma_holds: lambda_min_after >= s.
    """

    asks_key_terms: ClassVar[bool] = True

    N: Hyperparameter = 1.0
    C: Hyperparameter = 1.0
    key_term_rule: Hyperparameter = "absolute"

    def check(self, **setting: Any) -> None:
        N = _checks.real("N", self.N, 0, float("inf"), "()")
        _checks.choice("key_term_rule", self.key_term_rule, ("absolute", "signed"))
        if isinstance(self.C, str):
            if self.C != "realised":
                _checks.fail("C", self.C, "it must be a number in (0, 1] or 'realised'")
        else:
            C = _checks.real("C", self.C, 0, 1, "(]")
            if N * C**2 < 1 - 1e-9:
                raise ValueError(
                    f"N={N:g} with C={C:g} is not allowed: N C^2 must be at least 1, or a client would have to ask "
                    "more than one question a round"
                )
        super().check(**setting)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        return run_phases(
            lambda clock, state: self.play_phase(key, problem, clock, state),
            first_state(problem),
            gaps=problem.gaps,
            horizon=problem.horizon,
            checkpoints=checkpoints,
            theta_error=jnp.linalg.norm(problem.theta),
        )

    def play_phase(self, key: Key[Array, ""], problem: Problem, clock: Clock, state: State) -> tuple[State, Phase]:
        """One phase of all clients and the server."""
        constants = self.constants(problem, clock)
        plan = self.plan(key, problem, clock, constants, state.active)
        return self.carry_out(plan, problem, clock, constants, state)

    def constants(self, problem: Problem, clock: Clock) -> Constants:
        """What clients and server alike know when a phase starts."""
        return Constants(
            wanted=wanted_information(clock.eps, problem.theta.size, self.N),
            total=self.pulls_in_all(problem, clock),
            radius=jnp.sqrt(self.N / problem.num_clients) * clock.eps,
        )

    def plan(
        self,
        key: Key[Array, ""],
        problem: Problem,
        clock: Clock,
        constants: Constants,
        active: Bool[Array, "M K"],
    ) -> Plan:
        """What every client will do in a phase: its design, its counts, the key terms that the server sends it."""
        _, K, d = problem.arms.shape
        random = jax.vmap(lambda i: draw(key, i, clock.phase, K, d, problem.theta.dtype))(problem.client_ids)
        weights, V = jax.vmap(lambda arms, active: explore(arms, active, self.design_tol, self.design_method))(
            problem.arms, active
        )
        directions = jax.vmap(lambda V, real: uncertain_directions(V, constants.wanted, real))(V, problem.client_mask)
        nearest = nearest_key_terms(directions.eigenvectors, problem.key_terms, self.key_term_rule)
        terms = jax.vmap(lambda message, nearest, u: self.choose_key_terms(message, nearest, problem, constants, u))(
            directions, nearest, random.rounding[:, 1]
        )
        counts = jax.vmap(lambda pi, u: pull_counts(pi, constants.total, self.rounding, u))(
            weights, random.rounding[:, 0]
        )
        return Plan(weights, V, directions, terms, counts, random)

    def carry_out(
        self, plan: Plan, problem: Problem, clock: Clock, constants: Constants, state: State
    ) -> tuple[State, Phase]:
        """Play the plans until the phase ends for all, estimate, eliminate."""
        length, complete = end_together(plan.counts, clock)
        pulls = jax.vmap(pulls_after, in_axes=(None, 0))(length, plan.counts)
        asked = jax.vmap(asked_after, in_axes=(None, 0))(length, plan.terms.repetitions)
        statistics = jax.vmap(play, in_axes=(0, 0, 0, 0, 0, None, None))(
            problem.arms, pulls, plan.terms.vectors, asked, plan.random, problem.theta, problem.noise
        )
        lambda_min_after = jax.vmap(lambda V, message, terms: self.augmented_lambda_min(V, message, terms, constants))(
            plan.V, plan.directions, plan.terms
        )
        # NaN must not pass silently; this also keeps the two eigendecompositions in order, see _runtime.
        gram = jnp.where(jnp.isnan(lambda_min_after).any(), jnp.nan, state.gram)
        state, closing_scalars, found = close_phase(
            self, problem, state._replace(gram=gram), statistics, constants.radius
        )

        real, mean = problem.client_mask, problem.mean_over_clients
        info = OrderedDict(
            eps=clock.eps,
            complete=complete,
            **found,
            uploaded=mean(plan.directions.uploaded.sum(axis=1).astype(length.dtype)),
            questions=mean(asked.sum(axis=1)),
            dropped=mean((plan.terms.repetitions - asked).sum(axis=1)),
            wanted_information=constants.wanted,
            lambda_min=jnp.where(real, plan.directions.eigenvalues[:, 0], jnp.inf).min(),
            lambda_min_after=jnp.where(real, lambda_min_after, jnp.inf).min(),
            lemma_holds=jnp.where(real, lambda_min_after >= constants.wanted * (1 - 1e-4), True).all(),
        )
        phase = Phase(
            counts=plan.counts,
            length=length,
            asked=asked.sum(axis=1),
            client_mask=real,
            opening_scalars=jax.vmap(scalars)(plan.directions).sum() + jax.vmap(scalars)(plan.terms).sum(),
            closing_scalars=closing_scalars,
            theta_error=info["theta_error"],
            info=info,
        )
        return state, phase

    def choose_key_terms(
        self,
        message: UncertainDirections,
        nearest: Int[Array, " d"],
        problem: Problem,
        constants: Constants,
        u: Float[Array, ""],
    ) -> KeyTerms:
        """Server: ask n_k = ceil(total (s - lambda_j) / C^2) times about the key term nearest to v_j."""
        vectors = problem.key_terms[nearest]
        c = self.alignment(message.eigenvectors, vectors)
        amounts = constants.total * (constants.wanted - message.eigenvalues) / c**2
        repetitions = round_counts(amounts, message.uploaded, self.rounding, u)
        return KeyTerms(message.uploaded, nearest, vectors, jnp.minimum(repetitions, problem.horizon))

    def alignment(self, eigenvectors: Float[Array, "d d"], vectors: Float[Array, "d d"]) -> Float[Array, " d"]:
        """C of the formulas for each pair."""
        if isinstance(self.C, str):
            return jnp.maximum(jnp.abs((eigenvectors * vectors).sum(axis=1)), LEAST_ALIGNMENT)
        return jnp.full(vectors.shape[0], self.C, vectors.dtype)

    def augmented_lambda_min(
        self, V: Float[Array, "d d"], message: UncertainDirections, terms: KeyTerms, constants: Constants
    ) -> Float[Array, ""]:
        """Least eigenvalue of V + sum_j (s - lambda_j) / C^2 k k', which the eigenvalue lemma puts at s."""
        c = self.alignment(message.eigenvectors, terms.vectors)
        added = jnp.where(message.uploaded, (constants.wanted - message.eigenvalues) / c**2, 0)
        return least_eigenvalue(V + weighted_gram(terms.vectors, added))


def first_state(problem: Problem) -> State:
    """All arms active, nothing seen."""
    zero = jnp.zeros_like(problem.theta)
    return State(problem.arm_mask, jnp.outer(zero, zero), zero, zero)


def close_phase(
    algorithm: PhaseElimination, problem: Problem, state: State, statistics: Statistics, radius: Float[Array, ""]
) -> tuple[State, Float[Array, ""], dict[str, Array]]:
    """Sum up what the clients saw, estimate, eliminate; with the scalars that this sends and what `diagnose` finds."""
    gram = state.gram + statistics.gram.sum(axis=0)
    moment = state.moment + statistics.moment.sum(axis=0)
    estimate = Estimate(least_squares(gram, moment))
    active = jax.vmap(eliminate, in_axes=(0, 0, None, None))(
        problem.arms, state.active, estimate.theta_hat, algorithm.elimination_scale * 2 * radius
    )
    one_client = jax.tree.map(lambda x: x[0], statistics)
    sent = problem.num_clients * (scalars(one_client) + scalars(estimate))
    found = diagnose(problem, state.active, active, estimate.theta_hat, radius)
    return State(active, gram, moment, estimate.theta_hat), sent, found


def wanted_information(eps: Float[Array, ""], dim: int, N: Hyperparameter) -> Float[Array, ""]:
    """s = 3 / (4 (1 - eps^2) d N), the least information wanted in every direction."""
    return 3 / (4 * (1 - eps**2) * dim * N)


def weighted_gram(rows: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    """sum_i w_i x_i x_i'."""
    return (weights[:, None] * rows).T @ rows


def explore(
    arms: Float[Array, "K d"], active: Bool[Array, " K"], tol: Hyperparameter, method: str
) -> tuple[Float[Array, " K"], Float[Array, "d d"]]:
    """Client, step 1: the G-optimal design pi on the active arms, and V(pi)."""
    weights = g_optimal_design(arms, active, tol, method=method).weights
    return weights, weighted_gram(arms, weights)


def uncertain_directions(V: Float[Array, "d d"], s: Float[Array, ""], real: Bool[Array, ""]) -> UncertainDirections:
    """Client, step 2: the eigenpairs of V with lambda_j < s (none from a padded client)."""
    eigenvalues, eigenvectors = eigenpairs(V)
    return UncertainDirections((eigenvalues < s) & real, eigenvalues, eigenvectors.T)


def eigenpairs(V: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvalues, ascending, and eigenvectors, with a basis of the null space that depends on the null space alone.

    Fewer than d active arms leave V a null space, of which `eigh` returns whatever basis rounding leads to: the key
    terms, and so the run, would depend on padding and batch. Instead take a QR of fixed vectors projected onto it.
    """
    d = len(V)
    eigenvalues, vectors = jnp.linalg.eigh(V.T, symmetrize_input=False)  # .T: in LAPACK's order, as in design.py
    null = eigenvalues < (1e-6 if V.dtype == jnp.float32 else 1e-12) * eigenvalues[-1]
    span = jnp.where(null[None, :], vectors, 0)
    basis, _ = jnp.linalg.qr(span @ (span.T @ jnp.asarray(random_rotation(d), V.dtype)))
    return jnp.where(null, 0, eigenvalues), jnp.where(null[None, :], basis, vectors)


def nearest_key_terms(
    directions: Float[Array, "M n d"], key_terms: Float[Array, "J d"], rule: str
) -> Int[Array, "M n"]:
    """Index of the key term with the largest |k.v|, as an eigenvector's sign means nothing, or k.v."""

    def nearest(directions: Float[Array, "n d"]) -> Int[Array, " n"]:
        products = directions @ key_terms.T
        return argmax_rows(products if rule == "signed" else jnp.abs(products))

    # Client by client on CPU: the n x J products of all clients and runs together leave the cache.
    return lax.platform_dependent(directions, cpu=lambda x: lax.map(nearest, x), default=jax.vmap(nearest))


def play(
    arms: Float[Array, "K d"],
    pulls: Float[Array, " K"],
    key_terms: Float[Array, "n d"],
    questions: Float[Array, " n"],
    random: Randomness,
    theta: Float[Array, " d"],
    noise: Float[Array, ""],
) -> Statistics:
    """Client, steps 3 and 4: pull, ask, and sum up.

    n rewards of mean mu enter only as their sum, n mu + noise sqrt(n) z with one standard normal z.
    """
    rewards = pulls * (arms @ theta) + noise * jnp.sqrt(pulls) * random.pulls
    answers = questions * (key_terms @ theta) + noise * jnp.sqrt(questions) * random.questions
    return Statistics(
        weighted_gram(arms, pulls) + weighted_gram(key_terms, questions),
        rewards @ arms + answers @ key_terms,
    )


def least_squares(gram: Float[Array, "d d"], moment: Float[Array, " d"]) -> Float[Array, " d"]:
    """Server: theta_hat = G^-1 W, of minimum norm where G is singular."""
    eigenvalues, Q = jnp.linalg.eigh(gram.T, symmetrize_input=False)
    cutoff = eigenvalues[-1] * gram.shape[0] * jnp.finfo(gram.dtype).eps
    inverse = jnp.where(eigenvalues > cutoff, 1 / eigenvalues, 0)
    return Q @ (inverse * (moment @ Q))


def eliminate(
    arms: Float[Array, "K d"],
    active: Bool[Array, " K"],
    theta_hat: Float[Array, " d"],
    threshold: Float[Array, ""],
) -> Bool[Array, " K"]:
    """Client, step 5: keep the active arms with max_b theta_hat.(b - a) <= threshold."""
    scores = jnp.where(active, arms @ theta_hat, -jnp.inf)
    return active & (scores.max() - scores <= threshold)

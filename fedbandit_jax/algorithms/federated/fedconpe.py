"""FedConPE (IJCAI 2024): its client, its server, and the messages through which alone they meet.

A phase, eps = 2^-l, LOG = log(2 K M log(T) / delta), s = 3 / (4 (1 - eps^2) d N):

    client  g_optimal_design        pi on the active arms
    client  uncertain_directions    eigenpairs of V(pi) below s                       -> UncertainDirections
    server  choose_key_terms        the nearest key term to each, and how often       -> KeyTerms
    client  play                    pulls and questions, their sums                   -> Statistics
    server  least_squares           over all clients and phases                       -> Estimate
    client  eliminate               keeps arms within 2 sqrt(N/M) eps of the best

What all phase eliminations share, the first and the last three, is in clocks/elimination.py.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import Algorithm, MadeFor
from fedbandit_jax.clocks.elimination import PhaseElimination, PhaseQuestions, pooled_radius
from fedbandit_jax.clocks.phases import Clock, Messages, Randomness, round_counts
from fedbandit_jax.linalg.design import weighted_gram
from fedbandit_jax.linalg.eigenvalues import eigenpairs_of_rows, least_eigenvalue
from fedbandit_jax.linalg.portable import argmax_products
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.problem import Problem

LEAST_ALIGNMENT = 1e-6  # with C="realised", a key term further off than this is no help at any price
NULL = 1e-5  # of the largest eigenvalue: below it, a direction is one that no active arm has; float32 rounds at 1e-6


class UncertainDirections(NamedTuple):
    """Client to server: eigenpairs of V(pi), ascending, of which those below s are uploaded."""

    uploaded: Bool[Array, " d"]
    eigenvalues: Float[Array, " d"]
    eigenvectors: Float[Array, "d d"]  # one a row

    def counted(self, null_space: str) -> Bool[Array, " d"]:
        """Pairs that count for a client: all, or with "skip" those in the span of its active arms."""
        if null_space == "ask":
            return jnp.ones(self.uploaded.shape, bool)
        return self.eigenvalues >= NULL * self.eigenvalues[-1]


class Outlook(NamedTuple):
    """What follows from a client's active arms alone."""

    weights: Float[Array, " K"]  # pi, the design
    eigenvalues: Float[Array, " d"]  # of V(pi), ascending
    eigenvectors: Float[Array, "d d"]  # one a row
    nearest: Int[Array, " d"]  # the key term nearest to each


class KeyTerms(NamedTuple):
    """Server to client: a key term for every uploaded pair, and how often to ask about it."""

    sent: Bool[Array, " d"]
    indices: Int[Array, " d"]
    vectors: Float[Array, "d d"]
    repetitions: Float[Array, " d"]


def scalars(message: UncertainDirections | KeyTerms) -> Float[Array, ""]:
    """Numbers in a message whose first field says which of its entries are sent."""
    return message[0].sum().astype(message[-1].dtype) * sum(part[0].size for part in message[1:])


@dataclass(frozen=True, kw_only=True)
class FedConPE(PhaseElimination):
    r"""Federated conversational phase elimination.

    In phase l, with eps = 2^-l, a client pulls its active arms as a G-optimal design says, asks about key terms near
    the directions that the design leaves weak, and drops what the server's estimate puts too far behind the best:

    $$ n(a) = \left\lceil \frac{2 d \sigma^2 \pi(a)}{\varepsilon^2} \, \log \frac{2KM \, \log T}{\delta} \right\rceil $$

    $$ \hat\theta = \left( \sum_i G_i \right)^{-1} \sum_i W_i, \qquad
       \text{keep } a \text{ if } \; \max_b \; (b - a)^\top \hat\theta \le 2 \sqrt{N/M} \, \varepsilon $$

    N trades conversations for regret; C is the least |k.v| that the key terms offer every unit v (Assumption 2): a
    number, "catalog" for the catalog's `realised_C`, or "realised" for each pair's own. `key_term_rule` is "absolute",
    the largest |k.v|, or "signed", the largest k.v.
    `null_space` is "ask", or "skip": directions that no active arm of a client has, where the eigenvalue of V(pi) is
    below 1e-5 of its largest, are neither uploaded nor asked about. They cannot tell its arms apart, but other clients
    do without its answers there. The other hyperparameters are those of `PhaseElimination`.

    Diagnostics of a phase besides those of `diagnose`: eigenpairs uploaded, questions asked and dropped (they did not
    fit into the phase at one a round), each a mean over clients; wanted_information, which is s; lambda_min of V(pi)
    and lambda_min_after with the questions added, the least over clients and, with null_space="skip", over the span of
    a client's active arms; lemma_holds: lambda_min_after >= s.

    When: many clients serve one user with different arms, messages are dear, and questions are cheap.

    Paper: Li, Liu and Lui, "FedConPE: Efficient Federated Conversational Bandits with Heterogeneous Clients", IJCAI
    2024, [arXiv 2405.02881](https://arxiv.org/abs/2405.02881).
    """

    revision: ClassVar[int] = 4
    asks_key_terms: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = PhaseElimination.made_for | {
        "shared_noise": ("sums up the answers of a whole phase", (False,)),
        "answers": ("learns from answers that are linear in theta", ("mean",)),
        "candidates": ("asks about any key term", ("all",)),
        "charged": ("does not tell what its questions cost", (False,)),
    }

    N: Hyperparameter = param(1.0, low=0, ends="()", search=Between(1, 30))  # with C = 1, N C^2 >= 1
    C: Hyperparameter = param(1.0, low=0, high=1, ends="(]", words=("realised", "catalog"))
    key_term_rule: Hyperparameter = param("absolute", words=("absolute", "signed"))
    null_space: Hyperparameter = param("ask", words=("ask", "skip"))

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        if not isinstance(self.C, str) and self.N * self.C**2 < 1 - 1e-9:
            raise ValueError(
                f"N={self.N:g} with C={self.C:g} is not allowed: N C^2 must be at least 1, so N at least "
                f"{math.ceil(1e3 / self.C**2) / 1e3:g}, or a client would have to ask more than one question a round"
            )

    def for_catalog(self, catalog: Catalog) -> Algorithm:
        return self.replace(C=coverage("C", self.C, catalog)) if self.C == "catalog" else self

    def clients_per_core(self, arms: int, dim: int) -> int:
        """Few: outlooks, most of the work, are made in turn anyway, and a last chunk is filled up with copies."""
        return 50

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        return pooled_radius(self.N, problem, clock)

    def outlook(self, arms: Float[Array, "K d"], active: Bool[Array, " K"], key_terms: Float[Array, "J d"]) -> Outlook:
        """The design, the eigenpairs of V(pi), and what the server would answer to each."""
        weights = self.design(arms, active)
        eigenvalues, eigenvectors = eigenpairs_of_rows(arms, weights)
        nearest = nearest_key_terms(eigenvectors.T, key_terms, self.key_term_rule)
        return Outlook(weights, eigenvalues, eigenvectors.T, nearest)

    def questions(self, problem: Problem, clock: Clock, outlooks: Outlook, random: Randomness) -> PhaseQuestions:
        """Clients upload the weak directions of their designs; the server sends key terms to ask about."""
        s = wanted_information(clock.eps, problem.dim, self.N)
        directions = jax.vmap(
            lambda values, vectors, real: uncertain_directions(values, vectors, real, s, self.null_space)
        )(outlooks.eigenvalues, outlooks.eigenvectors, problem.client_mask)
        total = self.pulls_in_all(problem, clock)
        terms = jax.vmap(lambda message, nearest, u: self.choose_key_terms(message, nearest, problem, s, total, u))(
            directions, outlooks.nearest, random.rounding[:, 1]
        )
        lambda_min_after = jax.vmap(self.augmented_lambda_min, in_axes=(0, 0, None))(directions, terms, s)
        real = problem.client_mask
        return PhaseQuestions(
            vectors=terms.vectors,
            repetitions=terms.repetitions,
            messages=(directions, terms),
            sent=Messages(
                uploads=directions.uploaded.any(axis=1).sum().astype(s.dtype),
                downloads=terms.sent.any(axis=1).sum().astype(s.dtype),
                scalars_up=jax.vmap(scalars)(directions).sum(),
                scalars_down=jax.vmap(scalars)(terms).sum(),
            ),
            info=OrderedDict(
                uploaded=problem.mean_over_clients(directions.uploaded.sum(axis=1).astype(s.dtype)),
                wanted_information=s,
                lambda_min=jnp.where(real, jax.vmap(self.lambda_min)(directions), jnp.inf).min(),
                lambda_min_after=jnp.where(real, lambda_min_after, jnp.inf).min(),
                lemma_holds=jnp.where(real, lambda_min_after >= s * (1 - 1e-4), True).all(),
            ),
        )

    def choose_key_terms(
        self,
        message: UncertainDirections,
        nearest: Int[Array, " d"],
        problem: Problem,
        s: Float[Array, ""],
        total: Float[Array, ""],
        u: Float[Array, ""],
    ) -> KeyTerms:
        """Server: ask n_k = ceil(total (s - lambda_j) / C^2) times about the key term nearest to v_j."""
        vectors = problem.key_terms[nearest]
        c = self.alignment(message.eigenvectors, vectors)
        amounts = total * (s - message.eigenvalues) / c**2
        repetitions = round_counts(amounts, message.uploaded, self.rounding, u)
        return KeyTerms(message.uploaded, nearest, vectors, jnp.minimum(repetitions, problem.horizon))

    def alignment(self, eigenvectors: Float[Array, "d d"], vectors: Float[Array, "d d"]) -> Float[Array, " d"]:
        """C of the formulas for each pair."""
        if isinstance(self.C, str):
            if self.C == "catalog":
                _checks.fail("C", self.C, "outside simulate and sweep, call algorithm.for_catalog(catalog) first")
            return jnp.maximum(jnp.abs((eigenvectors * vectors).sum(axis=1)), LEAST_ALIGNMENT)
        return jnp.full(vectors.shape[0], self.C, vectors.dtype)

    def lambda_min(self, message: UncertainDirections) -> Float[Array, ""]:
        """Least eigenvalue of V, or of V on the span of the active arms."""
        return jnp.where(message.counted(self.null_space), message.eigenvalues, jnp.inf).min()

    def augmented_lambda_min(
        self, message: UncertainDirections, terms: KeyTerms, s: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Least eigenvalue of V + sum_j (s - lambda_j) / C^2 k k', which the eigenvalue lemma puts at s."""
        c = self.alignment(message.eigenvectors, terms.vectors)
        added = jnp.where(message.uploaded, (s - message.eigenvalues) / c**2, 0)
        # In the basis of eigenvectors, with those that do not count replaced by ones that are never the least.
        turned = jnp.diag(message.eigenvalues) + weighted_gram(terms.vectors @ message.eigenvectors.T, added)
        counted = message.counted(self.null_space)
        other = jnp.diag(jnp.where(counted, 0, jnp.trace(turned)))
        return least_eigenvalue(jnp.where(counted[:, None] & counted[None, :], turned, other))


def coverage(letter: str, given: Any, catalog: Catalog) -> float:
    """What a catalog's key terms offer every direction, for an algorithm that was `given` a word for it."""
    if not catalog.realised_C:
        told = f"the key terms of {catalog.name} span {catalog.key_term_rank} of {catalog.dim} dimensions"
        _checks.fail(letter, given, f"{told}: no {letter} > 0 holds")
    return min(catalog.realised_C, 1.0)


def wanted_information(eps: Float[Array, ""], dim: int, N: Hyperparameter) -> Float[Array, ""]:
    """s = 3 / (4 (1 - eps^2) d N), the least information wanted in every direction."""
    return 3 / (4 * (1 - eps**2) * dim * N)


def uncertain_directions(
    eigenvalues: Float[Array, " d"],
    eigenvectors: Float[Array, "d d"],
    real: Bool[Array, ""],
    s: Float[Array, ""],
    null_space: str = "ask",
) -> UncertainDirections:
    """Client: of the eigenpairs of V(pi), those with lambda_j < s (none from a padded client)."""
    found = UncertainDirections((eigenvalues < s) & real, eigenvalues, eigenvectors)
    return found._replace(uploaded=found.uploaded & found.counted(null_space))


def nearest_key_terms(directions: Float[Array, "n d"], key_terms: Float[Array, "J d"], rule: str) -> Int[Array, " n"]:
    """Index of the key term with the largest |k.v|, as an eigenvector's sign means nothing, or k.v."""
    return argmax_products(directions, key_terms, absolute=rule == "absolute")

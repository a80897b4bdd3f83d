"""Phase elimination, the part that FedConPE, MACO, FedLinPE and LinPE share.

A phase, eps = 2^-l: every client plays a design on its active arms, G-optimal or uniform, the server estimates theta
by least squares over all clients and phases, and every client drops the arms that fall too far behind. An algorithm
says how wide its confidence radius is and, if it asks questions, which (`PhaseElimination.questions`).
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from fedbandit_jax._parameters import Between, Hyperparameter, OneOf, param
from fedbandit_jax.clocks.base import NOTHING, Trace
from fedbandit_jax.clocks.phases import (
    MAX_PHASES,
    Clock,
    Messages,
    Phase,
    PhaseAlgorithm,
    Randomness,
    asked_after,
    draw_for_clients,
    end_together,
    pull_counts,
    pulls_after,
    run_phases,
)
from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.design import METHODS, g_optimal_design, weighted_gram
from fedbandit_jax.linalg.eigenvalues import least_squares
from fedbandit_jax.linalg.portable import renewed
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.world import World

DESIGNS = (*METHODS, "uniform")


class Outlook(NamedTuple):
    """What follows from a client's active arms alone; an algorithm may have one of its own, with weights."""

    weights: Float[Array, " K"]  # pi, the design


class State(NamedTuple):
    active: Bool[Array, "M K"]  # the clients', as the next two
    outlooks: Any  # of the phase before, a leading axis M throughout
    outdated: Bool[Array, " M"]  # those of the clients whose active arms are others now
    gram: Float[Array, "d d"]  # the server's, as the next two
    moment: Float[Array, " d"]
    theta_hat: Float[Array, " d"]


class Statistics(NamedTuple):
    """Client to server: Gram matrix G_i and moment vector W_i of everything seen in the phase; or sums of them."""

    gram: Float[Array, "d d"]
    moment: Float[Array, " d"]


class Estimate(NamedTuple):
    """Server to client."""

    theta_hat: Float[Array, " d"]


class PhaseQuestions(NamedTuple):
    """What the clients will ask in a phase: each of n vectors some times, in order."""

    vectors: Float[Array, "M n d"]
    repetitions: Float[Array, "M n"]
    messages: tuple = ()  # that were sent for them, a leading axis M throughout
    sent: Messages = Messages()  # what they count
    info: dict[str, Array] = NOTHING  # diagnostics of the phase


class PhasePlan(NamedTuple):
    """What the clients will do in a phase; a leading axis M throughout."""

    outlooks: Any
    counts: Float[Array, "M K"]  # each client's list of pulls
    questions: PhaseQuestions
    random: Randomness

    @property
    def weights(self) -> Any:
        """pi, the designs."""
        return self.outlooks.weights


@dataclass(frozen=True, kw_only=True)
class PhaseElimination(PhaseAlgorithm, abstract=True):
    """What these phase eliminations share.

    delta is the probability of failure; sigma the noise that the counts allow for (None: the problem's).
    `exploration_scale` multiplies every count and `elimination_scale` the threshold. `rounding` is "ceil" or
    "unbiased". `ridge` is added to the diagonal of G before an estimate; without it, as in the paper, a server that has
    about as many observations as dimensions interpolates their noise. `design_method` is how the G-optimal design is
    found, to `design_tol`, or "uniform", which plays all active arms alike instead.
    """

    revision: ClassVar[int] = 3
    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")
    exploration_scale: Hyperparameter = param(1.0, low=0, ends="()", search=Between(1e-3, 1))
    elimination_scale: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.03, 3))
    rounding: Hyperparameter = param("ceil", words=("ceil", "unbiased"), search=OneOf(("ceil", "unbiased")))
    ridge: Hyperparameter = param(0.0, low=0, ends="[)")
    design_tol: Hyperparameter = param(1e-2, low=1e-3, high=1)
    design_method: Hyperparameter = param("multiplicative", words=DESIGNS)

    def first_phase(self, dim: int, clients: int, arms: int, horizon: int, noise: float) -> float:
        """Rounds of the first phase, eps = 1/2, before rounding up."""
        sigma = noise if self.sigma is None else self.sigma
        return float(self.exploration_scale * 8 * dim * sigma**2 * log_term(arms, clients, horizon, self.delta))

    def steps(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> int:
        """Phases, each four times as long as the one before, and a round at least."""
        length, start, phase = self.first_phase(dim, clients, arms, horizon, noise), 0.0, 0
        while start < horizon and phase < MAX_PHASES:
            start, phase = start + max(length * 4**phase, 1), phase + 1
        return phase

    def radius(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        """Confidence radius of a phase's estimate; arms more than twice this behind the best are dropped."""
        raise NotImplementedError

    def pulls_in_all(self, problem: Problem, clock: Clock) -> Float[Array, ""]:
        """2 d sigma^2 LOG / eps^2, a client's pulls in a phase before rounding."""
        sigma = problem.sigma if self.sigma is None else self.sigma
        log = log_term(problem.num_arms, problem.num_clients, problem.horizon, self.delta, xp=jnp)
        return self.exploration_scale * 2 * problem.dim * sigma**2 * log / clock.eps**2

    def questions(self, problem: Problem, clock: Clock, outlooks: Any, random: Randomness) -> PhaseQuestions:
        """What to ask besides playing the designs: by default nothing.

        `random` has numbers for d kinds of questions.
        """
        M, _, d = problem.arms.shape
        return PhaseQuestions(jnp.zeros((M, 0, d), problem.arms.dtype), jnp.zeros((M, 0), problem.arms.dtype))

    def questions_a_round(self) -> Real:
        """How many a client asks at most, from the start of a phase until they are used up."""
        return 1.0

    def design(self, arms: Float[Array, "K d"], active: Bool[Array, " K"]) -> Float[Array, " K"]:
        """pi, how a client divides its pulls among its active arms."""
        if self.design_method == "uniform":
            return active / jnp.maximum(active.sum(), 1).astype(arms.dtype)
        return g_optimal_design(arms, active, self.design_tol, method=self.design_method).weights

    def outlook(self, arms: Float[Array, "K d"], active: Bool[Array, " K"], key_terms: Float[Array, "J d"]) -> Any:
        """What a client makes of its active arms; made anew only when they change."""
        return Outlook(self.design(arms, active))

    def first_state(self, problem: Problem) -> State:
        """All arms active, nothing seen."""
        zero = jnp.zeros_like(problem.theta[0])
        told = jax.eval_shape(
            jax.vmap(self.outlook, in_axes=(0, 0, None)), problem.arms, problem.arm_mask, problem.key_terms
        )
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), told)
        outdated = jnp.ones_like(problem.client_mask)
        return State(problem.arm_mask, nothing, outdated, jnp.outer(zero, zero), zero, zero)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        def play_phase(clock: Clock, state: State) -> tuple[State, Phase]:
            return self.carry_out(self.plan(key, problem, clock, state), problem, clock, state)

        return run_phases(play_phase, self.first_state(problem), problem, checkpoints)

    def plan(self, key: Key[Array, ""], problem: Problem, clock: Clock, state: State) -> PhasePlan:
        """What every client will do in a phase: its design, its counts, its questions."""
        random = draw_for_clients(key, problem, clock)

        def outlook(outdated: Bool[Array, ""], old: Any, arms: Float[Array, "K d"], active: Bool[Array, " K"]) -> Any:
            return renewed(outdated, old, type(self).outlook, self, arms, active, problem.key_terms)

        outlooks = jax.vmap(outlook)(state.outdated, state.outlooks, problem.arms, state.active)
        questions = self.questions(problem, clock, outlooks, random)
        total = self.pulls_in_all(problem, clock)
        counts = jax.vmap(lambda pi, u: pull_counts(pi, total, self.rounding, u))(
            outlooks.weights, random.rounding[:, 0]
        )
        return PhasePlan(outlooks, counts, questions, random)

    def carry_out(self, plan: PhasePlan, problem: Problem, clock: Clock, state: State) -> tuple[State, Phase]:
        """Play the plans until the phase ends for all, estimate, eliminate.

        Diagnostics besides those of `diagnose`: unseen, the directions of which G tells no more than rounding, where
        theta_hat is 0.
        """
        questions, radius = plan.questions, self.radius(problem, clock)
        length, complete = end_together(plan.counts, clock)
        pulls = jax.vmap(pulls_after, in_axes=(None, 0))(length, plan.counts)
        pace = self.questions_a_round()
        asked = jax.vmap(asked_after, in_axes=(None, 0))(pace * length, questions.repetitions)
        random = plan.random._replace(questions=plan.random.questions[:, : asked.shape[1]])
        rewards, answers = jax.vmap(play, in_axes=(None, 0, 0, 0, 0, 0, 0, None))(
            problem.world, problem.arms, pulls, questions.vectors, asked, random, problem.theta, problem.noise
        )
        seen, told = sum_up(problem.arms, pulls, rewards), sum_up(questions.vectors, asked, answers)
        # NaN must not pass silently; this also keeps eigendecompositions in order, see _runtime.
        unsound = jnp.stack([jnp.isnan(x).any() for x in questions.info.values()]).any() if questions.info else False
        gram = jnp.where(unsound, jnp.nan, state.gram) + seen.gram + told.gram
        moment = state.moment + seen.moment + told.moment
        theta_hat, unseen = least_squares(gram + self.ridge * jnp.eye(len(gram), dtype=gram.dtype), moment)
        estimate = Estimate(theta_hat)
        active = jax.vmap(eliminate, in_axes=(0, 0, None, None))(
            problem.arms, state.active, estimate.theta_hat, self.elimination_scale * 2 * radius
        )
        info = OrderedDict(
            eps=clock.eps,
            complete=complete,
            **diagnose(problem, state.active, active, estimate.theta_hat, radius),
            unseen=unseen,
            **questions.info,
        )
        if asked.shape[1]:
            info["questions"] = problem.mean_over_clients(asked.sum(axis=1))
            info["dropped"] = problem.mean_over_clients((questions.repetitions - asked).sum(axis=1))
        up, down = (sum(part.size for part in message) for message in (seen, estimate))
        M = problem.num_clients
        phase = Phase(
            counts=plan.counts,
            length=length,
            asked=asked.sum(axis=1),
            pace=pace,
            client_mask=problem.client_mask,
            opening=questions.sent,
            closing=Messages(M, M, M * up, M * down),
            theta_error=info["theta_error"],
            info=info,
        )
        outdated = (active != state.active).any(axis=1)
        return State(active, plan.outlooks, outdated, gram, moment, estimate.theta_hat), phase


def log_term(arms: Any, clients: Any, horizon: Any, delta: Any, xp: Any = np) -> Any:
    """LOG = log(2 K M log(T) / delta); T is taken as 2 at least. `xp` is numpy or jax.numpy."""
    return xp.log(2 * arms * clients * xp.log(xp.maximum(horizon, 2)) / delta)


def play(
    world: World,
    arms: Float[Array, "K d"],
    pulls: Float[Array, " K"],
    key_terms: Float[Array, "n d"],
    questions: Float[Array, " n"],
    random: Randomness,
    theta: Float[Array, " d"],
    noise: Float[Array, ""],
) -> tuple[Float[Array, " K"], Float[Array, " n"]]:
    """Client: pull and ask; the sum of the rewards of each arm, and of the answers about each key term."""
    pull_key, question_key = (None, None) if random.keys is None else random.keys
    rewards = world.sum_of_rewards(pulls, world.mean(arms, theta), noise, random.pulls, pull_key)
    answers = world.sum_of_rewards(questions, world.mean(key_terms, theta), noise, random.questions, question_key)
    return rewards, answers


def sum_up(rows: Float[Array, "M n d"], counts: Float[Array, "M n"], sums: Float[Array, "M n"]) -> Statistics:
    """Clients: what each uploads of rows that it met so often; server: added up, so in one product for all."""
    M, n, d = rows.shape
    together = rows.reshape(M * n, d)
    return Statistics(weighted_gram(together, counts.ravel()), sums.ravel() @ together)


def eliminate(
    arms: Float[Array, "K d"],
    active: Bool[Array, " K"],
    theta_hat: Float[Array, " d"],
    threshold: Float[Array, ""],
) -> Bool[Array, " K"]:
    """Client: keep the active arms with max_b theta_hat.(b - a) <= threshold."""
    scores = jnp.where(active, arms @ theta_hat, -jnp.inf)
    return active & (scores.max() - scores <= threshold)


def diagnose(
    problem: Problem,
    before: Bool[Array, "M K"],
    after: Bool[Array, "M K"],
    theta_hat: Float[Array, " d"],
    radius: Float[Array, ""] | Float[Array, "M K"],
) -> dict[str, Array]:
    """What every phase elimination tells of a phase, given the arms active before and after it.

    active_*: arms active when it starts, over clients; good_event: |theta_hat.a - mean of a| <= radius for all of them,
    the mean that of the client's user;
    max_gap: the largest true gap among them; best_arm_active: after the elimination, at every client.
    """
    errors = jnp.abs(problem.arms @ theta_hat - problem.means)
    real = problem.client_mask
    num_active = before.sum(axis=1).astype(errors.dtype)
    best = problem.arm_mask & (problem.gaps == 0)
    return {
        "active_min": jnp.where(real, num_active, jnp.inf).min(),
        "active_mean": problem.mean_over_clients(num_active),
        "active_max": num_active.max(),
        "good_event": jnp.where(before, errors <= radius, True).all(),
        "best_arm_active": ((best & after).any(axis=1) | ~real).all(),
        "max_gap": jnp.where(before, problem.gaps, 0).max(),
        "theta_error": problem.theta_error(theta_hat),
    }


def pooled_radius(N: Hyperparameter, problem: Problem, clock: Clock) -> Float[Array, ""]:
    """sqrt(N/M) eps, of an estimate from the data of all M clients."""
    return jnp.sqrt(N / problem.num_clients) * clock.eps

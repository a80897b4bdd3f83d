"""Fed-PE (NeurIPS 2021) with a shared parameter: the server divides one design among clients with different arms.

Phase p, f = 2^p; a client's features stay with it, only what points in their directions travels:

    server  multi-client design     pi_i on the active arms of every client               -> how often to pull each
    client  pull                    ceil(f pi_i(a)) times each, its leader for the rest   -> a local estimate of each
    server  aggregate               over this phase alone                                 -> theta_p, V_p^+
    client  eliminate               arms whose interval lies below the leader's           -> its active set
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.elimination import diagnose
from fedbandit_jax.clocks.phases import (
    Clock,
    Messages,
    Phase,
    PhaseAlgorithm,
    bits_for,
    cut_at_horizon,
    draw_for_clients,
    power_of_two,
    round_counts,
    run_phases,
    sums_of_rewards,
)
from fedbandit_jax.linalg.design import multi_client_design, on_support, spanning_design, weighted_gram
from fedbandit_jax.linalg.eigenvalues import pseudo_inverse
from fedbandit_jax.worlds.problem import Problem

BITS = 32  # of a real number
NEWTON_STEPS = 12  # each doubles the digits


class State(NamedTuple):
    """What is known: with `enhanced` summed over phases, weighted by f; otherwise of the last one."""

    active: Bool[Array, "M K"]  # the clients', as the next
    leader: Int[Array, " M"]
    theta: Float[Array, " d"]  # the server's, as the next
    covariance: Float[Array, "d d"]  # sigma^2 times it is that of theta
    weight: Float[Array, ""]  # that theta is a sum with

    @property
    def theta_hat(self) -> Float[Array, " d"]:
        return self.theta / jnp.maximum(self.weight, 1)


@dataclass(frozen=True, kw_only=True)
class FedPE(PhaseAlgorithm):
    r"""Federated phase elimination: one design for all clients, each with its own arms.

    In phase p the server minimises over designs pi_i on the active arms of every client the sum of their largest
    variances, with one V for all of them, and client i pulls arm a

    $$ f_i(a) = \left\lceil 2^p \, \pi_i(a) \right\rceil, \qquad
       \min_\pi \; \sum_i \max_{a \in \mathcal A_i} \; e_a^\top V(\pi)^{-1} e_a, \qquad e_a = a / \lVert a \rVert $$

    times, then its leader, the best arm by the last estimate, until 2^p + K rounds are over. With V the sum of
    f_i(a) e e' over all clients and arms, and each client's mean rewards of this phase alone, the server estimates
    theta, and a client keeps arms whose interval reaches that of its leader:

    $$ \hat\theta = V^{+} \sum_i \sum_a f_i(a) \, \frac{\bar r_i(a)}{\lVert a \rVert^2} \, a, \qquad
       \text{keep } a \text{ if } \; a^\top \hat\theta + u_a \ge \max_b \; b^\top \hat\theta - u_b, \qquad
       u_a = \alpha \sigma \sqrt{a^\top V^{+} a} \, / \min_b \lVert b \rVert $$

    alpha is a number or "theory": alpha^2 is the lesser of 2 log(2 M K H / delta) and k d, where k >= 1 solves
    k d = 2 log(K H / delta) + d log k + d, with H = ceil(log2 T) phases. sigma=None is the problem's.

    `enhanced`=True uses all phases: it adds up the estimates with the weights w = 2^p, and, with W their sum and
    mu_a = d K / M + (sum of w^2 a' V^+ a) / (min norm)^2, u_a is sigma sqrt(mu_a) / W times alpha, which by "theory" is
    sqrt(log(mu_a M^3 K / (d delta^2))).

    `init` is "pulls": first every client pulls every arm once; or "none": the first phase begins without an estimate.
    `design` is "g-optimal", the one above, to within `design_tol`, without the weights below a thousandth of a client's
    largest; or "spanning": equal weights, 1 in all, on `support_factor` d arms of all clients together, picked
    greedily, as in the public re-implementation by Salgia and Zhao (2023).

    A phase that the horizon cuts ends with reports as planned, but with no estimate.

    Counted in scalars: up, d numbers for every arm that a client is to pull, and its active set, a number an arm; down,
    how often to pull each of these, and to each client theta and V^+, d + d^2. Counted in bits, as Salgia and Zhao do:
    32 for each of the d numbers up; down, ceil(log2 K) for each arm to pull, and theta and V^+ once for all clients.

    Diagnostics of a phase besides those of `diagnose`: p, the initial pulls being 0; support and reports, the arms to
    pull, the former a mean over clients; unseen, directions that V has not. good_event: all errors are within u.

    When: many clients serve one user with different arms that they must not tell, and no questions can be asked.

    Paper: Huang, Wu, Yang and Shen, "Federated Linear Contextual Bandits", NeurIPS 2021,
    [arXiv 2110.14177](https://arxiv.org/abs/2110.14177), with one parameter for all arms.
    """

    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="[)")
    alpha: Hyperparameter = param("theory", low=0, ends="()", words=("theory",), search=Between(0.03, 10))
    enhanced: Hyperparameter = False
    init: Hyperparameter = param("pulls", words=("pulls", "none"))
    design: Hyperparameter = param("g-optimal", words=("g-optimal", "spanning"))
    support_factor: Hyperparameter = param(3, low=1)
    design_tol: Hyperparameter = param(1e-2, low=1e-3, high=1)

    def check(self, **setting: Any) -> None:
        _checks.whole("support_factor", self.support_factor)
        _checks.flag("enhanced", self.enhanced)
        super().check(**setting)

    def first_phase(self, dim: int, clients: int, arms: int, horizon: int, noise: float) -> float:
        return arms if self.init == "pulls" else 2.0 + arms

    def steps(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> int:
        start, phase = (arms, 1) if self.init == "pulls" else (0, 0)
        p = 1
        while start < horizon:
            start, phase, p = start + 2**p + arms, phase + 1, p + 1
        return phase

    def number(self, clock: Clock) -> Int[Array, ""]:
        """p, from 0 where clients begin by pulling every arm."""
        return clock.phase - (self.init == "pulls")

    def weights(self, e: Float[Array, "M K d"], active: Bool[Array, "M K"]) -> Float[Array, "M K"]:
        """The design of a phase."""
        if self.design == "spanning":
            size = jnp.asarray(self.support_factor * e.shape[2]).astype(jnp.int32)
            return spanning_design(e.reshape(-1, e.shape[2]), active.ravel(), size).reshape(active.shape)
        return on_support(multi_client_design(e, active, self.design_tol).weights)

    def plan(self, problem: Problem, clock: Clock, state: State) -> Float[Array, "M K"]:
        """How often every client pulls every arm for the server in a phase."""
        weights, p = self.weights(directions(problem), state.active).ravel(), self.number(clock)
        f = power_of_two(p, weights.dtype)
        counts = round_counts(f * weights, weights > 0, "ceil", f).reshape(state.active.shape)
        return jnp.where(p == 0, problem.arm_mask, counts)

    def widths(self, problem: Problem, state: State) -> Float[Array, "M K"]:
        """u, of every client's arms."""
        M, K, d = problem.num_clients, problem.num_arms, problem.dim
        sigma = problem.sigma if self.sigma is None else self.sigma
        spread = ((problem.arms @ state.covariance) * problem.arms).sum(axis=2) / least_norm(problem) ** 2
        spread = jnp.maximum(spread, 0)  # rounding
        if self.enhanced:
            spread = spread + d * K / M
        alpha = self.alpha
        if isinstance(alpha, str) and self.enhanced:
            alpha = jnp.sqrt(jnp.log(spread * M * (M * K / self.delta) ** 2 / (K * d)))
        elif isinstance(alpha, str):
            alpha = theory_alpha(M, K, d, jnp.maximum(bits_for(problem.horizon), 1), self.delta)
        return alpha * sigma * jnp.sqrt(spread) / state.weight

    def learn(
        self, counts: Float[Array, "M K"], sums: Float[Array, "M K"], problem: Problem, clock: Clock, state: State
    ) -> tuple[State, Float[Array, "M K"], Float[Array, ""]]:
        """Server: estimate from the sums of rewards. Clients: eliminate. With them, u and the directions not seen."""
        norms = jnp.linalg.norm(problem.arms, axis=2)
        V = weighted_gram(directions(problem).reshape(-1, problem.dim), counts.ravel())
        inverse, unseen = pseudo_inverse(V)
        moment = jnp.einsum("mk,mkd->d", sums / jnp.where(norms > 0, norms, 1) ** 2, problem.arms)
        theta, covariance, weight = inverse @ moment, inverse, jnp.ones_like(clock.start)
        if self.enhanced:
            weight = power_of_two(self.number(clock), V.dtype)
            theta, covariance = state.theta + weight * theta, state.covariance + weight**2 * covariance
            weight = state.weight + weight
        state = state._replace(theta=theta, covariance=covariance, weight=weight)
        u = self.widths(problem, state)
        r = jnp.where(state.active, problem.arms @ state.theta_hat, -jnp.inf)
        leader = jnp.argmax(r, axis=1)
        low = jnp.take_along_axis(r - u, leader[:, None], axis=1)
        return state._replace(leader=leader, active=state.active & (r + u >= low)), u, unseen

    def carry_out(
        self, counts: Float[Array, "M K"], key: Key[Array, ""], problem: Problem, clock: Clock, state: State
    ) -> tuple[State, Phase]:
        """Play what is planned, estimate, eliminate."""
        M, d, p = problem.num_clients, problem.dim, self.number(clock)
        sums = sums_of_rewards(problem, counts, draw_for_clients(key, problem, clock))
        length, whole = cut_at_horizon(problem.num_arms + jnp.where(p > 0, power_of_two(p, sums.dtype), 0), clock)
        learned, u, unseen = self.learn(counts, sums, problem, clock, state)
        after = jax.tree.map(lambda new, old: jnp.where(whole, new, old), learned, state)
        reports, pulling, active = (
            x.sum().astype(length.dtype) for x in (counts > 0, (counts > 0).any(axis=1), state.active)
        )
        begun = (p > 0).astype(length.dtype)  # initial pulls need no word from the server
        phase = Phase(
            counts=counts,
            length=length,
            client_mask=problem.client_mask,
            opening=Messages(
                uploads=begun * M,
                downloads=begun * M,
                scalars_up=begun * active,
                scalars_down=begun * active,
                bits_up=0.0,
                bits_down=begun * reports * bits_for(problem.num_arms),
            ),
            closing=Messages(
                uploads=pulling,
                downloads=jnp.where(whole, M, 0),
                scalars_up=d * reports,
                scalars_down=jnp.where(whole, M * (d * d + d), 0),
                bits_up=BITS * d * reports,
                bits_down=jnp.where(whole, BITS * float(d * d + d), 0),
            ),
            theta_error=problem.theta_error(after.theta_hat),
            info=OrderedDict(
                p=p,
                complete=whole,
                **diagnose(problem, state.active, after.active, after.theta_hat, u),
                support=reports / M,
                reports=reports,
                unseen=unseen,
            ),
            rest=state.leader,
        )
        return after, phase

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        def play_phase(clock: Clock, state: State) -> tuple[State, Phase]:
            return self.carry_out(self.plan(problem, clock, state), key, problem, clock, state)

        return run_phases(play_phase, first_state(problem), problem, checkpoints)


def first_state(problem: Problem) -> State:
    """All arms active, the first arm leads, nothing known."""
    zero = jnp.zeros_like(problem.theta[0])
    return State(
        problem.arm_mask, jnp.argmax(problem.arm_mask, axis=1), zero, jnp.outer(zero, zero), jnp.zeros_like(zero[0])
    )


def directions(problem: Problem) -> Float[Array, "M K d"]:
    """e = a / norm(a), all that the server sees of arms; their signs do not matter."""
    norms = jnp.linalg.norm(problem.arms, axis=2, keepdims=True)
    return problem.arms / jnp.where(norms > 0, norms, 1)


def least_norm(problem: Problem) -> Float[Array, ""]:
    """Smallest nonzero arm norm in the federation (known to every client)."""
    norms = jnp.linalg.norm(problem.arms, axis=2)
    return jnp.where(problem.arm_mask & (norms > 0), norms, jnp.inf).min()


def theory_alpha(M: Float[Array, ""], K: Float[Array, ""], d: int, H: Float[Array, ""], delta: Any) -> Float[Array, ""]:
    """The lesser of a bound over clients and one over directions, k d, with k = 1 + log k + 2 log(K H / delta) / d."""
    c = 2 * jnp.log(K * H / delta) / d

    def newton(_: Any, k: Float[Array, ""]) -> Float[Array, ""]:
        return k - (k - jnp.log(k) - 1 - c) / (1 - 1 / k)

    k = lax.fori_loop(0, NEWTON_STEPS, newton, 1 + c + jnp.sqrt(2 * c))  # from above, where it goes down to the root
    return jnp.sqrt(jnp.minimum(2 * jnp.log(2 * M * K * H / delta), k * d))

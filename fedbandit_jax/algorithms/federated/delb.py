"""DELB (ICLR 2020): the pulls of one design are divided among the agents, who report their means.

Phase l, eps = 2^-l, on the arms that all agents still have:

    all     design                  pi on the arms that are left
    agent   split                   its part of the m(a) pulls of every arm; a mean reward of each  -> reports
    server  least_squares           over the reports of this phase alone                            -> theta_hat
    all     eliminate               keep arms within 2 eps of the best
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor, Trace
from fedbandit_jax.clocks.elimination import diagnose, eliminate
from fedbandit_jax.clocks.phases import (
    MAX_PHASES,
    Clock,
    Messages,
    Phase,
    PhaseAlgorithm,
    bits_for,
    cut_at_horizon,
    draw_for_clients,
    round_counts,
    run_phases,
    sums_of_rewards,
)
from fedbandit_jax.linalg.design import METHODS, g_optimal_design, on_support, spanning_design, weighted_gram
from fedbandit_jax.linalg.eigenvalues import least_squares
from fedbandit_jax.worlds.problem import Problem


class State(NamedTuple):
    active: Bool[Array, " K"]  # of the arms that all agents have
    theta_hat: Float[Array, " d"]


@dataclass(frozen=True, kw_only=True)
class DELB(PhaseAlgorithm):
    r"""Distributed elimination for linear bandits: agents with the same arms share the pulls of one design.

    In phase l a design pi on the arms that are left asks for

    $$ m_\ell(a) = \left\lceil C_1 \sigma^2 \, 4^\ell \, d^2 \, \log(M T) \; \pi_\ell(a) \right\rceil $$

    pulls of each arm. One after another they are cut into M equal parts, one for each agent, so an arm may be divided
    between neighbours. Agents report mean rewards, and the server's estimate from this phase alone decides:

    $$ \hat\theta_\ell = \left( \sum_a m_\ell(a) \, a a^\top \right)^{-1} \sum_a m_\ell(a) \, \bar r_\ell(a) \, a,
       \qquad \text{keep } a \text{ if } \; \max_b \; (b - a)^\top \hat\theta_\ell \le 2 \cdot 2^{-\ell} $$

    The paper's C1 = 600, the default, is of no use at horizons that one can play: with d = 20, M = 10, T = 10^6 and
    sigma = 1, the first phase alone wants 15 million pulls and there are 10 million. Scale C1: others play C1 = 10.
    The paper has sigma = 1; sigma=None is the problem's.

    `design` is "g-optimal", by `g_optimal_design` with `design_tol` and `design_method`, without the weights below a
    thousandth of the largest; or "spanning": equal weights on `support_factor` d arms, picked greedily, as in the
    public re-implementation by Salgia and Zhao (2023).

    A phase that the horizon cuts ends with reports as planned, but with no estimate. An agent whose part is through
    before the phase ends plays the best arm of the last estimate.

    Counted in scalars: a number up for every arm of every agent's part, and d numbers down to each agent. Counted in
    bits, as Salgia and Zhao do: the same numbers with ceil(log2(M T)) bits each, what goes to all agents once, and
    besides, down, the arms and pulls of every agent's part.

    Diagnostics of a phase besides those of `diagnose`: support, the arms of the design; reports; unseen, see
    `least_squares`.

    When: all clients have the same arms, the horizon is long and messages are dear.

    Paper: Wang, Hu, Chen and Wang, "Distributed Bandit Learning: Near-Optimal Regret with Efficient Communication",
    ICLR 2020, [arXiv 1904.06309](https://arxiv.org/abs/1904.06309).
    """

    made_for: ClassVar[MadeFor] = PhaseAlgorithm.made_for | {
        "arm_sets": ("divides the pulls of arms that all clients have", ("common",))
    }
    to_shorten: ClassVar[str] = "; a smaller C1 makes it shorter"

    C1: Hyperparameter = param(600.0, low=0, ends="()", search=Between(0.01, 100))
    sigma: Hyperparameter = param(None, low=0, ends="[)")
    design: Hyperparameter = param("g-optimal", words=("g-optimal", "spanning"))
    support_factor: Hyperparameter = param(2, low=1)
    design_tol: Hyperparameter = param(1e-2, low=1e-3, high=1)
    design_method: Hyperparameter = param("multiplicative", words=tuple(METHODS))

    def check(self, **setting: Any) -> None:
        _checks.whole("support_factor", self.support_factor)
        super().check(**setting)

    def first_phase(self, dim: int, clients: int, arms: int, horizon: int, noise: float) -> float:
        sigma = noise if self.sigma is None else self.sigma
        return float(4 * self.C1 * sigma**2 * dim**2 * np.log(clients * horizon) / clients)

    def steps(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> int:
        """Phases, each four times as long as the one before, and a round at least."""
        length, start, phase = self.first_phase(dim, clients, arms, horizon, noise), 0.0, 0
        while start < horizon and phase < MAX_PHASES:
            start, phase = start + max(length * 4**phase, 1), phase + 1
        return phase

    def weights(self, arms: Float[Array, "K d"], active: Bool[Array, " K"]) -> Float[Array, " K"]:
        """The design of a phase."""
        if self.design == "spanning":
            size = jnp.asarray(self.support_factor * arms.shape[1]).astype(jnp.int32)
            return spanning_design(arms, active, size)
        return on_support(g_optimal_design(arms, active, self.design_tol, method=self.design_method).weights)

    def plan(self, problem: Problem, clock: Clock, state: State) -> Float[Array, "M K"]:
        """How often every agent pulls every arm in a phase."""
        sigma = problem.sigma if self.sigma is None else self.sigma
        total = self.C1 * sigma**2 * problem.dim**2 * jnp.log(problem.num_clients * problem.horizon) / clock.eps**2
        weights = self.weights(problem.arms[0], state.active)
        return split(round_counts(total * weights, weights > 0, "ceil", total), problem.client_mask)

    def carry_out(
        self, counts: Float[Array, "M K"], key: Key[Array, ""], problem: Problem, clock: Clock, state: State
    ) -> tuple[State, Phase]:
        """Play what is planned, estimate, eliminate."""
        arms, M, d = problem.arms[0], problem.num_clients, problem.dim
        pulls = counts.sum(axis=0)
        planned = counts.sum(axis=1).max()
        length, whole = cut_at_horizon(planned, clock)
        sums = sums_of_rewards(problem, counts, draw_for_clients(key, problem, clock)).sum(axis=0)
        theta_hat, unseen = least_squares(weighted_gram(arms, pulls), sums @ arms)
        theta_hat = jnp.where(whole, theta_hat, state.theta_hat)
        active = jnp.where(whole, eliminate(arms, state.active, theta_hat, 2 * clock.eps), state.active)
        support, reports = ((x > 0).sum().astype(length.dtype) for x in (pulls, counts))
        real = bits_for(M * problem.horizon)  # bits of a real number
        before, after = (problem.client_mask[:, None] & x[None, :] for x in (state.active, active))
        phase = Phase(
            counts=counts,
            length=length,
            client_mask=problem.client_mask,
            opening=Messages(bits_up=0.0, bits_down=reports * (bits_for(support) + bits_for(planned))),
            closing=Messages(
                uploads=(counts.sum(axis=1) > 0).sum().astype(length.dtype),
                downloads=jnp.where(whole, M, 0),
                scalars_up=reports,
                scalars_down=jnp.where(whole, M * d, 0),
                bits_up=reports * real,
                bits_down=jnp.where(whole, d * real, 0),
            ),
            theta_error=problem.theta_error(theta_hat),
            info=OrderedDict(
                eps=clock.eps,
                complete=whole,
                **diagnose(problem, before, after, theta_hat, clock.eps),
                support=support,
                reports=reports,
                unseen=unseen,
            ),
            rest=jnp.broadcast_to(leader(arms, state), problem.client_mask.shape),
        )
        return State(active, theta_hat), phase

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        def play_phase(clock: Clock, state: State) -> tuple[State, Phase]:
            return self.carry_out(self.plan(problem, clock, state), key, problem, clock, state)

        return run_phases(play_phase, first_state(problem), problem, checkpoints)


def first_state(problem: Problem) -> State:
    """All arms there, nothing known."""
    return State(problem.arm_mask[0], jnp.zeros_like(problem.theta[0]))


def leader(arms: Float[Array, "K d"], state: State) -> Int[Array, ""]:
    """The best arm of the last estimate, and the first of equals."""
    return jnp.argmax(jnp.where(state.active, arms @ state.theta_hat, -jnp.inf))


def split(counts: Float[Array, " K"], real: Bool[Array, " M"]) -> Float[Array, "M K"]:
    """A list of pulls, in the order of arms, cut into a part for each real client; the first parts may be 1 longer."""
    M = jnp.maximum(real.sum(), 1).astype(counts.dtype)
    total = counts.sum()
    least = jnp.floor((total + 0.5) / M)  # half a pull, so that rounding does not carry a quotient past a whole number
    more = total - least * M
    j = jnp.cumsum(real).astype(counts.dtype) - 1
    begin = j * least + jnp.minimum(j, more)
    end = begin + least + (j < more)
    last = jnp.cumsum(counts)
    first = last - counts
    parts = jnp.minimum(end[:, None], last[None, :]) - jnp.maximum(begin[:, None], first[None, :])
    return jnp.where(real[:, None], jnp.maximum(parts, 0), 0)

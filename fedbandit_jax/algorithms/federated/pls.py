"""PLS: explore, share an estimate in a few bits, exploit."""

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import Algorithm, MadeFor, Trace
from fedbandit_jax.clocks.phases import MAX_PHASES, draw, pulls_after
from fedbandit_jax.clocks.stretch import play_stretch
from fedbandit_jax.linalg import quantisation, regression
from fedbandit_jax.linalg.design import weighted_gram
from fedbandit_jax.linalg.eigenvalues import least_squares
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.quantisation import Quantised, next_whole
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.linalg.representatives import barycentric_spanner
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import Alone, stages_of, uniforms
from fedbandit_jax.worlds.world import World

MESSAGES = ("uploads", "downloads", "scalars_up", "scalars_down", "bits_up", "bits_down")
DIAGNOSTICS = (
    *("phase", "start", "length", "complete", "s_k", "exploited", "tau_k", "norm", "clipped"),
    *("retained_mean", "best_arm_active", "theta_error"),
)
LEAST_EIGENVALUE = 1e-6  # of the largest: smaller ones are those of directions that no arm of a basis has


class Epoch(NamedTuple):
    """The paper's numbers of an epoch."""

    k: Int[Array, ""]  # 1, 2, ...
    s: Float[Array, ""]  # pulls of every arm of a basis
    tau: Float[Array, ""]  # accuracy of the estimate
    R: Float[Array, ""]  # with B, the range of uploads
    B: Float[Array, ""]  # with tau, the range of the broadcast
    alpha: Float[Array, ""]  # resolution of uploads
    beta: Float[Array, ""]  # resolution of the broadcast


class State(NamedTuple):
    """What goes from an epoch to the next."""

    k: Int[Array, ""]
    start: Float[Array, ""]  # rounds played
    theta: Float[Array, " d"]  # thetabar, as the clients know it
    mu_0: Float[Array, ""]  # norm of the server's estimate when it was first long enough; 0 before


class Estimate(NamedTuple):
    """What a client makes of an exploration."""

    theta: Float[Array, "*M d"]
    u: Float[Array, "*M d"]  # uniform in [0, 1), to round it with


class Exchange(NamedTuple):
    """What is sent at the end of an exploration."""

    uploads: Quantised  # a leading axis M
    broadcast: Quantised
    server: Float[Array, " d"]  # its estimate, before it is broadcast
    clipped: Float[Array, ""]  # coordinates of uploads that were out of range


class Local(NamedTuple):
    """What a client exploits with."""

    arms: Float[Array, "K d"]
    retained: Bool[Array, " K"]
    means: Float[Array, " K"]  # x.thetabar


@dataclass(frozen=True, kw_only=True)
class PLS(Algorithm):
    r"""Clients explore a basis of their arms, send the little they learned in a few bits, and exploit the mean of it.

    $$ \bar\theta_k = \bar\theta_{k-1} + Q_{\beta_k} \Big( \frac1M \sum_{j=1}^{M}
       Q_{\alpha_k} \big( \hat\theta_{j,k} - \bar\theta_{k-1} \big) \Big), \qquad
       \tau_k = \frac{\tau}{2^{k+1} \sqrt M}, \quad \alpha_k = \alpha_0 \sigma \sqrt{d / s_k}, \quad
       \beta_k = \beta_0 \tau_k $$

    In epoch k every client plays each arm of its basis s_k = C sigma^2 d log(M log2 T) 4^k times, rounded up, and
    estimates theta from these pulls alone. Uploads are rounded at random within +-(R_k + B_k), the broadcast to the
    nearest within +-(B_k + tau_k): R_k = 2^-k and B_k = 5 tau_k, but the first range is B_1 S, S the largest norm of
    the catalog's users. From the epoch on in which the server's estimate is as long as 4 tau_k, and has the norm mu_0,
    epochs go on for M s_k^2 mu_0^2 rounds: LinUCB of ridge lam and width gamma sigma, on the client's arms within
    2 tau_k of the best by thetabar_k, learns the rest theta - thetabar_k. After `exploit_rounds` rounds of an epoch it
    learns no more and plays the best arm it knows, which costs no time.

    C="theory" takes s_k = 40 (sigma / lambda_B)^2 d log(8 M K_e / delta) 4^k, with the least eigenvalue lambda_B of the
    bases' sums of x x' and the number of epochs K_e. It is useless unless T is in the millions: the first exploration
    is longer than that. sigma=None means the noise of the problem.

    A coordinate takes 3 + |n| bits, n its place on the grid counted from the middle. A broadcast counts once, however
    many clients hear it: one download, d scalars, its bits. theta_error is that of thetabar.

    From the paper: the quantisers and their code, the ranges, the two stages, tau=3 and B_1=1; it wants alpha_0 and
    beta_0 below 1. From the authors' code: s_k with C, for sigma = 1, and the defaults. Reconstructed: the basis is a
    barycentric spanner, played in the order of the arms; an exploration that T cuts sends nothing; the server adds to
    thetabar_{k-1}, to which uploads refer, and not to its own estimate.

    When: where bits are dear; T should be long, as every epoch first explores d arms.

    Paper: Salgia and Zhao, "Distributed Linear Bandits under Communication Constraints", ICML 2023,
    [arXiv 2211.02212](https://arxiv.org/abs/2211.02212).
    """

    made_for: ClassVar[MadeFor] = {
        "contexts": ("plays a basis of fixed arms", ("fixed",)),
        "arrivals": ("plays epochs that end together for all clients", ("all",)),
    }
    needs: ClassVar[str] = "an epoch needs means that stay, and `sum_of_rewards` where `reward` is the world's own"

    C: Hyperparameter = param(6.0, low=0, ends="()", words=("theory",), search=Between(0.01, 10))
    alpha_0: Hyperparameter = param(2.0, low=0, ends="()")
    beta_0: Hyperparameter = param(1.0, low=0, ends="()")
    tau: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.1, 10))
    B_1: Hyperparameter = param(1.5, low=0, ends="()")
    gamma: Hyperparameter = param(3.0, low=0, ends="[)", search=Between(0.03, 10))
    lam: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 10))
    exploit_rounds: Hyperparameter = param(30_000, low=0)
    delta: Hyperparameter = param(0.1, low=0, high=1, ends="()")
    sigma: Hyperparameter = param(None, low=0, ends="()")

    def plays_in(self, world: World) -> bool:
        return world.knows_sums

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        super().check(dim=dim, clients=clients, arms=arms, horizon=horizon, noise=noise)
        _checks.whole("exploit_rounds", self.exploit_rounds, 0)
        sigma = noise if self.sigma is None else self.sigma
        if sigma == 0:
            _checks.fail(
                "noise", noise, f"{self.title} rounds to parts of sigma, so it must be above 0, or sigma given"
            )
        shortest = self.first_exploration(dim, clients, arms, horizon, noise)
        if horizon < shortest:
            warnings.warn(
                f"horizon={horizon} is shorter than the first exploration of {self.title}, at least {shortest:.0f} "
                "rounds here: nothing will be sent",
                stacklevel=2,
            )

    def first_exploration(self, dim: int, clients: int, arms: int, horizon: int, noise: float) -> float:
        """Its rounds before rounding up, at least: lambda_B is 1 at most for unit arms."""
        sigma = noise if self.sigma is None else self.sigma
        return 4 * min(dim, arms) * float(self.pulls(dim, clients, horizon, sigma, 1.0, xp=np))

    def steps(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> int:
        """Rounds of LinUCB, as if there were one epoch; explorations cost little."""
        left = horizon - self.first_exploration(dim, clients, arms, horizon, noise)
        return 1 + int(min(max(left, 0), self.exploit_rounds))

    def pulls(self, dim: int, clients: Any, horizon: Any, sigma: Any, lambda_B: Any, xp: Any = jnp) -> Any:
        """s_k 4^-k, before rounding up. `xp` is numpy or jax.numpy."""
        if not isinstance(self.C, str):
            return self.C * sigma**2 * dim * xp.log(xp.maximum(clients * xp.log2(xp.maximum(horizon, 2)), 2))
        scale = 40 * (sigma / lambda_B) ** 2 * dim
        k = xp.arange(1.0, MAX_PHASES + 1)
        fits = scale * xp.log(8 * clients * k / self.delta) * (xp.exp2(2 * k) - 4) <= horizon
        return scale * xp.log(8 * clients * xp.where(fits, k, 1).max() / self.delta)

    def epoch(self, k: Int[Array, ""], problem: Problem, pulls: Float[Array, ""]) -> Epoch:
        """The numbers of epoch k, where `pulls` is s_k 4^-k."""
        power = k.astype(pulls.dtype)
        s = next_whole(pulls * jnp.exp2(2 * power))
        tau = self.tau * jnp.exp2(-power - 1) / jnp.sqrt(problem.num_clients)
        alpha = self.alpha_0 * self.sigma_of(problem) * jnp.sqrt(problem.dim / s)
        B = jnp.where(k == 1, self.B_1 * problem.user_bound, 5 * tau)
        return Epoch(k, s, tau, jnp.exp2(-power), B, alpha, self.beta_0 * tau)

    def sigma_of(self, problem: Problem) -> Float[Array, ""]:
        return problem.sigma if self.sigma is None else jnp.asarray(self.sigma, problem.theta.dtype)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        T, M, d = problem.horizon, problem.num_clients, problem.dim
        stages = stages_of(problem, key)
        basis = jax.vmap(basis_of)(problem.arms)
        lambda_B = least_eigenvalue(problem.arms, basis) if isinstance(self.C, str) else 1.0
        pulls = self.pulls(d, M, T, self.sigma_of(problem), lambda_B)

        def play_epoch(carry: tuple) -> tuple:
            state, curves, table = carry
            epoch = self.epoch(state.k, problem, pulls)
            counts = epoch.s * basis
            needed = counts.sum(axis=1).max()
            # A federation of padding has nothing to explore and must not hold up its batch.
            complete = (state.start + needed <= T) & (needed > 0)
            end = jnp.where(complete, state.start + needed, T)  # of the exploration
            exchange = share(epoch, explore(key, epoch, counts, needed, problem), state.theta, problem)
            theta = jnp.where(complete, state.theta + exchange.broadcast.values, state.theta)
            norm = jnp.where(complete, jnp.linalg.norm(exchange.server), 0)
            mu_0 = jnp.where((state.mu_0 == 0) & (norm >= 4 * epoch.tau), norm, state.mu_0)

            # Not before the norm is known; the last epoch that there is goes on to the end.
            wanted = jnp.where(mu_0 > 0, next_whole(M * (epoch.s * mu_0) ** 2), 0)
            wanted = jnp.where(epoch.k >= MAX_PHASES, T, wanted)
            length = jnp.where(complete, jnp.minimum(wanted, T - end), 0)
            width = jnp.where(complete, 2 * epoch.tau, jnp.inf)
            clients = jax.vmap(retain, in_axes=(0, 0, None, None))(problem.arms, problem.arm_mask, theta, width)
            exploited = self.exploit(stages, clients, end, length, self.sigma_of(problem), checkpoints)

            error = problem.theta_error(theta)
            explored = regret_of_exploring(problem.gaps, counts, state.start, end, checkpoints)
            sent = messages(exchange, problem)
            passed = complete & (checkpoints >= end)
            curves = curves._replace(
                regret=curves.regret + explored + exploited,
                theta_error=jnp.where(passed, error, curves.theta_error),
                counts={name: curve + jnp.where(passed, sent[name], 0) for name, curve in curves.counts.items()},
            )
            values = OrderedDict(
                phase=epoch.k,
                start=state.start,
                length=end + length - state.start,
                complete=complete,
                s_k=epoch.s,
                exploited=length,
                tau_k=epoch.tau,
                norm=norm,
                clipped=jnp.where(complete, exchange.clipped, 0),
                **diagnose(problem, clients.retained),
                theta_error=error,
            )
            row = jnp.stack([jnp.asarray(values[name], T.dtype) for name in DIAGNOSTICS])
            return State(epoch.k + 1, end + length, theta, mu_0), curves, table.at[epoch.k - 1].set(row)

        zeros, nothing = jnp.zeros_like(checkpoints), jnp.zeros_like(problem.theta[0])
        error = jnp.full_like(zeros, problem.theta_error(nothing))
        curves = Trace(zeros, zeros, zeros, error, counts=dict.fromkeys(MESSAGES, zeros))
        table = jnp.zeros((MAX_PHASES, len(DIAGNOSTICS)), checkpoints.dtype)
        begin = (State(jnp.int32(1), zeros[0], nothing, zeros[0]), curves, table)
        _, curves, table = lax.while_loop(lambda carry: carry[0].start < T, play_epoch, begin)
        return curves._replace(
            communication=curves.counts["scalars_up"] + curves.counts["scalars_down"],
            phases=OrderedDict(zip(DIAGNOSTICS, table.T, strict=True)),
        )

    def exploit(
        self,
        stages: Alone,
        clients: Local,  # a leading axis M
        start: Float[Array, ""],
        length: Float[Array, ""],
        sigma: Float[Array, ""],
        checkpoints: Float[Array, " P"],
    ) -> Float[Array, " P"]:
        """Regret of some rounds of LinUCB on the rest theta - thetabar, then of the best arm, by each checkpoint."""
        K = clients.arms.shape[1]

        def choose(client: Local, state: Ridge) -> Int[Array, ""]:
            scores = client.means + state.means + self.gamma * sigma * state.lengths()
            return argmax(jnp.where(client.retained, scores, -jnp.inf))

        def learn(client: Local, state: Ridge, arm: Int[Array, ""], reward: Any, playing: Bool[Array, ""]) -> Ridge:
            pulled = jnp.where(playing, arm, K)  # no arm has the index K
            rest = reward - client.means[arm]
            return regression.pull(state, client.arms, pulled, rest, playing.astype(rest.dtype))

        def refresh(client: Local, state: Ridge) -> Ridge:
            return regression.recompute(state, client.arms, self.lam)

        def greedy(client: Local, state: Ridge, losses: Float[Array, " K"]) -> Float[Array, ""]:
            return losses[argmax(jnp.where(client.retained, client.means + state.means, -jnp.inf))]

        rounds = jnp.minimum(length, self.exploit_rounds)
        state = jax.vmap(lambda client: regression.start(client.arms, self.lam))(clients)
        stretch = start.astype(jnp.int32), rounds.astype(jnp.int32)
        state, regret = play_stretch(choose, learn, refresh, clients, state, stages, *stretch, checkpoints)
        assert stages.standing is not None
        lost = jax.vmap(greedy)(clients, state, stages.standing[1]).sum()
        return regret + lost * jnp.clip(checkpoints - (start + rounds), 0, length - rounds)


def basis_of(arms: Float[Array, "K d"]) -> Float[Array, " K"]:
    """1 for the arms of a barycentric spanner, 0 for others and padding."""
    K, d = arms.shape
    spanner = barycentric_spanner(arms)
    index = jnp.where(jnp.arange(d) < spanner.rank, spanner.indices, K)
    return jnp.zeros(K, arms.dtype).at[index].set(1, mode="drop")


def least_eigenvalue(arms: Float[Array, "M K d"], basis: Float[Array, "M K"]) -> Float[Array, ""]:
    """lambda_B, over clients; of a basis that does not span R^d, in its span."""
    values = jnp.linalg.eigvalsh(jax.vmap(weighted_gram)(arms, basis))
    return jnp.where(values > LEAST_EIGENVALUE * values[:, -1:], values, jnp.inf).min()


def explore(
    key: Key[Array, ""], epoch: Epoch, counts: Float[Array, "M K"], length: Float[Array, ""], problem: Problem
) -> Estimate:
    """The clients' own estimates, a leading axis M."""
    _, K, d = problem.arms.shape

    def estimate(i: Any, arms: Any, counts: Any, means: Any) -> Estimate:
        random = draw(key, i, epoch.k, K, d, arms.dtype, with_keys=True)
        assert random.keys is not None
        pulls = pulls_after(length, counts)  # a client whose arms do not span R^d plays its list again
        rewards = problem.world.sum_of_rewards(pulls, means, problem.noise, random.pulls, random.keys[0])
        theta, _ = least_squares(weighted_gram(arms, pulls), rewards @ arms)
        return Estimate(theta, (uniforms(random.keys[1], (d,), arms.dtype) + 1) / 2)

    return jax.vmap(estimate)(problem.client_ids, problem.arms, counts, problem.means)


def share(epoch: Epoch, own: Estimate, theta: Float[Array, " d"], problem: Problem) -> Exchange:
    """Clients upload how far their estimates are from thetabar, the server broadcasts the mean of that."""
    rest, reach = own.theta - theta[None], epoch.R + epoch.B
    uploads = jax.vmap(quantisation.at_random, in_axes=(0, None, None, 0))(rest, reach, epoch.alpha, own.u)
    real = problem.client_mask[:, None]
    update = jnp.where(real, uploads.values, 0).sum(axis=0) / problem.num_clients
    broadcast = quantisation.to_the_nearest(update, epoch.B + epoch.tau, epoch.beta)
    clipped = (real & (jnp.abs(rest) > reach)).sum().astype(theta.dtype)
    return Exchange(uploads, broadcast, theta + update, clipped)


def messages(exchange: Exchange, problem: Problem) -> dict[str, Float[Array, ""]]:
    """What an exchange adds to each count; a broadcast is one message."""
    M, d = problem.num_clients, jnp.asarray(problem.dim, problem.theta.dtype)
    bits = jax.vmap(lambda upload: upload.bits)(exchange.uploads)
    return {
        "uploads": M,
        "downloads": jnp.ones_like(M),
        "scalars_up": M * d,
        "scalars_down": d,
        "bits_up": jnp.where(problem.client_mask, bits, 0).sum(),
        "bits_down": exchange.broadcast.bits,
    }


def retain(
    arms: Float[Array, "K d"], mask: Bool[Array, " K"], theta: Float[Array, " d"], width: Float[Array, ""]
) -> Local:
    """The arms within a width of the best by thetabar."""
    means = arms @ theta
    return Local(arms, mask & (means >= jnp.where(mask, means, -jnp.inf).max() - width), means)


def regret_of_exploring(
    gaps: Float[Array, "M K"],
    counts: Float[Array, "M K"],
    start: Float[Array, ""],
    end: Float[Array, ""],
    checkpoints: Float[Array, " P"],
) -> Float[Array, " P"]:
    def after(rounds: Float[Array, ""]) -> Float[Array, ""]:
        return (gaps * jax.vmap(pulls_after, in_axes=(None, 0))(rounds, counts)).sum()

    return jax.vmap(after)(jnp.clip(checkpoints - start, 0, end - start))


def diagnose(problem: Problem, retained: Bool[Array, "M K"]) -> dict[str, Array]:
    best = problem.arm_mask & (problem.gaps == 0)
    return {
        "retained_mean": problem.mean_over_clients(retained.sum(axis=1).astype(problem.theta.dtype)),
        "best_arm_active": ((best & retained).any(axis=1) | ~problem.client_mask).all(),
    }

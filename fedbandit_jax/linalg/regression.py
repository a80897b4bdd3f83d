"""Ridge regression, kept up by rank-one updates.

    V = prior I + weight sum x x' + extra,   theta = V^-1 (weight sum x r + extra moment)

What is known, V^-1, theta and log det V, follows every observation in O(d^2). On a fixed arm set the means x.theta and
squared widths x' V^-1 x of all K arms follow too, in O(K d); on arms that are redrawn they are worked out anew, in
O(K d^2). `means_and_widths` has them either way.

Rank-one updates drift in float32; `recompute` starts again from sums, which hardly do. Two things keep it accurate
after 10^5 pulls of fixed arms, when V has eigenvalues from 1 to 10^5. It factors the square root of V by QR, since to
form V would square the condition number. And rewards are summed as residuals from a reference theta, that of the last
recomputation: small numbers, whose rounding does not reach the weak directions. Pulls of redrawn arms, which go in all
directions, are summed as a matrix.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.forms import quadratic_forms
from fedbandit_jax.linalg.portable import half_solved, matvec

UNIT = 1e-5  # a squared norm as near to 1 is that of a unit vector, rounded


class FixedArms(NamedTuple):
    """Pulls of a fixed arm set, and what follows of each arm."""

    means: Float[Array, " K"]  # x.theta
    widths: Float[Array, " K"]  # x' V^-1 x, squared widths
    counts: Float[Array, " K"]  # pulls, or parts of pulls
    residuals: Float[Array, " K"]  # sums of reward - x.reference
    reference_means: Float[Array, " K"]  # x.reference

    def moved(self, gain: Float[Array, ""], step: Float[Array, ""], projections: Float[Array, " K"]) -> "FixedArms":
        """After V^-1 has moved by -gain u u' and theta by step u; `projections` are x.u."""
        return self._replace(means=self.means + step * projections, widths=self.widths - gain * projections**2)

    def counted(self, arm: Int[Array, ""], reward: Float[Array, ""], part: Real = 1.0) -> "FixedArms":
        """With a pull, or a part of one, in the sums."""
        pulled = part * (jnp.arange(self.counts.size) == arm).astype(reward.dtype)
        residual = reward - self.reference_means[arm]
        return self._replace(counts=self.counts + pulled, residuals=self.residuals + pulled * residual)


class RedrawnArms(NamedTuple):
    """Pulls of arms that change."""

    gram: Float[Array, "d d"]  # sum x x'
    moment: Float[Array, " d"]  # sum x (reward - x.reference)


class Ridge(NamedTuple):
    inverse: Float[Array, "d d"]  # V^-1
    theta: Float[Array, " d"]
    log_det: Float[Array, ""]  # log det V
    observations: Float[Array, ""]  # of all kinds
    prior: Float[Array, ""]
    reference: Float[Array, " d"]
    pulls: FixedArms | RedrawnArms
    extra_gram: Float[Array, "d d"]  # of observations that are not pulls; 0 x 0 if there never are any
    extra_moment: Float[Array, " d"]  # sum x (answer - x.reference) of them

    @property
    def means(self) -> Float[Array, " K"]:
        """x.theta of every arm of a fixed set."""
        return self.of_fixed_arms().means

    @property
    def widths(self) -> Float[Array, " K"]:
        """x' V^-1 x of every arm of a fixed set, squared widths."""
        return self.of_fixed_arms().widths

    def lengths(self) -> Float[Array, " K"]:
        """sqrt(x' V^-1 x) of every arm of a fixed set."""
        return square_root(self.widths)

    def of_fixed_arms(self) -> FixedArms:
        if not isinstance(self.pulls, FixedArms):
            told = "regression.means_and_widths(ridge, client.arms) has those of a round"
            raise AttributeError(f"arms are redrawn: {told}")
        return self.pulls


def square_root(widths: Float[Array, " K"]) -> Float[Array, " K"]:
    """Square roots of squared widths, with those that rounding brought below 0 taken as 0."""
    return jnp.sqrt(jnp.maximum(widths, 0))


def start(arms: Float[Array, "K d"], prior: Real, *, fixed: bool = True) -> Ridge:
    """No observation: V = prior I; with fixed=False, arms tell no more than their shape.

    Unit arms have the same width, exactly, so that ties break by index.
    """
    K, d = arms.shape
    prior = jnp.asarray(prior, arms.dtype)
    per_dim, square = jnp.zeros(d, arms.dtype), jnp.zeros((d, d), arms.dtype)
    pulls: FixedArms | RedrawnArms = RedrawnArms(square, per_dim)
    if fixed:
        zero = jnp.zeros(K, arms.dtype)
        pulls = FixedArms(zero, squared_norms(arms) / prior, zero, zero, zero)
    return Ridge(
        inverse=jnp.eye(d, dtype=arms.dtype) / prior,
        theta=per_dim,
        log_det=d * jnp.log(prior),
        observations=jnp.zeros((), arms.dtype),
        prior=prior,
        reference=per_dim,
        pulls=pulls,
        extra_gram=square,
        extra_moment=per_dim,
    )


def squared_norms(arms: Float[Array, "K d"]) -> Float[Array, " K"]:
    """|x|^2, exactly 1 of unit vectors."""
    squares = (arms**2).sum(axis=1)
    return jnp.where(jnp.abs(squares - 1) < UNIT, 1, squares)


class Estimate(NamedTuple):
    """What a choice needs of a regression, and no more: it may be kept while the regression goes on."""

    theta: Float[Array, " d"]
    observations: Float[Array, ""]
    prior: Float[Array, ""]
    of_arms: tuple[Float[Array, " K"], Float[Array, " K"]] | None  # means and squared widths, of a fixed set
    inverse: Float[Array, "d d"] | None  # V^-1, where arms are redrawn


def estimate(ridge: Ridge) -> Estimate:
    if isinstance(ridge.pulls, FixedArms):
        of_arms = ridge.pulls.means, ridge.pulls.widths
        return Estimate(ridge.theta, ridge.observations, ridge.prior, of_arms, None)
    return Estimate(ridge.theta, ridge.observations, ridge.prior, None, ridge.inverse)


def means_and_widths(
    known: Ridge | Estimate, arms: Float[Array, "K d"]
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """x.theta and x' V^-1 x of the arms of a round."""
    known = known if isinstance(known, Estimate) else estimate(known)
    if known.of_arms is not None:
        return known.of_arms
    assert known.inverse is not None
    return matvec(arms, known.theta), rounded_to(1 / known.prior, quadratic_forms(arms, known.inverse))


def rounded_to(first: Float[Array, ""], widths: Float[Array, " K"]) -> Float[Array, " K"]:
    """Widths that only rounding tells from those of unit arms at first are these: ties break by index."""
    return jnp.where(jnp.abs(widths - first) < UNIT * first, first, widths)


class RankOneUpdate(NamedTuple):
    """V + weight x x' has the inverse V^-1 - gain u u' with u = V^-1 x."""

    u: Float[Array, " d"]
    gain: Float[Array, ""]  # weight / (1 + weight x' V^-1 x)
    growth: Float[Array, ""]  # of log det V: log(1 + weight x' V^-1 x)
    projections: Float[Array, " K"] | None  # x.u of every arm of a fixed set


def update_of_pull(ridge: Ridge, arms: Float[Array, "K d"], arm: Int[Array, ""], weight: Real = 1.0) -> RankOneUpdate:
    """What a pull will change."""
    x = arms[arm]
    u = matvec(ridge.inverse, x)
    fixed = isinstance(ridge.pulls, FixedArms)
    width = weight * (ridge.pulls.widths[arm] if isinstance(ridge.pulls, FixedArms) else x @ u)
    return RankOneUpdate(u, weight / (1 + width), jnp.log1p(width), matvec(arms, u) if fixed else None)


def pull(
    ridge: Ridge, arms: Float[Array, "K d"], arm: Int[Array, ""], reward: Float[Array, ""], weight: Real = 1.0
) -> Ridge:
    """Add the reward of a pull."""
    return learn_pull(ridge, update_of_pull(ridge, arms, arm, weight), arms, arm, reward)


def part_of_a_pull(
    ridge: Ridge, arms: Float[Array, "K d"], arm: Int[Array, ""], reward: Float[Array, ""], part: Real
) -> Ridge:
    """Add a reward of a fixed arm that counts as a part of a pull: 0 teaches nothing, though it is an observation."""
    return learn_pull(ridge, update_of_pull(ridge, arms, arm, part), arms, arm, reward, part)


def learn_pull(
    ridge: Ridge,
    update: RankOneUpdate,
    arms: Float[Array, "K d"],
    arm: Int[Array, ""],
    reward: Float[Array, ""],
    part: Real = 1.0,
) -> Ridge:
    """Add the reward of a pull whose rank-one update is known; `part` is what it counts for in sums of fixed arms."""
    if isinstance(ridge.pulls, FixedArms):
        moved = _move(ridge, update, reward - ridge.pulls.means[arm])
        return moved._replace(pulls=moved.of_fixed_arms().counted(arm, reward, part))
    x = arms[arm]
    summed = RedrawnArms(ridge.pulls.gram + jnp.outer(x, x), ridge.pulls.moment + (reward - x @ ridge.reference) * x)
    return _move(ridge, update, reward - x @ ridge.theta)._replace(pulls=summed)


def pull_together(
    ridge: Ridge,
    arms: Float[Array, "MK d"],
    columns: Float[Array, "d MK"],
    arm: Int[Array, " M"],
    reward: Float[Array, " M"],
    seen: Real,
) -> Ridge:
    """Add the rewards of M pulls at once, each of one of M parts of the arms; `seen` of them count as observations.

    `columns` are the arms as columns: a CPU multiplies few rows with them twice as fast as arms with few columns. With
    the rows X that were pulled, U = V^-1 X' and L L' = I + X U, the inverse of V + X'X is V^-1 - W'W, W = L^-1 U'.
    """
    M, x = len(arm), arms[arm]
    U = ridge.inverse @ x.T
    expected = ridge.pulls.means[arm] if isinstance(ridge.pulls, FixedArms) else matvec(x, ridge.theta)
    sides = jnp.concatenate([U.T, (reward - expected)[:, None]], axis=1)
    solved, diagonal = half_solved(jnp.eye(M, dtype=x.dtype) + x @ U, sides)
    W, surprise = solved[:, :-1], solved[:, -1]
    change = surprise @ W
    pulls: FixedArms | RedrawnArms
    if isinstance(ridge.pulls, FixedArms):
        along = jnp.concatenate([W, change[None]]) @ columns  # of means and widths in one product
        K = len(arms) // M
        own = arm - K * jnp.arange(M, dtype=arm.dtype)
        pulled = (jnp.arange(K, dtype=arm.dtype)[None, :] == own[:, None]).astype(x.dtype)
        residuals = pulled * (reward - ridge.pulls.reference_means[arm])[:, None]
        pulls = ridge.pulls._replace(
            means=ridge.pulls.means + along[-1],
            widths=ridge.pulls.widths - jnp.ones_like(surprise) @ along[:-1] ** 2,  # a product sums faster on CPU
            counts=ridge.pulls.counts + pulled.reshape(-1),
            residuals=ridge.pulls.residuals + residuals.reshape(-1),
        )
    else:
        pulls = RedrawnArms(ridge.pulls.gram + x.T @ x, ridge.pulls.moment + (reward - x @ ridge.reference) @ x)
    return ridge._replace(
        inverse=ridge.inverse - W.T @ W,
        theta=ridge.theta + change,
        log_det=ridge.log_det + 2 * jnp.log(diagonal).sum(),
        observations=ridge.observations + seen,
        pulls=pulls,
    )


def observe(
    ridge: Ridge, arms: Float[Array, "K d"], x: Float[Array, " d"], answer: Float[Array, ""]
) -> tuple[Ridge, RankOneUpdate]:
    """Add an observation of any vector, such as a key term."""
    u = ridge.inverse @ x
    width = x @ u
    fixed = isinstance(ridge.pulls, FixedArms)
    update = RankOneUpdate(u, 1 / (1 + width), jnp.log1p(width), arms @ u if fixed else None)
    moved = _move(ridge, update, answer - x @ ridge.theta)
    residual = answer - x @ ridge.reference
    return moved._replace(
        extra_gram=ridge.extra_gram + jnp.outer(x, x), extra_moment=ridge.extra_moment + residual * x
    ), update


def add_to_moment(ridge: Ridge, arms: Float[Array, "K d"], change: Float[Array, " d"]) -> Ridge:
    """Add to the moment of what is not a pull, without an observation."""
    moved = ridge.inverse @ change
    pulls = ridge.pulls
    if isinstance(pulls, FixedArms):
        pulls = pulls._replace(means=pulls.means + arms @ moved)
    return ridge._replace(theta=ridge.theta + moved, extra_moment=ridge.extra_moment + change, pulls=pulls)


def observe_sums(
    ridge: Ridge, rows: Float[Array, "n d"], counts: Float[Array, " n"], sums: Float[Array, " n"]
) -> Ridge:
    """Add `counts` observations of each of some vectors, given as their sums, to what `recompute` starts from.

    Nothing else follows before it has been called.
    """
    residuals = sums - counts * (rows @ ridge.reference)
    return ridge._replace(
        extra_gram=ridge.extra_gram + (counts[:, None] * rows).T @ rows,
        extra_moment=ridge.extra_moment + residuals @ rows,
    )


def seen(ridge: Ridge, arms: Float[Array, "K d"]) -> Float[Array, "d d"]:
    """V less its prior, from sums; every pull has the weight 1."""
    if isinstance(ridge.pulls, FixedArms):
        return (ridge.pulls.counts[:, None] * arms).T @ arms + ridge.extra_gram
    return ridge.pulls.gram + ridge.extra_gram


def _move(ridge: Ridge, update: RankOneUpdate, surprise: Float[Array, ""]) -> Ridge:
    pulls = ridge.pulls
    if isinstance(pulls, FixedArms):
        assert update.projections is not None
        pulls = pulls.moved(update.gain, update.gain * surprise, update.projections)
    return ridge._replace(
        inverse=ridge.inverse - update.gain * jnp.outer(update.u, update.u),
        theta=ridge.theta + update.gain * surprise * update.u,
        log_det=ridge.log_det + update.growth,
        observations=ridge.observations + 1,
        pulls=pulls,
    )


def recompute(ridge: Ridge, arms: Float[Array, "K d"], prior: Real, weight: Real = 1.0) -> Ridge:
    """Recompute V^-1, theta, means and widths from sums over the observations.

    On a fixed arm set V = B'B with the rows sqrt(weight n_x) x and a Cholesky factor of prior I + extra; R from the QR
    of B gives V = R'R.
    """
    eye = jnp.eye(len(ridge.theta), dtype=ridge.theta.dtype)
    if isinstance(ridge.pulls, FixedArms):
        rows = jnp.sqrt(weight * ridge.pulls.counts)[:, None] * arms
        rest = cholesky(prior * eye + ridge.extra_gram).T if ridge.extra_gram.size else jnp.sqrt(prior) * eye
        factor = jnp.linalg.qr(jnp.concatenate([rows, rest]), mode="r")
        moment = ridge.pulls.residuals @ arms
    else:
        factor = cholesky(prior * eye + ridge.extra_gram + weight * ridge.pulls.gram).T
        moment = ridge.pulls.moment
    half = lax.linalg.triangular_solve(factor, eye, left_side=False, lower=False)  # R^-1
    gradient = weight * moment + ridge.extra_moment - prior * ridge.reference
    change = half @ (gradient @ half)
    theta = ridge.reference + change
    known = ridge._replace(
        inverse=half @ half.T,
        theta=theta,
        log_det=2 * jnp.log(jnp.abs(jnp.diag(factor))).sum(),
        reference=theta,
        extra_moment=ridge.extra_moment - (ridge.extra_gram @ change if ridge.extra_gram.size else 0),
    )
    if not isinstance(ridge.pulls, FixedArms):
        assert isinstance(known.pulls, RedrawnArms)
        return known._replace(pulls=ridge.pulls._replace(moment=moment - ridge.pulls.gram @ change))
    moved = arms @ change
    means = ridge.pulls.reference_means + moved
    return known._replace(
        pulls=FixedArms(
            means=means,
            widths=((arms @ half) ** 2).sum(axis=1),
            counts=ridge.pulls.counts,
            residuals=ridge.pulls.residuals - ridge.pulls.counts * moved,
            reference_means=means,
        )
    )


def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


exact = recompute  # its name in release 0.1


def confidence_radius(
    dim: int, observations: Real, prior: Real, delta: Real, sigma: Real, bound: Real = 1.0
) -> Float[Array, ""]:
    """sigma sqrt(2 log(1/delta) + d log(1 + n / (lam d))) + sqrt(lam) S, for |theta| <= S."""
    growth = 2 * jnp.log(1 / delta) + dim * jnp.log1p(observations / (prior * dim))
    return sigma * jnp.sqrt(growth) + jnp.sqrt(prior) * bound


def determinant_radius(ridge: Ridge, delta: Real, sigma: Real, bound: Real = 1.0) -> Float[Array, ""]:
    """sigma sqrt(2 log(1/delta) + log(det V / lam^d)) + sqrt(lam) S: holds whatever the norms of what was observed."""
    growth = 2 * jnp.log(1 / delta) + ridge.log_det - ridge.theta.size * jnp.log(ridge.prior)
    return sigma * jnp.sqrt(jnp.maximum(growth, 0)) + jnp.sqrt(ridge.prior) * bound

"""Ridge regression on a fixed arm set, kept up by rank-one updates.

    V = prior I + weight sum x x' + extra,   theta = V^-1 (weight sum x r + extra moment)

The means x.theta and squared widths x' V^-1 x of all K arms follow every observation in O(K d + d^2). Rank-one
updates drift in float32; `recompute` starts again from counts and residuals of the arms, which hardly do.

Two things keep `recompute` accurate after 10^5 pulls, when V has eigenvalues from 1 to 10^5. It factors the square root
of V by QR, since to form V would square the condition number. And rewards are summed as residuals from a reference
theta, that of the last recomputation: small numbers, whose rounding does not reach the weak directions.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.portable import matvec

UNIT = 1e-5  # a squared norm as near to 1 is that of a unit vector, rounded


class Ridge(NamedTuple):
    inverse: Float[Array, "d d"]  # V^-1
    theta: Float[Array, " d"]
    means: Float[Array, " K"]  # x.theta of every arm
    widths: Float[Array, " K"]  # x' V^-1 x of every arm, squared widths
    counts: Float[Array, " K"]  # pulls
    residuals: Float[Array, " K"]  # sums of reward - x.reference
    reference: Float[Array, " d"]
    reference_means: Float[Array, " K"]  # x.reference
    extra_gram: Float[Array, "d d"]  # of observations that are not pulls
    extra_moment: Float[Array, " d"]
    observations: Float[Array, ""]  # of all kinds

    def lengths(self) -> Float[Array, " K"]:
        """sqrt(x' V^-1 x)."""
        return jnp.sqrt(jnp.maximum(self.widths, 0))


def start(arms: Float[Array, "K d"], prior: Real) -> Ridge:
    """No observation: V = prior I. Unit arms have the same width, exactly, so that ties break by index."""
    squares = (arms**2).sum(axis=1)
    K, d = arms.shape
    prior = jnp.asarray(prior, arms.dtype)
    per_arm, per_dim = jnp.zeros(K, arms.dtype), jnp.zeros(d, arms.dtype)
    return Ridge(
        inverse=jnp.eye(d, dtype=arms.dtype) / prior,
        theta=per_dim,
        means=per_arm,
        widths=jnp.where(jnp.abs(squares - 1) < UNIT, 1, squares) / prior,
        counts=per_arm,
        residuals=per_arm,
        reference=per_dim,
        reference_means=per_arm,
        extra_gram=jnp.zeros((d, d), arms.dtype),
        extra_moment=per_dim,
        observations=jnp.zeros((), arms.dtype),
    )


class RankOneUpdate(NamedTuple):
    """V + weight x x' has the inverse V^-1 - gain u u' with u = V^-1 x."""

    u: Float[Array, " d"]
    gain: Float[Array, ""]  # weight / (1 + weight x' V^-1 x)
    projections: Float[Array, " K"]  # arms.u


def pull(
    ridge: Ridge, arms: Float[Array, "K d"], arm: Int[Array, ""], reward: Float[Array, ""], weight: Real = 1.0
) -> Ridge:
    """Add the reward of a pull."""
    u = matvec(ridge.inverse, arms[arm])
    return learn_pull(ridge, RankOneUpdate(u, pull_gain(ridge, arm, weight), matvec(arms, u)), arm, reward)


def pull_gain(ridge: Ridge, arm: Int[Array, ""], weight: Real) -> Float[Array, ""]:
    """weight / (1 + weight x' V^-1 x)."""
    return weight / (1 + weight * ridge.widths[arm])


def learn_pull(ridge: Ridge, update: RankOneUpdate, arm: Int[Array, ""], reward: Float[Array, ""]) -> Ridge:
    """Add the reward of a pull whose rank-one update is known."""
    pulled = (jnp.arange(ridge.counts.size) == arm).astype(reward.dtype)
    residual = reward - ridge.reference_means[arm]
    return _move(ridge, update, reward - ridge.means[arm])._replace(
        counts=ridge.counts + pulled, residuals=ridge.residuals + pulled * residual
    )


def observe(
    ridge: Ridge, arms: Float[Array, "K d"], x: Float[Array, " d"], answer: Float[Array, ""]
) -> tuple[Ridge, RankOneUpdate]:
    """Add an observation of any vector, such as a key term."""
    u = ridge.inverse @ x
    update = RankOneUpdate(u, 1 / (1 + x @ u), arms @ u)
    moved = _move(ridge, update, answer - x @ ridge.theta)
    return moved._replace(
        extra_gram=ridge.extra_gram + jnp.outer(x, x), extra_moment=ridge.extra_moment + answer * x
    ), update


def _move(ridge: Ridge, update: RankOneUpdate, surprise: Float[Array, ""]) -> Ridge:
    return ridge._replace(
        inverse=ridge.inverse - update.gain * jnp.outer(update.u, update.u),
        theta=ridge.theta + update.gain * surprise * update.u,
        means=ridge.means + update.gain * surprise * update.projections,
        widths=ridge.widths - update.gain * update.projections**2,
        observations=ridge.observations + 1,
    )


def recompute(ridge: Ridge, arms: Float[Array, "K d"], prior: Real, weight: Real = 1.0) -> Ridge:
    """Recompute V^-1, theta, means and widths from the counts and residuals.

    V = B'B with the rows sqrt(weight n_x) x and a Cholesky factor of prior I + extra; R from the QR of B gives V = R'R.
    """
    eye = jnp.eye(arms.shape[1], dtype=arms.dtype)
    rest = prior * eye + ridge.extra_gram
    rows = jnp.sqrt(weight * ridge.counts)[:, None] * arms
    B = jnp.concatenate([rows, jnp.linalg.cholesky(rest, symmetrize_input=False).T])
    half = lax.linalg.triangular_solve(jnp.linalg.qr(B, mode="r"), eye, left_side=False, lower=False)  # R^-1
    gradient = weight * (ridge.residuals @ arms) + ridge.extra_moment - rest @ ridge.reference
    change = half @ (gradient @ half)
    theta, moved = ridge.reference + change, arms @ change
    means = ridge.reference_means + moved
    return ridge._replace(
        inverse=half @ half.T,
        theta=theta,
        means=means,
        widths=((arms @ half) ** 2).sum(axis=1),
        residuals=ridge.residuals - ridge.counts * moved,
        reference=theta,
        reference_means=means,
    )


exact = recompute  # its name in release 0.1


def confidence_radius(
    dim: int, observations: Real, prior: Real, delta: Real, sigma: Real, bound: Real = 1.0
) -> Float[Array, ""]:
    """sigma sqrt(2 log(1/delta) + d log(1 + n / (lam d))) + sqrt(lam) S, for |theta| <= S."""
    growth = 2 * jnp.log(1 / delta) + dim * jnp.log1p(observations / (prior * dim))
    return sigma * jnp.sqrt(growth) + jnp.sqrt(prior) * bound

"""Sums of observations that clients and a server pass to each other, and ridge regression from them.

Moments are about a reference theta, as in `regression`: residuals are small numbers, whose rounding does not reach the
directions of which little is known.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.portable import matvec
from fedbandit_jax.linalg.regression import FixedArms, RedrawnArms, Ridge, cholesky


class Sums(NamedTuple):
    """What can be said of some observations of x.theta: all that a message has."""

    gram: Float[Array, "d d"]  # sum x x'
    moment: Float[Array, " d"]  # sum x (reward - x.reference)
    reference: Float[Array, " d"]
    observations: Float[Array, ""]

    def about(self, reference: Float[Array, " d"]) -> "Sums":
        """The same with another reference."""
        moved = self.moment + self.gram @ (self.reference - reference)
        return self._replace(moment=moved, reference=reference)

    def plus(self, more: "Sums") -> "Sums":
        more = more.about(self.reference)
        return Sums(
            self.gram + more.gram, self.moment + more.moment, self.reference, self.observations + more.observations
        )


def nothing(like: Float[Array, " d"]) -> Sums:
    """No observation."""
    zero = jnp.zeros_like(like)
    return Sums(jnp.outer(zero, zero), zero, zero, zero[0])


def of_pulls(ridge: Ridge, arms: Float[Array, "K d"], count: Float[Array, ""]) -> Sums:
    """The pulls of a regression, without the rest of it."""
    if isinstance(ridge.pulls, FixedArms):
        weighted = ridge.pulls.counts[:, None] * arms
        return Sums(weighted.T @ arms, ridge.pulls.residuals @ arms, ridge.reference, count)
    return Sums(ridge.pulls.gram, ridge.pulls.moment, ridge.reference, count)


def of_all_pulls(
    ridges: Ridge, arms: Float[Array, "M K d"], observations: Float[Array, ""], reference: Float[Array, " d"]
) -> Sums:
    """The pulls of M regressions together, about a reference; on fixed arms in one product."""
    if not isinstance(ridges.pulls, FixedArms):
        each = jax.vmap(lambda ridge, arms: of_pulls(ridge, arms, observations).about(reference))(ridges, arms)
        return Sums(each.gram.sum(axis=0), each.moment.sum(axis=0), reference, observations)
    moved = jax.vmap(matvec)(arms, reference[None, :] - ridges.reference)
    residuals = ridges.pulls.residuals - ridges.pulls.counts * moved
    rows = arms.reshape(-1, arms.shape[2])
    weighted = ridges.pulls.counts.reshape(-1, 1) * rows
    return Sums(weighted.T @ rows, residuals.reshape(-1) @ rows, reference, observations)


def of_the_rest(ridge: Ridge, pulls: Float[Array, ""]) -> Sums:
    """All but the pulls of a regression, which are so many."""
    return Sums(ridge.extra_gram, ridge.extra_moment, ridge.reference, ridge.observations - pulls)


class Fit(NamedTuple):
    """Ridge regression: V^-1 = root root', theta, log det V."""

    root: Float[Array, "d d"]
    theta: Float[Array, " d"]
    log_det: Float[Array, ""]


def fit(sums: Sums, prior: Real) -> Fit:
    """V = prior I + sum x x'."""
    eye = jnp.eye(len(sums.moment), dtype=sums.moment.dtype)
    factor = cholesky(prior * eye + sums.gram)
    root = lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True).T
    gradient = sums.moment - prior * sums.reference
    return Fit(root, sums.reference + root @ (gradient @ root), 2 * jnp.log(jnp.diag(factor)).sum())


def without_pulls(ridge: Ridge, arms: Float[Array, "K d"], rest: Sums, fitted: Fit) -> Ridge:
    """A regression on `rest` alone, whose fit is known."""
    zeros = jnp.zeros_like(arms[:, 0])
    pulls: FixedArms | RedrawnArms
    if isinstance(ridge.pulls, FixedArms):
        pulls = FixedArms(zeros, zeros, zeros, zeros, arms @ rest.reference)
    else:
        pulls = RedrawnArms(jnp.zeros_like(rest.gram), jnp.zeros_like(rest.moment))
    return _assembled(ridge._replace(pulls=pulls, observations=rest.observations), arms, rest, fitted)


def with_pulls(ridge: Ridge, arms: Float[Array, "K d"], rest: Sums, pulls: Sums) -> Ridge:
    """A regression on its own pulls, of which `pulls` are the sums, and another rest."""
    change = rest.reference - ridge.reference
    kept: FixedArms | RedrawnArms
    if isinstance(ridge.pulls, FixedArms):
        residuals = ridge.pulls.residuals - ridge.pulls.counts * (arms @ change)
        kept = ridge.pulls._replace(residuals=residuals, reference_means=arms @ rest.reference)
    else:
        kept = RedrawnArms(ridge.pulls.gram, ridge.pulls.moment - ridge.pulls.gram @ change)
    together = rest.plus(pulls)
    return _assembled(
        ridge._replace(pulls=kept, observations=together.observations), arms, rest, fit(together, ridge.prior)
    )


def squared_lengths(rows: Float[Array, "n d"], root: Float[Array, "d d"]) -> Float[Array, " n"]:
    """x' V^-1 x of every row; summed by a product, as CPUs sum rows one entry after another."""
    return matvec((rows @ root) ** 2, jnp.ones_like(root[0]))


def _assembled(ridge: Ridge, arms: Float[Array, "K d"], rest: Sums, fitted: Fit) -> Ridge:
    if isinstance(ridge.pulls, FixedArms):
        followed = ridge.pulls._replace(means=arms @ fitted.theta, widths=squared_lengths(arms, fitted.root))
        ridge = ridge._replace(pulls=followed)
    return ridge._replace(
        inverse=fitted.root @ fitted.root.T,
        theta=fitted.theta,
        log_det=fitted.log_det,
        reference=rest.reference,
        extra_gram=rest.gram,
        extra_moment=rest.moment,
    )


class Known(NamedTuple):
    """Ridge regression on some pulls whose sums are elsewhere, and what follows of each arm of a fixed set."""

    inverse: Float[Array, "d d"]  # V^-1
    theta: Float[Array, " d"]
    log_det: Float[Array, ""]
    plays: Float[Array, ""]
    means: Float[Array, " K"] | None
    widths: Float[Array, " K"] | None

    def plus(
        self, arms: Float[Array, "K d"], x: Float[Array, " d"], plays: Float[Array, ""], rewards: Float[Array, ""]
    ) -> "Known":
        """On pulls of one vector too: a rank-one update."""
        u = matvec(self.inverse, x)
        width = x @ u
        gain, step = plays / (1 + plays * width), (rewards - plays * (x @ self.theta)) / (1 + plays * width)
        means, widths = self.means, self.widths
        if means is not None and widths is not None:
            along = matvec(arms, u)
            means, widths = means + step * along, widths - gain * along**2
        inverse, log_det = self.inverse - gain * jnp.outer(u, u), self.log_det + jnp.log1p(plays * width)
        return Known(inverse, self.theta + step * u, log_det, self.plays + plays, means, widths)


def known_from(sums: Sums, prior: Real, arms: Float[Array, "K d"], fixed: bool) -> Known:
    """Without rounding drift; arms that are not fixed are not looked at."""
    root, theta, log_det = fit(sums, prior)
    of_arms = (arms @ theta, squared_lengths(arms, root)) if fixed else (None, None)
    return Known(root @ root.T, theta, log_det, sums.observations, *of_arms)

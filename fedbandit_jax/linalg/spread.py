"""Ridge regression with the spread of arms, their width by V^-1 W^-1 V^-1, where W is another matrix than V.

On a fixed arm set all is in coordinates in which W is the identity. With W = L L', y = L' x and P = L^-1 V^-1 L^-T an
arm has the width y' P y and the spread |P y|^2, so a pull reads no matrix but P, and the arms once. L need not be
triangular: where W grows by a row, L is multiplied by a root of the identity plus a rank-one matrix. On arms that are
redrawn V^-1 W^-1 V^-1 follows instead.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fedbandit_jax.linalg import Real, regression
from fedbandit_jax.linalg.forms import quadratic_forms
from fedbandit_jax.linalg.portable import matvec, two_products
from fedbandit_jax.linalg.regression import FixedArms, RankOneUpdate, Ridge

PerArm = Float[Array, " K"]


class Whitened(NamedTuple):
    """Of a fixed arm set."""

    ridge: Ridge  # its inverse is P, its theta L^-1 theta; sums over observations are as ever
    root: Float[Array, "d d"]  # L
    columns: Float[Array, "d K"]  # y of every arm
    spread: Float[Array, " K"]


class Plain(NamedTuple):
    """Of arms that are redrawn."""

    ridge: Ridge
    spread: Float[Array, "d d"]  # V^-1 W^-1 V^-1


Spread = Whitened | Plain


def start(arms: Float[Array, "K d"], prior: Real, other: Real, *, fixed: bool) -> Spread:
    """No observation: V = prior I, W = other I. Unit arms have the same spread, exactly: ties break by index."""
    ridge = regression.start(arms, prior, fixed=fixed)
    if not fixed:
        return Plain(ridge, ridge.inverse / (prior * other))
    root = jnp.sqrt(jnp.asarray(other, arms.dtype))
    eye = jnp.eye(arms.shape[1], dtype=arms.dtype)
    white = ridge._replace(inverse=ridge.inverse / other)
    return Whitened(white, root * eye, root * arms.T, ridge.widths / (prior * other))


def of(ridge: Ridge, arms: Float[Array, "K d"], root: Float[Array, "d d"], half: Float[Array, "d d"]) -> Spread:
    """Of a regression and W = L L', given as L and L^-1."""
    if not isinstance(ridge.pulls, FixedArms):
        across = ridge.inverse @ half.T
        return Plain(ridge, across @ across.T)
    P = half @ ridge.inverse @ half.T
    columns = root.T @ arms.T
    white = ridge._replace(inverse=P, theta=half @ ridge.theta)
    return Whitened(white, root, columns, ((P @ columns) ** 2).sum(axis=0))


def ridge_of(known: Spread) -> Ridge:
    """The regression, in the coordinates of the arms."""
    if isinstance(known, Plain):
        return known.ridge
    inverse = known.root @ known.ridge.inverse @ known.root.T
    return known.ridge._replace(inverse=inverse, theta=theta_of(known))


def theta_of(known: Spread) -> Float[Array, " d"]:
    return known.ridge.theta if isinstance(known, Plain) else matvec(known.root, known.ridge.theta)


def shadow(known: Spread, arms: Float[Array, "K d"]) -> Float[Array, "d d"]:
    """V^-1 X'X V^-1 of the arms X."""
    if isinstance(known, Plain):
        onto = arms @ known.ridge.inverse
        return onto.T @ onto
    onto = known.ridge.inverse @ known.columns
    return known.root @ (onto @ onto.T) @ known.root.T


def means_widths_and_spread(known: Spread, arms: Float[Array, "K d"], other: Real) -> tuple[PerArm, PerArm, PerArm]:
    """x.theta, x' V^-1 x and x' V^-1 W^-1 V^-1 x of the arms of a round; at first W was other I."""
    means, widths = regression.means_and_widths(known.ridge, arms)
    if isinstance(known, Whitened):
        return means, widths, known.spread
    first = 1 / (known.ridge.prior**2 * other)
    return means, widths, regression.rounded_to(first, quadratic_forms(arms, known.spread))


def pull(
    known: Spread,
    inverse: Float[Array, "d d"],
    arms: Float[Array, "K d"],
    arm: Int[Array, ""],
    reward: Float[Array, ""],
    weight: Real = 1.0,
) -> Spread:
    """Add the reward of a pull; `inverse` is W^-1.

    With u = V^-1 x and v = V^-1 W^-1 u after the pull, V^-1 W^-1 V^-1 changes by -g (u v' + v u') - g^2 s u u', where s
    is the arm's spread before it. V^-1 is multiplied by after it has changed, as otherwise XLA would copy it.
    """
    if isinstance(known, Plain):
        update = regression.update_of_pull(known.ridge, arms, arm, weight)
        ridge = regression.learn_pull(known.ridge, update, arms, arm, reward)
        w = matvec(inverse, update.u)
        v = matvec(ridge.inverse, w)
        half = update.gain * jnp.outer(update.u, update.gain * (update.u @ w) / 2 * update.u + v)
        return Plain(ridge, known.spread - half - half.T)
    u = matvec(known.ridge.inverse, known.columns[:, arm])
    width = weight * known.ridge.widths[arm]
    g = weight / (1 + width)
    P = known.ridge.inverse - g * jnp.outer(u, u)  # as learn_pull has it: one operation once compiled
    along, across = two_products(u, matvec(P, u), known.columns)
    update = RankOneUpdate(u, g, jnp.log1p(width), along)
    spread = known.spread - g * along * (g * known.spread[arm] * along + 2 * across)
    return known._replace(ridge=regression.learn_pull(known.ridge, update, arms, arm, reward), spread=spread)


def widen(known: Spread, row: Float[Array, " d"], w: Float[Array, " d"]) -> Spread:
    """W + row row' in place of W, with w = W^-1 row; V is as before. The spread is left to `respread`, for all rows.

    With a = L^-1 row and s^2 = 1 + |a|^2, I + a a' is the square of I + a a' / (s + 1), of which I - b a a' is the
    inverse, b = 1 / (s (s + 1)). So L becomes L + row a' / (s + 1), and P becomes (I - b a a') P (I - b a a').
    """
    if isinstance(known, Plain):
        return known
    ridge, s = known.ridge, jnp.sqrt(1 + row @ w)
    a = w @ known.root
    c = matvec(ridge.inverse, a)
    b = 1 / (s * (s + 1))
    half = jnp.outer(a, b * c - b**2 * (a @ c) / 2 * a)
    return known._replace(
        ridge=ridge._replace(inverse=ridge.inverse - half - half.T, theta=ridge.theta - b * (a @ ridge.theta) * a),
        root=known.root + jnp.outer(row, a / (s + 1)),
        columns=known.columns + jnp.outer(a / (s + 1), a @ known.columns),
    )


def respread(known: Spread, inverse: Float[Array, "d d"]) -> Spread:
    """The spread worked out anew; `inverse` is W^-1. Rows leave little of it, of which rounding would be a part."""
    if isinstance(known, Plain):
        return known._replace(spread=known.ridge.inverse @ inverse @ known.ridge.inverse)
    return known._replace(spread=((known.ridge.inverse @ known.columns) ** 2).sum(axis=0))


def add_to_moment(known: Spread, arms: Float[Array, "K d"], change: Float[Array, " d"]) -> Spread:
    """As that of a regression: add to the moment of what is not a pull, without an observation."""
    if isinstance(known, Plain):
        return known._replace(ridge=regression.add_to_moment(known.ridge, arms, change))
    ridge = known.ridge
    moved = matvec(ridge.inverse, change @ known.root)
    fixed = ridge.of_fixed_arms()
    return known._replace(
        ridge=ridge._replace(
            theta=ridge.theta + moved,
            extra_moment=ridge.extra_moment + change,
            pulls=fixed._replace(means=fixed.means + moved @ known.columns),
        )
    )

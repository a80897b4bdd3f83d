"""Ridge regression with the spread of arms, their width by V^-1 W^-1 V^-1, where W is another matrix than V.

On a fixed arm set all is in coordinates in which W is the identity. With W = L L', y = L' x and z = L^-1 V^-1 x an arm
has the width y.z and the spread |z|^2. So z of all arms stands for V^-1: a pull reads and moves these columns, and no
matrix. L need not be triangular: where W grows by a row, L is multiplied by a root of the identity plus a rank-one
matrix. On arms that are redrawn V^-1 W^-1 V^-1 follows instead.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedbandit_jax.linalg import Real, regression
from fedbandit_jax.linalg.forms import quadratic_forms
from fedbandit_jax.linalg.portable import matvec, vecmat, whole_vectors
from fedbandit_jax.linalg.regression import FixedArms, Ridge

STEPS = 3  # towards a solution: after 6000 pulls of 100 arms in float32, off by 1e-4, 2e-6 and 2e-7, which stays
PerArm = Float[Array, " K"]
Square = Float[Array, "d d"]


class Whitened(NamedTuple):
    """State for a fixed arm set, in coordinates where W = I."""

    ridge: Ridge  # its theta is L^-1 theta, and it has no V^-1; sums over observations are as ever
    root: Float[Array, "d d"]  # L
    rows: Float[Array, "K d"]  # y of every arm
    columns: Float[Array, "d n"]  # z of every arm, padded with 0 to whole vectors
    spread: Float[Array, " K"]


class Plain(NamedTuple):
    """State for arms that are redrawn every round."""

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
    columns = whole_vectors(arms.T / (prior * root))
    return Whitened(of_pulls(ridge), root * eye, root * arms, columns, ridge.widths / (prior * other))


def of(ridge: Ridge, arms: Float[Array, "K d"], root: Square, half: Square) -> Spread:
    """The state for a regression and W = L L', given as L and L^-1."""
    if not isinstance(ridge.pulls, FixedArms):
        across = ridge.inverse @ half.T
        return Plain(ridge, across @ across.T)
    columns = half @ whole_vectors(ridge.inverse @ arms.T)
    white = of_pulls(ridge)._replace(theta=half @ ridge.theta)
    return respread(Whitened(white, root, arms @ root, columns, ridge.widths))


def with_root(known: Spread, arms: Float[Array, "K d"], root: Square, half: Square) -> Spread:
    """The same regression with another W = L L', given as L and L^-1."""
    if isinstance(known, Plain):
        return of(known.ridge, arms, root, half)
    white = known.ridge._replace(theta=half @ theta_of(known))
    columns = half @ (known.root @ known.columns)
    return respread(known._replace(ridge=white, root=root, rows=arms @ root, columns=columns))


def of_pulls(ridge: Ridge) -> Ridge:
    """Without V^-1, and what only observations that are not pulls would need."""
    nothing = jnp.zeros((0, 0), ridge.theta.dtype)
    return ridge._replace(inverse=nothing, extra_gram=nothing)


def theta_of(known: Spread) -> Float[Array, " d"]:
    return known.ridge.theta if isinstance(known, Plain) else matvec(known.root, known.ridge.theta)


def shadow(known: Spread, arms: Float[Array, "K d"]) -> Square:
    """V^-1 X'X V^-1 of the arms X."""
    if isinstance(known, Plain):
        onto = arms @ known.ridge.inverse
        return onto.T @ onto
    return known.root @ (known.columns @ known.columns.T) @ known.root.T


def means_widths_and_spread(known: Spread, arms: Float[Array, "K d"], other: Real) -> tuple[PerArm, PerArm, PerArm]:
    """x.theta, x' V^-1 x and x' V^-1 W^-1 V^-1 x of the arms of a round; at first W was other I."""
    means, widths = regression.means_and_widths(known.ridge, arms)
    if isinstance(known, Whitened):
        return means, widths, known.spread
    first = 1 / (known.ridge.prior**2 * other)
    return means, widths, regression.rounded_to(first, quadratic_forms(arms, known.spread))


def pull(
    known: Spread,
    inverse: Square,
    arms: Float[Array, "K d"],
    arm: Int[Array, ""],
    reward: Float[Array, ""],
    weight: Real = 1.0,
) -> Spread:
    """Add the reward of a pull; `inverse` is W^-1.

    With u = V^-1 x and v = V^-1 W^-1 u after the pull, V^-1 W^-1 V^-1 changes by -g (u v' + v u') - g^2 s u u', where s
    is the arm's spread before it. What a product reads has changed already, as otherwise XLA would copy it.
    """
    if isinstance(known, Plain):
        update = regression.update_of_pull(known.ridge, arms, arm, weight)
        ridge = regression.learn_pull(known.ridge, update, arms, arm, reward)
        w = matvec(inverse, update.u)
        v = matvec(ridge.inverse, w)
        half = update.gain * jnp.outer(update.u, update.gain * (update.u @ w) / 2 * update.u + v)
        return Plain(ridge, known.spread - half - half.T)
    ridge, K = known.ridge, known.spread.size
    u, fixed = known.columns[:, arm], ridge.of_fixed_arms()
    g = weight / (1 + weight * fixed.widths[arm])
    step = g * (reward - fixed.means[arm])
    along = vecmat(known.rows[arm], known.columns)
    columns = known.columns - g * jnp.outer(u, along)
    across = vecmat(u, columns)[:K]
    along = along[:K]
    pulls = fixed.moved(g, step, along).counted(arm, reward)
    return known._replace(
        ridge=ridge._replace(theta=ridge.theta + step * u, observations=ridge.observations + 1, pulls=pulls),
        columns=columns,
        spread=known.spread - g * along * (g * known.spread[arm] * along + 2 * across),
    )


def widen(known: Spread, row: Float[Array, " d"], w: Float[Array, " d"]) -> Spread:
    """W + row row' in place of W, with w = W^-1 row; V is as before. The spread is left to `after_rows`.

    With a = L^-1 row and s^2 = 1 + |a|^2, I + a a' is the square of I + a a' / (s + 1), of which I - b a a' is the
    inverse, b = 1 / (s (s + 1)). So L becomes L + row a' / (s + 1), and z becomes z - b (a.z) a.
    """
    if isinstance(known, Plain):
        return known
    s = jnp.sqrt(1 + row @ w)
    a = w @ known.root
    up, down = a / (s + 1), a / (s * (s + 1))
    theta = known.ridge.theta
    return known._replace(
        ridge=known.ridge._replace(theta=theta - (a @ theta) * down),
        root=known.root + jnp.outer(row, up),
        rows=known.rows + jnp.outer(known.rows @ a, up),
        columns=known.columns - jnp.outer(down, a @ known.columns),
    )


def respread(known: Whitened) -> Whitened:
    """The spread worked out anew: rows leave little of it, of which rounding would be a part."""
    return known._replace(spread=(known.columns**2).sum(axis=0)[: known.spread.size])


def after_rows(known: Spread, inverse: Square) -> Spread:
    """When all rows have widened W, whose inverse that is: the spread."""
    if isinstance(known, Plain):
        return known._replace(spread=known.ridge.inverse @ inverse @ known.ridge.inverse)
    return respread(known)


def add_to_moment(
    known: Spread, inverse: Square, arms: Float[Array, "K d"], change: Float[Array, " d"], weight: Real = 1.0
) -> Spread:
    """As that of a regression: add to the moment of what is not a pull, without an observation.

    `inverse` is W^-1, `weight` that of the pulls.
    """
    if isinstance(known, Plain):
        return known._replace(ridge=regression.add_to_moment(known.ridge, arms, change))
    ridge, fixed = known.ridge, known.ridge.of_fixed_arms()
    moved = solve(known, arms, change, weight)
    along = (change @ known.root) @ known.columns
    return known._replace(
        ridge=ridge._replace(
            theta=ridge.theta + (inverse @ moved) @ known.root,
            extra_moment=ridge.extra_moment + change,
            pulls=fixed._replace(means=fixed.means + along[: known.spread.size]),
        )
    )


def solve(known: Whitened, arms: Float[Array, "K d"], side: Float[Array, " d"], weight: Real) -> Float[Array, " d"]:
    """V^-1 of a vector b, without a factor of V.

    The columns tell x.V^-1 b of the arms, and as V = prior I + weight X' N X, these tell the rest: V^-1 b = (b - weight
    X' N X V^-1 b) / prior. There the rounding of a column counts as often as its arm was pulled. So this is a direction
    in which to go as far as the error falls, and then again for what is left of b.
    """
    prior, counts = known.ridge.prior, weight * known.ridge.of_fixed_arms().counts

    def step(_: Int[Array, ""], carry: tuple) -> tuple:
        solved, left = carry
        along = ((left @ known.root) @ known.columns)[: counts.size]
        direction = (left - (counts * along) @ arms) / prior
        onto = prior * direction + (counts * matvec(arms, direction)) @ arms  # V of it
        length = direction @ onto
        far = jnp.where(length > 0, direction @ left / length, 0)
        return solved + far * direction, left - far * onto

    return lax.fori_loop(0, STEPS, step, (jnp.zeros_like(side), side))[0]

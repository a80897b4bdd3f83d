"""Logistic regression on a stream, in memory that does not grow: the last observations exactly, a quadratic of others.

    minimise  lam/2 |theta|^2 + sum over the window of log(1 + exp(x.theta)) - y x.theta + 1/2 theta' A theta - b.theta

An observation that leaves the window is replaced by the second-order expansion of its loss around the estimate of that
time: p (1-p) x x' is added to A, and (p (1-p) x.theta - (p - y)) x to b, with p = sigmoid(x.theta). While nothing has
left, the estimate is the exact one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.portable import matvec, with_row
from fedbandit_jax.linalg.regression import cholesky

STEPS = 30  # of Newton's method, at most; from the last estimate it takes about three


class Logistic(NamedTuple):
    theta: Float[Array, " d"]  # the last fit
    rows: Float[Array, "W d"]  # the window, a ring; 0 where nothing is yet, which adds nothing
    outcomes: Float[Array, " W"]  # y, 0 or 1
    oldest: tuple[Float[Array, " d"], Float[Array, ""]]  # the row and outcome to leave next: 0 until the window is full
    curvature: Float[Array, "d d"]  # A
    slope: Float[Array, " d"]  # b
    observations: Int[Array, ""]


def start(dim: int, window: int, dtype: Any) -> Logistic:
    """No observation."""
    square = jnp.zeros((dim, dim), dtype)
    rows = jnp.zeros((window, dim), dtype)
    return Logistic(square[0], rows, rows[:, 0], (rows[0], rows[0, 0]), square, square[0], jnp.int32(0))


def observe(state: Logistic, x: Float[Array, " d"], outcome: Float[Array, ""]) -> Logistic:
    """Add an observation; theta is not fitted anew.

    What leaves next is read after the window has changed: if rows were read and then changed, XLA would copy them all.
    """
    W = len(state.rows)
    rows = with_row(state.rows, state.observations % W, x)
    outcomes = with_row(state.outcomes, state.observations % W, outcome)
    following = (state.observations + 1) % W
    left, its_outcome = state.oldest
    mean = left @ state.theta
    p = jax.nn.sigmoid(mean)
    weight = p * (1 - p)
    return state._replace(
        rows=rows,
        outcomes=outcomes,
        oldest=(rows[following], outcomes[following]),
        curvature=state.curvature + weight * jnp.outer(left, left),
        slope=state.slope + (weight * mean - (p - its_outcome)) * left,
        observations=state.observations + 1,
    )


def fit(state: Logistic, lam: Real) -> Logistic:
    """theta is the minimiser, by Newton's method from the last one.

    A step D that would go up is shortened to log(1+s)/s of itself with s = max |x.D|, and then goes down: the third
    derivative of the loss along D is at most s times the second.
    """
    rows, outcomes, d = state.rows, state.outcomes, len(state.theta)
    ridge = lam * jnp.eye(d, dtype=rows.dtype) + state.curvature
    small = jnp.sqrt(jnp.finfo(rows.dtype).eps)  # the error after a step is about its square

    def loss(theta: Float[Array, " d"], means: Float[Array, " W"]) -> Float[Array, ""]:
        return theta @ (ridge @ theta) / 2 - state.slope @ theta + (jax.nn.softplus(means) - outcomes * means).sum()

    def step(carry: tuple) -> tuple:
        theta, i, _ = carry
        means = matvec(rows, theta)
        p = jax.nn.sigmoid(means)
        gradient = ridge @ theta + (p - outcomes) @ rows - state.slope
        factor = cholesky(ridge + (rows * (p * (1 - p))[:, None]).T @ rows)
        half = lax.linalg.triangular_solve(factor, gradient[:, None], left_side=True, lower=True)
        D = -lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]
        along = matvec(rows, D)
        s = jnp.maximum(jnp.abs(along).max(), small)
        down = loss(theta + D, means + along) <= loss(theta, means)
        return theta + jnp.where(down, 1, jnp.log1p(s) / s) * D, i + 1, jnp.abs(D).max() > small

    def going(carry: tuple) -> Bool[Array, ""]:
        return carry[2] & (carry[1] < STEPS)

    return state._replace(theta=lax.while_loop(going, step, (state.theta, jnp.int32(0), jnp.bool_(True)))[0])

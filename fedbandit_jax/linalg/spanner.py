"""Barycentric spanner (Awerbuch and Kleinberg 2004)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.linalg.portable import argmax


class Spanner(NamedTuple):
    indices: Int[Array, " d"]  # rows of the basis, the counted ones first
    rank: Int[Array, ""]  # how many count: the dimension of the rows' span


def barycentric_spanner(rows: Float[Array, "J d"], c: float = 2.0) -> Spanner:
    """Rows such that every row is a combination of them with coefficients in [-c, c], c > 1.

    Start from the unit vectors; replace each by the row with the largest coefficient on it; then swap while some
    coefficient exceeds c, which enlarges the determinant by more than c each time. Coefficients follow a swap by
    elimination. A unit vector that no row can replace, as the rows do not span R^d, stays out of the basis.
    """
    d = rows.shape[1]
    tiny = 1e-4 if rows.dtype == jnp.float32 else 1e-9

    def swap(state: tuple, row: Int[Array, ""], place: Int[Array, ""], wanted: Bool[Array, ""]) -> tuple:
        coefficients, indices = state
        pivot = coefficients[row, place]
        others = coefficients[row] - (jnp.arange(d) == place)
        scale = coefficients[:, place] / jnp.where(wanted, pivot, 1)
        new = coefficients - scale[:, None] * others[None, :]
        return jnp.where(wanted, new, coefficients), jnp.where(wanted, indices.at[place].set(row), indices)

    def fill(place: Int[Array, ""], state: tuple) -> tuple:
        column = jnp.abs(state[0][:, place])
        row = argmax(column)
        return swap(state, row, place, column[row] > tiny)

    def largest(coefficients: Float[Array, "J d"], indices: Int[Array, " d"]) -> Int[Array, ""]:
        return argmax(jnp.where((indices >= 0)[None, :], jnp.abs(coefficients), 0).ravel())

    def exceeds(state: tuple) -> Bool[Array, ""]:
        coefficients, indices = state
        return jnp.abs(coefficients.ravel()[largest(coefficients, indices)]) > c

    def improve(state: tuple) -> tuple:
        row, place = jnp.divmod(largest(*state), d)
        return swap(state, row, place, jnp.bool_(True))

    state = lax.fori_loop(0, d, fill, (rows, jnp.full(d, -1, jnp.int32)))
    _, indices = lax.while_loop(exceeds, improve, state)
    order = jnp.argsort(indices < 0, stable=True)
    return Spanner(indices[order], (indices >= 0).sum(dtype=jnp.int32))

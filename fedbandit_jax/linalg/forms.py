"""Quadratic forms x' A x of many rows."""

import itertools

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedbandit_jax.linalg.portable import VECTOR, by_device, in_turn

BLOCKS = 3  # of columns, at most: more products, of fewer columns, take longer
COLUMNS = 24  # of a block, at least; widths are multiples of a vector
ROWS = 256  # whose quadratic forms an accelerator works out at once


def quadratic_forms(rows: Float[Array, "n d"], matrix: Float[Array, "d d"]) -> Float[Array, " n"]:
    """x' A x of every row, A symmetric."""
    return by_device(rows, matrix, cpu=_forms_by_blocks, default=_forms_at_once)


def _forms_at_once(rows: Float[Array, "n d"], matrix: Float[Array, "d d"]) -> Float[Array, " n"]:
    """Quadratic forms of many rows, a block at a time: n x d products of a whole batch would fill a GPU's memory."""

    def forms(rows: Float[Array, "n d"]) -> Float[Array, " n"]:
        return ((rows @ matrix) * rows).sum(axis=1)

    return forms(rows) if len(rows) <= ROWS else lax.map(lambda row: forms(row[None])[0], rows, batch_size=ROWS)


def _forms_by_blocks(rows: Float[Array, "n d"], matrix: Float[Array, "d d"]) -> Float[Array, " n"]:
    """A block of columns of A at a time: what is below its diagonal counts twice, what is above is not needed.

    Rows are summed by a product, as CPUs sum them one entry after another.
    """
    d = rows.shape[1]
    width = max(d // BLOCKS // VECTOR * VECTOR, min(COLUMNS, d))
    edges = [*range(0, d - width + 1, width), d]  # the last block takes what is left
    widest = edges[-1] - edges[-2]
    total = jnp.zeros_like(rows[:, :widest])
    for first, end in itertools.pairwise(edges):
        twice = jnp.concatenate([matrix[first:end, first:end], 2 * matrix[end:, first:end]])
        products = rows[:, first:] @ twice * rows[:, first:end]
        total += jnp.pad(products, ((0, 0), (0, widest - (end - first))))
    return total @ jnp.ones_like(rows[0, :widest])


def forms_of_columns(columns: Float[Array, "d n"], matrix: Float[Array, "d d"]) -> Float[Array, " n"]:
    """x' A x of every column, A symmetric; for columns that all runs of a batch share, such as key terms."""
    return by_device(
        columns,
        matrix,
        cpu=lambda *given: in_turn(_forms_of_columns_by_halves, *given),
        default=lambda columns, matrix: _forms_at_once(columns.T, matrix),
    )


def _forms_of_columns_by_halves(columns: Float[Array, "d n"], matrix: Float[Array, "d d"]) -> Float[Array, " n"]:
    """The upper and the lower half of A: what is right of the block on the diagonal counts twice."""
    d = len(columns)
    half = d // 2 // VECTOR * VECTOR
    upper = jnp.concatenate([matrix[:half, :half], 2 * matrix[:half, half:]], axis=1) @ columns * columns[:half]
    lower = matrix[half:, half:] @ columns[half:] * columns[half:]
    return jnp.ones(d - half, columns.dtype) @ (lower + jnp.pad(upper, ((0, d - 2 * half), (0, 0))))

"""Symmetric matrices: all eigenpairs, the least eigenvalue alone, and least squares by them."""

import math
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from fedbandit_jax.linalg.design import FEW, first_few, half_inverse, random_rotation, weighted_gram
from fedbandit_jax.linalg.portable import any_lane, by_device, in_turn

SECTIONS = 8  # into which an interval is divided at a time
SAFE = 0.1  # of the spread of eigenvalues from which on some may not count: below, rounding cannot decide it


def least_eigenvalue(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """Least eigenvalue of a symmetric matrix, at a third of the cost of `eigh`; NaN if the matrix has a NaN."""
    return by_device(A, cpu=by_lapack, default=by_reflections)


def by_lapack(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """From LAPACK's tridiagonal form (CPU)."""
    _, a, b, _ = lax.linalg.tridiagonal(A.T, lower=False)  # .T: in LAPACK's order, as in design.py
    return by_pivots(a, b)


def by_reflections(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """From a tridiagonal form by Householder's reflections, all matrices of a batch side by side (accelerators)."""
    d = len(A)
    rows = jnp.arange(d)

    def reflect(k: Int[Array, ""], A: Float[Array, "d d"]) -> Float[Array, "d d"]:
        """Column k becomes 0 below its second entry from the diagonal, and row k likewise."""
        x = jnp.where(rows > k, A[k], 0)
        first = rows == k + 1
        head = jnp.where(first, x, 0).sum()
        v = x + jnp.where(first, jnp.where(head < 0, -1, 1) * jnp.sqrt((x**2).sum()), 0)
        squared = (v**2).sum()
        beta = jnp.where(squared == 0, 0, 2 / jnp.where(squared == 0, 1, squared))
        p = beta * (A * v[None, :]).sum(axis=1)
        w = p - beta / 2 * (p * v).sum() * v
        return A - v[:, None] * w[None, :] - w[:, None] * v[None, :]

    tridiagonal = lax.fori_loop(0, max(d - 2, 0), reflect, A)
    return by_pivots(jnp.diag(tridiagonal), jnp.diag(tridiagonal, 1), unroll=d)  # in one kernel, not one a pivot


def by_pivots(a: Float[Array, " d"], b: Float[Array, " d-1"], unroll: int = 1) -> Float[Array, ""]:
    """The largest x for which all pivots of A - x I are positive, of a tridiagonal A.

    With a on the diagonal and b beside it, the pivots are q_i = a_i - x - b_{i-1}^2 / q_{i-1}.
    """
    before, after = jnp.pad(jnp.abs(b), (1, 0)), jnp.pad(jnp.abs(b), (0, 1))
    parts = jnp.arange(1, SECTIONS, dtype=a.dtype) / SECTIONS

    def narrow(_: Any, interval: tuple) -> tuple:
        low, width = interval
        x = low + width * parts

        def next_pivot(carry: tuple, row: tuple) -> tuple:
            q, positive = carry
            diagonal, squared = row
            q = diagonal - x - squared / q
            return (q, positive & (q > 0)), None

        start = jnp.ones_like(x), jnp.ones(x.shape, bool)
        (_, below), _ = lax.scan(next_pivot, start, (a, before**2), unroll=unroll)
        return low + width / SECTIONS * below.sum(), width / SECTIONS

    low = (a - before - after).min()  # Gershgorin
    passes = math.ceil((jnp.finfo(a.dtype).nmant + 2) / math.log2(SECTIONS))
    low, width = lax.fori_loop(0, passes, narrow, (low, a.min() - low))
    return low + width / 2


def eigenpairs(V: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvalues, ascending, and eigenvectors, with a basis of the null space that depends on the null space alone."""
    return with_null_space(*jnp.linalg.eigh(V.T, symmetrize_input=False))  # .T: in LAPACK's order, as in design.py


def eigenpairs_of_rows(
    rows: Float[Array, "n d"], weights: Float[Array, " n"]
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """`eigenpairs` of sum_i w_i x_i x_i'; on CPU, where few weights are not 0, at a fraction of the cost."""
    n, d = rows.shape

    def of_all(rows: Float[Array, "n d"], weights: Float[Array, " n"]) -> tuple:
        return eigenpairs(weighted_gram(rows, weights))

    def of_few(rows: Float[Array, "n d"], weights: Float[Array, " n"]) -> tuple:
        """With the columns sqrt(w_i) x_i = Q R, eigenpairs of the small R R', turned by Q; the others are 0."""
        chosen = first_few(weights > 0)
        few = jnp.sqrt(weights[chosen])[:, None] * rows[chosen]
        Q, R = jnp.linalg.qr(few.T)
        eigenvalues, vectors = jnp.linalg.eigh((R @ R.T).T, symmetrize_input=False)
        return with_null_space(jnp.pad(eigenvalues, (d - FEW, 0)), jnp.pad(Q @ vectors, ((0, 0), (d - FEW, 0))))

    def by_number(rows: Float[Array, "n d"], weights: Float[Array, " n"]) -> tuple:
        return lax.cond((weights > 0).sum() <= FEW, of_few, of_all, rows, weights)

    return by_device(rows, weights, cpu=of_all if min(n, d) <= 2 * FEW else by_number, default=of_all)


def with_null_space(
    eigenvalues: Float[Array, " d"], vectors: Float[Array, "d d"]
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvectors with a fixed basis of the null space, the QR of fixed vectors projected onto it.

    `eigh` returns whatever basis rounding leads to, so that results would depend on padding and batch.
    """
    null = eigenvalues <= (1e-6 if vectors.dtype == jnp.float32 else 1e-12) * eigenvalues[-1]

    def with_basis() -> Float[Array, "d d"]:
        span = jnp.where(null[None, :], 0, vectors)
        fixed = jnp.asarray(random_rotation(len(vectors)), vectors.dtype)
        basis, _ = jnp.linalg.qr(fixed - span @ (span.T @ fixed))
        return jnp.where(null[None, :], basis, vectors)

    return jnp.where(null, 0, eigenvalues), lax.cond(any_lane(null.any()), with_basis, lambda: vectors)


def pseudo_inverse(gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """G^+, and the number of directions where G is singular; a direction counts as in `least_squares`."""
    inverse, Q, unseen = inverse_eigenvalues(gram)
    return (Q * inverse[None, :]) @ Q.T, unseen


def least_squares(gram: Float[Array, "d d"], moment: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """G^-1 W, of minimum norm where G is singular, and the number of directions where it is.

    A direction counts from 1e-6 of the largest eigenvalue on, in float64 from 1e-14; in a null space rounding makes it
    3e-7 at most. What is left of G in float32 tells the weakest that count to about a tenth.
    On CPU a G of which all directions count by far is factored instead, at a tenth of the cost.
    """

    def by_eigenvalues(gram: Float[Array, "d d"], moment: Float[Array, " d"]) -> tuple:
        inverse, Q, unseen = inverse_eigenvalues(gram)
        return Q @ (inverse * (moment @ Q)), unseen

    def by_factor(gram: Float[Array, "d d"], moment: Float[Array, " d"]) -> tuple:
        half = half_inverse(gram)
        spread = jnp.trace(gram) * (half**2).sum()  # tr G tr G^-1, above the ratio of any two eigenvalues; or NaN
        return lax.cond(
            spread * least_counted(gram) < SAFE,
            lambda: (half.T @ (half @ moment), jnp.zeros_like(spread)),
            lambda: by_eigenvalues(gram, moment),
        )

    in_turns = partial(in_turn, by_factor)
    return by_device(gram, moment, cpu=in_turns, default=by_eigenvalues)


def least_counted(gram: Float[Array, "d d"]) -> float:
    """Relative cutoff: eigenvalues of G below this fraction of the largest count as zero."""
    return 1e-6 if gram.dtype == jnp.float32 else 1e-14


def inverse_eigenvalues(gram: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, ""]]:
    """Inverse eigenvalues (0 for directions below the cutoff), the eigenvectors, and how many are below the cutoff."""
    eigenvalues, Q = jnp.linalg.eigh(gram.T, symmetrize_input=False)
    seen = eigenvalues > least_counted(gram) * eigenvalues[-1]
    return jnp.where(seen, 1 / eigenvalues, 0), Q, (~seen).sum().astype(gram.dtype)

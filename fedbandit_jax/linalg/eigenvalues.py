"""Symmetric matrices: all eigenpairs, the least eigenvalue alone, and least squares by them."""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedbandit_jax.linalg.design import random_rotation

SECTIONS = 8  # into which an interval is divided at a time


def least_eigenvalue(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """Of the lower triangle; NaN if that has a NaN."""
    return lax.platform_dependent(A, cpu=by_pivots, default=by_eigh)


def by_eigh(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """It works out all eigenvectors too, though nobody asked for them."""
    return jnp.linalg.eigvalsh(A, symmetrize_input=False)[0]


def by_pivots(A: Float[Array, "d d"]) -> Float[Array, ""]:
    """The largest x for which all pivots of A - x I are positive, at a third of the cost of `eigh` on CPU.

    With A in tridiagonal form, diagonal a and off-diagonal b, the pivots are q_i = a_i - x - b_{i-1}^2 / q_{i-1}.
    """
    _, a, b, _ = lax.linalg.tridiagonal(A.T, lower=False)  # .T: in LAPACK's order, as in design.py
    before, after = jnp.pad(jnp.abs(b), (1, 0)), jnp.pad(jnp.abs(b), (0, 1))
    parts = jnp.arange(1, SECTIONS, dtype=A.dtype) / SECTIONS

    def narrow(_: Any, interval: tuple) -> tuple:
        low, width = interval
        x = low + width * parts

        def next_pivot(carry: tuple, row: tuple) -> tuple:
            q, positive = carry
            diagonal, squared = row
            q = diagonal - x - squared / q
            return (q, positive & (q > 0)), None

        start = jnp.ones_like(x), jnp.ones(x.shape, bool)
        (_, below), _ = lax.scan(next_pivot, start, (a, before**2))
        return low + width / SECTIONS * below.sum(), width / SECTIONS

    low = (a - before - after).min()  # Gershgorin
    passes = math.ceil((jnp.finfo(A.dtype).nmant + 2) / math.log2(SECTIONS))
    low, width = lax.fori_loop(0, passes, narrow, (low, a.min() - low))
    return low + width / 2


def eigenpairs(V: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvalues, ascending, and eigenvectors, with a basis of the null space that depends on the null space alone.

    Of a null space `eigh` returns whatever basis rounding leads to, and what follows from it would depend on padding
    and batch. Instead take a QR of fixed vectors projected onto it.
    """
    d = len(V)
    eigenvalues, vectors = jnp.linalg.eigh(V.T, symmetrize_input=False)  # .T: in LAPACK's order, as in design.py
    null = eigenvalues < (1e-6 if V.dtype == jnp.float32 else 1e-12) * eigenvalues[-1]
    span = jnp.where(null[None, :], vectors, 0)
    basis, _ = jnp.linalg.qr(span @ (span.T @ jnp.asarray(random_rotation(d), V.dtype)))
    return jnp.where(null, 0, eigenvalues), jnp.where(null[None, :], basis, vectors)


def pseudo_inverse(gram: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, ""]]:
    """G^+, and the number of directions where G is singular; a direction counts as in `least_squares`."""
    inverse, Q, unseen = inverse_eigenvalues(gram)
    return (Q * inverse[None, :]) @ Q.T, unseen


def least_squares(gram: Float[Array, "d d"], moment: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """G^-1 W, of minimum norm where G is singular, and the number of directions where it is.

    A direction counts from 1e-6 of the largest eigenvalue on, in float64 from 1e-14; in a null space rounding makes it
    3e-7 at most. What is left of G in float32 tells the weakest that count to about a tenth.
    """
    inverse, Q, unseen = inverse_eigenvalues(gram)
    return Q @ (inverse * (moment @ Q)), unseen


def inverse_eigenvalues(gram: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"], Float[Array, ""]]:
    """Of the directions that count, 0 of the others; the eigenvectors; and the number of the others."""
    eigenvalues, Q = jnp.linalg.eigh(gram.T, symmetrize_input=False)
    seen = eigenvalues > (1e-6 if gram.dtype == jnp.float32 else 1e-14) * eigenvalues[-1]
    return jnp.where(seen, 1 / eigenvalues, 0), Q, (~seen).sum().astype(gram.dtype)

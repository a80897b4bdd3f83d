"""The least eigenvalue and least squares against NumPy's, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg.eigenvalues import (
    FEW,
    by_lapack,
    by_reflections,
    eigenpairs,
    eigenpairs_of_rows,
    least_squares,
)

MATRICES = {
    "random": lambda d, rng: rng.normal(size=(d, d)),
    "positive": lambda d, rng: np.diag(rng.uniform(1, 2, d)) @ rng.normal(size=(d, d)),
    "diagonal": lambda d, rng: np.diag(rng.normal(size=d)),
    "of low rank": lambda d, rng: rng.normal(size=(d, max(d // 3, 1))) @ rng.normal(size=(max(d // 3, 1), d)),
    "zero": lambda d, rng: np.zeros((d, d)),
    "identity": lambda d, rng: 0.5 * np.eye(d),
    "graded": lambda d, rng: np.diag(np.geomspace(1, 1e-6, d)) @ rng.normal(size=(d, d)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 12])
def test_it_equals_numpys(d, dtype):
    """To rounding, which is relative to the largest eigenvalue."""
    rng = np.random.default_rng(d)
    squares = [make(d, rng) for make in MATRICES.values()]
    symmetric = np.stack([*(x + x.T for x in squares), *(x @ x.T for x in squares)]).astype(dtype)
    expected = np.linalg.eigvalsh(symmetric.astype(np.float64))
    allowed = 4 * d * np.finfo(dtype).eps * np.abs(expected).max(axis=1)
    with jax.enable_x64(dtype == np.float64):
        for form in (by_lapack, by_reflections):
            found = np.asarray(jax.jit(jax.vmap(form))(jnp.asarray(symmetric)))
            assert found.dtype == dtype
            assert (np.abs(found - expected[:, 0]) <= allowed).all(), form.__name__


@pytest.mark.parametrize("form", [by_lapack, by_reflections])
def test_nan_comes_through(form):
    matrix = np.eye(4, dtype=np.float32)
    matrix[2, 1] = matrix[1, 2] = np.nan
    assert np.isnan(jax.jit(form)(jnp.asarray(matrix)))


# ------------------------------------------------------------------------------------------------- pairs of few rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 4, FEW, FEW + 1, 60])
def test_pairs_of_few_rows_are_those_of_their_matrix(rows, dtype):
    """The same eigenvalues, null space and basis of it; also of rows that repeat each other."""
    rng, n, d = np.random.default_rng(rows), 100, 50
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[rng.permutation(n)[:20]] = x[0]
    weights = np.zeros(n)
    weights[rng.permutation(n)[:rows]] = rng.uniform(0.5, 1.5, rows)
    if rows == 4:
        x[np.flatnonzero(weights)[:2]] = x[0]
    with jax.enable_x64(dtype == np.float64):
        given = jnp.asarray(x, dtype), jnp.asarray(weights, dtype)
        V = np.einsum("n,ni,nj->ij", np.asarray(given[1]), np.asarray(given[0]), np.asarray(given[0]))
        values, vectors = map(np.asarray, jax.jit(eigenpairs_of_rows)(*given))
        expected, basis = map(np.asarray, jax.jit(eigenpairs)(jnp.asarray(V)))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(values, expected, atol=40 * eps)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(d), atol=1e3 * eps)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, V, atol=100 * eps)
    null = values == 0
    assert null.sum() == d - np.linalg.matrix_rank(x[weights > 0])
    np.testing.assert_array_equal(null, expected == 0)
    np.testing.assert_allclose(vectors[:, null], basis[:, null], atol=1e5 * eps)  # the last ones hang on little


# ------------------------------------------------------------------------------------------------ least squares

# Of unit theta, by condition number of G. Release 0.1 had 0.2 at 3e5 and 0.3 at 1e6: it dropped what it could not
# tell well, and did not say so.
ALLOWED = {1e2: 5e-5, 1e3: 5e-4, 1e4: 5e-3, 1e5: 3e-2, 3e5: 8e-2, 1e6: 0.3, 1e7: 1.0}


def observations(condition, rng, d=50, n=1000):
    """Rows whose Gram matrix has that condition number, what is summed of them in float32, and theta."""
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    rows = (100 * (rng.normal(size=(n, d)) * np.geomspace(1, condition**-0.5, d)) @ turn).astype(np.float32)
    theta = rng.normal(size=d)
    theta /= np.linalg.norm(theta)
    answers = (rows.astype(np.float64) @ theta).astype(np.float32)
    return rows.T @ rows, answers @ rows, theta


@pytest.mark.parametrize("condition", ALLOWED)
def test_least_squares_in_float32(condition):
    """Against the truth, of what float32 keeps of it; directions that are given up are counted."""
    rng = np.random.default_rng(0)
    solve = jax.jit(least_squares)
    errors, unseen = [], []
    for _ in range(8):
        gram, moment, theta = observations(condition, rng)
        found, dropped = solve(jnp.asarray(gram), jnp.asarray(moment))
        assert found.dtype == np.float32
        errors.append(np.linalg.norm(found - theta))
        unseen.append(int(dropped))
    assert max(errors) < ALLOWED[condition]
    assert (max(unseen) == 0) == (condition <= 3e5)
    if condition == 1e7:
        assert min(unseen) > 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [0, 1, 5, 30, 49, 50])
def test_least_squares_of_minimum_norm(rank, dtype):
    """Rounding of sums over many clients does not pass for information."""
    rng, d = np.random.default_rng(rank), 50
    with jax.enable_x64(dtype == np.float64):
        for scale in (1.0, 1e6):
            rows = rng.normal(size=(10, 100, max(rank, 1))) @ rng.normal(size=(max(rank, 1), d))
            rows /= np.linalg.norm(rows, axis=2, keepdims=True)
            rows = jnp.asarray(rows * (rank > 0), dtype)
            counts = jnp.asarray(rng.uniform(1, scale + 1, size=(10, 100)), dtype)
            theta = jnp.asarray(rng.normal(size=d), dtype)
            gram = jnp.einsum("mk,mki,mkj->mij", counts, rows, rows).sum(axis=0)
            moment = jnp.einsum("mk,mki,mk->mi", counts, rows, rows @ theta).sum(axis=0)
            found, unseen = least_squares(gram, moment)
            assert unseen == d - rank
            basis = np.linalg.svd(np.asarray(rows, np.float64).reshape(-1, d), full_matrices=False)[2][:rank]
            projected = basis.T @ (basis @ np.asarray(theta, np.float64))
            np.testing.assert_allclose(found, projected, atol=5e-2 if dtype == np.float32 else 1e-9)

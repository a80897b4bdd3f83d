"""The least eigenvalue against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg.eigenvalues import by_eigh, by_pivots

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
@pytest.mark.parametrize("d", [1, 2, 12])
def test_it_equals_numpys(d, dtype):
    """To rounding, which is relative to the largest eigenvalue."""
    rng = np.random.default_rng(d)
    squares = [make(d, rng) for make in MATRICES.values()]
    symmetric = np.stack([*(x + x.T for x in squares), *(x @ x.T for x in squares)]).astype(dtype)
    expected = np.linalg.eigvalsh(symmetric.astype(np.float64))
    allowed = 4 * d * np.finfo(dtype).eps * np.abs(expected).max(axis=1)
    with jax.enable_x64(dtype == np.float64):
        for form in (by_pivots, by_eigh):
            found = np.asarray(jax.jit(jax.vmap(form))(jnp.asarray(symmetric)))
            assert found.dtype == dtype
            assert (np.abs(found - expected[:, 0]) <= allowed).all(), form.__name__


def test_nan_comes_through():
    matrix = np.eye(4, dtype=np.float32)
    matrix[2, 1] = np.nan
    assert np.isnan(jax.jit(by_pivots)(jnp.asarray(matrix)))

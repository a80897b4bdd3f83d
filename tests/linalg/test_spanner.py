"""The barycentric spanner's defining property."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.linalg.spanner import barycentric_spanner

spanner_of = jax.jit(barycentric_spanner, static_argnames="c")


def coefficients(rows, spanner):
    basis = rows[np.asarray(spanner.indices)[: int(spanner.rank)]]
    found, *_ = np.linalg.lstsq(basis.T, rows.T, rcond=None)
    np.testing.assert_allclose(basis.T @ found, rows.T, atol=1e-5, err_msg="the basis does not span the rows")
    return found


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), rank=st.integers(1, 6), factor=st.sampled_from([1.1, 2.0]))
def test_every_row_is_a_bounded_combination(seed, rank, factor):
    """Also where the rows span only a subspace, in any orientation."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 6))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    with jax.enable_x64(True):
        spanner = spanner_of(jnp.asarray(rows), c=factor)
    assert int(spanner.rank) == rank
    assert np.abs(coefficients(rows, spanner)).max() <= factor + 1e-6


def test_at_full_size_in_float32():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 50)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    spanner = spanner_of(jnp.asarray(rows))
    assert int(spanner.rank) == 50
    assert len(set(np.asarray(spanner.indices).tolist())) == 50
    assert np.abs(coefficients(rows.astype(float), spanner)).max() <= 2 + 1e-3


@pytest.mark.parametrize("zero_columns", [(0,), (5,), (1, 3)])
def test_axis_aligned_subspaces(zero_columns):
    rows = np.random.default_rng(1).normal(size=(30, 6))
    rows[:, zero_columns] = 0
    with jax.enable_x64(True):
        spanner = spanner_of(jnp.asarray(rows))
    assert int(spanner.rank) == 6 - len(zero_columns)
    assert np.abs(coefficients(rows, spanner)).max() <= 2 + 1e-6

"""The barycentric spanner's defining property; clusters against loops by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit_jax.linalg import representatives
from fedbandit_jax.linalg.representatives import barycentric_spanner, cluster_centres, greedy_centres

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


# ----------------------------------------------------------------------------------------------------------- clusters


def rows_of(seed, n=12, d=4):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def padded(rows, more=5):
    """The rows among rows that are not there."""
    mask = np.arange(len(rows) + more) < len(rows)
    return jnp.asarray(np.concatenate([rows, np.zeros((more, rows.shape[1]))])), jnp.asarray(mask)


def centres_by_hand(rows):
    order = [0]
    while len(order) < len(rows):
        rest = [i for i in range(len(rows)) if i not in order]
        nearest = [min(np.linalg.norm(rows[i] - rows[c]) for c in order) for i in rest]
        order.append(rest[int(np.argmax(nearest))])
    return order


def clusters_by_hand(rows, centres, steps):
    for _ in range(steps):
        nearest = [int(np.argmin([np.linalg.norm(row - centre) for centre in centres])) for row in rows]
        groups = [[row for row, n in zip(rows, nearest, strict=True) if n == c] for c in range(len(centres))]
        centres = [np.mean(group, axis=0) for group in groups if group]
    return centres


def clusters(rows, n, steps):
    """The centres that are there, in order."""
    centres = cluster_centres(*padded(rows), greedy_centres(*padded(rows)), jnp.int32(n), steps)
    return [centre for centre in np.asarray(centres) if centre.any()]


@pytest.mark.parametrize("seed", range(3))
def test_centres_are_as_far_apart_as_can_be(seed):
    with jax.enable_x64(True):
        rows = rows_of(seed)
        order = np.asarray(greedy_centres(*padded(rows)))
    assert order[: len(rows)].tolist() == centres_by_hand(rows)


def test_copies_are_centres_once_each():
    rows = np.repeat(rows_of(1, n=3), 3, axis=0)
    order = np.asarray(greedy_centres(*padded(rows)))
    assert sorted(order[: len(rows)]) == list(range(len(rows)))
    assert len({tuple(rows[i]) for i in order[:3]}) == 3
    np.testing.assert_allclose(sorted(map(tuple, clusters(rows, 9, 2))), sorted(map(tuple, rows[::3])), rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 3])
def test_clusters_are_those_of_k_means(steps):
    with jax.enable_x64(True):
        for seed in range(3):
            rows = rows_of(seed)
            for n in (1, 2, 5, 11, 12):
                expected = clusters_by_hand(rows, [rows[i] for i in centres_by_hand(rows)[:n]], steps)
                np.testing.assert_allclose(clusters(rows, n, steps), expected, rtol=1e-12)


def test_one_cluster_is_the_mean_and_as_many_as_rows_are_the_rows():
    with jax.enable_x64(True):
        rows = rows_of(2)
        np.testing.assert_allclose(clusters(rows, 1, 4), [rows.mean(axis=0)])
        np.testing.assert_allclose(clusters(rows, len(rows), 4), rows[centres_by_hand(rows)])


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_both_forms_find_the_same_clusters(steps):
    """In a batch whose rows, padding and numbers of clusters differ."""
    with jax.enable_x64(True):
        rows = jnp.stack([padded(rows_of(seed, n=20 + seed), more=5 - seed)[0] for seed in range(4)])
        mask = jnp.arange(25)[None, :] < jnp.arange(20, 24)[:, None]
        order = jax.vmap(greedy_centres)(rows, mask)
        n = jnp.array([1, 3, 9, 23], jnp.int32)
        forms = representatives._clusters_by_blocks, representatives._clusters_at_once
        by_blocks, at_once = (jax.vmap(lambda *given, f=f: f(*given, steps))(rows, mask, order, n) for f in forms)
    np.testing.assert_allclose(by_blocks, at_once, rtol=1e-12, atol=1e-15)
    assert (by_blocks.any(axis=2).sum(axis=1) <= n).all()


def test_a_row_as_near_to_two_centres_goes_to_the_first():
    rows = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.5]])
    for f in (representatives._clusters_by_blocks, representatives._clusters_at_once):
        centres = f(rows, jnp.ones(3, bool), jnp.array([0, 1, 2]), jnp.int32(2), 1)
        np.testing.assert_allclose(centres, [[0.5, 0.25], [-1, 0], [0, 0]])


def test_copies_come_in_their_order():
    """Rounding does not tell which of them is farther from a centre."""
    row = rows_of(5, n=1, d=50)[0]
    rows = np.stack([row, -row, *[row] * 30])
    assert np.asarray(greedy_centres(*padded(rows)))[:32].tolist() == list(range(32))

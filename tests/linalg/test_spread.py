"""Widths by V^-1 W^-1 V^-1 against their definition, pull by pull, on fixed arms and on redrawn ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg import regression, spread

K, D, PRIOR, WEIGHT = 7, 4, 0.6, 0.4


def by_definition(x, pulled, rewards, W):
    V = PRIOR * np.eye(D) + WEIGHT * pulled.T @ pulled
    inverse, theta = np.linalg.inv(V), np.linalg.solve(V, WEIGHT * pulled.T @ rewards)
    middle = inverse @ np.linalg.inv(W) @ inverse
    return x @ theta, np.einsum("kd,de,ke->k", x, inverse, x), np.einsum("kd,de,ke->k", x, middle, x)


@pytest.mark.parametrize("fixed", [True, False])
def test_means_widths_and_spreads_are_those_of_the_definition(fixed):
    """Ten pulls; after the fifth, W is another one."""
    rng = np.random.default_rng(0)
    sets, rewards, rows = rng.normal(size=(10, K, D)), rng.normal(size=10), rng.normal(size=(3, D))
    sets = np.broadcast_to(sets[:1], sets.shape) if fixed else sets
    W, pulled = 2 * np.eye(D), []
    with jax.enable_x64(True):
        known = spread.start(jnp.asarray(sets[0]), PRIOR, 2.0, fixed=fixed)
        for t, arms in enumerate(sets):
            if t == 5:
                W = W + rows.T @ rows
                root = np.linalg.cholesky(W)
                half = jnp.asarray(np.linalg.inv(root))
                known = spread.with_root(known, jnp.asarray(arms), jnp.asarray(root), half)
            expected = by_definition(arms, np.array(pulled).reshape(-1, D), rewards[:t], W)
            found = spread.means_widths_and_spread(known, jnp.asarray(arms), 2.0)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-12)
            arm, reward, inverse = jnp.int32(3 * t % K), jnp.asarray(rewards[t]), jnp.asarray(np.linalg.inv(W))
            known = spread.pull(known, inverse, jnp.asarray(arms), arm, reward, WEIGHT)
            pulled.append(arms[3 * t % K])
        pulled = np.array(pulled)
        V = PRIOR * np.eye(D) + WEIGHT * pulled.T @ pulled
        np.testing.assert_allclose(spread.theta_of(known), np.linalg.solve(V, WEIGHT * pulled.T @ rewards), atol=1e-12)
        X = np.linalg.solve(V, sets[-1].T)
        np.testing.assert_allclose(spread.shadow(known, jnp.asarray(sets[-1])), X @ X.T, atol=1e-12)


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_widen_the_other_matrix_and_vectors_move_the_moment(fixed):
    """Row by row between pulls, against what is made of the sums."""
    rng = np.random.default_rng(2)
    arms, rows, change = rng.normal(size=(K, D)), rng.normal(size=(6, D)), rng.normal(size=D)
    W, pulled, rewards = 2 * np.eye(D), [], rng.normal(size=6)
    with jax.enable_x64(True):
        known = spread.start(jnp.asarray(arms), PRIOR, 2.0, fixed=fixed)
        for t, row in enumerate(rows):
            known = spread.widen(known, jnp.asarray(row), jnp.asarray(np.linalg.solve(W, row)))
            W = W + np.outer(row, row)
            inverse = jnp.asarray(np.linalg.inv(W))
            known = spread.after_rows(known, inverse)
            known = spread.pull(known, inverse, jnp.asarray(arms), jnp.int32(t), jnp.asarray(rewards[t]), WEIGHT)
            pulled.append(arms[t])
            found = spread.means_widths_and_spread(known, jnp.asarray(arms), 2.0)
            for one, other in zip(found, by_definition(arms, np.array(pulled), rewards[: t + 1], W), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-12)
        known = spread.add_to_moment(known, inverse, jnp.asarray(arms), jnp.asarray(change), WEIGHT)
        V = PRIOR * np.eye(D) + WEIGHT * np.array(pulled).T @ np.array(pulled)
        theta = np.linalg.solve(V, WEIGHT * np.array(pulled).T @ rewards + change)
        np.testing.assert_allclose(spread.theta_of(known), theta, atol=1e-12)
        np.testing.assert_allclose(known.ridge.extra_moment, change, atol=1e-12)
        means = spread.means_widths_and_spread(known, jnp.asarray(arms), 2.0)[0]
        np.testing.assert_allclose(means, arms @ theta, atol=1e-12)
        if isinstance(known, spread.Whitened):
            np.testing.assert_allclose(known.root @ known.root.T, W, atol=1e-12)


def test_unit_arms_start_alike():
    """Exactly, so that ties break by index."""
    arms = np.random.default_rng(1).normal(size=(K, D))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    known = spread.start(jnp.asarray(arms, jnp.float32), PRIOR, 3.0, fixed=True)
    for numbers in spread.means_widths_and_spread(known, jnp.asarray(arms, jnp.float32), 3.0):
        assert len(np.unique(numbers)) == 1
    assert isinstance(known.ridge.pulls, regression.FixedArms)

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


def test_solutions_without_a_factor_are_as_good_in_float32():
    """After 20,000 pulls, nearly all of two arms, 2,000 of them since all was recomputed; beside LAPACK."""
    rng = np.random.default_rng(4)
    arms = rng.normal(size=(20, 10))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    side, eye = rng.normal(size=10), jnp.eye(10)
    counts = np.array([9000, 9000, *[10] * 18])
    V = PRIOR * np.eye(10) + WEIGHT * (counts[:, None] * arms).T @ arms
    X = jnp.asarray(arms, jnp.float32)
    order = jnp.asarray(rng.permutation(np.repeat(np.arange(20), counts)), jnp.int32)

    @jax.jit
    def play():
        def pull(t, known):
            return spread.pull(known, eye, X, order[t], jnp.float32(0), WEIGHT)

        known = jax.lax.fori_loop(0, order.size - 2000, pull, spread.start(X, PRIOR, 1.0, fixed=True))
        known = spread.of(regression.recompute(known.ridge, X, PRIOR, WEIGHT), X, eye, eye)
        known = jax.lax.fori_loop(order.size - 2000, order.size, pull, known)
        return spread.solve(known, X, jnp.asarray(side, jnp.float32), WEIGHT)

    expected = np.linalg.solve(V, side)
    by_lapack = np.linalg.solve(V.astype(np.float32), side.astype(np.float32))
    error, of_lapack = (np.abs(x - expected).max() for x in (play(), by_lapack))
    assert error < max(3 * of_lapack, 1e-5 * np.abs(expected).max()), (error, of_lapack)

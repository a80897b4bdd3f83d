"""Rank-one updates against direct inversion."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg import regression


@pytest.mark.parametrize(("prior", "weight"), [(1.0, 1.0), (0.3, 0.7)])
def test_updates_equal_direct_inversion(prior, weight):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        arms = rng.normal(size=(9, 4))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        V, moment = prior * np.eye(4), np.zeros(4)
        ridge = regression.start(jnp.asarray(arms), prior)
        for t in range(60):
            if t % 7 == 3 and weight == 1:
                x, answer = rng.normal(size=4), rng.normal()
                ridge, _ = regression.observe(ridge, jnp.asarray(arms), jnp.asarray(x), jnp.asarray(answer))
                V, moment = V + np.outer(x, x), moment + answer * x
            else:
                a, reward = int(rng.integers(9)), rng.normal()
                ridge = regression.pull(ridge, jnp.asarray(arms), jnp.int32(a), jnp.asarray(reward), weight)
                V, moment = V + weight * np.outer(arms[a], arms[a]), moment + weight * reward * arms[a]
        for state in (ridge, regression.exact(ridge, jnp.asarray(arms), prior, weight)):
            theta = np.linalg.solve(V, moment)
            np.testing.assert_allclose(state.inverse, np.linalg.inv(V), atol=1e-12)
            np.testing.assert_allclose(state.theta, theta, atol=1e-12)
            np.testing.assert_allclose(state.means, arms @ theta, atol=1e-12)
            np.testing.assert_allclose(state.widths, np.sum(arms @ np.linalg.inv(V) * arms, axis=1), atol=1e-12)


def test_recomputation_keeps_float32_close_to_float64():
    """20,000 pulls, nearly all of two arms, as a bandit does: V has eigenvalues from 1 to 10^4."""
    rng = np.random.default_rng(3)
    arms = rng.normal(size=(15, 8))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    chosen = np.where(rng.random(20_000) < 0.01, rng.integers(15, size=20_000), rng.integers(2, size=20_000))
    rewards = (arms @ rng.normal(size=8))[chosen] + rng.normal(size=20_000)

    @partial(jax.jit, static_argnames="refresh")
    def play(arms, rewards, refresh):
        def one(t, ridge):
            return regression.pull(ridge, arms, jnp.asarray(chosen, jnp.int32)[t], rewards[t])

        def stretch(i, ridge):
            ridge = jax.lax.fori_loop(i * 2000, (i + 1) * 2000, one, ridge)
            return regression.exact(ridge, arms, 1.0) if refresh else ridge

        ridge = jax.lax.fori_loop(0, 9, stretch, regression.start(arms, 1.0))
        return jax.lax.fori_loop(18_000, 19_999, one, ridge)  # one pull short of a recomputation

    with jax.enable_x64(True):
        exact = play(jnp.asarray(arms), jnp.asarray(rewards), refresh=False)
        narrow = (jnp.asarray(x, jnp.float32) for x in (arms, rewards))
        ridge, drifted = (play(a, r, refresh=f) for (a, r), f in zip([tuple(narrow)] * 2, (True, False), strict=True))
        scale = np.abs(exact.means).max()
        np.testing.assert_allclose(ridge.means, exact.means, atol=1e-3 * scale)
        np.testing.assert_allclose(ridge.widths, exact.widths, rtol=1e-3)
        assert np.abs(drifted.widths / exact.widths - 1).max() > 1e-2, "without it, float32 drifts"


def test_confidence_radius():
    expected = 0.5 * np.sqrt(2 * np.log(1 / 0.05) + 7 * np.log(1 + 30 / (0.4 * 7))) + np.sqrt(0.4)
    assert float(regression.confidence_radius(7, 30.0, 0.4, 0.05, 0.5)) == pytest.approx(expected, rel=1e-5)
    longer = regression.confidence_radius(7, 30.0, 0.4, 0.05, 0.5, 3.0)
    assert float(longer) == pytest.approx(expected + 2 * np.sqrt(0.4), rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_widths_before_the_first_observation(dtype):
    """|x|^2 / prior; the same for all unit arms, to the bit, and 0 for padding."""
    arms = np.random.default_rng(0).normal(size=(40, 30))
    unit = arms / np.linalg.norm(arms, axis=1, keepdims=True)
    with jax.enable_x64(dtype == "float64"):
        widths = [np.asarray(regression.start(jnp.asarray(x, dtype), 0.3).widths) for x in (arms, unit, 0 * arms)]
    np.testing.assert_allclose(widths[0], (arms**2).sum(axis=1) / 0.3, rtol=1e-5)
    assert len(set(widths[1].tolist())) == 1
    assert not widths[2].any()


@pytest.mark.parametrize("fixed", [True, False])
def test_pulls_together_equal_pulls_one_after_another(fixed):
    """Also where two arms are the same, and one is 0, as those of padded clients."""
    rng = np.random.default_rng(2)
    with jax.enable_x64(True):
        arms = rng.normal(size=(8, 4))  # two of each of four clients
        arms[2], arms[6:] = arms[0], 0
        arms = jnp.asarray(arms)
        together = one_by_one = regression.start(arms, 0.3, fixed=fixed)
        for chosen in ([0, 2, 4, 6], [1, 3, 5, 7], [0, 2, 4, 6]):
            rewards = jnp.asarray(rng.normal(size=4))
            together = regression.pull_together(together, arms, arms.T, jnp.asarray(chosen, jnp.int32), rewards, 3)
            for arm, reward in zip(chosen, rewards, strict=True):
                one_by_one = regression.pull(one_by_one, arms, jnp.int32(arm), reward)
        one_by_one = one_by_one._replace(observations=one_by_one.observations - 3)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10), together, one_by_one)

"""Rank-one updates against direct inversion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax import regression


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
                ridge, _ = regression.pull(ridge, jnp.asarray(arms), jnp.int32(a), jnp.asarray(reward), weight)
                V, moment = V + weight * np.outer(arms[a], arms[a]), moment + weight * reward * arms[a]
        for state in (ridge, regression.exact(ridge, jnp.asarray(arms), prior, weight)):
            theta = np.linalg.solve(V, moment)
            np.testing.assert_allclose(state.inverse, np.linalg.inv(V), atol=1e-12)
            np.testing.assert_allclose(state.theta, theta, atol=1e-12)
            np.testing.assert_allclose(state.means, arms @ theta, atol=1e-12)
            np.testing.assert_allclose(state.widths, np.sum(arms @ np.linalg.inv(V) * arms, axis=1), atol=1e-12)


def test_confidence_radius():
    expected = 0.5 * np.sqrt(2 * np.log(1 / 0.05) + 7 * np.log(1 + 30 / (0.4 * 7))) + np.sqrt(0.4)
    assert float(regression.confidence_radius(7, 30.0, 0.4, 0.05, 0.5)) == pytest.approx(expected, rel=1e-5)

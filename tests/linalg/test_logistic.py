"""Logistic regression on a stream."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from fedbandit_jax.linalg import logistic

D = 4


def stream(n, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    x, theta = rng.normal(size=(n, D)), scale * rng.normal(size=D)
    return x, (rng.random(n) < 1 / (1 + np.exp(-x @ theta))).astype(float)


@jax.jit
def play(state, x, y, lam, due):
    """The estimates after every observation; it is fitted where that is due."""

    def one(state, observed):
        x, y, due = observed
        state = logistic.observe(state, x, y)
        state = jax.lax.cond(due, lambda state: logistic.fit(state, lam), lambda state: state, state)
        return state, state.theta

    return jax.lax.scan(one, state, (x, y, due))


def minimiser(x, y, lam, A, b):
    """Of the penalised likelihood with a quadratic."""

    def loss(theta):
        m = x @ theta
        value = lam / 2 * theta @ theta + np.logaddexp(0, m).sum() - y @ m + theta @ A @ theta / 2 - b @ theta
        return value, lam * theta + x.T @ (1 / (1 + np.exp(-m)) - y) + A @ theta - b

    return minimize(loss, np.zeros(D), jac=True, tol=1e-14).x


@pytest.mark.parametrize("lam", [5.0, 0.01])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_window_of_all_is_the_exact_estimate(lam, dtype):
    """After one observation, which is separable, as after 60; fitted along the way or only in the end."""
    x, y = stream(60)
    exact = np.array([minimiser(x[:n], y[:n], lam, np.zeros((D, D)), np.zeros(D)) for n in (1, 5, 60)])
    with jax.enable_x64(dtype == "float64"):
        given = [jnp.asarray(v, dtype) for v in (x, y)]
        for due in (np.ones(60, bool), np.arange(60) == 59):
            state, path = play(logistic.start(D, 60, dtype), *given, lam, jnp.asarray(due))
            close = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float64" else {"rtol": 1e-3, "atol": 2e-3}
            np.testing.assert_allclose(state.theta, exact[-1], **close)
            if due.all():
                np.testing.assert_allclose(np.asarray(path)[[0, 4, 59]], exact, **close)
        assert not np.asarray(state.curvature).any()


def test_what_leaves_the_window_becomes_a_quadratic():
    """Around the estimate at which it left; the minimiser is that of the window with these."""
    n, window, lam = 90, 20, 1.0
    x, y = stream(n, seed=1)
    due = np.arange(1, n + 1) % 7 == 0
    A, b, theta = np.zeros((D, D)), np.zeros(D), np.zeros(D)
    expected = []
    for i in range(n):
        if i >= window:
            old, its = x[i - window], y[i - window]
            p = 1 / (1 + np.exp(-old @ theta))
            A += p * (1 - p) * np.outer(old, old)
            b += p * (1 - p) * np.outer(old, old) @ theta - (p - its) * old
        if due[i]:
            first = max(0, i + 1 - window)
            theta = minimiser(x[first : i + 1], y[first : i + 1], lam, A, b)
        expected.append(theta)
    with jax.enable_x64(True):
        state, path = play(logistic.start(D, window, "float64"), *map(jnp.asarray, (x, y)), lam, jnp.asarray(due))
    np.testing.assert_allclose(path, expected, atol=1e-5)
    exact = minimiser(x, y, lam, np.zeros((D, D)), np.zeros(D))
    assert np.linalg.norm(np.asarray(state.theta) - exact) < 0.3 * np.linalg.norm(exact)
    assert state.observations == n


def test_newton_goes_down_from_far_away():
    """From an estimate at which all outcomes are as good as sure and wrong, where plain steps never come to rest."""
    x, y = stream(30, seed=2)
    far = -20 * minimiser(x, y, 0.1, np.zeros((D, D)), np.zeros(D))
    with jax.enable_x64(True):
        first = logistic.start(D, 30, "float64")._replace(theta=jnp.asarray(far))
        theta = play(first, *map(jnp.asarray, (x, y)), 0.1, jnp.arange(30) == 29)[0].theta
    np.testing.assert_allclose(theta, minimiser(x, y, 0.1, np.zeros((D, D)), np.zeros(D)), atol=1e-5)

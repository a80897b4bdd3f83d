"""Quantisers: what they promise of error and mean, their range, and the bits of their code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit_jax.linalg.quantisation import at_random, next_whole, parts, to_the_nearest, unary_bits

SIZES = st.floats(0.01, 10)


@pytest.mark.parametrize(
    ("dim", "r", "eps", "expected"),
    [(4, 1.0, 0.5, 8), (4, 1.0, 0.51, 8), (4, 1.0, 0.49, 9), (20, 2.0, 0.17741, 101), (1, 0.5, 7.0, 1)],
)
def test_parts(dim, r, eps, expected):
    assert float(parts(dim, jnp.asarray(r), jnp.asarray(eps))) == expected


def test_rounding_errors_do_not_add_a_part():
    np.testing.assert_array_equal(next_whole(jnp.array([2.0000001, 2.01, 0.0, 1.0])), [2, 3, 1, 1])


@given(SIZES, SIZES, st.integers(1, 9), st.integers(0, 100))
def test_both_stay_on_the_grid_and_within_their_error(r, eps, dim, seed):
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(-1.5 * r, 1.5 * r, dim), rng.random(dim)
    with jax.enable_x64(True):
        given = jnp.asarray(x), jnp.asarray(r), jnp.asarray(eps)
        found = to_the_nearest(*given), at_random(*given, jnp.asarray(u)), parts(dim, *given[1:])
    nearest, random, count = jax.tree.map(np.asarray, found)
    h, inside = 2 * r / count, np.clip(x, -r, r)
    assert h * np.sqrt(dim) <= eps * (1 + 2e-4)
    for found, error in ((nearest, h / 2), (random, h)):
        assert (np.abs(found.values) <= r * (1 + 1e-12)).all()
        assert (np.abs(found.values - inside) <= error * (1 + 1e-9)).all()
        ends = found.numbers + count / 2
        np.testing.assert_allclose(ends, np.round(ends), atol=1e-9)
        np.testing.assert_allclose(found.values, found.numbers * h, rtol=1e-12)
    assert np.linalg.norm(nearest.values - inside) <= eps / 2 * (1 + 2e-4)


def test_random_rounding_leaves_the_mean():
    """Of each coordinate, clipped, within four standard errors, which are those of a coin."""
    n, r, eps = 20_000, 1.0, 0.9
    x = jnp.array([0.0, 0.123, -0.77, 0.9999, 1.7, -5.0])
    u = jax.random.uniform(jax.random.key(0), (n, x.size))
    found = np.asarray(jax.vmap(lambda u: at_random(x, r, eps, u).values)(u))
    h, inside = 2 * r / float(parts(x.size, jnp.asarray(r), eps)), np.clip(x, -r, r)
    place = (inside + r) / h
    share = place - np.floor(place)
    errors = h * np.sqrt(share * (1 - share) / n)
    assert (np.abs(found.mean(axis=0) - inside) <= 4 * errors + 1e-6).all()
    assert (errors[1:3] > 0).all()
    assert found[:, 1].std() > h / 4


@pytest.mark.parametrize(("number", "bits"), [(0, 3), (1, 4), (-1, 4), (0.5, 4), (-1.5, 5), (50.5, 54)])
def test_bits(number, bits):
    assert float(unary_bits(jnp.asarray(float(number)))) == bits


def test_bits_of_a_vector_grow_with_its_size_and_the_resolution():
    x = jnp.array([0.3, -0.2, 0.9])
    bits = [float(to_the_nearest(x * scale, 1.0, 0.05).bits) for scale in (0, 0.1, 0.5, 1)]
    assert bits == sorted(bits)
    assert bits[0] <= 4 * x.size
    bits = [float(to_the_nearest(x, 1.0, eps).bits) for eps in (1.0, 0.5, 0.1, 0.01)]
    assert bits == sorted(bits)
    assert bits[-1] > bits[0]


def test_zero_is_the_middle_of_the_grid():
    even, odd = (to_the_nearest(jnp.zeros(1), 1.0, eps) for eps in (1.0, 0.7))
    assert float(even.values[0]) == 0
    assert float(odd.numbers[0]) == 0.5

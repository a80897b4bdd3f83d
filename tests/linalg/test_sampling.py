"""Random subsets and sums of random numbers against their distributions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from fedbandit_jax.linalg.sampling import (
    SMALL,
    draw_many,
    fold_in,
    high_word,
    random_words,
    sum_of_signs,
    sum_of_uniforms,
)

LIKELY = 1e-3  # p-values below it are no chance, with seeds that are fixed


@partial(jax.jit, static_argnums=(1, 2, 3))
def many_draws(key, pool, count, repeats):
    return draw_many(jax.random.split(key, repeats), pool, count)


@pytest.mark.parametrize(("pool", "count"), [(1, 1), (20, 20), (60, 33), (5000, 40), (SMALL, 9), (SMALL + 1, 9)])
def test_draws_are_distinct_and_in_range(pool, count):
    drawn = np.asarray(many_draws(jax.random.key(0), pool, count, 200))
    assert drawn.shape == (200, count)
    assert 0 <= drawn.min() <= drawn.max() < pool
    assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all(), "an item was drawn twice"


@pytest.mark.parametrize(("pool", "count"), [(1, 1), (20, 20), (60, 25), (90, 79), (SMALL, 6)])
def test_draws_are_a_fisher_yates_shuffle(pool, count):
    """Long chains of swaps are likely in the small pools."""
    keys = jax.random.split(jax.random.key(1), 50)
    words = np.asarray(jax.vmap(lambda key: jax.random.bits(key, (count,), jnp.uint32))(keys))
    for found, row in zip(np.asarray(many_draws(jax.random.key(1), pool, count, 50)), words, strict=True):
        items = np.arange(pool)
        for j, word in enumerate(row):
            target = j + (int(word) * (pool - j) >> 32)
            items[[j, target]] = items[[target, j]]
        np.testing.assert_array_equal(found, items[:count])


def test_fewer_draws_are_a_prefix():
    long = many_draws(jax.random.key(2), 60, 55, 100)
    for count in (1, 7, 25, 40):
        np.testing.assert_array_equal(many_draws(jax.random.key(2), 60, count, 100), long[:, :count])


def test_a_draw_does_not_depend_on_its_neighbours():
    """As one client that comes alone draws its arms."""
    keys = jax.random.split(jax.random.key(4), 10)
    draw = jax.jit(draw_many, static_argnums=(1, 2))
    together = draw(keys, 30, 9)
    for i in range(10):
        np.testing.assert_array_equal(draw(keys[i : i + 1], 30, 9)[0], together[i])


def test_draws_are_uniform():
    """Chi-square of each position, of ordered pairs of positions, and of unordered sets."""
    pool, count, repeats = 7, 3, 21_000
    drawn = np.asarray(many_draws(jax.random.key(3), pool, count, repeats))
    for position in range(count):
        assert scipy.stats.chisquare(np.bincount(drawn[:, position], minlength=pool)).pvalue > LIKELY
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        pairs = np.bincount(pool * drawn[:, one] + drawn[:, other], minlength=pool**2).reshape(pool, pool)
        assert np.trace(pairs) == 0
        assert scipy.stats.chisquare(pairs[~np.eye(pool, dtype=bool)]).pvalue > LIKELY
    sets = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)[1]
    assert len(sets) == 35
    assert scipy.stats.chisquare(sets).pvalue > LIKELY


def test_words_are_those_of_jax():
    keys = jax.random.split(jax.random.key(5), 7)
    expected = jax.vmap(lambda key: jax.random.bits(key, (33,), jnp.uint32), out_axes=1)(keys)
    np.testing.assert_array_equal(random_words(keys, 33), expected)
    several = jax.random.split(jax.random.key(6), (3, 4))
    np.testing.assert_array_equal(jax.vmap(lambda keys: random_words(keys, 5))(several)[2], random_words(several[2], 5))


def test_words_are_scaled_exactly():
    """floor(word below / 2^32), in whole numbers of any length."""
    rng = np.random.default_rng(0)
    words = np.concatenate([[0, 1, 2**16 - 1, 2**16, 2**32 - 1], rng.integers(0, 2**32, 500)]).astype(np.uint32)
    for below in (1, 2, 3, 1000, SMALL - 1, SMALL, SMALL + 1, 2**32 - 1):
        found = high_word(jnp.asarray(words), jnp.uint32(below))
        assert found.tolist() == [int(word) * below >> 32 for word in words]


# ---------------------------------------------------------------------------------------------------------------- sums

DRAWS = 4000


@partial(jax.jit, static_argnums=0)
def sums(function, key, *given):
    return jax.vmap(lambda k: function(k, *given))(jax.random.split(key, DRAWS))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_signs_are_binomial(dtype):
    """Kolmogorov and Smirnov, on places in the distribution that are uniform if it is the right one."""
    largest = 10**9 if dtype == "float64" else 2**20
    counts = np.repeat([1, 2, 9, 10, 11, 50, 1000, largest], 4).astype(dtype)
    means = np.tile([-0.97, -0.3, 0.0, 0.6], 8).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        found = np.asarray(sums(sum_of_signs, jax.random.key(1), jnp.asarray(counts), jnp.asarray(means)), float)
    assert (np.abs(found) <= counts[None, :]).all()
    plus = (found + counts.astype(float)) / 2
    np.testing.assert_array_equal(plus, plus.round())
    rng = np.random.default_rng(0)
    for column, count, mean in zip(plus.T, counts, means, strict=True):
        right = scipy.stats.binom(int(count), (1 + float(mean)) / 2)
        place = right.cdf(column - 1) + rng.random(DRAWS) * right.pmf(column)
        assert scipy.stats.kstest(place, "uniform").pvalue > LIKELY, (count, mean)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_signs_at_the_edges(dtype):
    """No number at all, and numbers that are certain, also where rounding puts their mean beyond 1."""
    signs, uniforms = jax.jit(sum_of_signs), jax.jit(sum_of_uniforms)
    with jax.enable_x64(dtype == "float64"):
        counts = jnp.array([0, 1, 10, 12345, 10**9 if dtype == "float64" else 2**20], dtype)
        slack = 1e-6 if dtype == "float32" else 1e-12
        for sign in (-1, 1):
            for mean in (1, 1 + slack):
                means = jnp.full(5, sign * mean, dtype)
                np.testing.assert_array_equal(signs(jax.random.key(0), counts, means), sign * counts)
        nothing = jnp.zeros(5, dtype)
        for mean in (-1, -0.2, 0, 0.5, 1):
            np.testing.assert_array_equal(signs(jax.random.key(0), nothing, jnp.full(5, mean, dtype)), 0)
        np.testing.assert_array_equal(uniforms(jax.random.key(0), nothing), 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_uniform_numbers(dtype):
    """One number is uniform, two have a triangle, three a parabola; many are normal, to 24 binary digits."""
    counts = np.array([1, 2, 3, 400, 2**20], dtype)
    with jax.enable_x64(dtype == "float64"):
        found = np.asarray(sums(sum_of_uniforms, jax.random.key(2), jnp.asarray(counts)), float)

    def three(x):  # of Irwin and Hall, on (-3, 3)
        x = (np.asarray(x) + 3) / 2
        return sum((-1) ** k * scipy.special.comb(3, k) * np.maximum(x - k, 0) ** 3 for k in range(4)) / 6

    right = [
        scipy.stats.uniform(-1, 2).cdf,
        scipy.stats.triang(0.5, -2, 4).cdf,
        three,
        *(scipy.stats.norm(0, np.sqrt(n / 3)).cdf for n in (400, 2**20)),
    ]
    for column, cdf, count in zip(found.T, right, counts, strict=True):
        assert np.abs(column).max() <= count
        assert scipy.stats.kstest(column, cdf).pvalue > LIKELY, count
        assert abs(column.var() * 3 / count - 1) < 4 * np.sqrt(2 / DRAWS), count


def test_sums_of_very_many():
    """A billion numbers, in float64: as much as their standard deviation says."""
    with jax.enable_x64(True):
        counts, means = jnp.full(3, 1e9), jnp.array([-0.5, 0.0, 0.999])
        signs = np.asarray(sums(sum_of_signs, jax.random.key(4), counts, means))
        uniform = np.asarray(sums(sum_of_uniforms, jax.random.key(5), counts))
    for sample, mean, variance in [
        *((signs[:, i], 1e9 * m, 1e9 * (1 - m**2)) for i, m in enumerate(np.asarray(means))),
        (uniform[:, 0], 0.0, 1e9 / 3),
    ]:
        assert abs(sample.mean() - mean) < 4 * np.sqrt(variance / DRAWS)
        assert abs(sample.var() / variance - 1) < 4 * np.sqrt(2 / DRAWS)


MANY = np.tile([3.0, 50.0, 1000.0, 1e6], 10)


@pytest.mark.parametrize("function", [lambda key, counts: sum_of_signs(key, counts, 0 * counts), sum_of_uniforms])
def test_more_sums_do_not_change_the_first(function):
    """What an arm gives depends neither on the other arms nor on padding."""
    function = jax.jit(function)
    with jax.enable_x64(True):
        key, counts = jax.random.key(0), jnp.asarray(MANY)
        np.testing.assert_array_equal(function(key, counts)[:4], function(key, counts[:4]))


def test_a_key_folded_in_one_pass_is_that_of_jax():
    for seed, number in ((0, 0), (1, 63), (2, 2**31 - 1)):
        key = jax.random.key(seed)
        expected = jax.random.key_data(jax.random.fold_in(key, number))
        for given in (number, jnp.int32(number)):
            np.testing.assert_array_equal(jax.random.key_data(jax.jit(fold_in)(key, given)), expected)

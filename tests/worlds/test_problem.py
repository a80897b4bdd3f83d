"""Drawing a federation, and what a Problem says about it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from fedbandit_jax.linalg.sampling import draw_without_replacement
from fedbandit_jax.worlds.problem import Problem, sample_problem


@partial(jax.jit, static_argnums=(1, 2, 3))
def many_draws(key, pool, count, repeats):
    keys = jax.random.split(key, repeats)
    return keys, jax.vmap(lambda k: draw_without_replacement(k, pool, count))(keys)


def fisher_yates(targets, pool):
    """The textbook shuffle: step j swaps positions j and targets[j]."""
    items = np.arange(pool)
    for j, target in enumerate(targets):
        items[[j, target]] = items[[target, j]]
    return items[: len(targets)]


@pytest.mark.parametrize(("pool", "count"), [(1, 1), (20, 20), (60, 33), (5000, 100)])
def test_draws_are_distinct_and_in_range(pool, count):
    _, drawn = many_draws(jax.random.key(0), pool, count, 100)
    drawn = np.asarray(drawn)
    assert drawn.shape == (100, count)
    assert drawn.min() >= 0
    assert drawn.max() < pool
    ordered = np.sort(drawn, axis=1)
    assert (np.diff(ordered, axis=1) > 0).all(), "an item was drawn twice"
    if count == pool:
        np.testing.assert_array_equal(ordered, np.tile(np.arange(pool), (100, 1)))


@pytest.mark.parametrize(("pool", "count"), [(20, 20), (60, 33)])
def test_draws_are_a_fisher_yates_shuffle(pool, count):
    """Long chains of swaps are likely here, so every doubling step is needed."""
    keys, drawn = many_draws(jax.random.key(1), pool, count, 100)
    low = jnp.arange(count, dtype=jnp.int32)
    targets = jax.vmap(lambda k: jax.random.randint(k, (count,), low, pool, dtype=jnp.int32))(keys)
    expected = [fisher_yates(row, pool) for row in np.asarray(targets)]
    np.testing.assert_array_equal(drawn, expected)


def test_fewer_draws_are_a_prefix():
    _, short = many_draws(jax.random.key(2), 20, 7, 100)
    _, long = many_draws(jax.random.key(2), 20, 20, 100)
    np.testing.assert_array_equal(short, long[:, :7])


def test_draws_are_uniform():
    """Chi-square of each position, and of the ordered pair of the first two; the seed is fixed."""
    pool, count, repeats = 8, 4, 20_000
    drawn = np.asarray(many_draws(jax.random.key(3), pool, count, repeats)[1])
    for position in range(count):
        observed = np.bincount(drawn[:, position], minlength=pool)
        assert scipy.stats.chisquare(observed).pvalue > 1e-3
    pairs = np.bincount(pool * drawn[:, 0] + drawn[:, 3], minlength=pool**2).reshape(pool, pool)
    assert scipy.stats.chisquare(pairs[~np.eye(pool, dtype=bool)]).pvalue > 1e-3
    assert np.trace(pairs) == 0


# ------------------------------------------------------------------------------------------------ federations


def sample(catalog, clients, arms, max_clients, max_arms, key=0):
    features = (jnp.asarray(x, jnp.float32) for x in (catalog.arms, catalog.key_terms, catalog.users[:1]))
    return jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))(
        jax.random.key(key),
        *features,
        clients=clients,
        num_arms=arms,
        noise=0.1,
        horizon=100,
        max_clients=max_clients,
        max_arms=max_arms,
    )


def test_arms_come_from_the_pool_without_replacement(catalog):
    problem = sample(catalog, 5, 20, 5, 20)
    products = np.asarray(problem.arms) @ catalog.arms.T.astype(np.float32)
    chosen = products.argmax(axis=2)
    np.testing.assert_array_equal(problem.arms, catalog.arms.astype(np.float32)[chosen])
    assert all(len(set(row)) == 20 for row in chosen.tolist())
    assert len({tuple(row) for row in chosen.tolist()}) == 5, "two clients got the same arms"


def test_the_whole_pool_can_be_drawn(catalog):
    pool = len(catalog.arms)
    problem = sample(catalog, 1, pool, 1, pool)
    ordered = np.sort(np.asarray(problem.arms[0])[:, 0])
    np.testing.assert_array_equal(ordered, np.sort(catalog.arms[:, 0].astype(np.float32)))


def test_a_clients_arms_do_not_depend_on_the_number_of_clients(catalog):
    few, many = sample(catalog, 2, 10, 2, 10), sample(catalog, 5, 10, 7, 10)
    np.testing.assert_array_equal(few.arms, many.arms[:2])


def test_a_smaller_arm_set_is_a_prefix(catalog):
    small, large = sample(catalog, 3, 4, 3, 4), sample(catalog, 3, 15, 3, 15)
    padded = sample(catalog, 3, 4, 3, 15)
    np.testing.assert_array_equal(small.arms, large.arms[:, :4])
    np.testing.assert_array_equal(small.arms, padded.arms[:, :4])


def test_other_keys_give_other_arms(catalog):
    first, second = sample(catalog, 2, 10, 2, 10, key=0), sample(catalog, 2, 10, 2, 10, key=1)
    assert (np.asarray(first.arms) != np.asarray(second.arms)).any(axis=(1, 2)).all()


def test_padding_is_zero_and_masked(catalog):
    problem = sample(catalog, 2, 6, 4, 9)
    mask = np.zeros((4, 9), bool)
    mask[:2, :6] = True
    np.testing.assert_array_equal(problem.arm_mask, mask)
    np.testing.assert_array_equal(np.asarray(problem.arms)[~mask], 0)
    # Unit rows, up to the rounding of d = 6 coordinates to float32.
    np.testing.assert_allclose(np.linalg.norm(np.asarray(problem.arms)[mask], axis=1), 1, rtol=1e-6)


def test_properties_against_numpy(catalog):
    problem = sample(catalog, 2, 6, 4, 9)
    arms, theta = np.asarray(problem.arms, np.float64), catalog.users[0]
    means = arms @ theta
    np.testing.assert_array_equal(problem.client_mask, [True, True, False, False])
    assert problem.num_clients == 2
    assert problem.num_arms == 6
    assert problem.num_clients.dtype == problem.num_arms.dtype == problem.horizon.dtype == jnp.float32
    # 1e-6: a product of 6 coordinates below 1 in float32.
    np.testing.assert_allclose(problem.means, means, atol=1e-6)
    gaps = np.zeros((4, 9))
    gaps[:2, :6] = means[:2, :6].max(axis=1, keepdims=True) - means[:2, :6]
    np.testing.assert_allclose(problem.gaps, gaps, atol=1e-6)
    assert (np.asarray(problem.gaps) >= 0).all()
    assert ((np.asarray(problem.gaps) == 0) & np.asarray(problem.arm_mask)).sum() == 2, "one best arm a client"
    assert problem.mean_over_clients(jnp.array([1.0, 4.0, 100.0, jnp.nan])) == 2.5


def test_gaps_of_a_client_whose_arms_are_all_bad():
    """Padding has mean 0, which must not count as the best arm."""
    theta = jnp.array([1.0, 0.0])
    arms = jnp.array([[[-1.0, 0.0], [-0.6, 0.8], [0.0, 0.0]]])
    mask = jnp.array([[True, True, False]])
    problem = Problem(arms, mask, jnp.eye(2), theta[None], jnp.float32(0.1), jnp.float32(10), jnp.arange(len(arms)))
    np.testing.assert_allclose(problem.gaps, [[0.4, 0, 0]], atol=1e-6)

"""Worlds: whom clients serve, which arms they see, who comes, what rewards are like."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import fedbandit_jax as fb
from fedbandit_jax.worlds.problem import USERS, sample_problem, users_of_clients
from fedbandit_jax.worlds.stage import BLOCK, EACH_CLIENT, OneByOne, arrivals, own_rounds, stages_of, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference

LIKELY = 1e-3  # p-values below it are no chance, with seeds that are fixed


# -------------------------------------------------------------------------------------------------------- preferences


@pytest.mark.parametrize("preferences", ["shared", "own", 1, 2, 5, 8])
def test_whom_clients_serve(preferences):
    """As the oracle says, for every user and also where there are more groups than users."""
    world, clients, count = fb.World(preferences=preferences), jnp.arange(12), 5
    serve = jax.jit(partial(users_of_clients, count=count))
    for seed in range(3):
        key = jax.random.key(seed)
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, USERS), count)).tolist()
        for user in range(count):
            served = np.asarray(serve(key, world, clients, jnp.int32(user))).tolist()
            assert served == reference.users_served(preferences, user, order, 12)
            groups = {"shared": 1, "own": 12}.get(preferences, preferences)
            assert served[0] == user
            assert len(set(served[:groups])) == min(groups, count), "one is served twice while others wait"
            assert served == [served[i % groups] for i in range(12)]
            fewer = serve(key, world, clients[:4], jnp.int32(user))
            assert fewer.tolist() == served[:4]


def test_other_users_are_drawn_by_the_key():
    world, serve = fb.World(preferences="own"), jax.jit(partial(users_of_clients, count=5))
    second = [int(serve(jax.random.key(i), world, jnp.arange(2), jnp.int32(3))[1]) for i in range(400)]
    counts = np.bincount(second, minlength=5)
    assert counts[3] == 0
    assert scipy.stats.chisquare(np.delete(counts, 3)).pvalue > LIKELY


def test_numbers_of_groups_and_words_agree(catalog):
    """One group is "shared", as many as clients are "own"; three programs, as numbers are none of their own."""
    preferences = ["shared", 1, 2, "own", 3]
    setting = {"clients": 3, "arms": 7, "horizon": 60, "users": 3, "seeds": 2, "checkpoints": 5}
    results = fb.sweep(catalog, fb.Uniform(), world=fb.World(preferences=preferences), **setting)
    assert results.settings["programs"] == 3
    curves = {name: run["regret"].to_numpy() for name, run in results.to_pandas().groupby("preferences", sort=False)}
    np.testing.assert_array_equal(curves["shared"], curves[1])
    np.testing.assert_array_equal(curves["own"], curves[3])
    assert (curves[2] != curves[1]).any()
    assert (curves[2] != curves[3]).any()


# --------------------------------------------------------------------------------------------------------------- arms


def problem_of(catalog, world, clients=3, arms=6, shape=None, key=0):
    return sample_problem(
        jax.random.key(key),
        *(jnp.asarray(x, jnp.float32) for x in (catalog.arms, catalog.key_terms, catalog.users)),
        clients=clients,
        num_arms=arms,
        noise=0.1,
        horizon=300,
        max_clients=(shape or (clients, arms))[0],
        max_arms=(shape or (clients, arms))[1],
        world=world,
    )


def test_common_arms_are_those_of_the_first_client(catalog):
    own, common = (problem_of(catalog, fb.World(arm_sets=word)) for word in ("own", "common"))
    assert len({np.asarray(arms).tobytes() for arms in own.arms}) == 3
    for arms in common.arms:
        np.testing.assert_array_equal(arms, own.arms[0])


@partial(jax.jit, static_argnames=("clients", "arms", "shape", "rounds"))
def rounds_seen(catalog_key, pool, key_terms, users, world, *, clients=3, arms=6, shape=None, rounds=3 * BLOCK):
    """What each client meets in its rounds: arms (rounds, M, K, d), losses, and what rewards are made of."""
    shape = shape or (clients, arms)
    problem = sample_problem(
        catalog_key,
        pool,
        key_terms,
        users,
        clients=clients,
        num_arms=arms,
        noise=0.1,
        horizon=300,
        max_clients=shape[0],
        max_arms=shape[1],
        world=world,
    )
    stages = stages_of(problem, jax.random.fold_in(catalog_key, 1))

    def of_round(t):
        return jax.vmap(lambda one: one.round(one.draw(t // BLOCK), t)[0], in_axes=(EACH_CLIENT,))(stages)

    alone = jax.lax.map(of_round, jnp.arange(rounds))
    if world.arrivals == "all":
        return alone
    stage = OneByOne(stages, problem.arrivals_key, problem.federation)

    def next_round(seen, t):
        drawn = stage.draw(t // BLOCK)
        round, after = stage.round(drawn, t, seen)
        return after, (drawn[t % BLOCK], seen[drawn[t % BLOCK]], round)

    return alone, jax.lax.scan(next_round, stage.begin(), jnp.arange(rounds))[1]


def seen(catalog, world, **sizes):
    features = (jnp.asarray(x, jnp.float32) for x in (catalog.arms, catalog.key_terms, catalog.users))
    return jax.tree.map(np.asarray, rounds_seen(jax.random.key(5), *features, world, **sizes))


def test_redrawn_arms(catalog):
    """Other arms in every round, for every client, none twice; or the first client's for all."""
    own, common = (seen(catalog, fb.World(contexts="redrawn", arm_sets=word)) for word in ("own", "common"))
    pool = catalog.arms.astype(np.float32)
    chosen = (own.arms @ pool.T).argmax(axis=-1)  # (rounds, M, K)
    np.testing.assert_array_equal(own.arms, pool[chosen])
    assert (np.diff(np.sort(chosen), axis=-1) > 0).all()
    assert len({row.tobytes() for row in chosen.reshape(-1, 6)}) == 3 * 3 * BLOCK
    for i in range(3):
        np.testing.assert_array_equal(common.arms[:, i], own.arms[:, 0])
    best = own.means.max(axis=-1, keepdims=True)
    np.testing.assert_allclose(own.losses, best - own.means, atol=1e-6)
    np.testing.assert_allclose(own.means, own.arms @ catalog.users[0].astype(np.float32), atol=1e-5)
    counts = np.bincount(chosen.ravel(), minlength=len(pool))
    assert scipy.stats.chisquare(counts).pvalue > LIKELY


@pytest.mark.parametrize("contexts", ["fixed", "redrawn"])
def test_a_client_meets_the_same_whatever_is_around_it(catalog, contexts):
    """More clients, more arms, padding: the first clients and arms are the same."""
    world = fb.World(contexts=contexts, preferences="own")
    few = seen(catalog, world, clients=2, arms=4)
    for sizes in ({"clients": 3, "arms": 6}, {"clients": 2, "arms": 4, "shape": (3, 9)}):
        many = seen(catalog, world, **sizes)
        np.testing.assert_array_equal(many.arms[:, :2, :4], few.arms)
        np.testing.assert_array_equal(many.chance[:, :2], few.chance)
        np.testing.assert_allclose(many.means[:, :2, :4], few.means, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------- arrivals


@pytest.mark.parametrize("contexts", ["fixed", "redrawn"])
def test_who_comes_meets_what_it_would_meet_alone(catalog, contexts):
    world = fb.World(contexts=contexts, preferences="own", arrivals="one", rewards="bernoulli")
    alone, (who, own, met) = seen(catalog, world)
    came = [0, 0, 0]
    for t, i in enumerate(who):
        assert own[t] == came[i]
        for name in ("arms", "mask", "means", "chance"):
            np.testing.assert_allclose(getattr(met, name)[t], getattr(alone, name)[came[i], i], atol=1e-6)
        came[i] += 1
    assert min(came) > BLOCK // 2


@partial(jax.jit, static_argnums=2)
def all_arrivals(key, clients, blocks):
    return jax.vmap(lambda block: arrivals(key, block, clients))(jnp.arange(blocks)).ravel()


@pytest.mark.parametrize("clients", [1, 2, 7])
def test_one_client_comes_in_each_round(clients):
    """Own rounds add up to all rounds, at every checkpoint; whoever comes is as likely as any other, and new."""
    key, blocks = jax.random.key(1), 320
    stops = np.array([1, 2, 63, 64, 65, 128, 1000, 1001, blocks * BLOCK])
    came = np.asarray(all_arrivals(key, jnp.int32(clients), blocks))
    assert (came.min(), came.max()) == (0, clients - 1)
    count = jax.jit(jax.vmap(own_rounds, in_axes=(None, 0, None, None)))
    own = np.asarray(count(key, jnp.arange(clients), jnp.int32(clients), jnp.asarray(stops, jnp.int32)))
    np.testing.assert_array_equal(own.sum(axis=0), stops)
    np.testing.assert_array_equal(own, [[(came[:t] == i).sum() for t in stops] for i in range(clients)])
    if clients > 1:
        assert scipy.stats.chisquare(np.bincount(came, minlength=clients)).pvalue > LIKELY
        pairs = np.bincount(clients * came[:-1] + came[1:], minlength=clients**2)
        assert scipy.stats.chisquare(pairs).pvalue > LIKELY


def test_many_clients_come_too():
    clients = 100_000
    came = np.asarray(all_arrivals(jax.random.key(0), jnp.int32(clients), 300))
    assert scipy.stats.kstest((came + 0.5) / clients, "uniform").pvalue > LIKELY


def test_clients_who_have_not_come_have_no_regret(catalog):
    """More clients than rounds: a warning, and the curves of those who came."""
    setting = {"clients": 9, "arms": 5, "horizon": 6, "users": 2, "checkpoints": 6}
    with pytest.warns(UserWarning, match=r"^horizon=6 counts the plays of all clients with arrivals='one': of 9, some"):
        curves = fb.simulate(catalog, fb.Uniform(), world=fb.World(arrivals="one"), **setting).to_pandas()
    assert (curves["regret"] >= 0).all()
    for user, run in curves.groupby("user"):
        np.testing.assert_allclose(run["theta_error"], np.linalg.norm(catalog.users[user]), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------ rewards

NOISE = 0.4


def spread(kind, mean):
    one = np.clip(mean, 0, 1)
    sd = {"bernoulli": np.sqrt(1 - mean**2), "gaussian": NOISE, "uniform": NOISE, "zero-one": np.sqrt(one * (1 - one))}
    return sd[kind]


def check_moments(sample, mean, sd):
    """Mean and variance within four standard errors."""
    n = len(sample)
    assert abs(sample.mean() - mean) <= 4 * sd / np.sqrt(n) + 1e-12
    fourth = np.mean((sample - sample.mean()) ** 4)
    assert abs(sample.var() - sd**2) <= 4 * np.sqrt(max(fourth - sd**4, 0) / n) + 1e-3 * sd**2


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "uniform", "zero-one"])
@pytest.mark.parametrize("mean", [-1.0, -0.35, 0.0, 0.8, 1.0])
def test_rewards_have_their_mean_and_variance(kind, mean):
    mean = reference.Rewards(kind, NOISE).mean(mean)
    with jax.enable_x64(True):
        u = uniforms(jax.random.key(3), (200_000,), jnp.float64)
        world = fb.World(rewards=kind)
        rewards = np.asarray(world.reward(jnp.full(u.shape, mean), u, jnp.float64(NOISE)))
    check_moments(rewards, mean, spread(kind, mean))
    if kind == "bernoulli":
        assert set(rewards) <= {-1.0, 1.0}
    if kind == "zero-one":
        assert set(rewards) <= {0.0, 1.0}
    if kind == "uniform":
        assert np.abs(rewards - mean).max() <= NOISE * np.sqrt(3)
    told = reference.Rewards(kind, NOISE)
    np.testing.assert_allclose([told.one(mean, float(x)) for x in u[:200]], rewards[:200], rtol=1e-5, atol=1e-6)
    assert float(world.sigma(NOISE)) == told.told()
    check_moments(told.one_by_one(np.full(100_000, mean), np.random.default_rng(0)), mean, spread(kind, mean))


def test_rewards_are_normal():
    """Made in float32, whatever the precision: a relative error of some 1e-6 in the tails."""
    with jax.enable_x64(True):
        u = uniforms(jax.random.key(0), (100_000,), jnp.float64)
        np.testing.assert_allclose(normal(u), np.sqrt(2) * scipy.special.erfinv(np.asarray(u)), rtol=2e-5, atol=1e-6)
        assert scipy.stats.kstest(np.asarray(u), "uniform", (-1, 2)).pvalue > LIKELY
        assert jnp.abs(u).max() < 1


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "uniform", "zero-one"])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_sums_of_rewards_have_their_mean_and_variance(kind, count):
    draws, means = 4000, np.array([-0.6, 0.0, 0.9])
    with jax.enable_x64(True):
        world = fb.World(rewards=kind)

        def one(key):
            z = jax.random.normal(key, means.shape)
            return world.sum_of_rewards(jnp.full(3, float(count)), jnp.asarray(means), jnp.float64(NOISE), z, key)

        sums = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(count), draws)))
    for sample, mean in zip(sums.T, means, strict=True):
        of_one = reference.Rewards(kind, NOISE).mean(mean)
        check_moments(sample, count * of_one, np.sqrt(count) * spread(kind, mean))
    varying = sums.T if kind != "zero-one" else sums.T[2:]  # a share of 0 or less is never drawn
    if len(varying) < 3:
        return
    correlation = np.corrcoef(sums.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 4 / np.sqrt(draws), "arms have noise in common"


@pytest.mark.parametrize("shape", [(), (2,), (BLOCK,), (3, 5)])
def test_places_are_those_of_jax(shape):
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    for seed in range(5):
        key = jax.random.key(seed)
        expected = jax.random.uniform(key, shape, jnp.float32, lowest, 1)
        np.testing.assert_array_equal(uniforms(key, shape, jnp.float32), expected)

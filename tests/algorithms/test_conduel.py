"""ConDuel against the oracle, round by round on the same random numbers."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational.conduel import draw_lots, one_of, two_of
from fedbandit_jax.clocks.rounds import CHOICES
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.linalg.representatives import barycentric_spanner
from fedbandit_jax.worlds.stage import uniforms
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, M, T, keys_of, play, raw_of
from tests.reference.conversational_duels import curvature

ARMS, QUESTIONS = 9, 90
J = len(CATALOG.key_terms)
SETTING = {"clients": 1, "arms": 5, "horizon": 100, "users": 1}


@lru_cache
@jax.jit
def numbers():
    """Of each client: the lots of arms in each round, uniforms of questions, and the keys of what to ask."""

    def of_client(i):
        own = jax.random.fold_in(keys_of(0)[1], i)
        asks, choices = jax.random.fold_in(own, 1), jax.random.fold_in(own, CHOICES)
        lots = jax.vmap(lambda t: draw_lots(jax.random.fold_in(choices, t), ARMS))(jnp.arange(T))
        asked = jax.vmap(lambda q: jax.random.fold_in(asks, q))(jnp.arange(QUESTIONS))
        answers = jax.vmap(lambda key: uniforms(key, (), jnp.float64))(asked)
        return lots, answers, jax.vmap(lambda key: jax.random.fold_in(key, 1))(asked)

    return jax.vmap(of_client)(jnp.arange(M))


compiled_spanner = jax.jit(barycentric_spanner, static_argnums=1)
first_pairs = jax.jit(lambda lots: jax.vmap(partial(two_of, jnp.ones(ARMS, bool)))(lots))


@partial(jax.jit, static_argnums=(0, 2))
def draw_each(draw, keys, count):
    return jax.vmap(lambda key: draw(jnp.ones(count, bool), draw_lots(key, count)))(keys)


def pairs_asked(strategy, keys):
    """The key terms of each question; with "max" the first of them."""
    if strategy == "BS":
        spanner = compiled_spanner(jnp.asarray(CATALOG.key_terms), 2.0)
        picked = draw_each(two_of, keys, int(spanner.rank))
        return np.asarray(spanner.indices)[np.asarray(picked)]
    return np.asarray(draw_each(two_of if strategy == "random" else one_of, keys, J))


def expected_runs(algorithm, world):
    raw = raw_of(0, arms=ARMS)
    clients = reference.clients_of(
        world.hyperparameters(), CATALOG.arms, CATALOG.users, USER, M, NOISE, raw, weights=CATALOG.weights.toarray()
    )
    schedule = Schedule.of(algorithm.schedule, T)
    runs = []
    for client, lots, answers, keys in zip(clients, *numbers(), strict=True):
        client.question_u = np.asarray(answers)
        pairs = pairs_asked(algorithm.strategy, keys)
        at_first = first_pairs(lots)[: algorithm.length]
        runs.append(
            reference.conduel(
                client,
                CATALOG.key_terms,
                T,
                b=np.array([schedule(t) for t in range(1, T + 1)]),
                uniforms=[partial(luckiest, np.asarray(row)) for row in lots],
                pairs=lambda q, t, pairs=pairs: pairs[q],
                strategy=algorithm.strategy,
                initial=np.asarray(at_first),
                alpha=algorithm.alpha,
                lam=algorithm.lam,
                kappa=curvature(1.0, algorithm.S),
                window=algorithm.window,
                refit=lambda t, since: t < algorithm.every or since >= algorithm.every,
            )
        )
    who = reference.who_plays(T, M, raw.came if world.arrivals == "one" else None)
    return runs, clients, who


def luckiest(lots, arms):
    """Of some arms, the one that has drawn the largest lot."""
    return arms[int(np.argmax(lots[arms]))]


REDRAWN, CHARGED = fb.World(contexts="redrawn"), fb.World(charged=True)


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        (fb.ConDuel(window=400), REDRAWN),
        (
            fb.ConDuel(window=30, every=20, length=5, strategy="max", schedule="3 every 25", S=1.0),
            fb.World(charged=True),
        ),
        (fb.ConDuel(window=50, every=40, length=0, strategy="random", alpha=0.8, lam=1.0), REDRAWN),
        (fb.ConDuel(window=20, every=10, length=3, schedule="log"), fb.World(arrivals="one", preferences="own")),
    ],
    ids=["exact", "max", "random", "one"],
)
def test_every_round_equals_the_oracle(algorithm, world):
    """The same pairs in all rounds, and estimates: exact ones, and such with a quadratic for what left the window."""
    found = play(algorithm, world, arms=ARMS)
    with jax.enable_x64(True):
        runs, clients, who = expected_runs(algorithm, world)
    expected = reference.add_up(runs, clients, who)
    for name in ("regret", "conversations", "theta_error"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-8, err_msg=name)
    if world.arrivals == "all":
        # The oracle adds what questions cost to all three, the package to regret alone.
        of_duels = sum(np.cumsum(of_arms(*both)) for both in zip(runs, clients, strict=True))
        for name in ("weak_regret", "strong_regret"):
            counted = found.counts[name] + found.regret - of_duels
            expected = sum(getattr(run, name) for run in runs)
            np.testing.assert_allclose(counted, expected, rtol=1e-6, atol=1e-8, err_msg=name)


def of_arms(run, client):
    """The mean loss of the two arms of each round."""
    return [np.mean([client.regret(t, client.see(t)[a]) for a in pair]) for t, pair in enumerate(run.arms)]


def test_lots_are_fair():
    """Every arm of a mask is first, and second, as often as others; two are never the same unless there is but one."""
    mask = jnp.array([True, False, True, True, False])
    pairs = np.asarray(jax.vmap(lambda key: two_of(mask, draw_lots(key, 5)))(jax.random.split(jax.random.key(0), 6000)))
    assert (pairs[:, 0] != pairs[:, 1]).all()
    counts = np.array([[np.sum((pairs == (a, b)).all(axis=1)) for b in range(5)] for a in range(5)])
    allowed = np.outer(mask, mask) & ~np.eye(5, dtype=bool)
    assert not counts[~allowed].any()
    assert np.abs(counts[allowed] - 1000).max() < 4 * np.sqrt(1000 * 5 / 6)
    alone = jnp.arange(5) == 3
    assert two_of(alone, draw_lots(jax.random.key(0), 5)).tolist() == [3, 3]


def test_bad_input_is_refused():
    for name, value in {"window": 0, "every": 2.5, "length": -1, "strategy": "UCB", "lam": 0}.items():
        with pytest.raises(ValueError, match=f"{name}={value!r} is not allowed"):
            fb.simulate(CATALOG, fb.ConDuel(**{name: value}), **SETTING)
    with pytest.raises(ValueError, match="ConDuel compares key terms as vectors, so answers='max' is not allowed"):
        fb.simulate(CATALOG, fb.ConDuel(), **SETTING, world=fb.World(answers="max"))

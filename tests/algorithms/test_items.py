"""Learners whose key terms come from the arms: CtoF-ConUCB and its clusters, Hier-LinUCB; against the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational.ctof_conucb import cluster_centres, greedy_centres
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.worlds.stage import uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, M, T, check, keys_of, play, raw_of

ARMS = 12
SETTING = {"clients": 1, "arms": 10, "horizon": 100, "users": 1}


def clients_of(world, answers=None):
    """The oracle's clients, and who plays when; `answers` are the uniform numbers of questions, if they are others."""
    raw = raw_of(0, arms=ARMS)
    answers = raw.answers if answers is None else answers
    table = {}
    for u in (raw.pulls, answers):
        table.update(zip(u.ravel().tolist(), np.asarray(normal(jnp.asarray(u))).ravel().tolist(), strict=True))
    weights = CATALOG.weights.toarray()
    features = CATALOG.arms, CATALOG.users
    clients = reference.clients_of(
        world.hyperparameters(), *features, USER, M, NOISE, raw, normal=lambda u: table[float(u)], weights=weights
    )
    for client, u in zip(clients, answers, strict=True):
        client.question_u = u
    return clients, reference.who_plays(T, M, raw.came if world.arrivals == "one" else None)


# ------------------------------------------------------------------------------------------------------- CtoF-ConUCB


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        (fb.CtoFConUCB(), fb.World()),
        (fb.CtoFConUCB(delta_c=0.3, lloyd=2, schedule="3 linear", alpha="theory", alpha_t="theory"), fb.World()),
        (fb.CtoFConUCB(delta_c=6.0, lloyd=0, T=200, lam=0.3), fb.World(arrivals="one", preferences="own")),
    ],
    ids=["default", "coarse", "fine"],
)
def test_ctof_conucb_equals_the_oracle(algorithm, world):
    found = play(algorithm, world, arms=ARMS)
    given = algorithm.hyperparameters() | {"S": CATALOG.user_bound}
    given |= {"fineness": given.pop("delta_c"), "planned": given.pop("T")}
    schedule = Schedule.of(given.pop("schedule"), T)
    given["b"] = np.array([schedule(t) for t in range(1, T + 1)])
    with jax.enable_x64(True):
        clients, who = clients_of(world)
        runs = [reference.ctof_conucb(client, T, **given) for client in clients]
    check(found, reference.add_up(runs, clients, who))
    numbers = {n for run in runs for n, _ in run.questions}
    assert len(numbers) > 2, "from coarse to fine"


def rows_of(seed, n=12, d=4):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def padded(rows, more=5):
    """The rows among rows that are not there."""
    mask = np.arange(len(rows) + more) < len(rows)
    return jnp.asarray(np.concatenate([rows, np.zeros((more, rows.shape[1]))])), jnp.asarray(mask)


def centres_by_hand(rows):
    order = [0]
    while len(order) < len(rows):
        rest = [i for i in range(len(rows)) if i not in order]
        nearest = [min(np.linalg.norm(rows[i] - rows[c]) for c in order) for i in rest]
        order.append(rest[int(np.argmax(nearest))])
    return order


def clusters_by_hand(rows, centres, steps):
    for _ in range(steps):
        nearest = [int(np.argmin([np.linalg.norm(row - centre) for centre in centres])) for row in rows]
        groups = [[row for row, n in zip(rows, nearest, strict=True) if n == c] for c in range(len(centres))]
        centres = [np.mean(group, axis=0) for group in groups if group]
    return centres


def clusters(rows, n, steps):
    """The centres that are there, in order."""
    centres = cluster_centres(*padded(rows), greedy_centres(*padded(rows)), jnp.int32(n), steps)
    return [centre for centre in np.asarray(centres) if centre.any()]


@pytest.mark.parametrize("seed", range(3))
def test_centres_are_as_far_apart_as_can_be(seed):
    with jax.enable_x64(True):
        rows = rows_of(seed)
        order = np.asarray(greedy_centres(*padded(rows)))
    assert order[: len(rows)].tolist() == centres_by_hand(rows)


def test_copies_are_centres_once_each():
    rows = np.repeat(rows_of(1, n=3), 3, axis=0)
    order = np.asarray(greedy_centres(*padded(rows)))
    assert sorted(order[: len(rows)]) == list(range(len(rows)))
    assert len({tuple(rows[i]) for i in order[:3]}) == 3
    np.testing.assert_allclose(sorted(map(tuple, clusters(rows, 9, 2))), sorted(map(tuple, rows[::3])), rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 3])
def test_clusters_are_those_of_k_means(steps):
    with jax.enable_x64(True):
        for seed in range(3):
            rows = rows_of(seed)
            for n in (1, 2, 5, 11, 12):
                expected = clusters_by_hand(rows, [rows[i] for i in centres_by_hand(rows)[:n]], steps)
                np.testing.assert_allclose(clusters(rows, n, steps), expected, rtol=1e-12)


def test_one_cluster_is_the_mean_and_as_many_as_rows_are_the_rows():
    with jax.enable_x64(True):
        rows = rows_of(2)
        np.testing.assert_allclose(clusters(rows, 1, 4), [rows.mean(axis=0)])
        np.testing.assert_allclose(clusters(rows, len(rows), 4), rows[centres_by_hand(rows)])


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"lloyd=1\.5 is not allowed: it must be a whole number of at least 0"):
        fb.simulate(CATALOG, fb.CtoFConUCB(lloyd=1.5), **SETTING)
    with pytest.raises(ValueError, match="delta_c=-1 is not allowed"):
        fb.simulate(CATALOG, fb.CtoFConUCB(delta_c=-1), **SETTING)
    with pytest.raises(ValueError, match="CtoF-ConUCB clusters the arms that it starts with, so contexts='redrawn'"):
        fb.simulate(CATALOG, fb.CtoFConUCB(), **SETTING, world=fb.World(contexts="redrawn"))


def test_it_needs_no_key_terms():
    bare = fb.Catalog.from_arrays(CATALOG.arms, None, CATALOG.users)
    assert fb.simulate(bare, fb.CtoFConUCB(), **SETTING).final()["conversations"].tolist() == [20]


# ------------------------------------------------------------------------------------------------------- Hier-LinUCB


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        (fb.HierLinUCB(kappa=0.5), fb.World(answers="max", discount=0.5, charged=True)),
        (fb.HierLinUCB(alpha="theory", kappa=0.3, lam=1.0), fb.World(answers="max", discount=0.8, arrivals="one")),
        (fb.HierLinUCB(gamma=0.6, kappa=0.1, alpha=0.3), fb.World(answers="max", charged=True, preferences="own")),
    ],
    ids=["charged", "theory", "another discount"],
)
def test_hier_linucb_equals_the_oracle(algorithm, world):
    found = play(algorithm, world, arms=ARMS)
    with jax.enable_x64(True):
        clients, who = clients_of(world, numbers_of_rounds())
        given = algorithm.hyperparameters() | {"S": CATALOG.user_bound, "target": "scaled", "by_round": True}
        given["discount"] = given.pop("gamma")
        mine = [CATALOG.links[raw_of(0, arms=ARMS).fixed(i)] for i in range(M)]
        runs = [
            reference.hier_linucb(client, CATALOG.key_terms, links, T, **given)
            for client, links in zip(clients, mine, strict=True)
        ]
    check(found, reference.add_up(runs, clients, who))
    questions = [len(run.questions) for run in runs]
    assert min(questions) > 10
    assert min(questions) < T, "somebody stops"


def numbers_of_rounds():
    """The uniform number of a question in each round. (M, T)."""

    def of_round(i, t):
        asks = jax.random.fold_in(jax.random.fold_in(keys_of(0)[1], i), 1)
        return uniforms(jax.random.fold_in(jax.random.fold_in(asks, t), 0), (), jnp.float64)

    return np.asarray(jax.vmap(lambda i: jax.vmap(lambda t: of_round(i, t))(jnp.arange(T)))(jnp.arange(M)))


def test_hier_linucb_asks_while_asking_is_as_good_as_pulling():
    setting = SETTING | {"horizon": 200, "dtype": "float64"}
    worlds = [fb.World(answers="max", discount=discount) for discount in (0.3, 1.0)]
    few, all_of_them = (
        fb.simulate(CATALOG, fb.HierLinUCB(kappa=0.1), **setting, world=world).final()["conversations"].iloc[0]
        for world in worlds
    )
    assert 11 <= few < 100
    assert all_of_them == 200


def test_hier_linucb_refuses_other_worlds():
    with pytest.raises(ValueError, match="Hier-LinUCB takes answers for those of the best arm, so answers='mean' is"):
        fb.simulate(CATALOG, fb.HierLinUCB(), **SETTING)
    with pytest.raises(ValueError, match="so contexts='redrawn' is not allowed"):
        fb.simulate(CATALOG, fb.HierLinUCB(), **SETTING, world=fb.World(answers="max", contexts="redrawn"))
    with pytest.raises(ValueError, match="gamma=0 is not allowed"):
        fb.simulate(CATALOG, fb.HierLinUCB(gamma=0), **SETTING, world=fb.World(answers="max"))

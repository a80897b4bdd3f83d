"""Learners whose key terms come from the arms: CtoF-ConUCB and its clusters, Hier-LinUCB; against the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
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

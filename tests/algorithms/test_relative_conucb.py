"""RelativeConUCB: which key terms it compares; both learners against the NumPy oracle, round by round."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational import relative_conucb as relative
from fedbandit_jax.algorithms.conversational.conucb import credits_of
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.worlds.stage import SIDES, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, M, T, check, check_neighbours, play, raw_of


def random_case(seed, J, d=5):
    """Key terms, Mt^-1 and X M^-1 of random histories."""
    rng = np.random.default_rng(seed)
    terms, arms, asked = rng.normal(size=(J, d)), rng.normal(size=(7, d)), rng.normal(size=(3, d))
    inverse = np.linalg.inv(np.eye(d) + asked.T @ asked)
    onto_arms = arms @ np.linalg.inv(0.5 * np.eye(d) + 0.5 * arms[:4].T @ arms[:4])
    return terms, inverse, onto_arms


def credit(f, inverse, onto_arms):
    return np.sum((onto_arms @ inverse @ f) ** 2) / (1 + f @ inverse @ f)


@pytest.mark.parametrize(("seed", "share"), [(0, 1.0), (1, 0.5), (2, 0.1), (3, 0.0)])
def test_the_best_pair_is_the_best_of_all(seed, share):
    """Of 70 key terms, in rows of 32; with one that may be asked about, it is compared with itself."""
    terms, inverse, onto_arms = random_case(seed, J=70)
    mask = np.random.default_rng(seed).random(70) < share
    mask[41] = True
    allowed = np.flatnonzero(mask)
    pairs = [(k, other) for k in allowed for other in allowed if k < other] or [(41, 41)]
    best = max(pairs, key=lambda pair: credit(terms[pair[0]] - terms[pair[1]], inverse, onto_arms))
    with jax.enable_x64(True):
        terms, inverse, shadow = (jnp.asarray(x) for x in (terms, inverse, onto_arms.T @ onto_arms))
        credits = credits_of(terms.T, inverse, shadow)
        found = relative.best_difference(terms, jnp.asarray(mask), credits, shadow)
    assert tuple(map(int, found)) == best


def test_equal_pairs_go_to_the_first():
    """Four key terms at the corners of a square, in a world that knows nothing: both diagonals are as good."""
    terms = jnp.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    eye, mask = jnp.eye(2), jnp.ones(4, bool)
    credits = credits_of(terms.T, eye, eye)
    assert tuple(map(int, relative.best_difference(terms, mask, credits, eye))) == (0, 2)
    lanes = jax.vmap(relative.best_difference, in_axes=(None, 0, None, None))(
        terms, jnp.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]], bool), credits, eye
    )
    np.testing.assert_array_equal(lanes, [[0, 1, 3], [2, 3, 3]])


# --------------------------------------------------------------------------------------------------------- the oracle

PAPER = {"contexts": "redrawn", "rewards": "zero-one", "candidates": "related"}
WORLDS = {
    "default": fb.World(),
    "paper": fb.World(**PAPER, preferences="own"),
    "paper, a price": fb.World(**PAPER, preferences=2, charged=True),
    "best arms": fb.World(answers="max", discount=0.8, candidates="related", charged=True),
    "one": fb.World(**PAPER, arrivals="one"),
}
THEORY = {"alpha": "theory", "alpha_t": "theory"}
CASES = [
    ("paper, a price", fb.RelativeConUCB(variant="pos", lam=0.3, lam_t=2.0)),
    ("one", fb.RelativeConUCB(variant="pos-neg", **THEORY)),
    ("paper, a price", fb.RelativeConUCB(variant="difference")),
    ("best arms", fb.RelativeConUCB(variant="difference")),
    ("default", fb.RelativeConUCB(schedule="linear", alpha_t=1.0)),
    ("paper, a price", fb.SharedRelativeConUCB(variant="pos-neg", **THEORY)),
    ("best arms", fb.SharedRelativeConUCB(variant="difference")),
    ("default", fb.SharedRelativeConUCB()),
]


def expected_curves(algorithm, world, seed=0):
    """The oracle's curves after every round; where questions cost regret, a comparison costs the mean of its two."""
    raw, words = copy.copy(raw_of(seed)), world.hyperparameters()
    sides = jax.vmap(jax.vmap(lambda key: uniforms(jax.random.fold_in(key, SIDES), (2,), jnp.float64)))
    found = np.asarray(sides(raw.question_keys))
    raw.side_u = lambda i: found[i]
    table = {}
    for u in (raw.pulls, found):
        table.update(zip(u.ravel().tolist(), np.asarray(normal(jnp.asarray(u))).ravel().tolist(), strict=True))
    features = {"normal": lambda u: table[float(u)], "weights": CATALOG.weights.toarray()}
    clients = reference.clients_of(words, CATALOG.arms, CATALOG.users, USER, M, NOISE, raw, **features)
    who = reference.who_plays(T, M, raw.came if world.arrivals == "one" else None)
    b = np.array([Schedule.of(algorithm.schedule, T)(t) for t in range(1, T + 1)])
    terms = CATALOG.key_terms
    shares = isinstance(algorithm, fb.SharedRelativeConUCB)
    run = (reference.shared_relative_conucb if shares else reference.relative_conucb)(
        clients,
        terms,
        who,
        b=b,
        cost=lambda i, t, k, other: (clients[i].cost(t, k, terms) + clients[i].cost(t, other, terms)) / 2,
        S=CATALOG.user_bound,
        **{name: value for name, value in algorithm.hyperparameters().items() if name != "schedule"},
    )
    messages = 2 * M * M * run.asked if shares else 0 * run.asked  # of M clients, each heard once and told M - 1 times
    return reference.Curves(run.regret, run.asked, messages, run.theta_error), run


@pytest.mark.parametrize(("world", "algorithm"), CASES, ids=[f"{world} - {a.title}" for world, a in CASES])
def test_every_round_equals_the_oracle(world, algorithm):
    """Same random numbers, float64: the same comparisons, arms, regret, messages and estimates in all rounds."""
    found = play(algorithm, WORLDS[world])
    with jax.enable_x64(True):
        expected, run = expected_curves(algorithm, WORLDS[world])
    pairs = {pair for questions in run.questions for *pair, _ in map(list, questions) for pair in [tuple(pair)]}
    assert len(pairs) > 2
    check(found, expected)
    if isinstance(algorithm, fb.SharedRelativeConUCB):
        np.testing.assert_allclose(found.counts["uploads"], M * expected.conversations)
        np.testing.assert_allclose(found.counts["downloads"], (M - 1) * M * expected.conversations)


def test_neighbours_and_padding_change_nothing():
    """Also of clients who share: padded ones say nothing."""
    check_neighbours(fb.SharedRelativeConUCB(variant="difference"), WORLDS["paper, a price"], {}, {"shape": (5, 8)})


def test_bad_input():
    setting = {"clients": 2, "arms": 5, "horizon": 100, "users": 1}
    with pytest.raises(ValueError, match=r"variant='neg' is not allowed: it must be 'pos' or 'pos-neg' or"):
        fb.simulate(CATALOG, fb.RelativeConUCB(variant="neg"), **setting)
    with pytest.raises(ValueError, match=r"asks all clients before a round, so arrivals='one' is not allowed"):
        fb.simulate(CATALOG, fb.SharedRelativeConUCB(), **setting, world=fb.World(arrivals="one"))


@pytest.mark.parametrize("share", [1.0, 0.6, 0.0])
def test_the_best_of_many_pairs(share):
    """Of more key terms than fit into a tile."""
    J, d = 2 * relative.TILE + 44, 7
    rng = np.random.default_rng(3)
    for _ in range(3):
        terms, roots, mask = rng.normal(size=(J, d)), rng.normal(size=(2, d, d)), rng.random(J) < share
        mask[[5, 290]] = True
        shadow, inverse = roots[0] @ roots[0].T, np.linalg.inv(np.eye(d) + roots[1] @ roots[1].T)
        differences = terms[:, None] - terms[None, :]
        n = ((differences @ inverse @ shadow @ inverse) * differences).sum(axis=2)
        credit = n / (1 + ((differences @ inverse) * differences).sum(axis=2))
        allowed = np.triu(mask[:, None] & mask[None, :], 1)
        expected = divmod(int(np.argmax(np.where(allowed, credit, -1))), J)
        with jax.enable_x64(True):
            given = [jnp.asarray(x) for x in (terms, inverse, shadow)]
            credits = credits_of(given[0].T, *given[1:])
            found = jax.jit(relative.best_difference)(given[0], jnp.asarray(mask), credits, given[2])
        assert tuple(int(k) for k in found) == expected

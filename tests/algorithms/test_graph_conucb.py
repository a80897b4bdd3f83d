"""GraphConUCB: its graph, its designs and its questions; the learner against the NumPy oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational import graph_conucb as graph
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, M, T, check, play, raw_of


def by_the_letter(key_terms, weights, gamma):
    """S, from a dense matrix of weights (A, J)."""
    J = len(key_terms)
    S = np.eye(J)
    carried = weights > 0
    near = [[k == l or (carried[:, k] & carried[:, l]).any() for l in range(J)] for k in range(J)]  # noqa: E741
    degree = [sum(row) for row in near]
    for k in range(J):
        for other in range(J):
            if k != other and near[k][other]:
                x, y = key_terms[k], key_terms[other]
                cosine = x @ y / np.sqrt(x @ x * (y @ y))
                S[k, other] = (1 - gamma) / (degree[k] + degree[other] - 1) + gamma * cosine * (cosine >= 1e-3)
    return S


def links_of(weights):
    """The key terms of each arm, padded with J."""
    A, J = weights.shape
    widest = max((row > 0).sum() for row in weights)
    links = np.full((A, widest), J, np.int32)
    for a in range(A):
        carried = np.flatnonzero(weights[a])
        links[a, : len(carried)] = carried
    return links


@pytest.fixture(params=[0, 1, 2])
def case(request):
    """Key terms and weights of a small catalog; some arms carry no key term, some key terms have no arm."""
    rng = np.random.default_rng(request.param)
    weights = (rng.random((12, 9)) < 0.15) * rng.random((12, 9))
    weights[:, request.param] = 0
    return rng.normal(size=(9, 4)), weights


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_similarity_is_the_papers(case, gamma):
    key_terms, weights = case
    with jax.enable_x64(True):
        found = graph.similarity(jnp.asarray(key_terms), jnp.asarray(links_of(weights)), gamma)
    np.testing.assert_allclose(found, by_the_letter(key_terms, weights, gamma), atol=1e-12)
    np.testing.assert_array_equal(np.diag(found), 1)


def test_first_directions_are_singular_vectors(monkeypatch):
    """In blocks of 3 neighbours, of which there are up to 9."""
    monkeypatch.setattr(graph, "ROWS", 3)
    rng = np.random.default_rng(0)
    key_terms, near = rng.normal(size=(9, 4)), (rng.random((9, 9)) < 0.6) | np.eye(9, dtype=bool)
    near[2] = True
    with jax.enable_x64(True):
        found = np.asarray(graph.first_directions(graph.grams_of_neighbours(jnp.asarray(key_terms), jnp.asarray(near))))
    for row, mask in zip(found, near, strict=True):
        values, vectors = np.linalg.eigh(key_terms[mask].T @ key_terms[mask])
        np.testing.assert_allclose(np.outer(row, row), values[-1] * np.outer(vectors[:, -1], vectors[:, -1]), atol=1e-9)


def test_draws_follow_the_weights():
    """Of 4000 draws, within four standard errors; never one of weight 0, also at the very end."""
    weights = jnp.array([0.0, 0.5, 0.0, 0.3, 0.2, 0.0])
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(graph.draw_key_term, in_axes=(0, None))(keys, jnp.cumsum(weights)))
    shares = np.bincount(drawn, minlength=6) / 4000
    assert set(drawn) == {1, 3, 4}
    np.testing.assert_allclose(shares, weights, atol=4 * np.sqrt(0.25 / 4000))


def test_weights_keep_to_what_may_be_asked():
    weights = jnp.array([0.5, 0.0, 0.5])
    for mask, expected in (([1, 1, 1], [0.5, 0, 0.5]), ([0, 1, 1], [0, 0, 0.5]), ([0, 1, 0], [0, 1, 0])):
        np.testing.assert_allclose(graph.allowed_weights(weights, jnp.array(mask, bool)), expected)


def test_designs_are_optimal(case):
    """max a' V(pi)^-1 a is d, to one percent, of the key terms or of what their neighbourhoods tell most of."""
    key_terms, weights = case
    with jax.enable_x64(True):
        terms, links = jnp.asarray(key_terms), jnp.asarray(links_of(weights))
        of = {word: fb.GraphConUCB(design=word).context(terms, links) for word in ("graph", "G", "D")}
        directions = graph.first_directions(of["G"].grams)
    np.testing.assert_array_equal(of["G"].weights, of["D"].weights)
    for word, rows in (("G", key_terms), ("graph", np.asarray(directions))):
        pi = np.asarray(of[word].weights)
        V = (pi[:, None] * rows).T @ rows
        worst = np.einsum("kd,de,ke->k", rows, np.linalg.inv(V), rows).max()
        assert pi.sum() == pytest.approx(1)
        assert 4 <= worst * (1 + 1e-9) <= 4 * 1.03  # on_support leaves out weights below a thousandth of the largest


# --------------------------------------------------------------------------------------------------------- the oracle

WORLDS = {
    "default": fb.World(),
    "related, a price": fb.World(contexts="redrawn", candidates="related", charged=True, rewards="zero-one"),
    "one": fb.World(arrivals="one", preferences="own", answers="max", discount=0.9),
}
CASES = [
    ("default", fb.GraphConUCB()),
    ("related, a price", fb.GraphConUCB(gamma=0.2, lam=0.3, lam_t=2.0, schedule="linear")),
    ("related, a price", fb.GraphConUCB(graph_feedback=False, design="D")),
    ("one", fb.GraphConUCB(design="G", alpha="theory", alpha_t="theory")),
]


def picked(u, weights, allowed):
    """The first key term up to which there is more than a share u of the weights of those that are allowed."""
    kept = weights * allowed if (weights * allowed).any() else 1.0 * allowed
    return next(k for k in range(len(kept)) if kept[: k + 1].sum() > u * kept.sum())


def expected_curves(algorithm, world, seed=0):
    """The oracle's curves after every round, with the package's weights pi."""
    raw, terms = raw_of(seed), CATALOG.key_terms
    context = algorithm.context(jnp.asarray(terms), jnp.asarray(CATALOG.links))
    draw = jax.vmap(jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (), jnp.float32)))
    u = np.asarray(draw(raw.question_keys), float)
    table = {}
    for numbers in (raw.pulls, raw.answers):
        normals = np.asarray(normal(jnp.asarray(numbers))).ravel().tolist()
        table.update(zip(numbers.ravel().tolist(), normals, strict=True))
    features = {"normal": lambda u: table[float(u)], "weights": CATALOG.weights.toarray()}
    words = world.hyperparameters()
    clients = reference.clients_of(words, CATALOG.arms, CATALOG.users, USER, M, NOISE, raw, **features)
    b = np.array([Schedule.of(algorithm.schedule, T)(t) for t in range(1, T + 1)])
    own = ("schedule", "gamma", "design")
    given = {name: value for name, value in algorithm.hyperparameters().items() if name not in own}

    def alone(i, client):
        rounds = [int(np.argmax(b > q)) for q in range(b[-1])]  # of each question
        allowed = [np.array(client.candidates(t, len(terms))) for t in rounds]
        picks = [picked(u[i, q], np.asarray(context.weights), mask) for q, mask in enumerate(allowed)]
        S = reference.similarity(CATALOG.links, terms, algorithm.gamma)
        return reference.graph_conucb(client, terms, T, b=b, picks=picks, similarity=S, S=CATALOG.user_bound, **given)

    who = reference.who_plays(T, M, raw.came if world.arrivals == "one" else None)
    return reference.add_up([alone(i, client) for i, client in enumerate(clients)], clients, who)


@pytest.mark.parametrize(("world", "algorithm"), CASES, ids=[world for world, _ in CASES])
def test_every_round_equals_the_oracle(world, algorithm):
    """Same random numbers and weights, float64: the same questions, arms, regret and estimates in all rounds."""
    found = play(algorithm, WORLDS[world])
    with jax.enable_x64(True):
        check(found, expected_curves(algorithm, WORLDS[world]))


def test_bad_input():
    setting = {"clients": 2, "arms": 5, "horizon": 100, "users": 1}
    plain = fb.Catalog.from_arrays(CATALOG.arms, CATALOG.key_terms, CATALOG.users, name="plain")
    with pytest.raises(ValueError, match=r"of the weights of arms on key terms, but plain has none: it needs"):
        fb.simulate(plain, fb.GraphConUCB(design="G"), **setting)
    wrong = {"gamma": 1.5, "graph_feedback": 2, "design": "C"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=rf"^{name}={value!r} is not allowed: it must be"):
            fb.simulate(CATALOG, fb.GraphConUCB(**{name: value}), **setting)

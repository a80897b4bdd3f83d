"""Federated learners on the clock of synchronisation against the NumPy oracle, round by round, and their limits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.clustered import hetofedbandit
from fedbandit_jax.algorithms.federated.private_fedlinucb import tree_noise
from fedbandit_jax.clocks.federation import MESSAGES, Setting, Synchronised
from fedbandit_jax.clocks.rounds import BLOCK, CHOICES, REFRESH
from fedbandit_jax.linalg import pooling
from fedbandit_jax.worlds.stage import uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, K, M, T, keys_of, play, problem_of, raw_of

WORLDS = {
    "": fb.World(),
    "redrawn": fb.World(contexts="redrawn"),
    "one": fb.World(arrivals="one"),
    "one, redrawn": fb.World(arrivals="one", contexts="redrawn"),
    "two users": fb.World(preferences=2),
    "clicks": fb.World(rewards="bernoulli", contexts="redrawn", arm_sets="common"),
}
INF = float("inf")
THEORY = {"alpha": "theory"}
ORACLES = {
    fb.DisLinUCB: reference.dislinucb,
    fb.AsyncLinUCB: reference.async_linucb,
    fb.FedLinUCB: reference.fedlinucb,
    fb.PrivateFedLinUCB: reference.private_fedlinucb,
    fb.FCLUB: reference.fclub,
    fb.FedSupLinUCB: reference.fedsuplinucb,
    fb.HetoFedBandit: reference.hetofedbandit,
}
CASES = [
    ("", fb.DisLinUCB(D=5)),
    ("redrawn", fb.DisLinUCB(D=5, **THEORY, lam=0.5)),
    ("one", fb.DisLinUCB()),
    ("one, redrawn", fb.DisLinUCB(D=2)),
    ("clicks", fb.DisLinUCB(D=2, **THEORY)),
    ("", fb.AsyncLinUCB(gamma=1.5)),
    ("redrawn", fb.AsyncLinUCB(gamma_U=1.2, gamma_D=2.0, **THEORY, lam=0.5)),
    ("one", fb.AsyncLinUCB(gamma_U=2.0, gamma_D=1.2)),
    ("one, redrawn", fb.AsyncLinUCB(gamma=1.3)),
    ("two users", fb.AsyncLinUCB(gamma=1.1)),
    ("redrawn", fb.FedLinUCB(alpha=0.3)),
    ("redrawn", fb.FedLinUCB(alpha="theory", beta="theory", lam=0.5)),
    ("one", fb.FedLinUCB()),
    ("one, redrawn", fb.FedLinUCB(alpha="theory")),
    ("", fb.PrivateFedLinUCB(privacy="none", batch=7)),
    ("", fb.PrivateFedLinUCB(privacy="ldp", eps=5.0, scale=0.1, batch="theory")),
    ("redrawn", fb.PrivateFedLinUCB(privacy="sdp-amplified", eps=20.0, alpha=0.3, batch=10)),
    ("clicks", fb.PrivateFedLinUCB(privacy="sdp-vector-sum", eps=5.0, lam=200.0, delta_privacy=0.3)),
    ("", fb.FCLUB(U=1.5, D=1.5)),
    ("redrawn", fb.FCLUB(servers=2, U=1.1, D=1.2, alpha1=0.5, alpha2=0.3)),
    ("one", fb.FCLUB(alpha1=0.4, alpha2=0.4, beta="theory")),
    ("one, redrawn", fb.FCLUB(servers=1, U=1.3, alpha1=0.3)),
    ("two users", fb.FCLUB(servers=2, U=1.2, D=1.1, alpha1=0.6, alpha2=0.6)),
    ("", fb.FedSupLinUCB(scale=0.25, C=0.3)),
    ("one", fb.FedSupLinUCB(scale=0.3, mode="sync", D=0.5)),
    ("one, redrawn", fb.FedSupLinUCB(scale=0.3, C="theory", lam=0.5, sigma=0.5, delta=0.01)),
    ("clicks", fb.FedSupLinUCB(scale=0.12, mode="sync")),
    ("two users", fb.HetoFedBandit(T0=12, D=2)),
    ("redrawn", fb.HetoFedBandit(T0=3, level=0.6, D=2, lam=0.5, **THEORY)),  # fewer pulls than dimensions
    ("one", fb.HetoFedBandit(T0=7, level=0.6)),
]
COUNTS = ("uploads", "downloads", "scalars_up", "scalars_down")


def test_all_are_here():
    on_this_clock = {kind for kind in fb.REGISTRY.values() if getattr(kind, "passes_messages", False)}
    assert {kind for kind in on_this_clock if kind.__module__.startswith("fedbandit_jax.")} == set(ORACLES)


def federation_of(world, seed, rounds=T):
    """The oracle's clients and who plays when, on the package's random numbers."""
    raw = raw_of(seed, rounds=rounds)
    normals = np.asarray(normal(jnp.asarray(raw.pulls)))
    table = dict(zip(raw.pulls.ravel().tolist(), normals.ravel().tolist(), strict=True))
    clients = reference.clients_of(
        world.hyperparameters(), CATALOG.arms, CATALOG.users, USER, M, NOISE, raw, normal=lambda u: table[float(u)]
    )
    return clients, reference.who_plays(rounds, M, raw.came if world.arrivals == "one" else None)


@partial(jax.jit, static_argnums=(1, 2))
def normals_of_batches(seed, batches, size):
    """Of the batches from 1 on."""
    key = jax.random.fold_in(keys_of(seed)[1], MESSAGES)

    def draw(k):
        return normal(uniforms(jax.random.fold_in(key, k), (size,), jnp.float64))

    return jax.vmap(draw)(jnp.arange(1, batches))


def private_normals(seed, batches, d):
    """z of every batch, as the package draws them."""
    upper, found = d * (d + 1) // 2, {"gram_z": {}, "vector_z": {}}
    for k, z in enumerate(np.asarray(normals_of_batches(seed, batches, upper + d)), 1):
        half = np.zeros((d, d))
        half[np.triu_indices(d)] = z[:upper] * np.sqrt(0.5)  # (E + E')/2 is this and its transpose, the diagonal apart
        found["gram_z"][k] = half + half.T - np.diag(np.diag(half)) * (2 - np.sqrt(2))
        found["vector_z"][k] = z[upper:]
    return found


@partial(jax.jit, static_argnums=1)
def table_of_arms(seed, rounds):
    """The arm that each client would play at random in each round, as the package draws it."""
    key = jax.random.fold_in(jax.random.fold_in(keys_of(seed)[1], 0), CHOICES)

    def draw(t, i):
        word = jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, t), i), (), jnp.uint32)
        return word.astype(jnp.uint64) * K >> 32

    return jax.vmap(lambda t: jax.vmap(lambda i: draw(t, i))(jnp.arange(M)))(jnp.arange(rounds))


def random_arms(seed, rounds):
    """Of client i in round t, from 1."""
    table = np.asarray(table_of_arms(seed, rounds))
    return lambda i, t: int(table[t - 1, i])


def expected(algorithm, world, seed=0, rounds=T):
    given = algorithm.hyperparameters()
    if isinstance(algorithm, fb.AsyncLinUCB):
        gamma = given.pop("gamma")
        given |= {name: gamma if given[name] is None else given[name] for name in ("gamma_U", "gamma_D")}
    if isinstance(algorithm, fb.PrivateFedLinUCB):
        given |= private_normals(seed, rounds + 1 if algorithm.batch == "theory" else rounds // algorithm.batch + 1, 4)
    if isinstance(algorithm, fb.HetoFedBandit):
        given["explore"] = random_arms(seed, rounds)
    clients, who = federation_of(world, seed, rounds)
    return ORACLES[type(algorithm)](clients, who, **given, S=np.linalg.norm(CATALOG.users, axis=1).max())


def check(found, wanted):
    np.testing.assert_allclose(found.regret, wanted.regret, atol=1e-9, err_msg="regret")
    for name in COUNTS:
        np.testing.assert_array_equal(found.counts[name], getattr(wanted, name), err_msg=name)
    np.testing.assert_array_equal(found.communication, wanted.scalars_up + wanted.scalars_down)
    np.testing.assert_allclose(found.theta_error, wanted.theta_error, rtol=1e-6, err_msg="theta_error")


@pytest.mark.parametrize(("world", "algorithm"), CASES, ids=lambda x: x if isinstance(x, str) else repr(x)[:60])
def test_every_round_equals_the_oracle(world, algorithm):
    """Same random numbers, float64: the same arms in all rounds, the same messages, regret and errors."""
    found = play(algorithm, WORLDS[world])
    with jax.enable_x64(True):
        wanted = expected(algorithm, WORLDS[world])
    assert wanted.uploads[-1] > 0
    if isinstance(algorithm, fb.FedSupLinUCB):
        assert set(wanted.phases) == {0, 1, 2}, "a layer in which nobody plays"
    if isinstance(algorithm, fb.HetoFedBandit):
        assert len(wanted.phases[0]["cliques"]) > 1
        assert wanted.downloads[-1] > 0
    check(found, wanted)


# ------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("world", "alpha"), [("", "theory"), ("redrawn", 0.5), ("one, redrawn", "theory")])
def test_who_always_shares_is_shared_linucb_and_who_never_does_is_linucb(world, alpha):
    same = {"alpha": alpha, "lam": 0.7}
    limits = {
        fb.SharedLinUCB(**same): [fb.DisLinUCB(D=0, **same), fb.AsyncLinUCB(gamma=1, **same)],
        fb.LinUCB(**same): [fb.DisLinUCB(D=INF, **same), fb.AsyncLinUCB(gamma=INF, **same)],
    }
    for limit, algorithms in limits.items():
        wanted = play(limit, WORLDS[world])
        for algorithm in algorithms:
            found = play(algorithm, WORLDS[world])
            np.testing.assert_allclose(found.regret, wanted.regret, atol=1e-9)
            np.testing.assert_allclose(found.theta_error, wanted.theta_error, rtol=1e-6)
            if type(limit) is fb.LinUCB:
                assert found.communication[-1] == 0


def test_without_privacy_a_batch_of_one_is_shared_linucb():
    found = play(fb.PrivateFedLinUCB(privacy="none", batch=1, alpha=0.5, lam=0.7), WORLDS[""])
    wanted = play(fb.SharedLinUCB(alpha=0.5, lam=0.7), WORLDS[""])
    np.testing.assert_allclose(found.regret, wanted.regret, atol=1e-9)


def test_noise_that_tells_everything_hides_nothing():
    """eps without limit: the noise is gone, and with the same ridge and width, so is all difference."""
    same = {"batch": 10, "alpha": 0.5, "lam": 1.0}
    open_, private = (
        play(fb.PrivateFedLinUCB(privacy=privacy, eps=1e12, **same), WORLDS[""])
        for privacy in ("none", "sdp-vector-sum")
    )
    np.testing.assert_allclose(open_.regret, private.regret, atol=1e-6)


@partial(jax.jit, static_argnames=("run", "noise"))
def run_with_noise(run, algorithm, noise, shape=(M, K)):
    arms_key, play_key = keys_of(1)
    problem = problem_of(arms_key, fb.World())._replace(noise=jnp.asarray(noise))
    return run(algorithm, play_key, problem, jnp.arange(1.0, T + 1))


@pytest.mark.parametrize(
    "algorithm", [fb.FedLinUCB(), fb.FedLinUCB(alpha="theory"), fb.FedLinUCB(beta="theory")], ids=repr
)
def test_message_to_message_is_round_by_round(algorithm):
    """Without noise, to the last digit: the arms, the messages, the estimates."""
    with jax.enable_x64(True):
        events, rounds = (run_with_noise(run, algorithm, 0.0) for run in (fb.FedLinUCB.run, Synchronised.run))
    assert events.counts["uploads"][-1] > 5
    for name in COUNTS:
        np.testing.assert_array_equal(events.counts[name], rounds.counts[name])
    np.testing.assert_allclose(events.regret, rounds.regret, atol=1e-9)
    np.testing.assert_allclose(events.theta_error, rounds.theta_error, atol=1e-9)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_message_to_message_has_the_law_of_round_by_round(rewards):
    """With noise: means over 400 runs that draw it differently, within four standard errors."""
    algorithm = fb.FedLinUCB(alpha=0.5)
    catalog = fb.datasets.synthetic(seed=3, dim=4, num_arms=20, num_key_terms=4, num_users=5, user_norm="unit")

    def final(run):
        def one(key):
            problem = problem_of(jax.random.key(5), fb.World(rewards=rewards), horizon=100, catalog=catalog)
            trace = run(algorithm, key, problem, jnp.array([50.0, 100.0]))
            return trace.regret[-1], trace.counts["uploads"][-1], trace.theta_error[-1], trace.regret[0]

        return np.stack(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(9), 400)))

    events, rounds = final(fb.FedLinUCB.run), final(Synchronised.run)
    error = np.sqrt((events.var(axis=1) + rounds.var(axis=1)) / 400)
    assert (np.abs(events.mean(axis=1) - rounds.mean(axis=1)) < 4 * error).all()
    assert (events.std(axis=1) > 0).all()


def test_recomputing_from_sums_changes_nothing():
    """Beyond the 2048 rounds after which members start again from their sums; messages before and after."""
    rounds, algorithm = REFRESH * BLOCK + 60, fb.DisLinUCB(D=40.0)
    found = play(algorithm, WORLDS[""], horizon=rounds)
    with jax.enable_x64(True):
        wanted = expected(algorithm, WORLDS[""], rounds=rounds)
    assert np.isin([2047, 2100], np.searchsorted(wanted.uploads, wanted.uploads)).sum() < 2
    check(found, wanted)


# ------------------------------------------------------------------------------------------------------------ cliques


def test_cliques_and_their_queue_equal_the_oracle():
    """Of random graphs; whoever is wanted waits in line, and one is served after each round."""
    rng, M = np.random.default_rng(3), 6
    form, enqueue = jax.jit(hetofedbandit.first_cliques), jax.jit(hetofedbandit.enqueue)
    for _ in range(30):
        half = np.triu(rng.random((M, M)) < 0.6, 1)
        joined = half | half.T | np.eye(M, dtype=bool)
        rows = np.asarray(form(joined))
        found = [np.flatnonzero(row).tolist() for row in rows if row.any()]
        assert found == reference.first_cliques(joined)
        line, places = [], np.full(M, M, np.int32)
        for _ in range(8):
            wanted = (rng.random((M, M)) < 0.1) & rows.T
            line += dict.fromkeys(k for _, k in np.argwhere(wanted).tolist() if k not in line)
            places = np.asarray(enqueue(places, wanted))
            assert np.argsort(places, kind="stable")[: len(line)].tolist() == line
            assert (places < M).sum() == len(line)
            line, places = line[1:], np.where((places > 0) & (places < M), places - 1, M).astype(np.int32)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-9), ("float32", 2e-3)])
def test_p_values_equal_the_oracle(dtype, rtol):
    """Also of fewer observations than dimensions."""
    rng, d, sigma = np.random.default_rng(5), 4, 0.5
    with jax.enable_x64(dtype == "float64"):
        p_value = jax.jit(hetofedbandit.homogeneity)
        for n, m in [(9, 20), (2, 3), (1, 2), (6, 2), (3, 12)]:
            theta, pair = rng.normal(size=d), []
            for count in (n, m):
                x = rng.normal(size=(count, d))
                pair.append(reference.Sums(x.T @ x, x.T @ (x @ theta + sigma * rng.normal(size=count)), count))
            given = [pooling.Sums(*(jnp.asarray(v, dtype) for v in (one.V, one.b, np.zeros(d), one.n))) for one in pair]
            wanted = reference.homogeneity(*pair, sigma)
            assert float(p_value(*given, jnp.asarray(sigma, dtype))) == pytest.approx(wanted, rel=rtol)


# ------------------------------------------------------------------------------------------------------ known figures


def test_synchronisations_of_dislinucb_do_not_grow_with_the_horizon():
    """D = T log(M T)/(d M): as many at T = 1000 and 4000, and fewer than 2 sqrt(T R/D) + 2, R = d log(1 + M T/d)."""
    catalog = fb.datasets.synthetic(seed=2, dim=5, num_arms=100, num_key_terms=5, num_users=2, user_norm="unit")
    counts = {}
    for horizon in (1000, 4000):
        final = fb.simulate(catalog, fb.DisLinUCB(), clients=10, arms=20, horizon=horizon, users=2, seeds=2).final()
        D, R = horizon * np.log(10 * horizon) / 50, 5 * np.log(1 + 10 * horizon / 5)
        counts[horizon] = final["uploads"] / 10
        assert (counts[horizon] <= 2 * np.sqrt(horizon * R / D) + 2).all()
        assert (counts[horizon] > 1).all()
    assert abs(counts[1000].mean() - counts[4000].mean()) < 3


@pytest.mark.parametrize(
    ("privacy", "eps", "std", "lam"),
    [
        ("ldp", 0.2, 23.729, 4876.9),
        ("ldp", 1, 5.4519, 1120.5),
        ("ldp", 5, 1.6214, 333.24),
        ("sdp-vector-sum", 0.2, None, 4259.3),
    ],
)
def test_constants_of_the_public_code(privacy, eps, std, lam):
    """M = 100, d = 10, T = 10^4, B = 25."""
    algorithm = fb.PrivateFedLinUCB(privacy=privacy, eps=eps, delta_privacy=0.1, batch=25)
    setting = Setting(jnp.asarray(100.0), jnp.asarray(1e4), None, None)
    noise = algorithm.noise(setting, 10)
    assert float(noise.lam) == pytest.approx(lam, rel=1e-4)
    if std is not None:
        assert float(noise.std) / 10 == pytest.approx(std, rel=1e-4)


def test_noise_of_the_tree_has_one_term_for_each_bit():
    """Variance popcount(k) std^2, half of it off the diagonal; a block's noise stays while it lasts."""
    keys = jax.random.split(jax.random.key(4), 4000)
    draw = jax.jit(jax.vmap(lambda key, k: tree_noise(key, k, 3, jnp.asarray(2.0)), in_axes=(0, None)))
    for k in (1, 6, 7):
        gram, moment = map(np.asarray, draw(keys, jnp.int32(k)))
        bits = bin(k).count("1")
        tolerance = 4 * bits * 4 * np.sqrt(2 / 4000)
        np.testing.assert_allclose(moment.var(axis=0), 4 * bits, atol=tolerance)
        np.testing.assert_allclose(np.diagonal(gram, axis1=1, axis2=2).var(axis=0), 4 * bits, atol=tolerance)
        np.testing.assert_allclose(gram[:, 0, 1].var(), 2 * bits, atol=tolerance)
        np.testing.assert_array_equal(gram, np.swapaxes(gram, 1, 2))
    blocks = [normal(uniforms(jax.random.fold_in(keys[0], k), (9,), jnp.float32)) for k in (4, 6)]  # of 6 = 4 + 2
    np.testing.assert_allclose(draw(keys[:1], jnp.int32(6))[1][0], 2 * (blocks[0] + blocks[1])[6:], rtol=1e-6)

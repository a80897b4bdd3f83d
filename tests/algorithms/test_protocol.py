"""What every algorithm must do."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.engine.code import is_package
from fedbandit_jax.worlds.problem import sample_problem

CATALOG = fb.datasets.synthetic(seed=1, dim=5, num_arms=50, num_key_terms=15, num_users=6)
T = 400
SETTING = {"clients": 3, "arms": 9, "horizon": T, "users": 3, "seeds": 2, "noise": 0.2}
ALGORITHMS = [
    fb.DELB(C1=0.5),
    fb.FedConPE(exploration_scale=0.3),
    fb.FedLinPE(exploration_scale=0.3),
    fb.FedPE(alpha=0.5),
    fb.LinPE(exploration_scale=0.3),
    fb.MACO(exploration_scale=0.3),
    fb.PLS(C=1.0),
    fb.LinUCB(),
    fb.ArmCon(),
    fb.ConUCB(),
    fb.CtoFConUCB(),
    fb.HierLinUCB(),
    fb.ConDuel(length=10),
    fb.ConLinUCB(strategy="BS"),
    fb.RelativeConUCB(),
    fb.SharedRelativeConUCB(variant="difference"),
    fb.GraphConUCB(),
    fb.CLiSK(),
    fb.CLiME(c0=0.5, level=0.02, lam=0.5),
    fb.CLiSKME(c0=0.5, level=0.02, lam=0.5, checks="interval", interval=40),
    fb.SharedLinUCB(),
    fb.DisLinUCB(D=3.0),
    fb.AsyncLinUCB(gamma=2.0),
    fb.FedLinUCB(alpha=0.3),
    fb.FedSupLinUCB(),
    fb.PrivateFedLinUCB(privacy="ldp", eps=200.0, scale=0.1),
    fb.FCLUB(),
    fb.HetoFedBandit(T0=20, D=3.0),
    fb.Uniform(),
]
OTHER_WORDS = [
    fb.FedPE(alpha="theory", enhanced=True),
    fb.LinUCB(alpha="theory"),
    fb.ConLinUCB(strategy="MCR"),
    fb.ConLinUCB(strategy="UCB"),
    fb.CLiSK(alpha="theory", R=0.5),
    fb.SharedLinUCB(alpha="theory"),
]


def cases(wanted=lambda algorithm: True):
    """Every algorithm once, and with other words where there is time."""
    thorough = [pytest.param(algorithm, marks=pytest.mark.thorough) for algorithm in OTHER_WORDS if wanted(algorithm)]
    return [*filter(wanted, ALGORITHMS), *thorough]


def label(algorithm):
    return f"{algorithm.title}-{getattr(algorithm, 'alpha', '')}"


sample = jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))


def problem_of(clients=3, arms=9, shape=(3, 9), seed=0, world=None):
    pool = (jnp.asarray(x) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users[1:2]))
    return sample(
        jax.random.key(seed),
        *pool,
        clients=clients,
        num_arms=arms,
        noise=0.2,
        horizon=T,
        max_clients=shape[0],
        max_arms=shape[1],
        world=world,
        links=jnp.asarray(CATALOG.links),
    )


@jax.jit
def run(algorithm, key, problem):
    return algorithm.run(key, problem, jnp.linspace(T / 40, T, 40))


def play(algorithm, problem, key):
    return jax.tree.map(np.asarray, run(algorithm.prepare(T), key, problem)._replace(phases={}))


# Fixtures of the whole module, so that the tests of one algorithm follow each other, and share its programs and runs.


@pytest.fixture(scope="module", params=cases(), ids=label)
def algorithm(request):
    return request.param


@pytest.fixture(scope="module")
def setting(algorithm):
    return SETTING | {"world": algorithm.home()}


@pytest.fixture(scope="module")
def results(algorithm, setting):
    return fb.simulate(CATALOG, algorithm, **setting)


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(2), 3)


@pytest.fixture(scope="module")
def alone(algorithm, keys):
    """Three runs in float64, one by one."""
    with jax.enable_x64(True):
        return [play(algorithm, problem_of(seed=i, world=algorithm.home()), keys[i]) for i in range(3)]


def test_all_algorithms_are_here():
    of_the_package = {name for name, kind in fb.REGISTRY.items() if is_package(kind)}  # other tests add their own
    assert {type(a).__name__ for a in ALGORITHMS} == of_the_package


def test_curves(algorithm, setting, results):
    curves = results.to_pandas()
    assert len(curves) == 6 * 128
    assert curves["label"].unique().tolist() == [algorithm.title]
    for _, run in curves.groupby(["user", "seed"]):
        assert (run["round"].diff().dropna() > 0).all()
        assert run["round"].iloc[-1] == T
        for name in ("regret", "conversations", "communication"):
            assert (run[name] >= 0).all()
            assert (run[name].diff().dropna() >= -1e-4).all(), name
        assert (run["theta_error"] >= 0).all()
        if getattr(algorithm, "asks_as_it_likes", False):
            continue  # as often as its state says
        if algorithm.asks_by_schedule():
            b = Schedule.of(algorithm.schedule, T)
            np.testing.assert_array_equal(run["conversations"], [b(int(t)) for t in run["round"]])
        else:
            assert (run["conversations"] <= run["round"]).all()
    if not isinstance(algorithm, fb.Uniform):
        final = results.final()
        assert (final["regret"] < fb.simulate(CATALOG, fb.Uniform(), **setting).final()["regret"]).all()
        assert (final["theta_error"] < np.linalg.norm(CATALOG.users[final["user"]], axis=1)).all(), "as bad as 0"


def test_another_number_does_not_recompile(algorithm, setting, traced):
    fb.simulate(CATALOG, algorithm, **setting)
    traced.clear()
    numbers = {name for name, value in algorithm.hyperparameters().items() if not isinstance(value, str)}
    others = dict.fromkeys({"lam", "delta", "C1"} & numbers, 0.123)
    elsewhere = setting | {"noise": 0.7, "users": [4], "seeds": 3, "horizon": 395}
    fb.simulate(CATALOG, algorithm.replace(**others), **elsewhere, seed=9)
    assert not traced


def test_a_run_in_a_padded_batch_is_the_run_alone(algorithm, alone, keys):
    with jax.enable_x64(True):
        problems = [problem_of(shape=(5, 12), seed=i, world=algorithm.home()) for i in range(3)]
        # As in a sweep, key terms and horizon are the same in all lanes.
        stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *problems)
        shared = {name: getattr(problems[0], name) for name in ("key_terms", "horizon", "pool", "world", "links")}
        stacked = stacked._replace(**shared, user_bound=1.0)
        lanes = fb.Problem(
            arms=0,
            arm_mask=0,
            key_terms=None,
            theta=0,
            noise=0,
            horizon=None,
            client_ids=0,
            user_bound=None,
            world=None,
            pool=None,
            key=0,
            federation=0,
            links=None,
            arm_links=None if problems[0].arm_links is None else 0,
        )
        batched = jax.vmap(partial(run, algorithm.prepare(T)), in_axes=(0, lanes))(keys, stacked)._replace(phases={})
    for i in range(3):
        in_batch = jax.tree.map(lambda x, i=i: np.asarray(x[i]), batched)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-9), in_batch, alone[i])
        for name, count in alone[i].counts.items():
            np.testing.assert_allclose(in_batch.counts[name], count, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("algorithm", cases(lambda a: a.independent_clients), ids=label, indirect=True)
def test_clients_played_apart_add_up(algorithm, alone, keys):
    """The engine plays clients that never meet one by one; `run` on the whole federation is the same."""
    together, parts = alone[0], []
    with jax.enable_x64(True):
        problem = problem_of(world=algorithm.home())
        for i in range(3):
            own = problem._replace(
                arms=problem.arms[i : i + 1],
                arm_mask=problem.arm_mask[i : i + 1],
                theta=problem.theta[i : i + 1],
                client_ids=jnp.array([i]),
                arm_links=problem.arm_links[i : i + 1],
            )
            parts.append(play(algorithm, own, keys[0]))
    np.testing.assert_allclose(together.regret, sum(p.regret for p in parts), rtol=1e-8)
    np.testing.assert_allclose(together.theta_error, sum(p.theta_error for p in parts) / 3, rtol=1e-6)
    np.testing.assert_allclose(together.conversations, sum(p.conversations for p in parts) / 3, rtol=1e-12)
    if not getattr(algorithm, "asks_as_it_likes", False):
        np.testing.assert_array_equal(together.conversations, parts[0].conversations)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", cases(lambda a: not a.asks_key_terms), ids=label, indirect=True)
def test_who_does_not_ask_needs_no_key_terms(algorithm, setting, results):
    """It plays the same, to the bit, as nothing that it sees is another, without a word about what key terms span."""
    bare = fb.Catalog.from_arrays(CATALOG.arms, users=CATALOG.users, name="bare")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fb.simulate(bare, algorithm, **setting).to_pandas()
    for column in ("regret", "theta_error"):
        np.testing.assert_array_equal(found[column], results.to_pandas()[column])


def test_the_engine_adds_up_clients():
    """Federations of 1, 2 and 5 clients in one sweep, whose regret at M = 5 is the sum over its clients."""
    sizes = [1, 2, 5]
    results = fb.sweep(CATALOG, fb.LinUCB(), **SETTING | {"clients": sizes}, dtype="float64").final()
    assert results["clients"].tolist() == sorted(sizes * 6)
    by_size = {M: results[results["clients"] == M]["regret"].to_numpy() for M in sizes}
    assert (by_size[2] > by_size[1]).all()
    assert (by_size[5] > by_size[2]).all()
    # Client 0 alone is the federation of one.
    with jax.enable_x64(True):
        key = jax.random.key(0)
        arms_key, play_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 0), 0))
        problem = sample_problem(
            arms_key,
            *(jnp.asarray(x) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users[:1])),
            clients=5,
            num_arms=9,
            noise=0.2,
            horizon=T,
            max_clients=5,
            max_arms=9,
        )
        whole = fb.LinUCB().run(play_key, problem, jnp.array([float(T)]))
    assert by_size[5][0] == pytest.approx(float(whole.regret[0]), rel=1e-9)

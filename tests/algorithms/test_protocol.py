"""What every algorithm must do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.worlds.problem import sample_problem

CATALOG = fb.datasets.synthetic(seed=1, dim=5, num_arms=50, num_key_terms=15, num_users=6)
T = 400
SETTING = {"clients": 3, "arms": 9, "horizon": T, "users": 3, "seeds": 2, "noise": 0.2}
ALGORITHMS = [
    fb.DELB(C1=0.5),
    fb.FedConPE(exploration_scale=0.3),
    fb.FedLinPE(exploration_scale=0.3),
    fb.FedPE(alpha=0.5),
    fb.FedPE(alpha="theory", enhanced=True),
    fb.LinPE(exploration_scale=0.3),
    fb.MACO(exploration_scale=0.3),
    fb.PLS(C=1.0),
    fb.LinUCB(),
    fb.LinUCB(alpha="theory"),
    fb.ArmCon(),
    fb.ConUCB(),
    fb.CtoFConUCB(),
    fb.HierLinUCB(),
    fb.ConDuel(length=10),
    fb.ConLinUCB(strategy="BS"),
    fb.ConLinUCB(strategy="MCR"),
    fb.ConLinUCB(strategy="UCB"),
    fb.RelativeConUCB(),
    fb.SharedRelativeConUCB(variant="difference"),
    fb.GraphConUCB(),
    fb.CLiSK(),
    fb.CLiSK(alpha="theory", R=0.5),
    fb.CLiME(c0=0.5, level=0.02, lam=0.5),
    fb.CLiSKME(c0=0.5, level=0.02, lam=0.5, checks="interval", interval=40),
    fb.SharedLinUCB(),
    fb.SharedLinUCB(alpha="theory"),
    fb.DisLinUCB(D=3.0),
    fb.AsyncLinUCB(gamma=2.0),
    fb.FedLinUCB(alpha=0.3),
    fb.FedSupLinUCB(),
    fb.PrivateFedLinUCB(privacy="ldp", eps=200.0, scale=0.1),
    fb.FCLUB(),
    fb.HetoFedBandit(T0=20, D=3.0),
    fb.Uniform(),
]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{a.title}-{getattr(a, 'alpha', '')}")
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


def play(algorithm, problem, key=3):
    key = jax.random.key(key) if isinstance(key, int) else key
    return jax.tree.map(np.asarray, run(algorithm.prepare(T), key, problem)._replace(phases={}))


def test_all_algorithms_are_here():
    assert {type(a).__name__ for a in ALGORITHMS} == set(fb.REGISTRY)


@every_algorithm
def test_curves(algorithm):
    setting = SETTING | {"world": algorithm.home()}
    results = fb.simulate(CATALOG, algorithm, **setting)
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


@every_algorithm
def test_another_number_does_not_recompile(algorithm, traced):
    setting = SETTING | {"world": algorithm.home()}
    fb.simulate(CATALOG, algorithm, **setting)
    traced.clear()
    numbers = {name for name, value in algorithm.hyperparameters().items() if not isinstance(value, str)}
    for parameter in {"lam", "delta", "C1"} & numbers:
        fb.simulate(CATALOG, algorithm.replace(**{parameter: 0.123}), **setting)
    fb.simulate(CATALOG, algorithm, **setting | {"noise": 0.7, "users": [4], "seeds": 3, "horizon": 395}, seed=9)
    assert not traced


@every_algorithm
def test_a_batch_equals_a_loop(algorithm):
    with jax.enable_x64(True):
        problems = [problem_of(seed=i, world=algorithm.home()) for i in range(3)]
        keys = jax.random.split(jax.random.key(2), 3)
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
            jax.tree.map(
                partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-9),
                play(algorithm, problems[i], keys[i]),
                jax.tree.map(lambda x, i=i: np.asarray(x[i]), batched),
            )


@every_algorithm
def test_padding_contributes_nothing(algorithm):
    with jax.enable_x64(True):
        shapes, world = ((3, 9), (5, 12)), algorithm.home()
        plain, padded = (play(algorithm, problem_of(shape=shape, world=world)) for shape in shapes)
    for name in ("regret", "conversations", "communication", "theta_error"):
        np.testing.assert_allclose(getattr(plain, name), getattr(padded, name), rtol=1e-6, atol=1e-9, err_msg=name)
    for name in plain.counts:
        np.testing.assert_allclose(plain.counts[name], padded.counts[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "algorithm", [a for a in ALGORITHMS if a.independent_clients], ids=lambda a: f"{a.title}-{getattr(a, 'alpha', '')}"
)
def test_clients_played_apart_add_up(algorithm):
    """The engine plays clients that never meet one by one; `run` on the whole federation is the same."""
    with jax.enable_x64(True):
        together = play(algorithm, problem_of())
        parts = []
        for i in range(3):
            problem = problem_of()
            own = problem._replace(
                arms=problem.arms[i : i + 1],
                arm_mask=problem.arm_mask[i : i + 1],
                theta=problem.theta[i : i + 1],
                client_ids=jnp.array([i]),
                arm_links=problem.arm_links[i : i + 1],
            )
            parts.append(play(algorithm, own))
    np.testing.assert_allclose(together.regret, sum(p.regret for p in parts), rtol=1e-8)
    np.testing.assert_allclose(together.theta_error, sum(p.theta_error for p in parts) / 3, rtol=1e-6)
    np.testing.assert_allclose(together.conversations, sum(p.conversations for p in parts) / 3, rtol=1e-12)
    if not getattr(algorithm, "asks_as_it_likes", False):
        np.testing.assert_array_equal(together.conversations, parts[0].conversations)


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

"""The round-based learners against the NumPy oracle, round by round on the same noise; the clock itself."""

import math
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational.conlinucb import spanner_pick
from fedbandit_jax.clocks.phases import Clock
from fedbandit_jax.clocks.rounds import REFRESH
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.linalg.representatives import barycentric_spanner
from fedbandit_jax.worlds.problem import sample_problem
from fedbandit_jax.worlds.stage import BLOCK, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.runs import run

CATALOG = fb.datasets.synthetic(seed=5, dim=6, num_arms=80, num_key_terms=25, num_users=8, user_norm="unit")
ROUNDS = 2000
sample = jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))


def make_problem(seed, *, clients=2, arms=12, noise=0.3, horizon=ROUNDS, shape=None):
    shape = shape or (clients, arms)
    pool = (jnp.asarray(x) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users[:1]))
    return sample(
        jax.random.key(seed),
        *pool,
        clients=clients,
        num_arms=arms,
        noise=noise,
        horizon=horizon,
        max_clients=shape[0],
        max_arms=shape[1],
    )


@lru_cache  # drawn one by one, and the same for all learners
def noise_of(seed, client, rounds=ROUNDS, questions=200):
    """The standard normals of a client's rewards and answers, and the key of its questions."""
    own = jax.random.fold_in(jax.random.key(seed), client)
    rewards, asks = jax.random.fold_in(own, 0), jax.random.fold_in(own, 1)
    blocks = [uniforms(jax.random.fold_in(rewards, b), (BLOCK,), jnp.float64) for b in range(-(-rounds // BLOCK))]
    answers = [normal(uniforms(jax.random.fold_in(asks, q), (), jnp.float64)) for q in range(questions)]
    return np.asarray(normal(jnp.concatenate(blocks)))[:rounds], np.array(answers), asks


def expected_runs(algorithm, problem, seed):
    """One oracle run per client."""
    given = {
        k: v for k, v in algorithm.hyperparameters().items() if k not in ("schedule", "strategy", "spanner_factor")
    }
    given["S"] = float(problem.user_bound)
    theta, sigma = np.asarray(problem.theta[0]), float(problem.noise)
    runs = []
    for i, arms in enumerate(np.asarray(problem.arms)):
        z, answers, asks = noise_of(seed, i)
        client = reference.Client.of_normals(arms, theta, sigma, z, answers)
        if type(algorithm) is fb.LinUCB:
            runs.append(reference.linucb(client, ROUNDS, **given))
            continue
        b = np.array([Schedule.of(algorithm.schedule, ROUNDS)(t) for t in range(1, ROUNDS + 1)])
        key_terms = np.asarray(problem.key_terms)
        if isinstance(algorithm, fb.ArmCon):
            runs.append(reference.armcon(client, ROUNDS, b=b, **given))
        elif isinstance(algorithm, fb.ConUCB):
            runs.append(reference.conucb(client, key_terms, ROUNDS, b=b, **given))
        else:
            spanner = barycentric_spanner(problem.key_terms, algorithm.spanner_factor)
            keys = [jax.random.fold_in(jax.random.fold_in(asks, q), 1) for q in range(b[-1])]
            picks = [int(spanner_pick(key, spanner.rank)) for key in keys]
            runs.append(
                reference.conlinucb(
                    algorithm.strategy,
                    client,
                    key_terms,
                    ROUNDS,
                    b=b,
                    spanner=np.asarray(spanner.indices)[: int(spanner.rank)],
                    spanner_picks=picks,
                    **given,
                )
            )
    return runs


def arms_pulled(regret, gaps):
    """Which arms a regret curve of one client shows; the gaps of a client differ."""
    steps = np.diff(regret, prepend=0)
    distance = np.abs(steps[:, None] - gaps[None, :])
    assert distance.min(axis=1).max() < 1e-9
    return distance.argmin(axis=1)


THEORY = {"alpha": "theory"}
LEARNERS = [
    fb.LinUCB(),
    fb.LinUCB(alpha=0.1, lam=0.3),
    fb.LinUCB(**THEORY, sigma=0.5, delta=0.02),
    fb.ArmCon(),
    fb.ArmCon(schedule="linear", **THEORY),
    fb.ConUCB(),
    fb.ConUCB(lam=0.3, lam_t=2.0, alpha=0.1, alpha_t=0.4, schedule="linear"),
    fb.ConUCB(alpha="theory", alpha_t="theory"),
    *(fb.ConLinUCB(strategy=strategy) for strategy in ("BS", "MCR", "UCB")),
    *(fb.ConLinUCB(strategy=strategy, schedule="linear", **THEORY) for strategy in ("MCR", "UCB")),
]


@pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda a: f"{a.title}-{a.alpha}")
def test_every_round_equals_the_oracle(algorithm):
    """Same noise, float64: the same arms in all 2000 rounds, the same regret, questions and estimates."""
    check_every_round(algorithm)


@pytest.mark.parametrize(
    "algorithm",
    [
        fb.LinUCB(**THEORY, lam=0.3),
        fb.ArmCon(**THEORY),
        fb.ConUCB(alpha="theory", alpha_t="theory"),
        fb.ConLinUCB(strategy="UCB", **THEORY),
    ],
    ids=lambda a: a.title,
)
def test_longer_users_equal_the_oracle(algorithm):
    """A user of norm 2.5 from a catalog whose longest has 3: S is 3 in the radii."""
    check_every_round(algorithm, norm=2.5, user_bound=3.0)


def check_every_round(algorithm, norm=1.0, user_bound=1.0):
    with jax.enable_x64(True):
        problem, seed = make_problem(1), 8
        problem = problem._replace(theta=norm * problem.theta, user_bound=jnp.asarray(user_bound))
        algorithm = algorithm.prepare(ROUNDS)
        for i, expected in enumerate(expected_runs(algorithm, problem, seed)):
            # A federation in which every other client is padding shows client i alone.
            mask = problem.arm_mask & (jnp.arange(len(problem.arms)) == i)[:, None]
            alone = problem._replace(arm_mask=mask, arms=jnp.where(mask[:, :, None], problem.arms, 0))
            trace = run(algorithm, jax.random.key(seed), alone, jnp.arange(1.0, ROUNDS + 1))
            trace, gaps = jax.tree.map(np.asarray, (trace, problem.gaps[i]))
            np.testing.assert_array_equal(arms_pulled(trace.regret, gaps), expected.arms)
            np.testing.assert_allclose(trace.regret, expected.regret, atol=1e-9)
            np.testing.assert_allclose(trace.theta_error, expected.theta_error, rtol=1e-6)
            assert trace.conversations[-1] == len(expected.questions)


def pooled(problem, seed, rounds, **given):
    """The oracle's run of clients that share everything, and its communication."""
    theta, noise = np.asarray(problem.theta[0]), float(problem.noise)
    clients = [
        reference.Client.of_normals(arms, theta, noise, noise_of(seed, i)[0])
        for i, arms in enumerate(np.asarray(problem.arms))
    ]
    return reference.shared_linucb(clients, reference.who_plays(rounds, len(clients)), **given)


def test_shared_linucb_equals_the_oracle():
    with jax.enable_x64(True):
        problem, seed = make_problem(2, clients=3), 4
        trace = run(fb.SharedLinUCB(), jax.random.key(seed), problem, jnp.arange(1.0, ROUNDS + 1))
        expected, sent = pooled(problem, seed, ROUNDS)
        trace = jax.tree.map(np.asarray, trace)
    np.testing.assert_allclose(trace.regret, expected.regret, atol=1e-9)
    np.testing.assert_allclose(trace.theta_error, expected.theta_error, rtol=1e-6)
    np.testing.assert_array_equal(trace.communication, sent)
    counts = trace.counts
    np.testing.assert_array_equal(counts["scalars_up"] + counts["scalars_down"], sent)
    np.testing.assert_array_equal(counts["uploads"], 3 * np.arange(1, ROUNDS + 1))
    np.testing.assert_array_equal(counts["downloads"], counts["uploads"])
    np.testing.assert_array_equal(counts["scalars_up"], counts["uploads"] * (problem.dim + 1))


def test_shared_linucb_knows_the_bound_of_users():
    with jax.enable_x64(True):
        problem, seed, rounds = make_problem(2, clients=3), 4, 300
        problem = problem._replace(theta=2.5 * problem.theta, user_bound=jnp.asarray(3.0))
        trace = run(fb.SharedLinUCB(**THEORY), jax.random.key(seed), problem, jnp.arange(1.0, rounds + 1))
        expected, _ = pooled(problem, seed, rounds, alpha="theory", S=3.0)
    np.testing.assert_allclose(trace.regret, expected.regret, atol=1e-9)


def test_the_engine_tells_the_bound_of_users():
    """The catalog's largest norm, whoever is played: as in a problem made by hand."""
    users = CATALOG.users * np.linspace(0.5, 3, len(CATALOG.users))[:, None]
    long = fb.Catalog.from_arrays(CATALOG.arms, CATALOG.key_terms, users)
    setting = {"clients": 1, "arms": 9, "horizon": 300, "noise": 0.2}
    found = fb.simulate(long, fb.LinUCB(**THEORY), users=[2], dtype="float64", **setting).final()["regret"].iloc[0]
    with jax.enable_x64(True):
        arms_key, play_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 2), 0))
        pool = [jnp.asarray(x) for x in (long.arms, long.key_terms, long.users[2:3])]
        sizes = {"clients": 1, "num_arms": 9, "noise": 0.2, "horizon": 300, "max_clients": 1, "max_arms": 9}
        by_hand = {
            bound: fb.LinUCB(**THEORY).run(play_key, problem, jnp.array([300.0])).regret[0]
            for bound in (1.0, 3.0)
            for problem in [sample(arms_key, *pool, **sizes, user_bound=bound)]
        }
    assert found == pytest.approx(float(by_hand[3.0]), rel=1e-9)
    assert found != pytest.approx(float(by_hand[1.0]), rel=1e-3)


def test_pooling_a_single_client_is_linucb():
    with jax.enable_x64(True):
        problem, key = make_problem(3, clients=1), jax.random.key(4)
        checkpoints = jnp.arange(1.0, ROUNDS + 1)
        alone, pooled = (run(a, key, problem, checkpoints) for a in (fb.LinUCB(), fb.SharedLinUCB()))
        np.testing.assert_allclose(alone.regret, pooled.regret, atol=1e-9)


@pytest.mark.parametrize("kind", ["linpe", "fedlinpe"])
def test_phase_relatives_equal_the_oracle(kind):
    """LinPE and FedLinPE with the package's designs and noise."""
    algorithm = {
        "linpe": fb.LinPE(exploration_scale=0.3),
        "fedlinpe": fb.FedLinPE(N=1.5, exploration_scale=0.3, ridge=0.4),
    }[kind]
    with jax.enable_x64(True):
        problem, key = make_problem(6, clients=3, arms=14), jax.random.key(1)
        checkpoints = jnp.arange(1.0, ROUNDS + 1)
        trace = jax.tree.map(np.asarray, run(algorithm, key, problem, checkpoints))

        class Randomness:
            @staticmethod
            def of(phase, client):
                from fedbandit_jax.clocks.phases import draw

                return draw(key, jnp.int32(client), jnp.int32(phase), 14, CATALOG.dim, jnp.float64)

            def pull_noise(self, phase, client):
                return np.asarray(self.of(phase, client).pulls)

            def question_noise(self, phase, client, uploaded):
                return np.zeros(0)

            def rounding_uniforms(self, phase, client):
                return np.asarray(self.of(phase, client).rounding)

        design = jax.jit(lambda arms, active: fb.g_optimal_design(arms, active, algorithm.design_tol).weights)
        settings = reference.FedConPESettings(
            N=getattr(algorithm, "N", 1.0), exploration_scale=algorithm.exploration_scale, ridge=algorithm.ridge
        )
        expected = getattr(reference, kind)(
            [np.asarray(x) for x in problem.arms],
            np.asarray(problem.theta[0]),
            float(problem.noise),
            ROUNDS,
            settings,
            np.arange(1, ROUNDS + 1),
            design=lambda arms, active: np.asarray(design(arms, active)),
            randomness=Randomness(),
        )
    for name in ("regret", "conversations", "communication", "theta_error"):
        np.testing.assert_allclose(getattr(trace, name), getattr(expected, name), rtol=1e-7, atol=1e-9, err_msg=name)


def test_phase_eliminations_meet_the_same_pulls():
    """The same noise of each arm, and the same rounding, for FedConPE and, without questions, for its relatives."""
    with jax.enable_x64(True):
        problem, key = make_problem(6, clients=3, arms=14), jax.random.key(1)
        clock = Clock(jnp.int32(2), jnp.zeros(()), problem.horizon)
        algorithms = (fb.FedConPE(), fb.FedLinPE(), fb.LinPE())
        plans = [a.plan(key, problem, clock, a.first_state(problem)) for a in algorithms]
        for plan in plans[1:]:
            np.testing.assert_array_equal(plan.random.pulls, plans[0].random.pulls)
            np.testing.assert_array_equal(plan.random.rounding, plans[0].random.rounding)
        # Where nothing is asked, FedConPE is FedLinPE: with as much information wanted as N = 1000 does.
        traces = [run(a, key, problem, jnp.arange(1.0, 501.0)) for a in (fb.FedConPE(N=1000), fb.FedLinPE(N=1000))]
    assert not traces[0].conversations.any()
    np.testing.assert_array_equal(traces[0].regret, traces[1].regret)


@pytest.mark.parametrize(
    ("schedule", "b"),
    [
        ("log", lambda t: 5 * math.floor(math.log(t))),
        ("linear", lambda t: t // 50),
        (lambda t: min(t, 40), lambda t: min(t, 40)),
        (lambda t: 3, lambda t: 3),
        (lambda t: 0, lambda t: 0),
    ],
    ids=["log", "linear", "every round", "at once", "never"],
)
def test_questions_follow_the_schedule(schedule, b):
    T = 700
    checkpoints = np.arange(1, T + 1)
    algorithm = fb.ArmCon(schedule=schedule).prepare(T)
    problem = make_problem(1, horizon=T)
    trace = run(algorithm, jax.random.key(0), problem, jnp.asarray(checkpoints, problem.theta.dtype))
    np.testing.assert_array_equal(trace.conversations, [b(int(t)) for t in checkpoints])
    np.testing.assert_array_equal([algorithm.schedule(int(t)) for t in checkpoints], [b(int(t)) for t in checkpoints])


def test_schedules_are_checked():
    setting = {"clients": 1, "arms": 5, "horizon": 100, "users": 1}
    with pytest.raises(ValueError, match=r"schedule='often' is not allowed: it must be 'log', 'linear', 'C log'"):
        fb.simulate(CATALOG, fb.ArmCon(schedule="often"), **setting)
    with pytest.raises(ValueError, match=r"b\(t\) must not fall, but does at t=8"):
        fb.simulate(CATALOG, fb.ArmCon(schedule=lambda t: 7 if t < 8 else 6), **setting)
    with pytest.raises(ValueError, match=r"schedule\(t\)=0.5 is not allowed"):
        fb.simulate(CATALOG, fb.ArmCon(schedule=lambda t: 0.5), **setting)
    with pytest.raises(ValueError, match=r"a function is tabulated, up to horizon=10000000 and not 1000000000"):
        fb.simulate(CATALOG, fb.ArmCon(schedule=lambda t: 0), **setting | {"horizon": 10**9})


def test_constants_are_checked():
    setting = {"dim": 6, "clients": 1, "arms": 5, "horizon": 100, "noise": 0.1}
    wrong = {
        "alpha=-1": fb.LinUCB(alpha=-1),
        "alpha='big'": fb.ArmCon(alpha="big"),
        "lam=0": fb.LinUCB(lam=0),
        "delta=1": fb.LinUCB(delta=1),
        "sigma=-0.1": fb.ConUCB(sigma=-0.1),
        "lam=1": fb.ConUCB(lam=1),
        "lam_t=0": fb.ConUCB(lam_t=0),
        "alpha_t='x'": fb.ConUCB(alpha_t="x"),
        "strategy='XY'": fb.ConLinUCB(strategy="XY"),
        "spanner_factor=1": fb.ConLinUCB(spanner_factor=1),
    }
    for start, algorithm in wrong.items():
        with pytest.raises(ValueError, match="is not allowed") as error:
            algorithm.check(**setting)
        assert str(error.value).startswith(start)


def test_float32_agrees_with_float64():
    """Most runs pull the same arms throughout, over a recomputation; a near-tie may part the others."""
    setting = {"clients": 1, "arms": 20, "horizon": REFRESH * BLOCK + 500, "users": 8, "seeds": 4, "noise": 0.3}
    narrow, wide = (
        fb.simulate(CATALOG, fb.LinUCB(), dtype=dtype, **setting).to_pandas() for dtype in ("float32", "float64")
    )
    shape = (32, 128)
    close = np.isclose(narrow["regret"], wide["regret"], rtol=1e-5).reshape(shape).all(axis=1)
    assert close.mean() > 0.6
    errors = [curves["theta_error"].to_numpy().reshape(shape)[close] for curves in (narrow, wide)]
    np.testing.assert_allclose(*errors, rtol=1e-3)


@dataclass(frozen=True, kw_only=True)
class Scripted(fb.RoundAlgorithm, abstract=True):
    """Plays arm 2, the worst, for 2500 rounds, then arm 1, the second best."""

    def start(self, client):
        return jnp.int32(0)

    def choose(self, state, client, key):
        place = jnp.argsort(client.arms @ jnp.array([1.0, 0.0], client.arms.dtype))  # arms are drawn in any order
        return jnp.where(state < 2500, place[0], place[-2])

    def learn(self, state, client, arm, reward):
        return state + 1

    def theta_hat(self, state):
        return jnp.zeros(2)


def test_small_gaps_still_count_in_float32():
    """A regret of 5000 does not move by 2e-4 in float32; over 100,000 rounds that would lose 19.5."""
    angle = np.arccos(1 - 2e-4)
    arms = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)], [-1.0, 0.0]])
    catalog = fb.Catalog.from_arrays(arms, arms, [[1.0, 0.0]])
    setting = {"clients": 1, "arms": 3, "horizon": 100_000, "users": 1, "noise": 0.0}
    regret = fb.simulate(catalog, Scripted(), dtype="float32", **setting).final()["regret"].iloc[0]
    assert regret == pytest.approx(2 * 2500 + 97_500 * 2e-4, rel=1e-4)

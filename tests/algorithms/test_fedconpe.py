"""FedConPE against the NumPy oracle, step by step and in distribution, and against what the paper proves."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.algorithms.federated.fedconpe import uncertain_directions
from fedbandit_jax.clocks.phases import Clock
from fedbandit_jax.linalg.eigenvalues import eigenpairs
from fedbandit_jax.worlds.problem import Problem, sample_problem
from tests import reference
from tests.algorithms.runs import run

CATALOG = fb.datasets.synthetic(seed=3, dim=6, num_arms=80, num_key_terms=25, num_users=8)
sample = jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))


def make_problem(seed, *, clients=3, arms=14, noise=0.3, horizon=4000, shape=None) -> Problem:
    """A small federation of CATALOG, padded to a shape (clients, arms)."""
    shape = shape or (clients, arms)
    return sample(
        jax.random.key(seed),
        jnp.asarray(CATALOG.arms),
        jnp.asarray(CATALOG.key_terms),
        jnp.asarray(CATALOG.users[:1]),
        clients=clients,
        num_arms=arms,
        noise=noise,
        horizon=horizon,
        max_clients=shape[0],
        max_arms=shape[1],
    )


# Apart, so that what is told of the plan are the very numbers that it is carried out with: compiled together, some
# would be worked out twice, and in float32 rounded differently.
make_plan = jax.jit(lambda algorithm, *given: algorithm.plan(*given))
carry_out = jax.jit(lambda algorithm, *given: algorithm.carry_out(*given))


def play_phase(algorithm, key, problem, clock, state):
    plan = make_plan(algorithm, key, problem, clock, state)
    return plan, *carry_out(algorithm, plan, problem, clock, state)


def play_by_phases(algorithm, key, problem):
    """The package's run, one phase at a time: a list of (plan, state at the end, phase)."""
    state = algorithm.first_state(problem)
    clock = Clock(jnp.int32(1), jnp.zeros((), problem.theta.dtype), problem.horizon)
    steps = []
    while clock.start < problem.horizon:
        plan, state, phase = play_phase(algorithm, key, problem, clock, state)
        steps.append(jax.tree.map(np.asarray, (plan, state, phase)))
        clock = clock._replace(phase=clock.phase + 1, start=clock.start + phase.length)
    return steps


class Replay:
    """Feeds the oracle the package's designs, eigenpairs and random numbers, in the order it asks for them."""

    def __init__(self, steps, clients):
        of_clients = [plan._replace(questions=plan.questions._replace(sent=(), info={})) for plan, _, _ in steps]
        plans = [jax.tree.map(lambda x, i=i: x[i], plan) for plan in of_clients for i in range(clients)]
        self.designs = iter([p.weights for p in plans])
        directions = [p.questions.messages[0] for p in plans]
        self.pairs = iter([(message.eigenvalues, message.eigenvectors.T) for message in directions])
        self.random = {(i // clients + 1, i % clients): p.random for i, p in enumerate(plans)}

    def design(self, arms, active):
        weights = next(self.designs)
        assert not weights[~active].any()
        return weights

    def eigen(self, V):
        values, vectors = next(self.pairs)
        np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, V, atol=1e-12)
        return values, vectors

    def pull_noise(self, phase, client):
        return self.random[phase, client].pulls

    def question_noise(self, phase, client, uploaded):
        return self.random[phase, client].questions[uploaded]

    def rounding_uniforms(self, phase, client):
        return self.random[phase, client].rounding


def oracle(algorithm, problem, checkpoints, **options):
    fields = reference.FedConPESettings.__dataclass_fields__
    chosen = {name: value for name, value in algorithm.hyperparameters().items() if name in fields}
    return reference.fedconpe(
        [np.asarray(x, np.float64) for x in problem.arms],
        np.asarray(problem.key_terms, np.float64),
        np.asarray(problem.theta[0], np.float64),
        float(problem.noise),
        int(problem.horizon),
        reference.FedConPESettings(**chosen),
        np.asarray(checkpoints),
        **options,
    )


SETTINGS = {
    "paper": ({}, {}),
    "one client": ({}, {"clients": 1}),
    "sigma 1": ({"N": 2.0, "delta": 0.01}, {"noise": 1.0, "horizon": 20_000}),
    "no noise": ({}, {"noise": 0.0, "horizon": 900}),
    "other sigma": ({"sigma": 0.7}, {}),
    "few arms": ({}, {"arms": 4}),
    "single arm": ({}, {"arms": 1, "horizon": 300}),
    "realised C, signed": ({"C": "realised", "key_term_rule": "signed"}, {}),
    "smaller C": ({"C": 0.6, "N": 3.0}, {}),
    "scales": ({"exploration_scale": 0.25, "elimination_scale": 0.5}, {}),
    "unbiased": ({"rounding": "unbiased", "exploration_scale": 0.1}, {}),
    "unbiased, no noise": ({"rounding": "unbiased"}, {"noise": 0.0, "horizon": 20}),
    "short": ({}, {"horizon": 25}),
    "ridge": ({"ridge": 0.7, "rounding": "unbiased", "exploration_scale": 0.03}, {}),
    "null space skipped": ({"null_space": "skip"}, {"horizon": 20_000}),
    "null space skipped, few arms": ({"null_space": "skip", "C": "realised"}, {"arms": 4}),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_every_step_equals_the_oracle(case):
    """Same designs, eigenpairs and noise: same counts, questions, eliminations, estimates and regret."""
    hyperparameters, setting = SETTINGS[case]
    algorithm = fb.FedConPE(**hyperparameters)
    with jax.enable_x64(True):
        problem = make_problem(11, **setting)
        steps = play_by_phases(algorithm, jax.random.key(5), problem)
        replay = Replay(steps, len(problem.arms))
        T = int(problem.horizon)
        expected = oracle(
            algorithm, problem, np.arange(1, T + 1), design=replay.design, eigen=replay.eigen, randomness=replay
        )
    assert len(steps) == len(expected.phases)
    for (plan, state, phase), want in zip(steps, expected.phases, strict=True):
        assert float(phase.length) == want["length"]
        assert bool(phase.info["complete"]) == want["complete"]
        np.testing.assert_array_equal(phase.counts, want["counts"])
        for i, (key_terms, repetitions) in enumerate(zip(want["key_terms"], want["repetitions"], strict=True)):
            terms = plan.questions.messages[1]
            sent = np.asarray(terms.sent[i])
            np.testing.assert_array_equal(np.asarray(terms.indices[i])[sent], key_terms)
            np.testing.assert_array_equal(np.asarray(terms.repetitions[i])[sent], repetitions)
            assert not np.asarray(terms.repetitions[i])[~sent].any()
        np.testing.assert_array_equal(phase.asked, want["asked"])
        np.testing.assert_array_equal(state.active, want["active_after"])
        np.testing.assert_allclose(state.theta_hat, want["theta_hat"], rtol=1e-7, atol=1e-9)
        info = phase.info
        # Without noise, phases go on until the radius is itself of the size of rounding errors.
        if float(info["eps"]) > 1e-9:
            assert bool(info["good_event"]) == want["good_event"]
        assert bool(info["best_arm_active"]) == want["best_arm_active"]
        assert float(info["unseen"]) == want["unseen"]
        assert float(info["dropped"]) == pytest.approx(np.mean(want["dropped"]))
        assert float(info["wanted_information"]) == pytest.approx(want["s"], rel=1e-12)
        assert float(info["lambda_min"]) == pytest.approx(min(want["lambda_min"]), rel=1e-7, abs=1e-12)
        assert float(info["lambda_min_after"]) == pytest.approx(min(want["lambda_min_after"]), rel=1e-7, abs=1e-12)
        assert bool(info["lemma_holds"]) == (min(want["lambda_min_after"]) >= want["s"] * (1 - 1e-4))
        assert float(info["max_gap"]) == pytest.approx(want["max_gap"], abs=1e-12)
        active = [sum(mask) for mask in want["active"]]
        assert (info["active_min"], info["active_max"]) == (min(active), max(active))
        assert float(info["active_mean"]) == pytest.approx(np.mean(active))


@pytest.mark.parametrize("seed", range(3))
def test_curves_equal_the_oracle_at_every_round(seed):
    """The clock inside one compiled run: regret, questions, communication and error, exact in every round."""
    algorithm = fb.FedConPE(N=1.5, exploration_scale=0.3)
    with jax.enable_x64(True):
        problem = make_problem(seed, arms=30, horizon=700, noise=0.2)
        checkpoints = jnp.arange(1.0, 701.0)
        key = jax.random.key(seed)
        trace = run(algorithm, key, problem, checkpoints)
        replay = Replay(play_by_phases(algorithm, key, problem), len(problem.arms))
        expected = oracle(algorithm, problem, checkpoints, design=replay.design, eigen=replay.eigen, randomness=replay)
    assert len(expected.phases) >= 3
    for name in ("regret", "conversations", "communication", "theta_error"):
        np.testing.assert_allclose(getattr(trace, name), getattr(expected, name), rtol=1e-7, atol=1e-9, err_msg=name)


def test_own_randomness_gives_the_same_distribution():
    """Package and oracle, each with its own designs, eigenpairs and noise (the oracle draws pull by pull)."""
    algorithm = fb.FedConPE()
    problem = make_problem(2, clients=2, arms=10, horizon=1500, noise=0.5)
    T = np.array([1500])
    keys = jax.random.split(jax.random.key(0), 400)
    traces = jax.jit(jax.vmap(partial(algorithm.run, problem=problem, checkpoints=jnp.asarray(T, jnp.float32))))(keys)
    peers = [oracle(algorithm, problem, T, rng=np.random.default_rng(i)) for i in range(80)]
    for name in ("regret", "theta_error"):
        ours = np.asarray(getattr(traces, name))[:, 0]
        theirs = np.array([getattr(peer, name)[0] for peer in peers])
        standard_error = np.hypot(ours.std() / np.sqrt(len(ours)), theirs.std() / np.sqrt(len(theirs)))
        assert abs(ours.mean() - theirs.mean()) < 4 * standard_error, name
        assert standard_error < 0.05 * ours.mean(), "too noisy to notice a wrong formula"


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**30),
    clients=st.integers(1, 4),
    arms=st.integers(1, 20),
    noise=st.sampled_from([0.0, 0.1, 1.0]),
    N=st.floats(1, 8),
    horizon=st.integers(2, 30_000),
)
def test_invariants(seed, clients, arms, noise, N, horizon):
    """Regret never negative nor falling, counts add up, at most a question a round, the paper's section 3."""
    checkpoints = np.unique(np.geomspace(1, horizon, 40).round())
    checkpoints = np.concatenate([np.full(40 - len(checkpoints), 1.0), checkpoints])
    with jax.enable_x64(True):
        # One shape for every example, so that one program serves all.
        problem = make_problem(seed, clients=clients, arms=arms, noise=noise, horizon=horizon, shape=(4, 20))
        trace = run(fb.FedConPE(N=N), jax.random.key(seed), problem, jnp.asarray(checkpoints))
        gaps, trace = jax.tree.map(np.asarray, (problem.gaps, trace))
    table = {name: column[trace.phases["phase"] > 0] for name, column in trace.phases.items()}
    for curve in (trace.regret, trace.conversations, trace.communication):
        assert (curve >= 0).all()
        assert (np.diff(curve) >= -1e-9).all()
    assert (trace.conversations <= checkpoints + 1e-9).all()
    worst = gaps.max(axis=1).sum()
    assert trace.regret[-1] <= worst * horizon * (1 + 1e-9)
    assert table["length"].sum() == horizon
    np.testing.assert_array_equal(table["start"], np.cumsum(table["length"]) - table["length"])
    assert (table["active_min"] >= 1).all()
    assert (np.diff(table["active_mean"]) <= 0).all()
    d = problem.dim
    per_phase = clients * (d * d + 2 * d + (2 * d + 3) * table["uploaded"])
    np.testing.assert_allclose(trace.communication[-1], per_phase.sum())
    np.testing.assert_array_equal(trace.communication, trace.counts["scalars_up"] + trace.counts["scalars_down"])
    up = clients * (d * d + d + (d + 1) * table["uploaded"])  # statistics, and eigenpairs
    np.testing.assert_allclose(trace.counts["scalars_up"][-1], up.sum())
    # Every client sends its statistics and is sent an estimate; those with weak directions send a message more.
    np.testing.assert_array_equal(trace.counts["uploads"], trace.counts["downloads"])
    most, least = clients * (1 + (table["uploaded"] > 0)), clients + np.ceil(clients * table["uploaded"] / d - 1e-9)
    assert least.sum() - 1e-9 <= trace.counts["uploads"][-1] <= most.sum()
    # Theorem 4: questions, before rounding up, are at most this fraction of a whole phase.
    whole = table["complete"] == 1
    fraction = np.maximum(3 / (4 * (1 - table["eps"] ** 2)) - d * N * table["lambda_min"], 0) / N
    assert (table["questions"][whole] <= fraction[whole] * table["length"][whole] + table["uploaded"][whole]).all()
    # On the good event, the best arm survives and the gaps shrink (from the second phase on, as in the proof).
    good = np.cumprod(np.where(whole, table["good_event"], 1)).astype(bool)
    assert (table["best_arm_active"][good & whole] == 1).all()
    bound = 8 * np.sqrt(N / clients) * table["eps"]
    later = np.arange(len(good)) > 0
    earlier_good = np.concatenate([[True], good[:-1]])
    assert (table["max_gap"] <= bound + 1e-9)[later & earlier_good].all()


@pytest.mark.parametrize("words", [{}, {"rounding": "unbiased"}, {"null_space": "skip"}], ids=str)
def test_padding_changes_nothing(words):
    algorithm = fb.FedConPE(**words, exploration_scale=0.5)
    with jax.enable_x64(True):
        checkpoints = jnp.linspace(100.0, 4000.0, 40)
        plain = run(algorithm, jax.random.key(1), make_problem(7), checkpoints)
        padded = run(algorithm, jax.random.key(1), make_problem(7, shape=(6, 17)), checkpoints)
    for name, ours, theirs in zip(plain._fields, plain, padded, strict=True):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-9, err_msg=name), ours, theirs)


def test_skipping_the_null_space_asks_within_the_span():
    """Fewer active arms than dimensions: what is uploaded lies in their span, and a single arm asks nothing."""
    with jax.enable_x64(True):
        for arms in (4, 1):
            problem = make_problem(11, arms=arms)
            steps = {n: play_by_phases(fb.FedConPE(null_space=n), jax.random.key(5), problem) for n in ("ask", "skip")}
            first = [np.asarray(plan.questions.messages[0].uploaded) for (plan, *_), *_ in steps.values()]
            assert (first[0].sum(axis=1) >= CATALOG.dim - arms).all()
            assert first[0][first[1]].all()
            for plan, *_ in steps["skip"]:
                message = plan.questions.messages[0]
                assert (message.uploaded.sum(axis=1) < arms).all()
                for i, chosen in enumerate(message.uploaded):
                    v, span = message.eigenvectors[i][chosen], np.linalg.svd(problem.arms[i], full_matrices=False)[2]
                    np.testing.assert_allclose(v @ span.T @ span, v, atol=1e-9)


def test_the_null_space_is_the_same_in_both_precisions():
    """An eigenvalue of 1e-5 of the largest decides: twice as much is a direction of the arms, half as much is none."""
    for share, uploaded in ((2e-5, 2), (5e-6, 1), (0.0, 1)):
        turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
        V = turn @ np.diag([1.0, 0.5, 1e-3, share]) @ turn.T
        for dtype in ("float32", "float64"):
            with jax.enable_x64(dtype == "float64"):
                eigenvalues, vectors = eigenpairs(jnp.asarray(V, dtype))
                s = jnp.asarray(0.1, dtype)
                found = uncertain_directions(eigenvalues, vectors.T, jnp.array(True), s, "skip")
            assert found.uploaded.sum() == uploaded, (share, dtype)


def test_the_catalogs_C_needs_a_catalog():  # noqa: N802
    algorithm, problem = fb.FedConPE(C="catalog", N=30.0), make_problem(0)
    with pytest.raises(ValueError, match=r"^C='catalog' is not allowed: outside simulate and sweep, call algorithm"):
        algorithm.run(jax.random.key(0), problem, jnp.array([4000.0]))
    assert CATALOG.realised_C == algorithm.for_catalog(CATALOG).C


def test_a_ridge_shrinks_the_estimate():
    """None is the paper; a small one is near it; a large one leaves nothing; the Gram matrix never has it."""
    with jax.enable_x64(True):
        problem, key = make_problem(4), jax.random.key(0)
        first = {r: play_by_phases(fb.FedConPE(ridge=r), key, problem)[0][1] for r in (0.0, 1e-9, 1.0, 1e12)}
    np.testing.assert_allclose(first[1e-9].theta_hat, first[0.0].theta_hat, rtol=1e-7)
    norms = [np.linalg.norm(state.theta_hat) for state in first.values()]
    assert norms[0] > norms[2] > 1e-3 > norms[3]
    for state in first.values():
        np.testing.assert_array_equal(state.gram, first[0.0].gram)


def test_bad_event_is_rarer_than_delta():
    """Good event: over all phases of a run it fails with probability at most delta."""
    algorithm, runs = fb.FedConPE(delta=0.1, N=1.0), 400
    problem = make_problem(4, clients=3, arms=14, noise=1.0, horizon=40_000)
    keys = jax.random.split(jax.random.key(9), runs)
    play = jax.jit(jax.vmap(partial(algorithm.run, problem=problem, checkpoints=jnp.array([40_000.0]))))
    phases = jax.tree.map(np.asarray, play(keys).phases)
    bad = ((phases["phase"] > 0) & (phases["complete"] == 1) & (phases["good_event"] == 0)).any(axis=1)
    assert bad.mean() <= 0.1
    assert ((phases["phase"] > 0) & (phases["complete"] == 1)).sum(axis=1).mean() >= 2


def test_float32_agrees_with_float64():
    """Both precisions play the same run: same arms, same noise, same key terms, so the same curves.

    In one run of 32 an arm may be so near its threshold that rounding decides.
    """
    setting = {"clients": 4, "arms": 40, "horizon": 20_000, "noise": 0.3, "users": 8, "seeds": 4}
    narrow, wide = (
        fb.simulate(CATALOG, fb.FedConPE(), dtype=dtype, **setting).to_pandas() for dtype in ("float32", "float64")
    )
    for name in ("regret", "conversations", "communication", "theta_error"):
        difference = (np.abs(narrow[name] - wide[name]) / wide[name].clip(lower=1e-9)).to_numpy().reshape(32, 128)
        assert (difference.max(axis=1) < 1e-3).sum() >= 31, name


@pytest.mark.parametrize("horizon", [10**6, 10**9])
def test_long_horizons(horizon):
    results = fb.simulate(CATALOG, fb.FedConPE(), clients=3, arms=20, horizon=horizon, users=2, seeds=2, noise=1.0)
    phases = results.phases()
    runs = phases.groupby(["user", "seed"])
    assert (runs["length"].sum() == horizon).all(), "every round is counted"
    assert phases["good_event"][phases["complete"]].all()
    assert phases["best_arm_active"].all()
    assert (runs["phase"].max() <= np.log2(horizon)).all()
    bound = fb.theory.regret_upper_bound(horizon, dim=CATALOG.dim, clients=3, arms=20, sigma=1.0)
    assert (results.final()["regret"] < bound).all()
    # Eliminations end: the last tenth of the rounds costs nothing more.
    curves = results.to_pandas()
    late = curves[curves["round"] > 0.9 * horizon].groupby(["user", "seed"])["regret"]
    assert ((late.max() - late.min()) <= 0.05 * late.max()).all()


def test_a_horizon_shorter_than_a_phase_runs_with_a_warning():
    """8 d sigma^2 LOG = 8 * 6 * log(2 * 10 * 2 * log(100) / 0.1) = 361 rounds at least, before rounding up."""
    setting = {"clients": 2, "arms": 10, "noise": 1.0, "users": 1}
    with pytest.warns(UserWarning, match="horizon=100 is shorter than the first phase of FedConPE, at least 361"):
        results = fb.simulate(CATALOG, fb.FedConPE(), horizon=100, **setting)
    assert not results.phases()["complete"].any()
    assert results.phases()["length"].sum() == 100


def test_hyperparameters_are_checked():
    """Each wrong value gets one sentence that names it, before anything compiles."""
    setting = {"dim": 6, "clients": 3, "arms": 10, "horizon": 1000, "noise": 0.1}
    wrong = {
        "N=0": fb.FedConPE(N=0),
        "delta=1": fb.FedConPE(delta=1),
        "delta=0": fb.FedConPE(delta=0),
        "C=1.5": fb.FedConPE(C=1.5),
        "C='least'": fb.FedConPE(C="least"),
        "N=1 with C=0.9": fb.FedConPE(C=0.9),
        "sigma=-1": fb.FedConPE(sigma=-1),
        "rounding='floor'": fb.FedConPE(rounding="floor"),
        "key_term_rule='far'": fb.FedConPE(key_term_rule="far"),
        "null_space='drop'": fb.FedConPE(null_space="drop"),
        "design_tol=0.0001": fb.FedConPE(design_tol=1e-4),
        "design_method='newton'": fb.FedConPE(design_method="newton"),
        "exploration_scale=nan": fb.FedConPE(exploration_scale=float("nan")),
        "elimination_scale=0": fb.FedConPE(elimination_scale=0),
    }
    for start, algorithm in wrong.items():
        with pytest.raises(ValueError, match="is not allowed") as error:
            algorithm.check(**setting)
        assert str(error.value).startswith(start)
    fb.FedConPE(C=0.5, N=4).check(**setting)

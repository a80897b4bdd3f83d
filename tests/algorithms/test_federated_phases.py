"""DELB and FedPE against the NumPy oracle, phase by phase and round by round, and against published figures."""

from functools import lru_cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.federated import delb, fedpe
from fedbandit_jax.clocks.phases import Clock, Messages, bits_for
from fedbandit_jax.linalg.design import g_optimal_design, on_support
from fedbandit_jax.worlds.problem import Problem
from tests import reference
from tests.algorithms.test_worlds import CATALOG, NOISE, USER, PhaseRandomness, keys_of, play, problem_of, raw_of

COMMON = fb.World(arm_sets="common")
SIZES = {"clients": 3, "arms": 9, "horizon": 1500}
CASES = {  # algorithm, world, sizes; the arms of CATALOG have different norms, and 4 dimensions
    "DELB": (fb.DELB(C1=0.5), COMMON, {}),
    "DELB, frank-wolfe, sigma": (fb.DELB(C1=0.1, sigma=0.5, design_method="frank-wolfe"), COMMON, {}),
    "DELB, spanning": (fb.DELB(C1=1.0, design="spanning", support_factor=1), COMMON, {}),
    "DELB, the paper's": (fb.DELB(), COMMON, {"horizon": 60}),
    "DELB, clicks": (fb.DELB(C1=0.05), fb.World(arm_sets="common", rewards="bernoulli"), {}),
    "DELB, own users": (fb.DELB(C1=0.5), fb.World(arm_sets="common", rewards="uniform", preferences="own"), {}),
    "DELB, fewer pulls than clients": (fb.DELB(C1=1e-4), COMMON, {"clients": 7, "arms": 3, "horizon": 200}),
    "DELB, no noise told": (fb.DELB(sigma=0.0), COMMON, {"horizon": 300}),
    "DELB, one client": (fb.DELB(C1=0.5), COMMON, {"clients": 1}),
    "FedPE": (fb.FedPE(), fb.World(), {}),
    "FedPE, alpha": (fb.FedPE(alpha=0.5, sigma=0.4), fb.World(), {}),
    "FedPE, enhanced": (fb.FedPE(enhanced=True, delta=0.3), fb.World(), {}),
    "FedPE, enhanced, alpha": (fb.FedPE(enhanced=True, alpha=0.3), fb.World(), {}),
    "FedPE, spanning": (fb.FedPE(alpha=0.5, design="spanning", support_factor=2, init="none"), fb.World(), {}),
    "FedPE, no initial pulls": (fb.FedPE(alpha=0.5, init="none"), fb.World(), {}),
    "FedPE, clicks": (fb.FedPE(alpha=0.2, enhanced=True), fb.World(rewards="bernoulli"), {}),
    "FedPE, own users": (fb.FedPE(alpha=0.2), fb.World(rewards="uniform", preferences=2), {}),
    "FedPE, one client": (fb.FedPE(), fb.World(), {"clients": 1}),
    "FedPE, few arms": (fb.FedPE(alpha=0.5), fb.World(), {"clients": 2, "arms": 1, "horizon": 100}),
    "FedPE, cut at the start": (fb.FedPE(), fb.World(), {"horizon": 5}),
}
each_case = pytest.mark.parametrize("case", CASES)
SENT = Messages._fields


def setting_of(case):
    algorithm, world, sizes = CASES[case]
    return algorithm, world, SIZES | sizes


plan = jax.jit(lambda algorithm, *given: algorithm.plan(*given))
carry_out = jax.jit(lambda algorithm, *given: algorithm.carry_out(*given))
weights_of = jax.jit(lambda algorithm, *given: algorithm.weights(*given))


@partial(jax.jit, static_argnames=("clients", "arms"))
def begin(algorithm, world, arms_key, horizon, **sizes):
    problem: Problem = problem_of(arms_key, world, horizon=horizon, **sizes)
    return problem, (delb if isinstance(algorithm, fb.DELB) else fedpe).first_state(problem)


def play_by_phases(algorithm, world, seed, sizes):
    """The package's run, one phase at a time: a list of (counts, state at the end, phase)."""
    arms_key, play_key = keys_of(seed)
    problem, state = begin(algorithm, world, arms_key, **sizes)
    clock = Clock(jnp.int32(1), jnp.zeros((), problem.theta.dtype), problem.horizon)
    steps = []
    while clock.start < problem.horizon:
        counts = plan(algorithm, problem, clock, state)
        state, phase = carry_out(algorithm, counts, play_key, problem, clock, state)
        steps.append(jax.tree.map(np.asarray, (counts, (state.active, state.theta_hat), phase)))
        clock = clock._replace(phase=clock.phase + 1, start=clock.start + phase.length)
    return steps


@lru_cache
def oracle(case, seed):
    """Its run with the package's designs and random numbers."""
    algorithm, world, sizes = setting_of(case)
    M, K = sizes["clients"], sizes["arms"]
    raw = raw_of(seed, clients=M, arms=K, rounds=1)
    clients = reference.clients_of(world.hyperparameters(), CATALOG.arms, CATALOG.users, USER, M, NOISE, raw)
    randomness = PhaseRandomness(keys_of(seed)[1], world, K, CATALOG.dim)
    given = algorithm.hyperparameters()

    def design(arms, active):
        return np.asarray(weights_of(algorithm, jnp.asarray(np.stack(arms)), jnp.asarray(np.stack(active))))

    names = ("C1", "sigma") if isinstance(algorithm, fb.DELB) else ("delta", "sigma", "alpha", "enhanced", "init")
    run = reference.delb if isinstance(algorithm, fb.DELB) else reference.fedpe
    options = {name: given[name] for name in names}
    return run(clients, sizes["horizon"], design=design, pulls=randomness.pull_noise, **options)


@each_case
def test_every_phase_equals_the_oracle(case):
    """Same designs and random numbers, float64: the same pulls, arms left, estimates and messages of every phase."""
    algorithm, world, sizes = setting_of(case)
    with jax.enable_x64(True):
        steps = play_by_phases(algorithm, world, 4, sizes)
        expected = oracle(case, 4)
    assert len(steps) == len(expected.phases)
    before = dict.fromkeys(SENT, 0)
    for (counts, (active, theta_hat), phase), want in zip(steps, expected.phases, strict=True):
        np.testing.assert_array_equal(counts, np.stack(want["counts"]))
        np.testing.assert_array_equal(phase.rest, want["leaders"])
        assert float(phase.length) == want["length"]
        assert bool(phase.info["complete"]) == want["complete"]
        assert float(phase.info["reports"]) == want["reports"]
        np.testing.assert_allclose(theta_hat, want["theta_hat"], rtol=1e-6, atol=1e-8)  # normals are float32
        np.testing.assert_array_equal(active, np.stack(want["active_after"]))
        end = want["start"] + want["length"] - 1
        for name in SENT:
            curve = getattr(expected, name)
            opened = curve[want["start"]] if want["length"] > 1 else None
            assert (
                float(getattr(phase.closing, name)) + float(getattr(phase.opening, name)) == curve[end] - before[name]
            )
            if opened is not None:
                assert float(getattr(phase.opening, name)) == opened - before[name]
            before[name] = curve[end]


@each_case
def test_curves_equal_the_oracle_in_every_round(case):
    """The clock inside one compiled run: regret, error and all that is counted, exact in every round."""
    algorithm, world, sizes = setting_of(case)
    found = play(algorithm, world, seed=5, **sizes)
    with jax.enable_x64(True):
        expected = oracle(case, 5)
    for name in ("regret", "theta_error"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-8, err_msg=name)
    np.testing.assert_array_equal(found.communication, expected.communication)
    assert set(found.counts) == set(SENT)
    for name in SENT:
        np.testing.assert_array_equal(found.counts[name], getattr(expected, name), err_msg=name)
    table = {name: column[found.phases["phase"] > 0] for name, column in found.phases.items()}
    assert table["length"].sum() == sizes["horizon"]
    for row, want in enumerate(expected.phases):
        active = [int(np.sum(on)) for on in np.atleast_2d(np.stack(want["active"]))]
        assert (table["active_min"][row], table["active_max"][row]) == (min(active), max(active))
        for name in ("start", "length", "complete", "reports"):
            assert table[name][row] == want[name], (row, name)


def test_the_cases_eliminate_and_end_in_all_ways():
    """Without arms that are dropped and phases that are cut, the comparisons above would be worth little."""
    cut, left = {}, {}
    with jax.enable_x64(True):
        for case in CASES:
            last = oracle(case, 4).phases[-1]
            cut[case], left[case] = not last["complete"], np.mean(np.stack(last["active_after"]))
    assert {name.split(",")[0] for name, was in cut.items() if was} == {"DELB", "FedPE"}
    dropped = [name for name, share in left.items() if share < 0.7]
    assert len([name for name in dropped if name.startswith("DELB")]) >= 5
    assert len([name for name in dropped if name.startswith("FedPE")]) >= 5


# ------------------------------------------------------------------------------------------------ published ledgers


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def final(algorithm, arms, theta, *, world, clients, K, T, noise=1.0, seed=0):
    """What a run has counted at the end, in float64; and its phases."""
    catalog = fb.Catalog.from_arrays(arms, arms[:2], theta[None], name="ledger")
    setting = {"clients": clients, "arms": K, "horizon": T, "noise": noise, "users": 1, "seeds": 1}
    results = fb.simulate(catalog, algorithm, world=world, **setting, dtype="float64", seed=seed)
    return results.final().iloc[0], results.phases()


def arms_by_gap(theta, gaps, rng):
    """Unit arms whose means are that far below the largest, 0.95."""
    mean = 0.95 - np.asarray(gaps)
    across = rng.normal(size=(len(mean), len(theta)))
    across = unit(across - np.outer(across @ theta, theta))
    return mean[:, None] * theta + np.sqrt(1 - mean**2)[:, None] * across


def test_the_published_ledger_of_delb():
    """Salgia and Zhao, ICML 2023, table 1: 336 bits up per agent, 4700 down; d = 20, M = 10, T = 10^6, C1 = 10.

    Phases end after 25792, 103156 and 412624 rounds; at least 40 arms are left in the first three and 11 in the last.
    """
    rng = np.random.default_rng(3)
    theta = unit(rng.normal(size=20))
    gaps = [*np.linspace(0, 0.18, 11), *np.linspace(0.32, 0.43, 40), *np.linspace(0.6, 0.9, 69)]
    row, phases = final(
        fb.DELB(C1=10, design="spanning"),
        arms_by_gap(theta, gaps, rng),
        theta,
        world=COMMON,
        clients=10,
        K=120,
        T=10**6,
    )
    assert phases["active_mean"].tolist() == [120, 120, 51, 11]
    assert phases["length"].tolist() == [25792, 103156, 412624, 10**6 - 25792 - 103156 - 412624]
    assert phases["complete"].tolist() == [True, True, True, False]
    assert phases["reports"].tolist() == [40, 40, 40, 20]
    assert row["bits_up"] / 10 == 336
    assert row["bits_down"] == 4700
    assert (row["scalars_up"], row["scalars_down"]) == (140, 3 * 10 * 20)
    assert (row["uploads"], row["downloads"]) == (40, 30)


def test_the_published_ledger_of_fedpe():
    """The same table: 72,960 bits up per agent, 249,900 down; K = 120 arms on the sphere, 60 a phase, 19 phases.

    The last phase is cut. A width of 20 leaves at least 60 arms until then; initial pulls are not in that ledger.
    """
    rng = np.random.default_rng(0)
    row, phases = final(
        fb.FedPE(alpha=20, design="spanning", init="none"),
        unit(rng.normal(size=(1200, 20))),
        unit(rng.normal(size=20)),
        world=fb.World(),
        clients=10,
        K=120,
        T=10**6,
    )
    assert len(phases) == 19
    assert phases["length"].tolist()[:-1] == [2**p + 120 for p in range(1, 19)]
    assert phases["complete"].tolist() == 18 * [True] + [False]
    assert (phases["reports"] == 60).all()
    assert row["bits_up"] / 10 == 72_960
    assert row["bits_down"] == 249_900


def test_bits_are_exact_at_powers_of_two():
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            found = jax.vmap(bits_for)(jnp.arange(1, 5000, dtype=dtype))
            np.testing.assert_array_equal(found, [(n - 1).bit_length() for n in range(1, 5000)])
            powers = jnp.asarray(2.0 ** np.arange(31), dtype)
            np.testing.assert_array_equal(jax.vmap(bits_for)(powers), np.arange(31))


# ------------------------------------------------------------------------------------------------------------- limits


def test_parts_of_a_list_are_equal_and_leave_nothing_out():
    rng = np.random.default_rng(0)
    for M in (1, 2, 7, 10):
        for dtype in ("float32", "float64"):
            counts = rng.integers(0, 50, size=13) * rng.integers(0, 2, size=13)
            with jax.enable_x64(dtype == "float64"):
                real = jnp.arange(M + 2) < M
                parts = np.asarray(delb.split(jnp.asarray(counts, dtype), real))
            np.testing.assert_array_equal(parts.sum(axis=0), counts)
            sizes = parts.sum(axis=1)
            assert not sizes[M:].any()
            assert sizes[:M].max() - sizes[:M].min() <= 1
            assert (np.diff(sizes[:M]) <= 0).all()
            assert (parts > 0).sum() <= (counts > 0).sum() + M - 1


def test_fedpe_of_one_client_plays_the_g_optimal_design():
    """Phase elimination with its own pulls, 2^p, and its own radius."""
    with jax.enable_x64(True):
        arms = jnp.asarray(unit(np.random.default_rng(1).normal(size=(15, 4))))
        active = jnp.arange(15) % 4 != 0
        found = fb.FedPE(design_tol=1e-3).weights(arms[None], active[None])[0]
        expected = on_support(g_optimal_design(arms, active, 1e-3).weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_theory_alpha_equals_the_oracle():
    for M, K, d, T, delta in (
        (1, 2, 3, 2, 0.9),
        (10, 20, 5, 10**5, 0.1),
        (1000, 10, 2, 10**6, 0.01),
        (5, 3, 100, 9, 0.5),
    ):
        with jax.enable_x64(True):
            M_, K_, H = (jnp.asarray(float(x)) for x in (M, K, max(1, (T - 1).bit_length())))
            found = fedpe.theory_alpha(M_, K_, d, H, delta)
        assert float(found) == pytest.approx(reference.fedpe_alpha(M=M, K=K, d=d, T=T, delta=delta), rel=1e-9)


@pytest.mark.parametrize("case", ["DELB", "FedPE, alpha", "FedPE, enhanced, alpha", "FedPE, spanning"])
def test_padding_changes_nothing(case):
    algorithm, world, sizes = setting_of(case)
    plain, padded = play(algorithm, world, **sizes), play(algorithm, world, **sizes, shape=(5, 12))
    for name, ours, theirs in zip(plain._fields, plain, padded, strict=True):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-9, err_msg=name), ours, theirs)


SPHERE = fb.datasets.synthetic(seed=5, dim=5, num_arms=400, num_key_terms=10, num_users=8, user_norm="unit")
INSTANCE = {"clients": 10, "arms": 20, "noise": 1.0, "users": 4, "seeds": 4}


def test_orderings_of_regret():
    """M = 10, d = 5, K = 20, sigma = 1, T = 10^5: all phases beat the last alone, and a smaller C1 a larger one.

    Pairs share arms, users and noise: every mean difference is beyond three standard errors.
    """
    plain, enhanced = fb.FedPE(), fb.FedPE(enhanced=True)
    scaled = [fb.DELB(C1=C1) for C1 in (1, 10, 600)]

    for order, world in (([enhanced, plain], fb.World()), (scaled, COMMON)):
        table = fb.sweep(SPHERE, order, world=world, horizon=10**5, **INSTANCE).final()
        found = [np.asarray(own["regret"]) for _, own in table.groupby("label", sort=False)]
        assert len(found) == len(order)
        for better, worse in pairwise(found):
            difference = worse - better
            assert difference.mean() > 3 * difference.std(ddof=1) / np.sqrt(len(difference))


@pytest.mark.parametrize("algorithm", [fb.DELB(C1=1), fb.FedPE(), fb.FedPE(enhanced=True)], ids=repr)
def test_float32_agrees_with_float64(algorithm):
    """Both precisions play the same run; in one of 16 an arm may be so near its threshold that rounding decides."""
    world = COMMON if isinstance(algorithm, fb.DELB) else fb.World()
    setting = INSTANCE | {"horizon": 20_000, "clients": 4, "noise": 0.3, "checkpoints": 16}
    narrow, wide = (
        fb.simulate(SPHERE, algorithm, world=world, dtype=dtype, **setting).to_pandas()
        for dtype in ("float32", "float64")
    )
    for name in ("regret", "communication", "bits_up", "bits_down", "theta_error"):
        difference = (np.abs(narrow[name] - wide[name]) / wide[name].clip(lower=1e-9)).to_numpy().reshape(16, 16)
        # The last phases of FedPE have few arms, and directions that they hardly have: there, theta is mostly noise.
        assert (difference.max(axis=1) < (1e-2 if name == "theta_error" else 2e-3)).sum() >= 15, name


@pytest.mark.parametrize("algorithm", [fb.DELB(C1=1), fb.FedPE(enhanced=True)], ids=repr)
def test_a_billion_rounds(algorithm):
    world = COMMON if isinstance(algorithm, fb.DELB) else fb.World()
    results = fb.simulate(SPHERE, algorithm, world=world, **INSTANCE | {"horizon": 10**9, "users": 2, "seeds": 2})
    phases = results.phases()
    assert (phases.groupby(["user", "seed"])["length"].sum() == 10**9).all()
    assert phases["best_arm_active"].all()
    assert phases["good_event"][phases["complete"]].all()
    curves = results.to_pandas()
    late = curves[curves["round"] > 0.9e9].groupby(["user", "seed"])["regret"]
    assert ((late.max() - late.min()) <= 0.05 * late.max()).all(), "eliminations end"


def test_bad_input_is_told_in_one_sentence(nothing_traced):
    setting = {"clients": 3, "arms": 5, "horizon": 100, "users": 1}
    refused = {
        "DELB divides the pulls of arms that all clients have, so arm_sets='own' is not allowed": (
            fb.DELB(C1=0.1),
            None,
        ),
        "C1=0 is not allowed: it must be a number in (0, infinity)": (fb.DELB(C1=0), COMMON),
        "support_factor=1.5 is not allowed: it must be a whole number of at least 1": (
            fb.DELB(support_factor=1.5),
            COMMON,
        ),
        "enhanced=1 is not allowed: it must be True or False": (fb.FedPE(enhanced=1), None),
        "alpha='wide' is not allowed": (fb.FedPE(alpha="wide"), None),
        "design='best' is not allowed: it must be 'g-optimal' or 'spanning'": (fb.FedPE(design="best"), None),
        "init='zero' is not allowed: it must be 'pulls' or 'none'": (fb.FedPE(init="zero"), None),
        "delta=1 is not allowed": (fb.FedPE(delta=1), None),
    }
    for sentence, (algorithm, world) in refused.items():
        with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
            fb.simulate(SPHERE, algorithm, world=world or fb.World(), **setting)
        assert str(caught.value).startswith(sentence)


def test_the_papers_constant_warns():
    with pytest.warns(
        UserWarning, match="shorter than the first phase of DELB, at least 55262 .* a smaller C1 makes it"
    ):
        results = fb.simulate(SPHERE, fb.DELB(), world=COMMON, **INSTANCE | {"horizon": 1000, "users": 1, "seeds": 1})
    assert not results.phases()["complete"].any()
    assert results.final()["scalars_down"].item() == 0

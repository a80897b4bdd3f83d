"""MACO: FedConPE with a uniform design, against the oracle and against what the paper proves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from tests import reference
from tests.algorithms.runs import run
from tests.algorithms.test_fedconpe import CATALOG, Replay, make_problem, play_by_phases

D = CATALOG.dim
T = 4000
CASES = {  # of MACO: hyperparameters, setting
    "paper": ({}, {}),
    "smaller beta": ({"beta": 0.6}, {}),
    "signed, few arms": ({"key_term_rule": "signed", "sigma": 0.5, "delta": 0.02}, {"arms": 4}),
    "scaled": ({"beta": 0.8, "exploration_scale": 0.25, "elimination_scale": 0.5, "ridge": 0.5}, {"clients": 1}),
    "unbiased": ({"rounding": "unbiased", "exploration_scale": 0.1}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_step_equals_the_oracle(case):
    """Same eigenpairs and noise: same counts, questions, eliminations, estimates, regret and scalars."""
    hyperparameters, setting = CASES[case]
    algorithm = fb.MACO(**hyperparameters)
    checkpoints = np.arange(1, T + 1)
    with jax.enable_x64(True):
        problem, key = make_problem(11, **setting), jax.random.key(5)
        steps = play_by_phases(algorithm, key, problem)
        trace = run(algorithm, key, problem, jnp.asarray(checkpoints, jnp.float64))
        arms, key_terms, theta = (np.asarray(x) for x in (problem.arms, problem.key_terms, problem.theta[0]))
    replay = Replay(steps, len(arms))
    given = {"C" if k == "beta" else k: v for k, v in hyperparameters.items()}
    expected = reference.maco(
        list(arms),
        key_terms,
        theta,
        0.3,
        T,
        reference.FedConPESettings(**given),
        checkpoints,
        eigen=replay.eigen,
        randomness=replay,
    )
    assert len(steps) == len(expected.phases) >= 2
    for (plan, state, phase), want in zip(steps, expected.phases, strict=True):
        np.testing.assert_allclose(plan.weights, want["pi"], rtol=1e-12)
        np.testing.assert_array_equal(phase.counts, want["counts"])
        terms = plan.questions.messages[1]
        for i, (indices, repetitions) in enumerate(zip(want["key_terms"], want["repetitions"], strict=True)):
            np.testing.assert_array_equal(terms.indices[i][terms.sent[i]], indices)
            np.testing.assert_array_equal(terms.repetitions[i][terms.sent[i]], repetitions)
        np.testing.assert_array_equal(phase.asked, want["asked"])
        np.testing.assert_array_equal(state.active, want["active_after"])
        np.testing.assert_allclose(state.theta_hat, want["theta_hat"], rtol=1e-7, atol=1e-9)
    for name in ("regret", "conversations", "communication", "theta_error"):
        np.testing.assert_allclose(getattr(trace, name), getattr(expected, name), rtol=1e-7, atol=1e-9, err_msg=name)


def test_it_is_fedconpe_with_a_uniform_design():
    """The same counts, questions and regret; the server sends the number of a key term less."""
    checkpoints = jnp.linspace(100.0, T, 40)
    problem = make_problem(3)
    ours, twin, designed, by_design = (
        run(algorithm, jax.random.key(1), problem, checkpoints)
        for algorithm in (
            fb.MACO(),
            fb.FedConPE(design_method="uniform"),
            fb.MACO(design_method="multiplicative"),
            fb.FedConPE(),
        )
    )
    for one, other in ((ours, twin), (designed, by_design)):
        for name in ("regret", "conversations", "theta_error"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5, err_msg=name)
        pairs = float(one.counts["scalars_down"][-1]) - float(other.counts["scalars_down"][-1])
        uploaded = float(np.asarray(one.phases["uploaded"]).sum()) * len(problem.arms)
        assert pairs == pytest.approx(-uploaded)
    assert not np.array_equal(ours.regret, designed.regret)


# Clients, arms, noise and beta.
FEDERATIONS = (
    (1, 20, 0.3, 1.0),
    (4, 20, 1.0, 0.7),
    (3, 7, 0.3, 0.4),
    (2, 3, 0.5, 1.0),
    (4, 12, 0.1, 0.9),
    (3, 1, 0.3, 1.0),
)


def test_what_the_paper_proves():
    """Thresholds, counts, the share of questions, and on the good event the best arm and the gaps; one program."""
    horizon = 30_000
    weak, kept = 0, 0
    with jax.enable_x64(True):
        checkpoints = jnp.linspace(1000.0, horizon, 30)
        for seed, (clients, arms, noise, beta) in enumerate(
            [
                (1, 20, 0.3, 1.0),
                (4, 20, 1.0, 0.7),
                (3, 7, 0.3, 0.4),
                (2, 3, 0.5, 1.0),
                (4, 12, 0.1, 0.9),
                (3, 1, 0.3, 1.0),
            ]
        ):
            problem = make_problem(seed, clients=clients, arms=arms, noise=noise, horizon=horizon, shape=(4, 20))
            trace = jax.tree.map(np.asarray, run(fb.MACO(beta=beta), jax.random.key(seed), problem, checkpoints))
            table = {name: column[trace.phases["phase"] > 0] for name, column in trace.phases.items()}
            p, h, whole = table["phase"], table["wanted_information"], table["complete"] == 1
            np.testing.assert_allclose(h, 3 / (4 * (1 - 4.0**-p) * D))
            np.testing.assert_allclose(h[:2], [1 / D, 0.8 / D][: len(h)])
            assert (table["uploaded"][table["lambda_min"] >= h] == 0).all()
            assert (table["questions"][table["lambda_min"] >= h] == 0).all()
            share = np.maximum(3 / (4 * (1 - 4.0**-p)) - D * table["lambda_min"], 0) / beta**2
            assert (table["questions"][whole] <= (share * table["length"] + table["uploaded"])[whole]).all()
            assert (table["dropped"][whole] <= table["uploaded"][whole]).all(), "rounding up alone"
            assert (trace.conversations <= np.ceil(1 / beta**2) * np.asarray(checkpoints)).all()
            # All active arms alike: a phase of M clients is as long as the longest of A ceil(total / A).
            L = np.log(2 * arms * clients * np.log(horizon) / 0.1)
            total = 2 * D * noise**2 * 4.0**p * L
            assert (table["length"][whole] >= total[whole]).all()
            assert (table["length"][whole] <= (total + table["active_max"])[whole]).all()
            good = np.cumprod(np.where(whole, table["good_event"], 1)).astype(bool)
            assert good[whole].all(), "fails in one of ten runs at most, and hardly ever"
            assert (table["best_arm_active"][whole] == 1).all()
            assert (table["max_gap"][1:] <= 8 * 2.0 ** -p[1:] / np.sqrt(clients)).all()
            weak, kept = weak + table["uploaded"].sum(), kept + whole.sum()
    assert weak > 10
    assert kept > 8


def test_the_coverage_of_the_catalog():
    known = fb.MACO(beta="catalog").for_catalog(CATALOG)
    assert known.beta == CATALOG.realised_C < 1
    assert float(known.questions_a_round()) == np.ceil(1 / known.beta**2)
    flat = fb.Catalog.from_arrays(np.eye(3), [[1.0, 0, 0]], np.eye(3), name="flat")
    with pytest.raises(ValueError, match=r"^beta='catalog' is not allowed: the key terms of flat span 1 of 3 dimen"):
        fb.MACO(beta="catalog").for_catalog(flat)
    with pytest.raises(ValueError, match=r"^beta=1.5 is not allowed"):
        fb.simulate(CATALOG, fb.MACO(beta=1.5), clients=2, arms=5, horizon=100)


def test_the_ledger():
    """d + 1 scalars of a weak direction each way, d^2 + d up and d down of a client and phase."""
    problem = make_problem(2, arms=5)
    trace = run(fb.MACO(), jax.random.key(0), problem, jnp.array([float(T)]))
    weak = round(len(problem.arms) * float(np.asarray(trace.phases["uploaded"]).sum()))
    phases = len(problem.arms) * int((np.asarray(trace.phases["phase"]) > 0).sum())
    assert weak > 0
    assert float(trace.counts["scalars_up"][0]) == weak * (D + 1) + phases * (D**2 + D)
    assert float(trace.counts["scalars_down"][0]) == weak * (D + 1) + phases * D

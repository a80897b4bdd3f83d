"""The oracles of conversational learners: limits in which two of them are one, and facts that follow by hand."""

import numpy as np
import pytest

from tests import reference
from tests.reference import FedConPESettings


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


# -------------------------------------------------------------------------------------------------------------- MACO


def maco_of(seed=0, clients=3, arms=12, d=4, horizon=200_000, beta=0.8, name="maco", **settings):
    """A federation on the sphere, whose arms lie near a plane, so that there are weak directions."""
    rng = np.random.default_rng(seed)
    theta = unit(rng, d)
    shown = []
    for _ in range(clients):
        x = rng.normal(size=(arms, d)) * np.array([1.0, 0.8] + [0.3] * (d - 2))
        shown.append(x / np.linalg.norm(x, axis=1, keepdims=True))
    key_terms = np.vstack([np.eye(d), -np.eye(d), unit(rng, 6, d)])
    told = FedConPESettings(**dict(C=beta, sigma=1.0, key_term_rule="signed") | settings)
    run = getattr(reference, name)(shown, key_terms, theta, 1.0, horizon, told, np.array([horizon]), rng=rng)
    return run, shown, key_terms, theta


def test_maco_asks_and_pulls_as_often_as_its_paper_says():
    """Thresholds h_p, repetitions, pulls and elimination, written as in the paper and not as in FedConPE's oracle."""
    clients, arms, d, T, beta = 3, 12, 4, 200_000, 0.8
    run, shown, key_terms, _ = maco_of()
    L = np.log(2 * arms * clients * np.log(T) / 0.1)
    assert len(run.phases) >= 4
    weak_ones, complete = 0, 0
    for p, phase in enumerate(run.phases, 1):
        for m in range(clients):
            active = phase["active"][m]
            x = shown[m][active]
            values, vectors = np.linalg.eigh(x.T @ x / len(x))
            h = 3 / (4 * (1 - 2.0 ** (-2 * p)) * d)
            weak = np.flatnonzero(values < h)
            assert list(phase["uploaded"][m]) == list(weak)
            wanted = (3 / (2 * (1 - 2.0 ** (-2 * p))) - 2 * d * values[weak]) * 2.0 ** (2 * p) / beta**2 * L
            np.testing.assert_array_equal(phase["repetitions"][m], np.minimum(np.ceil(wanted), T))
            assert phase["key_terms"][m] == [int(np.argmax(key_terms @ vectors[:, j])) for j in weak]
            pulls = np.ceil(2.0 ** (2 * p + 1) * d * L / active.sum())
            np.testing.assert_array_equal(phase["counts"][m], np.where(active, pulls, 0))
            estimates = shown[m] @ phase["theta_hat"]
            stays = active & (estimates[active].max() - estimates <= 2.0 ** (1 - p) / np.sqrt(clients))
            np.testing.assert_array_equal(phase["active_after"][m], stays)
            gamma, ratio = values[0], phase["repetitions"][m].sum() / phase["counts"][m].sum()
            most = max(0.0, 3 / (4 * (1 - 2.0 ** (-2 * p))) - d * gamma) / beta**2
            assert ratio <= most + len(weak) / phase["counts"][m].sum()
            assert (len(weak) == 0) == (gamma >= h)
            weak_ones += len(weak)
        complete += phase["complete"]
        if phase["complete"]:
            assert phase["good_event"]
            assert phase["best_arm_active"]
    assert weak_ones > 0
    assert complete >= 3


def test_the_thresholds_of_maco():
    run, *_ = maco_of(d=5)
    np.testing.assert_allclose([phase["s"] * 5 for phase in run.phases[:2]], [1.0, 0.8], rtol=1e-12)
    assert 0.75 < run.phases[-1]["s"] * 5 < 0.76


def test_the_ledger_of_maco():
    """Of each client and phase: weak pairs (d + 1) up and as many down, d^2 + d up, d down. FedConPE has one more."""
    run, shown, *_ = maco_of()
    d, weak = 4, [sum(map(len, phase["uploaded"])) for phase in run.phases]
    assert run.communication[-1] == sum(n * 2 * (d + 1) + len(shown) * (d**2 + 2 * d) for n in weak)


def test_maco_is_fedconpe_with_a_uniform_design():
    """On an orthogonal set of arms the uniform design is the G-optimal one, until an arm is eliminated and after."""
    rng = np.random.default_rng(3)
    d, key_terms = 4, np.vstack([np.eye(4), unit(rng, 4, 4)])
    arms = [np.eye(d), np.eye(d)]
    settings, at = FedConPESettings(sigma=1.0), np.array([5000])
    runs = [
        oracle(arms, key_terms, np.eye(d)[0], 0.5, 5000, settings, at, rng=np.random.default_rng(1))
        for oracle in (reference.maco, reference.fedconpe)
    ]
    assert runs[0].regret == runs[1].regret
    assert [phase["length"] for phase in runs[0].phases] == [phase["length"] for phase in runs[1].phases]
    with pytest.raises(ValueError, match="N C"):
        maco_of(name="fedconpe")

"""The oracles of conversational learners: limits in which two of them are one, and facts that follow by hand."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from tests import reference
from tests.reference import Client, FedConPESettings, Rewards
from tests.reference.conversational_smoothed import Questioned


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def unit_rows(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


D, K, J, T = 4, 6, 7, 60


class Heard(Client):
    """A client that remembers what it was asked about."""

    def answer(self, t, q, x):
        self.__dict__.setdefault("heard", []).append((t, q, x))
        return super().answer(t, q, x)


def someone(seed=0, horizon=T, arms=K, d=D, noise=0.3, contexts="redrawn", theta=None, questions=5000):
    """A client with arms of different lengths, so that none are as good by chance."""
    rng = np.random.default_rng(seed)
    shown = unit(rng, horizon if contexts == "redrawn" else 1, arms, d)
    shown = shown * rng.uniform(0.6, 1, (*shown.shape[:2], 1))
    theta = unit(rng, d) if theta is None else theta
    rewards = Rewards("gaussian", noise, normal=lambda z: z)
    return Heard(theta, lambda t: shown[t % len(shown)], rewards, rng.normal(size=horizon), rng.normal(size=questions))


def terms(seed=1, count=J, d=D):
    rng = np.random.default_rng(seed)
    return unit(rng, count, d) * rng.uniform(0.7, 1, (count, 1))


def seen(client, run):
    """The arms that were pulled, (T, d)."""
    return np.array([client.see(t)[a] for t, a in enumerate(run.arms)])


def same_run(run, other):
    assert list(run.arms) == list(other.arms)
    np.testing.assert_allclose(run.regret, other.regret, rtol=1e-12)
    np.testing.assert_allclose(run.theta_error, other.theta_error, rtol=1e-9)


LOG = 5 * np.floor(np.log(np.arange(1, T + 1))).astype(int)
NEVER = np.zeros(T, dtype=int)

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


# ---------------------------------------------------------------------------------------------- CLiSK, CLiME, CLiSK-ME


def shaken(seed=2, rho=0.5, R=1.0, count=J):
    """Perturbations of any question, (J, d), by its numbers alone, whatever theta_hat or v is."""

    def eps(*at):
        numbers = [number for number in at if np.ndim(number) == 0]
        return reference.truncated_normal(np.random.default_rng([seed, *numbers]).uniform(-1, 1, (count, D)), rho, R)

    return eps


@pytest.mark.parametrize(("rho", "R"), [(0.3, 1.0), (2.0, 0.5), (1.0, np.inf)])
def test_perturbations_are_truncated_and_not_clipped(rho, R):
    u = np.linspace(-0.999, 0.999, 101)
    values = reference.truncated_normal(u, rho, R)
    np.testing.assert_allclose(values, truncnorm.ppf((1 + u) / 2, -R / rho, R / rho, scale=rho), rtol=1e-6, atol=1e-9)
    assert np.all(reference.truncated_normal(u, 0.0, R) == 0)


def test_the_radius_of_clisk():
    """Its two forms are one where every direction was asked about as often, by questions of length 1."""
    lam, delta, sigma, S, n = 0.7, 0.05, 0.4, 1.3, 6
    radii = []
    for alpha in ("theory", "bound"):
        ridge = Questioned(D, lam, alpha, delta, sigma, S)
        for x in np.eye(D):
            ridge.ask(x, 0.0, n)
        radii.append(ridge.radius())
    by_hand = sigma * np.sqrt(2 * np.log(20) + D * np.log((lam + n) / lam)) + np.sqrt(lam) * S
    np.testing.assert_allclose(radii, by_hand, rtol=1e-12)
    for alpha in ("theory", "bound"):  # not of equal lengths
        ridge = Questioned(D, lam, alpha, delta, sigma, S, length=2.0)
        ridge.pull(np.eye(D)[0], 0.0)
        ridge.ask(2 * np.eye(D)[1], 0.0)
        radii.append(ridge.radius())
    assert radii[2] < radii[3]
    growths = [np.log((lam + 1) * (lam + 4) / lam**2), D * np.log(1 + 5 / (lam * D))]
    np.testing.assert_allclose(
        radii[2:], [sigma * np.sqrt(2 * np.log(20) + g) + np.sqrt(lam) * S for g in growths], rtol=1e-12
    )
    assert Questioned(D, lam, 0.3, delta, sigma, S).radius() == 0.3


def test_clisk_without_questions_is_linucb():
    run = reference.clisk(someone(), terms(), T, b=NEVER, eps=shaken(), alpha=0.5)
    same_run(run, reference.linucb(someone(), T, alpha=0.5))


def test_clisk_without_perturbations_asks_one_key_term_for_ever():
    """All that it ever sees is the first coordinate, so that it cannot know that others are better."""
    theta = np.array([0.3, 0.9, 0.2, 0.1])
    client = Heard(theta, lambda t: np.eye(D)[:1], Rewards("gaussian", 0.0), np.zeros(T), np.zeros(LOG[-1]))
    still = reference.clisk(client, np.eye(D), T, b=LOG, eps=shaken(rho=0.0, count=D))
    assert still.questions == [(0, 1)] * LOG[-1]
    assert still.theta_error[-1] > 0.9
    moved = reference.clisk(client, np.eye(D), T, b=LOG, eps=shaken(count=D))
    assert len({k for k, _ in moved.questions}) == D
    assert moved.theta_error[-1] < 0.3
    # With perturbations of its own the first question is about the first key term all the same: nothing is known.
    assert moved.questions[0] == (0, 1)


@pytest.mark.parametrize("normalise", [False, True])
def test_clisk_asks_about_what_looks_best_when_perturbed(normalise):
    client, key_terms, eps = someone(), terms(), shaken()
    mask = np.arange(J) != 2
    run = reference.clisk(
        client,
        key_terms,
        T,
        b=LOG,
        eps=eps,
        R=1e4,
        alpha="bound",
        delta=0.2,
        lam=0.5,
        S=0.7,
        normalise_smoothed=normalise,
        allowed=lambda t: mask,
    )
    np.testing.assert_array_equal(run.asked, LOG)
    pulls, V, y = seen(client, run), 0.5 * np.eye(D), np.zeros(D)
    done = 0
    for q, (t, number, x) in enumerate(client.heard):
        for i in range(done, t):  # the pulls before it
            V, y = V + np.outer(pulls[i], pulls[i]), y + client.reward(i, pulls[i]) * pulls[i]
        done = t
        x_hat = key_terms + eps(q)
        x_hat = x_hat / np.linalg.norm(x_hat, axis=1)[:, None] if normalise else x_hat
        looks = np.where(mask, x_hat @ np.linalg.inv(V) @ y, -9)
        k = run.questions[q][0]
        assert number == q
        assert k == np.argmax(looks)
        np.testing.assert_allclose(x, x_hat[k])
        V, y = V + np.outer(x, x), y + (x @ client.theta + 0.3 * client.question_u[q]) * x
    assert len({k for k, _ in run.questions}) > 1
    assert all(k != 2 for k, _ in run.questions)
    for i in range(done, T):  # no more questions
        arms, inverse = client.see(i), np.linalg.inv(V)
        squares = i + (1 if normalise else (1 + 2e4) ** 2) * LOG[-1]  # sqrt(d) is 2
        radius = 0.3 * np.sqrt(2 * np.log(5) + D * np.log(1 + squares / (0.5 * D))) + np.sqrt(0.5) * 0.7
        scores = arms @ inverse @ y + radius * np.sqrt(np.sum(arms @ inverse * arms, axis=1))
        assert run.arms[i] == np.argmax(scores)
        V, y = V + np.outer(pulls[i], pulls[i]), y + client.reward(i, pulls[i]) * pulls[i]


def test_rounds_that_check():
    assert list(np.flatnonzero(reference.checks("exponential", 20)) + 1) == [1, 2, 4, 8, 16]
    assert list(np.flatnonzero(reference.checks("interval", 20, 6)) + 1) == [6, 12, 18]
    assert reference.checks("continuous", 20).all()


def test_clime_asks_nothing_where_all_is_known_well_enough():
    """lam = level T: no eigenvalue is below level t in any round. A little more, and it asks in the last."""
    told = dict(checks=reference.checks("continuous", T), c0=0.5, alpha=0.5, lam=0.1 * T)
    quiet = reference.clime(someone(), np.eye(D), T, level=0.1, **told)
    assert quiet.questions == []
    same_run(quiet, reference.linucb(someone(), T, alpha=0.5, lam=0.1 * T))
    client = someone()
    client.see = lambda t: np.zeros((1, D))
    late = reference.clime(client, np.eye(D), T, level=0.1001, **told)
    assert {t for t, *_ in late.questions} == {T - 1}
    assert late.asked[-1] == D


@pytest.mark.parametrize(("level", "lam", "c0", "n"), [(2.5, 1.0, 0.5, 6), (0.2, 0.1, 1.0, 1), (1.0, 0.0625, 0.5, 4)])
def test_the_first_burst_of_clime(level, lam, c0, n):
    """V = lam I: every direction is asked about ceil((level - lam) / c0^2) times; here the last is 3.75."""
    client = someone()
    run = reference.clime(client, np.eye(D), 1, checks=[True], level=level, lam=lam, c0=c0, alpha=0.5)
    assert run.questions == [(0, i, i, n) for i in range(D)]
    assert run.asked[0] == D * n
    assert [q for _, q, _ in client.heard] == list(range(D * n))


@pytest.mark.parametrize("kind", ["continuous", "exponential"])
def test_clime_lifts_every_eigenvalue_to_its_goal(kind):
    """Each with the key term nearest to its direction, whose sign is nobody's business."""
    level, when = 0.3217, reference.checks(kind, T)
    for c0 in (1 / np.sqrt(D), "realised"):
        client = someone()
        told = dict(checks=when, level=level, c0=c0, lam=0.2, alpha=0.5)
        run = reference.clime(client, np.eye(D), T, **told)
        pulls = seen(client, run)
        times = {t for t, *_ in run.questions}
        assert len(times) > 3
        assert times <= set(np.flatnonzero(when))
        for t in np.flatnonzero(when):
            asked = [x for at, _, x in client.heard if at < t]
            V = 0.2 * np.eye(D) + sum((np.outer(x, x) for x in [*asked, *pulls[:t]]), np.zeros((D, D)))
            values, vectors = np.linalg.eigh(V)
            mine = [question for question in run.questions if question[0] == t]
            assert len(mine) == np.sum(values < level * (t + 1))
            for _, i, k, n in mine:
                inner = np.abs(vectors[:, i])
                assert k == np.argmax(inner)
                c = inner[k] if c0 == "realised" else c0
                assert n == max(1, np.ceil((level * (t + 1) - values[i]) / c**2 - 1e-4))
        flipped = reference.clime(
            someone(), np.eye(D), T, eigen=lambda V: (np.linalg.eigh(V)[0], -np.linalg.eigh(V)[1]), **told
        )
        same_run(run, flipped)


def test_cliskme_is_clime_with_perturbed_key_terms():
    told = dict(checks=reference.checks("exponential", T), level=0.4, c0=0.6, lam=0.2, alpha=0.5)
    key_terms, eps = terms(), shaken()
    still = reference.cliskme(someone(), key_terms, T, eps=shaken(rho=0.0), **told)
    same_run(still, reference.clime(someone(), key_terms, T, **told))
    for normalise in (False, True):
        client = someone()
        first = (unit_rows if normalise else np.array)(key_terms + eps(0, 0))
        mask = np.arange(J) != np.argmax(np.abs(first[:, 0]))  # that would have been the first
        run = reference.cliskme(
            client,
            key_terms,
            T,
            eps=eps,
            normalise_smoothed=normalise,
            allowed=dict.fromkeys(range(T), mask).get,
            **told,
        )
        heard = iter(client.heard)
        for t, i, k, n in run.questions:
            x_hat = key_terms[k] + eps(t, i)[k]
            for _ in range(n):
                at, _, x = next(heard)
                assert at == t
                np.testing.assert_allclose(x, x_hat / np.linalg.norm(x_hat) if normalise else x_hat)
            if t == 0:  # all directions are eigenvectors of lam I, and these are its
                inner = (unit_rows if normalise else np.array)(key_terms + eps(t, i))[:, i]
                assert k == np.argmax(np.where(mask, np.abs(inner), -1))
        assert mask[[k for _, _, k, _ in run.questions]].all()
        assert len({k for _, _, k, _ in run.questions}) > 2


def test_answers_may_come_all_at_once():
    """A sum of n answers is worth as much as n answers."""
    client, key_terms = someone(noise=0.0), terms()
    told = dict(checks=reference.checks("exponential", T), level=0.4, c0=0.6, lam=0.2)
    at_once = reference.clime(client, key_terms, T, answers=lambda t, i, k, x, n: n * (x @ client.theta), **told)
    same_run(at_once, reference.clime(someone(noise=0.0), key_terms, T, **told))
    x = np.vstack([seen(client, at_once), *(n * [key_terms[k]] for _, _, k, n in at_once.questions)])
    error = np.linalg.norm(0.2 * np.linalg.inv(0.2 * np.eye(D) + x.T @ x) @ client.theta)
    np.testing.assert_allclose(at_once.theta_error[-1], error, rtol=1e-9)

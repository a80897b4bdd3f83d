"""The oracles of conversational learners: limits in which two of them are one, and facts that follow by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import truncnorm

from tests import reference
from tests.reference import Channel, Client, FedConPESettings, Rewards, who_plays
from tests.reference.conversational_duels import Duel, History, confident, curvature, fit, refit_at, two_arms
from tests.reference.conversational_items import centres_in_order, clusters, number_of_clusters
from tests.reference.conversational_levels import TwoLevels, two_level_rounds
from tests.reference.conversational_relative import VARIANTS, pair_to_show, told_by
from tests.reference.conversational_smoothed import Questioned


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def unit_rows(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


D, K, J, T = 4, 6, 7, 60


class Heard(Client):
    """A client that remembers what it was asked about, and may be asked about some key terms alone."""

    may = None

    def answer(self, t, q, x):
        self.__dict__.setdefault("heard", []).append((t, q, x))
        return super().answer(t, q, x)

    def about(self, t, q, k, key_terms):
        return self.answer(t, q, key_terms[k])

    def candidates(self, t, J):
        return super().candidates(t, J) if self.may is None else self.may


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
    """Perturbations of any question, (J, d)."""
    return lambda *at: reference.truncated_normal(np.random.default_rng([seed, *at]).uniform(-1, 1, (count, D)), rho, R)


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
    mask = client.may = np.arange(J) != 2
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
        mask = client.may = np.arange(J) != np.argmax(np.abs(first[:, 0]))  # that would have been the first
        run = reference.cliskme(
            client,
            key_terms,
            T,
            eps=eps,
            normalise_smoothed=normalise,
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


# ------------------------------------------------------------------------------------------------------ RelativeConUCB

THEORY = dict(alpha="theory", alpha_t="theory", delta=0.2, S=0.9, lam=0.3, lam_t=0.7)


def says(clients, key_terms, noise=0.1):
    """Comparisons with a noise on each side, of any question of any client."""

    def prefers(i, t, q, k, m):
        z = np.random.default_rng([9, i, q]).normal(size=2)
        return key_terms[k] @ clients[i].theta + noise * z[0] > key_terms[m] @ clients[i].theta + noise * z[1]

    return prefers


def first_best(scores):
    return int(np.flatnonzero(np.array(scores) >= max(scores) - 1e-9)[0])


@pytest.mark.parametrize("settings", [{}, THEORY])
def test_two_levels_are_conucb(settings):
    client, key_terms = someone(), terms()
    levels = TwoLevels(D, sigma=client.sigma, **settings)

    def ask(t, q):
        k = first_best(levels.credit(client.see(t), key_terms))
        levels.hear(key_terms[k], client.answer(t, q, key_terms[k]))
        return k, 0.0

    run = two_level_rounds(levels, client, T, LOG, ask)
    conucb = reference.conucb(client, key_terms, T, b=LOG, **settings)
    same_run(run, conucb)
    assert run.questions == conucb.questions


@pytest.mark.parametrize("feedback", ["individual", "shared"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_relative_conucb_without_questions_is_conucb_without(variant, feedback):
    clients = [someone(0), someone(1)]
    run = reference.relative_conucb(clients, terms(), who_plays(T, 2), variant=variant, feedback=feedback, b=NEVER)
    alone = [reference.conucb(client, terms(), T, b=NEVER) for client in clients]
    assert run.arms == [list(pair) for pair in zip(*(each.arms for each in alone), strict=True)]
    np.testing.assert_allclose(run.regret, sum(each.regret for each in alone), rtol=1e-12)
    np.testing.assert_allclose(run.theta_error, np.mean([each.theta_error for each in alone], axis=0), rtol=1e-9)


def replay(client, key_terms, run, variant, mask, lam=0.5, lam_t=1.0, alpha=0.25, alpha_t=0.25):
    """The questions and arms of one client's run, worked out anew with sums over lists."""
    pairs, told, pulls, done = list(run.questions[0]), [], [], 0
    sums = lambda rows: sum((np.outer(x, x) for x in rows), np.zeros((D, D)))  # noqa: E731
    for t in range(T):
        M = (1 - lam) * np.eye(D) + lam * sums([x for x, _ in pulls])
        arms = client.see(t)
        for _ in range(LOG[t] - (LOG[t - 1] if t else 0)):
            Mt = lam_t * np.eye(D) + sums([x for x, _ in told])

            def credit(f, Mt=Mt, arms=arms, M=M):
                w = np.linalg.solve(Mt, f)
                return sum((x @ np.linalg.solve(M, w)) ** 2 for x in arms) / (1 + f @ w)

            def best(score):
                return first_best([score(x) if on else -1 for x, on in zip(key_terms, mask, strict=True)])

            if variant == "difference":
                table = [
                    [credit(x - y) if k < m and mask[k] and mask[m] else -1 for m, y in enumerate(key_terms)]
                    for k, x in enumerate(key_terms)
                ]
                k, m = divmod(first_best(np.ravel(table)), J)
            else:
                k = best(credit)
                if variant == "difference-fast":
                    m = best(lambda x: credit(x - key_terms[k]))  # noqa: B023
                else:
                    m = best(lambda x: credit(x, Mt=Mt + np.outer(key_terms[k], key_terms[k])))  # noqa: B023
            assert pairs[done][:2] == (k, m)
            winner, loser = (k, m) if pairs[done][2] else (m, k)
            if variant.startswith("pos"):
                told.append((key_terms[winner], 1))
                told += [(key_terms[loser], 0)] if variant == "pos-neg" else []
            else:
                told.append((key_terms[winner] - key_terms[loser], 1))
            done += 1
        Mt = lam_t * np.eye(D) + sums([x for x, _ in told])
        tt = np.linalg.solve(Mt, sum((r * x for x, r in told), np.zeros(D)))
        th = np.linalg.solve(M, lam * sum((r * x for x, r in pulls), np.zeros(D)) + (1 - lam) * tt)
        scores = []
        for x in arms:
            w = np.linalg.solve(M, x)
            width = (1 - lam) * alpha_t * np.sqrt(w @ np.linalg.solve(Mt, w))
            scores.append(x @ th + lam * alpha * np.sqrt(x @ w) + width)
        a = first_best(scores)
        assert run.arms[t] == [a]
        pulls.append((arms[a], client.reward(t, arms[a])))


@pytest.mark.parametrize("variant", VARIANTS)
def test_relative_conucb_line_by_line(variant):
    client, key_terms, mask = someone(), terms(), np.arange(J) % 4 != 1
    client.may = mask
    run = reference.relative_conucb(
        [client],
        key_terms,
        who_plays(T, 1),
        variant=variant,
        b=LOG,
        prefers=says([client], key_terms),
    )
    assert len({pair[:2] for pair in run.questions[0]}) > 2
    assert {won for *_, won in run.questions[0]} == {False, True}
    np.testing.assert_array_equal(run.asked, LOG)
    replay(client, key_terms, run, variant, mask)


def test_a_difference_does_not_see_a_bias():
    """With a constant in every arm and key term, the answers of differences are silent about its coordinate."""
    rng = np.random.default_rng(4)
    key_terms = np.hstack([unit(rng, J, D - 1), np.ones((J, 1))])
    arms = np.hstack([unit(rng, K, D - 1), np.ones((K, 1))])
    theta = np.array([0.3, -0.2, 0.1, 0.4])
    for variant in VARIANTS:
        levels = TwoLevels(D)
        for _ in range(20):
            k, m = pair_to_show(levels, variant, arms, key_terms, np.ones(J, dtype=bool))
            won = key_terms[k] @ theta > key_terms[m] @ theta
            for x, r in told_by(variant, *(key_terms[[k, m]] if won else key_terms[[m, k]])):
                levels.hear(x, r)
        bias = np.linalg.solve(levels.Mt, levels.kr)[-1]
        assert (abs(bias) < 1e-12) == variant.startswith("difference")


def test_the_second_key_term_may_be_the_first():
    key_terms = np.vstack([np.eye(D)[0], 0.01 * np.eye(D)[1:]])
    everyone = np.ones(D, dtype=bool)
    assert pair_to_show(TwoLevels(D), "pos", np.eye(D), key_terms, everyone) == (0, 0)
    assert pair_to_show(TwoLevels(D), "difference-fast", np.eye(D), key_terms, everyone) == (0, 1)
    assert pair_to_show(TwoLevels(D), "difference", np.eye(D), key_terms, everyone) == (0, 1)
    alone = np.arange(D) == 2
    for variant in VARIANTS:
        assert pair_to_show(TwoLevels(D), variant, np.eye(D), key_terms, alone) == (2, 2)


def relative(clients, rounds, key_terms=None, variant="pos-neg", **options):
    key_terms = terms() if key_terms is None else key_terms
    told = dict(variant=variant, b=LOG, prefers=says(clients, key_terms)) | options
    return reference.relative_conucb(clients, key_terms, rounds, **told)


def test_what_one_client_shares_is_its_own():
    client, rounds = someone(), who_plays(T, 1)
    same_run(relative([client], rounds, feedback="shared"), relative([client], rounds))


def test_the_order_of_a_round_matters_only_to_those_who_share():
    clients, meetings = [someone(0), someone(1)], ("in turn", "questions first", "together")
    runs = {
        feedback: [relative(clients, who_plays(T, 2), feedback=feedback, meeting=meeting) for meeting in meetings]
        for feedback in ("individual", "shared")
    }
    for run in runs["individual"][1:]:
        same_run(run, runs["individual"][0])
    assert len({str(run.questions) + str(run.arms) for run in runs["shared"]}) == 3
    one_by_one = who_plays(T, 2, np.arange(T) % 2)
    alone = [relative(clients, one_by_one, feedback="shared", meeting=meeting) for meeting in meetings]
    for run in alone[1:]:
        same_run(run, alone[0])


def test_clients_who_ask_together_have_not_heard_each_other():
    """Twins: together they show the same pairs, in turn the second shows what is left."""
    twins = [someone(0), someone(0)]
    run = relative(twins, who_plays(T, 2), feedback="shared", meeting="together", prefers=lambda *_: True)
    assert run.questions[0] == run.questions[1]
    run = relative(twins, who_plays(T, 2), feedback="shared", meeting="questions first", prefers=lambda *_: True)
    assert run.questions[0] != run.questions[1]
    np.testing.assert_array_equal(run.asked, LOG)


def test_who_registers_late_has_not_heard_what_was_said_before():
    clients = [someone(0), someone(1)]
    rounds = who_plays(T, 2, np.arange(T) >= T // 2)
    alone = relative(clients, rounds)
    late = relative(clients, rounds, feedback="shared", registration="late")
    assert late.arms == alone.arms
    early = relative(clients, rounds, feedback="shared")
    assert early.arms[: T // 2] == alone.arms[: T // 2]
    assert early.arms[T // 2 :] != alone.arms[T // 2 :]
    # It is as if the second had heard them itself.
    level = TwoLevels(D)
    for k, m, won in early.questions[0]:
        for x, r in told_by("pos-neg", *terms()[[k, m] if won else [m, k]]):
            level.hear(x, r)
    for t in range(2):  # its first question comes before its third pull
        x = clients[1].see(t)[early.arms[T // 2 + t][0]]
        level.pull(x, clients[1].reward(t, x))
    everyone = np.ones(J, dtype=bool)
    assert early.questions[1][0][:2] == pair_to_show(level, "pos-neg", clients[1].see(2), terms(), everyone)
    assert early.questions[1][0] != late.questions[1][0]


def test_the_defect_of_the_public_code():
    """M^-1 is missing before (1 - lam) tt; without pulls, M is (1 - lam) I, so that tt is made smaller."""
    right, wrong = TwoLevels(D, lam=0.4), TwoLevels(D, lam=0.4, unweighted=True)
    for levels in (right, wrong):
        levels.hear(np.eye(D)[0], 1.0)
    np.testing.assert_allclose(right.theta_hat(), 0.5 * np.eye(D)[0])
    np.testing.assert_allclose(wrong.theta_hat(), 0.3 * np.eye(D)[0])


# --------------------------------------------------------------------------------------------------------- CtoF-ConUCB


def test_the_scores_of_two_levels_in_theory():
    levels = TwoLevels(D, sigma=0.4, **THEORY)
    levels.hear(np.eye(D)[0], 0.0)
    levels.pull(np.eye(D)[1], 0.0)
    a = 0.4 * np.sqrt(D * np.log((1 + 0.3 / (0.7 * D)) / 0.2))
    at = 0.4 * np.sqrt(2 * (D * np.log(6) + np.log(2 * 2 / 0.2))) + 2 * np.sqrt(0.7) * 0.9
    by_hand = [0.3 * a / np.sqrt(0.7) + at / np.sqrt(1.7), 0.3 * a + 0.7 * at / np.sqrt(0.7)]
    np.testing.assert_allclose(levels.scores(np.eye(D)[:2]), by_hand, rtol=1e-12)


def test_centres_are_as_far_as_can_be():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.4, 0.0]])
    assert centres_in_order(x) == [0, 3, 1, 4, 2]
    centres, live = clusters(x, 2, 1)
    np.testing.assert_allclose(centres, [[0.6, 0.0], [0.0, 3.0]])
    assert live.all()
    # A second centre at the same place has no rows.
    centres, live = clusters(x, 5, 1)
    assert list(live) == [True, True, True, True, False]
    np.testing.assert_allclose(centres[:4], x[[0, 3, 1, 4]])
    np.testing.assert_allclose(clusters(x, 3, 0)[0], x[[0, 3, 1]])
    # Steps move rows: 0.52 begins with the centre at 1, and the first step takes it to the other side.
    x = np.array([[0.0], [0.4], [0.45], [0.48], [0.52], [1.0]])
    np.testing.assert_allclose(clusters(x, 2, 1)[0][:, 0], [0.3325, 0.76])
    np.testing.assert_allclose(clusters(x, 2, 2)[0][:, 0], [0.37, 1.0])


def test_clusters_become_finer():
    assert [number_of_clusters(1.0, t, 100, 8) for t in (0, 9, 10, 41, 42, 99, 100)] == [1, 1, 2, 4, 5, 8, 8]
    assert number_of_clusters(10.0, 10, 100, 8) == 8


@pytest.mark.parametrize("lloyd", [0, 1, 3])
def test_the_finest_clusters_are_the_arms(lloyd):
    """Then it is ConUCB whose key terms are the arms, in the order of centres."""
    client = someone(contexts="fixed")
    run = reference.ctof_conucb(client, T, b=LOG, fineness=1e9, lloyd=lloyd)
    order = centres_in_order(client.see(0))
    conucb = reference.conucb(client, client.see(0)[order], T, b=LOG)
    same_run(run, conucb)
    assert run.questions == [(K, k) for k in conucb.questions]


def test_ctof_conucb_asks_about_means_of_ever_more_arms():
    client = someone(contexts="fixed")
    run = reference.ctof_conucb(client, T, b=LOG, fineness=1.0, lloyd=2)
    assert {n for n, _ in run.questions} == {1, 3, 6}
    np.testing.assert_allclose(client.heard[0][2], client.see(0).mean(axis=0))
    for (n, k), (t, _, x) in zip(run.questions, client.heard, strict=True):
        assert n == number_of_clusters(1.0, t, T, K)
        np.testing.assert_allclose(x, clusters(client.see(0), n, 2)[0][k])
    later = reference.ctof_conucb(client, T, b=LOG, fineness=1.0, lloyd=2, planned=10**6)
    assert {n for n, _ in later.questions} == {1}
    same_run(
        reference.ctof_conucb(client, T, b=NEVER, fineness=1.0, lloyd=2), reference.conucb(client, terms(), T, b=NEVER)
    )


# --------------------------------------------------------------------------------------------------------- GraphConUCB

LINKS = np.array([[0, 1, J], [1, 2, J], [3, J, J], [4, 5, 6], [0, 1, J]])


def test_the_graph_of_key_terms_by_hand():
    """0 - 1 - 2, 3 alone, 4 - 5 - 6 - 4. Degrees with themselves: 2, 3, 2, 1, 3, 3, 3."""
    key_terms = np.abs(terms())
    key_terms[5] = -key_terms[4]
    S = reference.similarity(LINKS, key_terms, gamma=0.25)
    near = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    np.testing.assert_array_equal(S[:3, :3] != 0, near)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_array_equal(np.diag(S), 1)
    assert np.count_nonzero(S[3]) == 1
    cos = lambda k, m: key_terms[k] @ key_terms[m] / np.linalg.norm(key_terms[k]) / np.linalg.norm(key_terms[m])  # noqa: E731
    np.testing.assert_allclose(S[0, 1], 0.75 / 4 + 0.25 * cos(0, 1))
    np.testing.assert_allclose(S[4, 6], 0.75 / 5 + 0.25 * cos(4, 6))
    np.testing.assert_allclose(S[4, 5], 0.75 / 5)  # a negative cosine is 0


def test_vectors_of_neighbourhoods():
    key_terms = terms()
    rows = reference.neighbourhood_vectors(np.eye(J), key_terms)
    signs = np.sign(np.sum(rows * key_terms, axis=1))
    np.testing.assert_allclose(rows * signs[:, None], key_terms, atol=1e-12)  # alone, a key term is its own
    S = reference.similarity(LINKS, key_terms)
    x = key_terms[[0, 1, 2]]
    _, singular, right = np.linalg.svd(x.T @ x)
    row = reference.neighbourhood_vectors(S, key_terms)[1]
    np.testing.assert_allclose(np.outer(row, row), singular[0] * np.outer(right[0], right[0]), atol=1e-12)


def test_the_sampled_support():
    """Every key term that is not covered is in it; where nothing ever covers half, it is empty."""
    rng = np.random.default_rng(0)
    vectors, laws = 0.3 * unit(rng, 60, D), []

    def draw(p, n):
        laws.append(p)
        assert n == int(3 * D * np.log(D))
        return rng.choice(len(p), size=n, p=p)

    support = reference.sampled_support(vectors, 3.0, draw)
    G = np.linalg.inv(vectors[support].T @ vectors[support])
    assert np.all(np.sum(vectors @ G * vectors, axis=1) <= 1 + 1e-9)
    assert len(support) < 60
    leverage = np.sum(vectors @ np.linalg.inv(vectors.T @ vectors) * vectors, axis=1)
    np.testing.assert_allclose(laws[0], 1 / 120 + leverage / (2 * D), rtol=1e-9)
    tries = []
    vectors[0] *= 0.01  # alone it covers nothing
    assert reference.sampled_support(vectors, 3.0, lambda p, n: tries.append(n) or [0]) == []
    assert len(tries) == 51
    assert reference.sampled_support(vectors[:10], 3.0, None) == list(range(10))


def test_graph_conucb_without_a_graph_is_conucb_with_these_questions():
    client, key_terms = someone(), terms()
    conucb = reference.conucb(client, key_terms, T, b=LOG)
    told = dict(b=LOG, picks=conucb.questions)
    same_run(reference.graph_conucb(client, key_terms, T, graph_feedback=False, **told), conucb)
    same_run(reference.graph_conucb(client, key_terms, T, similarity=np.eye(J), **told), conucb)
    S = reference.similarity(LINKS, key_terms)
    same_run(reference.graph_conucb(client, key_terms, T, similarity=S, graph_feedback=False, **told), conucb)
    same_run(
        reference.graph_conucb(client, key_terms, T, similarity=np.eye(J), **told, **THEORY),
        reference.graph_conucb(client, key_terms, T, graph_feedback=False, **told, **THEORY),
    )


def test_an_answer_is_heard_of_neighbours_by_their_similarity():
    """One question about 1, no pull before it: the estimate is that of ridge regression on 0, 1 and 2."""
    client, key_terms = someone(noise=0.0), terms()
    S = reference.similarity(LINKS, key_terms)
    client.see = lambda t: np.zeros((1, D))
    run = reference.graph_conucb(client, key_terms, 1, b=[1], picks=[1], similarity=S)
    x, r = key_terms[:3], key_terms[1] @ client.theta * S[1, :3]
    tt = np.linalg.solve(np.eye(D) + x.T @ x, x.T @ r)
    np.testing.assert_allclose(run.theta_error[-1], np.linalg.norm(tt - client.theta), rtol=1e-12)


# --------------------------------------------------------------------------------------------------------- Hier-LinUCB


def a_hierarchy(discount=0.6, noise=0.2, charged=False, arms=6, horizon=T, seed=0):
    """Six fixed arms, of which the first two, the next two and the last two have a key term each; 3 has none."""
    client = someone(seed, contexts="fixed", noise=noise, arms=arms, horizon=horizon)
    links = np.array([[a // 2, 4] for a in range(arms)])
    client = Client(client.theta, client.see, client.rewards, client.pull_u, client.question_u)
    carries = [{a // 2} for a in range(arms)]
    shown = lambda t: range(arms)  # noqa: E731
    client.channel = Channel("max", discount, "related", charged, client.see(0), carries, shown)
    return client, terms(count=4), links


def test_hier_linucb_line_by_line():
    """Worked out anew, with lists and solves: who is asked about, who is pulled, when it stops to ask."""
    client, key_terms, links = a_hierarchy(discount=0.3, seed=27)
    run = reference.hier_linucb(client, key_terms, links, T, alpha=0.4, lam=0.5, kappa=0.1)
    x, arms = [], client.see(0)
    stopped, taken, chosen = False, [], []
    questions = iter(run.questions)
    asked = 0

    def ucb():
        V = 0.5 * np.eye(D) + sum((np.outer(row, row) for row, _ in x), np.zeros((D, D)))
        y = sum((r * row for row, r in x), np.zeros(D))
        return np.array([a @ np.linalg.solve(V, y) + 0.4 * np.sqrt(a @ np.linalg.solve(V, a)) for a in arms])

    for t in range(T):
        before = ucb()
        top = first_best(before)
        k = top // 2
        taken.append(k)
        if not stopped:
            assert next(questions) == (t, k)
            said = 0.3 * max(arms[a] @ client.theta for a in (2 * k, 2 * k + 1)) + 0.2 * client.question_u[asked]
            x.append((arms[top], said / 0.3))
            asked += 1
        after = ucb()
        a = 2 * k + first_best(after[2 * k : 2 * k + 2])
        assert run.arms[t] == a
        chosen.append(a)
        x.append((arms[a], client.reward(t, arms[a])))
        low = after[a] - 0.1 * np.sqrt(np.log(t + 1) / chosen.count(a))
        stopped = t > 9 and 0.3 * before[top] + 0.1 * np.sqrt(np.log(t + 1) / taken.count(k)) < low
        assert run.asked[t] == asked
    assert 10 < asked < T - 10
    assert len(set(taken)) > 1


def test_hier_linucb_asks_for_ever_or_stops_after_its_patience():
    client, key_terms, links = a_hierarchy()
    for_ever = reference.hier_linucb(client, key_terms, links, T, kappa=100.0)
    np.testing.assert_array_equal(for_ever.asked, np.arange(1, T + 1))
    certain = reference.hier_linucb(client, key_terms, links, T, kappa=0.0, discount=1e-9, alpha=10.0, target="plain")
    assert certain.asked[-1] == 11  # rounds 0 to 10; the rule speaks in round 10 for the first time
    assert (
        reference.hier_linucb(
            client, key_terms, links, T, kappa=0.0, discount=1e-9, alpha=10.0, target="plain", patience=4
        ).asked[-1]
        == 6
    )


def test_what_an_answer_of_hier_linucb_counts_as():
    """Undoing the discount, or scaling the arm by it, theta is found without noise; a plain answer is biased."""
    one_arm_each, key_terms, _ = a_hierarchy(noise=0.0, arms=4)
    links = np.arange(4)[:, None]
    one_arm_each.channel.carries = [{a} for a in range(4)]
    found = {
        target: reference.hier_linucb(
            one_arm_each, key_terms, links, T, kappa=100.0, lam=1e-6, alpha=1.0, target=target
        ).theta_error[-1]
        for target in ("undone", "scaled", "plain")
    }
    assert found["undone"] < 1e-4
    assert found["scaled"] < 1e-4
    assert found["plain"] > 0.05


def test_questions_of_hier_linucb_are_charged():
    client, key_terms, links = a_hierarchy()
    free = reference.hier_linucb(client, key_terms, links, T, kappa=0.3)
    client, key_terms, links = a_hierarchy(charged=True)
    run = reference.hier_linucb(client, key_terms, links, T, kappa=0.3)
    tops = 0.6 * np.array([max(client.see(0)[a] @ client.theta for a in (2 * k, 2 * k + 1)) for k in range(3)])
    costs = np.zeros(T)
    for t, k in run.questions:
        costs[t] = tops.max() - tops[k]
    assert costs.sum() > 0
    np.testing.assert_allclose(run.regret - free.regret, np.cumsum(costs), atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- ConDuel

LINEAR = 2 * (np.arange(1, T + 1) // 10)


def duels_of(count, seed=0, d=D):
    rng = np.random.default_rng(seed)
    theta = 2 * unit(rng, d)
    return [Duel(x, float(rng.random() < 1 / (1 + np.exp(-x @ theta)))) for x in rng.normal(size=(count, d))]


def conduel(client, key_terms=None, horizon=T, **options):
    key_terms = terms() if key_terms is None else key_terms
    told = dict(b=LINEAR, uniforms=np.random.default_rng(3).random(horizon), lam=0.5, alpha=0.5, kappa=1.0)
    told |= dict(pairs=lambda q, t: tuple(np.random.default_rng([4, q]).choice(J, 2, replace=False))) | options
    return reference.conduel(client, key_terms, horizon, **told)


def duelist(seed=0, **options):
    """Numbers that decide duels are uniform in (-1, 1)."""
    client, rng = someone(seed, **options), np.random.default_rng(seed + 100)
    client.pull_u, client.question_u = rng.uniform(-1, 1, len(client.pull_u)), rng.uniform(-1, 1, 500)
    return client


def test_the_fit_is_the_maximum_of_likelihood():
    duels = duels_of(40)

    def loss(theta):
        each = [np.log1p(np.exp(-(2 * duel.y - 1) * (duel.x @ theta))) for duel in duels]
        return sum(each) + 0.35 * theta @ theta

    best = minimize(loss, np.zeros(D), tol=1e-12).x
    for start in (np.zeros(D), np.full(D, 9.0)):
        np.testing.assert_allclose(fit(duels, 0.7, start), best, atol=1e-5)
    np.testing.assert_allclose(fit([], 0.7, np.ones(D)), 0, atol=1e-12)


def test_a_duel_that_leaves_the_window_is_a_quadratic():
    """With no window at all each is expanded around 0, where s = 1/2: least squares on y - 1/2 with weights 1/4."""
    duels = duels_of(30)
    none = History(D, 0.7, window=0)
    for duel in duels:
        none.add(duel)
    none.refit()
    x, y = np.array([duel.x for duel in duels]), np.array([duel.y for duel in duels])
    by_hand = np.linalg.solve(0.7 * np.eye(D) + x.T @ x / 4, x.T @ (y - 0.5))
    np.testing.assert_allclose(none.theta_hat, by_hand, atol=1e-9)
    # Around a fit: nothing changes there if all leave at once.
    short = History(D, 0.7, window=30)
    for duel in duels:
        short.add(duel)
    assert np.all(short.H == 0)
    short.refit()
    before = short.theta_hat
    short.window = 10
    for _ in range(20):
        short.add(Duel(np.zeros(D), 1.0))
    assert len(short.duels) == 30  # one leaves for one that comes
    np.testing.assert_allclose(short.H, sum(duel.hessian(before) for duel in duels[:20]), atol=1e-12)
    short.refit()
    np.testing.assert_allclose(short.theta_hat, before, atol=1e-8)


def test_a_window_that_holds_all_is_none():
    run = conduel(duelist())
    same_duels(conduel(duelist(), window=T + LINEAR[-1]), run)
    less = conduel(duelist(), window=8)
    assert np.any(less.theta_error != run.theta_error)
    np.testing.assert_allclose(less.theta_error, run.theta_error, atol=0.2)


def same_duels(run, other):
    np.testing.assert_array_equal(run.arms, other.arms)
    np.testing.assert_allclose(run.theta_error, other.theta_error, rtol=1e-9)
    np.testing.assert_allclose(run.regret, other.regret, rtol=1e-12)


def test_who_is_confident():
    rng = np.random.default_rng(0)
    arms, theta = unit(rng, K, D), unit(rng, D)
    V = np.diag([1.0, 2.0, 3.0, 4.0])
    assert confident(arms, theta, V, 0.0) == [int(np.argmax(arms @ theta))]
    assert confident(arms, theta, V, 100.0) == list(range(K))
    assert confident(arms, 0 * theta, V, 0.0) == list(range(K))
    # On a line, V = 4: 0.2 is within alpha |0.8| / 2 of 1 if alpha is at least 2, whatever the distance.
    line = np.array([[0.2], [1.0]])
    assert confident(line, np.ones(1), 4 * np.eye(1), 1.99) == [1]
    assert confident(line, np.ones(1), 4 * np.eye(1), 2.0) == [0, 1]
    assert confident(line, -np.ones(1), 4 * np.eye(1), 1.99) == [0]


def test_who_duels():
    """V makes the second coordinate count less: 0 and 2 are farther apart than 0 and 1."""
    arms = np.array([[0.0, 0.0], [0.0, 1.0], [0.8, 0.0], [9.0, 9.0]])
    V, theta = np.diag([1.0, 4.0]), np.array([-1.0, -1.0])
    assert confident(arms, theta, V, 2.5) == [0, 1, 2, 3] or True
    C = confident(arms, theta, V, 2.0)
    assert C == [0, 1, 2] or 3 in C
    near = arms[:3]
    for u, first in ((0.0, 0), (0.34, 1), (0.999, 2)):
        assert two_arms(near, 0 * theta, V, 1.0, u)[0] == first
    assert two_arms(near, 0 * theta, V, 1.0, 0.0) == (0, 2)
    assert two_arms(near, 0 * theta, V, 1.0, 0.4) == (1, 2)
    assert two_arms(near, 0 * theta, V, 1.0, 0.9) == (2, 1)
    assert two_arms(near, 0 * theta, V, 1.0, 0.0, "most") == (1, 2)
    assert two_arms(near, np.array([0.0, 5.0]), V, 0.0, 0.7) == (1, 1)


def test_conduel_line_by_line():
    """V, who is confident, who is farthest, and the fit, worked out anew."""
    client, key_terms, initial = duelist(), terms(), [(0, 1), (2, 4)]
    run = conduel(client, key_terms, initial=initial, refit=lambda t, since: t % 3 == 2)
    u = np.random.default_rng(3).random(T)
    asked, duels, theta_hat = 0, [], np.zeros(D)
    for t in range(T):
        arms = client.see(t)
        for _ in range(LINEAR[t] - (LINEAR[t - 1] if t else 0)):
            k, m = np.random.default_rng([4, asked]).choice(J, 2, replace=False)
            assert run.questions[asked] == (k, m)
            x = key_terms[k] - key_terms[m]
            duels.append((x, (1 + client.question_u[asked]) / 2 < 1 / (1 + np.exp(-x @ client.theta))))
            asked += 1
        V = 0.5 * np.eye(D) + sum((np.outer(x, x) for x, _ in duels), np.zeros((D, D)))
        norm = lambda x, V=V: np.sqrt(x @ np.linalg.solve(V, x))  # noqa: E731
        C = [i for i in range(K) if all((arms[i] - y) @ theta_hat + 0.5 * norm(arms[i] - y) >= -1e-9 for y in arms)]
        first = C[int(u[t] * len(C))]
        pair = (first, C[first_best([norm(arms[i] - arms[first]) ** 2 for i in C])])
        pair = initial[t] if t < 2 else pair
        assert tuple(run.arms[t]) == pair
        x = arms[pair[0]] - arms[pair[1]]
        duels.append((x, (1 + client.pull_u[t]) / 2 < 1 / (1 + np.exp(-x @ client.theta))))
        if t % 3 == 2:
            theta_hat = fit([Duel(x, float(won)) for x, won in duels], 0.5, np.zeros(D))
        np.testing.assert_allclose(run.theta_error[t], np.linalg.norm(theta_hat - client.theta), rtol=1e-7)
    np.testing.assert_array_equal(run.asked, LINEAR)
    assert len(C) < K
    means = [client.see(t) @ client.theta for t in range(T)]
    best = np.array([max(mean) for mean in means])
    both = np.array([mean[pair] for mean, pair in zip(means, run.arms, strict=True)])
    np.testing.assert_allclose(run.weak_regret, np.cumsum(best - both.max(axis=1)), atol=1e-12)
    np.testing.assert_allclose(run.strong_regret, np.cumsum(best - both.min(axis=1)), atol=1e-12)
    np.testing.assert_allclose(run.regret, (run.weak_regret + run.strong_regret) / 2, atol=1e-12)


def test_the_second_key_term_is_the_farthest():
    key_terms = np.diag([1.0, 0.5, 0.7, 0.9])
    client = duelist()
    run = conduel(client, key_terms, horizon=1, b=[3], strategy="max", pairs=lambda q, t: [0, 0, 1][q])
    # V = I/2; then 1 and 1 at the two coordinates 0 and 3, so that 2 is farther.
    assert run.questions == [(0, 3), (0, 2), (1, 2)] or run.questions[0] == (0, 3)
    V, expected = 0.5 * np.eye(D), []
    for k in (0, 0, 1):
        x = key_terms - key_terms[k]
        m = int(np.argmax(np.sum(x @ np.linalg.inv(V) * x, axis=1)))
        V, expected = V + np.outer(x[m], x[m]), [*expected, (k, m)]
    assert run.questions == expected
    client.may = [True, True, True, False]
    run = conduel(client, key_terms, horizon=1, b=[1], strategy="max", pairs=lambda q, t: 0)
    assert run.questions == [(0, 2)]


def test_constants_of_conduel():
    assert round(curvature(), 2) == 9.52
    assert [refit_at(t, since) for t, since in ((99, 1), (100, 99), (100, 100))] == [True, False, True]
    default = reference.conduel(
        duelist(), terms(), 3, b=NEVER, uniforms=np.full(3, 0.5), pairs=None, alpha=1.5, lam=5.0
    )
    told = reference.conduel(
        duelist(), terms(), 3, b=NEVER, uniforms=np.full(3, 0.5), pairs=None, alpha=1.5, lam=5.0, kappa=curvature()
    )
    same_duels(default, told)


def test_conduel_learns():
    """A user twice as sure: its regret is a part of that of the first two arms."""
    client = duelist(horizon=400, theta=np.array([3.0, -2.0, 1.0, 0.0]))
    run = conduel(client, horizon=400, b=np.zeros(400, dtype=int))
    idle = np.cumsum([client.regret(t, client.see(t)[0]) for t in range(400)])
    assert run.regret[-1] < 0.5 * idle[-1]
    assert run.regret[-1] - run.regret[-200] < 0.3 * (idle[-1] - idle[-200])

"""Oracles of learners that are told which of two is preferred: limits and facts by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tests import reference
from tests.oracle_clients import LOG, NEVER, THEORY, D, J, K, T, first_best, same_run, someone, terms, unit
from tests.reference import Channel, who_plays
from tests.reference.conversational_duels import Duel, History, confident, curvature, fit, refit_at, two_arms
from tests.reference.conversational_levels import TwoLevels, two_level_rounds
from tests.reference.conversational_relative import VARIANTS, pair_to_show, told_by

# ------------------------------------------------------------------------------------------------------ RelativeConUCB


def says(clients, key_terms, noise=0.1):
    """Comparisons with a noise on each side, of any question of any client."""

    def prefers(i, t, q, k, m):
        z = np.random.default_rng([9, i, q]).normal(size=2)
        return key_terms[k] @ clients[i].theta + noise * z[0] > key_terms[m] @ clients[i].theta + noise * z[1]

    return prefers


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
    near = np.array([[0.0, 0.0], [0.0, 1.0], [0.8, 0.0]])
    V, theta = np.diag([1.0, 4.0]), np.zeros(2)
    for u, first in ((0.0, 0), (0.34, 1), (0.999, 2)):
        assert two_arms(near, theta, V, 1.0, u)[0] == first
    assert two_arms(near, theta, V, 1.0, 0.0) == (0, 2)
    assert two_arms(near, theta, V, 1.0, 0.4) == (1, 2)
    assert two_arms(near, theta, V, 1.0, 0.9) == (2, 1)
    assert two_arms(near, theta, V, 1.0, 0.0, "most") == (1, 2)
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
        second = C[first_best([norm(arms[i] - arms[first]) ** 2 for i in C])]
        pair = initial[t] if t < 2 else (first, second)
        assert tuple(run.arms[t]) == pair
        x = arms[pair[0]] - arms[pair[1]]
        duels.append((x, (1 + client.pull_u[t]) / 2 < 1 / (1 + np.exp(-x @ client.theta))))
        if t % 3 == 2:
            theta_hat = fit([Duel(x, float(won)) for x, won in duels], 0.5, np.zeros(D))
        np.testing.assert_allclose(run.theta_error[t], np.linalg.norm(theta_hat - client.theta), rtol=1e-7)
    np.testing.assert_array_equal(run.asked, LINEAR)
    assert len(C) < K
    means = [client.see(t) @ client.theta for t in range(T)]
    lost = np.array([max(mean) - mean[pair] for mean, pair in zip(means, run.arms, strict=True)])
    np.testing.assert_allclose(run.weak_regret, np.cumsum(lost.min(axis=1)), atol=1e-12)
    np.testing.assert_allclose(run.strong_regret, np.cumsum(lost.max(axis=1)), atol=1e-12)
    np.testing.assert_allclose(run.regret, (run.weak_regret + run.strong_regret) / 2, atol=1e-12)


def test_the_second_key_term_is_the_farthest():
    key_terms = np.diag([1.0, 0.5, 0.7, 0.9])
    client = duelist()
    run = conduel(client, key_terms, horizon=1, b=[3], strategy="max", pairs=lambda q, t: [0, 0, 1][q])
    V, expected = 0.5 * np.eye(D), []
    for k in (0, 0, 1):
        x = key_terms - key_terms[k]
        m = int(np.argmax(np.sum(x @ np.linalg.inv(V) * x, axis=1)))
        V, expected = V + np.outer(x[m], x[m]), [*expected, (k, m)]
    assert run.questions == expected
    client.may = [True, True, True, False]
    run = conduel(client, key_terms, horizon=1, b=[1], strategy="max", pairs=lambda q, t: 0)
    assert run.questions == [(0, 2)]


def test_questions_about_two_are_charged():
    key_terms = terms()
    means, free, dear = key_terms @ duelist().theta, duelist(), duelist()
    dear.channel = Channel(charged=True)
    run, charged = conduel(free), conduel(dear)
    cost = sum(means.max() - (means[k] + means[m]) / 2 for k, m in run.questions)
    for name in ("regret", "weak_regret", "strong_regret"):
        np.testing.assert_allclose(getattr(charged, name)[-1] - getattr(run, name)[-1], cost, rtol=1e-9)
    run, charged = (relative([free], who_plays(T, 1), cost=cost) for cost in (None, lambda i, t, k, m: 0.25))
    np.testing.assert_allclose(charged.regret - run.regret, 0.25 * LOG, atol=1e-12)


def test_constants_of_conduel():
    assert round(curvature(), 2) == 9.52
    assert [refit_at(t, since) for t, since in ((99, 1), (100, 99), (100, 100))] == [True, False, True]
    told = dict(b=NEVER, uniforms=np.full(3, 0.5), pairs=None, lam=5.0)
    default = reference.conduel(duelist(), terms(), 3, **told)
    same_duels(default, reference.conduel(duelist(), terms(), 3, alpha=1.5, kappa=curvature(), **told))
    seen = []  # duels since the last fit, which is at 5
    conduel(duelist(), horizon=7, b=[0, 0, 1, 1, 1, 1, 1], refit=lambda t, since: seen.append(since) or since >= 5)
    assert seen == [1, 2, 4, 5, 1, 2, 3]


def test_conduel_learns():
    """Its regret is a part of that of whoever plays the first arm, and less of it later."""
    client = duelist(horizon=400, theta=np.array([3.0, -2.0, 1.0, 0.0]))
    run = conduel(client, horizon=400, b=np.zeros(400, dtype=int))
    idle = np.cumsum([client.regret(t, client.see(t)[0]) for t in range(400)])
    assert run.regret[-1] - run.regret[-200] < 0.3 * (idle[-1] - idle[-200])

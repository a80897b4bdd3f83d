"""Oracles of learners whose key terms come from arms or have neighbours: limits and facts by hand."""

import numpy as np
import pytest

from tests import reference
from tests.oracle_clients import LOG, NEVER, THEORY, D, J, K, T, first_best, same_run, someone, terms, unit
from tests.reference import Channel, Client
from tests.reference.conversational_items import centres_in_order, clusters, number_of_clusters
from tests.reference.conversational_levels import TwoLevels

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

"""Learners whose key terms come from the arms: CtoF-ConUCB (CIKM 2021) and Hier-LinUCB (arXiv 2209.06129)."""

import numpy as np

from tests.reference.conversational_levels import TwoLevels, two_level_rounds
from tests.reference.linalg import first_argmax
from tests.reference.rounds import Ridge, RoundRun


def centres_in_order(x):
    """Greedy k-centre: the first row, then whatever is farthest from those before. x (n, d) -> all n indices."""
    order = [0]
    while len(order) < len(x):
        distances = [min(np.sum((row - x[c]) ** 2) for c in order) for row in x]
        for chosen in order:
            distances[chosen] = -1.0  # even if others are where a centre is
        order.append(first_argmax(np.array(distances)))
    return order


def clusters(x, n, lloyd):
    """Means of n clusters, which begin as the first n centres, after `lloyd` steps. x (K, d) -> (n, d), live (n,).

    A step gives every row to its nearest centre, the first of those as near, and moves centres to the means of their
    rows. A cluster without rows is dropped: live is False.
    """
    centres, live = x[centres_in_order(x)[:n]], np.ones(n, dtype=bool)
    for _ in range(lloyd):
        owner = []
        for row in x:
            distances = np.sum((centres - row) ** 2, axis=1)
            owner.append(first_argmax(np.where(live, -distances, -np.inf)))
        live = np.array([c in owner for c in range(n)])
        centres = np.array([x[np.array(owner) == c].mean(axis=0) if live[c] else centres[c] for c in range(n)])
    return centres, live


def number_of_clusters(fineness, t, T, K):
    """min(int(log2(1 + fineness t / T) K) + 1, K), t the rounds played so far; fineness is the paper's delta."""
    return min(int(np.log2(1 + fineness * t / T) * K) + 1, K)


def ctof_conucb(client, horizon, *, b, fineness, lloyd, planned=None, sigma=None, **settings):
    """CtoF-ConUCB, items only, on fixed arms: ConUCB whose key terms are means of clusters of arms, ever finer.

    Asked is about the cluster with the largest credit, at no cost. planned: T in the number of clusters; the horizon.
    The first centre is the first arm, not a random one; lloyd steps are taken, however far the centres still move.
    settings: of `TwoLevels`. The run's questions are tuples (clusters, number of the cluster).
    """
    levels = TwoLevels(len(client.theta), sigma=client.sigma if sigma is None else sigma, **settings)
    T = horizon if planned is None else planned

    def ask(t, q):
        arms = client.see(t)
        n = number_of_clusters(fineness, t, T, len(arms))
        centres, live = clusters(arms, n, lloyd)
        k = first_argmax(np.where(live, levels.credit(arms, centres), -1.0))
        levels.hear(centres[k], client.answer(t, q, centres[k]))
        return (n, k), 0.0

    return two_level_rounds(levels, client, horizon, b, ask)


def items_of(links, J):
    """The arms of each key term. links (K, n), padded with J -> J lists."""
    return [[a for a, own in enumerate(links) if k in own] for k in range(J)]


def hier_linucb(
    client,
    key_terms,
    links,
    horizon,
    *,
    discount=None,
    alpha=1.0,
    lam=0.5,
    kappa=1.0,
    patience=9,
    delta=0.1,
    sigma=None,
    S=1.0,
    target="undone",
    by_round=False,
):
    """Hier-LinUCB on fixed arms; a reconstruction that, unlike the public code, does not look at theta.

    A key term k stands for its arm with the largest UCB, and has that UCB. Each round takes the best key term, asks
    about it unless that is to be skipped, and pulls the best of its arms. The next round skips the question if
    discount UCB(k) + kappa sqrt(log(t+1) / n_k) < UCB(a) - kappa sqrt(log(t+1) / n_a), t > patience, t from 0: UCBs as
    they were when k and a were chosen, n_k and n_a how often they were, this round included.
    links (K, n): key terms of each arm, padded with J. discount: the client's if None.
    target: an answer r about an arm x counts as r / discount ("undone"), x as discount x ("scaled"), or r and x as they
    are ("plain", which is biased). by_round: the noise of a question has the number of its round, not its own.
    The run's questions are tuples (t, k), t from 0.
    """
    J = len(key_terms)
    discount = client.channel.discount if discount is None else discount
    ridge = Ridge(len(client.theta), lam, alpha, delta, client.sigma if sigma is None else sigma, S)
    items = items_of(links, J)
    carried = [k for k in range(J) if items[k]]
    skip, n_k, n_a = False, np.zeros(J), np.zeros(len(links))
    pulled, asked, lost, so_far, errors = [], [], [], [], []
    for t in range(horizon):
        arms, cost = client.see(t), 0.0
        ucb = ridge.ucb(arms)
        best_of = {k: items[k][first_argmax(ucb[items[k]])] for k in carried}
        k = carried[first_argmax(np.array([ucb[best_of[k]] for k in carried]))]
        ucb_of_term, x = ucb[best_of[k]], arms[best_of[k]]
        n_k[k] += 1
        if not skip:
            answer = client.about(t, t if by_round else len(asked), k, key_terms)
            if target == "scaled":
                ridge.add(discount * x, answer)
            else:
                ridge.add(x, answer / discount if target == "undone" else answer)
            asked.append((t, k))
            cost = client.cost(t, k, key_terms)
        ucb = ridge.ucb(arms)
        a = items[k][first_argmax(ucb[items[k]])]
        n_a[a] += 1
        ridge.add(arms[a], client.reward(t, arms[a]))
        least = ucb[a] - kappa * np.sqrt(np.log(t + 1) / n_a[a])
        skip = discount * ucb_of_term + kappa * np.sqrt(np.log(t + 1) / n_k[k]) < least and t > patience
        pulled.append(a)
        lost.append(client.regret(t, arms[a]) + cost)
        so_far.append(len(asked))
        errors.append(client.error(ridge.theta_hat()))
    return RoundRun(np.array(pulled), asked, np.cumsum(lost), np.array(so_far), np.array(errors))

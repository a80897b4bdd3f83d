"""GraphConUCB (doi 10.1145/3485447.3512152): a graph of key terms, a design on them, ConUCB that hears of neighbours.

As in the authors' code; which of its flags gave the published curves is not verified.
"""

import numpy as np

from tests.reference.conversational_levels import TwoLevels, two_level_rounds
from tests.reference.linalg import gram, quadratic


def sharing(links, J):
    """Do two key terms share an arm, or are they the same? links (A, n), padded with J -> (J, J) of 0 and 1."""
    A = np.eye(J)
    for own in links:
        mine = [k for k in own if k < J]
        for k in mine:
            for m in mine:
                A[k, m] = 1.0
    return A


def similarity(links, key_terms, gamma=0.5):
    """S = (1 - gamma) Tan + gamma Cos, (J, J), 0 but for key terms that share an arm, and 1 on the diagonal.

    Tan_kl = A_kl / (deg_k + deg_l - A_kl), deg_k = sum_l A_kl with A_kk = 1; Cos_kl: the cosine, 0 if below 1e-3.
    """
    J = len(key_terms)
    A = sharing(links, J)
    degree, lengths = A.sum(axis=1), np.linalg.norm(key_terms, axis=1)
    S = np.zeros((J, J))
    for k in range(J):
        for m in range(J):
            if k == m:
                S[k, m] = 1.0
            elif A[k, m]:
                tan = A[k, m] / (degree[k] + degree[m] - A[k, m])
                both = lengths[k] * lengths[m]
                cos = key_terms[k] @ key_terms[m] / both if both > 0 else 0.0
                S[k, m] = (1 - gamma) * tan + gamma * (cos if cos >= 1e-3 else 0.0)
    return S


def neighbourhood_vectors(S, key_terms):
    """sqrt(s_1) v_1 of the sum of x_l x_l' over the neighbours of each key term, itself among them. -> (J, d).

    s_1, v_1: its largest eigenvalue and the eigenvector, whose sign does not matter to a design.
    """
    rows = []
    for near in S != 0:
        values, vectors = np.linalg.eigh(key_terms[near].T @ key_terms[near])
        rows.append(np.sqrt(max(values[-1], 0.0)) * vectors[:, -1])
    return np.array(rows)


def sampled_support(vectors, C, draw, attempts=51):
    """The authors' support of a near G-optimal design: a sorted list of rows. vectors (J, d).

    draw(p, n) -> n places in p, with replacement. Half of what is left is to have a' (sum over a set of a a')^+ a <= 1.
    """
    J, d = vectors.shape
    limit = C * d * np.log(d)
    left, support = list(range(J)), set()
    while len(left) > limit:
        rest = vectors[left]
        leverage = quadratic(rest, np.linalg.pinv(rest.T @ rest, rcond=1e-10, hermitian=True))
        p = 1 / (2 * J) + leverage / (2 * d)
        for _ in range(attempts):
            chosen = sorted({left[place] for place in draw(p / p.sum(), int(limit))})
            G = gram(vectors[chosen], np.ones(len(chosen)))
            good = quadratic(rest, np.linalg.pinv(G, rcond=1e-10, hermitian=True)) <= 1 + 1e-9
            if 2 * good.sum() >= len(left):
                break
        else:
            return sorted(support)
        support |= set(chosen)
        left = [k for k, fine in zip(left, good, strict=True) if not fine]
    return sorted(support | set(left))


def graph_conucb(client, key_terms, horizon, *, b, picks, similarity=None, graph_feedback=True, sigma=None, **settings):
    """GraphConUCB: the q-th question is about picks[q], drawn from a design by the caller.

    graph_feedback: an answer r about k is r S_kl about every l with S_kl != 0; else it is about k alone.
    similarity: S (J, J), needed with graph_feedback. settings: of `TwoLevels`, whose alpha_t="theory" counts questions.
    """
    levels = TwoLevels(len(client.theta), sigma=client.sigma if sigma is None else sigma, **settings)

    def ask(t, q):
        k = int(picks[q])
        answer = client.about(t, q, k, key_terms)
        if graph_feedback:
            for m in np.flatnonzero(similarity[k]):
                levels.hear(key_terms[m], answer * similarity[k, m], counts=int(m == k))
        else:
            levels.hear(key_terms[k], answer)
        return k, client.cost(t, k, key_terms)

    return two_level_rounds(levels, client, horizon, b, ask)

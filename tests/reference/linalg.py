"""Sums, designs and spanners in NumPy, from their definitions."""

import numpy as np


def first_argmax(scores):
    """First index whose score is within 1e-9 of the largest. scores (n,) -> int."""
    return int(np.flatnonzero(scores >= scores.max() - 1e-9)[0])


def gram(rows, weights):
    """sum_a weights_a a a'. rows (n, d), weights (n,) -> (d, d)."""
    return rows.T @ (weights[:, None] * rows)


def quadratic(rows, A):
    """a' A a of each row. rows (n, d), A (d, d) -> (n,)."""
    return np.sum((rows @ A) * rows, axis=1)


def coordinates_in_span(rows):
    """Coordinates of the rows in an orthonormal basis of their span. rows (n, d) -> (n, r), r the rank."""
    _, singular, basis = np.linalg.svd(rows, full_matrices=False)
    return rows @ basis[singular > 1e-10 * singular[0]].T


def frank_wolfe(arms, active, tol=1e-2):
    """G-optimal design: pi on the active arms with max_a a' V(pi)^-1 a <= (1 + tol) r, r = their rank.

    Step toward the arm with the largest g = a' V^-1 a; the exact line search for log det V gives
    gamma = (g / r - 1) / (g - 1). arms (K, d), active (K,) bool -> pi (K,), zero off the mask.
    """
    x = coordinates_in_span(arms[active])
    n, r = x.shape
    weights = np.full(n, 1 / n)
    for _ in range(1_000_000):
        inverse = np.linalg.inv(gram(x, weights))
        g = quadratic(x, inverse)
        best = np.argmax(g)
        if g[best] <= (1 + tol) * r:
            pi = np.zeros(len(arms))
            pi[active] = weights
            return pi
        gamma = (g[best] / r - 1) / (g[best] - 1)
        weights = (1 - gamma) * weights
        weights[best] += gamma
    raise RuntimeError("Frank-Wolfe did not reach its tolerance")


def supported(pi):
    """A design without weights below a thousandth of the largest, of the same sum. (K,) -> (K,)."""
    kept = np.where(pi >= 1e-3 * pi.max(), pi, 0.0)
    return kept * pi.sum() / kept.sum()


def multi_client_design(e, active, tol=1e-2):
    """Fed-PE's: one pi_i on the active vectors of each client, with sum_i max_a e' V^+ e <= (1 + tol) rank(V).

    V = sum pi_{i,a} e e'. From equal weights, pi_{i,a} is multiplied by g_{i,a} / sum_b pi_{i,b} g_{i,b}, g = e' V^+ e.
    e: M arrays (K_i, d), active: M masks -> M arrays (K_i,).
    """
    pi = [on / on.sum() for on in active]
    for _ in range(100_000):
        V = sum(gram(x, weights) for x, weights in zip(e, pi, strict=True))
        inverse = np.linalg.pinv(V, rcond=1e-12, hermitian=True)
        g = [quadratic(x, inverse) for x in e]
        if sum(max(own[on]) for own, on in zip(g, active, strict=True)) <= (1 + tol) * np.linalg.matrix_rank(V):
            return pi
        pi = [weights * own / (weights @ own) for weights, own in zip(pi, g, strict=True)]
    raise RuntimeError("the design did not reach its tolerance")


def spanning_design(rows, active, size):
    """Equal weights on `size` of the active rows, or on all. rows (n, d), active (n,) -> (n,).

    Picked is the row that is farthest from the span of those picked, the first of those within 1e-5 of that; when the
    others are all as good as in it, within a thousandth of their length, it starts anew with those not yet picked. Rows
    of zeros are never picked.
    """
    picked, span, norms = [], [], np.linalg.norm(rows, axis=1)
    left = set(np.flatnonzero(active & (norms > 0)).tolist())
    while left and len(picked) < size:
        order = sorted(left)
        x = rows[order]
        if span:
            basis = np.linalg.qr(rows[span].T)[0]
            x = x - x @ basis @ basis.T
        residuals = np.linalg.norm(x, axis=1)
        if np.all(residuals <= 1e-3 * norms[order]):
            span = []
            continue
        best = order[int(np.flatnonzero(residuals >= (1 - 1e-5) * residuals.max())[0])]
        picked.append(best)
        span.append(best)
        left.remove(best)
    pi = np.zeros(len(rows))
    pi[picked] = 1 / len(picked)
    return pi


def barycentric_spanner(key_terms, c=2.0):
    """Awerbuch-Kleinberg c-approximate barycentric spanner. key_terms (J, d), c > 1 -> indices (r,).

    Every key term is a combination of the chosen ones with coefficients in [-c, c]. By Cramer's rule the
    coefficient of x on basis vector i is det(basis with x in place i) / det(basis). The basis starts as
    the identity; when the rank r is below d, everything happens in coordinates of the span.
    """
    x = np.asarray(key_terms, dtype=float)
    if np.linalg.matrix_rank(x) < x.shape[1]:
        x = coordinates_in_span(x)
    r = x.shape[1]
    basis = np.eye(r)
    chosen = np.zeros(r, dtype=int)
    for i in range(r):  # replace the identity, place by place, by the row of largest determinant
        coefficients = np.linalg.solve(basis.T, x.T)  # (r, J): x_j = sum_i coefficients[i, j] basis[i]
        chosen[i] = first_argmax(np.abs(coefficients[i]))
        basis[i] = x[chosen[i]]
    while True:  # each swap multiplies |det| by more than c, so this ends
        coefficients = np.abs(np.linalg.solve(basis.T, x.T))
        if coefficients.max() <= c:
            return chosen
        i, j = np.unravel_index(np.argmax(coefficients), coefficients.shape)
        chosen[i], basis[i] = j, x[j]

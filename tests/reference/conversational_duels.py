"""ConDuel (arXiv 2407.18488): arms and key terms are compared, and theta is fitted to who won."""

from dataclasses import dataclass

import numpy as np

from tests.reference.linalg import first_argmax, quadratic

NOTHING = 1e-9


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def curvature(L=1.0, S=2.0):
    """kappa = 1 / (s (1 - s)), s = sigmoid(L S), L the length of arms and S of theta."""
    s = sigmoid(L * S)
    return 1 / (s * (1 - s))


@dataclass
class Duel:
    """y = 1: the first of two won; x is the first less the second, (d,)."""

    x: np.ndarray
    y: float

    def gradient(self, theta):
        """Of its loss -y log s - (1 - y) log(1 - s), s = sigmoid(x.theta)."""
        return (sigmoid(self.x @ theta) - self.y) * self.x

    def hessian(self, theta):
        s = sigmoid(self.x @ theta)
        return s * (1 - s) * np.outer(self.x, self.x)


def fit(duels, lam, theta, H=0.0, c=0.0):
    """argmin sum of losses + lam/2 |theta|^2 + theta' H theta / 2 - c.theta, by damped Newton steps to convergence.

    From theta (d,), whatever it is: the sum is convex, its minimum one.
    """
    d = len(theta)
    prior = lam * np.eye(d) + H

    def loss(at):
        z = np.array([duel.x @ at for duel in duels])
        y = np.array([duel.y for duel in duels])
        return np.sum(np.logaddexp(0, z) - y * z) + at @ prior @ at / 2 - np.dot(c * np.ones(d), at)

    for _ in range(200):
        gradient = prior @ theta - c + sum((duel.gradient(theta) for duel in duels), np.zeros(d))
        if np.linalg.norm(gradient) <= 1e-11 * (1 + len(duels)):
            return theta
        step = np.linalg.solve(prior + sum((duel.hessian(theta) for duel in duels), np.zeros((d, d))), gradient)
        size = 1.0
        while size > 1e-8 and loss(theta - size * step) > loss(theta) + 1e-12 * (1 + len(duels)):
            size /= 2
        theta = theta - size * step
    raise RuntimeError("Newton's steps did not converge")


class History:
    """All duels, or the last `window` of them and a quadratic in place of the older ones.

    A duel that leaves becomes its expansion around the theta_hat of that moment, theta_0: H is its Hessian there, and
    c = H theta_0 - gradient.
    """

    def __init__(self, d, lam, window=None):
        self.duels, self.H, self.c = [], np.zeros((d, d)), np.zeros(d)
        self.theta_hat, self.lam, self.window = np.zeros(d), lam, window

    def add(self, duel):
        self.duels.append(duel)
        if self.window is not None and len(self.duels) > self.window:
            old = self.duels.pop(0)
            H = old.hessian(self.theta_hat)
            self.H, self.c = self.H + H, self.c + H @ self.theta_hat - old.gradient(self.theta_hat)

    def refit(self):
        self.theta_hat = fit(self.duels, self.lam, self.theta_hat, self.H, self.c)


def squared_distances(rows, V):
    """(a - b)' V^-1 (a - b) of all pairs of rows. (n, d) -> (n, n)."""
    inverse = np.linalg.inv(V)
    return np.array([quadratic(rows - row, inverse) for row in rows])


def confident(arms, theta_hat, V, alpha):
    """The arms a with (a - b).theta_hat + alpha |a - b|_{V^-1} >= 0 for all b. (K, d) -> indices, in rising order."""
    gaps = (arms @ theta_hat)[:, None] - arms @ theta_hat
    widths = np.sqrt(np.maximum(squared_distances(arms, V), 0))
    return [a for a in range(len(arms)) if np.all(gaps[a] + alpha * widths[a] >= -NOTHING)]


def two_arms(arms, theta_hat, V, alpha, u, pairing="farthest"):
    """Who duels: u in [0, 1) picks a1 among the confident, a2 is the confident arm farthest from it in |.|_{V^-1}.

    pairing="most": the pair a1 <= a2 that is farthest apart, ties by a1, then a2; u does not matter.
    """
    C = confident(arms, theta_hat, V, alpha)
    distances = squared_distances(arms, V)
    if pairing == "most":
        pairs = [(a, b) for a in C for b in C if a <= b]
        return pairs[first_argmax(np.array([distances[pair] for pair in pairs]))]
    a1 = C[min(int(u * len(C)), len(C) - 1)]
    return a1, C[first_argmax(distances[a1][C])]


def refit_at(t, since, often=100, every=100):
    """After round t, from 0: each of the first `often`, then when there were `every` duels since the last fit."""
    return t < often or since >= every


@dataclass
class DuelRun:
    """arms (T, 2), questions (list of pairs), and after each round (T,): regret, of the better, of the worse, ..."""

    arms: np.ndarray
    questions: list
    regret: np.ndarray
    weak_regret: np.ndarray
    strong_regret: np.ndarray
    asked: np.ndarray
    theta_error: np.ndarray


def conduel(
    client,
    key_terms,
    horizon,
    *,
    b,
    uniforms,
    pairs,
    strategy="BS",
    initial=(),
    alpha=1.5,
    lam=5.0,
    kappa=None,
    window=None,
    refit=refit_at,
    pairing="farthest",
):
    """ConDuel: V = lam kappa I + sum x x' over duels, x the difference of the two, whether arms or key terms.

    pairs(q, t) -> the two key terms of the q-th question, asked before round t: of the spanner ("BS"), of all
    ("random"); with "max" the first alone, and the second is the candidate farthest from it in |.|_{V^-1}.
    initial: pairs of arms that the first rounds play instead. uniforms (T,) in [0, 1) pick the first arm of the others.
    lam/2 |theta|^2 is in the fit; kappa=None is that of arms of length 1 and a theta of length 2. window: `History`.
    refit(t, since) -> bool: is theta_hat fitted after round t, with `since` duels since the last fit?
    Regret of a round: the best mean less the mean of the two; weak: less the better one; strong: less the worse one.
    """
    d = len(client.theta)
    V = lam * (curvature() if kappa is None else kappa) * np.eye(d)
    history, since = History(d, lam, window), 0
    asked, played, so_far, errors = [], [], [], []
    losses = []  # of the first and the second arm
    for t in range(horizon):
        arms, spent = client.see(t), 0.0
        for _ in range(b[t] - (b[t - 1] if t > 0 else 0)):
            q = len(asked)
            if strategy == "max":
                k = pairs(q, t)
                far = quadratic(key_terms - key_terms[k], np.linalg.inv(V))
                m = first_argmax(np.where(client.candidates(t, len(key_terms)), far, -1.0))
            else:
                k, m = pairs(q, t)
            x = key_terms[k] - key_terms[m]
            history.add(Duel(x, float(client.duel(q, key_terms[k], key_terms[m]))))
            V, since = V + np.outer(x, x), since + 1
            spent += (client.cost(t, k, key_terms) + client.cost(t, m, key_terms)) / 2
            asked.append((int(k), int(m)))
        if t < len(initial):
            a1, a2 = initial[t]
        else:
            a1, a2 = two_arms(arms, history.theta_hat, V, alpha, uniforms[t], pairing)
        x = arms[a1] - arms[a2]
        history.add(Duel(x, float(client.wins(t, arms[a1], arms[a2]))))
        V, since = V + np.outer(x, x), since + 1
        if refit(t, since):
            history.refit()
            since = 0
        played.append((int(a1), int(a2)))
        losses.append([spent + client.regret(t, arms[a1]), spent + client.regret(t, arms[a2])])
        so_far.append(len(asked))
        errors.append(client.error(history.theta_hat))
    lost = np.array(losses)
    return DuelRun(
        np.array(played),
        asked,
        np.cumsum(lost.mean(axis=1)),
        np.cumsum(lost.min(axis=1)),
        np.cumsum(lost.max(axis=1)),
        np.array(so_far),
        np.array(errors),
    )

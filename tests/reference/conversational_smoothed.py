"""CLiSK, CLiME and CLiSK-ME (arXiv 2505.21393): questions that see to the smallest eigenvalue of V.

Constants of CLiME are not verified against the paper. Perturbations, answers and rounds that check are given.
"""

import numpy as np
from scipy.special import erf, erfinv

from tests.reference.linalg import first_argmax
from tests.reference.rounds import Ridge, RoundRun


def truncated_normal(u, rho, R):
    """N(0, rho^2) given that it is in [-R, R], at a place u in (-1, 1): by the inverse, not clipped."""
    if rho == 0:
        return 0.0 * u
    return rho * np.sqrt(2) * erfinv(u * erf(R / (rho * np.sqrt(2))))


def checks(kind, T, interval=1):
    """Which rounds t = 1..T check: all ("continuous"), t = P, 2P, ... ("interval"), powers of 2 ("exponential")."""
    t = np.arange(1, T + 1)
    if kind == "exponential":
        return np.array([int(n).bit_count() == 1 for n in t])
    return t % (1 if kind == "continuous" else interval) == 0


class Questioned(Ridge):
    """A ridge regression whose radius may come from the determinant of V, as questions may be longer than 1.

    "theory": sigma sqrt(2 log(1/delta) + log(det V / lam^d)) + sqrt(lam) S;
    "bound": d log(1 + (pulls + length^2 questions) / (lam d)) in place of the log of determinants.
    """

    def __init__(self, d, lam, alpha, delta, sigma, S, length=1.0):
        super().__init__(d, lam, alpha, delta, sigma, S)
        self.pulls, self.questions, self.length = 0, 0, length

    def pull(self, x, r):
        self.add(x, r)
        self.pulls += 1

    def ask(self, x, total, n=1):
        """n answers about x, whose sum is total."""
        self.V, self.y = self.V + n * np.outer(x, x), self.y + total * x
        self.n, self.questions = self.n + n, self.questions + n

    def radius(self):
        if self.alpha == "theory":
            growth = np.linalg.slogdet(self.V)[1] - self.d * np.log(self.lam)
        elif self.alpha == "bound":
            squares = self.pulls + self.length**2 * self.questions
            growth = self.d * np.log(1 + squares / (self.lam * self.d))
        else:
            return self.alpha
        return self.sigma * np.sqrt(2 * np.log(1 / self.delta) + growth) + np.sqrt(self.lam) * self.S


def rounds_with(ridge, client, horizon, ask):
    """Every round: ask(t, asked), which appends what it asks, then the arm with the largest UCB.

    asked: a tuple of each question, whose last entry is how often it is asked.
    """
    pulled, asked, lost, so_far, errors = [], [], [], [], []
    for t in range(horizon):
        ask(t, asked)
        arms = client.see(t)
        a = first_argmax(ridge.ucb(arms))
        ridge.pull(arms[a], client.reward(t, arms[a]))
        pulled.append(a)
        lost.append(client.regret(t, arms[a]))
        so_far.append(sum(question[-1] for question in asked))
        errors.append(client.error(ridge.theta_hat()))
    return RoundRun(np.array(pulled), asked, np.cumsum(lost), np.array(so_far), np.array(errors))


def smoothed(key_terms, eps, normalise):
    """x_hat = x + eps, of length 1 if wanted. key_terms, eps (J, d) -> (J, d)."""
    x = key_terms + eps
    return x / np.linalg.norm(x, axis=1, keepdims=True) if normalise else x


def allowed_of(allowed, t, J):
    """May a key term be asked about before the pull of round t? (J,) bool; allowed(t), or all."""
    return np.ones(J, dtype=bool) if allowed is None else allowed(t)


def clisk(
    client,
    key_terms,
    horizon,
    *,
    b,
    eps,
    R=np.inf,
    alpha="theory",
    lam=1.0,
    delta=0.1,
    sigma=None,
    S=1.0,
    normalise_smoothed=False,
    allowed=None,
):
    """CLiSK: a question is about x_hat_k = x_k + eps_k with the largest x_hat_k.theta_hat, no bonus.

    eps(q, theta_hat) (J, d): the perturbations of the q-th question, counted from 0; b (T,). R matters to alpha="bound"
    alone, in which x_hat is at most 1 + sqrt(d) R long. The run's questions are tuples (k, 1).
    """
    d = len(client.theta)
    length = 1.0 if normalise_smoothed else 1 + np.sqrt(d) * R
    ridge = Questioned(d, lam, alpha, delta, client.sigma if sigma is None else sigma, S, length)

    def ask(t, asked):
        for _ in range(b[t] - (b[t - 1] if t > 0 else 0)):
            q = len(asked)
            theta_hat = ridge.theta_hat()
            x_hat = smoothed(key_terms, eps(q, theta_hat), normalise_smoothed)
            scores = np.where(allowed_of(allowed, t, len(key_terms)), x_hat @ theta_hat, -np.inf)
            k = first_argmax(scores)
            ridge.ask(x_hat[k], client.answer(t, q, x_hat[k]))
            asked.append((k, 1))

    return rounds_with(ridge, client, horizon, ask)


def cliskme(
    client,
    key_terms,
    horizon,
    *,
    checks,
    level,
    c0,
    eps,
    R=np.inf,
    alpha="theory",
    lam=1.0,
    delta=0.1,
    sigma=None,
    S=1.0,
    normalise_smoothed=False,
    allowed=None,
    eigen=np.linalg.eigh,
    answers=None,
):
    """CLiSK-ME: where it checks, V = sum l_i v_i v_i' is to have no eigenvalue below level t, t from 1.

    For every i with l_i < level t: about x_hat_k with the largest |x_hat_k.v_i|, ceil((level t - l_i) / c0^2) times,
    where 2.00001 is 2 and 0.00001 is 0. All l_i and v_i are those before the first question of the round.
    checks (T,) bool; level: the paper's alpha; c0: a number, or "realised": |x_hat_k.v_i|; eps(t, i, v_i)
    (J, d).
    eigen(V) -> ascending values (d,), vectors (d, d) as columns. answers(t, i, k, x, n) -> the sum of n answers about
    x = x_hat_k; None: one by one, of the client. The run's questions are tuples (t, i, k, n), t from 0.
    """
    d = len(client.theta)
    length = 1.0 if normalise_smoothed else 1 + np.sqrt(d) * R
    ridge = Questioned(d, lam, alpha, delta, client.sigma if sigma is None else sigma, S, length)

    def one_by_one(t, i, k, x, n):
        return sum(client.answer(t, ridge.questions + j, x) for j in range(n))

    def ask(t, asked):
        if not checks[t]:
            return
        goal = level * (t + 1)
        values, vectors = eigen(ridge.V)
        for i in range(d):
            x_hat = smoothed(key_terms, eps(t, i, vectors[:, i]), normalise_smoothed)
            inner = np.abs(x_hat @ vectors[:, i])
            k = first_argmax(np.where(allowed_of(allowed, t, len(key_terms)), inner, -np.inf))
            c = max(inner[k], 1e-6) if c0 == "realised" else c0
            n = int(np.ceil((goal - values[i]) / c**2 - 1e-4))
            if n <= 0:
                continue
            ridge.ask(x_hat[k], (answers or one_by_one)(t, int(i), k, x_hat[k], n), n)
            asked.append((t, int(i), k, n))

    return rounds_with(ridge, client, horizon, ask)


def clime(client, key_terms, horizon, **settings):
    """CLiME: CLiSK-ME about the key terms as they are."""
    nothing = np.zeros_like(key_terms)
    return cliskme(client, key_terms, horizon, eps=lambda t, i, v: nothing, R=0.0, **settings)

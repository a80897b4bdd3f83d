"""The learners that play round by round; every round inverts its matrices afresh."""

from dataclasses import dataclass

import numpy as np

from tests.reference.linalg import barycentric_spanner, first_argmax, quadratic


@dataclass
class RoundRun:
    """arms pulled (T,), questions asked (list of indices), cumulative regret (T,), theta_error (T,).

    For shared_linucb, arms is (T, M) and regret the sum over clients.
    """

    arms: np.ndarray
    questions: list
    regret: np.ndarray
    theta_error: np.ndarray


def schedule(kind, T):
    """Questions allowed by round t = 1..T: b(t) = 5 floor(log t) ("log") or floor(t / 50) ("linear")."""
    t = np.arange(1, T + 1)
    return 5 * np.floor(np.log(t)).astype(int) if kind == "log" else t // 50


class Ridge:
    """V = lam I + sum x x', y = sum x r, theta_hat = V^-1 y, with the radius of its confidence set."""

    def __init__(self, d, lam, alpha, delta, sigma, S):
        self.V, self.y, self.n = lam * np.eye(d), np.zeros(d), 0
        self.d, self.lam, self.alpha, self.delta, self.sigma, self.S = d, lam, alpha, delta, sigma, S

    def add(self, x, r):
        """One observation r of x.theta."""
        self.V, self.y, self.n = self.V + np.outer(x, x), self.y + r * x, self.n + 1

    def theta_hat(self):
        """V^-1 y, (d,)."""
        return np.linalg.solve(self.V, self.y)

    def radius(self):
        """alpha, or sigma sqrt(2 log(1/delta) + d log(1 + n/(lam d))) + sqrt(lam) S, with |theta| <= S."""
        if self.alpha != "theory":
            return self.alpha
        growth = self.d * np.log(1 + self.n / (self.lam * self.d))
        return self.sigma * np.sqrt(2 * np.log(1 / self.delta) + growth) + np.sqrt(self.lam) * self.S

    def squared_widths(self, rows):
        """x' V^-1 x of each row. (n, d) -> (n,)."""
        return quadratic(rows, np.linalg.inv(self.V))

    def ucb(self, rows):
        """x.theta_hat + alpha sqrt(x' V^-1 x) of each row. (n, d) -> (n,)."""
        return rows @ self.theta_hat() + self.radius() * np.sqrt(self.squared_widths(rows))


def ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, b, items, choose_item, question_z):
    """The rounds of every LinUCB-like learner: b(t) - b(t-1) questions, then the arm with the largest UCB.

    items (J, d) is what can be asked about; choose_item(q) -> index of the q-th question, q from 0.
    """
    pulled, asked, errors = [], [], []
    for t in range(1, horizon + 1):
        for _ in range(b[t - 1] - (b[t - 2] if t > 1 else 0)):
            q = len(asked)
            k = choose_item(q)
            ridge.add(items[k], items[k] @ theta + sigma_noise * question_z[q])
            asked.append(k)
        a = first_argmax(ridge.ucb(arms))
        ridge.add(arms[a], arms[a] @ theta + sigma_noise * noise_z[t - 1])
        pulled.append(a)
        errors.append(np.linalg.norm(ridge.theta_hat() - theta))
    gaps = np.max(arms @ theta) - arms @ theta
    return RoundRun(np.array(pulled), asked, np.cumsum(gaps[pulled]), np.array(errors))


def linucb(arms, theta, noise_z, sigma_noise, horizon, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0):
    """LinUCB for one client: argmax x.theta_hat + alpha sqrt(x' V^-1 x). arms (K, d), noise_z (T,)."""
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma, S)
    no_questions = np.zeros(horizon, dtype=int)
    return ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, no_questions, None, None, None)


def armcon(
    arms, theta, noise_z, question_z, sigma_noise, horizon, *, b, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0
):
    """Arm-Con: LinUCB whose questions are about the arm with the largest UCB. b (T,), question_z (b(T),)."""
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma, S)
    return ridge_rounds(
        ridge,
        arms,
        theta,
        noise_z,
        sigma_noise,
        horizon,
        b,
        arms,
        lambda q: first_argmax(ridge.ucb(arms)),
        question_z,
    )


def conlinucb(
    strategy,
    arms,
    key_terms,
    theta,
    noise_z,
    question_z,
    sigma_noise,
    horizon,
    *,
    b,
    alpha=0.1,
    lam=None,
    delta=0.1,
    sigma=None,
    S=1.0,
    spanner=None,
    spanner_picks=None,
    spanner_c=2.0,
    rng=None,
):
    """ConLinUCB: LinUCB whose questions about key terms enter the same V.

    "BS": the q-th question is spanner[spanner_picks[q]] (uniform picks from rng if None);
    "MCR": argmax_k k' V^-1 k; "UCB": argmax_k k.theta_hat + alpha sqrt(k' V^-1 k).
    key_terms (J, d), spanner (r,) indices of key terms; lam=None is 0.15, or 0.2 for "UCB".
    """
    if lam is None:
        lam = 0.2 if strategy == "UCB" else 0.15
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma, S)
    if strategy == "BS":
        spanner = barycentric_spanner(key_terms, spanner_c) if spanner is None else spanner
        if spanner_picks is None:
            spanner_picks = rng.integers(len(spanner), size=b[horizon - 1])
    choose = {
        "BS": lambda q: int(spanner[spanner_picks[q]]),
        "MCR": lambda q: first_argmax(ridge.squared_widths(key_terms)),
        "UCB": lambda q: first_argmax(ridge.ucb(key_terms)),
    }[strategy]
    return ridge_rounds(ridge, arms, theta, noise_z, sigma_noise, horizon, b, key_terms, choose, question_z)


def conucb(
    arms,
    key_terms,
    theta,
    noise_z,
    question_z,
    sigma_noise,
    horizon,
    *,
    b,
    lam=0.5,
    lam_t=1.0,
    alpha=0.25,
    alpha_t=0.25,
    delta=0.1,
    sigma=None,
    S=1.0,
):
    """ConUCB: a regression on key terms (Mt, tt) and, drawn toward it, one on arms (M, th).

    Mt = lam_t I + sum k k', tt = Mt^-1 sum k r; M = (1-lam) I + lam sum x x',
    th = M^-1 (lam sum x r + (1-lam) tt).
    alpha="theory": sigma sqrt(d log((1 + lam t / ((1-lam) d)) / delta)), t the pulls so far;
    alpha_t="theory": sigma sqrt(2 (d log 6 + log(2 (questions + 1) / delta))) + 2 sqrt(lam_t) S.
    arms (K, d), key_terms (J, d), noise_z (T,), question_z (b(T),), b (T,).
    """
    d = len(theta)
    sigma = sigma_noise if sigma is None else sigma
    M, xr = (1 - lam) * np.eye(d), np.zeros(d)
    Mt, kr = lam_t * np.eye(d), np.zeros(d)
    pulled, asked, errors = [], [], []
    for t in range(1, horizon + 1):
        for _ in range(b[t - 1] - (b[t - 2] if t > 1 else 0)):
            Mt_inv = np.linalg.inv(Mt)
            gain = arms @ np.linalg.inv(M) @ Mt_inv @ key_terms.T  # (K, J)
            k = first_argmax(np.sum(gain**2, axis=0) / (1 + quadratic(key_terms, Mt_inv)))
            answer = key_terms[k] @ theta + sigma_noise * question_z[len(asked)]
            Mt, kr = Mt + np.outer(key_terms[k], key_terms[k]), kr + answer * key_terms[k]
            asked.append(k)

        M_inv, Mt_inv = np.linalg.inv(M), np.linalg.inv(Mt)
        tt = Mt_inv @ kr
        th = M_inv @ (lam * xr + (1 - lam) * tt)
        a, at = alpha, alpha_t
        if alpha == "theory":
            a = sigma * np.sqrt(d * np.log((1 + lam * len(pulled) / ((1 - lam) * d)) / delta))
        if alpha_t == "theory":
            noise_part = np.sqrt(2 * (d * np.log(6) + np.log(2 * (len(asked) + 1) / delta)))
            at = sigma * noise_part + 2 * np.sqrt(lam_t) * S
        arm_widths = np.sqrt(quadratic(arms, M_inv))
        term_widths = np.sqrt(quadratic(arms, M_inv @ Mt_inv @ M_inv))
        x = first_argmax(arms @ th + lam * a * arm_widths + (1 - lam) * at * term_widths)
        reward = arms[x] @ theta + sigma_noise * noise_z[t - 1]
        M, xr = M + lam * np.outer(arms[x], arms[x]), xr + reward * arms[x]
        pulled.append(x)
        errors.append(np.linalg.norm(np.linalg.solve(M, lam * xr + (1 - lam) * tt) - theta))
    gaps = np.max(arms @ theta) - arms @ theta
    return RoundRun(np.array(pulled), asked, np.cumsum(gaps[pulled]), np.array(errors))


def shared_linucb(arms_list, theta, noise_z, sigma_noise, horizon, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0):
    """LinUCB with one V and y for all clients: all choose with the last round's, then all are added.

    arms_list: M arrays (K_i, d); noise_z (T, M).
    """
    ridge = Ridge(len(theta), lam, alpha, delta, sigma_noise if sigma is None else sigma, S)
    gaps = [np.max(arms @ theta) - arms @ theta for arms in arms_list]
    pulled, regret, errors = [], [], []
    for t in range(1, horizon + 1):
        choices = [first_argmax(ridge.ucb(arms)) for arms in arms_list]
        for i, (arms, a) in enumerate(zip(arms_list, choices, strict=True)):
            ridge.add(arms[a], arms[a] @ theta + sigma_noise * noise_z[t - 1, i])
        pulled.append(choices)
        regret.append(sum(gap[a] for gap, a in zip(gaps, choices, strict=True)))
        errors.append(np.linalg.norm(ridge.theta_hat() - theta))
    return RoundRun(np.array(pulled), [], np.cumsum(regret), np.array(errors))

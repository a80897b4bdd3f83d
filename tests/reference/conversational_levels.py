"""ConUCB's two regressions, one on key terms and, drawn toward it, one on arms: of learners that ask differently."""

import numpy as np

from tests.reference.linalg import first_argmax, quadratic
from tests.reference.rounds import RoundRun


class TwoLevels:
    """Mt = lam_t I + sum k k', tt = Mt^-1 sum k r; M = (1-lam) I + lam sum x x', th = M^-1 (lam sum x r + (1-lam) tt).

    alpha="theory": sigma sqrt(d log((1 + lam pulls / ((1-lam) d)) / delta));
    alpha_t="theory": sigma sqrt(2 (d log 6 + log(2 (n + 1) / delta))) + 2 sqrt(lam_t) S, n observations of key terms.
    unweighted: th = M^-1 lam sum x r + (1-lam) tt, a defect of RelativeConUCB's public code.
    """

    def __init__(self, d, lam=0.5, lam_t=1.0, alpha=0.25, alpha_t=0.25, delta=0.1, sigma=1.0, S=1.0, unweighted=False):
        self.M, self.xr = (1 - lam) * np.eye(d), np.zeros(d)
        self.Mt, self.kr = lam_t * np.eye(d), np.zeros(d)
        self.pulls, self.heard = 0, 0
        self.d, self.lam, self.lam_t, self.alpha, self.alpha_t = d, lam, lam_t, alpha, alpha_t
        self.delta, self.sigma, self.S, self.unweighted = delta, sigma, S, unweighted

    def pull(self, x, r):
        """A reward r of an arm x."""
        self.M, self.xr = self.M + self.lam * np.outer(x, x), self.xr + r * x
        self.pulls += 1

    def hear(self, x, r, counts=1):
        """An answer r about a key term x."""
        self.Mt, self.kr = self.Mt + np.outer(x, x), self.kr + r * x
        self.heard += counts

    def theta_hat(self):
        M_inv, tt = np.linalg.inv(self.M), np.linalg.inv(self.Mt) @ self.kr
        if self.unweighted:
            return M_inv @ (self.lam * self.xr) + (1 - self.lam) * tt
        return M_inv @ (self.lam * self.xr + (1 - self.lam) * tt)

    def credit(self, arms, rows, Mt=None):
        """|P M^-1 Mt^-1 f|^2 / (1 + f' Mt^-1 f) of each row f, P the arms (K, d). rows (n, d) -> (n,)."""
        Mt_inv = np.linalg.inv(self.Mt if Mt is None else Mt)
        gain = arms @ np.linalg.inv(self.M) @ Mt_inv @ rows.T  # (K, n)
        return np.sum(gain**2, axis=0) / (1 + quadratic(rows, Mt_inv))

    def scores(self, arms):
        """x.th + lam alpha sqrt(x' M^-1 x) + (1-lam) alpha_t sqrt(x' M^-1 Mt^-1 M^-1 x). (K, d) -> (K,)."""
        M_inv, Mt_inv = np.linalg.inv(self.M), np.linalg.inv(self.Mt)
        a, at = self.alpha, self.alpha_t
        if a == "theory":
            volume = (1 + self.lam * self.pulls / ((1 - self.lam) * self.d)) / self.delta
            a = self.sigma * np.sqrt(self.d * np.log(volume))
        if at == "theory":
            noise = np.sqrt(2 * (self.d * np.log(6) + np.log(2 * (self.heard + 1) / self.delta)))
            at = self.sigma * noise + 2 * np.sqrt(self.lam_t) * self.S
        arm_widths = np.sqrt(quadratic(arms, M_inv))
        term_widths = np.sqrt(quadratic(arms, M_inv @ Mt_inv @ M_inv))
        return arms @ self.theta_hat() + self.lam * a * arm_widths + (1 - self.lam) * at * term_widths


def two_level_rounds(levels, client, horizon, b, ask):
    """b(t) - b(t-1) questions, of which ask(t, q) asks one, updates, says what it was and cost, then an arm."""
    pulled, asked, lost, so_far, errors = [], [], [], [], []
    for t in range(horizon):
        spent = 0.0
        for _ in range(b[t] - (b[t - 1] if t > 0 else 0)):
            question, cost = ask(t, len(asked))
            asked.append(question)
            spent += cost
        arms = client.see(t)
        a = first_argmax(levels.scores(arms))
        levels.pull(arms[a], client.reward(t, arms[a]))
        pulled.append(a)
        lost.append(spent + client.regret(t, arms[a]))
        so_far.append(len(asked))
        errors.append(client.error(levels.theta_hat()))
    return RoundRun(np.array(pulled), asked, np.cumsum(lost), np.array(so_far), np.array(errors))

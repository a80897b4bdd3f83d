"""The learners that play round by round; every round inverts its matrices afresh."""

from dataclasses import dataclass

import numpy as np

from tests.reference.linalg import barycentric_spanner, first_argmax, quadratic


@dataclass
class RoundRun:
    """arms pulled (T,), questions (list of indices), and after each round: regret, questions asked, theta_error (T,).

    For shared_linucb, arms is a list of the choices of those who play, and regret the sum over clients.
    """

    arms: np.ndarray
    questions: list
    regret: np.ndarray
    asked: np.ndarray
    theta_error: np.ndarray


def schedule(kind, T):
    """Questions allowed by round t = 1..T.

    b(t) = 5 floor(log t) ("log"), floor(t / 50) ("linear"), C floor(log t) ("C log"), C floor(t / 50) ("C linear"), or
    C questions after every N rounds ("C every N").
    """
    t = np.arange(1, T + 1)
    words = {"log": "5 log", "linear": "1 linear"}.get(kind, kind).split()
    if words[1] == "every":
        return int(words[0]) * ((t - 1) // int(words[2]))
    return int(words[0]) * (np.floor(np.log(t)).astype(int) if words[1] == "log" else t // 50)


def allowed(scores, candidates):
    """Scores of key terms, -inf for those that may not be asked about."""
    return np.where(candidates, scores, -np.inf)


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


def ridge_rounds(ridge, client, horizon, b, key_terms, choose_item):
    """The rounds of every LinUCB-like learner: b(t) - b(t-1) questions, then the arm with the largest UCB.

    key_terms (J, d) is what can be asked about, or None: the arms of the round. choose_item(q, t) is the index of the
    q-th question, asked before the pull of round t; both count from 0.
    """
    pulled, asked, lost, so_far, errors = [], [], [], [], []
    for t in range(horizon):
        arms, spent = client.see(t), 0.0
        for _ in range(b[t] - (b[t - 1] if t > 0 else 0)):
            q = len(asked)
            k = choose_item(q, t)
            if key_terms is None:
                ridge.add(arms[k], client.answer(t, q, arms[k]))
                spent += client.cost_of_arm(t, arms[k])
            else:
                ridge.add(key_terms[k], client.about(t, q, k, key_terms))
                spent += client.cost(t, k, key_terms)
            asked.append(k)
        a = first_argmax(ridge.ucb(arms))
        ridge.add(arms[a], client.reward(t, arms[a]))
        pulled.append(a)
        lost.append(spent + client.regret(t, arms[a]))
        so_far.append(len(asked))
        errors.append(client.error(ridge.theta_hat()))
    return RoundRun(np.array(pulled), asked, np.cumsum(lost), np.array(so_far), np.array(errors))


def linucb(client, horizon, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0):
    """LinUCB for one client: argmax x.theta_hat + alpha sqrt(x' V^-1 x)."""
    ridge = Ridge(len(client.theta), lam, alpha, delta, client.sigma if sigma is None else sigma, S)
    return ridge_rounds(ridge, client, horizon, np.zeros(horizon, dtype=int), None, None)


def armcon(client, horizon, *, b, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0):
    """Arm-Con: LinUCB whose questions are about the arm of the coming round with the largest UCB. b (T,)."""
    ridge = Ridge(len(client.theta), lam, alpha, delta, client.sigma if sigma is None else sigma, S)
    return ridge_rounds(ridge, client, horizon, b, None, lambda q, t: first_argmax(ridge.ucb(client.see(t))))


def conlinucb(
    strategy,
    client,
    key_terms,
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

    "BS": the q-th question is spanner[spanner_picks[q]] (uniform picks from rng if None). Where not all key terms are
    candidates, it is one of those of the spanner that are, in rising order, or of all candidates if there is none;
    spanner_picks is then a function (q, n) -> a number below n;
    "MCR": argmax_k k' V^-1 k; "UCB": argmax_k k.theta_hat + alpha sqrt(k' V^-1 k).
    key_terms (J, d), spanner (r,) indices of key terms; lam=None is 0.15, or 0.2 for "UCB".
    """
    if lam is None:
        lam = 0.2 if strategy == "UCB" else 0.15
    ridge = Ridge(len(client.theta), lam, alpha, delta, client.sigma if sigma is None else sigma, S)
    if strategy == "BS":
        spanner = barycentric_spanner(key_terms, spanner_c) if spanner is None else spanner
        if spanner_picks is None:
            spanner_picks = rng.integers(len(spanner), size=b[horizon - 1])
    J = len(key_terms)

    def of_spanner(q, t):
        if not callable(spanner_picks):
            return int(spanner[spanner_picks[q]])
        may = [k for k, good in enumerate(client.candidates(t, J)) if good]
        members = [k for k in may if k in set(np.asarray(spanner).tolist())] or may
        return members[spanner_picks(q, len(members))]

    choose = {
        "BS": of_spanner,
        "MCR": lambda q, t: first_argmax(allowed(ridge.squared_widths(key_terms), client.candidates(t, J))),
        "UCB": lambda q, t: first_argmax(allowed(ridge.ucb(key_terms), client.candidates(t, J))),
    }[strategy]
    return ridge_rounds(ridge, client, horizon, b, key_terms, choose)


def conucb(
    client,
    key_terms,
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
    th = M^-1 (lam sum x r + (1-lam) tt). Questions look at the arms of the coming round.
    alpha="theory": sigma sqrt(d log((1 + lam t / ((1-lam) d)) / delta)), t the pulls so far;
    alpha_t="theory": sigma sqrt(2 (d log 6 + log(2 (questions + 1) / delta))) + 2 sqrt(lam_t) S.
    key_terms (J, d), b (T,).
    """
    d = len(client.theta)
    sigma = client.sigma if sigma is None else sigma
    M, xr = (1 - lam) * np.eye(d), np.zeros(d)
    Mt, kr = lam_t * np.eye(d), np.zeros(d)
    pulled, asked, lost, so_far, errors = [], [], [], [], []
    for t in range(horizon):
        arms, spent = client.see(t), 0.0
        for _ in range(b[t] - (b[t - 1] if t > 0 else 0)):
            Mt_inv = np.linalg.inv(Mt)
            gain = arms @ np.linalg.inv(M) @ Mt_inv @ key_terms.T  # (K, J)
            credit = np.sum(gain**2, axis=0) / (1 + quadratic(key_terms, Mt_inv))
            k = first_argmax(allowed(credit, client.candidates(t, len(key_terms))))
            answer = client.about(t, len(asked), k, key_terms)
            spent += client.cost(t, k, key_terms)
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
        reward = client.reward(t, arms[x])
        M, xr = M + lam * np.outer(arms[x], arms[x]), xr + reward * arms[x]
        pulled.append(x)
        lost.append(spent + client.regret(t, arms[x]))
        so_far.append(len(asked))
        errors.append(client.error(np.linalg.solve(M, lam * xr + (1 - lam) * tt)))
    return RoundRun(np.array(pulled), asked, np.cumsum(lost), np.array(so_far), np.array(errors))


def shared_linucb(clients, rounds, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None, S=1.0):
    """LinUCB with one V and y for all clients: those who play choose with the last round's, then all are added.

    rounds: of `who_plays`, for each round a list of (client, own round). Returns the run and its communication (T,): of
    each who plays d + 1 scalars up, and d^2 + d down to every client.
    """
    d = len(clients[0].theta)
    ridge = Ridge(d, lam, alpha, delta, clients[0].sigma if sigma is None else sigma, S)
    pulled, lost, errors, sent = [], [], [], []
    for present in rounds:
        choices = [first_argmax(ridge.ucb(clients[i].see(own))) for i, own in present]
        lost.append(0.0)
        for (i, own), a in zip(present, choices, strict=True):
            x = clients[i].see(own)[a]
            ridge.add(x, clients[i].reward(own, x))
            lost[-1] += clients[i].regret(own, x)
        pulled.append(choices)
        errors.append(np.mean([client.error(ridge.theta_hat()) for client in clients]))
        sent.append(len(present) * (d + 1) + len(clients) * (d**2 + d))
    nothing = np.zeros(len(rounds), dtype=int)
    return RoundRun(pulled, [], np.cumsum(lost), nothing, np.array(errors)), np.cumsum(sent)

"""The worlds: whom a client serves, which arms it sees, who comes, what a reward is.

Nothing is drawn here: uniform numbers, indices of arms, the order of users and who comes are given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import erfinv

DIGITS = 24


def standard_normal(u):
    """The standard normal at a place u in (-1, 1)."""
    return np.sqrt(2) * erfinv(u)


@dataclass
class Rewards:
    """What a pull gives, or a user answers: "gaussian", "bernoulli" or "uniform"."""

    kind: str
    noise: float
    normal: Callable = standard_normal

    def told(self):
        """The sigma that learners are told: a click is 1-subgaussian, whatever the noise."""
        return 1.0 if self.kind == "bernoulli" else self.noise

    def one(self, mean, u):
        """One reward, from one number u that is uniform in (-1, 1)."""
        if self.kind == "bernoulli":  # u < mean has the probability (1 + mean) / 2
            return 1.0 if u < mean else -1.0
        if self.kind == "uniform":  # U(-1, 1) has the variance 1/3
            return mean + self.noise * np.sqrt(3) * u
        return mean + self.noise * self.normal(u)

    def one_by_one(self, means, rng):
        """Rewards that are drawn one by one. means (n,) -> (n,)."""
        if self.kind == "bernoulli":
            return np.where(rng.random(len(means)) < (1 + means) / 2, 1.0, -1.0)
        if self.kind == "uniform":
            half = self.noise * np.sqrt(3)
            return means + rng.uniform(-half, half, len(means))
        return means + self.noise * rng.standard_normal(len(means))

    def at_once(self, counts, means, raw):
        """Sums of counts_a rewards of each mean. counts, means (n,) -> (n,).

        raw: of Gaussian rewards a standard normal each (n,); of others a function (b, counts, shares) -> (n,) of
        binomial numbers, b the binary digit of uniform rewards, counted from 1, and 0 for clicks.
        """
        if self.kind == "gaussian":
            return counts * means + self.noise * np.sqrt(counts) * raw
        if self.kind == "bernoulli":
            clicks = raw(0, counts, (1 + means) / 2)
            return clicks * 1.0 + (counts - clicks) * -1.0
        total = np.zeros(len(counts))
        for b in range(1, DIGITS + 1):  # the digit b of U(-1, 1) is +2^-b or -2^-b
            plus = raw(b, counts, np.full(len(counts), 0.5))
            total += 2.0**-b * plus - 2.0**-b * (counts - plus)
        return counts * means + self.noise * np.sqrt(3) * total


@dataclass
class Client:
    """What one client meets, in its own rounds t = 0, 1, ...; its questions count from 0."""

    theta: np.ndarray
    see: Callable  # t -> the arms of the round (K, d)
    rewards: Rewards
    pull_u: np.ndarray  # (T,)
    question_u: np.ndarray = field(default_factory=lambda: np.zeros(0))
    shared_noise: bool = False

    @classmethod
    def of_normals(cls, arms, theta, noise, pull_z, question_z=()):
        """Fixed arms (K, d) and Gaussian noise, whose standard normals are given."""
        return cls(theta, lambda t: arms, Rewards("gaussian", noise, normal=lambda z: z), pull_z, question_z)

    @property
    def sigma(self):
        return self.rewards.told()

    def reward(self, t, x):
        """Of a pull of x in round t."""
        return self.rewards.one(x @ self.theta, self.pull_u[t])

    def answer(self, t, q, x):
        """To the q-th question, which is about x and asked before the pull of round t."""
        u = self.pull_u[t] if self.shared_noise else self.question_u[q]
        return self.rewards.one(x @ self.theta, u)

    def regret(self, t, x):
        """Of a pull of x in round t: against the best arm that there is in this round."""
        return max(arm @ self.theta for arm in self.see(t)) - x @ self.theta

    def error(self, theta_hat):
        return np.linalg.norm(theta_hat - self.theta)


def group_of(preferences, client):
    """0 is the group of the sweep's user."""
    if preferences == "shared":
        return 0
    return client if preferences == "own" else client % int(preferences)


def users_served(preferences, user, order, M):
    """Whom each of M clients serves: group 0 the user, the others whoever is next in the order of users, in a ring."""
    line = [user] + [other for other in order if other != user]
    return [line[group_of(preferences, i) % len(line)] for i in range(M)]


def clients_of(words, pool, users, user, M, noise, raw, normal=standard_normal):
    """The M clients of a world. words: its fields; pool (A, d), users (U, d).

    raw: order (U,); fixed(i) -> indices (K,); redrawn(i, t) -> indices (K,); pull_u(i) -> (T,); question_u(i) -> (Q,).
    """
    served = users_served(words["preferences"], user, list(raw.order), M)

    def make(i):
        whose = 0 if words["arm_sets"] == "common" else i
        if words["contexts"] == "fixed":
            mine = pool[raw.fixed(whose)]
            see = lambda t: mine  # noqa: E731
        else:
            see = lambda t: pool[raw.redrawn(whose, t)]  # noqa: E731
        rewards = Rewards(words["rewards"], noise, normal)
        return Client(users[served[i]], see, rewards, raw.pull_u(i), raw.question_u(i), words["shared_noise"])

    return [make(i) for i in range(M)]


def who_plays(T, M, arrivals=None):
    """The clients of each round, with their own rounds: a list of T lists of (client, own round from 0).

    arrivals (T,): who comes; None: all, in every round.
    """
    came, rounds = [0] * M, []
    for t in range(T):
        present = range(M) if arrivals is None else [int(arrivals[t])]
        rounds.append([(i, came[i]) for i in present])
        for i in present:
            came[i] += 1
    return rounds


@dataclass
class Curves:
    """Of a federation, each (T,): after every round."""

    regret: np.ndarray
    conversations: np.ndarray
    communication: np.ndarray
    theta_error: np.ndarray


def add_up(runs, clients, rounds):
    """Curves of clients that play alone, each in its own rounds; an estimate is 0 before the first."""
    came = [0] * len(runs)
    curves = Curves(*(np.zeros(len(rounds)) for _ in range(4)))
    for t, present in enumerate(rounds):
        for i, _ in present:
            came[i] += 1
        for run, client, n in zip(runs, clients, came, strict=True):
            curves.regret[t] += run.regret[n - 1] if n else 0
            curves.conversations[t] += run.asked[n - 1] / len(runs) if n else 0
            curves.theta_error[t] += (run.theta_error[n - 1] if n else client.error(0 * client.theta)) / len(runs)
    return curves

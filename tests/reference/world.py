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
    """What a pull gives, or a user answers: "gaussian", "bernoulli", "uniform" or "zero-one"."""

    kind: str
    noise: float
    normal: Callable = standard_normal

    def told(self):
        """The sigma that learners are told: of clicks it is half of what they range over, whatever the noise."""
        return {"bernoulli": 1.0, "zero-one": 0.5}.get(self.kind, self.noise)

    def mean(self, value):
        """The expected reward, where x.theta is that value: a probability of 1 is between 0 and 1."""
        return np.clip(value, 0.0, 1.0) if self.kind == "zero-one" else value

    def one(self, mean, u):
        """One reward, from one number u that is uniform in (-1, 1)."""
        if self.kind == "bernoulli":  # u < mean has the probability (1 + mean) / 2
            return 1.0 if u < mean else -1.0
        if self.kind == "zero-one":
            return 1.0 if (1 + u) / 2 < mean else 0.0
        if self.kind == "uniform":  # U(-1, 1) has the variance 1/3
            return mean + self.noise * np.sqrt(3) * u
        return mean + self.noise * self.normal(u)

    def one_by_one(self, means, rng):
        """Rewards that are drawn one by one. means (n,) -> (n,)."""
        if self.kind == "bernoulli":
            return np.where(rng.random(len(means)) < (1 + means) / 2, 1.0, -1.0)
        if self.kind == "zero-one":
            return np.where(rng.random(len(means)) < means, 1.0, 0.0)
        if self.kind == "uniform":
            half = self.noise * np.sqrt(3)
            return means + rng.uniform(-half, half, len(means))
        return means + self.noise * rng.standard_normal(len(means))

    def at_once(self, counts, means, raw):
        """Sums of counts_a rewards of each mean. counts, means (n,) -> (n,).

        raw: of Gaussian rewards a standard normal each (n,); of others a function (b, counts, shares) -> (n,) of
        binomial numbers, b the binary digit of uniform rewards, counted from 1, and 0 for others.
        """
        if self.kind == "gaussian":
            return counts * means + self.noise * np.sqrt(counts) * raw
        if self.kind == "bernoulli":
            clicks = raw(0, counts, (1 + means) / 2)
            return clicks * 1.0 + (counts - clicks) * -1.0
        if self.kind == "zero-one":
            return raw(0, counts, means) * 1.0
        total = np.zeros(len(counts))
        for b in range(1, DIGITS + 1):  # the digit b of U(-1, 1) is +2^-b or -2^-b
            plus = raw(b, counts, np.full(len(counts), 0.5))
            total += 2.0**-b * plus - 2.0**-b * (counts - plus)
        return counts * means + self.noise * np.sqrt(3) * total


@dataclass
class Channel:
    """How a user is asked about key terms: what it says of them, about which, and what that costs."""

    answers: str = "mean"  # or "max": discount times the best mean of the arms of the pool that carry the key term
    discount: float = 1.0
    candidates: str = "all"  # or "related": only key terms that an arm of the round carries
    charged: bool = False
    pool: np.ndarray | None = None  # (A, d)
    carries: list | None = None  # of each arm of the pool, the set of its key terms
    shown: Callable | None = None  # t -> the arms of the round, as indices of the pool


@dataclass
class Client:
    """What one client meets, in its own rounds t = 0, 1, ...; its questions count from 0."""

    theta: np.ndarray
    see: Callable  # t -> the arms of the round (K, d)
    rewards: Rewards
    pull_u: np.ndarray  # (T,)
    question_u: np.ndarray = field(default_factory=lambda: np.zeros(0))
    shared_noise: bool = False
    channel: Channel = field(default_factory=Channel)
    side_u: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))  # of the two sides of comparisons (Q, 2)

    @classmethod
    def of_normals(cls, arms, theta, noise, pull_z, question_z=()):
        """Fixed arms (K, d) and Gaussian noise, whose standard normals are given."""
        return cls(theta, lambda t: arms, Rewards("gaussian", noise, normal=lambda z: z), pull_z, question_z)

    @property
    def sigma(self):
        return self.rewards.told()

    def reward(self, t, x):
        """Of a pull of x in round t."""
        return self.rewards.one(self.mean(x), self.pull_u[t])

    def mean(self, x):
        """The expected reward of an arm, or answer about a vector."""
        return self.rewards.mean(x @ self.theta)

    def regret(self, t, x):
        """Of a pull of x in round t: against the best arm that there is in this round."""
        return max(self.mean(arm) for arm in self.see(t)) - self.mean(x)

    # ------------------------------------------------------------------------------------------------- questions

    def say(self, t, q, mean):
        """The answer to the q-th question, asked before the pull of round t."""
        return self.rewards.one(mean, self.pull_u[t] if self.shared_noise else self.question_u[q])

    def answer(self, t, q, x):
        """About a vector x."""
        return self.say(t, q, self.mean(x))

    def about(self, t, q, k, key_terms):
        """About key term k of key_terms (J, d)."""
        return self.say(t, q, self.mean_about(k, key_terms))

    def mean_about(self, k, key_terms):
        """The expected answer; one that no arm carries has its own mean in place of its arms'."""
        channel = self.channel
        if channel.answers == "mean":
            return self.mean(key_terms[k])
        of_arms = [self.mean(arm) for arm, carried in zip(channel.pool, channel.carries, strict=True) if k in carried]
        return channel.discount * (max(of_arms) if of_arms else self.mean(key_terms[k]))

    def compare(self, q, k, l, key_terms):  # noqa: E741
        """Is key term k preferred to l? Each has Gaussian noise of its own."""
        one, other = (
            self.mean_about(term, key_terms) + self.rewards.noise * self.rewards.normal(u)
            for term, u in zip((k, l), self.side_u[q], strict=True)
        )
        return one > other

    def duel(self, q, x, y):
        """Does the vector x beat y, asked as the q-th question?"""
        return beats(self.mean(x), self.mean(y), self.question_u[q])

    def wins(self, t, x, y):
        """Does the arm x beat y in round t?"""
        return beats(self.mean(x), self.mean(y), self.pull_u[t])

    def candidates(self, t, J):
        """Which of J key terms may be asked about before the pull of round t: a list of bools."""
        if self.channel.candidates == "all":
            return [True] * J
        carried = {k for arm in self.channel.shown(t) for k in self.channel.carries[arm]}
        return [k in carried or not carried for k in range(J)]

    def cost(self, t, k, key_terms):
        """The regret of a question about key term k."""
        if not self.channel.charged:
            return 0.0
        J = len(key_terms)
        means = [self.mean_about(j, key_terms) for j, allowed in enumerate(self.candidates(t, J)) if allowed]
        return max(means) - self.mean_about(k, key_terms)

    def cost_of_arm(self, t, x):
        """The regret of a question about an arm."""
        return self.regret(t, x) if self.channel.charged else 0.0

    def error(self, theta_hat):
        return np.linalg.norm(theta_hat - self.theta)


def beats(one, other, u):
    """Is (1 + u) / 2, uniform in (0, 1), below sigmoid(one - other)?"""
    return (1 + u) / 2 < 1 / (1 + np.exp(other - one))


def group_of(preferences, client):
    """0 is the group of the sweep's user."""
    if preferences == "shared":
        return 0
    return client if preferences == "own" else client % int(preferences)


def users_served(preferences, user, order, M):
    """Whom each of M clients serves: group 0 the user, the others whoever is next in the order of users, in a ring."""
    line = [user] + [other for other in order if other != user]
    return [line[group_of(preferences, i) % len(line)] for i in range(M)]


def clients_of(words, pool, users, user, M, noise, raw, normal=standard_normal, weights=None):
    """The M clients of a world. words: its fields; pool (A, d), users (U, d), weights (A, J) of arms on key terms.

    raw: order (U,); fixed(i) -> indices (K,); redrawn(i, t) -> indices (K,); pull_u(i) -> (T,); question_u(i) -> (Q,);
    side_u(i) -> (Q, 2), where key terms are compared.
    """
    carries = None if weights is None else [set(np.flatnonzero(row).tolist()) for row in np.asarray(weights)]
    served = users_served(words["preferences"], user, list(raw.order), M)

    def make(i):
        whose = 0 if words["arm_sets"] == "common" else i
        if words["contexts"] == "fixed":
            shown = lambda t: raw.fixed(whose)  # noqa: E731
            mine = pool[raw.fixed(whose)]
            see = lambda t: mine  # noqa: E731
        else:
            shown = lambda t: raw.redrawn(whose, t)  # noqa: E731
            see = lambda t: pool[raw.redrawn(whose, t)]  # noqa: E731
        rewards = Rewards(words["rewards"], noise, normal)
        asked = {name: words[name] for name in ("answers", "discount", "candidates", "charged")}
        channel = Channel(**asked, pool=pool, carries=carries, shown=shown)
        sides = raw.side_u(i) if hasattr(raw, "side_u") else np.zeros((0, 2))
        noises = raw.pull_u(i), raw.question_u(i), words["shared_noise"]
        return Client(users[served[i]], see, rewards, *noises, channel, sides)

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

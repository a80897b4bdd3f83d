"""Clients that oracles are tried on."""

import numpy as np

from tests.reference import Client, Rewards


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def unit_rows(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


D, K, J, T = 4, 6, 7, 60


class Heard(Client):
    """A client that remembers what it was asked about, and may be asked about some key terms alone."""

    may = None

    def answer(self, t, q, x):
        self.__dict__.setdefault("heard", []).append((t, q, x))
        return super().answer(t, q, x)

    def about(self, t, q, k, key_terms):
        return self.answer(t, q, key_terms[k])

    def candidates(self, t, J):
        return super().candidates(t, J) if self.may is None else self.may


def someone(seed=0, horizon=T, arms=K, d=D, noise=0.3, contexts="redrawn", theta=None, questions=5000):
    """A client with arms of different lengths, so that none are as good by chance."""
    rng = np.random.default_rng(seed)
    shown = unit(rng, horizon if contexts == "redrawn" else 1, arms, d)
    shown = shown * rng.uniform(0.6, 1, (*shown.shape[:2], 1))
    theta = unit(rng, d) if theta is None else theta
    rewards = Rewards("gaussian", noise, normal=lambda z: z)
    return Heard(theta, lambda t: shown[t % len(shown)], rewards, rng.normal(size=horizon), rng.normal(size=questions))


def terms(seed=1, count=J, d=D):
    rng = np.random.default_rng(seed)
    return unit(rng, count, d) * rng.uniform(0.7, 1, (count, 1))


def seen(client, run):
    """The arms that were pulled, (T, d)."""
    return np.array([client.see(t)[a] for t, a in enumerate(run.arms)])


def same_run(run, other):
    assert list(run.arms) == list(other.arms)
    np.testing.assert_allclose(run.regret, other.regret, rtol=1e-12)
    np.testing.assert_allclose(run.theta_error, other.theta_error, rtol=1e-9)


def first_best(scores):
    return int(np.flatnonzero(np.array(scores) >= max(scores) - 1e-9)[0])


LOG = 5 * np.floor(np.log(np.arange(1, T + 1))).astype(int)
NEVER = np.zeros(T, dtype=int)
THEORY = dict(alpha="theory", alpha_t="theory", delta=0.2, S=0.9, lam=0.3, lam_t=0.7)

"""DELB and Fed-PE: federated learners that eliminate arms phase by phase, round by round.

Clients have fixed arms and all play in every round. `pulls(l, i)` is what `Rewards.at_once` needs for the sums of
client i in phase l; pulls of a leader, which fill up the rounds of a phase, are played and not looked at.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from tests.reference.linalg import first_argmax, gram, quadratic

COUNTED = ("uploads", "downloads", "scalars_up", "scalars_down", "bits_up", "bits_down")


def whole(x):
    """How many x is, at least one: 2.00001 is 2."""
    return max(1, int(np.ceil(x - 1e-4)))


def bits_of(n):
    """ceil(log2 n), exactly."""
    return (int(n) - 1).bit_length()


@dataclass
class PhaseRun:
    """After every round, each (T,): regret summed over clients, mean theta_error, what was sent so far; the phases."""

    regret: np.ndarray
    theta_error: np.ndarray
    uploads: np.ndarray
    downloads: np.ndarray
    scalars_up: np.ndarray
    scalars_down: np.ndarray
    bits_up: np.ndarray
    bits_down: np.ndarray
    phases: list

    @property
    def communication(self):
        return self.scalars_up + self.scalars_down


class Ledger:
    """Of a federation with fixed arms: what happens in each round; index 0 is before the first."""

    def __init__(self, clients, T):
        self.clients, self.phases = clients, []
        self.gaps = [max(client.see(0) @ client.theta) - client.see(0) @ client.theta for client in clients]
        self.lost = np.zeros(T + 1)
        self.counts = {name: np.zeros(T + 1, dtype=int) for name in COUNTED}
        self.theta_error = np.full(T + 1, self.error(0 * clients[0].theta))

    def error(self, theta_hat):
        return np.mean([client.error(theta_hat) for client in self.clients])

    def play(self, start, i, sequence):
        """Client i pulls these arms from round start + 1 on."""
        sequence = np.asarray(sequence, dtype=int)
        self.lost[start + 1 : start + 1 + len(sequence)] += self.gaps[i][sequence]

    def send(self, t, **amounts):
        """In round t."""
        for name, amount in amounts.items():
            self.counts[name][t] += amount

    def know(self, t, theta_hat):
        """All clients have this estimate from round t on."""
        self.theta_error[t:] = self.error(theta_hat)

    def run(self):
        sent = {name: np.cumsum(amounts)[1:] for name, amounts in self.counts.items()}
        return PhaseRun(np.cumsum(self.lost)[1:], self.theta_error[1:], **sent, phases=self.phases)

    def play_phase(self, start, length, lists, leaders):
        """Each client its list, n (K_i,), in order of the arms, then its leader until the phase ends."""
        for i, n in enumerate(lists):
            listed = np.repeat(np.arange(len(n)), np.minimum(n, length))[:length]
            rest = np.full(length - len(listed), leaders[i], dtype=int)
            self.play(start, i, np.concatenate([listed, rest]))


def least_squares(V, b):
    """V^+ and V^+ b; eigenvalues below 1e-14 of the largest are 0."""
    inverse = np.linalg.pinv(V, rcond=1e-14, hermitian=True)
    return inverse, inverse @ b


def delb(clients, horizon, *, design, pulls, C1=600.0, sigma=None, max_phases=48):
    """DELB (Wang et al., ICLR 2020): all clients have the same arms and share the pulls of one design.

    design(arms, alive) -> pi (K,), what is not in the support 0. Phase l: ceil(C1 sigma^2 4^l d^2 log(M T) pi(a)) pulls
    of each arm in the support, cut in order of the arms into M pieces as long as each other, but for one pull, longer
    ones first. theta_hat is the least-squares estimate of the phase; arms a with theta_hat.(b - a) > 2 2^-l for some b
    are dropped.
    Each client with pulls sends a sum for each arm of its piece; the server sends theta_hat. A phase that the horizon
    cuts sends the sums that were planned, and there is no estimate.
    """
    M, d, T = len(clients), len(clients[0].theta), int(horizon)
    sigma = clients[0].sigma if sigma is None else sigma
    arms = clients[0].see(0)
    assert all(np.array_equal(arms, client.see(0)) for client in clients)
    K = len(arms)
    alive, theta_hat, ledger, start = np.ones(K, dtype=bool), np.zeros(d), Ledger(clients, T), 0

    while start < T:
        l = len(ledger.phases) + 1  # noqa: E741
        pi = design(arms, alive)
        amount = C1 * sigma**2 * 4.0**l * d**2 * np.log(M * T)
        m = np.array([whole(amount * share) if share > 0 else 0 for share in pi])
        N, support = m.sum(), np.sum(pi > 0)
        # In the row of all pulls, arm after arm, client j has one stretch, arm a another: what they have in common.
        ends, arm_ends = np.cumsum([N // M + (j < N % M) for j in range(M)]), np.cumsum(m)
        starts, arm_starts = np.concatenate([[0], ends[:-1]]), arm_ends - m
        lists = np.maximum(np.minimum.outer(ends, arm_ends) - np.maximum.outer(starts, arm_starts), 0)  # (M, K)
        reports, planned = int(np.sum(lists > 0)), -(-int(N) // M)
        complete = planned <= T - start
        length = T - start if l == max_phases else min(planned, T - start)
        end = start + length
        leader = int(np.flatnonzero(alive)[first_argmax(arms[alive] @ theta_hat)])
        ledger.play_phase(start, length, lists, [leader] * M)

        ledger.send(start + 1, bits_down=reports * (bits_of(support) + bits_of(planned)))
        ledger.send(end, uploads=int(np.sum(lists.any(axis=1))), scalars_up=reports, bits_up=reports * bits_of(M * T))
        alive_after = alive
        if complete:
            W = sum(
                arms.T @ client.rewards.at_once(n, arms @ client.theta, pulls(l, j))
                for j, (client, n) in enumerate(zip(clients, lists, strict=True))
            )
            theta_hat = least_squares(gram(arms, m), W)[1]
            ledger.send(end, downloads=M, scalars_down=M * d, bits_down=d * bits_of(M * T))
            ledger.know(end, theta_hat)
            values = arms @ theta_hat
            alive_after = alive & (max(values[alive]) - values <= 2 * 2.0**-l)
        ledger.phases.append(
            dict(
                phase=l,
                start=start,
                length=length,
                complete=complete,
                planned=planned,
                pi=pi,
                pulls=m,
                counts=lists,
                reports=reports,
                leaders=[leader] * M,
                theta_hat=theta_hat,
                active=alive,
                active_after=alive_after,
            )
        )
        alive, start = alive_after, end
    return ledger.run()


def fedpe_alpha(*, M, K, d, T, delta):
    """The width of Fed-PE: alpha^2 = min(2 log(2 M K H / delta), k0 d), H = ceil(log2 T), at least 1.

    k0 >= 1 with k0 d = 2 log(K H / delta) + d log k0 + d.
    """
    H = max(1, bits_of(T))
    c = 2 * np.log(K * H / delta)
    k0 = brentq(lambda k: k * d - c - d * np.log(k) - d, 1, 10 + 10 * c, xtol=1e-13)
    return np.sqrt(min(2 * np.log(2 * M * K * H / delta), c + d * np.log(k0) + d))


def fedpe(
    clients,
    horizon,
    *,
    design,
    pulls,
    delta=0.1,
    sigma=None,
    alpha="theory",
    enhanced=False,
    init="pulls",
    max_phases=48,
):
    """Fed-PE (Huang et al., NeurIPS 2021) with one theta for all arms: each client has its own, which it never sends.

    design(e, active) -> a list of pi_i (K_i,), what is not in the support 0; e: a list of the arms as unit vectors
    (K_i, d), active of masks. Phase p has 2^p + K rounds, client i pulls f_{i,a} = ceil(2^p pi_{i,a}) times, and sends
    the mean reward along x / |x|^2 for each of these arms. The server pools them, V = sum f e e',
    theta = V^+ sum f theta_{i,a}, and sends both. Arms a with r_a + u_a < r_b - u_b are dropped, b the arm of the
    largest r_a = x.theta, which is also played to fill the phase; u_a = alpha sigma sqrt(x' V^+ x) / l, l the least
    norm of an arm. init="pulls": before, in phase p = 0, each arm is pulled once.
    enhanced: theta is the mean over phases with weights 2^p, of sum N; mu2_a = d K / M + sum 4^p x' V_p^+ x / l^2;
    u_a = alpha sigma sqrt(mu2_a) / N, with alpha="theory": sqrt(log(mu2_a M (M K / delta)^2 / (K d))).
    """
    M, d, T = len(clients), len(clients[0].theta), int(horizon)
    sigma = clients[0].sigma if sigma is None else sigma
    arms = [client.see(0) for client in clients]
    norms = [np.linalg.norm(x, axis=1) for x in arms]
    e = [np.where(n[:, None] > 0, x / np.where(n > 0, n, 1)[:, None], 0) for x, n in zip(arms, norms, strict=True)]
    shortest = min(n.min() for n in norms)
    K = max(len(x) for x in arms)
    active = [np.ones(len(x), dtype=bool) for x in arms]
    leaders, theta_hat = [0] * M, np.zeros(d)
    N, weighted, mu2 = 0.0, np.zeros(d), [np.full(len(x), d * K / M) for x in arms]
    ledger, start = Ledger(clients, T), 0

    while start < T:
        l = len(ledger.phases) + 1  # noqa: E741
        p = l - 1 if init == "pulls" else l
        pi = None
        if p == 0:
            lists, planned = [np.ones(len(x), dtype=int) for x in arms], K
        else:
            pi, planned = design(e, active), 2**p + K
            lists = [np.array([whole(2.0**p * share) if share > 0 else 0 for share in own]) for own in pi]
        reports = int(sum(np.sum(n > 0) for n in lists))
        complete = planned <= T - start
        length = T - start if l == max_phases else min(planned, T - start)
        end = start + length
        ledger.play_phase(start, length, lists, leaders)

        if p > 0:
            told = int(sum(on.sum() for on in active))  # the sets go up, numbers of pulls come down
            ledger.send(start + 1, uploads=M, scalars_up=told, downloads=M, scalars_down=told)
            ledger.send(start + 1, bits_down=reports * bits_of(K))
        ledger.send(end, uploads=sum(bool(n.any()) for n in lists), scalars_up=d * reports, bits_up=32 * d * reports)
        row = dict(
            phase=l,
            p=p,
            start=start,
            length=length,
            complete=complete,
            planned=planned,
            pi=pi,
            counts=lists,
            reports=reports,
            leaders=leaders,
            active=active,
        )
        if complete:
            V, b = np.zeros((d, d)), np.zeros(d)
            for i, (client, x, n) in enumerate(zip(clients, arms, lists, strict=True)):
                sums = client.rewards.at_once(n, x @ client.theta, pulls(l, i))
                for a in np.flatnonzero(n):
                    V += n[a] * np.outer(e[i][a], e[i][a])
                    if norms[i][a] > 0:
                        b += n[a] * (sums[a] / n[a]) * x[a] / norms[i][a] ** 2
            inverse, theta_p = least_squares(V, b)
            N, weighted = N + 2.0**p, weighted + 2.0**p * theta_p
            theta_hat = weighted / N if enhanced else theta_p
            ledger.send(end, downloads=M, scalars_down=M * (d**2 + d), bits_down=32 * (d**2 + d))
            ledger.know(end, theta_hat)
            leaders, left = list(leaders), []
            for i, x in enumerate(arms):
                r, q = x @ theta_hat, np.maximum(quadratic(x, inverse), 0)
                mu2[i] = mu2[i] + 4.0**p * q / shortest**2
                if enhanced:
                    width = alpha
                    if alpha == "theory":
                        width = np.sqrt(np.log(M * (M * K / delta) ** 2 / (K * d) * mu2[i]))
                    u = width * sigma * np.sqrt(mu2[i]) / N
                else:
                    width = fedpe_alpha(M=M, K=K, d=d, T=T, delta=delta) if alpha == "theory" else alpha
                    u = width * sigma * np.sqrt(q) / shortest
                b_i = leaders[i] = int(np.flatnonzero(active[i])[first_argmax(r[active[i]])])
                left.append(active[i] & (r + u >= r[b_i] - u[b_i]))
            active = left
        ledger.phases.append(row | dict(theta_hat=theta_hat, active_after=active))
        start = end
    return ledger.run()

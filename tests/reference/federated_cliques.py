"""HetoFedBandit: clients that a test cannot tell apart share what they saw, one clique of them a round."""

import numpy as np
from scipy.stats import chi2

from tests.reference.federated import Sums, own_horizon, play_rounds


def homogeneity(a, b, sigma):
    """The p-value of: a and b are observations of the same theta. Of the statistic
    |X_a (th_a - th)|^2 + |X_b (th_b - th)|^2 over sigma^2, th of least squares on both together, chi-square with
    rank X_a + rank X_b - rank [X_a; X_b] degrees of freedom; 1 if these are none.
    """

    def least_squares(sums):
        return np.linalg.pinv(sums.V, rcond=1e-10, hermitian=True) @ sums.b

    def rank(sums):
        return np.linalg.matrix_rank(sums.V, tol=1e-10 * np.linalg.norm(sums.V, 2), hermitian=True)

    theta, statistic = least_squares(a + b), 0.0
    for sums in (a, b):
        difference = least_squares(sums) - theta
        statistic += difference @ sums.V @ difference / sigma**2
    freedom = rank(a) + rank(b) - rank(a + b)
    return chi2.sf(statistic, freedom) if freedom > 0 else 1.0


def first_cliques(joined):
    """For each client i the clique that starts with i, and takes in all that are joined to everyone in it, lowest index
    first. Each a sorted list; no clique twice; in the order of the i that they start with. joined (M, M) of bool.
    """
    found = []
    for i in range(len(joined)):
        clique = [i]
        for j in range(len(joined)):
            if j not in clique and all(joined[j][k] for k in clique):
                clique.append(j)
        if sorted(clique) not in found:
            found.append(sorted(clique))
    return found


def hetofedbandit(
    clients,
    rounds,
    *,
    explore,
    T0=70,
    level=0.01,
    D="theory",
    alpha=0.5,
    lam=1.0,
    delta=0.1,
    sigma=None,
    horizon=None,
    S=1.0,
):
    """HetoFedBandit (Blaser et al., AISTATS 2024), with its queue first in, first out.

    In its first T0 own rounds client i plays the arm explore(i, t), t the round from 1; then LinUCB on what it was last
    told and its own data since. When all clients have T0 plays, each sends its sums, and those whose p-value is above
    `level` are joined; of the graph's maximal cliques those of `first_cliques` count. From then on, in every round: in
    the order of the clients, and of the cliques k that client i is in: k enters the queue, unless it is there, if
    log(det V_i / det V_i without what it saw since it was told) * (plays since then) > D_k. The first in the queue
    is served: its members send what they saw, and are told the sum of all that its members ever saw, and no more.
    D="theory": D_k = T_c log(|C_k| T_c) / (d |C_k|), T_c the rounds of one client.

    phases: one dict, with t and "cliques".
    """
    M, d = len(clients), len(clients[0].theta)
    sigma = clients[0].sigma if sigma is None else sigma
    T_c = own_horizon(horizon, clients, rounds)
    ever, told, since = ([Sums.none(d) for _ in clients] for _ in range(3))
    cliques, queue, phases = None, [], []

    def model(i):
        return (told[i] + since[i]).ridge(lam, alpha, delta, sigma, S)

    def choose(i, arms, t):
        if ever[i].n < T0:
            return (np.arange(len(arms)) == explore(i, t)).astype(float)
        return model(i).ucb(arms)

    def learn(i, x, y):
        ever[i] += Sums.of(x, y)
        since[i] += Sums.of(x, y)

    def limit(clique):
        return T_c * np.log(len(clique) * T_c) / (d * len(clique)) if D == "theory" else D

    def talk(t, present):
        nonlocal cliques
        sent, received = [], []
        if cliques is None:
            if min(own.n for own in ever) < T0:
                return [], []
            sent += range(M)
            joined = [[homogeneity(a, b, sigma) > level for b in ever] for a in ever]
            cliques = first_cliques(joined)
            phases.append({"t": t, "cliques": cliques})
        for i in range(M):
            growth = (told[i] + since[i]).logdet(lam) - told[i].logdet(lam)
            for k, clique in enumerate(cliques):
                if i in clique and k not in queue and growth * since[i].n > limit(clique):
                    queue.append(k)
        if queue:
            served = cliques[queue.pop(0)]
            together = sum((ever[i] for i in served), start=Sums.none(d))
            for i in served:
                told[i], since[i] = together, Sums.none(d)
            sent += served
            received += served
        return sent, received

    run = play_rounds(
        clients,
        rounds,
        d**2 + d,
        ucb=choose,
        learn=learn,
        talk=talk,
        theta_hat=lambda i: model(i).theta_hat(),
    )
    run.phases = phases
    return run

"""SupLinUCB in a federation: layers of ever narrower widths, each with data, a server and messages of its own."""

import numpy as np

from tests.reference.federated import Sums, own_horizon, play_rounds


def fedsuplinucb(
    clients,
    rounds,
    *,
    mode="async",
    C=1.0,
    D="theory",
    scale=0.03,
    lam=1.0,
    delta=0.1,
    sigma=None,
    horizon=None,
    S=1.0,
):
    """FedSupLinUCB (Fan et al., NeurIPS 2023), reconstructed. Layers s = 0..L, L = ceil(log2 d), the paper's S.

    w_s = 2^-s d^1.5 / sqrt(T), alpha_0 = sqrt(lam) S + sigma sqrt(d log(2 M^2 T / delta)), and for s > 0 alpha_s =
    sqrt(lam) S + sigma sqrt(2 log(2 K M T log(d) / delta)), all times scale; T the plays of all clients. Client m
    has in layer s what it was told, Sigma_s and b_s, and acts on that alone: r_s = x.theta_s, width_s = alpha_s |x|
    in the norm of Sigma_s^-1. A_0 are the arms with r_0 + width_0 >= max(r_0 - width_0). At layer s < L: if a
    width_s within A_s is above w_s, the widest of A_s is played, else A_(s+1) are those of A_s with r_s >= max r_s
    - 2 w_s. At layer L the arm of A_L with the largest r_L + width_L is played. What is seen goes into the client's
    local sums of that layer only.

    mode="async": after the plays, in order of the index: whose det(Sigma_s + local_s) > (1 + C) det(Sigma_s) sends
    local_s, and is told all that the server has of layer s. mode="sync": all send and are told layer s if for any
    client (its plays since the last time of this layer) * log(det(Sigma_s + local_s) / det(Sigma_s)) > D.
    C="theory": 1 / M^2; D="theory": T_c log(T_c) / (d^2 M), T_c the rounds of one client.

    phases: of every play, in the order of the rounds and clients, its layer. theta_hat is that of the layer of
    which the client was told most.
    """
    M, d, K = len(clients), len(clients[0].theta), len(clients[0].see(0))
    sigma = clients[0].sigma if sigma is None else sigma
    L = int(np.ceil(np.log2(d)))
    T_c = own_horizon(horizon, clients, rounds)
    T = M * T_c
    if C == "theory":
        C = 1 / M**2
    if D == "theory":
        D = T_c * np.log(T_c) / (d**2 * M)
    w = [2.0**-s * d**1.5 / np.sqrt(T) for s in range(L + 1)]
    alpha = [scale * (np.sqrt(lam) * S + sigma * np.sqrt(d * np.log(2 * M**2 * T / delta)))]
    for _ in range(L):
        alpha.append(scale * (np.sqrt(lam) * S + sigma * np.sqrt(2 * np.log(2 * K * M * T * np.log(d) / delta))))

    told = [[Sums.none(d) for _ in range(L + 1)] for _ in clients]
    local = [[Sums.none(d) for _ in range(L + 1)] for _ in clients]
    server = [Sums.none(d) for _ in range(L + 1)]
    waited = [[0] * (L + 1) for _ in clients]
    layer = [0] * M
    played = []

    def estimates(m, s, arms):
        ridge = told[m][s].ridge(lam, alpha[s])
        return arms @ ridge.theta_hat(), alpha[s] * np.sqrt(ridge.squared_widths(arms))

    def choose(m, arms, t):
        """Scores whose largest is the arm to play: minus infinity for the others of no interest."""
        r, width = estimates(m, 0, arms)
        alive = r + width >= np.max(r - width)
        for s in range(L + 1):
            r, width = estimates(m, s, arms)
            layer[m] = s
            if s == L:
                return np.where(alive, r + width, -np.inf)
            if np.any(width[alive] > w[s]):
                return np.where(alive, width, -np.inf)
            alive = alive & (r >= np.max(r[alive]) - 2 * w[s])

    def learn(m, x, y):
        local[m][layer[m]] += Sums.of(x, y)
        played.append(layer[m])
        for s in range(L + 1):
            waited[m][s] += 1

    def growth(m, s):
        return (told[m][s] + local[m][s]).logdet(lam) - told[m][s].logdet(lam)

    def talk(t, present):
        return talk_apart(present) if mode == "async" else talk_together()

    def talk_apart(present):
        who = []
        for m in present:
            s = layer[m]  # no other has changed
            if growth(m, s) > np.log(1 + C):
                server[s] += local[m][s]
                local[m][s] = Sums.none(d)
                told[m][s] = server[s]
                who.append(m)
        return who, who

    def talk_together():
        who = []
        for s in range(L + 1):
            if not any(waited[m][s] * growth(m, s) > D for m in range(M)):
                continue
            for m in range(M):
                server[s] += local[m][s]
            for m in range(M):
                local[m][s], told[m][s], waited[m][s] = Sums.none(d), server[s], 0
                who.append(m)
        return who, who

    def theta_hat(m):
        s = int(np.argmax([sums.n for sums in told[m]]))
        return told[m][s].ridge(lam, 0).theta_hat()

    run = play_rounds(clients, rounds, d**2 + d, ucb=choose, learn=learn, talk=talk, theta_hat=theta_hat)
    run.phases = played
    return run

"""Federated learners that play round by round and pass messages after it, clients in the order of their index.

All send sums of x x', of y x and sometimes a number of observations, `Sums`. Every round solves its equations and takes
its determinants afresh.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.reference.linalg import first_argmax
from tests.reference.rounds import Ridge

NOTHING = 1e-12  # log-determinants that differ by less are equal


@dataclass(frozen=True)
class Sums:
    """Of observations: V = sum x x' (d, d), b = sum y x (d,), n how many."""

    V: np.ndarray
    b: np.ndarray
    n: int

    @classmethod
    def none(cls, d):
        return cls(np.zeros((d, d)), np.zeros(d), 0)

    @classmethod
    def of(cls, x, y):
        return cls(np.outer(x, x), y * x, 1)

    def __add__(self, other):
        return Sums(self.V + other.V, self.b + other.b, self.n + other.n)

    def __sub__(self, other):
        return Sums(self.V - other.V, self.b - other.b, self.n - other.n)

    def logdet(self, lam):
        """log det(lam I + V)."""
        return np.linalg.slogdet(lam * np.eye(len(self.b)) + self.V)[1]

    def ridge(self, lam, alpha, delta=None, sigma=None, S=None):
        """The regression on these observations; its width is alpha."""
        ridge = Ridge(len(self.b), lam, alpha, delta, sigma, S)
        ridge.V, ridge.y, ridge.n = ridge.V + self.V, self.b, self.n
        return ridge


@dataclass
class FederatedRun:
    """After every round, each (T,): regret summed over clients, mean theta_error, messages and scalars so far.

    arms: for each round the choices of those who play. sent and received: (round from 1, who) of every message.
    phases: of those that have any, a dict each.
    """

    regret: np.ndarray
    theta_error: np.ndarray
    uploads: np.ndarray
    downloads: np.ndarray
    scalars_up: np.ndarray
    scalars_down: np.ndarray
    arms: list
    sent: list
    received: list
    phases: list = field(default_factory=list)


def play_rounds(clients, rounds, message, *, ucb, learn, talk, theta_hat):
    """The rounds t = 1, 2, ... of a federation.

    Who is present chooses argmax ucb(i, arms, t) with what was known when the round began, then learn(i, x, y), then
    talk(t, who is present), which gives who sent and who received. Curves are
    read at the end of the round, theta_error from theta_hat(i). A message has `message` scalars.
    """
    arms, lost, errors, sent, received = [], [], [], [], []
    for t, present in enumerate(rounds, start=1):
        choices = [first_argmax(ucb(i, clients[i].see(own), t)) for i, own in present]
        lost.append(0.0)
        for (i, own), a in zip(present, choices, strict=True):
            x = clients[i].see(own)[a]
            learn(i, x, clients[i].reward(own, x))
            lost[-1] += clients[i].regret(own, x)
        told, heard = talk(t, [i for i, _ in present])
        sent += [(t, who) for who in told]
        received += [(t, who) for who in heard]
        arms.append(choices)
        errors.append(np.mean([client.error(theta_hat(i)) for i, client in enumerate(clients)]))
    ends = np.arange(1, len(rounds) + 1)
    up, down = (np.searchsorted([t for t, _ in told], ends, side="right") for told in (sent, received))
    return FederatedRun(np.cumsum(lost), np.array(errors), up, down, up * message, down * message, arms, sent, received)


def own_horizon(horizon, clients, rounds):
    """T_c, the rounds of one client: the horizon, or horizon / M if one of M clients comes in each round."""
    T = len(rounds) if horizon is None else horizon
    return T if len(rounds[0]) == len(clients) else T / len(clients)


def dislinucb(clients, rounds, *, alpha=0.5, lam=1.0, delta=0.1, sigma=None, D="theory", horizon=None, S=1.0):
    """DisLinUCB (Wang et al., ICLR 2020): all clients send and receive when one of them has learnt enough alone.

    V_i = lam I + W_syn + W_i. After the plays: if log(det V_i / det(lam I + W_syn)) * (own plays since then) > D for
    any client i, all W_i go into W_syn and W_i = 0. D="theory": T_c log(M T_c) / (d M), T_c the rounds of one client.
    """
    M, d = len(clients), len(clients[0].theta)
    sigma = clients[0].sigma if sigma is None else sigma
    if D == "theory":
        T_c = own_horizon(horizon, clients, rounds)
        D = T_c * np.log(M * T_c) / (d * M)
    W = [Sums.none(d) for _ in clients]
    W_syn = Sums.none(d)

    def model(i):
        return (W_syn + W[i]).ridge(lam, alpha, delta, sigma, S)

    def learn(i, x, y):
        W[i] += Sums.of(x, y)

    def talk(t, present):
        nonlocal W, W_syn
        last = W_syn.logdet(lam)
        if not any(((W_syn + own).logdet(lam) - last) * own.n > D for own in W):
            return [], []
        W_syn = sum(W, start=W_syn)
        W = [Sums.none(d) for _ in clients]
        return list(range(M)), list(range(M))

    return play_rounds(
        clients,
        rounds,
        d**2 + d,
        ucb=lambda i, arms, t: model(i).ucb(arms),
        learn=learn,
        talk=talk,
        theta_hat=lambda i: model(i).theta_hat(),
    )


def fedlinucb(clients, rounds, *, alpha=1.0, beta=0.5, lam=1.0, delta=0.1, sigma=None, horizon=None, S=1.0):
    """FedLinUCB (He et al., NeurIPS 2022): a client acts on what it last received, and sends when it has learnt enough.

    argmax theta_m.x + beta |x| in the norm of Sigma_m^-1; own data are not used before they are sent. In order of the
    index, of those who played: if det(Sigma_m + Sloc_m) > (1 + alpha) det(Sigma_m), the server adds the client's sums,
    and the client takes over all that the server has. alpha="theory": 1 / M^2; beta="theory": sqrt(lam) S +
    (sqrt(1 + M alpha) + M sqrt(2 alpha)) (sigma sqrt(d log((1 + T_tot / (min(alpha, 1) lam)) / delta)) + sqrt(lam) S),
    T_tot the plays of all clients.
    """
    M, d = len(clients), len(clients[0].theta)
    sigma = clients[0].sigma if sigma is None else sigma
    if alpha == "theory":
        alpha = 1 / M**2
    if beta == "theory":
        T_tot = M * own_horizon(horizon, clients, rounds)
        noise_part = sigma * np.sqrt(d * np.log((1 + T_tot / (min(alpha, 1) * lam)) / delta))
        shares = np.sqrt(1 + M * alpha) + M * np.sqrt(2 * alpha)
        beta = np.sqrt(lam) * S + shares * (noise_part + np.sqrt(lam) * S)
    server = Sums.none(d)
    known, local = [Sums.none(d) for _ in clients], [Sums.none(d) for _ in clients]

    def learn(m, x, y):
        local[m] += Sums.of(x, y)

    def talk(t, present):
        nonlocal server
        who = []
        for m in present:
            if (known[m] + local[m]).logdet(lam) - known[m].logdet(lam) > np.log(1 + alpha):
                server += local[m]
                local[m] = Sums.none(d)
                known[m] = server
                who.append(m)
        return who, who

    return play_rounds(
        clients,
        rounds,
        d**2 + d,
        ucb=lambda m, arms, t: known[m].ridge(lam, beta).ucb(arms),
        learn=learn,
        talk=talk,
        theta_hat=lambda m: known[m].ridge(lam, beta).theta_hat(),
    )


def async_linucb(
    clients,
    rounds,
    *,
    gamma=6.0,
    gamma_U=None,
    gamma_D=None,
    alpha=0.5,
    lam=1.0,
    delta=0.1,
    sigma=None,
    horizon=None,
    S=1.0,
):
    """Async-LinUCB (Li and Wang, AISTATS 2022), with the paper's buffers.

    A client's V_i has its own data at once. In order of the index, of those who played: client i sends its buffer dV_i
    if det(lam I + V_i) / det(lam I + V_i - dV_i) > gamma_U. The server keeps it in dV_-j for all others j, and then
    gives dV_-j to each j with det(lam I + V_g) / det(lam I + V_g - dV_-j) > gamma_D. gamma_U, gamma_D = None: gamma.
    """
    M, d = len(clients), len(clients[0].theta)
    sigma = clients[0].sigma if sigma is None else sigma
    gamma_U = gamma if gamma_U is None else gamma_U
    gamma_D = gamma if gamma_D is None else gamma_D
    V_g = Sums.none(d)
    V, dV, dV_for = ([Sums.none(d) for _ in clients] for _ in range(3))

    def exceeds(all_of_it, part, threshold):
        ratio = all_of_it.logdet(lam) - (all_of_it - part).logdet(lam)
        return ratio > max(np.log(threshold), NOTHING)

    def learn(i, x, y):
        V[i] += Sums.of(x, y)
        dV[i] += Sums.of(x, y)

    def talk(t, present):
        nonlocal V_g
        sent, received = [], []
        for i in present:
            if not exceeds(V[i], dV[i], gamma_U):
                continue
            sent.append(i)
            V_g += dV[i]
            for j in range(M):
                if j != i:
                    dV_for[j] += dV[i]
            dV[i] = Sums.none(d)
            for j in range(M):
                if exceeds(V_g, dV_for[j], gamma_D):
                    received.append(j)
                    V[j] += dV_for[j]
                    dV_for[j] = Sums.none(d)
        return sent, received

    def model(i):
        return V[i].ridge(lam, alpha, delta, sigma, S)

    return play_rounds(
        clients,
        rounds,
        d**2 + d,
        ucb=lambda i, arms, t: model(i).ucb(arms),
        learn=learn,
        talk=talk,
        theta_hat=lambda i: model(i).theta_hat(),
    )


# ---------------------------------------------------------------------------------------------------------- privacy


def private_noise(privacy, *, M, d, T, B, eps, delta_privacy, delta):
    """Of Private-FedLinUCB, as in its public code: the std of the noise in a sum over all clients, and lam.

    kappa = floor(log2(T / B)) + 1 levels of the tree, at least one. Returns {"kappa", "s", "std", "lam"}:
    s is what lam is made of, and but for "sdp-vector-sum", whose noise is one draw for all clients, one client's std.
    """
    kappa = max(1, int(np.floor(np.log2(T / B))) + 1)
    spread = np.sqrt(kappa + np.log(1 / delta)) + np.sqrt(d)  # of the operator norm
    log = np.log(1 / delta_privacy)
    if privacy == "none":
        return {"kappa": kappa, "s": 0.0, "std": 0.0, "lam": np.sqrt(M)}
    if privacy == "sdp-vector-sum":
        s = np.sqrt(kappa * log) * np.log(kappa * d**2 / delta_privacy) / eps
        std = np.sqrt(3 / 16) * np.log(d**2 / delta_privacy) / eps
        return {"kappa": kappa, "s": s, "std": std, "lam": np.sqrt(kappa) * s * spread}
    if privacy == "ldp":
        std = np.sqrt(kappa * (log + eps)) / eps
    else:
        assert privacy == "sdp-amplified"
        logs = log * np.log(1 + kappa / (T * delta_privacy)) * np.log(M * kappa / delta_privacy)
        std = np.sqrt(kappa * logs) / (eps * np.sqrt(M))
    return {"kappa": kappa, "s": std, "std": np.sqrt(M) * std, "lam": np.sqrt(M * kappa) * std * spread}


def private_fedlinucb(
    clients,
    rounds,
    *,
    privacy="ldp",
    eps=1.0,
    delta_privacy=0.1,
    batch=25,
    lam="theory",
    alpha="theory",
    scale=1.0,
    delta=0.01,
    sigma=None,
    gram_z=None,
    vector_z=None,
    horizon=None,
    S=1.0,
):
    """Private-FedLinUCB (Zhou and Chowdhury, ICLR 2024): all send sums with noise after every B rounds.

    Batch k = 1, 2, ... with j = ctz(k): a client's node j is the sum of its data of the last 2^j batches, made of its
    nodes below j and its last batch. The server's node j is the sum over clients, with noise: std of `private_noise`
    times gram_z[k] (d, d), symmetrised, (E + E') / 2, and times vector_z[k] (d,). Released is the sum of the nodes that
    are the bits of k. The noise of a node stays until the node is made again. All clients play in all rounds.
    alpha="theory": scale (sqrt(lam) S + sigma sqrt(d log(1 + t M / (d lam)) + log(1/delta))) in round t = 1, 2, ...
    phases: for each batch k, its round t, the sums "released" and "true", without noise, and the constants.
    """
    M, d = len(clients), len(clients[0].theta)
    sigma = clients[0].sigma if sigma is None else sigma
    T = len(rounds) if horizon is None else horizon
    B = max(1, round(np.sqrt(T / M))) if batch == "theory" else batch
    constants = private_noise(privacy, M=M, d=d, T=T, B=B, eps=eps, delta_privacy=delta_privacy, delta=delta)
    lam = constants["lam"] if lam == "theory" else lam
    W = [Sums.none(d) for _ in clients]
    nodes = [{} for _ in clients]  # level -> Sums
    server_nodes, released, phases = {}, Sums.none(d), []

    def width(t):
        if alpha != "theory":
            return alpha
        return scale * (np.sqrt(lam) * S + sigma * np.sqrt(d * np.log(1 + t * M / (d * lam)) + np.log(1 / delta)))

    def learn(i, x, y):
        W[i] += Sums.of(x, y)

    def talk(t, present):
        nonlocal released
        if t % B:
            return [], []
        k = t // B
        bits = [level for level in range(k.bit_length()) if k >> level & 1]
        j = bits[0]
        for i in range(M):
            nodes[i] = {level: node for level, node in nodes[i].items() if level > j} | {
                j: sum((node for level, node in nodes[i].items() if level < j), start=W[i])
            }
            W[i] = Sums.none(d)
        server_nodes[j] = sum((own[j] for own in nodes), start=Sums.none(d))
        if privacy != "none":
            E = constants["std"] * gram_z[k]
            server_nodes[j] += Sums((E + E.T) / 2, constants["std"] * vector_z[k], 0)
        released = sum((server_nodes[level] for level in bits), start=Sums.none(d))
        true = sum((node for own in nodes for node in own.values()), start=Sums.none(d))
        phases.append({"k": k, "t": t, "released": released, "true": true, **constants, "lam": lam})
        return list(range(M)), list(range(M))

    run = play_rounds(
        clients,
        rounds,
        d**2 + d,
        ucb=lambda i, arms, t: (released + W[i]).ridge(lam, width(t)).ucb(arms),
        learn=learn,
        talk=talk,
        theta_hat=lambda i: (released + W[i]).ridge(lam, 0).theta_hat(),
    )
    run.phases = phases
    return run

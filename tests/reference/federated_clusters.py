"""Federated online clustering of bandits: users at local servers, one global server."""

import numpy as np

from tests.reference.federated import Sums, play_rounds


def components(nodes, joined):
    """Connected components, each a sorted list, in order of their smallest node. joined(a, b) of two nodes."""
    left, found = list(nodes), []
    while left:
        reached, border = {left[0]}, [left[0]]
        while border:
            node = border.pop()
            new = [other for other in left if other not in reached and (joined(node, other) or joined(other, node))]
            reached.update(new)
            border += new
        found.append(sorted(reached))
        left = [node for node in left if node not in reached]
    return found


def fclub(
    clients,
    rounds,
    *,
    servers=None,
    alpha1=1.5,
    alpha2=2.0,
    U=1.01,
    D=1.01,
    beta=0.5,
    lam=1.0,
    horizon=None,
    S=1.0,
):
    """FCLUB-DC (Liu et al., UAI 2022), without privacy. Client i is a user at the local server i mod L; None: L = M.

    F(x) = sqrt((1 + log(1 + x)) / (1 + x)), th the ridge estimate of some data, T how many they are. Before rounds
    3, 7, 15, ... a phase starts; its messages are those of the round before. Nothing is sent before the first round.
    A server's users are in one local cluster while edges connect them; the edge of two is lost for good if
    |th_1 - th_2| > alpha1 (F(T_1) + F(T_2)). All local clusters send the sums of their users' data; those of different
    servers are joined if |th_1 - th_2| < alpha2 (F(T_1) + F(T_2)), and what is connected is a global cluster. If a
    label of any user is another than before, each local cluster receives the sums of its global one, and
    all buffers are empty.
    A user acts on the sums S of its local cluster, and its data go into the cluster's buffer dS. After the plays, in
    order of the index of those who played: the cluster sends its buffer, unless it is empty, if
    det(lam I + S + dS) / det(lam I + S) >= U; then each local cluster of the same global one receives all there is, if
    that is more than it has, and det(lam I + S_g) / det(lam I + S) >= D.
    beta="theory": 0.5 sqrt(2 log(2/1.5) + d log(3 + t/d)).

    A cluster is known by its smallest user. phases: for each, t, "local" and "global", labels of the users (M,), and
    "changed".
    """
    M, d = len(clients), len(clients[0].theta)
    server = [i % (M if servers is None else servers) for i in range(M)]
    user = [Sums.none(d) for _ in clients]
    edges = {(i, j) for i in range(M) for j in range(i) if server[i] == server[j]}
    local = whole = None  # the label of each user's local and global cluster
    own, buffer, total = {}, {}, {}  # label of a local cluster -> S; its dS; label of a global cluster -> S_g
    phases = []

    def uncertainty(T):
        return np.sqrt((1 + np.log(1 + T)) / (1 + T))

    def theta(sums):
        return np.linalg.solve(lam * np.eye(d) + sums.V, sums.b)

    def distance(a, b):
        """|th_a - th_b| in units of F(T_a) + F(T_b)."""
        return np.linalg.norm(theta(a) - theta(b)) / (uncertainty(a.n) + uncertainty(b.n))

    def before(t):
        nonlocal edges, local, whole
        if (t + 1) & t:  # t is not 2^s - 1
            return [], []
        edges = {(i, j) for i, j in edges if distance(user[i], user[j]) <= alpha1}
        groups = components(range(M), lambda i, j: (i, j) in edges)
        sums = {group[0]: sum((user[i] for i in group), start=Sums.none(d)) for group in groups}
        unions = components(sums, lambda a, b: server[a] != server[b] and distance(sums[a], sums[b]) < alpha2)
        new_local = [next(group[0] for group in groups if i in group) for i in range(M)]
        new_whole = [next(union[0] for union in unions if label in union) for label in new_local]
        changed = (new_local, new_whole) != (local, whole)
        phases.append({"t": t, "local": new_local, "global": new_whole, "changed": changed})
        if not changed:
            return list(sums), []
        local, whole = new_local, new_whole
        for state in (own, buffer, total):
            state.clear()
        for union in unions:
            total[union[0]] = sum((sums[label] for label in union), start=Sums.none(d))
            for label in union:
                own[label], buffer[label] = total[union[0]], Sums.none(d)
        return list(sums), list(sums)

    def learn(i, x, y):
        user[i] += Sums.of(x, y)
        buffer[local[i]] += Sums.of(x, y)

    def talk(t, present):
        sent, received = [], []
        for i in present:
            j, g = local[i], whole[i]
            grown = (own[j] + buffer[j]).logdet(lam) - own[j].logdet(lam)
            if buffer[j].n == 0 or grown < np.log(U):
                continue
            sent.append(j)
            total[g] += buffer[j]
            own[j] += buffer[j]
            buffer[j] = Sums.none(d)
            for k in sorted({local[m] for m in range(M) if whole[m] == g}):
                if total[g].n > own[k].n and total[g].logdet(lam) - own[k].logdet(lam) >= np.log(D):
                    own[k] = total[g]
                    received.append(k)
        phase = before(t + 1)
        return sent + phase[0], received + phase[1]

    def width(t):
        return 0.5 * np.sqrt(2 * np.log(2 / 1.5) + d * np.log(3 + t / d)) if beta == "theory" else beta

    before(1)
    run = play_rounds(
        clients,
        rounds,
        d**2 + d + 1,
        ucb=lambda i, arms, t: own[local[i]].ridge(lam, width(t)).ucb(arms),
        learn=learn,
        talk=talk,
        theta_hat=lambda i: theta(own[local[i]]),
    )
    run.phases = phases
    return run

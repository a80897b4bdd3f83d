"""The oracles themselves: limits in which two of them are one, and figures that are published or follow by hand."""

from statistics import NormalDist

import numpy as np
import pytest

from tests import reference
from tests.reference import Client, Rewards, Sums, who_plays

M, K, D, T, NOISE = 3, 6, 4, 60, 0.3
MEETINGS = ("all", "one")


def unit(rng, *shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def federation(seed=0, clients=M, rounds=T, arms=K, dim=D, contexts="redrawn", users=1, noise=NOISE):
    """Clients that serve `users` users in turn; arms of different lengths, so that none are as good by chance."""
    rng = np.random.default_rng(seed)
    thetas = unit(rng, users, dim)

    def make(i):
        shown = unit(rng, rounds if contexts == "redrawn" else 1, arms, dim)
        shown = shown * rng.uniform(0.6, 1, (*shown.shape[:2], 1))
        rewards = Rewards("gaussian", noise, normal=lambda z: z)
        return Client(thetas[i % users], lambda t: shown[t % len(shown)], rewards, rng.normal(size=rounds))

    return [make(i) for i in range(clients)]


def rounds_of(arrivals, rounds=T, clients=M):
    who = np.random.default_rng(5).integers(clients, size=rounds) if arrivals == "one" else None
    return who_plays(rounds, clients, who)


def same_play(run, other):
    assert run.arms == other.arms
    np.testing.assert_allclose(run.regret, other.regret, rtol=1e-12)
    np.testing.assert_allclose(run.theta_error, other.theta_error, rtol=1e-9)


def check_alone(run, clients, rounds, **settings):
    """Each client plays LinUCB for itself, and nothing is sent."""
    alone = [reference.linucb(client, len(rounds), **settings) for client in clients]
    curves = reference.add_up(alone, clients, rounds)
    np.testing.assert_allclose(run.regret, curves.regret, rtol=1e-12)
    np.testing.assert_allclose(run.theta_error, curves.theta_error, rtol=1e-9)
    assert run.arms == [[alone[i].arms[own] for i, own in present] for present in rounds]
    assert run.uploads[-1] == run.downloads[-1] == 0


def check_ledger(run, message):
    """Scalars are messages times their size, and nothing is ever taken back."""
    for count, scalars in ((run.uploads, run.scalars_up), (run.downloads, run.scalars_down)):
        assert np.all(np.diff(count) >= 0)
        np.testing.assert_array_equal(scalars, count * message)
    assert run.uploads[-1] == len(run.sent)
    assert run.downloads[-1] == len(run.received)


# ------------------------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize("arrivals", MEETINGS)
@pytest.mark.parametrize("alpha", [0.5, "theory"])
def test_dislinucb_is_shared_or_alone_in_its_limits(arrivals, alpha):
    clients, rounds = federation(), rounds_of(arrivals)
    always = reference.dislinucb(clients, rounds, D=0, alpha=alpha)
    same_play(always, reference.shared_linucb(clients, rounds, alpha=alpha)[0])
    assert always.uploads[-1] == always.downloads[-1] == M * T
    check_ledger(always, D**2 + D)
    check_alone(reference.dislinucb(clients, rounds, D=np.inf, alpha=alpha), clients, rounds, alpha=alpha)


@pytest.mark.parametrize("arrivals", MEETINGS)
@pytest.mark.parametrize("alpha", [0.5, "theory"])
def test_async_linucb_is_shared_or_alone_in_its_limits(arrivals, alpha):
    """With gamma = 1 whoever plays sends, and all others receive it at once."""
    clients, rounds = federation(), rounds_of(arrivals)
    always = reference.async_linucb(clients, rounds, gamma=1.0, alpha=alpha)
    same_play(always, reference.shared_linucb(clients, rounds, alpha=alpha)[0])
    plays = sum(map(len, rounds))
    assert (always.uploads[-1], always.downloads[-1]) == (plays, plays * (M - 1))
    check_ledger(always, D**2 + D)
    check_alone(reference.async_linucb(clients, rounds, gamma=np.inf, alpha=alpha), clients, rounds, alpha=alpha)


def test_async_linucb_may_send_what_nobody_receives():
    clients, rounds = federation(), rounds_of("all")
    run = reference.async_linucb(clients, rounds, gamma=1.5, gamma_D=np.inf)
    assert run.uploads[-1] > 0
    assert run.downloads[-1] == 0
    assert run.arms == reference.async_linucb(clients, rounds, gamma=np.inf).arms


@pytest.mark.parametrize("arrivals", MEETINGS)
def test_fedlinucb_sends_every_play_if_its_threshold_is_nothing(arrivals):
    """One client: then it is LinUCB. Several: of those in a round the last one has all the data, the first its own."""
    rounds = rounds_of(arrivals, clients=1)
    alone = federation(clients=1)
    run = reference.fedlinucb(alone, rounds, alpha=0, beta=0.7)
    assert [choice for (choice,) in run.arms] == list(reference.linucb(alone[0], T, alpha=0.7).arms)
    clients, rounds = federation(), rounds_of(arrivals)
    run = reference.fedlinucb(clients, rounds, alpha=0)
    assert run.sent == run.received == [(t, i) for t, present in enumerate(rounds, 1) for i, _ in present]
    check_ledger(run, D**2 + D)
    never = reference.fedlinucb(clients, rounds, alpha=1e9)
    assert never.uploads[-1] == 0
    assert np.ptp(never.theta_error) == 0  # what it does not send, it does not use


@pytest.mark.parametrize("settings", [{"C": 0}, {"mode": "sync", "D": 0}], ids=str)
def test_fedsuplinucb_of_one_client_is_suplinucb(settings):
    """Every play is sent at once: one client screens its arms by all that it has seen, layer by layer."""
    (client,), rounds = federation(clients=1), rounds_of("all", clients=1)
    run = reference.fedsuplinucb([client], rounds, scale=0.5, delta=0.2, **settings)
    logs = [D * np.log(2 * T / 0.2)] + 2 * [2 * np.log(2 * K * T * np.log(D) / 0.2)]
    alphas = 0.5 * (1 + NOISE * np.sqrt(logs))
    seen = [([np.zeros(D)], [0.0]) for _ in range(3)]  # of each layer
    layers, choices = [], []
    for t in range(T):
        arms, r, width = client.see(t), np.zeros((3, K)), np.zeros((3, K))
        for s, (rows, rewards) in enumerate(seen):
            V = np.eye(D) + np.array(rows).T @ rows
            r[s] = arms @ np.linalg.solve(V, np.array(rows).T @ rewards)
            width[s] = alphas[s] * np.sqrt(np.diag(arms @ np.linalg.solve(V, arms.T)))
        alive = [a for a in range(K) if r[0, a] + width[0, a] >= max(r[0] - width[0])]
        s, bar = 0, D**1.5 / np.sqrt(T)
        while s < 2 and max(width[s, alive]) <= bar:
            alive = [a for a in alive if r[s, a] >= max(r[s, alive]) - 2 * bar]
            s, bar = s + 1, bar / 2
        score = width[s] if s < 2 else r[s] + width[s]
        choices.append(max(alive, key=lambda a, score=score: score[a]))
        layers.append(s)
        x = arms[choices[-1]]
        seen[s][0].append(x)
        seen[s][1].append(client.reward(t, x))
    assert set(layers) == {0, 1, 2}
    assert (run.phases, [choice for (choice,) in run.arms]) == (layers, choices)
    assert run.sent == run.received == [(t, 0) for t in range(1, T + 1)]
    check_ledger(run, D**2 + D)


@pytest.mark.parametrize("arrivals", MEETINGS)
def test_fedsuplinucb_whose_layers_are_narrow_from_the_start_is_fedlinucb(arrivals):
    """All play in the last layer, on its alpha; the others know nothing, and so drop nothing."""
    clients, rounds = federation(), rounds_of(arrivals)
    plays = T if arrivals == "one" else M * T
    alpha = 0.05 * (1 + NOISE * np.sqrt(2 * np.log(2 * K * M * plays * np.log(D) / 0.1)))
    run = reference.fedsuplinucb(clients, rounds, scale=0.05, C=0.3)
    same_play(run, reference.fedlinucb(clients, rounds, alpha=0.3, beta=alpha))
    assert set(run.phases) == {2}
    assert run.uploads[-1] > 0


@pytest.mark.parametrize("contexts", ["fixed", "redrawn"])
def test_private_fedlinucb_without_privacy_is_shared(contexts):
    clients, rounds = federation(contexts=contexts), rounds_of("all")
    run = reference.private_fedlinucb(clients, rounds, privacy="none", batch=1, alpha=0.5)
    same_play(run, reference.shared_linucb(clients, rounds, alpha=0.5, lam=np.sqrt(M))[0])
    check_ledger(run, D**2 + D)
    batches = reference.private_fedlinucb(clients, rounds, privacy="none", batch=7, alpha=0.5)
    assert batches.sent == [(t, i) for t in range(7, T + 1, 7) for i in range(M)]
    for phase in batches.phases:  # the tree loses nothing
        np.testing.assert_allclose(phase["released"].V, phase["true"].V, atol=1e-12)
        assert phase["true"].n == M * phase["t"]


def test_fclub_of_one_cluster_is_shared():
    """A cluster that never splits and sends at once has all data, with one message a round."""
    clients, rounds = federation(), rounds_of("all")
    run = reference.fclub(clients, rounds, servers=1, alpha1=np.inf, U=1.0, D=1.0)
    same_play(run, reference.shared_linucb(clients, rounds)[0])
    starts = [1, 3, 7, 15, 31]
    assert [phase["t"] for phase in run.phases] == starts
    assert run.uploads[-1] == T + len(starts) - 1  # nothing is sent before the first round
    assert run.received == []  # nothing is ever new to the only cluster
    check_ledger(run, D**2 + D + 1)


@pytest.mark.parametrize("arrivals", MEETINGS)
def test_fclub_that_never_joins_is_alone(arrivals):
    clients, rounds = federation(users=2), rounds_of(arrivals)
    run = reference.fclub(clients, rounds, alpha2=0.0, U=1.0)
    alone = [reference.linucb(client, T) for client in clients]
    np.testing.assert_allclose(run.regret, reference.add_up(alone, clients, rounds).regret, rtol=1e-12)
    assert all(phase["global"] == list(range(M)) for phase in run.phases)


@pytest.mark.parametrize("servers", [None, 3])
def test_fclub_finds_the_users(servers):
    """Clients serve two users in turn: in the end the even ones are a cluster and the odd ones. A server has both."""
    clients = federation(seed=1, clients=6, rounds=600, users=2, noise=0.1)
    rounds = who_plays(600, 6)
    run = reference.fclub(clients, rounds, servers=servers, alpha1=0.5, alpha2=0.5)
    assert run.phases[0]["global"] == [0] * 6
    assert run.phases[0]["local"] == ([0, 1, 2, 0, 1, 2] if servers else list(range(6)))
    assert run.phases[-1]["global"] == [0, 1, 0, 1, 0, 1]
    mixed = reference.dislinucb(clients, rounds, D=0)
    assert run.regret[-1] < mixed.regret[-1] / 2
    check_ledger(run, D**2 + D + 1)


def test_hetofedbandit_of_one_clique_is_dislinucb_and_of_many_is_linucb():
    """Without random plays, and with a test that joins all or none; what is sent for the test comes on top."""
    clients, rounds = federation(), rounds_of("all")
    start = {"explore": None, "T0": 0, "alpha": "theory"}
    joined = reference.hetofedbandit(clients, rounds, level=0, D=4.0, **start)
    limit = reference.dislinucb(clients, rounds, D=4.0, alpha="theory")
    same_play(joined, limit)
    assert joined.phases == [{"t": 1, "cliques": [[0, 1, 2]]}]
    np.testing.assert_array_equal(joined.uploads, limit.uploads + M)
    np.testing.assert_array_equal(joined.downloads, limit.downloads)
    alone = reference.hetofedbandit(clients, rounds, level=1, **start)
    assert alone.phases == [{"t": 1, "cliques": [[0], [1], [2]]}]
    assert alone.arms == reference.dislinucb(clients, rounds, D=np.inf, alpha="theory").arms
    check_ledger(alone, D**2 + D)


def test_hetofedbandit_finds_the_users():
    """Clients serve two users in turn: 30 random plays tell them apart, and they lose less than half of mixed ones."""
    clients, rounds = federation(seed=1, clients=6, rounds=600, users=2, noise=0.1), who_plays(600, 6)
    explore = np.random.default_rng(0).integers(K, size=(6, 601))
    run = reference.hetofedbandit(clients, rounds, explore=lambda i, t: explore[i, t], T0=30)
    assert run.phases == [{"t": 30, "cliques": [[0, 2, 4], [1, 3, 5]]}]
    assert [who for t, who in run.received[:3]] in ([0, 2, 4], [1, 3, 5])
    assert run.regret[-1] < reference.dislinucb(clients, rounds, D=0).regret[-1] / 2
    check_ledger(run, D**2 + D)


def test_the_test_of_homogeneity_by_hand():
    """On a line n observations with the mean y have theta = y: the statistic is a sum of squares between two."""
    one, other = (Sums(np.array([[n]]), np.array([n * y]), n) for n, y in ((4.0, 1.0), (12.0, 0.5)))
    statistic = (4 * 0.375**2 + 12 * 0.125**2) / 0.5**2
    assert reference.homogeneity(one, other, 0.5) == pytest.approx(2 * (1 - NormalDist().cdf(np.sqrt(statistic))))
    assert reference.homogeneity(one, Sums.none(1), 0.5) == 1


def test_cliques_of_a_path_overlap():
    joined = np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1) > 0
    assert reference.first_cliques(joined) == [[0, 1], [1, 2], [2, 3]]


# ----------------------------------------------------------------------------------------------------------- by hand


def on_a_line(thetas):
    """One arm, 1, no noise: V = lam + n, and n pulls of theta give theta n / (lam + n)."""
    return [Client.of_normals(np.ones((1, 1)), np.array([theta]), 0.0, np.zeros(30)) for theta in thetas]


def test_dislinucb_by_hand():
    """n log(1 + n / (1 + n_syn)) > 3 first at n = 3, 6, 9, after which n_syn = 6, 18, 36."""
    run = reference.dislinucb(on_a_line([1.0, 1.0]), who_plays(20, 2), D=3.0)
    assert run.sent == run.received == [(t, i) for t in (3, 9, 18) for i in (0, 1)]
    alone, after = 1 - 2 / 3, 1 - 6 / 7
    assert run.theta_error[[1, 2]] == pytest.approx([alone, after])


def test_fedlinucb_by_hand():
    """(1 + n_known + n) > 2.5 (1 + n_known), n_known of the client = 0, 2, 9 and, as the second in line, 0, 4, 17."""
    run = reference.fedlinucb(on_a_line([1.0, 1.0]), who_plays(30, 2), alpha=1.5)
    assert run.sent == run.received == [(2, 0), (2, 1), (7, 0), (10, 1), (23, 0)]
    assert run.theta_error[[0, 1, 6]] == pytest.approx([1, (1 / 3 + 1 / 5) / 2, (1 / 10 + 1 / 5) / 2])


def test_fedsuplinucb_by_hand():
    """On a line there is one layer. One arm: "async" is FedLinUCB, and "sync" DisLinUCB."""
    clients, rounds = on_a_line([1.0, 1.0]), who_plays(20, 2)
    run = reference.fedsuplinucb(clients, rounds, C=1.5)
    assert run.sent == run.received == [(2, 0), (2, 1), (7, 0), (10, 1)]
    run = reference.fedsuplinucb(clients, rounds, mode="sync", D=3.0)
    assert run.sent == run.received == [(t, i) for t in (3, 9, 18) for i in (0, 1)]


def test_async_linucb_by_hand():
    """Round 2: client 0 sends 2, its neighbour has 3 times what it had. Round 5: 1 + 2 + 5 > 2.5 (1 + 2). Round 15: as
    1 + 7 + 13 > 2.5 (1 + 7).
    """
    run = reference.async_linucb(on_a_line([1.0, 1.0]), who_plays(30, 2), gamma=2.5)
    assert run.sent == [(2, 0), (5, 1), (15, 0)]
    assert run.received == [(2, 1), (5, 0), (15, 1)]
    has = [1 - n / (1 + n) for n in (2, 4, 10, 7)]  # clients 0 and 1 after rounds 2 and 5
    assert run.theta_error[[1, 4]] == pytest.approx([(has[0] + has[1]) / 2, (has[2] + has[3]) / 2])


def test_fclub_by_hand():
    """Users +1, -1, +1, no messages but those of phases. Before round 3 estimates are +-2/3, F(2) = 0.84, and
    4/3 / (2 0.84) = 0.80 is above alpha2: the two that agree have 4 pulls together, and nothing changes before round 7.
    """
    run = reference.fclub(on_a_line([1.0, -1.0, 1.0]), who_plays(12, 3), alpha2=0.5, U=np.inf, D=np.inf)
    labels = [(phase["t"], phase["local"], phase["global"], phase["changed"]) for phase in run.phases]
    local = [0, 1, 2]
    assert labels == [(1, local, [0, 0, 0], True), (3, local, [0, 1, 0], True), (7, local, [0, 1, 0], False)]
    assert run.sent == [(t, i) for t in (2, 6) for i in local]  # in the round before a phase
    assert run.received == [(2, i) for i in local]
    assert run.theta_error == pytest.approx([1] + [(1 / 5 + 1 / 3 + 1 / 5) / 3] * 11)


# ------------------------------------------------------------------------------------------------------------ phases


def normals(seed, arms=K):
    """One number for each arm of each client in each phase, whoever asks first."""
    return lambda phase, i: np.random.default_rng((seed, phase, i)).normal(size=arms)


def g_optimal(arms, alive):
    return reference.supported(reference.frank_wolfe(arms, alive))


def g_optimal_of_all(e, active):
    return [reference.supported(pi) for pi in reference.multi_client_design(e, active)]


def same_arms(**options):
    """A federation whose clients all have the arms of the first."""
    clients = federation(contexts="fixed", **options)
    for client in clients:
        client.see = clients[0].see
    return clients


def check_phases(run, horizon, clients):
    assert [phase["start"] + phase["length"] for phase in run.phases] == [
        *(phase["start"] for phase in run.phases[1:]),
        horizon,
    ]
    assert all(phase["complete"] for phase in run.phases[:-1])
    best = sum(np.max(client.see(0) @ client.theta) for client in clients)
    worst = sum(np.min(client.see(0) @ client.theta) for client in clients)
    steps = np.diff(run.regret, prepend=0)
    assert np.all((steps >= -1e-12) & (steps <= best - worst + 1e-12))
    assert len(run.regret) == horizon


def test_delb_without_noise_knows_theta_after_a_phase():
    """Then an arm is dropped exactly when its gap is above 2 2^-l."""
    clients = same_arms(noise=0.0)
    run = reference.delb(clients, 3000, design=g_optimal, pulls=normals(1), C1=1.0, sigma=0.5)
    check_phases(run, 3000, clients)
    gaps = max(clients[0].see(0) @ clients[0].theta) - clients[0].see(0) @ clients[0].theta
    whole = [phase for phase in run.phases if phase["complete"]]
    assert len(whole) >= 3
    for phase in whole:
        np.testing.assert_array_equal(phase["active_after"], gaps <= 2 * 2.0 ** -phase["phase"])
    assert run.theta_error[whole[0]["length"] - 2] == pytest.approx(1)
    assert run.theta_error[whole[0]["length"] - 1] == pytest.approx(0, abs=1e-12)


def test_delb_shares_the_pulls_of_its_design():
    """Pieces of one row of pulls: as long as each other, and an arm more in a report for each cut within an arm."""
    clients = same_arms(clients=5)
    run = reference.delb(clients, 2000, design=g_optimal, pulls=normals(2), C1=0.1, sigma=1.0)
    for phase in run.phases:
        lists, m = phase["counts"], phase["pulls"]
        np.testing.assert_array_equal(lists.sum(axis=0), m)
        assert np.ptp(lists.sum(axis=1)) <= 1
        row = np.repeat(np.arange(K), m)
        pieces = np.split(row, np.cumsum(lists.sum(axis=1))[:-1])
        np.testing.assert_array_equal(lists, [np.bincount(piece, minlength=K) for piece in pieces])
        assert phase["planned"] == lists.sum(axis=1).max()
    assert run.scalars_up[-1] == sum(phase["reports"] for phase in run.phases)
    whole = sum(phase["complete"] for phase in run.phases)
    assert run.scalars_down[-1] == whole * len(clients) * D
    assert run.downloads[-1] == whole * len(clients)


@pytest.mark.parametrize("enhanced", [False, True])
@pytest.mark.parametrize("init", ["pulls", "none"])
def test_fedpe_without_noise_knows_theta(enhanced, init):
    clients = federation(contexts="fixed", noise=0.0)
    run = reference.fedpe(
        clients, 2000, design=g_optimal_of_all, pulls=normals(3), alpha=0.3, sigma=0.3, enhanced=enhanced, init=init
    )
    check_phases(run, 2000, clients)
    first = run.phases[0]["length"]
    assert first == (K if init == "pulls" else 2 + K)
    assert run.theta_error[first - 1] == pytest.approx(0, abs=1e-12)
    for phase in run.phases:  # of arms that are left; they need not span
        if phase["complete"]:
            for client, on in zip(clients, phase["active"], strict=True):
                wrong = client.see(0)[on] @ (phase["theta_hat"] - client.theta)
                np.testing.assert_allclose(wrong, 0, atol=1e-12)
    if init == "pulls":  # each arm once
        gaps = [max(c.see(0) @ c.theta) - c.see(0) @ c.theta for c in clients]
        assert run.regret[K - 1] == pytest.approx(np.sum(gaps))
    best = [int(np.argmax(client.see(0) @ client.theta)) for client in clients]
    assert run.phases[-1]["leaders"] == best
    assert all(on[a] for on, a in zip(run.phases[-1]["active"], best, strict=True))
    assert sum(on.sum() for on in run.phases[-1]["active"]) < M * K


def test_fedpe_keeps_what_it_cannot_tell_apart():
    """An infinite width drops nothing, and then the ledger has closed forms."""
    clients = federation(contexts="fixed")
    run = reference.fedpe(clients, 900, design=g_optimal_of_all, pulls=normals(4), alpha=1e9)
    assert [phase["planned"] for phase in run.phases] == [K] + [2**p + K for p in range(1, 10)]
    reports = [phase["reports"] for phase in run.phases]
    assert reports[0] == M * K
    opened, closed = len(run.phases) - 1, sum(phase["complete"] for phase in run.phases)
    assert (opened, closed) == (9, 9)
    assert run.scalars_up[-1] == opened * M * K + D * sum(reports)
    assert run.scalars_down[-1] == opened * M * K + closed * M * (D**2 + D)
    assert run.bits_up[-1] == 32 * D * sum(reports)
    assert run.bits_down[-1] == 3 * sum(reports[1:]) + closed * 32 * (D**2 + D)  # 3 bits name one of 6 arms


@pytest.mark.parametrize(("clients", "squared"), [(100, 24.13), (2, 17.65)])
def test_the_width_of_fedpe(clients, squared):
    """K = 10, d = 3, T = 2^17: 2 log(2 M K 17 / 0.1), or k0 d with k0 = 8.04 for many clients."""
    alpha = reference.fedpe_alpha(M=clients, K=10, d=3, T=2**17, delta=0.1)
    assert alpha**2 == pytest.approx(squared, abs=0.02)


@pytest.mark.parametrize("enhanced", [False, True])
def test_fedpe_in_theory_drops_no_best_arm(enhanced):
    clients = federation(contexts="fixed", noise=0.1)
    run = reference.fedpe(clients, 20_000, design=g_optimal_of_all, pulls=normals(6), enhanced=enhanced)
    best = [int(np.argmax(client.see(0) @ client.theta)) for client in clients]
    assert all(on[a] for phase in run.phases for on, a in zip(phase["active_after"], best, strict=True))
    assert sum(on.sum() for on in run.phases[-1]["active"]) < M * K / 2


def test_the_design_of_all_clients_is_optimal():
    """sum_i max_a e' V^-1 e = d at the optimum, and with one client it is the G-optimal design."""
    clients = federation(contexts="fixed", clients=10, arms=20, dim=5)
    e = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (client.see(0) for client in clients)]
    on = [np.ones(20, dtype=bool)] * 10
    pi = reference.multi_client_design(e, on, tol=1e-4)
    assert [own.sum() for own in pi] == pytest.approx([1.0] * 10)
    inverse = np.linalg.inv(sum(x.T @ (own[:, None] * x) for x, own in zip(e, pi, strict=True)))
    total = sum(np.max(np.einsum("ad,de,ae->a", x, inverse, x)) for x in e)
    assert 5 - 1e-9 <= total <= 5 * (1 + 1e-4)
    alone = reference.multi_client_design(e[:1], on[:1], tol=1e-4)[0]
    other = reference.frank_wolfe(e[0], on[0], tol=1e-4)
    logdets = [np.linalg.slogdet(e[0].T @ (own[:, None] * e[0]))[1] for own in (alone, other)]
    assert logdets[0] == pytest.approx(logdets[1], abs=1e-3)


def test_spanning_designs_are_spanning():
    x = unit(np.random.default_rng(0), 30, 5)
    on = np.arange(30) % 3 > 0
    pi = reference.spanning_design(x, on, 10)
    assert np.sum(pi > 0) == 10
    assert set(pi[pi > 0]) == {0.1}
    assert not np.any(pi[~on])
    assert np.linalg.matrix_rank(x[pi > 0]) == 5
    np.testing.assert_array_equal(reference.spanning_design(np.eye(4), np.ones(4, bool), 3), [1 / 3, 1 / 3, 1 / 3, 0])
    assert np.sum(reference.spanning_design(x, on, 100) > 0) == on.sum()


# --------------------------------------------------------------------------------------------------------------- PLS


def test_the_quantiser_is_unbiased_and_near():
    rng = np.random.default_rng(0)
    x, r, eps = rng.uniform(-1, 1, D), 1.5, 0.4
    grid = (np.arange(2000) + 0.5) / 2000
    drawn = [reference.quantise(x, r, eps, np.full(D, u)) for u in grid]
    np.testing.assert_allclose(np.mean([value for value, _ in drawn], axis=0), x, atol=1e-3)
    assert all(np.linalg.norm(value - x) <= eps for value, _ in drawn)
    value, bits = reference.quantise(x, r, eps)
    assert np.linalg.norm(value - x) <= eps / 2
    h = 2 * r / 15  # ceil(2 1.5 sqrt(4) / 0.4) = 15 intervals
    assert bits == sum(3 + int(np.ceil(abs(v) / h - 1e-9)) for v in value)
    np.testing.assert_allclose(reference.quantise(np.full(D, 9.0), r, eps)[0], r)  # clipped
    assert reference.quantise(np.zeros(D), 1.0, 0.4)[1] == 3 * D  # 10 intervals, 0 is the end of one


def pls_of(clients, horizon=4000, **settings):
    uniforms = lambda k, j: np.random.default_rng((9, k, j)).random(D)  # noqa: E731
    return reference.pls(clients, horizon, pulls=normals(5), uniforms=uniforms, **settings)


def test_pls_of_fine_quantisers_sends_the_mean_estimate():
    clients = federation(contexts="fixed", noise=0.0, rounds=4000)
    run = pls_of(clients, C=1.0, sigma=0.2, alpha_0=1e-6, beta_0=1e-6)
    check_phases(run, 4000, clients)
    explored = run.phases[0]["s_k"] * D
    assert run.theta_error[explored - 2] == pytest.approx(1)
    assert run.theta_error[explored - 1] == pytest.approx(0, abs=1e-5)
    assert run.phases[0]["best_arm_active"]
    exploited = np.diff(run.regret[explored - 1 : run.phases[0]["length"]])
    assert len(exploited) == run.phases[0]["exploited"] == 27  # M s_1^2 |theta|^2, s_1 = 3
    assert np.all(exploited <= M * 2 * run.phases[0]["tau_k"] + 1e-4)
    assert sum(phase["complete"] for phase in run.phases) >= 3
    assert run.theta_error[-1] == pytest.approx(0, abs=1e-5)  # later epochs send what is left of the difference


def test_pls_counts():
    clients = federation(contexts="fixed", rounds=4000)
    run = pls_of(clients, C=0.1, sigma=NOISE, tau=0.2)
    check_phases(run, 4000, clients)
    whole = [phase for phase in run.phases if phase["complete"]]
    assert run.uploads[-1] == M * len(whole)
    assert run.downloads[-1] == len(whole)
    assert (run.scalars_up[-1], run.scalars_down[-1]) == (M * D * len(whole), D * len(whole))
    assert run.bits_up[-1] == sum(phase["bits_up"] for phase in whole) >= 3 * M * D * len(whole)


def test_pls_explores_as_long_as_its_constants_say():
    """C = 6, d = 20, M = 10, T = 10^6: 6 20 log(10 19.93) 4 = 2541.5 pulls of each arm of a basis."""
    clients = federation(contexts="fixed", clients=10, arms=30, dim=20, noise=1.0)
    run = reference.pls(clients, 10**6, pulls=normals(6, 30), uniforms=lambda k, j: np.full(20, 0.5), exploit_rounds=0)
    assert run.phases[0]["s_k"] == 2542
    assert np.flatnonzero(run.uploads)[0] + 1 == 2542 * 20


def test_pls_in_theory():
    """Orthonormal bases: 40 0.01 4 log(8 3 k / 0.1) (4^k - 4) is 119, 632, 2769 for k = 2, 3, 4, so K_e = 3."""
    clients = federation(contexts="fixed", rounds=2000)
    for client in clients:
        client.see = lambda t: np.eye(K)[:, :D]
    run = pls_of(clients, horizon=2000, C="theory", sigma=0.1)
    assert run.phases[0]["s_k"] == 43  # 1.6 log(8 3 3 / 0.1) 4 = 42.1


# ------------------------------------------------------------------------------------------------------------- facts


def he_et_al(seed, steps, clients=15, dim=15, arms=25):
    """He et al.: one client a step, arms (2U - 1) / sqrt(d) drawn anew, theta = 1 / sqrt(d), noise 0.3."""
    rng = np.random.default_rng(seed)
    who = rng.integers(clients, size=steps)

    def make(i):
        plays = int(np.sum(who == i))
        shown = (2 * rng.random((plays, arms, dim)) - 1) / np.sqrt(dim)
        rewards = Rewards("gaussian", 0.3, normal=lambda z: z)
        return Client(np.full(dim, dim**-0.5), lambda t: shown[t], rewards, rng.normal(size=plays))

    return [make(i) for i in range(clients)], who_plays(steps, clients, who)


def test_messages_of_he_et_al():
    """A tenth of their 30000 steps; seeds 0 to 2 give 242 to 246 messages of FedLinUCB.

    After all of them the oracle has 392 to 394, published are 400 with a start from 0 instead of lam I; of Async-LinUCB
    47 uploads and 658 downloads, as published, for 6 of 8 seeds, 48 and 672 for the others.
    """
    clients, rounds = he_et_al(0, 3000)
    run = reference.fedlinucb(clients, rounds, alpha=1.0, beta=0.5, lam=1.0)
    assert run.uploads[-1] + run.downloads[-1] == pytest.approx(244, abs=4)
    run = reference.async_linucb(clients, rounds, gamma=6.0, alpha=0.5, lam=1.0)
    assert (run.uploads[-1], run.downloads[-1]) == (28, 28 * 14)


def test_dislinucb_meets_as_often_whatever_the_horizon():
    """D = T log(M T) / (d M): on redrawn arms; on fixed ones it may be once more or less."""
    meetings = []
    for horizon in (1000, 4000):
        clients = federation(clients=10, rounds=horizon, arms=20, dim=5)
        run = reference.dislinucb(clients, who_plays(horizon, 10))
        meetings.append(run.uploads[-1] / 10)
        growth, threshold = 5 * np.log(1 + 10 * horizon / 5), horizon * np.log(10 * horizon) / (5 * 10)
        assert meetings[-1] <= 2 * np.sqrt(horizon * growth / threshold)
    assert meetings == [4, 4]


@pytest.mark.parametrize(
    ("privacy", "eps", "s", "lam"),
    [
        ("ldp", 0.2, 23.729, 4876.9),
        ("ldp", 1.0, 5.4519, 1120.5),
        ("ldp", 5.0, 1.6214, 333.24),
        ("sdp-vector-sum", 0.2, 207.24, 4259.3),
        ("none", 1.0, 0.0, 10.0),
    ],
)
def test_constants_of_private_fedlinucb(privacy, eps, s, lam):
    """Of its public code, M = 100, d = 10, T = 10^4, B = 25: 9 levels."""
    found = reference.private_noise(privacy, M=100, d=10, T=10_000, B=25, eps=eps, delta_privacy=0.1, delta=0.01)
    assert found["kappa"] == 9
    assert found["s"] == pytest.approx(s, rel=3e-5)
    assert found["lam"] == pytest.approx(lam, rel=3e-5)


def test_amplification_needs_less_noise():
    """eps sqrt(M) std = sqrt(9 log(10^4) log(1 + 9) log(900 10^4)) = sqrt(9 9.2103 2.3026 16.0127)."""
    sizes = {"M": 100, "d": 10, "T": 10_000, "B": 25, "eps": 1e-3, "delta_privacy": 1e-4, "delta": 0.01}
    found = reference.private_noise("sdp-amplified", **sizes)
    assert found["s"] == pytest.approx(np.sqrt(9 * 9.2103 * 2.3026 * 16.0127) * 100, rel=1e-4)
    assert found["lam"] == pytest.approx(30 * found["s"] * 6.8508, rel=1e-4)
    assert found["s"] < reference.private_noise("ldp", **sizes)["s"]


@pytest.mark.parametrize("privacy", ["ldp", "sdp-amplified", "sdp-vector-sum"])
def test_released_noise_has_a_draw_for_each_bit(privacy):
    """popcount(k) draws of the variance M std^2 are in the noise of batch k: of 13 those made at 8, 12 and 13."""
    rounds, d = 15, 12
    clients = federation(clients=2, rounds=rounds, dim=d)
    rng = np.random.default_rng(3)
    gram_z, vector_z = rng.normal(size=(16, d, d)), rng.normal(size=(16, d))
    run = reference.private_fedlinucb(
        clients, who_plays(rounds, 2), privacy=privacy, batch=1, gram_z=gram_z, vector_z=vector_z
    )
    assert [phase["k"] for phase in run.phases] == list(range(1, 16))
    std = run.phases[0]["std"]
    if privacy == "sdp-vector-sum":
        assert std == pytest.approx(np.sqrt(3) / 4 * np.log(d**2 / 0.1))
    else:
        assert std == pytest.approx(np.sqrt(2) * run.phases[0]["s"])
    noise = [phase["released"].V - phase["true"].V for phase in run.phases]
    vectors = [phase["released"].b - phase["true"].b for phase in run.phases]
    made_of = [[k >> j << j for j in range(4) if k >> j & 1] for k in range(1, 16)]
    assert made_of[12] == [13, 12, 8]
    for Z, z, draws in zip(noise, vectors, made_of, strict=True):
        E = std * sum(gram_z[k] for k in draws)
        np.testing.assert_allclose(Z, (E + E.T) / 2, atol=1e-9 * std)
        np.testing.assert_allclose(z, std * sum(vector_z[k] for k in draws), atol=1e-9 * std)


SALGIA = {"clients": 10, "arms": 120, "dim": 20, "noise": 1.0, "contexts": "fixed"}  # T = 10^6


def on_the_sphere(clients, seed, common):
    rng = np.random.default_rng(seed)
    shared = unit(rng, 120, 20)
    for client in clients:
        own = shared if common else unit(rng, 120, 20)
        client.see = lambda t, own=own: own
    return clients


@pytest.mark.parametrize("seed", [3, 19])
def test_bits_of_delb(seed):
    """Salgia and Zhao, d = 20, M = 10, T = 10^6, K = 120, C1 = 10, 40 arms in the support, 24 bits a number.

    Phases of 25792, 103156 and 412624 rounds, then one that is cut. Their 336 bits up of each agent and 4700 down are
    those of 11 arms in the last phase, which share 20 reports. How many are left is chance: 11 for seed 19, of 40.
    """
    clients = on_the_sphere(federation(**SALGIA), seed, common=True)
    run = reference.delb(
        clients,
        10**6,
        design=lambda arms, alive: reference.spanning_design(arms, alive, 40),
        pulls=normals(7, 120),
        C1=10.0,
    )
    assert [phase["complete"] for phase in run.phases] == [True] * 3 + [False]
    size = [min(40, int(phase["active"].sum())) for phase in run.phases]
    reports = [phase["reports"] for phase in run.phases]
    assert reports[:2] == [40, 40]
    assert run.bits_up[-1] == 24 * sum(reports)
    names = [(s - 1).bit_length() for s in size]
    lengths = [15, 17, 19, 21]
    told = sum(n * (a + b) for n, a, b in zip(reports, names, lengths, strict=True))
    assert run.bits_down[-1] == told + 3 * 20 * 24
    if seed == 19:
        assert [phase["planned"] for phase in run.phases][:3] == [25792, 103156, 412624]
        assert (size, reports) == ([40, 40, 40, 11], [40, 40, 40, 20])
        assert (run.bits_up[-1] / 10, run.bits_down[-1]) == (336, 4700)


def test_bits_of_fedpe():
    """The same, with arms of their own, 60 in the support: 72960 bits up of each agent and 249900 down, as published.

    That takes 60 pairs that are left in the last phase, which is so for this seed.
    """
    clients = on_the_sphere(federation(**SALGIA), 1, common=False)

    def design(e, active):
        pi = reference.spanning_design(np.concatenate(e), np.concatenate(active), 60)
        return np.split(pi, 10)

    run = reference.fedpe(clients, 10**6, design=design, pulls=normals(8, 120), alpha=10.0, init="none")
    assert [phase["planned"] for phase in run.phases] == [2**p + 120 for p in range(1, 20)]
    assert not run.phases[-1]["complete"]
    assert run.bits_up[-1] / 10 == 72960
    assert run.bits_down[-1] == 249900

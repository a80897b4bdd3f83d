"""The oracles themselves: limits in which two of them are one, and figures that are published or follow by hand."""

import numpy as np
import pytest

from tests import reference
from tests.reference import Client, Rewards, who_plays

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
    assert run.uploads[-1] == T + len(starts)
    assert run.received == [(1, 0)]  # of the first start: nothing is ever new to the only cluster
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

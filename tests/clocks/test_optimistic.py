"""Runs whose rounds are played by the kernel, interpreted: the same curves as round by round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks import messages, optimistic
from fedbandit_jax.linalg import portable, pulls
from tests.algorithms.test_portability import make_program

pytestmark = pytest.mark.thorough

ALONE = [
    fb.LinUCB(),
    fb.ArmCon(alpha="theory", delta=0.3),
    fb.ConLinUCB(strategy="BS"),
    fb.ConLinUCB(strategy="MCR"),
    fb.ConLinUCB(strategy="UCB", alpha="theory"),
    fb.CLiME(c0=0.5, alpha=0.3),
]
TOGETHER = [
    fb.DisLinUCB(D=1.0, alpha="theory"),
    fb.AsyncLinUCB(gamma=1.2, gamma_D=3.0),
    fb.PrivateFedLinUCB(privacy="ldp", batch=7, eps=100.0, scale=0.1),
]


@pytest.fixture
def played(monkeypatch):
    """The kernel takes the place of rounds; how often it was traced."""
    traced, interpreted = [], pulls.optimistic_pulls

    def kernel(*given):
        traced.append(given)
        return interpreted(*given, interpret=True)

    def on_a_gpu():
        monkeypatch.setattr(portable, "ELSEWHERE", ("cuda", "tpu"))
        monkeypatch.setattr(pulls, "fits", lambda arms, dim, dtype: True)  # of float64, too
        monkeypatch.setattr(pulls, "optimistic_pulls", kernel)
        monkeypatch.setattr(optimistic, "on_cuda", lambda fast, plain, *operands: fast(*operands))
        monkeypatch.setattr(messages, "on_cuda", lambda fast, plain, *operands: fast(*operands))
        return traced

    return on_a_gpu


def play(algorithm, catalog, world=None):
    program, arguments = make_program(algorithm.prepare(500), catalog, np.float64, world)
    return jax.tree.map(np.asarray, program(*arguments))


@pytest.mark.parametrize("algorithm", ALONE + TOGETHER, ids=repr)
def test_runs_are_the_same(catalog, algorithm, played):
    with jax.enable_x64(True):
        expected = play(algorithm, catalog)
        traced = played()
        found = play(algorithm, catalog)
    assert traced, "the kernel did not play"
    assert (expected.regret[:, -1] > 0).all()
    if algorithm in TOGETHER:
        assert (expected.communication[:, -1] > 0).all(), "nobody has sent anything"
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9), found, expected)


def test_who_plays_in_his_own_way_is_not_optimistic():
    class Scaled(fb.LinUCB):
        def radius(self, state, client):
            return 2 * super().radius(state, client)

    class Greedy(fb.LinUCB):
        def choose(self, state, client, key):
            return jnp.argmax(state.means)

    class Hasty(fb.DisLinUCB):
        def due(self, state, client, t):
            return t % 2 == 0

    for kind in (Scaled, Greedy, Hasty):
        fb.REGISTRY.pop(kind.__name__, None)
    yes = (*ALONE, *TOGETHER, Scaled(), fb.CLiSKME())
    no = (Greedy(), Hasty(), fb.SharedLinUCB(), fb.HierLinUCB(), fb.FedLinUCB(), fb.FCLUB(), fb.ConUCB(), fb.Uniform())
    assert all(map(optimistic.is_optimistic, yes))
    assert not any(map(optimistic.is_optimistic, no))


class OwnReward(fb.World):
    def reward(self, mean, u, noise):
        return mean + noise * u


class Drifting(fb.World):
    def theta_at(self, theta, t):
        return theta * jnp.cos(t / 100)


@pytest.mark.parametrize(
    ("algorithm", "world"),
    [
        (fb.LinUCB(), OwnReward()),
        (fb.LinUCB(), Drifting()),
        (fb.LinUCB(), fb.World(contexts="redrawn")),
        (fb.DisLinUCB(), fb.World(contexts="redrawn")),
        (fb.DisLinUCB(), fb.World(arrivals="one")),
        (fb.CLiSK(alpha="theory"), None),  # its radius is by log det V
    ],
    ids=repr,
)
def test_what_the_kernel_does_not_know_is_played_by_rounds(catalog, algorithm, world, played):
    traced = played()
    with jax.enable_x64(True):
        program, arguments = make_program(algorithm.prepare(500), catalog, np.float64, world)
        jax.eval_shape(program, *arguments)
    assert not traced


def test_rewards_that_are_not_sums(catalog, played):
    world = fb.World(rewards="zero-one")
    with jax.enable_x64(True):
        expected = play(fb.LinUCB(), catalog, world)
        traced = played()
        found = play(fb.LinUCB(), catalog, world)
    assert traced
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9), found, expected)

"""Runs whose rounds are played by the kernel, interpreted: the same curves as round by round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks import messages, optimistic
from fedbandit_jax.linalg import portable, pulls
from tests.algorithms.test_portability import make_program

ALONE = [
    fb.LinUCB(),
    fb.LinUCB(alpha="theory", delta=0.3),
    fb.ArmCon(alpha="theory"),
    fb.ConLinUCB(strategy="BS"),
    fb.ConLinUCB(strategy="MCR"),
    fb.ConLinUCB(strategy="UCB", alpha="theory"),
    fb.CLiSK(alpha=0.3),
    fb.CLiME(c0=0.5, alpha=0.3),
]
TOGETHER = [
    fb.DisLinUCB(D=1.0),
    fb.DisLinUCB(D=0.0),
    fb.DisLinUCB(alpha="theory"),
    fb.AsyncLinUCB(gamma=1.5),
    fb.AsyncLinUCB(gamma=1.2, gamma_D=3.0, alpha="theory"),
    fb.PrivateFedLinUCB(privacy="none", batch=10, scale=0.1),
    fb.PrivateFedLinUCB(privacy="ldp", batch=7, eps=100.0, alpha=0.2),
]


@pytest.fixture
def played(monkeypatch):
    """The kernel takes the place of rounds; how often it was traced."""
    traced, interpreted = [], pulls.optimistic_pulls

    def kernel(*given):
        traced.append(given)
        return interpreted(*given, interpret=True)

    def on_a_gpu():
        monkeypatch.setattr(portable, "CUDA_ELSEWHERE", True)
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

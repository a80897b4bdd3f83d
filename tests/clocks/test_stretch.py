"""Stretches of rounds: the very rounds of the round clock, wherever they start and whatever other lanes do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.stretch import play_stretch
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.worlds.problem import sample_problem
from fedbandit_jax.worlds.stage import stages_of

CATALOG = fb.datasets.synthetic(seed=2, dim=4, num_arms=30, num_key_terms=5, num_users=3)


def problem_of(horizon, world=None):
    return sample_problem(
        jax.random.key(1),
        *(jnp.asarray(x, float) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users[:1])),
        clients=2,
        num_arms=7,
        noise=0.3,
        horizon=horizon,
        max_clients=3,
        max_arms=8,
        world=world,
    )


def stretch(start, length, problem, checkpoints):
    """LinUCB of width 1/2 and ridge 1, as fb.LinUCB()."""

    def choose(client, state):
        return argmax(jnp.where(client[1], state.means + 0.5 * state.lengths(), -jnp.inf))

    def learn(client, state, arm, reward, playing):
        arms = client[0]
        return regression.pull(state, arms, jnp.where(playing, arm, len(arms)), reward, playing.astype(reward.dtype))

    def refresh(client, state):
        return regression.recompute(state, client[0], 1.0)

    clients = problem.arms, problem.arm_mask
    state = jax.vmap(lambda arms: regression.start(arms, 1.0))(problem.arms)
    stages = stages_of(problem, jax.random.key(5))
    return play_stretch(choose, learn, refresh, clients, state, stages, start, length, checkpoints)


def test_from_the_first_round_on_it_is_the_round_clock():
    with jax.enable_x64(True):
        problem, rounds = problem_of(2500), jnp.arange(1.0, 2501)  # beyond an exact recomputation
        _, found = jax.jit(stretch)(jnp.int32(0), jnp.int32(2500), problem, rounds)
        expected = jax.jit(fb.LinUCB().run)(jax.random.key(5), problem, rounds)
    np.testing.assert_allclose(found, expected.regret, rtol=1e-9)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_lanes_of_other_lengths_change_nothing(rewards):
    """In one batch a stretch of no round, one inside a block, two that start and end in the midst of blocks."""
    starts, lengths = jnp.array([0, 70, 30, 100], jnp.int32), jnp.array([0, 20, 170, 100], jnp.int32)
    with jax.enable_x64(True):
        problem, rounds = problem_of(300, fb.World(rewards=rewards)), jnp.arange(1.0, 301)
        batched = jax.jit(jax.vmap(partial(stretch, problem=problem, checkpoints=rounds)))(starts, lengths)
        for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            state, regret = jax.jit(stretch)(start, length, problem, rounds)
            np.testing.assert_allclose(batched[1][i], regret, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(batched[0].theta[i], state.theta, rtol=1e-9, atol=1e-12)
            np.testing.assert_array_equal(state.pulls.counts.sum(axis=1)[:2], length)
            assert (np.diff(regret)[: max(int(start) - 1, 0)] == 0).all()
            assert (np.diff(regret)[int(start + length) :] == 0).all()
            assert length == 0 or regret[-1] > 0

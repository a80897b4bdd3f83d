"""The round clock: what learners count becomes curves, and learners of release 0.1 run or are told what to change."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.rounds import Total
from fedbandit_jax.linalg import regression

SETTING = {"clients": 3, "arms": 5, "horizon": 300, "users": 2, "checkpoints": 6}


@dataclass(frozen=True, kw_only=True)
class Reporting(fb.RoundAlgorithm, abstract=True):
    """Plays its first arm, and counts: an upload of three scalars every second round, a download for each question."""

    schedule: str = "linear"

    def start(self, client):
        return jnp.int32(0)

    def choose(self, state, client, key):
        return jnp.int32(0)

    def learn(self, state, client, arm, reward):
        sent = state % 2
        return state + 1, {"uploads": sent, "communication": 3 * sent, "conversations": 1}

    def ask(self, state, client, questions):
        return state, {"downloads": questions.count}

    def theta_hat(self, state):
        return jnp.zeros(6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_steps_count_is_added_up(catalog, dtype):
    curves = fb.simulate(catalog, Reporting(), dtype=dtype, **SETTING).to_pandas()
    t = curves["round"]
    np.testing.assert_array_equal(curves["uploads"], 3 * (t // 2))  # of all three clients
    np.testing.assert_array_equal(curves["communication"], 9 * (t // 2))
    np.testing.assert_array_equal(curves["downloads"], 3 * (t // 50))
    np.testing.assert_array_equal(curves["conversations"], t // 50 + t)  # per client: by the schedule, and besides


def test_a_long_sum_misses_nothing():
    """A million times 0.1 on top of 2^20, where float32 steps are 0.125."""

    @jax.jit
    def total():
        start = Total(jnp.float32(2**20), jnp.float32(0))
        return jax.lax.fori_loop(0, 10**6, lambda _, total: total.add(jnp.float32(0.1)), start)

    assert float(total().value) == pytest.approx(2**20 + 1e5, abs=0.2)


def test_learners_of_release_0_1_run_or_are_told_what_to_change():
    assert regression.exact is regression.recompute
    with pytest.raises(
        TypeError, match=r"^Old.ask\(self, state, client, first, count, key\) is release 0.1's: it must be"
    ):

        @dataclass(frozen=True, kw_only=True)
        class Old(fb.LinUCB, abstract=True):
            def ask(self, state, client, first, count, key):
                return state

    with pytest.raises(AttributeError, match=r"^a learner does not see theta: the user answers, in `ask`"):
        _ = fb.Client(*[None] * 4).theta


def pulling(arm):
    @dataclass(frozen=True, kw_only=True)
    class Pulling(Reporting, abstract=True):
        """Pulls one and the same arm."""

        def choose(self, state, client, key):
            return jnp.int32(arm)

    return Pulling()


@pytest.mark.parametrize("arm", [5, 7, 8, -1, 2**31 - 1])
def test_an_arm_that_is_not_there_is_no_free_lunch(catalog, arm):
    """With K = 5 padded to 8, arms 5 to 7 are padding; 8 and -1 do not exist."""
    setting = SETTING | {"arms": [5, 8]}
    with pytest.raises(FloatingPointError, match=r"regret of Pulling .*arms=5.*none of client.mask\)") as caught:
        fb.sweep(catalog, pulling(arm), **setting)
    kept = caught.value.results.to_pandas()
    assert set(kept.get("arms", ())) == ({8} if arm in (5, 7) else set())


def test_scores_that_are_not_numbers_pull_nothing(catalog):
    @dataclass(frozen=True, kw_only=True)
    class Confused(fb.LinUCB, abstract=True):
        def ucb(self, state, client):
            return jnp.full(client.mask.shape, jnp.nan, state.means.dtype)

    with pytest.raises(FloatingPointError, match=r"2 of 2 runs are not finite: regret of Confused"):
        fb.sweep(catalog, Confused(), **SETTING)


def test_padding_is_no_fault_of_the_clients_beside_it(catalog):
    """Federations padded in clients and arms: SharedLinUCB sees all of them at once."""
    results = fb.sweep(catalog, fb.SharedLinUCB(), **SETTING | {"clients": [1, 3], "arms": [5, 8]})
    assert len(results.final()) == 8

"""The kernel of a stretch of pulls, interpreted: the same numbers as pull after pull."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedbandit_jax.linalg import pulls, regression

ROUNDS = 64
ALIKE = {"float64": {"rtol": 1e-10, "atol": 1e-12}, "float32": {"rtol": 2e-4, "atol": 2e-5}}


def gaussian(mean, chance):
    return mean + chance


def clicks(mean, chance):
    return jnp.where(chance < mean, 1, -1).astype(mean.dtype)


def setting(K, d, dtype, first=0, seed=0):
    """Unit arms of which some may not be pulled, a ridge that has seen something, and what a stretch meets."""
    rng = np.random.default_rng(seed)
    arms = rng.normal(size=(K, d))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    mask = rng.random(K) < 0.8
    mask[K // 2] = True
    arms[~mask] = 0
    expected = arms @ rng.normal(size=d)
    losses = np.where(mask, expected[mask].max() - expected, np.nan)
    chance, radii = 0.3 * rng.normal(size=ROUNDS), 0.2 + 0.01 * np.arange(ROUNDS)
    given = (arms, arms.T, expected, losses, chance, radii, np.full(ROUNDS, np.inf))
    arms, columns, expected, losses, chance, radii, limits = (jnp.asarray(x, dtype) for x in given)
    met = pulls.Stretch(
        arms, columns, jnp.asarray(mask), expected, losses, chance, radii, limits, jnp.int32(first), jnp.int32(ROUNDS)
    )
    return ridge_of(arms), met


@jax.jit
def ridge_of(arms):
    ridge, K = regression.start(arms, 0.5), len(arms)
    for arm, answer in ((K // 2, 0.3), (K - 1, -0.2)):
        ridge, _ = regression.observe(ridge, arms, arms[arm] + 0.1, jnp.asarray(answer, arms.dtype))
    return regression.recompute(ridge, arms, 0.5)


def pull_after_pull(ridge, growth, met, reward):
    """What is known, growth and loss after each round, from none on; a leading axis of them."""
    return play_rounds(ridge, growth, met, reward, ROUNDS - int(met.first))


@partial(jax.jit, static_argnums=(3, 4))
def play_rounds(ridge, growth, met, reward, rounds):

    def one(carry, i):
        ridge, growth, lost = carry
        scores = jnp.where(met.mask, ridge.means + met.radii[i] * ridge.lengths(), -jnp.inf)
        arm = jnp.argmax(scores)
        growth = growth + jnp.log1p(ridge.widths[arm])
        got = reward(met.expected[arm], met.chance[met.first + i])
        after = regression.pull(ridge, met.arms, arm, got), growth, lost + met.losses[arm]
        return after, after

    start = ridge, growth, jnp.zeros_like(growth)
    _, after = lax.scan(one, start, jnp.arange(rounds))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, after)


@partial(jax.jit, static_argnums=3)
def in_a_kernel(ridge, growth, met, reward):
    return pulls.optimistic_pulls(ridge, growth, met, reward, interpret=True)


def after_each_round(ridge, growth, met, reward):
    """The kernel for stretches of 0, 1, ... rounds, as lanes of a batch."""
    counts = jnp.arange(ROUNDS + 1 - int(met.first), dtype=jnp.int32)
    return jax.jit(jax.vmap(lambda n: in_a_kernel(ridge, growth, met._replace(rounds=n), reward)))(counts)


def assert_alike(found, expected, dtype):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **ALIKE[dtype]), found, expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("K", "d", "first", "reward"), [(13, 5, 0, gaussian), (16, 16, 0, clicks), (33, 17, 47, gaussian)]
)
def test_the_state_after_each_round(K, d, first, reward, dtype):
    with jax.enable_x64(dtype == "float64"):
        ridge, met = setting(K, d, dtype, first)
        growth = jnp.asarray(0.5, dtype)
        known, grown, lost, played = after_each_round(ridge, growth, met, reward)
        expected = pull_after_pull(ridge, growth, met, reward)
    np.testing.assert_array_equal(played, np.arange(ROUNDS + 1 - first))
    np.testing.assert_array_equal(known.pulls.counts, expected[0].pulls.counts)
    assert len(np.unique(np.diff(known.pulls.counts, axis=0).argmax(axis=1))) > 1, "always the same arm"
    assert_alike((known, grown, lost), expected, dtype)


def test_lanes_of_a_batch_with_their_own_numbers():
    """Clients of several runs: other arms, masks, radii and lengths, and a clock that all share."""
    with jax.enable_x64(True):
        lanes = [[setting(9, 6, "float64", seed=2 * i + j) for j in range(2)] for i in range(2)]
        alone = [
            jax.tree.map(
                lambda x, n=17 + i: x[n],
                pull_after_pull(lanes[i][j][0], jnp.zeros(()), lanes[i][j][1]._replace(radii=given(i)), gaussian),
            )
            for i in range(2)
            for j in range(2)
        ]
        of_pairs = [jax.tree.map(lambda *x: jnp.stack(x), *pair) for pair in lanes]
        ridges, mets = jax.tree.map(lambda *x: jnp.stack(x), *of_pairs)
        mets = mets._replace(first=jnp.int32(0))
        each_run = pulls.Stretch(*[0] * 8, None, 0)
        each_client = pulls.Stretch(*[0] * 6, None, 0, None, None)

        def client(ridge, met):
            return in_a_kernel(ridge, jnp.zeros(()), met, gaussian)[:3]

        runs = jax.vmap(jax.vmap(client, in_axes=(0, each_client)), in_axes=(0, each_run))
        mets = mets._replace(radii=jnp.stack([given(0), given(1)]), rounds=jnp.array([17, 18], jnp.int32))
        found = jax.jit(runs)(ridges, mets)
    expected = jax.tree.map(lambda *x: np.stack(x).reshape(2, 2, *x[0].shape), *alone)
    assert_alike(found, expected, "float64")


def given(i):
    return 0.1 + 0.2 * i + 0.01 * jnp.arange(ROUNDS)


def test_it_ends_with_the_round_after_which_a_limit_is_passed():
    with jax.enable_x64(True):
        ridge, met = setting(13, 5, "float64")
        expected = pull_after_pull(ridge, jnp.asarray(1.0), met, gaussian)
        for n in (1, 2, 30):
            between = (expected[1][n - 1] + expected[1][n]) / 2
            limited = met._replace(limits=jnp.full(ROUNDS, between))
            found = in_a_kernel(ridge, jnp.asarray(1.0), limited, gaussian)
            assert found[3] == n
            assert_alike(found[:3], jax.tree.map(lambda x, n=n: x[n], expected), "float64")
        # Whatever has grown before, a round is played.
        assert in_a_kernel(ridge, jnp.asarray(1.0), met._replace(limits=jnp.zeros(ROUNDS)), gaussian)[3] == 1


def test_a_padded_client_plays_arms_that_do_not_exist():
    with jax.enable_x64(True):
        ridge, met = setting(9, 6, "float64")
        nothing = met._replace(
            **{name: jnp.zeros_like(getattr(met, name)) for name in ("arms", "columns", "mask", "expected", "losses")}
        )
        ridge = regression.start(nothing.arms, 1.0)
        known, growth, lost, _ = in_a_kernel(ridge, jnp.zeros(()), nothing, gaussian)
        expected = jax.tree.map(lambda x: x[-1], pull_after_pull(ridge, jnp.zeros(()), nothing, gaussian))
        assert growth == lost == 0
    assert_alike(known, expected[0], "float64")


def test_what_is_not_a_number_stays_so():
    """A loss of 0 would look like a perfect learner."""
    with jax.enable_x64(True):
        ridge, met = setting(9, 6, "float64")
        broken = met._replace(chance=met.chance.at[3].set(jnp.nan))
        known, _, lost, _ = in_a_kernel(ridge, jnp.zeros(()), broken, gaussian)
    assert np.isnan(lost)
    assert np.isnan(known.theta).all()


def test_which_sizes_fit():
    assert pulls.warps(100, 50) == pulls.warps(128, 64) == 4
    assert pulls.warps(1, 1) == pulls.warps(64, 16) == 1
    largest = {16: 1024, 32: 1024, 64: 256, 128: 128}
    for dim, arms in largest.items():
        assert pulls.fits(arms, dim, jnp.float32)
        assert not pulls.fits(arms + 1, dim, jnp.float32)
        assert not pulls.fits(arms, dim, jnp.float64)
    assert not pulls.fits(1, 129, jnp.float32)

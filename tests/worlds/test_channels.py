"""Channels: what users say of key terms, which may be asked about, what that costs; by the oracle and in law."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import fedbandit_jax as fb
from fedbandit_jax.clocks.client import Questions, client_of, in_round
from fedbandit_jax.worlds import channels
from fedbandit_jax.worlds.problem import sample_problem
from fedbandit_jax.worlds.stage import SIDES, stages_of, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference

LIKELY = 1e-3  # p-values below it are no chance, with seeds that are fixed
J, D, POOL, NOISE = 7, 4, 12, 0.3
DRAWS = 4000


def make_catalog(seed, links=0.3):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(n, D)) * 0.4 for n in (POOL, J, 3)]
    return fb.Catalog.from_arrays(*rows, weights=rng.random((POOL, J)) < links, normalise=False)


CATALOG = make_catalog(0)


# ------------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("links", [0.0, 0.3, 1.0])
def test_links_are_the_key_terms_of_each_arm(links):
    catalog = make_catalog(1, links)
    for row, weights in zip(catalog.links, catalog.weights.toarray(), strict=True):
        carried = np.flatnonzero(weights)
        assert sorted(row[row < J].tolist()) == carried.tolist()
        assert (row[len(carried) :] == J).all()
    assert catalog.links.dtype == np.int32
    assert catalog.links.shape[1] == max(1, (catalog.weights.toarray() > 0).sum(axis=1).max())
    bare = fb.Catalog.from_arrays(catalog.arms, catalog.key_terms, catalog.users)
    assert bare.links is None


related = jax.jit(channels.related, static_argnums=1)


@given(st.lists(st.lists(st.integers(0, J), min_size=3, max_size=3), min_size=4, max_size=4))
def test_related_key_terms_are_those_of_some_arm(rows):
    """All of them if there is none; J is padding."""
    carried = {k for row in rows for k in row if k < J}
    found = related(jnp.asarray(rows, jnp.int32), J)
    assert found.tolist() == [k in carried or not carried for k in range(J)]


# --------------------------------------------------------------------------------------- one client, and its oracle


def problem_of(world, seed=0, arms=3, max_arms=4):
    features = (jnp.asarray(x, float) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users))
    return sample_problem(
        jax.random.key(seed),
        *features,
        clients=1,
        num_arms=arms,
        noise=NOISE,
        horizon=10,
        max_clients=1,
        max_arms=max_arms,
        world=world,
        links=jnp.asarray(CATALOG.links),
    )


def questions_of(world, key, t=0, first=0, seed=0):
    """The first client's questions before its round t, and what it sees then."""
    problem = problem_of(world, seed)
    stages = stages_of(problem, key)
    stage = jax.tree.map(lambda x: x[0], {name: getattr(stages, name) for name in ("theta", "mask", "standing")})
    each = {name: jax.tree.map(lambda x: x[0], getattr(stages, name)) for name in ("arms", "arm_links", "answers")}
    keys = {name: getattr(stages, name)[0] for name in ("arms_key", "reward_key", "question_key")}
    means = None if stages.pool_means is None else stages.pool_means[0]
    alone = stages._replace(**stage, **each, **keys, pool_means=means)
    round = alone.round_alone(jnp.int32(t))
    client = in_round(client_of(problem, alone, ()), round)
    return Questions.before(alone, client, round, jnp.int32(t), jnp.int32(first), jnp.int32(1)), client, alone


WORLDS = {
    "mean": fb.World(charged=True),
    "max": fb.World(answers="max", discount=0.6, charged=True),
    "related": fb.World(candidates="related", charged=True),
    "redrawn": fb.World(contexts="redrawn", candidates="related", answers="max", charged=True, rewards="zero-one"),
}


def oracle_of(world, alone, client, question_u=(), side_u=()):
    shown = [int(np.abs(CATALOG.arms - x).sum(axis=1).argmin()) for x in np.asarray(client.arms)[client.mask]]
    words = {name: getattr(world, name) for name in ("answers", "discount", "candidates", "charged")}
    carries = [set(np.flatnonzero(row)) for row in CATALOG.weights.toarray()]
    channel = reference.Channel(**words, pool=CATALOG.arms, carries=carries, shown=lambda t: shown)
    rewards = reference.Rewards(world.rewards, NOISE, normal=lambda u: float(normal(jnp.asarray(u))))
    see = lambda t: CATALOG.arms[shown]  # noqa: E731
    sides = np.asarray(side_u), np.asarray(question_u)
    return reference.Client(np.asarray(alone.theta), see, rewards, np.zeros(1), sides[1], False, channel, sides[0])


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_candidates_and_costs_equal_the_oracle(name, seed):
    world, terms, count = WORLDS[name], CATALOG.key_terms, 6
    with jax.enable_x64(True):
        questions, client, alone = questions_of(world, jax.random.key(3), seed=seed)
        keys = [jax.random.fold_in(alone.question_key, q) for q in range(count)]
        u = [float(uniforms(key, (), jnp.float64)) for key in keys]
        sides = [np.asarray(uniforms(jax.random.fold_in(key, SIDES), (2,), jnp.float64)) for key in keys]
        oracle = oracle_of(world, alone, client, u, sides)
        mask = oracle.candidates(0, J)
        assert client.term_mask.tolist() == mask
        assert client.every_term == (world.candidates == "all")
        scores = jnp.arange(float(J))
        assert client.among_candidates(scores).tolist() == [i if good else -np.inf for i, good in enumerate(mask)]
        carried = [{k for k in row if k < J} for row in np.asarray(client.links).tolist()]
        real = int(client.mask.sum())
        assert carried[:real] == [oracle.channel.carries[arm] for arm in oracle.channel.shown(0)]
        assert not any(carried[real:]), "padding carries nothing"
        for k in range(J):
            assert float(questions.cost(k)) == pytest.approx(oracle.cost(0, k, terms), abs=1e-12)
        for arm in range(real):
            x = CATALOG.arms[oracle.channel.shown(0)[arm]]
            assert float(questions.cost_of_arm(arm)) == pytest.approx(oracle.cost_of_arm(0, x), abs=1e-12)
        for q in range(count):
            k, other = q % J, (q + 2) % J
            x, y = CATALOG.arms[q], terms[k]
            assert float(questions.about(q, k)) == pytest.approx(oracle.about(0, q, k, terms), abs=1e-9)
            assert float(questions.answer(q, jnp.asarray(x))) == pytest.approx(oracle.answer(0, q, x), abs=1e-9)
            assert bool(questions.compare(q, k, other)) == oracle.compare(q, k, other, terms)
            assert bool(questions.duel(q, jnp.asarray(x), jnp.asarray(y))) == oracle.duel(q, x, y)


def test_nothing_costs_where_nobody_charges():
    questions, client, _ = questions_of(fb.World(), jax.random.key(0))
    assert client.every_term
    assert client.term_mask.all()
    assert float(questions.cost(2)) == float(questions.cost_of_arm(1)) == 0


# --------------------------------------------------------------------------------------------------------------- laws


@partial(jax.jit, static_argnums=(1,))
def many(world, ask):
    """What `ask` gets to hear, by as many users who say the same but for their noise."""
    return jax.vmap(lambda key: ask(questions_of(world, key)[0]))(jax.random.split(jax.random.key(5), DRAWS))


def near(sample, mean, sd):
    """Mean and variance, within four standard errors."""
    assert abs(sample.mean() - mean) <= 4 * sd / np.sqrt(len(sample)) + 1e-9
    fourth = np.mean((sample - sample.mean()) ** 4)
    assert abs(sample.var() - sd**2) <= 4 * np.sqrt(max(fourth - sd**4, 0) / len(sample)) + 1e-6


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli", "uniform", "zero-one"])
def test_sums_of_answers_have_their_law(kind):
    """Seven answers at once: as many numbers one by one would have that mean and variance; of one, it is that."""
    n, k = 7, 4
    with jax.enable_x64(True):
        world = fb.World(rewards=kind, answers="max", discount=0.8)
        sums, ones, single = map(np.asarray, many(world, lambda q: (q.about(0, k, n), q.about(1, k, 1), q.about(1, k))))
        _, client, alone = questions_of(world, jax.random.key(0))
    mean = oracle_of(world, alone, client).mean_about(k, CATALOG.key_terms)
    sd = {"bernoulli": np.sqrt(1 - mean**2), "zero-one": np.sqrt(mean * (1 - mean))}.get(kind, NOISE)
    near(sums, n * mean, np.sqrt(n) * sd)
    near(ones, mean, sd)
    near(single, mean, sd)
    if kind == "gaussian":
        np.testing.assert_array_equal(ones, single)
    if kind == "zero-one":
        assert set(sums) <= set(range(n + 1))
        counts = np.bincount(sums.astype(int), minlength=n + 1)
        expected = scipy.stats.binom.pmf(np.arange(n + 1), n, mean) * DRAWS
        often = expected > 5
        folded = [np.append(x[often], x[~often].sum()) for x in (counts, expected)]
        folded = [x[: 1 + int(often.sum())] if expected[~often].sum() > 1e-6 else x[:-1] for x in folded]
        assert scipy.stats.chisquare(folded[0], folded[1] * folded[0].sum() / folded[1].sum()).pvalue > LIKELY


def test_answers_that_share_their_noise_are_said_again():
    world = fb.World(shared_noise=True)
    with jax.enable_x64(True):
        once, often = map(np.asarray, many(world, lambda q: (q.about(0, 1), q.about(3, 1, 5))))
    np.testing.assert_allclose(often, 5 * once, rtol=1e-12)


def test_comparisons_and_duels_have_their_law():
    """P(k before l) = Phi((m_k - m_l) / (sqrt(2) noise)); P(x beats y) = sigmoid((x - y).theta)."""
    k, other = 2, 5
    x, y = (jnp.asarray(CATALOG.arms[i]) for i in (0, 3))
    with jax.enable_x64(True):
        preferred, won, again = map(
            np.asarray, many(fb.World(), lambda q: (q.compare(0, k, other), q.duel(1, x, y), q.duel(2, y, x)))
        )
        theta = np.asarray(problem_of(fb.World()).theta[0])
    gap = (CATALOG.key_terms[k] - CATALOG.key_terms[other]) @ theta
    difference = (CATALOG.arms[0] - CATALOG.arms[3]) @ theta
    chance = 1 / (1 + np.exp(-difference))
    for found, p in (
        (preferred, scipy.stats.norm.cdf(gap / (np.sqrt(2) * NOISE))),
        (won, chance),
        (again, 1 - chance),
    ):
        assert 0.02 < p < 0.98
        assert abs(found.mean() - p) < 4 * np.sqrt(p * (1 - p) / DRAWS)
    assert abs(np.corrcoef(preferred, won)[0, 1]) < 4 / np.sqrt(DRAWS)


def test_a_world_without_sums_says_so():
    kind = type("Mine", (fb.World,), {"reward": lambda self, mean, u, noise: mean})
    questions = questions_of(kind(), jax.random.key(0))[0]
    with pytest.raises(ValueError, match=r"^Mine.sum_of_rewards is missing: [^\n]*$"):
        questions.about(0, 1, 3)


def test_preferences_that_change_are_asked_about_as_they_are_then():
    """In round t the user has t + 1 times the preference: answers, their maxima and costs follow."""

    class Growing(fb.World):
        def theta_at(self, theta, t):
            return theta * (1.0 + t)

    with jax.enable_x64(True):
        for fields in ({}, {"answers": "max"}):
            now, then = (questions_of(Growing(charged=True, **fields), jax.random.key(0), t)[0] for t in (0, 2))
            for k in range(J):
                assert float(then.cost(k)) == pytest.approx(3 * float(now.cost(k)))

"""CLiSK, CLiME and CLiSK-ME against the oracle, round by round on the same noise; the law of the perturbations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational import clisk
from fedbandit_jax.clocks.client import Client
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.linalg.eigenvalues import eigenpairs
from fedbandit_jax.linalg.sampling import many_uniforms
from fedbandit_jax.worlds.stage import uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.runs import run
from tests.algorithms.test_rounds import CATALOG, arms_pulled, make_problem, noise_of

ROUNDS, SEED = 700, 8
J, D = CATALOG.key_terms.shape
compiled_eigenpairs = jax.jit(eigenpairs)  # not a program of its own for each call
CHECKING = {"c0": 0.5, "level": 0.03, "lam": 0.4}
LEARNERS = [
    fb.CLiSK(),
    fb.CLiSK(rho=1.0, R=0.4, alpha="theory", delta=0.02, sigma=0.2),
    fb.CLiSK(rho=0.5, normalise_smoothed=True, schedule="linear", lam=0.3),
    fb.CLiSK(rho=0.0, R=1.0),
    fb.CLiME(**CHECKING),
    fb.CLiME(**CHECKING, checks="interval", interval=60, alpha="theory"),
    fb.CLiME(c0=0.7, checks="continuous", lam=0.2),
    fb.CLiSKME(**CHECKING),
    fb.CLiSKME(**CHECKING, rho=0.6, R=0.5, normalise_smoothed=True, checks="interval", interval=90, alpha="theory"),
]


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(clisk, "ROWS", 10)  # of 25 key terms: three blocks, the last one with padding


def perturbations(algorithm, key, direction):
    """(J, d): those of a question, of which the package draws no more than it needs."""
    if algorithm.R is None and not algorithm.normalise_smoothed:
        z = np.asarray(normal(many_uniforms(key, J + D)), np.float64)
        length = np.linalg.norm(direction)
        g = direction / length if length > 0 else direction
        return algorithm.rho * (np.outer(z[:J], g) + z[J:] - (g @ z[J:]) * g)
    blocks = [clisk.noise_of_rows(jax.random.fold_in(key, i), 10, D, algorithm.rho, algorithm.R) for i in range(3)]
    return np.concatenate(blocks)[:J].astype(np.float64)


def expected_run(algorithm, problem, client_number):
    """Of the oracle."""
    z, answers, asks = noise_of(SEED, client_number)
    theta, sigma, key_terms = (np.asarray(x) for x in (problem.theta[0], problem.noise, problem.key_terms))
    client = reference.Client.of_normals(np.asarray(problem.arms[client_number]), theta, float(sigma), z, answers)
    own = ("schedule", "rho", "R", "level", "checks", "interval")
    given = {name: value for name, value in algorithm.hyperparameters().items() if name not in own}
    if isinstance(algorithm, fb.CLiSK):
        b = [Schedule.of(algorithm.schedule, ROUNDS)(t) for t in range(1, ROUNDS + 1)]
        key = lambda q: jax.random.fold_in(jax.random.fold_in(asks, q), 1)  # noqa: E731
        eps = lambda q, theta_hat: perturbations(algorithm, key(q), theta_hat)  # noqa: E731
        return reference.clisk(client, key_terms, ROUNDS, b=b, eps=eps, **given)
    checks = reference.checks(algorithm.checks, ROUNDS, algorithm.interval)
    number = np.cumsum(checks) - 1  # of the check in a round

    def key(t, i):
        return jax.random.fold_in(jax.random.fold_in(asks, number[t]), i)

    def said(t, i, k, x, n):
        return n * (x @ theta) + np.sqrt(n) * sigma * float(normal(uniforms(key(t, i), (1,), jnp.float64))[0])

    def eigen(V):
        values, vectors = compiled_eigenpairs(jnp.asarray(V - algorithm.lam * np.eye(D)))
        return np.asarray(values) + algorithm.lam, np.asarray(vectors)

    given |= {"checks": checks, "eigen": eigen, "answers": said}
    given["level"] = 0.5 * algorithm.c0**2 / D if algorithm.level is None else algorithm.level
    if isinstance(algorithm, fb.CLiSKME):
        eps = lambda t, i, v: perturbations(algorithm, jax.random.fold_in(key(t, i), 1), v)  # noqa: E731
        return reference.cliskme(client, key_terms, ROUNDS, eps=eps, **given)
    return reference.clime(client, key_terms, ROUNDS, **given)


@pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda a: f"{a.title}-{a.alpha}-{getattr(a, 'checks', a.lam)}")
def test_every_round_equals_the_oracle(algorithm):
    """Same noise, float64: the same arms in all rounds, the same regret, questions and estimates."""
    with jax.enable_x64(True):
        problem = make_problem(1, clients=1)
        expected = expected_run(algorithm, problem, 0)
        trace = run(algorithm.prepare(ROUNDS), jax.random.key(SEED), problem, jnp.arange(1.0, ROUNDS + 1))
        trace, gaps = jax.tree.map(np.asarray, (trace, problem.gaps[0]))
    np.testing.assert_array_equal(arms_pulled(trace.regret, gaps), expected.arms)
    np.testing.assert_allclose(trace.regret, expected.regret, atol=1e-9)
    np.testing.assert_allclose(trace.theta_error, expected.theta_error, rtol=1e-6)
    np.testing.assert_array_equal(trace.conversations, expected.asked)
    assert expected.asked[-1] > 10
    if isinstance(algorithm, fb.CLiSK) and algorithm.rho == 0:
        assert len(set(expected.questions[10:])) == 1, "greedy: one key term for ever"


# ------------------------------------------------------------------------------------------------- perturbations

TERMS = np.random.default_rng(0).normal(size=(7, 3)) / 2
USER = Client(
    jnp.zeros((1, 3)), jnp.ones(1, bool), jnp.asarray(TERMS, jnp.float32), jnp.float32(0), term_mask=jnp.arange(7) != 4
)


@pytest.mark.parametrize(("rho", "R"), [(0.5, 0.4), (1.0, 3.0), (2.0, 0.1), (0.3, None)])
def test_noise_is_a_truncated_normal(rho, R):
    """Not a clipped one: nothing piles up at the ends."""
    with np.errstate(all="raise"):
        x = np.asarray(clisk.noise_of_rows(jax.random.key(3), 300, 40, rho, R)).ravel()
    most = np.inf if R is None else R / rho
    assert np.abs(x).max() <= rho * most * (1 + 1e-6)
    assert stats.kstest(x / rho, stats.truncnorm(-most, most).cdf).pvalue > 0.01


@pytest.mark.parametrize("either_way", [False, True])
def test_noise_drawn_for_the_winner_alone_has_the_law_of_noise_drawn_for_all(either_way):
    """How often each key term wins, and the first two moments of what is asked about it."""
    runs, direction = 40_000, jnp.array([0.6, -0.3, 0.2], jnp.float32)

    @partial(jax.jit, static_argnums=0)
    def draw(R, keys):
        ask = partial(clisk.perturbed, USER, direction, rho=0.5, R=R, normalise=False, either_way=either_way)
        return jax.vmap(lambda key: ask(key=key))(keys)

    found = [draw(R, jax.random.split(jax.random.key(seed), runs)) for seed, R in enumerate((None, 1e3))]
    (some, x), (others, y) = ((np.asarray(k), np.asarray(x, np.float64)) for k, x in found)
    table = np.array([np.bincount(k, minlength=7) for k in (some, others)])
    assert (table[:, 4] == 0).all(), "may not be asked about"
    assert (table[:, [0, 1, 2, 3, 5, 6]] > 0).all()
    assert stats.chi2_contingency(np.delete(table, 4, axis=1)).pvalue > 0.01
    for one, other in ((x, y), (x[:, :, None] * x[:, None, :], y[:, :, None] * y[:, None, :])):
        error = np.hypot(one.std(axis=0), other.std(axis=0)) / np.sqrt(runs)
        assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4.5 * error).all()


@pytest.mark.parametrize(("R", "normalise"), [(None, False), (0.5, False), (None, True)])
def test_without_noise_it_is_the_best_key_term(R, normalise):
    """And of a direction that is 0, the first that may be asked about."""
    direction = jnp.array([0.6, -0.3, 0.2], jnp.float32)
    lengths = np.linalg.norm(TERMS, axis=1) if normalise else 1
    scores = np.where(np.arange(7) == 4, -np.inf, TERMS @ np.asarray(direction) / lengths)
    ask = partial(clisk.perturbed, USER, key=jax.random.key(1), rho=0.0, R=R, normalise=normalise)
    k, x = ask(direction=direction)
    assert k == scores.argmax()
    np.testing.assert_allclose(x, TERMS[k] / np.broadcast_to(lengths, 7)[k], rtol=1e-6)
    assert ask(direction=0 * direction)[0] == 0


# --------------------------------------------------------------------------------------------------------- CLiME


def test_it_asks_where_it_checks_and_less_than_a_question_a_round():
    """level d / c0^2 of the rounds at most, and a question more of each direction and check."""
    algorithm = fb.CLiME(**CHECKING, alpha=0.05)
    trace = run(algorithm, jax.random.key(0), make_problem(3, clients=1), jnp.arange(1.0, 2001))
    grows = np.flatnonzero(np.diff(np.asarray(trace.conversations), prepend=0)) + 1
    assert set(grows) <= {2**k for k in range(12)}
    assert grows.min() > CHECKING["lam"] / CHECKING["level"], "no eigenvalue is below lam"
    bound = CHECKING["level"] * D * grows / CHECKING["c0"] ** 2 + D * np.arange(1, len(grows) + 1)
    assert (np.asarray(trace.conversations)[grows - 1] <= bound).all()


def test_questions_cost_regret_in_a_world_that_charges():
    """The same play: its questions tell the same, and cost what the best of them would have been better."""
    rng = np.random.default_rng(0)
    weights = rng.random((80, J)) < 0.2
    catalog = fb.Catalog.from_arrays(CATALOG.arms, CATALOG.key_terms, CATALOG.users, weights=weights)
    world = fb.World(candidates="related")
    setting = {"clients": 2, "arms": 8, "horizon": 300, "users": 1, "noise": 0.2, "checkpoints": 10}
    for algorithm in (fb.CLiSK(R=0.5), fb.CLiME(**CHECKING), fb.CLiSKME(**CHECKING)):
        found = fb.sweep(catalog, algorithm, world=[world, world.replace(charged=True)], **setting).to_pandas()
        free, charged = (part for _, part in found.groupby("charged"))
        np.testing.assert_array_equal(free["conversations"], charged["conversations"])
        np.testing.assert_allclose(free["theta_error"], charged["theta_error"], rtol=1e-4)
        paid = charged["regret"].to_numpy() - free["regret"].to_numpy()
        assert (paid >= -1e-3).all()
        assert paid[-1] > 1


def test_bad_numbers_are_refused(nothing_traced):
    setting = {"clients": 1, "arms": 5, "horizon": 50, "users": 1}
    wrong = {
        "rho=-1 ": fb.CLiSK(rho=-1),
        "R=0 ": fb.CLiSK(R=0),
        "normalise_smoothed='yes' ": fb.CLiSK(normalise_smoothed="yes"),
        "normalise_smoothed=1 ": fb.CLiSKME(normalise_smoothed=1),
        "level=0.2 is not allowed: it must be below c0.2/d = 0.0416667, .*; None takes 0.0208$": fb.CLiME(
            level=0.2, c0=0.5
        ),
        "c0=2 ": fb.CLiME(c0=2),
        "interval=2.5 ": fb.CLiME(interval=2.5),
        "checks='often' ": fb.CLiME(checks="often"),
    }
    for sentence, algorithm in wrong.items():
        with pytest.raises(ValueError, match=f"^{sentence}"):
            fb.simulate(CATALOG, algorithm, **setting)
    flat = fb.Catalog.from_arrays(np.eye(3), [[1.0, 0, 0]], np.eye(3), name="flat")
    with pytest.raises(ValueError, match=r"^c0=None is not allowed: the key terms of flat span 1 of 3 dimensions"):
        fb.simulate(flat, fb.CLiME(), clients=1, arms=2, horizon=50, users=1)
    with pytest.raises(ValueError, match=r"^answers='max'|asks about perturbed key terms, so answers='max' is not"):
        fb.simulate(CATALOG, fb.CLiSK(), world=fb.World(answers="max"), **setting)


def test_a_level_is_allowed_up_to_what_the_sentence_says():
    setting = {"dim": 10, "clients": 1, "arms": 5, "horizon": 50, "noise": 0.1}
    with pytest.raises(ValueError, match=r"below c0\^2/d = 0.0480249, .*; None takes 0.024$"):
        fb.CLiME(level=0.05, c0=0.693).check(**setting)
    for level in (0.048, 0.024, None):
        fb.CLiME(level=level, c0=0.693).check(**setting)


def test_the_coverage_of_the_catalog():
    assert fb.CLiME().for_catalog(CATALOG).c0 == CATALOG.realised_C
    with pytest.raises(ValueError, match=r"^c0=None is not allowed: outside simulate and sweep, call algorithm"):
        run(fb.CLiME(), jax.random.key(0), make_problem(3, clients=1), jnp.array([10.0]))

"""PLS against the NumPy oracle, epoch by epoch and round by round; its limits, worlds and precisions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.phases import draw
from fedbandit_jax.linalg.sampling import binomial
from fedbandit_jax.worlds.problem import sample_problem
from fedbandit_jax.worlds.stage import BLOCK, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.runs import run

DIM = 4
MESSAGES = ("uploads", "downloads", "scalars_up", "scalars_down", "bits_up", "bits_down")
sample = jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))


def make_catalog():
    """Vectors of different lengths below 1: no two arms are equally good by chance, and clicks have means."""
    rng = np.random.default_rng(11)

    def rows(n):
        x = rng.normal(size=(n, DIM))
        return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(0.6, 1, (n, 1))

    return fb.Catalog.from_arrays(rows(40), rows(5), rows(6), normalise=False, name="lengths")


CATALOG = make_catalog()


def make_problem(seed=0, *, clients=3, arms=9, noise=0.3, horizon=1500, shape=None, world=None):
    return sample(
        jax.random.key(seed),
        *(jnp.asarray(x, float) for x in (CATALOG.arms, CATALOG.key_terms, CATALOG.users)),
        clients=clients,
        num_arms=arms,
        noise=noise,
        horizon=horizon,
        max_clients=(shape or (clients, arms))[0],
        max_arms=(shape or (clients, arms))[1],
        world=world,
        user=1,
        user_bound=CATALOG.user_bound,
    )


def play(algorithm, problem, seed=3):
    """A curve in every round."""
    rounds = jnp.arange(1.0, int(problem.horizon) + 1)
    return jax.tree.map(np.asarray, run(algorithm, jax.random.key(seed), problem, rounds))


def epochs_of(trace):
    played = trace.phases["phase"] > 0
    return {name: column[played] for name, column in trace.phases.items()}


# -------------------------------------------------------------------------------------------------------- the oracle


class Replay:
    """The package's random numbers, as the oracle asks for them."""

    def __init__(self, problem, seed):
        _, self.K, self.d = problem.arms.shape
        self.key, self.rewards = jax.random.key(seed), problem.world.rewards

    def of(self, k, j):
        return draw(self.key, jnp.int32(j), jnp.int32(k), self.K, self.d, jnp.float64, with_keys=True)

    def pulls(self, k, j):
        drawn = self.of(k, j)
        if self.rewards == "gaussian":
            return np.asarray(drawn.pulls)

        def of_digit(b, counts, shares):
            key = jax.random.fold_in(drawn.keys[0], b) if b else drawn.keys[0]
            return np.asarray(jax.jit(binomial)(key, jnp.asarray(counts, float), jnp.asarray(shares, float)))

        return of_digit

    def uniforms(self, k, j):
        return np.asarray((uniforms(self.of(k, j).keys[1], (self.d,), jnp.float64) + 1) / 2)

    def of_rounds(self, j, rounds):
        key = jax.random.fold_in(jax.random.fold_in(self.key, j), 0)
        u = [uniforms(jax.random.fold_in(key, b), (BLOCK,), jnp.float64) for b in range(-(-rounds // BLOCK))]
        u = jnp.concatenate(u)[:rounds]
        return np.asarray(normal(u) if self.rewards == "gaussian" else u)


def oracle(algorithm, problem, seed=3):
    replay, T, noise = Replay(problem, seed), int(problem.horizon), float(problem.noise)
    rewards = reference.Rewards(problem.world.rewards, noise, normal=lambda z: z)
    clients = [
        reference.Client(theta, lambda t, arms=arms: arms, rewards, replay.of_rounds(j, T))
        for j, (arms, theta) in enumerate(zip(np.asarray(problem.arms), np.asarray(problem.theta), strict=True))
    ]
    given = algorithm.hyperparameters() | {"S": float(problem.user_bound)}
    return reference.pls(clients, T, pulls=replay.pulls, uniforms=replay.uniforms, **given)


CASES = {
    "defaults": ({}, {}),
    "several epochs": ({"C": 0.05}, {}),
    "the paper's constants": ({"C": 0.05, "tau": 3.0, "B_1": 1.0, "alpha_0": 0.5, "beta_0": 0.5}, {}),
    "norm found late": ({"C": 0.02, "tau": 6.0}, {}),
    "greedy after a while": ({"C": 0.1, "exploit_rounds": 50}, {}),
    "greedy at once": ({"C": 0.1, "exploit_rounds": 0}, {}),
    "theory": ({"C": "theory", "delta": 0.02, "sigma": 0.01}, {}),
    "theory, cut": ({"C": "theory"}, {"horizon": 200}),
    "one client": ({"C": 0.05}, {"clients": 1}),
    "fewer arms than dimensions": ({"C": 0.1}, {"arms": 3}),
    "cut while exploring": ({}, {"horizon": 100}),
    "other width": ({"C": 0.05, "gamma": 0.3, "lam": 0.2, "sigma": 0.7}, {}),
    "two users": ({"C": 0.05}, {"world": fb.World(preferences=2)}),
    "common arms": ({"C": 0.05}, {"world": fb.World(arm_sets="common")}),
    "clicks": ({"C": 0.02}, {"world": fb.World(rewards="bernoulli")}),
    "bounded": ({"C": 0.05}, {"world": fb.World(rewards="uniform")}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_round_and_epoch_equal_the_oracle(case):
    """Same random numbers: the same curves in every round, the same messages bit by bit, the same epochs."""
    hyperparameters, setting = CASES[case]
    algorithm = fb.PLS(**hyperparameters)
    with jax.enable_x64(True):
        problem = make_problem(**setting)
        found, expected = play(algorithm, problem), oracle(algorithm, problem)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=1e-9)
    np.testing.assert_allclose(found.theta_error, expected.theta_error, rtol=1e-9)
    np.testing.assert_array_equal(found.communication, expected.communication)
    np.testing.assert_array_equal(found.conversations, 0)
    assert set(found.counts) == set(MESSAGES)
    for name in MESSAGES:
        np.testing.assert_array_equal(found.counts[name], getattr(expected, name), err_msg=name)
    epochs = epochs_of(found)
    renamed = {"s": "s_k", "tau": "tau_k"}
    for name in set(expected.phases[0]) - {"bits_up", "bits_down"}:
        rows = np.array([row[name] for row in expected.phases], float)
        np.testing.assert_allclose(epochs[renamed.get(name, name)], rows, rtol=1e-9, err_msg=name)


def test_the_cases_reach_what_they_are_meant_for():
    with jax.enable_x64(True):
        found = {case: epochs_of(play(fb.PLS(**CASES[case][0]), make_problem(**CASES[case][1]))) for case in CASES}
    assert len(found["several epochs"]["phase"]) >= 3
    assert (found["norm found late"]["exploited"][:1] == 0).all()
    assert found["norm found late"]["exploited"].any()
    assert found["greedy after a while"]["exploited"].max() > 50
    assert len(found["theory"]["phase"]) >= 2
    assert not found["cut while exploring"]["complete"].any()
    assert not found["theory, cut"]["complete"].any()
    assert any((epochs["retained_mean"] < CASES[case][1].get("arms", 9)).any() for case, epochs in found.items())


# ------------------------------------------------------------------------------------------------------------ limits


def test_without_quantisation_the_server_has_the_mean_of_estimates():
    """Finer grids: the estimate comes to that of unrounded messages, and the bits grow."""
    with jax.enable_x64(True):
        problem = make_problem(horizon=600)
        fine, finer, coarse = (
            play(fb.PLS(C=0.3, alpha_0=a, beta_0=a, exploit_rounds=0), problem) for a in (1e-5, 1e-7, 5.0)
        )
    assert fine.phases["complete"][0]
    np.testing.assert_allclose(fine.theta_error[-1], finer.theta_error[-1], atol=1e-5)
    assert abs(coarse.theta_error[-1] - finer.theta_error[-1]) > 1e-3
    assert finer.counts["bits_up"][-1] > 50 * fine.counts["bits_up"][-1] > 50 * coarse.counts["bits_up"][-1]


def test_messages():
    with jax.enable_x64(True):
        problem = make_problem(horizon=3000)
        trace = play(fb.PLS(C=0.05), problem)
    counts, epochs = trace.counts, epochs_of(trace)
    for name in MESSAGES:
        assert (np.diff(counts[name]) >= 0).all(), name
    sent = epochs["complete"].sum()
    assert sent >= 3
    assert counts["uploads"][-1] == counts["scalars_up"][-1] / DIM == 3 * sent
    assert counts["downloads"][-1] == counts["scalars_down"][-1] / DIM == sent
    assert counts["bits_up"][-1] >= 3 * counts["scalars_up"][-1]
    assert counts["bits_down"][-1] >= 3 * counts["scalars_down"][-1]
    ends = (epochs["start"] + epochs["length"] - epochs["exploited"])[epochs["complete"] > 0].astype(int)
    np.testing.assert_array_equal(np.flatnonzero(np.diff(counts["uploads"], prepend=0)) + 1, ends)


def test_estimates_of_more_clients_are_better():
    """Each of 16 clients knows as little as one alone, but errors of their mean are a quarter as long."""

    def error(clients):
        settings = {"arms": 9, "noise": 1.0, "horizon": 2000, "users": 3, "seeds": 8}
        C = 1.2 / np.log(clients * np.log2(2000))  # whatever M is, the same s_1
        algorithm = fb.PLS(C=C, alpha_0=0.2, beta_0=0.01, exploit_rounds=0)
        phases = fb.simulate(CATALOG, algorithm, clients=clients, **settings).phases()
        return phases.loc[phases["phase"] == 1, "theta_error"].mean()

    assert error(16) == pytest.approx(error(1) / 4, rel=0.25)


def test_the_federation_beats_its_clients_alone():
    settings = {"arms": 20, "noise": 0.5, "horizon": 20_000, "users": 2, "seeds": 3}
    algorithm = fb.PLS(C=0.5, exploit_rounds=1000)
    together = fb.simulate(CATALOG, algorithm, clients=12, **settings).final()["regret"].mean() / 12
    alone = fb.simulate(CATALOG, algorithm, clients=1, **settings).final()["regret"].mean()
    assert together < alone


# ------------------------------------------------------------------------------------------------------- precision


def test_float32_plays_the_same_runs():
    settings = {"clients": 3, "arms": 9, "noise": 0.3, "horizon": 3000, "users": 3, "seeds": 3}
    algorithm = fb.PLS(C=0.3)
    single, double = (fb.simulate(CATALOG, algorithm, **settings, dtype=dtype) for dtype in ("float32", "float64"))
    for name in ("uploads", "bits_up", "bits_down"):
        np.testing.assert_array_equal(single.final()[name], double.final()[name])
    np.testing.assert_allclose(single.final()["theta_error"], double.final()["theta_error"], rtol=1e-4)
    # A rounding error may settle a near tie of two arms, after which a client plays on otherwise.
    apart = np.abs(single.final()["regret"] / double.final()["regret"] - 1)
    assert (apart < 1e-5).sum() >= 7
    assert apart.max() < 0.1


def test_padding_changes_no_epoch():
    with jax.enable_x64(True):
        plain, padded = (play(fb.PLS(C=0.05), make_problem(shape=shape)) for shape in ((3, 9), (5, 12)))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), plain, padded)


# -------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("nothing_traced")
@pytest.mark.parametrize(
    ("algorithm", "setting", "told"),
    [
        (fb.PLS(), {"world": fb.World(contexts="redrawn")}, "PLS plays a basis of fixed arms, so contexts='redrawn'"),
        (fb.PLS(), {"world": fb.World(arrivals="one")}, "PLS plays epochs that end together for all clients, so arriv"),
        (fb.PLS(), {"noise": 0.0}, "noise=0.0 is not allowed: PLS rounds to parts of sigma"),
        (fb.PLS(C="paper"), {}, "C='paper' is not allowed"),
        (fb.PLS(alpha_0=0.0), {}, "alpha_0=0.0 is not allowed"),
        (fb.PLS(exploit_rounds=-1), {}, "exploit_rounds=-1 is not allowed"),
        (fb.PLS(exploit_rounds=2.5), {}, "exploit_rounds=2.5 is not allowed: it must be a whole number"),
    ],
)
def test_what_is_refused(algorithm, setting, told):
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        fb.simulate(CATALOG, algorithm, **{"clients": 2, "arms": 5, "horizon": 50, "noise": 0.1} | setting)


def test_a_horizon_that_is_too_short_is_told():
    with pytest.warns(UserWarning, match="horizon=50 is shorter than the first exploration of PLS, at least .* rounds"):
        fb.PLS(C="theory").check(dim=DIM, clients=2, arms=5, horizon=50, noise=0.1)

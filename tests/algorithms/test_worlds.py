"""Learners in worlds against the NumPy oracle, round by round; padding and neighbours change nothing there."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational.conlinucb import spanner_pick
from fedbandit_jax.clocks.phases import draw
from fedbandit_jax.clocks.rounds import BLOCK, REFRESH
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.linalg.eigenvalues import eigenpairs
from fedbandit_jax.linalg.representatives import barycentric_spanner
from fedbandit_jax.linalg.sampling import binomial, draw_many, draw_without_replacement
from fedbandit_jax.worlds.problem import ARRIVALS, USERS, sample_problem
from fedbandit_jax.worlds.stage import arrivals, uniforms
from fedbandit_jax.worlds.world import normal
from tests import reference
from tests.algorithms.runs import run

M, K, T, USER, NOISE = 3, 5, 300, 2, 0.3
QUESTIONS = 40
METRICS = ("regret", "conversations", "communication", "theta_error")


def make_catalog(dim=4, pool=20, key_terms=8, users=5):
    """Vectors of different lengths below 1: no two arms are equally good by chance, and clicks have means."""
    rng = np.random.default_rng(7)

    def rows(n):
        x = rng.normal(size=(n, dim))
        return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(0.6, 1, (n, 1))

    features = rows(pool), rows(key_terms), rows(users)
    weights = rng.random((pool, key_terms)) < 0.2  # some arms carry no key term
    weights[:, 2] = False  # and this one is carried by none
    return fb.Catalog.from_arrays(*features, weights=weights, normalise=False, name="lengths")


CATALOG = make_catalog()
WORLDS = {
    "redrawn": fb.World(contexts="redrawn"),
    "redrawn, common": fb.World(contexts="redrawn", arm_sets="common"),
    "two users": fb.World(preferences=2),
    "own users": fb.World(preferences="own"),
    "one": fb.World(arrivals="one"),
    "one, redrawn": fb.World(arrivals="one", contexts="redrawn"),
    "clicks": fb.World(rewards="bernoulli"),
    "bounded": fb.World(rewards="uniform"),
    "shared noise": fb.World(shared_noise=True),
    "shared noise, redrawn": fb.World(shared_noise=True, contexts="redrawn"),
    "ones": fb.World(rewards="zero-one"),
    "related": fb.World(candidates="related"),
    "related, redrawn": fb.World(candidates="related", contexts="redrawn", charged=True),
    "best arms": fb.World(answers="max", discount=0.7, charged=True),
    "a price": fb.World(
        contexts="redrawn",
        arrivals="one",
        rewards="zero-one",
        answers="max",
        discount=0.9,
        candidates="related",
        charged=True,
    ),
    "everything": fb.World(
        contexts="redrawn",
        arm_sets="common",
        preferences=2,
        arrivals="one",
        rewards="bernoulli",
        shared_noise=True,
    ),
}
THEORY = {"alpha": "theory"}
LEARNERS = {
    "LinUCB": fb.LinUCB(),
    "LinUCB theory": fb.LinUCB(**THEORY, lam=0.5),
    "ArmCon": fb.ArmCon(),
    "ConUCB": fb.ConUCB(),
    "ConUCB theory": fb.ConUCB(alpha="theory", alpha_t="theory"),
    "BS": fb.ConLinUCB(strategy="BS"),
    "MCR": fb.ConLinUCB(strategy="MCR", alpha=0.5),
    "UCB": fb.ConLinUCB(strategy="UCB", alpha=0.5),
    "SharedLinUCB": fb.SharedLinUCB(),
    "SharedLinUCB theory": fb.SharedLinUCB(**THEORY),
    "Uniform": fb.Uniform(),
}
ELSEWHERE = {"CLiME", "RelativeConUCB", "GraphConUCB"}  # their questions have a file of their own, worlds and all
# A program takes a second to compile: all learners in the wildest world, in others those whom it may concern.
PLAYED = {
    "redrawn": ("LinUCB", "ArmCon", "ConUCB", "UCB", "SharedLinUCB"),
    "redrawn, common": ("SharedLinUCB",),
    "two users": ("LinUCB", "SharedLinUCB", "Uniform"),
    "own users": ("MCR", "SharedLinUCB"),
    "one": ("LinUCB theory", "ArmCon", "ConUCB", "SharedLinUCB", "Uniform"),
    "one, redrawn": ("ConUCB", "SharedLinUCB"),
    "clicks": ("LinUCB theory", "ConUCB theory", "SharedLinUCB theory"),
    "bounded": ("UCB",),
    "shared noise": ("ArmCon", "ConUCB", "BS"),
    "shared noise, redrawn": ("ConUCB",),
    "ones": ("LinUCB theory", "Uniform"),
    "related": ("ConUCB", "BS"),
    "related, redrawn": ("BS", "MCR"),
    "best arms": ("ArmCon", "UCB"),
    "a price": ("ConUCB", "SharedLinUCB"),
    "everything": ("LinUCB", "LinUCB theory", "ArmCon", "ConUCB", "BS", "MCR", "UCB", "SharedLinUCB", "Uniform"),
}
CASES = [(world, learner) for world, learners in PLAYED.items() for learner in learners]


def test_every_field_of_the_world_is_here():
    for name, default in fb.World().hyperparameters().items():
        assert any(getattr(world, name) != default for world in WORLDS.values()), name
    assert {type(learner).__name__ for learner in LEARNERS.values()} | ELSEWHERE == {
        name
        for name, kind in fb.REGISTRY.items()
        if kind.__module__.startswith("fedbandit_jax.") and kind.made_for == {} and not kind.passes_messages
    }


# ------------------------------------------------------------------------------------------------- the package's run


@partial(jax.jit, static_argnames=("shape", "clients", "arms", "catalog"))
def problem_of(key, world, *, clients=M, arms=K, shape=None, horizon=T, catalog=CATALOG):
    return sample_problem(
        key,
        *(jnp.asarray(x, float) for x in (catalog.arms, catalog.key_terms, catalog.users)),
        clients=clients,
        num_arms=arms,
        noise=NOISE,
        horizon=horizon,
        max_clients=(shape or (clients, arms))[0],
        max_arms=(shape or (clients, arms))[1],
        world=world,
        user=USER,
        user_bound=catalog.user_bound,
        links=None if catalog.links is None else jnp.asarray(catalog.links),
    )


def draw_and_run(algorithm, world, arms_key, play_key, horizon=T, **sizes):
    """In two programs, as all learners of a world share the first."""
    problem = problem_of(arms_key, world, horizon=horizon, **sizes)
    return run(algorithm, play_key, problem, jnp.arange(1.0, horizon + 1))


def keys_of(seed):
    return jax.random.split(jax.random.key(seed))


def play(algorithm, world, seed=0, **sizes):
    """Curves at every round, in float64."""
    with jax.enable_x64(True):
        trace = draw_and_run(algorithm.prepare(sizes.get("horizon", T)), world, *keys_of(seed), **sizes)
        return jax.tree.map(np.asarray, trace)


# ----------------------------------------------------------------------------------------------------- the oracle's


@partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def numbers_of_run(seed, clients, arms, pool, users, rounds):
    """Those of each client, see `of_client`; the order of the users; and who comes, in every round."""
    arms_key, play_key = keys_of(seed)
    blocks = jnp.arange(-(-rounds // BLOCK), dtype=jnp.int32)

    def of_client(i):
        """Indices of fixed arms and of arms of every round, uniforms of pulls and questions, keys of questions."""
        own, play = jax.random.fold_in(arms_key, i), jax.random.fold_in(play_key, i)
        rewards, asks = jax.random.fold_in(play, 0), jax.random.fold_in(play, 1)
        each = draw_many(jax.vmap(lambda t: jax.random.fold_in(own, t))(jnp.arange(rounds)), pool, arms)
        pulls = jax.vmap(lambda b: uniforms(jax.random.fold_in(rewards, b), (BLOCK,), jnp.float64))(blocks)
        asked = jax.vmap(lambda q: jax.random.fold_in(asks, q))(jnp.arange(QUESTIONS))
        answers = jax.vmap(lambda key: uniforms(key, (), jnp.float64))(asked)
        return draw_without_replacement(own, pool, arms), each, pulls.ravel()[:rounds], answers, asked

    order = jax.random.permutation(jax.random.fold_in(arms_key, USERS), users)
    came = jax.vmap(lambda b: arrivals(jax.random.fold_in(arms_key, ARRIVALS), b, jnp.int32(clients)))(blocks)
    return jax.vmap(of_client)(jnp.arange(clients)), order, came.ravel()[:rounds]


class Raw:
    """The random numbers of a run, as the package draws them; what they mean is the oracle's business."""

    def __init__(self, seed, clients=M, arms=K, rounds=T, catalog=CATALOG):
        pool, users = len(catalog.arms), len(catalog.users)
        of_clients, order, came = numbers_of_run(seed, clients, arms, pool, users, rounds)
        *found, self.question_keys = of_clients
        self.fixed_arms, self.redrawn_arms, self.pulls, self.answers = map(np.asarray, found)
        self.order, self.came = np.asarray(order).tolist(), np.asarray(came)

    def fixed(self, i):
        return self.fixed_arms[i]

    def redrawn(self, i, t):
        return self.redrawn_arms[i, t]

    def pull_u(self, i):
        return self.pulls[i]

    def question_u(self, i):
        return self.answers[i]


raw_of = lru_cache(Raw)


@lru_cache
def spanner_questions(seed, client, all_terms=True):
    """The spanner of the key terms, and which of them is asked about each time."""
    spanner = jax.jit(barycentric_spanner, static_argnums=1)(jnp.asarray(CATALOG.key_terms), 2.0)
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(raw_of(seed).question_keys[client])
    pick = jax.jit(jax.vmap(spanner_pick, in_axes=(0, None)))
    members = np.asarray(spanner.indices)[: int(spanner.rank)]
    if all_terms:
        return {"spanner": members, "spanner_picks": np.asarray(pick(keys, spanner.rank))}
    return {"spanner": members, "spanner_picks": lambda q, n: int(pick(keys, jnp.int32(n))[q])}


def expected_curves(algorithm, world, seed=0, rounds=T, clients=M):
    """The oracle's curves after every round."""
    raw = raw_of(seed, rounds=rounds, clients=clients)
    words = world.hyperparameters()
    table = {}
    if world.rewards == "gaussian":  # in one go, as every call takes its time
        for u in (raw.pulls, raw.answers):
            table.update(zip(u.ravel().tolist(), np.asarray(normal(jnp.asarray(u))).ravel().tolist(), strict=True))
    users = CATALOG.users
    federation = reference.clients_of(
        words,
        CATALOG.arms,
        users,
        USER,
        clients,
        NOISE,
        raw,
        normal=lambda u: table[float(u)],
        weights=CATALOG.weights.toarray(),
    )
    who = reference.who_plays(rounds, clients, raw.came if world.arrivals == "one" else None)
    left_out = ("schedule", "strategy", "spanner_factor")
    given = {k: v for k, v in algorithm.hyperparameters().items() if k not in left_out}
    if not isinstance(algorithm, fb.Uniform):
        given["S"] = np.linalg.norm(users, axis=1).max()
    if isinstance(algorithm, fb.SharedLinUCB):
        pooled, sent = reference.shared_linucb(federation, who, **given)
        return reference.Curves(pooled.regret, pooled.asked, sent, pooled.theta_error)

    if algorithm.asks_by_schedule():
        given["b"] = np.array([Schedule.of(algorithm.schedule, rounds)(t) for t in range(1, rounds + 1)])

    def alone(i, client):
        if isinstance(algorithm, fb.Uniform):
            return reference.uniform(client, rounds)
        if isinstance(algorithm, fb.ArmCon):
            return reference.armcon(client, rounds, **given)
        if isinstance(algorithm, fb.ConUCB):
            return reference.conucb(client, CATALOG.key_terms, rounds, **given)
        if isinstance(algorithm, fb.ConLinUCB):
            all_terms = world.candidates == "all"
            chosen = spanner_questions(seed, i, all_terms) if algorithm.strategy == "BS" else {}
            return reference.conlinucb(algorithm.strategy, client, CATALOG.key_terms, rounds, **chosen, **given)
        return reference.linucb(client, rounds, **given)

    return reference.add_up([alone(i, client) for i, client in enumerate(federation)], federation, who)


def check(found, expected):
    """Regret shows which arms were pulled; the noise of Gaussian rewards is made in float32."""
    np.testing.assert_allclose(found.regret, expected.regret, atol=1e-9, err_msg="regret")
    np.testing.assert_allclose(found.conversations, expected.conversations, rtol=1e-12, err_msg="conversations")
    np.testing.assert_allclose(found.communication, expected.communication, err_msg="communication")
    np.testing.assert_allclose(found.theta_error, expected.theta_error, rtol=1e-6, err_msg="theta_error")


@pytest.mark.parametrize(("world", "learner"), CASES, ids=[" - ".join(case) for case in CASES])
def test_every_round_equals_the_oracle(world, learner):
    """Same random numbers, float64: the same arms in all rounds, the same regret, questions, messages and errors."""
    found = play(LEARNERS[learner], WORLDS[world])
    with jax.enable_x64(True):
        expected = expected_curves(LEARNERS[learner].prepare(T), WORLDS[world])
    assert found.regret[-1] > 0
    check(found, expected)


def test_recomputing_from_sums_changes_nothing():
    """Redrawn arms beyond the 2048 rounds after which learners start again from their sums."""
    rounds, world = REFRESH * BLOCK + 100, fb.World(contexts="redrawn", rewards="uniform")
    found = play(fb.ConUCB(), world, clients=1, arms=K, horizon=rounds)
    with jax.enable_x64(True):
        check(found, expected_curves(fb.ConUCB().prepare(rounds), world, rounds=rounds, clients=1))


# -------------------------------------------------------------------------------------------------------- the phases

PHASED = fb.datasets.synthetic(seed=3, dim=5, num_arms=30, num_key_terms=12, num_users=5, user_norm="unit")
PHASE_WORLDS = {
    "two users": fb.World(preferences=2),
    "own users, common arms": fb.World(preferences="own", arm_sets="common"),
    "clicks": fb.World(rewards="bernoulli"),
    "ones": fb.World(rewards="zero-one"),
    "bounded, own users": fb.World(rewards="uniform", preferences="own"),
}
SCALE = {"exploration_scale": 0.1}
PHASE_CASES = [
    *((world, fb.FedConPE(**SCALE)) for world in PHASE_WORLDS),
    ("bounded, own users", fb.FedLinPE(**SCALE, ridge=0.1)),
    ("clicks", fb.LinPE(**SCALE)),
]


# Of the whole module, as a function that is compiled anew is another program.
drawn_phase = jax.jit(partial(draw, dtype=jnp.float64, with_keys=True), static_argnames=("K", "d"))
compiled_binomial, compiled_pairs = jax.jit(binomial), jax.jit(eigenpairs)
g_optimal = jax.jit(lambda arms, active, tol: fb.g_optimal_design(arms, active, tol).weights)


class PhaseRandomness:
    """The package's numbers of a phase: normals, or binomial numbers for sums of other rewards."""

    def __init__(self, play_key, world, arms, dim):
        self.key, self.gaussian, self.arms, self.dim = play_key, world.rewards == "gaussian", arms, dim

    def of(self, phase, client):
        return drawn_phase(self.key, jnp.int32(client), jnp.int32(phase), K=self.arms, d=self.dim)

    def binomials(self, key, place, size):
        """Of some of the package's `size` items at once, each of which has its own place."""

        def of_digit(b, counts, shares):
            all_counts, all_shares = np.zeros(size), np.full(size, 0.5)
            all_counts[place], all_shares[place] = counts, shares
            own = jax.random.fold_in(key, b) if b else key
            return np.asarray(compiled_binomial(own, jnp.asarray(all_counts), jnp.asarray(all_shares)))[place]

        return of_digit

    def pull_noise(self, phase, client):
        drawn = self.of(phase, client)
        return (
            np.asarray(drawn.pulls) if self.gaussian else self.binomials(drawn.keys[0], np.arange(self.arms), self.arms)
        )

    def question_noise(self, phase, client, uploaded):
        drawn = self.of(phase, client)
        return (
            np.asarray(drawn.questions)[uploaded]
            if self.gaussian
            else self.binomials(drawn.keys[1], uploaded, self.dim)
        )

    def rounding_uniforms(self, phase, client):
        return np.asarray(self.of(phase, client).rounding)


@pytest.mark.parametrize(("world", "algorithm"), PHASE_CASES, ids=lambda x: x if isinstance(x, str) else x.title)
def test_phases_equal_the_oracle(world, algorithm):
    """Same random numbers, designs and eigenpairs: the same curves in every round, and the same phases."""
    world, rounds, arms = PHASE_WORLDS[world], 1500, 9
    sizes = {"clients": M, "arms": arms, "horizon": rounds}
    found = play(algorithm, world, seed=4, **sizes, catalog=PHASED)
    with jax.enable_x64(True):
        raw = raw_of(4, clients=M, arms=arms, rounds=1, catalog=PHASED)
        federation = reference.clients_of(world.hyperparameters(), PHASED.arms, PHASED.users, USER, M, NOISE, raw)
        fields = reference.FedConPESettings.__dataclass_fields__
        settings = {name: value for name, value in algorithm.hyperparameters().items() if name in fields}
        play_oracle = getattr(reference, algorithm.name.lower())
        asking = [PHASED.key_terms] if isinstance(algorithm, fb.FedConPE) else []
        expected = play_oracle(
            [client.see(0) for client in federation],
            *asking,
            np.stack([client.theta for client in federation]),
            federation[0].rewards,
            rounds,
            reference.FedConPESettings(**settings),
            np.arange(1, rounds + 1),
            design=lambda arms, active: np.asarray(g_optimal(arms, active, algorithm.design_tol)),
            eigen=lambda V: tuple(map(np.asarray, compiled_pairs(jnp.asarray(V)))),
            randomness=PhaseRandomness(keys_of(4)[1], world, arms, PHASED.dim),
        )
    for name in METRICS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-9, err_msg=name)
    if isinstance(algorithm, fb.LinPE):
        assert all(len(phases) >= 3 for phases in expected.phases)
        return
    assert len(expected.phases) >= 3
    table = {name: column[found.phases["phase"] > 0] for name, column in found.phases.items()}
    for row, want in enumerate(expected.phases):
        for name in ("start", "length", "complete", "good_event", "best_arm_active", "unseen"):
            assert table[name][row] == want[name], (row, name)
        assert table["max_gap"][row] == pytest.approx(want["max_gap"], abs=1e-12)
        active = [sum(mask) for mask in want["active"]]
        assert (table["active_min"][row], table["active_max"][row]) == (min(active), max(active))
        if asking:
            assert table["questions"][row] == pytest.approx(np.mean(want["asked"]))
            assert table["uploaded"][row] == pytest.approx(np.mean([len(one) for one in want["uploaded"]]))
            assert table["lambda_min_after"][row] == pytest.approx(min(want["lambda_min_after"]), rel=1e-7)


# -------------------------------------------------------------------------------- neighbours, padding, other clients


NEIGHBOURS = [("redrawn", "LinUCB"), ("one", "SharedLinUCB"), ("everything", "ConUCB"), ("a price", "ConUCB")]


def check_neighbours(algorithm, world, plain, padded):
    """Two federations side by side, padded, are what each is alone and without padding."""
    with jax.enable_x64(True):
        keys = jnp.stack([keys_of(0), keys_of(1)], axis=1)
        ready = algorithm.prepare(plain.get("horizon", T))
        batch = jax.vmap(partial(draw_and_run, ready, world, **plain | padded))(*keys)
    for seed in (0, 1):
        alone = play(algorithm, world, seed, **plain)
        for name in METRICS:
            np.testing.assert_allclose(
                getattr(batch, name)[seed], getattr(alone, name), rtol=1e-6, atol=1e-9, err_msg=name
            )


@pytest.mark.parametrize(("world", "learner"), NEIGHBOURS, ids=[" - ".join(case) for case in NEIGHBOURS])
def test_neighbours_and_padding_change_nothing(world, learner):
    check_neighbours(LEARNERS[learner], WORLDS[world], {}, {"shape": (5, 8)})


def test_neighbours_and_padding_change_no_phase():
    """Sums of rewards are drawn for all arms at once, and those of real arms do not depend on how many there are."""
    plain = {"clients": M, "arms": 9, "horizon": 1500, "catalog": PHASED}
    check_neighbours(fb.FedConPE(**SCALE), PHASE_WORLDS["clicks"], plain, {"shape": (4, 12)})


def test_ties_of_redrawn_unit_arms_break_by_index():
    """Before anything is known, all unit arms are as good as each other, and the first is pulled, as on fixed arms."""
    world, seeds = fb.World(contexts="redrawn"), range(20)
    pulled = []
    with jax.enable_x64(True):
        for seed in seeds:
            arms = PHASED.arms[raw_of(seed, clients=1, arms=9, rounds=1, catalog=PHASED).redrawn(0, 0)]
            sizes = {"clients": 1, "arms": 9, "horizon": 1, "catalog": PHASED}
            means = arms @ PHASED.users[USER]
            regret = play(fb.LinUCB(), world, seed, **sizes).regret[0]
            pulled.append(int(np.abs(means.max() - means - regret).argmin()))
    assert pulled == [0] * len(seeds)


def test_a_client_does_not_notice_how_many_others_there_are():
    """More clients than users, who come one by one: the oracle's client i is made from numbers that know no M."""
    world = fb.World(contexts="redrawn", preferences="own", arrivals="one")
    found = play(fb.LinUCB(), world, clients=7, arms=K)
    with jax.enable_x64(True):
        check(found, expected_curves(fb.LinUCB(), world, clients=7))


# --------------------------------------------------------------------------------------------------------- the engine


@pytest.mark.parametrize(
    ("world", "learner"), [("everything", "ArmCon"), ("own users", "SharedLinUCB"), ("a price", "BS")]
)
def test_the_engine_plays_the_same(world, learner, monkeypatch):
    """It plays clients that never meet in lanes of their own, and adds them up."""
    monkeypatch.setattr(fb._runtime, "l2_cache", lambda: 2**12)
    setting = {"clients": M, "arms": K, "horizon": T, "noise": NOISE, "dtype": "float64", "checkpoints": T}
    table = fb.simulate(
        CATALOG, LEARNERS[learner], world=WORLDS[world], users=[USER], seeds=[1], seed=6, **setting
    ).to_pandas()
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(6), USER), 1)
        whole = draw_and_run(LEARNERS[learner].prepare(T), WORLDS[world], *jax.random.split(key))
    for name in METRICS:
        np.testing.assert_allclose(table[name], getattr(whole, name), rtol=1e-7, atol=1e-9, err_msg=name)


def test_clicks_are_the_same_in_both_precisions():
    """Most runs pull the same arms throughout; a near-tie may part the others."""
    algorithm, world, keys = fb.LinUCB(), fb.World(rewards="bernoulli"), [keys_of(seed) for seed in range(20)]
    curves = []
    for wide in (False, True):
        with jax.enable_x64(wide):
            curves.append([np.asarray(draw_and_run(algorithm, world, *pair).regret) for pair in keys])
    close = np.isclose(*curves, rtol=1e-4).all(axis=1)
    assert curves[0][0].dtype == np.float32
    assert close.mean() >= 0.8

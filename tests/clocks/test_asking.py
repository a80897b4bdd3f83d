"""Learners that ask in every round, ask as they like, or let arms duel; schedules in words."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.rounds import ask_in_turn, context_of
from fedbandit_jax.clocks.schedule import NEVER, Schedule
from fedbandit_jax.engine.program import context_for_all
from fedbandit_jax.worlds.stage import BLOCK, uniforms
from tests import reference

SETTING = {"clients": 2, "arms": 5, "horizon": 200, "users": 2, "checkpoints": 10}


@dataclass(frozen=True, kw_only=True)
class Plain(fb.RoundAlgorithm, abstract=True):
    """Plays its first arm, and adds up what it hears."""

    made_for: ClassVar = {}

    def start(self, client):
        return client.noise * 0

    def choose(self, state, client, key):
        return jnp.int32(0)

    def learn(self, state, client, arm, reward):
        return state + reward

    def theta_hat(self, state):
        return jnp.zeros(6) + state * 0


@dataclass(frozen=True, kw_only=True)
class Always(Plain, abstract=True):
    """Asks about key term 3 before every pull."""

    asks_every_round: ClassVar[bool] = True

    def ask(self, state, client, questions):
        heard, info = ask_in_turn(questions, lambda i, state: (state + questions.about(i, 3), 3), state)
        return heard, {**info, "heard": heard - state, "asked": questions.count}


def test_asking_in_every_round(catalog):
    """One question a round, each with noise of its own, and its cost in the regret of that round."""
    with jax.enable_x64(True):
        free, charged = (
            fb.simulate(catalog, Always(), world=fb.World(charged=charged), **SETTING, dtype="float64").to_pandas()
            for charged in (False, True)
        )
    np.testing.assert_array_equal(free["conversations"], free["round"])
    np.testing.assert_array_equal(free["asked"], 2 * free["round"])
    np.testing.assert_array_equal(free["heard"], charged["heard"])
    means = catalog.key_terms @ catalog.users.T
    costs = (means.max(axis=0) - means[3])[free["user"]]
    np.testing.assert_allclose(charged["regret"] - free["regret"], 2 * free["round"] * costs, rtol=1e-9)
    last = free[free["round"] == 200]
    asked = 2 * 200
    expected = asked * means[3][last["user"]]
    np.testing.assert_allclose(last["heard"], expected, atol=4 * 0.1 * np.sqrt(asked))


@dataclass(frozen=True, kw_only=True)
class AsItLikes(Plain, abstract=True):
    """At each check asks as often as it has checked; the noise of all answers must differ."""

    asks_as_it_likes: ClassVar[bool] = True
    schedule: str = "1 every 40"

    def start(self, client):
        return client.noise * 0, jnp.int32(0)

    def learn(self, state, client, arm, reward):
        return state

    def ask(self, state, client, questions):
        heard, checks = state
        checks = checks + questions.count
        mean = client.key_terms[0]

        def one(i, carry):
            total, squares = carry
            answer = questions.answer(i, mean * 0)  # noise alone
            return total + answer, squares + answer**2

        total, squares = jax.lax.fori_loop(0, checks, one, (heard * 0, heard * 0))
        return (heard + total, checks), {"conversations": checks, "squares": squares}

    def theta_hat(self, state):
        return jnp.zeros(6) + state[0]


def test_asking_as_one_likes(catalog):
    """After 40, 80, 120 and 160 rounds, 1, 2, 3 and 4 questions."""
    curves = fb.simulate(catalog, AsItLikes(), **SETTING).to_pandas()
    checks = (curves["round"] - 1) // 40
    np.testing.assert_array_equal(curves["conversations"], checks * (checks + 1) / 2)
    squares = curves["squares"].to_numpy().reshape(2, 10)
    grown = np.diff(squares, axis=1)
    assert (grown[grown > 0].size, len(set(grown[grown > 0]))) == (8, 8), "an answer was heard twice"


@dataclass(frozen=True, kw_only=True)
class Duelling(Plain, abstract=True):
    """The first arm against the second."""

    duels: ClassVar[bool] = True

    def choose(self, state, client, key):
        return jnp.array([0, 1], jnp.int32)

    def learn(self, state, client, arm, reward):
        return state + reward, {"wins": reward}


def test_duels_equal_the_oracle(catalog):
    """Who wins which round, by the uniform numbers of the pulls; regret is the mean, the better and the worse loss."""
    T, user = 200, 1
    setting = SETTING | {"clients": 1, "users": [user], "checkpoints": T, "dtype": "float64"}
    curves = fb.simulate(catalog, Duelling(), **setting).to_pandas()
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), user), 0)
        arms_key, play_key = jax.random.split(key)
        chosen = fb.linalg.sampling.draw_without_replacement(jax.random.fold_in(arms_key, 0), len(catalog.arms), 5)
        rewards = jax.random.fold_in(jax.random.fold_in(play_key, 0), 0)
        blocks = [uniforms(jax.random.fold_in(rewards, b), (BLOCK,), jnp.float64) for b in range(-(-T // BLOCK))]
    arms, theta = catalog.arms[np.asarray(chosen)], catalog.users[user]
    client = reference.Client(theta, lambda t: arms, reference.Rewards("gaussian", 0.1), np.concatenate(blocks))
    wins = [client.wins(t, arms[0], arms[1]) for t in range(T)]
    np.testing.assert_array_equal(curves["wins"], np.cumsum(wins))
    assert 0 < sum(wins) < T
    losses = [client.regret(0, x) for x in arms[:2]]
    for name, loss in (("regret", np.mean), ("weak_regret", min), ("strong_regret", max)):
        np.testing.assert_allclose(curves[name], loss(losses) * curves["round"], rtol=1e-9)


def test_the_context_may_know_which_arms_carry_what():
    class Both(Plain, abstract=True):
        def context(self, key_terms, links):
            return key_terms, links

    class One(Plain, abstract=True):
        def context(self, key_terms):
            return key_terms

    terms, links = jnp.ones((3, 2)), jnp.zeros((4, 1), jnp.int32)
    both = context_of(Both(), terms, links)
    assert both[0] is terms
    assert both[1] is links
    assert context_of(One(), terms, links) is terms
    assert context_of(Plain(), terms, None) == ()


def test_a_context_is_worked_out_once_for_all_lanes_unless_they_differ_in_it(catalog):
    """Numbers that differ between lanes, and those that a shape may depend on, leave it to the lanes."""

    @dataclass(frozen=True, kw_only=True)
    class Counts(Plain, abstract=True):
        scale: float = 1.0

        def learn(self, state, client, arm, reward):
            return state, {"told": self.told(client.context)}

        def told(self, squares):
            return squares.sum() * self.scale

        def context(self, key_terms):
            return key_terms**2

    class Scales(Counts, abstract=True):
        def context(self, key_terms):
            return self.scale * key_terms**2

        def told(self, squares):
            return squares.sum()

    class Shapes(Counts, abstract=True):
        def context(self, key_terms):
            return key_terms.size, key_terms**2

        def told(self, context):
            size, squares = context
            return squares.reshape(size).sum() * self.scale

    terms = np.asarray(catalog.key_terms, np.float32)
    np.testing.assert_allclose(context_for_all(Counts(), terms, None), terms**2)
    assert context_for_all(Scales(), terms, None) is None
    assert context_for_all(Shapes(), terms, None) is None
    for kind in (Counts, Scales, Shapes):
        results = fb.sweep(catalog, [kind(scale=1.0), kind(scale=2.0)], **SETTING).to_pandas()
        last = results[results["round"] == SETTING["horizon"]].groupby("scale")["told"].mean()
        expected = (terms**2).sum() * SETTING["clients"] * SETTING["horizon"]
        np.testing.assert_allclose(last, [expected, 2 * expected], rtol=1e-4)


# ------------------------------------------------------------------------------------------------------- contracts


@pytest.mark.usefixtures("nothing_traced")
class TestContracts:
    @pytest.mark.parametrize(
        ("base", "methods", "sentence"),
        [
            (
                Duelling,
                {"choose": lambda self, s, c, k: jnp.int32(0)},
                "Mine.choose returned int32[]: it must return the",
            ),
            (
                Plain,
                {"choose": lambda self, s, c, k: jnp.zeros(2, int)},
                "Mine.choose returned int32[2]: it must return",
            ),
            (Plain, {"asks_every_round": True}, "Mine.ask is missing: it must be a method ask(self, state, client,"),
            (
                AsItLikes,
                {"ask": lambda self, s, c, q: s},
                "Mine.ask does not count 'conversations': it must, as it asks as it likes",
            ),
            (
                Plain,
                {"learn": lambda self, s, c, a, r: (s, {"regret": r})},
                "Mine.learn counts 'regret': it must have another name",
            ),
            (Plain, {"context": lambda self: ()}, "Mine.context() is not allowed: it must take (key_terms, links)"),
            (
                Plain,
                {"context": lambda self, a, b, c: ()},
                "Mine.context(a, b, c) is not allowed: it must take (key_terms, links)",
            ),
        ],
    )
    def test_what_breaks_them(self, catalog, base, methods, sentence):
        mine = dataclass(frozen=True, kw_only=True)(type("Mine", (base,), methods, abstract=True))()
        with pytest.raises(ValueError, match="Mine") as caught:
            fb.sweep(catalog, mine, **SETTING)
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    "words", ["log", "linear", "1 log", "10 log", "20 linear", "1 every 10", "10 every 50", "3 every 1", "2 every 7"]
)
def test_schedules_in_words(words):
    """b(t) of the oracle, what is due, and quiet rounds up to the next that asks."""
    T = 300
    schedule, b = Schedule.of(words, T), reference.rounds.schedule(words, T)
    assert [schedule(t) for t in range(1, T + 1)] == b.tolist()
    assert str(schedule) == words
    t = jnp.arange(1, T + 1)
    np.testing.assert_array_equal(jax.vmap(schedule.due)(t), np.diff(b, prepend=0))
    asks = np.flatnonzero(np.diff(b, prepend=0)) + 1
    quiet = np.asarray(jax.vmap(schedule.quiet_until)(t))
    for now, until in zip(range(1, T + 1), quiet.tolist(), strict=True):
        later = asks[asks > now]
        assert until == later[0] - 1 if len(later) else until >= T


def test_schedules_of_the_public_codes():
    """With t from 0: 5 floor(log(t + 1)), floor(t / 10) and 10 floor(t / 50) questions."""
    log = Schedule.of("log", 0)
    assert [log(1000), log(5000)] == [30, 40]
    assert [start - 1 for start in log.rounds[:8]] == [2, 7, 20, 54, 148, 403, 1096, 2980]
    assert Schedule.of("1 every 10", 0)(1000) == 99
    assert Schedule.of("10 every 50", 0)(1000) == 190
    for words, b in (("1 every 10", lambda t: t // 10), ("10 every 50", lambda t: 10 * (t // 50))):
        assert [Schedule.of(words, 0)(t + 1) for t in range(1200)] == [b(t) for t in range(1200)]


@pytest.mark.parametrize("given", ["", "0 log", "often", "5 every 0", "5 every", "1.5 log", "log 5", "-1 log", 3, None])
def test_bad_schedules(catalog, given, nothing_traced):
    with pytest.raises(ValueError, match=r"^schedule=[^\n]* is not allowed: it must be 'log', 'linear', 'C log'"):
        fb.sweep(catalog, fb.ArmCon(schedule=given), **SETTING)


def test_names_tell_runs_apart():
    """What is printed of a schedule is in the hash of a run: the old ones have not changed."""
    assert repr(Schedule.of("linear", 0)) == "Schedule(name='linear', rounds=(), growth=(), every=50)"
    assert repr(NEVER) == "Schedule(name='never', rounds=(), growth=(), every=0)"
    words = ["1 every 50", "2 every 50", "2 linear", "linear", "1 linear"]
    assert len({repr(Schedule.of(word, 0)) for word in words}) == len(words)

"""Algorithms of one's own that do not keep to what the clocks expect are told so, before anything is compiled."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks import contracts
from fedbandit_jax.clocks.elimination import PhaseElimination
from fedbandit_jax.clocks.phases import Messages

SETTING = {"clients": 2, "arms": 7, "horizon": 200, "users": 1, "checkpoints": 4}


class State(NamedTuple):
    b: Any
    n: Any


class Good:
    """Methods of a learner, as they should be."""

    def start(self, client):
        return State(jnp.zeros(client.arms.shape[1]), jnp.int32(0))

    def choose(self, state, client, key):
        return jnp.argmax(jnp.where(client.mask, client.arms @ state.b, -jnp.inf))

    def learn(self, state, client, arm, reward):
        return State(state.b + reward * client.arms[arm], state.n + 1)

    def theta_hat(self, state):
        return state.b


def made(base, **attributes):
    """A class of these attributes, as one would write it."""
    kind = type("Mine", (base,), {"__annotations__": {}, **attributes}, abstract=True)
    return dataclass(frozen=True, kw_only=True)(kind)()


def learner(without="", schedule=None, **methods):
    given = {name: method for name, method in vars(Good).items() if not name.startswith("_") and name != without}
    if schedule:
        given |= {"schedule": schedule, "__annotations__": {"schedule": str}}
    return made(fb.RoundAlgorithm, **given | methods)


def counting(**info):
    return {"learn": lambda self, state, client, arm, reward: (state, info)}


ARM = "it must return the arm to pull, one integer such as jnp.argmax(scores)"
STATE = "it must return a state like that of `start`, State(b=float32[6], n=int32[])"
PAIR = f"{STATE}, or a pair of it and an Info"
KEEP = "a state must keep its shape and type"
THETA = "it must return the estimate of theta, 6 numbers"
TAKEN = "it must have another name, as that is a column of the results"

LEARNERS = {
    "start is missing: it must be a method start(self, client) that returns the state before": {"without": "start"},
    "choose is missing: it must be a method choose(self, state, client, key) that returns": {"without": "choose"},
    "learn is missing: it must be a method learn(self, state, client, arm, reward) that": {"without": "learn"},
    "theta_hat is missing: it must be a method theta_hat(self, state) that": {"without": "theta_hat"},
    "ask is missing: it must be a method ask(self, state, client, questions) that": {"schedule": "linear"},
    "learn=3 is not allowed: it must be a method learn(self, state, client, arm, reward)": {"learn": 3},
    "learn(s, c, a) is not allowed: it must take (state, client, arm, reward)": {"learn": lambda self, s, c, a: s},
    "context() is not allowed: it must take (key_terms, links)": {"context": lambda self: 0},
    "start returned None: it must return the state before the first round, of": {"start": lambda self, c: None},
    "start returned {'b': 'x'}: it must return the state before": {"start": lambda self, c: {"b": "x"}},
    f"choose returned None: {ARM}": {"choose": lambda self, s, c, k: None},
    f"choose returned float32[]: {ARM}": {"choose": lambda self, s, c, k: s.b[0]},
    f"choose returned int32[3]: {ARM}": {"choose": lambda self, s, c, k: jnp.zeros(3, jnp.int32)},
    f"choose returned bool[]: {ARM}": {"choose": lambda self, s, c, k: s.n > 2},
    f"choose returned 'best': {ARM}": {"choose": lambda self, s, c, k: "best"},
    f"learn returned None: {PAIR}": {"learn": lambda self, s, c, a, r: None},
    f"learn returned {{'b': float32[6]}}: {PAIR}": {"learn": lambda self, s, c, a, r: {"b": s.b}},
    f"learn returned (float32[6], int32[]): {PAIR}": {"learn": lambda self, s, c, a, r: (s.b, s.n)},
    f"learn returned float32[10] for `b`, which `start` made float32[6]: {KEEP}": {
        "learn": lambda self, s, c, a, r: State(jnp.zeros(10), s.n)
    },
    f"learn returned float32[] for `n`, which `start` made int32[]: {KEEP}": {
        "learn": lambda self, s, c, a, r: State(s.b, s.n + 1.0)
    },
    "learn returned int32[] beside its state: its Info must be a dict of numbers by name, such as": {
        "learn": lambda self, s, c, a, r: (s, 3)
    },
    "learn counts float32[3] as 'uploads': it must be one number": counting(uploads=jnp.zeros(3)),
    "learn counts None as 'uploads': it must be one number": counting(uploads=None),
    **{f"learn counts '{name}': {TAKEN}": counting(**{name: 1}) for name in ("regret", "round", "clients", "seed")},
    f"theta_hat returned None: {THETA}": {"theta_hat": lambda self, s: None},
    f"theta_hat returned float32[1,6]: {THETA}": {"theta_hat": lambda self, s: s.b[None]},
    f"theta_hat returned complex64[6]: {THETA}": {"theta_hat": lambda self, s: s.b + 1j},
    f"refresh returned None: {STATE}": {"refresh": lambda self, s, c: None},
    f"refresh returned bfloat16[6] for `b`, which `start` made float32[6]: {KEEP}": {
        "refresh": lambda self, s, c: State(s.b.astype(jnp.bfloat16), s.n)
    },
    f"ask returned None: {PAIR}": {"schedule": "log", "ask": lambda self, s, c, q: None},
    f"ask returned float32[] for `n`, which `start` made int32[]: {KEEP}": {
        "schedule": "log",
        "ask": lambda self, s, c, q: State(s.b, q.answer(0, c.arms[0])),
    },
}


def refused(catalog, algorithm, sentence, **changes):
    with pytest.raises(ValueError, match=r"Mine") as caught:
        fb.sweep(catalog, algorithm, **SETTING | changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("sentence", LEARNERS)
def test_learners_that_break_the_contract(catalog, nothing_traced, sentence):
    refused(catalog, learner(**LEARNERS[sentence]), f"Mine.{sentence}")


def trace(self, key, problem, checkpoints, **changes):
    return fb.Trace(**{name: jnp.zeros_like(checkpoints) for name in fb.Trace._fields[:4]} | changes)


def telling(**changes):
    return lambda *given: trace(*given, **changes)


CURVE = "it must be 4 real numbers, one for each checkpoint"
PHASES = "it must have 'phase' and, under each name, a number for each phase"
RUNS = {
    "returned None: it must return a Trace": lambda self, key, problem, checkpoints: None,
    "returned (float32[4], float32[4]): it must return a Trace": lambda self, key, problem, checkpoints: (
        checkpoints,
        checkpoints,
    ),
    f"returned float32[] as `regret`: {CURVE}": telling(regret=0.0),
    f"returned None as `conversations`: {CURVE}": telling(conversations=None),
    f"returned complex64[4] as `regret`: {CURVE}": telling(regret=jnp.zeros(4, complex)),
    f"returned float32[7] as `counts['bits']`: {CURVE}": telling(counts={"bits": jnp.zeros(7)}),
    f"tells 'seed': {TAKEN}": telling(counts={"seed": jnp.zeros(4)}),
    f"tells 'user': {TAKEN}": telling(phases={"phase": jnp.ones(3), "user": jnp.ones(3)}),
    f"returned {{'eps': float32[3]}} as `phases`: {PHASES}": telling(phases={"eps": jnp.ones(3)}),
    f"returned {{'phase': float32[3], 'x': float32[2]}} as `phases`: {PHASES}": telling(
        phases={"phase": jnp.ones(3), "x": jnp.ones(2)}
    ),
}


@pytest.mark.parametrize("sentence", RUNS)
def test_runs_that_return_no_trace(catalog, nothing_traced, sentence):
    refused(catalog, made(fb.Algorithm, run=RUNS[sentence]), f"Mine.run {sentence}")


def test_what_is_missing_on_other_clocks(catalog, nothing_traced):
    told = "Mine.run is missing: it must be a method run(self, key, problem, checkpoints) that returns a Trace"
    refused(catalog, made(fb.Algorithm), told)
    refused(catalog, made(PhaseElimination), "Mine.radius is missing: it must be a method radius(self, problem, clock)")
    refused(catalog, made(fb.Algorithm, run=lambda self, key: None), "Mine.run(key) is not allowed: it must take (key,")
    refused(catalog, learner(prepare=lambda self, horizon: None), "Mine.prepare returned None: it must return an Alg")


def test_counts_are_not_named_like_hyperparameters(catalog, nothing_traced):
    """Neither like those of the package, which are columns of every folder, nor like those of the same sweep."""
    message = "a count of Mine='{}' is not allowed: that name is the column of a hyperparameter"
    refused(catalog, learner(**counting(alpha=1)), message.format("alpha"))
    own = {"budget": 3.0, "__annotations__": {"budget": float}}
    refused(catalog, learner(**own, **counting(budget=1)), message.format("budget"))


@pytest.mark.parametrize("method", ["start", "choose", "learn", "theta_hat"])
def test_errors_of_ones_own_are_left_alone(catalog, nothing_traced, method):
    def broken(self, *given):
        return self.nothing_of_that_name

    with pytest.raises(AttributeError, match="nothing_of_that_name") as caught:
        fb.sweep(catalog, learner(**{method: broken}), **SETTING)
    assert any(entry.name == "broken" for entry in caught.traceback)


def test_precision_is_that_of_the_program(catalog, nothing_traced):
    narrow = learner(start=lambda self, client: State(jnp.zeros(6, jnp.float32), jnp.int32(0)))
    message = "Mine.learn returned float64[6] for `b`, which `start` made float32[6]"
    refused(catalog, narrow, message, dtype="float64")


@pytest.mark.parametrize(
    "methods",
    [
        {"start": lambda self, c: State(jnp.zeros(6), 0)},
        {"start": lambda self, c: State(jnp.zeros(6), 0), "learn": lambda self, s, c, a, r: State(s.b, s.n + r)},
        {"choose": lambda self, s, c, k: 0},
        {"theta_hat": staticmethod(lambda state: state.b)},
        {"learn": lambda self, s, c, a, r: (s, {"communication": 1, "conversations": True, "uploads": r > 0})},
    ],
    ids=["a count", "a sum", "a plain arm", "a static method", "an Info"],
)
def test_what_works_is_not_refused(catalog, methods):
    """Numbers of Python in a state, or as an arm, among others."""
    assert len(fb.simulate(catalog, learner(**methods), **SETTING).final()) == 1


def test_a_class_is_looked_at_once_and_quickly(catalog, monkeypatch):
    looked, check_learner = [], contracts.check_learner
    monkeypatch.setattr(contracts, "check_learner", lambda *given: looked.append(given) or check_learner(*given))
    one = learner()
    shape = contracts.Shape(M=1, K=7, J=30, d=6, P=4, dtype="float32")
    began = time.perf_counter()
    for _ in range(100):
        contracts.check_methods(one, fb.World(), shape)
    assert time.perf_counter() - began < 5
    assert len(looked) == 1
    assert not jax.tree.leaves(one)


# ---------------------------------------------------------------------------------------------- names of columns


@pytest.mark.parametrize(
    "name", ["mean", "low", "sd", "count", "run", "name", "label", "user", "seed", "round", "regret", "phase", "q90"]
)
def test_hyperparameters_are_not_named_like_columns(name):
    before = dict(fb.REGISTRY)
    message = rf"^a hyperparameter of Mine='{name}' is not allowed: that name is a column of the results$"
    for base in (fb.Algorithm, fb.LinUCB):
        with pytest.raises(ValueError, match=message):
            type("Mine", (base,), {"__annotations__": {name: float}, name: 1.0})
    assert before == fb.REGISTRY


@pytest.mark.parametrize(("name", "base"), [("steps", "Algorithm"), ("title", "Algorithm"), ("start", "LinUCB")])
def test_hyperparameters_are_not_named_like_methods(name, base):
    message = rf"^a hyperparameter of Mine='{name}' is not allowed: that name is a method of {base}$"
    with pytest.raises(ValueError, match=message):
        type("Mine", (fb.LinUCB,), {"__annotations__": {name: float}, name: 1.0})


def test_every_column_of_the_tables_is_taken(catalog):
    """Those that are neither hyperparameters nor diagnostics of phases nor counts of messages."""
    results = fb.sweep(catalog, fb.FedConPE(), **SETTING)
    tables = (results.to_pandas(), results.summary(), results.quantiles())
    columns = {name for table in tables for name in table.columns} - fb.FedConPE().hyperparameters().keys()
    columns -= set(Messages._fields)
    assert {name for name in columns if not fb.clocks.base.is_column(name)} == set()


def test_a_learner_may_do_without_a_state(catalog):
    """One that always pulls the first arm."""
    idle = learner(
        start=lambda self, client: (),
        choose=lambda self, state, client, key: 0,
        learn=lambda self, state, client, arm, reward: (),
        theta_hat=lambda self, state: jnp.zeros(6),
    )
    assert len(fb.simulate(catalog, idle, clients=2, arms=3, horizon=20, users=2, checkpoints=4).final()) == 2

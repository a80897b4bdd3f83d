"""Learners of the same rounds share a program, and play in it as they play alone."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.schedule import NEVER, Schedule
from fedbandit_jax.clocks.variants import OnlyIf, rounds_class
from fedbandit_jax.engine import sweep as sweep_module
from fedbandit_jax.engine.batches import share_programs

SMALL = {"clients": 2, "arms": 7, "horizon": 300, "users": 2, "checkpoints": 8}
STRATEGIES = [fb.ConLinUCB(strategy=strategy) for strategy in ("BS", "MCR", "UCB")]
OF_LINUCB = [fb.LinUCB(), fb.ArmCon(), *STRATEGIES]


@dataclass(frozen=True, kw_only=True)
class AsksOtherwise(fb.LinUCB, abstract=True):
    schedule: str = "log"

    def ask(self, state, client, questions):
        return state


@dataclass(frozen=True, kw_only=True)
class ChoosesOtherwise(fb.LinUCB, abstract=True):
    def radius(self, state, client):
        return 2 * super().radius(state, client)


def test_the_class_of_the_rounds():
    """Only what is about questions may differ from the class above."""
    assert rounds_class(AsksOtherwise) is fb.LinUCB
    assert rounds_class(ChoosesOtherwise) is ChoosesOtherwise
    elsewhere = {name: rounds_class(kind).__name__ for name, kind in fb.REGISTRY.items()}
    elsewhere = {name: home for name, home in elsewhere.items() if home != name and hasattr(fb, name)}
    assert elsewhere == {"ArmCon": "LinUCB", "ConLinUCB": "LinUCB", "RelativeConUCB": "ConUCB"}


@pytest.mark.parametrize(
    ("algorithms", "world"),
    [
        (OF_LINUCB, fb.World()),
        ([fb.ConUCB(), fb.RelativeConUCB(variant="pos")], fb.World()),
        ([fb.ArmCon(), STRATEGIES[1]], fb.World(arrivals="one", charged=True)),
        ([fb.LinUCB(alpha=[0.1, 0.5]), fb.ArmCon(alpha=[0.2, 0.4])], fb.World(contexts="redrawn")),
    ],
    ids=["LinUCB", "ConUCB", "charged", "redrawn"],
)
def test_learners_play_together_as_alone(catalog, monkeypatch, algorithms, world):
    options = SMALL | {"world": world, "dtype": "float64"}
    together = fb.simulate(catalog, algorithms, **options)
    assert together.settings["programs"] == 1
    monkeypatch.setattr(sweep_module, "share_programs", lambda batches: None)
    alone = fb.simulate(catalog, algorithms, **options)
    assert alone.settings["programs"] == len(algorithms)
    pd.testing.assert_frame_equal(together.to_pandas(), alone.to_pandas(), rtol=1e-9)
    questions = together.final().groupby("algorithm")["conversations"].max()
    assert (questions.drop("LinUCB", errors="ignore") > 0).all()
    assert questions.get("LinUCB", 0) == 0


def test_who_shares_a_program(catalog):
    """Numbers may differ; words, schedules and rounds may not, and user-defined classes are compiled apart."""

    def shared(*algorithms):
        batches = sweep_module.make_sweep(catalog, algorithms, **SMALL).batches(jax.local_devices()[0])
        return len({batch.key for batch in batches})

    assert shared(fb.LinUCB(alpha=0.3), fb.ArmCon(alpha=0.1, lam=2.0)) == 1
    assert shared(fb.LinUCB(), fb.ArmCon(alpha="theory")) == 2
    assert shared(fb.ArmCon(schedule="log"), fb.ArmCon(schedule="linear")) == 2
    assert shared(fb.LinUCB(), fb.ArmCon(schedule="log"), fb.ArmCon(schedule="linear")) == 2
    assert shared(fb.LinUCB(), fb.CLiSK()) == 2
    assert shared(fb.LinUCB(), AsksOtherwise()) == 2
    assert shared(fb.LinUCB(alpha=[0.1, 0.2])) == 1


def test_a_learner_alone_is_compiled_as_itself(catalog):
    (batch,) = sweep_module.make_sweep(catalog, fb.ArmCon(), **SMALL).batches(jax.local_devices()[0])
    share_programs([batch])
    assert batch.played == batch.algorithms
    assert batch.playing is None


@pytest.mark.parametrize("given", ["log", "linear", "3 every 7"])
def test_a_schedule_under_a_condition(given):
    schedule = Schedule.of(given, 0)
    for t in jnp.array([1, 2, 7, 50, 149]):
        always, never = (OnlyIf(jnp.asarray(asks), schedule) for asks in (True, False))
        assert int(always.due(t)) == int(schedule.due(t))
        assert int(always.quiet_until(t)) == int(schedule.quiet_until(t))
        assert int(never.due(t)) == 0
        assert int(never.quiet_until(t)) == int(NEVER.quiet_until(t))

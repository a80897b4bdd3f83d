"""What a sweep says of itself while it plays."""

import numpy as np
import pandas as pd
import pytest

from fedbandit_jax.engine import progress
from fedbandit_jax.engine.progress import Progress, duration

# Two programs: ten runs of one client, and ten of three.
RUNS = pd.DataFrame({"cell": np.repeat([0, 1], 10), "clients": np.repeat([1, 3], 10)})
FIRST, SECOND = np.arange(10), np.arange(10, 20)


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which pass when a test says so."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def play(shown, clock, seconds):
    """Compile for ten seconds, and play both programs, one run in so many seconds."""
    with Progress(shown, 2, RUNS) as counter:
        counter.begin("compiling")
        clock[0] += 10
        for title, rows in (("One", FIRST), ("Two", SECOND)):
            counter.begin(title, rows)
            for row in rows:
                clock[0] += seconds
                counter.count(np.array([row]), 100)


def test_a_long_call_says_so_after_its_first_runs(clock, capsys):
    """10 s to compile, 4 s for each of 40 clients, as far as the first of them can tell."""
    play(None, clock, 4)
    assert capsys.readouterr().err == "this will take about 3 min, by the first runs of One\n"


def test_it_is_said_as_soon_as_it_is_known(clock, capsys):
    """Of the first program it is not: 10 + 40 s."""
    records = []
    with Progress(records.append, 2, RUNS) as counter:
        clock[0] += 10
        counter.begin("One", FIRST)
        for row in FIRST:
            clock[0] += 1
            counter.count(np.array([row]), 100)
        assert "estimate" not in {record["event"] for record in records}
        counter.begin("Two", SECOND)
        clock[0] += 30
        counter.count(SECOND[:2], 100)
        counter.count(SECOND[2:4], 100)
    (told,) = (record for record in records if record["event"] == "estimate")
    assert told == {"event": "estimate", "seconds": 50 + 4 * 30, "seconds_left": 4 * 30}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("shown", "seconds"), [(False, 100), (None, 1)])
def test_short_calls_and_those_that_shall_be_silent_say_nothing(clock, capsys, shown, seconds):
    play(shown, clock, seconds)
    assert capsys.readouterr().err == ""


def test_durations():
    assert [duration(s) for s in (0.25, 59, 300, 7200)] == ["0.25 s", "59 s", "5 min", "2.0 h"]

"""What a sweep says of itself while it plays."""

import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import progress
from fedbandit_jax.engine.progress import Progress, duration
from fedbandit_jax.papers.fedconpe import LINE_UP

# Two programs: ten runs of one client, and ten of three.
CLIENTS = np.repeat([1, 3], 10)
RUNS = pd.DataFrame({"cell": np.repeat([0, 1], 10), "clients": CLIENTS, "pulls": CLIENTS})
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
    """4 s for each of 40 clients, as far as the first of them can tell; that it took 10 s to compile says nothing."""
    play(None, clock, 4)
    assert capsys.readouterr().err == "this will take about 3 min more, by the first runs of One\n"


def test_it_is_said_as_soon_as_it_is_known(clock, capsys):
    """Of the first program it is not: 39 s are left."""
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
    assert told == {"event": "estimate", "seconds": 40 + 4 * 30, "seconds_left": 4 * 30}
    assert capsys.readouterr().err == ""


def test_time_to_compile_is_in_no_estimate(clock):
    """100 s to compile; then a client a second, 40 in all."""
    records = []
    with Progress(records.append, 2, RUNS) as counter:
        counter.begin("compiled 1 of 2, One")
        clock[0] += 100
        counter.begin("One", FIRST)
        assert records[-1]["seconds_left"] is None, "nothing was played yet"
        clock[0] += 1
        counter.count(FIRST[:1], 100)
    assert [r["event"] for r in records] == ["progress"] * len(records), "39 s are not long"
    assert records[-2]["seconds_left"] == 39


def bar(counter):
    """The bar of a terminal of 80 columns."""
    facts = counter.bar.format_dict | {"ncols": 80, "elapsed": 3715}
    return counter.bar.format_meter(**facts)


def test_the_bar_fits_a_terminal(clock):
    many = pd.DataFrame({"cell": np.zeros(69_120, int), "clients": 10, "pulls": 10})
    longest = max((one.title for one in (*LINE_UP, fb.SharedLinUCB())), key=len)
    with Progress(True, 1, many) as counter:
        counter.begin(f"compiled 11 of 12, {longest}")
        text = bar(counter)
        assert len(text) <= 80
        assert text.startswith(f"compiled 11 of 12, {longest}:   0%|")
        assert text.endswith("| [1:01:55]"), "how long it takes is not known yet"
        counter.begin(longest, np.arange(69_120))
        clock[0] += 1000
        counter.count(np.arange(12_000), 90_000)
        text = bar(counter)
        assert len(text) <= 80
        assert text.startswith(f"{longest}:  17%|")
        assert text.endswith("| [1:01:55, 1:19:20 left, 12000/69120 runs, 10.8M pulls/s]")


@pytest.mark.parametrize(("shown", "seconds"), [(False, 100), (None, 1)])
def test_short_calls_and_those_that_shall_be_silent_say_nothing(clock, capsys, shown, seconds):
    play(shown, clock, seconds)
    assert capsys.readouterr().err == ""


def test_durations():
    assert [duration(s) for s in (0.25, 59, 300, 7200)] == ["0.25 s", "59 s", "5 min", "2.0 h"]

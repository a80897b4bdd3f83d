"""The verdict on made-up results, whose right answers are known."""

import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from benchmarks.coverage import falsely_decided, refuted
from fedbandit_jax.papers import verdict
from fedbandit_jax.papers.fedconpe import BASELINES, EXPERIMENTS
from fedbandit_jax.papers.verdict import FAILS, HOLDS, UNDECIDED
from tests.frames import made_of, runs

SPREAD = np.random.default_rng(0).normal(size=(10, 2))  # user, seed


def phases(clients=(3,), arms=(5,)):
    """Two phases of FedConPE for every run: 20 of 100 rounds with 5 of 5 arms, the rest with 2."""
    two = [
        {"phase": 1, "start": 0, "length": 20, "active_mean": 5.0, "questions": 3.0, "uploaded": 1.0},
        {"phase": 2, "start": 20, "length": 80, "active_mean": 2.0, "questions": 9.0, "uploaded": 4.0},
    ]
    return [
        {"algorithm": "FedConPE", "label": "FedConPE", "clients": M, "arms": K, "user": user, "seed": seed} | phase
        for M in clients
        for K in arms
        for user in range(10)
        for seed in range(2)
        for phase in two
    ]


def line_up(ours, theirs=100.0, noise=0.0, extra=(), turn=0, **setting):
    """FedConPE and its baselines with given mean regrets; `theirs` is one number, or some by name."""
    rows = runs("FedConPE", ours + noise * np.roll(SPREAD, turn), **setting)
    for i, name in enumerate(BASELINES):
        mean = theirs.get(name, 100.0) if isinstance(theirs, dict) else theirs
        rows += runs(name, mean + noise * np.roll(SPREAD, turn + i + 1), **setting)
    return rows + list(extra)


def judge(name, rows, **table):
    found = verdict.judge(EXPERIMENTS[name], made_of(rows, phases(**table)))
    assert all(row["experiment"] == name for row in found)
    return found


# --------------------------------------------------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(5, 9, HOLDS), (5.1, 9, HOLDS), (4, 4.9, FAILS), (4.9, 9, UNDECIDED), (-9, -1, FAILS), (np.nan, 9, UNDECIDED)],
)
def test_at_least_five(low, high, word):
    assert verdict.decide(low, high, least=5) == word
    assert verdict.decide(-high, -low, most=-5) == word


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(-0.1, 0.1, HOLDS), (0, 0.2, UNDECIDED), (0.11, 0.2, FAILS), (-0.3, -0.2, FAILS), (-1, 1, UNDECIDED)],
)
def test_within(low, high, word):
    assert verdict.decide(low, high, -0.1, 0.1) == word


def test_all_of_several():
    assert verdict.decide_all([HOLDS, HOLDS]) == HOLDS
    assert verdict.decide_all([HOLDS, UNDECIDED]) == UNDECIDED
    assert verdict.decide_all([HOLDS, UNDECIDED, FAILS]) == FAILS
    assert verdict.decide_all([]) == UNDECIDED


def test_each_holds_by_its_own_interval_and_fails_by_a_wider_one():
    """Four values against at least 5; the wide interval is twice the plain one, and the row's where it decided."""
    value, half = np.array([7.0, 7.0, 3.0, 3.0]), np.array([1.5, 2.5, 1.5, 0.5])
    asked = []

    def intervals(confidence):
        asked.append(confidence)
        width = half if confidence == 0.95 else 2 * half
        return pd.DataFrame({"value": value, "low": value - width, "high": value + width})

    table = verdict.decide_each(intervals, least=5)
    assert asked == [0.95, pytest.approx(1 - 0.05 / 4)]
    assert table["word"].tolist() == [HOLDS, UNDECIDED, UNDECIDED, FAILS]
    assert table["low"].tolist() == [5.5, 2, 0, 2]
    assert table["high"].tolist() == [8.5, 12, 6, 4]


@pytest.mark.parametrize("baselines", [1, 4, 6])
def test_a_true_claim_is_seldom_refuted(baselines):
    """Of six users: at most 2.5 %, however many baselines there are. An interval for each alone does not keep that."""
    each, together = (refuted(6, baselines, level) for level in (0.95, verdict.confidence_of_each(baselines)))
    assert together < 0.025
    assert each == together if baselines == 1 else each > 0.05


def test_looks_share_their_errors():
    """The last of K looks has what the others leave: 5 % in all, and a single look is as ever."""
    assert verdict.confidence_of_look(1, last=True) == 0.95
    for last in (2, 3, 9):
        each = [verdict.confidence_of_look(look, last=False) for look in range(1, last)]
        assert each[0] == 0.995
        assert each == sorted(each)
        spent = [1 - confidence for confidence in (*each, verdict.confidence_of_look(last, last=True))]
        assert sum(spent) == pytest.approx(0.05)
        assert spent[-1] > 0.04


@pytest.mark.parametrize(("spreads", "least"), [((0.25, 0.2), 0.06), ((0.02, 0.25), 0.15)])
def test_many_looks_decide_falsely_no_more_often_than_one(spreads, least):
    """Of 10,000 trials 5 % have a standard error of 0.2 %. Looks at 95 % each do not keep that."""
    looks = [4 * 2**i for i in range(6)]
    each, spent = (falsely_decided(10, looks, spend, *spreads, trials=10_000) for spend in (False, True))
    assert spent < 0.05 + 3 * 0.0022
    assert each > least


@pytest.mark.parametrize("name", ["multi", "clients", "arms", "accuracy", "questions"])
def test_a_higher_confidence_is_told_and_wider(name):
    rows = [
        row | {"theta_error": row["regret"]}
        for i, (M, K) in enumerate(((2, 5), (8, 5)) if name == "clients" else ((3, 5), (3, 9)))
        if name in ("clients", "arms") or i == 0
        for row in line_up(100.0, noise=5.0, turn=3 * i, clients=M, arms=K, schedule="log")
    ]
    if name == "questions":
        rows += [row | {"schedule": "linear"} for row in runs("ArmCon schedule=linear", 50 + SPREAD)]
    results = made_of(rows, phases(clients=(2, 3, 8), arms=(5, 9)))
    plain, wide = (verdict.judge(EXPERIMENTS[name], results, *level) for level in ((), (0.995,)))
    for one, other in zip(plain, wide, strict=True):
        assert (one["confidence"], other["confidence"]) == (0.95, 0.995)
        assert other["low"] < one["low"] < one["high"] < other["high"]
        assert other["figure"].endswith(" at 99.5 %")
        assert " at 9" not in one["figure"]


# --------------------------------------------------------------------------------------------- percent below baselines


@pytest.mark.parametrize(
    ("name", "ours", "noise", "word"),
    [
        ("single", 90.0, 0.5, HOLDS),
        ("single", 95.0, 0.1, FAILS),  # 5 % is not 5.25 %
        ("single", 94.75, 5.0, UNDECIDED),
        ("multi", 60.0, 0.5, HOLDS),
        ("multi", 90.0, 0.5, FAILS),
        ("multi", 300.0, 0.5, FAILS),
    ],
)
def test_percent_below_every_baseline(name, ours, noise, word):
    (row,) = judge(name, line_up(ours, noise=noise))
    assert row["verdict"] == word
    assert row["value"] == pytest.approx(100 - ours, abs=3 * noise)
    assert row["low"] <= row["value"] <= row["high"]
    assert ("times" if ours > 200 else "below") in row["figure"]
    assert bool(row["why"]) == (word != HOLDS)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((12.34, 10, 14), "12.3 % below X's [10.0, 14.0]"),
        ((-12.34, -14, -10), "12.3 % above X's [10.0, 14.0]"),
        ((-5000, -6000, -4000), "51.0 times X's [41.0, 61.0]"),
    ],
)
def test_how_far_apart(values, text):
    found = dict(zip(("percent_below", "low", "high"), values, strict=True)) | {"note": "", "unit": "users"}
    counted = {"better": 9, "worse": 1, "better_low": 0.555, "better_high": 0.997}
    assert verdict.apart(found | counted, "X") == f"{text}, lower for 9 of 10 users [0.56, 1.00]"


def test_what_has_no_interval_is_undecided_and_says_why():
    """One user of ten carries the baseline's mean; the count of users tells all the same."""
    rows = line_up(50.0, dict.fromkeys(BASELINES, 60.0), noise=0.1)
    for row in rows:
        row["regret"] *= 500 if row["label"] == "ConUCB" and row["user"] == 0 else 1
    (row,) = judge("multi", rows)
    assert row["verdict"] in (UNDECIDED, FAILS)
    table = verdict.judge_below(made_of(rows).only("FedConPE", "ConUCB"), "", 0, "regret", "regret")
    assert table["verdict"] == UNDECIDED
    assert "(too few users: 1 of 10 carries half of ConUCB)" in table["figure"]
    assert "lower for 10 of 10 users [0.69, 1.00]" in table["figure"]


def test_one_baseline_refutes_and_is_named():
    (row,) = judge("multi", line_up(50.0, {"ConUCB": 60.0}, noise=0.1))
    assert row["verdict"] == FAILS
    assert row["value"] == pytest.approx(100 / 6, abs=0.5)
    assert "ConUCB" in row["figure"]


def test_of_baselines_that_hold_the_closest_is_named():
    (row,) = judge("single", line_up(50.0, {"ArmCon": 70.0}, noise=0.1))
    assert (row["verdict"], row["value"]) == (HOLDS, pytest.approx(100 * 2 / 7, abs=0.5))
    assert "below ArmCon's [" in row["figure"]


def test_relatives_are_no_part_of_the_claim():
    rows = line_up(50.0, noise=0.1, extra=runs("SharedLinUCB", 1 + 0 * SPREAD))
    assert judge("multi", rows)[0]["verdict"] == HOLDS


# ---------------------------------------------------------------------------------------------------- growth in M and K


def along(axis, values, ours, theirs, noise=0.0):
    """The noise of one value is not that of the next."""
    return [
        row
        for i, v in enumerate(values)
        for row in line_up(ours(v), theirs(v), noise * ours(v), turn=7 * i, **{axis: v})
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "noise", "words"),
    [
        (np.sqrt, float, 0.0, (HOLDS, HOLDS)),
        (float, float, 0.0, (HOLDS, FAILS)),
        (lambda m: m**0.2, float, 0.0, (HOLDS, HOLDS)),  # slower than the root is as good
        (np.sqrt, lambda m: m**1.5, 0.0, (FAILS, HOLDS)),
        (lambda m: m**0.6, lambda m: m**1.1, 0.2, (UNDECIDED, UNDECIDED)),
    ],
)
def test_growth_in_clients(ours, theirs, noise, words):
    M = (3, 9, 15)
    found = judge(
        "clients", along("clients", M, lambda m: 10.0 * ours(m), lambda m: 10.0 * theirs(m), noise), clients=M
    )
    assert tuple(row["verdict"] for row in found) == words
    assert found[0]["why"] == "", "FedConPE's phases explain nothing of the baselines"
    assert bool(found[1]["why"]) == (words[1] != HOLDS)


@pytest.mark.parametrize(("power", "word"), [(0.0, HOLDS), (0.05, HOLDS), (0.3, FAILS), (-0.3, FAILS)])
def test_flat_in_arms(power, word):
    K = (100, 200, 300)
    (row,) = judge("arms", along("arms", K, lambda k: 10 * k**power, lambda k: 10 * k**0.2), arms=K)
    assert row["verdict"] == word
    assert row["value"] == pytest.approx(power, abs=1e-6)
    assert "baselines' from 0.20 to 0.20" in row["figure"]


def test_an_exponent_on_the_edge_is_undecided():
    K = (100, 300)
    (row,) = judge("arms", along("arms", K, lambda k: 10 * k**0.1, lambda k: 10.0, noise=0.2), arms=K)
    assert row["verdict"] == UNDECIDED


# ------------------------------------------------------------------------------------------- accuracy and questions


def with_errors(early, late):
    """Errors of FedConPE and of all baselines (1 early, 0.5 late), at rounds 2000 and 6000."""
    rows = line_up(1.0, horizon=6000)
    table = pd.DataFrame([{"dataset": "made up", **row, "round": at} for row in rows for at in (2000, 6000)])
    table["regret"] = table.pop("regret")  # metrics are behind the round
    ours, first = table["label"] == "FedConPE", table["round"] == 2000
    table["theta_error"] = np.select([ours & first, ours, first], [early, late, 1.0], 0.5)
    return fb.Results(table, pd.DataFrame(phases()), {})


@pytest.mark.parametrize(("early", "late", "word"), [(0.9, 0.9, HOLDS), (1.1, 0.1, FAILS)])
def test_accuracy_counts_the_first_rounds(early, late, word):
    (row,) = verdict.judge(EXPERIMENTS["accuracy"], with_errors(early, late))
    assert row["verdict"] == word
    assert row["value"] == pytest.approx(100 * (1 - early))


@pytest.mark.parametrize(("asked", "words"), [(1, (HOLDS, HOLDS)), (10, (HOLDS, FAILS)), (4000, (FAILS, FAILS))])
def test_questions_are_counted_against_both_schedules(asked, words):
    """In 100 rounds: 5 floor(log 100) = 20, and floor(100 / 50) = 2."""
    rows = [row | {"conversations": row["regret"]} for row in runs("FedConPE", asked + 0.1 * SPREAD)]
    found = judge("questions", rows)
    assert tuple(row["verdict"] for row in found) == words
    assert "against 20" in found[0]["figure"]
    assert "against 2" in found[1]["figure"]
    told = (
        "phase 2 asks 75% of the questions: its designs, on 2 active arms, leave 4 directions without enough "
        "information, and each is asked about, in 11% of the rounds"
    )
    assert [row["why"] for row in found] == [told if word == FAILS else "" for word in words]


# -------------------------------------------------------------------------------------------------------------- why


def test_why_tells_where_the_regret_is_made():
    """Regret grows evenly, half of it by round 50: phase 2, of 80 rounds, makes 80 %, with 2 of 5 arms."""
    told = judge("multi", line_up(500.0))[0]["why"]
    assert told == (
        "phase 2 makes 80% of FedConPE's regret: it takes 80% of the rounds, spread over a design on 40% of the arms; "
        "2.0 phases fit, with 12 questions a client"
    )

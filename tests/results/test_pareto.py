"""The Pareto front: who is on it, who is not, and what the intervals leave open."""

import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.results import pareto, statistics
from tests.frames import made_of, runs

ALIKE = np.array([[0.8, 1.0], [0.9, 1.1], [1.2, 1.0], [1.0, 1.0], [0.9, 1.1]])  # (user, seed): the same for all


def results_of(points, spread=ALIKE):
    """By label, communication and regret, or an array (user, seed) for either."""
    rows = []
    for label, (sent, regret) in points.items():
        table = regret if isinstance(regret, np.ndarray) else regret * spread
        sent = np.broadcast_to(sent, table.shape)
        rows += [row | {"communication": float(sent[row["user"], row["seed"]])} for row in runs(label, table)]
    return made_of(rows)


def words(results, x="communication", y="regret", **options):
    return results.pareto(x, y, **options).set_index("label")["front"].to_dict()


def test_a_front_that_is_known():
    """Where users and seeds are alike for all, every difference is."""
    points = {"LinUCB": (0, 9.0), "A": (10, 5.0), "B": (20, 6.0), "C": (30, 2.0), "D": (30, 3.0), "E": (0, 9.5)}
    table = results_of(points).pareto()
    assert list(table.columns) == ["label", "communication", "regret", "front", "by"]
    found = table.set_index("label")
    assert found["front"].to_dict() == {
        "LinUCB": "on the front",
        "A": "on the front",
        "B": "dominated",
        "C": "on the front",
        "D": "dominated",
        "E": "dominated",
    }
    assert found["by"].to_dict() == {"LinUCB": "", "A": "", "B": "A", "C": "", "D": "C", "E": "LinUCB"}
    assert found["communication"].tolist() == [0, 10, 20, 30, 30, 0]


def test_equal_in_both_is_no_dominance():
    assert words(results_of({"A": (5, 2.0), "B": (5, 2.0)})) == {"A": "on the front", "B": "on the front"}
    assert words(results_of({"A": (5, 2.0)})) == {"A": "on the front"}


def test_what_intervals_leave_open_is_undecided():
    """B sends more, and nobody knows whether it loses more: only more users would tell."""
    rng = np.random.default_rng(0)
    one, other = (100 + 30 * rng.normal(size=(6, 2)) for _ in range(2))
    results = results_of({"A": (10, one), "B": (20, other)})
    table = results.pareto().set_index("label")
    assert table["front"].to_dict() == {"A": "on the front", "B": "undecided"}
    assert table.loc["B", "by"] == "A"
    # Paired: the same noise in both, and a difference of one in a hundred is known.
    assert words(results_of({"A": (10, one), "B": (20, one + 1)}))["B"] == "dominated"
    assert words(results_of({"A": (10, one), "B": (20, one - 1)}))["B"] == "on the front"


def test_a_single_run_decides_nothing():
    assert set(words(results_of({"A": (10, 1.0), "B": (20, 2.0)}, ALIKE[:1, :1])).values()) == {"undecided"}


def test_by_hand_two_algorithms():
    """The word is that of the paired intervals of `compare`."""
    rng = np.random.default_rng(5)
    for gap in np.linspace(0, 0.4, 9):
        one = 100 * np.exp(0.2 * rng.normal(size=(8, 1)) + 0.2 * rng.normal(size=(8, 3)))
        other = (1 + gap) * 100 * np.exp(0.2 * rng.normal(size=(8, 1)) + 0.2 * rng.normal(size=(8, 3)))
        results = results_of({"A": (10, one), "B": (20, other)})
        row = results.compare("A").iloc[0]
        expected = "dominated" if row["low"] > 0 else "on the front" if row["high"] < 0 else "undecided"
        assert words(results)["B"] == expected


def test_one_of_many_dominates_by_a_widened_interval():
    """What 95 % tells of one pair is not enough where twenty others might have dominated."""
    rng = np.random.default_rng(3)
    base = 100 + 20 * rng.normal(size=(8, 1))
    noise = rng.normal(size=(8, 1))
    half = statistics.half_width(noise, confidence=0.95)[0]
    shifted = base + noise - noise.mean() + 1.2 * half  # more than A by 1.2 half intervals of 95 %
    points = {"A": (10, base), "B": (20, shifted)}
    assert words(results_of(points))["B"] == "dominated"
    many = points | {f"C{i}": (30 + i, 1000 * np.ones((8, 1)) + i) for i in range(20)}
    assert words(results_of(many))["B"] == "undecided"


def test_nothing_is_known_to_be_less_than_something():
    """Also where what others send varies so much that an interval of it reaches 0."""
    sent = np.array([[1.0, 2.0], [1e6, 1.0], [3.0, 1.0], [2.0, 2.0], [1.0, 1.0]])
    results = results_of({"LinUCB": (0, 5.0), "Rare": (sent, 4.0), "Worse": (sent, 6.0)})
    assert words(results) == {"LinUCB": "on the front", "Rare": "on the front", "Worse": "dominated"}


def test_pairs_are_of_runs_that_both_have():
    """B was played for fewer users, dear ones: on these it is better."""
    one = np.array([[10.0], [10.5], [100.0], [101.0], [99.0]])
    other = np.where(np.arange(5)[:, None] >= 2, 0.9 * one, np.nan)
    results = results_of({"A": (10, one), "B": (20, other)})
    assert results.pareto().set_index("label").loc["B", "regret"] > results.pareto()["regret"].iloc[0]
    assert words(results)["B"] == "on the front"


def test_every_place_has_its_front():
    rows = []
    for M, regrets in ((2, (1.0, 2.0)), (4, (2.0, 1.0))):
        for label, sent, regret in zip("AB", (10, 20), regrets, strict=True):
            rows += [row | {"communication": sent} for row in runs(label, regret * ALIKE, clients=M)]
    table = made_of(rows).pareto()
    assert list(table.columns[:2]) == ["label", "clients"]
    assert table["front"].tolist() == ["on the front", "dominated", "on the front", "on the front"]


def test_who_does_not_count_a_metric_is_left_out():
    rows = [row | {"uploads": 3.0} for row in runs("A", ALIKE)] + runs("B", ALIKE)
    made = made_of(rows)
    curves = made.to_pandas()
    uploads = curves.pop("uploads")
    results = fb.Results(curves.assign(uploads=uploads), pd.DataFrame(), {})
    assert results.pareto("uploads")["label"].tolist() == ["A"]
    assert results.pareto()["label"].tolist() == ["A", "B"]


def test_all_columns_tell_the_intervals_of_the_summary():
    results = results_of({"A": (10, 2.0), "B": (20, 1.0)})
    table = results.pareto(columns="all").set_index("label")
    summary = results.summary().set_index("label")
    np.testing.assert_allclose(table["regret_low"], summary["low"])
    np.testing.assert_allclose(table["regret_high"], summary["high"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x": "bits"}, "x='bits' is not allowed: it must be"),
        ({"y": "communication"}, "y='communication' is not allowed: it must be another metric than x"),
        ({"columns": "some"}, "columns='some' is not allowed: it must be 'few' or 'all'"),
        ({"confidence": 1.0}, "confidence=1.0 is not allowed: it must be"),
    ],
)
def test_bad_input(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        results_of({"A": (10, 2.0)}).pareto(**arguments)


def test_front_is_falsely_left_no_more_often_than_stated():
    """B is on the front, by a hair: it loses as much as A and sends less. It is said to be dominated in few cases."""
    rng, trials, wrong = np.random.default_rng(0), 300, 0
    for _ in range(trials):
        sent = 100 * np.exp(0.1 * rng.normal(size=(6, 1, 2)))
        lost = 100 * np.exp(0.1 * rng.normal(size=(6, 1, 2)))
        index = pd.MultiIndex.from_product([range(6), [0]], names=["user", "seed"])
        x, y = (pd.DataFrame(a[:, 0], index=index) for a in (sent, lost))
        wrong += pareto.judge(x, y, 0.95)[1][1] == pareto.DOMINATED
    assert wrong / trials <= 0.05

"""Kinds of claims, judged on tables made by hand: a wrong judgement fails here."""

import numpy as np
import pytest

from fedbandit_jax.papers.claims import Published, agrees, below, below_all, changes, grows, standard_errors
from fedbandit_jax.results.statistics import interval_units
from tests.frames import made_of, runs

USERS = 100 + 10 * np.arange(8.0)[:, None]  # they differ, and pairing takes that out


def table(**factors):
    """Every label loses so many times the users' regrets."""
    return made_of([row for label, factor in factors.items() for row in runs(label, factor * USERS)])


@pytest.mark.parametrize(
    ("ours", "word", "other"),
    [
        ({"B": 1.2, "C": 1.5}, "holds", "B"),
        ({"B": 1.05, "C": 1.5}, "does not hold", "B"),  # 4.8 % is too little
        ({"B": 1.2, "C": 0.5}, "does not hold", "C"),
    ],
)
def test_below_all_of_them(ours, word, other):
    """The one that decides is named: of those that make the verdict, the one that is beaten least."""
    row = below_all("A", ["B", "C"], 8.29, "at least 8.29 % less").judge(table(A=1.0, **ours))
    assert row["verdict"] == word
    assert row["figure"].find(f"{other}'s") > 0
    assert row["value"] == pytest.approx(100 * (1 - 1 / ours[other]))


def test_below_all_is_undecided_where_one_is():
    noise = 40 * np.random.default_rng(0).normal(size=(8, 1))
    results = made_of([*runs("A", USERS), *runs("B", 1.3 * USERS), *runs("C", 1.1 * USERS + noise)])
    row = below_all("A", ["B", "C"], 8.29, "").judge(results)
    assert (row["verdict"], row["low"] < 8.29 < row["high"]) == ("undecided", True)
    assert "C's" in row["figure"]


@pytest.mark.parametrize(
    ("factor", "word"),
    [(0.93, "holds"), (0.97, "does not hold"), (0.80, "does not hold"), (1.0, "does not hold"), (1.1, "does not hold")],
)
def test_a_change_within_a_range(factor, word):
    claim = changes("A", "B", 5.9, 9.3, "falls by 5.9 to 9.3 %")
    row = claim.judge(table(A=factor, B=1.0))
    assert (row["verdict"], row["value"]) == (word, pytest.approx(100 * (1 - factor)))
    assert claim.text == "falls by 5.9 to 9.3 %"


def test_a_change_that_is_not_known_well_enough():
    noise = np.array([[8.0], [-8.0]] * 4)  # 7 % below, give or take as much
    row = changes("A", "B", 5.9, 9.3, "").judge(made_of([*runs("A", 0.93 * USERS + noise), *runs("B", USERS)]))
    assert row["verdict"] == "undecided"
    assert row["low"] < 5.9 < 9.3 < row["high"]
    either_way = changes("A", "B", -2.0, 2.0, "").judge(table(A=1.01, B=1.0))
    assert (either_way["verdict"], either_way["value"]) == ("holds", pytest.approx(-1))


@pytest.mark.parametrize(("power", "root", "linear"), [(0.3, True, False), (0.75, False, False), (1.0, False, True)])
def test_growth(power, root, linear):
    """The exponent of a made power law, against at most 0.6 and against 1 +- 0.1."""
    rows = [row for M in (4, 8, 16) for row in runs("A sigma=1", M**power * USERS, clients=M, sigma=1.0)]
    rows += [row for M in (4, 8, 16) for row in runs("A sigma=2", M**5 * USERS, clients=M, sigma=2.0)]
    results = made_of(rows)
    for least, most, holds in ((-np.inf, 0.6, root), (0.9, 1.1, linear)):
        row = grows("A sigma=1", "clients", least, most, "").judge(results)
        assert row["verdict"] == ("holds" if holds else "does not hold")
        assert row["value"] == pytest.approx(power)


def test_standard_errors_are_of_the_paired_difference_over_users():
    """By hand: two seeds of a user are one unit."""
    first, second = np.array([[1.0, 3.0], [4.0, 4.0], [9.0, 7.0]]), np.array([[4.0, 4.0], [5.0, 9.0], [10.0, 14.0]])
    results = made_of([*runs("A", first), *runs("B", second)])
    differences = np.array([2.0, 3.0, 4.0])
    expected = differences.mean() / (differences.std(ddof=1) / np.sqrt(3))
    pairs = results.final().pivot_table(index=["user", "seed"], columns="label", values="regret")[["A", "B"]]
    assert len(interval_units(pairs)) == 3
    assert standard_errors(pairs) == pytest.approx(expected)
    assert f"{expected:.1f} standard errors" in below("A", "B", errors=True).judge(results)["figure"]
    assert f"{-expected:.1f} standard errors" in below("B", "A", errors=True).judge(results)["figure"]
    assert "standard errors" not in below("A", "B").judge(results)["figure"]
    assert np.isnan(standard_errors(pairs.iloc[:1]))


def test_regret_is_less_and_messages_are_fewer():
    assert below("A", "B").text == "A: less regret than B"
    assert below("A", "B", "theta_error", "error of the estimate").text == "A: less error of the estimate than B"
    assert below("A", "B", "uploads").text == "A: fewer uploads than B"


def test_users_are_the_units_of_a_figure_too():
    """Forty seeds of five users say no more of other users than one of each does, were there no noise."""
    claim = agrees("A", "regret", Published(120.0, 30.0, 100, "computed elsewhere"))
    assert claim.text == "A: 120 (100 runs, sd 30, computed elsewhere) regret"
    one, many = (claim.judge(made_of(runs("A", np.repeat(USERS, n, axis=1)))) for n in (1, 40))
    assert {name: one[name] for name in ("verdict", "low", "high")} == {
        name: pytest.approx(many[name]) if name != "verdict" else many[name] for name in ("verdict", "low", "high")
    }

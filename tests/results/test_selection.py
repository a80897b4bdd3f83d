"""Some of the runs, and some of the columns."""

import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from tests.frames import PLACE, made_of, runs

SPREAD = np.array([[0.8, 1.0], [0.9, 1.1], [1.2, 1.0]])  # (user, seed)


@pytest.fixture
def grid():
    """FedConPE N=1, 2 and LinUCB alpha=theory, 0.5 at two M; only FedConPE tells of phases and has no alpha there."""
    rows, phases = [], []
    for M in (2, 4):
        for N in (1.0, 2.0):
            rows += runs(f"FedConPE N={N:g}", M * N * SPREAD, clients=M, N=N)
            where = {"dataset": "made up", "algorithm": "FedConPE", "label": f"FedConPE N={N:g}", **PLACE, "clients": M}
            phases += [
                where
                | {"user": user, "seed": 0, "N": N, "phase": phase, "length": M * phase + user}
                | {"good_event": user > 0, "rule": "a", "eps": 0.5**phase}
                for user in range(3)
                for phase in (1, 2)
                if phase == 1 or user < 2
            ]
        for alpha in ("theory", 0.5):
            rows += runs(f"LinUCB alpha={alpha}", M * SPREAD, clients=M, alpha=alpha)
    return made_of(rows, phases)


def kept(results):
    return [tuple(row) for row in results.final()[["label", "clients"]].drop_duplicates().values.tolist()]


# ------------------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize(
    ("conditions", "labels"),
    [
        ({"algorithm": "FedConPE"}, ["FedConPE N=1", "FedConPE N=2"]),
        ({"N": 1}, ["FedConPE N=1"]),
        ({"N": np.float32(2)}, ["FedConPE N=2"]),
        ({"N": range(1, 3)}, ["FedConPE N=1", "FedConPE N=2"]),
        ({"N": [1, None]}, ["FedConPE N=1", "LinUCB alpha=theory", "LinUCB alpha=0.5"]),
        ({"N": float("nan")}, ["LinUCB alpha=theory", "LinUCB alpha=0.5"]),
        ({"alpha": "theory"}, ["LinUCB alpha=theory"]),
        ({"alpha": ["theory", 0.5]}, ["LinUCB alpha=theory", "LinUCB alpha=0.5"]),
        ({"label": "FedConPE N=2", "N": np.array([1, 2])}, ["FedConPE N=2"]),
        ({"N": [1, 2], "algorithm": "LinUCB"}, ["LinUCB alpha=theory", "LinUCB alpha=0.5"]),
        ({"N": 2, "alpha": 0.5, "algorithm": ["LinUCB", "FedConPE"]}, ["FedConPE N=2", "LinUCB alpha=0.5"]),
    ],
)
def test_runs_are_chosen_by_their_settings(grid, conditions, labels):
    assert kept(grid.only(**conditions)) == [(label, M) for M in (2, 4) for label in labels]
    assert kept(grid.only(**conditions, clients=4)) == [(label, 4) for label in labels]


def test_curves_and_phases_are_chosen_and_settings_kept(grid):
    grid.settings["seed"] = 7
    some = grid.only(clients=4, N=[1, 2], user=[0, 2], noise=np.float32(0.1))
    for table in (some.to_pandas(), some.phases()):
        assert set(table["clients"]) == {4}
        assert set(table["user"]) == {0, 2}
        assert set(table["label"]) == {"FedConPE N=1", "FedConPE N=2"}
        assert table.index.tolist() == list(range(len(table)))
    assert some.settings == {"seed": 7}
    assert grid.only(alpha=0.5).phases().empty  # phases have no such column
    assert len(grid.only(alpha=None).phases()) == len(grid.phases())
    assert kept(grid.only("LinUCB alpha=0.5", clients=2, N=1)) == [("LinUCB alpha=0.5", 2)]
    pd.testing.assert_frame_equal(grid.only().to_pandas(), grid.to_pandas())


@pytest.mark.parametrize(
    ("conditions", "sentence"),
    [
        (
            {"client": 4},
            "client=4 is not allowed: it must be a setting, here dataset, algorithm, label, clients, arms, horizon, "
            "noise, N, user, seed, alpha; did you mean clients?",
        ),
        ({"clients": 3}, "clients=3 is not allowed: it must be 2 or 4"),
        ({"clients": [2, 3]}, "clients=3 is not allowed: it must be 2 or 4"),
        ({"clients": "two"}, "clients='two' is not allowed: it must be 2 or 4"),
        ({"clients": []}, "clients=[] is not allowed: it must name at least one value"),
        ({"N": 3.5}, "N=3.5 is not allowed: it must be 1 or 2 or None"),
        ({"alpha": 0.25}, "alpha=0.25 is not allowed: it must be None or 'theory' or 0.5"),
        (
            {"algorithm": "LinUBC"},
            "algorithm='LinUBC' is not allowed: it must be 'FedConPE' or 'LinUCB'; did you mean LinUCB?",
        ),
        (
            {"N": 1, "label": "FedConPE N=2"},
            "N=1, label='FedConPE N=2' is not allowed: there are runs of each, but none of all together",
        ),
    ],
)
def test_what_is_not_there_is_named(grid, conditions, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        grid.only(**conditions)
    assert str(error.value) == sentence


def test_of_many_values_some_are_named():
    many = made_of([row for i in range(20) for row in runs(f"A x={i}", [[1.0]], x=float(i))])
    with pytest.raises(ValueError, match=r"must be 0 or 1 or 2 or 3 .* or 11 or 8 others$"):
        many.only(x=0.5)


# ---------------------------------------------------------------------------------------------------- columns


def test_tables_tell_what_varies(grid):
    """A hyperparameter that an algorithm lacks does not vary by that."""
    numbers = ["count", "mean", "low", "high"]
    assert list(grid.summary().columns) == ["label", "clients", "N", "alpha", *numbers]
    assert list(grid.only(clients=4, algorithm="FedConPE").summary().columns) == ["label", "N", *numbers]
    assert list(grid.only("FedConPE N=1", "LinUCB alpha=0.5").summary().columns) == ["label", "clients", *numbers]
    whole = grid.summary(columns="all")
    more = ["median", "median_low", "median_high", "note"]
    assert list(whole.columns) == [*grid.setting_columns(), "count", "mean", "sd", "low", "high", *more]
    pd.testing.assert_frame_equal(grid.summary(), whole[grid.summary().columns])
    assert grid.summary()["count"].tolist() == [6] * 8


def test_comparisons_tell_what_varies(grid):
    numbers = ["other", "percent_below", "low", "high"]
    assert list(grid.compare("FedConPE N=1").columns) == ["clients", *numbers, "better_for"]
    assert list(grid.only(clients=2).compare("FedConPE N=1").columns) == [*numbers, "better_for"]
    whole = grid.compare("FedConPE N=1", columns="all")
    assert {"dataset", "arms", "label", "pairs", "difference", "difference_low"} <= set(whole.columns)
    pd.testing.assert_frame_equal(grid.compare("FedConPE N=1")[["clients", *numbers]], whole[["clients", *numbers]])
    assert grid.only("FedConPE N=1").compare("FedConPE N=1").empty


def test_tables_print_in_eighty_columns():
    """No column is left out for dots; the numbers are short in print alone."""
    names = ("FedConPE", "ConLinUCB-MCR alpha=0.5", "Uniform")
    values = 12345.678 * SPREAD
    rows = [row for label in names for M in (2, 4) for row in runs(label, values, clients=M, arms=M)]
    results = made_of(rows)
    summary = results.summary()
    for table in (summary, results.compare("FedConPE")):
        with pd.option_context("display.width", 80, "display.max_columns", 0):
            text = repr(table)
        assert "..." not in text
        assert max(map(len, text.splitlines())) <= 80
    assert repr(summary).splitlines()[1].split() == ["0", "FedConPE", "2", "2", "6", "12,346", "9,279", "15,413"]
    assert "<td>12,346</td>" in summary._repr_html_()
    assert summary["mean"].iloc[0] == pytest.approx(values.mean(), rel=1e-12)
    assert type(summary[["label", "mean"]]) is pd.DataFrame


def test_columns_are_few_or_all(grid):
    for ask in (grid.summary, lambda columns: grid.compare("FedConPE N=1", columns=columns), grid.phase_means):
        with pytest.raises(ValueError, match=r"^columns='some' is not allowed: it must be 'few' or 'all'$"):
            ask(columns="some")


# ------------------------------------------------------------------------------------------------ phase means


def test_phase_means(grid):
    """Of the runs that reach a phase: the last user's end after the first."""
    table = grid.phase_means()
    assert list(table.columns) == ["label", "clients", "N", "phase", "count", "length", "good_event", "eps"]
    assert table["count"].tolist() == [3, 2] * 4
    first = table.set_index(["label", "clients", "phase"])
    for M in (2, 4):
        assert first.loc[("FedConPE N=1", M, 1), "length"] == M + 1
        assert first.loc[("FedConPE N=1", M, 2), "length"] == 2 * M + 0.5
    np.testing.assert_allclose(table["good_event"], [2 / 3, 1 / 2] * 4)  # shares
    some = grid.phase_means(["eps"])
    pd.testing.assert_frame_equal(some, table[["label", "clients", "N", "phase", "count", "eps"]])


def test_phase_means_with_intervals(grid):
    whole = grid.phase_means("all")
    assert {"dataset", "algorithm", "arms", "noise", "length_low", "length_high"} <= set(whole.columns)
    row = whole.iloc[0]
    half = 4.30265273 / np.sqrt(3)  # t with 2 degrees of freedom; lengths M, M + 1, M + 2
    np.testing.assert_allclose([row["length_low"], row["length_high"]], [3 - half, 3 + half])
    np.testing.assert_allclose(whole["length"], grid.phase_means()["length"])


def test_phase_means_of_what_is_not_there(grid):
    with pytest.raises(ValueError, match=r"^columns='rule' is not allowed: it must be 'length' or 'good_event' or"):
        grid.phase_means(["rule"])
    nothing = made_of(runs("A", SPREAD))
    for columns in ("few", "all", ["length"]):
        with pytest.raises(ValueError, match=r"^no phases to average: A play round by round, FedConPE and LinPE in ph"):
            nothing.phase_means(columns)


def test_phase_means_of_real_runs(catalog):
    results = fb.simulate(catalog, fb.FedConPE(), clients=2, arms=7, horizon=400, users=2)
    by_hand = results.phases().groupby("phase")[["length", "lambda_min_after", "lemma_holds"]].mean()
    found = results.phase_means().set_index("phase")
    pd.testing.assert_frame_equal(found[by_hand.columns], by_hand)

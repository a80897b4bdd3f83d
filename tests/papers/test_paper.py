"""Papers as records: kinds of claims by hand, a tiny paper from its first word to its verdict, FedLinUCB's setting."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.papers.claims import Claim, Published, agrees, below, bounded, welch
from fedbandit_jax.papers.paper import Experiment, judge, reproduce_paper
from fedbandit_jax.papers.record import PAPERS, Paper, find
from fedbandit_jax.papers.records import fedlinucb
from fedbandit_jax.report.contents import write
from tests.frames import made_of, runs


def with_messages(points):
    """By label, regrets (user, seed), uploads and downloads."""
    rows = []
    for label, (regret, up, down) in points.items():
        rows += [row | {"uploads": up, "downloads": down} for row in runs(label, regret)]
    results = made_of(rows)
    curves = results.to_pandas()
    counts = {name: curves.pop(name) for name in ("uploads", "downloads")}
    return fb.Results(curves.assign(**counts), pd.DataFrame(), {})


# ------------------------------------------------------------------------------------------------- kinds of claims


def test_two_means_are_compared_as_welch_does():
    values = np.random.default_rng(0).normal(100, 12, size=15)
    published = Published(95.0, 9.0, 20)
    found = scipy.stats.ttest_ind_from_stats(values.mean(), values.std(ddof=1), 15, 95.0, 9.0, 20, equal_var=False)
    half = welch(values, published)
    freedom = found.df if hasattr(found, "df") else None
    standard_error = abs(values.mean() - 95) / abs(found.statistic)
    if freedom is not None:
        assert half == pytest.approx(scipy.stats.t.ppf(0.975, freedom) * standard_error)
    assert 1.96 * standard_error < half < 2.1 * standard_error
    assert welch(np.full(5, 7.0), Published(7.0, 0.0, 20)) == 0
    assert np.isnan(welch(values[:1], published))
    # What the paper does not tell is taken from our runs.
    assert welch(values, Published(95.0, None, 15)) == pytest.approx(
        scipy.stats.t.ppf(0.975, 28) * values.std(ddof=1) * math.sqrt(2 / 15)
    )


@pytest.mark.parametrize(
    ("shift", "spread", "word"),
    [(0.0, 1.0, "holds"), (12.0, 1.0, "does not hold"), (1.0, 40.0, "undecided")],
)
def test_a_published_figure(shift, spread, word):
    """Agrees, is another, or the runs differ so much that nobody can say."""
    noise = np.random.default_rng(1).normal(size=(1, 20))
    regret = 100 + shift + spread * (noise - noise.mean()) / noise.std(ddof=1)
    results = with_messages({"A": (regret, 3.0, 4.0)})
    claim = agrees("A", "regret", Published(100.0, spread, 20), why="the reason")
    row = claim.judge(results)
    assert row["verdict"] == word
    assert row["value"] == pytest.approx(shift)
    half = 100 * welch(regret.ravel(), Published(100.0, spread, 20)) / 100
    assert (row["low"], row["high"]) == (pytest.approx(shift - half), pytest.approx(shift + half))
    assert claim.text == f"A: 100 (20 runs, sd {spread:g}) regret"
    messages = agrees("A", ("uploads", "downloads"), Published(7, 0.0, 20), what="messages").judge(results)
    assert (messages["verdict"], messages["value"]) == ("holds", 0)
    fewer = agrees("A", ("uploads", "downloads"), Published(8, 0.0, 20), what="messages").judge(results)
    assert fewer["verdict"] == "does not hold"
    each = agrees("A", "uploads", Published(0.3, None, 20), per=10.0).judge(results)
    assert each["verdict"] == "holds"


def test_who_has_less():
    alike = 100 + np.arange(5.0)[:, None]
    results = with_messages({"A": (alike, 3.0, 4.0), "B": (1.1 * alike, 1.0, 1.0)})
    assert below("A", "B").judge(results)["verdict"] == "holds"
    assert below("B", "A").judge(results)["verdict"] == "does not hold"
    found = below("B", "A", ("uploads", "downloads"), "messages").judge(results)
    assert (found["verdict"], found["value"]) == ("holds", pytest.approx(100 * (1 - 2 / 7)))
    rng = np.random.default_rng(2)
    noisy = with_messages({"A": (100 + 30 * rng.normal(size=(5, 1)), 1.0, 1.0), "B": (alike, 1.0, 1.0)})
    assert below("A", "B").judge(noisy)["verdict"] == "undecided"


def test_bounds_hold_in_every_run_or_not():
    results = with_messages({"A": (np.array([[1.0], [2.0], [3.0]]), 3.0, 4.0)})
    inside = bounded("A", "regret", "at most 3", lambda final: 3.0).judge(results)
    assert (inside["verdict"], inside["high"]) == ("holds", 100)
    outside = bounded("A", "regret", "at most 2.5", lambda final: 2.5).judge(results)
    assert outside["verdict"] == "does not hold"
    assert outside["figure"].startswith("2 of 3 runs")


def test_a_reason_is_given_where_a_claim_does_not_hold():
    results = with_messages({"A": (np.full((2, 2), 5.0), 3.0, 4.0)})
    experiment = dataclasses.replace(
        fedlinucb.EXPERIMENTS["messages"],
        claims=tuple(agrees("A", "uploads", Published(x, 0.0, 20), why="known") for x in (3.0, 4.0)),
    )
    assert [(row["verdict"], row["why"]) for row in judge(experiment, results)] == [
        ("holds", ""),
        ("does not hold", "known"),
    ]


# ----------------------------------------------------------------------------------------------------- a tiny paper


@pytest.fixture
def tiny(catalog):
    claims = (below("SharedLinUCB", "LinUCB"), agrees("SharedLinUCB", "uploads", Published(600, 0.0, 3)))
    experiment = Experiment(
        "one",
        "The only one",
        "sharing helps",
        algorithms=(fb.SharedLinUCB(), fb.LinUCB()),
        catalog=lambda seed: catalog,
        clients=3,
        arms=8,
        horizon=200,
        noise=0.1,
        users=3,
        seeds=2,
        quick_seeds=1,
        claims=claims,
        cost="communication",
    )
    other = dataclasses.replace(experiment, id="two", cost="", claims=(Claim("all is well", lambda _: WELL),))
    return Paper("fedlinucb", "A paper", "Somebody, 2024", {"one": experiment, "two": other})


WELL = {"verdict": "holds", "value": 1.0, "low": 1.0, "high": 1.0, "figure": "well"}


def test_a_paper_is_played_and_judged(tiny, tmp_path, monkeypatch):
    lines = []
    rows = reproduce_paper(tiny, ["one"], out=tmp_path, command="fedbandit reproduce tiny", say=lines.append)
    assert [row["verdict"] for row in rows] == [rows[0]["verdict"], "holds"]
    assert json.loads((tmp_path / "verdict.json").read_text()) == rows
    record = json.loads((tmp_path / "reproduction.json").read_text())
    assert record["paper"] == "fedlinucb"
    (part,) = record["parts"]
    final = fb.Results.load(tmp_path / part["folder"]).final()
    assert len(final) == 2 * 3 * 2
    percent = fb.Results.load(tmp_path / part["folder"]).compare("SharedLinUCB").iloc[0]
    assert (rows[0]["value"], rows[0]["low"]) == (
        pytest.approx(percent["percent_below"]),
        pytest.approx(percent["low"]),
    )
    # Again: nothing is computed. Another experiment: its rows are added.
    parts = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert reproduce_paper(tiny, ["one"], out=tmp_path, say=lines.append) == rows
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == parts
    reproduce_paper(tiny, ["two"], out=tmp_path, say=lines.append)
    assert [row["experiment"] for row in json.loads((tmp_path / "verdict.json").read_text())] == ["one", "one", "two"]
    # A page of it.
    monkeypatch.setattr("fedbandit_jax.report.reproductions.find", lambda name: tiny)
    page = write(tmp_path).read_text()
    for words in ("A paper", "Somebody, 2024.", "The only one", "sharing helps", "all is well"):
        assert words in page
    assert (tmp_path / "figures" / "tradeoff-one.pdf").exists()
    assert not (tmp_path / "figures" / "tradeoff-two.pdf").exists()


def test_what_does_not_go_together_is_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match=r"^experiment='three' is not allowed: it must be 'one' or 'two'$"):
        reproduce_paper(tiny, ["three"], out=tmp_path)
    reproduce_paper(tiny, ["two"], out=tmp_path, quick=True, say=str)
    with pytest.raises(ValueError, match="it was made with quick=True, not False"):
        reproduce_paper(tiny, ["two"], out=tmp_path)
    with pytest.raises(ValueError, match="it is of fedlinucb, not of other; use another folder"):
        reproduce_paper(dataclasses.replace(tiny, name="other"), ["two"], out=tmp_path, quick=True)


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_is_a_record(name):
    paper = find(name)
    assert paper.name == name
    assert "20" in paper.reference
    for key, experiment in paper.experiments.items():
        assert experiment.id == key
        assert experiment.title
        assert experiment.claim


# -------------------------------------------------------------------------------------------------------- FedLinUCB


def test_the_setting_is_he_et_als():
    catalog, experiment = fedlinucb.catalog(), fedlinucb.EXPERIMENTS["messages"]
    np.testing.assert_allclose(catalog.users, np.full((1, 15), 15**-0.5), rtol=1e-6)
    assert (experiment.clients, experiment.arms, experiment.horizon, experiment.noise) == (15, 25, 30_000, 0.3)
    assert experiment.world.arrivals == "one"
    labels = [algorithm.title for algorithm in experiment.algorithms]
    assert labels == ["FedLinUCB", "AsyncLinUCB", "SharedLinUCB"]
    drawn = experiment.world.draw(jax.random.split(jax.random.key(0), 50), jnp.asarray(catalog.arms), 25)
    arms = np.asarray(jax.vmap(lambda one: experiment.world.arms(one, jnp.asarray(catalog.arms)))(drawn))
    assert arms.shape == (50, 25, 15)
    assert np.abs(arms).max() <= 15**-0.5
    assert arms.std() == pytest.approx(15**-0.5 / math.sqrt(3), rel=0.02)
    fewer = experiment.world.draw(jax.random.split(jax.random.key(0), 50), jnp.asarray(catalog.arms), 10)
    np.testing.assert_array_equal(jax.random.key_data(fewer), jax.random.key_data(drawn)[:, :10])


def test_the_bound_on_messages():
    """About 2,500 uploads at M = 15, alpha = 1."""
    table = pd.DataFrame({"clients": [15], "alpha": [1.0], "horizon": [30_000], "lam": [1.0]})
    by_hand = 2 * math.log(2) * 15 * 16 * math.log(1 + 2000)
    assert float(fedlinucb.message_bound(table).iloc[0]) == pytest.approx(by_hand)
    assert by_hand == pytest.approx(2529, abs=1)


def test_sharing_everything_as_published(tmp_path):
    """A fifth of the plays of two runs: messages are as published, M + 1 a play."""
    experiment = dataclasses.replace(
        fedlinucb.EXPERIMENTS["messages"], algorithms=(fb.SharedLinUCB(alpha=0.5),), horizon=600, seeds=2
    )
    from fedbandit_jax.papers.paper import play

    results = play(experiment, fedlinucb.catalog(), tmp_path)
    final = results.final()
    assert (final["uploads"] + final["downloads"]).tolist() == [600 * 16] * 2
    published = agrees("SharedLinUCB", ("uploads", "downloads"), Published(480_000 * 600 / 30_000, 0.0, 20))
    assert published.judge(results)["verdict"] == "holds"


# -------------------------------------------------------------------------------------------------------- the shell


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "160"})


def test_the_first_word_is_the_paper(tmp_path):
    found = invoke("fedlinucb", "--dry-run", "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "fedlinucb / messages: FedLinUCB, AsyncLinUCB, SharedLinUCB; M=15, K=25, T=30000, 60 runs" in found.output
    assert not (tmp_path / "out").exists()
    same = [
        invoke(*words, "--dry-run", "--out", tmp_path / "out").output for words in (["fedconpe", "multi"], ["multi"])
    ]
    assert same[0] == same[1]
    assert "synthetic / released / multi: 7 algorithms" in same[0]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fedlinucb", "nine"], "experiment='nine' is not allowed: it must be 'messages' or 'triggers'"),
        (
            ["fedlinucb", "--preset", "tuned"],
            "preset=['tuned'] is not allowed: it means nothing to fedbandit reproduce",
        ),
        (["multi", "--horizon", "100"], "horizon=100 is not allowed: it means nothing to fedbandit reproduce fedconpe"),
        (["arena", "multi"], "EXPERIMENT=['multi'] is not allowed: it means nothing to fedbandit reproduce arena"),
    ],
)
def test_what_means_nothing_to_a_paper_is_refused(arguments, sentence, tmp_path):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(sentence)
    assert not (tmp_path / "out").exists()


def test_the_command_plays_a_paper(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbandit_jax.papers.record.find", lambda name: tiny)
    result = invoke("fedlinucb", "two", "--quick", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "all is well" in result.output
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())[0]["verdict"] == "holds"

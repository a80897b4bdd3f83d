"""The paper's experiments as data, and their reproduction at a tiny size."""

import dataclasses
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.papers import fedconpe as experiments
from fedbandit_jax.papers.fedconpe import BASELINES, EXPERIMENTS, PRESETS
from fedbandit_jax.papers.reproduce import QUICK, Size, affordable_seeds, precision, reproduce
from fedbandit_jax.results import statistics
from tests.frames import made_of, runs

pytestmark = pytest.mark.thorough

TINY = Size(users=2, seeds=2, trials=2, tuning_users=2)
WHOLE = ("command", "created", "versions", "devices", "quick", "settings", "parts", "tuned")


# ------------------------------------------------------------------------------------------------- experiments as data


def test_the_experiments_are_the_papers():
    assert list(EXPERIMENTS) == ["single", "multi", "clients", "arms", "accuracy", "questions"]
    assert PRESETS == ("theory", "released", "tuned")
    assert [e.clients[-1] for e in EXPERIMENTS.values()] == [1, 10, 15, 10, 5, 10]
    assert {e.horizon for e in EXPERIMENTS.values()} == {6000, 10_000}
    assert EXPERIMENTS["clients"].tuning_setting == (9, 100, 6000)
    assert EXPERIMENTS["arms"].tuning_setting == (10, 200, 10_000)
    assert (EXPERIMENTS["single"].least_percent, EXPERIMENTS["multi"].least_percent) == (5.25, 37.05)


def test_the_line_up_under_each_preset():
    released = EXPERIMENTS["single"].algorithms("released")
    assert [a.title for a in released] == ["FedConPE", *BASELINES]
    assert len(BASELINES) == 6
    by_title = {a.title: a for a in released}
    assert (by_title["LinUCB"].alpha, by_title["ConUCB"].alpha_t, by_title["ConLinUCB-BS"].alpha) == (0.5, 0.25, 0.1)
    theory = {a.title: a for a in EXPERIMENTS["single"].algorithms("theory")}
    assert all(theory[name].alpha == "theory" for name in BASELINES)
    assert theory["ConUCB"].alpha_t == "theory"
    assert theory["FedConPE"] == by_title["FedConPE"] == fb.FedConPE()
    constants = {a.title: {} for a in released} | {"LinUCB": {"alpha": 0.07}}
    tuned = {a.title: a for a in EXPERIMENTS["single"].algorithms("tuned", constants)}
    assert tuned["LinUCB"] == fb.LinUCB(alpha=0.07)


def test_questions_are_asked_by_both_schedules():
    found = EXPERIMENTS["questions"].algorithms("released")
    assert [(a.title, getattr(a, "schedule", "")) for a in found[:3]] == [
        ("FedConPE", ""),
        ("ArmCon", "log"),
        ("ArmCon", "linear"),
    ]
    assert len(found) == 11
    assert "LinUCB" not in {a.title for a in found}
    assert len(EXPERIMENTS["questions"].quick().algorithms("released")) == 3


# ------------------------------------------------------------------------------------------------------- precision


def test_the_interval_given_the_users():
    """By hand: users far apart do not widen it, as they are given; the noise of seeds does."""
    values = np.array([[1.0, 3.0, 2.0], [101.0, 103.0, 108.0]])
    table = made_of(runs("FedConPE", values)).final()
    pooled = values.var(axis=1, ddof=1).mean()
    by_hand = 2.7764451 * np.sqrt(pooled * (1 / 3 + 1 / 3)) / 2  # t with 2 x 2 degrees of freedom
    assert statistics.half_width_given_users(table, "regret") == pytest.approx(by_hand)
    assert precision(made_of(runs("FedConPE", values)))["half"].tolist() == pytest.approx([by_hand / values.mean()])
    one_seed = made_of(runs("FedConPE", values[:, :1]))
    assert np.isnan(statistics.half_width_given_users(one_seed.final(), "regret"))
    assert precision(one_seed)["half"].tolist() == [np.inf]


def test_the_interval_given_the_users_covers():
    rng, trials, covered = np.random.default_rng(3), 400, 0
    users = 10 * rng.normal(size=(5, 1))
    for _ in range(trials):
        values = users + rng.normal(size=(5, 4))
        table = pd.DataFrame({"user": np.repeat(range(5), 4), "regret": values.ravel()})
        covered += abs(values.mean() - users.mean()) <= statistics.half_width_given_users(table, "regret")
    assert covered / trials == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / trials))


def test_seeds_are_bounded_by_the_work():
    assert affordable_seeds(EXPERIMENTS["single"], Size(most_rounds=60e6, most_seeds=4000)) == 1000
    assert affordable_seeds(EXPERIMENTS["multi"], Size(most_rounds=60e6)) == 100
    assert affordable_seeds(EXPERIMENTS["clients"], Size(most_rounds=60e6)) == 66
    assert affordable_seeds(EXPERIMENTS["arms"], Size(most_rounds=1)) == 4


# -------------------------------------------------------------------------------------------------- a tiny reproduction


@pytest.fixture
def tiny(monkeypatch):
    """Small experiments, of three algorithms."""
    few = tuple(a for a in experiments.LINE_UP if a.title in ("FedConPE", "LinUCB", "ConLinUCB-MCR"))
    monkeypatch.setattr(experiments, "LINE_UP", few)
    for name, experiment in list(EXPERIMENTS.items()):
        clients = (2, 3) if name == "clients" else (2,)
        small = {"clients": clients, "arms": (7,), "horizon": 300, "relatives": False}
        monkeypatch.setitem(EXPERIMENTS, name, dataclasses.replace(experiment, **small))


def read(out):
    return json.loads((out / "reproduction.json").read_text()), json.loads((out / "verdict.json").read_text())


def test_reproduce(tiny, catalog, tmp_path):
    """Its files, that it goes on where it stopped, and that parts are added and replaced one by one."""
    out, lines = tmp_path / "out", []
    made = {
        "catalogs": {"mine": catalog},
        "out": out,
        "size": TINY,
        "command": "fedbandit reproduce",
        "say": lines.append,
    }
    rows = reproduce(["multi"], ["released", "tuned"], **made)
    record, stored = read(out)
    assert set(WHOLE) <= set(record)
    assert stored == rows
    assert [(row["experiment"], row["preset"], row["dataset"]) for row in rows] == [
        ("multi", "released", "mine"),
        ("multi", "tuned", "mine"),
    ]
    assert all(row["verdict"] in ("holds", "does not hold", "undecided") for row in rows)
    assert {"claim", "value", "low", "high", "figure", "why"} <= set(rows[0])
    folders = [part["folder"] for part in record["parts"]]
    assert folders == ["mine/released/multi", "mine/tuned/multi"]
    results = fb.Results.load(out / folders[0])
    assert set(results.final()["label"]) == {"FedConPE", "LinUCB", "ConLinUCB-MCR"}
    percent = results.compare("FedConPE").set_index("other")["percent_below"]
    assert any(rows[0]["value"] == pytest.approx(value) for value in percent)
    # Tuned: on other users, and what was chosen is what was scored.
    trials = fb.Results.load(out / "mine" / "tuning" / "M2-K7-T300").final()
    assert set(trials["user"]) == {2, 3}
    assert set(results.final()["user"]) == {0, 1}
    chosen = record["tuned"]["mine"]["multi"]
    scored = fb.Results.load(out / folders[1]).final().set_index("algorithm")
    assert scored.loc["LinUCB", "alpha"].unique().tolist() == [chosen["LinUCB"]["alpha"]]
    assert scored.loc["FedConPE", "N"].unique().tolist() == [chosen["FedConPE"]["N"]]

    # Again: nothing is computed. Another experiment: its rows are added. A lost verdict comes back.
    parts = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    (out / "verdict.json").unlink()
    assert reproduce(["multi"], ["released", "tuned"], **made) == rows
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == parts
    reproduce(["clients"], ["released"], **made)
    _, stored = read(out)
    assert [row for row in stored if row["experiment"] == "multi"] == rows
    assert [row["preset"] for row in stored if row["experiment"] == "clients"] == ["released", "released"]

    # More work may go into a folder, but not everything mixes.
    reproduce(["multi"], ["released"], **made | {"size": dataclasses.replace(TINY, most_rounds=1e9)})
    with pytest.raises(ValueError, match="it was made with trials=2, not 3"):
        reproduce(["multi"], ["released"], **made | {"size": dataclasses.replace(TINY, trials=3)})
    other = fb.datasets.synthetic(seed=1, dim=6, num_arms=60, num_key_terms=30, num_users=6)
    with pytest.raises(ValueError, match="its 'mine' is another catalog"):
        reproduce(["multi"], ["released"], **made | {"catalogs": {"mine": other}})
    size = dataclasses.replace(TINY, tuning_users=5)
    with pytest.raises(ValueError, match="tuning needs 5 other users than the 2 that are scored"):
        reproduce(["multi"], ["tuned"], **made | {"size": size, "out": tmp_path / "new"})


def test_seeds_are_added_until_regrets_are_precise(tiny, catalog, tmp_path, monkeypatch):
    module = sys.modules["fedbandit_jax.papers.reproduce"]
    monkeypatch.setattr(module, "PRECISION", 0.15)
    size = Size(users=2, first_seeds=2, most_seeds=12, precise=True)
    reproduce(["multi"], ["released"], {"mine": catalog}, out=tmp_path, size=size, say=lambda text: None)
    part = read(tmp_path)[0]["parts"][0]
    final = fb.Results.load(tmp_path / part["folder"]).final()
    seeds = final.groupby("label")["seed"].nunique()
    assert seeds["FedConPE"] == seeds.max() == part["seeds"] > 2
    found = precision(fb.Results.load(tmp_path / part["folder"])).set_index("label")["half"]
    for label, half in found.items():
        assert half <= 0.15 or seeds[label] == 12
    assert len(part["imprecise"]) == (found > 0.15).sum()
    assert part["looks"] > 1
    assert (part["stopped_early"], part["confidence"]) == (False, 0.95)
    # Once more, from what is there.
    reproduce(["multi"], ["released"], {"mine": catalog}, out=tmp_path, size=size, say=lambda text: None)
    pd.testing.assert_frame_equal(fb.Results.load(tmp_path / part["folder"]).final(), final)


@pytest.mark.parametrize("percent", [95.0, None])
def test_seeds_are_added_until_the_verdict_is_decided(tiny, catalog, tmp_path, monkeypatch, percent):
    """Nobody is 95 % below LinUCB: decided at once, at 99.5 %. What is measured is not, and goes on."""
    module = sys.modules["fedbandit_jax.papers.reproduce"]
    monkeypatch.setattr(module, "PRECISION", 0.05)
    size, lines = Size(users=5, first_seeds=3, most_seeds=9), []
    if percent is None:
        size_of_all = dataclasses.replace(size, precise=True)
        reproduce(["multi"], ["released"], {"mine": catalog}, out=tmp_path / "all", size=size_of_all, say=str)
        percent = read(tmp_path / "all")[1][0]["value"]
    monkeypatch.setitem(EXPERIMENTS, "multi", dataclasses.replace(EXPERIMENTS["multi"], least_percent=percent))
    (row,) = reproduce(["multi"], ["released"], {"mine": catalog}, out=tmp_path, size=size, say=lines.append)
    part = read(tmp_path)[0]["parts"][0]
    early = percent == 95
    assert (row["verdict"] == "undecided") == (not early)
    assert part["stopped_early"] == early
    assert part["seeds"] == (3 if early else 9)
    assert (part["looks"] == 1) == early
    assert row["confidence"] == part["confidence"] == (0.995 if early else pytest.approx(0.955, abs=0.005))
    assert row["figure"].endswith(f" at {100 * row['confidence']:.5g} %")
    assert ("    decided with 3 seeds: no more were added" in lines) == early


# ----------------------------------------------------------------------------------------------------------- the shell


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "160"})


def test_the_command(tiny, catalog, tmp_path):
    catalog.save(tmp_path / "mine.npz")
    data, out = f"mine={tmp_path / 'mine.npz'}", tmp_path / "out"
    dry = invoke("questions", "--data", data, "--dry-run", "--out", out)
    assert dry.exit_code == 0, dry.output
    assert "mine / tuned / questions: 3 algorithms, M=2, K=7, T=300, 10 users x 4 seeds, 32 trials" in dry.output
    assert not out.exists()
    # A few users are enough: ten of this catalog do not exist.
    assert isinstance(invoke("questions", "--data", data, "--out", out).exception, ValueError)
    result = invoke("questions", "--preset", "released", "--data", data, "--quick", "--out", out)
    assert result.exit_code == 0, result.output
    record, rows = read(out)
    assert record["quick"] is True
    assert record["settings"]["users"] == QUICK.users
    assert len(rows) == 2
    words = " ".join(result.output.split())
    assert "mine, preset released" in words
    assert str(out / "verdict.json") in result.output.replace("\n", "")
    assert all(row["verdict"].split()[0] in words for row in rows)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nine"], "experiment='nine' is not allowed: it must be 'single' or 'multi' or"),
        (["multi", "--preset", "best"], "preset='best' is not allowed: it must be 'theory' or 'released' or 'tuned'"),
        (["multi", "--data", "lastfm"], "data='lastfm' is not allowed: it must be 'synthetic' or NAME=PATH"),
        (["multi", "--data", "tuning=x.npz"], "data='tuning=x.npz' is not allowed: its name must be new"),
        (["multi", "--seeds", "0"], "seeds=0 is not allowed: it must be a whole number of at least 1"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(sentence)
    assert not (tmp_path / "out").exists()


def test_help():
    text = re.sub(r"\s+", " ", invoke("--help").output)
    for word in (
        "--preset",
        "--data",
        "--quick",
        "--seeds",
        "--trials",
        "--budget",
        "--precise",
        "--dry-run",
        "questions, theory",
    ):
        assert word in text

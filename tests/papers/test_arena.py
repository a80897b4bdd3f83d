"""The arena at a tiny size: who plays, who is left out, what is written and found again."""

import dataclasses
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.papers import arena
from fedbandit_jax.papers.arena import Size, divide, line_up, play_arena, theory, worlds_of
from fedbandit_jax.report.contents import write

TINY = Size(clients=2, arms=6, horizon=120, users=3, seeds=1, trials=2, tuning_users=2, tuning_seeds=1)


def test_everybody_with_a_server_is_there_and_one_who_never_talks():
    titles = [algorithm.title for algorithm in line_up()]
    assert titles[0] == "LinUCB"
    assert {"FedConPE", "FedLinPE", "SharedLinUCB", "DisLinUCB", "FedLinUCB", "AsyncLinUCB"} <= set(titles)
    assert not {"LinPE", "Uniform", "ConUCB"} & set(titles)
    assert len(set(titles)) == len(titles)


def test_theory_is_every_word_that_says_so():
    assert theory(fb.LinUCB(lam=2.0)) == fb.LinUCB(alpha="theory", lam=2.0)
    assert theory(fb.FedLinUCB()) == fb.FedLinUCB(alpha="theory", beta="theory")
    assert theory(fb.FedConPE()) == fb.FedConPE()


def test_who_is_not_made_for_a_world_is_left_out(catalog):
    given = [fb.LinUCB(), fb.FedConPE(), fb.SharedLinUCB()]
    fit, left_out = divide(given, catalog, fb.World(contexts="redrawn"), TINY)
    assert [algorithm.title for algorithm in fit] == ["LinUCB", "SharedLinUCB"]
    reason = "FedConPE plays phases on fixed arms, so contexts='redrawn' is not allowed"
    assert left_out == {"FedConPE": reason}
    # Also by the data: without key terms there is nothing to ask about.
    silent = fb.Catalog.from_arrays(catalog.arms, users=catalog.users)
    fit, left_out = divide(given, silent, fb.World(), TINY)
    assert list(left_out) == ["FedConPE"]


def test_data_sets_are_played_as_they_come(catalog):
    named = {name: dataclasses.replace(catalog, name=name) for name in ("synthetic", "conlinucb-lastfm", "lastfm")}
    assert worlds_of(named["synthetic"]) == ("fixed", "common")
    assert worlds_of(named["synthetic"], quick=True) == ("fixed",)
    assert worlds_of(named["conlinucb-lastfm"]) == ("redrawn",)
    assert worlds_of(named["lastfm"]) == ("fixed",)


@pytest.fixture
def few(monkeypatch):
    algorithms = [fb.LinUCB(), fb.SharedLinUCB(), fb.FedLinPE()]
    monkeypatch.setattr(arena, "line_up", lambda: list(algorithms))


@pytest.mark.thorough
def test_the_arena(few, catalog, tmp_path):
    lines = []
    made = {"out": tmp_path, "size": TINY, "command": "fedbandit reproduce arena", "say": lines.append}
    rows = play_arena({"mine": catalog}, ["fixed", "redrawn"], **made)
    record = json.loads((tmp_path / "arena.json").read_text())
    assert [(part["dataset"], part["world"]) for part in record["parts"]] == [("mine", "fixed"), ("mine", "redrawn")]
    assert list(record["parts"][0]["left_out"]) == []
    assert list(record["parts"][1]["left_out"]) == ["FedLinPE"]
    assert any("left out: FedLinPE plays phases on fixed arms" in line for line in lines)
    assert len(rows) == 3 * 3 + 3 * 2
    assert [row["constants"] for row in rows[:9]] == ["default"] * 3 + ["theory"] * 3 + ["tuned"] * 3
    for row in rows:
        assert row["front"] in ("on the front", "dominated", "undecided")
        if row["algorithm"] == "LinUCB":
            assert (row["scalars"], row["messages"], row["front"]) == (0, 0, "on the front")
        if row["algorithm"] == "SharedLinUCB":
            assert row["messages"] == 2 * 2 * 120
    # Regrets are those of a plain call with these constants, and tuning was on other users.
    played = fb.simulate(catalog, fb.LinUCB(), clients=2, arms=6, horizon=120, users=3, checkpoints=60)
    mean = played.summary()["mean"].iloc[0]
    assert next(row["regret"] for row in rows if row["algorithm"] == "LinUCB") == pytest.approx(mean)
    trials = fb.Results.load(tmp_path / "mine" / "fixed" / "tuning").final()
    assert set(trials["user"]) == {3, 4}
    tuned = record["parts"][0]["tuned"]["LinUCB"]
    again = fb.simulate(catalog, fb.LinUCB(**tuned), clients=2, arms=6, horizon=120, users=3, checkpoints=60)
    found = next(r for r in rows if (r["world"], r["constants"], r["algorithm"]) == ("fixed", "tuned", "LinUCB"))
    assert found["regret"] == pytest.approx(again.summary()["mean"].iloc[0])

    # Again: nothing is computed; another world is added; another size is refused.
    runs = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("curves-*.parquet")}
    again = play_arena({"mine": catalog}, ["fixed"], **made)
    pd.testing.assert_frame_equal(pd.DataFrame(again), pd.DataFrame(rows[:9]))  # NaN where too few users carry a mean
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("curves-*.parquet")} == runs
    assert len(json.loads((tmp_path / "arena.json").read_text())["parts"]) == 2
    with pytest.raises(ValueError, match="it was made with horizon=120, not 130"):
        play_arena({"mine": catalog}, **made | {"size": dataclasses.replace(TINY, horizon=130)})
    with pytest.raises(ValueError, match=r"^world='moving' is not allowed: it must be 'fixed' or 'common'"):
        play_arena({"mine": catalog}, ["moving"], **made)

    # A page of it, with a figure for each world and kind of constants.
    page = write(tmp_path).read_text()
    assert "The arena: federated learners on one engine" in page
    assert "FedLinPE plays phases on fixed arms" in page
    assert {path.name for path in (tmp_path / "figures").glob("*.png")} == {
        f"arena-mine-{world}-{kind}.png" for world in ("fixed", "redrawn") for kind in arena.CONSTANTS
    }


def test_the_command(few, catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(arena, "QUICK", dataclasses.replace(TINY, quick=True))
    catalog.save(tmp_path / "mine.npz")
    data, out = f"mine={tmp_path / 'mine.npz'}", tmp_path / "out"

    def invoke(*arguments):
        words = ["reproduce", "arena", "--data", data, "--out", out, "--quick", *arguments]
        return CliRunner().invoke(cli.app, list(map(str, words)), env={"COLUMNS": "160"})

    dry = invoke("--dry-run", "--horizon", 150, "--world", "redrawn")
    assert dry.exit_code == 0, dry.output
    assert "mine / redrawn: LinUCB, SharedLinUCB; constants default, theory, tuned; M=2, K=6, T=150" in dry.output
    assert "left out: FedLinPE" in dry.output
    assert not out.exists()
    result = invoke("--preset", "default")
    assert result.exit_code == 0, result.output
    assert "mine, fixed arms, default constants" in result.output
    assert "on the front" in result.output
    rows = json.loads((out / "arena.json").read_text())["parts"][0]["rows"]
    assert {row["constants"] for row in rows} == {"default"}
    wrong = invoke("--preset", "best")
    assert str(wrong.exception).startswith("preset='best' is not allowed: it must be 'default' or 'theory' or 'tuned'")

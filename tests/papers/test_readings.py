"""The readings of the paper: as data, played at a tiny size, and what is found in them."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.papers import fedconpe, verdict
from fedbandit_jax.papers.fedconpe import CHOICES, EXPERIMENTS, Reading
from fedbandit_jax.papers.readings import findings, readings
from fedbandit_jax.papers.readings.readings import CLAIMS
from fedbandit_jax.papers.reproduce import Size
from fedbandit_jax.report import contents, maps
from tests.reports import reproduction

TINY = Size(users=2, seeds=2, trials=2, tuning_users=2, tuning_seeds=1)
FEW = {
    "sigma": ("noise", "1"),
    "N": ("1", "admissible"),
    "null_space": ("skip",),
    "rounding": ("ceil",),
    "baselines": ("theory", "tuned"),
}

# ---------------------------------------------------------------------------------------------------------- as data


def test_all_choices_are_combined():
    found = list(fedconpe.readings("drawn", 0.32))
    assert len(found) == len(set(found)) == 2 * 8 * 2 * 2 * 3
    assert {reading.user_norm for reading in found} == {"drawn"}
    assert len(list(fedconpe.readings("svd", 0.0))) == 2 * 7 * 2 * 2 * 3  # no N is admissible


def test_a_reading_settles_the_algorithms():
    paper = Reading("drawn").fedconpe(0.3)
    assert paper == fb.FedConPE(sigma=0.1)
    other = Reading("drawn", sigma="1", N="admissible", null_space="skip", rounding="unbiased").fedconpe(0.25)
    assert other == fb.FedConPE(N=16.0, C=0.25, sigma=1.0, null_space="skip", rounding="unbiased")
    other.check(dim=50, clients=10, arms=100, horizon=6000, noise=0.1)  # N C^2 is 1, not a little less
    linucb = [fb.LinUCB()]
    assert Reading("drawn", sigma="1", baselines="theory").line_up(linucb, None) == [
        fb.LinUCB(alpha="theory", sigma=1.0)
    ]
    assert Reading("drawn", sigma="1").line_up(linucb, None) == linucb
    tuned = Reading("drawn", baselines="tuned").line_up(linucb, {"LinUCB": {"alpha": 0.07}})
    assert tuned == [fb.LinUCB(alpha=0.07)]


# ---------------------------------------------------------------------------------------------------------- played


@pytest.fixture
def tiny(monkeypatch):
    """Few readings of small experiments, with two baselines."""
    few = tuple(a for a in fedconpe.LINE_UP if a.title in ("FedConPE", "LinUCB", "ConLinUCB-MCR"))
    monkeypatch.setattr(fedconpe, "LINE_UP", few)
    monkeypatch.setattr(readings, "CHOICES", FEW)
    monkeypatch.setattr(readings, "SWEPT_NORMS", (0.5, 8.0))
    for name, experiment in list(EXPERIMENTS.items()):
        clients = {"single": (1,), "clients": (2, 3)}.get(name, (2,))
        arms = (5, 7) if name == "arms" else (7,)
        small = {"clients": clients, "arms": arms, "horizon": 300, "last_round": experiment.last_round and 100}
        monkeypatch.setitem(EXPERIMENTS, name, dataclasses.replace(experiment, **small))


@pytest.fixture
def catalogs(catalog):
    return {"mine": {"drawn": catalog, "unit": readings.with_norm(catalog, 1.0, catalog.name)}}


@pytest.mark.thorough
def test_played_and_judged(tiny, catalogs, tmp_path, traced):
    """Against the same experiment played by itself; again, nothing is computed."""
    said = []
    made = {"out": tmp_path, "size": TINY, "command": "fedbandit reproduce --readings", "say": said.append}
    rows, norms = readings.play_readings(catalogs, **made)
    assert len(rows) == 2 * 8 * len(CLAIMS)
    assert not rows.duplicated(["dataset", *findings.READING, "claim"]).any()
    assert set(rows["verdict"]) <= set(findings.WORDS)
    assert any("users unit: baselines tuned" in line for line in said)

    reading = Reading("unit", "1", "admissible", "skip", "ceil", "theory")
    is_reading = (rows[list(dataclasses.asdict(reading))] == pd.Series(dataclasses.asdict(reading))).all(axis=1)
    found = rows[is_reading].set_index("claim")
    catalog = catalogs["mine"]["unit"]
    ours = reading.fedconpe(catalog.realised_C)
    theory = {"alpha": "theory", "sigma": 1.0}
    line_up = [ours, fb.LinUCB(**theory), fb.ConLinUCB(strategy="MCR", **theory)]
    setting = {"noise": 0.1, "users": 2, "seeds": 2, "checkpoints": fedconpe.CHECKPOINTS, "horizon": 300}
    alone = fb.sweep(catalog, line_up, clients=[1, 2, 3], arms=7, **setting)
    for name, claims in (
        ("single", ["single"]),
        ("multi", ["multi"]),
        ("clients", ["linear", "root"]),
        ("arms", ["flat"]),
        ("accuracy", ["accuracy"]),
        ("questions", ["questions-log", "questions-linear"]),
    ):
        experiment = EXPERIMENTS[name]
        if name == "arms":
            played = fb.sweep(catalog, ours, clients=2, arms=experiment.arms, **setting)
        else:
            played = alone.only(clients=list(experiment.clients))
        judged = verdict.judge_claims(experiment, played)
        assert len(judged) == len(claims)
        for claim, row in zip(claims, judged, strict=True):
            assert found.loc[claim, "verdict"] == row["verdict"]
            for end in ("value", "low", "high"):
                assert found.loc[claim, end] == pytest.approx(row[end], rel=1e-4, abs=1e-4, nan_ok=True)

    assert norms.groupby("norm").size().to_dict() == {0.5: 4, 8.0: 4}
    at_norm = readings.with_norm(catalogs["mine"]["drawn"], 8.0, "long")
    np.testing.assert_allclose(np.linalg.norm(at_norm.users, axis=1), 8)
    released = [fb.FedConPE(sigma=0.1), fb.LinUCB(), fb.ConLinUCB(strategy="MCR")]
    alone = fb.sweep(at_norm, released, clients=[1, 2], arms=7, **setting).only(clients=2)
    row = norms.query("norm == 8 and baselines == 'released' and claim == 'multi'").iloc[0]
    assert row["least"] == pytest.approx(alone.compare("FedConPE")["percent_below"].min(), rel=1e-4)

    traced.clear()
    again = readings.play_readings(catalogs, **made)
    assert not traced
    pd.testing.assert_frame_equal(again[0], rows)
    pd.testing.assert_frame_equal(again[1], norms)
    record = json.loads((tmp_path / "readings.json").read_text())
    assert set(record["seconds"]) == {"mine/drawn", "mine/unit", "mine/norms"}
    (tmp_path / "norms.parquet").unlink()  # as after an interruption
    with pytest.raises(ValueError, match="is not allowed: it must be one whose readings are played"):
        readings.read(tmp_path)
    with pytest.raises(ValueError, match="its readings were made with trials=2, not 3"):
        readings.play_readings(catalogs, **made | {"size": dataclasses.replace(TINY, trials=3)})
    turned = {"mine": {"drawn": catalogs["mine"]["unit"]}}
    with pytest.raises(ValueError, match="its 'mine' is another catalog"):
        readings.play_readings(turned, **made)
    with pytest.raises(ValueError, match="users of mine=6 is not allowed: 5 are scored and 2 others tuned on"):
        readings.play_readings(catalogs, **made | {"out": tmp_path / "new", "size": dataclasses.replace(TINY, users=5)})


@pytest.mark.thorough
def test_the_command(tiny, catalog, tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "QUICK_CHOICES", FEW | {"baselines": ("released",)})
    monkeypatch.setattr("fedbandit_jax.cli.reproduce.console", Console(width=200))
    catalog.save(tmp_path / "mine.npz")
    arguments = ["reproduce", "--readings", "--data", f"mine={tmp_path / 'mine.npz'}", "--out", tmp_path / "out"]

    def invoke(*more):
        found = CliRunner().invoke(cli.app, [*map(str, arguments), *more])
        return found, " ".join(found.output.split())

    result, words = invoke("--dry-run")
    assert result.exit_code == 0, result.output
    assert "mine / users prepared: 8 readings; FedConPE in 4 variants, M=1,2,3 and K=5,7; baselines theory-1" in words
    assert not (tmp_path / "out").exists()
    result, _ = invoke("--preset", "theory")
    assert str(result.exception).startswith("preset=['theory'] is not allowed: readings are about all claims")
    size = dataclasses.replace(TINY, quick=True)
    monkeypatch.setattr("fedbandit_jax.papers.reproduce.QUICK", size)
    monkeypatch.setattr(fedconpe, "QUICK_BASELINES", ("LinUCB",))
    for name, experiment in list(EXPERIMENTS.items()):
        small = {"quick_clients": experiment.clients, "quick_arms": experiment.arms}
        monkeypatch.setitem(EXPERIMENTS, name, dataclasses.replace(experiment, **small))
    result, words = invoke("--quick")
    assert result.exit_code == 0, result.output
    assert "In how many readings a claim holds" in words
    assert "The paper's least advantages are 5.25 % and 37.05 %" in words
    rows, _ = readings.read(tmp_path / "out")
    assert set(rows["user_norm"]) == {"prepared", "unit"}
    for _, row in findings.tally(rows).iterrows():
        assert f"{CLAIMS[row['claim']]} │ mine │ {row['holds']} │ {row['does not hold']} │" in words


# ---------------------------------------------------------------------------------------------------------- findings


def made_up(words, norms=("drawn",), data="mine", least=None):
    """Rows of readings that differ in norm, sigma and baselines; `words` gives a verdict for (claim, reading)."""
    rows = []
    for norm in norms:
        for sigma in CHOICES["sigma"]:
            for baselines in ("theory", "released"):
                reading = Reading(norm, sigma, baselines=baselines)
                for claim in CLAIMS:
                    value = least(claim, reading) if least else 0.0
                    rows.append(
                        {"dataset": data, **dataclasses.asdict(reading), "claim": claim}
                        | {"verdict": words(claim, reading), "value": value, "least": value}
                    )
    return pd.DataFrame(rows)


def by_sigma(claim, reading):
    """Questions are few with sigma = 1 only, regret is low with the noise only; the rest holds."""
    if claim.startswith("questions"):
        return "holds" if reading.sigma == "1" else "does not hold"
    if claim == "multi":
        return "holds" if reading.sigma == "noise" else "undecided"
    return "holds"


def test_the_tally_and_what_excludes_what():
    rows = made_up(by_sigma)
    tally = findings.tally(rows).set_index("claim")
    assert list(tally.index) == list(CLAIMS)
    assert tally.loc["multi", list(findings.WORDS)].tolist() == [2, 0, 2]
    assert tally.loc["questions-log", list(findings.WORDS)].tolist() == [2, 2, 0]
    assert findings.all_at_once(rows).empty
    pairs = findings.excluding(rows)
    assert set(zip(pairs["one"], pairs["other"], strict=True)) == {
        ("multi", "questions-log"),
        ("multi", "questions-linear"),
    }
    most = findings.most_at_once(rows)
    assert most["hold"].tolist() == [7, 7]
    assert set(most["others"]) == {"multi undecided"}
    answer, *more = findings.answers(rows) + findings.exclusions(rows)
    assert answer.startswith("mine: under none of 4 readings do all 8 claims hold at once. At most 7 do, under 2 of")
    assert "holds under 2 readings and 'fewer questions than 5 floor(log t)' under 2, but never" in more[0]


def test_claims_that_hold_nowhere():
    words = {"single": lambda sigma: "undecided" if sigma == "1" else "does not hold"}
    rows = made_up(lambda claim, reading: words[claim](reading.sigma) if claim in words else "holds")
    assert findings.nowhere(rows).to_dict("records") == [
        {"dataset": "mine", "claim": "single", "undecided": 2, "readings": 4}
    ]
    assert findings.excluding(rows).empty  # a claim that never holds excludes nothing
    assert findings.failures(rows)[0].endswith("holds under no reading; under 2 of 4 it is undecided.")


def test_readings_under_which_all_claims_hold():
    rows = made_up(lambda claim, reading: "holds" if reading.baselines == "theory" else "undecided")
    assert findings.all_at_once(rows)["baselines"].tolist() == ["theory", "theory"]
    assert findings.answers(rows) == ["mine: all 8 claims hold at once under 2 of 4 readings."]
    assert findings.excluding(rows).empty


def test_what_a_claim_hangs_on():
    table = findings.hangs_on(made_up(by_sigma)).set_index("claim")
    assert table.loc["multi", "sigma"] == 1
    assert table.loc["multi", ["baselines", "N", "user_norm"]].tolist() == [0, 0, 0]
    assert table.loc["single", "sigma"] == 0
    rows = made_up(
        lambda claim, reading: "holds" if (reading.sigma, reading.user_norm) == ("1", "a") else "undecided", ("a", "b")
    )
    table = findings.hangs_on(rows).set_index("claim")
    assert table.loc["single", ["sigma", "user_norm", "baselines"]].tolist() == [0.5, 0.5, 0]


def test_the_closest_reading_has_the_papers_figures_as_its_least():
    def on_synthetic(claim, reading):
        if (reading.sigma, reading.baselines, reading.user_norm) == ("noise", "released", "drawn"):
            return {"single": 5.25, "multi": 90.0}.get(claim, 0.0)
        return -1000.0

    def on_real(claim, reading):
        if (reading.sigma, reading.baselines, reading.user_norm) == ("noise", "released", "svd"):
            return {"single": 50.0, "multi": 37.05}.get(claim, 0.0)
        return -50.0

    words = lambda claim, reading: "holds"  # noqa: E731
    rows = pd.concat(
        [
            made_up(words, ("drawn", "unit"), "synthetic", on_synthetic),
            made_up(words, ("svd", "scaled", "unit"), "real", on_real),
        ]
    )
    together = findings.norms_together(rows)
    assert together == {
        "as in the appendix": {"synthetic": "drawn", "real": "svd"},
        "unit": {"synthetic": "unit", "real": "unit"},
        "scaled": {"synthetic": "drawn", "real": "scaled"},
    }
    best = findings.closest(rows).iloc[0]
    assert (best["users"], best["sigma"], best["baselines"]) == ("as in the appendix", "noise", "released")
    assert (best["single"], best["multi"], best["norms"]) == (5.25, 37.05, "drawn (synthetic), svd (real)")
    assert best["distance"] == pytest.approx(0)
    assert "users drawn (synthetic), svd (real), sigma = noise, N = 1, C = 1" in findings.published(rows)
    second = findings.closest(rows).iloc[1]  # scaled: 5.25 % and 50 % above with one client
    by_hand = [np.log(1.5) - np.log(1 - 0.0525), np.log(1.5) - np.log(1 - 0.3705)]
    assert second["users"] == "scaled"
    assert second["distance"] == pytest.approx(np.hypot(*by_hand))


def test_where_the_headline_begins_to_hold():
    words = {
        "theory": ["holds", "undecided", "holds", "holds"],
        "released": ["does not hold"] * 4,
        "tuned": ["holds", "holds", "undecided", "undecided"],
    }
    rows = [
        {"dataset": "mine", "baselines": baselines, "claim": "multi", "norm": norm, "verdict": word}
        for baselines, said in words.items()
        for norm, word in zip((0.5, 1, 2, 4), said, strict=True)
    ]
    found = findings.begins_to_hold(pd.DataFrame(rows)).set_index("baselines")["norm"]
    assert found["theory"] == 2
    assert np.isnan(found["released"])
    (told,) = findings.thresholds(pd.DataFrame(rows))
    assert told.endswith("holds from 2 on (theory), nowhere (released), at 0.5, 1 (tuned).")


# ------------------------------------------------------------------------------------------------------------ pictures


def test_the_map_shows_every_reading():
    rows = made_up(by_sigma)
    multi = rows[rows["claim"] == "multi"]
    picture = maps.cells(multi, [("noise", "1"), ("1", "1")], [("drawn", "theory"), ("drawn", "released")])
    blue, grey = (np.array(maps.to_rgb(maps.WORD_COLORS[word])) for word in ("holds", "undecided"))
    assert picture.shape == (4, 4, 3)
    for y in (0, 2):  # ask above skip, ceil to the left of unbiased; what was not played is white
        np.testing.assert_allclose(picture[y], [blue, np.ones(3), grey, np.ones(3)])
        np.testing.assert_allclose(picture[y + 1], 1)
    figure = maps.draw_map(rows)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [maps.TITLES[claim] for claim in CLAIMS]


def test_the_report_has_maps_and_answers(tmp_path):
    rows = made_up(by_sigma, least=lambda claim, reading: 10.0 if claim in ("single", "multi") else 60.0)
    norms = pd.DataFrame(
        {
            "dataset": "mine",
            "baselines": "theory",
            "claim": claim,
            "norm": norm,
            "verdict": "holds",
            "least": 10.0 * norm,
        }
        for claim in ("single", "multi")
        for norm in (1.0, 2.0)
    )
    rows.to_parquet(tmp_path / "readings.parquet")
    norms.to_parquet(tmp_path / "norms.parquet")
    record = {"seconds": {"mine/drawn": 60.0, "mine/norms": 3.0}, "command": "fedbandit", "settings": {"users": 2}}
    (tmp_path / "readings.json").write_text(json.dumps(record))
    page = contents.write(tmp_path).read_text()
    for sentence in findings.in_words(rows, norms):
        assert sentence.replace("'", "&#39;") in page
    assert page.count("data:image/svg+xml;base64,") == 3
    for name in ("readings-mine", "norms", "front-mine"):
        assert {p.suffix for p in (tmp_path / "figures").glob(f"{name}.*")} == {".pdf", ".png", ".svg"}
    assert "(figures/readings-mine.png)" in (tmp_path / "report.md").read_text()
    for heading in ("In how many readings a claim holds", "What a claim hangs on", "Closest to the paper"):
        assert heading in page
    both = contents.read(reproduction(tmp_path))  # beside the presets, all is in one report
    assert len(both.pictures) == 3
    assert both.verdicts
    assert both.title.endswith("rerun and judged")

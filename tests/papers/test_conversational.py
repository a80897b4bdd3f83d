"""The papers of conversational bandits as data: settings, claims on tables made by hand, commands."""

import dataclasses
import json

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.papers.paper import judge, play, reproduce_paper
from fedbandit_jax.papers.record import Paper, find
from fedbandit_jax.papers.records import conlinucb, maco, relative
from fedbandit_jax.report.contents import write
from fedbandit_jax.report.reproductions import experiment_figure
from tests import archives
from tests.frames import made_of, runs
from tests.papers.test_paper import invoke

USERS = 100 + 5 * np.arange(12.0)[:, None]


def verdicts(experiment, results):
    return {row["claim"]: row["verdict"] for row in judge(experiment, results)}


# -------------------------------------------------------------------------------------------------------- ConLinUCB


def test_the_two_configurations_of_conlinucb():
    """Constants and questions of the first and of the last public code."""
    log, tenth = (conlinucb.EXPERIMENTS[name] for name in ("log", "tenth"))
    lam = {name: {a.title: a.lam for a in experiment.algorithms} for name, experiment in conlinucb.EXPERIMENTS.items()}
    assert list(lam["log"].values()) == [1.0, 1.15, 0.5, 0.1, 0.1, 0.1]
    assert list(lam["tenth"].values()) == [1.2, 1.2, 0.5, 0.2, 0.15, 0.15]
    assert list(lam["log"]) == ["LinUCB", "ArmCon", "ConUCB", "ConLinUCB-UCB", "ConLinUCB-MCR", "ConLinUCB-BS"]
    for experiment, asked in ((log, 30), (tenth, 99)):
        schedules = {a.prepare(1000).question_schedule() for a in experiment.algorithms[1:]}
        assert {schedule(1000) for schedule in schedules} == {asked}
        assert (experiment.arms, experiment.horizon, experiment.noise, experiment.clients) == (50, 1000, 0.1, 1)
        assert len(set(experiment.users)) == experiment.user_count == 100
        assert (experiment.world.contexts, experiment.world.shared_noise) == ("redrawn", True)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_of_conlinucb(swapped):
    """As known; or with ConUCB above ArmCon, and estimates that are better with ConLinUCB."""
    regret = dict(zip(conlinucb.ORDER, (2.1, 1.85, 1.75, 1.6, 1.47), strict=True)) | {"ConLinUCB-MCR": 1.43}
    if swapped:
        regret["ConUCB"], regret["ArmCon"] = 1.85, 1.75
    error = {name: (0.29 if swapped == name.startswith("ConLinUCB") else 0.45) for name in regret}
    rows = [
        {**row, "theta_error": error[name]} for name, factor in regret.items() for row in runs(name, factor * USERS)
    ]
    found = verdicts(conlinucb.EXPERIMENTS["tenth"], made_of(rows))
    assert found == {
        "ArmCon: less regret than LinUCB": "holds",
        "ConUCB: less regret than ArmCon": "does not hold" if swapped else "holds",
        "ConLinUCB-UCB: less regret than ConUCB": "holds",
        "ConLinUCB-BS: less regret than ConLinUCB-UCB": "holds",
        "ConLinUCB-MCR: less regret than ConUCB": "holds",
        "ConLinUCB-BS: less error of the estimate than ConUCB": "holds" if swapped else "does not hold",
        "ConLinUCB-MCR: less error of the estimate than ConUCB": "holds" if swapped else "does not hold",
    }


def test_figures_that_no_paper_has_say_so():
    texts = [claim.text for claim in conlinucb.EXPERIMENTS["log"].claims[:6]]
    assert texts[0] == "LinUCB: 21.02 (100 runs, sd 3.8, computed elsewhere) regret"
    assert all("computed elsewhere" in text for text in texts)


def test_conlinucb_is_played_on_given_features(tmp_path):
    """From a folder in the format of its authors, with a few users, rounds and arms."""
    folder = archives.pack(archives.conlinucb(), tmp_path, "folder", inside="")
    catalog = fb.datasets.load(folder)
    paper = find("conlinucb")
    small = {
        "users": (2, 0),
        "seeds": 1,
        "quick_users": 1,
        "arms": 3,
        "horizon": 60,
        "algorithms": paper.experiments["tenth"].algorithms[2:4],
        "claims": paper.experiments["tenth"].claims[2:3],
    }
    tiny = dataclasses.replace(paper, experiments={"tenth": dataclasses.replace(paper.experiments["tenth"], **small)})
    rows = reproduce_paper(tiny, out=tmp_path / "out", data={"conlinucb": catalog}, say=str)
    assert [(row["dataset"], row["claim"]) for row in rows] == [("conlinucb", "ConLinUCB-UCB: less regret than ConUCB")]
    final = fb.Results.load(tmp_path / "out" / "conlinucb" / "paper" / "tenth").final()
    assert sorted(final["user"].unique()) == [0, 2]
    assert set(final["conversations"]) == {5.0}
    assert tiny.experiments["tenth"].quick().users == (2,)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["conlinucb"],
            "data=[] is not allowed: conlinucb is played on files of its authors: give them as --data conlinucb=FOLDER",
        ),
        (["conlinucb", "--data", "lastfm=x"], "data='lastfm' is not allowed: conlinucb needs conlinucb alone: leave"),
        (["maco", "--data", "lastfm=x"], "data='lastfm' is not allowed: maco needs no data: leave it out"),
        (["relative", "nine"], "experiment='nine' is not allowed: it must be 'synthetic'"),
        (
            ["maco", "--preset", "tuned"],
            "preset=['tuned'] is not allowed: it means nothing to fedbandit reproduce maco",
        ),
        (
            ["--all", "--preset", "tuned"],
            "preset=['tuned'] is not allowed: it means nothing to fedbandit reproduce --al",
        ),
        (["pls", "--all"], "EXPERIMENT=['pls'] is not allowed: it means nothing to fedbandit reproduce --all"),
        (["--all", "--data", "lastfm=x"], "data='lastfm' is not allowed: it must be 'conlinucb'"),
    ],
)
def test_what_a_paper_needs(arguments, sentence, tmp_path):
    result = invoke(*arguments, "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith(sentence)
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------- RelativeConUCB


def test_the_setting_of_relativeconucb():
    (experiment,) = relative.EXPERIMENTS.values()
    assert (experiment.users, experiment.horizon, experiment.arms, experiment.noise) == (200, 400, 50, 0.1)
    (compared, who), (answered, others) = experiment.groups
    assert [a.title for a in who] == [f"RelativeConUCB-{name}" for name in relative.VARIANTS]
    assert [a.title for a in others] == ["LinUCB", "ConUCB"]
    assert (compared.candidates, answered.candidates) == ("related", "all")
    assert compared.replace(candidates="all") == answered
    assert compared.rewards == "zero-one"
    assert relative.catalog(0).fingerprint == relative.catalog(1).fingerprint


def test_who_wins_of_relativeconucb():
    """Differences 5 % below ConUCB, the others above it."""
    factors = {"LinUCB": 1.01, "ConUCB": 1.0, "pos": 1.02, "pos-neg": 1.01, "difference": 0.95, "difference-fast": 0.96}
    rows = []
    for i, (name, factor) in enumerate(factors.items()):
        noise = np.random.default_rng(i).normal(size=USERS.shape) / 10
        rows += runs(relative.TITLES.get(name, name), factor * USERS + noise)
    found = verdicts(relative.EXPERIMENTS["synthetic"], made_of(rows))
    fails = {f"RelativeConUCB-{name}: less regret than ConUCB" for name in ("pos", "pos-neg")}
    assert {text for text, word in found.items() if word == "does not hold"} == fails
    assert set(found.values()) == {"holds", "does not hold"}
    assert len(found) == 8


def test_two_worlds_are_in_one_folder(tmp_path, monkeypatch):
    """Algorithms of both are paired, and drawn in one figure."""
    (whole,) = relative.EXPERIMENTS.values()
    world, (others_world, others) = whole.world, whole.besides[0]
    small = dataclasses.replace(
        whole,
        catalog=lambda seed: fb.datasets.synthetic_relative(1, dim=6, num_arms=60, num_key_terms=30, num_users=8),
        algorithms=whole.algorithms[3:],
        besides=((others_world, others[1:]),),
        claims=whole.claims[3:4],
        users=3,
        seeds=1,
        arms=8,
        horizon=50,
    )
    paper = Paper("relative", "Two worlds", "Somebody, 2024", {"synthetic": small})
    (row,) = reproduce_paper(paper, out=tmp_path, say=str)
    assert row["claim"] == "RelativeConUCB-difference-fast: less regret than ConUCB"
    at = tmp_path / "synthetic_relative" / "paper" / "synthetic"
    final = fb.Results.load(at).final()
    assert dict(zip(final["label"], final["candidates"], strict=True)) == {
        "RelativeConUCB-difference-fast": world.candidates,
        "ConUCB": "all",
    }
    again = play(small, small.catalog(0), at)
    assert judge(small, again)[0]["value"] == row["value"]
    monkeypatch.setattr("fedbandit_jax.report.reproductions.find", lambda name: paper)
    page = write(tmp_path).read_text()
    assert "Two worlds" in page
    assert (tmp_path / "figures" / "synthetic-paper-synthetic-relative.pdf").exists()
    drawn = experiment_figure(small, {"dataset": "any", "preset": "paper"}, fb.Results.load(at))
    assert [(line.label, line.place) for line in drawn.lines()] == [
        ("ConUCB", ""),
        ("RelativeConUCB-difference-fast", ""),
    ]


# -------------------------------------------------------------------------------------------------------------- MACO


@pytest.mark.parametrize(
    ("fall", "beta", "words"),
    [
        (0.92, 1.001, ("holds", "holds", "holds")),
        (0.98, 1.001, ("holds", "holds", "does not hold")),
        (0.92, 1.05, ("does not hold", "does not hold", "holds")),
    ],
)
def test_what_maco_says_of_its_constants(fall, beta, words):
    rows = []
    for delta, lower in ((0.05, 1.0), (0.15, fall)):
        for b, higher in ((0.8, beta), (0.9, 1.0)):
            for sigma in (0.1, 1):
                label = f"MACO delta={delta:g} sigma={sigma:g} beta={b:g}"
                rows += runs(label, lower * higher * USERS, delta=delta, sigma=float(sigma), beta=b)
    found = judge(maco.EXPERIMENTS["constants"], made_of(rows))
    assert [row["verdict"] for row in found] == [*words, *words]
    assert found[2]["value"] == pytest.approx(100 * (1 - fall))


@pytest.mark.parametrize("name", list(maco.EXPERIMENTS))
def test_the_labels_of_maco_are_those_of_its_claims(name):
    """Every claim finds its runs in a table with the labels that a sweep gives them."""
    one = maco.EXPERIMENTS[name]
    setting = {"clients": one.clients, "arms": one.arms, "horizon": one.horizon, "noise": one.noise}
    cells = make_sweep(maco.catalog(), one.algorithms, users=1, seeds=1, **setting).cells
    rows = [row for cell in cells for row in runs(cell.label, USERS, clients=cell.clients)]
    found = judge(one, made_of(rows))
    assert len(found) == len(one.claims)
    # All lose the same, whatever the constants and the number of agents.
    assert [row["value"] for row in found] == pytest.approx([0.0] * len(found), abs=1e-9)


def test_the_users_of_maco_have_norm_one():
    np.testing.assert_allclose(np.linalg.norm(maco.catalog().users, axis=1), 1, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------- all papers


def test_all_papers_that_need_no_download(tmp_path):
    found = invoke("--all", "--quick", "--dry-run", "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    words = found.output
    assert "conlinucb: left out, as it needs --data conlinucb=FOLDER" in words
    for part in (
        "synthetic / tuned / multi",
        "fedlinucb / messages",
        "pls / discrete",
        "relative / synthetic",
        "maco / ",
    ):
        assert part in words
    assert str(tmp_path / "out" / "maco") in words.replace("\n", "")
    assert not (tmp_path / "out").exists()
    folder = archives.pack(archives.conlinucb(), tmp_path, "folder", inside="")
    given = invoke("--all", "--dry-run", "--data", f"conlinucb={folder}", "--out", tmp_path / "out").output
    assert "conlinucb / tenth: LinUCB, ArmCon, ConUCB" in given


def test_all_claims_are_in_one_table(tmp_path):
    """Of two papers, with theorems among them; the folder of one of them is a page of its own."""
    rows = {
        "maco": [("clients", "grows <slowly>", "holds"), ("clients", "grows fast", "does not hold")],
        "fedconpe": [("theory", "the lemma", "undecided")],
    }
    for name, claims in rows.items():
        part = {"preset": "paper", "dataset": "synthetic", "figure": "exponent 0.3", "why": "for a reason"}
        told = [part | {"experiment": e, "claim": text, "verdict": word} for e, text, word in claims]
        place = tmp_path / f"my {name}"
        place.mkdir()
        (place / "verdict.json").write_text(json.dumps(told))
        record = {"paper": name, "parts": [], "command": "", "created": "", "quick": name == "maco"}
        (place / "reproduction.json").write_text(json.dumps(record))
    page = write(tmp_path).read_text()
    assert "<h1>Claims</h1>" in page
    assert "grows &lt;slowly&gt;" in page
    assert "3 claims of 2 papers: 1 hold, 1 do not hold, 1 undecided." in page
    assert "Made with --quick" in page
    text = (tmp_path / "report.md").read_text()
    (heading,) = (line for line in text.splitlines() if line.startswith("| verdict"))
    assert heading == "| verdict | paper | experiment | claim | data set | preset | measured | why |"
    assert text.index("| fedconpe | theory | the lemma") < text.index("| maco | clients | grows &lt;slowly&gt;")
    assert "| MACO: agents that ask where their arms tell little | 2 | 1 | 1 | 0 |" in text

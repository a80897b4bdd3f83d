"""The shell command."""

import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.cli.run import assumption_2, line_up, show_headline
from fedbandit_jax.papers.fedconpe import BASELINES
from fedbandit_jax.results.numbers import number
from tests.frames import made_of, runs

TINY = ["--clients", "2", "--arms", "5", "--horizon", "300", "--users", "2", "--seeds", "2", "--seed", "3"]
FEW = ["--algorithm", "Uniform", "--algorithm", "LinUCB", "--algorithm", "FedConPE"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """`fedbandit run` on the paper's catalog; its output and its folder."""
    out = tmp_path_factory.mktemp("shell") / "new" / "folder"
    result = CliRunner().invoke(cli.app, ["run", *TINY, "--N", "2", "--noise", "0.2", *FEW, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return result.output, out


def test_run_writes_its_files(ran):
    _, out = ran
    files = {"curves.parquet", "phases.parquet", "settings.json", "final.csv", "summary.csv", "regret.png"}
    assert {path.name for path in out.iterdir()} == files | {"SHA256SUMS"}
    final = pd.read_csv(out / "final.csv")
    assert len(final) == 3 * 2 * 2
    assert set(final["label"]) == {"FedConPE", "LinUCB", "Uniform"}
    assert (final[final["label"] == "FedConPE"]["N"] == 2).all()
    assert (final["noise"] == 0.2).all()
    summary = pd.read_csv(out / "summary.csv").set_index("label")
    np.testing.assert_allclose(summary["mean"], final.groupby("label")["regret"].mean().loc[summary.index])
    assert {"dataset", "arms", "N", "delta", "sd"} <= set(summary.columns), "every column, though nothing varies"
    assert (out / "regret.png").read_bytes().startswith(b"\x89PNG")


def test_what_run_did_is_what_its_options_said(ran):
    results = fb.Results.load(ran[1])
    again = fb.simulate(
        fb.datasets.synthetic(seed=3),
        [fb.FedConPE(N=2.0, null_space="skip"), fb.LinUCB(), fb.Uniform()],
        clients=2,
        arms=5,
        horizon=300,
        users=2,
        seeds=2,
        noise=0.2,
        seed=3,
    )
    pd.testing.assert_frame_equal(results.final(), again.final())


def test_run_prints_its_table(ran):
    output, out = ran
    words = " ".join(output.split())
    summary = fb.Results.load(out).summary(columns="all").set_index("label")
    assert max(map(len, output.splitlines())) <= 80
    for label in ("FedConPE", "LinUCB", "Uniform"):
        assert label in words
        mean, low, high = map(number, summary.loc[label, ["mean", "low", "high"]])
        interval = summary.loc[label, "note"].rpartition(": ")[2].replace(" of ", "/") or f"[{low}, {high}]"
        assert f"│ {mean} │ {interval} │" in words
    percent = fb.Results.load(out).compare("FedConPE").set_index("other").loc["LinUCB", "percent_below"]
    told = f"{percent:.1f} % below" if percent >= 0 else f"{-percent:.1f} % above"
    assert f"FedConPE's regret is {told} LinUCB's" in words or percent <= -100
    assert ", the best of the paper's baselines here. FedConPE's phases" in words
    bound = fb.theory.regret_upper_bound(300, dim=50, clients=2, arms=5, N=2.0, sigma=0.2)
    assert f"{float(bound):,.0f}" in words
    norm = fb.datasets.synthetic(seed=3).user_bound
    assert f"users of norm up to {norm:.3g}. M=2" in words
    assert "for users of norm 1 at most: these are longer." in words
    assert "Good event in" in words
    assert "12 runs in" in words
    offered = fb.datasets.synthetic(seed=3).realised_C
    assert f"of the phases. What it assumes fails here: C=1, but the key terms offer {offered:.3g}." in words


def test_the_best_of_the_baselines_is_not_the_one_that_shares_everything(capsys):
    regret = {"FedConPE": 30, "Uniform": 90, "SharedLinUCB": 10} | dict.fromkeys(BASELINES, 80) | {"ConUCB": 60}
    show_headline(made_of([row for label, value in regret.items() for row in runs(label, [[value], [value]])]))
    words = " ".join(capsys.readouterr().out.split())
    assert words == (
        "FedConPE's regret is 50.0 % below ConUCB's [50.0, 50.0], lower for 2 of 2 users [0.16, 1.00], the best of "
        "the paper's six baselines. SharedLinUCB "
        "is apart: its clients send everything every round."
    )
    show_headline(made_of([*runs("FedConPE", [1, 2]), *runs("Uniform", [3, 4])]))
    assert capsys.readouterr().out == "", "no baseline, no headline"


def test_where_assumption_2_holds_nothing_is_said(catalog):
    assert assumption_2(catalog, 0.99 * catalog.realised_C) == ""
    assert "C=0.99, but" in assumption_2(catalog, 0.99)


def test_everybody_plays_unless_named():
    ours = fb.FedConPE(N=2.0)
    titles = [one.title for one in line_up(ours, None)]
    assert titles == ["FedConPE", *BASELINES, "SharedLinUCB", "Uniform"]
    assert line_up(ours, ["Uniform", "FedConPE"]) == [ours, fb.Uniform()]
    with pytest.raises(ValueError, match="algorithm='UCB' is not allowed: it must be 'FedConPE' or"):
        line_up(ours, ["UCB"])


def test_help():
    runner = CliRunner()
    overview = runner.invoke(cli.app, ["--help"])
    assert overview.exit_code == 0
    assert "run" in overview.output
    options = runner.invoke(cli.app, ["run", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert options.exit_code == 0
    names = ["clients", "arms", "horizon", "noise", "users", "seeds", "N", "C", "delta", "seed", "out"]
    assert all(f"--{name}" in options.output for name in names)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--clients", "0"], "clients=0 is not allowed: it must be a whole number of at least 1"),
        (["--arms", "6000"], "arms=6000 is not allowed: it must be a whole number of at least 1 and at most 5000"),
        (["--noise", "-1"], "noise=-1.0 is not allowed: it must be a number in [0, infinity)"),
        (["--C", "1.5"], "C=1.5 is not allowed: it must be a number in (0, 1]"),
        (["--N", "0.5"], "N=0.5 with C=1 is not allowed: N C^2 must be at least 1"),
        (["--seed", "-1"], "seed=-1 is not allowed"),
    ],
)
def test_a_bad_option_is_one_sentence(monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["fedbandit", "run", *arguments, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        cli.entry_point()
    assert stopped.value.code == 2
    error = " ".join(capsys.readouterr().err.split())  # a narrow terminal breaks lines
    assert error.startswith(f"Error: {sentence}")
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_an_unknown_option_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fedbandit", "run", "--rounds", "5"])
    with pytest.raises(SystemExit) as stopped:
        cli.entry_point()
    assert stopped.value.code == 2
    assert "--rounds" in capsys.readouterr().err


def test_an_error_is_printed_as_it_is(monkeypatch, capsys):
    """Square brackets are no markup."""

    def fail():
        raise OSError("no such file: data/[red]x[/red].csv")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        cli.entry_point()
    assert "no such file: data/[red]x[/red].csv" in capsys.readouterr().err


def test_the_version_and_the_public_names():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"fedbandit {fb.__version__}\n")
    assert fb.__version__ == version("fedbandit-jax")
    assert set(dir(fb)) == {*fb.__all__, "__version__"}
    assert all(hasattr(fb, name) for name in dir(fb))

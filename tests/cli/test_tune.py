"""The shell command for tuning."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.results.folders import stored_runs
from tests.toml_files import DATA, written

SMALL = (
    """
clients = 2
arms = 7
horizon = 300
noise = 0.2
users = [0, 1]
seeds = 3
checkpoints = 1
trials = 16
"""
    + DATA
    + """
[[algorithms]]
name = "LinUCB"
lam = 2

[[algorithms]]
name = "Uniform"
"""
)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_the_command_does_what_the_file_says(catalog, tmp_path):
    file, out = written(tmp_path, SMALL), tmp_path / "out"
    result = invoke("tune", file, "--out", out)
    assert result.exit_code == 0, result.output
    given = [fb.LinUCB(lam=2), fb.Uniform()]
    wanted = fb.tune(
        catalog, given, trials=16, clients=2, arms=7, horizon=300, noise=0.2, users=[0, 1], seeds=3, progress=False
    )
    best = wanted.algorithms[0]
    assert re.search(r"LinUCB +│ +[\d.,]+ ± [\d.,]+ │ +[\d.,]+ ± ", result.output)
    assert f"LinUCB: alpha={best.alpha:g}, lam={best.lam:g}\n" in result.output
    assert f"{wanted.budget} runs of each algorithm: 16 trials on 1, 8 on 6" in result.output
    pd.testing.assert_frame_equal(pd.read_csv(out / "trials.csv"), pd.DataFrame(wanted.trials()), check_dtype=False)
    assert pd.read_csv(out / "settings.csv")["best"].tolist() == [best.alpha, best.lam]
    assert all((out / name).stat().st_size > 5000 for name in ("convergence.png", "hyperparameters.png"))

    # The best are a sweep, on the users and seeds that they are scored on.
    again = sweep_file.read(out / "best.toml")
    assert again.algorithms == wanted.algorithms
    result = invoke("sweep", out / "best.toml")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(out / "best" / "summary.csv").set_index("label")["mean"]
    assert found.to_dict() == pytest.approx(wanted.table().set_index("algorithm")["mean"].to_dict())


def test_lines_of_json_and_more_trials(tmp_path):
    file, out = written(tmp_path, SMALL), tmp_path / "out"
    counts = []
    for trials in (9, 16, 16):
        result = invoke("tune", file, "--out", out, "--json", "--trials", trials)
        assert result.exit_code == 0, result.output
        *records, last = [json.loads(line) for line in result.output.splitlines()]
        assert {record["event"] for record in records} <= {"progress", "estimate"}
        assert last["event"] == "done"
        assert [row["algorithm"] for row in last["algorithms"]] == ["LinUCB", "Uniform"]
        counts.append(len(stored_runs(out)))
    assert counts[0] < counts[1] == counts[2], "what is there is found"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("trail = 3\n" + SMALL, "'trail' in .*small.toml is not a key of tune: did you mean 'trials'[?]"),
        (SMALL.replace("clients = 2", "clients = [2, 3]"), "clients=.2, 3. is not allowed: tune takes one number"),
        (SMALL.replace("[data]", "[[data]]\n[[data]]"), "data=.* is not allowed: tune takes one data set"),
        (SMALL.replace("users = [0, 1]", "users = 4"), "score_users=4 is not allowed: synthetic has 2 users besides"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, text, sentence, nothing_traced, without_type_checks):
    result = invoke("tune", written(tmp_path, text), "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert re.search(sentence, str(result.exception)), result.exception
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_says_how_to_go_on(tmp_path):
    """A real interrupt of a real process, after its first part."""
    file, out = written(tmp_path, SMALL.replace("seeds = 3", "seeds = 9000")), tmp_path / "out"
    code = (
        "from fedbandit_jax.cli import main; from fedbandit_jax.engine import store; "
        "store.PART_SECONDS = 0.1; main.entry_point()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, "tune", str(file), "--out", str(out), "--trials", "17"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(out.glob("curves-*.parquet")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "stopped in rung 1 of 2: finished runs are kept; the same call with out=" in error
    assert f"goes on: fedbandit tune {file} --out {out} --trials 17" in error
    assert "Traceback" not in error
    assert len(stored_runs(out)) > 0


def test_help():
    text = " ".join(invoke("tune", "--help").output.split())
    for word in ("FILE.toml", "--out", "--trials", "--json", "best.toml", "score_users", "trials.csv"):
        assert word in text

"""The shell command for sweeps and the files it reads."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.cli import sweep as cli_sweep
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.engine import progress
from fedbandit_jax.results.folders import stored_runs
from tests.toml_files import DATA, written

EXAMPLES = sorted((Path(__file__).parents[2] / "notebooks" / "sweeps").glob("*.toml"))
SMALL = (
    """
clients = [2, 3]
arms = 7
horizon = 300
users = 2
seeds = [0, 4]
checkpoints = 8
noise = 0.2
"""
    + DATA
    + """
[[algorithms]]
name = "LinUCB"
alpha = [0.5, 1]

[[algorithms]]
name = "Uniform"
"""
)


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["sweep", *map(str, arguments)])


def test_the_command_does_what_the_file_says(catalog, tmp_path):
    out = tmp_path / "out"
    file = written(tmp_path, f"out = {str(out)!r}\n" + SMALL)
    result = invoke(file)
    assert result.exit_code == 0, result.output
    assert "6 cells, 24 runs: 24 computed in" in result.output
    rows = [line for line in result.output.splitlines() if "LinUCB" in line or "Uniform" in line]
    assert len(rows) == 6, "a table of all cells"
    assert all(re.search(r"│ +4 │ +[\d.,]+ ± [\d.,]+ │|, 1 of 2 carries half │", row) for row in rows)
    found = fb.sweep(
        catalog,
        [fb.LinUCB(alpha=[0.5, 1]), fb.Uniform()],
        clients=[2, 3],
        arms=7,
        horizon=300,
        users=2,
        seeds=[0, 4],
        checkpoints=8,
        noise=0.2,
    )
    by = ["label", "clients", "user", "seed"]
    stored, wanted = (r.final().sort_values(by, ignore_index=True) for r in (fb.Results.load(out), found))
    pd.testing.assert_frame_equal(stored[wanted.columns], wanted)
    summary = pd.read_csv(out / "summary.csv")
    assert summary["mean"].tolist() == pytest.approx(found.summary()["mean"].tolist())
    # More of it: only what is missing; --out is stronger than the file.
    file.write_text(file.read_text().replace("[0, 4]", "[0, 4, 5]"))
    assert "36 runs: 12 computed in" in invoke(file).output
    dry = invoke(file, "--dry-run", "--out", tmp_path / "other").output
    assert f"36 (2 users x 3 seeds each), 0 of them in {tmp_path / 'other'}" in dry
    assert "36 of them" in invoke(file, "--dry-run").output
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_right(path, tmp_path, monkeypatch, nothing_traced):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_sweep, "estimate", lambda sweep, memory: iter(()))  # compiles every program
    result = invoke(path, "--dry-run")
    assert result.exit_code == 0, result.output
    numbers = {name: int(re.search(rf"{name} +(\d+)", result.output)[1]) for name in ("cells", "runs", "programs")}
    expected = {
        "arms": (8, 2),
        "clients": (10, 2),
        "horizon": (6, 2),
        "noise": (6, 1),
        "questions": (9, 2),
        "regret": (7, 3),  # LinUCB and its kin are one program
    }
    assert (numbers["cells"], numbers["programs"]) == expected[path.stem]
    assert numbers["runs"] == numbers["cells"] * (6 if path.stem == "noise" else 8)
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_a_dry_run_measures_memory_and_time(tmp_path):
    """On data of another shape than any other test's, so that something is compiled."""
    text = SMALL.replace("num_arms = 60", "num_arms = 61").replace("horizon = 300", "horizon = [300, 40_000]")
    result = invoke(written(tmp_path, text), "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["event"] for line in lines] == ["catalog", "plan", *["program"] * 4, "estimate"]
    programs = {(line["algorithm"], line["horizon"]): line for line in lines[2:-1]}
    assert all(line["memory"] > 0 and line["seconds"] > 0 for line in programs.values())
    assert programs["LinUCB", 300]["compile_seconds"] > programs["LinUCB", 40_000]["compile_seconds"]
    assert programs["LinUCB", 40_000]["seconds"] > programs["LinUCB", 300]["seconds"]
    assert lines[-1]["seconds"] == pytest.approx(sum(line["seconds"] for line in programs.values()))
    assert not (tmp_path / "results").exists()


def test_lines_of_json(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_RECORDS", 0)
    file = written(tmp_path, SMALL)
    result = invoke(file, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    *records, last = [json.loads(line) for line in result.output.splitlines()]
    assert {record["event"] for record in records} == {"progress"}
    assert [record["runs_done"] for record in records] == sorted(record["runs_done"] for record in records)
    assert {"compiling", "LinUCB", "Uniform"} <= {record["doing"] for record in records}
    assert records[0] | {"client_rounds_per_second": 0} == records[0]
    end = records[-1]
    assert (end["cells_done"], end["cells"], end["runs_done"], end["seconds_left"]) == (6, 6, 24, 0)
    assert end["client_rounds_per_second"] > 0
    assert (last["event"], last["runs_computed"], last["runs_found"]) == ("done", 24, 0)
    assert 0 <= last["padding_share"] < 1
    assert (last["cells"], last["runs"]) == (6, 24)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_RECORDS", 1e9)
    again = [json.loads(line) for line in invoke(file, "--json", "--out", tmp_path / "out").output.splitlines()]
    assert again[-1]["runs_found"] == 24
    assert (again[-2]["cells_done"], again[-2]["runs_done"]) == (6, 24), "the last record is not left out"


def test_several_data_sets_in_a_file(tmp_path):
    text = SMALL.replace("[data]", "[[data]]").replace("alpha = [0.5, 1]", "")
    other = fb.datasets.synthetic(seed=1, dim=4, num_arms=20, num_key_terms=9, num_users=3)
    dataclasses.replace(other, name="other").save(tmp_path / "other.npz")
    text = text.replace("[[algorithms]]", '[[data]]\npath = "other.npz"\n\n[[algorithms]]', 1)
    result = invoke(written(tmp_path, text), "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "8 cells, 32 runs: 32 computed" in result.output
    assert set(pd.read_csv(tmp_path / "out" / "summary.csv")["dataset"]) == {"synthetic", "other"}


IN_PYTHON = """
import sys, jax
import fedbandit_jax as fb
jax.jit(lambda x: x + 1)(1)  # something else has been compiled before
catalog = fb.datasets.synthetic(dim=6, num_arms=60, num_key_terms=30, num_users=6)
fb.simulate(catalog, fb.Uniform(), clients=2, arms=7, horizon=300, users=2, checkpoints=8)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["shell", "python"])
def test_compiled_programs_are_kept_for_the_next_process(tmp_path, way):
    file = written(tmp_path, SMALL.partition("[[algorithms]]")[0] + '[[algorithms]]\nname = "Uniform"\n')
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for own in ("JAX_COMPILATION_CACHE_DIR", "JAX_DISABLE_MOST_OPTIMIZATIONS"):  # what takes no time is not kept
        environment.pop(own, None)
    shell = "from fedbandit_jax.cli import main; main.entry_point()"

    def run(name, wanted):
        more = ["sweep", str(file), "--json", "--out", str(tmp_path / name)] if way == "shell" else []
        command = [sys.executable, "-c", shell if way == "shell" else IN_PYTHON, *more]
        subprocess.run(command, env=environment | {"FEDBANDIT_COMPILE_CACHE": wanted}, check=True)
        return {path.name for path in (tmp_path / "cache" / "fedbandit_jax" / "programs").glob("*.program")}

    assert run("none", "false") == set()
    first = run("first", "true")
    assert len(first) == 2, "one draws the federations, one plays"
    assert run("second", "true") == first, "nothing was compiled again"


def test_there_is_an_example_of_every_type():
    assert [path.stem for path in EXAMPLES] == ["arms", "clients", "horizon", "noise", "questions", "regret"]


def test_programs_are_counted_right(catalog, traced):
    """What a dry run promises is what is compiled."""
    options = {"clients": [2, 4], "arms": 9, "users": 1, "horizon": [310, 320], "checkpoints": 7}
    algorithms = [fb.LinUCB(alpha=[0.5, 0.7]), fb.Uniform()]
    result = fb.sweep(catalog, algorithms, **options)
    assert result.settings["programs"] == len({algorithm.name for algorithm in traced}) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("client = 3\n" + SMALL, "'client' in .*small.toml is not a key of the sweep: did you mean 'clients'[?]"),
        (SMALL.replace("dim = 6", "dims = 6"), r"'dims' in .* is not a key of \[data\]: did you mean 'dim'[?]"),
        (
            "x = 3\n" + SMALL,
            "'x' in .*small.toml is not a key of the sweep: there is clients, arms, horizon, .*, algorithms",
        ),
        (
            SMALL.replace("dim = 6", "colour = 6"),
            r"'colour' in .* is not a key of \[data\]: there is path, kind, .*, seed",
        ),
        (SMALL.replace("alpha =", "Alfa ="), "'Alfa' in .* is not a key of LinUCB: did you mean 'alpha'[?]"),
        (SMALL + "beta = 1", "'beta' in .* is not a key of Uniform: it has none"),
        (SMALL.replace("LinUCB", "linucb"), "'linucb' in .* is not a key of .*algorithms: did you mean 'LinUCB'[?]"),
        (
            SMALL.replace('name = "LinUCB"', ""),
            r"name=None is not allowed: each of \[\[algorithms\]\] needs one of Arm",
        ),
        (SMALL.split("[[")[0], r"algorithms=\[\] is not allowed: it must be one or more tables"),
        (SMALL.replace("arms = 7", "arms = 61"), "arms=61 is not allowed: .* at most 60"),
        (SMALL.replace("arms = 7", "arms = [7"), "small.toml is not TOML: "),
        (SMALL.replace("arms = 7", "arms.x = 7"), "arms={'x': 7} is not allowed: it must be a value or a list"),
        (SMALL.replace("dim = 6", 'path = "x.npz"\ndim = 6'), "num_key_terms=30 is not allowed: only the synthetic"),
        ("out = 3\n" + SMALL, "out=3 is not allowed: it must be the path of a folder"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path, text, sentence):
    result = invoke(written(tmp_path, text), "--out", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert re.search(sentence, str(result.exception)), result.exception
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_data_are_found_beside_the_file(catalog, tmp_path):
    catalog.save(tmp_path / "mine.npz")
    text = re.sub(r"dim = .*?(?=\[\[)", 'path = "mine.npz"\n', SMALL, count=1, flags=re.DOTALL)
    assert sweep_file.read(written(tmp_path, text)).catalogs()[0].fingerprint == catalog.fingerprint
    with pytest.raises(FileNotFoundError, match=r"nowhere.toml does not exist"):
        sweep_file.read(tmp_path / "nowhere.toml")


def test_users_get_the_norm_that_the_file_says(tmp_path):
    for value, bound in (("2.5", 2.5), ('"unit"', 1)):
        text = SMALL.replace("dim = 6", f"dim = 6\nuser_norm = {value}")
        assert sweep_file.read(written(tmp_path, text)).catalogs()[0].user_bound == pytest.approx(bound)


def test_the_format_in_the_documentation_is_right(tmp_path, catalog):
    text = textwrap.dedent(sweep_file.__doc__.partition("\n\n")[2])
    found = sweep_file.read(written(tmp_path, text))
    assert found.algorithms == [fb.FedConPE(N=[1, 2, 4])]
    assert found.data == [{"path": str(tmp_path / "lastfm.npz"), "dim": 50}]
    assert (found.arguments["clients"], found.out) == ([3, 6, 9], Path("runs/clients"))


def test_ctrl_c_says_how_to_go_on(tmp_path):
    """A real interrupt of a real process, after its first part."""
    file = written(tmp_path, SMALL.replace("seeds = [0, 4]", "seeds = 5000"))
    code = (
        "from fedbandit_jax.cli import main; from fedbandit_jax.engine import store; "
        "store.PART_SECONDS = 0.1; main.entry_point()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, "sweep", str(file), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list((tmp_path / "out").glob("curves-*.parquet")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    kept = len(stored_runs(tmp_path / "out"))
    assert kept > 0
    assert (
        f"stopped: {kept} of 60000 runs are kept; the same sweep with out={str(tmp_path / 'out')!r} goes on: " in error
    )
    assert f"fedbandit sweep {file} --out {tmp_path / 'out'}" in error
    assert "Traceback" not in error
    assert not list((tmp_path / "out").glob(".*"))

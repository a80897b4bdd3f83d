"""The shell command `fedbandit tune`."""

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _checks
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.cli.sweep import Reporter

console = Console()
FILES = ("trials.csv", "settings.csv", "best.toml", "convergence.png", "hyperparameters.png")
PLACE = ("clients", "arms", "horizon", "noise", "seed")
OF_TUNING = ("users", "seeds", "trials", "score_users", "words")  # which a sweep does not have, or has otherwise


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="What to tune, and where.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder for finished runs, in place of the file's.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trials of each algorithm, in place of the file's.", show_default="128")
    ] = None,
    lines: Annotated[bool, typer.Option("--json", help="Report in lines of JSON, for machines.")] = False,
) -> None:
    """Find the best hyperparameters of every algorithm in a TOML file; stopped at any time, the same command goes on.

    The file is one of a sweep, in a single setting: users = 20 are those to tune on, [[algorithms]] need only names.
    It may also say trials, and score_users, which are others. Every algorithm has the same number of runs: all trials
    on few, the best quarter on three times as many, the best sixteenth on at least 40.

    OUT gets best.toml, which `fedbandit sweep` plays on other users; trials.csv, settings.csv and two figures.
    """
    given = sweep_file.read(file, fb.tune)
    folder, arguments = out or given.out, given.arguments | ({"trials": trials} if trials is not None else {})
    if len(given.data) > 1:
        _checks.fail("data", [one["path"] for one in given.data], "tune takes one data set")
    tell = Reporter(lines)
    progress = tell.record if lines else None
    try:
        tuning = fb.tune(given.catalogs()[0], given.algorithms, **arguments, progress=progress, out=folder)
    except KeyboardInterrupt as stop:  # its text says what is kept
        more = (f" --out {out}" if out else "") + (f" --trials {trials}" if trials is not None else "")
        raise KeyboardInterrupt(f"{stop}: fedbandit tune {file}{more}") from None
    write(tuning, folder, best_file(tuning, given, folder))
    if not lines:
        show(tuning)
    tell.say(
        f"{tuning.budget} runs of each algorithm: {told(tuning)}. {', '.join(FILES)} are in {folder}\n"
        f"fedbandit sweep {folder / 'best.toml'} plays the best on the users that they are scored on",
        event="done",
        out=str(folder),
        runs=tuning.budget,
        algorithms=json.loads(tuning.table().to_json(orient="records")),
    )


def show(tuning: fb.Tuning) -> None:
    """What the best are worth, a row an algorithm, and what they are, a line each."""
    table = Table(title="Regret at the last round on other users, mean and 95 % interval", title_justify="left")
    found = tuning.in_short()
    settings = found.pop("settings")
    for name in found:
        table.add_column(name, justify="left" if name == "algorithm" else "right", no_wrap=True)
    for _, row in found.iterrows():
        table.add_row(*(escape(text) for text in row))
    console.print(table)
    for name, text in zip(found["algorithm"], settings, strict=True):
        if text:
            console.print(f"{name}: {text}", highlight=False, markup=False, soft_wrap=True)


def told(tuning: fb.Tuning) -> str:
    """The rungs, in words."""
    first, *others = tuning.rungs
    return ", ".join([f"{first.trials} trials on {first.runs}", *(f"{r.trials} on {r.runs}" for r in others)])


def write(tuning: fb.Tuning, folder: Path, best: str) -> None:
    """Tables, figures, and a sweep of the best."""
    tuning.trials().to_csv(folder / "trials.csv", index=False)
    tuning.settings().to_csv(folder / "settings.csv", index=False)
    (folder / "best.toml").write_text(best)
    if tuning.runs.empty:
        return
    from fedbandit_jax.results.plots import style  # matplotlib is slow to import, and not for --help

    plot = tuning.plot
    with style():
        for draw in (plot.convergence, plot.hyperparameters):
            figure = draw().get_figure(root=True)
            assert figure is not None
            figure.savefig(folder / f"{draw.__name__}.png")


def best_file(tuning: fb.Tuning, given: sweep_file.SweepFile, folder: Path) -> str:
    """The best as a file for `fedbandit sweep`, on the users that they are scored on."""
    place = {name: inspect.signature(fb.tune).parameters[name].default for name in PLACE}
    place |= {name: value for name, value in given.arguments.items() if name not in (*OF_TUNING, "world")}
    pairs = {"users": list(tuning.scoring.users), "seeds": tuning.scoring.seeds}
    path = given.data[0]["path"]
    data = given.data[0] | {"path": path if path == "synthetic" else str(Path(path).resolve())}
    parts = [toml({"out": str(folder / "best")} | place | pairs), "[data]\n" + toml(data)]
    for world in given.arguments.get("world", ()):
        parts.append("[world]\n" + toml(world.hyperparameters()))
    for algorithm in tuning.algorithms:
        own = {name: value for name, value in algorithm.hyperparameters().items() if value is not None}
        parts.append("[[algorithms]]\n" + toml({"name": algorithm.name} | own))
    return "\n".join(parts)


def toml(values: dict[str, Any]) -> str:
    """Numbers, words and lists are in TOML what they are in JSON."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

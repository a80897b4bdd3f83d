"""The shell command `fedbandit reproduce`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _checks

console = Console()
COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def reproduce(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="EXPERIMENT",
            help="single, multi, clients, arms, accuracy, questions, theory; all by default.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="theory, released or tuned; may be repeated; all by default.", show_default=False),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="synthetic (default), or a name and an archive, folder or .npz; may be repeated.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for runs and verdict; results/reproduce, or results/quick with --quick."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A taste in two minutes: few users, seeds and baselines, too small to decide much."
        ),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each user, in place of as many as a precision of 3 % takes.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Tuning trials of each algorithm; 32 by default.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Millions of rounds of clients that an algorithm may take to be precise; 60 by default."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run.")] = False,
) -> None:
    """Rerun the paper's experiments and say, claim by claim, what holds.

    Every experiment is played under each preset: radii of the theorems for everyone (theory), constants of the public
    code (released), or constants tuned with the same number of trials for every algorithm on other users (tuned).
    Finished runs are kept in OUT: stopped at any time, the same command goes on, and other experiments may be added.
    The verdict is in OUT/verdict.json.
    """
    from fedbandit_jax.papers import reproduce as module  # pandas and the engine: not for --help

    size = module.QUICK if quick else module.Size()
    if seeds is not None:
        size = replace(size, seeds=_checks.whole("seeds", seeds))
    if trials is not None:
        size = replace(size, trials=_checks.whole("trials", trials))
    if budget is not None:
        size = replace(size, most_rounds=1e6 * _checks.real("budget", budget, 0, float("inf"), "()"))
    folder = out or Path("results/quick" if quick else "results/reproduce")
    arguments: dict[str, Any] = {
        "experiments": list(dict.fromkeys(experiments or module.ALL)),
        "presets": list(dict.fromkeys(preset or module.PRESETS)),
        "catalogs": catalogs(data or ["synthetic"]),
    }
    if dry_run:
        for line in module.describe(**arguments, out=folder, size=size):
            say(line)
        return
    command = shlex.join(["fedbandit", *sys.argv[1:]])
    try:
        rows = module.reproduce(**arguments, out=folder, size=size, command=command, say=say)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command goes on: {command}") from None
    show(rows)
    say(f"The verdict is in {folder / 'verdict.json'}, the runs are in {folder}")


def catalogs(given: list[str]) -> dict[str, fb.Catalog]:
    """ "NAME=PATH", or "synthetic"."""
    found: dict[str, fb.Catalog] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not path and name != "synthetic":
            _checks.fail("data", text, "it must be 'synthetic' or NAME=PATH, such as lastfm=hetrec2011-lastfm-2k.zip")
        if name in found or not name or "/" in name or name in ("theory", "tuning"):
            _checks.fail("data", text, "its name must be new, plain, and neither 'theory' nor 'tuning'")
        found[name] = fb.datasets.load(path or name)
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """The verdict, a table for each data set and preset."""
    for data, preset in dict.fromkeys((row["dataset"], row["preset"]) for row in rows):
        table = Table(title=f"{data}, preset {preset}", show_lines=True, expand=True)
        table.add_column("experiment")
        table.add_column("verdict", width=13)
        table.add_column("claim", ratio=1)
        table.add_column("measured, with 95 % interval, and why", ratio=1)
        for row in rows:
            if (row["dataset"], row["preset"]) == (data, preset):
                told = escape(row["figure"]) + (f"\n[dim]{escape(row['why'])}[/]" if row["why"] else "")
                word = f"[{COLOURS[row['verdict']]}]{row['verdict']}[/]"
                table.add_row(row["experiment"], word, escape(row["claim"]), told)
        console.print(table, highlight=False)


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

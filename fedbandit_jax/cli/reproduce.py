"""The shell command `fedbandit reproduce`."""

import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _checks

if TYPE_CHECKING:
    from fedbandit_jax.papers.reproduce import Size

console = Console()
RESERVED = ("theory", "tuning", "readings")  # folders of a reproduction
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
    readings: Annotated[
        bool,
        typer.Option(
            "--readings", help="Judge every claim under every reading of what the paper leaves open: hundreds of them."
        ),
    ] = False,
    precise: Annotated[
        bool, typer.Option("--precise", help="Go on to the precision of 3 % also where the verdict is decided before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run.")] = False,
) -> None:
    """Rerun the paper's experiments and say, claim by claim, what holds.

    Every experiment is played under each preset: radii of the theorems for everyone (theory), constants of the public
    code (released), or constants tuned with the same number of trials for every algorithm on other users (tuned).
    Finished runs are kept in OUT: stopped at any time, the same command goes on, and other experiments may be added.
    The verdict is in OUT/verdict.json.

    The constants are not all that the paper leaves open. With --readings, every claim is judged under all combinations
    of norm of the users, sigma, N and C, questions about the null space, rounding, and constants of the baselines.
    The verdicts are in OUT/readings.parquet, and fedbandit report OUT draws the maps.
    """
    from fedbandit_jax.papers import reproduce as module  # pandas and the engine: not for --help

    size = module.QUICK if quick else module.Size()
    if seeds is not None:
        size = replace(size, seeds=_checks.whole("seeds", seeds))
    if trials is not None:
        size = replace(size, trials=_checks.whole("trials", trials))
    if precise:
        size = replace(size, precise=True)
    if budget is not None:
        size = replace(size, most_rounds=1e6 * _checks.real("budget", budget, 0, float("inf"), "()"))
    folder = out or Path("results/quick" if quick else "results/reproduce")
    command = shlex.join(["fedbandit", *sys.argv[1:]])
    if readings:
        for name, value in (("EXPERIMENT", experiments), ("preset", preset)):
            if value:
                _checks.fail(name, value, "readings are about all claims under all presets: leave it out")
        play: Callable[[], None] = partial(play_readings, data or ["synthetic"], folder, size, command, dry_run)
    else:
        arguments: dict[str, Any] = {
            "experiments": list(dict.fromkeys(experiments or module.ALL)),
            "presets": list(dict.fromkeys(preset or module.PRESETS)),
            "catalogs": {name: fb.datasets.load(path) for name, path in named(data or ["synthetic"])},
        }
        play = partial(play_presets, arguments, folder, size, command, dry_run)
    try:
        play()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command goes on: {command}") from None


def play_presets(arguments: dict[str, Any], folder: Path, size: "Size", command: str, dry_run: bool) -> None:
    from fedbandit_jax.papers import reproduce as module

    if dry_run:
        for line in module.describe(**arguments, out=folder, size=size):
            say(line)
        return
    show(module.reproduce(**arguments, out=folder, size=size, command=command, say=say))
    say(f"The verdict is in {folder / 'verdict.json'}, the runs are in {folder}")


def play_readings(data: list[str], folder: Path, size: "Size", command: str, dry_run: bool) -> None:
    from fedbandit_jax.papers import findings
    from fedbandit_jax.papers import readings as module

    found = {name: with_norms(path) for name, path in named(data)}
    if dry_run:
        for line in module.describe(found, out=folder, size=size):
            say(line)
        return
    rows, norms = module.play_readings(found, out=folder, size=size, command=command, say=say)
    table = Table(title="In how many readings a claim holds")
    for heading in ("claim", "data set", *findings.WORDS):
        table.add_column(heading, justify="left" if heading in ("claim", "data set") else "right")
    for _, row in findings.tally(rows).iterrows():
        table.add_row(module.CLAIMS[row["claim"]], row["dataset"], *(str(row[word]) for word in findings.WORDS))
    console.print(table, highlight=False)
    for sentence in findings.in_words(rows, norms):
        say(sentence)
    say(f"The rows are in {folder / 'readings.parquet'}; fedbandit report {folder} draws the maps")


def with_norms(path: str) -> dict[str, fb.Catalog]:
    """A data set with users of every norm that a reading may mean; of a prepared catalog, its own and 1."""
    from fedbandit_jax.papers.fedconpe import REAL_NORMS, SYNTHETIC_NORMS
    from fedbandit_jax.papers.readings import with_norm

    if Path(path).suffix == ".npz":
        catalog = fb.datasets.load(path)
        return {"prepared": catalog, "unit": with_norm(catalog, 1.0, catalog.name)}
    norms = SYNTHETIC_NORMS if path == "synthetic" else REAL_NORMS
    return {norm: fb.datasets.load(path, user_norm=norm) for norm in norms}


def named(given: list[str]) -> Iterator[tuple[str, str]]:
    """Name and path of "NAME=PATH", or of "synthetic"."""
    names = set()
    for text in given:
        name, _, path = text.partition("=")
        if not path and name != "synthetic":
            _checks.fail("data", text, "it must be 'synthetic' or NAME=PATH, such as lastfm=hetrec2011-lastfm-2k.zip")
        if name in names or not name or "/" in name or name in RESERVED:
            _checks.fail("data", text, f"its name must be new, plain, and none of {', '.join(RESERVED)}")
        names.add(name)
        yield name, path or name


def show(rows: list[dict[str, Any]]) -> None:
    """The verdict, a table for each data set and preset."""
    for data, preset in dict.fromkeys((row["dataset"], row["preset"]) for row in rows):
        table = Table(title=f"{data}, preset {preset}", show_lines=True, expand=True)
        table.add_column("experiment")
        table.add_column("verdict", width=13)
        table.add_column("claim", ratio=1)
        table.add_column("measured, with interval, of 95 % unless said, and why", ratio=1)
        for row in rows:
            if (row["dataset"], row["preset"]) == (data, preset):
                told = escape(row["figure"]) + (f"\n[dim]{escape(row['why'])}[/]" if row["why"] else "")
                word = f"[{COLOURS[row['verdict']]}]{row['verdict']}[/]"
                table.add_row(row["experiment"], word, escape(row["claim"]), told)
        console.print(table, highlight=False)


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

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
            metavar="[PAPER] [EXPERIMENT]",
            help="fedconpe (default), fedlinucb, pls, conlinucb, relative, maco, or arena; and experiments of the "
            "paper, all by default. Of fedconpe: single, multi, clients, arms, accuracy, questions, theory.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            help="theory, released or tuned; of the arena default, theory or tuned; may be repeated; all by default.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="synthetic (default), or a name and an archive, folder or .npz; may be repeated. Of conlinucb, "
            "conlinucb=FOLDER with the features of its authors.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for runs and verdict; results/reproduce, or results/quick with --quick; of another paper, "
            "results/PAPER; of all, results/papers."
        ),
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
    horizon: Annotated[
        int | None, typer.Option(help="Rounds of the arena; 6000 by default.", show_default=False)
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(
            help="Arms of the arena: fixed, common or redrawn; may be repeated; by default as the data set has them.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="All papers, one after another; those that need data of their authors only with --data."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run.")] = False,
) -> None:
    """Rerun a paper's experiments and say, claim by claim, what holds; or play all federated algorithms in the arena.

    The first word may name a paper: fedconpe, which is meant without one, fedlinucb, pls, conlinucb, relative or maco.
    Figures that a paper published are compared within the standard errors of both. --all plays one after another, each
    in its own folder of OUT, and fedbandit report OUT has all claims in one table.

    With arena, every algorithm that has a server, and LinUCB, is played on each data set with its default constants,
    those of its theory, and tuned ones: regret against communication, and who is on the Pareto front.

    Of fedconpe, every experiment is played under each preset: radii of the theorems for everyone (theory), constants of
    the public code (released), or constants tuned with the same number of trials for every algorithm on other users
    (tuned). Finished runs are kept in OUT: stopped at any time, the same command goes on, and other experiments may be
    added. The verdict is in OUT/verdict.json.

    The constants are not all that the paper leaves open. With --readings, every claim is judged under all combinations
    of norm of the users, sigma, N and C, questions about the null space, rounding, and constants of the baselines.
    The verdicts are in OUT/readings.parquet, and fedbandit report OUT draws the maps.
    """
    paper, chosen = split(experiments or [])
    if seeds is not None:
        _checks.whole("seeds", seeds)
    if trials is not None:
        _checks.whole("trials", trials)
    of_arena = {"horizon": horizon, "world": world}
    of_fedconpe = {"budget": budget, "readings": readings or None, "precise": precise or None}
    command = shlex.join(["fedbandit", *sys.argv[1:]])
    folder = out or Path(f"results/{'papers' if every else paper}{'-quick' if quick else ''}")
    if every:
        refuse("--all", EXPERIMENT=experiments, preset=preset, trials=trials, **of_fedconpe, **of_arena)
        play: Callable[[], None] = partial(every_paper, data or [], folder, seeds, quick, command, dry_run)
    elif paper == "arena":
        refuse(paper, EXPERIMENT=chosen or None, **of_fedconpe)
        changes = {"seeds": seeds, "trials": trials, "horizon": horizon}
        play = partial(arena, data or ["synthetic"], world or [], preset, folder, changes, quick, command, dry_run)
    elif paper != "fedconpe":
        refuse(paper, preset=preset, trials=trials, **of_fedconpe, **of_arena)
        play = partial(other_paper, paper, chosen, data or [], folder, seeds, quick, command, dry_run)
    else:
        refuse(paper, **of_arena)
        folder = out or Path("results/quick" if quick else "results/reproduce")
        size = size_of(quick, seeds, trials, precise, budget)
        play = fedconpe(chosen, preset, data or ["synthetic"], folder, size, readings, command, dry_run)
    try:
        play()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command goes on: {command}") from None


def split(words: list[str]) -> tuple[str, list[str]]:
    """The paper, and the experiments that are named."""
    from fedbandit_jax.papers.record import FIRST, PAPERS

    if words and words[0] in (*PAPERS, "arena"):
        return words[0], words[1:]
    return FIRST, words


def refuse(paper: str, **options: Any) -> None:
    """Options that mean nothing for a paper."""
    for name, value in options.items():
        if value is not None:
            _checks.fail(name, value, f"it means nothing to fedbandit reproduce {paper}: leave it out")


# --------------------------------------------------------------------------------------------------------- FedConPE


def size_of(quick: bool, seeds: int | None, trials: int | None, precise: bool, budget: float | None) -> "Size":
    from fedbandit_jax.papers import reproduce as module  # pandas and the engine: not for --help

    size = module.QUICK if quick else module.Size()
    size = replace(size, seeds=seeds or size.seeds, trials=trials or size.trials, precise=precise)
    if budget is None:
        return size
    return replace(size, most_rounds=1e6 * _checks.real("budget", budget, 0, float("inf"), "()"))


def fedconpe(
    experiments: list[str],
    preset: list[str] | None,
    data: list[str],
    folder: Path,
    size: "Size",
    readings: bool,
    command: str,
    dry_run: bool,
) -> Callable[[], None]:
    """What to play, with its arguments checked."""
    from fedbandit_jax.papers import reproduce as module

    if readings:
        for name, value in (("EXPERIMENT", experiments), ("preset", preset)):
            if value:
                _checks.fail(name, value, "readings are about all claims under all presets: leave it out")
        return partial(play_readings, data, folder, size, command, dry_run)
    arguments: dict[str, Any] = {
        "experiments": list(dict.fromkeys(experiments or module.ALL)),
        "presets": list(dict.fromkeys(preset or module.PRESETS)),
        "catalogs": {name: fb.datasets.load(path) for name, path in named(data)},
    }
    return partial(play_presets, arguments, folder, size, command, dry_run)


def play_presets(arguments: dict[str, Any], folder: Path, size: "Size", command: str, dry_run: bool) -> None:
    from fedbandit_jax.papers import reproduce as module

    if dry_run:
        for line in module.describe(**arguments, out=folder, size=size):
            say(line)
        return
    show(module.reproduce(**arguments, out=folder, size=size, command=command, say=say))
    say(f"The verdict is in {folder / 'verdict.json'}, the runs are in {folder}")


def play_readings(data: list[str], folder: Path, size: "Size", command: str, dry_run: bool) -> None:
    from fedbandit_jax.papers.readings import findings
    from fedbandit_jax.papers.readings import readings as module

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
    from fedbandit_jax.papers.readings.readings import with_norm

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


# ------------------------------------------------------------------------------------------- other papers, the arena


def other_paper(
    paper: str,
    experiments: list[str],
    data: list[str],
    folder: Path,
    seeds: int | None,
    quick: bool,
    command: str,
    dry_run: bool,
) -> None:
    from fedbandit_jax.papers.paper import check_data, describe, reproduce_paper
    from fedbandit_jax.papers.record import find

    found, paths = find(paper), dict(named(data))
    check_data(found, paths)  # before any is read
    if dry_run:
        for line in describe(found, experiments, out=folder, quick=quick, seeds=seeds):
            say(line)
        return
    catalogs = {name: fb.datasets.load(path) for name, path in paths.items()}
    how: dict[str, Any] = {"out": folder, "seeds": seeds, "quick": quick, "data": catalogs, "command": command}
    show(reproduce_paper(found, experiments, say=say, **how))
    say(f"The verdict is in {folder / 'verdict.json'}; fedbandit report {folder} makes a page of it")


def every_paper(data: list[str], folder: Path, seeds: int | None, quick: bool, command: str, dry_run: bool) -> None:
    """All of them, FedConPE's on synthetic data; of those that need data, the ones whose data are given."""
    from fedbandit_jax.papers.record import FIRST, PAPERS, find

    papers = {name: find(name) for name in PAPERS}
    needed = [one for paper in papers.values() for one in paper.data]
    for name, _ in named(data):
        _checks.choice("data", name, needed)
    for name, paper in papers.items():
        given = [text for text in data if text.partition("=")[0] in paper.data]
        if len(given) < len(paper.data):
            say(f"{name}: left out, as it needs --data {paper.data[0]}=FOLDER")
        elif name == FIRST:
            size = size_of(quick, seeds, None, False, None)
            fedconpe([], None, ["synthetic"], folder / name, size, False, command, dry_run)()
        else:
            other_paper(name, [], given, folder / name, seeds, quick, command, dry_run)
    if not dry_run:
        say(f"All claims in one table: fedbandit report {folder}")


def arena(
    data: list[str],
    worlds: list[str],
    constants: list[str] | None,
    folder: Path,
    changes: dict[str, int | None],
    quick: bool,
    command: str,
    dry_run: bool,
) -> None:
    from fedbandit_jax.papers import arena as module

    size = module.QUICK if quick else module.Size()
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    size = replace(size, **given)
    catalogs = {name: fb.datasets.load(path) for name, path in named(data)}
    kinds = list(dict.fromkeys(constants or module.CONSTANTS))
    if dry_run:
        for line in module.describe(catalogs, worlds, kinds, out=folder, size=size):
            say(line)
        return
    rows = module.play_arena(catalogs, worlds, kinds, out=folder, size=size, command=command, say=say)
    for where in dict.fromkeys((row["dataset"], row["world"], row["constants"]) for row in rows):
        show_arena(", ".join((where[0], f"{where[1]} arms", f"{where[2]} constants")), rows, where)
    say(f"The rows are in {folder / 'arena.json'}; fedbandit report {folder} draws the figures")


def show_arena(title: str, rows: list[dict[str, Any]], where: tuple[str, str, str]) -> None:
    from fedbandit_jax.results.numbers import number, with_interval

    table = Table(title=title)
    for heading in ("algorithm", "regret", "scalars sent", "messages", "Pareto front"):
        table.add_column(heading, justify="left" if heading in ("algorithm", "Pareto front") else "right")
    for row in rows:
        if (row["dataset"], row["world"], row["constants"]) == where:
            regret = with_interval(row["regret"], row["low"], row["high"])
            by = f" by {row['by']}" if row["front"] == "dominated" else ""
            table.add_row(
                row["algorithm"], escape(regret), number(row["scalars"]), number(row["messages"]), row["front"] + by
            )
    console.print(table, highlight=False)


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

"""The shell command `fedbandit sweep`."""

import json
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax._background import in_background
from fedbandit_jax.cli import sweep_file
from fedbandit_jax.engine.estimate import estimate
from fedbandit_jax.engine.identity import run_ids
from fedbandit_jax.engine.processes import LostProcessError, is_first, join
from fedbandit_jax.engine.progress import duration
from fedbandit_jax.engine.sweep import Sweep, make_sweep
from fedbandit_jax.results.folders import stored_runs
from fedbandit_jax.results.numbers import mean_and_interval
from fedbandit_jax.results.statistics import show

console = Console()
MOST_ROWS = 40  # of the table at the end


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The sweep.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder for finished runs, in place of the file's.")] = None,
    memory: Annotated[str | None, typer.Option(help="Limit of what compiled programs take, such as 4GB.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and say what it would take.")] = False,
    lines: Annotated[bool, typer.Option("--json", help="Report in lines of JSON, for machines.")] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Share the work with the other processes of a SLURM or MPI job.")
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="HOST:PORT of process 0, where no SLURM or MPI tells it.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="How many processes share the work.")] = None,
    process: Annotated[int | None, typer.Option(help="Which of them this is, from 0 on.")] = None,
) -> None:
    """Run the grid that a TOML file describes; stopped at any time, the same command goes on.

    The file has the arguments of fedbandit_jax.sweep, a table [data] and a table [[algorithms]] for each algorithm.
    Finished runs are in OUT, as parquet files; so is summary.csv, the mean final regret of every cell.

    Several processes or hosts that see the same OUT share the work: srun -n 8 fedbandit sweep FILE.toml --distributed
    """
    if distributed or coordinator:
        join(coordinator, processes, process)
    given = sweep_file.read(file)
    catalogs, folder = given.catalogs(), out or given.out
    arguments = given.arguments | ({"memory": memory} if memory else {})
    limit = arguments.pop("memory", None)
    checked = make_sweep(catalogs, given.algorithms, **arguments)
    tell = Reporter(lines)
    if dry_run:
        describe(checked, folder, limit, tell)
        return
    progress = tell.record if lines else None
    try:
        results = fb.sweep(catalogs, given.algorithms, **arguments, memory=limit, progress=progress, out=folder)
    except KeyboardInterrupt as stop:  # its text says what is kept
        raise KeyboardInterrupt(f"{stop}: fedbandit sweep {file}" + (f" --out {out}" if out else "")) from None
    except LostProcessError as lost:
        hint = f" (if its host is gone, delete {folder / '.lock'} first)" if lost.process == 0 else ""
        raise LostProcessError(f"{lost}, started by the same commands{hint}", lost.process) from None
    if is_first():
        if not lines:
            show_summary(results)
        results.summary(columns="all").to_csv(folder / "summary.csv", index=False)
        told = results.settings
        share = f"{told['padding_share']:.0%}"
        padding = "" if share == "0%" else f" Padding took {share} of the play, and saved programs."
        tell.say(
            f"{checked.num_cells} cells, {checked.num_runs} runs: {told['runs_computed']} computed in "
            f"{told['run_seconds']:.1f} s after {told['compile_seconds']:.1f} s of compilation, {told['runs_found']} "
            f"found.{padding} They are in {folder}",
            event="done",
            out=str(folder),
            cells=checked.num_cells,
            runs=checked.num_runs,
            **{name: told[name] for name in ("runs_computed", "runs_found", "programs", "compile_seconds")},
            **{name: told[name] for name in ("run_seconds", "padding_share", "memory")},
        )


def show_summary(results: fb.Results) -> None:
    """The final regret of the first cells; summary.csv has all."""
    summary = results.summary()
    settings = list(summary.columns[: summary.columns.get_loc("count")])
    table = Table(title="Regret at the last round, mean and 95 % interval", title_justify="left")
    for name in (*settings, "runs", "regret"):
        table.add_column(name, justify="left" if name == "label" else "right")
    for _, row in summary.head(MOST_ROWS).iterrows():
        told = ("" if pd.isna(row[name]) else show(row[name]) for name in settings)
        table.add_row(*told, str(row["count"]), mean_and_interval(row))
    console.print(table)
    if len(summary) > MOST_ROWS:
        console.print(f"and {len(summary) - MOST_ROWS} more cells in summary.csv", highlight=False)


class Reporter:
    """Sentences for people, or lines of JSON for machines."""

    def __init__(self, lines: bool) -> None:
        self.lines = lines

    def record(self, facts: dict[str, Any]) -> None:
        print(json.dumps(facts), flush=True)

    def say(self, text: str, **facts: Any) -> None:
        if self.lines:
            self.record(facts)
        else:
            console.print(text, highlight=False, markup=False, soft_wrap=True)


def describe(sweep: Sweep, folder: Path, memory: Any, tell: Reporter) -> None:
    """What a sweep would take: counts at once, then memory and time, for which one chunk of each program is played."""
    found = len(set(run_ids(sweep)) & stored_runs(folder))
    for catalog in sweep.catalogs:
        tell.say(repr(catalog), event="catalog", dataset=catalog.name, fingerprint=catalog.fingerprint)
    programs = len({batch.key for batch in sweep.batches(_runtime.devices()[0])})
    pairs = f"{len(sweep.users)} users x {len(sweep.seeds)} seeds each"
    tell.say(
        f"cells     {sweep.num_cells}\nruns      {sweep.num_runs} ({pairs}), {found} of them in {folder}\n"
        f"programs  {programs}",
        event="plan",
        cells=sweep.num_cells,
        runs=sweep.num_runs,
        found=found,
        programs=programs,
    )
    seconds = 0.0
    for part in in_background([estimate(sweep, memory)]):  # so that Ctrl-C need not wait for it
        took = f"compiled in {part['compile_seconds']:.1f} s, {part['memory'] / 1e6:.0f} MB"
        shape = f"K<={part['arms']}, T={part['horizon']}"
        where = f"{part['algorithm']} on {part['dataset']}, {shape}"
        tell.say(f"  {where}: {took}, about {duration(part['seconds'])} for all its runs", event="program", **part)
        seconds += part["seconds"]
    left = seconds * (1 - found / sweep.num_runs)
    tell.say(
        f"time      about {duration(seconds)} for everything, {duration(left)} for what is missing",
        event="estimate",
        seconds=seconds,
        seconds_left=left,
    )

"""The shell command `fedbandit sweep`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fedbandit_jax as fb
from fedbandit_jax import _runtime, storage, sweep_file
from fedbandit_jax.sweep import Plan, make_plan

console = Console()


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The sweep.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder for finished runs, in place of the file's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and say what it would take.")] = False,
) -> None:
    """Run the grid that a TOML file describes; stopped at any time, the same command goes on.

    The file has the arguments of fedbandit_jax.sweep, a table [data] and a table [[algorithms]] for each algorithm.
    Finished runs are in OUT, as parquet files; so is summary.csv, the mean final regret of every cell.
    """
    given = sweep_file.read(file)
    catalog, folder = given.catalog(), out or given.out
    plan = make_plan(catalog, given.algorithms, **given.arguments)
    if dry_run:
        describe(plan, folder)
        return
    try:
        results = fb.sweep(catalog, given.algorithms, **given.arguments, out=folder)
    except KeyboardInterrupt as stop:  # its text says what is kept
        again = f"fedbandit sweep {file}" + (f" --out {out}" if out else "")
        Console(stderr=True).print(f"{stop or 'stopped'}: {again}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    results.summary().to_csv(folder / "summary.csv", index=False)
    told = results.settings
    say(
        f"{len(plan.cells)} cells, {plan.runs} runs: {told['runs_computed']} computed in {told['run_seconds']:.1f} s "
        f"after {told['compile_seconds']:.1f} s of compilation, {told['runs_found']} found. They are in {folder}"
    )


def describe(plan: Plan, folder: Path) -> None:
    """What a sweep would take."""
    ids = {run for group in plan.groups for run in storage.run_ids(group, plan.users, plan.seeds)}
    found = len(ids & storage.stored_runs(folder))
    program, table = plan.memory(_runtime.devices())
    say(f"{plan.catalog!r}")
    say(f"cells     {len(plan.cells)}")
    say(f"runs      {plan.runs} ({len(plan.users)} users x {len(plan.seeds)} seeds each), {found} of them in {folder}")
    say(f"programs  {plan.programs}")
    say(f"memory    about {program / 1e6:.0f} MB for the largest program, {table / 1e6:.0f} MB for the curves")


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

"""The shell command `fedbandit`."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.cli import bench, data, report, reproduce, run, sweep

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Simulate federated conversational linear bandits: thousands of runs as compiled array programs.",
)
app.add_typer(data.app, name="data")
for command in (run.run, sweep.sweep, reproduce.reproduce, report.report, bench.bench):
    app.command()(command)


def show_version(wanted: bool) -> bool:
    if wanted:
        print(f"fedbandit {fb.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    compile_cache: Annotated[
        bool,
        typer.Option(
            envvar="FEDBANDIT_COMPILE_CACHE",
            help="Keep compiled programs on disk for the next start; JAX_COMPILATION_CACHE_DIR says where.",
        ),
    ] = True,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Commands work without options; each explains itself with --help."""
    if compile_cache:
        _runtime.keep_compiled_programs()


def entry_point() -> None:
    """Run the command; a wrong argument ends in one sentence, not a traceback."""
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)

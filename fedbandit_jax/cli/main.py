"""The shell command `fedbandit`."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

import fedbandit_jax as fb
from fedbandit_jax import _background, _runtime
from fedbandit_jax.cli import bench, data, report, reproduce, run, sweep, tune
from fedbandit_jax.engine.processes import LostProcessError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which leaves brackets alone
    help="Simulate federated conversational linear bandits: thousands of runs as compiled array programs.",
)


def stoppable(command: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C ends a command with a sentence, and with the code that shells know it by."""

    @wraps(command)
    def stopped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt as stop:
            Console(stderr=True).print(str(stop) or "stopped", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(_background.INTERRUPTED) from None

    return stopped


app.add_typer(data.app, name="data")
for command in (run.run, sweep.sweep, tune.tune, reproduce.reproduce, report.report, bench.bench):
    app.command()(stoppable(command))


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
            envvar=_runtime.CACHE_SWITCH,
            help="Keep compiled programs on disk for the next start; JAX_COMPILATION_CACHE_DIR says where.",
        ),
    ] = True,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Commands work without options; each explains itself with --help."""
    os.environ[_runtime.CACHE_SWITCH] = str(compile_cache)


def entry_point() -> None:
    """Run the command; a wrong argument ends in one sentence, not a traceback."""
    try:
        app()
    except SystemExit as end:
        if end.code == _background.INTERRUPTED:
            _background.end_process(end.code)
        raise
    except LostProcessError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        _background.end_process(1)
        sys.exit(1)
    except (ValueError, OSError, FloatingPointError) as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)

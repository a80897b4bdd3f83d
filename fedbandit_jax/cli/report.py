"""The shell command `fedbandit report`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbandit_jax import _checks

console = Console()


def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What reproduce, sweep or run wrote.", show_default=False),
    ] = Path("results/reproduce"),
) -> None:
    """Make DIR/report.html of what reproduce, sweep or run wrote: one page with figures to zoom into, for any browser.

    Also DIR/report.md, a summary, and every figure as PDF and PNG in DIR/figures. Of a folder that several papers were
    played in, as with fedbandit reproduce --all, the page has all claims in one table.
    """
    import matplotlib

    matplotlib.use("Agg")
    from fedbandit_jax.report.contents import write  # matplotlib and plotly: not for --help

    page = write(_checks.path("folder", folder))
    console.print(
        f"{page}, {page.with_suffix('.md').name} and the figures in {folder / 'figures'} are written",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )

"""The shell command `fedbandit bench`."""

import sys
from datetime import date
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Annotated

import jax
import typer
from rich.console import Console

from fedbandit_jax import _checks

console = Console()


def bench(
    suites: Annotated[list[str] | None, typer.Argument(metavar="SUITE", help="All by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, in three to four minutes.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the results; a figure of the same name beside it.")] = None,
    target: Annotated[str, typer.Option(help="h100, a100, l4 or v5e: the device of the suite accelerators.")] = "h100",
    compare: Annotated[Path | None, typer.Option(metavar="OLD.json", help="Say what changed beyond noise.")] = None,
) -> None:
    """Measure the simulator on the devices of this machine.

    Suites: linalg, design, compile, throughput, growth, devices, accelerators, peers. Results go to
    results/bench/bench-DATE.json, bench-DATE-2.json and so on, and a figure beside it, or to OUT. What cannot be
    measured here is named and left out. The machine should be idle.
    """
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is measured too
    runner = import_module(f"{benchmarks().__name__}.runner")
    measure = import_module(f"{benchmarks().__name__}.measure")
    known = benchmarks().SUITES
    chosen = [_checks.choice("suite", suite, known) for suite in suites or known]
    _checks.choice("target", target, import_module(f"{benchmarks().__name__}.targets").TARGETS)
    if set(chosen) == {"accelerators"}:  # nothing is played here, and no device looked for
        jax.config.update("jax_platforms", "cpu")
    old = runner.load(compare) if compare else None
    path = out or new_file(Path(f"results/bench/bench-{date.today()}.json"))
    results = runner.run(list(dict.fromkeys(chosen)), measure.Effort(1 if quick else 2, target), say)
    runner.save(results, path)
    say(f"\nResults are in {path}")
    figure = import_module(f"{benchmarks().__name__}.figure").draw(results, path.with_suffix(".png"))
    if figure:
        say(f"and drawn in {figure}")
    if old is not None:
        runner.say_changes(old, results, say)


def new_file(path: Path) -> Path:
    """This path, or the first of -2, -3 ... that is free."""
    names = (path.with_stem(f"{path.stem}-{i}" if i > 1 else path.stem) for i in count(1))
    return next(name for name in names if not name.exists())


def benchmarks() -> ModuleType:
    """The benchmarks: a folder beside the package in a checkout, a part of the package once it is installed."""
    root = Path(__file__).parents[2]
    if not ((root / "benchmarks").is_dir() and (root / "pyproject.toml").is_file()):
        return import_module("fedbandit_jax.benchmarks")
    if str(root) not in sys.path:
        sys.path.append(str(root))
    return import_module("benchmarks")


def say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)

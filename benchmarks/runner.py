"""Run suites, print figures as they come, keep them in a file, draw them, and compare them with earlier ones."""

import importlib
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from . import SUITES, judge
from .measure import LEAST_SECONDS, Effort, Row, Skipped, environment, why

FORMAT = 1
Say = Callable[[str], None]


def run(suites: Sequence[str], effort: Effort, say: Say) -> dict[str, Any]:
    """Results of some suites as plain data."""
    results: dict[str, Any] = {
        "format": FORMAT,
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "effort": ("tiny", "quick", "full")[effort.level],
        "environment": environment(),
        "suites": {},
    }
    about = results["environment"]
    say(f"{about['device_count']} x {about['device']}, jax {about['versions']['jax']}")
    yardstick: list[float] = []
    for name in suites:
        say(f"\n{name}: {SUITES[name]}")
        began, cpu = time.perf_counter(), time.process_time()
        rows, skipped = run_suite(name, effort, say)
        seconds = time.perf_counter() - began
        say(f"{name} took {seconds:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
        results["suites"][name] = {"seconds": seconds, "rows": rows, "skipped": skipped}
        yardstick.append(fixed_work())
    results["suites"]["yardstick"] = {
        "seconds": 0.0,
        "rows": [Row("a fixed piece of NumPy", "s", tuple(yardstick), "lower").to_json()],
        "skipped": [],
    }
    return results


def run_suite(name: str, effort: Effort, say: Say) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    rows, skipped = [], []
    try:
        suite = getattr(importlib.import_module(f".{name}", __package__), name)
        for found in suite(effort):
            if isinstance(found, str):
                say(f"  ... {found}")
            elif isinstance(found, Skipped):
                skipped.append({"case": found.case, "reason": found.reason})
                say(f"  not measured: {found.case}: {found.reason}")
            else:
                rows.append(found.to_json())
                say(line(found))
    except Exception as error:  # the other suites still run
        skipped.append({"case": name, "reason": why(error)})
        say(f"  {name} failed: {why(error)}")
    return rows, skipped


def line(row: Row) -> str:
    """A row as text: the median, and the range of the samples."""
    spread = f"{row.low:.4g} .. {row.high:.4g}" if len(row.samples) > 1 else ""
    if "error" in row.about and np.isfinite(row.about["error"]):
        spread = f"± {row.about['error']:.2g}"
    told = f"{row.median:,.0f}" if row.median >= 1e5 else f"{row.median:.4g}"
    return f"  {row.case:<58} {told:>12} {row.metric:<34} {spread} {row.about.get('note', '')}".rstrip()


def fixed_work() -> float:
    """Seconds of a piece of NumPy that never changes: it tells a slow machine from a slow program."""
    x = np.random.default_rng(0).normal(size=(200, 200))
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < 10 * LEAST_SECONDS:
        x @ x
        np.sort(x, axis=0)
        done += 1
    return (time.perf_counter() - began) / done


def save(results: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"compare={str(path)!r} is not allowed: it cannot be read ({why(error)})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or "suites" not in found:
        raise ValueError(f"compare={str(path)!r} is not allowed: it is no file of fedbandit bench, format {FORMAT}")
    return found


def say_changes(old: dict[str, Any], new: dict[str, Any], say: Say) -> None:
    """What became slower or faster beyond the noise."""
    changes = judge.compare(old, new)
    judged = [change for change in changes if change.verdict != "not judged"]
    say(f"\nAgainst the results of {old['made']}: {len(judged)} figures in common that can be judged.")
    versions = [found["environment"]["versions"] for found in (old, new)]
    for name in versions[1]:
        if versions[0].get(name) != versions[1][name]:
            say(f"  {name} was {versions[0].get(name)}, is {versions[1][name]}")
    for when, found in (("old", old), ("new", new)):
        load, cores = (found["environment"].get(name) for name in ("load_before", "cores"))
        if load and cores and load > cores / 2:
            say(f"  Beware: the machine was busy before the {when} results: a load of {load:.1f} on {cores} cores")
    for change in judged:
        if change.suite == "yardstick" and change.verdict != "same":
            say(f"  Beware: the machine itself is {change.verdict} now, by {max(change.factor, 1 / change.factor):.2f}")
    told = [change for change in judged if change.verdict in ("slower", "faster") and change.suite != "yardstick"]
    for change in sorted(told, key=lambda change: change.factor):
        times = max(change.factor, 1 / change.factor)
        say(f"  {change.verdict} {times:.2f} x: {change.suite}: {change.case}, {change.metric}")
    rows = judge.rows_by_name(new)
    by_chance = judge.chance_of_false_alarm(len(rows[change[:3]].samples) for change in judged)
    say(
        f"  {len(judged) - len(told)} others are the same: ranges of samples that overlap, or medians within a factor "
        f"of {judge.LEAST_RATIO:g}. On an idle machine {by_chance:.1f} may be told by chance."
    )

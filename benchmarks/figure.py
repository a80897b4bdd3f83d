"""One figure of all that was measured: a panel for each suite."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from fedbandit_jax.results.drawing import COLORS, MARKERS

from .measure import Row

Rows = Sequence[Row]


def draw(results: dict[str, Any], path: Path) -> Path | None:
    """The figure as PNG and PDF; None if there is nothing to draw."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {name: [Row.from_json(row) for row in found["rows"]] for name, found in results["suites"].items()}
    panels = [
        (title, draw_panel, rows[suite]) for suite, title, draw_panel in PANELS if has(rows.get(suite, ()), title)
    ]
    if not panels:
        return None
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(6.5 * columns, 4.2 * lines + 0.5), layout="constrained", squeeze=False
    )
    for axes, (title, draw_panel, found) in zip(grid.flat, panels, strict=False):
        axes.set_title(title, fontsize=10)
        draw_panel(axes, found)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    about = results["environment"]
    figure.suptitle(
        f"{about['device_count']} x {about['device']}, jax {about['versions']['jax']}, {results['effort']}, "
        f"{results['made'][:16]}; whiskers are ranges of samples",
        fontsize=9,
    )
    figure.savefig(path, dpi=150)
    figure.savefig(path.with_suffix(".pdf"))
    plt.close(figure)
    return path


def has(rows: Rows, title: str) -> bool:
    return bool(select(title, rows))


def select(title: str, rows: Rows) -> Rows:
    """The rows of a panel."""
    return [row for row in rows if CHOICES[title](row)]


def bars(axes: Any, names: Sequence[str], rows: Rows, color: str = COLORS[0]) -> None:
    """Medians as bars with ranges, the first on top, on a logarithmic scale."""
    places = range(len(rows))
    middle = [row.median for row in rows]
    spread = [[row.median - row.low for row in rows], [row.high - row.median for row in rows]]
    axes.barh(places, middle, xerr=spread, color=color, ecolor="black", error_kw={"linewidth": 0.8}, height=0.7)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(middle) / 3, max(middle) * 4)
    for place, row in zip(places, rows, strict=True):
        axes.text(row.high * 1.1, place, short(row.median), va="center", fontsize=6)


def short(value: float) -> str:
    """Three digits: 1.89M, 68.6k, 0.45."""
    size, letter = (1e6, "M") if value >= 1e6 else (1e3, "k") if value >= 1e4 else (1, "")
    return f"{value / size:.3g}{letter}" if value < 1000 or letter else f"{value:,.0f}"


def draw_throughput(axes: Any, rows: Rows) -> None:
    rows = select("throughput", rows)
    bars(axes, [f"{row.about['algorithm']}, M={row.about['clients']}" for row in rows], rows)
    axes.set_xlabel("client-rounds a second", fontsize=8)


def draw_design(axes: Any, rows: Rows) -> None:
    rows = select("G-optimal design", rows)
    bars(axes, [row.case for row in rows], rows, COLORS[2])
    axes.set_xlabel("microseconds a design", fontsize=8)


def draw_linalg(axes: Any, rows: Rows) -> None:
    rows = select("linear algebra", rows)
    largest = max(row.about["batch"] for row in rows)
    rows = [row for row in rows if row.about["batch"] == largest]
    lines(axes, rows, "routine", "d")
    axes.set(xscale="log", yscale="log")
    ticks = sorted({row.about["d"] for row in rows if row.about["d"] != 33})
    axes.set_xticks(ticks, [str(d) for d in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"d, batch {largest}", fontsize=8)
    axes.set_ylabel("microseconds a matrix", fontsize=8)


def draw_compile(axes: Any, rows: Rows) -> None:
    rows = select("compilation", rows)
    names = list(dict.fromkeys(row.about["algorithm"] for row in rows))
    left = [0.0] * len(names)
    for stage, color in zip(("trace", "lower", "compile"), COLORS, strict=False):
        width = [next(r.median for r in rows if r.case == name and r.about["stage"] == stage) for name in names]
        axes.barh(range(len(names)), width, left=left, color=color, label=stage, height=0.7)
        left = [a + b for a, b in zip(left, width, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=7)
    axes.set_xlabel("seconds", fontsize=8)


def draw_growth(axes: Any, rows: Rows) -> None:
    rows = select("growth of time", rows)
    names = list(dict.fromkeys(row.about["axis"] for row in rows))
    labels = list(dict.fromkeys(row.about["algorithm"] for row in rows))
    for i, label in enumerate(labels):
        mine = [row for row in rows if row.about["algorithm"] == label]
        places = [names.index(row.about["axis"]) + 0.15 * (i - (len(labels) - 1) / 2) for row in mine]
        errors = [row.about["error"] if row.about["error"] == row.about["error"] else 0 for row in mine]
        axes.errorbar(places, [r.median for r in mine], errors, fmt=MARKERS[i], color=COLORS[i], label=label, capsize=2)
    axes.set_xticks(range(len(names)), names)
    axes.axhline(0, color="#bbbbbb", linewidth=0.8)
    axes.axhline(1, color="#bbbbbb", linewidth=0.8, linestyle=":")
    axes.legend(frameon=False, fontsize=7)
    axes.set_ylabel("exponent", fontsize=8)


def draw_devices(axes: Any, rows: Rows) -> None:
    rows = select("devices", rows)
    lines(axes, rows, ("algorithm", "kind"), "devices")
    most = max(row.about["devices"] for row in rows)
    axes.plot([1, most], [1, most], color="#bbbbbb", linewidth=0.8, label="ideal")
    axes.set_xticks(sorted({row.about["devices"] for row in rows}))
    axes.legend(frameon=False, fontsize=7)
    axes.set_xlabel("devices", fontsize=8)
    axes.set_ylabel("speed-up", fontsize=8)


def draw_accelerators(axes: Any, rows: Rows) -> None:
    rows = select("estimated, for a device that is not here", rows)
    bars(axes, [row.about["algorithm"] for row in rows], rows, COLORS[5])
    axes.set_xlabel(f"client-rounds a second on {rows[0].about['target']}; whiskers: slow to fast", fontsize=8)


def draw_memory(axes: Any, rows: Rows) -> None:
    """With the most clients at once, which come first."""
    found: dict[str, Row] = {}
    for row in select("memory there, of the compiled program", rows):
        found.setdefault(row.about["algorithm"], row)
    bars(axes, list(found), list(found.values()), COLORS[3])
    clients = max(row.about["clients"] for row in found.values())
    axes.set_xlabel(f"MB, about {clients} clients at once", fontsize=8)


def draw_peers(axes: Any, rows: Rows) -> None:
    rows = select("peers", rows)
    bars(axes, [f"{row.about['peer']}\n{row.about['subject']}" for row in rows], rows, COLORS[4])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("fedbandit_jax is so many times faster", fontsize=8)


def draw_limits(axes: Any, rows: Rows) -> None:
    rows = select("limits", rows)
    names = list(dict.fromkeys(row.case for row in rows))
    limits = list(dict.fromkeys(row.metric.removeprefix("share of time, ") for row in rows))
    for i, limit in enumerate(limits):
        mine = [row for row in rows if row.metric.endswith(limit)]
        places = [names.index(row.case) for row in mine]
        axes.plot([row.median for row in mine], places, MARKERS[i], color=COLORS[i], label=limit)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(1, color="#bbbbbb", linewidth=0.8)
    axes.grid(axis="y", color="#eeeeee")
    axes.legend(frameon=False, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))  # hides no point
    axes.set_xlabel("share of the measured time that a limit accounts for", fontsize=8)


def lines(axes: Any, rows: Rows, by: str | tuple[str, ...], x: str) -> None:
    """Medians with ranges over a size, a line for each kind."""
    fields = (by,) if isinstance(by, str) else by
    kinds = list(dict.fromkeys(" ".join(str(row.about[name]) for name in fields) for row in rows))
    for i, kind in enumerate(kinds):
        mine = [row for row in rows if " ".join(str(row.about[name]) for name in fields) == kind]
        spread = [[row.median - row.low for row in mine], [row.high - row.median for row in mine]]
        places, middle = [row.about[x] for row in mine], [row.median for row in mine]
        axes.errorbar(places, middle, spread, marker=MARKERS[i], color=COLORS[i], label=kind, markersize=4, capsize=2)
    axes.legend(frameon=False, fontsize=7)


CHOICES: dict[str, Callable[[Row], bool]] = {
    "throughput": lambda row: row.metric == "client-rounds/s",
    "G-optimal design": lambda row: row.metric == "us a design",
    "linear algebra": lambda row: row.metric == "us a matrix",
    "compilation": lambda row: "stage" in row.about,
    "growth of time": lambda row: row.metric == "exponent" and ": time" in row.case,
    "devices": lambda row: row.metric == "speed-up",
    "estimated, for a device that is not here": lambda row: row.metric == "client-rounds/s, estimated",
    "memory there, of the compiled program": lambda row: row.metric == "MB of memory",
    "peers": lambda row: row.metric == "times faster",
    "limits": lambda row: row.metric.startswith("share of time"),
}
PANELS: list[tuple[str, str, Callable[[Any, Rows], None]]] = [  # suite, title, how
    ("throughput", "throughput", draw_throughput),
    ("design", "G-optimal design", draw_design),
    ("linalg", "linear algebra", draw_linalg),
    ("compile", "compilation", draw_compile),
    ("growth", "growth of time", draw_growth),
    ("devices", "devices", draw_devices),
    ("accelerators", "estimated, for a device that is not here", draw_accelerators),
    ("accelerators", "memory there, of the compiled program", draw_memory),
    ("peers", "peers", draw_peers),
    ("peers", "limits", draw_limits),
]

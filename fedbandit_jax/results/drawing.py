"""How figures look, and what they draw: colours, scales, legends, points with error bars."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, NullFormatter

from fedbandit_jax import _checks
from fedbandit_jax.results import statistics
from fedbandit_jax.results.statistics import show

# Okabe and Ito's, without yellow, which white swallows; grey, and two of Tol's.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#882255", "#999933")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
BANDS = ("interval", "quantiles")
SCALES = ("linear", "log")
NARROW = 50  # a logarithmic axis from 1 to less has numbers, not powers
AXIS_NAMES = {
    "regret": "regret",
    "conversations": "questions per client",
    "communication": "scalars sent",
    "uploads": "uploads",
    "downloads": "downloads",
    "scalars_up": "scalars sent up",
    "scalars_down": "scalars sent down",
    "bits_up": "bits sent up",
    "bits_down": "bits sent down",
    "theta_error": r"$\|\hat\theta - \theta\|$",
    "clients": r"clients $M$",
    "arms": r"arms $K$",
    "horizon": r"horizon $T$",
    "noise": r"noise $\sigma$",
}
PHASE_METRICS = {
    "active": "active arms",
    "questions": "questions per client",
    "lambda_min": r"$\lambda_{\min}$",
    "max_gap": "largest gap of an active arm",
}
PHASE_COLUMNS = {"active": "active_mean", "lambda_min": "lambda_min_after"}  # behind these names; others are their own
GEOMETRIC = ("max_gap", "theta_error", "eps")  # diagnostics that shrink from phase to phase by a factor
STYLE: dict[str, Any] = {
    "figure.figsize": (5, 3.2),
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "font.family": "STIXGeneral",  # like Times, and part of matplotlib
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType: text stays text, which publishers ask for
    "ps.fonttype": 42,
}


class Look:
    """Colour and marker for each label, line style for each place; all three for what varies if only one does."""

    def __init__(self, drawn: Sequence[tuple[str, str]], order: Sequence[str] = ()) -> None:
        """`order`: labels whose looks are taken first, so that several figures agree."""
        self.labels = list(dict.fromkeys([*order, *(label for label, _ in drawn)]))
        self.places = list(dict.fromkeys(place for _, place in drawn))

    def __call__(self, label: str, place: str) -> dict[str, Any]:
        i, j = self.labels.index(label), self.places.index(place)
        if len(self.labels) == 1:
            i = j
        if len(self.places) == 1:
            j = i
        shift = i // len(MARKERS)  # the ninth has the second marker, but a pair of marker and style of its own
        return {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[(i + shift) % len(MARKERS)],
            "linestyle": STYLES[(j + 2 * shift) % len(STYLES)],
        }


def new_axes() -> Axes:
    return plt.subplots(layout="constrained")[1]


def check_axes(ax: Any) -> None:
    if ax is not None and not isinstance(ax, Axes):
        _checks.fail("ax", ax, "it must be matplotlib's Axes, or None for new ones")


def named(label: str, place: str) -> str:
    return f"{label}, {place}" if place else label


def check_scales(x: str, y: str) -> None:
    _checks.choice("x", x, SCALES)
    _checks.choice("y", y, SCALES)


def check_positive(argument: str, chosen: str, values: np.ndarray, what: str) -> None:
    """A logarithmic axis would leave out what is not positive."""
    if chosen == "log" and np.min(values) <= 0:
        _checks.fail(argument, chosen, f"it must be 'linear', as {what} is {show(float(np.min(values)))} somewhere")


def scale(ax: Axes, x: str, y: str, lowest: float, zero: bool = True) -> None:
    """Set the scales; linear axes start at 0 (x only with `zero`), a logarithmic y below the lowest positive mean."""
    ax.set_xscale(x)
    ax.set_yscale(y)
    if x == "linear" and zero:
        ax.set_xlim(left=0)
    if y == "linear":
        ax.set_ylim(bottom=0)
    elif np.isfinite(lowest) and ax.get_ylim()[0] < lowest / 2:
        ax.set_ylim(bottom=lowest / 2)
    for chosen, axis in ((x, ax.xaxis), (y, ax.yaxis)):
        low, high = axis.get_view_interval()
        if chosen == "log" and high < NARROW * low:  # 200, 300 rather than 2 x 10^2
            axis.set_major_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def show_values(ax: Axes, values: Sequence[float], x: str) -> None:
    """Ticks at the swept values, unless there are many."""
    if len(values) <= 8:
        ax.set_xticks(values, [show(float(v)) for v in values])
    if x == "log":
        ax.xaxis.set_minor_formatter(NullFormatter())


def finish(ax: Axes, own: bool, lines: Sequence["Line"] = ()) -> Axes:
    """Spines and a legend that covers nothing: above the axes if short, else to their right, in a wider figure.

    Of more than a few `lines`, in a figure of their own, the names stand at their ends.
    """
    ax.spines[["top", "right"]].set_visible(False)
    handles, names = ax.get_legend_handles_labels()
    if own and len(names) > 4 and len(names) == len(lines):
        name_ends(ax, lines)
        return ax
    order = sorted(range(len(names)), key=lambda i: isinstance(handles[i], Line2D))  # bounds and fronts come last
    handles, names = [handles[i] for i in order], [names[i] for i in order]
    if len(names) <= 4:
        columns = max(1, min(len(names), 60 // (max(map(len, names)) + 8)))
        columns = 2 if columns == 3 < len(names) else columns
        ax.legend(
            handles, names, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2
        )
        return ax
    legend = ax.legend(handles, names, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    figure = ax.get_figure(root=True)
    if own and figure is not None:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width + legend.get_window_extent().width / figure.dpi - 0.2 * width, height)
    return ax


def name_ends(ax: Axes, lines: Sequence["Line"]) -> None:
    """Each name at the end of its line, in its colour, as near as names that do not cover each other can be."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    texts = [ax.text(0, 0, line.name, transform=ax.transAxes, va="center", fontsize="small") for line in lines]
    extents = [text.get_window_extent() for text in texts]
    width, height = figure.get_size_inches()
    wider = max(extent.width for extent in extents) / figure.dpi
    room = 1.05 * len(lines) * max(extent.height for extent in extents) / (0.8 * figure.dpi)
    figure.set_size_inches(width + wider, max(height, room))
    ends = ax.transData.transform([(line.at[-1], line.middle[-1]) for line in lines])
    wanted = ax.transAxes.inverted().transform(ends)[:, 1]
    gap = 1.05 * max(extent.height for extent in extents) / (0.8 * figure.get_size_inches()[1] * figure.dpi)
    for text, line, curve, y in zip(texts, lines, ax.lines, apart(wanted, gap), strict=True):
        text.remove()
        ax.annotate(
            line.name,
            (line.at[-1], line.middle[-1]),
            (1.05, y),
            textcoords="axes fraction",
            va="center",
            fontsize="small",
            color=curve.get_color(),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": curve.get_color(), "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0},
        )


def apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Heights in [0, 1] in the order of those wanted, at least a gap apart: neighbours that meet move as one."""
    order = np.argsort(wanted, kind="stable")
    groups: list[list[float]] = []  # sum of the lowest ends wanted, members
    for rank, height in enumerate(np.clip(wanted[order], 0, 1)):
        groups.append([height - gap * rank, 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, members = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + members]
    lowest = np.repeat([total / members for total, members in groups], [int(members) for _, members in groups])
    placed = np.empty(len(wanted))
    placed[order] = np.clip(lowest, 0, max(1 - gap * (len(wanted) - 1), 0)) + gap * np.arange(len(wanted))
    return placed


def draw_curves(ax: Axes, lines: Sequence["Line"], look: Look) -> None:
    """Middles and bands against the round; markers of different lines are at different rounds."""
    for i, line in enumerate(lines):
        every = max(len(line.at) // 6, 1)
        drawn = look(line.label, line.place)
        ax.plot(line.at, line.middle, label=line.name, markevery=(i % every, every), **drawn)
        ax.fill_between(line.at, line.low, line.high, color=drawn["color"], alpha=0.25, linewidth=0)


def lowest_mean(lines: Sequence["Line"]) -> float:
    """The lowest that is positive."""
    return min(line.middle[line.middle > 0].min(initial=np.inf) for line in lines)


class Line(NamedTuple):
    """What is drawn for one label at one place: middles with their bands or bars, and a fitted power law or {}."""

    label: str
    place: str
    at: np.ndarray  # rounds, or values of the swept parameter
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    law: dict[str, float]

    @property
    def name(self) -> str:
        return named(self.label, self.place)

    @property
    def fitted(self) -> str:
        """The name with the exponent and its interval, where there is one."""
        if not np.isfinite(self.law.get("exponent", np.nan)):
            return self.name
        text = f"{self.name}: exponent {self.law['exponent']:.2f}"
        return text + (f" [{self.law['low']:.2f}, {self.law['high']:.2f}]" if np.isfinite(self.law["low"]) else "")


def curve_lines(
    table: pd.DataFrame,
    columns: Sequence[str],
    metric: str,
    band: str = "interval",
    places: Sequence[str] | None = None,
) -> list[Line]:
    """A metric against the round, for every setting that the columns tell apart; `places` are told, by default all."""
    varied = statistics.varied_places(table) if places is None else places
    keys = ["label", *(c for c in columns if c not in ("algorithm", "label"))]
    lines = []
    for _, group in table.dropna(subset=metric).groupby(keys, dropna=False, sort=False):
        place = ", ".join(f"{c}={show(group[c].iloc[0])}" for c in varied)
        lines.append(Line(group["label"].iloc[0], place, *curve_band(group, metric, band), {}))
    return lines


def swept_lines(
    final: pd.DataFrame, parameter: str, metric: str, interval: str = "auto", fit: bool = True
) -> list[Line]:
    """A final metric against a swept parameter."""
    lines = []
    for label, place, group in statistics.swept_lines(final.dropna(subset=metric), parameter):
        points = intervals(group, [parameter], metric, interval)
        below, above = errors(points)
        at, mean = points.index.to_numpy(float), points["mean"].to_numpy()
        law = statistics.power_law(group, parameter, metric) if fit else {}
        lines.append(Line(label, place, at, mean, mean - below, mean + above, law))
    return lines


def dodged(lines: Sequence[Line], x: str) -> list[np.ndarray]:
    """Where to draw the points of each line: a little aside, so that bars at the same value do not hide each other."""
    to, back = (np.log, np.exp) if x == "log" else (np.asarray, np.asarray)
    values = np.unique(np.concatenate([to(line.at) for line in lines]))
    gap = np.diff(values).min(initial=np.ptp(values))
    step = min(0.012 * np.ptp(values), 0.5 * gap / len(lines))
    return [back(to(line.at) + step * (i - (len(lines) - 1) / 2)) for i, line in enumerate(lines)]


def curve_band(group: pd.DataFrame, metric: str, band: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rounds, middle, lower and upper end; intervals over users where they differ, else over seeds."""
    if band == "quantiles":
        found = group.groupby("round")[metric].quantile([0.5, 0.1, 0.9]).unstack()
        return found.index.to_numpy(), *(found[level].to_numpy() for level in (0.5, 0.1, 0.9))
    unit = "user" if group["user"].nunique() > 1 else "seed"
    units = group.pivot_table(index=unit, columns="round", values=metric, aggfunc="mean")
    mean = units.mean().to_numpy()
    ends = statistics.mean_ends(units.to_numpy(), mean)
    return units.columns.to_numpy(), mean, *(np.where(np.isnan(end), mean, end) for end in ends)


def intervals(rows: pd.DataFrame, by: list[str], metric: str, interval: str = "auto") -> pd.DataFrame:
    """mean, low and high of `metric` for each value of `by`."""
    return rows.groupby(by).apply(lambda g: statistics.mean_interval(g, metric, interval), include_groups=False)


def errors(points: pd.DataFrame) -> np.ndarray:
    """Lengths of error bars below and above the means, none where there is no interval."""
    below, above = points["mean"] - points["low"], points["high"] - points["mean"]
    return np.nan_to_num(np.maximum(np.array([below, above], float), 0))


def pareto_front(points: np.ndarray) -> list[int]:
    """Rows (x, y) that no other row betters: less of one and no more of the other; in order of x."""
    no_worse = (points[:, None] <= points[None]).all(axis=2)
    better = no_worse & (points[:, None] < points[None]).any(axis=2)
    front = np.flatnonzero(~better.any(axis=0))
    return front[np.lexsort(points[front].T[::-1])].tolist()


def phase_values(phases: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The diagnostic as columns value, and where they exist before and bound."""
    column = PHASE_COLUMNS.get(metric, metric)
    if column not in phases:
        return phases.iloc[:0]
    table = phases.assign(value=phases[column].astype(float))[phases[column].notna()]
    if metric == "lambda_min":
        table = table.assign(before=table["lambda_min"], bound=table["wanted_information"])
    if metric == "max_gap" and "N" in table:
        bound = 4 * (1 + table["elimination_scale"]) * np.sqrt(table["N"] / table["clients"]) * table["eps"]
        table = table.assign(bound=bound.where(table["phase"] > 1))
    return table


def draw_phases(ax: Axes, rows: pd.DataFrame, column: str, **drawn: Any) -> None:
    """Means by phase with error bars."""
    points = intervals(rows, ["phase"], column, "t")
    if ax.get_yscale() == "log":
        points = points[points["mean"] > 0]
    ax.errorbar(points.index, points["mean"], yerr=errors(points), capsize=2, **drawn)

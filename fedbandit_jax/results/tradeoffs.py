"""One final metric against another: points with intervals, the Pareto front, names beside the points."""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from fedbandit_jax import _checks
from fedbandit_jax.results.drawing import AXIS_NAMES, STYLES, Look, check_positive, named, pareto_front, scale
from fedbandit_jax.results.labels import is_number
from fedbandit_jax.results.pareto import DOMINATED, ON_FRONT, UNDECIDED
from fedbandit_jax.results.statistics import show

SCALES = ("auto", "linear", "log")
WIDE = 8  # max/min ratio from which an axis is logarithmic
PLAIN = 500  # a logarithmic axis from 1 to less has plain numbers: 1, 2, 5, 10 ...
MOST_NAMES = 30  # beside the points of a panel; of more, those that are dominated have none
FILLS: dict[str, Any] = {ON_FRONT: "full", UNDECIDED: "left", DOMINATED: "none"}  # of markers
GREY = "0.45"
PANEL = (3.7, 3.0)  # inches, of several
# Where a name may stand, the best first: right, left, above, below, at the corners, and between these.
SIDES = (
    (1, 0),
    (-1, 0),
    (0, 1),
    (0, -1),
    (1, 1),
    (1, -1),
    (-1, 1),
    (-1, -1),
    (1, 0.5),
    (1, -0.5),
    (-1, 0.5),
    (-1, -0.5),
)
DISTANCES = (5, 12, 20, 30, 42, 56)  # points, from the point to its name
LEADER = 9  # a name further away than that has a line to its point


def chosen_scale(argument: str, chosen: str, values: np.ndarray, what: str, zero: bool) -> str:
    """ "auto" is "log" for values that span much; with `zero`, 0 has a place of its own on it."""
    _checks.choice(argument, chosen, SCALES)
    positive = values[values > 0]
    least, most = positive.min(initial=np.inf), positive.max(initial=0)
    allowed = bool((values >= 0 if zero else values > 0).all()) and len(positive) > 0
    if chosen == "auto":
        return "log" if allowed and most >= WIDE * least else "linear"
    if not allowed:
        check_positive(argument, chosen, values, what)
    return chosen


def draw(
    ax: Axes,
    parts: Mapping[str, pd.DataFrame],
    x: str,
    y: str,
    scales: tuple[str, str],
    order: Sequence[str] = (),
    titles: Sequence[str] = (),
) -> None:
    """The rows of a `front_table` at one or more places, each with its front; `titles` are all algorithms drawn.

    Names are not there yet, as they need to know how large the axes are: `name_points`.
    """
    table = pd.concat(parts.values())
    log = scales[0] == "log"
    at_zero, left = place_of_zero(table[x].to_numpy()) if log else (0.0, 0.0)
    look = Look([(title, "") for title in titles or table["algorithm"].unique()], order)
    for i, (place, rows) in enumerate(parts.items()):
        at = rows[[x, y]].to_numpy(float, copy=True)
        at[:, 0] = np.where(log & (at[:, 0] == 0), at_zero, at[:, 0])
        front = pareto_front(at)
        # No setting lies left of and below this staircase; it reaches as far as the settings do.
        corners = [(at[front[0], 0], at[:, 1].max()), *at[front], (at[:, 0].max(), at[front[-1], 1])]
        steps: dict[str, Any] = {"drawstyle": "steps-post", "linestyle": STYLES[i % len(STYLES)], "linewidth": 1}
        ax.plot(*np.transpose(corners), color=GREY, zorder=1, label=named("Pareto front", place), **steps)
        for title, own in rows.assign(at=at[:, 0]).groupby("algorithm", sort=False):
            drawn = look(str(title), "") | {"linestyle": "none", "markersize": 6.5}
            if len(own) > 1:
                line = in_order(own)
                ax.plot(line["at"], line[y], color=drawn["color"], linewidth=0.7, alpha=0.7, zorder=1.5)
            for row in own.to_dict("records"):
                bars = [ends(row, x, log), ends(row, y, scales[1] == "log")]
                fill = {"fillstyle": FILLS[row["front"]], "markerfacecoloralt": "white", "label": row["label"]}
                ax.errorbar(row["at"], row[y], xerr=bars[0], yerr=bars[1], elinewidth=1, capsize=2, **drawn, **fill)
    ax.set_xlabel(AXIS_NAMES.get(x, x))
    ax.set_ylabel(AXIS_NAMES.get(y, y))
    ax.margins(0.08)
    scale(ax, *scales, lowest=table[y].min(), zero=False)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < PLAIN * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axis.set_minor_formatter(NullFormatter())
    if log and (table[x] == 0).any():
        show_zero(ax, at_zero, left)
    ax.spines[["top", "right"]].set_visible(False)


def in_order(own: pd.DataFrame) -> pd.DataFrame:
    """Variants of one algorithm in the order of the number that varies, or else from left to right."""
    words = own["label"].str.split().str[-1].str.partition("=")[2]
    numbers = pd.to_numeric(words, errors="coerce")
    several = own["label"].str.count("=").max() > 1
    return own.iloc[np.argsort((own["at"] if several or numbers.isna().any() else numbers).to_numpy(), kind="stable")]


def ends(row: Mapping[str, Any], metric: str, log: bool) -> list[list[float]]:
    """Lengths of a bar below and above a mean; on a logarithmic axis it ends before 0."""
    mean, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if mean == 0 or not all(is_number(end) and np.isfinite(end) for end in (low, high)):
        return [[0.0], [0.0]]
    return [[max(mean - (max(low, 0.3 * mean) if log else low), 0.0)], [max(high - mean, 0.0)]]


def place_of_zero(values: np.ndarray) -> tuple[float, float]:
    """Where 0 stands on a logarithmic axis, left of all others, and where these begin."""
    positive = values[values > 0]
    decades = max(np.log10(positive.max() / positive.min()), 1)
    begin = positive.min() / 10 ** (0.08 * decades)
    return begin / 10 ** (0.1 * decades), begin


def show_zero(ax: Axes, at_zero: float, begin: float) -> None:
    """A tick "0", and a line that parts it from the others."""
    high = ax.get_xlim()[1]
    ax.set_xlim(at_zero / (begin / at_zero) ** 0.6, high)
    ax.axvline((at_zero * begin) ** 0.5, color="0.8", linewidth=0.8, linestyle=":", zorder=0)
    ticks = [tick for tick in LogLocator().tick_values(begin, high) if begin <= tick <= high]
    if len(ticks) < 2:
        ticks = [tick for tick in LogLocator(subs=(1, 2, 5)).tick_values(begin, high) if begin <= tick <= high]
    powers = all(np.isclose(np.log10(tick) % 1, 0) for tick in ticks)
    words = [f"$10^{{{round(np.log10(tick))}}}$" if powers else f"{tick:,.6g}" for tick in ticks]
    ax.set_xticks([at_zero, *ticks], ["0", *words])
    between = LogLocator(subs=range(2, 10), numticks=99).tick_values(begin, high) if powers else []
    ax.set_xticks([tick for tick in between if begin <= tick <= high], minor=True)
    ax.xaxis.set_minor_formatter(NullFormatter())


def legend(ax: Axes, words: Iterable[str], fronts: bool, several: bool) -> None:
    """What the fill of markers means, above the axes, or all of `several`; with `fronts`, which line is whose."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    dot: dict[str, Any] = {"marker": "o", "color": GREY, "linestyle": "none", "markerfacecoloralt": "white"}
    handles = [Line2D([], [], fillstyle=FILLS[word], label=word, **dot) for word in FILLS if word in set(words)]
    lines = [line for line in ax.lines if str(line.get_label()).startswith("Pareto front")]
    handles += lines if fronts else lines[:1]
    shared: dict[str, Any] = {"frameon": False, "columnspacing": 1.2, "handletextpad": 0.3}
    if several:
        figure.legend(handles=handles, loc="outside upper center", ncols=4, **shared)
    else:
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
        ax.legend(handles=handles, ncols=2 if fronts else 4, **above, **shared)


# ------------------------------------------------------------------------------------------------------ names


def name_points(ax: Axes, parts: Mapping[str, pd.DataFrame], x: str) -> None:
    """Each name beside its point, in its colour, where it covers least; of variants, that at one end in full.

    The figure must have its size: what is drawn afterwards does not move the axes.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    bars = [container for container in ax.containers if isinstance(container, ErrorbarContainer)]
    rows = [
        (place, row)
        for place, table in parts.items()
        for _, own in table.groupby("algorithm", sort=False)
        for row in own.to_dict("records")
    ]
    dots = figure.dpi / 72
    points = np.array([ax.transData.transform(np.asarray(bar.lines[0].get_xydata())[0]) for bar in bars]).reshape(-1, 2)
    few = len(rows) <= MOST_NAMES
    kept = [k for k, (_, row) in enumerate(rows) if few or row["front"] != DOMINATED]
    obstacles, frame = boxes_of_lines(ax, bars, dots), np.array(ax.get_window_extent().extents)

    def placed(right: Set[tuple[str, str]]) -> tuple[float, list[str], np.ndarray, list[np.ndarray]]:
        words = [short_name(rows, k, x, right) for k in kept]
        sizes = sizes_of(ax, words)
        cost, offsets = place_names(points, kept, sizes, obstacles, frame, dots)
        return cost, words, sizes, offsets

    right: set[tuple[str, str]] = set()  # whose name is in full at the right end, where it covers less than at the left
    best = placed(right)
    for line in dict.fromkeys((row["algorithm"], place) for place, row in rows):
        if sum((row["algorithm"], place) == line for place, row in rows) > 1:
            other = placed(right | {line})
            if other[0] < best[0]:
                right.add(line)
                best = other
    for k, words, size, offset in zip(kept, *best[1:], strict=True):
        color = bars[k].lines[0].get_color()
        gap = np.maximum(np.abs(offset) - size / 2, 0)
        leader = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
        point = ax.transData.inverted().transform(points[k])
        ax.annotate(
            words,
            (point[0], point[1]),
            (offset[0] / dots, offset[1] / dots),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize="small",
            color=color,
            annotation_clip=False,
            arrowprops=leader if np.hypot(*gap) > LEADER * dots else None,
        ).set_in_layout(False)


def short_name(rows: Sequence[tuple[str, Mapping[str, Any]]], k: int, x: str, right: Set[tuple[str, str]]) -> str:
    """The label of a row, without its algorithm where another variant at the same place has that."""
    place, row = rows[k]
    line = (row["algorithm"], place)
    same = [other for there, other in rows if (other["algorithm"], there) == line]
    end = (max if line in right else min)(same, key=lambda other: other[x])
    short = row["label"] if row is end else row["label"].removeprefix(row["algorithm"]).strip() or row["label"]
    return named(short, place)


def sizes_of(ax: Axes, words: Sequence[str]) -> np.ndarray:
    """Width and height of names, in pixels."""
    texts = [ax.text(0, 0, word, fontsize="small") for word in words]
    boxes = [text.get_window_extent() for text in texts]
    for text in texts:
        text.remove()
    return np.array([(box.width, box.height) for box in boxes]).reshape(-1, 2)


def boxes_of_lines(ax: Axes, bars: Sequence[Any], dots: float) -> np.ndarray:
    """What names should not cover besides points: bars, fronts and the lines of variants, as small boxes (n, 4)."""
    found = []
    segments = [ax.transData.transform(s) for bar in bars for part in bar.lines[2] for s in part.get_segments()]
    for line in ax.lines:
        corners = ax.transData.transform(np.asarray(line.get_xydata()))
        if str(line.get_label()).startswith("Pareto front"):
            corners = np.array([p for a, b in pairwise(corners) for p in (a, (b[0], a[1]), b)])
        if line.get_transform() == ax.transData:
            segments += [corners[i : i + 2] for i in range(len(corners) - 1)]
    for segment in segments:
        steps = max(int(np.hypot(*(segment[-1] - segment[0])) / (4 * dots)), 1)
        for share in np.linspace(0, 1, steps + 1):
            middle = segment[0] + share * (segment[-1] - segment[0])
            found.append([*(middle - dots), *(middle + dots)])
    return np.array(found).reshape(-1, 4)


def place_names(
    points: np.ndarray, kept: Sequence[int], sizes: np.ndarray, obstacles: np.ndarray, frame: np.ndarray, dots: float
) -> tuple[float, list[np.ndarray]]:
    """What all names cover, and where the middle of each stands, off its point: where it covers least, and near it."""
    markers = np.concatenate([points - 4 * dots, points + 4 * dots], axis=1)
    tried = []
    for k, (width, height) in zip(kept, sizes, strict=True):
        half = np.array([width, height]) / 2 + dots
        offsets = np.array([np.multiply(side, half) + r * dots * unit(side) for r in DISTANCES for side in SIDES])
        middle = points[k] + offsets
        boxes = np.concatenate([middle - half, middle + half], axis=1)
        area = 4 * half.prod()
        outside = area - covered(boxes, frame[None])[:, 0]
        cost = 8 * covered(boxes, markers).sum(axis=1) + 6 * covered(boxes, obstacles).sum(axis=1) + 20 * outside
        far = 0.15 * np.repeat(np.square(DISTANCES), len(SIDES)) + 0.5 * np.tile(np.arange(len(SIDES)), len(DISTANCES))
        tried.append((offsets, boxes, cost / dots**2 + far))
    placed: list[int | None] = [None] * len(tried)
    least = np.zeros(len(tried))
    for _ in range(4):  # again, as those placed first did not know of the others
        for k, (_, boxes, cost) in enumerate(tried):
            others = np.array([tried[j][1][i] for j, i in enumerate(placed) if i is not None and j != k])
            crowded = cost + 30 * covered(boxes, others.reshape(-1, 4)).sum(axis=1) / dots**2
            placed[k], least[k] = int(crowded.argmin()), crowded.min()
    return float(least.sum()), [tried[k][0][i] for k, i in enumerate(placed) if i is not None]


def unit(side: tuple[float, float]) -> np.ndarray:
    return np.array(side) / np.hypot(*side)


def covered(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area that each of some boxes shares with each of others, (n, m); a box is x0, y0, x1, y1."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.maximum(high - low, 0).prod(axis=-1)


# ----------------------------------------------------------------------------------------------------- panels


def panels(parts: Mapping[str, pd.DataFrame]) -> dict[str, Axes]:
    """Axes for each place, in rows of three at most; four in two."""
    rows = -(-len(parts) // 3)
    columns = -(-len(parts) // rows)
    size = columns * PANEL[0], rows * PANEL[1] + 0.3
    grid = plt.subplots(rows, columns, squeeze=False, layout="constrained", figsize=size)[1]
    for ax in grid.flat[len(parts) :]:
        ax.set_axis_off()
    return dict(zip(parts, grid.flat, strict=False))


def by_place(table: pd.DataFrame, where: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The rows of each place, by its name: "clients=3, arms=100"."""
    if not where:
        return {"": table}
    groups = table.groupby(list(where), sort=False, dropna=False)
    return {", ".join(f"{c}={show(v)}" for c, v in zip(where, key, strict=True)): rows for key, rows in groups}

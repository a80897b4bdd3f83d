"""Small multiples: a panel of curves for each place of a grid, one legend for all."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from pandas.api.types import is_numeric_dtype

from fedbandit_jax.results.drawing import NARROW, Line, Look, draw_curves, lowest_mean, scale
from fedbandit_jax.results.selection import varied_settings
from fedbandit_jax.results.statistics import show, varied_places

MOST_LINES = 12  # of a panel
MOST_PANELS = 36
MOST_COLUMNS = 6
LEAST_WIDTH, LEAST_HEIGHT = 1.6, 1.5  # inches of a panel
LONGEST_TITLE = 12  # letters that fit above the narrowest panel; longer ones have two lines
NAMES = 0.4  # inches of titles and names of axes
SMALLER = 0.7  # markers than in a single panel
FLAT = 3  # times as high as another panel, and the other would be flat on the same axis

Cell = tuple[int, int]  # row and column
Where = tuple[Any, ...]  # values of what varies across panels


def across(table: pd.DataFrame) -> tuple[str, ...]:
    """What varies from panel to panel: the place with most values to the right, the next one down.

    A single label has no panels, if it fits: its places are lines that are best compared on one axis.
    """
    varied = varied_places(table)
    if table["label"].nunique() == 1 and len(table.groupby(varied or "label")) <= MOST_LINES:
        return ()
    first = sorted(varied, key=lambda name: -table[name].nunique())[:2]
    return tuple(first[::-1] if first and table[first[0]].nunique() > MOST_COLUMNS else first)


def split(table: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[Where, pd.DataFrame]]:
    """The rows of each panel: numbers in order, words as they come."""
    if not names:
        yield (), table
        return
    numbers = [name for name in names if is_numeric_dtype(table[name])]
    table = table.sort_values(numbers, kind="stable") if numbers else table
    yield from table.groupby(list(names), sort=False)


def check_sizes(table: pd.DataFrame, drawn: Mapping[Where, Sequence[Line]], names: Sequence[str]) -> None:
    """Neither panels nor lines are too many to be told apart."""
    lines = max(map(len, drawn.values()))
    if len(drawn) > MOST_PANELS:
        told = how_to_choose(table, names)
        raise ValueError(f"{len(drawn)} panels are more than the {MOST_PANELS} of a figure: {told}")
    if lines > MOST_LINES:
        titles = ["algorithm"] if "algorithm" in table and table["algorithm"].nunique() > 1 else []
        varied = [c for c in [*varied_settings(table), *titles] if c not in names]
        told = how_to_choose(table, varied or ["label"])
        raise ValueError(f"{lines} lines are more than the {MOST_LINES} that a panel can tell apart: {told}")


def how_to_choose(table: pd.DataFrame, varied: Sequence[str]) -> str:
    """A hint at the filter."""
    value = table[varied[0]].dropna().iloc[0]
    example = f"{varied[0]}={value!r}" if isinstance(value, str) else f"{varied[0]}={show(value)}"
    return f"choose by {' or '.join(varied)} first, as results.only({example}) does, or pass an ax"


def draw(drawn: Mapping[Where, Sequence[Line]], names: Sequence[str], look: Look, x: str, y: str, y_name: str) -> Axes:
    """Draw every panel, on common axes unless one would be flat or end early in them; return the first."""
    tops = [max(line.high.max() for line in lines) for lines in drawn.values()]
    ends = {line.at.max() for lines in drawn.values() for line in lines}
    share_x, share_y = len(ends) == 1, y == "log" or bool(max(tops) <= FLAT * min(tops))
    at = positions(list(drawn), names)
    figure, grid = new_grid(at.values(), share_x, share_y)
    with plt.rc_context({"lines.markersize": SMALLER * plt.rcParams["lines.markersize"]}):
        for where, lines in drawn.items():
            draw_curves(grid[at[where]], lines, look)
    everywhere = lowest_mean([line for lines in drawn.values() for line in lines])
    for where, lines in drawn.items():  # after all are drawn, as limits that are set stay
        ax = grid[at[where]]
        scale(ax, x, y, lowest=everywhere if share_y else lowest_mean(lines))
        few_ticks(ax)
        ax.spines[["top", "right"]].set_visible(False)
    name_panels(grid, at, names)
    name_axes(grid, set(at.values()), "round", y_name, share_x, share_y)
    legend_above(figure, [grid[cell] for cell in at.values()])
    return grid[at[next(iter(drawn))]]


def positions(places: Sequence[Where], names: Sequence[str]) -> dict[Where, Cell]:
    """Row and column of each panel: of one name side by side, as many as fit; of two names, rows and columns."""
    if len(names) == 1:
        fitting = max(1, int(plt.rcParams["figure.figsize"][0] / LEAST_WIDTH))
        columns = math.ceil(len(places) / math.ceil(len(places) / fitting))  # 2 and 2 rather than 3 and 1
        return {where: divmod(i, columns) for i, where in enumerate(places)}
    to_the_right, down = (list(dict.fromkeys(where[i] for where in places)) for i in (0, 1))
    return {where: (down.index(where[1]), to_the_right.index(where[0])) for where in places}


def new_grid(cells: Iterable[Cell], share_x: bool, share_y: bool) -> tuple[Figure, np.ndarray]:
    """A figure as wide as usual, or wider for many columns; where no panel is, nothing is drawn."""
    used = set(cells)
    rows, columns = (1 + max(cell[i] for cell in used) for i in (0, 1))
    width = max(plt.rcParams["figure.figsize"][0], columns * LEAST_WIDTH)
    height = NAMES + rows * max(LEAST_HEIGHT, 0.7 * width / columns)
    figure, grid = plt.subplots(
        rows, columns, sharex=share_x, sharey=share_y, squeeze=False, layout="constrained", figsize=(width, height)
    )
    for cell, ax in np.ndenumerate(grid):
        if cell not in used:
            ax.set_axis_off()
    return figure, grid


def few_ticks(ax: Axes) -> None:
    """Two steps to the right and four up, or so: a panel has no room for more."""
    for axis, steps in ((ax.xaxis, 2), (ax.yaxis, 4)):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "linear":
            axis.set_major_locator(MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10]))
        elif high < NARROW * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda value, _: show(float(value)))
            axis.set_minor_formatter(NullFormatter())


def name_panels(grid: np.ndarray, at: Mapping[Where, Cell], names: Sequence[str]) -> None:
    """A title for each panel; of a grid, for each column, and for each row at its right."""
    last = grid.shape[1] - 1
    for where, (row, column) in at.items():
        told = [f"{name}={show(value)}" for name, value in zip(names, where, strict=True)]
        title = told[0] if len(told[0]) <= LONGEST_TITLE else told[0].replace("=", "\n", 1)
        grid[0 if len(names) == 2 else row, column].set_title(title, fontsize="medium")
        if len(names) == 2 and not grid[row, last].texts:
            beside = grid[row, last]
            beside.text(1.03, 0.5, told[1], rotation=270, va="center", transform=beside.transAxes)


def name_axes(grid: np.ndarray, used: Set[Cell], x: str, y: str, share_x: bool, share_y: bool) -> None:
    """Names at the lowest and the leftmost panels, and ticks there or everywhere."""
    for row, column in used:
        lowest = not any(c == column and r > row for r, c in used)
        leftmost = not any(r == row and c < column for r, c in used)
        ax = grid[row, column]
        ax.set_xlabel(x if lowest else "")
        ax.set_ylabel(y if leftmost else "")
        ax.tick_params(which="both", labelbottom=lowest or not share_x, labelleft=leftmost or not share_y)


def legend_above(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, in as few rows as fit; the figure grows by its height."""
    found: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    width, height = figure.get_size_inches()
    for rows in range(1, len(found) + 1):
        columns = math.ceil(len(found) / rows)
        legend = figure.legend(
            list(found.values()), list(found), loc="outside upper center", ncols=columns, frameon=False
        )
        extent = legend.get_window_extent()
        if columns == 1 or extent.width <= figure.bbox.width:
            figure.set_size_inches(width, height + extent.height / figure.dpi)
            return
        legend.remove()

"""Figures of Results, with matplotlib."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedbandit_jax import _checks
from fedbandit_jax.results import diagnostics, panels, statistics, tradeoffs
from fedbandit_jax.results.drawing import (
    AXIS_NAMES,
    BANDS,
    GEOMETRIC,
    PHASE_METRICS,
    STYLE,
    Look,
    check_axes,
    check_positive,
    check_scales,
    curve_lines,
    dodged,
    draw_curves,
    draw_phases,
    finish,
    intervals,
    lowest_mean,
    named,
    new_axes,
    phase_values,
    scale,
    show_values,
    swept_lines,
)
from fedbandit_jax.results.numbers import mean_and_interval
from fedbandit_jax.results.statistics import show

if TYPE_CHECKING:
    from fedbandit_jax.results.results import Results


def style(**changes: Any) -> AbstractContextManager[None]:
    """The look of a paper: `with fb.plots.style(): results.plot.regret().figure.savefig("regret.pdf")`.

    `changes` are matplotlib's rcParams with "_" for ".", such as figure_figsize=(3.3, 2.2).
    """
    known: dict[str, Any] = {name.replace(".", "_"): name for name in plt.rcParams}
    for name in changes:
        if name not in known:
            _checks.fail("changes", name, "it must be one of matplotlib's rcParams with '_' for '.'")
    look: dict[Any, Any] = STYLE | {known[name]: value for name, value in changes.items()}
    return plt.rc_context(look)


class Plots:
    """`results.plot`: each method draws on an Axes and returns it; of several panels, the first.

    `order` lists labels whose colours are taken first, so that figures of several results agree.
    """

    def __init__(self, results: "Results", order: Sequence[str] = ()) -> None:
        self.results = results
        self.order = order

    def regret(self, ax: Axes | None = None, band: str = "interval") -> Axes:
        """Mean cumulative regret of every setting with its 95 % band."""
        return self.curves("regret", ax, band)

    def conversations(self, ax: Axes | None = None, band: str = "interval") -> Axes:
        """Mean number of questions so far."""
        return self.curves("conversations", ax, band)

    def theta_error(self, ax: Axes | None = None, band: str = "interval") -> Axes:
        """Error of the estimate, on a logarithmic axis."""
        return self.curves("theta_error", ax, band, y="log")

    def curves(
        self, metric: str, ax: Axes | None = None, band: str = "interval", x: str = "linear", y: str = "linear"
    ) -> Axes:
        """A metric against the round, a line per setting.

        The mean with its 95 % interval, where there is one (see `Results.summary`), or for band="quantiles" the median
        between the 10 % and 90 % quantiles of the runs. Several algorithms on a grid have a panel for each place, such
        as clients=4, unless `ax` is given; returned is the first, and `.figure.axes` are all.
        """
        check_axes(ax)
        _checks.choice("metric", metric, self.results.metrics)
        _checks.choice("band", band, BANDS)
        check_scales(x, y)
        table = self.results.to_pandas().dropna(subset=metric)
        across = panels.across(table) if ax is None else ()
        places = [c for c in statistics.varied_places(table) if c not in across]
        drawn = {
            where: curve_lines(rows, self.results.setting_columns(), metric, band, places)
            for where, rows in panels.split(table, across)
        }
        lines = [line for found in drawn.values() for line in found]
        for line in lines:
            check_positive("y", y, line.middle.max(keepdims=True), f"{metric} of {line.name}")
        look = Look([line[:2] for line in lines], self.order)
        if ax is None:
            panels.check_sizes(table, drawn, across)
        if len(drawn) > 1:
            return panels.draw(drawn, across, look, x, y, AXIS_NAMES.get(metric, metric))
        own, ax = ax is None, ax or new_axes()
        draw_curves(ax, lines, look)
        ax.set_xlabel("round")
        ax.set_ylabel(AXIS_NAMES.get(metric, metric))
        scale(ax, x, y, lowest=lowest_mean(lines))
        return finish(ax, own, lines)

    def against(
        self,
        parameter: str,
        metric: str = "regret",
        x: str = "linear",
        y: str = "linear",
        fit: bool = True,
        interval: str = "auto",
        ax: Axes | None = None,
    ) -> Axes:
        """A final metric against a swept parameter, with 95 % error bars, a line per label.

        With `fit` the line is the fitted power law, its exponent and interval in the legend (`results.exponent`).
        """
        check_axes(ax)
        _checks.flag("fit", fit)
        _checks.choice("metric", metric, self.results.metrics)
        _checks.choice("interval", interval, statistics.INTERVALS)
        check_scales(x, y)
        final = self.results.final().dropna(subset=metric)
        self._check_varied("parameter", parameter, final)
        lines = swept_lines(final, parameter, metric, interval, fit)
        for line in lines:
            check_positive("x", x, line.at, parameter)
            check_positive("y", y, line.middle, f"{metric} of {line.name}")
        own, ax = ax is None, ax or new_axes()
        look = Look([line[:2] for line in lines], self.order)
        for line, at in zip(lines, dodged(lines, x), strict=True):
            drawn, name = look(line.label, line.place), line.fitted
            if name != line.name:
                dense = np.geomspace(line.at.min(), line.at.max(), 100)
                law = line.law["factor"] * dense ** line.law["exponent"]
                ax.plot(dense, law, markevery=[], label=name, **drawn)
                name, drawn["linestyle"] = "_points", "none"
            bars = [line.middle - line.low, line.high - line.middle]
            ax.errorbar(at, line.middle, yerr=bars, capsize=3, label=name, **drawn)
        ax.set_xlabel(AXIS_NAMES.get(parameter, parameter))
        ax.set_ylabel(AXIS_NAMES.get(metric, metric))
        scale(ax, x, y, lowest=lowest_mean(lines), zero=False)
        show_values(ax, sorted({float(value) for line in lines for value in line.at}), x)
        return finish(ax, own)

    def heatmap(self, x: str, y: str, metric: str = "regret", label: str | None = None, ax: Axes | None = None) -> Axes:
        """Means of a final metric over two swept parameters, with their 95 % intervals in the cells."""
        check_axes(ax)
        _checks.choice("metric", metric, self.results.metrics)
        final = self.results.final().dropna(subset=metric)
        self._check_varied("x", x, final)
        self._check_varied("y", y, final)
        if x == y:
            _checks.fail("y", y, "it must be another parameter than x")
        lines = list(statistics.lines(final, x, y))
        names = list(dict.fromkeys(name for name, _, _ in lines))
        if label is not None or len(names) > 1:
            _checks.choice("label", label, names)
        chosen = [(place, rows) for name, place, rows in lines if label in (None, name)]
        if len(chosen) > 1:
            places = " and ".join(place for place, _ in chosen)
            _checks.fail("x, y", (x, y), f"nothing else may vary, but there are {places}")
        points = intervals(chosen[0][1], [x, y], metric)
        means = points["mean"].unstack(x)
        ax = ax or new_axes()
        mesh = ax.pcolormesh(np.ma.masked_invalid(means), cmap="cividis", edgecolors="white", linewidth=1)
        shades = (means - means.min(axis=None)) / max(np.ptp(points["mean"]), 1e-300)
        for (row, column), mean in np.ndenumerate(means):
            if np.isfinite(mean):
                point = points.loc[means.columns[column], means.index[row]]
                text = mean_and_interval(point).replace(" ± ", "\n± ").replace(" [", "\n[")
                color = "white" if shades.iloc[row, column] < 0.55 else "black"
                ax.text(column + 0.5, row + 0.5, text, color=color, ha="center", va="center", linespacing=1.3)
        ax.set_xticks(np.arange(means.shape[1]) + 0.5, [show(v) for v in means.columns])
        ax.set_yticks(np.arange(means.shape[0]) + 0.5, [show(v) for v in means.index])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(AXIS_NAMES.get(x, x))
        ax.set_ylabel(AXIS_NAMES.get(y, y))
        bar = ax.figure.colorbar(mesh, ax=ax, label=AXIS_NAMES.get(metric, metric))
        bar.outline.set_visible(False)
        return ax

    def tradeoff(
        self,
        x: str = "communication",
        y: str = "regret",
        x_scale: str = "auto",
        y_scale: str = "auto",
        ax: Axes | None = None,
    ) -> Axes:
        """A final metric against another, what it costs, with 95 % intervals and the Pareto front; less is better.

        Filled are the settings on the front, hollow those that another dominates, half filled what the intervals leave
        undecided (`results.pareto`). Variants of an algorithm are joined by a line. Axes are logarithmic where values
        differ much; 0 then has a place of its own at the left. Several places, such as clients=4, have a panel each,
        unless `ax` is given; returned is the first.
        """
        check_axes(ax)
        table = self.results.pareto(x, y, columns="all")
        scales = (
            tradeoffs.chosen_scale("x_scale", x_scale, table[x].to_numpy(), x, zero=True),
            tradeoffs.chosen_scale("y_scale", y_scale, table[y].to_numpy(), y, zero=False),
        )
        parts = tradeoffs.by_place(table, statistics.varied_places(self.results.final()))
        titles = list(table["algorithm"].unique())
        if ax is not None or len(parts) == 1:
            ax = ax or new_axes()
            drawn = {ax: parts}
        else:
            if len(parts) > panels.MOST_PANELS:
                raise ValueError(f"{len(parts)} places are too many for a figure: choose with results.only first")
            drawn = {axes: {place: parts[place]} for place, axes in tradeoffs.panels(parts).items()}
        for axes, here in drawn.items():
            alone = {"" if len(drawn) > 1 else place: rows for place, rows in here.items()}
            tradeoffs.draw(axes, alone, x, y, scales, self.order, titles)
            if len(drawn) > 1:
                axes.set_title(next(iter(here)), fontsize="medium")
            if axes is next(iter(drawn)):
                tradeoffs.legend(axes, table["front"], fronts=len(alone) > 1, several=len(drawn) > 1)
        for axes, here in drawn.items():
            tradeoffs.name_points(axes, {"" if len(here) == 1 else place: rows for place, rows in here.items()}, x)
        return next(iter(drawn))

    def phases(self, metric: str = "active", label: str | None = None, ax: Axes | None = None) -> Axes:
        """A diagnostic by phase, mean and 95 % interval over the runs that reach it: any number of `results.phases()`.

        Some show more: "lambda_min" before (hollow) and after the questions, against the wanted s (grey); "max_gap"
        against 4 (1 + elimination_scale) sqrt(N / M) eps (grey), its bound on the good event from the second phase on.
        "active" is active_mean.
        """
        check_axes(ax)
        diagnostics.check("metric", metric, self.results.phases(), also=PHASE_METRICS)
        table = phase_values(self.results.phases(), metric)
        if not len(table):
            _checks.fail("metric", metric, "no algorithm of these results tells it by phase")
        if label is not None:
            _checks.choice("label", label, table["label"].unique())
            table = table[table["label"] == label]
        own, ax = ax is None, ax or new_axes()
        ax.set_yscale("log" if metric in GEOMETRIC else "linear")
        lines = list(statistics.lines(table))
        look = Look([line[:2] for line in lines], self.order)
        for name, place, rows in lines:
            drawn, title = look(name, place), named(name, place)
            draw_phases(ax, rows, "value", label=title + (", after" if metric == "lambda_min" else ""), **drawn)
            if "before" in rows:
                hollow = drawn | {"markerfacecolor": "white", "linestyle": ":"}
                draw_phases(ax, rows, "before", label=f"{title}, before", **hollow)
            if "bound" in rows and rows["bound"].notna().any():
                bound = rows.groupby("phase")["bound"].mean().dropna()
                grey = {"color": "0.55", "marker": drawn["marker"], "markersize": 3, "linewidth": 1}
                what = "wanted $s$" if metric == "lambda_min" else "bound"
                ax.plot(bound.index, bound, label=f"{title}, {what}", zorder=1, **grey)
        ax.set_xlabel("phase")
        ax.set_ylabel(PHASE_METRICS.get(metric, metric))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if metric not in GEOMETRIC and table["value"].min() >= 0:
            ax.set_ylim(bottom=0)
        if metric == "active":
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        return finish(ax, own)

    def _check_varied(self, argument: str, name: str, final: pd.DataFrame) -> None:
        statistics.check_varied(argument, name, statistics.varied_parameters(final, self.results.setting_columns()))

"""Pictures of the readings: where claims hold, the headline against the users' norm, questions against regret."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.papers.fedconpe import ADMISSIBLE, CHOICES, EXPERIMENTS
from fedbandit_jax.papers.readings import findings
from fedbandit_jax.papers.readings.findings import PUBLISHED, WORDS
from fedbandit_jax.papers.readings.readings import CLAIMS, HEADLINE
from fedbandit_jax.papers.verdict import HOLDS
from fedbandit_jax.results.drawing import COLORS, MARKERS, STYLES

WORD_COLORS = dict(zip(WORDS, (COLORS[0], COLORS[1], "#CCCCCC"), strict=True))
TITLES = {
    "single": "M = 1: 5.25 % below",
    "multi": "M = 10: 37.05 % below",
    "linear": "baselines grow like M",
    "root": "FedConPE like √M at most",
    "flat": "flat in K",
    "accuracy": "most accurate",
    "questions-log": "questions < 5⌊log t⌋",
    "questions-linear": "questions < ⌊t/50⌋",
}
SHORT = {ADMISSIBLE: "adm."}
RATIO = "FedConPE's regret /\nthe best baseline's"


def draw_map(rows: pd.DataFrame) -> Figure:
    """A panel per claim of one data set: N and sigma across, users and baselines down, four readings in a cell."""
    across = list(dict.fromkeys(zip(rows["sigma"], rows["N"], strict=True)))
    across.sort(key=lambda pair: (pair[0] != "noise", pair[1] == ADMISSIBLE, as_number(pair[1])))
    down = list(dict.fromkeys(zip(rows["user_norm"], rows["baselines"], strict=True)))
    down.sort(key=lambda pair: (list(rows["user_norm"].unique()).index(pair[0]), CHOICES["baselines"].index(pair[1])))
    claims = [claim for claim in CLAIMS if claim in set(rows["claim"])]
    figure, axes = plt.subplots(
        2, 4, figsize=(10, 1.9 + 0.34 * len(down)), sharex=True, sharey=True, layout="constrained", squeeze=False
    )
    for ax, claim in zip(axes.flat, claims, strict=False):
        ax.imshow(cells(rows[rows["claim"] == claim], across, down), aspect="auto", interpolation="nearest")
        ax.set_title(TITLES[claim], fontsize=9)
        rule(ax, across, down)
    for ax in axes.flat[len(claims) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xticks(2 * np.arange(len(across)) + 0.5, [SHORT.get(N, N) for _, N in across], fontsize=6, rotation=90)
        ax.set_xlabel("  |  ".join(f"N, σ = {sigma}" for sigma in dict.fromkeys(s for s, _ in across)), fontsize=8)
    for ax in axes[:, 0]:
        ax.set_yticks(2 * np.arange(len(down)) + 0.5, [", ".join(pair) for pair in down], fontsize=7)
    figure.legend(
        handles=[Patch(color=color, label=word) for word, color in WORD_COLORS.items()],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    return figure


def as_number(N: str) -> float:
    return np.inf if N == ADMISSIBLE else float(N)


def cells(rows: pd.DataFrame, across: Sequence[tuple[str, str]], down: Sequence[tuple[str, str]]) -> np.ndarray:
    """Colours; in a cell, ask above skip and ceil to the left of unbiased."""
    picture = np.ones((2 * len(down), 2 * len(across), 3))
    inside = {name: {value: i for i, value in enumerate(CHOICES[name])} for name in ("null_space", "rounding")}
    for row in rows.itertuples():
        y = 2 * down.index((row.user_norm, row.baselines)) + inside["null_space"][row.null_space]
        x = 2 * across.index((row.sigma, row.N)) + inside["rounding"][row.rounding]
        picture[y, x] = to_rgb(WORD_COLORS[row.verdict])
    return picture


def rule(ax: Axes, across: Sequence[tuple[str, str]], down: Sequence[tuple[str, str]]) -> None:
    """White lines between cells, black ones between blocks of users and of sigma."""
    for count, line, keys in ((len(across), ax.axvline, across), (len(down), ax.axhline, down)):
        for i in range(1, count):
            new = keys[i][0] != keys[i - 1][0]
            line(2 * i - 0.5, color="black" if new else "white", linewidth=1.4 if new else 1.0)
    ax.tick_params(length=0)


def draw_norms(norms: pd.DataFrame) -> Figure:
    """The headline against the users' norm: a panel per number of clients, a line per data set and baselines."""
    figure, axes = plt.subplots(1, len(HEADLINE), figsize=(8, 3.4), sharey=True, layout="constrained")
    datasets = list(norms["dataset"].unique())
    for ax, claim in zip(axes, HEADLINE, strict=True):
        part = norms[norms["claim"] == claim]
        for (data, baselines), line in part.groupby(["dataset", "baselines"], sort=False):
            line, i = line.sort_values("norm"), datasets.index(data)
            look = {"color": COLORS[i], "linestyle": STYLES[list(part["baselines"].unique()).index(baselines)]}
            at, below = line["norm"].to_numpy(), np.asarray(ratio(line["least"]))
            holds = (line["verdict"] == HOLDS).to_numpy()
            ax.plot(at, below, **look, marker=MARKERS[i], markerfacecolor="white", label=f"{data}, {baselines}")
            ax.plot(at[holds], below[holds], color=COLORS[i], linestyle="", marker=MARKERS[i])
        ax.axhline(ratio(PUBLISHED[claim]), color="black", linewidth=0.8, linestyle=":")
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(sorted(part["norm"].unique()), [f"{norm:g}" for norm in sorted(part["norm"].unique())])
        ax.set_xlabel("norm of the users")
        ax.set_title(TITLES[claim], fontsize=10)
    axes[0].set_ylabel(RATIO)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def ratio(percent_below: pd.Series | float) -> pd.Series | float:
    return 1 - percent_below / 100


def draw_front(rows: pd.DataFrame) -> Figure:
    """Questions against regret over N, ten clients, sigma the noise and rounding up: a panel per user norm."""
    horizon = EXPERIMENTS["questions"].horizon
    table = findings.front(rows[(rows["sigma"] == "noise") & (rows["rounding"] == "ceil")])
    places = list(dict.fromkeys(zip(table["dataset"], table["user_norm"], strict=True)))
    figure, axes = plt.subplots(
        1,
        len(places),
        figsize=(1.2 + 2.6 * len(places), 3.2),
        sharex=True,
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for ax, (data, norm) in zip(axes[0], places, strict=True):
        here = table[(table["dataset"] == data) & (table["user_norm"] == norm)]
        for (baselines, null_space), line in here.groupby(["baselines", "null_space"], sort=False):
            line = line[line["N"] != ADMISSIBLE].assign(N=lambda t: t["N"].astype(float)).sort_values("N")
            i, j = CHOICES["baselines"].index(baselines), CHOICES["null_space"].index(null_space)
            look = {"color": COLORS[i], "linestyle": STYLES[j], "marker": MARKERS[j]}
            ax.plot(
                line["questions"].clip(lower=0.5),
                ratio(line["percent_below"]),
                **look,
                label=f"{baselines}, {null_space}",
            )
        for schedule in EXPERIMENTS["questions"].schedules:
            ax.axvline(Schedule.of(schedule, horizon)(horizon), color="black", linewidth=0.8, linestyle=":")
        ax.axhline(ratio(PUBLISHED["multi"]), color="black", linewidth=0.8, linestyle=":")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"{data}, users {norm}", fontsize=10)
        ax.set_xlabel("questions a client")
    axes[0, 0].set_ylabel(RATIO)
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure

"""Figures of a Tuning, with matplotlib."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, OneOf
from fedbandit_jax.results.drawing import COLORS, Look, finish, new_axes, scale
from fedbandit_jax.results.panels import few_ticks, legend_above, new_grid

if TYPE_CHECKING:
    from fedbandit_jax.papers.tuning.tuned import Tuning

APART = 5  # times as much regret as another: then a logarithmic axis
DOUBTS = {"yes": "", "unclear": ", unclear", "no": ", not converged"}
JITTER = 0.25  # to both sides of a word


class TuningPlots:
    """`tuning.plot`: each method returns an Axes; of several panels, the first. `tuning.plot()` is the convergence."""

    def __init__(self, tuning: "Tuning") -> None:
        self.tuning = tuning

    def __call__(self, ax: Axes | None = None) -> Axes:
        return self.convergence(ax)

    def convergence(self, ax: Axes | None = None) -> Axes:
        """The best so far against the budget, a line per algorithm; it names those that have not converged."""
        table = self.tuning.progress()
        if not len(table):
            _checks.fail("algorithms", [trial.owner for trial in self.tuning.best], "none of them has a space to tune")
        converged = self.tuning.table().set_index("algorithm")["converged"]
        own, ax = ax is None, ax or new_axes()
        owners = list(dict.fromkeys(table["algorithm"]))
        look = Look([(owner, "") for owner in owners])
        for owner, rows in table.groupby("algorithm", sort=False):
            name = owner + DOUBTS[converged[owner]]
            better = [0, *(np.flatnonzero(np.diff(rows["regret"])) + 1)]  # a marker where a trial is a new best
            ax.step(rows["runs"], rows["regret"], where="post", label=name, markevery=better, **look(owner, ""))
        scale(ax, "linear", scale_of(table["regret"]), lowest=table["regret"].min())
        ax.set_xlabel("runs of each algorithm")
        ax.set_ylabel("regret of the best so far")
        return finish(ax, own)

    def hyperparameters(self, algorithm: str | None = None) -> Axes:
        """Regret of every trial against each hyperparameter, a row of panels per algorithm, or of one of them."""
        spaces = {owner: space for owner, space in self.spaces().items() if algorithm in (None, owner)}
        if not spaces:
            _checks.choice("algorithm", algorithm, self.spaces())
        cells = [(i, j) for i, space in enumerate(spaces.values()) for j in range(len(space))]
        figure, grid = new_grid(cells, share_x=False, share_y=False)
        trials = self.tuning.trials()
        for i, (owner, space) in enumerate(spaces.items()):
            rows = trials[(trials["algorithm"] == owner) & np.isfinite(trials["estimate"])]
            for j, (name, values) in enumerate(space.items()):
                draw_panel(grid[i, j], rows, name, values)
                grid[i, j].tick_params(labelleft=j == 0, which="both")
            grid[i, 0].set_ylabel("regret")
            grid[i, 0].set_title(owner, fontsize="medium", loc="left")
        legend_above(figure, [grid[0, 0]])
        return grid[0, 0]

    def spaces(self) -> Mapping[str, Mapping[str, Between | OneOf]]:
        """What is tuned of each algorithm that has a space."""
        found = {trial.owner: self.tuning.space_of(trial.owner) for trial in self.tuning.best}
        return {owner: space for owner, space in found.items() if space}


def draw_panel(ax: Axes, rows: pd.DataFrame, name: str, values: Between | OneOf) -> None:
    """Trials that left early are pale, finalists dark; what was given is hollow, the best a star."""
    at = places(rows, name, values)
    last = rows["rung"] == rows["rung"].max()
    given, best = rows["trial"] == 0, rows["best"]
    regret = rows["estimate"]

    def points(which: pd.Series, **drawn: Any) -> None:
        ax.plot(at[which], regret[which], linestyle="none", **drawn)

    pale: dict[str, Any] = {"marker": "o", "markersize": 3, "markeredgewidth": 0}
    points(~last & ~given, color="0.7", label="left early", **pale)
    points(last & ~given & ~best, color=COLORS[0], label="finalist", **pale | {"markersize": 4})
    points(given, marker="s", markersize=5, color="black", markerfacecolor="white", label="as given")
    points(best, marker="*", markersize=10, color=COLORS[1], markeredgewidth=0, label="best")
    ax.margins(0.05, 0.12)  # room for the star
    logarithmic = isinstance(values, Between) and values.log
    scale(ax, "log" if logarithmic else "linear", scale_of(regret), lowest=float(regret.min()), zero=False)
    few_ticks(ax)
    if isinstance(values, OneOf):
        ax.set_xticks(range(len(values.words)), values.words)
        ax.set_xlim(-0.5, len(values.words) - 0.5)
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(name)
    ax.spines[["top", "right"]].set_visible(False)


def places(rows: pd.DataFrame, name: str, values: Between | OneOf) -> pd.Series:
    """Numbers as they are; a word's place, a little aside, so that points do not hide each other; NaN is not drawn."""
    if isinstance(values, Between):
        return pd.to_numeric(rows[name], errors="coerce")
    word = rows[name].map({word: float(i) for i, word in enumerate(values.words)})
    return word + JITTER * (2 * ((rows["trial"] * 0.618) % 1) - 1)


def scale_of(regret: pd.Series) -> str:
    """Logarithmic where regrets are far apart."""
    return "log" if 0 < APART * regret.min() < regret.max() else "linear"

"""Figures of Results, with matplotlib."""

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from fedbandit_jax import _checks
from fedbandit_jax.results import METRICS
from fedbandit_jax.statistics import half_width

if TYPE_CHECKING:
    from fedbandit_jax.results import Results

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")  # Okabe-Ito
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
AXIS_NAMES = {
    "regret": "regret",
    "conversations": "questions per client",
    "communication": "scalars sent",
    "theta_error": r"$\|\hat\theta - \theta\|$",
}


class Plots:
    """`results.plot`: each method draws on an Axes and returns it."""

    def __init__(self, results: "Results") -> None:
        self.results = results

    def regret(self, ax: Axes | None = None) -> Axes:
        """Mean cumulative regret of every setting with its 95 % band."""
        return self.curves("regret", ax)

    def curves(self, metric: str, ax: Axes | None = None) -> Axes:
        """Mean of a metric against the round, with its 95 % band, a line per setting."""
        _checks.choice("metric", metric, METRICS)
        ax = ax or plt.subplots(figsize=(5, 3.5), layout="constrained")[1]
        table = self.results.to_pandas()
        axes = [c for c in self.results.setting_columns() if c not in ("algorithm", "label")]
        varied = [c for c in ("dataset", "clients", "arms", "horizon", "noise") if table[c].nunique() > 1]
        groups = table.groupby(["label", *axes], dropna=False, sort=False)
        for i, (_, group) in enumerate(groups):
            first = group.iloc[0]
            settings = [f"{name}={first[name]}" for name in varied]
            color = COLORS[i % len(COLORS)]
            rounds, mean, half = curve_band(group, metric)
            ax.plot(
                rounds,
                mean,
                color=color,
                linestyle=STYLES[i % len(STYLES)],
                label=", ".join([first["label"], *settings]),
            )
            ax.fill_between(rounds, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
        ax.set_xlabel("round")
        ax.set_ylabel(AXIS_NAMES[metric])
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
        return ax


def curve_band(group: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rounds, mean, and half the 95 % interval; over users where they differ, else over seeds."""
    unit = "user" if group["user"].nunique() > 1 else "seed"
    units = group.pivot_table(index=unit, columns="round", values=metric, aggfunc="mean")
    half = np.nan_to_num(half_width(units.to_numpy()))
    return units.columns.to_numpy(), units.mean().to_numpy(), half

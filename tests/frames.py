"""Results made of given numbers, for tests of statistics and figures."""

import numpy as np
import pandas as pd

import fedbandit_jax as fb

ROUNDS = np.array([50, 100])
PLACE = {"clients": 3, "arms": 5, "horizon": 100, "noise": 0.1}


def runs(label, values, **setting):
    """Rows of a setting: `values` (user, seed) is the final regret."""
    values = np.atleast_2d(np.asarray(values, float))
    setting = {"algorithm": label.split()[0], "label": label, **PLACE, **setting}
    return [
        {**setting, "user": user, "seed": seed, "regret": value}
        for user, row in enumerate(values)
        for seed, value in enumerate(row)
        if not np.isnan(value)
    ]


def made_of(rows, phases=None):
    """Results whose metrics at half time are half the final ones; by default 10, 100 and 1 times the regret."""
    table = pd.DataFrame(rows)
    metrics = {
        name: (table[name] if name in table else factor * table["regret"]).to_numpy(float)
        for name, factor in (("regret", 1), ("conversations", 10), ("communication", 100), ("theta_error", 1))
    }
    table = table.drop(columns=[name for name in metrics if name in table])
    curves = curves_of(table, ROUNDS, {name: np.stack([m / 2, m], axis=1) for name, m in metrics.items()})
    return fb.Results(curves, pd.DataFrame(phases), {})


def curves_of(runs, rounds, metrics):
    """A table of curves: a row per run and round; `metrics` are arrays (run, round) by name."""
    table = runs.iloc[np.repeat(np.arange(len(runs)), len(rounds))].reset_index(drop=True)
    table.insert(0, "dataset", "made up")
    return table.assign(round=np.tile(rounds, len(runs)), **{name: m.ravel() for name, m in metrics.items()})

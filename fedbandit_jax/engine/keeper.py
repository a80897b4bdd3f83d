"""What becomes of finished runs: kept for the end, or written to a folder a part at a time."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.engine.cells import Cell
from fedbandit_jax.engine.plan import Plan
from fedbandit_jax.engine.program import concatenate, table_of_runs
from fedbandit_jax.engine.storage import RUN, Store, hyperparameters_as_text, run_ids
from fedbandit_jax.results.results import FLAGS, METRICS, Results, not_finite, tidy
from fedbandit_jax.worlds.catalog import Catalog

PART_SECONDS = 5.0  # what a sweep may lose when it is killed
PART_RUNS = 4096  # what it holds in memory before it writes


class Keeper:
    """Takes the finished runs of a group: for the end, or, a part at a time, to the store."""

    def __init__(self, plan: Plan, catalog: Catalog, group: list[Cell], store: Store | None) -> None:
        self.runs = table_of_runs(group, plan.users, plan.seeds)
        self.rounds = plan.rounds(group[0].horizon)
        self.catalog = catalog
        self.store = store
        self.rows: list[np.ndarray] = []
        self.traces: list[Trace] = []
        self.failed: list[str] = []
        self.written = time.perf_counter()
        if store is not None:
            self.ids = run_ids(catalog, group, plan.users, plan.seeds)
            self.texts = hyperparameters_as_text(group, plan.runs_per_cell)

    def missing(self) -> np.ndarray:
        """Rows to compute; of runs that a grid names twice, the first."""
        if self.store is None:
            return np.arange(len(self.runs))
        first = ~pd.Series(self.ids).duplicated().to_numpy()
        return np.flatnonzero(first & ~np.isin(self.ids, list(self.store.runs)))

    def add(self, rows: np.ndarray, trace: Trace) -> None:
        self.rows.append(rows)
        self.traces.append(trace)
        late = time.perf_counter() - self.written >= PART_SECONDS
        if self.store is not None and (late or sum(map(len, self.rows)) >= PART_RUNS):
            self.write()

    def trace(self) -> Trace:
        """Of all runs, in the order of the table."""
        order = np.argsort(np.concatenate(self.rows))
        return jax.tree.map(lambda x: x[order], concatenate(self.traces))

    def write(self) -> None:
        """Store the finite runs among those that wait, and remember the others."""
        if self.store is None or not self.rows:
            return
        rows, trace = np.concatenate(self.rows), concatenate(self.traces)
        bad = not_finite(trace)
        finite = ~np.any(list(bad.values()), axis=0)
        runs = self.runs.iloc[rows].assign(
            dataset=self.catalog.name, run=self.ids[rows], hyperparameters=self.texts[rows]
        )
        if finite.any():
            kept: Trace = jax.tree.map(lambda x: x[finite], trace)
            told = runs.loc[finite, list(RUN)].reset_index(drop=True)
            self.store.write(*tidy(told, self.rounds, kept), self.catalog.fingerprint)
        for i in np.flatnonzero(~finite):
            metrics = ", ".join(name for name in METRICS if bad[name][i])
            names = ("dataset", "clients", "arms", "horizon", "noise", "user", "seed")
            where = ", ".join(f"{name}={runs.iloc[i][name]}" for name in names)
            self.failed.append(f"{metrics} of {runs.iloc[i]['label']} ({where})")
        # Forgotten only now: should Ctrl-C have come before, the part is written again on the way out.
        self.rows, self.traces, self.written = [], [], time.perf_counter()

    def __enter__(self) -> "Keeper":
        self.written = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, OSError):  # a disk that is full stays full
            return
        try:
            self.write()
        except KeyboardInterrupt:
            self.write()
            raise


def from_store(store: Store, keepers: Sequence[Keeper], settings: dict[str, Any]) -> Results:
    """The runs of this grid, in its order and with its labels, whoever computed them."""
    stored = store.read(np.concatenate([keeper.ids for keeper in keepers]))
    tables, first = [], 0
    for keeper in keepers:
        runs, after = keeper.runs.copy(), first + len(keeper.runs)
        runs.insert(0, "dataset", keeper.catalog.name)
        pair = []
        for table in stored:
            mine = table[(table["at"] >= first) & (table["at"] < after)].reset_index(drop=True)
            ours = {"at", *RUN, *runs.columns}
            told = [name for name in mine if name not in ours and mine[name].notna().any()]
            found = mine[told].astype({name: bool for name in FLAGS if name in told})
            pair.append(pd.concat([runs.iloc[mine["at"] - first].reset_index(drop=True), found], axis=1))
        tables.append((pair[0], pair[1]))
        first = after
    return Results.from_tables(tables, settings)

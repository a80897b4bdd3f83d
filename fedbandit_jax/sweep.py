"""Grids of settings: every cell, every user, every seed, from as few compiled programs as possible."""

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedbandit_jax import _checks, _runtime, engine
from fedbandit_jax._progress import tqdm
from fedbandit_jax.algorithms.base import Algorithm, Trace
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.engine import Program, concatenate, lanes_per_device, table_of_runs
from fedbandit_jax.grid import Cell, make_cells, rounds_to_keep
from fedbandit_jax.results import FLAGS, METRICS, Results, describe_environment, not_finite, tidy
from fedbandit_jax.storage import RUN, Store, hyperparameters_as_text, run_ids

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
PART_SECONDS = 5.0  # what a sweep may lose when it is killed
PART_RUNS = 4096  # what it holds in memory before it writes
NAMED = 10  # failed runs in an error message
warned_of: set[str] = set()  # fingerprints of catalogs


def sweep(
    catalog: Catalog,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    clients: int | Sequence[int] | np.ndarray = 10,
    arms: int | Sequence[int] | np.ndarray = 100,
    horizon: int | Sequence[int] | np.ndarray = 6000,
    noise: float | Sequence[float] | np.ndarray = 0.1,
    users: int | Iterable[int] | np.ndarray = 10,
    seeds: int | Iterable[int] | np.ndarray = 1,
    seed: int = 0,
    checkpoints: int | Iterable[int] | np.ndarray = 128,
    spacing: str = "linear",
    dtype: str = "auto",
    progress: bool | None = None,
    out: str | Path | None = None,
) -> Results:
    """Run every combination of the given lists, for every user and seed, and return all curves.

    `clients`, `arms`, `horizon`, `noise` and any hyperparameter may be lists. `users` and `seeds` are counts or lists
    of indices: each user is a preference vector of the catalog, each seed another draw of arm sets and noise. All
    randomness depends on (seed, user, index of the seed, client) alone. `checkpoints` is the number of rounds at
    which curves are kept, or the rounds themselves; `spacing` is "linear" or "log". `dtype` is "float32", "float64"
    or "auto": float64 for horizons above 2^20 rounds, where float32 would miscount, else float32. `progress` shows
    a bar on a terminal once a call takes two seconds. `out` is a folder that keeps finished runs as the sweep goes:
    the same sweep, or a larger one, computes only what is missing there.
    """
    plan = make_plan(
        catalog,
        algorithms,
        clients=clients,
        arms=arms,
        horizon=horizon,
        noise=noise,
        users=users,
        seeds=seeds,
        seed=seed,
        checkpoints=checkpoints,
        spacing=spacing,
        dtype=dtype,
    )
    warn_of_narrow_key_terms(catalog, plan.cells)
    devices = _runtime.devices()
    settings = {
        "dataset": catalog.name,
        "fingerprint": catalog.fingerprint,
        "seed": seed,
        "dtype": dtype,
        **describe_environment(devices),
    }
    if out is None:
        return play(plan, devices, settings, None, progress)
    made_with = {name: settings[name] for name in ("versions", "devices")}
    with Store(out, plan.specification(settings), made_with) as store:
        try:
            return play(plan, devices, settings, store, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped: {len(store.runs)} finished runs are kept; the same sweep with out={str(out)!r} goes on"
            ) from None


@dataclass(frozen=True)
class Plan:
    """A sweep whose arguments have been checked."""

    catalog: Catalog
    cells: list[Cell]
    users: list[int]
    seeds: list[int]
    seed: int
    checkpoints: int | list[int]
    spacing: str
    dtype: str

    @property
    def groups(self) -> list[list[Cell]]:
        """Cells that are played together."""
        groups: dict[tuple, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.group, []).append(cell)
        return list(groups.values())

    @property
    def largest(self) -> dict[str, int]:
        """What everything is padded to: of the whole grid, so that what is found on disk changes no program."""
        return {"max_clients": max(c.clients for c in self.cells), "max_arms": max(c.arms for c in self.cells)}

    def rounds(self, horizon: int) -> np.ndarray:
        return rounds_to_keep(self.checkpoints, horizon, self.spacing)

    def wide(self, horizon: int) -> bool:
        """Does this horizon take float64?"""
        return self.dtype == "float64" or (self.dtype == "auto" and horizon > FLOAT32_HORIZON)

    @property
    def runs(self) -> int:
        return len(self.cells) * len(self.users) * len(self.seeds)

    @property
    def programs(self) -> int:
        """Programs to compile: horizons share one, unless they keep another number of rounds or another precision."""
        kinds = {(*c.group[:-1], self.wide(c.horizon), len(self.rounds(c.horizon))) for c in self.cells}
        return len(kinds)

    def memory(self, devices: Sequence[jax.Device]) -> tuple[int, int]:
        """Roughly how many bytes the largest program and the table of curves take.

        Fitted to FedConPE, the largest; for algorithms without designs it is far too high, for Uniform up to 30 times.
        """
        K, d, M = self.largest["max_arms"], self.catalog.dim, self.largest["max_clients"]
        pool = len(self.catalog.arms) + len(self.catalog.key_terms) + len(self.catalog.users)
        programs, rows, columns = [], 0, 0
        for group in self.groups:
            first, T = group[0].algorithm, group[0].horizon
            clients = lanes_per_device(first, K, d, devices[0]) // M * M or M
            # A client's arms in a few forms, and matrices of d x d for designs and regressions.
            numbers = len(devices) * (clients * (4 * K * d + 24 * d * d) + pool * d)
            programs.append(numbers * (8 if self.wide(T) else 4))
            rows += len(group) * len(self.users) * len(self.seeds) * len(self.rounds(T))
            columns = max(columns, 15 + len(first.hyperparameters()))
        return max(programs), rows * columns * 8

    def specification(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What all runs in one folder must have in common."""
        versions = {name: settings["versions"][name] for name in ("fedbandit-jax", "jax", "jaxlib")}
        return {
            **{name: settings[name] for name in ("dataset", "fingerprint", "seed", "dtype", "prng")},
            "checkpoints": self.checkpoints,
            "spacing": self.spacing,
            "device": sorted(set(settings["devices"])),
            "versions": versions,
        }


def make_plan(
    catalog: Catalog,
    algorithms: Any,
    *,
    users: Any = 10,
    seeds: Any = 1,
    seed: Any = 0,
    checkpoints: Any = 128,
    spacing: Any = "linear",
    dtype: Any = "auto",
    **axes: Any,
) -> Plan:
    """Check the arguments of a sweep; nothing is compiled."""
    cells = make_cells(catalog, algorithms, **{"clients": 10, "arms": 100, "horizon": 6000, "noise": 0.1} | axes)
    chosen_users = _checks.indices("users", users, len(catalog.users), f"the users of {catalog.name}")
    chosen_seeds = _checks.indices("seeds", seeds, 2**31)  # the PRNG takes 32 bits
    _checks.whole("seed", seed, 0, 2**31 - 1)
    _checks.choice("spacing", spacing, ("linear", "log"))
    _checks.choice("dtype", dtype, ("auto", "float32", "float64"))
    if isinstance(checkpoints, Iterable) and not isinstance(checkpoints, str):
        checkpoints = list(checkpoints)
    for T in {cell.horizon for cell in cells}:
        rounds_to_keep(checkpoints, T, spacing)
        if dtype == "float32" and T > FLOAT32_HORIZON:
            _checks.fail("dtype", dtype, f"horizon={T} needs float64, as float32 counts rounds to 2^20 only")
    kept = [int(t) for t in checkpoints] if isinstance(checkpoints, list) else int(checkpoints)
    return Plan(catalog, cells, chosen_users, chosen_seeds, int(seed), kept, spacing, dtype)


def play(
    plan: Plan,
    devices: Sequence[jax.Device],
    settings: dict[str, Any],
    store: Store | None,
    progress: bool | None,
) -> Results:
    """Play what is not in the store yet, all without one, and put all curves together."""
    traces_before, compile_seconds, began = engine.traces, 0.0, time.perf_counter()
    keepers: list[Keeper] = []
    found = 0
    total = sum(cell.clients for cell in plan.cells) * len(plan.users) * len(plan.seeds)
    with tqdm(total=total, unit=" clients", delay=2, disable=None if progress is None else not progress) as bar:
        for group in plan.groups:
            T = group[0].horizon
            keeper = Keeper(plan, group, store)
            keepers.append(keeper)
            clients, missing = keeper.runs["clients"].to_numpy(), keeper.missing()
            bar.set_description(group[0].algorithm.title)
            bar.update(int(clients.sum() - clients[missing].sum()))
            found += len(clients) - len(missing)
            if not len(missing):
                continue
            with jax.enable_x64(plan.wide(T)), keeper:
                program = Program(
                    plan.catalog,
                    group,
                    plan.users,
                    plan.seeds,
                    seed=plan.seed,
                    rounds=keeper.rounds,
                    devices=devices,
                    **plan.largest,
                )
                for rows, trace in program.finished(missing):
                    keeper.add(rows, trace)
                    bar.update(int(clients[rows].sum()))
            compile_seconds += program.compile_seconds
    settings = {
        **settings,
        "programs": engine.traces - traces_before,
        "compile_seconds": compile_seconds,
        "run_seconds": time.perf_counter() - began - compile_seconds,
    }
    if store is None:
        tables = [(keeper.runs, keeper.rounds, concatenate(keeper.traces)) for keeper in keepers]
        return Results.from_traces(plan.catalog.name, tables, settings)
    failed = [name for keeper in keepers for name in keeper.failed]
    if failed:
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        raise FloatingPointError(
            f"{len(failed)} of {plan.runs} runs are not finite: {'; '.join(failed[:NAMED])}{more}; "
            f"the others are kept in out={str(store.folder)!r}"
        )
    settings |= {"out": str(store.folder), "runs_found": found, "runs_computed": plan.runs - found}
    return from_store(store, keepers, settings)


class Keeper:
    """Takes the finished runs of a group: for the end, or, a part at a time, to the store."""

    def __init__(self, plan: Plan, group: list[Cell], store: Store | None) -> None:
        self.runs = table_of_runs(group, plan.users, plan.seeds)
        self.rounds = plan.rounds(group[0].horizon)
        self.dataset = plan.catalog.name
        self.store = store
        self.rows: list[np.ndarray] = []
        self.traces: list[Trace] = []
        self.failed: list[str] = []
        self.written = time.perf_counter()
        if store is not None:
            self.ids = run_ids(group, plan.users, plan.seeds)
            self.texts = hyperparameters_as_text(group, len(plan.users) * len(plan.seeds))

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

    def write(self) -> None:
        """Store the finite runs among those that wait, and remember the others."""
        if self.store is None or not self.rows:
            return
        rows, trace = np.concatenate(self.rows), concatenate(self.traces)
        bad = not_finite(trace)
        finite = ~np.any(list(bad.values()), axis=0)
        runs = self.runs.iloc[rows].assign(dataset=self.dataset, run=self.ids[rows], hyperparameters=self.texts[rows])
        if finite.any():
            kept: Trace = jax.tree.map(lambda x: x[finite], trace)
            self.store.write(*tidy(runs.loc[finite, list(RUN)].reset_index(drop=True), self.rounds, kept))
        for i in np.flatnonzero(~finite):
            metrics = ", ".join(name for name in METRICS if bad[name][i])
            where = {name: runs.iloc[i][name] for name in ("clients", "arms", "horizon", "noise", "user", "seed")}
            told = ", ".join(f"{name}={value}" for name, value in where.items())
            self.failed.append(f"{metrics} of {runs.iloc[i]['label']} ({told})")
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
        runs.insert(0, "dataset", keeper.dataset)
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


def warn_of_narrow_key_terms(catalog: Catalog, cells: Sequence[Cell]) -> None:
    """Say once of a catalog that questions about its key terms cannot reach every direction."""
    asking = {cell.algorithm.name: None for cell in cells if cell.algorithm.asks_key_terms}
    rank, dim = catalog.key_term_rank, catalog.dim
    if asking and rank < dim and catalog.fingerprint not in warned_of:
        warned_of.add(catalog.fingerprint)
        warnings.warn(
            f"the {len(catalog.key_terms)} key terms of {catalog.name} span {rank} of its {dim} dimensions: questions "
            f"of {', '.join(asking)} tell nothing about the other {dim - rank}, where no C > 0 holds",
            stacklevel=3,
        )

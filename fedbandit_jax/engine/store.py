"""Stores: what becomes of finished runs. They stay in memory, or are written to a folder a part at a time."""

import json
import threading
import time
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa

from fedbandit_jax import _checks
from fedbandit_jax._background import undisturbed
from fedbandit_jax._files import list_files, write_checked
from fedbandit_jax.clocks.base import METRICS, Trace
from fedbandit_jax.clocks.phases import FLAGS
from fedbandit_jax.engine import processes
from fedbandit_jax.engine.batches import Batch
from fedbandit_jax.engine.code import is_package
from fedbandit_jax.engine.files import lock
from fedbandit_jax.engine.identity import as_json, manifest_of, package_hyperparameters, run_ids
from fedbandit_jax.engine.sweep import Sweep, name_of_run
from fedbandit_jax.results.folders import (
    CURVES,
    PHASES,
    RUN,
    digest,
    join_columns,
    open_part,
    open_parts,
    parts,
    read_manifest,
    read_parts,
    repeated,
    stored_runs,
    values_of,
    write_part,
)
from fedbandit_jax.results.results import Results, missing_as_nan
from fedbandit_jax.worlds.world import content_of

PART_SECONDS = 3.0  # a sweep that is killed loses no more than that, and the chunk that is played
PART_RUNS = 4096  # of a part
NAMED = 10  # failed runs in an error message
Columns = dict[str, np.ndarray]


class NotFiniteError(FloatingPointError):
    """Runs whose curves are not finite; `results` has all others."""

    results: Results


class Store:
    """Finished runs in memory; used with `with`.

    Runs are identified by their rows in the sweep's table of runs. Non-finite runs are dropped and listed in the error.
    """

    place = "the error's `results`"

    def __init__(self, sweep: Sweep, batches: list[Batch], runs: pd.DataFrame) -> None:
        self.sweep, self.batches, self.runs = sweep, batches, runs
        self.cells = sweep.settings_of_cells()
        self.failed: list[str] = []
        self.own_learners_failed = False  # those of the package keep to the arms that there are
        self.tables: list[tuple[np.ndarray, Columns, Columns]] = []  # rows, with their curves and phases

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def missing(self) -> np.ndarray:
        """Which runs are still to be played."""
        return np.ones(len(self.runs), bool)

    def add(self, rows: np.ndarray, trace: Trace) -> None:
        """Take finished runs of one batch."""
        bad = {name: ~np.isfinite(getattr(trace, name)).all(axis=1) for name in METRICS}
        finite = ~np.any(list(bad.values()), axis=0)
        for i in np.flatnonzero(~finite):
            metrics = ", ".join(name for name in METRICS if bad[name][i])
            self.failed.append(f"{metrics} of {self.name_of(int(rows[i]))}")
            own = not is_package(type(self.batch_of(rows).algorithm))
            self.own_learners_failed |= own and bool(bad["regret"][i])
        if finite.all():
            self.keep(rows, trace)
        elif finite.any():
            self.keep(rows[finite], jax.tree.map(lambda x: x[finite], trace))

    def keep(self, rows: np.ndarray, trace: Trace) -> None:
        self.tables.append((rows, *tidy(rows, self.batch_of(rows).rounds, trace)))

    def flush(self) -> None:
        """A batch begins or is done."""

    def close(self) -> None:
        """All are done, and on disk if there is a folder."""

    def what_is_kept(self) -> str:
        """What a stopped sweep leaves behind, for its error message."""
        return "without out= nothing is kept"

    def batch_of(self, rows: np.ndarray) -> Batch:
        return self.batches[self.runs["batch"].iloc[rows[0]]]

    def name_of(self, row: int) -> str:
        run = self.runs.iloc[row]
        return name_of_run(self.cells[run["cell"]], int(run["user"]), int(run["seed"]))

    def results(self, settings: dict[str, Any]) -> Results:
        """All runs, in the order of the table; an error, which has the finite ones, if others were not."""
        results = self.collect(settings)
        if self.failed:
            more = f" and {len(self.failed) - NAMED} more" if len(self.failed) > NAMED else ""
            hint = ", or where `choose` pulls an arm that is none of client.mask" if self.own_learners_failed else ""
            error = NotFiniteError(
                f"{len(self.failed)} of {len(self.runs)} runs are not finite: {'; '.join(self.failed[:NAMED])}{more} "
                f"(numbers overflow{hint}); the others are in {self.place}"
            )
            error.results = results
            raise error
        return results

    def collect(self, settings: dict[str, Any]) -> Results:
        found = []
        _, *played = list(zip(*self.tables, strict=True)) or [(), (), ()]
        for there, here, fixed in zip(self.found(), played, (CURVES, PHASES), strict=True):
            tables = [table for table in (there, *map(pd.DataFrame, here)) if len(table)]
            table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
            if len(table):
                order = ["at", *fixed, *table.columns]
                table = table[sorted(table, key=order.index)]
                table = missing_as_nan(table.sort_values("at", kind="stable", ignore_index=True))
            found.append(self.with_settings(table))
        return Results(found[0], found[1], settings)

    def found(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Curves and phases of runs that were not played here."""
        return pd.DataFrame(), pd.DataFrame()

    def with_settings(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table whose column `at` are rows of the table of runs, with what these runs are in front."""
        if not len(table):
            return pd.DataFrame()
        runs = self.runs.iloc[table["at"].to_numpy()]
        cells, place = np.unique(runs["cell"], return_inverse=True)
        setting = missing_as_nan(pd.DataFrame([self.cells[i] for i in cells])).iloc[place].reset_index(drop=True)
        for name in ("seed", "user"):
            setting.insert(setting.columns.get_loc("noise") + 1, name, runs[name].to_numpy())
        return pd.concat([setting, table.drop(columns="at")], axis=1)


def tidy(rows: np.ndarray, rounds: np.ndarray, trace: Trace) -> tuple[Columns, Columns]:
    """Columns of curves, a row per run and checkpoint, and of phases, a row per run and phase; `at` is the run."""
    metrics = {name: getattr(trace, name) for name in METRICS} | trace.counts
    curves = {"at": np.repeat(rows, len(rounds)), "round": np.tile(rounds, len(rows))}
    curves |= {name: np.asarray(curve, np.float64).ravel() for name, curve in metrics.items()}
    if not trace.phases:
        return curves, {}
    run, row = np.nonzero(trace.phases["phase"])
    phases = {"at": rows[run]}
    for name in trace.phases:
        kind = bool if name in FLAGS else int if name == "phase" else np.float64
        phases[name] = np.asarray(trace.phases[name])[run, row].astype(kind)
    return curves, phases


class FolderStore(Store):
    """Finished runs in a folder that other sweeps are kept out of.

    Of several processes that share a sweep, the first opens the folder for all of them.
    """

    def __init__(
        self, sweep: Sweep, batches: list[Batch], runs: pd.DataFrame, folder: str | Path, settings: dict[str, Any]
    ) -> None:
        super().__init__(sweep, batches, runs)
        self.folder = Path(folder)
        self.place = f"out={str(self.folder)!r}"
        self.manifest = manifest_of(sweep, settings)
        self.ids = run_ids(sweep)
        self.stored: set[str] | None = None  # not known yet
        self.handed_over = 0  # tables that have been given to a writer
        self.since = time.perf_counter()  # the last time that tables were
        self.writer: threading.Thread | None = None
        self.write_error: BaseException | None = None

    # ---------------------------------------------------------------------------------------- opening and closing

    def __enter__(self) -> "FolderStore":
        if self.folder.exists() and not self.folder.is_dir():
            _checks.fail("out", str(self.folder), "it must be a folder, but there is a file of that name")
        self.check()
        if processes.is_first():
            _checks.folder("out", self.folder)
            self.lock = lock(self.folder)
        try:
            if processes.is_first():
                self.open()
            processes.wait("open")
            if not processes.is_first():
                self.check()  # now that there is a manifest
                self.stored = stored_runs(self.folder)
            processes.wait("read")  # before anybody writes
        except BaseException:
            self.unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with undisturbed():
            try:
                if self.write_error is None:  # a disk that is full stays full
                    self.close()
            finally:
                self.unlock()

    def unlock(self) -> None:
        if processes.is_first():
            self.lock.unlink(missing_ok=True)

    def open(self) -> None:
        """Write the manifest, see which runs are there, and remove what a killed sweep left unfinished."""
        self.check()  # again: another sweep may have begun meanwhile
        for path in self.folder.glob(".*.unfinished"):
            path.unlink()
        path = self.folder / "manifest.json"
        there = read_manifest(self.folder) if path.exists() else self.manifest
        merged = there | {"catalogs": there["catalogs"] | self.manifest["catalogs"]}
        if not path.exists() or merged != there:
            write_checked(self.folder, {path.name: json.dumps(merged, indent=2).encode() + b"\n"})
        self.manifest = merged
        self.stored, named = set(), set()
        for ids, _, phases in open_parts(self.folder, merged):
            self.stored.update(ids)
            named.add(phases and phases.path)
        for path in set(self.folder.glob("phases-*.parquet")) - named:
            open_part(path, merged)  # a foreign file is an error, and stays
            path.unlink()  # its part was never finished

    def check(self) -> None:
        """Is the folder new, or of this specification?"""
        if not (self.folder / "manifest.json").exists():
            others = sorted(p.name for p in self.folder.glob("[!.]*")) if self.folder.exists() else []
            if others:
                allowed = "it must be a new or empty folder, or one that a sweep wrote"
                _checks.fail("out", str(self.folder), f"it holds {others[0]} but no manifest.json; {allowed}")
            return
        manifest = read_manifest(self.folder)
        there, mine = manifest["specification"], self.manifest["specification"]
        for name in (*mine, *there):
            if there.get(name) != mine.get(name):
                made = f"its runs were made with {name}={there.get(name)!r}, not {mine.get(name)!r}; use another folder"
                _checks.fail("out", str(self.folder), made)
        for name, fingerprint in self.manifest["catalogs"].items():
            if manifest["catalogs"].get(name, fingerprint) != fingerprint:
                other = f"its runs were made with another catalog {name!r}; use another folder, or another name"
                _checks.fail("out", str(self.folder), other)

    # ------------------------------------------------------------------------------------------------------- runs

    def missing(self) -> np.ndarray:
        """Which runs are not there; of runs that a grid names twice, the first."""
        stored = self.stored or set()
        there = np.array([run in stored for run in self.ids])
        return ~there & ~pd.Series(self.ids, dtype=object).duplicated().to_numpy()

    def keep(self, rows: np.ndarray, trace: Trace) -> None:
        super().keep(rows, trace)
        waiting = sum(len(rows) for rows, _, _ in self.tables[self.handed_over :])
        if waiting >= PART_RUNS or time.perf_counter() - self.since >= PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Have what waits written, a part of one batch, while others are played; the part before is on disk then."""
        waiting = self.tables[self.handed_over :]
        if waiting:
            self.wait_for_writer()
            rows, curves, phases = zip(*waiting, strict=True)
            part = np.concatenate(rows), join_columns(curves), join_columns(phases)
            with undisturbed():
                self.writer = threading.Thread(target=self.try_to_write, args=part)
                self.writer.start()
                self.handed_over = len(self.tables)
        self.since = time.perf_counter()

    def wait_for_writer(self) -> None:
        if self.writer is not None:
            self.writer.join()
            self.writer = None
        if self.write_error is not None:
            raise self.write_error

    def close(self) -> None:
        self.flush()
        self.wait_for_writer()

    def what_is_kept(self) -> str:
        ids = set(self.ids)
        if self.stored is None:
            kept = "what is there is"
        else:  # other processes have written parts, too
            stored = self.stored if processes.count() == 1 else stored_runs(self.folder)
            kept = f"{len(stored & ids)} of {len(ids)} runs are"
        return f"{kept} kept; the same sweep with {self.place} goes on"

    def try_to_write(self, rows: np.ndarray, curves: Columns, phases: Columns) -> None:
        """In a thread of its own; the sweep meets the error when it comes back."""
        try:
            self.write(rows, curves, phases)
        except BaseException as error:
            self.write_error = error

    def write(self, rows: np.ndarray, curves: Columns, phases: Columns) -> None:
        """Add a part: phases first, as the part counts as finished once its curves are there."""
        ids = self.ids[rows]
        meta = {
            "specification": digest([json.dumps(self.manifest["specification"])]),
            "catalog": self.batch_of(rows).catalog.fingerprint,
            "phases": "",
        }
        runs = digest(sorted(ids))
        if len(phases.get("at", ())):
            meta["phases"] = write_part(self.folder, f"phases-{runs}", self.as_arrow(phases, PHASES), meta)
        write_part(self.folder, f"curves-{runs}", self.as_arrow(curves, CURVES), meta)
        assert self.stored is not None
        self.stored.update(ids)

    def as_arrow(self, columns: Columns, fixed: tuple[str, ...]) -> pa.Table:
        """The same columns and types in every part: readers take the folder as one table."""
        rows, place = np.unique(columns["at"], return_inverse=True)
        runs, place = self.runs.iloc[rows], pa.array(place)
        of_runs: dict[str, Any] = {"run": self.ids[rows], "user": runs["user"], "seed": runs["seed"]}
        of_runs = {name: pa.array(of_runs[name], kind) if name in of_runs else None for name, kind in RUN.items()}
        cell = pa.array(runs["cell"].to_numpy())
        of_runs |= {name: column.take(cell) for name, column in self.columns_of_cells.items() if name not in fixed}
        found = {name: repeated(column, place) for name, column in of_runs.items()}
        for name in dict.fromkeys([*fixed, *columns]):
            if name != "at":
                kind = pa.bool_() if name in FLAGS else pa.int64() if name in ("round", "phase") else pa.float64()
                given = columns.get(name)
                found[name] = pa.nulls(len(place), kind) if given is None else pa.array(given, kind)
        return pa.table(found)

    @cached_property
    def columns_of_cells(self) -> dict[str, pa.Array]:
        """What is written of every cell.

        Every hyperparameter of the package's algorithms is a column: of numbers, or of words if words are its default.
        The word of one that is usually a number, such as C="realised", leaves its column empty; `hyperparameters` has
        all of them, also those of other algorithms.
        """
        cells = [cell for _, cell in self.sweep.catalogs_and_cells()]
        own = [as_json(cell.algorithm.hyperparameters()) for cell in cells]
        texts = {"hyperparameters": own, "world": [as_json(content_of(cell.world)) for cell in cells]}
        found = {name: pa.array(list(map(json.dumps, values)), pa.string()) for name, values in texts.items()}
        for name in (RUN.keys() & self.cells[0].keys()) - found.keys():
            found[name] = pa.array([cell[name] for cell in self.cells], RUN[name])
        for name, default in sorted(package_hyperparameters().items()):
            values = [one.get(name) for one in own]
            if isinstance(default, str):
                found[name] = pa.array([None if v is None else str(v) for v in values], pa.string())
            else:
                numbers = [float(v) if isinstance(v, int | float) else None for v in values]
                found[name] = pa.array(numbers, pa.float64())
        return found

    def collect(self, settings: dict[str, Any]) -> Results:
        """The runs of this grid, in its order and with its labels, whoever computed them."""
        if processes.is_first():
            phases = self.folder.glob("phases-*.parquet")
            list_files(self.folder, ["manifest.json", *(path.name for path in (*parts(self.folder), *phases))])
        if processes.count() > 1 and not self.failed:
            lost = len(set(self.ids) - stored_runs(self.folder))
            if lost:
                raise FloatingPointError(f"{lost} of {len(self.runs)} runs are not finite: another process names them")
        return super().collect(settings | {"out": str(self.folder)})

    def found(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        played = [rows for rows, _, _ in self.tables]
        rows = np.setdiff1d(np.arange(len(self.runs)), np.concatenate(played) if played else [])
        if not len(rows):
            return super().found()
        ids = self.ids[rows]
        curves, phases = read_parts(self.folder, self.manifest, ids, without=self.columns_of_cells.keys())
        found = values_of(curves, "round", ids, RUN), values_of(phases, "phase", ids, RUN)
        return found[0].assign(at=rows[found[0]["at"]]), found[1].assign(at=rows[found[1]["at"]])

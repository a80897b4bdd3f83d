"""Folders of finished runs: a manifest, and parts that are written whole or not at all.

    manifest.json             what all runs of the folder have in common: versions, precision, device, catalog, seed ...
    curves-<hash>.parquet     a row per run and checkpoint; the file is there only when its part is whole
    phases-<hash>.parquet     a row per run and phase, of the same runs
    .lock                     the process that writes here now

Runs are known by content, not by their place in a grid, so a folder serves any grid that its manifest fits.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import REGISTRY
from fedbandit_jax.engine.cells import Cell
from fedbandit_jax.engine.files import lock, write_whole
from fedbandit_jax.engine.hosts import Hosts
from fedbandit_jax.results.labels import label_of
from fedbandit_jax.results.results import FLAGS, METRICS, Results, missing_as_nan
from fedbandit_jax.worlds.catalog import Catalog

FORMAT = 2
RUN = ("run", "dataset", "algorithm", "hyperparameters", "clients", "arms", "horizon", "noise", "user", "seed")
WORDS = ("run", "dataset", "algorithm", "hyperparameters")
CURVES = ("round", *METRICS)
# Of all phase eliminations, so that every part has the same columns; those an algorithm does not tell are empty.
PHASES = (
    *("phase", "start", "length", "eps", "complete", "active_min", "active_mean", "active_max", "good_event"),
    *("best_arm_active", "max_gap", "theta_error", "uploaded", "questions", "dropped", "wanted_information"),
    *("lambda_min", "lambda_min_after", "lemma_holds"),
)
META = b"fedbandit"


# ------------------------------------------------------------------------------------------------ what a run is


def plain(name: str, value: Any) -> Any:
    """A hyperparameter as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value):
        return repr(value)
    _checks.fail(name, value, "with out= it must be a number or a word, by which the run is found again")


def run_ids(catalog: Catalog, cells: Sequence[Cell], users: Sequence[int], seeds: Sequence[int]) -> np.ndarray:
    """A hash of the content of each run, in the order of `engine.table_of_runs`."""
    ids = []
    for cell in cells:
        content: list[Any] = [
            catalog.fingerprint,
            cell.algorithm.title,
            cell.clients,
            cell.arms,
            cell.horizon,
            float(cell.noise),
        ]
        for name, value in sorted(cell.algorithm.hyperparameters().items()):
            value = plain(name, value)
            content.append([name, float(value) if type(value) is int else value])  # N=1 is N=1.0
        text = json.dumps(content)
        ids += [hashlib.sha256(f"{text} {u} {s}".encode()).hexdigest()[:20] for u in users for s in seeds]
    return np.array(ids, dtype=object)


def hyperparameters_as_text(cells: Sequence[Cell], runs_per_cell: int) -> np.ndarray:
    """All hyperparameters of each run in one JSON object: complete, whatever columns a reader knows."""
    texts = [
        json.dumps({k: plain(k, str(v) if callable(v) else v) for k, v in cell.algorithm.hyperparameters().items()})
        for cell in cells
    ]
    return np.repeat(np.array(texts, dtype=object), runs_per_cell)


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------ the folder


class Store:
    """A folder open for writing: used with `with`, which keeps other sweeps out.

    Of several processes that share a sweep, the first opens the folder for all of them.
    """

    def __init__(
        self,
        folder: str | Path,
        specification: dict[str, Any],
        catalogs: dict[str, str],
        made_with: dict[str, Any],
        hosts: Hosts = Hosts(),  # noqa: B008  (frozen)
    ) -> None:
        self.folder = Path(folder)
        self.hosts = hosts
        self.manifest = json.loads(
            json.dumps(
                {
                    "specification": {"format": FORMAT, **specification},
                    "catalogs": catalogs,
                    "made_with": made_with,
                }
            )
        )
        self.runs: set[str] = set()

    def __enter__(self) -> "Store":
        if self.folder.exists() and not self.folder.is_dir():
            _checks.fail("out", str(self.folder), "it must be a folder, but there is a file of that name")
        self.check()
        if self.hosts.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = lock(self.folder)
        try:
            if self.hosts.first:
                self.open()
            self.hosts.wait("open")
            if not self.hosts.first:
                self.check()  # now that there is a manifest
                self.runs = stored_runs(self.folder)
            self.hosts.wait("read")  # before anybody writes
        except BaseException:
            self.unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unlock()

    def unlock(self) -> None:
        if self.hosts.first:
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
            write_whole(path, lambda file: file.write(json.dumps(merged, indent=2).encode() + b"\n"))
        self.manifest = merged
        stored = {path: ids_in(path, merged) for path in parts(self.folder)}
        self.runs = {run for ids in stored.values() for run in ids}
        for path in self.folder.glob("phases-*.parquet"):
            if curves_of(path) not in stored:
                read_part(path, merged, RUN)  # a foreign file is an error, and stays
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

    def write(self, curves: pd.DataFrame, phases: pd.DataFrame, fingerprint: str) -> None:
        """Add a part, of one catalog: both tables have the columns of RUN."""
        ids = curves["run"].unique()
        name = f"{digest(sorted(ids))}.parquet"
        meta = {
            "specification": digest([json.dumps(self.manifest["specification"])]),
            "catalog": fingerprint,
            "phases": len(phases),
        }
        if len(phases):
            write_table(self.folder / f"phases-{name}", uniform(phases, PHASES), meta)
        write_table(self.folder / f"curves-{name}", uniform(curves, CURVES), meta)
        self.runs.update(ids)

    def read(self, wanted: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Curves and phases of some runs, in the order wanted; `at` is a run's place in it."""
        return read_runs(self.folder, self.manifest, wanted)


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
        assert all(isinstance(manifest[part], dict) for part in ("specification", "catalogs", "made_with"))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"{path} is damaged or was not written by a sweep") from error
    return manifest


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("curves-*.parquet"))


def curves_of(phases: Path) -> Path:
    return phases.with_name("curves-" + phases.name.removeprefix("phases-"))


def stored_runs(folder: str | Path) -> set[str]:
    """The runs in a folder, which need not exist; nothing is locked or changed."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists():
        return set()
    manifest = read_manifest(folder)
    return {run for path in parts(folder) for run in ids_in(path, manifest)}


# ---------------------------------------------------------------------------------------------------------- reading


def open_part(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What a part says of itself."""
    again = "delete it, and its runs will be computed again"
    try:
        found = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is damaged: {again}") from error
    if META not in found:
        raise ValueError(f"{path} was not written by a sweep: move it out of the folder")
    meta: dict[str, Any] = json.loads(found[META])
    same = meta["specification"] == digest([json.dumps(manifest["specification"])])
    if not same or meta["catalog"] not in manifest["catalogs"].values():
        raise ValueError(f"{path} belongs to another folder, of another specification or catalog: move it there")
    return meta


def read_part(path: Path, manifest: dict[str, Any], columns: Sequence[str] | None = None) -> pa.Table:
    """Columns of a part, checked."""
    open_part(path, manifest)
    try:
        chosen = None if columns is None else list(columns)
        return pq.read_table(path, columns=chosen, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is damaged: delete it, and its runs will be computed again") from error


def ids_in(path: Path, manifest: dict[str, Any]) -> list[str]:
    """The runs in a part, whose name is their hash."""
    ids: list[str] = read_part(path, manifest, ["run"])["run"].unique().to_pylist()
    if path.name != f"curves-{digest(sorted(ids))}.parquet":
        raise ValueError(f"{path} was renamed or altered: delete it, and its runs will be computed again")
    if open_part(path, manifest)["phases"] and not phases_of(path).exists():
        raise ValueError(f"{phases_of(path)} is missing: delete {path.name} too, and its runs will be computed again")
    return ids


def phases_of(curves: Path) -> Path:
    return curves.with_name("phases-" + curves.name.removeprefix("curves-"))


def read_runs(folder: Path, manifest: dict[str, Any], wanted: np.ndarray | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves and phases of some runs, or of all; a run that is in two parts is taken once."""
    left: set[str] | None = None if wanted is None else set(wanted)
    seen: set[str] = set()
    curves: list[pa.Table] = []
    phases: list[pa.Table] = []
    for path in parts(folder):
        take = set(ids_in(path, manifest)) - seen
        take = take if left is None else take & left
        if not take:
            continue
        seen |= take
        for tables, file in ((curves, path), (phases, phases_of(path))):
            if file.exists():
                table = read_part(file, manifest)
                tables.append(table.filter(pc.is_in(table["run"], pa.array(sorted(take)))))
    found = []
    for tables, by in ((curves, "round"), (phases, "phase")):
        if not tables:
            found.append(pd.DataFrame({"at": np.empty(0, int)}))
            continue
        # An algorithm of one's own may bring columns that older parts do not have.
        table = pa.concat_tables(tables, promote_options="default").to_pandas()
        if wanted is None:
            found.append(table.sort_values([*RUN[1:], by], ignore_index=True))
        else:
            places = pd.DataFrame({"run": wanted, "at": np.arange(len(wanted))})
            found.append(places.merge(table, on="run").sort_values(["at", by], ignore_index=True))
    return found[0], found[1]


def load(folder: str | Path) -> Results:
    """All runs of a folder, as `Results`; labels tell apart what is there."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    found = read_runs(folder, manifest, None)
    if found[0].empty:
        raise FileNotFoundError(f"{folder} holds no finished runs yet")
    unique = found[0].drop_duplicates(["algorithm", "hyperparameters"])
    keys = list(zip(unique["algorithm"], unique["hyperparameters"], strict=True))
    given = {key: json.loads(key[1]) for key in keys}
    labels = {key: label_of(key[0], own, [given[k] for k in keys if k[0] == key[0]]) for key, own in given.items()}
    tables = []
    for table in found:
        if table.empty:
            tables.append(pd.DataFrame())
            continue
        own = list(zip(table["algorithm"], table["hyperparameters"], strict=True))
        names = dict.fromkeys(name for key in dict.fromkeys(own) for name in given[key])
        columns = {name: pd.Series([given[key].get(name, np.nan) for key in own]) for name in names}
        new = table[["dataset", "algorithm"]].assign(label=[labels[key] for key in own])
        new = pd.concat([new, table[list(RUN[4:])], missing_as_nan(pd.DataFrame(columns))], axis=1)
        told = [c for c in table if c not in new and c not in RUN and table[c].notna().any()]
        tables.append(pd.concat([new, missing_as_nan(table[told])], axis=1))
    settings = {
        "catalogs": manifest["catalogs"],
        **manifest["specification"],
        **manifest["made_with"],
        "out": str(folder),
    }
    return Results(tables[0], tables[1], settings)


# ---------------------------------------------------------------------------------------------------------- writing


def uniform(table: pd.DataFrame, values: Sequence[str]) -> pa.Table:
    """The same columns and types in every part: readers take the folder as one table.

    A hyperparameter is a column of numbers, or of words if words are its default. The word of one that is usually a
    number, such as C="realised", leaves its column empty; `hyperparameters` has it.
    """
    defaults: dict[str, Any] = {}
    for name in sorted(REGISTRY):
        for field in dataclasses.fields(REGISTRY[name]):  # type: ignore[arg-type]
            defaults.setdefault(field.name, field.default)
    own = [json.loads(text) for text in table["hyperparameters"]]
    columns: dict[str, pa.Array] = {}
    for name in RUN:
        kind = pa.string() if name in WORDS else pa.float64() if name == "noise" else pa.int64()
        columns[name] = pa.array(table[name], kind)
    for name in sorted(defaults):
        if name in columns or name in values:
            continue
        column = [o.get(name) for o in own]
        if isinstance(defaults[name], str):
            columns[name] = pa.array([None if v is None else str(v) for v in column], pa.string())
        else:
            numbers = [float(v) if isinstance(v, int | float) else None for v in column]
            columns[name] = pa.array(numbers, pa.float64())
    for name in (*values, *(c for c in table if c not in columns and c not in values and c not in RUN)):
        kind = pa.bool_() if name in FLAGS else pa.int64() if name in ("round", "phase") else pa.float64()
        columns[name] = pa.array(table[name], kind) if name in table else pa.nulls(len(table), kind)
    return pa.table(columns)


def write_table(path: Path, table: pa.Table, meta: dict[str, Any]) -> None:
    table = table.replace_schema_metadata({META: json.dumps(meta).encode()})
    write_whole(path, lambda file: pq.write_table(table, file, write_page_checksum=True))

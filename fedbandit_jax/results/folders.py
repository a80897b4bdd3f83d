"""Folders of finished runs, as a sweep writes them: a manifest, and parts that are there whole or not at all.

    manifest.json             what all runs of the folder have in common: versions, precision, device, catalog, seed ...
    curves-<hash>.parquet     a row per run and checkpoint; the file is there only when its part is whole
    phases-<hash>.parquet     a row per run and phase, of the same runs
    .lock                     the process that writes here now

Runs are known by content, not by their place in a grid, so a folder serves any grid that its manifest fits.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedbandit_jax.clocks.base import METRICS
from fedbandit_jax.results.labels import fields_that_vary, labels_of
from fedbandit_jax.results.results import MESSAGES, Results, missing_as_nan
from fedbandit_jax.worlds.world import LATER

FORMAT = 4  # 4: `world`; 3 is read, too
RUN = {  # the columns that tell what a run is
    **dict.fromkeys(("run", "dataset", "algorithm", "hyperparameters"), pa.string()),
    **dict.fromkeys(("clients", "arms", "horizon"), pa.int64()),
    "noise": pa.float64(),
    **dict.fromkeys(("user", "seed"), pa.int64()),
    "world": pa.string(),  # all fields, as JSON
}
# So that every part has the same columns; what an algorithm does not count is empty.
CURVES = ("round", *METRICS, *MESSAGES)
# Of all phase eliminations, so that every part has the same columns; those an algorithm does not tell are empty.
PHASES = (
    *("phase", "start", "length", "eps", "complete", "active_min", "active_mean", "active_max", "good_event"),
    *("best_arm_active", "max_gap", "theta_error", "uploaded", "questions", "dropped", "wanted_information"),
    *("lambda_min", "lambda_min_after", "lemma_holds"),
)
META = b"fedbandit"


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


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


def phases_of(curves: Path) -> Path:
    return curves.with_name("phases-" + curves.name.removeprefix("curves-"))


def curves_of(phases: Path) -> Path:
    return phases.with_name("curves-" + phases.name.removeprefix("phases-"))


def open_part(path: Path, manifest: dict[str, Any]) -> tuple[pq.ParquetFile, dict[str, Any]]:
    """A part, and what it says of itself; its runs are read as a dictionary, as each has many rows."""
    try:
        part = pq.ParquetFile(path, read_dictionary=["run"], page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(path) from error
    found = part.metadata.metadata or {}
    if META not in found:
        raise ValueError(f"{path} was not written by a sweep: move it out of the folder")
    meta: dict[str, Any] = json.loads(found[META])
    same = meta["specification"] == digest([json.dumps(manifest["specification"])])
    if not same or meta["catalog"] not in manifest["catalogs"].values():
        raise ValueError(f"{path} belongs to another folder, of another specification or catalog: move it there")
    return part, meta


def damaged(path: Path) -> ValueError:
    return ValueError(f"{path} is damaged: delete it, and its runs will be computed again")


def read_part(path: Path, manifest: dict[str, Any], without: Collection[str] = ()) -> pa.Table:
    """A part without some columns, checked."""
    part, _ = open_part(path, manifest)
    try:
        return part.read([name for name in part.schema_arrow.names if name not in without])
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(path) from error


def ids_in(path: Path, manifest: dict[str, Any]) -> list[str]:
    """The runs in a part, whose name is their hash."""
    part, meta = open_part(path, manifest)
    try:
        ids: list[str] = part.read(["run"])["run"].unique().to_pylist()
    except (pa.ArrowInvalid, OSError) as error:
        raise damaged(path) from error
    if path.name != f"curves-{digest(sorted(ids))}.parquet":
        raise ValueError(f"{path} was renamed or altered: delete it, and its runs will be computed again")
    if meta["phases"] and not phases_of(path).exists():
        raise ValueError(f"{phases_of(path)} is missing: delete {path.name} too, and its runs will be computed again")
    return ids


def stored_runs(folder: str | Path) -> set[str]:
    """The runs in a folder, which need not exist; nothing is locked or changed."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists():
        return set()
    manifest = read_manifest(folder)
    return {run for path in parts(folder) for run in ids_in(path, manifest)}


def read_parts(
    folder: Path, manifest: dict[str, Any], wanted: Collection[str] | None = None, without: Collection[str] = ()
) -> tuple[pa.Table | None, pa.Table | None]:
    """Curves and phases of some runs, or of all, without some columns; a run that is in two parts is taken once."""
    left: set[str] | None = None if wanted is None else set(wanted)
    seen: set[str] = set()
    curves: list[pa.Table] = []
    phases: list[pa.Table] = []
    for path in parts(folder):
        ids = set(ids_in(path, manifest))
        take = ids - seen if left is None else ids & left - seen
        if not take:
            continue
        seen |= take
        for tables, file, fixed in ((curves, path, CURVES), (phases, phases_of(path), PHASES)):
            if file.exists():
                table = read_part(file, manifest, set(without).difference(fixed))
                tables.append(table if take == ids else table.filter(pc.is_in(table["run"], pa.array(sorted(take)))))

    def joined(tables: list[pa.Table]) -> pa.Table | None:
        # What an algorithm of one's own counts may be a column that other parts do not have.
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries() if tables else None

    return joined(curves), joined(phases)


def join_columns(tables: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Tables of the same columns, one below the other."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def repeated(column: pa.Array, place: pa.Array) -> pa.Array:
    """Entries of a column by their places; texts are written once, and read as texts all the same."""
    return (column.dictionary_encode() if column.type == pa.string() else column).take(place)


def values_of(table: pa.Table | None, by: str, wanted: np.ndarray, settings: Collection[str]) -> pd.DataFrame:
    """Metrics or diagnostics of the wanted runs, in the order wanted; `at` is a run's place in it.

    These are the columns that are neither settings nor empty.
    """
    if table is None:
        return pd.DataFrame({"at": np.empty(0, int)})
    values = [name for name in table.column_names if name not in settings and table[name].null_count < len(table)]
    at, rows = places_of(table["run"], table[by], wanted)
    found = table.select(values).take(rows).to_pandas()
    found.insert(0, "at", at)
    return found


def places_of(runs: pa.ChunkedArray, by: pa.ChunkedArray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the wanted runs each row shall be of, run after run, and that row; one may be wanted twice."""
    number, unique = pd.factorize(wanted)
    run = pc.index_in(runs, pa.array(unique)).to_numpy()
    order = np.lexsort([by.to_numpy(), run])
    count = np.bincount(run, minlength=len(unique))
    begin, count = (np.cumsum(count) - count)[number], count[number]
    at = np.repeat(np.arange(len(wanted)), count)
    within = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    return at, order[np.repeat(begin, count) + within]


def load(folder: str | Path) -> Results:
    """All runs of a folder, as `Results`; labels tell apart what is there."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    curves, phases = read_parts(folder, manifest)
    if curves is None:
        raise FileNotFoundError(f"{folder} holds no finished runs yet")
    _, first = np.unique(curves["run"].combine_chunks().indices.to_numpy(), return_index=True)
    runs = curves.select([name for name in RUN if name in curves.column_names]).take(first).to_pandas()
    runs["run"] = runs["run"].astype(object)
    runs = runs.sort_values(list(runs)[1:], ignore_index=True)
    texts = runs.pop("world") if "world" in runs else pd.Series("{}", runs.index)  # older folders know one world
    worlds = {text: LATER | json.loads(text) for text in texts.unique()}
    for name in fields_that_vary(list(worlds.values())):
        values = texts.map({text: world.get(name) for text, world in worlds.items()})
        runs.insert(runs.columns.get_loc("noise"), name, values)
    runs = missing_as_nan(runs)

    # Few algorithms and hyperparameters, each of many runs.
    variant = runs.groupby(["algorithm", "hyperparameters"], sort=False).ngroup().to_numpy()
    titles, texts = (runs.loc[~pd.Series(variant).duplicated(), name] for name in ("algorithm", "hyperparameters"))
    given = [json.loads(text) for text in texts]
    labels = np.array(labels_of(list(zip(titles, given, strict=True))), dtype=object)
    runs.insert(1, "label", labels[variant])

    where = list(runs.columns[runs.columns.get_loc("clients") :])
    tables = []
    for table, by, fixed in ((curves, "round", CURVES), (phases, "phase", PHASES)):
        # A diagnostic may be called like the hyperparameter of an algorithm that plays no phases: eps.
        settings_there = {*RUN, *(name for own in given for name in own)}.difference(fixed)
        values = values_of(table, by, runs["run"].to_numpy(), settings_there)
        if not len(values):
            tables.append(pd.DataFrame())
            continue
        at = values.pop("at").to_numpy()
        there, place = np.unique(variant[at], return_inverse=True)
        own = missing_as_nan(pd.DataFrame([given[i] for i in there])).iloc[place]
        place_and_run = runs[["dataset", "algorithm", "label", *where]].iloc[at]
        found = [part.reset_index(drop=True) for part in (place_and_run, own, missing_as_nan(values))]
        tables.append(pd.concat(found, axis=1))
    settings = {
        "catalogs": manifest["catalogs"],
        **manifest["specification"],
        **manifest["made_with"],
        "out": str(folder),
    }
    return Results(tables[0], tables[1], settings)

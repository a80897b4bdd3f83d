"""Folders of finished runs, as a sweep writes them: a manifest, and parts that are there whole or not at all.

    manifest.json             what all runs of the folder have in common: versions, precision, device, catalog, seed ...
    curves-<hash>.parquet     a row per run and checkpoint; the file is there only when its part is whole
    phases-<hash>.parquet     a row per run and phase, of the same runs
    .lock                     the process that writes here now

Runs are known by content, not by their place in a grid, so a folder serves any grid that its manifest fits.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedbandit_jax.results.labels import labels_of
from fedbandit_jax.results.results import Results, missing_as_nan

FORMAT = 3
RUN = {  # the columns that tell what a run is
    **dict.fromkeys(("run", "dataset", "algorithm", "hyperparameters"), pa.string()),
    **dict.fromkeys(("clients", "arms", "horizon"), pa.int64()),
    "noise": pa.float64(),
    **dict.fromkeys(("user", "seed"), pa.int64()),
}
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


def stored_runs(folder: str | Path) -> set[str]:
    """The runs in a folder, which need not exist; nothing is locked or changed."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists():
        return set()
    manifest = read_manifest(folder)
    return {run for path in parts(folder) for run in ids_in(path, manifest)}


def read_runs(folder: Path, manifest: dict[str, Any], wanted: np.ndarray | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves and phases of some runs, or of all; a run that is in two parts is taken once.

    Of runs that are wanted, in the order wanted; `at` is a run's place in it.
    """
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
        # What an algorithm of one's own counts may be a column that other parts do not have.
        table = pa.concat_tables(tables, promote_options="default").to_pandas()
        if wanted is None:
            found.append(table.sort_values([*list(RUN)[1:], by], ignore_index=True))
        else:
            places = pd.DataFrame({"run": wanted, "at": np.arange(len(wanted))})
            found.append(places.merge(table, on="run").sort_values(["at", by], ignore_index=True))
    return found[0], found[1]


def values_in(table: pd.DataFrame) -> list[str]:
    """The columns of a table of runs that are neither settings nor empty: metrics, or diagnostics of phases."""
    texts = table["hyperparameters"].unique() if "hyperparameters" in table else []
    settings = {"at", *RUN, *(name for text in texts for name in json.loads(text))}
    return [name for name in table if name not in settings and table[name].notna().any()]


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
    labels = dict(zip(keys, labels_of([(key[0], given[key]) for key in keys]), strict=True))
    tables = []
    for table in found:
        if table.empty:
            tables.append(pd.DataFrame())
            continue
        own = list(zip(table["algorithm"], table["hyperparameters"], strict=True))
        names = dict.fromkeys(name for key in dict.fromkeys(own) for name in given[key])
        columns = {name: pd.Series([given[key].get(name, np.nan) for key in own]) for name in names}
        new = table[["dataset", "algorithm"]].assign(label=[labels[key] for key in own])
        new = pd.concat([new, table[list(RUN)[4:]], missing_as_nan(pd.DataFrame(columns))], axis=1)
        tables.append(pd.concat([new, missing_as_nan(table[values_in(table)])], axis=1))
    settings = {
        "catalogs": manifest["catalogs"],
        **manifest["specification"],
        **manifest["made_with"],
        "out": str(folder),
    }
    return Results(tables[0], tables[1], settings)

"""Folders of finished runs, as a sweep writes them: a manifest, and parts that are there whole or not at all.

    manifest.json                        what all runs have in common: versions, precision, device, catalog, seed ...
    curves-<runs>-<checksum>.parquet     a row per run and checkpoint; the file is there only when its part is whole
    phases-<runs>-<checksum>.parquet     a row per run and phase, of the same runs
    SHA256SUMS                           checksums of the manifest, and of all parts once a sweep is done
    .lock                                the process that writes here now

Runs are known by content, not by their place in a grid, so a folder serves any grid that its manifest fits.

A part's name has a hash of its runs and the start of the SHA-256 of its bytes. So a part can be checked from the moment
it is there, whichever process wrote it, and parts of two folders of one sweep can be put into one. The curves' file
names the phases that belong to it. SHA256SUMS shows which part was deleted. Parts of earlier versions, which are called
curves-<runs>.parquet, have no checksum and are read as they are.
"""

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedbandit_jax._files import SUMS, checksum, read_checked, read_sums, write_whole
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
DIGITS = 16  # of a hash in a part's name


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:DIGITS]


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest = json.loads(read_checked(path, "restore it from a copy of the folder, or use another folder"))
        assert all(isinstance(manifest[part], dict) for part in ("specification", "catalogs", "made_with"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing: without it the parts beside it cannot be read") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"{path} is damaged or was not written by a sweep") from error
    return manifest


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("curves-*.parquet"))


@dataclass(frozen=True)
class Part:
    """Curves or phases of some runs: an open parquet file, and what it says of itself."""

    path: Path
    file: pq.ParquetFile
    meta: dict[str, Any]

    def read(self, without: Collection[str] = ()) -> pa.Table:
        """The table without some columns."""
        with damage_named(self.path):
            return self.file.read([name for name in self.file.schema_arrow.names if name not in without])

    def ids(self) -> list[str]:
        """The runs in a part of curves, whose name has their hash."""
        with damage_named(self.path):
            ids: list[str] = self.file.read(["run"])["run"].unique().to_pylist()
            runs = digest(sorted(ids))
        words = self.path.stem.split("-")
        if words[:2] != ["curves", runs] or len(words) != 2 + self.has_checksum:
            raise ValueError(f"{self.path} was renamed or altered: delete it, and its runs will be computed again")
        return ids

    @property
    def has_checksum(self) -> bool:
        """False for parts of earlier versions, which count their rows of phases in place of naming the file."""
        return not isinstance(self.meta["phases"], int)

    @property
    def phases(self) -> Path | None:
        """The part of phases that belongs to this part of curves, if its algorithm plays phases."""
        if not self.meta["phases"]:
            return None
        name = self.meta["phases"] if self.has_checksum else "phases-" + self.path.name.removeprefix("curves-")
        return self.path.with_name(name)


def open_part(path: Path, manifest: dict[str, Any]) -> Part:
    """A part of this folder, checked; its runs are read as a dictionary, as each has many rows."""
    content = path.read_bytes()
    expected = path.stem.split("-")[2:]
    if expected and expected != [checksum(content)[:DIGITS]]:
        raise damaged(path)
    with damage_named(path):
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["run"], page_checksum_verification=True)
        found = file.metadata.metadata or {}
        meta: dict[str, Any] = json.loads(found.get(META, "null"))
    if meta is None:
        raise ValueError(f"{path} was not written by a sweep: move it out of the folder")
    with damage_named(path):
        same = meta["specification"] == digest([json.dumps(manifest["specification"])])
        belongs = same and meta["catalog"] in manifest["catalogs"].values() and "phases" in meta
    if not belongs:
        raise ValueError(f"{path} belongs to another folder, of another specification or catalog: move it there")
    return Part(path, file, meta)


def write_part(folder: Path, name: str, table: pa.Table, meta: dict[str, Any]) -> str:
    """Write a part and return its name, which has its checksum.

    What was measured hardly repeats itself; all else is written as a dictionary.
    """
    repeating = [name for name in table.column_names if name not in (*CURVES, *PHASES)]
    options = {"use_dictionary": repeating, "write_statistics": ["dataset", "algorithm"], "write_page_checksum": True}
    content = io.BytesIO()
    with pq.ParquetWriter(content, table.schema, store_schema=False, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({META: json.dumps(meta).encode()})
    name = f"{name}-{checksum(content.getvalue())[:DIGITS]}.parquet"
    write_whole(folder / name, content.getvalue())
    return name


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Whatever a parquet file without a checksum makes its reader raise becomes a sentence about the file."""
    try:
        yield
    except Exception as error:
        raise damaged(path) from error


def damaged(path: Path) -> ValueError:
    also = ""
    if path.name.startswith("phases-"):
        also = f" and curves-{path.stem.split('-')[1]}*.parquet"
    return ValueError(f"{path} is damaged: delete it{also}, and its runs will be computed again")


def open_parts(folder: Path, manifest: dict[str, Any]) -> Iterator[tuple[list[str], Part, Part | None]]:
    """The runs of each part, its curves, and its phases if its algorithm plays phases."""
    for path in parts(folder):
        curves = open_part(path, manifest)
        ids, phases = curves.ids(), curves.phases
        if phases is not None and not phases.exists():
            raise ValueError(f"{phases} is missing: delete {path.name} too, and its runs will be computed again")
        yield ids, curves, None if phases is None else open_part(phases, manifest)


def stored_runs(folder: str | Path) -> set[str]:
    """The runs in a folder, which need not exist; nothing is locked or changed."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists():
        return set()
    manifest = read_manifest(folder)
    return {run for ids, _, _ in open_parts(folder, manifest) for run in ids}


def read_parts(
    folder: Path, manifest: dict[str, Any], wanted: Collection[str] | None = None, without: Collection[str] = ()
) -> tuple[pa.Table | None, pa.Table | None]:
    """Curves and phases of some runs, or of all, without some columns; a run that is in two parts is taken once."""
    left: set[str] | None = None if wanted is None else set(wanted)
    seen: set[str] = set()
    curves: list[pa.Table] = []
    phases: list[pa.Table] = []
    for found, *files in open_parts(folder, manifest):
        ids = set(found)
        take = ids - seen if left is None else ids & left - seen
        if not take:
            continue
        seen |= take
        for tables, file, fixed in zip((curves, phases), files, (CURVES, PHASES), strict=True):
            if file is not None:
                table = file.read(set(without).difference(fixed))
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
    lost = sorted(read_sums(folder).keys() - {path.name for path in folder.iterdir()})
    if lost:
        mend = f"the same sweep plays its runs again (or delete {folder / SUMS}, to do without them)"
        raise FileNotFoundError(f"{folder / lost[0]} is missing: {mend}")
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

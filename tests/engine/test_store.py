"""Folders of finished runs: what is there is not computed again, and no fault loses or mixes up anything."""

import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import jax
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.engine import files as disk
from fedbandit_jax.engine import store
from fedbandit_jax.engine.calls import describe_environment
from fedbandit_jax.engine.identity import plain, run_ids
from fedbandit_jax.engine.program import Program
from fedbandit_jax.engine.store import FolderStore, Store
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.results import folders

SMALL = {"clients": [2, 3], "arms": 7, "horizon": 300, "users": 2, "seeds": 2, "checkpoints": 8}


@pytest.fixture
def computed(monkeypatch):
    """Counts of runs that were really played, one entry a program."""
    counts = []
    finished = Program.finished

    def count(self, runs):
        counts.append(0)
        for rows, trace in finished(self, runs):
            counts[-1] += len(rows)
            yield rows, trace

    monkeypatch.setattr(Program, "finished", count)
    return counts


@pytest.fixture
def small_parts(monkeypatch):
    """A part for every chunk, and small chunks, which do not end where runs end."""
    monkeypatch.setattr(store, "PART_SECONDS", 0.0)
    monkeypatch.setattr(fb.Uniform, "clients_per_core", lambda *_: 2)


def same(one, other):
    pd.testing.assert_frame_equal(one.to_pandas(), other.to_pandas())
    pd.testing.assert_frame_equal(one.phases(), other.phases())


def files(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path(folder).iterdir()}


# -------------------------------------------------------------------------------------------- what is kept and found


@pytest.fixture(scope="module")
def mixed(catalog, tmp_path_factory):
    """Phases and none, words and numbers in one column, clients that play alone: in memory and stored."""
    algorithms = [fb.FedConPE(N=[1, 2]), fb.LinUCB(alpha=[0.5, "theory"]), fb.Uniform()]
    folder = tmp_path_factory.mktemp("out") / "new" / "folder"
    return (
        fb.sweep(catalog, algorithms, **SMALL),
        fb.sweep(catalog, algorithms, **SMALL, out=folder),
        algorithms,
        folder,
    )


def test_the_folder_gives_the_same_table(mixed, catalog, computed):
    reference, stored, algorithms, folder = mixed
    same(stored, reference)
    assert (stored.settings["runs_found"], stored.settings["runs_computed"]) == (0, 40)
    before = files(folder)
    again = fb.sweep(catalog, algorithms, **SMALL, out=str(folder))
    same(again, reference)
    assert computed == []
    assert (again.settings["runs_found"], again.settings["runs_computed"]) == (40, 0)
    assert files(folder) == before


def test_saving_into_the_folder_of_a_sweep_is_refused(mixed):
    reference, _, _, folder = mixed
    before = files(folder)
    with pytest.raises(ValueError, match=r"^folder='.*' is not allowed: it is a sweep's folder"):
        reference.save(folder)
    assert files(folder) == before


def test_load_reads_the_folder(mixed):
    reference, _, _, folder = mixed
    loaded = fb.Results.load(folder)
    for found, wanted, last in (
        (loaded.to_pandas(), reference.to_pandas(), "round"),
        (loaded.phases(), reference.phases(), "phase"),
    ):
        by = ["label", "clients", "user", "seed", last]
        found, wanted = (table.sort_values(by, ignore_index=True) for table in (found, wanted))
        pd.testing.assert_frame_equal(found[wanted.columns], wanted)
        assert set(found) == set(wanted)
    assert loaded.settings["catalogs"] == reference.settings["catalogs"]
    assert "numpy" in loaded.settings["versions"]
    assert len(loaded.summary()) == len(reference.summary())


def test_other_readers_take_the_parts_as_one_table(mixed):
    reference, _, _, folder = mixed
    for kind, wanted in (("curves", reference.to_pandas()), ("phases", reference.phases())):
        parts = sorted(folder.glob(f"{kind}-*.parquet"))
        schemas = {str(pq.read_schema(path).remove_metadata()) for path in parts}
        assert len(schemas) == 1, "one schema, whatever the algorithm"
        assert len(parts) == (4 if kind == "curves" else 1)
        table = pd.read_parquet(parts)
        assert len(table) == len(wanted)
        assert table["run"].nunique() == len(wanted.drop_duplicates(["label", "clients", "user", "seed"]))
        np.testing.assert_allclose(table["theta_error"].sum(), wanted["theta_error"].sum())
    curves = pd.read_parquet(sorted(folder.glob("curves-*.parquet")))
    assert set(curves.loc[curves["algorithm"] == "FedConPE", "N"]) == {1.0, 2.0}
    words = {json.loads(text)["alpha"] for text in curves.loc[curves["algorithm"] == "LinUCB", "hyperparameters"]}
    assert words == {0.5, "theory"}


def test_an_algorithm_that_tells_less_of_its_phases_has_the_same_columns(catalog, tmp_path):
    algorithms = [fb.FedLinPE(), fb.FedConPE()]
    played = fb.sweep(catalog, algorithms, **SMALL, out=tmp_path)
    assert played.phases().groupby("algorithm")["lemma_holds"].count()["FedLinPE"] == 0, "not told is not false"
    same(fb.sweep(catalog, algorithms, **SMALL, out=tmp_path), played)
    schemas = [pq.read_schema(path).remove_metadata() for path in tmp_path.glob("phases-*.parquet")]
    assert len(schemas) == 2
    assert str(schemas[0]) == str(schemas[1])


def test_a_larger_grid_computes_only_what_is_missing(catalog, tmp_path, computed):
    first = SMALL | {"clients": 2, "users": [1], "seeds": 1}
    fb.sweep(catalog, fb.LinUCB(alpha=1), **first, out=tmp_path)
    assert computed == [1]
    kept = files(tmp_path)
    # More clients, users, seeds and values of alpha, in another order, and another algorithm; 1.0 is 1.
    larger = SMALL | {"clients": [3, 2], "users": [0, 1], "seeds": 3}
    algorithms = [fb.LinUCB(alpha=[2.0, 1.0]), fb.Uniform()]
    stored = fb.sweep(catalog, algorithms, **larger, out=tmp_path)
    assert sorted(computed[1:]) == [2 * 2 * 3, 2 * 2 * 2 * 3 - 1]
    kept.pop("SHA256SUMS")  # the list of all files
    assert kept.items() <= files(tmp_path).items(), "what was there has not been touched"
    computed.clear()
    reference = fb.sweep(catalog, algorithms, **larger)
    assert list(stored.to_pandas()["label"].unique()) == ["LinUCB alpha=2", "LinUCB alpha=1", "Uniform"]
    pd.testing.assert_frame_equal(stored.to_pandas(), reference.to_pandas(), rtol=1e-4)
    # A part of it, later, is all there.
    computed.clear()
    part = fb.sweep(catalog, fb.LinUCB(alpha=2), **larger | {"seeds": [2]}, out=tmp_path)
    assert computed == []
    assert len(part.final()) == 4


def test_only_whole_runs_are_stored(catalog, tmp_path, small_parts):
    """Of clients that play alone, a chunk may end in the middle of a run."""
    reference = fb.sweep(catalog, fb.Uniform(), **SMALL)
    same(fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path), reference)
    parts = [pd.read_parquet(path) for path in sorted(tmp_path.glob("curves-*.parquet"))]
    assert len(parts) > 2
    assert all((part.groupby("run").size() == 8).all() for part in parts)


def test_polars_and_duckdb_read_the_folder_as_it_is(mixed):
    reference, _, _, folder = mixed
    wanted = reference.final().groupby(["algorithm", "clients"])["regret"].mean()
    every = str(folder / "curves-*.parquet")
    by_polars = pl.scan_parquet(every).filter(pl.col("round") == pl.col("horizon"))
    by_polars = by_polars.group_by("algorithm", "clients").agg(pl.col("regret").mean()).collect()
    query = f"SELECT algorithm, clients, avg(regret) FROM '{every}' WHERE round = horizon GROUP BY ALL"
    for found in (by_polars.rows(), duckdb.sql(query).fetchall()):
        assert len(found) == len(wanted) == 6
        for algorithm, clients, regret in found:
            assert regret == pytest.approx(wanted[algorithm, clients])


def test_several_catalogs_share_a_folder(catalog, tmp_path, computed):
    other = fb.datasets.synthetic(seed=1, dim=4, num_arms=20, num_key_terms=9, num_users=3)
    other = dataclasses.replace(other, name="other")
    algorithms = [fb.FedLinPE(), fb.Uniform()]
    both = fb.sweep([catalog, other], algorithms, **SMALL)
    assert len(both.final()) == 32
    assert both.summary()["dataset"].tolist() == ["synthetic"] * 4 + ["other"] * 4
    for one in (catalog, other):
        alone = fb.sweep(one, algorithms, **SMALL).to_pandas()
        mine = both.to_pandas().query(f"dataset == {one.name!r}").reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, alone)
    # One after the other into one folder: the second computes only what is its own.
    del computed[:]
    fb.sweep(catalog, algorithms, **SMALL, out=tmp_path)
    same(fb.sweep([catalog, other], algorithms, **SMALL, out=tmp_path), both)
    assert computed == [8, 8, 8, 8]
    loaded = fb.Results.load(tmp_path)
    assert loaded.settings["catalogs"] == {one.name: one.fingerprint for one in (catalog, other)}
    assert len(loaded.final()) == 32
    with pytest.raises(ValueError, match=r"^catalog=\['synthetic', 'synthetic'\] is not allowed: .* another name"):
        fb.sweep([catalog, catalog], algorithms, **SMALL)
    with pytest.raises(ValueError, match=r"^catalog=3 is not allowed: it must be a Catalog"):
        make_sweep([catalog, 3], algorithms, **SMALL)


def test_the_identity_of_a_run_is_its_content(catalog):
    def ids(algorithm, users=(0,), seeds=(0,), **axes):
        axes = {"clients": 2, "arms": 7, "horizon": 300, "noise": 0.1} | axes
        return list(run_ids(make_sweep(catalog, algorithm, users=users, seeds=seeds, **axes)))

    base = ids(fb.ArmCon(alpha=1))
    assert base == ids(fb.ArmCon(alpha=1.0)) == ids(fb.ArmCon(alpha=np.float64(1)), clients=np.array([2]))
    others = [
        ids(fb.LinUCB(alpha=1)),
        ids(fb.ArmCon(alpha=2)),
        ids(fb.ArmCon(alpha=1, schedule="linear")),
        ids(fb.ArmCon(alpha=1, schedule=lambda t: t // 7)),
        ids(fb.ArmCon(alpha=1, schedule=lambda t: t // 8)),
        ids(fb.ArmCon(alpha=1), users=[1]),
        ids(fb.ArmCon(alpha=1), seeds=[1]),
        *(ids(fb.ArmCon(alpha=1), **{k: v}) for k, v in (("clients", 3), ("arms", 8), ("horizon", 301), ("noise", 0))),
    ]
    assert len({base[0], *(other[0] for other in others)}) == 12
    assert plain("schedule", Schedule("x", (1,), (2,))) == repr(Schedule("x", (1,), (2,)))
    with pytest.raises(ValueError, match=r"^f=.* is not allowed: with out= it must be a number or a word"):
        plain("f", lambda t: t)


# ------------------------------------------------------------------------------------- another specification, strangers


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed=0, not 1"),
        ({"checkpoints": 9}, "checkpoints=8, not 9"),
        ({"checkpoints": [5, 300]}, r"checkpoints=8, not \[5, 300\]"),
        ({"spacing": "log"}, "spacing='linear', not 'log'"),
        ({"dtype": "float64"}, "dtype='auto', not 'float64'"),
        ({"catalog": 1}, "another catalog 'synthetic'"),
    ],
)
def test_another_specification_is_refused(mixed, catalog, change, named):
    folder = mixed[3]
    before = files(folder)
    change = dict(change)
    if change.pop("catalog", None):
        catalog = fb.datasets.synthetic(seed=1, dim=6, num_arms=60, num_key_terms=30, num_users=6)
    with pytest.raises(ValueError, match=rf"^out='.*' is not allowed: its runs were made with {named}") as caught:
        fb.sweep(catalog, fb.Uniform(), **SMALL | change, out=folder)
    assert "\n" not in str(caught.value)
    assert files(folder) == before


def test_a_folder_made_with_unit_users_is_read_and_goes_on_with_them_alone(catalog, tmp_path, computed):
    """What 0.1 drew: the same name, arms and directions of users, other norms."""
    sizes = {"dim": 6, "num_arms": 60, "num_key_terms": 30, "num_users": 6}
    unit = fb.datasets.synthetic(seed=0, **sizes, user_norm="unit")
    old = fb.sweep(unit, fb.Uniform(), **SMALL, out=tmp_path)
    message = "its runs were made with another catalog 'synthetic'; use another folder, or another name$"
    with pytest.raises(ValueError, match=message) as caught:
        fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    assert "\n" not in str(caught.value)
    pd.testing.assert_frame_equal(fb.Results.load(tmp_path).summary(), old.summary())
    del computed[:]
    same(fb.sweep(unit, fb.Uniform(), **SMALL, out=tmp_path), old)
    assert not computed


def spoil_truncated(folder):
    path = sorted(folder.glob("curves-*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-100])
    return rf"^{path} is damaged: delete it, and its runs will be computed again$"


def spoil_truncated_phases(folder):
    path = sorted(folder.glob("phases-*.parquet"))[0]
    path.write_bytes(path.read_bytes()[:-100])
    return rf"^{path} is damaged: delete it"


def spoil_flipped(folder):
    """One bit, in the pages of the column that is always read."""
    path = sorted(folder.glob("curves-*.parquet"))[0]
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    return rf"^{path} (is damaged|was renamed or altered): delete it"


def spoil_foreign(folder):
    path = folder / "curves-mine.parquet"
    pq.write_table(pa.table({"run": ["a"], "round": [1]}), path)
    return rf"^{path} was not written by a sweep"


def spoil_foreign_phases(folder):
    path = folder / "phases-mine.parquet"
    pq.write_table(pa.table({"run": ["a"], "round": [1]}), path)
    return rf"^{path} was not written by a sweep"


def spoil_renamed(folder):
    path = sorted(folder.glob("curves-*.parquet"))[0]
    path.rename(folder / "curves-0123456789abcdef.parquet")
    return "curves-0123456789abcdef.parquet was renamed or altered"


def spoil_no_phases(folder):
    path = sorted(folder.glob("phases-*.parquet"))[0]
    path.unlink()
    return rf"^{path} is missing"


def spoil_manifest(folder):
    (folder / "manifest.json").write_text('{"specification": ')
    return "manifest.json is damaged, or its line in SHA256SUMS is"


def spoil_no_manifest(folder):
    (folder / "manifest.json").unlink()
    return "^out=.* is not allowed: it holds .* but no manifest.json; it must be a new or empty folder"


@pytest.mark.parametrize("spoil", [f for name, f in list(globals().items()) if name.startswith("spoil_")])
def test_damaged_and_foreign_files_are_named_and_left_alone(catalog, tmp_path, spoil):
    algorithm = fb.FedLinPE()
    reference = fb.sweep(catalog, algorithm, **SMALL, out=tmp_path)
    message = spoil(tmp_path)
    before = files(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        fb.sweep(catalog, algorithm, **SMALL, out=tmp_path)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == before
    if "delete it, and" in str(caught.value) and "curves" in message:  # the advice is good
        Path(str(caught.value).split()[0]).unlink()
        same(fb.sweep(catalog, algorithm, **SMALL, out=tmp_path), reference)


def test_a_part_of_another_folder_is_told(catalog, tmp_path):
    for seed in (0, 1):
        fb.sweep(catalog, fb.Uniform(), **SMALL, seed=seed, out=tmp_path / str(seed))
    (part,) = (tmp_path / "1").glob("curves-*.parquet")
    part.rename(tmp_path / "0" / "curves-1.parquet")
    with pytest.raises(ValueError, match=r"curves-1.parquet belongs to another folder, of another specification"):
        fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path / "0")
    with pytest.raises(ValueError, match=r"curves-1.parquet belongs to another folder"):
        fb.Results.load(tmp_path / "0")


def test_a_file_in_place_of_the_folder(catalog, tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ValueError, match=r"^out='.*x' is not allowed: it must be a folder"):
        fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


# --------------------------------------------------------------------------------------------------------- faults


def test_a_run_that_is_not_finite_is_named_and_the_others_are_kept(catalog, tmp_path, computed):
    """Noise near the largest float32 overflows in the estimate, in both groups."""
    options = SMALL | {"clients": 2, "seeds": 1, "noise": [0.1, 3e38]}
    algorithms = [fb.LinUCB(alpha=0.5), fb.Uniform()]
    with pytest.raises(FloatingPointError, match=r"^2 of 8 runs are not finite: ") as caught:
        fb.sweep(catalog, algorithms, **options, out=tmp_path)
    for user in (0, 1):
        assert f"LinUCB (dataset=synthetic, clients=2, arms=7, horizon=300, noise=3e+38, user={user}, seed=0)" in str(
            caught.value
        )
    assert str(caught.value).endswith(f"the others are in out={str(tmp_path)!r}")
    assert len(caught.value.results.final()) == 6
    assert computed == [4, 4]
    kept = fb.Results.load(tmp_path)
    assert len(kept.final()) == 6
    same(
        fb.sweep(catalog, algorithms[0], **options | {"noise": 0.1}, out=tmp_path),
        fb.sweep(catalog, algorithms[0], **options | {"noise": 0.1}),
    )
    assert computed == [4, 4, 2]


def test_in_memory_the_error_has_the_others(catalog):
    """One checkpoint of one run is enough; what is finite is not lost."""
    options = SMALL | {"clients": 2, "seeds": 1, "noise": [0.1, 3e38]}
    with pytest.raises(FloatingPointError, match=r"^2 of 4 runs are not finite: .*theta_error.* of LinUCB") as caught:
        fb.sweep(catalog, fb.LinUCB(), **options)
    assert str(caught.value).endswith("(numbers overflow); the others are in the error's `results`")
    found = caught.value.results
    same(found, fb.sweep(catalog, fb.LinUCB(), **options | {"noise": 0.1}))


def test_one_bad_checkpoint_is_enough(catalog):
    sweep = make_sweep(catalog, fb.Uniform(), **SMALL | {"clients": 2, "checkpoints": 3})
    batches = sweep.batches(jax.local_devices()[0])
    good, bad = np.ones((4, 3)), np.ones((4, 3))
    bad[2, 0] = np.inf
    kept = Store(sweep, batches, sweep.table_of_runs(batches))
    kept.add(np.arange(4), fb.Trace(good, good, good, bad))
    with pytest.raises(FloatingPointError, match=r"^1 of 4 runs are not finite: theta_error of Uni.*user=1, seed=0"):
        kept.results({})


def test_what_an_algorithm_counts_is_a_metric(catalog, tmp_path):
    """Curves of its own, beside those that all have; in memory and in a folder."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Counting(fb.Uniform, abstract=True):
        def run(self, key, problem, checkpoints):
            return super().run(key, problem, checkpoints)._replace(counts={"uploads": 2 * checkpoints})

    algorithms = [Counting(), fb.Uniform()]
    for out in (None, tmp_path):
        results = fb.sweep(catalog, algorithms, **SMALL, out=out)
        final = results.final().set_index("label")["uploads"]
        assert (final["Uniform"] == 0).all()  # who sends nothing has none
        assert final["Counting"].tolist() == [2 * 300 * 2] * 4 + [2 * 300 * 3] * 4  # of all clients
        assert results.metrics[-1] == "uploads"
    assert fb.Results.load(tmp_path).final()["uploads"].sum() == final.sum()


def test_a_full_disk(catalog, tmp_path, small_parts, computed):
    """The write that fails is a real one: the system lets no file grow beyond 4 kB."""
    reference = fb.sweep(catalog, fb.Uniform(), **SMALL)
    some = fb.sweep(catalog, fb.Uniform(), **SMALL | {"seeds": 1}, out=tmp_path)
    before = files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        message = r"curves-[\w-]+.parquet could not be written \(File too large\); what was"
        with pytest.raises(OSError, match=message) as e:
            fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(e.value)
    assert files(tmp_path) == before, "no lock, nothing half-written"
    assert len(some.final()) == 4
    computed.clear()
    same(fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path), reference)
    assert computed == [4]


def test_ctrl_c_keeps_what_is_finished(catalog, tmp_path, small_parts, monkeypatch, computed):
    monkeypatch.setattr(store, "PART_SECONDS", 1e9)  # everything waits in memory when the interrupt comes
    reference = fb.sweep(catalog, fb.Uniform(), **SMALL)
    add = FolderStore.add

    def interrupted(self, rows, trace):
        add(self, rows, trace)
        if sum(len(rows) for rows, _, _ in self.tables[self.handed_over :]) >= 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FolderStore, "add", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"^stopped: \d of 8 runs are kept; the same sweep with out="):
            fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    kept = len(fb.Results.load(tmp_path).final())
    assert 3 <= kept < 8
    computed.clear()
    same(fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path), reference)
    assert computed == [8 - kept]


def test_ctrl_c_while_a_part_is_written(catalog, tmp_path, monkeypatch, computed):
    """Twice: while the part is written, and while the sweep waits for that."""
    sync, calls = os.fsync, []

    def interrupted(descriptor):
        calls.append(descriptor)
        if len(calls) in (5, 6):  # after the manifest, its checksum, and their folder twice
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped: 8 of 8 runs are kept"):
        fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    assert len(calls) == 6
    assert not list(tmp_path.glob(".*"))
    computed.clear()
    assert len(fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path).final()) == 8
    assert computed == []


@pytest.mark.parametrize("opened", [False, True])
def test_ctrl_c_at_the_edges(catalog, tmp_path, monkeypatch, opened):
    """While the folder is opened, and right after runs have been taken: nothing is said or written that is not so."""
    reference = fb.sweep(catalog, fb.Uniform(), **SMALL)
    keep = Store.keep

    def interrupted(self, *given):
        if opened:
            keep(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store if opened else FolderStore, "keep" if opened else "open", interrupted)
        told = r"^stopped: 8 of 8 runs are kept" if opened else r"^stopped: what is there is kept; the same sweep"
        with pytest.raises(KeyboardInterrupt, match=told):
            fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    same(fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path), reference)


def test_ctrl_c_without_a_folder(catalog, monkeypatch):
    def interrupted(self, rows, trace):
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "add", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped: without out= nothing is kept$"):
        fb.sweep(catalog, fb.Uniform(), **SMALL)


def test_two_processes_on_one_folder(catalog, tmp_path):
    fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
    before = files(tmp_path)
    other = subprocess.Popen(["sleep", "60"])
    try:
        owner = {"pid": other.pid, "born": disk.born(other.pid), "host": disk.socket.gethostname()}
        (tmp_path / ".lock").write_text(json.dumps(owner))
        with pytest.raises(OSError, match=rf"^out='.*' is in use by process {other.pid} on .*: wait for it") as caught:
            fb.sweep(catalog, fb.Uniform(), **SMALL | {"seeds": 3}, out=tmp_path)
        assert "\n" not in str(caught.value)
        assert len(fb.Results.load(tmp_path).final()) == 8, "reading needs no lock"
        assert {name: content for name, content in files(tmp_path).items() if name != ".lock"} == before
        # The number is that of a living process, but not of the one that took the lock.
        (tmp_path / ".lock").write_text(json.dumps(owner | {"born": "1"}))
        assert len(fb.sweep(catalog, fb.Uniform(), **SMALL | {"seeds": 3}, out=tmp_path).final()) == 12
        # Nobody here can tell whether a process of another host is alive.
        (tmp_path / ".lock").write_text(json.dumps(owner | {"host": "elsewhere"}))
        with pytest.raises(OSError, match=r"in use by process \d+ on elsewhere: .*delete .*\.lock"):
            fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
        (tmp_path / ".lock").write_text("")
        with pytest.raises(OSError, match=r"\.lock is not a lock that a sweep wrote"):
            fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)
        (tmp_path / ".lock").write_text(json.dumps(owner))
    finally:
        other.kill()
        other.wait()
    fb.sweep(catalog, fb.Uniform(), **SMALL, out=tmp_path)  # the lock of a dead process is no hindrance
    assert not list(tmp_path.glob(".*"))


def test_one_process_cannot_open_a_folder_twice(catalog, tmp_path):
    def opened():
        sweep = make_sweep(catalog, fb.Uniform(), **SMALL)
        settings = {"seed": 0, "dtype": "auto", "catalogs": {}, **describe_environment(jax.local_devices())}
        batches = sweep.batches(jax.local_devices()[0])
        return FolderStore(sweep, batches, sweep.table_of_runs(batches), tmp_path, settings)

    with opened():
        with pytest.raises(OSError, match=rf"in use by process {os.getpid()} "), opened():
            pass
        assert (tmp_path / ".lock").exists(), "the one who failed has not removed it"
    assert not (tmp_path / ".lock").exists()


KILLS = int(os.environ.get("FEDBANDIT_KILLS", "5"))
KILLED = """
import sys, time
import jax
import fedbandit_jax as fb
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from fedbandit_jax.engine import store
store.PART_SECONDS = 0
fb.Uniform.clients_per_core = fb.FedLinPE.clients_per_core = lambda *_: 12
write = store.FolderStore.write
def logged(self, rows, curves, phases):
    assert not self.stored & set(self.ids[rows])  # found on disk at the start, or written since
    write(self, rows, curves, phases)
    with open(sys.argv[3], "a") as log:
        log.writelines(f"{run} {time.time()}\\n" for run in self.ids[rows])
store.FolderStore.write = logged
catalog = fb.datasets.synthetic(seed=0, dim=6, num_arms=60, num_key_terms=30, num_users=6)
results = fb.sweep(catalog, [fb.FedLinPE(), fb.Uniform()], clients=[2, 3], arms=7, horizon=300, users=6, seeds=40,
                   checkpoints=8, out=sys.argv[1])
results.save(sys.argv[4])
"""


@pytest.mark.thorough
def test_kill_9_at_random_moments(tmp_path):
    """Started again until it is done, a sweep gives the table of one that was left alone, and plays no run twice."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start(name):
        places = [tmp_path / name, tmp_path / "cache", tmp_path / f"{name}.log", tmp_path / f"{name}-table"]
        command = [sys.executable, "-c", KILLED, *map(str, places)]
        return subprocess.Popen(command, env=environment)

    def log(name):
        path = tmp_path / f"{name}.log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    began = time.time()
    assert start("alone").wait() == 0  # and fills the compile cache
    written = [float(at) for _, at in log("alone")]
    starting, playing = written[0] - began, written[-1] - written[0]
    chance, progress = random.Random(0), []
    for number in range(KILLS):
        before = len(folders.parts(tmp_path / "killed"))
        process = start("killed")
        # While it starts, finds what is there and compiles, or, of two in three, while it plays and writes.
        until = time.time() + (chance.uniform(0, starting) if number % 3 == 0 else 1e9)
        while process.poll() is None and len(folders.parts(tmp_path / "killed")) == before and time.time() < until:
            time.sleep(0.001)
        if number % 3:
            time.sleep(chance.uniform(0, 2 * playing / KILLS))
        process.send_signal(signal.SIGKILL)
        assert process.wait() in (0, -signal.SIGKILL)
        progress.append(len(folders.stored_runs(tmp_path / "killed")))
    print(f"{starting:.1f} s to start, {playing:.1f} s to play; finished runs after each kill, of 960: {progress}")
    assert len(set(progress)) > KILLS // 3
    assert start("killed").wait() == 0
    assert progress == sorted(progress)
    same(*(fb.Results.load(tmp_path / f"{name}-table") for name in ("alone", "killed")))
    runs = [run for run, _ in log("killed")]
    assert len(runs) == len(set(runs)), "a stored run was computed again"
    assert not list((tmp_path / "killed").glob(".*"))


def test_a_diagnostic_may_be_called_like_a_hyperparameter_of_others(catalog, tmp_path):
    """FedConPE tells eps = 2^-l of every phase; PrivateFedLinUCB, which plays none, has an eps of its own."""
    setting = {"clients": 2, "arms": 5, "horizon": 300, "users": 1, "checkpoints": 4, "out": tmp_path / "runs"}
    algorithms = [fb.FedConPE(exploration_scale=0.1), fb.PrivateFedLinUCB(eps=3.0, privacy="none")]
    played = fb.simulate(catalog, algorithms, **setting)
    for results in (played, fb.simulate(catalog, algorithms, **setting), fb.Results.load(tmp_path / "runs")):
        phases = results.phases()
        assert set(phases["label"]) == {"FedConPE"}
        np.testing.assert_allclose(phases["eps"], 2.0 ** -phases["phase"])
        assert results.only("PrivateFedLinUCB").final()["eps"].tolist() == [3.0]

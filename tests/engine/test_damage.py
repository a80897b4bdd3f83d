"""Damaged files: whatever a fault makes of one, reading names the file or gives what was written."""

import json
import random
import shutil
import subprocess

import jax
import pandas as pd
import pyarrow.parquet as pq
import pytest

import fedbandit_jax as fb
from fedbandit_jax import _files
from fedbandit_jax.engine.calls import describe_environment
from fedbandit_jax.engine.store import FolderStore
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.papers import record
from fedbandit_jax.results import folders

SMALL = {"clients": [2, 3], "arms": 7, "horizon": 300, "users": 2, "seeds": 2, "checkpoints": 8}
ALGORITHMS = [fb.FedConPE(N=[1, 2]), fb.LinUCB()]  # one with phases, one without


@pytest.fixture(scope="module")
def written(catalog, tmp_path_factory):
    """A sweep's folder and the same results saved."""
    place = tmp_path_factory.mktemp("damage")
    fb.sweep(catalog, ALGORITHMS, **SMALL, out=place / "sweep").save(place / "saved")
    return place


@pytest.fixture(scope="module")
def stored(catalog):
    """A function that goes on with the sweep and returns its tables, or None if there are runs to play."""
    sweep = make_sweep(catalog, ALGORITHMS, **SMALL)
    batches = sweep.batches(jax.local_devices()[0])
    runs = sweep.table_of_runs(batches)
    settings = {"seed": 0, "dtype": "auto", "catalogs": {catalog.name: catalog.fingerprint}}
    settings |= describe_environment(jax.local_devices())

    def go_on(folder):
        with FolderStore(sweep, batches, runs, folder, settings) as store:
            return None if store.missing().any() else tables(store.collect({}))

    return go_on


def tables(results):
    return results.to_pandas(), results.phases(), {k: v for k, v in results.settings.items() if k != "out"}


def load(folder):
    return tables(fb.Results.load(folder))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put(folder, content):
    """Make a folder hold these files and no others."""
    for path in list(folder.iterdir()):
        if path.name not in content:
            path.unlink()
    for name, data in content.items():
        if not (folder / name).exists() or (folder / name).read_bytes() != data:
            (folder / name).write_bytes(data)


def faults(content, flips, chance):
    """Which files a fault touches, and all files with it; half of the flips in parquet are in the footers."""
    for i in range(flips):
        name = sorted(content)[i % len(content)]
        data = bytearray(content[name])
        last = 2000 if i // len(content) % 2 else len(data)
        data[-chance.randrange(1, min(last, len(data)) + 1)] ^= 1 << chance.randrange(8)
        yield {name}, content | {name: bytes(data)}
    for name, data in content.items():
        for size in {0, len(data) // 2, len(data) - 1, chance.randrange(len(data))}:
            yield {name}, content | {name: data[:size]}
        yield {name}, {other: content[other] for other in content if other != name}
        for other in content:
            if other < name:
                yield {name, other}, content | {name: content[other], other: data}


def attempt(read, path):
    """What was read, and the sentence of an error; errors of Arrow, JSON and archives are raised."""
    try:
        return read(path), ""
    except (ValueError, FileNotFoundError) as error:
        if type(error) not in (ValueError, FileNotFoundError) or "\n" in str(error):
            raise
        return None, str(error)


def check(read, folder, wanted, touched):
    """True if an error named a file that the fault touched, or the list of checksums; False if nothing has changed."""
    found, sentence = attempt(read, folder)
    if sentence:
        # A line of the list that is damaged may accuse the file that it is about.
        assert any(name in sentence for name in touched) or "SHA256SUMS" in sentence or touched == {"SHA256SUMS"}
        return True
    if found is None:
        assert all(name.startswith("curves-") for name in touched)  # deleted: to be played again
        return True
    for one, other in zip(found[:2], wanted[:2], strict=True):
        pd.testing.assert_frame_equal(one, other)
    assert found[2] == wanted[2]
    return False


@pytest.mark.parametrize("kind", ["sweep", "saved"])
def test_a_damaged_file_is_named_or_changes_nothing(written, stored, tmp_path, kind):
    folder = tmp_path / "copy"
    shutil.copytree(written / kind, folder)
    reads = (load, stored) if kind == "sweep" else (load,)
    content, wanted = contents(folder), [read(folder) for read in reads]
    assert contents(folder) == content, "reading changes nothing"
    named = 0
    for touched, changed in faults(content, 120, random.Random(0)):
        for read, table in zip(reads, wanted, strict=True):
            put(folder, changed)
            noticed = check(read, folder, table, touched)
            assert noticed or touched == {"SHA256SUMS"}, "only the list itself may lose a line that nobody needs"
            named += noticed
    assert named > 120


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["sweep", "saved"])
def test_no_byte_is_read_differently(written, tmp_path, kind):
    """2,000 bytes with other values, over every file of a folder."""
    folder = tmp_path / "copy"
    shutil.copytree(written / kind, folder)
    content, wanted, rng, named = contents(folder), load(folder), random.Random(1), 0
    names = sorted(content)
    for i in range(2000):
        name = names[i % len(names)]
        damaged = bytearray(content[name])
        damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
        put(folder, content | {name: bytes(damaged)})
        noticed = check(load, folder, wanted, {name})
        assert noticed or name == "SHA256SUMS"
        named += noticed
    assert named > 1900


def test_a_list_of_checksums_is_one_that_other_programs_read(written):
    for kind in ("sweep", "saved"):
        sums = _files.read_sums(written / kind)
        assert sums.keys() == {path.name for path in (written / kind).iterdir()} - {"SHA256SUMS"}
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=written / kind, check=True)


def test_a_deleted_part_is_played_again_and_can_be_done_without(written, catalog, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(written / "sweep", folder)
    part = folders.parts(folder)[0]
    part.unlink()
    with pytest.raises(FileNotFoundError, match=rf"^{part} is missing: the same sweep plays its runs again") as caught:
        fb.Results.load(folder)
    assert "\n" not in str(caught.value)
    content = contents(folder)
    (folder / "SHA256SUMS").unlink()
    assert 0 < len(fb.Results.load(folder).final()) < 24
    put(folder, content)
    played = fb.sweep(catalog, ALGORITHMS, **SMALL, out=folder)
    assert 0 < played.settings["runs_computed"] < 24
    for one, other in zip(load(folder)[:2], load(written / "sweep")[:2], strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_a_folder_without_a_manifest_is_told_so(written, tmp_path):
    shutil.copytree(written / "sweep", tmp_path / "copy")
    (tmp_path / "copy" / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"copy/manifest\.json is missing: without it"):
        fb.Results.load(tmp_path / "copy")


def test_parts_of_two_folders_can_be_put_into_one(written, catalog, stored, tmp_path):
    for seed in (0, 1):
        fb.sweep(catalog, ALGORITHMS, **SMALL | {"seeds": [seed]}, out=tmp_path / str(seed))
    for path in (tmp_path / "1").glob("*.parquet"):
        shutil.copy(path, tmp_path / "0")
    for found, wanted in zip(load(tmp_path / "0")[:2], load(written / "sweep")[:2], strict=True):
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-4)
    assert stored(tmp_path / "0") is not None, "nothing is left to play"


def as_earlier(folder, manifest_format):
    """Make a folder one of an earlier version: no checksums, phases counted in place of named; 3 knew one world."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["specification"]["format"] = manifest_format
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "SHA256SUMS").unlink()
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        meta = json.loads(pq.read_metadata(path).metadata[folders.META])
        meta["phases"] = int(bool(meta["phases"]) or path.name.startswith("phases"))
        meta["specification"] = folders.digest([json.dumps(manifest["specification"])])
        if manifest_format == 3:
            table = table.drop_columns("world")
        old = path.with_name("-".join(path.stem.split("-")[:2]) + ".parquet")
        with pq.ParquetWriter(old, table.schema, store_schema=False, write_page_checksum=True) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({folders.META: json.dumps(meta).encode()})
        path.unlink()


@pytest.mark.parametrize("manifest_format", [3, 4])
def test_folders_of_earlier_versions(written, catalog, stored, tmp_path, manifest_format):
    """They are read as they are; those of format 4 are gone on with, and new parts have checksums."""
    folder = tmp_path / "copy"
    shutil.copytree(written / "sweep", folder)
    as_earlier(folder, manifest_format)
    for found, wanted in zip(load(folder)[:2], load(written / "sweep")[:2], strict=True):
        pd.testing.assert_frame_equal(found, wanted)
    if manifest_format == 3:
        with pytest.raises(ValueError, match="its runs were made with format=3, not 4"):
            stored(folder)
        return
    for found, wanted in zip(stored(folder)[:2], stored(written / "sweep")[:2], strict=True):
        pd.testing.assert_frame_equal(found, wanted)
    played = fb.sweep(catalog, fb.LinUCB(), **SMALL | {"seeds": 3}, out=folder)
    assert (played.settings["runs_found"], played.settings["runs_computed"]) == (8, 4)
    assert len(fb.Results.load(folder).final()) == 28
    # What such a part makes Arrow raise is a sentence, too.
    content, chance = contents(folder), random.Random(1)
    for path in [path for path in folder.glob("*.parquet") if path.stem.count("-") == 1]:
        for _ in range(40):
            data = bytearray(content[path.name])
            data[-chance.randrange(1, 3000)] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            _, sentence = attempt(folders.stored_runs, folder)
            assert not sentence or str(folder) in sentence
        path.write_bytes(content[path.name])


def test_a_kill_between_a_file_and_its_checksum_leaves_both_readable(tmp_path, monkeypatch):
    """Of three writes, of the list without the file, of the file and of its line, each may be the last."""
    write = _files.write_whole
    for kill_at in range(4):
        folder = tmp_path / str(kill_at)
        folder.mkdir()
        _files.write_checked(folder, {"a": b"old", "b": b"other"})
        done = []

        def killed(path, content, kill_at=kill_at, done=done):
            if len(done) == kill_at:
                raise KeyboardInterrupt
            done.append(path.name)
            write(path, content)

        monkeypatch.setattr(_files, "write_whole", killed)
        if kill_at < 3:
            with pytest.raises(KeyboardInterrupt):
                _files.write_checked(folder, {"a": b"new"})
        else:
            _files.write_checked(folder, {"a": b"new"})
            assert done == ["SHA256SUMS", "a", "SHA256SUMS"]
        monkeypatch.setattr(_files, "write_whole", write)
        assert _files.read_checked(folder / "a", "") == (b"old" if kill_at < 2 else b"new")
        assert _files.read_checked(folder / "b", "") == b"other"


@pytest.mark.parametrize("kind", ["catalog", "record"])
def test_catalogs_and_records_of_papers(catalog, tmp_path, kind):
    rows = [{"experiment": "one", "verdict": "holds", "figure": "12.3 %"} for _ in range(9)]
    if kind == "catalog":
        path = catalog.save(tmp_path / "c.npz")
        read, same = fb.Catalog.load, lambda found: found.fingerprint == catalog.fingerprint
    else:
        path = tmp_path / "verdict.json"
        record.write_json(path, rows)
        read, same = (lambda path: record.read_json(path, None)), lambda found: found == rows
    data, chance, named = path.read_bytes(), random.Random(0), 0
    for i in range(200):
        changed = bytearray(data)
        last = 1500 if i % 2 else len(data)  # the directory of an archive is at its end
        changed[-chance.randrange(1, min(last, len(data)) + 1)] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        found, sentence = attempt(read, path)
        assert sentence.startswith(str(path)) if sentence else same(found)
        named += bool(sentence)
    assert named == 200 or (kind == "catalog" and named > 100)

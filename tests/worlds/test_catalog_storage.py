"""Catalogs on disk, their fingerprint and their description."""

import dataclasses
import json

import numpy as np
import pytest

import fedbandit_jax as fb

ROWS = np.random.default_rng(0).normal(size=(9, 3))
NAMES = {
    "arm_names": ["a, b", "\u4e2d\u6587", "", "ends in \0"],
    "key_term_names": ["x", "y\n"],
    "user_ids": ["1", "2", "3"],
}


def make(**changes):
    return fb.Catalog.from_arrays(
        ROWS[:4], ROWS[4:6], ROWS[6:], name="mine", **NAMES, origin={"raw": {"users": 7}, "density": 0.1}, **changes
    )


def parts(path):
    with np.load(path) as file:
        return dict(file)


CATALOGS = {
    "names": make(),
    "arrays": fb.Catalog.from_arrays(ROWS, ROWS, ROWS),
    "no key terms": fb.Catalog.from_arrays(ROWS, users=ROWS),
    "synthetic": fb.datasets.synthetic(dim=4),
}


@pytest.mark.parametrize("catalog", CATALOGS.values(), ids=CATALOGS)
def test_comes_back_as_it_was(catalog, tmp_path):
    path = catalog.save(tmp_path / "c.npz")
    loaded = fb.Catalog.load(path)
    for field in dataclasses.fields(fb.Catalog):
        before, after = getattr(catalog, field.name), getattr(loaded, field.name)
        if field.name == "weights" and before is not None:
            before, after = before.toarray(), after.toarray()
        assert np.array_equal(before, after) if isinstance(before, np.ndarray) else before == after, field.name
    assert loaded.fingerprint == catalog.fingerprint
    assert str(loaded.describe()) == str(catalog.describe())
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
    assert all(array.dtype != object for array in parts(path).values())


def test_a_catalog_of_release_0_1_is_read_and_tells_its_norms(tmp_path):
    """Its users had unit norm, and its options do not say so; the fingerprint is the one that 0.1 wrote."""
    options = {"options": {"dim": 2, "features": "svd"}}
    norms = {"norms": {"arms": [3.0] * 3, "key_terms": [1.0] * 3, "users": [4.0] * 3}}
    text = json.dumps(
        {"name": "old", "arm_names": None, "key_term_names": None, "user_ids": None, "origin": options | norms}
    )
    texts = {"text": text, "fingerprint": "126cef35374f1be83160030f3997fa8f"}
    rows = {"arms": np.eye(2), "key_terms": np.eye(2), "users": np.eye(2)[1:]}
    path = tmp_path / "old.npz"
    np.savez(path, **rows, **{key: np.frombuffer(value.encode(), np.uint8) for key, value in texts.items()})
    old = fb.Catalog.load(path)
    assert old.user_bound == 1.0
    shown = str(old.describe())
    assert "user_norm" not in shown
    assert "norms before scaling  arms 3 to 3, median 3; key terms 1 to 1, median 1; users 4 to 4, median 4" in shown
    assert "norms                 arms 1 to 1, median 1; key terms 1 to 1, median 1; users 1 to 1, median 1" in shown


def test_fingerprint_depends_on_everything():
    catalog = make()
    assert catalog.fingerprint == make().fingerprint
    nudged = {key: np.nextafter(getattr(catalog, key), 2) for key in ("arms", "key_terms", "users")}
    others = {
        **nudged,
        "name": "yours",
        "arm_names": None,
        "key_term_names": ("x", "z"),
        "user_ids": ("1", "2", "4"),
        "origin": {},
        "weights": np.ones((4, 2)),
    }
    assert set(others) == {field.name for field in dataclasses.fields(fb.Catalog)}
    prints = {dataclasses.replace(catalog, **{key: value}).fingerprint for key, value in others.items()}
    assert len(prints | {catalog.fingerprint}) == 1 + len(others)


@pytest.mark.parametrize("key", ["arms", "key_terms", "users", "text", "fingerprint"])
def test_altered_content_is_an_error(key, tmp_path):
    path = make().save(tmp_path / "c.npz")
    content = parts(path)
    if key == "text":
        content[key] = np.frombuffer(content[key].tobytes().replace(b'"mine"', b'"mime"'), np.uint8)
    elif key == "fingerprint":
        content[key] = content[key][::-1]
    else:
        content[key][0, 0] += 1e-15
    np.savez(path, **content)
    sentence = r"c\.npz was altered: its content has the fingerprint \w{32}, not \w{32} as when saved$"
    with pytest.raises(ValueError, match=sentence):
        fb.Catalog.load(path)


def drop_users(data, path):
    content = parts(path)
    del content["users"]
    np.savez(path, **content)


def pickle_users(data, path):
    np.savez(path, **parts(path) | {"users": np.array([{"a": 1}], dtype=object)})


def other_fields(data, path):
    text = json.dumps({"name": "x", "arm_names": None, "key_term_names": None, "user_ids": None, "colour": 1})
    np.savez(path, **parts(path) | {"text": np.frombuffer(text.encode(), np.uint8)})


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, path: path.write_bytes(data[: len(data) // 2]),
        lambda data, path: path.write_bytes(data[:500] + b"\xff\xff" + data[502:]),
        lambda data, path: path.write_bytes(b""),
        lambda data, path: path.write_bytes(b"userId,movieId\n1,2\n"),
        lambda data, path: np.save(path.open("wb"), ROWS),
        drop_users,
        pickle_users,
        other_fields,
    ],
)
def test_damaged_file_is_an_error(damage, tmp_path):
    path = make().save(tmp_path / "c.npz")
    damage(path.read_bytes(), path)
    with pytest.raises(ValueError, match=r"c\.npz is not a catalog written by Catalog\.save, or it was altered$"):
        fb.Catalog.load(path)


def test_missing_file():
    with pytest.raises(FileNotFoundError, match=r"^nowhere\.npz does not exist; it must be a catalog written by"):
        fb.Catalog.load("nowhere.npz")


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    path = make().save(tmp_path / "c.npz")
    before = path.read_bytes()

    def full_disk(file, **content):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        fb.datasets.synthetic(dim=3).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("c.npy", r"c\.npy' is not allowed: it must be a file that ends in \.npz$"),
        ("no/c.npz", r"no/c\.npz' is not allowed: its folder .*no does not exist$"),
    ],
)
def test_bad_place(name, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        make().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arm_names": ["a"]}, "^arm_names has 1 entries; it must have one for each of 9 arms$"),
        ({"key_term_names": ["a"]}, "^key_term_names has 1 entries; it must have one for each of 9 key_terms$"),
        ({"user_ids": []}, "^user_ids has 0 entries; it must have one for each of 9 users$"),
        ({"origin": {"n": np.int64(3)}}, "^origin=.* is not allowed: it must be plain JSON$"),
    ],
)
def test_bad_names_and_origin(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        fb.Catalog.from_arrays(ROWS, ROWS, ROWS, **changes)


# --------------------------------------------------------------------------------------------------- description


def test_description_of_sizes_norms_and_origin():
    rows = np.diag([1.0, 2.0, 5.0])
    catalog = fb.Catalog.from_arrays(rows, rows[:2], 3 * rows[:1], origin={"density": 0.25, "raw": {"movies": 1234}})
    found = catalog.describe()
    assert (found["arms"], found["key_terms"], found["users"], found["dim"]) == (3, 2, 1, 3)
    assert found["norms"] == {"arms": [1, 2, 5], "key_terms": [1, 1.5, 2], "users": [3, 3, 3]}
    assert (found["key_term_rank"], found["key_terms_span"], found["realised_C"]) == (2, False, 0)
    shown = str(found).splitlines()
    assert "in the raw data       1,234 movies" in shown
    assert "density               0.25" in shown
    assert "key terms span        2 of 3 dimensions: not all of R^d" in shown
    assert "norms before scaling  arms 1 to 5, median 2; key terms 1 to 2, median 1.5; users 3 to 3, median 3" in shown
    assert "norms                 arms 1 to 1, median 1; key terms 1 to 1, median 1; users 3 to 3, median 3" in shown


def test_realised_C_of_known_key_terms():  # noqa: N802
    # Of the axes, (1, 1) / sqrt 2 is furthest; 10,000 random directions come within 1e-3 of it in the plane.
    plane = fb.Catalog.from_arrays(np.eye(2), np.eye(2), np.eye(2))
    assert np.sqrt(0.5) <= plane.realised_C < np.sqrt(0.5) + 1e-3
    # Two key terms at a small angle: the direction across them, a singular vector, is furthest.
    near = fb.Catalog.from_arrays(np.eye(2), [[1, 1e-4], [1, -1e-4]], np.eye(2))
    assert near.realised_C == pytest.approx(1e-4, rel=1e-3)
    # In many parts as in one.
    many = fb.datasets.synthetic(dim=5, num_key_terms=2000, num_arms=3000)
    random = np.random.default_rng(0).normal(size=(10_000, 5))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    probes = np.concatenate([random, np.linalg.svd(many.key_terms, full_matrices=False)[2]])
    assert many.realised_C == pytest.approx(np.abs(probes @ many.key_terms.T).max(axis=1).min(), rel=1e-12)

"""Features in the format of ConLinUCB's public code: what is read, what is scaled, and every bad line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.cli import sweep_file
from tests import archives

REAL = Path(__file__).parents[3] / "shared" / "data" / "conlinucb-lastfm"
ARMS, RELATION, USERS = "arm_info.txt", "arm_suparm_relation.txt", "user_preference.txt"


def written(folder, files=None):
    """The folder `small` with these files."""
    (folder / "small").mkdir()
    for name, data in (files or archives.conlinucb()).items():
        (folder / "small" / name).write_bytes(data)
    return folder / "small"


def vectors(data, name):
    return np.array([np.ravel(json.loads(line)[name]) for line in data.split(b"\r\n") if line])


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def by_the_letter(files, scale=lambda rows: rows):
    """Arms, key terms, users and weights, one key term after another; scale is what is done to arms and key terms."""
    arms, users = scale(vectors(files[ARMS], "fv")), vectors(files[USERS], "preference_v")
    lines = [re.findall(rb"\d+", line) for line in files[RELATION].split(b"\r\n") if line]
    listed = {int(arm): [int(k) for k in terms] for arm, *terms in lines}
    ids = sorted({k for terms in listed.values() for k in terms})
    weights = np.array([[(k in listed[a]) / len(listed[a]) for k in ids] for a in range(len(arms))])
    means = [sum(w * x for w, x in zip(column, arms, strict=True)) / sum(column) for column in weights.T]
    return arms, scale(np.array(means)), users, weights


@pytest.mark.parametrize("normalise", [False, True])
def test_reads_what_is_there(normalise, tmp_path):
    files = archives.conlinucb()
    catalog = fb.datasets.conlinucb(written(tmp_path, files), normalise=normalise)
    arms, key_terms, users, weights = by_the_letter(files, unit if normalise else np.array)
    if not normalise:
        np.testing.assert_array_equal(catalog.arms, arms)
    np.testing.assert_array_equal(catalog.users, users)
    for found, wanted in ((catalog.arms, arms), (catalog.key_terms, key_terms), (catalog.weights.toarray(), weights)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)  # sums of 12 terms in another order
    mean = catalog.weights.T @ catalog.arms / catalog.weights.sum(axis=0)[:, None]
    np.testing.assert_allclose(unit(mean) if normalise else mean, catalog.key_terms, rtol=1e-12, atol=1e-14)
    assert catalog.name == "small"
    assert catalog.arm_names == tuple(map(str, range(12)))
    assert set(catalog.key_term_names) <= {str(3 * k) for k in range(1, 11)}
    assert catalog.user_ids == tuple(map(str, range(5)))
    sizes = {"arms": 12, "key terms": len(key_terms), "users": 5, "links": int((weights > 0).sum())}
    assert catalog.origin["raw"] == sizes
    assert catalog.origin["options"] == {"normalise": normalise, "user_norm": "given"}
    assert f"options               normalise {normalise}, user_norm given" in str(catalog.describe())


def test_norms_of_users_and_name(tmp_path, monkeypatch):
    folder = written(tmp_path)
    plain = fb.datasets.conlinucb(folder)
    for norm, length in (("unit", 1), (2.5, 2.5)):
        catalog = fb.datasets.conlinucb(folder, user_norm=norm, name="mine")
        np.testing.assert_allclose(catalog.users, length * unit(plain.users), rtol=1e-12)
        np.testing.assert_array_equal(catalog.key_terms, plain.key_terms)
        assert (catalog.name, catalog.origin["options"]["user_norm"]) == ("mine", norm)
    monkeypatch.chdir(folder)
    assert fb.datasets.conlinucb(".").fingerprint == plain.fingerprint


@pytest.mark.parametrize("form", ["zip", "tgz", "folder"])
def test_is_known_by_its_files(form, tmp_path):
    path = archives.pack(archives.conlinucb(), tmp_path, form)
    catalog = fb.datasets.load(path, normalise=True, name="same")
    assert catalog.fingerprint == fb.datasets.conlinucb(path, normalise=True, name="same").fingerprint
    assert fb.datasets.load(path).name == ("unpacked" if form == "folder" else "packed")


def test_the_shell_and_files_of_sweeps_read_it(tmp_path):
    folder, out = written(tmp_path), tmp_path / "small.npz"
    arguments = ["data", "prepare", str(folder), str(out), "--normalise", "--user-norm", "unit"]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    wanted = fb.datasets.conlinucb(folder, normalise=True, user_norm="unit").fingerprint
    assert fb.Catalog.load(out).fingerprint == wanted
    shown = CliRunner().invoke(cli.app, ["data", "describe", str(folder)]).output
    assert str(fb.datasets.conlinucb(folder).describe()) in shown
    data = '[data]\npath = "small"\nnormalise = true\nuser_norm = "unit"\n'
    file = tmp_path / "sweep.toml"
    file.write_text(data + '[[algorithms]]\nname = "LinUCB"\n')
    assert sweep_file.read(file).catalogs()[0].fingerprint == wanted


# --------------------------------------------------------------------------------------------------- bad input


def broken_line(name, line, new):
    made = archives.conlinucb()
    lines = made[name].split(b"\r\n")
    lines[line - 1 : line] = [] if new is None else [new]
    return made | {name: b"\r\n".join(lines)}


def arm(vector, identity=2):
    return json.dumps({"a_id": identity, "fv": vector}).encode()


NO_COLUMN = rf"line 3 of {ARMS} has no column of numbers, \[\[x1\], \[x2\], \.\.\.\], for fv$"
SENTENCES = {
    "no arms": ({n: d for n, d in archives.conlinucb().items() if n != ARMS}, rf"has no file {ARMS}$"),
    "no users": ({n: d for n, d in archives.conlinucb().items() if n != USERS}, rf"has no file {USERS}$"),
    "no relation": (
        {n: d for n, d in archives.conlinucb().items() if n != RELATION},
        rf"holds no known data set; it must hold one of .*, {RELATION}$",
    ),
    "empty arms": (archives.conlinucb() | {ARMS: b""}, rf"line 1 of {ARMS} is missing; it must have a_id and fv$"),
    "empty relation": (
        archives.conlinucb() | {RELATION: b""},
        rf"line 1 of {ARMS} has a_id 0, which {RELATION} does not have$",
    ),
    "broken JSON": (broken_line(ARMS, 3, b'{"a_id": 2'), rf"line 3 of {ARMS} is not valid JSON \(Expecting ',' delimi"),
    "no object": (broken_line(USERS, 3, b"[1]"), rf"line 3 of {USERS} is not a JSON object$"),
    "no id": (broken_line(ARMS, 3, b'{"fv": [[1]]}'), rf"line 3 of {ARMS} has a_id None; it must be a whole number$"),
    "id that is a word": (broken_line(ARMS, 3, arm([[1]], "x")), rf"line 3 of {ARMS} has a_id 'x'; it must be a whole"),
    "id that is there": (broken_line(ARMS, 3, arm([[1]] * 4, 0)), rf"line 3 of {ARMS} has a_id 0, as line 1 has$"),
    "no vector": (broken_line(ARMS, 3, b'{"a_id": 2}'), NO_COLUMN),
    "row": (broken_line(ARMS, 3, arm([1, 2, 3, 4])), NO_COLUMN),
    "words": (broken_line(ARMS, 3, arm([["1"]] * 4)), NO_COLUMN),
    "not a number": (broken_line(ARMS, 3, arm([[1], [float("nan")], [1], [1]])), NO_COLUMN),
    "beyond floats": (broken_line(ARMS, 3, arm([[1], [10**400], [1], [1]])), NO_COLUMN),
    "two in a row": (broken_line(ARMS, 3, arm([[1, 2], [3], [4], [5]])), NO_COLUMN),
    "zeros": (
        broken_line(ARMS, 3, arm([[0]] * 4)),
        rf"line 3 of {ARMS} has only zeros in fv; every row must",
    ),
    "ragged": (
        broken_line(ARMS, 3, arm([[1]] * 3)),
        rf"line 3 of {ARMS} has 3 numbers in fv; it must have 4, as line 1 has$",
    ),
    "users of other dimensions": (
        broken_line(USERS, 1, b'{"uid": 0, "preference_v": [[1], [2]]}'),
        rf"line 1 of {USERS} has 2 numbers in preference_v; it must have 4, as {ARMS} has$",
    ),
    "no tab": (
        broken_line(RELATION, 5, b"4 3,6,"),
        rf"line 5 of {RELATION} has 1 columns; it must have 2 \(arm, key terms\)$",
    ),
    "arm that is a word": (
        broken_line(RELATION, 5, b"four\t3,6,"),
        rf"line 5 of {RELATION} has arm 'four'; it must be a whole number$",
    ),
    "key term that is a word": (
        broken_line(RELATION, 5, b"4\t3,rock,"),
        rf"line 5 of {RELATION} has the key term 'rock'; it must be a whole number$",
    ),
    "no key terms": (
        broken_line(RELATION, 5, b"4\t"),
        rf"line 5 of {RELATION} has the key term ''; it must be",
    ),
    "key term twice": (
        broken_line(RELATION, 5, b"4\t3,6,3,"),
        rf"line 5 of {RELATION} has a key term twice; the key terms of an arm must differ$",
    ),
    "arm twice": (broken_line(RELATION, 5, b"3\t3,"), rf"line 5 of {RELATION} has the arm 3, as a line before it has$"),
    "unknown arm": (
        broken_line(RELATION, 5, b"77\t3,"),
        rf"line 5 of {RELATION} has the arm 77, which {ARMS} does not have$",
    ),
    "arm without key terms": (
        broken_line(RELATION, 5, None),
        rf"line 5 of {ARMS} has a_id 4, which {RELATION} does not have$",
    ),
    "invalid UTF-8": (broken_line(RELATION, 5, b"4\t\xff,"), rf"line 5 of {RELATION} is not valid UTF-8$"),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_bad_content_ends_in_one_sentence(case, tmp_path):
    made, sentence = SENTENCES[case]
    folder = written(tmp_path, made)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence) as caught:
        fb.datasets.load(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"user_norm": "svd"}, r"user_norm='svd' is not allowed: .* in \(0, infinity\) or 'unit' or 'given'$"),
        ({"normalise": 1}, "normalise=1 is not allowed: it must be True or False$"),
        ({"name": ""}, "name='' is not allowed: it must be a word, or None for the name of the folder$"),
        ({"normalize": True}, "'normalize' is not an option of this data set: did you mean 'normalise'[?]$"),
        ({"dim": 5}, "'dim' is not an option of this data set: there is normalise, user_norm, name$"),
    ],
)
def test_bad_options(options, sentence, tmp_path):
    folder = written(tmp_path)
    for kind in (None, "conlinucb"):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            fb.datasets.load(folder, kind=kind, **options)
    with pytest.raises(ValueError, match=r"^'normalise' is not an option of this data set: there is num_arms, "):
        fb.datasets.load(archives.pack(archives.movielens(), tmp_path), normalise=True)


# --------------------------------------------------------------------------------------------------- the real folder


@pytest.fixture(scope="module")
def real():
    if not REAL.is_dir():
        pytest.skip(f"{REAL.name} is not in {REAL.parent}")
    return fb.datasets.load(REAL)


def test_sizes_and_norms_of_lastfm(real):
    assert (real.arms.shape, real.key_terms.shape, real.users.shape) == ((2000, 50), (2726, 50), (500, 50))
    assert real.name == "conlinucb-lastfm"
    for rows in (real.arms, real.users):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-9)
        np.testing.assert_allclose(rows[:, -1], np.sqrt(0.5), rtol=1e-9)  # the coordinate that lifts rewards above 0
    norms = np.linalg.norm(real.key_terms, axis=1)
    assert [round(float(x), 3) for x in (norms.min(), norms.mean(), norms.max())] == [0.718, 0.925, 1.0]
    assert real.key_term_rank == 50


def test_links_of_lastfm(real):
    per_arm, per_term = np.diff(real.weights.indptr), np.bincount(real.weights.indices)
    assert (per_arm.min(), per_arm.max(), (per_arm == 20).sum()) == (2, 20, 1011)
    assert (per_term.min(), per_term.max()) == (1, 1035)
    np.testing.assert_allclose(real.weights.sum(axis=1), 1, rtol=1e-12)
    mean = real.weights.T @ real.arms / real.weights.sum(axis=0)[:, None]
    np.testing.assert_allclose(mean, real.key_terms, atol=1e-12)

"""Weights of arms on key terms: what is taken, how it is kept, and every bad input with its sentence."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

import fedbandit_jax as fb

ROWS = np.random.default_rng(0).normal(size=(4, 3))
DENSE = np.array([[0.5, 0.5], [1, 0], [0, 0], [0.25, 0.75]])  # of 4 arms on 2 key terms


def make(weights=DENSE, **changes):
    return fb.Catalog.from_arrays(ROWS, ROWS[:2], ROWS, weights=weights, **changes)


FORMS = {
    "array": DENSE,
    "list": DENSE.tolist(),
    "float32": DENSE.astype(np.float32),
    "objects": DENSE.astype(object),
    "csr_array": sparse.csr_array(DENSE),
    "csc_matrix": sparse.csc_matrix(DENSE),
    "lil_array": sparse.lil_array(DENSE),
    "dia_matrix": sparse.dia_matrix(DENSE),
    "halves": sparse.coo_array((np.repeat(DENSE.ravel() / 2, 2), np.repeat(np.indices((4, 2)).reshape(2, 8), 2, 1))),
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_gives_the_same_weights(form):
    weights = make(FORMS[form]).weights
    assert isinstance(weights, sparse.csr_array)
    assert (weights.dtype, weights.shape, weights.nnz) == (np.float64, (4, 2), 5), "no entry for what is 0"
    np.testing.assert_array_equal(weights.toarray(), DENSE)
    assert make(FORMS[form]).fingerprint == make().fingerprint


def test_nobody_can_change_them():
    given = sparse.csr_array(DENSE)
    catalog = make(given)
    given.data[0] = 7
    np.testing.assert_array_equal(catalog.weights.toarray(), DENSE)
    for part in (catalog.weights.data, catalog.weights.indices, catalog.weights.indptr):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        catalog.weights[0, 0] = 1


def test_they_are_part_of_the_fingerprint():
    """A catalog without them has the one of earlier releases."""
    prints = {make(other).fingerprint for other in (None, DENSE, 2 * DENSE, DENSE[:, ::-1], 0 * DENSE)}
    assert len(prints) == 5
    assert dataclasses.replace(make(), weights=None).fingerprint == make(None).fingerprint
    bare = fb.Catalog.from_arrays(np.eye(2), np.eye(2), np.eye(2)[1:], name="old")
    assert bare.fingerprint == "6b15fc3f4708079c0776fd39203854db"
    assert bare.weights is None


def test_they_come_back_from_a_file(tmp_path):
    path = make().save(tmp_path / "c.npz")
    loaded = fb.Catalog.load(path).weights
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(loaded, part), getattr(make().weights, part))
        assert not getattr(loaded, part).flags.writeable
    assert fb.Catalog.load(make(None).save(path)).weights is None


@pytest.mark.parametrize(
    ("part", "change", "sentence"),
    [
        ("data", lambda x: x + 1, "was altered: its content has the fingerprint"),
        ("indices", lambda x: x + 9, "is not a catalog written by"),
        ("indices", lambda x: -1 - x, "is not a catalog written by"),
        ("indptr", lambda x: x[::-1], "is not a catalog written by"),
        ("indptr", lambda x: x[:-1], "is not a catalog written by"),
        ("data", lambda x: x[1:], "is not a catalog written by"),
    ],
)
def test_a_file_with_other_weights_is_an_error(part, change, sentence, tmp_path):
    path = make().save(tmp_path / "c.npz")
    with np.load(path) as file:
        content = dict(file)
    np.savez(path, **content | {f"weights_{part}": change(content[f"weights_{part}"])})
    with pytest.raises(ValueError, match=rf"c\.npz {sentence}"):
        fb.Catalog.load(path)
    del content[f"weights_{part}"]
    np.savez(path, **content)
    with pytest.raises(ValueError, match=r"c\.npz is not a catalog written by"):
        fb.Catalog.load(path)


def test_description_of_links():
    found = make().describe()
    assert (found["links"], found["key_terms_per_arm"]) == (5, [0, 1.5, 2])
    shown = str(found).splitlines()
    assert "links                 5" in shown
    assert "key terms an arm      0 to 2, median 1.5" in shown
    assert "links" not in make(None).describe()


def changed(value):
    weights = DENSE.copy()
    weights[3, 1] = value
    return weights


BAD = {
    "too few arms": (DENSE[:3], r"shape of weights=\(3, 2\) is not allowed: it must be \(4, 2\), a row an arm"),
    "turned": (sparse.csr_array(DENSE.T), r"shape of weights=\(2, 4\) is not allowed: it must be \(4, 2\)"),
    "1-D": (DENSE[0], r"shape of weights=\(2,\) is not allowed"),
    "a number": (1.0, r"shape of weights=\(\) is not allowed"),
    "ragged": ([[1, 2], [1]], r"weights=.* is not allowed: it must be a sparse matrix or a rectangular array of"),
    "words": (DENSE.astype(str), "weights=.* is not allowed: it must be a sparse matrix or a rectangular array"),
    "complex": (sparse.csr_array(DENSE + 0j), "weights=.* is not allowed: it must be a sparse matrix or"),
    "a table": ({"a": 1}, "weights=.* is not allowed: it must be a sparse matrix or a rectangular array of"),
    "masked": (np.ma.array(DENSE, mask=DENSE > 0.5), "weights=.* is not allowed: .* numbers, not a masked one"),
    "NaN": (changed(np.nan), r"weights\[3, 1\]=nan is not allowed: it must be a finite number of at least 0"),
    "infinite": (changed(np.inf), r"weights\[3, 1\]=inf is not allowed: it must be a finite number of at least 0"),
    "negative": (sparse.coo_array(changed(-0.5)), r"weights\[3, 1\]=-0.5 is not allowed: it must be a finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_refused(case):
    value, message = BAD[case]
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        make(value)
    assert "\n" not in str(caught.value)


def test_weights_need_key_terms():
    with pytest.raises(ValueError, match=r"^weights=.* is not allowed: it must be None where there are no key terms$"):
        fb.Catalog.from_arrays(ROWS, users=ROWS, weights=np.zeros((4, 0)))

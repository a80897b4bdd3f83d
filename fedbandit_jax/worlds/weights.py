"""Weights of a catalog: how much each arm carries of each key term, sparse.

Axis letters: A arms of the pool, J key terms.
"""

from typing import Any

import numpy as np

from fedbandit_jax import _checks

Weights = Any  # a scipy.sparse.csr_array, (A, J) float64; SciPy is slow to import, so that only those with weights do
PARTS = ("data", "indices", "indptr")


def check_weights(value: Any, num_arms: int, num_key_terms: int) -> Weights | None:
    """Finite weights of at least 0, a row an arm and a column a key term; None where there are none."""
    if value is None:
        return None
    from scipy import sparse

    if not num_key_terms:
        _checks.fail("weights", value, "it must be None where there are no key terms")
    must = "it must be a sparse matrix or a rectangular array of numbers"
    if _checks.masked(value):
        _checks.fail("weights", value, f"{must}, not a masked one")
    if sparse.issparse(value):
        numbers = value.astype(np.float64) if value.dtype.kind in "biuf" else None
    else:
        numbers = _checks.floats(value)
    if numbers is None:
        _checks.fail("weights", value, must)
    if numbers.shape != (num_arms, num_key_terms):
        shape = f"it must be {(num_arms, num_key_terms)}, a row an arm and a column a key term"
        _checks.fail("shape of weights", numbers.shape, shape)
    found = frozen(numbers)
    wrong = ~(np.isfinite(found.data) & (found.data >= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        arm = int(np.searchsorted(found.indptr, at, side="right")) - 1
        name = f"weights[{arm}, {found.indices[at]}]"
        _checks.fail(name, float(found.data[at]), "it must be a finite number of at least 0")
    return found


def frozen(weights: Any) -> Weights:
    """A copy with one entry a link, in order, none of them 0, and that nobody can change by accident."""
    from scipy import sparse

    found = sparse.csr_array(weights, dtype=np.float64, copy=True)
    found.check_format(full_check=True)  # a damaged file may have indices that are nowhere
    found.sum_duplicates()
    found.eliminate_zeros()
    for part in PARTS:
        getattr(found, part).setflags(write=False)
    return found


def weights_as_arrays(weights: Weights) -> dict[str, np.ndarray]:
    """As the arrays that a file keeps; their types do not depend on the machine."""
    types = dict.fromkeys(PARTS, "<i8") | {"data": "<f8"}
    return {f"weights_{part}": np.ascontiguousarray(getattr(weights, part), types[part]) for part in PARTS}


def weights_of_arrays(arrays: dict[str, np.ndarray], shape: tuple[int, int]) -> Weights:
    """What `weights_as_arrays` made arrays of."""
    from scipy import sparse

    return sparse.csr_array(tuple(arrays[f"weights_{part}"] for part in PARTS), shape=shape)


def key_terms_per_arm(weights: Weights) -> np.ndarray:
    return np.diff(weights.indptr)


def links_of(weights: Weights) -> np.ndarray:
    """The key terms of each arm, a row an arm, as long as the longest and padded with the number of key terms."""
    A, J = weights.shape
    count = key_terms_per_arm(weights)
    found = np.full((A, max(int(count.max(initial=0)), 1)), J, np.int32)
    place = np.arange(weights.nnz) - np.repeat(weights.indptr[:-1], count)
    found[np.repeat(np.arange(A), count), place] = weights.indices
    return found

"""RelativeConUCB: which key terms it compares; the learner against the NumPy oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.algorithms.conversational import relative_conucb as relative


def random_case(seed, J, d=5):
    """Key terms, Mt^-1 and X M^-1 of random histories."""
    rng = np.random.default_rng(seed)
    terms, arms, asked = rng.normal(size=(J, d)), rng.normal(size=(7, d)), rng.normal(size=(3, d))
    inverse = np.linalg.inv(np.eye(d) + asked.T @ asked)
    onto_arms = arms @ np.linalg.inv(0.5 * np.eye(d) + 0.5 * arms[:4].T @ arms[:4])
    return terms, inverse, onto_arms


def credit(f, inverse, onto_arms):
    return np.sum((onto_arms @ inverse @ f) ** 2) / (1 + f @ inverse @ f)


@pytest.mark.parametrize(("seed", "share"), [(0, 1.0), (1, 0.5), (2, 0.1), (3, 0.0)])
def test_the_best_pair_is_the_best_of_all(seed, share):
    """Of 70 key terms, in rows of 32; with one that may be asked about, it is compared with itself."""
    terms, inverse, onto_arms = random_case(seed, J=70)
    mask = np.random.default_rng(seed).random(70) < share
    mask[41] = True
    allowed = np.flatnonzero(mask)
    pairs = [(k, other) for k in allowed for other in allowed if k < other] or [(41, 41)]
    best = max(pairs, key=lambda pair: credit(terms[pair[0]] - terms[pair[1]], inverse, onto_arms))
    with jax.enable_x64(True):
        found = relative.best_difference(*(jnp.asarray(x) for x in (terms, mask, inverse, onto_arms.T @ onto_arms)))
    assert tuple(map(int, found)) == best


def test_equal_pairs_go_to_the_first():
    """Four key terms at the corners of a square, in a world that knows nothing: both diagonals are as good."""
    terms = jnp.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    eye, mask = jnp.eye(2), jnp.ones(4, bool)
    assert tuple(map(int, relative.best_difference(terms, mask, eye, eye))) == (0, 2)
    lanes = jax.vmap(relative.best_difference, in_axes=(None, 0, None, None))(
        terms, jnp.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]], bool), eye, eye
    )
    np.testing.assert_array_equal(lanes, [[0, 1, 3], [2, 3, 3]])

"""The synthetic catalog of RelativeConUCB: its recipe, spelled out draw by draw, and what was measured of it."""

import random

import numpy as np
import pytest

import fedbandit_jax as fb


@pytest.mark.parametrize(("seed", "A", "J", "d", "U"), [(0, 40, 9, 5, 4), (3, 6, 4, 2, 3)])
def test_follows_the_recipe(seed, A, J, d, U):
    """Scalar by scalar from the two global streams of a script: one of links, one of features."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    normal, uniform = np.random.normal, np.random.uniform
    pseudo, carriers = [], []
    for _ in range(J):
        pseudo.append(np.array([normal(0, 1) for _ in range(d - 1)]))
        carriers.append(random.sample(range(A), random.randint(1, min(10, A))))
    arms, terms_of = [], [[k for k in range(J) if a in carriers[k]] for a in range(A)]
    for a in range(A):
        mean = sum((pseudo[k] for k in terms_of[a]), np.zeros(d - 1)) / max(len(terms_of[a]), 1)
        x = np.array([normal(m, 1) for m in mean])
        arms.append([*x / np.sqrt(x @ x), 1])
    arms = np.array(arms)
    for _ in range(d - 1):
        normal(0, 0)
    users = []
    for _ in range(U):
        s = uniform(0, 1)
        u = np.array([normal(0, 1) for _ in range(d - 1)])
        users.append(np.array([*(s * u / np.sqrt(u @ u)), uniform(s, 2 - s)]) / 2)
    weights = np.array([[1 / len(terms_of[a]) if a in carriers[k] else 0 for k in range(J)] for a in range(A)])
    found = fb.datasets.synthetic_relative(seed, dim=d, num_arms=A, num_key_terms=J, num_users=U)
    np.testing.assert_allclose(found.arms, arms, rtol=1e-12)
    np.testing.assert_allclose(found.users, users, rtol=1e-12)
    np.testing.assert_allclose(found.weights.toarray(), weights, rtol=1e-12)
    np.testing.assert_allclose(found.key_terms, (weights / weights.sum(axis=0)).T @ arms, rtol=1e-12)


def test_has_what_was_measured():
    """Of the script's output: affinities 0.071 to 0.950, 0.496 on average; key terms 1.259 long on average."""
    catalog = fb.datasets.synthetic_relative()
    assert (catalog.arms.shape, catalog.key_terms.shape, catalog.users.shape) == ((5000, 50), (500, 50), (200, 50))
    affinity = catalog.users @ catalog.arms.T
    np.testing.assert_allclose([affinity.min(), affinity.max(), affinity.mean()], [0.071, 0.950, 0.496], atol=5e-4)
    np.testing.assert_allclose(np.linalg.norm(catalog.arms, axis=1), np.sqrt(2))
    assert np.linalg.norm(catalog.key_terms, axis=1).mean() == pytest.approx(1.259, abs=5e-4)
    carriers = np.bincount(catalog.weights.indices, minlength=500)
    assert (carriers.min(), carriers.max()) == (1, 10)
    # Of 50 arms, about 27 key terms are carried.
    pools = [np.random.default_rng(i).choice(5000, 50, replace=False) for i in range(200)]
    related = [len(set(catalog.weights[pool].indices)) for pool in pools]
    assert np.mean(related) == pytest.approx(26, abs=1.5)
    assert fb.datasets.synthetic_relative().fingerprint == catalog.fingerprint
    assert fb.datasets.synthetic_relative(1).fingerprint != catalog.fingerprint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dim": 1}, r"dim=1 is not allowed"),
        ({"seed": -1}, r"seed=-1 is not allowed"),
        ({"num_arms": 0}, r"num_arms=0 is not allowed"),
        ({"num_users": 10**15}, r"num_users=1000000000000000 is not allowed: the catalog takes"),
    ],
)
def test_checks_its_sizes(given, message):
    with pytest.raises(ValueError, match=message):
        fb.datasets.synthetic_relative(**given)

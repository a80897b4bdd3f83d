"""CtoF-ConUCB: its clusters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.algorithms.conversational.ctof_conucb import cluster_means, greedy_centres

CATALOG = fb.datasets.synthetic(seed=5, dim=6, num_arms=80, num_key_terms=25, num_users=8)
SETTING = {"clients": 1, "arms": 10, "horizon": 100, "users": 1}


def rows_of(seed, n=12, d=4):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def padded(rows, more=5):
    """The rows among rows that are not there."""
    mask = np.arange(len(rows) + more) < len(rows)
    return jnp.asarray(np.concatenate([rows, np.zeros((more, rows.shape[1]))])), jnp.asarray(mask)


def centres_by_hand(rows):
    order = [0]
    while len(order) < len(rows):
        rest = [i for i in range(len(rows)) if i not in order]
        nearest = [min(np.linalg.norm(rows[i] - rows[c]) for c in order) for i in rest]
        order.append(rest[int(np.argmax(nearest))])
    return order


def clusters_by_hand(rows, centres, steps):
    for _ in range(steps + 1):
        nearest = [int(np.argmin([np.linalg.norm(row - centre) for centre in centres])) for row in rows]
        groups = [[row for row, n in zip(rows, nearest, strict=True) if n == c] for c in range(len(centres))]
        centres = [np.mean(group, axis=0) for group in groups if group]
    return centres


def clusters(rows, n, steps):
    """The means that are there, in order."""
    means = cluster_means(*padded(rows), greedy_centres(*padded(rows)), jnp.int32(n), steps)
    return [mean for mean in np.asarray(means) if mean.any()]


@pytest.mark.parametrize("seed", range(3))
def test_centres_are_as_far_apart_as_can_be(seed):
    with jax.enable_x64(True):
        rows = rows_of(seed)
        order = np.asarray(greedy_centres(*padded(rows)))
    assert order[: len(rows)].tolist() == centres_by_hand(rows)


def test_copies_are_centres_once_each():
    rows = np.repeat(rows_of(1, n=3), 3, axis=0)
    order = np.asarray(greedy_centres(*padded(rows)))
    assert sorted(order[: len(rows)]) == list(range(len(rows)))
    assert len({tuple(rows[i]) for i in order[:3]}) == 3
    np.testing.assert_allclose(sorted(map(tuple, clusters(rows, 9, 2))), sorted(map(tuple, rows[::3])), rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 3])
def test_clusters_are_those_of_k_means(steps):
    with jax.enable_x64(True):
        for seed in range(3):
            rows = rows_of(seed)
            for n in (1, 2, 5, 11, 12):
                expected = clusters_by_hand(rows, [rows[i] for i in centres_by_hand(rows)[:n]], steps)
                np.testing.assert_allclose(clusters(rows, n, steps), expected, rtol=1e-12)


def test_one_cluster_is_the_mean_and_as_many_as_rows_are_the_rows():
    with jax.enable_x64(True):
        rows = rows_of(2)
        np.testing.assert_allclose(clusters(rows, 1, 4), [rows.mean(axis=0)])
        np.testing.assert_allclose(clusters(rows, len(rows), 4), rows[centres_by_hand(rows)])


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"lloyd=1\.5 is not allowed: it must be a whole number of at least 0"):
        fb.simulate(CATALOG, fb.CtoFConUCB(lloyd=1.5), **SETTING)
    with pytest.raises(ValueError, match="delta_c=-1 is not allowed"):
        fb.simulate(CATALOG, fb.CtoFConUCB(delta_c=-1), **SETTING)
    with pytest.raises(ValueError, match="CtoF-ConUCB clusters the arms that it starts with, so contexts='redrawn'"):
        fb.simulate(CATALOG, fb.CtoFConUCB(), **SETTING, world=fb.World(contexts="redrawn"))


def test_it_needs_no_key_terms():
    bare = fb.Catalog.from_arrays(CATALOG.arms, None, CATALOG.users)
    assert fb.simulate(bare, fb.CtoFConUCB(), **SETTING).final()["conversations"].tolist() == [20]

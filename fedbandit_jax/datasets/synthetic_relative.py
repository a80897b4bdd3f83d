"""The synthetic catalog of RelativeConUCB, whose expected rewards are probabilities."""

import random

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.datasets.features import key_term_means, term_weights
from fedbandit_jax.datasets.synthetic import check_memory
from fedbandit_jax.worlds.catalog import Catalog

MOST_ARMS = 10  # that carry a key term


def synthetic_relative(
    seed: int = 12345,
    *,
    dim: int = 50,
    num_arms: int = 5000,
    num_key_terms: int = 500,
    num_users: int = 200,
) -> Catalog:
    """Draw the synthetic catalog of Xie, Yu, Zhao and Li, "Comparison-based Conversational Recommender System", 2021.

    Every key term has pseudo features Normal(0, I) in d - 1 dimensions and U{1..10} arms that carry it, so that most
    arms carry none. An arm is Normal(mean of its pseudo key terms, I), of unit norm, with a last coordinate of 1: its
    norm is sqrt(2). A key term is the weighted mean of its arms, not scaled. A user is (s u, b) / 2 with a random unit
    vector u, s ~ U(0, 1) and b ~ U(s, 2 - s). So x.theta is between 0 and 1: World(rewards="zero-one") is its world.

    Generators and order of the draws are those of the authors' script, and 12345 is its seed: the default should be
    their catalog. The authors' own files were not there to compare with.
    """
    seed = _checks.whole("seed", seed, 0, 2**32 - 1)
    dim = _checks.whole("dim", dim, 2)
    rows = {"num_arms": num_arms, "num_key_terms": num_key_terms, "num_users": num_users}
    rows = {name: _checks.whole(name, value) for name, value in rows.items()}
    num_arms, num_key_terms, num_users = rows.values()
    check_memory(dim, rows)
    links, features = random.Random(seed), np.random.RandomState(seed)
    terms: list[list[int]] = [[] for _ in range(num_arms)]
    for k in range(num_key_terms):
        carriers = links.randint(1, min(MOST_ARMS, num_arms))
        for arm in links.sample(range(num_arms), carriers):
            terms[arm].append(k)
    pseudo = features.normal(size=(num_key_terms, dim - 1))
    means = np.stack([pseudo[carried].mean(axis=0) if carried else np.zeros(dim - 1) for carried in terms])
    arms = unit(means + features.normal(size=(num_arms, dim - 1)))
    arms = np.column_stack([arms, np.ones(num_arms)])
    features.normal(size=dim - 1)  # what users have in common, of scale 0
    users = np.stack([draw_user(features, dim) for _ in range(num_users)])
    carried = [np.array(one, np.int64) for one in terms]
    return Catalog.from_arrays(
        arms,
        key_term_means(arms, carried, num_key_terms),
        users,
        weights=term_weights(carried, num_key_terms),
        normalise=False,
        name="synthetic_relative",
    )


def draw_user(features: np.random.RandomState, dim: int) -> np.ndarray:
    scale = features.uniform()
    taste = scale * unit(features.normal(size=(1, dim - 1)))[0]
    return np.append(taste, features.uniform(scale, 2 - scale)) / 2


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)

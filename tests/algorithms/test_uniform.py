"""Uniform play against the oracle, with and without padding."""

import jax
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.worlds.problem import sample_problem
from tests import reference


@pytest.mark.parametrize("grid", [{"clients": 3, "arms": 5}, {"clients": [4, 3], "arms": [5, 8]}])
def test_uniform_play_round_by_round(catalog, grid):
    M, K, T, user, seed = 3, 5, 23, 4, 2
    results = fb.sweep(
        catalog, fb.Uniform(), **grid, horizon=T, users=[user], seeds=[seed], seed=11, dtype="float64", checkpoints=T
    )
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(11), user), seed)
        theta = catalog.users[user]
        problem = jax.jit(sample_problem, static_argnames=("max_clients", "max_arms"))(
            jax.random.split(key)[0],
            catalog.arms,
            catalog.key_terms,
            theta[None],
            clients=M,
            num_arms=K,
            noise=0.1,
            horizon=T,
            max_clients=M,
            max_arms=K,
        )
        arms = np.asarray(problem.arms)
    table = results.to_pandas()
    table = table[(table["clients"] == M) & (table["arms"] == K)]
    np.testing.assert_array_equal(table["round"], np.arange(1, T + 1))
    clients = [reference.Client.of_normals(own, theta, 0.1, np.zeros(T)) for own in arms]
    regret = sum(reference.uniform(client, T).regret for client in clients)
    np.testing.assert_allclose(table["regret"], regret, rtol=1e-12)
    np.testing.assert_array_equal(table[["conversations", "communication"]], 0)
    np.testing.assert_allclose(table["theta_error"], np.linalg.norm(theta), rtol=1e-12)  # its estimate is 0
    assert results.phases().empty

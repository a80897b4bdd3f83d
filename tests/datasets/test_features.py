"""Factors of a feedback matrix: the SVD against dense NumPy, the logistic ones against what they must do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from fedbandit_jax.datasets import features


def likes(num_users=60, num_arms=90, rank=3, scale=2.0, seed=0):
    """Likes with the probabilities of a logistic model of low rank, and these probabilities."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(num_users, rank)) @ rng.normal(size=(rank, num_arms)) - 1
    return sparse.csr_matrix(rng.random(logits.shape) < expit(logits)), expit(logits)


# --------------------------------------------------------------------------------------------------- SVD


@pytest.mark.parametrize(("shape", "dim"), [((60, 90), 10), ((90, 60), 10), ((12, 40), 12)])  # the last is full rank
def test_svd_is_numpys(shape, dim):
    R, _ = likes(*shape)
    found = features.svd_factors(R, dim, seed=0)
    left, values, right = np.linalg.svd(R.toarray().astype(float), full_matrices=False)
    np.testing.assert_allclose(found.singular_values, values[:dim], rtol=1e-10)
    product = left[:, :dim] * values[:dim] @ right[:dim]
    np.testing.assert_allclose(found.users * found.singular_values @ found.arms.T, product, atol=1e-9)
    np.testing.assert_allclose(found.users.T @ found.users, np.eye(dim), atol=1e-10)
    np.testing.assert_allclose(found.arms.T @ found.arms, np.eye(dim), atol=1e-10)


def test_svd_does_not_depend_on_the_start():
    R, _ = likes()
    first, second = (features.svd_factors(R, 6, seed) for seed in (0, 1))
    np.testing.assert_allclose(first.arms, second.arms, atol=1e-9)
    np.testing.assert_allclose(first.users, second.users, atol=1e-9)


def test_signs_are_fixed_by_the_largest_entry():
    arms = np.array([[0.1, -0.7], [-0.5, 0.7 * (1 + 1e-12)], [0.5 * (1 - 1e-12), 0.1]])  # ties but for rounding
    users = np.array([[1.0, 2.0]])
    for sign in ([1, 1], [1, -1], [-1, 1], [-1, -1]):
        fixed_users, fixed_arms = features.fix_signs(users * np.array(sign), arms * np.array(sign))
        np.testing.assert_array_equal(fixed_arms, -arms)
        np.testing.assert_array_equal(fixed_users, -users)


def test_svd_of_too_little_rank():
    R = sparse.csr_matrix(np.kron(np.eye(3, dtype=bool), np.ones((4, 5), bool)))
    with pytest.raises(ValueError, match=r"^dim=4 is not allowed: the feedback has rank 3, so it must be at most 3$"):
        features.svd_factors(R, 4, seed=0)


# --------------------------------------------------------------------------------------------------- key terms


def test_key_terms_are_weighted_means():
    arms = np.array([[1.0, 0], [0, 1], [4, 4]])
    means = features.key_term_means(arms, [np.array([0]), np.array([0, 1]), np.array([1, 2, 0, 4])], 5)
    # Weights 1, 1/2 and 1/4; nobody carries key term 3.
    total = (1 + 1 / 2 + 1 / 4, 1 / 2 + 1 / 4)
    expected = [[2 / total[0], 1.5 / total[0]], [1 / total[1], 1.5 / total[1]], [4, 4], [0, 0], [4, 4]]
    np.testing.assert_allclose(means, expected)


# --------------------------------------------------------------------------------------------------- logistic


def test_logistic_factors_predict_held_out_likes():
    R, probability = likes(120, 300)
    found = features.logistic_factors(R, 3, seed=0)
    loss = found.log_loss
    assert loss["factors"] < 0.85 * min(loss["a rate for each arm"], loss["one rate for all"])
    truth = -(np.where(R.toarray(), np.log(probability), np.log1p(-probability))).mean()
    # Nothing beats the truth but by the luck of 3600 held-out cells; the fit has 1260 numbers to learn.
    assert truth - 0.05 < loss["factors"] < truth + 0.1
    # Balanced: each side carries the square root of the singular values.
    for side in (found.users, found.arms):
        np.testing.assert_allclose(side.T @ side, np.diag(found.singular_values), atol=1e-6 * found.singular_values[0])


def test_held_out_cells_take_no_part_in_the_fit():
    R, _ = likes()
    dense = R.toarray()
    key = jax.random.split(jax.random.key(5))[0]
    held = np.asarray(features.held_out_cells(key, jnp.arange(60), 90))
    assert 0.07 < held.mean() < 0.13
    rng = np.random.default_rng(0)
    shuffled = dense.copy()
    shuffled[held] = rng.permutation(dense[held])  # the density stays
    first, second = (features.logistic_factors(sparse.csr_matrix(x), 3, seed=5) for x in (dense, shuffled))
    np.testing.assert_array_equal(first.arms, second.arms)
    assert first.log_loss["factors"] < second.log_loss["factors"]
    dense[~held] = rng.permutation(dense[~held])
    assert not np.allclose(first.arms, features.logistic_factors(sparse.csr_matrix(dense), 3, seed=5).arms)


def test_held_out_loss_is_the_mean_over_cells_in_any_batches():
    R, _ = likes()
    rng = np.random.default_rng(0)
    model = features.LogisticModel(
        *(jnp.asarray(rng.normal(size=(rows, 3)), jnp.float32) for rows in R.shape), jnp.float32(-0.5)
    )
    key = jax.random.key(1)
    held = np.asarray(features.held_out_cells(key, jnp.arange(60), 90))
    liked = R.toarray()
    x, y = (np.asarray(part, np.float64) for part in model[:2])

    def loss(probability):
        probability = np.broadcast_to(probability, liked.shape)
        return -np.where(liked, np.log(probability), np.log1p(-probability))[held].mean()

    overall = liked[~held].mean()
    by_arm = (np.where(held, 0, liked).sum(axis=0) + overall) / ((~held).sum(axis=0) + 1)
    for batch in (60, 7):
        found = features.held_out_loss(model, key, R, batch)
        assert found["factors"] == pytest.approx(loss(expit(x @ y.T - 0.5)), rel=1e-5)
        assert found["one rate for all"] == pytest.approx(loss(overall), rel=1e-12)
        assert found["a rate for each arm"] == pytest.approx(loss(by_arm), rel=1e-12)


def test_batches_of_users_fit_about_as_well(monkeypatch):
    R, _ = likes(120, 300)
    whole = features.logistic_factors(R, 3, seed=0).log_loss
    monkeypatch.setattr(features, "CELLS_PER_STEP", 300 * 50)
    batched = features.logistic_factors(R, 3, seed=0).log_loss
    assert batched["factors"] == pytest.approx(whole["factors"], rel=0.1)
    assert batched["one rate for all"] == pytest.approx(whole["one rate for all"], rel=1e-9)


def test_logistic_factors_that_leave_dimensions_empty():
    R = sparse.csr_matrix(np.kron(np.eye(3, dtype=bool), np.ones((20, 30), bool)))  # three tastes: two directions
    with pytest.raises(
        ValueError, match=r"^dim=6 is not allowed: the logistic factors fill 2, so it must be at most 2$"
    ):
        features.logistic_factors(R, 6, seed=0)

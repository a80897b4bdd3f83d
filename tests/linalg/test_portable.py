"""Operations in the forms of all devices: the argmax of vectors and rows against NumPy's, and lanes that take turns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedbandit_jax.linalg import portable
from fedbandit_jax.linalg.portable import SLOTS

argmax_rows = jax.jit(portable.argmax_rows)

# Below, at and above one, two and three blocks of SLOTS columns.
WIDTHS = [1, 2, SLOTS - 1, SLOTS, SLOTS + 1, 2 * SLOTS - 1, 2 * SLOTS, 2 * SLOTS + 1, 3 * SLOTS + 8]


@pytest.mark.parametrize("width", WIDTHS)
def test_agrees_with_numpy(width):
    scores = np.random.default_rng(width).normal(size=(200, width)).astype(np.float32)
    found = np.asarray(argmax_rows(scores))
    np.testing.assert_array_equal(found, scores.argmax(axis=1))
    assert found.dtype == np.int32


@pytest.mark.parametrize("width", WIDTHS)
def test_every_column_can_win(width):
    scores = np.full((width, width), -1, np.float32)
    np.fill_diagonal(scores, 0)
    np.testing.assert_array_equal(argmax_rows(scores), np.arange(width))


def test_negative_scores_beat_the_padding():
    """Columns that only fill the last block must never win, however low the real ones are."""
    scores = np.full((3, SLOTS + 1), -np.inf, np.float32)
    scores[0, SLOTS], scores[1, 0] = -3e38, -3e38
    found = np.asarray(argmax_rows(scores))
    np.testing.assert_array_equal(found[:2], [SLOTS, 0])
    assert 0 <= found[2] <= SLOTS, "a row of -inf names one of its own columns"


def test_some_winner_of_a_tie():
    scores = np.random.default_rng(0).integers(0, 3, size=(100, 3 * SLOTS - 5)).astype(np.float32)
    found = np.asarray(argmax_rows(scores))
    np.testing.assert_array_equal(np.take_along_axis(scores, found[:, None], axis=1)[:, 0], scores.max(axis=1))


def test_vmap_and_float64():
    with jax.enable_x64(True):
        # 1e-12 apart, which only float64 tells.
        scores = 1 + 1e-12 * np.random.default_rng(0).permuted(np.tile(np.arange(130.0), (4, 5, 1)), axis=2)
        found = jax.vmap(argmax_rows)(scores)
        np.testing.assert_array_equal(found, scores.argmax(axis=2))


def test_ties_of_a_vector_go_to_the_first_on_every_device():
    scores = jnp.asarray(np.random.default_rng(0).integers(0, 9, size=(50, 40)), jnp.float32)
    for form in (portable.argmax, portable._argmax_by_reductions, portable._argmax_at_once):
        np.testing.assert_array_equal(jax.vmap(form)(scores), np.asarray(scores).argmax(axis=1))


def test_lanes_that_take_turns_do_what_they_do_side_by_side():
    """In two batches, one inside the other, with an argument that all lanes share."""
    pool = jnp.asarray(np.random.default_rng(0).normal(size=(30, 4)), jnp.float32)
    index = jnp.asarray(np.random.default_rng(1).integers(30, size=(3, 2, 5)))

    def rows(pool, index):
        return pool[index]

    found = jax.jit(jax.vmap(jax.vmap(lambda i: portable.in_turn(rows, pool, i))))(index)
    np.testing.assert_array_equal(found, pool[index])
    assert "scan" in str(jax.make_jaxpr(jax.vmap(lambda i: portable.in_turn(rows, pool, i)))(index[:, 0]))


def test_only_the_form_for_cpus_is_traced_where_there_is_nothing_else(monkeypatch):
    traced = []

    def form(name):
        return lambda x: traced.append(name) or x

    def play():
        traced.clear()
        jax.make_jaxpr(lambda x: portable.by_device(x, cpu=form("cpu"), default=form("default")))(1.0)
        return set(traced)

    assert play() == {"cpu"}
    monkeypatch.setattr(portable, "ELSEWHERE", ("tpu",))
    assert play() == {"cpu", "default"}
    monkeypatch.setattr(portable, "ELSEWHERE", ())
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert play() == {"cpu", "default"}


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("J", [1, 100, portable.BLOCK, 3 * portable.BLOCK + 7])
def test_the_largest_product_is_found_in_blocks_too(J, absolute, monkeypatch):
    rng = np.random.default_rng(J)
    rows, others = (jnp.asarray(rng.normal(size=(n, 6)), jnp.float32) for n in (40, J))
    products = np.asarray(rows) @ np.asarray(others).T
    expected = (np.abs(products) if absolute else products).argmax(axis=1)
    np.testing.assert_array_equal(jax.jit(portable.argmax_products, static_argnums=2)(rows, others, absolute), expected)
    monkeypatch.setattr(portable, "by_device", lambda *operands, cpu, default: default(*operands))
    np.testing.assert_array_equal(portable.argmax_products(rows, others, absolute), expected)


def test_only_what_is_outdated_is_made_anew(monkeypatch):
    """Else the old is kept, which shows here as it is not what would be made; accelerators make all of it anew."""
    outdated = jnp.asarray(np.random.default_rng(0).random((4, 3)) < 0.5)
    old, x = jnp.full((4, 3), -1.0), jnp.arange(12.0).reshape(4, 3)

    def renew():
        one = lambda outdated, old, x: portable.renewed(outdated, old, lambda x, y: x + y, x, jnp.float32(1))  # noqa: E731
        return jax.vmap(jax.vmap(one))(outdated, old, x)

    np.testing.assert_array_equal(renew(), jnp.where(outdated, x + 1, -1))
    monkeypatch.setattr(portable, "by_device", lambda *operands, cpu, default: default(*operands))
    np.testing.assert_array_equal(renew(), x + 1)


def test_a_row_is_put_in_place_in_a_batch():
    """Under two vmaps, without a scatter; what is not batched is the same everywhere."""
    rng = np.random.default_rng(0)
    rows, row = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((2, 3, 4, 5), (2, 3, 5)))
    put = jax.vmap(jax.vmap(portable.with_row, in_axes=(0, None, 0)), in_axes=(0, None, 0))
    np.testing.assert_array_equal(put(rows, jnp.int32(2), row), rows.at[:, :, 2].set(row))
    assert "scatter" not in str(jax.make_jaxpr(put)(rows, jnp.int32(2), row))
    alone = jax.vmap(portable.with_row, in_axes=(None, None, 0))(rows[0, 0], jnp.int32(1), row[0])
    np.testing.assert_array_equal(alone, jnp.stack([rows[0, 0]] * 3).at[:, 1].set(row[0]))


@pytest.mark.parametrize("columns", [1, 8, 11])
def test_a_product_with_whole_vectors_is_one_with_zeros_behind_it(columns):
    rng = np.random.default_rng(columns)
    x, A = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in (5, (5, columns)))
    padded = portable.whole_vectors(A)
    assert padded.shape[1] == -(-columns // portable.VECTOR) * portable.VECTOR
    for form in (portable.vecmat, portable._vecmat_by_sums):
        product = form(x, padded)
        np.testing.assert_allclose(product[:columns], np.asarray(x) @ np.asarray(A), rtol=1e-5, atol=1e-6)
        assert (product[columns:] == 0).all()


def test_two_products_are_products_in_both_forms():
    rng = np.random.default_rng(0)
    x, y, A = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in (4, 4, (4, 6)))
    for form in (portable.two_products, portable._two_products_at_once, portable._two_products_by_sums):
        for found, expected in zip(form(x, y, A), (x @ A, y @ A), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("M", [1, 2, 10, 16, 17, 40])
def test_half_a_solution_is_the_same_by_pivots_and_by_lapack(M):
    rng = np.random.default_rng(M)
    X, sides = rng.normal(size=(M, 5)), rng.normal(size=(M, 7))
    A = np.eye(M) + X @ X.T
    L = np.linalg.cholesky(A)
    with jax.enable_x64(True):
        for form in (portable.half_solved, portable._half_solved_by_lapack, portable._half_solved_by_pivots):
            solved, diagonal = form(jnp.asarray(A), jnp.asarray(sides))
            np.testing.assert_allclose(solved, np.linalg.solve(L, sides), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(diagonal, np.diag(L), rtol=1e-12)


def test_lanes_with_keys_of_their_own_have_copies_of_their_own():
    """Along both axes that the key has; what a lane has already stays as it is."""
    keys, shared, own = jnp.arange(12).reshape(2, 3, 2), jnp.array([5.0, 6.0]), jnp.arange(6.0).reshape(2, 3)
    found = jax.vmap(jax.vmap(lambda key, own: portable.for_each_lane(key, (shared, own))))(keys, own)
    np.testing.assert_array_equal(found[0], np.broadcast_to(shared, (2, 3, 2)))
    np.testing.assert_array_equal(found[1], own)


def test_a_loop_that_starts_with_copies_is_batched_once():
    """Without them, `vmap` tries the inner loop with what it starts with, then with what is batched later on."""
    tried = []

    @jax.custom_batching.custom_vmap
    def step(total, key):
        return total + key

    @step.def_vmap
    def _(size, batched, total, key):
        tried.append(batched)
        return total + key, True

    def run(key, own):
        start = portable.for_each_lane(key, jnp.int32(0)) if own else jnp.int32(0)
        inner = lambda _, total: jax.lax.fori_loop(0, 2, lambda _, total: step(total, key), total)  # noqa: E731
        return jax.lax.fori_loop(0, 2, inner, start)

    keys = jnp.arange(3, dtype=jnp.int32)
    counts = []
    for own in (True, False):
        tried.clear()
        np.testing.assert_array_equal(jax.vmap(lambda key, own=own: run(key, own))(keys), 4 * keys)
        counts.append(len(tried))
    assert counts[0] < counts[1]
    assert [True, True] in tried


def test_a_function_is_traced_once():
    calls = []

    def double(x, tree):
        calls.append(x)
        return {"sum": x + tree["y"] * outer}, x

    @jax.jit
    def twice(x, outer_value):
        nonlocal outer
        outer = outer_value  # something from outside, traced itself
        function, (told, _) = portable.traced(double, x, {"y": x})
        assert told["sum"].shape == (3,)
        first, x = function(x, {"y": x})
        return jax.lax.fori_loop(0, 2, lambda _, y: function(y, {"y": x})[0]["sum"], first["sum"])

    outer = None
    x = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(twice(x, 10.0), x * 31)
    assert len(calls) == 1

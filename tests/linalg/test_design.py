"""G-optimal designs, certified by an exact recomputation that shares nothing with the package."""

from functools import lru_cache

import hypothesis
import hypothesis.extra.numpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.linalg.design import (
    FEW,
    METHODS,
    Design,
    _multiplicative,
    alternating_qr,
    multi_client_design,
    on_support,
    pivoted_qr,
    spanning_design,
    whiten,
)
from tests import reference

K, D = 24, 6
RESOLUTION = {"float32": 1e-5, "float64": 1e-10}
ROUNDING = {"float32": 2e-6, "float64": 4e-15}  # what an exact null space seems to have


# ------------------------------------------------------------------------------------------------- arm sets


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def gaussian(rng):
    return unit(rng.normal(size=(K, D)))


def all_lengths(rng):
    """Short arms are useless: their weight has to vanish."""
    return gaussian(rng) * rng.uniform(0.02, 1, size=(K, 1))


def decaying_spectrum(rng):
    """Directions that matter less and less, down to 1/500 of the first."""
    return unit(rng.normal(size=(K, D)) * np.geomspace(1, 2e-3, D))


def rank_deficient(rng):
    return unit(rng.normal(size=(K, 3)) @ rng.normal(size=(3, D)))


def duplicates(rng):
    return unit(rng.normal(size=(4, D)))[rng.integers(4, size=K)]


def near_collinear(rng):
    """Pairs of arms 1e-3 apart, far enough for float32 to tell them."""
    half = rng.normal(size=(K // 2, D))
    return unit(np.concatenate([half, half + 1e-3 * rng.normal(size=half.shape)]))


def indistinguishable(rng):
    """Three directions, and copies of them off by what no precision here resolves: rank 3."""
    return unit(rng.normal(size=(3, D)))[np.arange(K) % 3] + 1e-13 * rng.normal(size=(K, D))


def zero_columns(rng):
    rows = rng.normal(size=(K, D))
    rows[:, [1, 4]] = 0
    return unit(rows)


def axes(rng):
    return np.eye(D)[np.arange(K) % D] * rng.choice([-1, 1], size=(K, 1))


FAMILIES = (
    gaussian,
    all_lengths,
    decaying_spectrum,
    rank_deficient,
    duplicates,
    near_collinear,
    indistinguishable,
    zero_columns,
    axes,
)


def problems(dtype):
    """Arm sets (B, K, D) of every family as that precision has them, masks (B, K), and names."""
    rng = np.random.default_rng(0)
    arms, masks, names = [], [], []
    for family in FAMILIES:
        for kept in (K, 15, D, 3, 1):
            arms.append(family(rng).astype(dtype))
            masks.append(np.isin(np.arange(K), rng.choice(K, kept, replace=False)))
            names.append(f"{family.__name__}, {kept} active")
    return np.stack(arms), np.stack(masks), names


BATCH = 5 * len(FAMILIES)


# ------------------------------------------------------------------------------------------------- the oracle


class Exact:
    """Rank, g and log det of designs on some arms, in float64 and coordinates of their own (an SVD).

    The package may err in its coordinates by the backward error of a QR, about sqrt(n d) units of rounding times the
    condition number of the arms, and by the directions that both drop as not resolved; `slack` is eight times that,
    for what follows from it in g and in log det / r.
    """

    def __init__(self, arms, mask, resolution=RESOLUTION):
        dtype = str(arms.dtype)
        active = arms[mask].astype(np.float64)
        U, singular, _ = np.linalg.svd(active, full_matrices=False)
        self.mask = mask
        self.rank = int((singular > resolution[dtype] * singular[0]).sum())
        self.rows = U[:, : self.rank]
        rounding = np.sqrt(active.size) * np.finfo(dtype).eps * singular[0]
        dropped = singular[self.rank] if self.rank < len(singular) else 0
        self.slack = 8 * (rounding + dropped) / singular[self.rank - 1]

    def information(self, weights):
        share = np.asarray(weights, np.float64)[self.mask]
        return self.rows.T @ (share[:, None] * self.rows)

    def g(self, weights):
        return np.einsum("nr,rs,ns->n", self.rows, np.linalg.inv(self.information(weights)), self.rows).max()

    def log_det(self, weights):
        return np.linalg.slogdet(self.information(weights))[1]


@lru_cache
def solver(method):
    """One compiled batch solver a method; the tolerance is traced."""

    def solve(arms, mask, tol):
        return fb.g_optimal_design(arms, mask, tol, method=method)

    return jax.jit(jax.vmap(solve, in_axes=(0, 0, None)))


def check_weights(weights, mask):
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all(), "weight off the mask"
    # A sum of n rounded shares; Frank-Wolfe also rounds in each of its steps, now up and now down.
    assert abs(weights.astype(np.float64).sum() - 1) < 4 * mask.sum() * np.finfo(weights.dtype).eps


def check_certified(design, arms, mask, tol, name=""):
    """Returns the exact log det, and the most by which it can miss the best."""
    exact = Exact(arms, mask)
    check_weights(design.weights, mask)
    assert design.rank == exact.rank, name
    g = exact.g(design.weights)
    assert g <= (1 + tol) * exact.rank * (1 + exact.slack), f"{name}: g = {g}, rank {exact.rank}"
    # No design has g < r, so one that does would mean an error of the oracle.
    assert g >= exact.rank * (1 - exact.slack), name
    as_given = Exact(arms, mask, ROUNDING)  # the value is of these, also where a design does without some directions
    np.testing.assert_allclose(design.value, as_given.g(design.weights), rtol=as_given.slack, err_msg=name)
    # log det V(pi*) - log det V(pi) <= r log(g(pi) / r), as the trace bounds the determinant.
    return exact.log_det(design.weights), exact.rank * (np.log1p(tol) + exact.slack)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3])
def test_every_method_is_certified_and_they_agree(tol, dtype):
    arms, masks, names = problems(dtype)
    with jax.enable_x64(dtype == "float64"):
        found = {method: jax.tree.map(np.asarray, solver(method)(arms, masks, tol)) for method in METHODS}
    for i, name in enumerate(names):
        log_dets = []
        for method, designs in found.items():
            design = Design(*(field[i] for field in designs))
            assert design.weights.dtype == dtype
            log_det, error = check_certified(design, arms[i], masks[i], tol, f"{method}, {name}")
            log_dets.append(log_det)
        assert np.ptp(log_dets) <= error, f"the methods disagree on {name}"


@pytest.mark.parametrize("method", ["multiplicative", "frank-wolfe"])
def test_the_size_of_the_papers_experiments(method):
    rng = np.random.default_rng(1)
    arms = unit(rng.normal(size=(8 * 100, 50))).astype(np.float32).reshape(8, 100, 50)
    masks = np.arange(100) < np.array([100, 90, 75, 60, 51, 50, 20, 2])[:, None]
    designs = jax.tree.map(np.asarray, solver(method)(arms, masks, 1e-2))
    for i in range(8):
        check_certified(Design(*(field[i] for field in designs)), arms[i], masks[i], 1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_fewer_arms_than_dimensions(method):
    """As many rows as the array has: linearly independent arms, for which uniform is the one optimum."""
    arms = unit(np.random.default_rng(2).normal(size=(6, 3, 7))).astype(np.float32)
    masks = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], bool)
    designs = jax.tree.map(np.asarray, solver(method)(arms, masks, 1e-3))
    np.testing.assert_array_equal(designs.rank, masks.sum(axis=1))
    np.testing.assert_allclose(designs.weights, masks / masks.sum(axis=1, keepdims=True), atol=1e-6)
    for i in range(6):
        check_certified(Design(*(field[i] for field in designs)), arms[i], masks[i], 1e-3)


# ------------------------------------------------------------------------------------------- known answers

GRID = np.unique(np.concatenate([np.linspace(-1, 1, 21), [-(5**-0.5), 5**-0.5]]))
KNOWN = {
    # Polynomial regression on [-1, 1]: the optimal points are the extrema of Legendre polynomials, each of weight
    # 1/r (Guest 1958).
    "line": (np.stack([GRID**p for p in range(2)], axis=1), {-1: 1 / 2, 1: 1 / 2}),
    "parabola": (np.stack([GRID**p for p in range(3)], axis=1), {-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}),
    "cubic": (np.stack([GRID**p for p in range(4)], axis=1), {-1: 1 / 4, -(5**-0.5): 1 / 4, 5**-0.5: 1 / 4, 1: 1 / 4}),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", KNOWN)
def test_optimal_points_of_polynomial_regression(case, method):
    arms, optimum = KNOWN[case]
    best = np.zeros(len(GRID))
    for point, weight in optimum.items():
        best[np.argmin(np.abs(GRID - point))] = weight
    everything = np.ones(len(GRID), bool)
    tol = 1e-3
    with jax.enable_x64(True):
        designs = solver(method)(arms[None], everything[None], tol)
        design = Design(*(np.asarray(field)[0] for field in designs))
    exact = Exact(arms, everything)
    assert exact.g(best) == pytest.approx(exact.rank, rel=1e-12)  # the literature's answer is optimal
    log_det, error = check_certified(design, arms, everything, tol)
    assert -1e-12 <= exact.log_det(best) - log_det <= error
    # Mass sits at the optimal points or at grid points beside them.
    near = np.convolve(best > 0, [1, 1, 1], mode="same") > 0
    assert design.weights[near].sum() > 0.98


FIVE = np.ones(5, bool)


@pytest.mark.parametrize("method", METHODS)
def test_symmetric_arm_sets_get_uniform_weights(method):
    simplex = np.eye(5) - 1 / 5  # five points, four dimensions
    for arms, rank in ((np.eye(5), 5), (simplex, 4)):
        designs = solver(method)(arms[None].astype(np.float32), FIVE[None], 1e-3)
        design = Design(*(np.asarray(field)[0] for field in designs))
        np.testing.assert_allclose(design.weights, 1 / 5, rtol=1e-5)
        assert design.value == pytest.approx(rank, rel=1e-5)
        assert (design.rank, design.iterations) == (rank, 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_dominated_arm_gets_nothing(method):
    """A shorter copy of an arm has less information: its weight vanishes and the others share."""
    arms = np.zeros((5, 5), np.float32)
    arms[[0, 1, 2, 3, 4], [0, 1, 2, 0, 1]] = [1, 1, 1, 0.5, 0.2]
    designs = solver(method)(arms[None], FIVE[None], 1e-3)
    design = Design(*(np.asarray(field)[0] for field in designs))
    # With g <= (1 + tol) 3 at each axis, every axis has weight of at least 1 / (3 (1 + tol)) - what copies add.
    assert design.weights[3:].sum() < 2e-3
    np.testing.assert_allclose(design.weights[:3], 1 / 3, atol=2e-3)


# ------------------------------------------------------------------------------------------- batches and masks


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_gives_what_its_members_give_alone(method):
    arms, masks, _ = problems("float64")
    chosen = np.arange(0, len(arms), 3)  # all families, all numbers of active arms
    with jax.enable_x64(True):
        together = jax.tree.map(np.asarray, solver(method)(arms, masks, 1e-2))
        alone = jax.jit(lambda x, m: fb.g_optimal_design(x, m, 1e-2, method=method))
        for i in chosen:
            single = jax.tree.map(np.asarray, alone(arms[i], masks[i]))
            assert (single.rank, single.iterations) == (together.rank[i], together.iterations[i])
            # The same steps with sums in another order: rounding, times the condition number of the arms.
            np.testing.assert_allclose(single.weights, together.weights[i], atol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_active_arms_of_many_have_the_design_that_they_have_alone(dtype):
    """Of any number, on both sides of FEW; also where some repeat others, so that the design is not unique but in g."""
    rng, n, d = np.random.default_rng(0), 60, 40
    with jax.enable_x64(dtype == "float64"):
        design = jax.jit(fb.g_optimal_design)
        for kept in (0, 1, FEW, FEW + 1):
            arms = unit(rng.normal(size=(n, d))).astype(dtype)
            mask = np.isin(np.arange(n), rng.choice(n, kept, replace=False))
            found, alone = design(arms, mask), design(arms[mask], np.ones(kept, bool)) if kept else None
            weights = np.asarray(found.weights)
            assert weights.dtype == dtype
            assert not weights[~mask].any()
            if alone is None:
                continue
            np.testing.assert_allclose(weights[mask], alone.weights, atol=1e-5 if dtype == "float32" else 1e-12)
            assert (int(found.rank), int(found.iterations)) == (int(alone.rank), int(alone.iterations))
            assert float(found.value) == pytest.approx(float(alone.value), rel=1e-5)
        arms[mask] = arms[mask][rng.integers(5, size=kept)]
        mask &= mask.cumsum() <= FEW
        found = design(arms, mask)
        assert found.rank == len(np.unique(arms[mask], axis=0))
        exact = Exact(arms, mask)
        assert exact.g(found.weights) <= (1 + 1e-2) * exact.rank * (1 + exact.slack)


def test_few_active_arms_take_turns_in_a_batch():
    """Lanes of few and of many active arms, side by side, have what each has alone."""
    rng, n, d = np.random.default_rng(1), 60, 40
    arms = unit(rng.normal(size=(4 * n, d))).reshape(4, n, d).astype(np.float32)
    mask = np.stack([np.arange(n) < kept for kept in (3, 60, FEW, FEW + 1)])
    together = jax.jit(jax.vmap(fb.g_optimal_design))(arms, mask).weights
    for i in range(4):
        np.testing.assert_allclose(together[i], jax.jit(fb.g_optimal_design)(arms[i], mask[i]).weights, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_mask_leaves_its_neighbours_alone(method):
    arms, masks, _ = problems("float32")
    reference = jax.tree.map(np.asarray, solver(method)(arms, masks, 1e-2))
    emptied = masks.copy()
    emptied[::4] = False
    designs = jax.tree.map(np.asarray, solver(method)(arms, emptied, 1e-2))
    others = emptied.any(axis=1)
    np.testing.assert_array_equal(designs.weights[others], reference.weights[others])
    np.testing.assert_array_equal(designs.value[others], reference.value[others])
    np.testing.assert_array_equal(designs.weights[~others], 0)
    np.testing.assert_array_equal(designs.rank[~others], 0)
    np.testing.assert_array_equal(designs.value[~others], 0)


def test_inactive_arms_do_not_matter():
    """Not even when they are not numbers."""
    arms, masks, _ = problems("float32")
    reference = solver("multiplicative")(arms, masks, 1e-2)
    rubbish = np.where(masks[:, :, None], arms, np.float32(np.nan))
    designs = solver("multiplicative")(rubbish, masks, 1e-2)
    jax.tree.map(np.testing.assert_array_equal, reference, designs)


@pytest.mark.parametrize("method", METHODS)
def test_designs_do_not_change_under_linear_maps(method):
    rng = np.random.default_rng(3)
    arms, masks, _ = problems("float64")
    turn, _ = np.linalg.qr(rng.normal(size=(D, D)))
    maps = {"stretched": turn * np.linspace(1, 5, D), "scaled": 1e6 * np.eye(D), "shrunk": 1e-6 * np.eye(D)}
    # Equal arms may share their weight in any way.
    tied = [FAMILIES.index(family) for family in (duplicates, indistinguishable, axes)]
    chosen = ~np.isin(np.arange(BATCH) // 5, tied)
    with jax.enable_x64(True):
        reference = np.asarray(solver(method)(arms, masks, 1e-2).weights)
        for name, A in maps.items():
            mapped = np.asarray(solver(method)(arms @ A, masks, 1e-2).weights)
            # The same whitened rows up to a rotation; 1e-7 is rounding times the condition number of the arms.
            np.testing.assert_allclose(mapped[chosen], reference[chosen], atol=1e-7, err_msg=name)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_direction_too_weak_for_a_design_shows_in_its_value(method, dtype):
    """Three directions, and a fourth that one arm alone has a little of: a design of rank 3 knows nothing of it."""
    rng = np.random.default_rng(5)
    arms = np.zeros((K, D))
    arms[:, :3] = unit(rng.normal(size=(K, 3)))
    everything = np.ones(K, bool)
    for weak, cut in ((2e-4, False), (1e-5 if dtype == "float32" else 1e-12, True), (0.0, False)):
        arms[0, 3] = weak
        given = arms.astype(dtype)
        with jax.enable_x64(dtype == "float64"):
            designs = solver(method)(np.stack([given] * BATCH), np.stack([everything] * BATCH), 1e-2)
        design = Design(*(np.asarray(field)[0] for field in designs))
        exact = Exact(given, everything, ROUNDING)
        assert (design.rank < exact.rank) == cut
        if cut:  # arm 0 alone tells of the fourth direction, so that its g is at least 1 / pi
            assert design.value >= 0.9 / design.weights[0] > 1.1 * design.rank
            np.testing.assert_allclose(design.value, exact.g(design.weights), rtol=0.2)
        else:
            assert design.value <= 1.01 * design.rank * (1 + exact.slack)


# ------------------------------------------------------------------------------------------------- whitening


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_routes_of_whitening_find_the_same_span(dtype):
    """The pivoted QR of CPUs and the plain QR steps of all other devices."""
    arms, masks, names = problems(dtype)
    active = np.where(masks[:, :, None], arms, 0)
    with jax.enable_x64(dtype == "float64"):
        routes = [jax.tree.map(np.asarray, jax.jit(jax.vmap(f))(active)) for f in (pivoted_qr, alternating_qr)]
    for i, name in enumerate(names):
        exact = Exact(arms[i], masks[i])
        span = np.zeros((K, exact.rank))
        span[masks[i]] = exact.rows
        for Q, diagonal in routes:
            counted = diagonal[i] > RESOLUTION[dtype] * diagonal[i].max()
            assert counted.sum() == exact.rank, name
            basis = Q[i][:, counted].astype(np.float64)
            np.testing.assert_allclose(basis @ basis.T, span @ span.T, atol=exact.slack, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("least", [1.0, 1e-2, 1e-4, 0.0])
def test_both_routes_whiten_many_arms(least, dtype):
    """More arms than a GPU turns into a Q by reflections, with directions down to little or nothing."""
    rng, n, d = np.random.default_rng(5), 300, 40
    scales = np.geomspace(1, least, d) if least else np.repeat([1.0, 0.0], [d // 4, d - d // 4])
    arms = unit(rng.normal(size=(n, d)) * scales @ np.linalg.qr(rng.normal(size=(d, d)))[0]).astype(dtype)
    eps = np.finfo(dtype).eps
    with jax.enable_x64(dtype == "float64"):
        routes = [jax.tree.map(np.asarray, jax.jit(f)(arms)) for f in (pivoted_qr, alternating_qr)]
    spans = []
    for Q, diagonal in routes:
        counted = diagonal > RESOLUTION[dtype] * diagonal.max()
        assert counted.sum() == (d if least else d // 4)
        basis = Q[:, counted].astype(np.float64)
        np.testing.assert_allclose(basis.T @ basis, np.eye(counted.sum()), atol=30 * eps)
        spans.append(basis @ basis.T)
    np.testing.assert_allclose(spans[0], spans[1], atol=30 * eps / max(least, 1e-2 if least == 0 else 0))


# ------------------------------------------------------------------------------------------------- properties


@hypothesis.given(
    arms=hypothesis.extra.numpy.arrays(np.int8, (K, D), elements=st.integers(-2, 2)),
    mask=hypothesis.extra.numpy.arrays(bool, K),
    method=st.sampled_from(sorted(METHODS)),
    tol=st.sampled_from([1e-1, 1e-2, 1e-3]),
)
def test_any_arm_set_of_small_integers(arms, mask, method, tol):
    """Small integers make duplicates, zero rows, opposite rows and dependent columns likely."""
    arms = arms.astype(np.float32)
    arms_of_batch, masks_of_batch = np.stack([arms] * BATCH), np.stack([mask] * BATCH)  # a shape compiled before
    designs = solver(method)(arms_of_batch, masks_of_batch, tol)
    design = Design(*(np.asarray(field)[0] for field in designs))
    if (arms[mask] == 0).all():
        assert (design.rank, design.value) == (0, 0)
        assert design.weights.sum() == pytest.approx(float(mask.any()))
    else:
        check_certified(design, arms, mask, tol)


@pytest.mark.usefixtures("without_type_checks")  # the limit of iterations is traced here
def test_the_best_iterate_is_kept():
    """Stopped after any number of iterations, a design has the value it says, and never a worse one than before."""
    arms, masks, names = problems("float64")
    stopped = jax.jit(jax.vmap(lambda x, m, n: _multiplicative(whiten(x, m), -1.0, n), in_axes=(0, 0, None)))
    best, worse = np.full(BATCH, np.inf), 0
    with jax.enable_x64(True):
        for limit in range(30):
            weights, value, _ = map(np.asarray, stopped(arms, masks, limit))
            for i, name in enumerate(names):
                exact = Exact(arms[i], masks[i])
                np.testing.assert_allclose(value[i], exact.g(weights[i]), rtol=exact.slack, err_msg=name)
            assert (value <= best).all()
            worse += (value == best).sum()
            best = value
    assert worse > BATCH, "no iterate was worse than the best: nothing was tested"


def test_unknown_method():
    arms, mask = jnp.eye(3), jnp.ones(3, bool)
    message = "^method='newton' is not allowed: it must be 'multiplicative' or 'frank-wolfe' or 'optax'$"
    with pytest.raises(ValueError, match=message):
        fb.g_optimal_design(arms, mask, method="newton")


# ----------------------------------------------------------------------------------------------------- several clients

solve_many = jax.jit(multi_client_design)


def exact_sum(arms, weights, active):
    """sum_i max_a a' V^+ a, and the rank of V, from NumPy alone."""
    V = np.einsum("mk,mkd,mke->de", weights, arms, arms)
    inverse = np.linalg.pinv(V, rcond=1e-12, hermitian=True)
    g = np.where(active, np.einsum("mkd,de,mke->mk", arms, inverse, arms), 0)
    return g.max(axis=1).sum(), np.linalg.matrix_rank(V, rtol=1e-12, hermitian=True)


@pytest.mark.parametrize("seed", range(6))
def test_the_least_value_of_several_clients_is_the_rank(seed):
    """10 clients, 20 arms each, 5 dimensions: within 3e-4 of d = 5 in 30 iterations; and it certifies itself."""
    arms = unit(np.random.default_rng(seed).normal(size=(200, 5))).reshape(10, 20, 5)
    everyone = np.ones((10, 20), bool)
    with jax.enable_x64(True):
        found = solve_many(jnp.asarray(arms), jnp.asarray(everyone), 3e-4 / 5)
    weights = np.asarray(found.weights)
    value, rank = exact_sum(arms, weights, everyone)
    assert int(found.iterations) <= 30
    assert rank == int(found.rank) == 5
    assert 5 - 1e-9 <= value <= 5 + 3e-4
    assert float(found.value) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_clients_with_masks_weak_spans_and_padding(dtype):
    """Arms in a plane of three dimensions, one client with a single arm and one with none: the rank is 3."""
    rng = np.random.default_rng(0)
    arms = unit(rng.normal(size=(4 * 12, 3)) @ rng.normal(size=(3, 6))).reshape(4, 12, 6)
    active = rng.random((4, 12)) < 0.6
    active[1] = np.arange(12) == 7
    active[3] = False
    with jax.enable_x64(dtype == "float64"):
        found = solve_many(jnp.asarray(arms, dtype), jnp.asarray(active), 1e-2)
        padded = jnp.pad(jnp.asarray(arms, dtype), ((0, 2), (0, 3), (0, 0)))
        again = solve_many(padded, jnp.pad(jnp.asarray(active), ((0, 2), (0, 3))), 1e-2)
    weights = np.asarray(found.weights, np.float64)
    value, rank = exact_sum(arms, weights, active)
    assert rank == int(found.rank) == 3
    assert value <= 3 * 1.01 * (1 + 1e-4)
    np.testing.assert_allclose(weights.sum(axis=1), [1, 1, 1, 0], rtol=1e-5)
    assert not weights[~active].any()
    wider = np.asarray(again.weights, np.float64)
    np.testing.assert_allclose(wider[:4, :12], weights, rtol=2e-3 if dtype == "float32" else 1e-9, atol=1e-6)
    assert not wider[4:].any()
    assert not wider[:, 12:].any()


def test_the_design_of_several_clients_equals_the_oracles():
    """The optimal V is one only; the oracle's plain iteration finds the same."""
    arms = unit(np.random.default_rng(2).normal(size=(3 * 7, 4))).reshape(3, 7, 4)
    active = np.random.default_rng(3).random((3, 7)) < 0.8
    with jax.enable_x64(True):
        found = np.asarray(solve_many(jnp.asarray(arms), jnp.asarray(active), 1e-6).weights)
    expected = np.stack(reference.multi_client_design(list(arms), list(active), tol=1e-6))
    V, W = (np.einsum("mk,mkd,mke->de", pi, arms, arms) for pi in (found, expected))
    np.testing.assert_allclose(V, W, atol=2e-3)


def test_one_clients_design_is_g_optimal():
    rng = np.random.default_rng(4)
    arms, active = unit(rng.normal(size=(K, D))), rng.random(K) < 0.7
    with jax.enable_x64(True):
        one = solve_many(jnp.asarray(arms)[None], jnp.asarray(active)[None], 1e-3)
        plain = fb.g_optimal_design(jnp.asarray(arms), jnp.asarray(active), 1e-3)
    np.testing.assert_allclose(one.weights[0], plain.weights, rtol=1e-9, atol=1e-12)
    assert int(one.iterations) == int(plain.iterations)


def test_small_weights_are_left_out():
    weights = jnp.asarray([[0.5, 0.4996, 0.0004, 0.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(on_support(weights), [[0.5 / 0.9996, 0.4996 / 0.9996, 0, 0], [0, 0, 0, 0]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", [gaussian, rank_deficient, duplicates, zero_columns, axes, all_lengths])
def test_spanning_designs_span_and_equal_the_oracles(family, dtype):
    """As many arms as asked for, or all; the first of them span what all span."""
    arms = family(np.random.default_rng(5))
    active = np.arange(K) % 5 != 1
    rank = np.linalg.matrix_rank(arms[active], rtol=1e-6)
    for size in (rank, 2 * rank, 2 * K):
        with jax.enable_x64(dtype == "float64"):
            found = np.asarray(spanning_design(jnp.asarray(arms, dtype), jnp.asarray(active), jnp.int32(size)))
        assert (found > 0).sum() == min(size, active.sum())
        assert not found[~active].any()
        assert found.sum() == pytest.approx(1, rel=1e-5)
        assert np.linalg.matrix_rank(arms[found > 0], rtol=1e-6) == rank
        if family in (gaussian, all_lengths):  # no ties but the first
            np.testing.assert_allclose(found, reference.spanning_design(arms, active, size), rtol=1e-5)

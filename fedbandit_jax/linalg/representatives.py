"""Rows that stand for many: a barycentric spanner (Awerbuch and Kleinberg 2004), and the centres of clusters."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.linalg.portable import any_lane, argmax, by_device, largest_of_lanes, matvec

BLOCK = 8  # centres that a CPU compares with all rows at a time: few, as it takes no more blocks than there are centres
COPY = 16  # roundings: of the norms of two rows, what their distance may be if one is a copy of the other


class Spanner(NamedTuple):
    indices: Int[Array, " d"]  # rows of the basis, the counted ones first
    rank: Int[Array, ""]  # how many count: the dimension of the rows' span


def barycentric_spanner(rows: Float[Array, "J d"], c: float = 2.0) -> Spanner:
    """Rows such that every row is a combination of them with coefficients in [-c, c], c > 1.

    Start from the unit vectors; replace each by the row with the largest coefficient on it; then swap while some
    coefficient exceeds c, which enlarges the determinant by more than c each time. Coefficients follow a swap by
    elimination. A unit vector that no row can replace, as the rows do not span R^d, stays out of the basis.
    """
    d = rows.shape[1]
    tiny = 1e-4 if rows.dtype == jnp.float32 else 1e-9

    def swap(state: tuple, row: Int[Array, ""], place: Int[Array, ""], wanted: Bool[Array, ""]) -> tuple:
        coefficients, indices = state
        pivot = coefficients[row, place]
        others = coefficients[row] - (jnp.arange(d) == place)
        scale = coefficients[:, place] / jnp.where(wanted, pivot, 1)
        new = coefficients - scale[:, None] * others[None, :]
        return jnp.where(wanted, new, coefficients), jnp.where(wanted, indices.at[place].set(row), indices)

    def fill(place: Int[Array, ""], state: tuple) -> tuple:
        column = jnp.abs(state[0][:, place])
        row = argmax(column)
        return swap(state, row, place, column[row] > tiny)

    def largest(coefficients: Float[Array, "J d"], indices: Int[Array, " d"]) -> Int[Array, ""]:
        return argmax(jnp.where((indices >= 0)[None, :], jnp.abs(coefficients), 0).ravel())

    def exceeds(state: tuple) -> Bool[Array, ""]:
        coefficients, indices = state
        return jnp.abs(coefficients.ravel()[largest(coefficients, indices)]) > c

    def improve(state: tuple) -> tuple:
        row, place = jnp.divmod(largest(*state), d)
        return swap(state, row, place, jnp.bool_(True))

    state = lax.fori_loop(0, d, fill, (rows, jnp.full(d, -1, jnp.int32)))
    _, indices = lax.while_loop(exceeds, improve, state)
    order = jnp.argsort(indices < 0, stable=True)
    return Spanner(indices[order], (indices >= 0).sum(dtype=jnp.int32))


def greedy_centres(rows: Float[Array, "K d"], mask: Bool[Array, " K"]) -> Int[Array, " K"]:
    """The rows in the order of greedy K-centre: the first one, then always the farthest from those before it.

    The first n of them are the n centres, whatever n is, up to the number of rows that `mask` allows.
    """
    K, nothing = len(rows), COPY * jnp.finfo(rows.dtype).eps
    norms = (rows**2).sum(axis=1)

    def one(i: Int[Array, ""], carry: tuple) -> tuple:
        order, distances = carry
        farthest = argmax(distances)
        # |x - y|^2 = |x|^2 + |y|^2 - 2 x.y, as a product is faster than a sum of squares; exactly 0 of copies, so that
        # ties break by index.
        both = norms + norms[farthest]
        gained = both - 2 * matvec(rows, rows[farthest])
        gained = jnp.where(gained < nothing * both, 0, gained)
        # A centre is none again, not even where all that is left are copies of centres.
        distances = jnp.where(jnp.arange(K) == farthest, -1, jnp.minimum(distances, gained))
        return order.at[i].set(farthest), jnp.where(mask, distances, -1)

    first = jnp.where(mask, jnp.inf, -1).astype(rows.dtype)
    return lax.fori_loop(0, K, one, (jnp.zeros(K, jnp.int32), first))[0]


def cluster_centres(
    rows: Float[Array, "K d"],
    mask: Bool[Array, " K"],
    order: Int[Array, " K"],
    n: Int[Array, ""],
    steps: int,
) -> Float[Array, "K d"]:
    """The centres of n clusters of rows: the first n of the order, after `steps` steps of K-means.

    Clusters beyond n and those that have become empty are 0.
    """
    by_blocks, at_once = partial(_clusters_by_blocks, steps=steps), partial(_clusters_at_once, steps=steps)
    return by_device(rows, mask, order, n, cpu=by_blocks, default=at_once)


def _clusters_at_once(
    rows: Float[Array, "K d"], mask: Bool[Array, " K"], order: Int[Array, " K"], n: Int[Array, ""], steps: int
) -> Float[Array, "K d"]:
    """In few kernels: as many centres as rows, of which those beyond n are not there."""
    place = jnp.arange(len(rows), dtype=jnp.int32)[:, None]

    def one(carry: tuple) -> tuple:
        centres, there = carry
        # |centre - row|^2 without |row|^2, which is the same for all centres; these come first, as reductions are
        # faster over the first axis.
        distances = jnp.where(there, (centres**2).sum(axis=1), jnp.inf)[:, None] - 2 * centres @ rows.T
        nearest = jnp.where(distances <= distances.min(axis=0)[None, :], place, len(rows)).min(axis=0)  # the first
        members = ((place == nearest[None, :]) & mask[None, :]).astype(rows.dtype)
        size = members.sum(axis=1)
        return members @ rows / jnp.maximum(size, 1)[:, None], size > 0

    there = jnp.arange(len(rows)) < n
    first = jnp.where(there[:, None], rows[order], 0), there
    return lax.fori_loop(0, steps, lambda _, clusters: one(clusters), first)[0]


def _clusters_by_blocks(
    rows: Float[Array, "K d"], mask: Bool[Array, " K"], order: Int[Array, " K"], n: Int[Array, ""], steps: int
) -> Float[Array, "K d"]:
    """No more blocks of centres than n takes, and no more steps once all rows stay where they are."""
    K, blocks = len(rows), (largest_of_lanes(n) + BLOCK - 1) // BLOCK
    place, padding = jnp.arange(BLOCK, dtype=jnp.int32), -K % BLOCK
    columns = rows.T

    def nearest_of(centres: Float[Array, "n d"], there: Bool[Array, " n"]) -> Int[Array, " K"]:
        def compare(b: Int[Array, ""], best: tuple) -> tuple:
            least, nearest = best
            block = lax.dynamic_slice_in_dim(centres, b * BLOCK, BLOCK)
            norms = (block**2).sum(axis=1)
            norms = jnp.where(lax.dynamic_slice_in_dim(there, b * BLOCK, BLOCK), norms, jnp.inf)
            distances = lax.optimization_barrier(norms[:, None] - 2 * block @ columns)
            for i in range(BLOCK):  # one after another, for all rows side by side
                nearer = distances[i] < least
                least = jnp.where(nearer, distances[i], least)
                nearest = jnp.where(nearer, b * BLOCK + i, nearest)
            return least, nearest

        none = jnp.full(K, jnp.inf, rows.dtype), jnp.full(K, K, jnp.int32)
        return jnp.where(mask, lax.fori_loop(0, blocks, compare, none)[1], K)

    def means_of(nearest: Int[Array, " K"], clusters: tuple) -> tuple:
        def gather(b: Int[Array, ""], clusters: tuple) -> tuple:
            members = (b * BLOCK + place[:, None] == nearest[None, :]).astype(rows.dtype)
            size = members.sum(axis=1)
            found = members @ rows / jnp.maximum(size, 1)[:, None], size > 0
            return jax.tree.map(
                lambda old, new: lax.dynamic_update_slice_in_dim(old, new, b * BLOCK, 0), clusters, found
            )

        return lax.fori_loop(0, blocks, gather, clusters)

    def one(carry: tuple) -> tuple:
        step, _, before, *clusters = carry
        nearest = nearest_of(*clusters)
        return step + 1, any_lane((nearest != before).any()), nearest, *means_of(nearest, tuple(clusters))

    there = jnp.arange(K + padding) < n
    centres = jnp.where(there[:, None], jnp.pad(rows[order], ((0, padding), (0, 0))), 0)
    first = jnp.int32(0), jnp.bool_(True), jnp.full(K, -1, jnp.int32), centres, there
    return lax.while_loop(lambda carry: (carry[0] < steps) & carry[1], one, first)[3][:K]

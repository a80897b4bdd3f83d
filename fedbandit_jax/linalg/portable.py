"""Operations in the form that each device does best, under one name.

CPUs want few, large loops whose data stay in the cache; GPUs and TPUs want few kernels, side by side.
"""

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Bool, Float, Int

SLOTS = 64  # columns that compete side by side in an argmax over rows
KERNEL_SWITCH = "FEDBANDIT_KERNELS"  # an environment variable: "false" does without kernels of our own
ELSEWHERE: tuple[str, ...] = ()  # set it before programs are made here for devices that are not: "cuda", "tpu"
PIVOTS = 16  # that an accelerator eliminates in a row: a kernel each, and four in a loop of one at a time
VECTOR = 8  # float32 that a CPU takes at once
BLOCK = 128  # rows whose products with others compete at a time on accelerators


def by_device(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """The form for CPUs, or that for all other devices.

    Where there is only a CPU, and no program is made for other devices, only the form for CPUs is traced: tracing both
    takes longer.
    """
    if not ELSEWHERE and jax.default_backend() == "cpu":
        return cpu(*operands)
    return lax.platform_dependent(*operands, cpu=cpu, default=default)


def argmax(scores: Float[Array, " n"]) -> Int[Array, ""]:
    """Index of the first largest entry of a vector; of a NaN, or n, if there is one.

    XLA reduces its own argmax one entry after another on CPU, and in one kernel on accelerators.
    """
    return by_device(scores, cpu=_argmax_by_reductions, default=_argmax_at_once)


def _argmax_by_reductions(scores: Float[Array, " n"]) -> Int[Array, ""]:
    n = scores.size
    # Without a barrier XLA may work them out twice, with other rounding, so that none of them is the largest.
    scores = lax.optimization_barrier(scores)
    return jnp.where(scores >= scores.max(), jnp.arange(n, dtype=jnp.int32), n).min()


def _argmax_at_once(scores: Float[Array, "*n m"]) -> Int[Array, "*n"]:
    return jnp.argmax(scores, axis=-1).astype(jnp.int32)


def argmax_rows(scores: Float[Array, "n m"]) -> Int[Array, " n"]:
    """Index of the first largest entry of every row of a wide matrix; for CPUs.

    64 neighbouring columns compete side by side first, and only the winners are reduced.
    """
    n, m = scores.shape
    blocks = -(-m // SLOTS)
    padded = jnp.pad(scores, ((0, 0), (0, blocks * SLOTS - m)), constant_values=-jnp.inf)
    padded = padded.reshape(n, blocks, SLOTS)
    best, block = padded[:, 0], jnp.zeros((n, SLOTS), jnp.int32)
    for i in range(1, blocks):
        better = padded[:, i] > best
        best = jnp.where(better, padded[:, i], best)
        block = jnp.where(better, i, block)
    index = SLOTS * block + jnp.arange(SLOTS, dtype=jnp.int32)[None, :]
    return jnp.where(best >= best.max(axis=1, keepdims=True), index, m).min(axis=1)


def argmax_products(rows: Float[Array, "n d"], others: Float[Array, "J d"], absolute: bool) -> Int[Array, " n"]:
    """Index of the other row that has the largest product with each row, or the largest |product|.

    On accelerators a block of the others at a time, as the n x J products of a whole batch would fill the memory.
    """
    size = abs if absolute else lambda products: products

    def at_once(rows: Float[Array, "n d"], others: Float[Array, "J d"]) -> Int[Array, " n"]:
        # The last one again and again, up to whole blocks, is less to copy than the products would be.
        J = len(others)
        padded = jnp.pad(others, ((0, -J % SLOTS), (0, 0)), mode="edge")
        # In the order of rows: XLA's product with a transposed factor takes more than twice as long.
        return jnp.minimum(argmax_rows(size(lax.optimization_barrier(rows) @ padded.T)), J - 1)

    def in_blocks(rows: Float[Array, "n d"], others: Float[Array, "J d"]) -> Int[Array, " n"]:
        J, d = others.shape
        blocks = -(-J // BLOCK)
        padded = jnp.pad(others, ((0, blocks * BLOCK - J), (0, 0))).reshape(blocks, BLOCK, d)

        def compete(best: tuple, block: tuple) -> tuple:
            i, others = block
            products = jnp.where(i * BLOCK + jnp.arange(BLOCK) < J, size(rows @ others.T), -jnp.inf)
            largest, winner = products.max(axis=1), i * BLOCK + _argmax_at_once(products)
            wins = largest > best[0]
            return (jnp.where(wins, largest, best[0]), jnp.where(wins, winner, best[1])), None

        start = jnp.full(len(rows), -jnp.inf, rows.dtype), jnp.zeros(len(rows), jnp.int32)
        return lax.scan(compete, start, (jnp.arange(blocks, dtype=jnp.int32), padded))[0][1]

    return by_device(rows, others, cpu=at_once, default=in_blocks)


def matvec(A: Float[Array, "n m"], x: Float[Array, " m"]) -> Float[Array, " n"]:
    """A x: a product on CPU; on accelerators, where that is a kernel of its own, a sum, which fuses with others."""
    return by_device(A, x, cpu=jnp.matmul, default=_matvec_by_sums)


def _matvec_by_sums(A: Float[Array, "n m"], x: Float[Array, " m"]) -> Float[Array, " n"]:
    return (A * x[None, :]).sum(axis=1)


def vecmat(x: Float[Array, " n"], A: Float[Array, "n m"]) -> Float[Array, " m"]:
    """x A: a product on CPU, a sum on accelerators, as `matvec`."""
    return by_device(x, A, cpu=jnp.matmul, default=_vecmat_by_sums)


def _vecmat_by_sums(x: Float[Array, " n"], A: Float[Array, "n m"]) -> Float[Array, " m"]:
    return (A * x[:, None]).sum(axis=0)


def whole_vectors(columns: Float[Array, "n m"]) -> Float[Array, "n w"]:
    """With columns of 0 up to a multiple of 8: of others, a product takes nearly twice as long on CPU."""
    return jnp.pad(columns, ((0, 0), (0, -columns.shape[1] % VECTOR)))


def two_products(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """x A and y A, for which A is read once."""
    return by_device(x, y, A, cpu=_two_products_at_once, default=_two_products_by_sums)


def _two_products_at_once(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    both = jnp.stack([x, y]) @ A
    return both[0], both[1]


def _two_products_by_sums(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    return _vecmat_by_sums(x, A), _vecmat_by_sums(y, A)


def half_solved(A: Float[Array, "M M"], sides: Float[Array, "M n"]) -> tuple[Float[Array, "M n"], Float[Array, " M"]]:
    """L^-1 B, and the diagonal of L, of A = L L': every round, so that on accelerators it calls no library."""
    return by_device(A, sides, cpu=_half_solved_by_lapack, default=_half_solved_by_pivots)


def _half_solved_by_lapack(A: Float[Array, "M M"], sides: Float[Array, "M n"]) -> tuple:
    factor = jnp.linalg.cholesky(A, symmetrize_input=False)
    return lax.linalg.triangular_solve(factor, sides, left_side=True, lower=True), jnp.diag(factor)


def _half_solved_by_pivots(A: Float[Array, "M M"], sides: Float[Array, "M n"]) -> tuple:
    """Gauss's elimination, a pivot at a time, of all matrices of a batch side by side."""
    M = len(A)

    def eliminate(j: Int[Array, ""], rows: Float[Array, "M N"]) -> Float[Array, "M N"]:
        row = rows[j] / jnp.sqrt(rows[j, j])
        below = jnp.where(jnp.arange(M) > j, row[:M], 0)  # column j of L, as A is symmetric
        return jnp.where((jnp.arange(M) == j)[:, None], row[None, :], rows - below[:, None] * row[None, :])

    rows = lax.fori_loop(0, M, eliminate, jnp.concatenate([A, sides], axis=1), unroll=min(M, PIVOTS))
    return rows[:, M:], jnp.diag(rows)


def with_row(rows: Array, i: Int[Array, ""], row: Array, axis: int = 0) -> Array:
    """The rows along an axis with another one at i, in place; i must be the same in all lanes of a batch.

    Of `rows.at[i].set(row)` and what else there is, `vmap` makes a scatter, for which XLA copies all rows first.
    """
    return _with_row_along(axis)(rows, i, row)


def _with_row_along(axis: int) -> Callable[..., Any]:
    """`with_row` of a batch that comes before that axis."""

    @jax.custom_batching.custom_vmap
    def put(rows: Any, i: Any, row: Any) -> Any:
        return lax.dynamic_update_index_in_dim(rows, row, i, axis)

    @put.def_vmap
    def _put(size: int, batched: list[bool], rows: Any, i: Any, row: Any) -> tuple[Any, bool]:
        assert not batched[1]
        whole = [
            x if has else jnp.broadcast_to(x, (size, *x.shape)) for x, has in ((rows, batched[0]), (row, batched[2]))
        ]
        return _with_row_along(axis + 1)(whole[0], i, whole[1]), True

    return put


def in_turn(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of one lane: on CPU the lanes of a batch take turns, elsewhere they are side by side.

    What a lane makes is still in the cache when it is read again. And a lane that takes its turn waits for no other:
    its loops end, and its branches are taken, as they are its own.
    """
    leaves, structure = jax.tree.flatten(arguments)  # flat, as JAX puts bools into the structure, static in a world

    def of_leaves(*leaves: Any) -> Any:
        return function(*jax.tree.unflatten(structure, leaves))

    return by_device(*leaves, cpu=_one_by_one(of_leaves, (), ((),) * len(leaves)), default=of_leaves)


def renewed(outdated: Bool[Array, ""], old: Any, make: Callable[..., Any], *arguments: Any) -> Any:
    """`make(*arguments)`; on CPU, lane by lane, reusing `old` unless `outdated`."""
    leaves, structure = jax.tree.flatten((old, arguments))

    @jax.jit
    def anew(*leaves: Any) -> Any:
        return make(*jax.tree.unflatten(structure, leaves)[1])

    def if_outdated(outdated: Bool[Array, ""], *leaves: Any) -> Any:
        return lax.cond(outdated, anew, lambda *leaves: jax.tree.unflatten(structure, leaves)[0], *leaves)

    taking_turns = _one_by_one(if_outdated, (), ((),) * (1 + len(leaves)))
    return by_device(outdated, *leaves, cpu=taking_turns, default=lambda _, *leaves: anew(*leaves))


def _one_by_one(function: Callable[..., Any], sizes: tuple[int, ...], axes: tuple[tuple[bool, ...], ...]) -> Any:
    """As `jax.custom_batching.sequential_vmap`, but one loop for all batches around each other, of these sizes.

    `axes` says which of these each argument has: of the others, all lanes share it.
    """

    @jax.custom_batching.custom_vmap
    def turns(*leaves: Any) -> Any:
        def turn(i: Int[Array, ""]) -> Any:
            index = jnp.unravel_index(i, sizes)
            places = [tuple(j for j, has in zip(index, own, strict=True) if has) for own in axes]
            return function(*(leaf[at] for leaf, at in zip(leaves, places, strict=True)))

        if not sizes:
            return function(*leaves)
        results = lax.map(turn, jnp.arange(math.prod(sizes), dtype=jnp.int32))
        return jax.tree.map(lambda x: x.reshape(*sizes, *x.shape[1:]), results)

    @turns.def_vmap
    def _(size: int, batched: list[bool], *leaves: Any) -> tuple[Any, Any]:
        around = tuple((has, *own) for has, own in zip(batched, axes, strict=True))
        results = _one_by_one(function, (size, *sizes), around)(*leaves)
        return results, jax.tree.map(lambda _: True, results)

    return turns


def may_be_cuda() -> bool:
    """Is there a point in a kernel for CUDA? It takes time to trace one, also where no GPU will ever see it."""
    wanted = os.environ.get(KERNEL_SWITCH, "true") != "false"
    return wanted and ("cuda" in ELSEWHERE or jax.default_backend() == "gpu")


def on_cuda(fast: Callable[..., Any], plain: Callable[..., Any], *operands: Any) -> Any:
    """A form for CUDA, and one for all other devices."""
    return lax.platform_dependent(*operands, cuda=fast, default=plain)


def when(condition: Bool[Array, ""], function: Callable[[Any], Any], carry: Any) -> Any:
    """function(carry) if the condition holds, which is the same for a whole batch; else carry.

    It is a loop of one turn at most: XLA copies what a branch returns, and not what a loop carries. And to give nested
    branches the same layouts, its compiler for TPUs starts all over again so often that it does not end.
    """
    first = condition, carry
    return lax.while_loop(lambda pair: pair[0], lambda pair: (jnp.zeros_like(pair[0]), function(pair[1])), first)[1]


@jax.custom_batching.custom_vmap
def largest_of_lanes(x: Int[Array, ""]) -> Int[Array, ""]:
    """The largest of a batch, the same for all of it: a loop that ends there needs no masks under vmap."""
    return x


@largest_of_lanes.def_vmap
def _largest_of_lanes(size: int, batched: list[bool], x: Int[Array, "*n"]) -> tuple[Int[Array, "*m"], bool]:
    return largest_of_lanes(x.max(axis=0) if batched[0] else x), False


@jax.custom_batching.custom_vmap
def any_lane(x: Bool[Array, ""]) -> Bool[Array, ""]:
    """Is it true anywhere in a batch? The same for all of it: a branch on it is a branch, also under vmap."""
    return x


@any_lane.def_vmap
def _any_lane(size: int, batched: list[bool], x: Bool[Array, "*n"]) -> tuple[Bool[Array, "*m"], bool]:
    return any_lane(x.any(axis=0) if batched[0] else x), False


def traced(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], Any]:
    """The function, traced once for arguments of these shapes, and the shapes of its results."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    structure = jax.tree.structure(shapes)

    def again(*arguments: Any) -> Any:
        return jax.tree.unflatten(structure, jaxpr_as_fun(jaxpr)(*jax.tree.leaves(arguments)))

    return again, shapes


@jax.custom_batching.custom_vmap
def for_each_lane(key: Any, tree: Any) -> Any:
    """The tree; in a batch each lane has a copy of its own, if it has its own key.

    Marks loop carries as batched up front; otherwise `vmap` finds them by fixpoint and retraces nested loops.
    """
    return tree


@for_each_lane.def_vmap
def _for_each_lane(size: int, batched: list[Any], key: Any, tree: Any) -> tuple[Any, Any]:
    if not batched[0]:
        return for_each_lane(key, tree), batched[1]
    whole = jax.tree.map(lambda x, has: x if has else jnp.broadcast_to(x, (size, *x.shape)), tree, batched[1])
    return for_each_lane(key[0], whole), jax.tree.map(lambda _: True, whole)

"""Operations in the form that each device does best, under one name.

CPUs want few, large loops whose data stay in the cache; GPUs and TPUs want few kernels, side by side.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

SLOTS = 64  # columns that compete side by side in an argmax over rows
KERNEL_SWITCH = "FEDBANDIT_KERNELS"  # an environment variable: "false" does without kernels of our own
CUDA_ELSEWHERE = False  # set it before programs are made here for GPUs that are not here
STRIDE = 8  # rounds that a GPU plays before it asks whether to go on; stretches are about 27 long at the defaults


def argmax(scores: Float[Array, " n"]) -> Int[Array, ""]:
    """Index of the first largest entry of a vector; of a NaN, or n, if there is one.

    XLA reduces its own argmax one entry after another on CPU, and in one kernel on accelerators.
    """
    return lax.platform_dependent(scores, cpu=_argmax_by_reductions, default=_argmax_at_once)


def _argmax_by_reductions(scores: Float[Array, " n"]) -> Int[Array, ""]:
    n = scores.size
    return jnp.where(scores >= scores.max(), jnp.arange(n, dtype=jnp.int32), n).min()


def _argmax_at_once(scores: Float[Array, "*n m"]) -> Int[Array, "*n"]:
    return jnp.argmax(scores, axis=-1).astype(jnp.int32)


def argmax_rows(scores: Float[Array, "n m"]) -> Int[Array, " n"]:
    """Index of a largest entry of every row of a wide matrix; among equal entries any may win."""
    return lax.platform_dependent(scores, cpu=_argmax_rows_by_slots, default=_argmax_at_once)


def _argmax_rows_by_slots(scores: Float[Array, "n m"]) -> Int[Array, " n"]:
    """64 neighbouring columns compete side by side first, and only the winners are reduced one by one."""
    n, m = scores.shape
    blocks = -(-m // SLOTS)
    padded = jnp.pad(scores, ((0, 0), (0, blocks * SLOTS - m)), constant_values=-jnp.inf)
    padded = padded.reshape(n, blocks, SLOTS)
    best, block = padded[:, 0], jnp.zeros((n, SLOTS), jnp.int32)
    for i in range(1, blocks):
        better = padded[:, i] > best
        best = jnp.where(better, padded[:, i], best)
        block = jnp.where(better, i, block)
    slot = jnp.argmax(best, axis=1).astype(jnp.int32)
    return slot + SLOTS * jnp.take_along_axis(block, slot[:, None], axis=1)[:, 0]


def matvec(A: Float[Array, "n m"], x: Float[Array, " m"]) -> Float[Array, " n"]:
    """A x: a product on CPU; on accelerators, where that is a kernel of its own, a sum, which fuses with others."""
    return lax.platform_dependent(A, x, cpu=jnp.matmul, default=_matvec_by_sums)


def _matvec_by_sums(A: Float[Array, "n m"], x: Float[Array, " m"]) -> Float[Array, " n"]:
    return (A * x[None, :]).sum(axis=1)


def two_products(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """x A and y A, for which A is read once."""
    return lax.platform_dependent(x, y, A, cpu=_two_products_at_once, default=_two_products_by_sums)


def _two_products_at_once(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    both = jnp.stack([x, y]) @ A
    return both[0], both[1]


def _two_products_by_sums(
    x: Float[Array, " n"], y: Float[Array, " n"], A: Float[Array, "n m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    return (A * x[:, None]).sum(axis=0), (A * y[:, None]).sum(axis=0)


def with_row(rows: Float[Array, "n *m"], i: Int[Array, ""], row: Float[Array, "*m"]) -> Float[Array, "n *m"]:
    """The rows with another one at i, in place; i must be the same in all lanes of a batch.

    Of `rows.at[i].set(row)` and what else there is, `vmap` makes a scatter, for which XLA copies all rows first.
    """
    return _with_row_along(0)(rows, i, row)


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


def map_large(function: Callable[[Any], Any], xs: Any) -> Any:
    """A function whose results in between are large, along the leading axis: one after another on CPU, or `vmap`.

    All of them together would leave a CPU's cache.
    """
    return lax.platform_dependent(xs, cpu=lambda xs: lax.map(function, xs), default=jax.vmap(function))


def in_turn(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of one lane: on CPU the lanes of a batch take turns, elsewhere they are side by side.

    XLA shares what reads a large array out to threads, even if it takes a microsecond. What a loop writes, it does not.
    """
    leaves, structure = jax.tree.flatten(arguments)  # flat, as JAX puts bools into the structure, static in a world

    def of_leaves(*leaves: Any) -> Any:
        return function(*jax.tree.unflatten(structure, leaves))

    return lax.platform_dependent(*leaves, cpu=jax.custom_batching.sequential_vmap(of_leaves), default=of_leaves)


def fori_loop(
    first: Int[Array, ""], end: Int[Array, ""], step: Callable[[Int[Array, ""], Any], Any], carry: Any
) -> Any:
    """As lax.fori_loop; on GPUs in strides of a fixed number of steps, of which those beyond the end leave no trace.

    A GPU returns to the host before every pass of a loop whose end the host does not know: here, once a stride.
    """

    def plain(first: Int[Array, ""], end: Int[Array, ""], carry: Any) -> Any:
        return lax.fori_loop(first, end, step, carry)

    def strided(first: Int[Array, ""], end: Int[Array, ""], carry: Any) -> Any:
        def one(i: Int[Array, ""], carry: Any) -> Any:
            return jax.tree.map(lambda new, old: jnp.where(i < end, new, old), step(i, carry), carry)

        def stride(moving: tuple) -> tuple:
            i, carry = moving
            return i + STRIDE, lax.fori_loop(0, STRIDE, lambda j, carry: one(i + j, carry), carry)

        return lax.while_loop(lambda moving: moving[0] < end, stride, (first, carry))[1]

    return lax.platform_dependent(first, end, carry, cuda=strided, rocm=strided, default=plain)


def may_be_cuda() -> bool:
    """Is there a point in a kernel for CUDA? It takes time to trace one, also where no GPU will ever see it."""
    wanted = os.environ.get(KERNEL_SWITCH, "true") != "false"
    return wanted and (CUDA_ELSEWHERE or jax.default_backend() == "gpu")


def on_cuda(fast: Callable[..., Any], plain: Callable[..., Any], *operands: Any) -> Any:
    """A form for CUDA, and one for all other devices."""
    return lax.platform_dependent(*operands, cuda=fast, default=plain)


def when(condition: Bool[Array, ""], function: Callable[[Any], Any], carry: Any) -> Any:
    """function(carry) if the condition holds, which is the same for a whole batch; else carry.

    On CPU it is a loop of one turn at most: XLA copies what a branch returns, and not what a loop carries.
    """

    def as_loop(condition: Bool[Array, ""], carry: Any) -> Any:
        first = condition, carry
        return lax.while_loop(lambda pair: pair[0], lambda pair: (jnp.zeros_like(pair[0]), function(pair[1])), first)[1]

    def as_branch(condition: Bool[Array, ""], carry: Any) -> Any:
        return lax.cond(condition, function, lambda carry: carry, carry)

    return lax.platform_dependent(condition, carry, cpu=as_loop, default=as_branch)


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

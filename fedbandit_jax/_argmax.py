"""Argmax in the form that the device does best: XLA reduces its own one entry after another on CPU, and in one kernel
on accelerators.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

SLOTS = 64


def argmax(scores: Float[Array, " n"]) -> Int[Array, ""]:
    """Index of the first largest entry of a vector; of a NaN, or n, if there is one."""
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

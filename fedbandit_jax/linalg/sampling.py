"""Random subsets and sums of random numbers, drawn at once."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt32

SMALL = 2**16  # pools below it: a random word times the pool's size, both halves, fits into 32 bits
DIGITS = 24  # binary digits of a uniform number that are drawn: those of float32


def draw_without_replacement(key: Key[Array, ""], pool: int, count: int) -> Int[Array, " count"]:
    """The first `count` entries of a random permutation of range(pool); fewer are a prefix of more."""
    step = jnp.arange(count, dtype=jnp.int32)
    return after_swaps(jax.random.randint(key, (count,), step, pool, dtype=jnp.int32))


def draw_quickly(key: Key[Array, ""], pool: int, count: int) -> Int[Array, " count"]:
    """As `draw_without_replacement`, other numbers: words are scaled to the range by a product, not by divisions."""
    if pool >= SMALL:
        return draw_without_replacement(key, pool, count)
    step = jnp.arange(count, dtype=jnp.uint32)
    return after_swaps((step + scaled(jax.random.bits(key, (count,), jnp.uint32), pool - step)).astype(jnp.int32))


def scaled(words: UInt32[Array, "*n"], below: UInt32[Array, "*n"]) -> UInt32[Array, "*n"]:
    """floor(words below / 2^32), uniform in range(below) up to 2^-16 of a share, for below < 2^16."""
    return ((words >> 16) * below + (((words & 0xFFFF) * below) >> 16)) >> 16


def after_swaps(target: Int[Array, " count"]) -> Int[Array, " count"]:
    """What Fisher and Yates's shuffle puts first: step j swaps position j with position target[j] >= j.

    Instead of carrying the permutation, find what each swap saw: position p holds, before step j, what the last earlier
    step i with target[i] = p put there (the value then at position i), or p itself if there was none.
    """
    count = target.size
    step = jnp.arange(count, dtype=jnp.int32)

    def last_step_into(position: Int[Array, " count"]) -> Int[Array, " count"]:
        # Reduced along the first axis, so that CPUs work on neighbouring columns side by side.
        hit = (target[:, None] == position[None, :]) & (step[:, None] < step[None, :])
        return jnp.where(hit, step[:, None], -1).max(axis=0)

    source = last_step_into(step)
    origin = jnp.where(source < 0, step, source)
    for _ in range(max(count - 1, 1).bit_length()):  # follow chains of swaps by doubling
        origin = origin[origin]
    earlier = last_step_into(target)
    return jnp.where(earlier < 0, target, origin[earlier])


def sum_of_signs(key: Key[Array, ""], counts: Float[Array, " n"], means: Float[Array, " n"]) -> Float[Array, " n"]:
    """Sums of `counts` independent numbers +1 or -1 of each mean: 2 B - counts, B binomial."""
    return 2 * binomial(key, counts, (1 + means) / 2) - counts


def sum_of_uniforms(key: Key[Array, ""], counts: Float[Array, " n"]) -> Float[Array, " n"]:
    """Sums of `counts` independent numbers, each uniform in (-1, 1), to the last of their 24 binary digits.

    Such a number is the sum of s_b / 2^b over its digits b, with independent signs s_b; so all digits b together are a
    sum of signs, which is binomial.
    """
    half = jnp.zeros_like(counts)

    def add(b: Int[Array, ""], total: Float[Array, " n"]) -> Float[Array, " n"]:
        return total + sum_of_signs(jax.random.fold_in(key, b), counts, half) * jnp.exp2(-b.astype(total.dtype))

    return jax.lax.fori_loop(1, DIGITS + 1, add, half)


def binomial(key: Key[Array, ""], counts: Float[Array, " n"], shares: Float[Array, " n"]) -> Any:
    return jax.random.binomial(key, counts, jnp.clip(shares, 0, 1), dtype=counts.dtype)

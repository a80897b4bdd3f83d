"""Random subsets and sums of random numbers, drawn at once."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt16, UInt32

from fedbandit_jax.linalg.portable import in_turn

SMALL = 2**16  # a pool whose arms are counted in 16 bits: four times the speed
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)  # of Threefry
DIGITS = 24  # binary digits of a uniform number that are drawn: those of float32


def draw_without_replacement(key: Key[Array, ""], pool: int, count: int) -> Int[Array, " count"]:
    """The first `count` entries of a random permutation of range(pool); fewer are a prefix of more."""
    step = jnp.arange(count, dtype=jnp.int32)
    return after_swaps(jax.random.randint(key, (count,), step, pool, dtype=jnp.int32))


def draw_many(keys: Key[Array, " n"], pool: int, count: int) -> Int[Array, "n count"]:
    """As `draw_without_replacement`, for many keys side by side, and other numbers: words are scaled by a product."""
    if pool > SMALL:
        return jax.vmap(lambda key: draw_without_replacement(key, pool, count))(keys)
    step = jnp.arange(count, dtype=jnp.uint32)[:, None]
    target = step + high_word(random_words(keys, count), pool - step)
    return side_by_side(target.astype(jnp.uint16)).T


def random_words(keys: Key[Array, " n"], count: int) -> UInt32[Array, "count n"]:
    """jax.random.bits(key, (count,)) of each key, in one pass: JAX's own goes through memory five times on CPUs."""
    first, second = (word[None, :] for word in jax.random.key_data(keys).T)
    x, y = threefry(
        first, second, jnp.zeros((count, len(keys)), jnp.uint32), jnp.arange(count, dtype=jnp.uint32)[:, None]
    )
    return x ^ y


def fold_in(key: Key[Array, ""], data: Int[Array, ""] | int) -> Key[Array, ""]:
    """jax.random.fold_in, in one pass: JAX's own is a loop on CPUs, which costs more than many a round."""
    first, second = jax.random.key_data(key)
    return jax.random.wrap_key_data(
        jnp.stack(threefry(first, second, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))
    )


@jax.jit  # so that its hundred steps are traced once, however often it is called
def threefry(first: Any, second: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Threefry-2x32 of (x, y): four rounds of add, rotate and xor, then a part of the key is added, five times."""
    parts = first, second, first ^ second ^ 0x1BD11BDA
    x, y = x + first, y + second
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x += y
            y = x ^ (y << turn | y >> 32 - turn)
        x += parts[(i + 1) % 3]
        y += parts[(i + 2) % 3] + (i + 1)
    return x, y


def many_uniforms(key: Key[Array, ""], count: int) -> Float[Array, " count"]:
    """Uniform in (-1, 1), in one pass: odd numbers of 2^-23, of which none is an end. In float32.

    On CPUs in turn, as XLA would otherwise draw them again wherever they are used.
    """

    def draw(key: UInt32[Array, " 2"]) -> Float[Array, " count"]:
        odd = 2 * (random_words(jax.random.wrap_key_data(key)[None], count)[:, 0] >> 9).astype(jnp.int32) + 1
        return odd.astype(jnp.float32) * 2.0**-23 - 1

    return in_turn(draw, jax.random.key_data(key))


def side_by_side(target: UInt16[Array, "count n"]) -> Int[Array, "count n"]:
    """`after_swaps` of each column: n shuffles, step by step, in lockstep.

    `here` is what stands at position j when step j comes, `there` what stands at target[j]. Step i puts `moved`, what
    it finds at i, to target[i] >= i, where later steps will see it.
    """
    place = jnp.broadcast_to(jnp.arange(len(target), dtype=target.dtype)[:, None], target.shape)

    def step(i: Int[Array, ""], carry: tuple) -> tuple:
        here, there, moved = carry
        goal = target[i][None, :]
        here = jnp.where(place == goal, moved, here)
        there = jnp.where((target == goal) & (place > i.astype(place.dtype)), moved, there)
        return here, there, here[i + 1][None, :]  # the next one is kept apart, so that `here` can change in place

    return jax.lax.fori_loop(0, len(target), step, (place, target, place[:1]))[1].astype(jnp.int32)


def high_word(words: UInt32[Array, "*n"], below: UInt32[Array, "..."]) -> UInt32[Array, "*n"]:
    """floor(words below / 2^32), uniform in range(below), for any below < 2^32: the product of halves, with carries."""
    high, low, high_below, low_below = words >> 16, words & 0xFFFF, below >> 16, below & 0xFFFF
    one, other = high * low_below, low * high_below
    carry = ((one & 0xFFFF) + (other & 0xFFFF) + ((low * low_below) >> 16)) >> 16
    return high * high_below + (one >> 16) + (other >> 16) + carry


def after_swaps(target: Int[Array, " count"]) -> Int[Array, " count"]:
    """What Fisher and Yates's shuffle puts first: step j swaps position j with position target[j] >= j.

    Instead of carrying the permutation, find what each swap saw: position p holds, before step j, what the last earlier
    step i with target[i] = p put there (the value then at position i), or p itself if there was none.
    """
    count = target.size
    step = jnp.arange(count, dtype=jnp.int32)

    def last_step_into(position: Int[Array, " count"]) -> Int[Array, " count"]:
        hit = (target[None, :] == position[:, None]) & (step[None, :] < step[:, None])
        return jnp.where(hit, step[None, :], -1).max(axis=1)

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


def binomial(key: Key[Array, ""], counts: Float[Array, " n"], shares: Float[Array, " n"]) -> Float[Array, " n"]:
    """Binomial numbers, each from a key of its own, so that none depends on how many others there are.

    float32 and float64 draw different ones: the numbers that JAX makes them of are of the same precision as they.
    """

    def one(i: Int[Array, ""], count: Float[Array, ""], share: Float[Array, ""]) -> Any:
        return jax.random.binomial(jax.random.fold_in(key, i), count, share, dtype=counts.dtype)

    return jax.vmap(one)(jnp.arange(counts.size, dtype=jnp.int32), counts, jnp.clip(shares, 0, 1))

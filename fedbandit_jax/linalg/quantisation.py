"""Quantisation of vectors, and the bits that it takes to send one.

The interval [-r, r] of every coordinate is divided into l = ceil(2 r sqrt(d) / eps) parts of width h = 2 r / l; a
coordinate becomes an end of its part. Ends have numbers, counted from the middle: ..., -1, 0, 1, ..., or, where l is
odd, ..., -1/2, 1/2, .... All the parts of a vector together are at most eps long.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedbandit_jax.linalg import Real

CEIL_SLACK = 1e-4  # so that 2.0000001, a rounding error, counts as 2
OVERHEAD = 3  # bits of a number besides its size in unary


class Quantised(NamedTuple):
    """A vector as it is sent."""

    values: Float[Array, " d"]
    numbers: Float[Array, " d"]  # of the ends, counted from the middle

    @property
    def bits(self) -> Float[Array, ""]:
        return unary_bits(self.numbers).sum()


def next_whole(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The next whole number, at least 1."""
    return jnp.maximum(jnp.ceil(x - CEIL_SLACK), 1)


def parts(dim: int, r: Real, eps: Real) -> Float[Array, ""]:
    """l, into how many parts [-r, r] is divided."""
    return next_whole(2 * r * jnp.sqrt(jnp.asarray(dim, jnp.asarray(r).dtype)) / eps)


def to_the_nearest(x: Float[Array, " d"], r: Real, eps: Real) -> Quantised:
    """Every coordinate, clipped to [-r, r], becomes the nearer end of its part: within eps / 2 in all."""
    l = parts(x.size, r, eps)  # noqa: E741 - the paper's letter
    place = _place(x, r, l)
    return _at(jnp.floor(place + 0.5), r, l)


def at_random(x: Float[Array, " d"], r: Real, eps: Real, u: Float[Array, " d"]) -> Quantised:
    """Every coordinate, clipped to [-r, r], becomes one of the ends of its part, so that its mean is unchanged.

    u is uniform in [0, 1). A coordinate is within h of what it was, its variance h^2 / 4 at most.
    """
    l = parts(x.size, r, eps)  # noqa: E741
    place = _place(x, r, l)
    low = jnp.floor(place)
    return _at(low + (u < place - low), r, l)


def unary_bits(numbers: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Bits of an end's number: its size in unary, halves rounded up, and three more."""
    return OVERHEAD + jnp.ceil(jnp.abs(numbers))


def _place(x: Float[Array, " d"], r: Real, l: Float[Array, ""]) -> Float[Array, " d"]:  # noqa: E741
    """Where coordinates are, in parts from the lower end; exactly l / 2 for 0."""
    return jnp.clip(x * (l / (2 * r)) + l / 2, 0, l)


def _at(end: Float[Array, " d"], r: Real, l: Float[Array, ""]) -> Quantised:  # noqa: E741
    numbers = jnp.minimum(end, l) - l / 2
    return Quantised(numbers * (2 * r / l), numbers)

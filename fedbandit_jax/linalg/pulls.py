"""A stretch of optimistic pulls of fixed arms in one GPU kernel.

A program of the kernel is one client. Its arms and V^-1 stay in registers for the whole stretch, where the plain loop
reads and writes them in every round. Sizes are padded to powers of two, as Triton has no others; padding is 0.

Written so that few numbers cross threads: a thread has some columns of the arms and of V^-1, so that products are sums
along its own columns. The arm that is pulled is read anew from memory, by its number, which costs less than to look it
up in the registers of all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax.linalg.regression import FixedArms, Ridge

Reward = Callable[[Any, Any], Any]  # of a mean and a chance
SMALLEST = 16  # of a padded size
# Numbers that so many warps keep in registers: about 100 a thread, or more where that leaves one client on a
# multiprocessor at any rate. Beyond the last, registers spill.
WARPS = {1: 3328, 2: 6656, 4: 13312, 8: 33280, 16: 37888}


class Stretch(NamedTuple):
    """What the pulls meet: `rounds` of n, from `first` on."""

    arms: Float[Array, "K d"]
    columns: Float[Array, "d K"]  # the same
    mask: Bool[Array, " K"]  # which may be pulled
    expected: Float[Array, " K"]  # rewards
    losses: Float[Array, " K"]
    chance: Float[Array, " n"]  # what rewards are made of, besides their means
    radii: Float[Array, " n"]  # of the first round that is played, and those after it
    limits: Float[Array, " n"]  # the stretch ends with a round after which log det V has grown by more, of the same
    first: Int[Array, ""]
    rounds: Int[Array, ""]


class Moving(NamedTuple):
    """What they change."""

    inverse: Float[Array, "d d"]
    theta: Float[Array, " d"]
    means: Float[Array, " K"]
    widths: Float[Array, " K"]
    counts: Float[Array, " K"]
    residuals: Float[Array, " K"]
    growth: Float[Array, " 1"]


def padded(size: int) -> int:
    return max(SMALLEST, 1 << (size - 1).bit_length())


def warps(arms: int, dim: int) -> int | None:
    """How many a client takes; None if it does not fit. 1024 arms of 32 dimensions do, 256 of 64, 128 of 128."""
    K, d = padded(arms), padded(dim)
    numbers = K * d + d * d + 4 * K  # arms, V^-1, and what follows of each arm
    return next((n for n, most in WARPS.items() if numbers <= most), None)


def fits(arms: int, dim: int, dtype: Any) -> bool:
    return dtype == jnp.float32 and warps(arms, dim) is not None


def optimistic_pulls(
    ridge: Ridge, growth: Float[Array, ""], met: Stretch, reward: Reward, *, interpret: bool = False
) -> tuple[Ridge, Float[Array, ""], Float[Array, ""], Int[Array, ""]]:
    """Pull the arm of the highest mean + radius sqrt(width), learn its reward, and go on.

    Returns what is known then, `growth` and by how much log det V has grown, the sum of what was lost, and the number
    of rounds. `reward` may not close over arrays.
    """
    # Here, as it takes a fifth of a second to import what only GPUs need.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    fixed = ridge.of_fixed_arms()
    K, d = met.arms.shape
    span = jnp.stack([met.first, met.rounds]).astype(jnp.int32)
    before = Moving(ridge.inverse, ridge.theta, *fixed[:4], growth[None])
    given = (*met[:-2], fixed.reference_means, span)
    one = jax.ShapeDtypeStruct((1,), ridge.theta.dtype)
    after, lost, played = pl.pallas_call(
        partial(_kernel, reward),
        out_shape=(jax.eval_shape(lambda: before), one, jax.ShapeDtypeStruct((1,), jnp.int32)),
        input_output_aliases={len(given) + i: i for i in range(len(before))},
        compiler_params=plgpu.CompilerParams(num_warps=warps(K, d), num_stages=1),
        interpret=interpret,
        name="optimistic_pulls",
    )(given, before)
    known = ridge._replace(
        inverse=after.inverse,
        theta=after.theta,
        log_det=ridge.log_det + (after.growth[0] - growth),
        observations=ridge.observations + played[0],
        pulls=FixedArms(after.means, after.widths, after.counts, after.residuals, fixed.reference_means),
    )
    return known, after.growth[0], lost[0], played[0]


def _kernel(reward: Reward, given: Any, before: Any, after: Any, lost_: Any, played_: Any) -> None:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    arms, columns, mask, expected, losses, chance, radii, limits, reference_means, span = given
    K, d = arms.shape
    each_arm, each_dim = pl.ds(0, padded(K)), pl.ds(0, padded(d))
    number = lax.iota(jnp.int32, padded(K))
    is_arm, is_dim = number < K, lax.iota(jnp.int32, padded(d)) < d
    is_entry = is_dim[:, None] & is_dim[None, :]

    def per_arm(ref: Any) -> Any:
        return plgpu.load(ref.at[each_arm], mask=is_arm, other=0)

    X = plgpu.load(columns.at[each_dim, each_arm], mask=is_dim[:, None] & is_arm[None, :], other=0)
    allowed = is_arm & plgpu.load(mask.at[each_arm], mask=is_arm, other=False)
    first, count = span[0], span[1]

    def one_round(carry: tuple) -> tuple:
        i, now, lost = carry
        scores = jnp.where(allowed, now.means + radii[i] * jnp.sqrt(jnp.maximum(now.widths, 0)), -jnp.inf)
        arm = jnp.where(scores >= scores.max(), number, K).min()
        exists = arm < K  # there is none where scores are NaN
        pulled = number == arm
        arm = jnp.minimum(arm, K - 1)
        x = plgpu.load(arms.at[arm, each_dim], mask=is_dim, other=0)
        mean, width = jnp.where(pulled, now.means, 0).sum(), jnp.where(pulled, now.widths, 0).sum()
        got = reward(expected[arm], chance[first + i])
        u = (now.inverse * x[:, None]).sum(axis=0)
        projections = (X * u[:, None]).sum(axis=0)
        gain = 1 / (1 + width)
        step = gain * (got - mean)
        growth = now.growth + jnp.log1p(width)
        moved = Moving(
            inverse=now.inverse - gain * (u[:, None] * u[None, :]),
            theta=now.theta + step * u,
            means=now.means + step * projections,
            widths=now.widths - gain * projections**2,
            counts=now.counts + jnp.where(pulled, 1, 0),
            residuals=now.residuals + jnp.where(pulled, got - reference_means[arm], 0),
            growth=growth,
        )
        return i + 1, moved, lost + jnp.where(exists, losses[arm], jnp.nan)

    start = Moving(
        inverse=plgpu.load(before.inverse.at[each_dim, each_dim], mask=is_entry, other=0),
        theta=plgpu.load(before.theta.at[each_dim], mask=is_dim, other=0),
        means=per_arm(before.means),
        widths=per_arm(before.widths),
        counts=per_arm(before.counts),
        residuals=per_arm(before.residuals),
        growth=before.growth[0],
    )
    nothing = jnp.int32(0), start, jnp.zeros_like(start.growth)

    def goes_on(carry: tuple) -> Any:
        i, now, _ = carry
        return (i < count) & ((i == 0) | (now.growth <= limits[jnp.maximum(i - 1, 0)]))

    played, end, lost = lax.while_loop(goes_on, one_round, nothing)
    plgpu.store(after.inverse.at[each_dim, each_dim], end.inverse, mask=is_entry)
    plgpu.store(after.theta.at[each_dim], end.theta, mask=is_dim)
    for name in ("means", "widths", "counts", "residuals"):
        plgpu.store(getattr(after, name).at[each_arm], getattr(end, name), mask=is_arm)
    after.growth[0], lost_[0], played_[0] = end.growth, lost, played

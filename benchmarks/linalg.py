"""Microseconds per matrix of the routines that the algorithms call, by size and batch.

On a GPU, 33 beside 32 shows whether eigh falls off the batched routine, which takes matrices up to 32 x 32.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .measure import Effort, Found, Skipped, time_in_turn, why

ROUTINES: dict[str, Callable[[Any], Any]] = {
    "eigh": jnp.linalg.eigh,
    "eigvalsh": jnp.linalg.eigvalsh,
    "cholesky": jnp.linalg.cholesky,
    "qr": jnp.linalg.qr,
}


def linalg(effort: Effort) -> Found:
    sizes = effort.pick((4,), (16, 32, 33, 50), (8, 16, 32, 33, 50, 64, 128))
    batches = effort.pick((2,), (1, 256), (1, 32, 256, 1024))
    routines = effort.pick({"cholesky": jnp.linalg.cholesky}, ROUTINES, ROUTINES)
    cases = [(d, batch) for d, batch in product(sizes, batches) if d * d * batch <= 2**22]

    calls: dict[str, Callable[[], Any]] = {}
    abouts: dict[str, dict[str, Any]] = {}
    for d, batch in cases:
        matrices = positive_definite(d, batch)
        for name, routine in routines.items():
            case = f"{name} d={d} batch={batch}"
            # Inputs are arguments, or XLA would compute everything while it compiles.
            call = partial(jax.jit(routine), matrices)
            try:
                jax.block_until_ready(call())
            except Exception as error:
                yield Skipped(case, why(error))
                continue
            calls[case], abouts[case] = call, {"routine": name, "d": d, "batch": batch}
    for case, timing in time_in_turn(calls, effort.repeats).items():
        yield timing.row(case, "us a matrix", 1e6 / abouts[case]["batch"], **abouts[case])


def positive_definite(d: int, batch: int) -> jax.Array:
    """Gram matrices of 2 d Gaussian vectors."""
    x = np.random.default_rng(0).normal(size=(batch, 2 * d, d)).astype(np.float32)
    return jnp.asarray(np.einsum("bnd,bne->bde", x, x) / (2 * d))

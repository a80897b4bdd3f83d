"""Microseconds per matrix of the routines that the algorithms call, by size and batch.

On a GPU, 33 beside 32 shows whether eigh falls off the batched routine, which takes matrices up to 32 x 32.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .measure import Effort, Found, Row, each, time_in_turn

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

    def measure(case: tuple[int, int]) -> list[Row]:
        d, batch = case
        matrices = positive_definite(d, batch)
        # Inputs are arguments, or XLA would compute everything while it compiles.
        compiled = {name: jax.jit(routine) for name, routine in routines.items()}
        calls = {name: lambda f=f: f(matrices) for name, f in compiled.items()}
        return [
            timing.row(f"{name} d={d} batch={batch}", "us a matrix", 1e6 / batch, routine=name, d=d, batch=batch)
            for name, timing in time_in_turn(calls, effort.repeats).items()
        ]

    yield from each(cases, lambda case: f"d={case[0]} batch={case[1]}", measure)


def positive_definite(d: int, batch: int) -> jax.Array:
    """Gram matrices of 2 d Gaussian vectors."""
    x = np.random.default_rng(0).normal(size=(batch, 2 * d, d)).astype(np.float32)
    return jnp.asarray(np.einsum("bnd,bne->bde", x, x) / (2 * d))

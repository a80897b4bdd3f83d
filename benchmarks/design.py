"""Microseconds per G-optimal design, and iterations, by arms, dimension, tolerance, batch and method."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb

from .measure import Effort, Found, Row, each, time_in_turn

CHUNK = 32  # side by side on a CPU: the slowest problem holds up fewer others, and all fit the cache


class Case(NamedTuple):
    K: int = 100
    d: int = 50
    tol: float = 1e-2
    batch: int = 512
    method: str = "multiplicative"

    def __str__(self) -> str:
        return f"{self.method} K={self.K} d={self.d} tol={self.tol:g} batch={self.batch}"


def design(effort: Effort) -> Found:
    tiny = [Case(12, 4, 1e-2, 2)]
    quick = [
        Case(),
        *(Case(tol=tol) for tol in (1e-1, 1e-3)),
        *(Case(batch=batch) for batch in (1, 32)),
        Case(K=300, batch=128),
        Case(d=10),
        Case(method="frank-wolfe"),
    ]
    full = [
        *quick,
        Case(batch=4096),
        Case(K=1000, batch=64),
        Case(K=300, d=100, batch=64),
        *(Case(tol=tol, method="frank-wolfe") for tol in (1e-1, 1e-3)),
        Case(d=10, method="frank-wolfe"),
        Case(batch=32, method="optax"),
    ]
    yield from each(effort.pick(tiny, quick, full), str, lambda case: measure(case, effort))


def measure(case: Case, effort: Effort) -> list[Row]:
    arms = random_arms(case.K, case.d, case.batch)
    solve = solver(case.K, case.method, case.batch)
    tol = jnp.float32(case.tol)
    found = jax.device_get(solve(arms, tol))
    certified = np.mean(found.value <= (1 + case.tol) * found.rank * (1 + 1e-5))
    about: dict[str, Any] = {**case._asdict(), "certified": float(certified)}
    timing = time_in_turn({"solve": lambda: solve(arms, tol)}, effort.repeats)["solve"]
    return [
        timing.row(str(case), "us a design", 1e6 / case.batch, **about),
        Row(str(case), "iterations, mean", (float(found.iterations.mean()),), "", about),
        Row(str(case), "iterations, most", (float(found.iterations.max()),), "", about),
    ]


def solver(K: int, method: str, batch: int) -> Any:
    """A compiled solver of a batch, as (arms (batch, K, d), tol) -> Design; in chunks on a CPU."""
    mask = jnp.ones(K, bool)

    def all_at_once(arms: jax.Array, tol: jax.Array) -> Any:
        return jax.vmap(lambda x: fb.g_optimal_design(x, mask, tol, method=method))(arms)

    def in_chunks(arms: jax.Array, tol: jax.Array) -> Any:
        chunks = arms.reshape(-1, CHUNK, *arms.shape[1:])
        found = jax.lax.map(lambda chunk: all_at_once(chunk, tol), chunks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    chunked = jax.default_backend() == "cpu" and batch > CHUNK and batch % CHUNK == 0
    return jax.jit(in_chunks if chunked else all_at_once)


def random_arms(K: int, d: int, batch: int) -> jax.Array:
    """Arm sets drawn from the synthetic catalog."""
    catalog = fb.datasets.synthetic(seed=0, dim=d)
    rng = np.random.default_rng(0)
    sets = [catalog.arms[rng.choice(len(catalog.arms), K, replace=False)] for _ in range(batch)]
    return jnp.asarray(np.stack(sets), jnp.float32)

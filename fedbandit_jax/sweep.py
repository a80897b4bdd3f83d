"""Grids of settings: every cell, every user, every seed, from as few compiled programs as possible."""

import time
import warnings
from collections.abc import Iterable, Sequence

import jax
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from fedbandit_jax import _checks, _runtime, engine
from fedbandit_jax.algorithms.base import Algorithm, Trace
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.engine import Program
from fedbandit_jax.grid import Cell, make_cells, rounds_to_keep
from fedbandit_jax.results import Results, describe_environment

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
warned_of: set[str] = set()  # fingerprints of catalogs


def sweep(
    catalog: Catalog,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    clients: int | Sequence[int] | np.ndarray = 10,
    arms: int | Sequence[int] | np.ndarray = 100,
    horizon: int | Sequence[int] | np.ndarray = 6000,
    noise: float | Sequence[float] | np.ndarray = 0.1,
    users: int | Iterable[int] | np.ndarray = 10,
    seeds: int | Iterable[int] | np.ndarray = 1,
    seed: int = 0,
    checkpoints: int | Iterable[int] | np.ndarray = 128,
    spacing: str = "linear",
    dtype: str = "auto",
    progress: bool | None = None,
) -> Results:
    """Run every combination of the given lists, for every user and seed, and return all curves.

    `clients`, `arms`, `horizon`, `noise` and any hyperparameter may be lists. `users` and `seeds` are counts or lists
    of indices: each user is a preference vector of the catalog, each seed another draw of arm sets and noise. All
    randomness depends on (seed, user, index of the seed, client) alone. `checkpoints` is the number of rounds at
    which curves are kept, or the rounds themselves; `spacing` is "linear" or "log". `dtype` is "float32", "float64"
    or "auto": float64 for horizons above 2^20 rounds, where float32 would miscount, else float32. `progress` shows
    a bar on a terminal once a call takes two seconds.
    """
    cells = make_cells(catalog, algorithms, clients=clients, arms=arms, horizon=horizon, noise=noise)
    chosen_users = _checks.indices("users", users, len(catalog.users), f"the users of {catalog.name}")
    chosen_seeds = _checks.indices("seeds", seeds, 2**31)  # the PRNG takes 32 bits
    _checks.whole("seed", seed, 0, 2**31 - 1)
    _checks.choice("spacing", spacing, ("linear", "log"))
    _checks.choice("dtype", dtype, ("auto", "float32", "float64"))
    for T in {cell.horizon for cell in cells}:
        rounds_to_keep(checkpoints, T, spacing)
        if dtype == "float32" and T > FLOAT32_HORIZON:
            _checks.fail("dtype", dtype, f"horizon={T} needs float64, as float32 counts rounds to 2^20 only")

    warn_of_narrow_key_terms(catalog, cells)
    devices = _runtime.devices()
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    largest = {"max_clients": max(c.clients for c in cells), "max_arms": max(c.arms for c in cells)}
    traces_before, compile_seconds, began = engine.traces, 0.0, time.perf_counter()
    tables: list[tuple[pd.DataFrame, np.ndarray, Trace]] = []
    total = sum(cell.clients for cell in cells) * len(chosen_users) * len(chosen_seeds)
    with tqdm(total=total, unit=" clients", delay=2, disable=None if progress is None else not progress) as bar:
        for group in groups.values():
            T = group[0].horizon
            wide = dtype == "float64" or (dtype == "auto" and T > FLOAT32_HORIZON)
            rounds = rounds_to_keep(checkpoints, T, spacing)
            bar.set_description(group[0].algorithm.title)
            with jax.enable_x64(wide):
                program = Program(
                    catalog, group, chosen_users, chosen_seeds, seed=seed, rounds=rounds, devices=devices, **largest
                )
                parts = []
                for part in program.run():
                    parts.append(part)
                    bar.update(program.clients_in(len(part.regret)))
                compile_seconds += program.compile_seconds
            tables.append((program.table, rounds, program.per_run(parts)))
    elapsed = time.perf_counter() - began
    settings = {
        "dataset": catalog.name,
        "fingerprint": catalog.fingerprint,
        "seed": seed,
        "dtype": dtype,
        "programs": engine.traces - traces_before,
        "compile_seconds": compile_seconds,
        "run_seconds": elapsed - compile_seconds,
        **describe_environment(devices),
    }
    return Results.from_traces(catalog.name, tables, settings)


def warn_of_narrow_key_terms(catalog: Catalog, cells: Sequence[Cell]) -> None:
    """Say once of a catalog that questions about its key terms cannot reach every direction."""
    asking = {cell.algorithm.name: None for cell in cells if cell.algorithm.asks_key_terms}
    rank, dim = catalog.key_term_rank, catalog.dim
    if asking and rank < dim and catalog.fingerprint not in warned_of:
        warned_of.add(catalog.fingerprint)
        warnings.warn(
            f"the {len(catalog.key_terms)} key terms of {catalog.name} span {rank} of its {dim} dimensions: questions "
            f"of {', '.join(asking)} tell nothing about the other {dim - rank}, where no C > 0 holds",
            stacklevel=3,
        )

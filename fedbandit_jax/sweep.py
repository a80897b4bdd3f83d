"""Grids of settings, run in batches: padding, one program per static group, chunks, devices, progress.

Every run is one federation with its own row of numbers (clients, arms, noise, user, seed, hyperparameters). Runs
whose algorithms differ only in numbers share one compiled program; more or fewer clients and arms than the largest
are padding and masks.
"""

import itertools
import numbers
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Float, Int, Key
from tqdm.auto import tqdm

from fedbandit_jax import _checks, _runtime
from fedbandit_jax.algorithms.base import Algorithm, Trace
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.problem import sample_problem
from fedbandit_jax.results import Results, describe_environment

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
MAX_HORIZON = 10**9
traces = 0  # programs traced by this process so far
warned_of: set[str] = set()  # fingerprints of catalogs


class Pool(NamedTuple):
    """A catalog on the device."""

    arms: Float[Array, "A d"]
    key_terms: Float[Array, "J d"]
    users: Float[Array, "U d"]


class Run(NamedTuple):
    """The numbers of one federation; a leading axis R when batched."""

    clients: Int[Array, "*R"]
    arms: Int[Array, "*R"]
    noise: Float[Array, "*R"]
    user: Int[Array, "*R"]
    seed: Int[Array, "*R"]


@dataclass(frozen=True)
class Cell:
    """One setting: an algorithm with plain numbers, and where it plays."""

    algorithm: Algorithm
    label: str
    clients: int
    arms: int
    noise: float
    horizon: int

    def check(self, catalog: Catalog) -> None:
        self.algorithm.check(
            dim=catalog.dim,
            clients=self.clients,
            arms=self.arms,
            horizon=self.horizon,
            noise=self.noise,
        )

    @property
    def group(self) -> tuple:
        """Cells with the same group share a program; those of another horizon share it too, one after another."""
        return type(self.algorithm), jax.tree.structure(self.algorithm), self.horizon


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
    traces_before, compile_seconds, began = traces, 0.0, time.perf_counter()
    tables: list[tuple[pd.DataFrame, np.ndarray, Trace]] = []
    total = len(cells) * len(chosen_users) * len(chosen_seeds)
    with tqdm(total=total, unit="run", delay=2, disable=None if progress is None else not progress) as bar:
        for group in groups.values():
            T = group[0].horizon
            wide = dtype == "float64" or (dtype == "auto" and T > FLOAT32_HORIZON)
            rounds = rounds_to_keep(checkpoints, T, spacing)
            bar.set_description(group[0].algorithm.name)
            with jax.enable_x64(wide):
                table, batch, algorithm = stack_runs(group, chosen_users, chosen_seeds)
                runner = Runner(catalog, algorithm, seed, rounds, devices, **largest)
                parts = []
                for part in runner.run_all(batch, algorithm):
                    parts.append(part)
                    bar.update(len(part.regret))
                compile_seconds += runner.compile_seconds
            tables.append((table, rounds, jax.tree.map(lambda *xs: np.concatenate(xs), *parts)))
    elapsed = time.perf_counter() - began
    settings = {
        "dataset": catalog.name,
        "fingerprint": catalog.fingerprint,
        "seed": seed,
        "dtype": dtype,
        "programs": traces - traces_before,
        "compile_seconds": compile_seconds,
        "run_seconds": elapsed - compile_seconds,
        **describe_environment(devices),
    }
    return Results.from_traces(catalog.name, tables, settings)


def make_cells(catalog: Catalog, algorithms: Any, **axes: Any) -> list[Cell]:
    """Every combination of the lists, checked."""
    given = list(algorithms) if isinstance(algorithms, Iterable) else [algorithms]
    for algorithm in given:
        if not isinstance(algorithm, Algorithm):
            _checks.fail("algorithms", algorithm, "it must be an Algorithm, such as FedConPE(), or a list of them")
    if not given:
        _checks.fail("algorithms", algorithms, "it must name at least one algorithm")
    values = {name: _checks.as_list(value) for name, value in axes.items()}
    for name, entries in values.items():
        if not entries:
            _checks.fail(name, entries, "it must not be empty")
    for value in values["clients"]:
        _checks.whole("clients", value)
    for value in values["arms"]:
        _checks.whole("arms", value, 1, len(catalog.arms), f"the arms of {catalog.name}")
    for value in values["horizon"]:
        _checks.whole("horizon", value, 2, MAX_HORIZON)
    for value in values["noise"]:
        _checks.real("noise", value, 0, float("inf"), "[)")

    single = [variant for algorithm in given for variant in expand(algorithm)]
    cells = [
        Cell(variant.prepare(int(T)), label, int(M), int(K), float(noise), int(T))
        for (variant, label), M, K, noise, T in itertools.product(
            zip(single, labels(single), strict=True),
            values["clients"],
            values["arms"],
            values["noise"],
            values["horizon"],
        )
    ]
    for cell in cells:
        cell.check(catalog)
    return cells


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


def expand(algorithm: Algorithm) -> Iterator[Algorithm]:
    """One algorithm per combination of its list-valued hyperparameters."""
    parameters = {name: _checks.as_list(value) for name, value in algorithm.hyperparameters().items()}
    for combination in itertools.product(*parameters.values()):
        yield algorithm.replace(**dict(zip(parameters, combination, strict=True)))


def labels(algorithms: Sequence[Algorithm]) -> list[str]:
    """Names, with the hyperparameters in which algorithms of one name differ."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for algorithm in algorithms:
        by_name.setdefault(algorithm.title, []).append(algorithm.hyperparameters())

    def label(algorithm: Algorithm) -> str:
        same = by_name[algorithm.title]
        own = algorithm.hyperparameters()
        varied = [
            f"{key}={own[key]:g}" if isinstance(own[key], float) else f"{key}={own[key]}"
            for key in own
            if len({repr(other.get(key)) for other in same}) > 1
        ]
        return " ".join([algorithm.title, *varied])

    return [label(algorithm) for algorithm in algorithms]


def rounds_to_keep(checkpoints: Any, horizon: int, spacing: str) -> np.ndarray:
    """The rounds at which curves are kept; the last is the horizon."""
    if isinstance(checkpoints, Iterable) and not isinstance(checkpoints, str):
        given = [_checks.whole("checkpoints", t, 1, horizon, "the horizon") for t in checkpoints]
        return np.unique(np.array([*given, horizon], np.int64))
    if not isinstance(checkpoints, numbers.Real):
        _checks.fail("checkpoints", checkpoints, "it must be a whole number of at least 1 or a list of rounds")
    count = min(_checks.whole("checkpoints", checkpoints), horizon)
    if spacing == "log" and count > 1:
        return np.unique(np.geomspace(1, horizon, count).round().astype(np.int64))
    return np.linspace(horizon / count, horizon, count).round().astype(np.int64)


def stack_runs(
    cells: Sequence[Cell], users: Sequence[int], seeds: Sequence[int]
) -> tuple[pd.DataFrame, Run, Algorithm]:
    """A table with a row per run, and the same numbers as arrays with an axis R."""
    rows = [
        {
            "algorithm": cell.algorithm.title,
            "label": cell.label,
            "clients": cell.clients,
            "arms": cell.arms,
            "horizon": cell.horizon,
            "noise": cell.noise,
            "user": user,
            "seed": seed,
            **{k: str(v) if callable(v) else v for k, v in cell.algorithm.hyperparameters().items()},
        }
        for cell, user, seed in itertools.product(cells, users, seeds)
    ]
    table = pd.DataFrame(rows)
    real = jnp.zeros(()).dtype
    columns: Any = (np.asarray(table[name], real if name == "noise" else np.int32) for name in Run._fields)
    batch = Run(*columns)
    copies = len(users) * len(seeds)
    algorithm = jax.tree.map(
        lambda *values: np.repeat(np.asarray(values, real), copies), *(cell.algorithm for cell in cells)
    )
    return table, batch, algorithm


class Runner:
    """Feeds the runs of one program to all devices, a chunk at a time."""

    def __init__(
        self,
        catalog: Catalog,
        algorithm: Algorithm,
        seed: int,
        rounds: np.ndarray,
        devices: list[jax.Device],
        *,
        max_clients: int,
        max_arms: int,
    ) -> None:
        real = jnp.zeros(()).dtype
        self.chunk = len(devices) * runs_per_device(algorithm, max_clients, devices[0].platform)
        self.compile_seconds = 0.0
        mesh = jax.make_mesh((len(devices),), ("runs",), axis_types=(AxisType.Auto,), devices=devices)
        everywhere = jax.sharding.NamedSharding(mesh, PartitionSpec())
        features: Any = (np.asarray(x, real) for x in (catalog.arms, catalog.key_terms, catalog.users))
        shared = (Pool(*features), np.asarray(rounds, real), jax.random.key(seed))
        self.shared = jax.device_put(shared, everywhere)
        self.program = partial(run_batch, mesh=mesh, max_clients=max_clients, max_arms=max_arms)

    def run_all(self, batch: Run, algorithm: Algorithm) -> Iterator[Trace]:
        """Traces in order, a chunk each; the next chunk is on its way while one is read."""
        total = len(batch.user)
        waiting: list[tuple[int, Trace]] = []
        for first in range(0, total, self.chunk):
            # The last chunk is filled up with copies of the last run: one shape, one program.
            index = np.minimum(np.arange(first, first + self.chunk), total - 1)
            before, began = traces, time.perf_counter()
            trace = self.program(*jax.tree.map(lambda x, i=index: x[i], (algorithm, batch)), *self.shared)
            if traces > before:
                self.compile_seconds += time.perf_counter() - began
            waiting.append((min(self.chunk, total - first), trace))
            if len(waiting) > 1:
                yield to_host(*waiting.pop(0))
        for entry in waiting:
            yield to_host(*entry)


def to_host(count: int, trace: Trace) -> Trace:
    return jax.tree.map(lambda x: np.asarray(x)[:count], trace)


def runs_per_device(algorithm: Algorithm, max_clients: int, platform: str) -> int:
    """Enough clients side by side to amortise each step, few enough to stay in a CPU core's cache."""
    lanes = algorithm.lanes if platform == "cpu" else 64 * algorithm.lanes
    return max(1, lanes // max_clients)


@partial(jax.jit, static_argnames=("mesh", "max_clients", "max_arms"))
def run_batch(
    algorithm: Algorithm,
    batch: Run,
    pool: Pool,
    rounds: Float[Array, " P"],
    key: Key[Array, ""],
    *,
    mesh: jax.sharding.Mesh,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Play a batch of runs, spread over the devices of a mesh."""
    global traces
    traces += 1
    one = partial(run_one, max_clients=max_clients, max_arms=max_arms)
    per_device = jax.vmap(one, in_axes=(0, 0, None, None, None))
    spread, everywhere = PartitionSpec("runs"), PartitionSpec()
    return jax.shard_map(
        per_device,
        mesh=mesh,
        in_specs=(spread, spread, everywhere, everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )(algorithm, batch, pool, rounds, key)


def run_one(
    algorithm: Algorithm,
    run: Run,
    pool: Pool,
    rounds: Float[Array, " P"],
    key: Key[Array, ""],
    *,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Draw a federation and play it; pure in its arguments."""
    arms_key, play_key = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, run.user), run.seed))
    problem = sample_problem(
        arms_key,
        pool.arms,
        pool.key_terms,
        pool.users[run.user],
        clients=run.clients,
        num_arms=run.arms,
        noise=run.noise,
        horizon=rounds[-1],
        max_clients=max_clients,
        max_arms=max_arms,
    )
    return algorithm.run(play_key, problem, rounds)

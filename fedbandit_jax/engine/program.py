"""The compiled programs: lanes stacked as array batches, spread over the devices a chunk at a time.

Lanes (see lanes.py) whose algorithms differ only in numbers share one program; federations with fewer clients or arms
than the largest are padded and masked.
"""

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, UInt32

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm, Trace
from fedbandit_jax.engine.cells import Cell
from fedbandit_jax.engine.lanes import Lanes
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.problem import sample_problem

ACCELERATOR_LANES = 4096  # clients side by side on one GPU or TPU
# XLA's default, 3, compiles a quarter longer on CPU, for rounds that are a twelfth slower and phases that are the same.
COMPILER_OPTIONS = {"cpu": {"xla_backend_optimization_level": 1}}

BLOCK = 1024  # keys worked out at a time

traces = 0  # programs traced by this process so far
counting = threading.Lock()


class Pool(NamedTuple):
    """A catalog on the device."""

    arms: Float[Array, "A d"]
    key_terms: Float[Array, "J d"]
    users: Float[Array, "U d"]


class Run(NamedTuple):
    """The numbers of one lane; a leading axis when batched."""

    clients: Int[Array, "*R"]
    arms: Int[Array, "*R"]
    noise: Float[Array, "*R"]
    user: Int[Array, "*R"]
    first_client: Int[Array, "*R"]
    keys: UInt32[Array, "*R 2 2"]  # of arm sets and of play


def keys_of_runs(seed: int, user: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Keys of the arm sets and the play of runs, which depend on the seed, the user and the index of the seed alone.

    Worked out apart from the programs, as every use of a key takes each of them a quarter of a second to compile.
    """
    pairs, place = np.unique(user.astype(np.uint64) << 32 | index.astype(np.uint64), return_inverse=True)
    filled = np.resize(pairs, -(-len(pairs) // BLOCK) * BLOCK).reshape(-1, BLOCK)
    key = jax.random.key(seed)
    blocks = [_keys_of_block(key, (pair >> 32).astype(np.uint32), pair.astype(np.uint32)) for pair in filled]
    return np.concatenate(blocks)[place]


@jax.jit
def _keys_of_block(
    key: Key[Array, ""], user: UInt32[Array, " n"], index: UInt32[Array, " n"]
) -> UInt32[Array, "n 2 2"]:
    def keys(user: UInt32[Array, ""], index: UInt32[Array, ""]) -> Key[Array, " 2"]:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, user), index))

    return jax.random.key_data(jax.vmap(keys)(user, index))


def table_of_runs(cells: Sequence[Cell], users: Sequence[int], seeds: Sequence[int]) -> pd.DataFrame:
    """A row per run."""
    pairs = pd.MultiIndex.from_product([users, seeds]).to_frame(index=False)
    settings = pd.DataFrame(
        {
            "algorithm": cell.algorithm.title,
            "label": cell.label,
            "clients": cell.clients,
            "arms": cell.arms,
            "horizon": cell.horizon,
            "noise": cell.noise,
            **{k: str(v) if callable(v) else v for k, v in cell.algorithm.hyperparameters().items()},
        }
        for cell in cells
    )
    table = settings.iloc[np.repeat(np.arange(len(cells)), len(pairs))].reset_index(drop=True)
    after_noise = table.columns.get_loc("noise") + 1
    table.insert(after_noise, "user", np.tile(pairs[0], len(cells)))
    table.insert(after_noise + 1, "seed", np.tile(pairs[1], len(cells)))
    return table


def clients_per_device(algorithm: Algorithm, arms: int, dim: int, device: jax.Device) -> int:
    """Clients to play side by side on one device, if they fit into memory."""
    return algorithm.clients_per_core(arms, dim) if device.platform == "cpu" else ACCELERATOR_LANES


class Program:
    """Cells that differ only in numbers, padded to one shape, on all devices of this process."""

    def __init__(
        self,
        catalog: Catalog,
        lanes: Lanes,
        *,
        seed: int,
        rounds: np.ndarray,
        devices: Sequence[jax.Device],
    ) -> None:
        real = jnp.zeros(()).dtype
        cells = lanes.cells
        first = cells[0].algorithm
        self.lanes = lanes
        settings: Any = {name: [getattr(cell, name) for cell in cells] for name in ("clients", "arms", "noise")}
        columns: Any = {
            **{name: np.asarray(values)[lanes.cell] for name, values in settings.items()},
            "user": lanes.user,
            "first_client": lanes.client,
        }
        columns = {k: v.astype(real if k == "noise" else np.int32) for k, v in columns.items()}
        columns["keys"] = keys_of_runs(seed, lanes.user, lanes.seed)
        self.batch = Run(**columns)
        self.algorithm = jax.tree.map(
            lambda *values: np.asarray(values, real)[lanes.cell], *(cell.algorithm for cell in cells)
        )
        self.max_clients = 1 if first.independent_clients else max(cell.clients for cell in cells)
        self.max_arms = max(cell.arms for cell in cells)
        self.num_devices = len(devices)
        clients = clients_per_device(first, self.max_arms, catalog.dim, devices[0])
        self.chunk = self.num_devices * max(1, clients // self.max_clients)
        self.compile_seconds = 0.0
        self.memory = 0  # bytes that a chunk takes on all devices
        self.work = 0.0  # in clients x arms x phases
        self.work_on_padding = 0.0

        mesh = jax.make_mesh((len(devices),), ("lanes",), axis_types=(AxisType.Auto,), devices=list(devices))
        features: Any = (np.asarray(x, real) for x in (catalog.arms, catalog.key_terms, catalog.users))
        shared = (Pool(*features), np.asarray(rounds, real))
        self.shared = jax.device_put(shared, NamedSharding(mesh, PartitionSpec()))
        self.play = compiled(devices[0].platform)
        self.static = {"mesh": mesh, "max_clients": self.max_clients, "max_arms": self.max_arms}

    def arguments(self, lanes: np.ndarray) -> tuple:
        """Of `run_batch`, for a chunk; a short one is filled up with copies of its last lane, as shapes are fixed."""
        index = lanes[np.minimum(np.arange(self.chunk), len(lanes) - 1)]
        return (*jax.tree.map(lambda x: x[index], (self.algorithm, self.batch)), *self.shared)

    @property
    def signature(self) -> tuple:
        """Programs of equal signatures are compiled once."""
        arguments = self.arguments(np.zeros(1, int))
        shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves(arguments))
        return jax.tree.structure(arguments), shapes, *self.static.values()

    def compile(self, budget: float) -> None:
        """Compile, for as many lanes at a time as fit into a budget of bytes."""
        while True:
            began = time.perf_counter()
            lowered = self.play.lower(*self.arguments(np.zeros(1, int)), **self.static)
            needs = lowered.compile().memory_analysis()  # which jit finds in its cache again
            self.compile_seconds += time.perf_counter() - began
            if needs is None:  # not every backend tells
                return
            parts = needs.temp_size_in_bytes, needs.argument_size_in_bytes, 2 * needs.output_size_in_bytes
            self.memory = self.num_devices * sum(parts)
            if self.memory <= budget:
                return
            if self.chunk == self.num_devices:
                allowed = f"the smallest program takes {self.memory / 1e9:.2g} GB"
                _checks.fail("memory", f"{budget / 1e9:.2g}GB", allowed)
            fitting = int(self.chunk / self.num_devices * budget / self.memory)
            self.chunk = self.num_devices * max(1, min(fitting, self.chunk // self.num_devices - 1))

    def run(self, lanes: np.ndarray) -> Iterator[Trace]:
        """Traces of some lanes, in order, a chunk each; out of memory, chunks of half the size go on."""
        done = 0
        while done < len(lanes):
            try:
                for part in self.chunks(lanes[done:]):
                    yield part
                    done += len(part.regret)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk == self.num_devices:
                    raise
                before, self.chunk = self.chunk, self.num_devices * (self.chunk // self.num_devices // 2)
                warnings.warn(f"out of memory with {before} lanes at a time: going on with {self.chunk}", stacklevel=2)

    def chunks(self, lanes: np.ndarray) -> Iterator[Trace]:
        """The next chunk is on its way while one is read."""
        waiting: list[tuple[np.ndarray, Trace]] = []
        for first in range(0, len(lanes), self.chunk):
            index = lanes[first : first + self.chunk]
            waiting.append((index, self.play(*self.arguments(index), **self.static)))
            if len(waiting) > 1:
                yield self.to_host(*waiting.pop(0))
        for entry in waiting:
            yield self.to_host(*entry)

    def to_host(self, lanes: np.ndarray, trace: Trace) -> Trace:
        trace = jax.tree.map(np.asarray, trace)
        clients = np.ones(len(lanes), int) if self.max_clients == 1 else self.batch.clients[lanes]
        phases = (trace.phases["phase"] > 0).sum(axis=1) if trace.phases else np.ones(self.chunk, int)
        longest = phases.reshape(self.num_devices, -1).max(axis=1)  # a device goes on until its last lane is done
        spent = self.max_clients * self.max_arms * self.chunk * float(longest.mean())
        self.work += spent
        self.work_on_padding += spent - float((clients * self.batch.arms[lanes] * phases[: len(lanes)]).sum())
        return jax.tree.map(lambda x: x[: len(lanes)], trace)

    def finished(self, runs: np.ndarray) -> Iterator[tuple[np.ndarray, Trace]]:
        """Play some runs; yields them, and their traces, as soon as all of their lanes are done."""
        lanes = self.lanes.of(runs)
        begin = np.searchsorted(lanes, self.lanes.first[runs])
        end = begin + self.lanes.count[runs]
        order = np.argsort(end, kind="stable")
        runs, begin, end = runs[order], begin[order], end[order]
        given, kept_from, played = 0, 0, 0
        waiting: list[Trace] = []
        for part in self.run(lanes):
            waiting.append(part)
            played += len(part.regret)
            whole = slice(given, int(np.searchsorted(end, played, side="right")))
            if whole.stop == given:
                continue
            together = concatenate(waiting)
            yield runs[whole], add_up(together, begin[whole] - kept_from, end[whole] - kept_from)
            given = whole.stop
            needed_from = int(begin[given:].min(initial=played))
            waiting = [jax.tree.map(lambda x, n=needed_from - kept_from: x[n:], together)]
            kept_from = needed_from


def add_up(lanes: Trace, begin: np.ndarray, end: np.ndarray) -> Trace:
    """Traces of runs, each of some neighbouring lanes: clients that play alone are added up."""
    count = end - begin
    if (count == 1).all():
        return jax.tree.map(lambda x: x[begin], lanes)
    edges = np.column_stack([begin, end]).ravel()

    def add(curve: np.ndarray) -> np.ndarray:
        closed = np.concatenate([curve, np.zeros_like(curve[:1])])  # an edge may lie behind the last lane
        return np.add.reduceat(closed, edges, axis=0)[::2]

    total: Trace = jax.tree.map(add, lanes)
    mean = count[:, None]
    return total._replace(conversations=total.conversations / mean, theta_error=total.theta_error / mean)


def concatenate(parts: Sequence[Trace]) -> Trace:
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


@cache
def compiled(platform: str) -> Any:
    """`run_batch` as JAX compiles it for a kind of device, unless it has been told to compile quickly."""
    options = None if jax.config.values["jax_disable_most_optimizations"] else COMPILER_OPTIONS.get(platform)
    return jax.jit(run_batch, static_argnames=("mesh", "max_clients", "max_arms"), compiler_options=options)


def run_batch(
    algorithm: Algorithm,
    batch: Run,
    pool: Pool,
    rounds: Float[Array, " P"],
    *,
    mesh: jax.sharding.Mesh,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Play a batch of lanes, spread over the devices of a mesh."""
    global traces
    with counting:
        traces += 1
    one = partial(run_one, max_clients=max_clients, max_arms=max_arms)
    per_device = jax.vmap(one, in_axes=(0, 0, None, None))
    spread, everywhere = PartitionSpec("lanes"), PartitionSpec()
    return jax.shard_map(
        per_device,
        mesh=mesh,
        in_specs=(spread, spread, everywhere, everywhere),
        out_specs=spread,
        check_vma=False,
    )(algorithm, batch, pool, rounds)


def run_one(
    algorithm: Algorithm,
    run: Run,
    pool: Pool,
    rounds: Float[Array, " P"],
    *,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Draw a federation, or one client of it, and play it; pure in its arguments."""
    arms_key, play_key = jax.random.wrap_key_data(run.keys)
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
        first_client=run.first_client,
    )
    with jax.default_matmul_precision("highest"):  # GPUs and TPUs would round the factors of products to a few digits
        return algorithm.run(play_key, problem, rounds)

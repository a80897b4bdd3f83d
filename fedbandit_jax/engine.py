"""The compiled programs: runs stacked as array batches, spread over the devices a chunk at a time.

A lane is what a program plays side by side with others: a federation, or, of an algorithm whose clients do not meet, a
single client. Lanes whose algorithms differ only in numbers share one program; federations with fewer clients or arms
than the largest are padded and masked.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax.algorithms.base import Algorithm, Trace
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.grid import Cell
from fedbandit_jax.problem import sample_problem

ACCELERATOR_LANES = 4096  # clients side by side on one GPU or TPU

traces = 0  # programs traced by this process so far


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
    seed: Int[Array, "*R"]
    first_client: Int[Array, "*R"]


def table_of_runs(cells: Sequence[Cell], users: Sequence[int], seeds: Sequence[int]) -> pd.DataFrame:
    """A row per run."""
    return pd.DataFrame(
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
        for cell, user, seed in product(cells, users, seeds)
    )


def lanes_per_device(algorithm: Algorithm, arms: int, dim: int, device: jax.Device) -> int:
    """Clients to play side by side on one device."""
    return algorithm.lanes(arms, dim) if device.platform == "cpu" else ACCELERATOR_LANES


class Program:
    """All cells of one static group on all devices."""

    def __init__(
        self,
        catalog: Catalog,
        cells: Sequence[Cell],
        users: Sequence[int],
        seeds: Sequence[int],
        *,
        seed: int,
        rounds: np.ndarray,
        devices: Sequence[jax.Device],
        max_clients: int,
        max_arms: int,
    ) -> None:
        real = jnp.zeros(()).dtype
        self.table = table_of_runs(cells, users, seeds)
        first = cells[0].algorithm
        self.clients = self.table["clients"].to_numpy() if first.independent_clients else np.ones(len(self.table), int)
        run = np.repeat(np.arange(len(self.table)), self.clients)  # of each lane
        self.first_lane = np.cumsum(self.clients) - self.clients  # of each run
        columns: dict[str, Any] = {
            name: self.table[name].to_numpy(real if name == "noise" else np.int32)[run] for name in Run._fields[:-1]
        }
        columns["first_client"] = (np.arange(len(run)) - self.first_lane[run]).astype(np.int32)
        self.batch = Run(**columns)
        cell = run // (len(users) * len(seeds))
        self.algorithm = jax.tree.map(
            lambda *values: np.asarray(values, real)[cell], *(cell.algorithm for cell in cells)
        )
        max_clients = 1 if first.independent_clients else max_clients
        lanes = lanes_per_device(first, max_arms, catalog.dim, devices[0])
        self.chunk = len(devices) * max(1, lanes // max_clients)
        self.compile_seconds = 0.0

        mesh = jax.make_mesh((len(devices),), ("lanes",), axis_types=(AxisType.Auto,), devices=list(devices))
        features: Any = (np.asarray(x, real) for x in (catalog.arms, catalog.key_terms, catalog.users))
        shared = (Pool(*features), np.asarray(rounds, real), jax.random.key(seed))
        self.shared = jax.device_put(shared, NamedSharding(mesh, PartitionSpec()))
        self.play = partial(run_batch, mesh=mesh, max_clients=max_clients, max_arms=max_arms)

    def run(self, lanes: np.ndarray | None = None) -> Iterator[Trace]:
        """Traces of some lanes, or all, in order, a chunk each; the next chunk is on its way while one is read."""
        lanes = np.arange(len(self.batch.user)) if lanes is None else lanes
        total = len(lanes)
        waiting: list[tuple[int, Trace]] = []
        for first in range(0, total, self.chunk):
            # The last chunk is filled up with copies of the last lane: one shape, one program.
            index = lanes[np.minimum(np.arange(first, first + self.chunk), total - 1)]
            before, began = traces, time.perf_counter()
            trace = self.play(*jax.tree.map(lambda x, i=index: x[i], (self.algorithm, self.batch)), *self.shared)
            if traces > before:
                self.compile_seconds += time.perf_counter() - began
            waiting.append((min(self.chunk, total - first), trace))
            if len(waiting) > 1:
                yield _to_host(*waiting.pop(0))
        for entry in waiting:
            yield _to_host(*entry)

    def finished(self, runs: np.ndarray) -> Iterator[tuple[np.ndarray, Trace]]:
        """Play some rows of the table; yields rows and their traces as soon as all of their lanes are done."""
        lanes = np.concatenate([self.first_lane[r] + np.arange(self.clients[r]) for r in runs])
        ends = np.cumsum(self.clients[runs])
        given, done = 0, 0
        waiting: list[Trace] = []
        for part in self.run(lanes):
            waiting.append(part)
            done += len(part.regret)
            count = int(np.searchsorted(ends, done, side="right"))
            if count > given:
                together = concatenate(waiting)
                cut = ends[count - 1] - (done - len(together.regret))
                whole, rest = (jax.tree.map(lambda x, s=s: x[s], together) for s in (slice(cut), slice(cut, None)))
                rows, given, waiting = runs[given:count], count, [rest]
                yield rows, self.per_run([whole], rows)

    def per_run(self, parts: Sequence[Trace], runs: np.ndarray | None = None) -> Trace:
        """Traces of lanes put together to traces of their runs: clients that play alone are added up."""
        lanes = concatenate(parts)
        clients = self.clients if runs is None else self.clients[runs]
        if (clients == 1).all():
            return lanes
        first = np.cumsum(clients) - clients
        total: Trace = jax.tree.map(lambda curve: np.add.reduceat(curve, first, axis=0), lanes)
        count = clients[:, None]
        return total._replace(conversations=total.conversations / count, theta_error=total.theta_error / count)


def concatenate(parts: Sequence[Trace]) -> Trace:
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def _to_host(count: int, trace: Trace) -> Trace:
    return jax.tree.map(lambda x: np.asarray(x)[:count], trace)


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
    """Play a batch of lanes, spread over the devices of a mesh."""
    global traces
    traces += 1
    one = partial(run_one, max_clients=max_clients, max_arms=max_arms)
    per_device = jax.vmap(one, in_axes=(0, 0, None, None, None))
    spread, everywhere = PartitionSpec("lanes"), PartitionSpec()
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
    """Draw a federation, or one client of it, and play it; pure in its arguments."""
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
        first_client=run.first_client,
    )
    return algorithm.run(play_key, problem, rounds)

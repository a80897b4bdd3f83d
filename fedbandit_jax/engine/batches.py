"""Batches: cells that share a compiled program, and the lanes that it plays side by side.

A lane is one element of the batch: a whole federation, or a single client if clients never communicate. Such clients
play the same for every M, so runs that differ only in M share lanes: the largest of them has all that the others need.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.phases import PhaseAlgorithm
from fedbandit_jax.clocks.schedule import NEVER
from fedbandit_jax.clocks.variants import Variants, member_of, rounds_of
from fedbandit_jax.engine.cells import Cell
from fedbandit_jax.engine.code import is_package
from fedbandit_jax.worlds.catalog import Catalog

CHUNKS_TO_COMPILE = 32  # a program takes about as long to compile as a device needs for so many of its chunks,
ROUNDS_OF_CHUNKS = 6000  # of so many rounds each; phases cost the same however long they are
ACCELERATOR_LANES = 2**14  # most clients side by side on one GPU or TPU: more hide no more of the launches
ACCELERATOR_MEMORY = 8 * 10**9  # bytes of one that does not tell
CLIENT_SIZE = 32  # numbers that a client takes at most on an accelerator, in those of its arms and a d x d matrix


class Batch:
    """Cells that differ only in numbers, padded to one shape, for all users and seeds of a catalog.

    Its runs are in the order of cell, user, seed. Cells that take about as many steps have neighbouring lanes, so that
    few lanes of a chunk wait for others.
    """

    def __init__(
        self,
        catalog: Catalog,
        cells: Sequence[Cell],
        users: Sequence[int],
        seeds: Sequence[int],
        rounds: np.ndarray,
        dtype: str,
    ) -> None:
        self.catalog, self.cells, self.rounds, self.dtype = catalog, cells, rounds, dtype
        self.algorithms = [cell.algorithm.for_catalog(catalog) for cell in cells]
        self.worlds = [cell.world for cell in cells]
        # What is compiled and played: the algorithms, unless other learners share their program.
        self.played: Sequence[Algorithm | Variants] = self.algorithms
        self.playing: int | None = None  # which of the learners that share a program
        alone = self.algorithm.independent_clients
        self.max_clients = 1 if alone else max(cell.clients for cell in cells)
        self.max_arms = max(cell.arms for cell in cells)

        sharing: dict[object, list[int]] = {}  # cells that share their lanes
        for i in sorted(range(len(cells)), key=lambda i: cells[i].steps(catalog.dim)):
            sharing.setdefault(sharing_key(cells, i), []).append(i)
        pairs = len(users) * len(seeds)  # of a user and a seed
        sizes = np.array([max(cells[i].clients for i in members) if alone else 1 for members in sharing.values()])
        starts = np.cumsum(sizes * pairs) - sizes * pairs
        group_of_cell = np.empty(len(cells), int)
        for number, members in enumerate(sharing.values()):
            group_of_cell[members] = number

        # Of each run: its first lane, how many it has, and a number that is equal for runs which share lanes.
        clients, pair = np.array([cell.clients for cell in cells]), np.arange(pairs)
        self.first_lane = (starts[group_of_cell][:, None] + sizes[group_of_cell][:, None] * pair[None, :]).ravel()
        self.lanes_of_run = np.repeat(clients if alone else np.ones_like(clients), pairs)
        self.share = (group_of_cell[:, None] + pair[None, :]).ravel()

        # Of each lane: its cell, the largest of those that share it, its client, user and seed.
        largest = np.array([max(members, key=lambda i: cells[i].clients) for members in sharing.values()])
        self.cell = np.repeat(largest, sizes * pairs)
        place = np.arange(len(self.cell)) - np.repeat(starts, sizes * pairs)
        size = np.repeat(sizes, sizes * pairs)
        self.client = place % size
        self.user = np.asarray(users)[place // size // len(seeds)]
        self.seed = np.asarray(seeds)[place // size % len(seeds)]

    @property
    def algorithm(self) -> Algorithm:
        """One of its algorithms, which differ in numbers only."""
        return self.algorithms[0]

    @property
    def horizon(self) -> int:
        return self.cells[0].horizon

    @property
    def key(self) -> tuple:
        """Batches of equal keys share a compiled program."""
        catalog = self.catalog
        features = (catalog.arms, catalog.key_terms, catalog.users, catalog.links)
        pool = tuple(None if x is None else x.shape for x in features)
        shape = (self.max_clients, self.max_arms, len(self.rounds), self.dtype)
        return jax.tree.structure((self.played[0], self.worlds[0])), pool, shape

    def lanes_of(self, runs: np.ndarray) -> np.ndarray:
        """All lanes of some runs, each once, in order."""
        change = np.zeros(len(self.cell) + 1, int)
        np.add.at(change, self.first_lane[runs], 1)
        np.add.at(change, self.first_lane[runs] + self.lanes_of_run[runs], -1)
        return np.flatnonzero(np.cumsum(change))


def share_programs(batches: Sequence[Batch]) -> None:
    """Let learners of the package that differ only in what they ask, and when or never, share programs."""
    alike: dict[tuple, list[Batch]] = {}
    for batch in batches:
        rounds = rounds_of(batch.algorithm) if is_package(type(batch.algorithm)) else None
        if rounds is not None:
            _, *rest = batch.key
            alike.setdefault((jax.tree.structure((rounds, batch.worlds[0])), *rest), []).append(batch)
    for group in alike.values():
        by_schedule: dict[Any, list[Batch]] = {}
        for batch in group:
            by_schedule.setdefault(batch.algorithm.question_schedule(), []).append(batch)  # type: ignore[attr-defined]
        silent = by_schedule.pop(NEVER, [])
        for asking in by_schedule.values() or [[]]:
            together, silent = [*silent, *asking], []
            members = tuple(dict.fromkeys(member_of(batch.algorithm) for batch in together))  # type: ignore[arg-type]
            for batch in together if len(members) > 1 else []:
                numbers = [rounds_of(algorithm) for algorithm in batch.algorithms]
                batch.played = [Variants(one, members) for one in numbers if one is not None]
                batch.playing = members.index(member_of(batch.algorithm))  # type: ignore[arg-type]


def sharing_key(cells: Sequence[Cell], i: int) -> object:
    """Cells of equal keys share lanes: of clients that play alone, those that differ only in the number of clients.

    Where one client comes at a time, their number says how often.
    """
    cell = cells[i]
    if not cell.algorithm.independent_clients or cell.world.arrivals == "one":
        return i
    return cell.label, cell.arms, cell.noise, tuple(cell.world.hyperparameters().values()), type(cell.world)


def clients_per_device(algorithm: Algorithm, arms: int, dim: int, device: jax.Device) -> int:
    """Clients to play side by side on one device: what suits the cache of a core, or half the memory of an accelerator.

    A program that turns out to take more memory than it may is made smaller, see `Program.compile`.
    """
    if device.platform != "cpu":
        return clients_in_memory(device.memory_stats(), arms, dim)
    return _checks.whole(f"{algorithm.name}.clients_per_core", algorithm.clients_per_core(arms, dim))


def clients_in_memory(stats: Mapping[str, int] | None, arms: int, dim: int) -> int:
    """Clients that half the memory of an accelerator holds, which tells of it as JAX has it, or not."""
    there = (stats or {}).get("bytes_limit", ACCELERATOR_MEMORY)
    return min(ACCELERATOR_LANES, power_of_two_below(there / 2 / (4 * CLIENT_SIZE * dim * (arms + dim))))


def power_of_two_below(x: float) -> int:
    """The largest that is at most x; 1 if there is none."""
    return 2 ** max(0, math.floor(math.log2(x)))


def power_of_two_above(x: float) -> int:
    """The least that is at least x."""
    return 2 ** max(0, math.ceil(math.log2(x)))


def split_by_shape(cells: Sequence[Cell], runs_per_cell: int, clients_per_device: int) -> list[list[Cell]]:
    """Divide cells by padded shape; each part is a program. One, unless padding costs more than it saves.

    Padding to the largest M and K is work, lanes x M x K of it; another program costs the time to compile it. Starting
    with a program for every M and K, the two that cost least to join are joined, as long as compiling costs more.
    """
    alone = cells[0].algorithm.independent_clients
    sizes, shape = np.unique(
        np.array([(1 if alone else cell.clients, cell.arms) for cell in cells]), axis=0, return_inverse=True
    )
    shape = shape.reshape(-1)
    lanes: dict[tuple, int] = {}
    for i, cell in enumerate(cells):
        place = (shape[i], sharing_key(cells, i))
        lanes[place] = max(lanes.get(place, 0), runs_per_cell * (cell.clients if alone else 1))
    count = np.bincount([place[0] for place in lanes], weights=list(lanes.values()), minlength=len(sizes))

    by_phases, T = isinstance(cells[0].algorithm, PhaseAlgorithm), max(cell.horizon for cell in cells)
    chunks = CHUNKS_TO_COMPILE * (1 if by_phases else ROUNDS_OF_CHUNKS / T)
    compiling = chunks * clients_per_device * sizes[:, 1].max()
    joined = np.arange(len(sizes))  # the program of each shape
    while len(sizes) > 1:
        work = count * sizes.prod(axis=1)
        together = np.maximum(sizes[:, None], sizes[None, :]).prod(axis=2) * (count[:, None] + count[None, :])
        extra: Any = together - work[:, None] - work[None, :]
        np.fill_diagonal(extra, np.inf)
        one, other = sorted(np.unravel_index(extra.argmin(), extra.shape))
        if extra[one, other] > compiling:
            break
        sizes[one] = np.maximum(sizes[one], sizes[other])
        count[one] += count[other]
        sizes, count = np.delete(sizes, other, axis=0), np.delete(count, other)
        joined[joined == other] = one
        joined[joined > other] -= 1
    program_of_cell = joined[shape].tolist()
    return [[cell for cell, p in zip(cells, program_of_cell, strict=True) if p == i] for i in range(len(sizes))]

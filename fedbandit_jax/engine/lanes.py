"""Lanes: what a program plays side by side, and which of them make up a run.

A lane is a federation, or, of an algorithm whose clients do not meet, a single client. Such a client plays the same
whatever M is, so runs that differ in M alone share its lane: the largest of them has all that the others need.
"""

from collections.abc import Sequence

import numpy as np

from fedbandit_jax.engine.cells import Cell

CHUNKS_TO_COMPILE = 32  # a program takes about as long to compile as a device needs for so many of its chunks


def world(cells: Sequence[Cell], i: int) -> object:
    """What cells must have in common to share lanes: of clients that play alone, all but their number."""
    cell = cells[i]
    return (cell.label, cell.arms, cell.noise) if cell.algorithm.independent_clients else i


def shapes(cells: Sequence[Cell], runs_per_cell: int, clients_per_device: int) -> list[np.ndarray]:
    """Which cells are padded to one shape, and so share a program: all, unless that costs more than it saves.

    Padding to the largest M and K is work, lanes x M x K of it; another program costs the time to compile it. Starting
    with a program for every M and K, the two that cost least to join are joined, as long as compiling costs more.
    """
    alone = cells[0].algorithm.independent_clients
    places = np.array([(1 if alone else cell.clients, cell.arms) for cell in cells])
    sizes, shape = np.unique(places, axis=0, return_inverse=True)
    shape = shape.reshape(-1)
    lanes: dict[tuple, int] = {}
    for i, cell in enumerate(cells):
        place = (shape[i], world(cells, i))
        lanes[place] = max(lanes.get(place, 0), runs_per_cell * (cell.clients if alone else 1))
    count = np.bincount([place[0] for place in lanes], weights=list(lanes.values()), minlength=len(sizes))

    compiling = CHUNKS_TO_COMPILE * clients_per_device * sizes[:, 1].max()
    joined = np.arange(len(sizes))  # the program of each shape
    while len(sizes) > 1:
        work = count * sizes.prod(axis=1)
        together = np.maximum(sizes[:, None], sizes[None, :]).prod(axis=2) * (count[:, None] + count[None, :])
        extra = together - work[:, None] - work[None, :]
        np.fill_diagonal(extra, np.inf)
        one, other = sorted(np.unravel_index(extra.argmin(), extra.shape))
        if extra[one, other] > compiling:
            break
        sizes[one] = np.maximum(sizes[one], sizes[other])
        count[one] += count[other]
        sizes, count = np.delete(sizes, other, axis=0), np.delete(count, other)
        joined[joined == other] = one
        joined[joined > other] -= 1
    return [np.flatnonzero(joined[shape] == program) for program in range(len(sizes))]


class Lanes:
    """The lanes of some cells, for all users and seeds; runs are in the order of `engine.table_of_runs`.

    Cells that take about as many steps are neighbours, so that few lanes of a batch wait for others.
    """

    def __init__(self, cells: Sequence[Cell], users: Sequence[int], seeds: Sequence[int], dim: int) -> None:
        self.cells = cells
        alone = cells[0].algorithm.independent_clients
        pairs = len(users) * len(seeds)  # of a user and a seed
        worlds: dict[object, list[int]] = {}  # cells that share their lanes
        for i in sorted(range(len(cells)), key=lambda i: cells[i].steps(dim)):
            worlds.setdefault(world(cells, i), []).append(i)
        sizes = np.array([max(cells[i].clients for i in members) if alone else 1 for members in worlds.values()])
        starts = np.cumsum(sizes * pairs) - sizes * pairs
        of_cell = np.empty(len(cells), int)  # the number of its world
        for number, members in enumerate(worlds.values()):
            of_cell[members] = number

        clients = np.array([cell.clients for cell in cells])
        pair = np.arange(pairs)
        self.first = (starts[of_cell][:, None] + sizes[of_cell][:, None] * pair[None, :]).ravel()  # lane of each run
        self.count = np.repeat(clients if alone else np.ones_like(clients), pairs)  # lanes of each run
        self.share = (of_cell[:, None] + pair[None, :]).ravel()  # runs of equal numbers belong on one host

        largest = np.array([max(members, key=lambda i: cells[i].clients) for members in worlds.values()])
        self.cell = np.repeat(largest, sizes * pairs)  # of each lane
        place = np.arange(len(self.cell)) - np.repeat(starts, sizes * pairs)
        size = np.repeat(sizes, sizes * pairs)
        self.client = place % size
        self.user = np.asarray(users)[place // size // len(seeds)]
        self.seed = np.asarray(seeds)[place // size % len(seeds)]

    def of(self, runs: np.ndarray) -> np.ndarray:
        """All lanes of some runs, each once, in order."""
        change = np.zeros(len(self.cell) + 1, int)
        np.add.at(change, self.first[runs], 1)
        np.add.at(change, self.first[runs] + self.count[runs], -1)
        return np.flatnonzero(np.cumsum(change))

"""Sweep: arguments that have been checked, before anything is compiled, and the one table of all runs."""

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.algorithms.fedconpe import FedConPE
from fedbandit_jax.engine.batches import Batch, clients_per_device, split_by_shape
from fedbandit_jax.engine.cells import Cell, make_cells, rounds_to_keep
from fedbandit_jax.worlds.catalog import Catalog

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Sweep:
    """Every cell is played on every catalog, for every user and seed."""

    catalogs: list[Catalog]
    cells: list[Cell]
    users: list[int]
    seeds: list[int]
    seed: int
    checkpoints: int | list[int]
    spacing: str
    dtype: str

    @property
    def runs_per_cell(self) -> int:
        return len(self.users) * len(self.seeds)

    @property
    def num_cells(self) -> int:
        return len(self.catalogs) * len(self.cells)

    @property
    def num_runs(self) -> int:
        return self.num_cells * self.runs_per_cell

    def rounds(self, horizon: int) -> np.ndarray:
        """At which curves are kept."""
        return rounds_to_keep(self.checkpoints, horizon, self.spacing)

    def dtype_at(self, horizon: int) -> str:
        if self.dtype != "auto":
            return self.dtype
        return "float64" if horizon > FLOAT32_HORIZON else "float32"

    def batches(self, device: jax.Device) -> list[Batch]:
        """Cells that share a program: of one algorithm, differing in numbers only, unless padding costs too much.

        They follow from the whole grid, so resuming compiles the same programs.
        """
        groups: dict[tuple, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.group, []).append(cell)
        found = []
        for catalog in self.catalogs:
            for group in groups.values():
                T, most_arms = group[0].horizon, max(cell.arms for cell in group)
                at_once = clients_per_device(group[0].algorithm, most_arms, catalog.dim, device)
                for cells in split_by_shape(group, self.runs_per_cell, at_once):
                    batch = Batch(catalog, cells, self.users, self.seeds, self.rounds(T), self.dtype_at(T))
                    found.append(batch)
        return found

    def settings_of_cells(self) -> list[dict[str, Any]]:
        """Of every catalog and cell: where it plays, and its hyperparameters."""
        return [
            {
                "dataset": catalog.name,
                "algorithm": cell.algorithm.title,
                "label": cell.label,
                "clients": cell.clients,
                "arms": cell.arms,
                "horizon": cell.horizon,
                "noise": cell.noise,
                **{k: str(v) if callable(v) else v for k, v in cell.algorithm.hyperparameters().items()},
            }
            for catalog, cell in self.catalogs_and_cells()
        ]

    def table_of_runs(self, batches: Sequence[Batch]) -> pd.DataFrame:
        """A row per run, in the order of catalog, cell, user and seed; all else refers to its rows.

        `cell` counts catalogs and cells. The runs of a batch are in this order too. Runs with equal numbers `share`
        have lanes in common and belong on one host.
        """
        pairs = self.runs_per_cell
        number = {(catalog.name, id(cell)): i for i, (catalog, cell) in enumerate(self.catalogs_and_cells())}
        batch_of_run, share = np.empty(self.num_runs, int), np.empty(self.num_runs, int)
        for i, batch in enumerate(batches):
            cells = np.array([number[batch.catalog.name, id(cell)] for cell in batch.cells])
            rows = (cells[:, None] * pairs + np.arange(pairs)[None, :]).ravel()
            batch_of_run[rows], share[rows] = i, batch.share
        return pd.DataFrame(
            {
                "cell": np.repeat(np.arange(self.num_cells), pairs),
                "user": np.tile(np.repeat(self.users, len(self.seeds)), self.num_cells),
                "seed": np.tile(self.seeds, self.num_cells * len(self.users)),
                "clients": np.repeat([cell.clients for _, cell in self.catalogs_and_cells()], pairs),
                "batch": batch_of_run,
                "share": share,
            }
        )

    def catalogs_and_cells(self) -> list[tuple[Catalog, Cell]]:
        return [(catalog, cell) for catalog in self.catalogs for cell in self.cells]


def make_sweep(
    catalog: Any,
    algorithms: Any,
    *,
    users: Any = 10,
    seeds: Any = 1,
    seed: Any = 0,
    checkpoints: Any = 128,
    spacing: Any = "linear",
    dtype: Any = "auto",
    **axes: Any,
) -> Sweep:
    """Check the arguments of a sweep; nothing is compiled."""
    catalogs = check_catalogs(catalog)
    axes = {"clients": 10, "arms": 100, "horizon": 6000, "noise": 0.1} | axes
    for one in catalogs:
        cells = make_cells(one, algorithms, **axes)
        chosen_users = _checks.indices("users", users, len(one.users), f"the users of {one.name}")
    chosen_seeds = _checks.indices("seeds", seeds, 2**31)  # the PRNG takes 32 bits
    _checks.whole("seed", seed, 0, 2**31 - 1)
    _checks.choice("spacing", spacing, ("linear", "log"))
    _checks.choice("dtype", dtype, ("auto", "float32", "float64"))
    if isinstance(checkpoints, Iterable) and not isinstance(checkpoints, str):
        checkpoints = list(checkpoints)
    for T in {cell.horizon for cell in cells}:
        rounds_to_keep(checkpoints, T, spacing)
        if dtype == "float32" and T > FLOAT32_HORIZON:
            _checks.fail("dtype", dtype, f"horizon={T} needs float64, as float32 counts rounds to 2^20 only")
    kept = [int(t) for t in checkpoints] if isinstance(checkpoints, list) else int(checkpoints)
    return Sweep(catalogs, cells, chosen_users, chosen_seeds, int(seed), kept, spacing, dtype)


def check_catalogs(given: Any) -> list[Catalog]:
    """One catalog or several, each under a name of its own."""
    catalogs = list(given) if isinstance(given, Sequence) else [given]
    for one in catalogs:
        if not isinstance(one, Catalog):
            _checks.fail("catalog", one, "it must be a Catalog, such as datasets.synthetic(), or a list of them")
    names = [one.name for one in catalogs]
    if not names or len(set(names)) < len(names):
        _checks.fail("catalog", names, "it must name one catalog or more, each under another name")
    return catalogs


def memory_budget(memory: Any, devices: Sequence[jax.Device]) -> float:
    """Bytes that the programs of this process may take: as told, or half of the machine's, or what the devices have."""
    if memory is None:
        stats = [device.memory_stats() for device in devices] if devices[0].platform != "cpu" else [None]
        if all(stats):
            return float(sum(one["bytes_limit"] for one in stats if one))
        return memory_of_machine() / 2 / jax.process_count()
    allowed = "it must be a positive number of bytes, or a text such as '4GB' or '512MiB'"
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]I?B)?\s*", str(memory).upper())
    if isinstance(memory, bool) or not found or float(found[1]) == 0:
        _checks.fail("memory", memory, allowed)
    assert found
    return float(found[1]) * UNITS[found[2] or ""]


def memory_of_machine() -> float:
    """Bytes that this machine has, or that its control group lets this process have."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else float("inf")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(physical, float(file.read()))
    except (OSError, ValueError):  # no control groups, or no limit: "max"
        return physical


def warn_of_narrow_key_terms(sweep: Sweep) -> None:
    """Say of a catalog that questions about its key terms cannot reach every direction."""
    asking = {cell.algorithm.name: None for cell in sweep.cells if cell.algorithm.asks_key_terms}
    for catalog in sweep.catalogs:
        rank, dim = catalog.key_term_rank, catalog.dim
        if asking and rank < dim:
            warnings.warn(
                f"the {len(catalog.key_terms)} key terms of {catalog.name} span {rank} of its {dim} dimensions: "
                f"questions of {', '.join(asking)} tell nothing about the other {dim - rank}, where no C > 0 holds",
                stacklevel=3,
            )


def warn_of_large_C(sweep: Sweep) -> None:  # noqa: N802, the paper's letter
    """Say of a catalog that its key terms offer less than the C that one has asked for; the default is the paper's."""
    given = {cell.algorithm.C for cell in sweep.cells if isinstance(cell.algorithm, FedConPE)} - {FedConPE.C}
    numbers = sorted(C for C in given if not isinstance(C, str))
    for catalog in sweep.catalogs:
        if numbers and catalog.key_term_rank == catalog.dim and numbers[-1] > catalog.realised_C:
            warnings.warn(
                f"C={numbers[-1]:g} is more than the {catalog.realised_C:.3g} that the key terms of {catalog.name} "
                "offer every direction, so that FedConPE's Assumption 2 fails: C='catalog' takes what they offer",
                stacklevel=3,
            )

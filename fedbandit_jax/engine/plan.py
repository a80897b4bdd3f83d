"""A sweep whose arguments have been checked, before anything is compiled."""

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.engine.cells import Cell, make_cells, rounds_to_keep
from fedbandit_jax.engine.lanes import shapes
from fedbandit_jax.engine.program import clients_per_device
from fedbandit_jax.worlds.catalog import Catalog

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
warned_of: set[str] = set()  # fingerprints of catalogs


@dataclass(frozen=True)
class Plan:
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
    def groups(self) -> list[list[Cell]]:
        """Cells that are played together."""
        groups: dict[tuple, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.group, []).append(cell)
        return list(groups.values())

    def shapes(self, group: list[Cell], dim: int, device: jax.Device) -> list[np.ndarray]:
        """The cells of a group that share a shape: of the whole grid, so that what is on disk changes no program."""
        clients = clients_per_device(group[0].algorithm, max(cell.arms for cell in group), dim, device)
        return shapes(group, self.runs_per_cell, clients)

    def rounds(self, horizon: int) -> np.ndarray:
        return rounds_to_keep(self.checkpoints, horizon, self.spacing)

    def wide(self, horizon: int) -> bool:
        """Does this horizon take float64?"""
        return self.dtype == "float64" or (self.dtype == "auto" and horizon > FLOAT32_HORIZON)

    @property
    def runs_per_cell(self) -> int:
        return len(self.users) * len(self.seeds)

    @property
    def runs(self) -> int:
        return len(self.catalogs) * len(self.cells) * self.runs_per_cell

    def programs(self, device: jax.Device) -> int:
        """To compile: horizons share one, unless they keep another number of rounds or another precision."""
        kinds = set()
        for catalog in self.catalogs:
            pool = catalog.arms.shape, catalog.key_terms.shape, catalog.users.shape
            for group in self.groups:
                T = group[0].horizon
                for members in self.shapes(group, catalog.dim, device):
                    cells = [group[i] for i in members]
                    largest = max(cell.clients for cell in cells), max(cell.arms for cell in cells)
                    kinds.add((pool, group[0].group[:-1], largest, self.wide(T), len(self.rounds(T))))
        return len(kinds)

    def specification(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What all runs in one folder must have in common, besides catalogs that are the same under each name."""
        versions = {name: settings["versions"][name] for name in ("fedbandit-jax", "jax", "jaxlib")}
        return {
            **{name: settings[name] for name in ("seed", "dtype", "prng")},
            "checkpoints": self.checkpoints,
            "spacing": self.spacing,
            "device": sorted(set(settings["devices"])),
            "versions": versions,
        }


def make_plan(
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
) -> Plan:
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
    return Plan(catalogs, cells, chosen_users, chosen_seeds, int(seed), kept, spacing, dtype)


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
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 if hasattr(os, "sysconf") else float("inf")
    allowed = "it must be a positive number of bytes, or a text such as '4GB' or '512MiB'"
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]I?B)?\s*", str(memory).upper())
    if isinstance(memory, bool) or not found or float(found[1]) == 0:
        _checks.fail("memory", memory, allowed)
    assert found
    return float(found[1]) * UNITS[found[2] or ""]


def warn_of_narrow_key_terms(plan: Plan) -> None:
    """Say once of a catalog that questions about its key terms cannot reach every direction."""
    asking = {cell.algorithm.name: None for cell in plan.cells if cell.algorithm.asks_key_terms}
    for catalog in plan.catalogs:
        rank, dim = catalog.key_term_rank, catalog.dim
        if asking and rank < dim and catalog.fingerprint not in warned_of:
            warned_of.add(catalog.fingerprint)
            warnings.warn(
                f"the {len(catalog.key_terms)} key terms of {catalog.name} span {rank} of its {dim} dimensions: "
                f"questions of {', '.join(asking)} tell nothing about the other {dim - rank}, where no C > 0 holds",
                stacklevel=3,
            )

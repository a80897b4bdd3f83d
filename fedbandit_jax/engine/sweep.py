"""Sweep: arguments that have been checked, before anything is compiled, and the one table of all runs."""

import dataclasses
import itertools
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedbandit_jax import _checks, _runtime
from fedbandit_jax.algorithms.federated.fedconpe import FedConPE
from fedbandit_jax.clocks.base import REGISTRY, Algorithm, is_column
from fedbandit_jax.clocks.contracts import Shape, check_methods, check_own_world
from fedbandit_jax.engine import processes
from fedbandit_jax.engine.batches import Batch, clients_per_device, share_programs, sharing_key, split_by_shape
from fedbandit_jax.engine.cells import MAX_HORIZON, Cell, check_algorithms, make_cells, rounds_to_keep
from fedbandit_jax.engine.code import is_package
from fedbandit_jax.results.labels import fields_that_vary
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import FIELDS, content_of

FLOAT32_HORIZON = 2**20  # beyond it, round counts and estimates need float64
USERS = 20  # where none are given: fewer tell little of how much users differ
LANE_BYTES = 80  # of a lane: its cell, client, user, seed and keys
ROW_BYTES = 100  # of a run at a checkpoint: its metrics and what it is a run of
UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Sweep:
    """Every cell is played on every catalog, for every user and seed."""

    catalogs: list[Catalog]
    cells: list[Cell]
    users: Sequence[int]
    seeds: Sequence[int]
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
        share_programs(found)
        return found

    def settings_of_cells(self) -> list[dict[str, Any]]:
        """Setting and hyperparameters of every cell, once for each catalog."""
        worlds = {id(cell.world): content_of(cell.world) for cell in self.cells}
        varying = fields_that_vary(list(worlds.values()))
        return [
            {
                "dataset": catalog.name,
                "algorithm": cell.algorithm.title,
                "label": cell.label,
                "clients": cell.clients,
                "arms": cell.arms,
                "horizon": cell.horizon,
                **{name: values.get(name) for name in varying},
                "noise": cell.noise,
                **{k: str(v) if callable(v) else v for k, v in cell.algorithm.hyperparameters().items()},
            }
            for catalog, cell in self.catalogs_and_cells()
            for values in [worlds[id(cell.world)]]
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
                "pulls": np.repeat([cell.pulls_a_round for _, cell in self.catalogs_and_cells()], pairs),
                "batch": batch_of_run,
                "share": share,
            }
        )

    def catalogs_and_cells(self) -> list[tuple[Catalog, Cell]]:
        return [(catalog, cell) for catalog in self.catalogs for cell in self.cells]


def name_of_run(cell: dict[str, Any], user: int, seed: int) -> str:
    """In an error: its label and where it plays, of the settings of its cell."""
    names = ["dataset", *list(cell)[3 : list(cell).index("noise") + 1]]  # behind the label
    where = {name: cell[name] for name in names} | {"user": user, "seed": seed}
    return f"{cell['label']} ({', '.join(f'{name}={value}' for name, value in where.items())})"


def make_sweep(
    catalog: Any,
    algorithms: Any,
    *,
    users: Any = None,
    seeds: Any = 1,
    seed: Any = 0,
    checkpoints: Any = 128,
    spacing: Any = "linear",
    dtype: Any = "auto",
    world: Any = None,
    **axes: Any,
) -> Sweep:
    """Check the arguments of a sweep; nothing is compiled."""
    catalogs = check_catalogs(catalog)
    axes = {"clients": 10, "arms": 100, "horizon": 6000, "noise": 0.1} | axes
    given = check_algorithms(algorithms)
    check_key_terms(catalogs, given)
    if users is None:
        users = min(USERS, *(len(one.users) for one in catalogs))
    users = _checks.entries_of("users", users) or users
    for one in catalogs:
        cells = make_cells(one, given, world, **axes)
        chosen_users = _checks.indices("users", users, len(one.users), f"the users of {one.name}")
    chosen_seeds = _checks.indices("seeds", seeds, 2**31)  # the PRNG takes 32 bits
    seed = _checks.whole("seed", seed, 0, 2**31 - 1)
    kept = check_checkpoints(checkpoints, min(cell.horizon for cell in cells))
    spacing = _checks.choice("spacing", spacing, ("linear", "log"))
    dtype = _checks.choice("dtype", dtype, ("auto", "float32", "float64"))
    sweep = Sweep(catalogs, cells, chosen_users, chosen_seeds, seed, kept, spacing, dtype)
    check_size(sweep)
    for T in {cell.horizon for cell in cells}:
        sweep.rounds(T)
        if dtype == "float32" and T > FLOAT32_HORIZON:
            _checks.fail("dtype", dtype, f"horizon={T} needs float64, as float32 counts rounds to 2^20 only")
    check_own_worlds(sweep)
    check_own_algorithms(sweep)
    return sweep


def check_own_worlds(sweep: Sweep) -> None:
    """The methods of worlds that are not the package's, and that its fields are not named like other columns."""
    algorithms = {type(cell.algorithm) for cell in sweep.cells} | set(filter(is_package, REGISTRY.values()))
    hyperparameters = {field.name for kind in algorithms for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    worlds = {id(cell.world): cell for cell in sweep.cells if not is_package(type(cell.world))}
    for cell in worlds.values():
        own = [name for name in cell.world.hyperparameters() if name not in FIELDS]
        for name in own:
            if is_column(name) or name in hyperparameters:
                _checks.fail(f"a field of {type(cell.world).__name__}", name, "that name is a column of the results")
        for catalog in sweep.catalogs:
            check_own_world(cell.world, shape_of(sweep, catalog, [cell]))


def shape_of(sweep: Sweep, catalog: Catalog, cells: Sequence[Cell]) -> Shape:
    """Shapes of the program that plays these cells."""
    algorithm, T = cells[0].algorithm, cells[0].horizon
    return Shape(
        M=1 if algorithm.independent_clients else max(cell.clients for cell in cells),
        K=max(cell.arms for cell in cells),
        J=len(catalog.key_terms),
        d=catalog.dim,
        P=len(sweep.rounds(T)),
        dtype=sweep.dtype_at(T),
        n=None if catalog.links is None else catalog.links.shape[1],
    )


def check_own_algorithms(sweep: Sweep) -> None:
    """The methods of algorithms that are not the package's, and that what they count is not named like a column."""
    kinds = {type(cell.algorithm) for cell in sweep.cells} | set(filter(is_package, REGISTRY.values()))
    columns = {field.name for kind in kinds for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    groups: dict[tuple, list[Cell]] = {}
    for cell in sweep.cells:
        if not is_package(type(cell.algorithm)):
            groups.setdefault(cell.group, []).append(cell)
    for catalog, cells in itertools.product(sweep.catalogs, groups.values()):
        algorithm = cells[0].algorithm
        shape = shape_of(sweep, catalog, cells)
        for name in columns.intersection(check_methods(algorithm, cells[0].world, shape)):
            _checks.fail(f"a count of {algorithm.name}", name, "that name is the column of a hyperparameter")


def check_checkpoints(given: Any, horizon: int) -> int | list[int]:
    """How many rounds to keep, or which, up to the shortest horizon."""
    given = _checks.plain(given)
    entries = _checks.entries_of("checkpoints", given)
    if entries or (_checks.is_list(given) and not len(given)):
        return [_checks.whole("checkpoints", t, 1, horizon, "the horizon") for t in entries]
    if not _checks.is_number(given):
        _checks.fail("checkpoints", given, "it must be a whole number of at least 1 or a list of rounds")
    return _checks.whole("checkpoints", given, 1, MAX_HORIZON)


def check_size(sweep: Sweep) -> None:
    """Refuse a sweep whose tables alone would not fit into this machine, before any of them is made."""
    lanes: dict[object, int] = {}
    federation, rows = 0, 0
    for i, cell in enumerate(sweep.cells):
        alone, of = cell.algorithm.independent_clients, (cell.horizon, sharing_key(sweep.cells, i))
        lanes[of] = max(lanes.get(of, 0), cell.clients if alone else 1)
        federation = max(federation, (1 if alone else cell.clients) * cell.arms * sweep.catalogs[0].dim)
        rows += min(sweep.checkpoints, cell.horizon) if isinstance(sweep.checkpoints, int) else len(sweep.checkpoints)
    played = len(sweep.catalogs) * sweep.runs_per_cell
    needed = 4.0 * federation + played * (LANE_BYTES * sum(lanes.values()) + ROW_BYTES * rows)
    there = _runtime.memory_of_machine()
    if needed > there:
        clients = max(cell.clients for cell in sweep.cells)
        raise ValueError(
            f"clients={clients} with {len(sweep.users)} users, {len(sweep.seeds)} seeds, {sweep.num_cells} cells and "
            f"{rows // len(sweep.cells)} checkpoints is not allowed: their tables take {needed / 1e9:.2g} GB or more, "
            f"and this machine has {there / 1e9:.2g} GB"
        )


def check_catalogs(given: Any) -> list[Catalog]:
    """One catalog or several, each under a name of its own."""
    several = isinstance(given, Sequence) and not isinstance(given, str)
    catalogs = _checks.entries_of("catalog", given) if several else [given]
    for one in catalogs:
        if not isinstance(one, Catalog):
            meant = f"datasets.load({_checks.shown(one)})" if isinstance(one, str) else "datasets.synthetic()"
            meant = "Catalog.from_arrays makes of arrays" if isinstance(one, np.ndarray) else meant
            first = "; it comes before the algorithms" if isinstance(one, Algorithm) else ""
            _checks.fail("catalog", one, f"it must be a Catalog, such as {meant}, or a list of them{first}")
    names = [one.name for one in catalogs]
    if not names or len(set(names)) < len(names):
        _checks.fail("catalog", names, "it must name one catalog or more, each under another name")
    return catalogs


def check_key_terms(catalogs: Sequence[Catalog], algorithms: Sequence[Algorithm]) -> None:
    """Who asks needs something to ask about."""
    for catalog, algorithm in itertools.product(catalogs, algorithms):
        if algorithm.asks_key_terms and not len(catalog.key_terms):
            allowed = f"it must not ask about key terms, as the catalog {catalog.name!r} has none"
            _checks.fail("algorithms", algorithm.name, allowed)


def memory_budget(memory: Any, devices: Sequence[jax.Device]) -> float:
    """Bytes that the programs of this process may take: as told, or half of the machine's, or what the devices have."""
    if memory is None:
        stats = [device.memory_stats() for device in devices] if devices[0].platform != "cpu" else [None]
        if all(stats):
            return float(sum(one["bytes_limit"] for one in stats if one))
        return _runtime.memory_of_machine() / 2 / processes.count()
    allowed = "it must be a positive number of bytes, or a text such as '4GB' or '512MiB'"
    memory = _checks.plain(memory)
    if _checks.is_finite(memory) and memory > 0:
        return float(memory)
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([KMGT]I?B)?\s*", memory.upper() if isinstance(memory, str) else "")
    if not found or float(found[1]) == 0:
        _checks.fail("memory", memory, allowed)
    assert found
    return float(found[1]) * UNITS[found[2] or ""]


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

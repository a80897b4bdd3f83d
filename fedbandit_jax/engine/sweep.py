"""Grids of settings: every cell, every user, every seed, from as few compiled programs as possible."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedbandit_jax import _runtime
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.elimination import PhaseElimination
from fedbandit_jax.engine import program as engine
from fedbandit_jax.engine.hosts import Hosts
from fedbandit_jax.engine.keeper import Keeper, from_store
from fedbandit_jax.engine.lanes import Lanes
from fedbandit_jax.engine.plan import Plan, make_plan, memory_budget, warn_of_narrow_key_terms
from fedbandit_jax.engine.program import Program
from fedbandit_jax.engine.progress import Listener, Progress
from fedbandit_jax.engine.storage import Store, stored_runs
from fedbandit_jax.results.results import Results, describe_environment
from fedbandit_jax.worlds.catalog import Catalog

NAMED = 10  # failed runs in an error message
TIMED_ROUNDS = 20_000  # of a longer horizon, when a sweep is estimated


def sweep(
    catalog: Catalog | Sequence[Catalog],
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
    memory: str | float | None = None,
    progress: bool | Listener | None = None,
    out: str | Path | None = None,
) -> Results:
    """Run every combination of the given lists, for every user and seed, and return all curves.

    `catalog`, `clients`, `arms`, `horizon`, `noise` and any hyperparameter may be lists. `users` and `seeds` are counts
    or lists of indices: each user is a preference vector of the catalog, each seed another draw of arm sets and noise.
    All randomness depends on (seed, user, index of the seed, client) alone. `checkpoints` is the number of rounds at
    which curves are kept, or the rounds themselves; `spacing` is "linear" or "log". `dtype` is "float32", "float64"
    or "auto": float64 for horizons above 2^20 rounds, where float32 would miscount, else float32. `memory`, such as
    "4GB", limits what the compiled programs take. `progress` shows a bar on a terminal once a call takes two seconds;
    a function gets records instead. `out` is a folder that keeps finished runs as the sweep goes: the same sweep, or
    a larger one, computes only what is missing there. Processes joined by `jax.distributed` share the work through it.
    """
    plan = make_plan(
        catalog,
        algorithms,
        clients=clients,
        arms=arms,
        horizon=horizon,
        noise=noise,
        users=users,
        seeds=seeds,
        seed=seed,
        checkpoints=checkpoints,
        spacing=spacing,
        dtype=dtype,
    )
    devices = _runtime.devices()
    budget = memory_budget(memory, devices)
    hosts = Hosts(jax.process_index(), jax.process_count())
    hosts.check(out)
    warn_of_narrow_key_terms(plan)
    settings = {
        "catalogs": {one.name: one.fingerprint for one in plan.catalogs},
        "seed": seed,
        "dtype": dtype,
        **describe_environment(devices),
    }
    if out is None:
        return play(plan, devices, budget, settings, None, hosts, progress)
    made_with = {name: settings[name] for name in ("versions", "devices")}
    with Store(out, plan.specification(settings), settings["catalogs"], made_with, hosts) as store:
        try:
            return play(plan, devices, budget, settings, store, hosts, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped: {len(store.runs)} finished runs are kept; the same sweep with out={str(out)!r} goes on"
            ) from None


def play(
    plan: Plan,
    devices: Sequence[jax.Device],
    budget: float,
    settings: dict[str, Any],
    store: Store | None,
    hosts: Hosts,
    progress: bool | Listener | None,
) -> Results:
    """Play what is not in the store yet, all without one, and put all curves together."""
    traces_before, began = engine.traces, time.perf_counter()
    keepers: list[Keeper] = []
    tasks: list[Task] = []
    found, pairs = 0, plan.runs_per_cell
    places = {id(cell): i for i, cell in enumerate(plan.cells)}
    clients_in_all = len(plan.catalogs) * sum(cell.clients for cell in plan.cells) * pairs
    shown = progress if hosts.first else False
    with Progress(shown, len(plan.catalogs) * len(plan.cells), pairs, clients_in_all) as told:
        for number, catalog in enumerate(plan.catalogs):
            for group in plan.groups:
                keeper = Keeper(plan, catalog, group, store)
                keepers.append(keeper)
                cells = number * len(plan.cells) + np.array([places[id(cell)] for cell in group])
                cell_of_run = np.repeat(cells, pairs)
                clients = np.repeat([cell.clients for cell in group], pairs)
                missing = np.zeros(len(keeper.runs), bool)
                missing[keeper.missing()] = True
                found += int((~missing).sum())

                for members in plan.shapes(group, catalog.dim, devices[0]):
                    lanes = Lanes([group[i] for i in members], plan.users, plan.seeds, catalog.dim)
                    rows = (members[:, None] * pairs + np.arange(pairs)[None, :]).ravel()  # of its runs, in the group
                    mine = missing[rows] & hosts.own(lanes.share)
                    told.find(cell_of_run[rows[~mine]], int(clients[rows[~mine]].sum()))
                    if mine.any():
                        tasks.append(Task(keeper, lanes, rows, np.flatnonzero(mine), cell_of_run, clients))

        began_compiling = time.perf_counter()
        programs = compile_all(tasks, plan, devices, budget, told)
        compile_seconds = time.perf_counter() - began_compiling
        for task, program in zip(tasks, programs, strict=True):
            first = task.lanes.cells[0]
            with jax.enable_x64(plan.wide(first.horizon)), task.keeper as keeper:
                told.begin(first.algorithm.title)
                for runs, trace in program.finished(task.runs):
                    done = task.rows[runs]
                    keeper.add(done, trace)
                    told.count(task.cell_of_run[done], int(task.clients[done].sum()), first.horizon)
    hosts.wait("played")
    work = sum(program.work for program in programs)
    settings = {
        **settings,
        "programs": engine.traces - traces_before,
        "compile_seconds": compile_seconds,
        "run_seconds": time.perf_counter() - began - compile_seconds,
        "memory": max((program.memory for program in programs), default=0),
        "padding_share": sum(program.work_on_padding for program in programs) / work if work else 0.0,
    }
    if store is None:
        tables = [(keeper.catalog.name, keeper.runs, keeper.rounds, keeper.trace()) for keeper in keepers]
        return Results.from_traces(tables, settings)
    failed = [name for keeper in keepers for name in keeper.failed]
    if failed:
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        raise FloatingPointError(
            f"{len(failed)} of {plan.runs} runs are not finite: {'; '.join(failed[:NAMED])}{more}; "
            f"the others are kept in out={str(store.folder)!r}"
        )
    lost = (
        len(set(np.concatenate([keeper.ids for keeper in keepers])) - stored_runs(store.folder))
        if hosts.count > 1
        else 0
    )
    if lost:
        raise FloatingPointError(f"{lost} of {plan.runs} runs are not finite: another process names them")
    settings |= {"out": str(store.folder), "runs_found": found, "runs_computed": plan.runs - found}
    return from_store(store, keepers, settings)


class Task(NamedTuple):
    """Runs of a group that are padded to one shape, and so share a program."""

    keeper: Keeper
    lanes: Lanes
    rows: np.ndarray  # of all its runs, in the group
    runs: np.ndarray  # to be played, of these
    cell_of_run: np.ndarray  # of the group
    clients: np.ndarray  # of the runs of the group


def compile_all(
    tasks: Sequence[Task], plan: Plan, devices: Sequence[jax.Device], budget: float, told: Progress
) -> list[Program]:
    """Their programs, compiled side by side; equal ones one after another, as JAX finds the first again."""

    def precision(task: Task) -> AbstractContextManager:
        return jax.enable_x64(plan.wide(task.lanes.cells[0].horizon))

    def compile_equal(members: Sequence[int]) -> None:
        for i in members:
            with precision(tasks[i]):
                programs[i].compile(budget)

    if tasks:
        told.begin("compiling")
    programs: list[Program] = []
    equal: dict[tuple, list[int]] = {}
    for i, task in enumerate(tasks):
        with precision(task):
            keeper = task.keeper
            program = Program(keeper.catalog, task.lanes, seed=plan.seed, rounds=keeper.rounds, devices=devices)
        programs.append(program)
        equal.setdefault(program.signature, []).append(i)
    pool = ThreadPoolExecutor(_runtime.cores())
    try:
        waiting = [pool.submit(compile_equal, members) for members in equal.values()]
        for done, finished in enumerate(as_completed(waiting), 1):
            finished.result()
            told.begin(f"compiled {done} of {len(waiting)} programs")
    finally:
        pool.shutdown(cancel_futures=True)
    return programs


def estimate(plan: Plan, memory: Any = None) -> Iterator[dict[str, Any]]:
    """What each program would take: compiled here, and one chunk of it timed."""
    devices = _runtime.devices()
    budget = memory_budget(memory, devices)
    for catalog, group in product(plan.catalogs, plan.groups):
        T, rounds = group[0].horizon, plan.rounds(group[0].horizon)
        # Phases cost the same whatever their length; rounds are played in part, and the rest is a rule of three.
        part = 1.0 if T <= TIMED_ROUNDS or isinstance(group[0].algorithm, PhaseElimination) else TIMED_ROUNDS / T
        timed = np.maximum(np.floor(rounds * part), np.arange(1, len(rounds) + 1))
        for members in plan.shapes(group, catalog.dim, devices[0]):
            lanes = Lanes([group[i] for i in members], plan.users, plan.seeds, catalog.dim)
            with jax.enable_x64(plan.wide(T)):
                program = Program(catalog, lanes, seed=plan.seed, rounds=timed, devices=devices)
                program.compile(budget)
                one = np.arange(min(program.chunk, len(lanes.cell)))
                list(program.run(one))  # warm
                began = time.perf_counter()
                list(program.run(one))
                seconds = time.perf_counter() - began
            yield {
                "dataset": catalog.name,
                "algorithm": group[0].algorithm.title,
                "horizon": T,
                "clients": program.max_clients,
                "arms": program.max_arms,
                "seconds": seconds / part * -(-len(lanes.cell) // program.chunk),
                "compile_seconds": program.compile_seconds,
                "memory": program.memory,
            }

"""`simulate` and `sweep`: every setting, every user, every seed, from as few compiled programs as possible.

The way of a sweep: its arguments are checked (`Sweep`), its cells gathered in batches (`Batch`), each batch compiled
(`Program`) and played, finished runs kept (`Store`), and all of them put together (`Results`).
"""

import platform
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks, _runtime
from fedbandit_jax._background import in_background, wait_for_abandoned
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.phases import PhaseAlgorithm
from fedbandit_jax.engine import processes
from fedbandit_jax.engine.batches import Batch
from fedbandit_jax.engine.cells import check_worlds
from fedbandit_jax.engine.program import Program
from fedbandit_jax.engine.progress import Listener, Progress, check_progress
from fedbandit_jax.engine.store import FolderStore, Store
from fedbandit_jax.engine.sweep import make_sweep, memory_budget, warn_of_large_C, warn_of_narrow_key_terms
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World


def simulate(
    catalog: Catalog,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    clients: int = 10,
    arms: int = 100,
    horizon: int = 6000,
    users: int | Iterable[int] | np.ndarray | None = None,
    seeds: int | Iterable[int] | np.ndarray = 1,
    noise: float = 0.1,
    seed: int = 0,
    world: World | None = None,
    **options: Any,
) -> Results:
    """Play every algorithm in one setting, for every user and seed; see `sweep` for the arguments and options."""
    setting: dict[str, Any] = {"clients": clients, "arms": arms, "horizon": horizon, "noise": noise}
    for name, value in setting.items():
        if _checks.is_list(value):
            _checks.fail(name, value, "simulate takes one number; use sweep for a list")
    if len(check_worlds(world)) > 1:
        _checks.fail("world", world, "simulate takes one world; use sweep for a list")
    return sweep(catalog, algorithms, **setting, users=users, seeds=seeds, seed=seed, world=world, **options)


def sweep(
    catalog: Catalog | Sequence[Catalog],
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    clients: int | Sequence[int] | np.ndarray = 10,
    arms: int | Sequence[int] | np.ndarray = 100,
    horizon: int | Sequence[int] | np.ndarray = 6000,
    noise: float | Sequence[float] | np.ndarray = 0.1,
    users: int | Iterable[int] | np.ndarray | None = None,
    seeds: int | Iterable[int] | np.ndarray = 1,
    seed: int = 0,
    checkpoints: int | Iterable[int] | np.ndarray = 128,
    spacing: str = "linear",
    dtype: str = "auto",
    memory: str | float | None = None,
    progress: bool | Listener | None = None,
    out: str | Path | None = None,
    world: World | Sequence[World] | None = None,
) -> Results:
    """Run every combination of the given lists, for every user and seed, and return all curves.

    All randomness depends on (seed, user, index of the seed, client) alone.

    Args:
        catalog: what federations are drawn from, or a list of catalogs with different names.
        algorithms: one or a list; any hyperparameter of theirs may be a list.
        clients: M, a number or a list.
        arms: K of each client, a number or a list.
        horizon: T, a number or a list; up to 10^9.
        noise: standard deviation of rewards and answers, a number or a list.
        users: how many preference vectors of the catalog to serve, or their indices; by default 20, or all if there are
            fewer.
        seeds: how many draws of arm sets and noise for each user, or their indices.
        seed: of everything; another gives other runs throughout.
        checkpoints: the number of rounds at which curves are kept, or the rounds themselves.
        spacing: of these rounds, "linear" or "log".
        dtype: "float32", "float64" or "auto": float64 for horizons above 2^20 rounds, where float32 would miscount.
        memory: limit of what the compiled programs take, such as "4GB".
        progress: True or False for a bar, None for one on terminals once a call takes two seconds, or a function that
            gets records. If more than a minute is left after the first runs, that is said, unless progress is False.
        out: a folder that keeps finished runs as the sweep goes: the same sweep, or a larger one, computes only what is
            missing there. Processes that have joined share the work through it.
        world: how arms, users, arrivals and rewards come about, or a list of worlds, whose fields may be lists too; by
            default that of FedConPE's paper, World().

    Compiled programs are kept for the next start in ~/.cache/fedbandit_jax, or in XDG_CACHE_HOME, unless the
    environment says FEDBANDIT_COMPILE_CACHE=false.
    """
    checked = make_sweep(
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
        world=world,
    )
    check_progress(progress)
    out = None if out is None else _checks.path("out", out)
    _runtime.keep_compiled_programs()
    devices = _runtime.devices()
    budget = memory_budget(memory, devices)
    processes.check(out)
    warn_of_narrow_key_terms(checked)
    warn_of_large_C(checked)
    settings = {
        "catalogs": {one.name: one.fingerprint for one in checked.catalogs},
        "seed": checked.seed,
        "dtype": dtype,
        **describe_environment(devices),
    }
    batches = checked.batches(devices[0])
    tables = checked, batches, checked.table_of_runs(batches)
    store = Store(*tables) if out is None else FolderStore(*tables, out, settings)
    try:
        with store:
            return play(store, devices, budget, settings, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: {store.what_is_kept()}") from None
    except processes.LostProcessError as lost:
        raise processes.LostProcessError(f"{lost}: {store.what_is_kept()}", lost.process) from None


def play(
    store: Store,
    devices: Sequence[jax.Device],
    budget: float,
    settings: dict[str, Any],
    progress: bool | Listener | None,
) -> Results:
    """Play what is not in the store yet, and put all curves together."""
    began, sweep, runs = time.perf_counter(), store.sweep, store.runs
    missing = store.missing()
    mine = missing & processes.own(runs["share"].to_numpy())
    batch_of_run = runs["batch"].to_numpy()
    with Progress(progress if processes.is_first() else False, sweep.num_cells, runs) as counter:
        counter.find(np.flatnonzero(~mine))
        to_play = [batch for i, batch in enumerate(store.batches) if mine[batch_of_run == i].any()]
        if to_play:
            counter.begin("compiling")
        programs, compile_seconds, began_waiting = [], 0.0, time.perf_counter()
        with closing(compile_side_by_side(to_play, sweep.seed, devices, budget)) as compiled:
            for program in compiled:
                compile_seconds += time.perf_counter() - began_waiting
                programs.append(program)
                play_program(program, mine, store, counter)
                if len(programs) < len(to_play):
                    counter.begin(f"compiling, {len(programs)} of {len(to_play)} played")
                began_waiting = time.perf_counter()
    store.close()
    processes.wait("played")
    return store.results(
        {
            **settings,
            "programs": len({batch.key for batch in store.batches}),
            "runs_found": int((~missing).sum()),
            "runs_computed": int(missing.sum()),
            "compile_seconds": compile_seconds,
            "run_seconds": time.perf_counter() - began - compile_seconds,
            "memory": max((program.memory for program in programs), default=0),
            "padding_share": padding_share(programs),
        }
    )


def play_program(program: Program, mine: np.ndarray, store: Store, counter: Progress) -> None:
    """Play those runs of a program that a mask over the table of runs names, and hand them to the store."""
    rows = np.flatnonzero(store.runs["batch"].to_numpy() == store.batches.index(program.batch))
    counter.begin(program.batch.algorithm.title, rows[mine[rows]])
    store.flush()
    began = time.perf_counter()
    chunks = [program.finished(np.flatnonzero(mine[rows]))]
    with closing(in_background(chunks, check=processes.check_others)) as played:
        for finished, trace in played:
            store.add(rows[finished], trace)
            counter.count(rows[finished], program.batch.horizon)
    program.play_seconds = time.perf_counter() - began
    store.flush()


def padding_share(programs: Sequence[Program]) -> float:
    """The share of the time of play that went into padding.

    Work is counted in clients x arms x phases. That tells what a program's padding took, but a phase is not a round, so
    programs are weighed by their seconds.
    """
    seconds = sum(program.play_seconds for program in programs)
    return sum(one.play_seconds * one.work_on_padding / one.work for one in programs) / seconds if seconds else 0.0


def compile_side_by_side(
    batches: Sequence[Batch], seed: int, devices: Sequence[jax.Device], budget: float
) -> Generator[Program, None, None]:
    """The programs of batches as soon as they are compiled; those that take longest to compile are begun first.

    Of equal programs the first is compiled, and the others take it over.
    """
    wait_for_abandoned()  # two sweeps at once could block each other, see _runtime
    equal: dict[tuple, list[Program]] = {}
    for batch in sorted(batches, key=compile_weight, reverse=True):
        program = Program(batch, seed=seed, devices=devices)
        equal.setdefault((*batch.key, program.chunk), []).append(program)

    def compile_equal(programs: Sequence[Program]) -> Iterator[Sequence[Program]]:
        programs[0].compile(budget)
        for other in programs[1:]:
            other.take_over(programs[0])
        yield programs

    compiling = [compile_equal(programs) for programs in equal.values()]
    found = in_background(compiling, threads=_runtime.cores(), check=processes.check_others, ahead=len(compiling))
    with closing(found) as compiled:
        # Where the thread pool of JAX is small, nothing else may call LAPACK while a program plays, see _runtime.
        for group in compiled if _runtime.has_large_pool() else list(compiled):
            yield from group


def compile_weight(batch: Batch) -> int:
    """How long a program takes to compile, roughly: phases take longest, then questions."""
    if isinstance(batch.algorithm, PhaseAlgorithm):
        return 2
    return int(batch.playing is not None or batch.algorithm.asks_key_terms)


def describe_environment(devices: Sequence[jax.Device]) -> dict[str, Any]:
    """Versions and devices, for the record."""
    packages = ("fedbandit-jax", "jax", "jaxlib", "numpy")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "devices": [f"{d.platform}:{d.device_kind}" for d in devices],
        "prng": str(jax.config.values["jax_default_prng_impl"]),
        "threefry_partitionable": bool(jax.config.values["jax_threefry_partitionable"]),
    }

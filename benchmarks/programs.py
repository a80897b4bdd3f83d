"""The compiled program of an algorithm, taken apart: traced, lowered, compiled, each timed, then ready to play."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.engine.program import Program, jitted, run_batch
from fedbandit_jax.engine.sweep import make_sweep

from . import counts
from .measure import Effort, Timing


def algorithms(effort: Effort) -> list[fb.Algorithm]:
    """Every algorithm of the registry, with every strategy for questions."""
    if effort.level == 0:
        return [fb.LinUCB(), fb.FedConPE()]
    found: list[fb.Algorithm] = []
    for name, kind in fb.REGISTRY.items():
        strategies = ("BS", "MCR", "UCB") if name == "ConLinUCB" else ()
        found += [kind(strategy=s) for s in strategies] or [kind()]  # type: ignore[call-arg]
    return found


def by_title(title: str) -> fb.Algorithm:
    return next(algorithm for algorithm in algorithms(Effort(2)) if algorithm.title == title)


def catalog(effort: Effort) -> fb.Catalog:
    return fb.datasets.synthetic(
        seed=0, **effort.pick({"dim": 6, "num_arms": 60, "num_key_terms": 30, "num_users": 6}, {}, {})
    )


@dataclass
class Prepared:
    """A program that is compiled, and the runs it will play."""

    algorithm: fb.Algorithm
    program: Program
    traced: Any
    lowered: Any
    compiled: Any
    seconds: dict[str, float]
    clients: int
    arms: int
    horizon: int
    devices: int
    timing: Timing | None = None  # of `play`, once some suite has measured it

    def play(self, lanes: int | None = None) -> list[Any]:
        """Play all runs, or some lanes, once; a chunk is read while the next is on its way, as a sweep does."""
        program, chunk = self.program, self.program.chunk
        waiting, done = [], []
        for first in range(0, lanes or self.all_lanes, chunk):
            index = np.arange(first, min(first + chunk, lanes or self.all_lanes))
            waiting.append((index, self.compiled(*program.arguments(index))))
            if len(waiting) > 1:
                done.append(program.to_host(*waiting.pop(0)))
        return done + [program.to_host(*entry) for entry in waiting]

    @property
    def dim(self) -> int:
        return self.program.shared[0].arms.shape[1]

    @property
    def all_lanes(self) -> int:
        return len(self.program.batch.cell)

    @property
    def lanes(self) -> int:
        """Clients or federations side by side on one device."""
        return self.program.chunk // self.devices

    @property
    def runs(self) -> int:
        return len(self.program.batch.lanes_of_run)

    @property
    def client_rounds(self) -> int:
        return self.runs * self.clients * self.horizon

    def memory(self) -> int:
        """Bytes that the program itself says it needs on one device: arguments, results and in between."""
        found = self.compiled.memory_analysis()
        return found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes

    @property
    def unit(self) -> str:
        """What one turn of the busiest loop plays."""
        if isinstance(self.algorithm, fb.RoundAlgorithm):
            return "round"
        return "phase" if self.traced_loops.loops else "run"

    @cached_property
    def traced_loops(self) -> counts.Loop:
        return self.costs()

    def busiest(self, program: counts.Loop, op: str) -> counts.Loop:
        """The loop of rounds, which is the one furthest inside; or of phases, which is the one with most in it."""
        if self.unit == "round":
            return program.deepest(op)
        heaviest = lambda loop: sum(inner.ops.total() for _, inner in loop.walk())  # noqa: E731
        return max(program.loops, key=heaviest) if self.unit == "phase" else program

    def costs(self) -> counts.Loop:
        """Counts of the program as traced, with the branches for this device."""
        here = "cuda" if jax.default_backend() == "gpu" else jax.default_backend()
        return counts.of_jaxpr(self.traced.jaxpr, here)

    def kernels(self) -> counts.Loop:
        return counts.of_compiled(self.compiled.as_text())


def prepare(
    catalog: fb.Catalog,
    algorithm: fb.Algorithm,
    *,
    clients: int = 1,
    arms: int = 100,
    horizon: int = 6000,
    world: fb.World | None = None,
    chunks: int = 1,
    runs: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    like: Prepared | None = None,
    afresh: bool = False,
) -> Prepared:
    """Compile the program that a sweep would run, for some full chunks of runs or a given number of them.

    `like` is one of the same shapes, whose compiled program is taken; `afresh` forgets what JAX remembers, for times.
    """
    devices = _runtime.devices() if devices is None else devices
    setting: dict[str, Any] = {"clients": clients, "arms": arms, "horizon": horizon, "users": 1, "noise": 0.1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short horizons are on purpose here

        def build(seeds: int) -> Program:
            where = algorithm.home() if world is None else world
            (batch,) = make_sweep(catalog, algorithm, seeds=seeds, world=where, **setting).batches(devices[0])
            return Program(batch, seed=0, devices=devices)

        program = build(runs or 1)
        if runs is None:
            program = build(max(1, chunks * program.chunk // int(program.batch.lanes_of_run[0])))
    if like is not None:
        program.draw = like.program.draw
        return replace(like, program=program, horizon=horizon, timing=None)
    if afresh:
        jax.clear_caches()
    with program.precision():
        program.compile_draw()
        arguments = program.arguments(np.zeros(1, int))
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        seconds[name] = time.perf_counter() - began
        return result

    traced = timed("trace", lambda: jitted(run_batch, program.platform).trace(*arguments, **program.static))
    lowered = timed("lower", traced.lower)
    compiled = timed("compile", lowered.compile)
    return Prepared(algorithm, program, traced, lowered, compiled, seconds, clients, arms, horizon, len(devices))


class Shelf:
    """Programs that several suites use, each compiled once."""

    def __init__(self) -> None:
        self.kept: dict[tuple, Prepared | Exception] = {}

    def get(self, catalog: fb.Catalog, algorithm: fb.Algorithm, **setting: Any) -> Prepared:
        key = (catalog.fingerprint, algorithm, *sorted(setting.items()))
        if key not in self.kept:
            try:
                self.kept[key] = prepare(catalog, algorithm, **setting)
            except Exception as error:
                self.kept[key] = error
        found = self.kept[key]
        if isinstance(found, Exception):
            raise found
        return found


shelf = Shelf()

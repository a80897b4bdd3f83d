"""Programs as XLA compiles them for a GPU or TPU that need not be here, and what they are made of.

python -m benchmarks.compiled h100 LinUCB FedConPE --lanes 4096      the loops of some algorithms, as a tree

It needs `pip install fedbandit-jax[accelerators]`. The compilers are loaded in a process of its own only (`reports`).
"""

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import fedbandit_jax as fb
from fedbandit_jax.engine import program as engine
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.linalg import portable
from fedbandit_jax.worlds.stage import BLOCK

from . import hlo, worker
from .targets import TARGETS, Target, environment

PLUGINS = {"gpu": ("jax_plugins.xla_cuda12", "nvidia.cuda_nvcc"), "tpu": ("libtpu",)}
TINY = {"dim": 6, "num_arms": 60, "num_key_terms": 30, "num_users": 6, "arms": 8, "horizon": 300, "clients": 3}
FULL = {
    "dim": 50,
    "num_arms": 5000,
    "num_key_terms": 1000,
    "num_users": 10,
    "arms": 100,
    "horizon": 6000,
    "clients": 10,
}


@dataclass(frozen=True)
class Report:
    """What a compiled program says of itself. Counts and bytes are those of one device."""

    algorithm: str
    target: str
    devices: int
    lanes: int  # clients, or federations of several, side by side on one device
    clients: int  # in a lane
    client_rounds: float  # of a lane, all its rounds
    federations: float  # in a lane: less than one where it is a single client
    rounds: float  # passes of its loop of rounds
    stretches: int  # passes of the loop around it: rounds up to the next checkpoint or block of random numbers
    phases: int  # passes of its loop of phases, as expected
    program: hlo.Loop
    memory: int  # bytes at most: arguments, results and in between
    float64: bool
    seconds: float  # to compile

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "program": self.program.to_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Report":
        return cls(**{**found, "program": hlo.Loop.from_json(found["program"])})


def missing(target: Target) -> str:
    """Why nothing can be compiled for a target; empty if it can."""
    for name in PLUGINS[target.platform]:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f'{name} is missing: pip install "fedbandit-jax[accelerators]"'
    return ""


def reports(target: Target, cases: Sequence[Mapping[str, Any]]) -> Iterator[Report | str]:
    """Compile one case after another in a process of its own; what fails is its message.

    A case has the arguments of `report`, as plain data. After one that ended the process, or took too long, there is
    another process for the rest.
    """
    left = list(cases)
    while left:
        process = worker.start({"task": "compiled", "target": target.name, "cases": left}, environment())
        try:
            while left:
                left = left[1:]
                try:
                    found = worker.answer(process.stdout, process)
                except RuntimeError as error:
                    yield f"no program: {error}"
                    break
                yield found if isinstance(found, str) else Report.from_json(found)
        finally:
            process.kill()
            process.communicate()


def answer(task: Mapping[str, Any]) -> None:
    """The worker's side of `reports`."""
    target = TARGETS[task["target"]]
    portable.ELSEWHERE = ("cuda" if target.platform == "gpu" else target.platform,)  # forms for it are traced here too
    for case in task["cases"]:
        try:
            worker.say(report(target, **case).to_json())
        except Exception as error:
            worker.say(f"{type(error).__name__}: {error}"[:2000])


def report(
    target: Target,
    algorithm: str,
    devices: int = 1,
    at_once: int = 4096,
    keep: str = "",
    options: Mapping[str, Any] | None = None,
    **setting: Any,
) -> Report:
    """Compile an algorithm, here and now, for so many clients at once.

    `keep` is a file for the text of the program; `options` are XLA's, besides those of the engine.
    """
    began = time.perf_counter()
    program = prepare(algorithm, **setting)
    size = size_of(program, at_once)
    lowered = lower(program, target.devices(devices), size["lanes"])
    compiled = lowered.compile(compiler_options=dict(options) if options else None)
    text = compiled.as_text()
    if keep:
        with open(keep, "w") as file:
            file.write(text)
    seconds = time.perf_counter() - began
    return Report(
        algorithm=algorithm,
        target=target.name,
        devices=devices,
        program=hlo.read(text),
        memory=memory(compiled),
        float64=hlo.has_float64(text),
        seconds=seconds,
        **size,
    )


def memory(compiled: Any) -> int:
    """Bytes on one device: arguments, results and in between."""
    found = compiled.memory_analysis()
    return found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes


def prepare(algorithm: str, words: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None) -> Any:
    """The program of the engine, on a CPU: what would be compiled, and with which arguments."""
    sizes = {**FULL, **(sizes or {})}
    pool = {name: sizes[name] for name in ("dim", "num_arms", "num_key_terms", "num_users")}
    setting: dict[str, Any] = {name: sizes[name] for name in ("clients", "arms", "horizon")}
    player = fb.REGISTRY[algorithm](**(words or {}))
    here = jax.devices("cpu")[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short horizons are on purpose here
        catalog = fb.datasets.synthetic(seed=0, **pool)
        sweep = make_sweep(catalog, player, world=player.home(), seeds=1, users=1, noise=0.1, **setting)
        (batch,) = sweep.batches(here[0])
        return engine.Program(batch, seed=0, devices=here)


def size_of(program: engine.Program, at_once: int) -> dict[str, Any]:
    """The part of a report that does not depend on the device, for so many clients at once on it."""
    batch, cell = program.batch, program.batch.cells[0]
    alone = batch.algorithm.independent_clients
    return {
        "lanes": max(1, at_once // batch.max_clients),
        "clients": batch.max_clients,
        "client_rounds": cell.horizon * cell.pulls_a_round / (cell.clients if alone else 1),
        "federations": 1 / cell.clients if alone else 1.0,
        "rounds": cell.horizon / (cell.clients if alone and cell.world.arrivals == "one" else 1),
        "stretches": len(np.union1d(np.arange(BLOCK, cell.horizon + 1, BLOCK), np.asarray(batch.rounds))),
        "phases": cell.steps(batch.catalog.dim),
    }


def lower(program: engine.Program, devices: Sequence[Any], lanes: int) -> Any:
    """The program lowered for other devices, with so many lanes on each.

    Its arguments are shapes only, as the devices are only described.
    """
    mesh = jax.make_mesh((len(devices),), ("lanes",), axis_types=(AxisType.Auto,), devices=list(devices))
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("lanes",), ()))

    def of_lanes(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((lanes * len(devices), *x.shape[1:]), x.dtype, sharding=spread)

    def shared(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)

    *varied, catalog, rounds = program.shapes()
    arguments = (*jax.tree.map(of_lanes, varied), *jax.tree.map(shared, (catalog, rounds)))
    with program.precision():
        program_of = engine.jitted(engine.run_batch, devices[0].platform)
        return program_of.lower(*arguments, **{**program.static, "mesh": mesh})


def lines(loop: hlo.Loop, depth: int = 0) -> Iterator[str]:
    """A tree of loops as text."""
    parts = [f"{n} {kind}" for kind, n in loop.kernels.most_common()]
    calls = [f"{n} x {name}" for name, n in (loop.calls + loop.own).most_common()]
    turns = f" x {loop.turns}" if loop.turns else ""
    told = f"{'  ' * depth}{loop.kind} {loop.name}{turns}: {loop.count} kernels ({', '.join(parts)}), "
    yield (
        told
        + f"{loop.bytes / 1e6:.3g} MB, {(loop.flops + loop.products) / 1e6:.3g} Mflop"
        + "".join(f"; {call}" for call in calls)
    )
    for child in loop.inside:
        yield from lines(child, depth + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("algorithms", nargs="+", choices=fb.REGISTRY, metavar="ALGORITHM")
    parser.add_argument("--words", type=json.loads, default={}, help='hyperparameters as JSON: {"alpha": "theory"}')
    parser.add_argument("--lanes", type=int, default=4096, help="clients at once on a device")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="at the size of the tests")
    parser.add_argument("--sizes", type=json.loads, default={}, help='for instance {"arms": 200}')
    parser.add_argument("--keep", default="", help="a folder for the optimised programs themselves")
    given = parser.parse_args()
    sizes = {**(TINY if given.tiny else FULL), **given.sizes}
    case = {"words": given.words, "devices": given.devices, "sizes": sizes, "at_once": given.lanes}
    keep = {name: f"{given.keep}/{given.target}-{name}.txt" if given.keep else "" for name in given.algorithms}
    cases = [{"algorithm": name, "keep": keep[name], **case} for name in given.algorithms]
    for name, found in zip(given.algorithms, reports(TARGETS[given.target], cases), strict=True):
        if isinstance(found, str):
            print(f"{name}: {found}")
            continue
        told = f"{found.lanes} lanes of {found.clients}, {found.memory / 1e6:.4g} MB, float64: {found.float64}"
        print(f"\n{name} on {found.devices} x {given.target}: {told}, compiled in {found.seconds:.1f} s")
        print("\n".join(lines(found.program)), flush=True)


if __name__ == "__main__":
    main()

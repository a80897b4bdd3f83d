"""Time to trace, lower and compile; the size of programs; what they launch; and that grids share one."""

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.engine.sweep import make_sweep

from .measure import Effort, Found, Row, each
from .programs import Prepared, algorithms, catalog, prepare, shelf
from .throughput import setting


def compile(effort: Effort) -> Found:
    data, sizes = catalog(effort), setting(effort)

    def one(algorithm: fb.Algorithm) -> Found:
        first = shelf.get(data, algorithm, clients=1, **sizes)
        more = [prepare(data, algorithm, clients=1, afresh=True, **sizes) for _ in range(effort.pick(0, 0, 2))]
        yield from times(algorithm.title, [first, *more])
        yield from sizes_of(first)
        yield from kernels_of(first)

    yield from each(algorithms(effort), lambda algorithm: algorithm.title, one)
    cells = effort.pick((4,), (1, 16), (1, 10, 100))
    yield from each(cells, lambda n: f"a grid of {n}", lambda n: grid(data, sizes, n, afresh=effort.level > 0))


def times(case: str, programs: list[Prepared]) -> Found:
    for stage in ("trace", "lower", "compile"):
        samples = tuple(program.seconds[stage] for program in programs)
        yield Row(case, f"s to {stage}", samples, "lower", {"stage": stage, "algorithm": case})


def sizes_of(program: Prepared) -> Found:
    case = program.algorithm.title
    text = program.lowered.as_text()
    yield Row(case, "lines of StableHLO", (float(text.count("\n")),), "lower")
    yield Row(case, "MB on a device", (program.memory() / 1e6,), "lower", {"runs": program.runs})


def kernels_of(program: Prepared) -> Found:
    """Kernels of a turn of the busiest loop here; the suite `accelerators` has those elsewhere."""
    kernels = program.busiest(program.kernels(), "kernel").ops["kernel"]
    yield Row(program.algorithm.title, f"kernels a {program.unit}, here", (float(kernels),), "lower")


def grid(data: fb.Catalog, sizes: dict[str, int], cells: int, afresh: bool) -> Found:
    """A grid of some cells over numbers: one program, and compiled no slower."""
    swept = fb.LinUCB(alpha=[0.1 * (1 + i) for i in range(cells)])
    device = _runtime.devices()[0]
    programs = {batch.key for batch in make_sweep(data, swept, clients=1, users=1, **sizes).batches(device)}
    program = prepare(data, swept, clients=1, runs=1, afresh=afresh, **sizes)
    case = f"LinUCB, a grid of {cells} cells"
    yield Row(case, "programs", (float(len(programs)),), "lower", {"cells": cells})
    yield Row(case, "s to compile", (sum(program.seconds.values()),), "lower", {"cells": cells})
    yield Row(case, "lines of StableHLO", (float(program.lowered.as_text().count("\n")),), "lower", {"cells": cells})

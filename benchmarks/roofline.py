"""Which limit binds each algorithm: what one turn of its busiest loop does, over what this device was measured to do.

All rates are those of one device while all are at work.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from fedbandit_jax import _runtime

from . import counts
from .design import random_arms, solver
from .judge import binding_limit
from .linalg import positive_definite
from .measure import Effort, Found, Row, each, time_in_turn
from .programs import Prepared

LOOPS = {"bytes": 2**29, "flops": 2**31, "kernels": 2**15}  # what one sample moves, computes or launches


class Machine(NamedTuple):
    """What one device does, at best."""

    flops: float  # a second
    bandwidth: dict[int, float]  # bytes a second, by the size of the arrays at work
    launch: float  # seconds a kernel takes for being one
    caches: bool  # is there a cache that a program may live in?
    l2: int

    def bytes_a_second(self, working_set: float) -> float:
        """Bandwidth at the smallest measured size that holds the working set; at the largest if none does."""
        return self.bandwidth[min((s for s in self.bandwidth if s >= working_set), default=max(self.bandwidth))]


def everywhere(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call on all devices at once, each with its own copy."""
    devices = _runtime.devices()
    mesh = jax.make_mesh((len(devices),), ("device",), axis_types=(AxisType.Auto,), devices=devices)
    spread = PartitionSpec("device")
    one = lambda *args: jax.tree.map(lambda x: x[None], call(*(x[0] for x in args)))  # noqa: E731
    spread_out = jax.jit(jax.shard_map(one, mesh=mesh, in_specs=spread, out_specs=spread, check_vma=False))
    return lambda *args: spread_out(*(np.broadcast_to(x, (len(devices), *np.shape(x))) for x in args))


def machine(effort: Effort) -> tuple[Machine, list[Row]]:
    """Measure this device, and the rows that tell."""
    sizes = effort.pick(
        (2**14,), (2**16, 2**19, 2**22, 2**24, 2**27), (2**14, 2**16, 2**18, 2**19, 2**20, 2**22, 2**24, 2**28)
    )
    rows, bandwidth = [], {}
    for size in sizes:
        timing = _time(_triad(size, _turns(LOOPS["bytes"] / size, effort)), effort)
        moved = 1.5 * size * _turns(LOOPS["bytes"] / size, effort)  # two arrays of half the size: two read, one written
        rows.append(timing.row(f"triad, {_readable(size)}", "GB/s a device", moved / 1e9, "higher", bytes=size))
        bandwidth[size] = rows[-1].high * 1e9
    n = effort.pick(16, 256, 256)
    turns = _turns(LOOPS["flops"] / (2 * n**3), effort)
    timing = _time(_products(n, turns), effort)
    rows.append(timing.row(f"products of {n} x {n}", "GFLOP/s a device", 2 * n**3 * turns / 1e9, "higher"))
    flops = rows[-1].high * 1e9
    launch = _launch(effort)
    rows.append(launch)
    caches = jax.default_backend() == "cpu"
    return Machine(flops, bandwidth, launch.median / 1e6, caches, _runtime.l2_cache()), rows


def _turns(wanted: float, effort: Effort) -> int:
    return max(1, int(effort.pick(0.001, 0.25, 1.0) * wanted))


def _time(call: Callable[[], Any], effort: Effort) -> Any:
    return time_in_turn({"call": call}, effort.repeats)["call"]


def _readable(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 2**20 else f"{size >> 10} KiB"


def _triad(size: int, turns: int) -> Callable[[], Any]:
    """x <- s x + y, again and again."""
    run = everywhere(lambda x, y: lax.fori_loop(0, turns, lambda _, x: 0.999 * x + y, x))
    given = jax.device_put(jnp.ones(size // 8, jnp.float32))
    return lambda: run(given, given)


def _products(n: int, turns: int) -> Callable[[], Any]:
    run = everywhere(lambda a: lax.fori_loop(0, turns, lambda _, x: 1e-3 * (x @ a), a))
    given = np.ones((n, n), np.float32)
    return lambda: run(given)


def _launch(effort: Effort) -> Row:
    """Seconds per kernel of next to no work: between loops with few and with many of them, by their own count."""

    def chain(x: jax.Array, n: jax.Array, length: int) -> jax.Array:
        def turn(_: Any, x: jax.Array) -> jax.Array:
            for _ in range(length):
                x = x - x.max(axis=1, keepdims=True)  # a reduction stands between: cannot be fused into one
            return x + 1

        return lax.fori_loop(0, n, turn, x)

    x, turns = jnp.ones((16, 16)), jnp.int32(_turns(LOOPS["kernels"] / 20, effort))
    calls, kernels = {}, {}
    for length in (2, 18):
        compiled = jax.jit(partial(chain, length=length)).lower(x, turns).compile()
        calls[str(length)] = lambda f=compiled: f(x, turns)
        kernels[str(length)] = counts.of_compiled(compiled.as_text()).deepest("kernel").ops["kernel"]
    timings = time_in_turn(calls, effort.repeats)
    more = max(kernels["18"] - kernels["2"], 1) * int(turns)
    # Of the fastest of both: differences of single samples would be those of a busy machine.
    seconds = max(timings["18"].low - timings["2"].low, 1e-12) / more
    return Row("a kernel of 16 x 16 numbers", "us", (1e6 * seconds,), "lower")


def routine_seconds(routine: counts.Routine, batch: int, effort: Effort) -> float:
    """Measured seconds of one matrix, in a batch like the program's."""
    name, m, n = routine
    x = np.random.default_rng(0).normal(size=(batch, m, n)).astype(np.float32)
    square = positive_definite(n, batch)
    call = {
        "eigh": lambda: (jnp.linalg.eigh, square),
        "cholesky": lambda: (jnp.linalg.cholesky, square),
        "qr": lambda: (jnp.linalg.qr, x),
        "pivoted qr": lambda: (partial(lax.linalg.qr, full_matrices=False, pivoting=True), x),
        "triangular_solve": lambda: (
            lambda a: lax.linalg.triangular_solve(a[:, :n], a, left_side=False, lower=True),
            np.concatenate([square, x], 1),
        ),
    }.get(name)
    if call is None:
        return 0.0
    function, argument = call()
    run = everywhere(function)
    return _time(lambda: run(argument), effort).low / batch


def limits(
    program: Prepared, machine: Machine, seconds: Callable[[counts.Routine, int], float], iterations: float
) -> dict[str, float]:
    """The least seconds that each limit allows a turn of the busiest loop, with `iterations` of the loops inside."""
    loop = program.busiest(program.traced_loops, "gather")
    kernels = program.busiest(program.kernels(), "kernel")
    inside = [x for x in loop.loops if x.ops["dot_general"]]
    parts = [(1.0, loop), *((iterations, x) for x in inside)]
    # Of the loops inside, kernels are counted where there is most: others are those of the random generator.
    nested = max((x.ops["kernel"] for x in kernels.loops), default=0) if inside else 0
    working_set = max(loop.state_bytes, loop.bytes)
    bytes_name = "cache bandwidth" if machine.caches and working_set <= machine.l2 else "memory bandwidth"
    routines = {r: sum(times * x.routines[r] for times, x in parts) for _, x in parts for r in x.routines}
    plain = sum(times * (x.flops - _in_routines(x)) for times, x in parts)
    return {
        "arithmetic": plain / machine.flops,
        bytes_name: sum(times * x.bytes for times, x in parts) / machine.bytes_a_second(working_set),
        "kernel launches": (kernels.ops["kernel"] + iterations * nested) * machine.launch,
        "linear algebra routines": sum(n * seconds(r, program.lanes * program.clients) for r, n in routines.items()),
    }


def _in_routines(loop: counts.Loop) -> float:
    return sum(n * counts.routine_flops(*routine) for routine, n in loop.routines.items())


def turns_of(program: Prepared, trace: Any) -> float:
    """Turns of the busiest loop in one chunk: rounds, or phases of the slowest run (expected, if not told)."""
    if program.unit == "phase":
        expected = program.program.batch.cells[0].steps(program.dim)
        return float(max(part.phases["phase"].max() if part.phases else expected for part in trace))
    return float(program.horizon) if program.unit == "round" else 1.0


def roofline(programs: Sequence[Prepared], effort: Effort) -> Found:
    """What this device can do, and for each algorithm how much of its time each limit accounts for."""
    found, rows = machine(effort)
    yield from rows
    known: dict[tuple, float] = {}

    def seconds(routine: counts.Routine, batch: int) -> float:
        if (routine, batch) not in known:
            known[routine, batch] = routine_seconds(routine, batch, effort)
        return known[routine, batch]

    def one(program: Prepared) -> Found:
        trace = program.play()
        timing = program.timing or _time(program.play, effort)
        chunks = math.ceil(program.all_lanes / program.program.chunk)
        measured = statistics.median(timing.wall) / chunks / turns_of(program, trace)
        iterations = design_iterations(program) if program.unit == "phase" else 0.0
        yield from verdict(program, limits(program, found, seconds, iterations), measured)

    yield from each(programs, lambda program: program.algorithm.title, one)


def design_iterations(program: Prepared) -> float:
    """Turns of the design's loop in the first phase: the most among as many problems as are side by side."""
    settings = program.algorithm.hyperparameters()
    arms = random_arms(program.arms, program.dim, program.lanes * program.clients)
    solve = solver(program.arms, settings["design_method"], 1)  # all at once, as in the program
    return float(solve(arms, jnp.float32(settings["design_tol"])).iterations.max())


def verdict(program: Prepared, least: dict[str, float], measured: float) -> Found:
    title, lanes = program.algorithm.title, program.lanes * program.clients
    limit = binding_limit(least, measured)
    loop = program.busiest(program.traced_loops, "gather")
    about = {"algorithm": title, "unit": program.unit, "flops": loop.flops, "bytes": loop.bytes, "lanes": lanes}
    yield Row(title, f"us a {program.unit} of {lanes} clients", (1e6 * measured,), "", about)
    for name, seconds in least.items():
        yield Row(title, f"share of time, {name}", (seconds / measured,), "", about)
    told = f"binding: {limit.name}" if limit.binds else f"none binds; closest: {limit.name}"
    told += f"; all together account for {sum(least.values()) / measured:.0%}"
    yield Row(title, "limit", (limit.share,), "", {**about, "limit": limit.name, "binds": limit.binds, "note": told})

"""What every algorithm would launch, move and keep on a GPU or TPU that is not here, and how fast that may be.

Kernels, bytes and memory are facts of the program that XLA compiles for the target. Times are estimates: these counts
over published rates, of which programs reach a share that nobody has measured; so each has a range.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import fedbandit_jax as fb

from . import compiled, counts, hlo
from .compiled import Report
from .measure import Effort, Found, Row, Skipped
from .targets import TARGETS, Target

QUICK = ("LinUCB", "ConUCB", "SharedLinUCB", "FedConPE")
UNITS = {  # what one pass of a loop plays
    "rounds.play_to_checkpoint": "round",
    "rounds.play_to_message": "round",
    "rounds.play_own_rounds": "round",
    "stretch.play_block": "round",
    "phases.run_phases": "phase",
    "events.play_events": "message",
}
DESIGN = "design."  # loops inside phases: steps of a design
ROUTINES = {  # share of the float32 rate that a routine reaches with batches of matrices so small: assumed
    "potrf": ("cholesky", 0.05),
    "triangularSolve": ("triangular_solve", 0.05),
    "geqrf": ("qr", 0.03),
    "orgqr": ("qr", 0.03),
    "syevd": ("eigh", 0.01),
}


class Assumption(NamedTuple):
    """What a program reaches of the published rates."""

    bandwidth: float
    arithmetic: float
    launch: float  # times the target's
    routines: float  # times the shares above
    design_steps: float  # a phase: three or four as long as all arms are active, mostly none later


ASSUMPTIONS = (  # slow, middle, fast
    Assumption(0.6, 0.25, 2.0, 0.5, 4),
    Assumption(0.75, 0.5, 1.0, 1.0, 2),
    Assumption(0.9, 0.8, 0.6, 2.0, 1),
)


def accelerators(effort: Effort) -> Found:
    target = TARGETS[effort.target]
    reason = compiled.missing(target)
    if reason:
        yield Skipped(f"programs for {target.title}", reason)
        return
    yield f"compiling for {target.title}: no such device is needed, nor used"
    names = effort.pick(QUICK[:1], QUICK, tuple(fb.REGISTRY))
    sizes = effort.pick(compiled.TINY, compiled.FULL, compiled.FULL)
    at_once = effort.pick((64,), (4096,), (4096, 1024))
    cases = [{"algorithm": name, "at_once": n, "sizes": sizes} for name in names for n in at_once]
    found = compiled.reports(target, cases)
    for name in names:
        several = [next(found) for _ in at_once]
        failed = [text for text in several if isinstance(text, str)]
        if failed:
            yield Skipped(name, failed[0].splitlines()[0])
            continue
        programs = [report for report in several if isinstance(report, Report)]
        yield from facts(programs[0])
        yield from memory(programs, target)
        yield from estimates(programs[0], target)


def case(report: Report) -> str:
    return f"{report.algorithm} on {report.target}, {report.lanes * report.clients} clients"


class Unit(NamedTuple):
    """The busiest loop of a program."""

    name: str  # round, phase, message; or run, if there is no loop
    loop: hlo.Loop

    @property
    def designs(self) -> list[hlo.Loop]:
        """The loops inside whose turns are steps of a design."""
        return [loop for loop in self.loop.loops if loop.name.startswith(DESIGN)]


def unit_of(program: hlo.Loop) -> Unit:
    """The innermost loop of rounds; or the loop of phases, or of messages; or the program itself."""
    for wanted in ("round", "phase", "message"):
        loops = [loop for loop in program.walk() if loop.kind == "loop" and UNITS.get(loop.name) == wanted]
        if loops:
            return Unit(wanted, max(loops, key=lambda loop: (not _same_inside(loop), loop.bytes)))
    return Unit("run", program)


def _same_inside(loop: hlo.Loop) -> bool:
    return any(child.name == loop.name for child in loop.loops)


def facts(report: Report) -> Found:
    """Kernels, library calls and bytes of the compiled program."""
    unit = unit_of(report.program)
    parts = [(unit.name, unit.loop), *(("design step", loop) for loop in unit.designs)]
    for name, loop in parts:
        calls: dict[str, int] = {}
        for text, n in loop.calls.items():
            calls[text.split(" ")[0]] = calls.get(text.split(" ")[0], 0) + n
        about = {"algorithm": report.algorithm, "unit": name, "kernels": dict(loop.kernels), "calls": calls}
        told = ", ".join(f"{n} {kind}" for kind, n in loop.kernels.most_common())
        yield Row(case(report), f"kernels a {name}", (float(loop.count),), "lower", {**about, "note": told})
        yield Row(case(report), f"MB a {name}", (loop.bytes / 1e6,), "lower", about)


def memory(reports: list[Report], target: Target) -> Found:
    """Bytes by clients at once, and how many would fill the card."""
    for report in reports:
        yield Row(case(report), "MB of memory", (report.memory / 1e6,), "lower", {"algorithm": report.algorithm})
    if len(reports) > 1:
        many, few = reports[0], reports[-1]
        more = (many.lanes - few.lanes) * many.clients
        each = (many.memory - few.memory) / more
        fitting = 0.75 * (target.memory - many.memory + each * many.lanes * many.clients) / each  # JAX takes 75 %
        about = {"algorithm": many.algorithm, "bytes_a_client": each}
        yield Row(f"{many.algorithm} on {many.target}", "clients that fit", (fitting,), "", about)


def estimates(report: Report, target: Target) -> Found:
    """Rates in the middle, and from slow to fast; and the limit that binds in the middle."""
    unit = unit_of(report.program)
    unknown = [loop.name for loop in unit.loop.loops if loop.turns is None and loop not in unit.designs]
    if unknown or unit.name == "message":
        reason = f"the turns of {unknown[0]} are not known" if unknown else "the number of messages is not known"
        yield Skipped(f"{case(report)}: estimate", reason)
        return
    turns = {"round": report.rounds, "phase": report.phases, "run": 1}[unit.name]
    limits = [limits_of(unit, target, assumption) for assumption in ASSUMPTIONS]
    seconds = [turns * time_of(least) for least in limits]
    about = {"algorithm": report.algorithm, "target": target.name, "unit": unit.name, "estimate": True}
    rounds = tuple(sorted(report.lanes * report.client_rounds / s for s in seconds))
    yield Row(case(report), "client-rounds/s, estimated", rounds, "", about)
    runs = tuple(sorted(report.lanes * report.federations / s for s in seconds))
    yield Row(case(report), "federations/s, estimated", runs, "", about)
    middle = limits[1]
    binding = max(middle, key=lambda name: middle[name])
    share = middle[binding] / time_of(middle)
    note = f"binding: {binding}; " + ", ".join(f"{name} {1e6 * s:.3g} us" for name, s in middle.items())
    yield Row(
        case(report), "limit, estimated", (share,), "", {**about, "limit": binding, "seconds": middle, "note": note}
    )


def limits_of(unit: Unit, target: Target, assumption: Assumption) -> dict[str, float]:
    """Seconds of one pass of the busiest loop by each limit."""
    parts = [(1.0, unit.loop), *_inside(unit, assumption)]
    moved = sum(times * (loop.bytes - _routine_bytes(loop)) for times, loop in parts)
    worked = sum(times * loop.flops / target.flops for times, loop in parts)
    products = sum(times * loop.products / target.products for times, loop in parts)
    routines = sum(times * _routine_seconds(loop, target) for times, loop in parts)
    return {
        "memory bandwidth": moved / target.bandwidth / assumption.bandwidth,
        "arithmetic": (worked + products) / assumption.arithmetic,
        "kernel launches": sum(times * loop.count for times, loop in parts) * target.launch * assumption.launch,
        "linear algebra routines": routines / assumption.routines,
    }


def _inside(unit: Unit, assumption: Assumption) -> Iterator[tuple[float, hlo.Loop]]:
    """Loops and branches inside a pass, with how often they run."""
    for child in unit.loop.inside:
        steps = assumption.design_steps if child in unit.designs else child.turns or 1
        yield from ((float(steps), loop) for loop in child.walk())


def time_of(least: dict[str, float]) -> float:
    """Seconds of a pass: kernels are launched while others work, and routines come after one another."""
    work = max(least["memory bandwidth"], least["arithmetic"]) + least["linear algebra routines"]
    return max(work, least["kernel launches"])


def _matrices(text: str) -> tuple[str, float, int, int, float] | None:
    """Of a call such as `cusolver_syevd_ffi f32[409,10,50,50]`: routine, share of the rate, rows, columns, how many."""
    name, _, shape = text.partition(" ")
    dims = [int(n) for n in re.findall(r"\d+", shape.partition("[")[2])]
    found = next((entry for key, entry in ROUTINES.items() if key in name), None)
    return (*found, dims[-2], dims[-1], math.prod(dims[:-2])) if found and len(dims) >= 2 else None


def _routine_seconds(loop: hlo.Loop, target: Target) -> float:
    total = 0.0
    for text, n in loop.calls.items():
        found = _matrices(text)
        if found:
            name, share, rows, columns, matrices = found
            total += n * matrices * counts.routine_flops(name, rows, columns) / (share * target.products)
    return total


def _routine_bytes(loop: hlo.Loop) -> float:
    """Arrays that routines read and write, whose time is the routine's."""
    total = 0.0
    for text, n in loop.calls.items():
        found = _matrices(text)
        if found:
            *_, rows, columns, matrices = found
            total += n * 2 * 4 * matrices * rows * columns
    return min(total, loop.bytes)

"""What every algorithm would launch, move and keep on a GPU or TPU that is not here, and how fast that may be.

Kernels, bytes and memory are facts of the program that XLA compiles for the target. Times are estimates: these counts
over published rates, of which programs reach a share that nobody has measured; so each has a range.

python -m benchmarks.accelerators results/bench/bench-DATE.json      what the suite found, as a table in Markdown
python -m benchmarks.accelerators h100.json a100.json                estimates for several targets, side by side
"""

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fedbandit_jax as fb
from fedbandit_jax.engine import program as engine

from . import compiled, counts, hlo
from .compiled import Report
from .figure import short
from .measure import Effort, Found, Row, Skipped
from .targets import TARGETS, Target

QUICK = ("LinUCB", "ConUCB", "SharedLinUCB", "FedConPE")
AT_ONCE = {  # clients, by effort; XLA takes minutes a program for 4096 on a TPU, where bytes a client are 5 % more
    "gpu": ((64,), (4096,), (4096, 1024)),
    "tpu": ((64,), (512,), (512,)),
}
UNITS = {  # what one pass of a loop plays
    "rounds.play_to_checkpoint": "round",
    "rounds.play_to_message": "round",
    "rounds.play_own_rounds": "round",
    "optimistic.by_rounds": "round",
    "messages.by_rounds": "round",
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
    own: float  # of the arithmetic rate, in a kernel that plays rounds: a chain of small sums
    design_steps: float  # a phase: three or four as long as all arms are active, mostly none later


ASSUMPTIONS = (  # slow, middle, fast
    Assumption(0.6, 0.25, 2.0, 0.5, 0.05, 4),
    Assumption(0.75, 0.5, 1.0, 1.0, 0.1, 2),
    Assumption(0.9, 0.8, 0.6, 2.0, 0.16, 1),
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
    at_once = effort.pick(*AT_ONCE[target.platform])
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

    name: str  # stretch, of rounds in one kernel; round, phase, message; or run, if there is no loop
    loop: hlo.Loop

    @property
    def designs(self) -> list[hlo.Loop]:
        """The loops inside whose turns are steps of a design."""
        return [loop for loop in self.loop.loops if loop.name.startswith(DESIGN)]


def unit_of(program: hlo.Loop) -> Unit:
    """The loop whose kernel plays rounds; or that of rounds, of phases, of messages; or the program itself."""
    by_kernel = [loop for loop in program.walk() if loop.kind == "loop" and loop.own]
    if by_kernel:
        return Unit("stretch", by_kernel[0])
    for wanted in ("round", "phase", "message"):
        loops = [loop for loop in program.walk() if loop.kind == "loop" and UNITS.get(loop.name) == wanted]
        if loops:
            return Unit(
                wanted, max(loops, key=lambda loop: (loop.name not in [x.name for x in loop.loops], loop.bytes))
            )
    return Unit("run", program)


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
        about = {"algorithm": report.algorithm, "clients": report.lanes * report.clients}
        yield Row(case(report), "MB of memory", (report.memory / 1e6,), "lower", about)
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
    reason = f"the turns of {unknown[0]} are not known" if unknown else ""
    if unit.name == "message" or unit.loop.name == "messages.at_once":
        reason = "the number of messages is not known"
    elif unit.name == "run":
        reason = "it has no loop, and takes next to no time"
    if reason:
        yield Skipped(f"{case(report)}: estimate", reason)
        return
    passes = {"stretch": report.stretches, "round": report.rounds, "phase": report.phases}
    turns = passes[unit.name]
    limits = [limits_of(unit, target, assumption, report.rounds / turns) for assumption in ASSUMPTIONS]
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


def limits_of(unit: Unit, target: Target, assumption: Assumption, rounds: float = 1.0) -> dict[str, float]:
    """Seconds of one pass of the busiest loop by each limit; `rounds` are those that a kernel plays in it."""
    parts = list(_parts(unit, assumption))
    moved = sum(times * (loop.bytes - _routine_bytes(loop)) for times, loop in parts)
    worked = sum(times * loop.flops / target.flops for times, loop in parts)
    products = sum(times * loop.products / target.products for times, loop in parts)
    routines = sum(times * _routine_seconds(loop, target) for times, loop in parts)
    played = sum(n * rounds * _round_flops(text) for text, n in unit.loop.own.items()) / target.flops
    return {
        "memory bandwidth": moved / target.bandwidth / assumption.bandwidth,
        "arithmetic": (worked + products) / assumption.arithmetic + played / assumption.own,
        "kernel launches": sum(times * loop.count for times, loop in parts) * target.launch * assumption.launch,
        "loop conditions": sum(times for times, loop in parts if _asks(loop)) * target.condition * assumption.launch,
        "linear algebra routines": routines / assumption.routines,
    }


def _asks(loop: hlo.Loop) -> bool:
    """Does the host wait before every pass to learn whether there is another? Not if the loop is a CUDA graph."""
    graphs = "WHILE" in engine.COMPILER_OPTIONS["gpu"]["xla_gpu_enable_command_buffer"]
    return loop.kind == "loop" and loop.turns is None and (not graphs or any(part.calls for part in loop.walk()))


def _parts(unit: Unit, assumption: Assumption) -> Iterator[tuple[float, hlo.Loop]]:
    """The loop, and the loops and branches inside, with how often each runs in a pass."""
    yield 1.0, unit.loop
    for child in unit.loop.inside:
        steps = assumption.design_steps if child in unit.designs else child.turns or 1
        yield from ((float(steps), loop) for loop in child.walk())


def time_of(least: dict[str, float]) -> float:
    """Seconds of a pass: kernels are launched while others work, unless all wait for a condition."""
    work = max(least["memory bandwidth"], least["arithmetic"]) + least["linear algebra routines"]
    return max(work, least["kernel launches"]) + least["loop conditions"]


def _matrices(text: str) -> tuple[str, float, int, int, float] | None:
    """Routine, share of the rate, rows, columns and count of a call such as `cusolver_syevd_ffi f32[409,10,50,50]`."""
    name, _, shape = text.partition(" ")
    dims = [int(n) for n in re.findall(r"\d+", shape.partition("[")[2])]
    found = next((entry for key, entry in ROUTINES.items() if key in name), None)
    return (*found, dims[-2], dims[-1], math.prod(dims[:-2])) if found and len(dims) >= 2 else None


def _round_flops(text: str) -> float:
    """Operations of the rounds that a kernel plays side by side, from their arms' shape, padded to powers of two."""
    *clients, K, d = [int(n) for n in re.findall(r"\d+", text.partition("[")[2])]
    K, d = (1 << (n - 1).bit_length() for n in (K, d))
    return math.prod(clients) * (5 * d * d + 2 * d * K + 12 * K)  # V^-1 x, the new V^-1; X u; scores and their update


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


def by_algorithm(rows: list[Row]) -> dict[str, dict[str, Row]]:
    """Rows of the suite by algorithm and metric; of several numbers of clients, the most, which come first."""
    lines: dict[str, dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(row.about["algorithm"], {}).setdefault(row.metric, row)
    return lines


def estimate_of(found: dict[str, Row]) -> str:
    """What an algorithm plays a second, from slow to fast, in words; empty if nothing is estimated."""
    of_rounds, of_runs = (found.get(f"{what}/s, estimated") for what in ("client-rounds", "federations"))
    if of_rounds is None or of_runs is None:
        return ""
    by_round = of_rounds.about["unit"] in ("round", "stretch")
    told, what = (of_rounds, "client-rounds") if by_round else (of_runs, "federations")
    return f"{short(told.low)} to {short(told.high)} {what}"


def table(rows: list[Row]) -> Iterator[str]:
    """Rows of the suite as a table in Markdown, an algorithm a line."""
    heads = ["", "a pass", "kernels", "library calls", "MB a pass", "MB of memory", "estimated a second", "binding"]
    yield f"| {' | '.join(heads)} |"
    yield "| --- " * len(heads) + "|"
    for name, found in by_algorithm(rows).items():
        kernels = next(row for metric, row in found.items() if metric.startswith("kernels a "))
        unit = kernels.about["unit"]
        cells = [unit, short(kernels.median), str(kernels.about["kernels"].get("library", 0))]
        cells += [short(found[metric].median) for metric in (f"MB a {unit}", "MB of memory")]
        limit = found.get("limit, estimated")
        cells += [estimate_of(found), "" if limit is None else limit.about["limit"]]
        yield f"| {name} | {' | '.join(cells)} |"


def side_by_side(targets: list[list[Row]]) -> Iterator[str]:
    """Estimates for several targets as a table in Markdown; algorithms that have one."""
    named = {row.about["target"]: by_algorithm(rows) for rows in targets for row in rows if row.about.get("estimate")}
    yield f"| | {' | '.join(TARGETS[name].title for name in named)} |"
    yield "| --- " * (1 + len(named)) + "|"
    for algorithm in dict.fromkeys(algorithm for found in named.values() for algorithm in found):
        cells = [estimate_of(found.get(algorithm, {})) for found in named.values()]
        if any(cells):
            yield f"| {algorithm} | {' | '.join(cells)} |"


if __name__ == "__main__":
    files = [json.loads(Path(name).read_text())["suites"]["accelerators"]["rows"] for name in sys.argv[1:]]
    of_files = [[Row.from_json(row) for row in rows] for rows in files]
    print("\n".join(table(of_files[0]) if len(of_files) == 1 else side_by_side(of_files)))

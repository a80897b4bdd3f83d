"""Time and memory against T, M, K, d, J and runs: how each grows, as a fitted exponent."""

from collections.abc import Sequence
from typing import Any

import fedbandit_jax as fb

from . import worker
from .judge import fitted_exponent
from .measure import Effort, Found, Row, Timing, each, time_in_turn
from .programs import Prepared, prepare

BASE = {"T": 1000, "M": 2, "K": 50, "d": 20, "J": 200, "runs": 1}  # runs in chunks that fill the devices
ROUNDS = {"T": (1000, 2000, 4000), "M": (1, 2, 4), "K": (50, 100, 200), "d": (20, 40, 80), "J": (200, 1000)}
PHASES = {"T": (10**3, 10**4, 10**5), "M": (2, 4, 8), "K": (50, 100, 200), "d": (20, 40, 80), "J": (200, 1000)}
RUNS = {"runs": (1, 2, 4)}


def growth(effort: Effort) -> Found:
    tiny = [(fb.LinUCB(), {"T": (200, 400)}, ())]
    few = {name: ROUNDS[name] for name in ("T", "K", "d")} | RUNS  # what takes few compilations
    quick = [(fb.LinUCB(), few, ("T",)), (fb.FedConPE(), {"T": PHASES["T"], "d": PHASES["d"]}, ())]
    full = [(a, axes | RUNS, tuple(axes)) for a, axes in ((fb.LinUCB(), ROUNDS), (fb.ConUCB(), ROUNDS))]
    full += [(fb.FedConPE(), PHASES | RUNS, tuple(PHASES))]
    for algorithm, axes, in_processes in effort.pick(tiny, quick, full):
        compiled: dict[tuple, Prepared] = {}
        yield from each(
            axes.items(),
            lambda axis, algorithm=algorithm: f"{algorithm.title} {axis[0]}",
            lambda axis, a=algorithm, kept=compiled: against(a, *axis, effort, kept),
        )
        yield from each(
            in_processes,
            lambda axis, algorithm=algorithm: f"{algorithm.title} {axis}, process",
            lambda axis, a=algorithm, axes=axes: process_memory(a, axis, axes[axis]),
        )


def sizes(axis: str, value: int) -> dict[str, int]:
    return BASE | {axis: value}


def against(
    algorithm: fb.Algorithm, axis: str, values: Sequence[int], effort: Effort, compiled: dict[tuple, Prepared]
) -> Found:
    """Time of a federation and bytes of the program along one axis; along runs, time of all of them."""
    programs: dict[str, Prepared] = {}
    for value in values:
        yield f"compiling {named(algorithm.title, axis, value)}"
        at = sizes(axis, value)
        shapes = tuple(at[name] for name in ("M", "K", "d", "J"))
        compiled[shapes] = program = prepared(algorithm, at, compiled.get(shapes))
        programs[str(value)] = program
    timings = time_in_turn({name: program.play for name, program in programs.items()}, effort.repeats)
    title = algorithm.title
    seconds: dict[int, Timing] = {}
    for value in values:
        program, timing = programs[str(value)], timings[str(value)]
        seconds[value] = timing if axis == "runs" else timing.per(program.runs)
        case, about = named(title, axis, value), {"axis": axis, "x": value, "algorithm": title}
        metric = "s in all" if axis == "runs" else "ms a federation"
        yield seconds[value].row(case, metric, 1 if axis == "runs" else 1e3, **about)
        yield Row(case, "MB on a device", (program.memory() / 1e6,), "lower", about)
    fit = fitted_exponent(*zip(*((v, s) for v, timing in seconds.items() for s in timing.wall), strict=True))
    yield exponent(f"{title}: time ~ {axis}^", fit, axis, title)
    if axis not in ("runs", "T"):  # which change no shape
        fit = fitted_exponent(values, [programs[str(v)].memory() / programs[str(v)].lanes for v in values])
        yield exponent(f"{title}: program's bytes a lane ~ {axis}^", fit, axis, title)


def prepared(algorithm: fb.Algorithm, at: dict[str, int], like: Prepared | None) -> Prepared:
    catalog = fb.datasets.synthetic(seed=0, dim=at["d"], num_arms=1000, num_key_terms=at["J"], num_users=10)
    return prepare(catalog, algorithm, clients=at["M"], arms=at["K"], horizon=at["T"], chunks=at["runs"], like=like)


def named(title: str, axis: str, value: int) -> str:
    """A case, by the axis it is on and all sizes: the same sizes are measured on several axes."""
    at = sizes(axis, value)
    rest = " ".join(f"{name}={size}" for name, size in at.items() if name not in ("runs", axis))
    return f"{title} {'chunks' if axis == 'runs' else axis}={value}, {rest}"


def exponent(case: str, fit: Any, axis: str, title: str) -> Row:
    return Row(case, "exponent", (round(fit.value, 6),), "", {"error": fit.error, "axis": axis, "algorithm": title})


def process_memory(algorithm: fb.Algorithm, axis: str, values: Sequence[int]) -> Found:
    """Peak memory of a process that plays, at both ends of an axis: all of it, Python and JAX and compiler too."""
    peaks = []
    for value in (values[0], values[-1]):
        found = worker.run({"task": "memory", "algorithm": algorithm.title, "sizes": sizes(axis, value)})
        peaks.append(found["peak"])
        yield Row(named(algorithm.title, axis, value), "MB of the process, peak", (found["peak"] / 1e6,), "lower")
    yield exponent(
        f"{algorithm.title}: process ~ {axis}^", fitted_exponent((values[0], values[-1]), peaks), axis, algorithm.title
    )

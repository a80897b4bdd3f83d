"""Weak and strong scaling: more devices for more runs, and more devices for the same runs.

On a CPU a device is a core, and each count has a process that may use so many cores; they take turns. GPUs and TPUs are
taken from this process, the first of them, then more.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax

import fedbandit_jax as fb
from fedbandit_jax import _runtime

from . import worker
from .measure import Effort, Found, Row, Skipped, time_in_turn
from .programs import catalog, prepare
from .throughput import setting


def devices(effort: Effort) -> Found:
    most = effort.pick(1, len(_runtime.devices()), len(_runtime.devices()))
    counts = sorted({most, *(2**i for i in range(most.bit_length()) if 2**i <= most)})
    if most == 1 and effort.level:
        yield Skipped("scaling", "there is one device only")
    yield f"compiling on {', '.join(map(str, counts))} devices"
    on_cpu = jax.default_backend() == "cpu"
    samples = (in_processes if on_cpu else in_this_process)(counts, most, effort)
    for name in samples[counts[0]]:
        one = samples[counts[0]][name]
        algorithm, kind = name.rsplit(" ", 1)
        for count in counts:
            found = samples[count][name]
            about = {"devices": count, "algorithm": algorithm, "kind": kind}
            yield Row(f"{name} on {count}", "s", tuple(found), "lower", about)
            work = count if kind == "weak" else 1
            speedups = tuple(work * a / b for a, b in zip(one, found, strict=True))
            yield Row(f"{name} on {count}", "speed-up", speedups, "higher", about)


def players(devices: Sequence[jax.Device], most: int, level: int) -> dict[str, Callable[[], Any]]:
    """What to play on some devices: as many runs as fill them (weak), or as would fill `most` (strong)."""
    effort = Effort(level)
    found: dict[str, Callable[[], Any]] = {}
    for algorithm in effort.pick([fb.LinUCB()], [fb.LinUCB(), fb.FedConPE()], [fb.LinUCB(), fb.FedConPE()]):
        chunks = -(-most // len(devices))
        program = prepare(catalog(effort), algorithm, devices=devices, chunks=chunks, **setting(effort))
        for kind, count in (("weak", len(devices)), ("strong", most)):
            found[f"{algorithm.title} {kind}"] = partial(program.play, count * program.lanes)
        found[f"{algorithm.title} weak"]()  # warm-up
    return found


def in_this_process(counts: Sequence[int], most: int, effort: Effort) -> dict[int, dict[str, Sequence[float]]]:
    calls = {n: players(_runtime.devices()[:n], most, effort.level) for n in counts}
    flat = {(n, name): call for n, named in calls.items() for name, call in named.items()}
    timings = time_in_turn({f"{n}|{name}": call for (n, name), call in flat.items()}, effort.repeats)
    return {n: {name: timings[f"{n}|{name}"].wall for name in named} for n, named in calls.items()}


def in_processes(counts: Sequence[int], most: int, effort: Effort) -> dict[int, dict[str, Sequence[float]]]:
    processes = {}
    samples: dict[int, dict[str, Sequence[float]]] = {}
    try:
        for n in counts:  # one after another, as they compile
            task = {"task": "cores", "devices": n, "most": most, "level": effort.level}
            processes[n] = worker.start(task)
            samples[n] = {name: [] for name in worker.answer(processes[n].stdout, processes[n])}
        for _ in range(effort.repeats):
            for name in samples[counts[0]]:
                for n, process in processes.items():
                    print(name, file=process.stdin, flush=True)
                    samples[n][name].append(worker.answer(process.stdout, process))  # type: ignore[attr-defined]
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return samples

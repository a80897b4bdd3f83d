"""What a measurement is, and how it is taken: warm-up apart, repetitions, several things in turn."""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from fedbandit_jax import _runtime
from fedbandit_jax.engine.calls import describe_environment

Value = TypeVar("Value")
LEAST_SECONDS = 0.02  # shorter calls are repeated within a sample


@dataclass(frozen=True)
class Row:
    """One figure: samples of a metric of a case. Case and metric name it for good: sizes are part of the case."""

    case: str
    metric: str
    samples: tuple[float, ...]
    better: str = ""  # "lower", "higher", or "" for a fact that is neither
    about: dict[str, Any] = field(default_factory=dict)  # sizes for figures, words for readers

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def low(self) -> float:
        return min(self.samples)

    @property
    def high(self) -> float:
        return max(self.samples)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "median": self.median, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Row":
        fields = {name: found[name] for name in ("case", "metric", "better", "about")}
        return cls(samples=tuple(found["samples"]), **fields)


@dataclass(frozen=True)
class Skipped:
    """A case that could not be measured, and why."""

    case: str
    reason: str


Found = Iterator[Row | Skipped | str]  # words tell what is going on


def each(
    cases: Iterable[Value], name: Callable[[Value], str], measure: Callable[[Value], Iterable[Row | Skipped | str]]
) -> Found:
    """Rows of every case; one that fails is told and does not stop the others."""
    for case in cases:
        try:
            yield from measure(case)
        except Exception as error:  # whatever a device or a compiler may come up with
            yield Skipped(name(case), why(error))


def why(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


@dataclass(frozen=True)
class Effort:
    """How much to measure: 0 as little as a test can look at, 1 in about three minutes, 2 in full."""

    level: int
    target: str = "h100"  # of the programs that are compiled for a device that is not here

    def pick(self, tiny: Value, quick: Value, full: Value) -> Value:
        return (tiny, quick, full)[self.level]

    @property
    def repeats(self) -> int:
        """Five: were nothing different, two ranges of five would miss each other once in 126 times."""
        return self.pick(2, 5, 7)


class Timing(NamedTuple):
    """Samples of seconds a call."""

    wall: tuple[float, ...]
    cores: float  # CPU seconds a second, median: less than the device's cores means that others had them

    @property
    def low(self) -> float:
        return min(self.wall)

    def per(self, units: float) -> "Timing":
        """Seconds of one of so many units in a call."""
        return Timing(tuple(s / units for s in self.wall), self.cores)

    def row(self, case: str, metric: str, scale: float, better: str = "lower", **about: Any) -> Row:
        """Seconds times a scale; with better="higher", the scale over seconds: a rate."""
        values = tuple(scale / s if better == "higher" else scale * s for s in self.wall)
        return Row(case, metric, values, better, {**about, "cores": round(self.cores, 2)})


def time_in_turn(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timing]:
    """Seconds of each call, called in turn so that a busy moment of the machine hits all of them alike."""
    loops = {}
    for name, call in calls.items():
        jax.block_until_ready(call())  # warm-up: compilation, caches
        loops[name] = max(1, math.ceil(LEAST_SECONDS / max(_once(call, 1)[0], 1e-9)))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            samples[name].append(_once(call, loops[name]))
    return {
        name: Timing(tuple(wall for wall, _ in found), statistics.median(cpu / wall for wall, cpu in found))
        for name, found in samples.items()
    }


def _once(call: Callable[[], Any], loops: int) -> tuple[float, float]:
    cpu, began = time.process_time(), time.perf_counter()
    for _ in range(loops):
        jax.block_until_ready(call())
    return (time.perf_counter() - began) / loops, (time.process_time() - cpu) / loops


def ratios(case: str, metric: str, slow: Timing, fast: Timing, **about: Any) -> Row:
    """How many times faster, sample by sample: both of a pair were measured one right after the other."""
    return Row(case, metric, tuple(s / f for s, f in zip(slow.wall, fast.wall, strict=True)), "higher", about)


def environment() -> dict[str, Any]:
    """Versions, device and machine."""
    devices = _runtime.devices()
    return {
        **describe_environment(devices),
        "device": f"{devices[0].platform}: {processor() if devices[0].platform == 'cpu' else devices[0].device_kind}",
        "device_count": len(devices),
        "cores": _runtime.cores(),
        "l2_bytes": _runtime.l2_cache(),
        "system": platform.platform(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def processor() -> str:
    """The name of the CPU, and the vector instructions that decide its speed."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine()
    lines = [line.partition(":") for line in info.read_text().splitlines() if ":" in line]
    found = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    widest = [name for name in ("avx512f", "avx2", "avx") if name in found.get("flags", "").split()][:1]
    return " ".join([found.get("model name", platform.machine()), *widest])

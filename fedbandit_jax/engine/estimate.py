"""What a sweep would take: each of its programs compiled here, and one chunk of it timed."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedbandit_jax import _runtime
from fedbandit_jax.clocks.phases import PhaseAlgorithm
from fedbandit_jax.engine.program import Program
from fedbandit_jax.engine.sweep import Sweep, memory_budget

TIMED_ROUNDS = 20_000  # of a longer horizon


def estimate(sweep: Sweep, memory: Any = None) -> Iterator[dict[str, Any]]:
    """A record of each batch: seconds to play all of its runs and to compile its program, bytes of memory."""
    _runtime.keep_compiled_programs()
    devices = _runtime.devices()
    budget = memory_budget(memory, devices)
    for batch in sweep.batches(devices[0]):
        # Phases cost the same whatever their length; rounds are played in part, and the rest is a rule of three.
        T, by_phases = batch.horizon, isinstance(batch.algorithm, PhaseAlgorithm)
        part = 1.0 if T <= TIMED_ROUNDS or by_phases else TIMED_ROUNDS / T
        timed = np.maximum(np.floor(batch.rounds * part), np.arange(1, len(batch.rounds) + 1))
        program = Program(batch, seed=sweep.seed, devices=devices, rounds=timed)
        program.compile(budget)
        one = np.arange(min(program.chunk, len(batch.cell)))
        list(program.play(one))  # warm
        began = time.perf_counter()
        list(program.play(one))
        seconds = time.perf_counter() - began
        yield {
            "dataset": batch.catalog.name,
            "algorithm": batch.algorithm.title,
            "horizon": T,
            "clients": batch.max_clients,
            "arms": batch.max_arms,
            "seconds": seconds / part * -(-len(batch.cell) // program.chunk),
            "compile_seconds": program.compile_seconds,
            "memory": program.memory,
        }

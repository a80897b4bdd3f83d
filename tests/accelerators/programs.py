"""The programs that are compiled, the table of their kernels, and what must hold for each of them.

python -m tests.accelerators.programs      writes the table anew, for instance after a change to a learner
"""

import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fedbandit_jax as fb
from benchmarks import compiled
from benchmarks.accelerators import unit_of
from benchmarks.targets import TARGETS

NAMES = list(fb.REGISTRY)
TABLE = Path(__file__).with_name("kernels.toml")
# For an H100 at the sizes of the paper, as its memory counts; for a TPU, which takes longer, at those of the tests.
# Nobody looks into the kernels of the H100 here, so their code need not be good: the program is the same.
HASTE = {"xla_backend_optimization_level": 0}
SIZES = {
    "h100": {"at_once": 4096, "sizes": compiled.FULL, "options": HASTE},
    "v5e": {"at_once": 64, "sizes": compiled.TINY},
}
KNOWN = {  # library calls, by platform; a new one must be fit for batches
    "gpu": {
        "cusolver_potrf_ffi",
        "cusolver_geqrf_ffi",
        "cusolver_orgqr_ffi",
        "cusolver_syevd_ffi",
        "__cublas$triangularSolve",
        "__cublas$gemm",
        "__cublas$lt$matmul",
    },
    "tpu": {
        "Cholesky",
        "QrDecompositionBlock",
        "InvertDiagBlocksUpperTriangular",
        "InvertDiagBlocksLowerTriangular",
        "CompactWyHelper",
        "EighTpu",
    },
}
IN_A_ROUND = {  # who may call a library there
    "ConDuel",  # fits a logistic model, in a branch
}
HEAD = """\
# Kernels in one pass of every loop and branch of every algorithm's program, as XLA compiles it for a target. A name
# says which module and function made the loop; loops of one name are added up. No test lets a count grow.
# Made by: make test-accelerators ARGS=--table
"""


def needs(target):
    """Leaves a module out where the compiler for a target is missing."""
    if reason := compiled.missing(TARGETS[target]):
        pytest.skip(reason, allow_module_level=True)


def compile_all(target, more=None):
    """Every algorithm, in one process, some with more arguments of `compiled.report`."""
    cases = [{"algorithm": name, **SIZES[target], **(more or {}).get(name, {})} for name in NAMES]
    return dict(zip(NAMES, compiled.reports(TARGETS[target], cases), strict=True))


def kernels(program):
    """Kernels of a pass by the name of the loop or branch; those of one name are added up."""
    found = Counter()
    for loop in program.walk():
        found[f"if {loop.name}" if loop.kind == "branch" else loop.name] += loop.count
    return found


def table():
    return tomllib.loads(TABLE.read_text())


def check(report):
    """A program that an accelerator likes."""
    assert not isinstance(report, str), report
    assert not report.float64
    libraries = {call.split(" ")[0] for loop in report.program.walk() for call in loop.calls}
    assert libraries <= KNOWN[TARGETS[report.target].platform]
    for loop in report.program.walk():
        assert not loop.host or loop is report.program, "the host is asked in a loop"
        assert not loop.collectives
    unit = unit_of(report.program)
    if unit.name == "round" and report.algorithm not in IN_A_ROUND:
        assert not any(loop.calls for loop in unit.loop.walk()), "a library call in every round"
    allowed = table()[report.target].get(report.algorithm, {})
    found = kernels(report.program)
    grown = {name: (n, allowed.get(name, 0)) for name, n in found.items() if n > allowed.get(name, 0)}
    assert not grown, "kernels now and in the table, which make test-accelerators ARGS=--table writes anew"


def as_text(reports):
    """The table of some reports."""
    lines = [HEAD]
    for report in reports:
        assert not isinstance(report, str), report
        lines.append(f"[{report.target}.{report.algorithm}]")
        lines += [f'"{name}" = {n}' for name, n in kernels(report.program).items()]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:  # each has a process of its own
        found = list(pool.map(compile_all, SIZES))
    TABLE.write_text(as_text(report for reports in found for report in reports.values()))

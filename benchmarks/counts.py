"""What a program does, counted from the program itself: as a tree of loops, from two of its forms.

`of_jaxpr` (as traced) counts arithmetic, bytes and routines of linear algebra; `of_compiled` (as optimised for the
device at hand) counts kernels. All counts are of one device and of one turn of a loop, without the loops inside.
Programs for devices that are not here are read by `hlo`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


class Routine(NamedTuple):
    """A routine of linear algebra on one matrix."""

    name: str
    rows: int
    columns: int


@dataclass
class Loop:
    """One turn of a loop, or a whole program, without the loops inside it."""

    ops: Counter[str] = field(default_factory=Counter)
    loops: list["Loop"] = field(default_factory=list)
    flops: float = 0.0
    bytes: float = 0.0  # every array that a turn reads or writes, once: what no compiler can avoid
    routines: Counter[Routine] = field(default_factory=Counter)  # matrices
    state_bytes: float = 0.0  # arrays that go around the loop or stay beside it

    def walk(self, depth: int = 0) -> Iterator[tuple[int, "Loop"]]:
        yield depth, self
        for loop in self.loops:
            yield from loop.walk(depth + 1)

    def deepest(self, op: str) -> "Loop":
        """The loop furthest inside that has such an operation; the program itself if none has."""
        found = [(depth, loop.ops[op], loop) for depth, loop in self.walk() if loop.ops[op]]
        return max(found, key=lambda entry: entry[:2])[2] if found else self


# ---- as traced

CALLS = {
    "jit",
    "pjit",
    "shard_map",
    "custom_jvp_call",
    "custom_vjp_call",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
}
ALIASES = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type", "copy", "transpose"}
FREE = ALIASES | {
    "slice",
    "iota",
    "concatenate",
    "pad",
    "gather",
    "dynamic_slice",
    "random_wrap",
    "random_unwrap",
    "stack",
}
ROUTINES = {"cholesky", "eigh", "qr", "geqrf", "geqp3", "householder_product", "lu", "svd", "triangular_solve"}
GENERATOR = 55  # operations for 32 random bits, by threefry


class _Op(NamedTuple):
    name: str
    inputs: tuple[int | None, ...]  # numbers of arrays, None for constants
    outputs: tuple[int, ...]
    eqn: Any


def of_jaxpr(closed: ClosedJaxpr, platform: str = "cpu") -> Loop:
    """Arithmetic, bytes and routines by loop."""
    return _body(closed.jaxpr, platform, carried=0)


def _open(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _flatten(jaxpr: Jaxpr, names: dict[Any, int], fresh: Iterator[int], platform: str) -> Iterator[_Op]:
    """The equations with calls and branches for this platform put in place."""

    def name(var: Any) -> int | None:
        return None if isinstance(var, Literal) else names.setdefault(var, next(fresh))

    for eqn in jaxpr.eqns:
        inner = _inner(eqn, platform)
        if inner is None:
            names |= {var: next(fresh) for var in eqn.outvars}
            yield _Op(eqn.primitive.name, tuple(map(name, eqn.invars)), tuple(names[v] for v in eqn.outvars), eqn)
            continue
        given = eqn.invars[len(eqn.invars) - len(inner.invars) :]  # a branch does not get the index
        # The same text may be called twice: each time its arrays are others.
        own = {var: arg for var, outer in zip(inner.invars, given, strict=True) if (arg := name(outer)) is not None}
        yield from _flatten(inner, own, fresh, platform)
        for var, found in zip(eqn.outvars, inner.outvars, strict=True):
            names[var] = next(fresh) if isinstance(found, Literal) else own.setdefault(found, next(fresh))


def _inner(eqn: Any, platform: str) -> Jaxpr | None:
    """What an equation stands for: the body of a call, or one branch of a choice."""
    if eqn.primitive.name in CALLS:
        return _open(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")))
    if eqn.primitive.name != "cond":
        return None
    branches = [_open(branch) for branch in eqn.params["branches"]]
    for_platforms = eqn.params.get("branches_platforms")
    if for_platforms:
        fitting = [b for b, names in zip(branches, for_platforms, strict=True) if names is None or platform in names]
        return fitting[0]
    return max(branches, key=lambda branch: of_jaxpr(ClosedJaxpr(branch, ()), platform).flops)  # the dearest


def _body(jaxpr: Jaxpr, platform: str, carried: int) -> Loop:
    """Counts of one turn; the last `carried` inputs come back as outputs."""
    loop, fresh, names = Loop(), count(), {}
    names |= {var: next(fresh) for var in (*jaxpr.constvars, *jaxpr.invars)}
    sizes = {names[var]: _bytes(var.aval) for var in names}
    ops = list(_flatten(jaxpr, names, fresh, platform))
    origin: dict[int | None, int | None] = {}
    read: dict[int, float] = {}
    updated: dict[int, float] = {}
    for op in ops:
        inputs = [origin.get(i, i) for i in op.inputs]
        if op.name in ALIASES and inputs and op.eqn.invars[0].aval.size == op.eqn.outvars[0].aval.size:
            origin[op.outputs[0]] = inputs[0]
            continue
        outputs = sum(_bytes(var.aval) for var in op.eqn.outvars)
        picks = op.name in ("gather", "dynamic_slice")
        for i, index in enumerate(inputs):
            if index in sizes:
                part = outputs if picks and i == 0 else sizes[index]
                read[index] = min(max(read.get(index, 0), part), sizes[index])
        if op.name in ("scatter", "scatter-add", "dynamic_update_slice"):
            updated[op.outputs[0]] = _bytes(op.eqn.invars[1 if op.name == "dynamic_update_slice" else 2].aval)
        _add(loop, op, platform)
    loop.bytes += sum(read.values())
    inputs_back = [names[var] for var in jaxpr.invars[len(jaxpr.invars) - carried :]] if carried else []
    for var, before in zip(jaxpr.outvars, inputs_back, strict=False):
        after = None if isinstance(var, Literal) else names.get(var)
        if after is not None and origin.get(after, after) != before:
            loop.bytes += updated.get(after, _bytes(var.aval))
    loop.state_bytes = sum(sizes[i] for i in read) if carried else 0.0
    return loop


def _add(loop: Loop, op: _Op, platform: str) -> None:
    """Count one operation."""
    eqn, name = op.eqn, op.name
    loop.ops[name] += 1
    if name == "while":
        body = _open(eqn.params["body_jaxpr"])
        loop.loops.append(_body(body, platform, len(body.invars) - eqn.params["body_nconsts"]))
    elif name == "scan":
        loop.loops.append(_body(_open(eqn.params["jaxpr"]), platform, eqn.params["num_carry"]))
    elif name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        loop.flops += 2 * eqn.outvars[0].aval.size * math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
    elif name in ROUTINES:
        *batch, rows, columns = eqn.invars[-1 if name == "triangular_solve" else 0].aval.shape
        full_name = "pivoted qr" if eqn.params.get("pivoting") else name
        loop.routines[Routine(full_name, rows, columns)] += math.prod(batch)
        loop.flops += math.prod(batch) * routine_flops(name, rows, columns)
    elif name in ("random_bits", "threefry2x32", "random_fold_in", "random_split"):
        loop.flops += GENERATOR * eqn.outvars[0].aval.size
    elif name.startswith(("reduce", "arg", "cum")):
        loop.flops += eqn.invars[0].aval.size
    elif name not in FREE:
        loop.flops += eqn.outvars[0].aval.size if eqn.outvars else 0


def routine_flops(name: str, m: int, n: int) -> float:
    """Textbook counts (Golub and Van Loan), leading terms."""
    if name == "eigh":
        return 9 * n**3
    if name in ("cholesky", "lu"):
        return n**3 / 3
    if name == "triangular_solve":
        return m * n * min(m, n)
    return 4 * m * n**2 - 4 * n**3 / 3  # qr, with Q


def _bytes(aval: Any) -> float:
    return aval.size * getattr(aval.dtype, "itemsize", 8)


# ---- as optimised for this device

NO_KERNEL = {
    "parameter",
    "tuple",
    "get-tuple-element",
    "constant",
    "bitcast",
    "after-all",
    "while",
    "conditional",
    "call",
}
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = .*?\s([a-z][\w\-]*)\(")
CALLED = re.compile(r"(?:body|to_apply|true_computation|false_computation)=%?([\w.\-]+)")


def of_compiled(text: str) -> Loop:
    """Kernels by loop in the text of an optimised program: what is left after fusion, one launch or call each."""
    computations: dict[str, list[str]] = {}
    lines: list[str] = []
    entry = ""
    for line in text.splitlines():
        opened = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if opened:
            lines = computations.setdefault(opened[2], [])
            entry = opened[2] if opened[1] else entry
        elif " = " in line:
            lines.append(line)

    def read(name: str) -> Loop:
        loop = Loop()
        for line in computations.get(name, ()):
            found = INSTRUCTION.match(line)
            if found is None:
                continue
            opcode = found[1]
            if opcode not in NO_KERNEL:
                loop.ops["kernel"] += 1
                loop.ops[opcode] += 1
            called = CALLED.search(line)
            if opcode == "while" and called:
                loop.loops.append(read(called[1]))
            elif opcode == "call" and called:
                inner = read(called[1])
                loop.ops += inner.ops
                loop.loops += inner.loops
        return loop

    return read(entry)

"""An optimised program, read from its text: kernels, bytes, library calls and transfers, as a tree of loops.

Unlike `counts.of_compiled`, which counts kernels only, this follows what a kernel reads and writes.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
NO_KERNEL = {
    *("parameter", "tuple", "get-tuple-element", "constant", "bitcast", "after-all", "partition-id", "replica-id"),
    *("while", "conditional", "call", "opt-barrier", "add-dependency"),
    *("copy-done", "slice-done", "async-done", "async-update", "send-done", "recv-done", "all-reduce-done"),
}
HOST = {"infeed", "outfeed", "send", "recv"}
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective", "ragged-all-to-all")
PICKS = {"dynamic-slice", "slice", "gather"}
SAME = {"bitcast", "reshape", "copy", "transpose", "convert"}  # inside a fusion: still that parameter
FREE = (
    PICKS
    | SAME
    | {
        *("parameter", "constant", "tuple", "get-tuple-element", "broadcast", "iota", "concatenate", "pad", "reverse"),
        *("dynamic-update-slice", "scatter", "bitcast-convert"),
    }
)
OWN = "__gpu$xla.gpu.triton"
GEMMS = ("__cublas$gemm", "__cublas$lt$matmul")
# Custom calls that run nothing; the last is an array whose slices were brought beside a TPU's processor one by one.
NO_CALL = ("AllocateBuffer", "Sharding", "ConcatBitcast")
HOST_MEMORY = re.compile(r"S\(5\)")


@dataclass
class Loop:
    """One pass of a loop, or of a branch in it, or the whole program; without the loops and branches inside."""

    name: str  # the module and function of the package that made the loop: rounds.play_to_checkpoint
    kind: str = "loop"  # or "branch", or "program"
    turns: int | None = None  # where the compiler knows them
    kernels: Counter[str] = field(default_factory=Counter)  # fusion, copy, library, own, and other operations by name
    calls: Counter[str] = field(default_factory=Counter)  # library routines by name, with the shape they work on
    own: Counter[str] = field(default_factory=Counter)  # kernels of the package itself, in Triton, with their shapes
    bytes: float = 0.0  # that kernels read and write, each of their arrays once
    flops: float = 0.0  # outside of products and library routines
    products: float = 0.0  # operations in products of matrices
    host: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    inside: list["Loop"] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.kernels.total()

    @property
    def loops(self) -> list["Loop"]:
        """Directly inside, also in branches."""
        return [x for child in self.inside for x in ([child] if child.kind == "loop" else child.loops)]

    def walk(self) -> Iterator["Loop"]:
        yield self
        for child in self.inside:
            yield from child.walk()

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "inside": [child.to_json() for child in self.inside]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Loop":
        counters = {name: Counter(found[name]) for name in ("kernels", "calls", "own", "host", "collectives")}
        return cls(**{**found, **counters, "inside": [cls.from_json(child) for child in found["inside"]]})


@dataclass(frozen=True)
class Instruction:
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str  # attributes
    root: bool

    def attribute(self, name: str) -> str | None:
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.rest)
        return found[1] if found else None


def read(text: str) -> Loop:
    """The tree of loops of a program."""
    return _Reader(text).program()


def has_float64(text: str) -> bool:
    return bool(re.search(r"\bf64\[", text))


# ---- sizes


def arrays(shape: str) -> list[tuple[str, list[int], str]]:
    """Type, dimensions and layout of the arrays in a shape."""
    found = re.findall(r"([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?", shape)
    return [(kind, [int(n) for n in dims.replace("<=", "").split(",") if n], layout) for kind, dims, layout in found]


def elements(shape: str) -> float:
    return float(sum(math.prod(dims) for _, dims, _ in arrays(shape)))


def size(shape: str) -> float:
    """Bytes in the memory of the device: whole tiles on TPUs, none where an array stays beside the processor."""
    total = 0.0
    for kind, dims, layout in arrays(shape):
        if "S(1)" in layout:
            continue
        total += math.prod(_padded(dims, layout)) * _bits(kind) / 8
    return total


def _bits(kind: str) -> int:
    digits = re.search(r"\d+", kind)
    return BITS[kind] if kind in BITS else int(digits[0]) if digits else 0


def _padded(dims: Sequence[int], layout: str) -> list[int]:
    tile = re.search(r":[^}]*?T\(([\d,]+)\)", layout)
    if not tile or not dims:
        return list(dims)
    order = [int(i) for i in re.findall(r"\d+", layout.split(":")[0])]  # from minor to major
    padded = list(dims)
    for i, n in zip(order, reversed([int(n) for n in tile[1].split(",")]), strict=False):
        padded[i] = -(-padded[i] // n) * n
    return padded


# ---- the text


class _Reader:
    def __init__(self, text: str) -> None:
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            opened = re.match(r"^(ENTRY )?%?([\w.\-]+)\s.*\{$", line)
            if opened and not line.startswith(("HloModule", " ")):
                current = self.computations.setdefault(opened[2], {})
                self.entry = opened[2] if opened[1] else self.entry
            elif line.startswith("  ") and " = " in line:
                found = _instruction(line)
                current[found.name] = found
        self.frames = _Frames(text)

    def program(self) -> Loop:
        return self._fill(Loop("program", "program"), self.entry)

    def _fill(self, loop: Loop, computation: str) -> Loop:
        """Count a computation into a loop."""
        body = self.computations[computation]
        for x in body.values():
            if x.opcode == "while":
                inner = Loop(self.frames.name(x.rest), turns=self._turns(x, body))
                self._fill(inner, x.attribute("condition") or "")
                loop.inside.append(self._fill(inner, x.attribute("body") or ""))
            elif x.opcode == "conditional":
                named = re.search(r"branch_computations=\{([^}]*)\}", x.rest)
                pair = [x.attribute("true_computation"), x.attribute("false_computation")]
                branches = [name.strip(" %") for name in named[1].split(",")] if named else [n for n in pair if n]
                for branch in branches:
                    inner = self._fill(Loop(self.frames.name(x.rest), "branch"), branch)
                    if inner.count or inner.inside:
                        loop.inside.append(inner)
            elif x.opcode == "call" or (x.opcode == "async-start" and self._runs_more(x)):
                self._fill(loop, x.attribute("to_apply") or x.attribute("calls") or "")
            elif x.opcode not in NO_KERNEL and not _scalar(x):
                self._kernel(loop, x, body)
            if HOST_MEMORY.search(x.shape) and x.opcode not in NO_KERNEL:
                loop.host[x.opcode] += 1
        return loop

    def _turns(self, x: Instruction, around: dict[str, Instruction]) -> int | None:
        """Turns of a loop: from the compiler or, for TPUs, which do not say, from a counter that goes up by one."""
        if told := re.search(r'known_trip_count":\{"n":"(\d+)"', x.rest):
            return int(told[1])
        condition, body = (self.computations[x.attribute(part) or ""] for part in ("condition", "body"))
        test = _root(condition)
        if test.opcode != "compare" or test.attribute("direction") != "LT":
            return None
        counter, end = condition[test.operands[0]], _number(condition, test.operands[1])
        if counter.opcode != "get-tuple-element" or end is None:
            return None
        place = int(counter.attribute("index") or 0)
        start = _number(around, _element(around, around[x.operands[0]], place))
        step = body.get(_element(body, _root(body), place))
        if start is None or step is None or step.opcode != "add" or _number(body, step.operands[1]) != 1:
            return None
        before = body[step.operands[0]]
        counts = before.opcode == "get-tuple-element" and before.attribute("index") == str(place)
        return end - start if counts else None

    def _runs_more(self, x: Instruction) -> bool:
        return (x.attribute("calls") or "") in self.computations

    def _kernel(self, loop: Loop, x: Instruction, body: dict[str, Instruction]) -> None:
        opcode = x.opcode.removesuffix("-start")
        if opcode in HOST:
            loop.host[opcode] += 1
        if opcode.startswith(COLLECTIVES):
            loop.collectives[opcode] += 1
        shapes = [body[name].shape if name in body else "" for name in x.operands]
        if opcode == "custom-call":
            target = (re.search(r'custom_call_target="([^"]+)"', x.rest) or ["", "?"])[1]
            if target in NO_CALL:
                return
            if "callback" in target or target in ("MoveToHost", "MoveToDevice"):
                loop.host[target] += 1
            opcode = "own" if target == OWN else "library"
            if target in GEMMS:
                loop.products += _gemm_flops(x, shapes[0])
            (loop.own if target == OWN else loop.calls)[f"{target} {_largest(shapes)}"] += 1
        loop.kernels[opcode] += 1
        if x.opcode == "fusion":
            loop.bytes += self._fusion_bytes(x, shapes)
            self._fusion_flops(loop, x)
        elif x.opcode in ("copy-start", "slice-start"):  # its shape is target, source and a word of state
            loop.bytes += size(x.shape)
        else:
            loop.bytes += self._moved(x, shapes)
            _add_flops(loop, x, shapes)

    def _moved(self, x: Instruction, shapes: Sequence[str]) -> float:
        """Bytes of a kernel that is one operation."""
        if x.opcode in PICKS:
            return 2 * size(x.shape)
        if x.opcode == "dynamic-update-slice":
            return 2 * size(shapes[1])
        if x.opcode == "scatter":
            return sum(size(s) for s in shapes[1:]) + size(shapes[-1])
        return sum(size(s) for s in shapes) + size(x.shape)

    def _fusion_flops(self, loop: Loop, x: Instruction) -> None:
        body = self.computations[x.attribute("calls") or ""]
        for y in body.values():
            if y.opcode == "fusion":
                self._fusion_flops(loop, y)
            else:
                _add_flops(loop, y, [body[name].shape if name in body else "" for name in y.operands])

    def _fusion_bytes(self, x: Instruction, shapes: Sequence[str]) -> float:
        """Bytes of a fusion: of an array that it takes a part from, or writes a part into, that part."""
        body = self.computations[x.attribute("calls") or ""]
        uses: dict[str, list[tuple[Instruction, int]]] = {}
        for y in body.values():
            for place, name in enumerate(y.operands):
                uses.setdefault(name, []).append((y, place))

        def needed(name: str) -> float:
            """Bytes of an array inside the fusion that are really read."""
            whole, part = size(body[name].shape), 0.0
            for user, place in uses.get(name, ()):
                if user.opcode in PICKS and place == 0:
                    part += size(user.shape)
                elif user.opcode in ("dynamic-update-slice", "scatter") and place == 0:
                    continue
                elif user.opcode in SAME and user.opcode != "convert" and not user.root:
                    part += needed(user.name)
                else:
                    return whole
            return min(whole, part)

        read = 0.0
        for y in body.values():
            if y.opcode == "parameter":
                place = int(y.operands[0]) if y.operands else 0
                outside = size(shapes[place])
                inside = size(y.shape)
                read += outside * (needed(y.name) / inside if inside else 1.0)

        def written(name: str) -> float:
            y = body[name]
            if y.opcode == "tuple":
                return sum(written(operand) for operand in y.operands)
            if y.opcode == "bitcast":
                return written(y.operands[0])
            if y.opcode == "dynamic-update-slice":
                return size(body[y.operands[1]].shape)
            if y.opcode == "scatter":
                return size(body[y.operands[-1]].shape)
            return size(y.shape)

        return read + min(written(_root(body).name), size(x.shape))


def _scalar(x: Instruction) -> bool:
    """A single number outside of fusions, which is worked out by the processor that drives a TPU."""
    return x.opcode not in ("fusion", "custom-call", "copy") and x.opcode not in HOST and elements(x.shape) == 1


def _instruction(line: str) -> Instruction:
    line = re.sub(r"/\*.*?\*/", "", line.strip())
    root = line.startswith("ROOT ")
    name, _, right = line.removeprefix("ROOT ").partition(" = ")
    end = _closing(right, 0) + 1 if right.startswith("(") else right.index(" ")
    shape, right = right[:end], right[end:].lstrip()
    opening = right.index("(")
    closing = _closing(right, opening)
    inside = right[opening + 1 : closing]
    opcode = right[:opening]
    operands: tuple[str, ...] = tuple(re.findall(r"%([\w.\-]+)", inside))
    if opcode in ("parameter", "constant"):
        operands = (inside,)
    return Instruction(name.lstrip("%"), shape, opcode, operands, right[closing + 1 :], root)


def _root(computation: dict[str, Instruction]) -> Instruction:
    return next(x for x in computation.values() if x.root)


def _element(computation: dict[str, Instruction], x: Instruction, place: int) -> str:
    """What a tuple has at a place, wherever it was copied from; "" of anything else."""
    found = x.operands[place] if x.opcode == "tuple" else ""
    while found in computation and computation[found].opcode == "copy":
        found = computation[found].operands[0]
    return found


def _number(computation: dict[str, Instruction], name: str) -> int | None:
    """The integer that a constant is."""
    x = computation.get(name)
    if x is None or x.opcode != "constant" or not re.match(r"[su]32\[\]", x.shape):
        return None
    return int(x.operands[0])


def _closing(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError(f"no end of {text[:80]!r}")


def _largest(shapes: Sequence[str]) -> str:
    found = [(math.prod(dims), kind, dims) for shape in shapes for kind, dims, _ in arrays(shape)]
    if not found:
        return ""
    _, kind, dims = max(found, key=lambda entry: entry[0])
    return f"{kind}[{','.join(map(str, dims))}]"


def _add_flops(loop: Loop, x: Instruction, shapes: Sequence[str]) -> None:
    """Operations of one instruction: two for each term of a product, one for whatever else is worked out."""
    if x.opcode in FREE or x.opcode in NO_KERNEL or x.opcode == "custom-call":
        return
    if x.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", x.rest)
        dims = arrays(shapes[0])[0][1]
        depth = math.prod(dims[int(i)] for i in contracted[1].split(",") if i) if contracted else 1
        loop.products += 2 * elements(x.shape) * depth
    elif x.opcode == "convolution":  # TPUs make all their products of these: a window of one, contracted over features
        labels = re.search(r"dim_labels=(\w+)_(\w+)->", x.rest)
        kernel = arrays(shapes[1])[0][1]
        out = kernel[labels[2].index("o")] if labels else 1
        loop.products += 2 * elements(x.shape) * math.prod(kernel) / max(out, 1)
    elif x.opcode in ("reduce", "sort", "reduce-window"):
        loop.flops += elements(shapes[0]) if shapes else 0.0
    else:
        loop.flops += elements(x.shape)


def _gemm_flops(x: Instruction, lhs: str) -> float:
    contracted = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', x.rest)
    dims = arrays(lhs)[0][1]
    depth = math.prod(dims[int(i)] for i in re.findall(r"\d+", contracted[1])) if contracted else 1
    _, out, _ = arrays(x.shape)[0]
    return 2.0 * math.prod(out) * depth


class _Frames:
    """Which function of the package an instruction comes from."""

    def __init__(self, text: str) -> None:
        def table(title: str) -> dict[str, str]:
            found = re.search(rf"^{title}\n((?:\d+ .*\n)*)", text, re.MULTILINE)
            return dict(line.split(" ", 1) for line in found[1].splitlines()) if found else {}

        self.files, self.functions = table("FileNames"), table("FunctionNames")
        self.locations, self.stack = table("FileLocations"), table("StackFrames")

    def name(self, rest: str) -> str:
        """The innermost function of the package outside `linalg.portable`, which has loops for everyone."""
        found = re.search(r"stack_frame_id=(\d+)", rest)
        frame = found[1] if found else ""
        while frame in self.stack:
            entry = _numbers(self.stack[frame])
            place = _numbers(self.locations.get(entry.get("file_location_id", ""), ""))
            file = self.files.get(place.get("file_name_id", ""), "").strip('"')
            if "fedbandit_jax/" in file and not file.endswith("linalg/portable.py"):
                function = self.functions.get(place.get("function_name_id", ""), "?").strip('"')
                named = [part for part in function.split(".") if not part.startswith("<")]
                return f"{file.rsplit('/', 1)[1].removesuffix('.py')}.{named[-1]}"
            frame = str(int(entry.get("parent_frame_id", "1")) - 1)  # XLA prints it from 1, and 1 for none
        return "?"


def _numbers(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\d+)", text))

"""The kernel of a stretch of rounds, compiled for a GPU; to be run in a process of its own.

python -m tests.accelerators.stretches h100 100x50 128x128      tells its registers, and what they spill, as JSON
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.targets import TARGETS, environment

LANES, ROUNDS = 64, 64
KERNEL = "__gpu$xla.gpu.triton"
PROGRAMS = {  # calls of the kernel in a stretch: of federated learners the second is for clients that went too far
    "LinUCB": 1,
    "ArmCon": 1,
    "ConLinUCB": 1,
    "DisLinUCB": 2,
    "AsyncLinUCB": 2,
    "PrivateFedLinUCB": 2,
}


def ask(target, *cases):
    """Compile in a process of its own; what it says of each case."""
    command = [sys.executable, "-m", "tests.accelerators.stretches", target, *cases]
    done = subprocess.run(command, env=os.environ | environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def main(target, *cases):
    from fedbandit_jax.linalg import portable

    portable.ELSEWHERE = ("cuda",)
    chosen = TARGETS[target]
    print(json.dumps({case: alone(chosen, case) for case in cases}))


def alone(target, size):
    """The kernel by itself: registers of a thread, bytes that are spilled, and what else the program does."""
    import jax
    import jax.numpy as jnp

    from fedbandit_jax.linalg import pulls, regression

    K, d = map(int, size.split("x"))
    device = target.devices()[0]

    def shaped(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=jax.sharding.SingleDeviceSharding(device))

    arms, per_arm, per_round = shaped(LANES, K, d), shaped(LANES, K), shaped(LANES, ROUNDS)
    ridge = jax.eval_shape(jax.vmap(lambda arms: regression.start(arms, 1.0)), arms)
    ridge = jax.tree.map(lambda x: shaped(*x.shape), ridge)
    mask, number = shaped(LANES, K, dtype=jnp.bool_), shaped(dtype=jnp.int32)
    columns = shaped(LANES, d, K)
    met = pulls.Stretch(arms, columns, mask, per_arm, per_arm, per_round, per_round, per_round, number, number)

    def play(ridge, growth, met):
        return pulls.optimistic_pulls(ridge, growth, met, lambda mean, chance: mean + chance)

    clients = jax.vmap(play, in_axes=(0, 0, pulls.Stretch(*[0] * 8, None, None)))
    lowered = jax.jit(clients, donate_argnums=0).lower(ridge, shaped(LANES), met)
    with tempfile.TemporaryDirectory() as folder:
        text = lowered.compile(compiler_options={"xla_dump_to": folder}).as_text()
        (listing,) = (path for path in Path(folder).glob("*.ptx") if "optimistic_pulls" in path.read_text())
        return assembled(listing) | {"large": large(text, LANES * K), "kernels": text.count(KERNEL)}


def assembled(listing):
    import nvidia.cuda_nvcc

    ptxas = Path(next(iter(nvidia.cuda_nvcc.__path__))) / "bin" / "ptxas"
    arch = re.search(r"^\.target (\w+)", listing.read_text(), re.M)[1]
    command = [ptxas, "-v", f"-arch={arch}", listing, "-o", listing.with_suffix(".cubin")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    told = told[told.index("'optimistic_pulls") :]
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill", told)[:2]]
    return {"arch": arch, "registers": int(re.search(r"Used (\d+) registers", told)[1]), "spills": sum(spills)}


def in_program(text, clients, K, d):
    """The stretch of a program for so many clients: calls of the kernel, and what else moves a client's state."""
    stretches = [part for part in re.split(r"\n(?=%|ENTRY)", text) if KERNEL in part]
    return {
        "kernels": sum(part.count(KERNEL) for part in stretches),
        "large": [found for part in stretches for found in large(part, clients * d * min(d, K) // 2)],
    }


def large(text, least):
    """Instructions besides the kernel that write arrays of so many numbers."""
    found = []
    for name, shapes, kind in re.findall(r"^ +(?:ROOT )?%([\w.-]+) = (.*?) ([\w-]+)\(", text, re.M):
        sizes = [math.prod(map(int, dims.split(","))) if dims else 1 for dims in re.findall(r"\[([\d,]*)\]", shapes)]
        moves = kind not in (
            "parameter",
            "get-tuple-element",
            "tuple",
            "bitcast",
            "custom-call",
            "while",
            "conditional",
        )
        if moves and max(sizes, default=0) >= least:
            found.append(f"{kind} {name}")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])

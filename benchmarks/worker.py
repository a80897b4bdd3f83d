"""Measurements that need a process of their own: peak memory, CPUs with fewer cores, compilers for other devices.

python -m benchmarks.worker JSON      one task; answers are lines of JSON on standard output
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

LIMIT = 600  # seconds


def start(task: Mapping[str, Any], more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A worker process; it finds the same packages as this one, and has more in its environment."""
    own = ("NPROC", "XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # what is measured is what users have
    kept = {k: v for k, v in os.environ.items() if k not in own}
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment = {**kept, "PYTHONPATH": paths, **(more or {})}
    command = [sys.executable, "-m", f"{__package__}.worker", json.dumps(task)]
    return subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run(task: Mapping[str, Any]) -> Any:
    """The answer to a task that has one."""
    process = start(task)
    try:
        out, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["no message"])[-1])
    return json.loads(out.splitlines()[-1])


def answer(stream: IO[str] | None, process: subprocess.Popen[str]) -> Any:
    """The next line that a worker prints; it is ended if it takes too long."""
    patience = threading.Timer(LIMIT, process.kill)
    patience.start()
    try:
        line = stream.readline() if stream else ""
    finally:
        patience.cancel()
    if not line:
        _, errors = process.communicate(timeout=LIMIT)
        raise RuntimeError((errors.strip().splitlines() or ["the worker ended"])[-1])
    return json.loads(line)


def say(found: Any) -> None:
    print(json.dumps(found), flush=True)


def memory(task: Mapping[str, Any]) -> None:
    from .growth import prepared
    from .programs import by_title

    prepared(by_title(task["algorithm"]), task["sizes"], None).play()
    say({"peak": peak_memory()})


def peak_memory() -> int:
    """Bytes that this process had at most; Linux's getrusage would also count the process that started it."""
    status = Path("/proc/self/status")
    if status.is_file():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cores(task: Mapping[str, Any]) -> None:
    """Play when told to: a line on standard input names what, the answer is seconds."""
    count = task["devices"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    import jax

    from fedbandit_jax import _runtime

    from .devices import players

    jax.config.update("jax_num_cpu_devices", count)
    ready = players(_runtime.devices()[:count], task["most"], task["level"])
    say(sorted(ready))
    for line in sys.stdin:
        began = time.perf_counter()
        ready[line.strip()]()
        say(time.perf_counter() - began)


def compiled(task: Mapping[str, Any]) -> None:
    from .compiled import answer

    answer(task)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    {"memory": memory, "cores": cores, "compiled": compiled}[given["task"]](given)

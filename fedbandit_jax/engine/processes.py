"""Several processes, on one host or many, that share a sweep.

All they need of each other is to wait for each other. So `join` connects each of them to the first, over TCP, and does
without `jax.distributed`, which aborts every process when one of them dies. The system closes the connection of a
process that dies, so the others know at once; where a host dies, it no longer answers TCP's probes. A slow process is
not taken for dead, as its system answers for it.

Processes that a program joined by `jax.distributed` share a sweep as well, by the barrier of that service.
"""

import math
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax._background import in_background

LONGEST_WAIT = 30 * 24 * 3600 * 1000  # milliseconds
JOIN_SECONDS = 300  # until all processes must have started
# Seconds of silence before the first probe, seconds between probes, and probes without an answer: 45 s in all.
PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
UNANSWERED = 45_000  # milliseconds; the same for a message on its way, during which TCP sends no probes


class LostProcessError(RuntimeError):
    """Another process of the same sweep has ended before its work was done."""

    def __init__(self, text: str, process: int) -> None:
        super().__init__(text)
        self.process = process


# ------------------------------------------------------------------------------------------------- the processes


def join(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join the processes that share sweeps from now on; what is not given is taken from SLURM or Open MPI.

    Args:
        coordinator: HOST:PORT of process 0, where it listens.
        processes: How many processes there are.
        process: Which of them this is, from 0 on.

    Raises:
        ValueError: If something is neither given nor known.
        TimeoutError: If the others have not come within five minutes.
    """
    global _group
    if coordinator is None or processes is None or process is None:
        from jax._src import clusters  # JAX has no public way to ask for these alone

        detect = clusters.ClusterEnv.auto_detect_unset_distributed_params
        coordinator, processes, process, devices = detect(coordinator, processes, process, None, None, JOIN_SECONDS)
        if devices:  # a process of SLURM or MPI has a GPU of its own
            for name in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
                jax.config.update(name, ",".join(map(str, devices)))
    port = coordinator.rpartition(":")[2] if isinstance(coordinator, str) else ""
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        allowed = "it must be HOST:PORT of process 0, with a port below 65536, as no SLURM or MPI job tells it"
        _checks.fail("coordinator", coordinator, allowed)
    processes = _checks.whole("processes", processes)
    _group = Group(str(coordinator), processes, _checks.whole("process", process, 0, processes - 1))


def count() -> int:
    return _group.count if _group else jax.process_count()


def index() -> int:
    return _group.index if _group else jax.process_index()


def is_first() -> bool:
    """True for the process that opens the folder for all and shows progress."""
    return index() == 0


def check(out: str | Path | None) -> None:
    if count() > 1 and out is None:
        _checks.fail("out", out, f"{count()} processes need a folder that all of them see")


def check_others() -> None:
    """Raise an error if another process has ended."""
    if _group:
        _group.check()


def own(share: np.ndarray) -> np.ndarray:
    """Which runs are this process's, by numbers that do not depend on what is found on disk."""
    return share % count() == index()


def wait(moment: str) -> None:
    """Until all processes are here, however long the slowest of them plays."""
    if count() > 1:
        _waits[moment] += 1
        name = f"{moment} {_waits[moment]}"
        if _group:
            _group.wait(name)
        else:
            wait_by_jax(name)


def wait_by_jax(name: str) -> None:
    """Wait at the service of `jax.distributed`.

    JAX's public barrier is a computation on all devices, which fails on CPUs if a process comes 30 s after another; the
    service that joined the processes waits for as long as all of them are alive.
    """
    from jax._src import distributed  # JAX has no public way to reach the service

    service: Any = distributed.global_state.client

    def arrive() -> Iterator[None]:
        yield service.wait_at_barrier(f"fedbandit {name}", LONGEST_WAIT)

    with closing(in_background([arrive()])) as arrived:
        next(arrived)


# ----------------------------------------------------------------------------------------------- their connections


class Group:
    """This process among all that share the work."""

    def __init__(self, coordinator: str, count: int, index: int, seconds: float = JOIN_SECONDS) -> None:
        self.count, self.index = count, index
        self.passed: set[str] = set()  # moments that all processes have come to
        self.lost: int | None = None  # a process that has ended
        self.changed = threading.Condition()
        host, _, port = coordinator.rpartition(":")
        if index == 0:
            Service(int(port), count)
            host = "localhost"
        self.connection = connect(host.strip("[]"), int(port), seconds)
        threading.Thread(target=self.listen, daemon=True).start()
        self.send(str(index))
        self.wait("join", seconds)

    def send(self, text: str) -> None:
        with suppress(OSError):  # `listen` notices it, too
            self.connection.sendall(f"{text}\n".encode())

    def listen(self) -> None:
        """Take in what the service says, in a thread of its own."""
        with suppress(OSError), self.connection.makefile(encoding="ascii") as lines:
            for line in lines:
                word, _, rest = line.rstrip("\n").partition(" ")
                with self.changed:
                    if word == "all":
                        self.passed.add(rest)
                    elif self.lost is None:
                        self.lost = int(rest)
                    self.changed.notify_all()
        with self.changed:
            if self.lost is None:
                self.lost = 0  # the service is a part of process 0
            self.changed.notify_all()

    def wait(self, moment: str, seconds: float = math.inf) -> None:
        """Until all processes are here; Ctrl-C ends the waiting."""
        self.send(moment)
        until = time.monotonic() + seconds
        with self.changed:
            while moment not in self.passed:
                self.check()
                if time.monotonic() > until:
                    raise TimeoutError(f"{self.count} processes have not all started within {seconds:g} s")
                self.changed.wait(0.5)

    def check(self) -> None:
        if self.lost is not None:
            text = f"process {self.lost} of {self.count} (counted from 0) has ended before the work was done"
            raise LostProcessError(text, self.lost)


class Service:
    """Tells all processes when all have come to a moment, and when one has gone; runs in threads of process 0."""

    def __init__(self, port: int, count: int) -> None:
        self.count, self.lock = count, threading.RLock()
        self.members: dict[int, socket.socket] = {}
        self.arrived: dict[str, set[int]] = defaultdict(set)
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            self.server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
        except OSError as error:
            raise ValueError(f"coordinator port {port} is not allowed: {error.strerror}; use another") from error
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.server.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """Take in what one process says: its number, then each moment that it has come to."""
        probe(connection)
        index = -1
        with suppress(OSError, ValueError), connection.makefile(encoding="ascii") as lines:
            index = int(lines.readline())
            with self.lock:
                self.members[index] = connection
            for line in lines:
                self.arrive(index, line.rstrip("\n"))
        if index in self.members:
            self.tell(f"lost {index}")

    def arrive(self, index: int, moment: str) -> None:
        with self.lock:
            self.arrived[moment].add(index)
            if len(self.arrived[moment]) == self.count:
                self.tell(f"all {moment}")

    def tell(self, text: str) -> None:
        """Process 0 hears last, as it may end then, and the service with it."""
        with self.lock:
            for index in sorted(self.members, reverse=True):
                with suppress(OSError):
                    self.members[index].sendall(f"{text}\n".encode())


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the service, which may start later than this process."""
    until = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            if time.monotonic() > until:
                text = f"process 0 at {host}:{port} has not answered within {seconds:g} s ({error.strerror or error})"
                raise TimeoutError(text) from error
            time.sleep(0.1)
        else:
            connection.settimeout(None)
            probe(connection)
            return connection


def probe(connection: socket.socket) -> None:
    """Let the system find out when the other host is gone, as far as it can."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**PROBES, "TCP_USER_TIMEOUT": UNANSWERED}.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_group: Group | None = None
_waits = Counter[str]()  # a barrier is used once

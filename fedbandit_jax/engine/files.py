"""The lock of a folder, by which one process claims it for itself."""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from fedbandit_jax import _checks


def born(pid: int) -> str:
    """When a process started, where the system tells: a number that is used again is another process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def alive(pid: int, since: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return born(pid) == since


def lock(folder: Path) -> Path:
    """Claim a folder for this process; the claim of a dead process of this host is taken over."""
    path, host = folder / ".lock", socket.gethostname()
    claim = folder / f".lock.{host}.{os.getpid()}"
    try:
        with _checks.reasons("out", str(folder)):
            claim.write_text(json.dumps({"pid": os.getpid(), "born": born(os.getpid()), "host": host}))
            while True:
                try:
                    os.link(claim, path)  # fails if the lock exists, and is never seen half-written
                    return path
                except FileExistsError:
                    take_over(path, host)
    finally:
        with suppress(OSError):
            claim.unlink(missing_ok=True)


def take_over(path: Path, host: str) -> None:
    """Remove a lock whose process is dead, or say whose it is."""
    try:
        text = path.read_text()
        owner = json.loads(text)
        pid, since, where = int(owner["pid"]), owner["born"], owner["host"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise BlockingIOError(f"{path} is not a lock that a sweep wrote: delete it if no sweep runs there") from error
    if where == host and not alive(pid, since):
        # Renamed first: of two processes that find it, only one can have it.
        aside = path.with_name(f".lock.stale.{os.getpid()}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return
        if aside.read_text() != text:  # the other one was faster, and this is its new lock
            os.link(aside, path)
        aside.unlink()
        return
    raise BlockingIOError(
        f"out={str(path.parent)!r} is in use by process {pid} on {where}: wait for it or use another folder "
        f"(if it no longer runs, delete {path})"
    )

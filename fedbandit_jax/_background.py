"""Work that Ctrl-C need not wait for: XLA cannot be stopped while it compiles or plays, so threads wait for it."""

import atexit
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from queue import Full, Queue
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 130  # what a shell calls a command that Ctrl-C ended
SECONDS_TO_END = 1.0  # for threads that are about to be done anyway

_left: list[threading.Thread] = []  # threads whose work nobody waits for any more


def in_background(sources: Iterable[Iterable[T]], threads: int = 1) -> Generator[T, None, None]:
    """The items of all sources, as threads work them out; a source is left to one thread.

    Whoever stops taking items, because of Ctrl-C or an error, goes on at once; each thread ends with its next item.
    """
    left, ready, stopped = deque(sources), Queue[tuple[bool, Any]](maxsize=2), threading.Event()

    def hand_over(item: tuple[bool, Any]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except Full:
                pass

    def work() -> None:
        try:
            while left and not stopped.is_set():
                for item in left.popleft():
                    hand_over((True, item))
                    if stopped.is_set():
                        return
            hand_over((False, None))
        except BaseException as error:
            hand_over((False, error))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(left)))]
    for worker in workers:
        worker.start()
    try:
        busy = len(workers)
        while busy:
            is_item, found = ready.get()
            if is_item:
                yield found
            elif found is None:
                busy -= 1
            else:
                raise found
    finally:
        stopped.set()
        _leave(workers)


def _leave(workers: Iterable[threading.Thread]) -> None:
    """Threads inside XLA would crash an interpreter that is taken down around them."""
    _left[:] = [worker for worker in (*_left, *workers) if worker.is_alive()]
    _end_threads_at_exit()


@cache
def _end_threads_at_exit() -> None:
    atexit.register(_end_threads)  # late, and so before JAX cleans up


def _end_threads() -> None:
    """At the end of Python: after Ctrl-C it ends at once, otherwise when the threads have come to an end."""
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_IGN if interrupted else signal.SIG_DFL)
    for worker in _left:
        worker.join(SECONDS_TO_END if interrupted else None)
    if interrupted:
        leave(INTERRUPTED)


def leave(code: int) -> None:
    """End this process now, if threads are still at work; what was written is on disk."""
    if any(worker.is_alive() for worker in _left):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C comes when this is done."""
    if threading.current_thread() is not threading.main_thread():  # it never comes here
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt

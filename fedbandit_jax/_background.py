"""Work that Ctrl-C need not wait for: XLA cannot be stopped while it compiles or plays, so threads wait for it."""

import atexit
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from queue import Empty, Full, Queue
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 130  # what a shell calls a command that Ctrl-C ended
SECONDS_TO_END = 1.0  # for threads that are about to be done anyway

_abandoned: list[threading.Thread] = []  # threads at work that nobody wants any more


def in_background(
    sources: Iterable[Iterable[T]], threads: int = 1, check: Callable[[], None] = lambda: None, ahead: int = 2
) -> Generator[T, None, None]:
    """The items of all sources, as threads work them out; a source is left to one thread.

    If the consumer stops early it returns at once; each thread ends after its current item. At most `ahead` items wait
    to be taken. `check` is called while there is nothing to take, about once a second, and may raise an error that
    ends the waiting.
    """
    left, ready, stopped = deque(sources), Queue[tuple[bool, Any]](maxsize=ahead), threading.Event()

    def hand_over(item: tuple[bool, Any]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except Full:
                pass

    def work() -> None:
        try:
            while not stopped.is_set():
                try:
                    source = left.popleft()
                except IndexError:  # the others have them all
                    break
                for item in source:
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
            check()
            try:
                is_item, found = ready.get(timeout=1)
            except Empty:
                continue
            if is_item:
                yield found
            elif found is None:
                busy -= 1
            else:
                raise found
    finally:
        stopped.set()
        _abandoned[:] = [worker for worker in (*_abandoned, *workers) if worker.is_alive()]
        _end_threads_at_exit()


def wait_for_abandoned() -> None:
    """Until the devices are free again; Ctrl-C ends the waiting."""
    for worker in _abandoned:
        while worker.is_alive():
            worker.join(0.1)
    _abandoned.clear()


@cache
def _end_threads_at_exit() -> None:
    atexit.register(_end_threads)  # late, and so before JAX cleans up


def _end_threads() -> None:
    """At the end of Python, which threads inside XLA would crash: after Ctrl-C it ends now, else when they have."""
    if not any(worker.is_alive() for worker in _abandoned):
        return
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_IGN if interrupted else signal.SIG_DFL)
    for worker in _abandoned:
        worker.join(SECONDS_TO_END if interrupted else None)
    if interrupted:
        end_process()


def end_process(code: int | None = None) -> None:
    """End this process now if threads are still at work: with a code, or by Ctrl-C's signal as Python does."""
    if not any(worker.is_alive() for worker in _abandoned):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # such as a pipe that nobody reads any more
            stream.flush()
    if code is None and os.name == "posix":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(INTERRUPTED if code is None else code)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C comes when this is done, to whoever it would have come to."""
    in_main = threading.current_thread() is threading.main_thread()  # it comes to no other
    before = signal.getsignal(signal.SIGINT) if in_main else None
    if before is None:  # or a handler that is not Python's
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)

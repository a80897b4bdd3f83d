"""Threads that nobody waits for: what they hand over, and how a process ends that has left them."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from fedbandit_jax import _background
from fedbandit_jax._background import in_background, undisturbed


def test_items_come_in_order():
    assert list(in_background([range(5)])) == list(range(5))
    assert list(in_background([])) == []


def test_sources_are_worked_out_side_by_side():
    meeting = threading.Barrier(2, timeout=30)

    def meet(name):
        meeting.wait()
        yield name

    assert sorted(in_background([meet("a"), meet("b")], threads=2)) == ["a", "b"]


def test_many_threads_share_few_sources():
    """Whoever comes last finds nothing, and says nothing."""
    for _ in range(200):
        assert sorted(in_background([[i] for i in range(3)], threads=3)) == [0, 1, 2]


def test_an_error_comes_out():
    def failing():
        yield 1
        raise ArithmeticError("no")

    items = in_background([failing()])
    assert next(items) == 1
    with pytest.raises(ArithmeticError, match="no"):
        next(items)


def test_whoever_leaves_goes_on_at_once_and_the_thread_ends():
    taken, go_on = [], threading.Event()

    def slow():
        for i in itertools.count():
            taken.append(i)
            yield i
            go_on.wait(30)

    with closing(in_background([slow()])) as items:
        assert next(items) == 0
    assert [thread.is_alive() for thread in _background._abandoned] == [True]
    go_on.set()
    _background.wait_for_abandoned()
    assert _background._abandoned == []
    assert len(taken) <= 2


def test_ctrl_c_waits_for_what_is_undisturbed():
    done = []

    def disturbed():
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        disturbed()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def elsewhere():
        with undisturbed():
            done.append(2)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup does
    try:
        disturbed()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1, 1]
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == [1, 1, 2]


STUCK = """
import sys, time
import fedbandit_jax as fb
from fedbandit_jax.engine.program import Program

def stuck(*_):
    open(sys.argv[2], "w").close()
    time.sleep(600)

if sys.argv[1] == "compile":
    Program.compile = stuck
else:
    Program.to_host = stuck
try:
    fb.simulate(fb.datasets.synthetic(dim=3, num_arms=9, num_key_terms=4, num_users=2), fb.Uniform(), clients=1, arms=3,
                horizon=20, users=1, out=sys.argv[3])
except KeyboardInterrupt as stop:
    print(stop, flush=True)
    raise
"""


@pytest.mark.parametrize(("moment", "presses"), [("compile", 1), ("play", 2)])
def test_ctrl_c_does_not_wait_for_the_device(tmp_path, moment, presses):
    """A device that does not come back for ten minutes, as XLA may."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STUCK, moment, str(tmp_path / "stuck"), str(tmp_path / "out")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "stuck").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    told, error = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, error  # as Python ends, and as shells call 130
    assert told.startswith("stopped: 0 of 1 runs are kept; the same sweep with out=")
    assert not list((tmp_path / "out").glob(".*")), "the folder is not locked"

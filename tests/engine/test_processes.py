"""The same sweep on one device, on two, and in two processes that talk over loopback."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import processes
from tests.toml_files import DATA

pytestmark = pytest.mark.thorough

SWEEP = (
    """
clients = [2, 3]
arms = 7
horizon = 300
users = 3
seeds = 6
checkpoints = 8
noise = {noise}
"""
    + DATA
    + """
[[algorithms]]
name = "FedConPE"
N = [1, 2]

[[algorithms]]
name = "LinUCB"
"""
)
CODE = (
    "import jax; from fedbandit_jax.cli import main; from fedbandit_jax.engine import store; "
    "store.PART_SECONDS = 1e9; "  # one part of each program, however slow the machine
    "jax.config.update('jax_num_cpu_devices', {devices}); main.entry_point()"
)


SLOW = (  # a part for every chunk, and the pause that each takes
    "import time; import fedbandit_jax as fb; from fedbandit_jax.engine import store; "
    "fb.Uniform.clients_per_core = lambda *_: 12; store.PART_SECONDS = 0; write = store.FolderStore.write; "
    "store.FolderStore.write = lambda self, *part: (time.sleep({pause}), write(self, *part))[1]; "
    "from fedbandit_jax.cli import main; main.entry_point()"
)


def start(file, out, devices, *more, code=CODE, **variables):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"} | variables
    flags = environment.get("XLA_FLAGS", "").split()  # but not those that say how many devices there are
    environment["XLA_FLAGS"] = " ".join(flag for flag in flags if "device_count" not in flag)
    command = [sys.executable, "-c", code.format(devices=devices), "sweep", str(file), "--out", str(out), *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port(first, last):
    for port in random.SystemRandom().sample(range(first, last), 50):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def ended(processes):
    return [(*process.communicate(timeout=300), process.returncode) for process in processes]


def two_processes(file, out, **options):
    joined = ["--coordinator", f"127.0.0.1:{free_port(20_000, 30_000)}", "--processes", "2", "--process"]
    return [start(file, out, 1, *joined, str(i), **options) for i in (0, 1)]


def two_tasks_of_slurm(file, out):
    """With the variables that srun sets; JAX takes a port from the number of the job."""
    job = free_port(65_536 - 2**12, 65_536) - (65_536 - 2**12)
    step = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    tasks = ({"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in (0, 1))
    return ended([start(file, out, 1, "--distributed", **step, **task) for task in tasks])


def table(folder):
    results = fb.Results.load(folder)
    return results.to_pandas(), results.phases()


def test_one_device_two_devices_and_two_processes_agree(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP.format(noise=0.1))
    alone = [start(file, tmp_path / str(devices), devices) for devices in (1, 2)]
    for process in alone:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    shared = ended(two_processes(file, tmp_path / "shared"))
    for output, _, code in shared:
        assert code == 0, shared
        print(output)
    reference = table(tmp_path / "1")
    assert len(reference[0]) == 6 * 18 * 8
    for other in ("2", "shared"):
        for found, wanted in zip(table(tmp_path / other), reference, strict=True):
            pd.testing.assert_frame_equal(found, wanted, check_exact=True)
    # Each process wrote a part of its own, of each program, and the lock is gone.
    assert len(list((tmp_path / "shared").glob("curves-*.parquet"))) == 4
    assert not list((tmp_path / "shared").glob(".*"))


def test_a_run_that_fails_in_one_process_is_missed_by_all(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(SWEEP.format(noise="[0.1, 3e38]").split("[[algorithms]]")[0] + '[[algorithms]]\nname = "LinUCB"\n')
    tasks = two_tasks_of_slurm(file, tmp_path / "out")
    for _, error, code in tasks:
        assert code == 2, tasks
        assert "runs are not finite" in error
    kept = fb.Results.load(tmp_path / "out").final()
    assert (kept["noise"] == 0.1).sum() == 36


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_is_killed_ends_the_other_with_a_sentence(tmp_path, killed):
    """Also where it is the first, to which all are connected; the same commands then finish the sweep."""
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    grid = SWEEP.format(noise=0.1).split("[[algorithms]]")[0].replace("seeds = 6", "seeds = 40")
    file.write_text(grid + '[[algorithms]]\nname = "Uniform"\n')
    both = two_processes(file, out, code=SLOW.replace("{pause}", "0.5"))
    until = time.monotonic() + 200
    while len(list(out.glob("curves-*.parquet"))) < 3 and time.monotonic() < until:
        assert all(process.poll() is None for process in both), ended(both)
        time.sleep(0.01)
    both[killed].send_signal(signal.SIGKILL)
    began = time.monotonic()
    output, error, code = ended(both)[1 - killed]
    assert time.monotonic() - began < 30
    kept = len(fb.Results.load(out).final())
    assert 3 <= kept < 240
    hint = f" (if its host is gone, delete {out / '.lock'} first)" if killed == 0 else ""
    sentence = (
        f"Error: process {killed} of 2 (counted from 0) has ended before the work was done: {kept} of 240 runs are "
        f"kept; the same sweep with out={str(out)!r} goes on, started by the same commands{hint}\n"
    )
    assert (code, error) == (1, sentence), output
    again = ended(two_processes(file, out, code=SLOW.replace("{pause}", "0")))
    assert [code for _, _, code in again] == [0, 0], again
    assert f"{kept} found" in again[0][0]
    assert len(fb.Results.load(out).final()) == 240
    assert not list(out.glob(".*"))


def test_processes_that_jax_has_joined_share_a_sweep(tmp_path):
    code = (
        "import sys, jax; jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2])); import fedbandit_jax as fb; "
        "catalog = fb.datasets.synthetic(seed=0, dim=6, num_arms=60, num_key_terms=30, num_users=6); "
        "fb.sweep(catalog, fb.Uniform(), clients=2, arms=7, horizon=300, users=3, seeds=4, out=sys.argv[3])"
    )
    address = f"127.0.0.1:{free_port(20_000, 30_000)}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    commands = ([sys.executable, "-c", code, address, str(i), str(tmp_path / "out")] for i in (0, 1))
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    found = ended(both)
    assert [code for _, _, code in found] == [0, 0], found
    assert len(list((tmp_path / "out").glob("curves-*.parquet"))) == 2, "each has played its share"
    assert len(fb.Results.load(tmp_path / "out").final()) == 12


def test_waiting_and_losing_in_one_process():
    """Three members and their service: nobody passes before all have come, and a slow one is waited for."""
    address = f"127.0.0.1:{free_port(20_000, 30_000)}"
    with ThreadPoolExecutor(3) as pool:
        members = list(pool.map(lambda i: processes.Group(address, 3, i), range(3)))
        early = [pool.submit(member.wait, "a") for member in members[:2]]
        time.sleep(1.2)
        assert not any(one.done() for one in early)
        members[2].wait("a")
        assert [one.result() for one in early] == [None, None]
        waiting = pool.submit(members[1].wait, "b")
        members[2].connection.shutdown(socket.SHUT_RDWR)  # as the system does for a process that dies
        with pytest.raises(processes.LostProcessError, match=r"^process 2 of 3 \(counted from 0\) has ended before"):
            waiting.result(timeout=10)
        with pytest.raises(processes.LostProcessError, match=r"^process 2 of 3"):
            members[0].wait("b")
        members[0].wait("a")  # what was passed stays passed


def test_processes_that_do_not_come_are_missed():
    port = free_port(20_000, 30_000)
    with pytest.raises(TimeoutError, match=r"^2 processes have not all started within 0.5 s$"):
        processes.Group(f"127.0.0.1:{port}", 2, 0, seconds=0.5)
    with pytest.raises(ValueError, match=rf"^coordinator port {port} is not allowed: Address already in use"):
        processes.Group(f"127.0.0.1:{port}", 2, 0, seconds=0.5)
    with pytest.raises(
        TimeoutError, match=r"^process 0 at 127.0.0.1:\d+ has not answered within 0.5 s \(Connection re"
    ):
        processes.Group(f"127.0.0.1:{free_port(20_000, 30_000)}", 2, 1, seconds=0.5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((None, None, None), "coordinator=None is not allowed: it must be HOST:PORT of process 0"),
        (("here", 2, 0), "coordinator='here' is not allowed: it must be HOST:PORT"),
        (
            ("here:65536", 2, 0),
            "coordinator='here:65536' is not allowed: it must be HOST:PORT of process 0, with a port",
        ),
        (("here:1", 2, 2), "process=2 is not allowed: it must be a whole number of at least 0 and at most 1"),
    ],
)
def test_where_nothing_tells_who_the_others_are(given, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        processes.join(*given)


def test_the_work_is_shared_without_a_word(monkeypatch):
    parts = []
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    for i in range(3):
        monkeypatch.setattr(jax, "process_index", lambda i=i: i)
        parts.append(np.flatnonzero(processes.own(np.arange(10))))
    assert sorted(np.concatenate(parts)) == list(range(10))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_several_processes_need_a_folder(monkeypatch):
    processes.check(None)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ValueError, match=r"^out=None is not allowed: 4 processes need a folder that all of them see"):
        processes.check(None)

"""The same sweep on one device, on two, and in two processes that talk over loopback."""

import contextlib
import os
import random
import socket
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import processes
from tests.toml_files import DATA

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


def start(file, out, devices, *more, **variables):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"} | variables
    flags = environment.get("XLA_FLAGS", "").split()  # but not those that say how many devices there are
    environment["XLA_FLAGS"] = " ".join(flag for flag in flags if "device_count" not in flag)
    command = [sys.executable, "-c", CODE.format(devices=devices), "sweep", str(file), "--out", str(out), *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def free_port(first, last):
    for port in random.SystemRandom().sample(range(first, last), 50):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def ended(processes):
    return [(*process.communicate(timeout=300), process.returncode) for process in processes]


def two_processes(file, out):
    options = ["--coordinator", f"127.0.0.1:{free_port(20_000, 30_000)}", "--processes", "2", "--process"]
    return ended([start(file, out, 1, *options, str(i)) for i in (0, 1)])


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
    shared = two_processes(file, tmp_path / "shared")
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

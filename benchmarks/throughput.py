"""Client-rounds a second of every algorithm, side by side with other ways to write LinUCB; growth; memory.

    python -m benchmarks.throughput [--quick]

One process, one run: ratios mean something on a noisy machine, figures less. Compilation is reported apart. K=100,
d=50, J=1000, T=6000, float32, M=1.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

import fedbandit_jax as fb
from benchmarks import peers

K, T = 100, 6000
ALGORITHMS = [
    fb.LinUCB(),
    fb.ArmCon(),
    fb.ConLinUCB(strategy="BS"),
    fb.ConLinUCB(strategy="MCR"),
    fb.ConLinUCB(strategy="UCB"),
    fb.ConUCB(),
    fb.SharedLinUCB(),
    fb.LinPE(),
    fb.FedLinPE(),
    fb.FedConPE(),
]


def measure(catalog, algorithm, *, runs, clients=1, horizon=T, repeats=3):
    """(client-rounds a second, median of repeats; seconds of the first call that were compilation)."""
    setting = {"clients": clients, "arms": K, "horizon": horizon, "users": 1, "noise": 0.1, "progress": False}
    first = fb.simulate(catalog, algorithm, seeds=min(runs, 32), **setting)
    seconds = []
    for repeat in range(repeats):
        began = time.perf_counter()
        fb.simulate(catalog, algorithm, seeds=runs, seed=repeat, **setting)
        seconds.append(time.perf_counter() - began)
    return runs * clients * horizon / statistics.median(seconds), first.settings["compile_seconds"]


def peer_inputs(catalog, runs, rounds):
    rng = np.random.default_rng(0)
    arms = np.stack([catalog.arms[rng.choice(len(catalog.arms), K, replace=False)] for _ in range(runs)])
    thetas = catalog.users[rng.integers(len(catalog.users), size=runs)]
    return arms.astype(np.float32), thetas.astype(np.float32), 0.1 * rng.normal(size=(runs, rounds)).astype(np.float32)


def measure_peer(play, arms, thetas, noise):
    play(arms[:2], thetas[:2], noise[:2, :50])
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        play(arms, thetas, noise)
        seconds.append(time.perf_counter() - began)
    return noise.size / statistics.median(seconds)


def table_of_algorithms(catalog, quick):
    runs = 64 if quick else 512
    rates = {}
    print(f"{'':16} | {'million client-rounds/s':>23} | {'x LinUCB':>8} | compile s")
    for algorithm in ALGORITHMS:
        rate, compiling = measure(catalog, algorithm, runs=runs)
        rates[algorithm.title] = rate
        print(
            f"{algorithm.title:16} | {rate / 1e6:23.3f} | {rate / rates['LinUCB']:8.2f} | {compiling:.1f}", flush=True
        )
    return rates["LinUCB"]


def table_of_peers(catalog, ours, quick):
    arms, thetas, noise = peer_inputs(catalog, 128, 500 if quick else 1500)
    rates = {
        "(a) Python objects": noise[0, :300].size
        / _seconds(lambda: peers.linucb_objects(arms[0].astype(float), thetas[0].astype(float), noise[0, :300])),
        "(b) batched NumPy": max(
            measure_peer(peers.linucb_numpy, arms[:n], thetas[:n], noise[:n, :300]) for n in (8, 32, 128)
        ),
    }
    kernel = peers.linucb_c()
    if kernel is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
        rates["(c) C with OpenMP"] = measure_peer(kernel, arms, thetas, noise)
    for name, rate in rates.items():
        print(f"LinUCB is {ours / rate:8.2f} x {name} ({rate / 1e6:.4f} million/s)", flush=True)


def _seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def growth(catalog, quick):
    print("LinUCB, seconds per million client-rounds:")
    for runs in (10, 100, 1000) if quick else (10, 100, 1000, 10_000):
        rate, _ = measure(catalog, fb.LinUCB(), runs=runs, horizon=1000, repeats=1 if runs > 1000 else 3)
        print(f"  {runs:6} runs of 1000 rounds: {1e6 / rate:.3f}", flush=True)
    for horizon in (1000, 10_000) if quick else (1000, 10_000, 100_000):
        rate, _ = measure(catalog, fb.LinUCB(), runs=64, horizon=horizon, repeats=1)
        print(f"  64 runs of {horizon:6} rounds: {1e6 / rate:.3f}", flush=True)


def memory(quick):
    """Peak memory of a process that plays 64 runs, by horizon."""
    print("Peak memory of a process with 64 runs of LinUCB:")
    for horizon in (1000, 10_000) if quick else (1000, 10_000, 100_000):
        command = [sys.executable, "-m", "benchmarks.throughput", "--peak-memory", str(horizon)]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        print(f"  {horizon:6} rounds: {peak} MB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, in about a minute")
    parser.add_argument("--peak-memory", type=int, metavar="T", help="only print this process's peak memory")
    options = parser.parse_args()
    catalog = fb.datasets.synthetic(seed=0)
    if options.peak_memory:
        fb.simulate(catalog, fb.LinUCB(), clients=1, horizon=options.peak_memory, users=1, seeds=64, progress=False)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    ours = table_of_algorithms(catalog, options.quick)
    table_of_peers(catalog, ours, options.quick)
    growth(catalog, options.quick)
    memory(options.quick)


if __name__ == "__main__":
    main()

"""FedConPE: regret, run time by horizon, speed against the NumPy oracle, the design solver, a grid as one program.

python -m benchmarks.fedconpe [--quick]
"""

import argparse
import statistics
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb
from tests import reference

SETTING = {"clients": 10, "arms": 100, "noise": 0.1, "progress": False}


def regret(catalog, seeds):
    results = fb.simulate(catalog, fb.FedConPE(), horizon=6000, users=10, seeds=seeds, **SETTING)
    row, final, phases = results.summary().iloc[0], results.final(), results.phases()
    whole = phases[phases["complete"]]
    good = whole.groupby(["user", "seed"])["good_event"].all()
    print(f"M=10 K=100 T=6000 noise 0.1 N=1 C=1 delta 0.1, 10 users x {seeds} seeds:")
    print(f"  regret {row['mean']:.1f}, 95 % interval {row['low']:.1f} to {row['high']:.1f}")
    print(f"  questions per client {final['conversations'].mean():.0f}, scalars {final['communication'].mean():.0f}")
    print(f"  phases {phases.groupby(['user', 'seed'])['phase'].max().mean():.2f}, good event in {good.mean():.1%}")


def by_horizon(catalog, exponents, runs):
    print("Milliseconds per federation by horizon, compilation apart:")
    for exponent in exponents:
        play = partial(fb.simulate, catalog, fb.FedConPE(), horizon=10**exponent, users=1, **SETTING)
        first = play(seeds=2)
        seconds = play(seeds=runs).settings["run_seconds"]
        print(f"  10^{exponent}: {1e3 * seconds / runs:6.1f}   (compiled in {first.settings['compile_seconds']:.1f} s)")


def against_the_oracle(catalog, runs, oracle_runs):
    fb.simulate(catalog, fb.FedConPE(), horizon=6000, users=1, seeds=2, **SETTING)
    ours = (
        fb.simulate(catalog, fb.FedConPE(), horizon=6000, users=1, seeds=runs, **SETTING).settings["run_seconds"] / runs
    )
    rng, seconds = np.random.default_rng(0), []
    for _ in range(oracle_runs):
        arms = [catalog.arms[rng.choice(len(catalog.arms), 100, replace=False)] for _ in range(10)]
        began = time.perf_counter()
        reference.fedconpe(
            arms,
            catalog.key_terms,
            catalog.users[0],
            0.1,
            6000,
            reference.FedConPESettings(),
            np.linspace(6000 / 128, 6000, 128).round(),
            rng=rng,
        )
        seconds.append(time.perf_counter() - began)
    theirs = statistics.median(seconds)
    print(f"Federations of T=6000: {1e3 * ours:.1f} ms here, {1e3 * theirs:.0f} ms in NumPy: {theirs / ours:.0f} x")


def designs(catalog, textbook_runs):
    rng = np.random.default_rng(0)
    arms = np.stack([catalog.arms[rng.choice(len(catalog.arms), 100, replace=False)] for _ in range(512)])
    mask = np.ones(100, bool)
    began = time.perf_counter()
    for x in arms[:textbook_runs]:
        reference.frank_wolfe(x, mask)
    textbook = (time.perf_counter() - began) / textbook_runs
    print(f"G-optimal design, K=100, d=50, tol 1e-2: textbook Frank-Wolfe in NumPy {1e6 * textbook:.0f} us")
    for batch in (64, 512):
        for method in ("multiplicative", "frank-wolfe"):
            solve = jax.vmap(lambda x, method=method: fb.g_optimal_design(x, jnp.asarray(mask), method=method))
            # Chunks of 64: the slowest problem holds up fewer others.
            run = jax.jit(lambda xs, solve=solve: jax.lax.map(solve, xs.reshape(-1, 64, *xs.shape[1:])))
            xs = jnp.asarray(arms[:batch], jnp.float32)
            jax.block_until_ready(run(xs))
            seconds = []
            for _ in range(7):
                began = time.perf_counter()
                jax.block_until_ready(run(xs))
                seconds.append(time.perf_counter() - began)
            each = statistics.median(seconds) / batch
            print(f"  batch {batch:3} {method:15}: {1e6 * each:6.0f} us, {textbook / each:.0f} x")


def grid(catalog):
    results = fb.sweep(
        catalog,
        fb.FedConPE(N=[1.0, 2.0, 4.0, 8.0]),
        clients=[3, 6, 9, 12, 15],
        arms=[100, 150, 200, 250, 300],
        horizon=6000,
        users=10,
        progress=False,
    )
    made = results.settings
    print(
        f"100 cells (5 M x 5 K x 4 N) x 10 users: {made['programs']} compilation of {made['compile_seconds']:.1f} s, "
        f"{made['run_seconds']:.1f} s for {len(results.final())} runs"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, in about a minute")
    quick = parser.parse_args().quick
    catalog = fb.datasets.synthetic(seed=0)
    regret(catalog, 4 if quick else 32)
    by_horizon(catalog, (4, 9) if quick else range(3, 10), 32 if quick else 128)
    against_the_oracle(catalog, 64 if quick else 512, 1 if quick else 5)
    designs(catalog, 2 if quick else 10)
    if not quick:
        grid(catalog)


if __name__ == "__main__":
    main()

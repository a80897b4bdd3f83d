"""Side by side: other ways to write LinUCB, FedConPE and the design; and the limit that binds each algorithm."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import fedbandit_jax as fb

from . import federated_rivals, rivals
from .design import random_arms, solver
from .measure import Effort, Found, Skipped, Timing, ratios, time_in_turn, why
from .programs import Prepared, algorithms, catalog, shelf
from .roofline import roofline
from .throughput import setting

Work = tuple[Callable[[], Any], float]  # a call and the units it does


def peers(effort: Effort) -> Found:
    for part in (linucb, linucb_redrawn, fedconpe, federated, design, binding):
        yield part.__name__
        try:
            yield from part(effort)
        except Exception as error:
            yield Skipped(part.__name__, why(error))


def side_by_side(ours: str, work: dict[str, Work], unit: str, case: str, repeats: int) -> Found:
    """Units a second of each, and how many times faster ours is, sample by sample."""
    timings = time_in_turn({name: call for name, (call, _) in work.items()}, repeats)
    each: dict[str, Timing] = {name: timing.per(work[name][1]) for name, timing in timings.items()}
    for name, timing in each.items():
        yield timing.row(f"{name}, {case}", f"{unit}/s", 1.0, "higher", peer=name, subject=case)
    for name, timing in each.items():
        if name != ours:
            yield ratios(f"{ours} against {name}, {case}", "times faster", timing, each[ours], peer=name, subject=case)


def linucb(effort: Effort) -> Found:
    data, sizes = catalog(effort), setting(effort)
    K, d = sizes["arms"], data.dim
    program = shelf.get(data, fb.LinUCB(), clients=1, **sizes)
    rng = np.random.default_rng(0)
    runs, rounds = effort.pick(2, 128, 128), effort.pick(10, 500, 1500)
    arms = np.stack([data.arms[rng.choice(len(data.arms), K, replace=False)] for _ in range(runs)]).astype(np.float32)
    thetas = data.users[rng.integers(len(data.users), size=runs)].astype(np.float32)
    noise = 0.1 * rng.normal(size=(runs, rounds)).astype(np.float32)
    few, short = min(runs, 32), min(rounds, 200)  # enough for a rate
    work: dict[str, Work] = {
        "fedbandit_jax": (program.play, program.client_rounds),
        "a loop over Python objects": (
            lambda: rivals.linucb_objects(arms[0].astype(float), thetas[0].astype(float), noise[0, :short]),
            short,
        ),
        "batched NumPy": (
            lambda: rivals.linucb_numpy(arms[:few], thetas[:few], noise[:few, :short]),
            few * short,
        ),
    }
    try:
        kernel = rivals.linucb_c()
        work["C with OpenMP"] = (lambda: kernel(arms, thetas, noise), runs * rounds)
    except OSError as error:
        yield Skipped("C with OpenMP", str(error))
    yield from side_by_side("fedbandit_jax", work, "client-rounds", f"LinUCB K={K} d={d}", effort.repeats)


def linucb_redrawn(effort: Effort) -> Found:
    """On arms that are drawn anew every round; ConUCB and ConLinUCB-MCR, which ask besides, for comparison."""
    data, sizes = catalog(effort), setting(effort) | {"horizon": effort.pick(100, 1000, 2000)}
    K, world = sizes["arms"], fb.World(contexts="redrawn")
    rng = np.random.default_rng(0)
    runs, rounds = effort.pick(2, 64, 128), effort.pick(10, 250, 500)
    pool = data.arms.astype(np.float32)
    thetas = data.users[rng.integers(len(data.users), size=runs)].astype(np.float32)
    noise = 0.1 * rng.normal(size=(runs, rounds)).astype(np.float32)
    few, short = min(runs, 32), min(rounds, 100)  # enough for a rate
    work: dict[str, Work] = {}
    for algorithm in (fb.LinUCB(), fb.ConUCB(), fb.ConLinUCB(strategy="MCR")):
        program = shelf.get(data, algorithm, clients=1, world=world, **sizes)
        work[algorithm.title] = program.play, program.client_rounds
    work["batched NumPy"] = (
        lambda: rivals.linucb_redrawn_numpy(pool, thetas[:few], noise[:few, :short], K),
        few * short,
    )
    try:
        for name, flags in (("C with OpenMP", ["-DALL_PRODUCTS"]), ("C that uses symmetry", [])):
            kernel = rivals.linucb_redrawn_c(*flags)
            work[name] = (lambda kernel=kernel: kernel(pool, thetas, noise, K), runs * rounds)
    except OSError as error:
        yield Skipped("C on redrawn arms", str(error))
    yield from side_by_side("LinUCB", work, "client-rounds", f"redrawn arms K={K} d={data.dim}", effort.repeats)


def fedconpe(effort: Effort) -> Found:
    data, sizes, clients = catalog(effort), setting(effort), effort.pick(1, 10, 10)
    K, T = sizes["arms"], sizes["horizon"]
    try:
        oracle = rivals.oracle()
    except OSError as error:
        yield Skipped("FedConPE's oracle", str(error))
        return
    program = shelf.get(data, fb.FedConPE(), clients=clients, **sizes)
    rng = np.random.default_rng(0)
    arms = [data.arms[rng.choice(len(data.arms), K, replace=False)] for _ in range(clients)]
    checkpoints = np.linspace(T / 128, T, 128).round()

    def play() -> Any:
        settings = oracle.FedConPESettings()
        return oracle.fedconpe(arms, data.key_terms, data.users[0], 0.1, T, settings, checkpoints, rng=rng)

    work: dict[str, Work] = {"fedbandit_jax": (program.play, program.runs), "NumPy oracle": (play, 1)}
    case = f"FedConPE M={clients} K={K} d={data.dim} T={T}"
    yield from side_by_side("fedbandit_jax", work, "federations", case, effort.pick(1, 3, 5))


def federated(effort: Effort) -> Found:
    """Client-rounds a second of the learners with a server, beside LinUCB's; two of them as public code has them."""
    data, sizes, clients = catalog(effort), setting(effort), effort.pick(2, 10, 10)
    K, T = sizes["arms"], effort.pick(50, 2000, 6000)
    work: dict[str, Work] = {}
    for algorithm in [fb.LinUCB(), *effort.pick([fb.FedLinUCB()], with_server(), with_server())]:
        program = shelf.get(data, algorithm, clients=clients, arms=K, horizon=T, world=algorithm.home())
        work[algorithm.title] = program.play, program.client_rounds
    rng = np.random.default_rng(0)
    arms = np.stack([data.arms[rng.choice(len(data.arms), K, replace=False)] for _ in range(clients)])
    few = effort.pick(3, 20, 40)  # enough for a rate
    noise = 0.1 * rng.normal(size=(clients, few))
    for name, rival in (
        ("FedLinUCB", federated_rivals.fedlinucb_objects),
        ("AsyncLinUCB", federated_rivals.async_linucb_objects),
    ):
        called = f"{name}, a loop over Python objects"
        work[called] = (lambda rival=rival: rival(arms, data.users[0], noise)), clients * few
    case = f"federations M={clients} K={K} d={data.dim} T={T}"
    yield from side_by_side("LinUCB", work, "client-rounds", case, effort.repeats)


def with_server() -> list[fb.Algorithm]:
    """The algorithms of the package whose clients meet."""
    own = [kind for kind in fb.REGISTRY.values() if kind.__module__.startswith("fedbandit_jax.")]
    return [kind() for kind in own if not kind.independent_clients]


def design(effort: Effort) -> Found:
    """Textbook Frank-Wolfe at the usual size; the convex solver, which takes seconds there, at a smaller one."""
    if effort.level:
        yield from designs(100, 50, 512, effort, convex=False)
    yield from designs(*effort.pick((12, 4, 2), (60, 10, 512), (60, 10, 512)), effort, convex=True)


def designs(K: int, d: int, batch: int, effort: Effort, convex: bool, tol: float = 1e-2) -> Found:
    arms, solve = random_arms(K, d, batch), solver(K, "multiplicative", batch)
    one = np.asarray(arms[0], float)
    work: dict[str, Work] = {
        "fedbandit_jax": (lambda: solve(arms, jnp.float32(tol)), batch),
        "textbook Frank-Wolfe": (lambda: rivals.textbook_frank_wolfe(one, tol), 1),
    }
    if convex:
        try:
            rivals.convex_solver(one)
            work["cvxpy"] = (lambda: rivals.convex_solver(one), 1)
        except ImportError:
            yield Skipped("cvxpy", "it is not installed: pip install cvxpy")
    yield from side_by_side("fedbandit_jax", work, "designs", f"design K={K} d={d} tol={tol:g}", effort.pick(1, 3, 5))


def binding(effort: Effort) -> Found:
    data, sizes = catalog(effort), setting(effort)
    programs: list[Prepared] = []
    for algorithm in algorithms(effort):
        try:
            programs.append(shelf.get(data, algorithm, clients=1, **sizes))
        except Exception as error:
            yield Skipped(algorithm.title, why(error))
    yield from roofline(programs, effort)

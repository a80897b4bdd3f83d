"""Rerun FedConPE's experiments and judge its claims.

    DIR/<data set>/<preset>/<experiment>/   a sweep's folder
    DIR/<data set>/tuning/M10-K100-T6000/   a sweep's folder: the trials at which constants were tuned
    DIR/theory/<check>/                     sweeps' folders of the theory's checks
    DIR/reproduction.json                   what was run, with what, and the tuned constants
    DIR/verdict.json                        claim by claim: holds, does not hold, undecided

Everything is found again by a later call, which adds its own rows and leaves those of other experiments alone.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax._parameters import search_space
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.papers import verdict
from fedbandit_jax.papers.fedconpe import CHECKPOINTS, EXPERIMENTS, NOISE, PAPER, PRESETS, USERS, Experiment
from fedbandit_jax.papers.record import Record, tell
from fedbandit_jax.papers.theory.checks import check_theory
from fedbandit_jax.papers.tuning.search import rungs_of, search
from fedbandit_jax.papers.tuning.tuned import budget_of
from fedbandit_jax.results import statistics
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog

ALL = (*EXPERIMENTS, "theory")
ROUNDS_A_SECOND = 1.5e6  # of LinUCB's clients with 100 arms, on two cores
PRECISION = 0.03  # wanted half width of the 95 % interval of a mean final regret, given the users


@dataclass(frozen=True)
class Size:
    """How much to run."""

    users: int = USERS
    seeds: int | None = None  # None: as many as the precision takes
    first_seeds: int = 4
    most_seeds: int = 1024
    precise: bool = False  # go on to the precision also where the verdict is decided
    most_rounds: float = 60e6  # of all clients of an algorithm in an experiment, in rounds with 100 arms: about 40 s
    trials: int = 32
    tuning_users: int = 10
    tuning_seeds: int = 4  # of each in the last rung: 40 runs of the best
    theory_seeds: int = 100
    quick: bool = False
    seed: int = 0


MUST_AGREE = (
    "users",
    "trials",
    "tuning_users",
    "tuning_seeds",
    "seed",
    "quick",
    "noise",
)  # in a folder; seeds may grow
QUICK = Size(users=6, seeds=1, trials=3, tuning_users=2, tuning_seeds=1, theory_seeds=25, quick=True)


def reproduce(
    experiments: Sequence[str] = ALL,
    presets: Sequence[str] = PRESETS,
    catalogs: Mapping[str, Catalog] | None = None,
    *,
    out: str | Path = "results/reproduce",
    size: Size | None = None,
    command: str = "",
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Play the experiments under the presets on every catalog, and return the rows of the verdict.

    `catalogs` are by the name that folders and tables give them; by default the synthetic one. `experiments` may hold
    "theory", the checks of the paper's theorems, which have data of their own.
    """
    for name in experiments:
        _checks.choice("experiment", name, ALL)
    for name in presets:
        _checks.choice("preset", name, PRESETS)
    size = size or Size()
    if catalogs is None:
        from fedbandit_jax.datasets import synthetic

        catalogs = {"synthetic": synthetic(seed=size.seed)}
    record = Record(
        Path(out),
        PAPER.name,
        {**asdict(size), "noise": NOISE, "precision": PRECISION},
        catalogs,
        command,
        must_agree=MUST_AGREE,
        presets=PRESETS,
        experiments=ALL,
    )
    new: list[dict[str, Any]] = []
    for data, catalog in catalogs.items():
        for preset in presets:
            for name in experiments:
                if name != "theory":
                    new += play_part(name, preset, data, catalog, record, size, say)
    if "theory" in experiments:
        say("theory: the theorems' checks ...")
        rows, parts = check_theory(record.folder, seeds=size.theory_seeds, seed=size.seed, quick=size.quick)
        record.add(parts, rows)
        tell(rows, say)
        new += rows
    return new


def play_part(
    name: str, preset: str, data: str, catalog: Catalog, record: Record, size: Size, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One experiment under one preset on one catalog."""
    began = time.perf_counter()
    experiment = EXPERIMENTS[name].quick() if size.quick else EXPERIMENTS[name]
    constants = tuned_constants(experiment, data, catalog, record, size, say) if preset == "tuned" else None
    say(f"{data} / {preset} / {name} ...")
    folder = Path(data) / preset / name
    results, told = play(experiment, preset, constants, catalog, record.folder / folder, size)
    part = {"experiment": name, "preset": preset, "dataset": data}
    rows = [part | row for row in verdict.judge(experiment, results, told["confidence"])]
    seconds = round(time.perf_counter() - began, 1)
    record.add([part | {"folder": str(folder), "seconds": seconds} | told], rows)
    tell(rows, say)
    if told["stopped_early"]:
        say(f"    decided with {told['seeds']} seeds: no more were added")
    elif told["imprecise"] and not size.quick:
        say(f"    not within {PRECISION:.0%}, given the users: {'; '.join(told['imprecise'])}")
    return rows


def describe(
    experiments: Sequence[str],
    presets: Sequence[str],
    catalogs: Mapping[str, Catalog],
    *,
    out: str | Path,
    size: Size,
) -> list[str]:
    """What `reproduce` would run, a line a part, and how long it takes, roughly, on two cores."""
    lines, least, most = [], 0.0, 0.0
    for name in (name for name in experiments if name != "theory"):
        experiment = EXPERIMENTS[name].quick() if size.quick else EXPERIMENTS[name]
        algorithms = len(experiment.algorithms("released"))
        first, last = size.seeds or size.first_seeds, size.seeds or affordable_seeds(experiment, size)
        if experiment.metric == "conversations":
            last = first
        one = algorithms * rounds_of_a_seed(experiment, size) / ROUNDS_A_SECOND
        M, K, T = experiment.tuning_setting
        runs = budget_of(rungs_of(size.trials, range(size.tuning_users), size.tuning_seeds))
        tuning = algorithms * runs * M * T * K / 100 / ROUNDS_A_SECOND
        for data in catalogs:
            for preset in presets:
                extra = tuning if preset == "tuned" else 0.0
                least, most = least + first * one + extra, most + last * one + extra
                seeds = f"{first} seeds" if first == last else f"{first} to {last} seeds"
                lines.append(
                    f"{data} / {preset} / {name}: {algorithms} algorithms, M={show(experiment.clients)}, "
                    f"K={show(experiment.arms)}, T={experiment.horizon}, {size.users} users x {seeds}"
                    + (f", {size.trials} trials of each" if preset == "tuned" else "")
                )
    if "theory" in experiments:
        lines.append(f"theory: small federations, {size.theory_seeds} seeds of 20 users, about a minute")
    return [*lines, f"about {least / 60:.0f} to {most / 60:.0f} minutes and some compilation; runs go to {out}"]


def show(values: Iterable[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def tuned_constants(
    experiment: Experiment, data: str, catalog: Catalog, record: Record, size: Size, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Tune at the experiment's setting, or find what was tuned there."""
    M, K, T = experiment.tuning_setting
    setting = f"M{M}-K{K}-T{T}"
    say(f"{data} / tuning at M={M}, K={K}, T={T}: {size.trials} trials of each algorithm ...")
    first = size.users
    if len(catalog.users) < first + size.tuning_users:
        allowed = f"tuning needs {size.tuning_users} other users than the {first} that are scored"
        _checks.fail(f"users of {data}", len(catalog.users), allowed)
    best = search(
        catalog,
        experiment.line_up,
        trials=size.trials,
        users=range(first, first + size.tuning_users),
        seeds=size.tuning_seeds,
        words=not size.quick,
        out=record.folder / data / "tuning" / setting,
        clients=M,
        arms=K,
        horizon=T,
        noise=NOISE,
        seed=size.seed,
        checkpoints=CHECKPOINTS,
    )
    constants = {title: tuned_part(algorithm.prepare(T)) for title, algorithm in best.items()}
    record.keep_tuned(data, experiment.id, constants)
    return constants


def tuned_part(algorithm: Algorithm) -> dict[str, Any]:
    """The constants that a search has chosen."""
    return {name: getattr(algorithm, name) for name in search_space(type(algorithm))}


def play(
    experiment: Experiment,
    preset: str,
    constants: Mapping[str, Mapping[str, Any]] | None,
    catalog: Catalog,
    out: Path,
    size: Size,
) -> tuple[Results, dict[str, Any]]:
    """Results of an experiment, with as many seeds as the precision takes, and what is to be told of them.

    Every algorithm has its own number of seeds; FedConPE the most of all, so that it can be paired with each. Each time
    that seeds were added, the claims are judged, and if all are decided, no more are. Such a look needs a confidence of
    99.5 % or more, told as "confidence", so that all looks together err in 5 %. More seeds know the same users better:
    where these differ, an undecided claim stays so.
    """

    def run(algorithms: Sequence[Algorithm], seeds: int) -> Results:
        return sweep(
            catalog,
            algorithms,
            clients=experiment.clients,
            arms=experiment.arms,
            horizon=experiment.horizon,
            noise=NOISE,
            users=size.users,
            seeds=seeds,
            seed=size.seed,
            checkpoints=CHECKPOINTS,
            out=out,
        )

    def run_all() -> Results:
        counts = sorted(set(seeds.values()))
        parts = [run([algorithms[i] for i, count in seeds.items() if count == n], n) for n in counts]
        tables = [(part.to_pandas(), part.phases()) for part in parts]
        return parts[0] if len(parts) == 1 else Results.from_tables(tables, parts[0].settings)

    algorithms = experiment.algorithms(preset, constants)
    first, most = size.seeds or size.first_seeds, affordable_seeds(experiment, size)
    seeds = dict.fromkeys(range(len(algorithms)), first)
    results = run_all()
    looks, stopped_early = 1, False
    # Questions are counted, not estimated: the precision of the regret is not asked for there.
    while size.seeds is None and experiment.metric != "conversations":
        halves = precision(results).groupby("label", sort=False)["half"].max()
        wanted = {}
        for i, n in seeds.items():
            half = halves[algorithms[i].title]
            enough = n if half <= PRECISION else max(math.ceil(1.1 * n * (half / PRECISION) ** 2), n + 1)
            wanted[i] = max(n, min(enough, most))
        wanted[0] = max(wanted.values())
        if wanted == seeds:
            break
        look = verdict.confidence_of_look(looks, last=False)
        if not size.precise and verdict.decided(verdict.judge_claims(experiment, results, look)):
            stopped_early = True
            break
        seeds, looks = wanted, looks + 1
        results = run_all()
    extras = experiment.extras(preset)
    if extras:
        run(extras, first)
    found = precision(results)
    short = found[~(found["half"] <= PRECISION)]
    told = {
        "users": size.users,
        "seeds": max(seeds.values()),
        "looks": looks,
        "stopped_early": stopped_early,
        "confidence": verdict.confidence_of_look(1 if size.precise else looks, last=not stopped_early),
        "precision": float(found["half"].max()),
        "imprecise": [f"{r.label} (M={r.clients}, K={r.arms}) ± {r.half:.1%}" for r in short.itertuples()],
    }
    return results, told


def affordable_seeds(experiment: Experiment, size: Size) -> int:
    """The most seeds that an experiment may take."""
    return max(size.first_seeds, min(size.most_seeds, int(size.most_rounds / rounds_of_a_seed(experiment, size))))


def rounds_of_a_seed(experiment: Experiment, size: Size) -> float:
    """Rounds of all clients of a baseline, in rounds with 100 arms; federations of different M share their clients."""
    return size.users * experiment.horizon * max(experiment.clients) * sum(experiment.arms) / 100


def precision(results: Results) -> pd.DataFrame:
    """Half the 95 % interval of the mean final regret, given the users, relative to the mean, of every setting."""
    groups = results.final().groupby(["label", "clients", "arms"], sort=False)
    half = groups.apply(
        lambda g: statistics.half_width_given_users(g, "regret") / g["regret"].mean(), include_groups=False
    )
    return half.fillna(math.inf).rename("half").reset_index()

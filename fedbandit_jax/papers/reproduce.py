"""Rerun the paper's experiments and judge its claims.

    DIR/<data set>/<preset>/<experiment>/   a sweep's folder
    DIR/<data set>/tuning/M10-K100-T6000/   a sweep's folder: the trials at which constants were tuned
    DIR/theory/<check>/                     sweeps' folders of the theory's checks
    DIR/reproduction.json                   what was run, with what, and the tuned constants
    DIR/verdict.json                        claim by claim: holds, does not hold, undecided

Everything is found again by a later call, which adds its own rows and leaves those of other experiments alone.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fedbandit_jax import _checks, _runtime
from fedbandit_jax._parameters import search_space
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.calls import describe_environment, sweep
from fedbandit_jax.engine.files import write_whole
from fedbandit_jax.papers import verdict
from fedbandit_jax.papers.fedconpe import CHECKPOINTS, EXPERIMENTS, NOISE, PRESETS, USERS, Experiment
from fedbandit_jax.papers.theory_checks import check_theory
from fedbandit_jax.papers.tuned import budget_of
from fedbandit_jax.papers.tuning import rungs_of, search
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
    record = Record(Path(out), size, catalogs, command)
    new: list[dict[str, Any]] = []
    for data, catalog in catalogs.items():
        for preset in presets:
            for name in experiments:
                if name != "theory":
                    new += play_part(name, preset, data, catalog, record, say)
    if "theory" in experiments:
        say("theory: the theorems' checks ...")
        rows, parts = check_theory(record.folder, seeds=size.theory_seeds, seed=size.seed, quick=size.quick)
        record.add(parts, rows)
        tell(rows, say)
        new += rows
    return new


def play_part(
    name: str, preset: str, data: str, catalog: Catalog, record: "Record", say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One experiment under one preset on one catalog."""
    began, size = time.perf_counter(), record.size
    experiment = EXPERIMENTS[name].quick() if size.quick else EXPERIMENTS[name]
    constants = tuned_constants(experiment, data, catalog, record, say) if preset == "tuned" else None
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


def tell(rows: Sequence[Mapping[str, Any]], say: Callable[[str], None]) -> None:
    for row in rows:
        say(f"    {row['verdict']}: {row['claim']} ({row['figure']})")


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
    experiment: Experiment, data: str, catalog: Catalog, record: "Record", say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Tune at the experiment's setting, or find what was tuned there."""
    size = record.size
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


class Record:
    """reproduction.json and verdict.json of a folder, written whole after every part."""

    def __init__(self, folder: Path, size: Size, catalogs: Mapping[str, Catalog], command: str) -> None:
        self.folder, self.size = folder, size
        settings = {**asdict(size), "noise": NOISE, "precision": PRECISION}
        self.content = read_json(folder / "reproduction.json", {})
        self.rows: list[dict[str, Any]] = read_json(folder / "verdict.json", [])
        there = self.content.get("settings", {})
        for name in MUST_AGREE:
            if there.get(name, settings[name]) != settings[name]:
                _checks.fail("out", str(folder), f"it was made with {name}={there[name]!r}, not {settings[name]!r}")
        data = dict(there.get("data", {}))
        for name, catalog in catalogs.items():
            if data.setdefault(name, catalog.fingerprint) != catalog.fingerprint:
                _checks.fail("out", str(folder), f"its {name!r} is another catalog; use another name or folder")
        environment = describe_environment(_runtime.devices())
        commands = [c for c in self.content.get("commands", []) if c != command]
        self.content = {
            "command": command,
            "commands": [*commands, command],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": environment["versions"],
            "devices": environment["devices"],
            "quick": size.quick,
            "settings": {**settings, "data": data},
            "parts": self.content.get("parts", []),
            "tuned": self.content.get("tuned", {}),
        }

    def keep_tuned(self, data: str, experiment: str, constants: dict[str, dict[str, Any]]) -> None:
        self.content["tuned"].setdefault(data, {})[experiment] = constants
        self.write()

    def add(self, parts: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> None:
        """Parts and their rows, in place of the same parts' old ones."""
        folders = {part["folder"] for part in parts}
        self.content["parts"] = [part for part in self.content["parts"] if part["folder"] not in folders] + list(parts)
        replaced = {identity(row) for row in rows}
        self.rows = [row for row in self.rows if identity(row) not in replaced] + list(rows)
        order = [*self.content["settings"]["data"], "synthetic"]  # which the theorems' checks are played on
        self.rows.sort(
            key=lambda row: (order.index(row["dataset"]), PRESETS.index(row["preset"]), ALL.index(row["experiment"]))
        )
        self.write()

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("reproduction.json", self.content), ("verdict.json", self.rows)):
            text = json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n"
            write_whole(self.folder / name, lambda file, text=text: file.write(text.encode()))


def without_nan(value: Any) -> Any:
    """As JSON has it: what is not finite is null."""
    if isinstance(value, Mapping):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["experiment"], row["preset"], row["dataset"]


def read_json(path: Path, default: Any) -> Any:
    if not path.exists():
        return default
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: delete it, and the same command makes it again") from error

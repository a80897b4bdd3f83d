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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedbandit_jax import _checks, _runtime, statistics, storage, verdict
from fedbandit_jax.algorithms.base import Algorithm
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.experiments import EXPERIMENTS, NOISE, PRESETS, USERS, Experiment
from fedbandit_jax.results import Results, describe_environment
from fedbandit_jax.sweep import sweep
from fedbandit_jax.theory_checks import check_theory
from fedbandit_jax.tuning import tune

ALL = (*EXPERIMENTS, "theory")
PRECISION = 0.03  # wanted half width of the 95 % interval of a mean final regret, given the users


@dataclass(frozen=True)
class Size:
    """How much to run; results of different sizes do not mix in one folder."""

    users: int = USERS
    seeds: int | None = None  # None: as many as the precision takes
    first_seeds: int = 4
    most_seeds: int = 256
    trials: int = 32
    tuning_users: int = 10
    theory_seeds: int = 100
    quick: bool = False
    seed: int = 0


QUICK = Size(users=4, seeds=2, trials=4, tuning_users=2, theory_seeds=25, quick=True)


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
            for experiment in (EXPERIMENTS[name] for name in experiments if name != "theory"):
                began = time.perf_counter()
                part = {"experiment": experiment.id, "preset": preset, "dataset": data}
                experiment = experiment.quick() if size.quick else experiment
                constants = None
                if preset == "tuned":
                    constants = tuned_constants(experiment, data, catalog, record, say)
                say(f"{data} / {preset} / {experiment.id} ...")
                folder = Path(out) / data / preset / experiment.id
                results, told = play(experiment, preset, constants, catalog, folder, size)
                rows = [part | row for row in verdict.judge(experiment, results)]
                new += rows
                seconds = round(time.perf_counter() - began, 1)
                record.add(part | {"folder": str(folder.relative_to(out)), "seconds": seconds, **told}, rows)
                for row in rows:
                    say(f"    {row['verdict']}: {row['claim']} ({row['figure']})")
                if told["imprecise"]:
                    say(f"    not within {PRECISION:.0%}: {'; '.join(told['imprecise'])}")
    if "theory" in experiments:
        say("theory ...")
        rows, parts = check_theory(Path(out), seeds=size.theory_seeds, seed=size.seed)
        new += rows
        for part in parts:
            record.add(part, [])
        record.add(None, rows)
        for row in rows:
            say(f"    {row['verdict']}: {row['claim']} ({row['figure']})")
    return new


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
    constants = tune(
        catalog,
        setting=(M, K, T),
        trials=size.trials,
        users=range(first, first + size.tuning_users),
        seeds=max(1, math.ceil(4 / M)),
        out=record.folder / data / "tuning" / setting,
        seed=size.seed,
    )
    record.keep_tuned(data, experiment.id, constants)
    return constants


def play(
    experiment: Experiment,
    preset: str,
    constants: Mapping[str, Mapping[str, Any]] | None,
    catalog: Catalog,
    out: Path,
    size: Size,
) -> tuple[Results, dict[str, Any]]:
    """Results of an experiment, with as many seeds as the precision takes, and what is to be told of them."""

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
            out=out,
        )

    seeds = size.seeds or size.first_seeds
    algorithms = experiment.algorithms(preset, constants)
    results = run(algorithms, seeds)
    found = precision(results)
    # Questions are counted, not estimated: the precision of the regret is not asked for there.
    while size.seeds is None and experiment.metric != "conversations" and max(found.values()) > PRECISION:
        if seeds >= size.most_seeds:
            break
        needed = math.ceil(1.1 * seeds * (max(found.values()) / PRECISION) ** 2)
        seeds = min(max(needed, seeds + 1), size.most_seeds)
        results = run(algorithms, seeds)
        found = precision(results)
    extras = experiment.extras(preset)
    if extras:
        run(extras, size.seeds or size.first_seeds)
    told = {
        "users": size.users,
        "seeds": seeds,
        "precision": max(found.values()),
        "imprecise": [f"{name} ± {half:.1%}" for name, half in found.items() if not half <= PRECISION],
    }
    return results, told


def precision(results: Results) -> dict[str, float]:
    """Half the 95 % interval of the mean final regret, given the users, relative to the mean, of every setting."""
    found = {}
    for (label, M, K), group in results.final().groupby(["label", "clients", "arms"], sort=False):
        half = statistics.half_width_given_users(group, "regret") / group["regret"].mean()
        found[f"{label} M={M} K={K}"] = math.inf if math.isnan(half) else half
    return found


class Record:
    """reproduction.json and verdict.json of a folder, written whole after every part."""

    def __init__(self, folder: Path, size: Size, catalogs: Mapping[str, Catalog], command: str) -> None:
        self.folder, self.size = folder, size
        settings = {name: value for name, value in asdict(size).items() if name not in ("seeds", "quick")}
        settings |= {"noise": NOISE, "precision": PRECISION}
        self.content = read_json(folder / "reproduction.json", {})
        self.rows: list[dict[str, Any]] = read_json(folder / "verdict.json", [])
        there = self.content.get("settings", {})
        for name, value in settings.items():
            if name in there and there[name] != value:
                _checks.fail("out", str(folder), f"it was made with {name}={there[name]!r}, not {value!r}")
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

    def add(self, part: dict[str, Any] | None, rows: Sequence[dict[str, Any]]) -> None:
        """A part and its rows, in place of the same part's old ones."""
        if part is not None:
            self.content["parts"] = [p for p in self.content["parts"] if p["folder"] != part["folder"]] + [part]
        replaced = {identity(row) for row in rows}
        self.rows = [row for row in self.rows if identity(row) not in replaced] + list(rows)
        self.rows.sort(key=lambda row: (row["dataset"], PRESETS.index(row["preset"]), ALL.index(row["experiment"])))
        self.write()

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("reproduction.json", self.content), ("verdict.json", self.rows)):
            text = json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n"
            storage.write_whole(self.folder / name, lambda file, text=text: file.write(text.encode()))


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

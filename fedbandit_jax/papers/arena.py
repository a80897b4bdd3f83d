"""The arena: every algorithm with a server, and LinUCB, which never talks, in the same worlds with equal budgets.

    DIR/<data set>/<world>/runs/       a sweep's folder
    DIR/<data set>/<world>/tuning/     a sweep's folder: the trials at which constants were tuned
    DIR/<data set>/<world>/together/   `Results` of all, with the kind of constants as a place
    DIR/arena.json                     what was played with what, who was left out and why, and a row for each

Constants are the algorithms' defaults; "theory" wherever they take that word; or tuned with as many trials for each, on
users that are not scored. A front is among algorithms with constants of one kind. Everything is found again by a later
call, which adds its data sets and worlds.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fedbandit_jax import _checks, _runtime
from fedbandit_jax._parameters import declared, search_space
from fedbandit_jax.algorithms import LinUCB
from fedbandit_jax.clocks.base import REGISTRY, Algorithm
from fedbandit_jax.engine.calls import describe_environment, sweep
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.papers.record import read_json, write_json
from fedbandit_jax.papers.tuning.search import quiet, rungs_of, search
from fedbandit_jax.papers.tuning.tuned import budget_of
from fedbandit_jax.results.numbers import number
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

CONSTANTS = ("default", "theory", "tuned")
WORLDS = {"fixed": World(), "common": World(arm_sets="common"), "redrawn": World(contexts="redrawn")}
COST = "communication"
MESSAGES = ("uploads", "downloads")
CHECKPOINTS = 60
ROUNDS_A_SECOND = {"fixed": 1.5e5, "common": 1.5e5, "redrawn": 4e4}  # of clients with 100 arms, on two cores, roughly


@dataclass(frozen=True)
class Size:
    """How much to run."""

    clients: int = 10
    arms: int = 100
    horizon: int = 6000
    noise: float = 0.1
    users: int = 10
    seeds: int = 4
    trials: int = 32
    tuning_users: int = 10
    tuning_seeds: int = 4  # of each in the last rung
    seed: int = 0
    quick: bool = False

    @property
    def setting(self) -> dict[str, Any]:
        names = ("clients", "arms", "horizon", "noise", "seed")
        return {name: getattr(self, name) for name in names} | {"checkpoints": CHECKPOINTS}


QUICK = Size(arms=40, horizon=1000, users=6, seeds=1, trials=3, tuning_users=2, tuning_seeds=1, quick=True)


def line_up() -> list[Algorithm]:
    """The algorithms of the package whose clients meet, with their defaults, behind LinUCB, whose clients do not."""
    own = [kind for kind in REGISTRY.values() if kind.__module__.startswith("fedbandit_jax.")]
    return [LinUCB(), *(kind() for kind in own if not kind.independent_clients)]


def worlds_of(catalog: Catalog, quick: bool = False) -> tuple[str, ...]:
    """Where a data set is played unless it is said: that of ConLinUCB's public code has arms that are redrawn."""
    if catalog.name.startswith("conlinucb"):
        return ("redrawn",)
    return ("fixed", "common") if catalog.name.startswith("synthetic") and not quick else ("fixed",)


def theory(algorithm: Algorithm) -> Algorithm:
    """With "theory" for every hyperparameter that takes that word."""
    names = [name for name, about in declared(type(algorithm)).items() if "theory" in about.words]
    return algorithm.replace(**dict.fromkeys(names, "theory"))


def divide(
    algorithms: Sequence[Algorithm], catalog: Catalog, world: World, size: Size
) -> tuple[list[Algorithm], dict[str, str]]:
    """Those that are made for a world and data set, and of the others the reason, in one sentence."""
    fit, left_out = [], {}
    for algorithm in algorithms:
        try:
            with warnings.catch_warnings():
                quiet()
                make_sweep(catalog, [algorithm], world=world, users=size.users, seeds=1, **size.setting)
        except ValueError as error:
            left_out[algorithm.title] = str(error)
        else:
            fit.append(algorithm)
    return fit, left_out


# ------------------------------------------------------------------------------------------------------------- play


def play_arena(
    catalogs: Mapping[str, Catalog],
    worlds: Sequence[str] = (),
    constants: Sequence[str] = CONSTANTS,
    *,
    out: str | Path,
    size: Size | None = None,
    command: str = "",
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Play everywhere and return the rows: of each data set, world, kind of constants and algorithm."""
    size, folder = size or Size(), Path(out)
    plan = planned(catalogs, worlds, constants, size)
    content = open_record(folder / "arena.json", size, catalogs, command)
    rows = []
    for data, world in plan:
        part = play_world(data, catalogs[data], world, constants, folder / data / world, size, say)
        key = data, world
        others = [one for one in content["parts"] if (one["dataset"], one["world"]) != key]
        content["parts"] = [*others, part]
        write_json(folder / "arena.json", content)
        rows += part["rows"]
    return rows


def planned(
    catalogs: Mapping[str, Catalog], worlds: Sequence[str], constants: Sequence[str], size: Size
) -> list[tuple[str, str]]:
    """Data sets and worlds."""
    for name in worlds:
        _checks.choice("world", name, WORLDS)
    for name in constants:
        _checks.choice("preset", name, CONSTANTS)
    return [(data, world) for data, catalog in catalogs.items() for world in worlds or worlds_of(catalog, size.quick)]


def open_record(path: Path, size: Size, catalogs: Mapping[str, Catalog], command: str) -> dict[str, Any]:
    """What arena.json says, if it is of the same size and data."""
    there = read_json(path, {})
    settings = there.get("settings", {})
    for name, value in asdict(size).items():
        if settings.get(name, value) != value:
            _checks.fail("out", str(path.parent), f"it was made with {name}={settings[name]!r}, not {value!r}")
    data = dict(there.get("data", {}))
    for name, catalog in catalogs.items():
        if data.setdefault(name, catalog.fingerprint) != catalog.fingerprint:
            _checks.fail("out", str(path.parent), f"its {name!r} is another catalog; use another name or folder")
    environment = describe_environment(_runtime.devices())
    return {
        "commands": [*(c for c in there.get("commands", []) if c != command), command],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": environment["versions"],
        "devices": environment["devices"],
        "settings": asdict(size),
        "data": data,
        "parts": there.get("parts", []),
    }


def play_world(
    data: str,
    catalog: Catalog,
    world: str,
    constants: Sequence[str],
    folder: Path,
    size: Size,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """One data set in one world: everything of it that arena.json has."""
    began = time.perf_counter()
    fit, left_out = divide(line_up(), catalog, WORLDS[world], size)
    for reason in left_out.values():
        say(f"{data} / {world}: left out: {reason}")
    tables, tuned = [], {}
    for kind in constants:
        chosen = fit if kind == "default" else [theory(algorithm) for algorithm in fit]
        if kind == "tuned":
            say(f"{data} / {world} / tuning: {size.trials} trials of each algorithm ...")
            chosen = tune_all(fit, catalog, WORLDS[world], folder / "tuning", size)
            tuned = {one.title: {name: getattr(one, name) for name in search_space(type(one))} for one in chosen}
        say(f"{data} / {world} / {kind}: {len(chosen)} algorithms ...")
        with warnings.catch_warnings():
            quiet()
            played = sweep(
                catalog,
                chosen,
                world=WORLDS[world],
                users=size.users,
                seeds=size.seeds,
                out=folder / "runs",
                **size.setting,
            )
        curves = played.to_pandas()
        curves.insert(curves.columns.get_loc("noise"), "constants", kind)  # a place, as fields of a world are
        tables.append((curves, pd.DataFrame()))
    together = Results.from_tables(tables, played.settings)
    together.save(folder / "together")
    rows = [{"dataset": data, "world": world, **row} for row in rows_of(together, tuned)]
    for row in rows:
        if row["front"] == "on the front":
            say(f"    on the front ({row['constants']}): {row['algorithm']}, regret {number(row['regret'])}")
    return {
        "dataset": data,
        "world": world,
        "left_out": left_out,
        "tuned": tuned,
        "seconds": round(time.perf_counter() - began, 1),
        "rows": rows,
    }


def tune_all(algorithms: Sequence[Algorithm], catalog: Catalog, world: World, out: Path, size: Size) -> list[Algorithm]:
    """The best of each, on users that follow those that are scored."""
    first = size.users
    if len(catalog.users) < first + size.tuning_users:
        allowed = f"tuning needs {size.tuning_users} other users than the {first} that are scored"
        _checks.fail(f"users of {catalog.name}", len(catalog.users), allowed)
    best = search(
        catalog,
        algorithms,
        trials=size.trials,
        users=range(first, first + size.tuning_users),
        seeds=size.tuning_seeds,
        words=not size.quick,
        out=out,
        world=world,
        **size.setting,
    )
    return list(best.values())


def rows_of(together: Results, tuned: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each algorithm and kind of constants: regret, what was sent, and whether it is on the front."""
    final = together.final()
    told = [name for name in MESSAGES if name in final]
    messages = final.assign(messages=final[told].sum(axis=1, skipna=False) if len(told) == 2 else float("nan"))
    means = messages.groupby(["constants", "label"])["messages"].mean()
    rows = []
    for row in together.pareto(COST, columns="all").to_dict("records"):
        kind, label = row["constants"], row["label"]
        rows.append(
            {
                "constants": kind,
                "algorithm": label,
                "regret": row["regret"],
                "low": row["regret_low"],
                "high": row["regret_high"],
                "scalars": row[COST],
                "messages": float(means[kind, label]),
                "front": row["front"],
                "by": row["by"],
                "tuned": dict(tuned.get(label, {})) if kind == "tuned" else {},
            }
        )
    return sorted(rows, key=lambda row: (CONSTANTS.index(row["constants"]), row["regret"]))


def describe(
    catalogs: Mapping[str, Catalog], worlds: Sequence[str], constants: Sequence[str], *, out: str | Path, size: Size
) -> list[str]:
    """What `play_arena` would run, a line a world, and how long it takes, roughly, on two cores."""
    lines, seconds = [], 0.0
    runs = size.users * size.seeds * len(constants)
    if "tuned" in constants:
        runs += budget_of(rungs_of(size.trials, range(size.tuning_users), size.tuning_seeds))
    for data, world in planned(catalogs, worlds, constants, size):
        fit, left_out = divide(line_up(), catalogs[data], WORLDS[world], size)
        by_round = [algorithm for algorithm in fit if "phase" not in algorithm.made_for.get("contexts", ("", ()))[0]]
        seconds += len(by_round) * runs * size.clients * size.horizon * size.arms / 100 / ROUNDS_A_SECOND[world]
        lines.append(
            f"{data} / {world}: {', '.join(a.title for a in fit)}; constants {', '.join(constants)}; M={size.clients}, "
            f"K={size.arms}, T={size.horizon}, {size.users} users x {size.seeds} seeds"
            + (f"; left out: {', '.join(left_out)}" if left_out else "")
        )
    return [*lines, f"about {seconds / 60:.0f} minutes and some compilation; runs go to {out}"]

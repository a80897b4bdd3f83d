"""The paper's claims under every reading of it: play them all, judge each claim in each.

    DIR/readings/<data set>/<user norm>/fedconpe/          a sweep's folder: FedConPE under every reading, over M
    DIR/readings/<data set>/<user norm>/arms/              the same over K
    DIR/readings/<data set>/<user norm>/baselines/<which>/ the baselines over M
    DIR/readings/<data set>/<user norm>/tuning/            the trials at which the baselines were tuned
    DIR/readings/<data set>/norms/                         the headline with users of other norms
    DIR/readings.parquet                                   a row per data set, reading and claim, with its verdict
    DIR/norms.parquet                                      a row per data set, norm, baselines and number of clients
    DIR/readings.json                                      what was run, with what

Everything is found again by a later call. What the rows tell is in `findings`.

In a reading, FedConPE has the constants of its paper. The baselines are tuned where the reading says so, and FedConPE
is not: the paper has nothing to tune. Clients of a baseline do not meet, so that constants tuned with ten clients serve
for every number of them.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax._files import write_checked
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.engine.cells import labels
from fedbandit_jax.papers import verdict
from fedbandit_jax.papers.fedconpe import (
    CHECKPOINTS,
    CHOICES,
    EXPERIMENTS,
    NOISE,
    QUICK_CHOICES,
    SWEPT_NORMS,
    Experiment,
    Reading,
    readings,
)
from fedbandit_jax.papers.record import read_json, write_json
from fedbandit_jax.papers.reproduce import Size, show, tuned_part
from fedbandit_jax.papers.tuning.search import search
from fedbandit_jax.results import statistics
from fedbandit_jax.results.results import Results, read_saved, read_table
from fedbandit_jax.worlds.catalog import Catalog

# The claims, in the order of the experiments; two experiments make two each.
CLAIMS = {
    "single": "one client: regret at least 5.25 % below every baseline's",
    "multi": "ten clients: at least 37.05 % below",
    "linear": "the baselines' regret grows like M",
    "root": "FedConPE's grows like sqrt(M) at most",
    "flat": "FedConPE's is flat in K",
    "accuracy": "FedConPE's estimate is the most accurate",
    "questions-log": "fewer questions than 5 floor(log t)",
    "questions-linear": "fewer questions than floor(t / 50)",
}
HEADLINE = ("single", "multi")
OF_BASELINES = ("single", "multi", "linear", "accuracy")  # claims that compare with them, or are about them
SEEDS, ARMS_SEEDS = 2, 1  # of each user, where none are given
RUN = ["label", *statistics.PLACES, "user", "seed"]
NORM_BASELINES = ("theory", "released")  # constants are not tuned anew for each of many norms


@dataclass(frozen=True)
class Setting:
    """What is played for all readings of a folder."""

    size: Size
    folder: Path
    say: Callable[[str], None]

    @property
    def experiments(self) -> dict[str, Experiment]:
        return {name: one.quick() if self.size.quick else one for name, one in EXPERIMENTS.items()}

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        return QUICK_CHOICES if self.size.quick else CHOICES

    @property
    def clients(self) -> list[int]:
        """Every M that an experiment with K arms has: clients are the same ones in all of them."""
        return sorted({M for one in self.experiments.values() if one.x != "arms" for M in one.clients})

    @property
    def norms(self) -> tuple[float, ...]:
        return SWEPT_NORMS[1::3] if self.size.quick else SWEPT_NORMS

    def play(
        self, catalog: Catalog | Sequence[Catalog], algorithms: Sequence[Algorithm], where: Path, **changes: Any
    ) -> Results:
        multi = self.experiments["multi"]
        arguments: dict[str, Any] = {
            "clients": self.clients,
            "arms": multi.arms,
            "horizon": multi.horizon,
            "noise": NOISE,
            "users": self.size.users,
            "seeds": self.size.seeds or SEEDS,
            "seed": self.size.seed,
            "checkpoints": CHECKPOINTS,
        }
        return sweep(catalog, algorithms, **arguments | changes, out=self.folder / "readings" / where)


def play_readings(
    catalogs: Mapping[str, Mapping[str, Catalog]],
    *,
    out: str | Path = "results/reproduce",
    size: Size | None = None,
    command: str = "",
    say: Callable[[str], None] = print,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play and judge all readings on every data set; return the rows of the readings and those of the norms.

    `catalogs` are by data set and by the norm of their users: {"synthetic": {"drawn": ..., "unit": ...}}.
    """
    setting = Setting(size or Size(), Path(out), say)
    check_agreement(setting, catalogs)
    for data, by_norm in catalogs.items():
        for user_norm, catalog in by_norm.items():
            began = time.perf_counter()
            rows = pd.DataFrame(judge_all(setting, data, user_norm, catalog))
            keep(setting, "readings", rows, ("dataset", "user_norm"))
            note(setting, command, data, user_norm, catalog, time.perf_counter() - began)
            for claim, words in rows.groupby("claim", sort=False)["verdict"]:
                say(f"    {CLAIMS[claim]}: holds in {(words == verdict.HOLDS).sum()} of {len(words)} readings")
        began, first = time.perf_counter(), next(iter(by_norm.values()))
        rows = pd.DataFrame(judge_norms(setting, data, first))
        keep(setting, "norms", rows, ("dataset",))
        note(setting, command, data, "norms", first, time.perf_counter() - began)
    return read(out)


def describe(catalogs: Mapping[str, Mapping[str, Catalog]], *, out: str | Path, size: Size) -> list[str]:
    """What `play_readings` would run, a line a part."""
    setting = Setting(size, Path(out), print)
    lines = []
    for data, by_norm in catalogs.items():
        for user_norm, catalog in by_norm.items():
            every = list(readings(user_norm, catalog.realised_C, setting.choices))
            variants = {reading.fedconpe(catalog.realised_C) for reading in every}
            groups = {group_of(reading) for reading in every}
            lines.append(
                f"{data} / users {user_norm}: {len(every)} readings; FedConPE in {len(variants)} variants, "
                f"M={show(setting.clients)} and K={show(setting.experiments['arms'].arms)}; baselines "
                f"{', '.join(sorted(groups))}; {size.users} users x {size.seeds or SEEDS} seeds"
            )
        lines.append(
            f"{data} / users of norms {show(setting.norms)}: the headline, baselines {', '.join(NORM_BASELINES)}"
        )
    return [*lines, f"runs go to {Path(out) / 'readings'}"]


def read(folder: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of the readings and those of the norms that a folder has."""
    if not (Path(folder) / "norms.parquet").is_file():
        _checks.fail("folder", str(folder), "it must be one whose readings are played; the same command goes on")
    return read_rows(Path(folder) / "readings.parquet"), read_rows(Path(folder) / "norms.parquet")


def read_rows(path: Path) -> pd.DataFrame:
    rows: pd.DataFrame = read_saved(path, read_table, "delete it, and the same command makes it again")
    return rows


# ------------------------------------------------------------------------------------------------------- the readings


def judge_all(setting: Setting, data: str, user_norm: str, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """A row for each reading with users of a norm, and for each claim."""
    every = list(readings(user_norm, catalog.realised_C, setting.choices))
    played = Played(setting, data, user_norm, catalog, every)
    setting.say(f"{data} / users {user_norm}: judging {len(every)} readings ...")
    judged: dict[tuple, verdict.Row] = {}  # readings that differ in nothing that a claim is about share its row
    for reading in every:
        for claim in CLAIMS:
            key = (claim, *parts_that_matter(claim, reading))
            if key not in judged:
                judged[key] = played.judge(claim, reading)
            yield {"dataset": data, **asdict(reading), "claim": claim, **measured(judged[key])}


def measured(row: verdict.Row) -> dict[str, Any]:
    """What is kept of a verdict's row: `least` is NaN where a claim is not about every baseline."""
    return {name: row.get(name, np.nan) for name in ("verdict", "value", "low", "high", "least", "figure")}


def parts_that_matter(claim: str, reading: Reading) -> tuple:
    """What a claim depends on: it is about FedConPE alone, about the baselines alone, or about both."""
    ours = (reading.sigma, reading.N, reading.null_space, reading.rounding)
    theirs = group_of(reading)
    return (theirs,) if claim == "linear" else (*ours, theirs) if claim in OF_BASELINES else ours


def group_of(reading: Reading) -> str:
    """Which baselines: sigma plays a part in radii of theorems only."""
    return f"theory-{reading.sigma}" if reading.baselines == "theory" else reading.baselines


class Played:
    """The runs of FedConPE under every reading, and of all baselines, on one catalog."""

    def __init__(self, setting: Setting, data: str, user_norm: str, catalog: Catalog, every: Sequence[Reading]) -> None:
        self.setting, self.experiments = setting, setting.experiments
        where, over = Path(data) / user_norm, self.experiments["arms"]
        variants = list(dict.fromkeys(reading.fedconpe(catalog.realised_C) for reading in every))
        self.variant = {reading: variants.index(reading.fedconpe(catalog.realised_C)) for reading in every}
        setting.say(f"{data} / users {user_norm}: FedConPE in {len(variants)} variants, M={show(setting.clients)} ...")
        self.ours = self.by_variant(setting.play(catalog, variants, where / "fedconpe"), variants)
        setting.say(f"{data} / users {user_norm}: the same, K={show(over.arms)} ...")
        changes = {"clients": over.clients, "arms": over.arms, "horizon": over.horizon}
        seeds = setting.size.seeds or ARMS_SEEDS
        arms = setting.play(catalog, variants, where / "arms", **changes, seeds=seeds)
        self.over_arms = self.by_variant(arms, variants)
        self.theirs: dict[str, pd.DataFrame] = {}
        for reading in every:
            group = group_of(reading)
            if group not in self.theirs:
                setting.say(f"{data} / users {user_norm}: baselines {group} ...")
                line_up = self.baselines(reading, where, catalog)
                self.theirs[group] = self.runs(setting.play(catalog, line_up, where / "baselines" / group))

    def runs(self, results: Results) -> pd.DataFrame:
        """A row per run: final regret and questions, and the mean error of the estimate over the first rounds."""
        last = self.experiments["accuracy"].last_round or self.experiments["accuracy"].horizon
        errors = verdict.mean_over_rounds(results, "theta_error", last).final()
        final = results.final()[["algorithm", *RUN, "round", "regret", "conversations"]]
        return final.merge(errors[[*RUN, "theta_error"]], on=RUN)

    def by_variant(self, results: Results, variants: Sequence[Algorithm]) -> list[pd.DataFrame]:
        """The runs of each variant, all of them under FedConPE's own name."""
        groups = dict(iter(self.runs(results).groupby("label", sort=False)))
        return [groups[label].assign(label=verdict.US) for label in labels(variants)]

    def baselines(self, reading: Reading, where: Path, catalog: Catalog) -> list[Algorithm]:
        given = self.experiments["multi"].line_up[1:]
        tuned = tune(self.setting, given, where, catalog) if reading.baselines == "tuned" else None
        return reading.line_up(given, tuned)

    def judge(self, claim: str, reading: Reading) -> verdict.Row:
        ours, theirs = self.ours[self.variant[reading]], self.theirs[group_of(reading)]
        name = {"linear": "clients", "root": "clients", "flat": "arms"}.get(claim, claim.partition("-")[0])
        experiment = self.experiments[name]
        if claim in HEADLINE:
            return judge_headline(experiment, pd.concat([ours, theirs]))
        if claim == "accuracy":
            found = results_at(experiment, pd.concat([ours, theirs]))
            return verdict.judge_below(found, experiment.claim, 0, experiment.metric, "mean error")
        if claim == "linear":
            return verdict.judge_linear(results_at(experiment, theirs))
        if claim == "root":
            return verdict.judge_root(results_at(experiment, ours))
        if claim == "flat":
            return verdict.judge_flat(results_at(experiment, self.over_arms[self.variant[reading]]))
        return verdict.judge_questions(results_at(experiment, ours), claim.partition("-")[2])


def results_at(experiment: Experiment, runs: pd.DataFrame) -> Results:
    """The runs with the numbers of clients of an experiment."""
    return Results(runs[runs["clients"].isin(experiment.clients)], pd.DataFrame(), {})


def judge_headline(experiment: Experiment, runs: pd.DataFrame) -> verdict.Row:
    found = results_at(experiment, runs)
    return verdict.judge_below(found, experiment.claim, experiment.least_percent, "regret", "regret")


def tune(setting: Setting, algorithms: Sequence[Algorithm], where: Path, catalog: Catalog) -> dict[str, dict[str, Any]]:
    """The best constants of each algorithm with ten clients, on users that are not scored."""
    size, multi = setting.size, setting.experiments["multi"]
    M, K, T = multi.tuning_setting
    best = search(
        catalog,
        algorithms,
        trials=size.trials,
        users=range(size.users, size.users + size.tuning_users),
        seeds=size.tuning_seeds,
        words=True,
        out=setting.folder / "readings" / where / "tuning",
        clients=M,
        arms=K,
        horizon=T,
        noise=NOISE,
        seed=size.seed,
        checkpoints=1,
    )
    return {title: tuned_part(algorithm.prepare(T)) for title, algorithm in best.items()}


# ------------------------------------------------------------------------------------------------------------- norms


def judge_norms(setting: Setting, data: str, catalog: Catalog) -> Iterator[dict[str, Any]]:
    """The headline, under the first reading, with users of the same directions and other norms."""
    experiments = [setting.experiments[name] for name in HEADLINE]
    clients = sorted({M for one in experiments for M in one.clients})
    scaled = {with_norm(catalog, norm, f"{data}, norm {norm:g}"): norm for norm in setting.norms}
    setting.say(f"{data} / users of norms {show(scaled.values())} ...")
    ours = Reading("unit").fedconpe(catalog.realised_C)
    for baselines in NORM_BASELINES:
        line_up = Reading("unit", baselines=baselines).line_up(setting.experiments["multi"].line_up[1:], None)
        results = setting.play(list(scaled), [ours, *line_up], Path(data) / "norms", clients=clients)
        final = results.final()
        for one, norm in scaled.items():
            for experiment in experiments:
                row = measured(judge_headline(experiment, final[final["dataset"] == one.name]))
                yield {"dataset": data, "norm": norm, "baselines": baselines, "claim": experiment.id, **row}


def with_norm(catalog: Catalog, norm: float, name: str) -> Catalog:
    """The same catalog with users of another norm."""
    unit = catalog.users / np.linalg.norm(catalog.users, axis=1, keepdims=True)
    return replace(catalog, users=norm * unit, name=name)


# ---------------------------------------------------------------------------------------------------------- the folder


def check_agreement(setting: Setting, catalogs: Mapping[str, Mapping[str, Catalog]]) -> None:
    """What is in a folder was made with the same users, trials and catalogs."""
    there = read_json(setting.folder / "readings.json", {})
    for name in ("users", "trials", "tuning_users", "tuning_seeds", "seed", "quick"):
        old, new = there.get("settings", {}).get(name), getattr(setting.size, name)
        if old is not None and old != new:
            _checks.fail("out", str(setting.folder), f"its readings were made with {name}={old!r}, not {new!r}")
    for data, by_norm in catalogs.items():
        needed = setting.size.users + setting.size.tuning_users
        for user_norm, catalog in by_norm.items():
            if len(catalog.users) < needed:
                allowed = f"{setting.size.users} are scored and {setting.size.tuning_users} others tuned on"
                _checks.fail(f"users of {data}", len(catalog.users), allowed)
            old = there.get("catalogs", {}).get(f"{data}/{user_norm}", catalog.fingerprint)
            if old != catalog.fingerprint:
                _checks.fail("out", str(setting.folder), f"its {data!r} is another catalog; use another name or folder")


def keep(setting: Setting, name: str, rows: pd.DataFrame, keys: Sequence[str]) -> None:
    """Put rows in place of those that have the same keys; what was first stays first."""
    path = setting.folder / f"{name}.parquet"
    if path.exists():
        old, keys = read_rows(path), list(keys)
        there, new = (table.set_index(keys).index for table in (old, rows))
        order = there.append(new).unique()
        rows = pd.concat([old[~there.isin(new)], rows], ignore_index=True)
        rows = rows.iloc[np.argsort(order.get_indexer(rows.set_index(keys).index), kind="stable")]
        rows = rows.reset_index(drop=True)
    setting.folder.mkdir(parents=True, exist_ok=True)
    write_checked(setting.folder, {path.name: rows.to_parquet()})


def note(setting: Setting, command: str, data: str, part: str, catalog: Catalog, seconds: float) -> None:
    """What was run, for the record; what was found on disk takes next to no time, and the longest time is kept."""
    path = setting.folder / "readings.json"
    content = read_json(path, {})
    size = asdict(setting.size) | {"seeds": setting.size.seeds or SEEDS}
    times = content.setdefault("seconds", {})
    times[f"{data}/{part}"] = max(round(seconds, 1), times.get(f"{data}/{part}", 0.0))
    if part != "norms":
        content.setdefault("catalogs", {})[f"{data}/{part}"] = catalog.fingerprint
        content.setdefault("realised_C", {})[f"{data}/{part}"] = catalog.realised_C
    content |= {"command": command, "settings": size}
    write_json(path, content)

"""What a report says of a paper that was rerun: its verdicts, a figure for each experiment, tables."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fedbandit_jax.papers.record import FIRST as FEDCONPE
from fedbandit_jax.papers.record import find
from fedbandit_jax.report.contents import (
    FIRST,
    Figure,
    Picture,
    Report,
    Table,
    facts,
    file_name,
    in_order,
    read_json,
    short,
    span,
)
from fedbandit_jax.results.results import Results
from fedbandit_jax.results.statistics import varied_places
from fedbandit_jax.worlds.world import FIELDS

SCHEDULES = {"log": "5 ⌊log t⌋", "linear": "⌊t/50⌋"}


def of_reproduction(folder: Path) -> Report:
    """The experiments and verdicts that are there; some may be missing."""
    record = read_json(folder / "reproduction.json")
    verdicts = read_json(folder / "verdict.json") if (folder / "verdict.json").is_file() else []
    paper = find(record.get("paper", FEDCONPE))
    figures: list[Figure] = []
    pictures: list[Picture] = []
    for part in record["parts"]:
        at, experiment = folder / part["dataset"] / part["preset"] / part["experiment"], part["experiment"]
        if experiment in paper.experiments and at.is_dir():
            results = Results.load(at)
            figures.append(experiment_figure(paper.experiments[experiment], part, results))
            pictures += cost_pictures(paper.experiments[experiment], results)
    order = list(paper.experiments)
    figures.sort(key=lambda figure: order.index(figure.name.split("-")[0]))
    words = [row["verdict"] for row in verdicts]
    hold, fail = words.count("holds"), words.count("does not hold")
    told = f"{len(words)} claims judged: {hold} hold, {fail} do not hold, {len(words) - hold - fail} are undecided."
    intro = [told if words else "No claim has been judged yet."]
    if record.get("quick"):
        intro.append("Made with --quick: a taste, with too few users and seeds to decide much.")
    return Report(
        paper.title,
        [paper.reference + ".", *intro],
        figures,
        list(tables_of(record)),
        verdicts,
        {e.title: f"The paper: {e.claim}." for e in paper.experiments.values()},
        pictures=pictures,
    )


def cost_pictures(experiment: Any, results: Results) -> Iterator[Picture]:
    """Regret against what messages cost, where the paper is about that."""
    cost = getattr(experiment, "cost", "")
    if cost:
        yield Picture(
            f"tradeoff-{experiment.id}",
            f"{experiment.title}: what regret costs",
            partial(draw_cost, results, cost),
            "Means and 95 % intervals.",
        )


def draw_cost(results: Results, cost: str) -> Any:
    from fedbandit_jax.results.plots import style

    with style(figure_figsize=(6.4, 4.0)):
        return results.plot.tradeoff(cost).get_figure(root=True)


def experiment_figure(experiment: Any, part: Mapping[str, Any], results: Results) -> Figure:
    """The paper's figure of an experiment."""
    curves = results.to_pandas()
    if experiment.last_round is not None:
        curves = curves[curves["round"] <= experiment.last_round]
    if experiment.metric == "conversations":
        curves = join_schedules(curves)
    if getattr(experiment, "besides", ()):  # every algorithm has its own world: one panel for all of them
        curves = curves.drop(columns=[name for name in varied_places(curves) if name in FIELDS])
    users = curves["user"].nunique()
    where = {"data set": part["dataset"], "preset": part["preset"]}
    M, K, T = (span(curves[name]) for name in ("clients", "arms", "horizon"))
    seeds = span(curves.groupby("label")["seed"].nunique())  # an algorithm may have needed more than another
    return Figure(
        file_name(experiment.id, part["preset"], part["dataset"]),
        f"{part['dataset']}, {part['preset']}",
        experiment.title,
        where,
        Results(in_order(curves), pd.DataFrame(), results.settings),
        experiment.metric,
        experiment.x,
        f"M = {M}, K = {K}, T = {T}; {users} users × {seeds} seeds; bands and bars are 95 % intervals.",
        FIRST if experiment.metric != "conversations" else (),
    )


def join_schedules(curves: pd.DataFrame) -> pd.DataFrame:
    """Baselines ask by schedule alone: those of one schedule that ask the same are one line."""
    if "schedule" not in curves:
        return curves
    kept = [curves[curves["schedule"].isna()]]
    for schedule, rows in curves.groupby("schedule", sort=False):
        labels = rows["label"].unique()
        asked = rows.pivot_table(index=["user", "seed", "round"], columns="label", values="conversations")
        if len(labels) > 1 and asked.notna().all(axis=None) and (asked.nunique(axis=1) == 1).all():
            name = f"the {len(labels)} baselines, {SCHEDULES.get(str(schedule), schedule)}"
            rows = rows[rows["label"] == labels[0]].assign(label=name)
        kept.append(rows)
    return pd.concat(kept)


def tables_of(record: Mapping[str, Any]) -> Iterator[Table]:
    """Tuned constants, run times, settings."""
    tuned = [
        [data, setting, label, ", ".join(f"{name} = {short(value)}" for name, value in constants.items())]
        for data, settings in record.get("tuned", {}).items()
        for setting, algorithms in settings.items()
        for label, constants in algorithms.items()
    ]
    if tuned:
        yield Table("Tuned constants", ("data set", "tuned for", "algorithm", "constants"), tuned)
    parts = record["parts"]
    rows = [
        [
            *(p[name] for name in ("experiment", "preset", "dataset")),
            *(str(p[name]) for name in ("users", "seeds")),
            f"± {p['precision']:.1%}" if p.get("precision") is not None else "",
            f"{p['seconds']:.1f} s",
        ]
        for p in parts
    ]
    columns = ("experiment", "preset", "data set", "users", "seeds, at most", "regret given the users", "time")
    total = f"{sum(part['seconds'] for part in parts):,.0f} s in all; what was found on disk is not counted again."
    yield Table("Run times and precision", columns, rows, total)
    commands = record.get("commands") or [record["command"]]
    yield facts({"command": "\n".join(commands), "made": record["created"], **record.get("settings", {})}, record)

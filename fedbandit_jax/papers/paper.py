"""The experiments of a paper as data: what is played, claimed and published; and how they are judged.

A claim holds, does not hold or is undecided by intervals, as in `verdict`. One about a published figure compares two
means: the interval of their difference allows for the standard errors of both. It does not hold if that interval leaves
out 0, holds if it has 0 and reaches no further than a tenth of the figure, and is undecided if it is wider.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.papers.record import Paper, Record, tell
from fedbandit_jax.papers.verdict import FAILS, HOLDS, UNDECIDED, Row, apart, decide
from fedbandit_jax.results import statistics
from fedbandit_jax.results.numbers import number, with_half
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

PRESET = "paper"  # constants are those of the paper
NEAR = 0.1  # of a published figure: an interval that is wider says too little to agree
CHECKPOINTS = 60


@dataclass(frozen=True)
class Published:
    """A figure of the paper: a mean over some runs, and their standard deviation; None if it is not told."""

    mean: float
    sd: float | None = None
    runs: int = 1

    def __str__(self) -> str:
        spread = "" if self.sd is None else f", sd {number(self.sd)}"
        return f"{number(self.mean)} ({self.runs} runs{spread})"


@dataclass(frozen=True)
class Claim:
    """A sentence, and how results judge it: a row of verdict, value, low, high and figure."""

    text: str
    judge: Callable[[Results], Row]
    why: str = ""  # what is known of the reason, if it does not hold


@dataclass(frozen=True)
class Experiment:
    """What is played, what its figure shows, and what is claimed of it."""

    id: str
    title: str
    claim: str  # in a sentence, for the page
    algorithms: tuple[Algorithm, ...]
    catalog: Callable[[int], Catalog]  # of a seed
    clients: int
    arms: int
    horizon: int
    noise: float
    claims: tuple[Claim, ...]
    world: World = dataclasses.field(default_factory=World)
    users: int = 1
    seeds: int = 20
    quick_seeds: int = 4
    dtype: str = "auto"
    metric: str = "regret"
    x: str = "round"
    cost: str = ""  # a metric that the regret is drawn against besides
    last_round: int | None = None

    @property
    def runs(self) -> int:
        return self.users * self.seeds


# ------------------------------------------------------------------------------------------------------------- play


def reproduce_paper(
    paper: Paper,
    experiments: Sequence[str] = (),
    *,
    out: str | Path,
    seeds: int | None = None,
    seed: int = 0,
    quick: bool = False,
    command: str = "",
    say: Callable[[str], None] = print,
) -> list[Row]:
    """Play a paper's experiments, all by default, and return the rows of the verdict.

    Everything is found again by a later call, which plays what is missing and leaves other experiments alone.
    """
    chosen = chosen_experiments(paper, experiments)
    catalogs = {}
    for experiment in chosen:
        catalog = experiment.catalog(seed)
        catalogs[catalog.name] = catalog
    record = Record(
        Path(out),
        paper.name,
        {"seed": seed, "quick": quick},
        catalogs,
        command,
        must_agree=("seed", "quick"),
        presets=(PRESET,),
        experiments=list(paper.experiments),
    )
    found: list[Row] = []
    for experiment in chosen:
        began, catalog = time.perf_counter(), experiment.catalog(seed)
        count = seeds or (experiment.quick_seeds if quick else experiment.seeds)
        say(f"{paper.name} / {experiment.id}: {experiment.title}, {experiment.users * count} runs of each ...")
        folder = Path(catalog.name) / PRESET / experiment.id
        results = play(experiment, catalog, count, record.folder / folder, seed)
        part = {"experiment": experiment.id, "preset": PRESET, "dataset": catalog.name}
        rows = [part | row for row in judge(experiment, results)]
        told = {"users": experiment.users, "seeds": count, "seconds": round(time.perf_counter() - began, 1)}
        record.add([part | {"folder": str(folder)} | told], rows)
        tell(rows, say)
        found += rows
    return found


def chosen_experiments(paper: Paper, names: Sequence[str]) -> list[Experiment]:
    for name in names:
        _checks.choice("experiment", name, paper.experiments)
    return [paper.experiments[name] for name in (names or paper.experiments)]


def play(experiment: Experiment, catalog: Catalog, seeds: int, out: Path, seed: int = 0) -> Results:
    return sweep(
        catalog,
        experiment.algorithms,
        clients=experiment.clients,
        arms=experiment.arms,
        horizon=experiment.horizon,
        noise=experiment.noise,
        world=experiment.world,
        users=experiment.users,
        seeds=seeds,
        seed=seed,
        checkpoints=CHECKPOINTS,
        dtype=experiment.dtype,
        out=out,
    )


def judge(experiment: Experiment, results: Results) -> list[Row]:
    """The rows of an experiment's claims."""
    rows = []
    for claim in experiment.claims:
        row = claim.judge(results)
        why = claim.why if row["verdict"] == FAILS else ""
        rows.append({"claim": claim.text, **row, "confidence": statistics.CONFIDENCE, "why": why})
    return rows


def describe(paper: Paper, experiments: Sequence[str], *, out: str | Path, quick: bool, seeds: int | None) -> list[str]:
    """What `reproduce_paper` would run, a line an experiment."""
    lines = []
    for one in chosen_experiments(paper, experiments):
        count = one.users * (seeds or (one.quick_seeds if quick else one.seeds))
        titles = ", ".join(dict.fromkeys(algorithm.title for algorithm in one.algorithms))
        lines.append(
            f"{paper.name} / {one.id}: {titles}; M={one.clients}, K={one.arms}, T={one.horizon}, {count} runs of each"
        )
    return [*lines, f"runs go to {out}"]


# ------------------------------------------------------------------------------------------------- kinds of claims


def agrees(
    label: str, metrics: str | Sequence[str], published: Published, *, per: float = 1.0, what: str = "", why: str = ""
) -> Claim:
    """A final metric, or the sum of several, `per` so many, has the published mean within the errors of both."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    what = what or names[0]

    def judge(results: Results) -> Row:
        final = results.only(label).final()
        values = final[names].sum(axis=1, skipna=False).to_numpy(float) / per
        mean, half = float(values.mean()), float(welch(values, published))
        low, high = (100 * (mean + side * half - published.mean) / published.mean for side in (-1, 1))
        differs = 100 * (mean / published.mean - 1)
        verdict = decide(low, high, -100 * NEAR, 100 * NEAR) if low <= 0 <= high else FAILS
        return {
            "verdict": verdict if np.isfinite(half) else UNDECIDED,
            "value": differs,
            "low": low,
            "high": high,
            "figure": f"{with_half(mean, own_half(values))} {what}, {differs:+.1f} % [{low:+.1f}, {high:+.1f}]",
        }

    return Claim(f"{label}: {published} {what}", judge, why)


def own_half(values: np.ndarray) -> float:
    return float(statistics.half_width(values)) if len(values) > 1 else float("nan")


def welch(values: np.ndarray, published: Published) -> float:
    """Half the 95 % interval of our mean less the published one; a spread that is not told is taken to be ours."""
    n, N = len(values), published.runs
    if n < 2:
        return float("nan")
    own = float(values.var(ddof=1))
    theirs = own if published.sd is None else published.sd**2
    parts = own / n, theirs / N
    if sum(parts) == 0:
        return 0.0
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (n - 1) + parts[1] ** 2 / max(N - 1, 1))
    return float(statistics.t_quantile(freedom + 1) * np.sqrt(sum(parts)))


def below(label: str, other: str, metrics: str | Sequence[str] = "regret", what: str = "", why: str = "") -> Claim:
    """A final metric, or the sum of several, is lower than another algorithm's, paired."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    what = what or names[0]

    def judge(results: Results) -> Row:
        table = results.final()
        table = table.assign(value=table[names].sum(axis=1, skipna=False))
        pairs = table.pivot_table(index=["user", "seed"], columns="label", values="value")[[label, other]].dropna()
        found = statistics.paired(pairs)
        value, low, high = (found[name] for name in ("percent_below", "low", "high"))
        return {
            "verdict": decide(low, high, least=0.0),
            "value": value,
            "low": low,
            "high": high,
            "figure": f"{what} {apart(value, low, high, other)}",
        }

    return Claim(f"{label}: {'less' if what == 'regret' else 'fewer'} {what} than {other}", judge, why)


def bounded(algorithm: str, metric: str, text: str, bound: Callable[[Any], Any]) -> Claim:
    """A final metric is within a bound, which is a function of the table, in every run of an algorithm."""

    def judge(results: Results) -> Row:
        final = results.final()
        final = final[final["algorithm"] == algorithm]
        share = (final[metric] / bound(final)).to_numpy(float)
        inside = bool((share <= 1).all())
        return {
            "verdict": HOLDS if inside else FAILS,
            "value": 100 * float(share.max()),
            "low": 100 * float(share.min()),
            "high": 100 * float(share.max()),
            "figure": f"{(share <= 1).sum()} of {len(share)} runs; {share.min():.0%} to {share.max():.0%} of the bound",
        }

    return Claim(text, judge)

"""The experiments of a paper as data: what is played, claimed and published; and how they are played.

Kinds of claims are in `claims`.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.papers.claims import Claim
from fedbandit_jax.papers.record import Paper, Record, tell
from fedbandit_jax.papers.verdict import FAILS, Row
from fedbandit_jax.results import statistics
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

PRESET = "paper"  # constants are those of the paper
CHECKPOINTS = 60
NO_DATA: Mapping[str, Catalog] = {}


@dataclass(frozen=True)
class Experiment:
    """What is played, what its figure shows, and what is claimed of it."""

    id: str
    title: str
    claim: str  # in a sentence, for the page
    algorithms: tuple[Algorithm, ...]
    catalog: Callable[[int], Catalog] | str  # of a seed; or the name of data that must be given
    clients: int | tuple[int, ...]
    arms: int
    horizon: int
    noise: float
    claims: tuple[Claim, ...]
    world: World = dataclasses.field(default_factory=World)
    besides: tuple[tuple[World, tuple[Algorithm, ...]], ...] = ()  # more algorithms, in other worlds
    users: int | tuple[int, ...] = 1  # the first of the catalog, or which
    seeds: int = 20
    quick_users: int | None = None  # None: as many
    quick_seeds: int = 4
    dtype: str = "auto"
    metric: str = "regret"
    x: str = "round"
    cost: str = ""  # a metric that the regret is drawn against besides
    last_round: int | None = None

    @property
    def user_count(self) -> int:
        return self.users if isinstance(self.users, int) else len(self.users)

    @property
    def runs(self) -> int:
        return self.user_count * self.seeds

    def quick(self) -> "Experiment":
        """With fewer users and seeds."""
        count = self.quick_users or self.user_count
        users = count if isinstance(self.users, int) else self.users[:count]
        return dataclasses.replace(self, users=users, seeds=self.quick_seeds)

    @property
    def groups(self) -> tuple[tuple[World, tuple[Algorithm, ...]], ...]:
        """Worlds, and who plays in each."""
        return ((self.world, self.algorithms), *self.besides)


# ------------------------------------------------------------------------------------------------------------- play


def reproduce_paper(
    paper: Paper,
    experiments: Sequence[str] = (),
    *,
    out: str | Path,
    seeds: int | None = None,
    seed: int = 0,
    quick: bool = False,
    data: Mapping[str, Catalog] = NO_DATA,
    command: str = "",
    say: Callable[[str], None] = print,
) -> list[Row]:
    """Play a paper's experiments, all by default, and return the rows of the verdict.

    `data` are the catalogs that it needs and cannot draw, by name. Everything is found again by a later call, which
    plays what is missing and leaves other experiments alone.
    """
    chosen = chosen_experiments(paper, experiments, quick=quick, seeds=seeds)
    check_data(paper, data)
    catalogs = {}
    for experiment in chosen:
        name, catalog = catalog_of(experiment, seed, data)
        catalogs[name] = catalog
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
        began, (name, catalog) = time.perf_counter(), catalog_of(experiment, seed, data)
        say(f"{paper.name} / {experiment.id}: {experiment.title}, {experiment.runs} runs of each ...")
        folder = Path(name) / PRESET / experiment.id
        results = play(experiment, catalog, record.folder / folder, seed)
        part = {"experiment": experiment.id, "preset": PRESET, "dataset": name}
        rows = [part | row for row in judge(experiment, results)]
        seconds = round(time.perf_counter() - began, 1)
        told = {"users": experiment.user_count, "seeds": experiment.seeds, "seconds": seconds}
        record.add([part | {"folder": str(folder)} | told], rows)
        tell(rows, say)
        found += rows
    return found


def check_data(paper: Paper, data: Mapping[str, object]) -> None:
    """All that a paper needs is given, and nothing else."""
    for name in data:
        if name not in paper.data:
            needs = f"{paper.name} needs {paper.data[0]} alone" if paper.data else f"{paper.name} needs no data"
            _checks.fail("data", name, f"{needs}: leave it out")
    for name in paper.data:
        if name not in data:
            allowed = f"{paper.name} is played on files of its authors: give them as --data {name}=FOLDER"
            _checks.fail("data", list(data), allowed)


def catalog_of(experiment: Experiment, seed: int, data: Mapping[str, Catalog]) -> tuple[str, Catalog]:
    """What it is played on, and the name of that in folders and tables."""
    if isinstance(experiment.catalog, str):
        return experiment.catalog, data[experiment.catalog]
    catalog = experiment.catalog(seed)
    return catalog.name, catalog


def chosen_experiments(
    paper: Paper, names: Sequence[str], *, quick: bool = False, seeds: int | None = None
) -> list[Experiment]:
    """Those of the names, or all, with as many users and seeds as are to be played."""
    for name in names:
        _checks.choice("experiment", name, paper.experiments)
    chosen = [paper.experiments[name] for name in (names or paper.experiments)]
    if quick:
        chosen = [experiment.quick() for experiment in chosen]
    return [dataclasses.replace(one, seeds=seeds or one.seeds) for one in chosen]


def play(experiment: Experiment, catalog: Catalog, out: Path, seed: int = 0) -> Results:
    """The results of all worlds of an experiment, in one folder."""
    parts = [
        sweep(
            catalog,
            algorithms,
            clients=experiment.clients,
            arms=experiment.arms,
            horizon=experiment.horizon,
            noise=experiment.noise,
            world=world,
            users=experiment.users,
            seeds=experiment.seeds,
            seed=seed,
            checkpoints=CHECKPOINTS,
            dtype=experiment.dtype,
            out=out,
        )
        for world, algorithms in experiment.groups
    ]
    if len(parts) == 1:
        return parts[0]
    return Results.from_tables([(part.to_pandas(), part.phases()) for part in parts], parts[0].settings)


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
    for one in chosen_experiments(paper, experiments, quick=quick, seeds=seeds):
        titles = ", ".join(dict.fromkeys(algorithm.title for _, group in one.groups for algorithm in group))
        M = ",".join(map(str, one.clients)) if isinstance(one.clients, tuple) else one.clients
        lines.append(
            f"{paper.name} / {one.id}: {titles}; M={M}, K={one.arms}, T={one.horizon}, {one.runs} runs of each"
        )
    return [*lines, f"runs go to {out}"]

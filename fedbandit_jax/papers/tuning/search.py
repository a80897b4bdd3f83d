"""`tune`: the best hyperparameters of every algorithm, with an equal budget and on users of their own.

Trials      an algorithm as it is given, then Sobol points of the space that its hyperparameters declare
            (`param(search=...)`); fewer trials are the first of more.
Rungs       all trials on few runs, the best quarter on three times as many, the best sixteenth on all of them. What is
            given stays to the end. All trials of a rung meet the same users, arm sets and noise, and keep their runs.
The best    has the lowest mean final regret in the last rung. It and what was given are then scored on other users.

A tuner that learns from its trials, such as Optuna's TPE, would have to wait for each of them. Sobol points are all
known beforehand: they share compiled programs, and chunks of runs are full.
"""

import itertools
import math
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, expand, search_space
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine import calls, processes
from fedbandit_jax.engine.cells import check_algorithms, check_worlds, labels
from fedbandit_jax.engine.progress import Listener, check_progress
from fedbandit_jax.engine.store import NotFiniteError
from fedbandit_jax.engine.sweep import make_sweep
from fedbandit_jax.papers.tuning.tuned import Rung, Trial, Tuning
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog

LEAST_RUNS = 40  # of a trial in the last rung
KEEP = 4  # keep the best 1/KEEP of the trials
GROWTH = 3  # to so many times the runs
RUNGS = 3
FINALISTS = 8  # at least: rare bad runs show late
MOST_TRIALS = 10**4
REFUSED = 16  # times as many points as trials are looked at, as an algorithm may refuse some


def tune(
    catalog: Catalog,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    trials: int = 128,
    users: int | Iterable[int] | np.ndarray = 20,
    score_users: int | Iterable[int] | np.ndarray | None = None,
    seeds: int | None = None,
    clients: int = 10,
    arms: int = 100,
    horizon: int = 6000,
    noise: float = 0.1,
    seed: int = 0,
    words: bool = True,
    progress: bool | Listener | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Tuning:
    """Tune every algorithm in one setting; `.algorithms` has the best of each, ready for `simulate`.

    Every algorithm has the same number of runs, which `tuning.rungs` tells. Algorithms with nothing to tune
    are only evaluated.

    Args:
        catalog: what federations are drawn from.
        algorithms: one or a list; what they are given as is their first trial.
        trials: of each algorithm.
        users: how many users of the catalog to tune on, the first of them, or their indices.
        score_users: how many other users to score the best on, those that follow, or their indices; by default as many.
        seeds: of each user in the last rung; by default as many as make 40 runs.
        clients, arms, horizon, noise, seed: the setting, as in `simulate`.
        words: tune hyperparameters that are words, too; each combination of words is another program.
        progress: as in `sweep`; records say which rung it is.
        out: a folder that keeps finished runs as the tuning goes: the same call, or one with more trials, goes on.
        options: others of `sweep`, such as `world`, one of them, and `memory`; `checkpoints` is 1 here, as the last
            round decides, and 128 gives `scores` curves.
    """
    player = Player(
        catalog,
        {"clients": clients, "arms": arms, "horizon": horizon, "noise": noise, "seed": seed, "checkpoints": 1}
        | options,
        progress,
        out,
    )
    tuned_on, scored_on = choose_users(catalog, users, score_users)
    with player:
        given, tried, rungs = player.plan(algorithms, trials, tuned_on, seeds, words)
        runs = player.climb(tried, rungs)
        best = winners(tried, runs)
        finals = list(dict.fromkeys([*best, *(trial for trial in tried if trial.number == 0)]))
        last = Rung(len(finals), tuple(scored_on), rungs[-1].seeds)
        scored, scores = player.play(finals, last, len(rungs), len(rungs))
    return Tuning(given, tuple(tried), tuple(best), rungs, last, runs, scored, scores)


def search(
    catalog: Catalog,
    algorithms: Sequence[Algorithm],
    *,
    trials: int,
    users: Sequence[int],
    seeds: int | None,
    words: bool,
    out: Path,
    **setting: Any,
) -> dict[str, Algorithm]:
    """The best of each algorithm, by its title, without scores."""
    player = Player(catalog, setting, None, out)
    with player:
        given, tried, rungs = player.plan(algorithms, trials, users, seeds, words)
        best = winners(tried, player.climb(tried, rungs))
    return {algorithm.title: trial.algorithm for algorithm, trial in zip(given, best, strict=True)}


# ------------------------------------------------------------------------------------------------- trials and rungs


def draw_trials(algorithm: Algorithm, count: int, *, words: bool = True, **setting: Any) -> list[Algorithm]:
    """The algorithm and count - 1 different points of its space that it does not refuse; fewer if there are no more.

    Without `words` only numbers are drawn, so that all trials share a program.
    """
    algorithm.check(**setting)
    found: dict[tuple, Algorithm] = {identity(algorithm, setting["horizon"]): algorithm}
    refusal: ValueError | None = None
    for trial in points(algorithm, words, REFUSED * count):
        if len(found) >= count:
            break
        try:
            trial.check(**setting)
        except ValueError as error:
            refusal = error
        else:
            found.setdefault(identity(trial, setting["horizon"]), trial)
    if len(found) == 1 < count and refusal is not None:
        raise refusal
    return list(found.values())


def points(algorithm: Algorithm, words: bool, most: int) -> Iterator[Algorithm]:
    """An algorithm at the points of a scrambled Sobol sequence, the same ones every time."""
    from scipy.stats import qmc  # here, as it is slow to import

    space = {name: one for name, one in search_space(type(algorithm)).items() if words or isinstance(one, Between)}
    if not space:
        return
    rng = np.random.default_rng(zlib.crc32(algorithm.title.encode()))
    sequence = qmc.Sobol(len(space), seed=rng).random_base2(math.ceil(math.log2(most)))
    for point in sequence:
        at = zip(space.items(), point, strict=True)
        yield algorithm.replace(**{name: values.at(float(place)) for (name, values), place in at})


def identity(algorithm: Algorithm, horizon: int) -> tuple:
    """What tells trials apart: what they are once the horizon is known."""
    return tuple(algorithm.prepare(horizon).hyperparameters().items())


def rungs_of(trials: int, users: Sequence[int], seeds: int) -> tuple[Rung, ...]:
    """Trials, users and seeds of every rung; the last has all users and seeds."""
    found: list[Rung] = []
    for rung in range(RUNGS):
        size = min(trials, max(FINALISTS, trials // KEEP**rung))
        wanted = math.ceil(len(users) * seeds / GROWTH ** (RUNGS - 1 - rung))
        several = min(len(users), wanted)
        if found and found[-1].trials == size:
            found.pop()  # it would drop nobody
        found.append(Rung(size, tuple(users[:several]), min(seeds, max(1, round(wanted / several)))))
    return tuple(found)


def survivors(trials: Sequence[Trial], means: pd.Series, count: int) -> list[Trial]:
    """For every algorithm, the trial that was given and its best others, `count` in all."""
    kept = set()
    for _, own in itertools.groupby(trials, key=lambda trial: trial.owner):
        first, *others = (trial.key for trial in own)
        kept |= {first, *sorted(others, key=lambda key: means[key])[: count - 1]}
    return [trial for trial in trials if trial.key in kept]


def winners(trials: Sequence[Trial], runs: pd.DataFrame) -> list[Trial]:
    """The best of every algorithm among those that came to the last rung; one that has no space is its own best."""
    last = runs[runs["rung"] == runs["rung"].max()] if len(runs) else runs
    means = last.groupby(["algorithm", "trial"], sort=False)["regret"].mean()
    best: dict[str, tuple[float, Trial]] = {}
    for trial in trials:
        mean = means.get(trial.key, math.inf)
        if trial.owner not in best or mean < best[trial.owner][0]:
            best[trial.owner] = (mean, trial)
    return [trial for _, trial in best.values()]


# ---------------------------------------------------------------------------------------------------------- arguments


def choose_users(catalog: Catalog, users: Any, score_users: Any) -> tuple[Sequence[int], Sequence[int]]:
    """Those to tune on and others to score on."""
    available = len(catalog.users)
    tuned_on = _checks.indices("users", users, available, f"the users of {catalog.name}")
    taken = set(tuned_on)
    others = [user for user in range(available) if user not in taken]
    others.sort(key=lambda user: user < max(tuned_on))  # those that follow come first
    score_users = _checks.plain(score_users)
    if score_users is None or _checks.is_number(score_users):
        count = len(tuned_on) if score_users is None else _checks.whole("score_users", score_users)
        if count > len(others):
            allowed = f"{catalog.name} has {len(others)} users besides the {len(tuned_on)} that it is tuned on"
            _checks.fail("score_users", count, allowed)
        return tuned_on, others[:count]
    scored_on = _checks.indices("score_users", score_users, available, f"the users of {catalog.name}")
    both = sorted(set(tuned_on) & set(scored_on))
    if both:
        _checks.fail("score_users", scored_on, f"it must name other users than it is tuned on, but {both[0]} is both")
    return tuned_on, scored_on


def check_different(algorithms: Sequence[Algorithm]) -> None:
    """No two of them differ only in what is tuned."""
    seen: set[tuple] = set()
    for algorithm in algorithms:
        space = search_space(type(algorithm))
        rest = tuple((k, v) for k, v in algorithm.hyperparameters().items() if k not in space)
        if (type(algorithm), rest) in seen:
            _checks.fail("algorithms", algorithm, f"it is there twice, but for what is tuned: {', '.join(space)}")
        seen.add((type(algorithm), rest))


# --------------------------------------------------------------------------------------------------------------- play


class Player:
    """Plays trials in one setting, in a folder of its own if none is given; used with `with`."""

    def __init__(
        self, catalog: Catalog, setting: dict[str, Any], progress: bool | Listener | None, out: str | Path | None
    ) -> None:
        for name in ("clients", "arms", "horizon", "noise"):
            if _checks.is_list(setting[name]):
                _checks.fail(name, setting[name], "tune takes one number, as constants depend on the setting")
        if not isinstance(catalog, Catalog):
            _checks.fail("catalog", catalog, "it must be one Catalog, such as datasets.synthetic()")
        if len(check_worlds(setting.get("world"))) > 1:
            _checks.fail("world", setting["world"], "tune takes one world, as constants depend on it")
        check_progress(progress)
        self.folder = None if out is None else _checks.path("out", out)
        processes.check(out)
        self.catalog, self.setting, self.progress, self.out = catalog, setting, progress, out
        self.held = ExitStack()

    def __enter__(self) -> "Player":
        if self.folder is None:
            self.folder = Path(self.held.enter_context(tempfile.TemporaryDirectory())) / "runs"
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def plan(
        self, algorithms: Any, trials: Any, users: Sequence[int], seeds: Any, words: bool
    ) -> tuple[tuple[Algorithm, ...], list[Trial], tuple[Rung, ...]]:
        """What is given, one by one, their trials and the rungs."""
        count = _checks.whole("trials", trials, 2, MOST_TRIALS)
        _checks.flag("words", words)
        needed = math.ceil(LEAST_RUNS / len(users)) if seeds is None else _checks.whole("seeds", seeds)
        several = check_algorithms(algorithms)
        checked = make_sweep(self.catalog, several, users=users, seeds=needed, **self.without_memory())
        given = tuple(variant for algorithm in several for variant in expand(algorithm))
        check_different(given)
        where = checked.cells[0].setting(self.catalog.dim)
        self.setting["horizon"] = where["horizon"]
        tried = []
        with warnings.catch_warnings():
            quiet()
            for owner, algorithm in zip(labels(given), given, strict=True):
                drawn = draw_trials(algorithm, count, words=words, **where)
                tried += [Trial(owner, number, trial) for number, trial in enumerate(drawn)]
        return given, tried, rungs_of(count, users, needed)

    def without_memory(self) -> dict[str, Any]:
        return {name: value for name, value in self.setting.items() if name != "memory"}

    def climb(self, trials: Sequence[Trial], rungs: Sequence[Rung]) -> pd.DataFrame:
        """All runs of every trial, and the rung that it came to."""
        several = {owner for owner, own in itertools.groupby(trials, key=lambda t: t.owner) if len(list(own)) > 1}
        left = [trial for trial in trials if trial.owner in several]
        columns = ["algorithm", "trial", "user", "seed", "regret", "rung"]
        played, means = pd.DataFrame(columns=columns).astype({"rung": int, "regret": float}), pd.Series(dtype=float)
        for number, rung in enumerate(rungs if left else ()):
            left = survivors(left, means, rung.trials) if number else left
            runs, _ = self.play(left, rung, number, len(rungs))
            means = runs.groupby(["algorithm", "trial"], sort=False)["regret"].mean()
            for owner, best in means.groupby(level=0).min().items():
                if not math.isfinite(best):
                    raise FloatingPointError(f"no trial of {owner} ends in finite numbers")
            runs = runs.assign(rung=number + 1)
            before = played.set_index(["algorithm", "trial"]).index.isin(means.index)
            played = pd.concat([played[~before], runs]) if number else runs
        return played.reset_index(drop=True)

    def play(self, trials: Sequence[Trial], rung: Rung, number: int, rungs: int) -> tuple[pd.DataFrame, Results]:
        """Final regrets of trials, infinite where a run was not finite."""

        def tell(facts: dict[str, Any]) -> None:
            assert callable(self.progress)
            self.progress(facts | {"rung": number + 1, "rungs": rungs, "scoring": number == rungs})

        where = "scoring" if number == rungs else f"rung {number + 1} of {rungs}"
        if self.progress is True or (self.progress is None and sys.stderr.isatty()):
            print(f"{where}: {len(trials)} trials, {rung.runs} runs each", file=sys.stderr)
        arguments = self.setting | {"users": rung.users, "seeds": rung.seeds, "out": self.folder}
        try:
            with warnings.catch_warnings():
                quiet()
                results = calls.sweep(
                    self.catalog,
                    [trial.algorithm for trial in trials],
                    **arguments,
                    progress=tell if callable(self.progress) else self.progress,
                )
        except NotFiniteError as error:
            results = error.results
        except KeyboardInterrupt:
            goes_on = f"finished runs are kept; the same call with out={str(self.out)!r} goes on"
            kept = "without out= nothing is kept" if self.out is None else goes_on
            raise KeyboardInterrupt(f"stopped in {where}: {kept}") from None
        if self.out is None:
            results.settings.pop("out", None)
        return regrets(trials, rung, results, self.setting["horizon"]), results


def regrets(trials: Sequence[Trial], rung: Rung, results: Results, horizon: int) -> pd.DataFrame:
    """A row for each trial, user and seed, in this order."""
    names = labels([trial.algorithm.prepare(horizon) for trial in trials])
    final = results.final().set_index(["label", "user", "seed"])["regret"]
    pairs = list(itertools.product(range(len(trials)), rung.users, range(rung.seeds)))
    wanted = pd.MultiIndex.from_tuples([(names[i], user, seed) for i, user, seed in pairs])
    return pd.DataFrame(
        {
            "algorithm": [trials[i].owner for i, _, _ in pairs],
            "trial": [trials[i].number for i, _, _ in pairs],
            "user": [user for _, user, _ in pairs],
            "seed": [seed for _, _, seed in pairs],
            "regret": final.reindex(wanted).fillna(math.inf).to_numpy(),
        }
    )


def quiet() -> None:
    """Many trials have a first phase that is too long: their regret tells."""
    warnings.filterwarnings("ignore", "horizon=.* is shorter than the first (phase|exploration)")

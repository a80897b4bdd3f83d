"""Tuning: what `tune` found, as tables and figures.

A trial that left early is known on fewer runs than the best. Its `estimate` is the best's regret in the last rung times
the ratio of the two on the runs that both have, and never less than the best's: who left was behind on those runs,
unless the best is what was given, which stays in any case.

A search has converged if the second half of its trials lowered the best by less than 3 %. If by more, it has not, or it
is unclear: the paired 95 % interval of that gain reaches 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fedbandit_jax._parameters import Between, OneOf, search_space
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.results import statistics
from fedbandit_jax.results.numbers import Table, number, with_interval
from fedbandit_jax.results.results import Results

if TYPE_CHECKING:
    from fedbandit_jax.papers.tuning.plots import TuningPlots

SMALL_GAIN = 3.0  # percent: a search whose second half gains less has converged
EDGE = 0.05  # of a space: a best value that is nearer to an end asks for a wider one


class Rung(NamedTuple):
    """How many trials of each algorithm are played, on which users and how many seeds of each."""

    trials: int
    users: tuple[int, ...]
    seeds: int

    @property
    def runs(self) -> int:
        """Runs of each trial."""
        return len(self.users) * self.seeds


class Trial(NamedTuple):
    """A point of an algorithm's space; number 0 is the algorithm as it was given."""

    owner: str  # the algorithm's label
    number: int
    algorithm: Algorithm

    @property
    def key(self) -> tuple[str, int]:
        return self.owner, self.number


@dataclass(frozen=True, eq=False)
class Tuning:
    """The best of each algorithm, how it was found, and what it is worth on other users."""

    given: tuple[Algorithm, ...]
    tried: tuple[Trial, ...]
    best: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    scoring: Rung
    runs: pd.DataFrame  # a row per trial, user and seed, with the rung that the trial came to
    scored: pd.DataFrame  # the same of the best and of what was given, on other users
    scores: Results  # of these

    @property
    def algorithms(self) -> list[Algorithm]:
        """The best, in the order given, ready for `simulate`."""
        return [trial.algorithm for trial in self.best]

    @property
    def budget(self) -> int:
        """Runs that each algorithm had to be tuned."""
        return budget_of(self.rungs)

    def table(self) -> pd.DataFrame:
        """A row per algorithm: what was found, and its mean final regret with 95 % intervals on other users.

        `tuning` is the best's mean on the users it was tuned on, `mean` that on others; `given` is the mean of what was
        given, on others. `percent_below` says how far the best is below it, paired; `late_gain` by how many percent the
        second half of the trials lowered the best.
        """
        return Table([self._row(trial) for trial in self.best])

    def _row(self, best: Trial) -> dict[str, Any]:
        scored = {number: runs for number, runs in of(self.scored, best.owner).groupby("trial")}
        found, given = (statistics.mean_interval(scored[number], "regret") for number in (best.number, 0))
        scores = by_trial(of(self.scored, best.owner))
        gain, converged = self._late_gain(best)
        own = of(self.runs, best.owner)
        told = self.space_of(best.owner)
        return {
            "algorithm": best.owner,
            "settings": ", ".join(f"{name}={show(getattr(best.algorithm, name))}" for name in told),
            "tuning": own.loc[own["trial"] == best.number, "regret"].mean(),
            **{name: found[name] for name in ("mean", "low", "high")},
            **{name: given[old] for name, old in (("given", "mean"), ("given_low", "low"), ("given_high", "high"))},
            "percent_below": paired(scores[best.key], scores[best.owner, 0])["percent_below"] if best.number else 0.0,
            "runs": len(own),
            "late_gain": gain,
            "converged": converged,
        }

    def settings(self) -> pd.DataFrame:
        """A row per tuned hyperparameter: what was given, the best, and the range of what is as good.

        `low` to `high` are the finalists whose paired 95 % interval does not tell them from the best. `at_edge` says
        that the best is within 5 % of an end of its space, so that a wider one may have better.
        """
        rows = []
        for given, best in zip(self.given, self.best, strict=True):
            good = [trial.algorithm for trial in self.tried if trial.owner == best.owner and self._as_good(trial, best)]
            for name, values in self.space_of(best.owner).items():
                chosen, numbers = getattr(best.algorithm, name), [getattr(algorithm, name) for algorithm in good]
                numbers = [value for value in numbers if isinstance(value, int | float)]
                rows.append(
                    {
                        "algorithm": best.owner,
                        "hyperparameter": name,
                        "given": getattr(given, name),
                        "best": chosen,
                        "low": min(numbers, default=math.nan),
                        "high": max(numbers, default=math.nan),
                        "at_edge": best.number > 0 and at_edge(values, chosen),
                    }
                )
        return Table(rows)

    def trials(self) -> pd.DataFrame:
        """A row per trial: its hyperparameters, the rung it came to, its runs and their mean regret, its estimate."""
        return Table(self._trials.copy())

    def progress(self) -> pd.DataFrame:
        """The best so far against the budget: the lowest estimate among the first trials, and the runs of all these."""
        table = self._trials[self._trials["runs"] > 0]
        groups = table.groupby("algorithm", sort=False)
        return Table(
            {
                "algorithm": table["algorithm"],
                "trials": groups.cumcount() + 1,
                "runs": groups["runs"].cumsum(),
                "regret": groups["estimate"].cummin(),
            }
        ).reset_index(drop=True)

    def space_of(self, owner: str) -> Mapping[str, Between | OneOf]:
        """What is tuned of an algorithm; nothing if it has one trial."""
        own = [trial for trial in self.tried if trial.owner == owner]
        space = search_space(type(own[0].algorithm))
        return {name: one for name, one in space.items() if len({getattr(t.algorithm, name) for t in own}) > 1}

    @property
    def plot(self) -> "TuningPlots":
        from fedbandit_jax.papers.tuning.plots import TuningPlots  # matplotlib is slow to import and not always wanted

        return TuningPlots(self)

    def in_short(self) -> pd.DataFrame:
        """The table as texts, for people."""
        table = self.table()
        return pd.DataFrame(
            {
                "algorithm": table["algorithm"],
                "settings": table["settings"],
                "regret": means(table, "mean", "low", "high"),
                "as given": means(table, "given", "given_low", "given_high"),
                "tuning": table["tuning"].map(lambda mean: number(mean) if math.isfinite(mean) else ""),
                "runs": table["runs"].map(str),
                "converged": table["converged"],
            }
        )

    def __repr__(self) -> str:
        return self.in_short().to_string(index=False)

    # --------------------------------------------------------------------------------------------------- behind them

    @cached_property
    def _trials(self) -> pd.DataFrame:
        groups = self.runs.groupby(["algorithm", "trial"], sort=False)
        played = pd.DataFrame({"rung": groups["rung"].max(), "runs": groups.size(), "mean": groups["regret"].mean()})
        names = list(dict.fromkeys(name for trial in self.best for name in self.space_of(trial.owner)))
        best = {trial.owner: trial for trial in self.best}
        rows = []
        for trial in self.tried:
            found = played.loc[trial.key] if trial.key in played.index else {"rung": 0, "runs": 0, "mean": math.nan}
            rows.append(
                {
                    "algorithm": trial.owner,
                    "trial": trial.number,
                    **{name: getattr(trial.algorithm, name, math.nan) for name in names},
                    "rung": int(found["rung"]),
                    "runs": int(found["runs"]),
                    "mean": found["mean"],
                    "estimate": self._estimate(trial, best[trial.owner]),
                    "best": trial == best[trial.owner],
                }
            )
        return pd.DataFrame(rows)

    @cached_property
    def _regret(self) -> dict[tuple[str, int], pd.Series]:
        return by_trial(self.runs)

    def _estimate(self, trial: Trial, best: Trial) -> float:
        if trial.key not in self._regret:
            return math.nan
        own, base = self._regret[trial.key], self._regret[best.key]
        here = base.loc[own.index].mean()
        estimate = base.mean() * own.mean() / here if here > 0 else own.mean()
        return float(max(estimate, base.mean()))

    def _late_gain(self, best: Trial) -> tuple[float, str]:
        """By how many percent the second half of the trials lowered the best; so, has the search converged?"""
        table = of(self._trials, best.owner)
        if len(table) < 2:
            return math.nan, ""
        early = table.iloc[: len(table) // 2]
        if best.number < len(early):
            return 0.0, "yes"
        first = int(early.loc[early["estimate"].idxmin(), "trial"])
        gain = paired(self._regret[best.key], self._regret[best.owner, first])
        percent = gain["percent_below"]
        return percent, "yes" if percent < SMALL_GAIN else "unclear" if gain["low"] <= 0 else "no"

    def _as_good(self, trial: Trial, best: Trial) -> bool:
        """Did a trial come to the last rung, where no interval tells it from the best?"""
        own = self._regret.get(trial.key)
        if own is None or len(own) < len(self._regret[best.key]) or not np.isfinite(own.mean()):
            return False
        return trial == best or not paired(self._regret[best.key], own)["low"] > 0


def means(table: pd.DataFrame, *names: str) -> list[str]:
    """Means with their intervals, from columns of means and of lower and upper ends."""
    return [with_interval(*ends) for ends in table[list(names)].itertuples(index=False)]


def of(table: pd.DataFrame, owner: str) -> pd.DataFrame:
    return table[table["algorithm"] == owner]


def by_trial(runs: pd.DataFrame) -> dict[tuple[str, int], pd.Series]:
    """Final regrets of every trial by user and seed."""
    groups = runs.set_index(["user", "seed"]).groupby(["algorithm", "trial"], sort=False)["regret"]
    return {(algorithm, int(trial)): regrets for (algorithm, trial), regrets in groups}


def paired(one: pd.Series, other: pd.Series) -> dict[str, float]:
    """Two trials, on the runs that both have."""
    return statistics.paired(pd.DataFrame({"one": one, "other": other}).dropna())


def budget_of(rungs: tuple[Rung, ...]) -> int:
    """Runs of an algorithm in all rungs; who goes on keeps the runs it has."""
    fewer = [*(rung.trials for rung in rungs[1:]), 0]
    return sum((rung.trials - on) * rung.runs for rung, on in zip(rungs, fewer, strict=True))


def at_edge(values: Between | OneOf, chosen: Any) -> bool:
    """Is a number near an end of its space?"""
    if isinstance(values, OneOf) or not isinstance(chosen, int | float):
        return False
    return not EDGE <= values.place(chosen) <= 1 - EDGE


def show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

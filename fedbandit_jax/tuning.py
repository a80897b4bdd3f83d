"""Tuning with an equal budget: random search, the same number of trials for every algorithm, on users of their own.

The first trial of an algorithm is its default, so that tuning can only help on the training users; the others are drawn
from SPACES. All trials of a setting are one sweep, on the same users, arm sets and noise; the best is the one of the
lowest mean final regret, whatever an experiment measures.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax import grid
from fedbandit_jax.algorithms.base import Algorithm
from fedbandit_jax.catalog import Catalog
from fedbandit_jax.experiments import CHECKPOINTS, NOISE
from fedbandit_jax.sweep import sweep


@dataclass(frozen=True)
class Between:
    """A number between two others, uniform in its logarithm or, with log=False, in itself."""

    low: float
    high: float
    log: bool = True

    def draw(self, rng: np.random.Generator) -> float:
        if not self.log:
            return float(rng.uniform(self.low, self.high))
        return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def draw(self, rng: np.random.Generator) -> str:
        return self.words[rng.integers(len(self.words))]


UCB = {"alpha": Between(0.01, 2), "lam": Between(0.01, 10)}
SPACES: dict[str, dict[str, Between | OneOf]] = {
    # C = 1 throughout, so that N C^2 >= 1.
    "FedConPE": {
        "N": Between(1, 30),
        "exploration_scale": Between(1e-3, 1),
        "elimination_scale": Between(0.03, 3),
        "rounding": OneOf(("ceil", "unbiased")),
    },
    "LinUCB": dict(UCB),
    "ArmCon": dict(UCB),
    "ConUCB": {
        "lam": Between(0.05, 0.95, log=False),
        "lam_t": Between(0.01, 10),
        "alpha": Between(0.01, 2),
        "alpha_t": Between(0.01, 2),
    },
    "ConLinUCB-BS": dict(UCB),
    "ConLinUCB-MCR": dict(UCB),
    "ConLinUCB-UCB": dict(UCB),
}


def draw_trials(algorithm: Algorithm, count: int, seed: int = 0, words: bool = True) -> list[Algorithm]:
    """The default and count - 1 draws from its space; fewer trials are a prefix of more.

    Without `words` only numbers are drawn, so that all trials share the default's program.
    """
    rng = np.random.default_rng([seed, zlib.crc32(algorithm.title.encode())])
    space = {name: values for name, values in SPACES[algorithm.title].items() if words or isinstance(values, Between)}
    drawn = [{name: values.draw(rng) for name, values in space.items()} for _ in range(count - 1)]
    return [algorithm, *(algorithm.replace(**values) for values in drawn)]


def tune(
    catalog: Catalog,
    line_up: Sequence[Algorithm],
    *,
    setting: tuple[int, int, int],
    trials: int,
    users: Sequence[int],
    seeds: int,
    out: Path,
    seed: int = 0,
    words: bool = True,
) -> dict[str, dict[str, Any]]:
    """The best constants of every algorithm at (M, K, T), by title."""
    clients, arms, horizon = setting
    tried = [trial for algorithm in line_up for trial in draw_trials(algorithm, trials, seed, words)]
    results = sweep(
        catalog,
        tried,
        clients=clients,
        arms=arms,
        horizon=horizon,
        noise=NOISE,
        users=users,
        seeds=seeds,
        seed=seed,
        checkpoints=CHECKPOINTS,
        out=out,
    )
    labels = grid.labels([trial.prepare(horizon) for trial in tried])
    means = results.final().groupby("label")["regret"].mean()
    best: dict[str, tuple[float, Algorithm]] = {}
    for label, trial in zip(labels, tried, strict=True):
        if trial.title not in best or means[label] < best[trial.title][0]:
            best[trial.title] = (float(means[label]), trial)
    chosen = {title: trial.prepare(horizon).hyperparameters() for title, (_, trial) in best.items()}
    return {title: {name: values[name] for name in SPACES[title]} for title, values in chosen.items()}

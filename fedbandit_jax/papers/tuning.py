"""Tuning with an equal budget: random search, the same number of trials for every algorithm, on users of their own.

The first trial of an algorithm is its default, so that tuning can only help on the training users; the others are drawn
from what its hyperparameters declare (`param(search=...)`). All trials of a setting are one sweep, on the same users,
arm sets and noise; the best is the one of the lowest mean final regret, whatever an experiment measures.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.parameters import Between, OneOf, declared
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.engine.cells import labels
from fedbandit_jax.papers.fedconpe import CHECKPOINTS, NOISE
from fedbandit_jax.worlds.catalog import Catalog


def search_space(algorithm: Algorithm) -> dict[str, Between | OneOf]:
    """Where to look, by hyperparameter."""
    return {name: about.search for name, about in declared(type(algorithm)).items() if about.search is not None}


def draw_trials(algorithm: Algorithm, count: int, seed: int = 0, words: bool = True) -> list[Algorithm]:
    """The default and count - 1 draws from its space; fewer trials are a prefix of more.

    Without `words` only numbers are drawn, so that all trials share the default's program.
    """
    rng = np.random.default_rng([seed, zlib.crc32(algorithm.title.encode())])
    space = {name: values for name, values in search_space(algorithm).items() if words or isinstance(values, Between)}
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
    names = labels([trial.prepare(horizon) for trial in tried])
    means = results.final().groupby("label")["regret"].mean()
    best: dict[str, tuple[float, Algorithm]] = {}
    for label, trial in zip(names, tried, strict=True):
        if trial.title not in best or means[label] < best[trial.title][0]:
            best[trial.title] = (float(means[label]), trial)
    chosen = {title: trial.prepare(horizon) for title, (_, trial) in best.items()}
    return {title: {name: getattr(trial, name) for name in search_space(trial)} for title, trial in chosen.items()}

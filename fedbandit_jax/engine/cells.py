"""A grid of settings: what is given as lists, as single cells that are checked and labelled."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Configured, check_count, combinations, expand, is_decorated
from fedbandit_jax.clocks.base import REGISTRY, Algorithm
from fedbandit_jax.results.labels import labels_of
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

MAX_HORIZON = 10**9
MAX_CLIENTS = 2**31 - 1  # the programs count them in 32 bits


@dataclass(frozen=True)
class Cell:
    """One setting: an algorithm with plain numbers, and where it plays."""

    algorithm: Algorithm
    label: str
    clients: int
    arms: int
    noise: float
    horizon: int
    world: World

    def setting(self, dim: int) -> dict[str, Any]:
        """Where it plays, as `Algorithm.check` and `Algorithm.steps` want it."""
        return {
            "dim": dim,
            "clients": self.clients,
            "arms": self.arms,
            "horizon": self.horizon,
            "noise": sigma_of(self.world, self.noise),
        }

    def steps(self, dim: int) -> int:
        return self.algorithm.steps(**self.setting(dim))

    @property
    def pulls_a_round(self) -> int:
        return self.clients if self.world.arrivals == "all" else 1

    @property
    def group(self) -> tuple:
        """Cells with the same group may share a batch: they differ in numbers only, and in no horizon."""
        return jax.tree.structure((self.algorithm, self.world)), self.horizon


def make_cells(catalog: Catalog, algorithms: Any, world: Any = None, **axes: Any) -> list[Cell]:
    """Every combination of the lists, checked."""
    given = check_algorithms(algorithms)
    worlds = check_worlds(world)
    values = {name: _checks.axis(name, value) for name, value in axes.items()}
    for value in values["clients"]:
        _checks.whole("clients", value, 1, MAX_CLIENTS)
    for value in values["arms"]:
        _checks.whole("arms", value, 1, len(catalog.arms), f"the arms of {catalog.name}")
    for value in values["horizon"]:
        _checks.whole("horizon", value, 2, MAX_HORIZON)
    for value in values["noise"]:
        _checks.real("noise", value, 0, float("inf"), "[)")

    of_each = math.prod(map(len, (worlds, *values.values())))
    check_count(of_each * sum(map(combinations, given)))
    variants = [variant for algorithm in given for variant in expand(algorithm)]
    check_different("algorithms", variants)
    prepared = {T: [prepare(variant, int(T)) for variant in variants] for T in values["horizon"]}
    names = labels(prepared[values["horizon"][0]])
    for world, M, T in itertools.product(worlds, values["clients"], values["horizon"]):
        world.check(catalog, clients=int(M), horizon=int(T))
    cells = [
        Cell(prepared[T][i], names[i], int(M), int(K), float(noise), int(T), world)
        for i, world, M, K, noise, T in itertools.product(
            range(len(variants)), worlds, values["clients"], values["arms"], values["noise"], values["horizon"]
        )
    ]
    for cell in cells:
        cell.algorithm.check_world(cell.world)
        cell.algorithm.for_catalog(catalog).check(**cell.setting(catalog.dim))
    return cells


def check_worlds(given: Any) -> list[World]:
    """One world or several, whose fields may be lists; None is the default."""
    found: list[World] = []
    for one in [World()] if given is None else _checks.as_list("world", given):
        if not isinstance(one, World):
            meant = "World()" if isinstance(one, type) else "World(contexts='redrawn')"
            _checks.fail("world", one, f"it must be a World, such as {meant}, or a list of them")
        check_decorated(type(one), World)
        found += expand(one)
    for one in found:
        sigma_of(one)
    if not found:
        _checks.fail("world", given, "it must name at least one world")
    check_different("world", found)
    return found


def check_decorated(kind: type, base: type) -> None:
    """Its annotated attributes are fields."""
    if not is_decorated(kind, base):
        name = kind.__name__
        raise ValueError(f"{name} has no fields: decorate class {name} with @dataclass(frozen=True, kw_only=True)")


def sigma_of(world: World, noise: float = 0.1) -> float:
    """What learners are told of the noise, one number."""
    try:
        return float(world.sigma(noise))
    except (TypeError, ValueError):
        name = f"{type(world).__name__}.sigma"
        raise ValueError(
            f"{name} is not allowed: it must be a method sigma(self, noise) that returns a number"
        ) from None


def check_algorithms(given: Any) -> list[Algorithm]:
    """One algorithm or several; for words and classes, what to write instead."""
    several = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    found = _checks.entries_of("algorithms", given) if several else [given]
    for one in found:
        if not isinstance(one, Algorithm):
            word = one.__name__ if isinstance(one, type) else _checks.plain(one) if isinstance(one, str) else ""
            meant = _checks.nearest(word, REGISTRY)
            write = f"{meant}()" if meant else "FedConPE()"
            allowed = f"it must be an Algorithm, such as {write}, or a list of them"
            _checks.fail("algorithms", one, allowed)
        check_decorated(type(one), Algorithm)
    if not found:
        _checks.fail("algorithms", given, "it must name at least one algorithm")
    return found


def prepare(algorithm: Algorithm, horizon: int) -> Algorithm:
    prepared: Any = algorithm.prepare(horizon)
    if not isinstance(prepared, Algorithm):
        raise ValueError(f"{algorithm.name}.prepare returned {_checks.shown(prepared)}: it must return an Algorithm")
    return prepared


def check_different(argument: str, given: Sequence[Configured]) -> None:
    """Nothing is there twice."""
    seen = set()
    for one in given:
        content = (type(one), *one.hyperparameters().items())
        if content in seen:
            same = "hyperparameters" if argument == "algorithms" else "fields"
            _checks.fail(argument, one, f"it is there twice, with the same {same}")
        seen.add(content)


def labels(algorithms: Sequence[Algorithm]) -> list[str]:
    """Names, with the hyperparameters in which algorithms of one name differ."""
    return labels_of([(algorithm.title, algorithm.hyperparameters()) for algorithm in algorithms])


def rounds_to_keep(checkpoints: Any, horizon: int, spacing: str) -> np.ndarray:
    """The rounds at which curves are kept; the last is the horizon."""
    if _checks.is_list(checkpoints):
        given = [_checks.whole("checkpoints", t, 1, horizon, "the horizon") for t in checkpoints]
        return np.unique(np.array([*given, horizon], np.int64))
    count = min(checkpoints, horizon)
    if spacing == "log" and count > 1:
        return np.unique(np.geomspace(1, horizon, count).round().astype(np.int64))
    return np.linspace(horizon / count, horizon, count).round().astype(np.int64)

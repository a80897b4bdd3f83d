"""A grid of settings: what is given as lists, as single cells that are checked and labelled."""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import REGISTRY, Algorithm, static_names
from fedbandit_jax.clocks.parameters import annotated
from fedbandit_jax.results.labels import labels_of
from fedbandit_jax.worlds.catalog import Catalog

MAX_HORIZON = 10**9
MAX_CLIENTS = 2**31 - 1  # the programs count them in 32 bits
MAX_CELLS = 10**6


@dataclass(frozen=True)
class Cell:
    """One setting: an algorithm with plain numbers, and where it plays."""

    algorithm: Algorithm
    label: str
    clients: int
    arms: int
    noise: float
    horizon: int

    def setting(self, dim: int) -> dict[str, Any]:
        """Where it plays, as `Algorithm.check` and `Algorithm.steps` want it."""
        return {
            "dim": dim,
            "clients": self.clients,
            "arms": self.arms,
            "horizon": self.horizon,
            "noise": self.noise,
        }

    def steps(self, dim: int) -> int:
        return self.algorithm.steps(**self.setting(dim))

    @property
    def group(self) -> tuple:
        """Cells with the same group may share a batch: they differ in numbers only, and in no horizon."""
        return type(self.algorithm), jax.tree.structure(self.algorithm), self.horizon


def make_cells(catalog: Catalog, algorithms: Any, **axes: Any) -> list[Cell]:
    """Every combination of the lists, checked."""
    given = check_algorithms(algorithms)
    values = {name: _checks.axis(name, value) for name, value in axes.items()}
    for value in values["clients"]:
        _checks.whole("clients", value, 1, MAX_CLIENTS)
    for value in values["arms"]:
        _checks.whole("arms", value, 1, len(catalog.arms), f"the arms of {catalog.name}")
    for value in values["horizon"]:
        _checks.whole("horizon", value, 2, MAX_HORIZON)
    for value in values["noise"]:
        _checks.real("noise", value, 0, float("inf"), "[)")

    count = math.prod(map(len, values.values())) * sum(math.prod(map(len, lists(one).values())) for one in given)
    if count > MAX_CELLS:
        raise ValueError(f"a sweep of {count} cells is not allowed: give shorter lists, of {MAX_CELLS} cells at most")
    variants = [variant for algorithm in given for variant in expand(algorithm)]
    check_different(variants)
    prepared = {T: [prepare(variant, int(T)) for variant in variants] for T in values["horizon"]}
    names = labels(prepared[values["horizon"][0]])
    cells = [
        Cell(prepared[T][i], names[i], int(M), int(K), float(noise), int(T))
        for i, M, K, noise, T in itertools.product(
            range(len(variants)), values["clients"], values["arms"], values["noise"], values["horizon"]
        )
    ]
    for cell in cells:
        cell.algorithm.for_catalog(catalog).check(**cell.setting(catalog.dim))
    return cells


def check_algorithms(given: Any) -> list[Algorithm]:
    """One algorithm or several; for words and classes, what to write instead."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else [given]
    for one in found:
        if not isinstance(one, Algorithm):
            word = one.__name__ if isinstance(one, type) else one if isinstance(one, str) else ""
            meant = _checks.nearest(word, REGISTRY)
            write = f"{meant}()" if meant else "FedConPE()"
            allowed = f"it must be an Algorithm, such as {write}, or a list of them"
            _checks.fail("algorithms", one, allowed)
        if not is_decorated(type(one)):
            name = one.name
            raise ValueError(f"{name} has no fields: decorate class {name} with @dataclass(frozen=True, kw_only=True)")
    if not found:
        _checks.fail("algorithms", given, "it must name at least one algorithm")
    return found


def prepare(algorithm: Algorithm, horizon: int) -> Algorithm:
    prepared: Any = algorithm.prepare(horizon)
    if not isinstance(prepared, Algorithm):
        raise ValueError(f"{algorithm.name}.prepare returned {_checks.shown(prepared)}: it must return an Algorithm")
    return prepared


def check_different(algorithms: Sequence[Algorithm]) -> None:
    """No algorithm is there twice."""
    seen = set()
    for algorithm in algorithms:
        content = (type(algorithm), *algorithm.hyperparameters().items())
        if content in seen:
            _checks.fail("algorithms", algorithm, "it is there twice, with the same hyperparameters")
        seen.add(content)


def is_decorated(kind: type[Algorithm]) -> bool:
    """Are the annotated attributes of a class and its parents fields of a dataclass?"""
    for part in kind.__mro__:
        if issubclass(part, Algorithm) and annotated(part) and "__dataclass_fields__" not in vars(part):
            return False
    return dataclasses.is_dataclass(kind)


def lists(algorithm: Algorithm) -> dict[str, list[Any]]:
    """The values of each of its hyperparameters."""
    parameters = {name: _checks.as_list(value) for name, value in algorithm.hyperparameters().items()}
    static = static_names(type(algorithm))
    for name, values in parameters.items():
        if not values:
            _checks.fail(f"{name} of {algorithm.name}", values, "it must not be empty")
        for value in values:
            if not (isinstance(value, Hashable) if name in static else is_simple(value)):
                allowed = "it must be a number or a word, or a list of them"
                _checks.fail(f"{name} of {algorithm.name}", value, allowed)
    return parameters


def is_simple(value: Any) -> bool:
    """Is it a number, a word, a function, or a structure of JAX's of these, rather than a list or table?"""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return False
    return all(isinstance(leaf, str | numbers.Real) or callable(leaf) for leaf in jax.tree.leaves(value))


def expand(algorithm: Algorithm) -> Iterator[Algorithm]:
    """One algorithm per combination of its list-valued hyperparameters."""
    parameters = lists(algorithm)
    for combination in itertools.product(*parameters.values()):
        yield algorithm.replace(**dict(zip(parameters, combination, strict=True)))


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

"""A grid of settings: what is given as lists, as single cells that are checked and labelled."""

import dataclasses
import inspect
import itertools
import numbers
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm, Trace
from fedbandit_jax.results.labels import labels_of
from fedbandit_jax.worlds.catalog import Catalog

MAX_HORIZON = 10**9
RUN_COLUMNS = ("clients", "arms", "noise", "user", "seed")  # what tells one run of an algorithm from another


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
    given = list(algorithms) if isinstance(algorithms, Iterable) else [algorithms]
    for algorithm in given:
        if not isinstance(algorithm, Algorithm):
            _checks.fail("algorithms", algorithm, "it must be an Algorithm, such as FedConPE(), or a list of them")
        if not is_decorated(type(algorithm)):
            name = algorithm.name
            raise ValueError(f"{name} has no fields: decorate class {name} with @dataclass(frozen=True, kw_only=True)")
    if not given:
        _checks.fail("algorithms", algorithms, "it must name at least one algorithm")
    values = {name: _checks.as_list(value) for name, value in axes.items()}
    for name, entries in values.items():
        if not entries:
            _checks.fail(name, entries, "it must not be empty")
        if len(set(entries)) < len(entries):
            _checks.fail(name, entries, "its values must differ")
    for value in values["clients"]:
        _checks.whole("clients", value)
    for value in values["arms"]:
        _checks.whole("arms", value, 1, len(catalog.arms), f"the arms of {catalog.name}")
    for value in values["horizon"]:
        _checks.whole("horizon", value, 2, MAX_HORIZON)
    for value in values["noise"]:
        _checks.real("noise", value, 0, float("inf"), "[)")

    variants = [variant for algorithm in given for variant in expand(algorithm)]
    check_names(variants)
    prepared = {T: [variant.prepare(int(T)) for variant in variants] for T in values["horizon"]}
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


def check_names(algorithms: Sequence[Algorithm]) -> None:
    """No algorithm twice, and no hyperparameter under the name of another column of the results."""
    seen = set()
    for algorithm in algorithms:
        taken = {"dataset", "algorithm", "label", "round", "horizon", *Trace._fields, *RUN_COLUMNS}
        for name in algorithm.hyperparameters().keys() & taken:
            _checks.fail(f"a hyperparameter of {algorithm.name}", name, "that name is a column of the results")
        content = (type(algorithm), *algorithm.hyperparameters().items())
        if content in seen:
            _checks.fail("algorithms", algorithm, "it is there twice, with the same hyperparameters")
        seen.add(content)


def is_decorated(kind: type[Algorithm]) -> bool:
    """Are the annotated attributes of a class and its parents fields of a dataclass?"""
    for part in kind.__mro__:
        own = [name for name, hint in inspect.get_annotations(part).items() if "ClassVar" not in str(hint)]
        if issubclass(part, Algorithm) and own and "__dataclass_fields__" not in vars(part):
            return False
    return dataclasses.is_dataclass(kind)


def expand(algorithm: Algorithm) -> Iterator[Algorithm]:
    """One algorithm per combination of its list-valued hyperparameters."""
    parameters = {name: _checks.as_list(value) for name, value in algorithm.hyperparameters().items()}
    for name, values in parameters.items():
        if not values:
            _checks.fail(f"{name} of {algorithm.name}", values, "it must not be empty")
    for combination in itertools.product(*parameters.values()):
        yield algorithm.replace(**dict(zip(parameters, combination, strict=True)))


def labels(algorithms: Sequence[Algorithm]) -> list[str]:
    """Names, with the hyperparameters in which algorithms of one name differ."""
    return labels_of([(algorithm.title, algorithm.hyperparameters()) for algorithm in algorithms])


def rounds_to_keep(checkpoints: Any, horizon: int, spacing: str) -> np.ndarray:
    """The rounds at which curves are kept; the last is the horizon."""
    if isinstance(checkpoints, Iterable) and not isinstance(checkpoints, str):
        given = [_checks.whole("checkpoints", t, 1, horizon, "the horizon") for t in checkpoints]
        return np.unique(np.array([*given, horizon], np.int64))
    if not isinstance(checkpoints, numbers.Real):
        _checks.fail("checkpoints", checkpoints, "it must be a whole number of at least 1 or a list of rounds")
    count = min(_checks.whole("checkpoints", checkpoints), horizon)
    if spacing == "log" and count > 1:
        return np.unique(np.geomspace(1, horizon, count).round().astype(np.int64))
    return np.linspace(horizon / count, horizon, count).round().astype(np.int64)

"""What every algorithm is: a pytree of hyperparameters with a pure `run`, which gives a Trace."""

import dataclasses
import re
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

import jax
from jaxtyping import Array, Float, Key

from fedbandit_jax import _checks
from fedbandit_jax.clocks.parameters import annotated, declared
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.problem import Problem

REGISTRY: dict[str, type["Algorithm"]] = {}
NOTHING: dict[str, Any] = {}


class Trace(NamedTuple):
    """Curves of one federation at P checkpoints, and per-phase diagnostics where there are phases."""

    regret: Float[Array, " P"]  # R_M(t), summed over clients
    conversations: Float[Array, " P"]  # questions so far, mean over clients
    communication: Float[Array, " P"]  # scalars sent so far, both ways, all clients
    theta_error: Float[Array, " P"]  # mean over clients of norm(theta_hat - theta)
    phases: dict[str, Float[Array, " L"]] = NOTHING  # rows after the last phase have phase = 0
    counts: dict[str, Float[Array, " P"]] = NOTHING  # whatever else is counted, over all clients: uploads, bits ...


METRICS = Trace._fields[:4]
MEANS = ("conversations", "theta_error")  # over clients; all others are sums


# Columns that the tables of results have whatever is played: of what a run is, of its curves, and of statistics.
IDENTITY = (
    *("run", "name", "dataset", "algorithm", "label", "hyperparameters"),
    *("clients", "arms", "horizon", "noise", "user", "seed", "at"),
)
COLUMNS = (*IDENTITY, "round", "phase", *Trace._fields, "count", "mean", "sd", "low", "high")
QUANTILE = re.compile(r"q\d+(\.\d+)?")


def is_column(name: str) -> bool:
    return name in COLUMNS or QUANTILE.fullmatch(name) is not None


class Algorithm:
    """Base class: subclass it as a frozen dataclass whose fields are the hyperparameters.

    Numbers are traced leaves of the pytree, so a new value never recompiles; strings, None, bools
    and functions are static. Subclasses join the registry under their class name, unless declared abstract=True.
    """

    name: ClassVar[str]
    asks_key_terms: ClassVar[bool] = False
    independent_clients: ClassVar[bool] = False  # clients never meet: each may be played apart from the others
    revision: ClassVar[int] = 1  # of an algorithm of the package: another number when it plays otherwise than before
    static: ClassVar[tuple[str, ...]] = ()  # numbers that are fixed at compile time, besides those param() says are

    def __init_subclass__(cls, abstract: bool = False) -> None:
        check_names(cls)
        cls.name = cls.__name__
        if not abstract:
            REGISTRY[cls.name] = cls
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, cls._unflatten, _flatten)

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        """Raise ValueError, in one sentence, for hyperparameters that make no sense, in themselves or in a setting."""
        for name, parameter in declared(type(self)).items():
            parameter.check(name, getattr(self, name))

    def steps(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> int:
        """About how often its outermost loop runs, where that differs: federations of equal numbers share a batch."""
        return 1

    def prepare(self, horizon: int) -> "Algorithm":
        """The algorithm with everything that depends on the horizon worked out, before it is compiled."""
        return self

    def for_catalog(self, catalog: Catalog) -> "Algorithm":
        """The algorithm with everything that depends on the catalog worked out, before it is checked and compiled."""
        return self

    def clients_per_core(self, arms: int, dim: int) -> int:
        """Clients to play side by side on one CPU core."""
        return 160

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        """Play one federation; the last checkpoint is the horizon."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The name in tables and figures."""
        return self.name

    def hyperparameters(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def replace(self, **changes: Any) -> "Algorithm":
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def asks_by_schedule(cls) -> bool:
        """Does it ask questions at rounds that a field `schedule` says?"""
        return any(field.name == "schedule" for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    @classmethod
    def _unflatten(cls, static: tuple, leaves: Any) -> "Algorithm":
        names, fixed = static
        new = object.__new__(cls)
        for name, value in [*zip(names, leaves, strict=True), *fixed]:
            object.__setattr__(new, name, value)
        return new


def check_names(kind: type) -> None:
    """No hyperparameter has the name of a column of the results, or of a method."""
    what = f"a hyperparameter of {kind.__name__}"
    for name in (name for part in kind.__mro__ for name in annotated(part)):
        if is_column(name):
            _checks.fail(what, name, "that name is a column of the results")
        for part in kind.__mro__[1:]:
            method = isinstance(vars(part).get(name), FunctionType | property | classmethod)
            if method and name not in annotated(part):
                _checks.fail(what, name, f"that name is a method of {part.__name__}")


def static_names(kind: type[Algorithm]) -> set[str]:
    """The hyperparameters that are fixed at compile time whatever they are."""
    return {*kind.static, *(name for name, about in declared(kind).items() if about.static)}


def _flatten(algorithm: Algorithm) -> tuple[tuple, tuple]:
    static = static_names(type(algorithm))

    def is_static(name: str, value: Any) -> bool:
        return name in static or value is None or isinstance(value, str | bool) or callable(value)

    items = algorithm.hyperparameters().items()
    names = tuple(name for name, value in items if not is_static(name, value))
    fixed = tuple((name, value) for name, value in items if is_static(name, value))
    return tuple(getattr(algorithm, name) for name in names), (names, fixed)


def _flatten_with_keys(algorithm: Algorithm) -> tuple[tuple, tuple]:
    leaves, (names, fixed) = _flatten(algorithm)
    keys = (jax.tree_util.GetAttrKey(name) for name in names)
    return tuple(zip(keys, leaves, strict=True)), (names, fixed)

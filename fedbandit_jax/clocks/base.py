"""What every algorithm is: a pytree of hyperparameters with a pure `run`, which gives a Trace."""

import dataclasses
import re
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Float, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Configured, annotated, check_no_methods, declared
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.world import FIELDS, World

REGISTRY: dict[str, type["Algorithm"]] = {}
NOTHING: dict[str, Any] = {}
# Of a field of the world: why an algorithm plays in some only, as "plays phases on fixed arms", and in which.
MadeFor = dict[str, tuple[str, tuple[Any, ...]]]


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
    *("world", *FIELDS),
)
COLUMNS = (*IDENTITY, "round", "phase", *Trace._fields, "count", "mean", "sd", "low", "high")
QUANTILE = re.compile(r"q\d+(\.\d+)?")


def is_column(name: str) -> bool:
    return name in COLUMNS or QUANTILE.fullmatch(name) is not None


class Algorithm(Configured):
    """Base class: subclass it as a frozen dataclass whose fields are the hyperparameters.

    Numbers are traced leaves of the pytree, so a new value never recompiles; strings, None, bools
    and functions are static. Subclasses join the registry under their class name, unless declared abstract=True.
    """

    name: ClassVar[str]
    asks_key_terms: ClassVar[bool] = False
    independent_clients: ClassVar[bool] = False  # clients never meet: each may be played apart from the others
    made_for: ClassVar[MadeFor] = {
        "contexts": ("plays on fixed arms", ("fixed",)),
        "arrivals": ("plays all clients in every round", ("all",)),
        "rewards": ("draws Gaussian rewards itself", ("gaussian",)),
        "answers": ("asks about vectors", ("mean",)),
        "candidates": ("asks about any key term", ("all",)),
        "charged": ("does not tell what its questions cost", (False,)),
    }
    revision: ClassVar[int] = 1  # of an algorithm of the package: another number when it plays otherwise than before

    def __init_subclass__(cls, abstract: bool = False) -> None:
        check_names(cls)
        cls.name = cls.__name__
        if not abstract:
            REGISTRY[cls.name] = cls
        super().__init_subclass__()

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        """Raise ValueError, in one sentence, for hyperparameters that make no sense, in themselves or in a setting."""
        for name, parameter in declared(type(self)).items():
            parameter.check(name, getattr(self, name))

    def check_world(self, world: World) -> None:
        """Raise ValueError, in one sentence, for a world that the algorithm is not made for."""
        for name, (why, allowed) in self.made_for.items():
            value = getattr(world, name)
            if value not in allowed:
                raise ValueError(f"{self.title} {why}, so {name}={value!r} is not allowed")
        if not self.plays_in(world):
            raise ValueError(f"{self.title} cannot play in {type(world).__name__}: {self.needs}")

    @classmethod
    def home(cls) -> World:
        """The default world, or as near to it as the algorithm plays."""
        allowed = {name: values for name, (_, values) in cls.made_for.items()}
        return World(**{name: v[0] for name, v in allowed.items() if getattr(World(), name) not in v})

    needs: ClassVar[str] = "it draws rewards itself, with means x.theta and Gaussian noise"

    def plays_in(self, world: World) -> bool:
        """True if the algorithm can play in this user-defined world."""
        return world.stationary and world.linear and type(world).reward is World.reward

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

    @classmethod
    def asks_by_schedule(cls) -> bool:
        """Does it ask questions at rounds that a field `schedule` says?"""
        return any(field.name == "schedule" for field in dataclasses.fields(cls))  # type: ignore[arg-type]


def check_names(kind: type) -> None:
    """No hyperparameter has the name of a column of the results, or of a method."""
    what = f"a hyperparameter of {kind.__name__}"
    for name in (name for part in kind.__mro__ for name in annotated(part)):
        if is_column(name):
            _checks.fail(what, name, "that name is a column of the results")
    check_no_methods(what, kind)

"""Batched Monte Carlo simulation of federated conversational linear bandits."""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from fedbandit_jax import _runtime

_runtime.protect()  # before anything below can start JAX's backend


from fedbandit_jax import datasets  # noqa: E402
from fedbandit_jax._parameters import Between, OneOf, param  # noqa: E402
from fedbandit_jax.algorithms import (  # noqa: E402
    DELB,
    FCLUB,
    MACO,
    PLS,
    ArmCon,
    AsyncLinUCB,
    CLiME,
    CLiSK,
    CLiSKME,
    ConDuel,
    ConLinUCB,
    ConUCB,
    CtoFConUCB,
    DisLinUCB,
    FedConPE,
    FedLinPE,
    FedLinUCB,
    FedPE,
    FedSupLinUCB,
    GraphConUCB,
    HetoFedBandit,
    HierLinUCB,
    LinPE,
    LinUCB,
    PrivateFedLinUCB,
    RelativeConUCB,
    SharedLinUCB,
    SharedRelativeConUCB,
    Uniform,
)
from fedbandit_jax.clocks.base import REGISTRY, Algorithm, Trace  # noqa: E402
from fedbandit_jax.clocks.rounds import Client, RoundAlgorithm  # noqa: E402
from fedbandit_jax.engine.calls import simulate, sweep  # noqa: E402
from fedbandit_jax.linalg import regression  # noqa: E402
from fedbandit_jax.linalg.design import g_optimal_design  # noqa: E402
from fedbandit_jax.papers.theory import bounds as theory  # noqa: E402
from fedbandit_jax.papers.tuning.search import tune  # noqa: E402
from fedbandit_jax.papers.tuning.tuned import Tuning  # noqa: E402
from fedbandit_jax.results.results import Results  # noqa: E402
from fedbandit_jax.worlds.catalog import Catalog  # noqa: E402
from fedbandit_jax.worlds.problem import Problem  # noqa: E402
from fedbandit_jax.worlds.world import World  # noqa: E402

__all__ = [
    "DELB",
    "FCLUB",
    "MACO",
    "PLS",
    "REGISTRY",
    "Algorithm",
    "ArmCon",
    "AsyncLinUCB",
    "Between",
    "CLiME",
    "CLiSK",
    "CLiSKME",
    "Catalog",
    "Client",
    "ConDuel",
    "ConLinUCB",
    "ConUCB",
    "CtoFConUCB",
    "DisLinUCB",
    "FedConPE",
    "FedLinPE",
    "FedLinUCB",
    "FedPE",
    "FedSupLinUCB",
    "GraphConUCB",
    "HetoFedBandit",
    "HierLinUCB",
    "LinPE",
    "LinUCB",
    "OneOf",
    "PrivateFedLinUCB",
    "Problem",
    "RelativeConUCB",
    "Results",
    "RoundAlgorithm",
    "SharedLinUCB",
    "SharedRelativeConUCB",
    "Trace",
    "Tuning",
    "Uniform",
    "World",
    "datasets",
    "g_optimal_design",
    "param",
    "plots",
    "regression",
    "simulate",
    "sweep",
    "theory",
    "tune",
]


def __getattr__(name: str) -> ModuleType | str:
    """`fb.plots` on first use, as matplotlib is slow to import and not always wanted; and the version."""
    if name == "plots":
        return import_module("fedbandit_jax.results.plots")
    if name == "__version__":
        return version("fedbandit-jax")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])

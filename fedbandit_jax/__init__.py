"""Batched Monte Carlo simulation of federated conversational linear bandits."""

from importlib import import_module
from types import ModuleType

from fedbandit_jax import _runtime

_runtime.protect()  # before anything below can start JAX's backend


from fedbandit_jax import datasets, theory  # noqa: E402
from fedbandit_jax.algorithms import (  # noqa: E402
    REGISTRY,
    Algorithm,
    ArmCon,
    Client,
    ConLinUCB,
    ConUCB,
    FedConPE,
    FedLinPE,
    LinPE,
    LinUCB,
    RoundAlgorithm,
    SharedLinUCB,
    Trace,
    Uniform,
)
from fedbandit_jax.catalog import Catalog  # noqa: E402
from fedbandit_jax.design import g_optimal_design  # noqa: E402
from fedbandit_jax.problem import Problem  # noqa: E402
from fedbandit_jax.results import Results  # noqa: E402
from fedbandit_jax.simulate import simulate  # noqa: E402
from fedbandit_jax.sweep import sweep  # noqa: E402

__all__ = [
    "REGISTRY",
    "Algorithm",
    "ArmCon",
    "Catalog",
    "Client",
    "ConLinUCB",
    "ConUCB",
    "FedConPE",
    "FedLinPE",
    "LinPE",
    "LinUCB",
    "Problem",
    "Results",
    "RoundAlgorithm",
    "SharedLinUCB",
    "Trace",
    "Uniform",
    "datasets",
    "g_optimal_design",
    "plots",
    "simulate",
    "sweep",
    "theory",
]


def __getattr__(name: str) -> ModuleType:
    """`fb.plots` on first use: matplotlib is slow to import and not always wanted."""
    if name == "plots":
        return import_module("fedbandit_jax.plots")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

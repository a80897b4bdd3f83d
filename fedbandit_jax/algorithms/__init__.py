"""The algorithms; importing this package fills the registry."""

from fedbandit_jax.algorithms.base import REGISTRY, Algorithm, Trace
from fedbandit_jax.algorithms.conlinucb import ConLinUCB
from fedbandit_jax.algorithms.conucb import ConUCB
from fedbandit_jax.algorithms.fedconpe import FedConPE
from fedbandit_jax.algorithms.linpe import FedLinPE, LinPE
from fedbandit_jax.algorithms.linucb import ArmCon, LinUCB
from fedbandit_jax.algorithms.rounds import Client, RoundAlgorithm
from fedbandit_jax.algorithms.shared_linucb import SharedLinUCB
from fedbandit_jax.algorithms.uniform import Uniform

__all__ = [
    "REGISTRY",
    "Algorithm",
    "ArmCon",
    "Client",
    "ConLinUCB",
    "ConUCB",
    "FedConPE",
    "FedLinPE",
    "LinPE",
    "LinUCB",
    "RoundAlgorithm",
    "SharedLinUCB",
    "Trace",
    "Uniform",
]

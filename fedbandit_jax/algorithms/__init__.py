"""The algorithms, one file each, on a clock that others share; importing this room fills the registry."""

from fedbandit_jax.algorithms.armcon import ArmCon
from fedbandit_jax.algorithms.conlinucb import ConLinUCB
from fedbandit_jax.algorithms.conucb import ConUCB
from fedbandit_jax.algorithms.fedconpe import FedConPE
from fedbandit_jax.algorithms.fedlinpe import FedLinPE
from fedbandit_jax.algorithms.linpe import LinPE
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.algorithms.shared_linucb import SharedLinUCB
from fedbandit_jax.algorithms.uniform import Uniform

__all__ = [
    "ArmCon",
    "ConLinUCB",
    "ConUCB",
    "FedConPE",
    "FedLinPE",
    "LinPE",
    "LinUCB",
    "SharedLinUCB",
    "Uniform",
]

"""The algorithms, one file each, on a clock that others share; importing this room fills the registry.

Those that ask questions are in `conversational`, those with a server in `federated`.
"""

from fedbandit_jax.algorithms.conversational.armcon import ArmCon
from fedbandit_jax.algorithms.conversational.clime import CLiME
from fedbandit_jax.algorithms.conversational.clisk import CLiSK
from fedbandit_jax.algorithms.conversational.cliskme import CLiSKME
from fedbandit_jax.algorithms.conversational.conlinucb import ConLinUCB
from fedbandit_jax.algorithms.conversational.conucb import ConUCB
from fedbandit_jax.algorithms.federated.async_linucb import AsyncLinUCB
from fedbandit_jax.algorithms.federated.delb import DELB
from fedbandit_jax.algorithms.federated.dislinucb import DisLinUCB
from fedbandit_jax.algorithms.federated.fclub import FCLUB
from fedbandit_jax.algorithms.federated.fedconpe import FedConPE
from fedbandit_jax.algorithms.federated.fedlinpe import FedLinPE
from fedbandit_jax.algorithms.federated.fedlinucb import FedLinUCB
from fedbandit_jax.algorithms.federated.fedpe import FedPE
from fedbandit_jax.algorithms.federated.maco import MACO
from fedbandit_jax.algorithms.federated.pls import PLS
from fedbandit_jax.algorithms.federated.private_fedlinucb import PrivateFedLinUCB
from fedbandit_jax.algorithms.federated.shared_linucb import SharedLinUCB
from fedbandit_jax.algorithms.linpe import LinPE
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.algorithms.uniform import Uniform

__all__ = [
    "DELB",
    "FCLUB",
    "MACO",
    "PLS",
    "ArmCon",
    "AsyncLinUCB",
    "CLiME",
    "CLiSK",
    "CLiSKME",
    "ConLinUCB",
    "ConUCB",
    "DisLinUCB",
    "FedConPE",
    "FedLinPE",
    "FedLinUCB",
    "FedPE",
    "LinPE",
    "LinUCB",
    "PrivateFedLinUCB",
    "SharedLinUCB",
    "Uniform",
]

"""The algorithms, one file each, on a clock that others share; importing this room fills the registry.

Those that ask questions are in `conversational`, those with a server in `federated`, in `clustered` those that find out
who serves alike users.
"""

from fedbandit_jax.algorithms.clustered.fclub import FCLUB
from fedbandit_jax.algorithms.clustered.hetofedbandit import HetoFedBandit
from fedbandit_jax.algorithms.conversational.armcon import ArmCon
from fedbandit_jax.algorithms.conversational.clime import CLiME
from fedbandit_jax.algorithms.conversational.clisk import CLiSK
from fedbandit_jax.algorithms.conversational.cliskme import CLiSKME
from fedbandit_jax.algorithms.conversational.conduel import ConDuel
from fedbandit_jax.algorithms.conversational.conlinucb import ConLinUCB
from fedbandit_jax.algorithms.conversational.conucb import ConUCB
from fedbandit_jax.algorithms.conversational.ctof_conucb import CtoFConUCB
from fedbandit_jax.algorithms.conversational.graph_conucb import GraphConUCB
from fedbandit_jax.algorithms.conversational.hier_linucb import HierLinUCB
from fedbandit_jax.algorithms.conversational.relative_conucb import RelativeConUCB
from fedbandit_jax.algorithms.conversational.shared_relative_conucb import SharedRelativeConUCB
from fedbandit_jax.algorithms.federated.async_linucb import AsyncLinUCB
from fedbandit_jax.algorithms.federated.delb import DELB
from fedbandit_jax.algorithms.federated.dislinucb import DisLinUCB
from fedbandit_jax.algorithms.federated.fedconpe import FedConPE
from fedbandit_jax.algorithms.federated.fedlinpe import FedLinPE
from fedbandit_jax.algorithms.federated.fedlinucb import FedLinUCB
from fedbandit_jax.algorithms.federated.fedpe import FedPE
from fedbandit_jax.algorithms.federated.fedsuplinucb import FedSupLinUCB
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
    "PrivateFedLinUCB",
    "RelativeConUCB",
    "SharedLinUCB",
    "SharedRelativeConUCB",
    "Uniform",
]

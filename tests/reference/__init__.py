"""The oracle: every algorithm in slow NumPy float64, line by line from its paper, sharing no code with the package.

Nothing is incremental: every phase builds its list of pulled arms, every round inverts its matrices afresh. The oracle
of an algorithm has the name of its file; what a client meets in its world, `Client`, is in world.py.
Letters: M clients, K arms of a client, J key terms, d dimensions, T horizon, P checkpoints.
"""

from tests.reference.fedconpe import FedConPESettings, fedconpe, fedlinpe, linpe
from tests.reference.federated import (
    FederatedRun,
    Sums,
    async_linucb,
    dislinucb,
    fedlinucb,
    private_fedlinucb,
    private_noise,
)
from tests.reference.federated_clusters import fclub
from tests.reference.linalg import barycentric_spanner, frank_wolfe
from tests.reference.rounds import armcon, conlinucb, conucb, linucb, shared_linucb
from tests.reference.uniform import uniform
from tests.reference.world import Client, Curves, Rewards, add_up, clients_of, users_served, who_plays

__all__ = [
    "Client",
    "Curves",
    "FedConPESettings",
    "FederatedRun",
    "Rewards",
    "Sums",
    "add_up",
    "armcon",
    "async_linucb",
    "barycentric_spanner",
    "clients_of",
    "conlinucb",
    "conucb",
    "dislinucb",
    "fclub",
    "fedconpe",
    "fedlinpe",
    "fedlinucb",
    "frank_wolfe",
    "linpe",
    "linucb",
    "private_fedlinucb",
    "private_noise",
    "shared_linucb",
    "uniform",
    "users_served",
    "who_plays",
]

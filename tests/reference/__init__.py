"""The oracle: every algorithm in slow NumPy float64, line by line from its paper, sharing no code with the package.

Nothing is incremental: every phase builds its list of pulled arms, every round inverts its matrices afresh. The oracle
of an algorithm has the name of its file; what a client meets in its world, `Client`, is in world.py.
Letters: M clients, K arms of a client, J key terms, d dimensions, T horizon, P checkpoints.
"""

from tests.reference.conversational_duels import DuelRun, conduel
from tests.reference.conversational_graph import (
    graph_conucb,
    neighbourhood_vectors,
    sampled_support,
    similarity,
)
from tests.reference.conversational_items import ctof_conucb, hier_linucb
from tests.reference.conversational_relative import relative_conucb, shared_relative_conucb
from tests.reference.conversational_smoothed import checks, clime, clisk, cliskme, truncated_normal
from tests.reference.fedconpe import FedConPESettings, fedconpe, fedlinpe, linpe, maco
from tests.reference.federated import (
    FederatedRun,
    Sums,
    async_linucb,
    dislinucb,
    fedlinucb,
    private_fedlinucb,
    private_noise,
)
from tests.reference.federated_cliques import first_cliques, hetofedbandit, homogeneity
from tests.reference.federated_clusters import fclub
from tests.reference.federated_layers import fedsuplinucb
from tests.reference.federated_phases import PhaseRun, delb, fedpe, fedpe_alpha
from tests.reference.linalg import (
    barycentric_spanner,
    frank_wolfe,
    multi_client_design,
    spanning_design,
    supported,
)
from tests.reference.pls import pls, quantise
from tests.reference.rounds import armcon, conlinucb, conucb, linucb, shared_linucb
from tests.reference.uniform import uniform
from tests.reference.world import Channel, Client, Curves, Rewards, add_up, clients_of, users_served, who_plays

__all__ = [
    "Channel",
    "Client",
    "Curves",
    "DuelRun",
    "FedConPESettings",
    "FederatedRun",
    "PhaseRun",
    "Rewards",
    "Sums",
    "add_up",
    "armcon",
    "async_linucb",
    "barycentric_spanner",
    "checks",
    "clients_of",
    "clime",
    "clisk",
    "cliskme",
    "conduel",
    "conlinucb",
    "conucb",
    "ctof_conucb",
    "delb",
    "dislinucb",
    "fclub",
    "fedconpe",
    "fedlinpe",
    "fedlinucb",
    "fedpe",
    "fedpe_alpha",
    "fedsuplinucb",
    "first_cliques",
    "frank_wolfe",
    "graph_conucb",
    "hetofedbandit",
    "hier_linucb",
    "homogeneity",
    "linpe",
    "linucb",
    "maco",
    "multi_client_design",
    "neighbourhood_vectors",
    "pls",
    "private_fedlinucb",
    "private_noise",
    "quantise",
    "relative_conucb",
    "sampled_support",
    "shared_linucb",
    "shared_relative_conucb",
    "similarity",
    "spanning_design",
    "supported",
    "truncated_normal",
    "uniform",
    "users_served",
    "who_plays",
]

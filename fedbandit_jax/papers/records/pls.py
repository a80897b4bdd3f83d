"""PLS's paper as data: Salgia and Zhao, ICML 2023.

Its appendix, where all agents have the same arms (`discrete`) and where each has its own (`heterogeneous`), with the
constants of the public code. What is published is Table 1: bits up of an agent, and bits down, a broadcast once.
The paper tells no spread of its ten runs, so that of ours is taken for both.
"""

from typing import Any

import numpy as np

from fedbandit_jax.algorithms import DELB, PLS, FedPE
from fedbandit_jax.papers.claims import Claim, Published, agrees, below
from fedbandit_jax.papers.paper import Experiment
from fedbandit_jax.papers.record import Paper
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

DIM, CLIENTS, ARMS, HORIZON, NOISE, RUNS = 20, 10, 120, 1_000_000, 1.0, 10
POOL = 2000  # arms that those of a run are drawn from

PLAYED = PLS(C=6.0)
ELIMINATION = DELB(C1=10.0, design="spanning", support_factor=2)
FEDERATED = FedPE(alpha=10.0, init="none", design="spanning", support_factor=3)
CODE = (
    "the public code counts 1 + |n| bits for a coordinate where the paper has 3 + |n|, 40 less in a message of 20, and "
    "rounds by another rule; the rest is not explained"
)
LAST_PHASE = "the published runs report 20 means in the phase that T cuts; how many arms are left there differs"


def catalog(seed: int = 0) -> Catalog:
    """Arms and users uniform on the unit sphere."""
    rng = np.random.default_rng(seed)
    arms, users = (rng.normal(size=(count, DIM)) for count in (POOL, RUNS))
    return Catalog.from_arrays(arms, users=users, user_norm="unit", name="sphere")


def bits(label: str, up: float, down: float, why: str = "") -> tuple[Claim, Claim]:
    """What Table 1 tells of an algorithm."""
    return (
        agrees(label, "bits_up", Published(up, None, RUNS), per=CLIENTS, what="bits up an agent", why=why),
        agrees(label, "bits_down", Published(down, None, RUNS), what="bits down", why=why),
    )


SETTING: dict[str, Any] = {
    "catalog": catalog,
    "clients": CLIENTS,
    "arms": ARMS,
    "horizon": HORIZON,
    "noise": NOISE,
    "users": RUNS,
    "seeds": 1,
    "quick_seeds": 1,
    "cost": "bits_up",
}
EXPERIMENTS = {
    "discrete": Experiment(
        "discrete",
        "Agents with the same arms",
        "PLS loses less than DELB and sends a fraction of its bits",
        algorithms=(PLAYED, ELIMINATION),
        world=World(arm_sets="common"),
        claims=(
            *bits("PLS", 112.9, 155.1, CODE),
            *bits("DELB", 336.0, 4700.0, LAST_PHASE),
            below("PLS", "DELB"),
            below("PLS", "DELB", "bits_up", "bits up"),
            below("PLS", "DELB", "bits_down", "bits down"),
        ),
        **SETTING,
    ),
    "heterogeneous": Experiment(
        "heterogeneous",
        "Agents with different arms",
        "PLS loses less than Fed-PE and sends a fraction of its bits",
        algorithms=(PLAYED, FEDERATED),
        claims=(
            *bits("PLS", 301.1, 402.5, CODE),
            *bits("FedPE", 72_960.0, 249_900.0),
            below("PLS", "FedPE"),
            below("PLS", "FedPE", "bits_up", "bits up"),
            below("PLS", "FedPE", "bits_down", "bits down"),
        ),
        **SETTING,
    ),
}
PAPER = Paper(
    "pls",
    "PLS: distributed linear bandits in few bits",
    'Salgia and Zhao, "Distributed Linear Bandits under Communication Constraints", ICML 2023, arXiv 2211.02212',
    EXPERIMENTS,
)

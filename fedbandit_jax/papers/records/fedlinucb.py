"""FedLinUCB's paper as data: He, Wang, Min and Gu, NeurIPS 2022.

Its synthetic experiment, with the constants of the public code and the figures of the result files beside it. Messages
are uploads and downloads; a server that shares everything sends to all M clients after every play.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Key

from fedbandit_jax._parameters import Hyperparameter, param
from fedbandit_jax.algorithms import AsyncLinUCB, FedLinUCB, SharedLinUCB
from fedbandit_jax.papers.claims import Published, agrees, below, bounded
from fedbandit_jax.papers.paper import Experiment
from fedbandit_jax.papers.record import Paper
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

DIM, ARMS, CLIENTS, PLAYS, NOISE = 15, 25, 15, 30_000, 0.3
LAM, BETA = 1.0, 0.5
RUNS = 20
MESSAGES = ("uploads", "downloads")
FED, ASYNC, ALL = "FedLinUCB", "AsyncLinUCB", "SharedLinUCB"
INITIAL = "the released code starts a client's matrix at 0, not at lam I as the paper does: a few messages more"


@dataclass(frozen=True, kw_only=True, repr=False)
class CubeArms(World):
    """Arms anew in every round, uniform in the cube of side 2 / sqrt(d): not of unit norm."""

    contexts: Hyperparameter = param("redrawn", words=("redrawn",))

    def draw(self, keys: Key[Array, " n"], pool: Float[Array, "A d"], K: int) -> Key[Array, "n K"]:
        return jax.vmap(lambda key: jax.random.split(key, K))(keys)

    def arms(self, drawn: Key[Array, " K"], pool: Float[Array, "A d"]) -> Float[Array, "K d"]:
        d = pool.shape[1]
        x = jax.vmap(lambda key: jax.random.uniform(key, (d,), jnp.float32, -1, 1))(drawn)
        return (x / math.sqrt(d)).astype(pool.dtype)


def catalog(seed: int = 0) -> Catalog:
    """One user, theta = 1 / sqrt(d) throughout; the arms are never played, as those of a round are drawn."""
    arms = np.random.default_rng(seed).uniform(-1, 1, size=(ARMS, DIM)) / math.sqrt(DIM)
    users = np.full((1, DIM), 1 / math.sqrt(DIM))
    return Catalog.from_arrays(arms, users=users, name="cube", normalise=False)


def message_bound(final: pd.DataFrame) -> Any:
    """2 ln 2 d (M + 1/alpha) ln(1 + T / (lam d)), the paper's bound on uploads; arms have norms up to 1."""
    M, alpha, T, lam = (final[name].astype(float) for name in ("clients", "alpha", "horizon", "lam"))
    return 2 * math.log(2) * DIM * (M + 1 / alpha) * np.log1p(T / (lam * DIM))


BOUND = "uploads are at most 2 ln 2 d (M + 1/alpha) ln(1 + T / (lam d))"
SETTING: dict[str, Any] = {
    "catalog": catalog,
    "clients": CLIENTS,
    "arms": ARMS,
    "horizon": PLAYS,
    "noise": NOISE,
    "world": CubeArms(arrivals="one"),
    "quick_seeds": 3,
}
EXPERIMENTS = {
    "messages": Experiment(
        "messages",
        "Regret and messages of asynchronous clients",
        "FedLinUCB loses less than Async-LinUCB with fewer messages, and little more than sharing everything",
        algorithms=(
            FedLinUCB(alpha=1.0, beta=BETA, lam=LAM),
            AsyncLinUCB(gamma=6.0, alpha=BETA, lam=LAM),
            SharedLinUCB(alpha=BETA, lam=LAM),
        ),
        claims=(
            agrees(FED, "regret", Published(92.2, 10.1, RUNS)),
            agrees(ASYNC, "regret", Published(112.8, 15.4, RUNS)),
            agrees(ALL, "regret", Published(60.0, 9.9, RUNS)),
            agrees(FED, MESSAGES, Published(400.4, 3.9, RUNS), what="messages", why=INITIAL),
            agrees(ASYNC, MESSAGES, Published(705, 0.0, RUNS), what="messages"),
            agrees(ALL, MESSAGES, Published(480_000, 0.0, RUNS), what="messages"),
            below(FED, ASYNC),
            below(ALL, FED),
            below(FED, ASYNC, MESSAGES, "messages"),
            bounded(FED, "uploads", BOUND, message_bound),
        ),
        cost="communication",
        seeds=3 * RUNS,  # so that the published figures, not ours, set the width of the intervals
        **SETTING,
    ),
    "triggers": Experiment(
        "triggers",
        "Regret against messages, over the triggers",
        "The trigger alpha trades messages for regret, within the bound on uploads",
        algorithms=(
            FedLinUCB(alpha=[0.05, 0.2, 1.0, 4.0, 16.0], beta=BETA, lam=LAM),
            AsyncLinUCB(gamma=[1.2, 2.0, 6.0, 30.0], alpha=BETA, lam=LAM),
        ),
        claims=(
            bounded(FED, "uploads", BOUND, message_bound),
            below(f"{FED} alpha=0.05", f"{FED} alpha=16"),
            below(f"{FED} alpha=16", f"{FED} alpha=0.05", MESSAGES, "messages"),
        ),
        cost="communication",
        seeds=RUNS,
        **SETTING,
    ),
}
PAPER = Paper(
    "fedlinucb",
    "FedLinUCB: asynchronous federated linear bandits",
    'He, Wang, Min and Gu, "A Simple and Provably Efficient Algorithm for Asynchronous Federated Contextual Linear '
    'Bandits", NeurIPS 2022, arXiv 2207.03106',
    EXPERIMENTS,
)

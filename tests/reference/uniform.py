"""Uniform play."""

import numpy as np

from tests.reference.rounds import RoundRun


def uniform(client, horizon):
    """A client that plays its arms in turn and estimates 0."""
    pulled, lost = [], []
    for t in range(horizon):
        arms = client.see(t)
        pulled.append(t % len(arms))
        lost.append(client.regret(t, arms[t % len(arms)]))
    errors = np.full(horizon, client.error(0 * client.theta))
    return RoundRun(np.array(pulled), [], np.cumsum(lost), np.zeros(horizon, dtype=int), errors)

"""Uniform play."""

import numpy as np


def uniform(arms_list, theta, horizon):
    """Regret (T,) of clients that play their arms in turn. arms_list: M arrays (K, d)."""
    lost, regret = 0.0, []
    for t in range(horizon):
        for arms in arms_list:
            means = arms @ theta
            lost += means.max() - means[t % len(arms)]
        regret.append(lost)
    return np.array(regret)

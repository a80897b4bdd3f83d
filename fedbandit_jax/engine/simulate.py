"""One call, one setting."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.engine.sweep import sweep
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog


def simulate(
    catalog: Catalog,
    algorithms: Algorithm | Sequence[Algorithm],
    *,
    clients: int = 10,
    arms: int = 100,
    horizon: int = 6000,
    users: int | Iterable[int] | np.ndarray = 10,
    seeds: int | Iterable[int] | np.ndarray = 1,
    noise: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> Results:
    """Play every algorithm in one setting, for every user and seed; see `sweep` for the arguments and options."""
    for name, value in {"clients": clients, "arms": arms, "horizon": horizon, "noise": noise}.items():
        if len(_checks.as_list(value)) != 1 or _checks.as_list(value)[0] is not value:
            _checks.fail(name, value, "simulate takes one number; use sweep for a list")
    return sweep(
        catalog,
        algorithms,
        clients=clients,
        arms=arms,
        horizon=horizon,
        noise=noise,
        users=users,
        seeds=seeds,
        seed=seed,
        **options,
    )

"""The synthetic catalog of the paper's appendix."""

import numpy as np

from fedbandit_jax import _checks, _runtime
from fedbandit_jax.datasets.features import key_term_means, term_weights
from fedbandit_jax.worlds.catalog import Catalog


def synthetic(
    seed: int = 0,
    *,
    dim: int = 50,
    num_arms: int = 5000,
    num_key_terms: int = 1000,
    num_users: int = 200,
    user_norm: str | float = "drawn",
) -> Catalog:
    """Draw the paper's synthetic catalog.

    Every pseudo key term and user has coordinates U(-1, 1). Arm i carries n_i ~ U{1..5} key terms with
    weight 1/n_i and is drawn from Normal(mean of its pseudo key terms, I). A key term is the weighted mean
    of the arms that carry it; one that no arm carries keeps its pseudo features. Arms and key terms get unit norm only
    then, so that `weights` give key terms of the arms as drawn.
    `user_norm` of the users is "drawn" (as drawn, about 4.1 in 50 dimensions; the appendix does not scale them), "unit"
    (Assumption 1) or a positive number.
    """
    seed = _checks.whole("seed", seed, 0)
    dim = _checks.whole("dim", dim)
    rows = {"num_arms": num_arms, "num_key_terms": num_key_terms, "num_users": num_users}
    rows = {name: _checks.whole(name, value) for name, value in rows.items()}
    num_arms, num_key_terms, num_users = rows.values()
    user_norm = _checks.real_or_word("user_norm", user_norm, 0, float("inf"), "()", ("drawn", "unit"))
    check_memory(dim, rows)
    rng = np.random.default_rng(seed)
    pseudo = rng.uniform(-1, 1, (num_key_terms, dim))
    carried = rng.integers(1, min(5, num_key_terms) + 1, num_arms)
    terms = [rng.choice(num_key_terms, n, replace=False) for n in carried]
    arms = np.stack([pseudo[t].mean(axis=0) for t in terms]) + rng.normal(size=(num_arms, dim))
    key_terms = key_term_means(arms, terms, num_key_terms)
    unused = ~key_terms.any(axis=1)
    key_terms[unused] = pseudo[unused]
    users = rng.uniform(-1, 1, (num_users, dim))
    return Catalog.from_arrays(
        arms,
        key_terms,
        users,
        weights=term_weights(terms, num_key_terms),
        name="synthetic",
        user_norm="given" if user_norm == "drawn" else user_norm,
    )


def check_memory(dim: int, rows: dict[str, int]) -> None:
    """A catalog of so many rows must fit into this machine."""
    needed, there = 8.0 * dim * sum(rows.values()), _runtime.memory_of_machine()
    if needed > there:
        largest = max({"dim": dim, **rows}.items(), key=lambda item: item[1])
        _checks.fail(*largest, f"the catalog takes {needed / 1e9:.2g} GB, and this machine has {there / 1e9:.2g} GB")

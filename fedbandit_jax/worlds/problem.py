"""Problem: one federation, drawn from the pool of arms of a catalog.

Axis letters: M clients, K arms of a client, J key terms, A arms of the pool, d dimensions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.linalg import Real


class Problem(NamedTuple):
    """One federation: M clients with K arms each (padded, masked), shared key terms and preference.

    Padded arms are zero rows behind the real ones; a padded client has no real arm.
    """

    arms: Float[Array, "M K d"]
    arm_mask: Bool[Array, "M K"]
    key_terms: Float[Array, "J d"]
    theta: Float[Array, " d"]
    noise: Float[Array, ""]
    horizon: Float[Array, ""]
    client_ids: Int[Array, " M"]  # the clients' numbers: their random numbers depend on them
    user_bound: Float[Array, ""] | float = 1.0  # S, known to learners: no user of the catalog has a larger norm

    @property
    def client_mask(self) -> Bool[Array, " M"]:
        return self.arm_mask.any(axis=1)

    @property
    def num_clients(self) -> Float[Array, ""]:
        """The M of the formulas: real clients only."""
        return self.client_mask.sum().astype(self.theta.dtype)

    @property
    def num_arms(self) -> Float[Array, ""]:
        """The K of the formulas: the largest real arm set."""
        return self.arm_mask.sum(axis=1).max().astype(self.theta.dtype)

    @property
    def means(self) -> Float[Array, "M K"]:
        """Expected rewards a.theta; 0 for padding."""
        return self.arms @ self.theta

    @property
    def gaps(self) -> Float[Array, "M K"]:
        """Best mean of the client minus the arm's mean; 0 for padding."""
        means = self.means
        best = jnp.where(self.arm_mask, means, -jnp.inf).max(axis=1, keepdims=True)
        return jnp.where(self.arm_mask, best - means, 0)

    @property
    def losses(self) -> Float[Array, "M K"]:
        """The gaps, and NaN for padding of real clients: a learner that pulls it has no regret that counts."""
        return jnp.where(self.arm_mask | ~self.client_mask[:, None], self.gaps, jnp.nan)

    def mean_over_clients(self, values: Float[Array, " M"]) -> Float[Array, ""]:
        return jnp.where(self.client_mask, values, 0).sum() / self.num_clients


def draw_without_replacement(key: Key[Array, ""], pool: int, count: int) -> Int[Array, " count"]:
    """The first `count` entries of a random permutation of range(pool); fewer are a prefix of more.

    Fisher-Yates swaps position j with a random position r_j >= j. Instead of carrying the permutation,
    find what each swap saw: position p holds, before step j, what the last earlier step i with r_i = p put
    there (the value then at position i), or p itself if there was none.
    """
    step = jnp.arange(count, dtype=jnp.int32)
    target = jax.random.randint(key, (count,), step, pool, dtype=jnp.int32)

    def last_step_into(position: Int[Array, " count"]) -> Int[Array, " count"]:
        hit = (target[None, :] == position[:, None]) & (step[None, :] < step[:, None])
        return jnp.where(hit, step[None, :], -1).max(axis=1)

    source = last_step_into(step)
    origin = jnp.where(source < 0, step, source)
    for _ in range(max(count - 1, 1).bit_length()):  # follow chains of swaps by doubling
        origin = origin[origin]
    earlier = last_step_into(target)
    return jnp.where(earlier < 0, target, origin[earlier])


def sample_problem(
    key: Key[Array, ""],
    arms: Float[Array, "A d"],
    key_terms: Float[Array, "J d"],
    theta: Float[Array, " d"],
    *,
    clients: Real,
    num_arms: Real,
    noise: Real,
    horizon: Real,
    max_clients: int,
    max_arms: int,
    first_client: Real = 0,
    user_bound: Real = 1.0,
) -> Problem:
    """Draw a federation: each client gets `num_arms` arms of the pool, without replacement.

    Client i's arms depend on the key and i alone, so they are the same for every number of clients, and
    a smaller arm set is a prefix of a larger one. The arrays are padded to (max_clients, max_arms). With
    `first_client`, only the clients from that number on are drawn. `user_bound` is `Catalog.user_bound`.
    """
    client = first_client + jnp.arange(max_clients, dtype=jnp.int32)
    client_keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(client)
    chosen = jax.vmap(lambda k: draw_without_replacement(k, arms.shape[0], max_arms))(client_keys)
    mask = (client[:, None] < clients) & (jnp.arange(max_arms)[None, :] < num_arms)
    return Problem(
        arms=jnp.where(mask[:, :, None], arms[chosen], 0),
        arm_mask=mask,
        key_terms=key_terms,
        theta=theta,
        noise=jnp.asarray(noise, arms.dtype),
        horizon=jnp.asarray(horizon, arms.dtype),
        client_ids=client,
        user_bound=jnp.asarray(user_bound, arms.dtype),
    )

"""Problem: one federation, drawn from a catalog as its world says.

Axis letters: M clients, K arms of a client, J key terms, n of an arm, A arms of the pool, U users, d dimensions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.sampling import draw_without_replacement
from fedbandit_jax.worlds.world import World

# Keys of a federation besides those of its clients, which have the numbers from 0 on.
USERS, ARRIVALS = 2**32 - 1, 2**32 - 2


class Problem(NamedTuple):
    """One federation: M clients with K arms each (padded, masked), shared key terms, and the users they serve.

    Padded arms are zero rows behind the real ones; a padded client has no real arm. Where arms are redrawn, `arms` is
    NaN: the round clock draws them.
    """

    arms: Float[Array, "M K d"]
    arm_mask: Bool[Array, "M K"]
    key_terms: Float[Array, "J d"]
    theta: Float[Array, "M d"]  # of each client's user
    noise: Float[Array, ""]
    horizon: Float[Array, ""]
    client_ids: Int[Array, " M"]  # the clients' numbers: their random numbers depend on them
    user_bound: Float[Array, ""] | float = 1.0  # S, known to learners: no user of the catalog has a larger norm
    world: World = World()
    pool: Float[Array, "A d"] | None = None  # what arms are redrawn from
    key: Key[Array, ""] | None = None  # of arm sets and arrivals
    federation: Any = None  # clients in all, of whom some may be played elsewhere
    links: Int[Array, "A n"] | None = None  # the key terms of each arm of the pool, padded with J, where they are known
    arm_links: Int[Array, "M K n"] | None = None  # those of each client's arms; all are J where arms are redrawn
    context: Any = None  # what a learner has worked out from key_terms and links, if that was done before

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
    def dim(self) -> int:
        return self.arms.shape[-1]

    @property
    def sigma(self) -> Float[Array, ""]:
        """The subgaussian constant of rewards and answers, known to learners."""
        return jnp.asarray(self.world.sigma(self.noise), self.noise.dtype)

    @property
    def arms_keys(self) -> Key[Array, " M"]:
        """From which arms are redrawn; the same for all clients if their arms are."""
        return keys_of_arms(jax.random.key(0) if self.key is None else self.key, self.world, self.client_ids)

    @property
    def arrivals_key(self) -> Key[Array, ""]:
        assert self.key is not None
        return jax.random.fold_in(self.key, ARRIVALS)

    @property
    def means(self) -> Float[Array, "M K"]:
        """Expected rewards, a.theta unless the world says otherwise; 0 for padding."""
        return jnp.where(self.arm_mask, jax.vmap(self.world.mean)(self.arms, self.theta), 0)

    def theta_error(self, theta_hat: Float[Array, " d"]) -> Float[Array, ""]:
        """|theta_hat - theta|, a mean over clients."""
        return self.mean_over_clients(jnp.linalg.norm(theta_hat[None] - self.theta, axis=1))

    @property
    def gaps(self) -> Float[Array, "M K"]:
        """Best mean of the client minus the arm's mean; 0 for padding."""
        means = self.means
        best = jnp.where(self.arm_mask, means, -jnp.inf).max(axis=1, keepdims=True)
        return jnp.where(self.arm_mask, best - means, 0)

    def mean_over_clients(self, values: Float[Array, " M"]) -> Float[Array, ""]:
        return jnp.where(self.client_mask, values, 0).sum() / self.num_clients


def users_of_clients(
    key: Key[Array, ""], world: World, clients: Int[Array, " M"], user: Int[Array, ""], count: int
) -> Int[Array, " M"]:
    """Whom each client serves: the first group `user`, the next others of `count`, none twice while there are more."""
    if world.preferences == "shared":
        return jnp.broadcast_to(user, clients.shape)
    group = clients if world.preferences == "own" else clients % jnp.asarray(world.preferences).astype(jnp.int32)
    order = jax.random.permutation(jax.random.fold_in(key, USERS), count)
    place = group % count
    behind = jnp.argmax(order == user) < place  # the user comes first, and those before it move up
    return jnp.where(place == 0, user, jnp.where(behind, order[place], order[place - 1])).astype(jnp.int32)


class FederationDraw(NamedTuple):
    """The random part of a federation: its users, and its arms unless they are redrawn every round."""

    theta: Float[Array, "M d"]
    arms: Float[Array, "M K d"] | None
    arm_links: Int[Array, "M K n"] | None


def draw_federation(
    key: Key[Array, ""],
    arms: Float[Array, "A d"],
    users: Float[Array, "U d"],
    *,
    clients: Real,
    num_arms: Real,
    max_clients: int,
    max_arms: int,
    first_client: Real,
    world: World,
    user: Any,
    links: Int[Array, "A n"] | None,
    num_key_terms: int,
) -> FederationDraw:
    """Draw users and arms of a federation; the arguments are those of `sample_problem`.

    Drawing takes long to compile and does not depend on the algorithm, so the engine makes it a program of its own.
    """
    client, mask = clients_and_mask(clients, num_arms, max_clients, max_arms, first_client)
    theta = users[users_of_clients(key, world, client, jnp.asarray(user, jnp.int32), len(users))]
    if not world.fixed:
        return FederationDraw(theta, None, None)
    keys = keys_of_arms(key, world, client)
    chosen = jax.vmap(lambda k: draw_without_replacement(k, arms.shape[0], max_arms))(keys)
    of_clients = None if links is None else jnp.where(mask[:, :, None], links[chosen], num_key_terms)
    return FederationDraw(theta, jnp.where(mask[:, :, None], arms[chosen], 0), of_clients)


def clients_and_mask(
    clients: Real, num_arms: Real, max_clients: int, max_arms: int, first_client: Real
) -> tuple[Int[Array, " M"], Bool[Array, "M K"]]:
    """Numbers of the clients, and which of the padded arms are real."""
    client = first_client + jnp.arange(max_clients, dtype=jnp.int32)
    return client, (client[:, None] < clients) & (jnp.arange(max_arms)[None, :] < num_arms)


def keys_of_arms(key: Key[Array, ""], world: World, client: Int[Array, " M"]) -> Key[Array, " M"]:
    """Keys from which the clients' arms are drawn; the same for all clients if their arms are."""
    own = client if world.arm_sets == "own" else jnp.zeros_like(client)
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(own)


def sample_problem(
    key: Key[Array, ""],
    arms: Float[Array, "A d"],
    key_terms: Float[Array, "J d"],
    users: Float[Array, "U d"],
    *,
    clients: Real,
    num_arms: Real,
    noise: Real,
    horizon: Real,
    max_clients: int,
    max_arms: int,
    first_client: Real = 0,
    user_bound: Real = 1.0,
    world: World | None = None,
    user: Any = 0,
    links: Int[Array, "A n"] | None = None,
    context: Any = None,
    drawn: FederationDraw | None = None,
) -> Problem:
    """Draw a federation: each client gets `num_arms` arms of the pool, without replacement.

    Client i's arms and user depend on the key and i alone, so they are the same for every number of clients, and
    a smaller arm set is a prefix of a larger one. The arrays are padded to (max_clients, max_arms). With
    `first_client`, only the clients from that number on are drawn. `user_bound` is `Catalog.user_bound`; `user` is the
    place, among `users`, of the one whom the first client serves. `links` are the key terms of each arm of the pool, as
    `Catalog.links` has them, and `context` what a learner has worked out from these. `drawn` is what `draw_federation`
    has drawn for these arguments, if that was done before.
    """
    world, J = World() if world is None else world, len(key_terms)
    client, mask = clients_and_mask(clients, num_arms, max_clients, max_arms, first_client)
    if drawn is None:
        drawn = draw_federation(
            key,
            arms,
            users,
            clients=clients,
            num_arms=num_arms,
            max_clients=max_clients,
            max_arms=max_arms,
            first_client=first_client,
            world=world,
            user=user,
            links=links,
            num_key_terms=J,
        )
    own_arms, arm_links = drawn.arms, drawn.arm_links
    if own_arms is None:
        own_arms = jnp.full((*mask.shape, arms.shape[1]), jnp.nan, arms.dtype)
        arm_links = None if links is None else jnp.full((*mask.shape, links.shape[1]), J, jnp.int32)
    return Problem(
        arms=own_arms,
        arm_mask=mask,
        key_terms=key_terms,
        theta=drawn.theta,
        noise=jnp.asarray(noise, arms.dtype),
        horizon=jnp.asarray(horizon, arms.dtype),
        client_ids=client,
        user_bound=jnp.asarray(user_bound, arms.dtype),
        world=world,
        pool=arms,
        key=key,
        federation=jnp.asarray(clients, jnp.int32),
        links=links,
        arm_links=arm_links,
        context=context,
    )

"""FCLUB (Liu et al. 2022): clients find out who serves alike users, and share with these alone."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.federation import FederatedRounds, choices_of, per_message, where_client
from fedbandit_jax.clocks.rounds import Client, Info
from fedbandit_jax.linalg import Real, pooling, regression
from fedbandit_jax.linalg.pooling import Sums
from fedbandit_jax.linalg.portable import any_lane
from fedbandit_jax.linalg.regression import Ridge


class Local(NamedTuple):
    """A local cluster, in the place of its first user; other places are empty."""

    known: Sums  # S, what it acts on
    log_det: Float[Array, ""]  # of lam I + S
    buffer: Sums  # dS, what its users saw since its last message
    growth: Float[Array, ""]  # of log det by dS
    inverse: Float[Array, "d d"]  # of lam I + S + dS


class Clustering(NamedTuple):
    """An axis M throughout, of users or, in the places of their first users, of clusters."""

    users: Sums  # what each saw
    edges: Bool[Array, "M M"]  # between users of a server
    local: Int[Array, " M"]  # each user's local cluster
    whole: Int[Array, " M"]  # and its global one
    clusters: Local
    total: Sums  # of a global cluster
    acting: Ridge  # of each user, on what its local cluster knows


@dataclass(frozen=True, kw_only=True)
class FCLUB(FederatedRounds):
    r"""Clients whose estimates are near each other form a cluster, and share what they saw within it.

    $$ \lVert \hat\theta_1 - \hat\theta_2 \rVert < \alpha_2 \left( F(T_1) + F(T_2) \right), \qquad
       F(T) = \sqrt{\frac{1 + \log(1 + T)}{1 + T}} $$

    Each client is a user at the local server i mod `servers`; with None each has its own. Before rounds 3, 7, 15, ...
    the clusters are formed anew: users of a server part for good when their estimates differ by more than
    alpha1 (F(T_1) + F(T_2)), and what is still connected is a local cluster; local clusters of different servers join
    as in the formula. A local cluster acts on the S that it knows; what its users see goes into a buffer dS. It sends
    dS when det(S + dS) >= U det(S), and each cluster of the same global one is told all when that has a determinant D
    times its own. A message is d^2 + d + 1 scalars; to form clusters anew takes one of each local cluster, and one back
    if they changed. beta is the width, or "theory" of the public code: 0.5 sqrt(2 log(4/3) + d log(3 + t/d)).

    This is FCLUB-DC, without privacy: its authors' public code adds the noise to the trigger only. The defaults U = D =
    1.01 are theirs, with which clients talk in most of the early rounds: U and D are the constants to scale.

    When: where clients serve different users (`World(preferences=...)`), which learners that pool everything cannot.

    Paper: Liu, Zhao, Yu, Li and Lui, "Federated Online Clustering of Bandits", UAI 2022,
    [arXiv 2208.14865](https://arxiv.org/abs/2208.14865).
    """

    made_for: ClassVar[MadeFor] = {}
    passes_messages: ClassVar[bool] = True

    servers: Hyperparameter = param(None, low=1)
    alpha1: Hyperparameter = param(1.5, low=0, search=Between(0.1, 10))
    alpha2: Hyperparameter = param(2.0, low=0, search=Between(0.1, 10))
    U: Hyperparameter = param(1.01, low=1, infinite=True, search=Between(1.01, 10))
    D: Hyperparameter = param(1.01, low=1, infinite=True, search=Between(1.01, 10))
    beta: Hyperparameter = param(0.5, low=0, words=("theory",), search=Between(0.01, 2))
    lam: Hyperparameter = param(1.0, low=0, ends="()", search=Between(0.01, 10))

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        if self.servers is not None:
            _checks.whole("servers", self.servers)

    def start(self, client: Client) -> Clustering:
        real = client.context.real
        numbers = jnp.arange(len(real), dtype=jnp.int32)
        acting = jax.vmap(lambda arms: regression.start(arms, self.lam, fixed=client.fixed))(client.arms)
        empty = jax.vmap(pooling.nothing)(acting.theta)
        server = self.server_of(numbers)
        edges = (server[:, None] == server[None, :]) & real[:, None] & real[None, :]
        clusters = Local(empty, acting.log_det, empty, jnp.zeros_like(acting.log_det), acting.inverse)
        local = first_reached(edges)
        whole = jnp.where(real & (self.alpha2 > 0), 0, local)  # all estimates are 0
        return Clustering(empty, edges, local, whole, clusters, empty, acting)

    def server_of(self, numbers: Int[Array, " M"]) -> Int[Array, " M"]:
        return numbers if self.servers is None else numbers % jnp.asarray(self.servers).astype(jnp.int32)

    def choose(self, state: Clustering, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        plays = state.users.observations
        t = 1 + (plays.max() if client.who is None else plays.sum())
        beta = self.beta
        if isinstance(beta, str):
            d = state.users.moment.shape[1]
            beta = 0.5 * jnp.sqrt(2 * jnp.log(4 / 3) + d * jnp.log(3 + t / d))

        def upper_bounds(ridge: Ridge, client: Client) -> Float[Array, " K"]:
            means, widths = regression.means_and_widths(ridge, client.arms)
            return jnp.where(client.mask, means + beta * regression.square_root(widths), -jnp.inf)

        return choices_of(upper_bounds, state.acting, client)

    def learn(self, state: Clustering, client: Client, arm: Int[Array, "*M"], reward: Float[Array, "*M"]) -> Clustering:
        x = client.arms[arm]
        if client.who is not None:
            return saw(state, client.who, x, reward)
        seen = client.context.real.astype(reward.dtype)
        return lax.fori_loop(0, len(arm), lambda i, state: saw(state, i, x[i], reward[i], seen[i]), state)

    def theta_hat(self, state: Clustering) -> Float[Array, "M d"]:
        return state.acting.theta

    # -------------------------------------------------------------------------------------------------- messages

    def sends(self, state: Clustering) -> Bool[Array, " M"]:
        return (state.clusters.growth >= jnp.log(self.U)) & (state.clusters.buffer.observations > 0)

    def due(self, state: Clustering, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        return self.sends(state).any() | is_before_phase(t)

    def exchange(self, state: Clustering, client: Client, t: Int[Array, ""]) -> tuple[Clustering, Info]:
        d = state.users.moment.shape[1]
        real, numbers = client.context.real, jnp.arange(len(state.local), dtype=jnp.int32)
        state, uploads, downloads = self.pass_messages(state)

        def start_phase(state: Clustering) -> tuple:
            formed, changed = self.form_clusters(state, real)
            after = jax.tree.map(lambda new, old: jnp.where(changed, new, old), formed, state)
            sent = (real & (formed.local == numbers)).sum().astype(uploads.dtype)
            return after._replace(edges=formed.edges), sent, jnp.where(changed, sent, 0)

        zero = jnp.zeros_like(uploads)
        state, up, down = lax.cond(is_before_phase(t), start_phase, lambda state: (state, zero, zero), state)
        rests, fits = jax.tree.map(lambda x: x[state.local], (state.clusters.known, self.fits(state.clusters.known)))
        acting = jax.vmap(pooling.without_pulls)(state.acting, client.arms, rests, fits)
        return state._replace(acting=acting), per_message(uploads + up, downloads + down, d * d + d + 1)

    def fits(self, sums: Sums) -> pooling.Fit:
        return jax.vmap(lambda one: pooling.fit(one, self.lam))(sums)

    def inverses(self, sums: Sums) -> Float[Array, "M d d"]:
        root = self.fits(sums).root
        return root @ jnp.swapaxes(root, 1, 2)

    def pass_messages(self, state: Clustering) -> tuple[Clustering, Float[Array, ""], Float[Array, ""]]:
        """Clusters that are due send their buffers, one after another; after each, some of its global one are told."""
        numbers = jnp.arange(len(state.local), dtype=jnp.int32)
        is_cluster = state.local == numbers

        def one_message(carry: tuple) -> tuple:
            state, uploads, downloads = carry
            due = self.sends(state)
            sender, is_sent = jnp.argmax(due).astype(jnp.int32), due.any()
            clusters, union = state.clusters, state.whole[sender]
            own: Local = jax.tree.map(lambda x: x[sender], clusters)
            all_: Sums = jax.tree.map(lambda x: x[union], state.total).plus(own.buffer)
            log_det = pooling.log_det(all_, self.lam)
            nothing = pooling.nothing(all_.moment)
            after = Local(own.known.plus(own.buffer), own.log_det + own.growth, nothing, 0 * own.growth, own.inverse)
            clusters = jax.tree.map(lambda x, new: x.at[sender].set(new), clusters, after)

            knows_more = all_.observations > clusters.known.observations
            told = (state.whole == union) & is_cluster & knows_more
            told = told & (log_det - clusters.log_det >= jnp.log(self.D))
            with_buffers = jax.vmap(lambda buffer: pooling.log_det(all_.plus(buffer), self.lam))(clusters.buffer)
            informed = Local(
                known=jax.tree.map(lambda x: jnp.broadcast_to(x, (len(numbers), *x.shape)), all_),
                log_det=jnp.full_like(clusters.log_det, log_det),
                buffer=clusters.buffer,
                growth=with_buffers - log_det,
                inverse=clusters.inverse,  # that of before, see below
            )
            moved = state._replace(
                clusters=where_client(told, informed, clusters),
                total=jax.tree.map(lambda x, new: x.at[union].set(new), state.total, all_),
            )
            moved, told = jax.tree.map(
                lambda new, old: jnp.where(is_sent, new, old), (moved, told), (state, jnp.zeros_like(told))
            )
            return moved, uploads + is_sent, downloads + told.sum()

        zero = jnp.zeros_like(state.clusters.growth[0])
        first = (state, zero, zero)
        state, uploads, downloads = lax.while_loop(
            lambda carry: any_lane(self.sends(carry[0]).any()), one_message, first
        )
        clusters = state.clusters
        clusters = clusters._replace(inverse=self.inverses(jax.vmap(Sums.plus)(clusters.known, clusters.buffer)))
        return state._replace(clusters=clusters), uploads, downloads

    def form_clusters(self, state: Clustering, real: Bool[Array, " M"]) -> tuple[Clustering, Bool[Array, ""]]:
        """The clusters of a new phase, and whether they are others than before."""
        numbers = jnp.arange(len(state.local), dtype=jnp.int32)
        server = self.server_of(numbers)
        near = distances(self.fits(state.users).theta, state.users.observations) <= self.alpha1
        edges = state.edges & near
        local = first_reached(edges)
        sums = within(local, state.users)
        joined = distances(self.fits(sums).theta, sums.observations) < self.alpha2
        joined = joined & (server[:, None] != server[None, :])
        is_cluster = real & (local == numbers)
        whole = first_reached(joined & is_cluster[:, None] & is_cluster[None, :])[local]
        total = within(jnp.where(is_cluster, whole, numbers), sums)
        known: Sums = jax.tree.map(lambda x: x[whole], total)
        fits = self.fits(known)
        empty = jax.tree.map(jnp.zeros_like, known)
        clusters = Local(known, fits.log_det, empty, jnp.zeros_like(fits.log_det), self.inverses(known))
        changed = ((local != state.local) | (whole != state.whole)).any()
        return state._replace(edges=edges, local=local, whole=whole, clusters=clusters, total=total), changed


def is_before_phase(t: Int[Array, ""]) -> Bool[Array, ""]:
    """After t = 2, 6, 14, ... rounds a phase starts."""
    return (t > 0) & ((t + 2) & (t + 1) == 0)


def saw(
    state: Clustering, i: Int[Array, ""], x: Float[Array, " d"], reward: Float[Array, ""], seen: Real = 1.0
) -> Clustering:
    """User i saw the reward of x; a padded one, whose x is 0, saw nothing."""
    news = Sums(jnp.outer(x, x), reward * x, jnp.zeros_like(x), jnp.asarray(seen, x.dtype))
    j, clusters = state.local[i], state.clusters
    u = clusters.inverse[j] @ x
    width = x @ u
    clusters = clusters._replace(
        buffer=jax.tree.map(lambda all_, new: all_.at[j].add(new), clusters.buffer, news),
        growth=clusters.growth.at[j].add(jnp.log1p(width)),
        inverse=clusters.inverse.at[j].add(-jnp.outer(u, u) / (1 + width)),
    )
    return state._replace(
        users=jax.tree.map(lambda all_, new: all_.at[i].add(new), state.users, news), clusters=clusters
    )


def first_reached(edges: Bool[Array, "M M"]) -> Int[Array, " M"]:
    """The first of each one's connected component."""
    M = len(edges)
    reached = (edges | jnp.eye(M, dtype=bool)).astype(jnp.float32)
    for _ in range(max(M - 1, 1).bit_length()):  # paths twice as long each time
        reached = jnp.minimum(reached @ reached, 1)
    return jnp.argmax(reached > 0, axis=1).astype(jnp.int32)


def distances(theta: Float[Array, "M d"], plays: Float[Array, " M"]) -> Float[Array, "M M"]:
    """|theta_1 - theta_2| / (F(T_1) + F(T_2))."""
    F = jnp.sqrt((1 + jnp.log1p(plays)) / (1 + plays))
    return jnp.linalg.norm(theta[:, None, :] - theta[None, :, :], axis=2) / (F[:, None] + F[None, :])


def within(cluster: Int[Array, " M"], sums: Sums) -> Sums:
    """Sums over the members of each cluster, in its place."""
    member = (cluster[None, :] == jnp.arange(len(cluster))[:, None]).astype(sums.moment.dtype)
    return jax.tree.map(lambda x: jnp.tensordot(member, x, axes=1), sums)

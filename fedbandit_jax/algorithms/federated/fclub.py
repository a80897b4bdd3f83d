"""FCLUB (Liu et al. 2022): clients find out who serves alike users, and share with these alone."""

from collections.abc import Callable
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
from fedbandit_jax.linalg.portable import any_lane, matvec, when
from fedbandit_jax.linalg.regression import FixedArms, Ridge


class Seen(NamedTuple):
    """Pulls of a user."""

    plays: Float[Array, ""]
    rewards: Float[Array, ""]  # their sum
    counts: Float[Array, " K"] | Float[Array, "d d"]  # of each arm of a fixed set, or sum x x'
    moment: Float[Array, " K"] | Float[Array, " d"]  # rewards of each arm, or sum x reward

    def plus(self, arm: Int[Array, ""], x: Float[Array, " d"], reward: Float[Array, ""], seen: Real = 1.0) -> "Seen":
        """With another pull; a padded user, whose x is 0, sees nothing."""
        pulled, square = x, None
        if self.counts.ndim == 1:
            pulled = square = seen * (jnp.arange(self.counts.size) == arm).astype(x.dtype)
        counts = self.counts + (jnp.outer(x, x) if square is None else square)
        return Seen(self.plays + seen, self.rewards + seen * reward, counts, self.moment + reward * pulled)

    def sums(self, arms: Float[Array, "K d"]) -> Sums:
        if self.counts.ndim == 2:
            return Sums(self.counts, self.moment, jnp.zeros_like(self.moment), self.plays)
        return Sums((self.counts[:, None] * arms).T @ arms, self.moment @ arms, jnp.zeros_like(arms[0]), self.plays)


class Buffer(NamedTuple):
    """What a user saw since the last message of its local cluster."""

    seen: Seen
    arm: Int[Array, ""]  # pulled last
    x: Float[Array, " d"]
    same: Bool[Array, ""]  # it was pulled throughout

    def plus(self, arm: Int[Array, ""], x: Float[Array, " d"], reward: Float[Array, ""], seen: Real = 1.0) -> "Buffer":
        same = (self.same & (x == self.x).all()) | (self.seen.plays == 0)
        return Buffer(self.seen.plus(arm, x, reward, seen), arm, x, same)


class Clustering(NamedTuple):
    """An axis M throughout, of users; users of a cluster have the same of it."""

    users: Seen  # all that each saw
    edges: Bool[Array, "M M"]  # between users of a server
    local: Int[Array, " M"]  # each one's local cluster, by its first user
    whole: Int[Array, " M"]  # and its global one
    buffers: Buffer
    growth: Float[Array, " M"]  # of log det by the buffers of a local cluster, dS
    total: Ridge  # S_g, in the place of a global cluster's first user; means and widths are of each user's own arms
    current: Bool[Array, " M"]  # a local cluster knows all of S_g
    kept: Ridge  # S of those that do not


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
        real, (M, K, d) = client.context.real, client.arms.shape
        numbers = jnp.arange(M, dtype=jnp.int32)
        ridges = jax.vmap(lambda arms: regression.start(arms, self.lam, fixed=client.fixed))(client.arms)
        zero, vector = jnp.zeros_like(ridges.log_det), jnp.zeros_like(ridges.theta)
        counted = client.fixed and self.servers is None  # a message of users with different arms needs sums
        seen = Seen(zero, zero, *(jnp.zeros((M, *n), zero.dtype) for n in ([(K,), (K,)] if counted else [(d, d), (d,)])))
        server = self.server_of(numbers)
        edges = (server[:, None] == server[None, :]) & real[:, None] & real[None, :]
        local = first_reached(edges)
        whole = jnp.where(real & (self.alpha2 > 0), 0, local)  # all estimates are 0
        buffers = Buffer(seen, jnp.zeros_like(numbers), vector, jnp.ones_like(real))
        return Clustering(seen, edges, local, whole, buffers, zero, ridges, jnp.ones_like(real), ridges)

    def server_of(self, numbers: Int[Array, " M"]) -> Int[Array, " M"]:
        return numbers if self.servers is None else numbers % jnp.asarray(self.servers).astype(jnp.int32)

    def choose(self, state: Clustering, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        plays = state.users.plays
        t = 1 + (plays.max() if client.who is None else plays.sum())
        beta = self.beta
        if isinstance(beta, str):
            d = state.total.theta.shape[1]
            beta = 0.5 * jnp.sqrt(2 * jnp.log(4 / 3) + d * jnp.log(3 + t / d))

        def upper_bounds(ridge: Ridge, client: Client) -> Float[Array, " K"]:
            means, widths = regression.means_and_widths(ridge, client.arms)
            return jnp.where(client.mask, means + beta * regression.square_root(widths), -jnp.inf)

        return choices_of(upper_bounds, acting(state), client)

    def learn(self, state: Clustering, client: Client, arm: Int[Array, "*M"], reward: Float[Array, "*M"]) -> Clustering:
        x, who, M = client.arms[arm], client.who, len(state.local)
        if who is None:
            own = arm - len(client.arms) // M * jnp.arange(M, dtype=arm.dtype)
            pull = own, x, reward, client.context.real.astype(reward.dtype)
            users, buffers = jax.vmap(Seen.plus)(state.users, *pull), jax.vmap(Buffer.plus)(state.buffers, *pull)
            return self.with_growth(state._replace(users=users, buffers=buffers), client.arms.reshape(M, -1, x.shape[1]))
        before: tuple[Seen, Buffer] = jax.tree.map(lambda x: x[who], (state.users, state.buffers))
        after = tuple(one.plus(arm, x, reward) for one in before)
        users, buffers = jax.tree.map(lambda x, new: x.at[who].set(new), (state.users, state.buffers), after)
        arms = jnp.broadcast_to(client.arms, (M, *client.arms.shape))  # only its own are looked at
        return self.with_growth(state._replace(users=users, buffers=buffers), arms, who)

    def with_growth(self, state: Clustering, arms: Float[Array, "M K d"], who: Int[Array, ""] | None = None) -> Clustering:
        """log det(I + S^-1 dS) of each local cluster, or that of user `who`: log(1 + n x' S^-1 x) of n pulls of x."""
        of_one_vector = jnp.log1p(self.in_cluster(state, state.buffers.seen.plays * widths_of_buffers(state)))
        same = self.is_same(state)

        def of_any() -> Float[Array, " M"]:
            inverse = acting(state).inverse
            gram = self.in_cluster(state, jax.vmap(Seen.sums)(state.buffers.seen, arms).gram)
            if who is not None:
                inverse, gram = inverse[who][None], gram[who][None]
            exact = jnp.linalg.slogdet(jnp.eye(inverse.shape[1], dtype=inverse.dtype)[None] + inverse @ gram)[1]
            return jnp.where(same, of_one_vector, exact)

        growth = lax.cond(any_lane(~same.all()), of_any, lambda: of_one_vector)
        if who is not None:
            growth = jnp.where(state.local == state.local[who], growth, state.growth)
        return state._replace(growth=growth)

    def in_cluster(self, state: Clustering, each: Any) -> Any:
        """Sums over each one's local cluster."""
        return each if self.servers is None else within(state.local, each)

    def is_same(self, state: Clustering) -> Bool[Array, " M"]:
        """Has a local cluster pulled the same vector since its last message?"""
        filled = state.buffers.seen.plays > 0
        return self.in_cluster(state, jnp.where(state.buffers.same, 1.0, 2.0) * filled) <= 1

    def theta_hat(self, state: Clustering) -> Float[Array, "M d"]:
        return acting(state).theta

    # -------------------------------------------------------------------------------------------------- messages

    def sends(self, state: Clustering) -> Bool[Array, " M"]:
        return (state.growth >= jnp.log(self.U)) & (self.in_cluster(state, state.buffers.seen.plays) > 0)

    def due(self, state: Clustering, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        return self.sends(state).any() | is_before_phase(t)

    def exchange(self, state: Clustering, client: Client, t: Int[Array, ""]) -> tuple[Clustering, Info]:
        d = state.total.theta.shape[1]
        real, numbers = client.context.real, jnp.arange(len(state.local), dtype=jnp.int32)
        state, uploads, downloads = self.pass_messages(state, client)

        def start_phase(state: Clustering) -> tuple:
            formed, changed = self.form_clusters(state, client)
            after = jax.tree.map(lambda new, old: jnp.where(changed, new, old), formed, state)
            sent = (real & (formed.local == numbers)).sum().astype(uploads.dtype)
            return after._replace(edges=formed.edges), sent, jnp.where(changed, sent, 0)

        zero = jnp.zeros_like(uploads)
        state, up, down = lax.cond(is_before_phase(t), start_phase, lambda state: (state, zero, zero), state)
        return state, per_message(uploads + up, downloads + down, d * d + d + 1)

    def pass_messages(self, state: Clustering, client: Client) -> tuple[Clustering, Float[Array, ""], Float[Array, ""]]:
        """Clusters that are due send their buffers, one after another; after each, some of its global one are told."""
        is_cluster = state.local == jnp.arange(len(state.local), dtype=jnp.int32)

        def one_message(carry: tuple) -> tuple:
            state, uploads, downloads = carry
            due = self.sends(state)
            i, is_sent = jnp.argmax(due).astype(jnp.int32), due.any()
            sends, shares = (state.local == state.local[i]) & is_sent, (state.whole == state.whole[i]) & is_sent
            message = self.message_of(state, client, i)
            before = known_to_server(state, i)
            after = with_message(before, client.arms.reshape(-1, client.arms.shape[2]), message)

            knows = acting(state)
            plays = knows.observations + jnp.where(sends, message.plays, 0)
            log_det = knows.log_det + jnp.where(sends, state.growth, 0)
            told = shares & (after.observations > plays) & (after.log_det - log_det >= jnp.log(self.D))
            current = jnp.where(shares, told | (after.observations == plays), state.current)
            left, alone = shares & state.current & ~current, sends & ~current

            def leave(kept: Ridge) -> Ridge:
                ridges = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(left), *x.shape)), before)
                return where_client(left, ridges._replace(pulls=state.total.pulls), kept)

            def add_alone(kept: Ridge) -> Ridge:
                added = jax.vmap(lambda ridge, arms: with_message(ridge, arms, message))(kept, client.arms)
                return where_client(alone, added, kept)

            kept = when(any_lane(left.any()), leave, state.kept)
            kept = when(any_lane(alone.any()), add_alone, kept)
            state = state._replace(
                buffers=emptied(state.buffers, sends),
                total=told_to_server(state, i, shares, after),
                current=current,
                kept=kept,
            )
            return self.with_growth(state, client.arms), uploads + is_sent, downloads + (told & is_cluster).sum()

        zero = jnp.zeros_like(state.growth[0])
        first = (state, zero, zero)
        return lax.while_loop(lambda carry: any_lane(self.sends(carry[0]).any()), one_message, first)

    def message_of(self, state: Clustering, client: Client, i: Int[Array, ""]) -> "Message":
        """What the local cluster of user i sends."""
        seen, filled = state.buffers.seen, state.buffers.seen.plays > 0
        each = seen.plays, seen.rewards, jnp.where(filled[:, None], state.buffers.x, 0)
        plays, rewards, x = (of_all[i] for of_all in self.in_cluster(state, each))

        def sums() -> Sums:
            of_all: Sums = self.in_cluster(state, jax.vmap(Seen.sums)(seen, client.arms))
            return jax.tree.map(lambda x: x[i], of_all)

        return Message(plays, x, rewards / jnp.maximum(plays, 1), self.is_same(state)[i], sums)

    def form_clusters(self, state: Clustering, client: Client) -> tuple[Clustering, Bool[Array, ""]]:
        """The clusters of a new phase, and whether they are others than before."""
        real, numbers = client.context.real, jnp.arange(len(state.local), dtype=jnp.int32)
        server = self.server_of(numbers)
        users = jax.vmap(Seen.sums)(state.users, client.arms)
        near = distances(self.fits(users).theta, users.observations) <= self.alpha1
        edges = state.edges & near
        local = first_reached(edges)
        sums = within(local, users)
        joined = distances(self.fits(sums).theta, sums.observations) < self.alpha2
        joined = joined & (server[:, None] != server[None, :])
        is_cluster = real & (local == numbers)
        whole = first_reached(joined & is_cluster[:, None] & is_cluster[None, :])[local]
        total = within(whole, users)
        formed = state._replace(
            edges=edges,
            local=local,
            whole=whole,
            buffers=emptied(state.buffers, jnp.ones_like(real)),
            growth=jnp.zeros_like(state.growth),
            total=jax.vmap(pooling.without_pulls)(state.total, client.arms, total, self.fits(total)),
            current=jnp.ones_like(real),
        )
        return formed, ((local != state.local) | (whole != state.whole)).any()

    def fits(self, sums: Sums) -> pooling.Fit:
        return jax.vmap(lambda one: pooling.fit(one, self.lam))(sums)

    def refresh(self, state: Clustering, client: Client) -> Clustering:
        total, kept = (
            jax.vmap(lambda ridge, arms: regression.recompute(ridge, arms, self.lam))(ridges, client.arms)
            for ridges in (of_users(state), state.kept)
        )
        return state._replace(total=total, kept=kept)


class Message(NamedTuple):
    """Pulls, mostly of one vector x: on fixed arms a cluster that is told nothing goes on with its arm."""

    plays: Float[Array, ""]
    x: Float[Array, " d"]
    mean: Float[Array, ""]  # of the rewards
    same: Bool[Array, ""]  # all are of x
    sums: Callable[[], Sums]


def with_message(ridge: Ridge, arms: Float[Array, "K d"], message: Message) -> Ridge:
    """A regression on a message too, by a rank-one update if it is of one vector."""

    def of_one_vector(ridge: Ridge) -> Ridge:
        return regression.observe(ridge, arms, message.x, message.mean, message.plays)[0]

    def of_any(ridge: Ridge) -> Ridge:
        sums = pooling.of_the_rest(ridge, jnp.zeros_like(ridge.log_det)).plus(message.sums())
        return pooling.without_pulls(ridge, arms, sums, pooling.fit(sums, ridge.prior))

    return lax.cond(any_lane(~message.same), of_any, of_one_vector, ridge)


def of_users(state: Clustering) -> Ridge:
    """What the server knows of each one's global cluster."""
    return jax.tree.map(lambda x: x[state.whole], state.total)._replace(pulls=state.total.pulls)


def acting(state: Clustering) -> Ridge:
    """What each one's local cluster knows, S."""
    return where_client(state.current, of_users(state), state.kept)


def known_to_server(state: Clustering, i: Int[Array, ""]) -> Ridge:
    """Of the global cluster of user i; as one client with the arms of all users, where they are fixed."""
    one: Ridge = jax.tree.map(lambda x: x[state.whole[i]], state.total)
    if isinstance(state.total.pulls, FixedArms):
        one = one._replace(pulls=jax.tree.map(lambda x: x.reshape(-1), state.total.pulls))
    return one


def told_to_server(state: Clustering, i: Int[Array, ""], shares: Bool[Array, " M"], known: Ridge) -> Ridge:
    """`known` in the place of what was known of the global cluster of user i."""
    place = jnp.where(shares.any(), state.whole[i], len(shares))
    pulls = state.total.pulls
    if isinstance(pulls, FixedArms):
        pulls = where_client(shares, jax.tree.map(lambda x, old: x.reshape(old.shape), known.pulls, pulls), pulls)
    known = known._replace(pulls=jax.tree.map(lambda x: x[0], pulls))
    return jax.tree.map(lambda x, new: x.at[place].set(new, mode="drop"), state.total, known)._replace(pulls=pulls)


def widths_of_buffers(state: Clustering) -> Float[Array, " M"]:
    """x' S^-1 x of what each pulled last."""
    knows = acting(state)
    if isinstance(knows.pulls, FixedArms):
        widths = jnp.take_along_axis(knows.pulls.widths, state.buffers.arm[:, None], axis=1)[:, 0]
        return jnp.maximum(widths, 0)
    return jax.vmap(lambda inverse, x: x @ matvec(inverse, x))(knows.inverse, state.buffers.x)


def emptied(buffers: Buffer, mask: Bool[Array, " M"]) -> Buffer:
    """Without those of the mask."""
    nothing = jax.tree.map(jnp.zeros_like, buffers)._replace(same=jnp.ones_like(mask))
    return where_client(mask, nothing, buffers)


def is_before_phase(t: Int[Array, ""]) -> Bool[Array, ""]:
    """After t = 2, 6, 14, ... rounds a phase starts."""
    return (t > 0) & ((t + 2) & (t + 1) == 0)


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


def within(cluster: Int[Array, " M"], each: Any) -> Any:
    """Sums over the cluster of each one."""
    together = (cluster[None, :] == cluster[:, None]).astype(jnp.float32)
    return jax.tree.map(lambda x: jnp.tensordot(together.astype(x.dtype), x, axes=1), each)

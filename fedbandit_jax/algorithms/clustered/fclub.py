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
from fedbandit_jax.linalg import Real, forms, pooling, regression
from fedbandit_jax.linalg.pooling import Known, Sums, known_from
from fedbandit_jax.linalg.portable import any_lane, matvec, when


class Seen(NamedTuple):
    """Pulls of a user."""

    plays: Float[Array, ""]
    counts: Float[Array, " K"] | Float[Array, "d d"]  # of each arm of a fixed set, or sum x x'
    moment: Float[Array, " K"] | Float[Array, " d"]  # rewards of each arm, or sum x reward

    def plus(self, arm: Int[Array, ""], x: Float[Array, " d"], reward: Float[Array, ""], seen: Real = 1.0) -> "Seen":
        """With another pull; a padded user, whose x is 0, sees nothing."""
        if self.counts.ndim == 2:
            return Seen(self.plays + seen, self.counts + jnp.outer(x, x), self.moment + reward * x)
        pulled = seen * (jnp.arange(self.counts.size) == arm).astype(x.dtype)
        return Seen(self.plays + seen, self.counts + pulled, self.moment + reward * pulled)

    def sums(self, arms: Float[Array, "K d"]) -> Sums:
        if self.counts.ndim == 2:
            return Sums(self.counts, self.moment, jnp.zeros_like(self.moment), self.plays)
        return Sums((self.counts[:, None] * arms).T @ arms, self.moment @ arms, jnp.zeros_like(arms[0]), self.plays)


class Clustering(NamedTuple):
    """An axis M throughout, of users; users of a cluster have the same of it.

    What a user has not sent is the buffer of its local cluster, dS.
    """

    users: Seen  # all that each saw
    sent: Seen  # what the server knows of it
    last: Int[Array, " M"] | Float[Array, "M d"]  # pulled: the arm of a fixed set, or x
    same: Bool[Array, " M"]  # it was pulled throughout since the last message
    rewards: Float[Array, " M"]  # since then, their sum
    growth: Float[Array, " M"]  # of a local cluster's log det by dS, at most
    edges: Bool[Array, "M M"]  # between users of a server
    local: Int[Array, " M"]  # each one's local cluster, by its first user
    whole: Int[Array, " M"]  # and its global one
    total: Known  # S_g, in the place of a global cluster's first user; means and widths are of each user's own arms
    current: Bool[Array, " M"]  # a local cluster knows all of S_g
    kept: Known  # S of those that do not
    kept_sums: Sums

    @property
    def unsent(self) -> Float[Array, " M"]:
        return self.users.plays - self.sent.plays


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
    1.01 are theirs, with which clients talk in all of the early rounds, and at d = 50 with ten of them in six of ten of
    the first 2000: U and D are the constants to scale.

    When: where clients serve different users (`World(preferences=...)`), which learners that pool everything cannot.

    Paper: Liu, Zhao, Yu, Li and Lui, "Federated Online Clustering of Bandits", UAI 2022,
    [arXiv 2208.14865](https://arxiv.org/abs/2208.14865).
    """

    made_for: ClassVar[MadeFor] = {}
    passes_messages: ClassVar[bool] = True
    minds_who_is_due: ClassVar[bool] = True
    revision: ClassVar[int] = 2

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
        def nothing_known(arms: Float[Array, "K d"]) -> Known:
            ridge = regression.start(arms, self.lam, fixed=client.fixed)
            of_arms = (ridge.means, ridge.widths) if client.fixed else (None, None)
            return Known(ridge.inverse, ridge.theta, ridge.log_det, ridge.observations, *of_arms)

        real, known = client.context.real, jax.vmap(nothing_known)(client.arms)
        numbers = jnp.arange(len(real), dtype=jnp.int32)
        zero, empty = known.plays, jax.vmap(pooling.nothing)(known.theta)
        seen = Seen(zero, empty.gram, empty.moment)
        if client.fixed and self.servers is None:  # otherwise a message is of several users' arms
            assert known.means is not None
            seen = Seen(zero, known.means, known.means)
        server = self.server_of(numbers)
        edges = (server[:, None] == server[None, :]) & real[:, None] & real[None, :]
        local = first_reached(edges)
        return Clustering(
            users=seen,
            sent=seen,
            last=jnp.zeros_like(numbers) if client.fixed else known.theta,
            same=jnp.ones_like(real),
            rewards=zero,
            growth=zero,
            edges=edges,
            local=local,
            whole=jnp.where(real & (self.alpha2 > 0), 0, local),  # all estimates are 0
            total=known,
            current=jnp.ones_like(real),
            kept=known,
            kept_sums=empty,
        )

    def server_of(self, numbers: Int[Array, " M"]) -> Int[Array, " M"]:
        return numbers if self.servers is None else numbers % jnp.asarray(self.servers).astype(jnp.int32)

    def choose(self, state: Clustering, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        t = 1 + (state.users.plays.max() if client.who is None else state.users.plays.sum())
        beta = self.beta
        if isinstance(beta, str):
            d = state.total.theta.shape[1]
            beta = 0.5 * jnp.sqrt(2 * jnp.log(4 / 3) + d * jnp.log(3 + t / d))

        def upper_bounds(known: Known, client: Client) -> Float[Array, " K"]:
            means, widths = known.means, known.widths
            if means is None or widths is None:
                widths = forms.quadratic_forms(client.arms, known.inverse)
                means, widths = matvec(client.arms, known.theta), regression.rounded_to(1 / lam, widths)
            return jnp.where(client.mask, means + beta * regression.square_root(widths), -jnp.inf)

        lam = jnp.asarray(self.lam, state.growth.dtype)
        return choices_of(upper_bounds, acting(state), client)

    def learn(self, state: Clustering, client: Client, arm: Int[Array, "*M"], reward: Float[Array, "*M"]) -> Clustering:
        x, who, M = client.arms[arm], client.who, len(state.local)
        if who is None:
            arm = arm - len(client.arms) // M * jnp.arange(M, dtype=arm.dtype)
            seen = client.context.real.astype(reward.dtype)
            users, rewards = jax.vmap(Seen.plus)(state.users, arm, x, reward, seen), state.rewards + seen * reward
            last = arm if client.fixed else x
        else:
            after = jax.tree.map(lambda x: x[who], state.users).plus(arm, x, reward)
            users = jax.tree.map(lambda x, new: x.at[who].set(new), state.users, after)
            rewards, last = state.rewards.at[who].add(reward), state.last.at[who].set(arm if client.fixed else x)
        same = (state.same & (last == state.last).reshape(M, -1).all(axis=1)) | (state.unsent == 0)
        state = state._replace(users=users, rewards=rewards, last=last, same=same)
        concerned = True if who is None else state.local == state.local[who]
        return state._replace(growth=jnp.where(concerned, self.growth_at_most(state), state.growth))

    def growth_at_most(self, state: Clustering) -> Float[Array, " M"]:
        """The trace of S^-1 dS, which no log det(I + S^-1 dS) exceeds: until it reaches log U no message is due."""
        knows, unsent = acting(state), jax.tree.map(jnp.subtract, state.users, state.sent)
        weights = knows.inverse if unsent.counts.ndim == 3 else knows.widths
        traces = (unsent.counts * weights).reshape(len(state.local), -1).sum(axis=1)
        return jnp.where(self.is_same(state), self.growth_by_one(state), self.in_cluster(state, traces))

    def growth_by_one(self, state: Clustering) -> Float[Array, " M"]:
        """log(1 + n x' S^-1 x) of n pulls of x: that of a local cluster which pulled nothing else."""
        return jnp.log1p(self.in_cluster(state, state.unsent * widths_of_last(state)))

    def growth(self, state: Clustering, arms: Float[Array, "M K d"]) -> Float[Array, " M"]:
        """log det(I + S^-1 dS) of each local cluster."""
        of_one_vector, same = self.growth_by_one(state), self.is_same(state)

        def of_any(of_one_vector: Float[Array, " M"]) -> Float[Array, " M"]:
            gram = self.unsent_sums(state, arms).gram
            return jnp.where(same, of_one_vector, jax.vmap(log_det_growth)(acting(state).inverse, gram))

        return when(any_lane(~same.all()), of_any, of_one_vector)

    def in_cluster(self, state: Clustering, each: Any) -> Any:
        """Sums over each one's local cluster."""
        return each if self.servers is None else within(state.local, each)

    def unsent_sums(self, state: Clustering, arms: Float[Array, "M K d"]) -> Sums:
        """The buffer of each one's local cluster, dS."""
        unsent = jax.tree.map(jnp.subtract, state.users, state.sent)
        return self.in_cluster(state, jax.vmap(Seen.sums)(unsent, arms))

    def is_same(self, state: Clustering) -> Bool[Array, " M"]:
        """Has a local cluster pulled the same vector since its last message?"""
        return self.in_cluster(state, jnp.where(state.same, 1.0, 2.0) * (state.unsent > 0)) <= 1

    def theta_hat(self, state: Clustering) -> Float[Array, "M d"]:
        return acting(state).theta

    # -------------------------------------------------------------------------------------------------- messages

    def sends(self, state: Clustering) -> Bool[Array, " M"]:
        return (state.growth >= jnp.log(self.U)) & (self.in_cluster(state, state.unsent) > 0)

    def due(self, state: Clustering, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        return self.sends(state).any() | is_before_phase(t)

    def exchange(self, state: Clustering, client: Client, t: Int[Array, ""]) -> tuple[Clustering, Info]:
        d, numbers = state.total.theta.shape[1], jnp.arange(len(state.local), dtype=jnp.int32)

        def start_phase(carry: tuple) -> tuple:
            state, uploads, downloads = carry
            formed, changed = self.form_clusters(state, client)
            after = jax.tree.map(lambda new, old: jnp.where(changed, new, old), formed, state)
            sent = (client.context.real & (formed.local == numbers)).sum().astype(uploads.dtype)
            return after._replace(edges=formed.edges), uploads + sent, downloads + jnp.where(changed, sent, 0)

        state, uploads, downloads = when(is_before_phase(t), start_phase, self.pass_messages(state, client))
        return state, per_message(uploads, downloads, d * d + d + 1)

    def pass_messages(self, state: Clustering, client: Client) -> tuple[Clustering, Float[Array, ""], Float[Array, ""]]:
        """Clusters that are due send their buffers, one after another; after each, some of its global one are told.

        On fixed arms a cluster that is told nothing goes on with its arm: nearly all messages are of one vector.
        """
        M, K, d = client.arms.shape
        is_cluster = state.local == jnp.arange(M, dtype=jnp.int32)
        rows = client.arms.reshape(M * K, d)
        x_of = jax.vmap(lambda arms, last: arms[last]) if client.fixed else (lambda _, last: last)

        def known_from_(sums: Sums, arms: Float[Array, "K d"]) -> Known:
            return known_from(sums, self.lam, arms, client.fixed)

        def one_message(carry: tuple) -> tuple:
            state, uploads, downloads = carry
            due = self.sends(state)
            i, is_sent = jnp.argmax(due).astype(jnp.int32), due.any()
            sends, shares = (state.local == state.local[i]) & is_sent, (state.whole == state.whole[i]) & is_sent
            xs = jnp.where((state.unsent > 0)[:, None], x_of(client.arms, state.last), 0)
            x, plays, rewards = (each[i] for each in self.in_cluster(state, (xs, state.unsent, state.rewards)))
            other = any_lane(is_sent & ~self.is_same(state)[i])

            def server_sums(sent: Seen) -> Sums:
                all_: Sums = jax.vmap(Seen.sums)(sent, client.arms)
                return jax.tree.map(lambda x: jnp.tensordot(shares.astype(x.dtype), x, axes=1), all_)

            def fitted_anew(_: Known) -> Known:
                return known_from_(server_sums(where_client(sends, state.users, state.sent)), rows)

            before = total_of(state, i)
            after: Known = when(other, fitted_anew, before.plus(rows, x, plays, rewards))

            knows = acting(state)  # and whoever sends, its message too
            known_plays = knows.plays + jnp.where(sends, plays, 0)
            log_det = knows.log_det + jnp.where(sends, state.growth, 0)
            told = shares & (after.plays > known_plays) & (after.log_det - log_det >= jnp.log(self.D))
            current = jnp.where(shares, told | (after.plays == known_plays), state.current)
            left, alone = shares & state.current & ~current, sends & ~current

            def leave(state: Clustering) -> Clustering:
                now = jax.tree.map(lambda x: jnp.broadcast_to(x, (M, *x.shape)), (before, server_sums(state.sent)))
                known = now[0]._replace(means=state.total.means, widths=state.total.widths)
                kept, sums = where_client(left, (known, now[1]), (state.kept, state.kept_sums))
                return state._replace(kept=kept, kept_sums=sums)

            def add_alone(state: Clustering) -> Clustering:
                sums = jax.vmap(Sums.plus)(state.kept_sums, self.unsent_sums(state, client.arms))
                new = jax.vmap(known_from_)(sums, client.arms), sums
                kept, sums = where_client(alone, new, (state.kept, state.kept_sums))
                return state._replace(kept=kept, kept_sums=sums)

            state = when(any_lane(left.any()), leave, state)
            state = when(any_lane(alone.any()), add_alone, state)
            state = state._replace(
                sent=where_client(sends, state.users, state.sent),
                rewards=jnp.where(sends, 0, state.rewards),
                total=with_total(state, i, shares, after),
                current=current,
            )
            state = state._replace(growth=self.growth(state, client.arms))
            return state, uploads + is_sent, downloads + (told & is_cluster).sum()

        zero = jnp.zeros_like(state.growth[0])
        first = (state._replace(growth=self.growth(state, client.arms)), zero, zero)
        return lax.while_loop(lambda carry: any_lane(self.sends(carry[0]).any()), one_message, first)

    def form_clusters(self, state: Clustering, client: Client) -> tuple[Clustering, Bool[Array, ""]]:
        """The clusters of a new phase, and whether they are others than before."""
        real, numbers = client.context.real, jnp.arange(len(state.local), dtype=jnp.int32)
        server = self.server_of(numbers)
        users = jax.vmap(Seen.sums)(state.users, client.arms)
        edges = state.edges & (distances(self.thetas(users), users.observations) <= self.alpha1)
        local = first_reached(edges)
        sums = within(local, users)
        alike = distances(self.thetas(sums), sums.observations) < self.alpha2
        joined = alike & (server[:, None] != server[None, :])
        is_cluster = real & (local == numbers)
        whole = first_reached(joined & is_cluster[:, None] & is_cluster[None, :])[local]
        formed = state._replace(
            sent=state.users,
            rewards=jnp.zeros_like(state.rewards),
            growth=jnp.zeros_like(state.growth),
            edges=edges,
            local=local,
            whole=whole,
            current=jnp.ones_like(real),
        )
        changed = ((local != state.local) | (whole != state.whole)).any()
        return formed._replace(total=self.totals(formed, client)), changed

    def totals(self, state: Clustering, client: Client) -> Known:
        """What the server knows of each one's global cluster, from sums."""
        sums = within(state.whole, jax.vmap(Seen.sums)(state.sent, client.arms))
        return jax.vmap(lambda sums, arms: known_from(sums, self.lam, arms, client.fixed))(sums, client.arms)

    def thetas(self, sums: Sums) -> Float[Array, "M d"]:
        return jax.vmap(lambda one: pooling.fit(one, self.lam).theta)(sums)

    def refresh(self, state: Clustering, client: Client) -> Clustering:
        return state._replace(total=self.totals(state, client))


def acting(state: Clustering) -> Known:
    """What each one's local cluster knows, S."""
    total = jax.tree.map(lambda x: x[state.whole], state.total)
    total = total._replace(means=state.total.means, widths=state.total.widths)
    return where_client(state.current, total, state.kept)


def log_det_growth(inverse: Float[Array, "d d"], gram: Float[Array, "d d"]) -> Float[Array, ""]:
    """log det(I + S^-1 dS) by the Cholesky factor of I + L' dS L, where S^-1 = L L'."""
    root = regression.cholesky(inverse)
    inside = jnp.eye(len(gram), dtype=gram.dtype) + root.T @ gram @ root
    return 2 * jnp.log(jnp.diag(regression.cholesky(inside))).sum()


def total_of(state: Clustering, i: Int[Array, ""]) -> Known:
    """What the server knows of the global cluster of user i; means and widths are of all arms."""
    inverse, theta, log_det, plays = (x[state.whole[i]] for x in state.total[:4])
    of_arms = (x if x is None else x.reshape(-1) for x in state.total[4:])
    return Known(inverse, theta, log_det, plays, *of_arms)


def with_total(state: Clustering, i: Int[Array, ""], shares: Bool[Array, " M"], known: Known) -> Known:
    """The same known instead, if anybody shares it."""
    place = jnp.where(shares.any(), state.whole[i], len(shares))
    matrices = (x.at[place].set(new, mode="drop") for x, new in zip(state.total[:4], known[:4], strict=True))
    of_arms = (
        None if old is None or new is None else jnp.where(shares[:, None], new.reshape(old.shape), old)
        for old, new in zip(state.total[4:], known[4:], strict=True)
    )
    return Known(*matrices, *of_arms)


def widths_of_last(state: Clustering) -> Float[Array, " M"]:
    """x' S^-1 x of what each pulled last."""
    knows = acting(state)
    if knows.widths is not None:
        return jnp.maximum(jnp.take_along_axis(knows.widths, state.last[:, None], axis=1)[:, 0], 0)
    return jax.vmap(lambda inverse, x: x @ matvec(inverse, x))(knows.inverse, state.last)


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

"""HetoFedBandit (Blaser et al. 2024): clients that a test cannot tell apart share what they saw, a clique at a time."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.federation import Member, Setting, Synchronised, choices_of, per_message, where_client
from fedbandit_jax.clocks.rounds import Client, Info
from fedbandit_jax.linalg import pooling
from fedbandit_jax.linalg.eigenvalues import least_squares
from fedbandit_jax.linalg.pooling import Sums
from fedbandit_jax.linalg.portable import any_lane
from fedbandit_jax.linalg.sampling import high_word


class Cliques(NamedTuple):
    members: Member  # an axis M
    sent: Sums  # what each client ever sent, an axis M
    formed: Bool[Array, ""]
    cliques: Bool[Array, "M M"]  # row k: who is in the clique k; nobody in most
    queue: Int[Array, " M"]  # the place of each clique in it, from 0; M of those that are not there


@dataclass(frozen=True, kw_only=True)
class HetoFedBandit(Synchronised, LinUCB):
    r"""DisLinUCB among clients that a chi-square test takes for users with the same preference.

    $$ \frac{\lVert X_i (\hat\theta_i - \hat\theta_{ij}) \rVert^2 +
       \lVert X_j (\hat\theta_j - \hat\theta_{ij}) \rVert^2}{\sigma^2} \sim \chi^2, \qquad
       D_k = \frac{T \log(|C_k| T)}{d \, |C_k|} $$

    Each client first plays T0 arms at random. When all have, each sends its sums, and two clients are joined unless the
    p-value of the test is at most `level`; the degrees of freedom are rank X_i + rank X_j - rank of both. Cliques C_k
    of this graph then share as DisLinUCB does, when one member's growth of log det V times its plays since it was told
    is above D_k; D may be a number, too. The server serves one clique a round, first come, first served: its members
    send what they saw, d^2 + d scalars, and are told what all of them ever saw, as many. The sums for the test are M
    uploads of d^2 + d more. alpha, lam, delta and sigma are LinUCB's; T is a client's number of rounds.

    Departures: a graph may have exponentially many maximal cliques, and the paper takes all. Here each client starts
    one and takes in, lowest number first, whoever is joined to all in it: at most M, every client is in one, and where
    groups are told apart without error they are all there are. The public code's test has a non-centrality of 1 /
    (sigma M)^2, left out here, and one D for all cliques.

    When: where clients serve a few kinds of users (`World(preferences=...)`), and T0 random plays are affordable.

    Paper: Blaser, Li and Wang, "Federated Linear Contextual Bandits with Heterogeneous Clients", AISTATS 2024,
    [arXiv 2403.00116](https://arxiv.org/abs/2403.00116).
    """

    T0: Hyperparameter = param(70, low=0, search=Between(10, 200))
    level: Hyperparameter = param(0.01, low=0, high=1)
    D: Hyperparameter = param("theory", low=0, infinite=True, words=("theory",), search=Between(1, 1e4))

    def start(self, client: Client) -> Any:
        members = super().start(client).members
        M = len(members.unsent)
        nobody = jnp.zeros((M, M), bool)
        sent = jax.vmap(pooling.nothing)(members.ridge.theta)
        return Cliques(members, sent, jnp.bool_(False), nobody, jnp.full(M, M, jnp.int32))

    def choose(self, state: Any, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        def score(one: tuple, client: Client) -> Float[Array, " K"]:
            number, plays, ridge = one
            word = jax.random.bits(jax.random.fold_in(key, number), (), jnp.uint32)
            at_random = high_word(word, client.mask.sum().astype(jnp.uint32)).astype(jnp.int32)
            is_drawn = (jnp.arange(len(client.mask)) == at_random).astype(plays.dtype)
            return jnp.where(plays < self.T0, is_drawn, self.ucb(ridge, client))

        numbers = jnp.arange(len(state.queue), dtype=jnp.int32)
        return choices_of(score, (numbers, plays_of(state), state.members.ridge), client)

    def theta_hat(self, state: Any) -> Float[Array, "M d"]:
        return state.members.ridge.theta

    # -------------------------------------------------------------------------------------------------- messages

    def limits(self, sizes: Float[Array, " M"], setting: Setting, dim: int) -> Float[Array, " M"]:
        """D of cliques of these sizes."""
        if not isinstance(self.D, str):
            return jnp.full_like(sizes, self.D)
        return setting.horizon * jnp.log(sizes * setting.horizon) / (dim * sizes)

    def triggers(self, state: Cliques, client: Client, cliques: Bool[Array, "M M"]) -> Bool[Array, "M M"]:
        """The cliques that each client asks the server to serve."""
        learned = state.members.growth * state.members.unsent
        sizes = jnp.maximum(cliques.sum(axis=1), 1).astype(learned.dtype)
        limits = self.limits(sizes, client.context, state.sent.moment.shape[1])
        return cliques.T & (learned[:, None] > limits[None, :])

    def is_forming(self, state: Cliques, client: Client) -> Bool[Array, ""]:
        return ~state.formed & ((plays_of(state) >= self.T0) | ~client.context.real).all()

    def due(self, state: Cliques, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        waiting = (state.queue < len(state.queue)).any() | self.triggers(state, client, state.cliques).any()
        return self.is_forming(state, client) | waiting

    def exchange(self, state: Cliques, client: Client, t: Int[Array, ""]) -> tuple[Cliques, Info]:
        forming, M, d = self.is_forming(state, client), len(state.queue), state.sent.moment.shape[1]
        cliques = lax.cond(any_lane(forming), lambda: self.form(state, client), lambda: state.cliques)
        cliques = jnp.where(forming, cliques, state.cliques)
        queue = enqueue(state.queue, self.triggers(state, client, cliques))
        first = jnp.argmin(queue)
        served = cliques[first] & (queue[first] == 0)
        members, sent = share(state, client, served, first)
        queue = jnp.where((queue > 0) & (queue < M), queue - 1, M)
        messages = served.sum().astype(members.unsent.dtype)
        uploads = messages + jnp.where(forming, client.context.clients, 0)
        return Cliques(members, sent, state.formed | forming, cliques, queue), per_message(uploads, messages, d * d + d)

    def form(self, state: Cliques, client: Client) -> Bool[Array, "M M"]:
        """Cliques of clients that the test does not tell apart; so far all that they saw are their own pulls."""
        members, real = state.members, client.context.real
        own = jax.vmap(pooling.of_pulls)(members.ridge, client.arms, members.unsent)
        sigma = client.noise if self.sigma is None else self.sigma
        with_all = jax.vmap(lambda a, b: homogeneity(a, b, sigma), in_axes=(None, 0))
        p_values = jax.vmap(with_all, in_axes=(0, None))(own, own)
        return first_cliques((p_values > self.level) & real[:, None] & real[None, :]) & real[:, None]


def plays_of(state: Cliques) -> Float[Array, " M"]:
    return state.sent.observations + state.members.unsent


def homogeneity(a: Sums, b: Sums, sigma: Float[Array, ""]) -> Float[Array, ""]:
    """The p-value of: both are observations of the same theta."""
    b = b.about(a.reference)
    theta, unseen = least_squares(a.gram + b.gram, a.moment + b.moment)
    statistic, freedom = jnp.zeros_like(unseen), unseen - len(theta)
    for one in (a, b):
        own, unseen = least_squares(one.gram, one.moment)
        statistic += (own - theta) @ one.gram @ (own - theta)
        freedom += len(theta) - unseen
    p_value = jax.scipy.special.gammaincc(jnp.maximum(freedom, 1) / 2, jnp.maximum(statistic, 0) / sigma**2 / 2)
    return jnp.where(freedom > 0, p_value, 1)


def first_cliques(joined: Bool[Array, "M M"]) -> Bool[Array, "M M"]:
    """Row k: the clique that starts with k and takes in, in turn, whoever is joined to all in it; no clique twice."""
    M = len(joined)

    def take_in(j: Int[Array, ""], cliques: Bool[Array, "M M"]) -> Bool[Array, "M M"]:
        return cliques.at[:, j].set(cliques[:, j] | (joined[j][None, :] | ~cliques).all(axis=1))

    cliques = lax.fori_loop(0, M, take_in, jnp.eye(M, dtype=bool))
    same = (cliques[:, None, :] == cliques[None, :, :]).all(axis=2)
    return cliques & ~jnp.tril(same, -1).any(axis=1)[:, None]


def enqueue(queue: Int[Array, " M"], triggers: Bool[Array, "M M"]) -> Int[Array, " M"]:
    """Those that are wanted go to the end, in the order of the clients, and of the cliques of each."""
    M = len(queue)
    waiting = queue < M
    is_new = triggers.any(axis=0) & ~waiting
    order = jnp.argmax(triggers, axis=0).astype(jnp.int32) * M + jnp.arange(M, dtype=jnp.int32)
    before = is_new[None, :] & (order[None, :] < order[:, None])
    return jnp.where(is_new, waiting.sum(dtype=jnp.int32) + before.sum(axis=1, dtype=jnp.int32), queue)


def share(state: Cliques, client: Client, served: Bool[Array, " M"], first: Int[Array, ""]) -> tuple[Member, Sums]:
    """Those who are served send what they saw, and are told what all of them ever saw."""
    members = state.members
    news = jax.vmap(pooling.of_pulls)(members.ridge, client.arms, members.unsent)
    sent = where_client(served, jax.vmap(Sums.plus)(state.sent, news), state.sent)
    reference = sent.reference[first]
    about_it = jax.vmap(lambda own: own.about(reference))(sent)
    total = jax.tree.map(lambda x: x.sum(axis=0), where_client(served, about_it, jax.tree.map(jnp.zeros_like, sent)))
    total = total._replace(reference=reference)
    fitted = pooling.fit(total, members.ridge.prior[0])
    told = total.about(fitted.theta)
    ridges = jax.vmap(lambda ridge, arms: pooling.without_pulls(ridge, arms, told, fitted))(members.ridge, client.arms)
    zeros = jnp.zeros_like(members.unsent)
    after = Member(ridges, zeros, zeros, jnp.full_like(zeros, fitted.log_det))
    return where_client(served, after, members), sent

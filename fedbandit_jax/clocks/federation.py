"""The clock of synchronisation: learners that play round by round and meet through a server.

A client acts on all that it knows: what the server knows too, and its own pulls since. After a round whoever has a
message sends it, lower numbers first. An algorithm says who is `due`, and what is exchanged then: with `synchronise` or
`pass_on` from here.

To the round clock the federation is one client with the arms of all, who pulls one of each; or, where one comes at a
time, with the arms of the client that comes. A stretch of rounds ends when in some run of a batch a message is due, so
that messages cost only where there are some.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.clocks.base import Trace
from fedbandit_jax.clocks.rounds import CHOICES, Client, Info, RoundAlgorithm, client_of, play_rounds
from fedbandit_jax.linalg import pooling, regression
from fedbandit_jax.linalg.pooling import Sums
from fedbandit_jax.linalg.portable import any_lane, argmax
from fedbandit_jax.linalg.regression import Estimate, Ridge
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import OneByOne, Stage, Together, stages_of

MESSAGES = 2**32 - 3  # of a run's keys, besides those of its clients: of what the messages need


class Setting(NamedTuple):
    """What all clients know of their federation: `client.context` of its learners."""

    clients: Float[Array, ""]  # the M of the formulas
    horizon: Float[Array, ""]  # rounds of a client
    real: Bool[Array, " M"]  # False for padded clients
    key: Key[Array, ""]  # of what the messages need


def setting_of(problem: Problem, key: Key[Array, ""]) -> Setting:
    M = problem.num_clients
    horizon = problem.horizon / M if problem.world.arrivals == "one" else problem.horizon
    return Setting(M, horizon, problem.client_mask, jax.random.fold_in(key, MESSAGES))


class Member(NamedTuple):
    """A client of the federation."""

    ridge: Ridge  # all that it knows; its pulls are those that it has not sent, the rest is what the server knows too
    unsent: Float[Array, ""]  # number of these pulls
    growth: Float[Array, ""]  # of log det V by them
    shared_log_det: Float[Array, ""]  # log det V without them


class Federation(NamedTuple):
    members: Member  # an axis M
    server: Sums  # of all that was sent
    acting: Estimate | None = None  # what each acts on, an axis M, where that is not all that it knows


class FederatedRounds(RoundAlgorithm, abstract=True):
    """Base class of learners whose clients play round by round and meet through a server.

    `start` is given the arms of all clients (M, K, d). `choose` and `learn` are given those of the round: of all
    clients in a row (M K, d), or (K, d) of client.who.
    """

    independent_clients: ClassVar[bool] = False

    def unknown_client(self, arms: int, dim: int) -> Client:
        one = super().unknown_client(arms, dim)
        setting = Setting(one.noise, one.noise, jnp.ones(1, bool), jax.random.key(0))
        return one._replace(arms=one.arms[None], mask=one.mask[None], context=setting)

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        stages, setting = stages_of(problem, key), setting_of(problem, key)
        stage: Stage = Together(stages)
        if problem.world.arrivals == "one":
            stage = OneByOne(stages, problem.arrivals_key, problem.federation)
        choice_key = jax.random.fold_in(jax.random.fold_in(key, problem.client_ids[0]), CHOICES)
        curves = play_rounds(self, stage, client_of(problem, stages, setting), choice_key, checkpoints)
        counts = curves.counts
        return Trace(
            regret=counts.pop("regret"),
            conversations=curves.asked,
            communication=counts["scalars_up"] + counts["scalars_down"],
            theta_error=curves.theta_error,
            counts=counts,
        )


def each(function: Callable[[Any, Client], Any], states: Any, client: Client) -> Any:
    """What a function of a client's state, and of the client with its own arms, is for all who play.

    States have an axis M. The result has it too, unless one client plays.
    """
    if client.who is not None:
        return function(jax.tree.map(lambda x: x[client.who], states), client)
    M = len(client.context.real)
    arms, mask = client.arms.reshape(M, -1, client.arms.shape[1]), client.mask.reshape(M, -1)
    return jax.vmap(lambda one, arms, mask: function(one, client._replace(arms=arms, mask=mask)))(states, arms, mask)


def choices_of(score: Callable[[Any, Client], Float[Array, " K"]], states: Any, client: Client) -> Int[Array, "*M"]:
    """The arm with the highest score of each client, by its place among those of the round; states have an axis M."""
    chosen = each(lambda one, client: argmax(score(one, client)), states, client)
    if client.who is not None:
        return chosen
    return len(client.arms) // len(chosen) * jnp.arange(len(chosen), dtype=jnp.int32) + chosen


def learned_by(
    learn: Callable[[Any, Float[Array, "K d"], Int[Array, ""], Float[Array, ""]], Any],
    states: Any,
    client: Client,
    arm: Int[Array, "*M"],
    reward: Float[Array, "*M"],
) -> Any:
    """The states of all clients, an axis M, after those who played have learned."""
    who = client.who
    if who is not None:
        after = learn(jax.tree.map(lambda x: x[who], states), client.arms, arm, reward)
        return jax.tree.map(lambda x, new: x.at[who].set(new), states, after)
    M = len(arm)
    arms = client.arms.reshape(M, -1, client.arms.shape[1])
    first = arms.shape[1] * jnp.arange(M, dtype=jnp.int32)
    return jax.vmap(learn)(states, arms, arm - first, reward)


def per_message(uploads: Any, downloads: Any, scalars: int) -> Info:
    """Counts of messages that have so many scalars each."""
    return {
        "uploads": uploads,
        "downloads": downloads,
        "scalars_up": scalars * uploads,
        "scalars_down": scalars * downloads,
    }


# ------------------------------------------------------------------------------- clients that send what they have seen


class Synchronised(FederatedRounds, abstract=True):
    """Base class of learners whose clients send sums of what they have seen.

    The state is a Federation. A subclass has `ucb` and `lam`, as LinUCB has them, says when a message is `due`, and
    exchanges it. `limit` says it by the growth of log det V, or else `due` is its own.
    """

    passes_messages: ClassVar[bool] = True
    optimistic: ClassVar[bool] = True
    lazy: ClassVar[bool] = False  # clients act on what the server has told them alone
    if TYPE_CHECKING:

        def ucb(self, state: Any, client: Client) -> Float[Array, " K"]: ...

        def radius(self, state: Ridge, client: Client) -> Float[Array, ""]: ...

    def prior(self, setting: Setting, dim: int) -> Float[Array, ""]:
        """V = prior I before the first round."""
        lam: Any = self.hyperparameters()["lam"]
        return jnp.asarray(lam, setting.horizon.dtype)

    def start(self, client: Client) -> Any:
        prior = self.prior(client.context, client.arms.shape[-1])
        ridges = jax.vmap(lambda arms: regression.start(arms, prior, fixed=client.fixed))(client.arms)
        zeros = jnp.zeros_like(ridges.log_det)
        members = Member(ridges, zeros, zeros, ridges.log_det)
        acting = regression.estimate(ridges) if self.lazy else None
        return Federation(members, pooling.nothing(ridges.theta[0]), acting)

    def choose(self, state: Any, client: Client, key: Key[Array, ""]) -> Int[Array, "*M"]:
        return choices_of(self.ucb, acts_on(state), client)

    def learn(self, state: Any, client: Client, arm: Int[Array, "*M"], reward: Float[Array, "*M"]) -> Any:
        return state._replace(members=learned_by(learn_own, state.members, client, arm, reward))

    def refresh(self, state: Any, client: Client) -> Any:
        ridges = jax.vmap(lambda ridge, arms: regression.recompute(ridge, arms, ridge.prior))(
            state.members.ridge, client.arms
        )
        return state._replace(members=state.members._replace(ridge=ridges))

    def theta_hat(self, state: Any) -> Float[Array, "M d"]:
        return acts_on(state).theta

    def radius_of(self, member: Member, client: Client) -> Float[Array, ""]:
        """That of a client's confidence."""
        return self.radius(member.ridge, client)

    def limit(self, client: Client, unsent: Float[Array, ""], t: Int[Array, ""]) -> Float[Array, ""]:
        """After t rounds: by how much `unsent` pulls let log det V grow before a client has a message."""
        raise NotImplementedError

    def due(self, state: Any, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        members = state.members
        return (members.growth > jax.vmap(lambda unsent: self.limit(client, unsent, t))(members.unsent)).any()


def acts_on(state: Federation) -> Ridge | Estimate:
    """What each client chooses by, an axis M."""
    return state.members.ridge if state.acting is None else state.acting


def learn_own(member: Member, arms: Float[Array, "K d"], arm: Int[Array, ""], reward: Float[Array, ""]) -> Member:
    """A client adds its pull to what it knows."""
    update = regression.update_of_pull(member.ridge, arms, arm)
    ridge = regression.learn_pull(member.ridge, update, arms, arm, reward)
    return member._replace(ridge=ridge, unsent=member.unsent + 1, growth=member.growth + update.growth)


def synchronise(
    state: Federation, client: Client, add_noise: Callable[[Sums], Sums] = lambda sums: sums
) -> tuple[Federation, Info]:
    """All clients send what they have seen, and are told what all have; `add_noise` changes what they are told."""
    members, setting = state.members, client.context
    sent = jnp.where(setting.real, members.unsent, 0).sum()
    server = state.server.plus(pooling.of_all_pulls(members.ridge, client.arms, sent, state.server.reference))
    told = add_noise(server)
    fitted = pooling.fit(told, members.ridge.prior[0])
    server, told = server.about(fitted.theta), told.about(fitted.theta)
    ridges = jax.vmap(lambda ridge, arms: pooling.without_pulls(ridge, arms, told, fitted))(members.ridge, client.arms)
    zeros = jnp.zeros_like(members.unsent)
    after = Member(ridges, zeros, zeros, jnp.full_like(zeros, fitted.log_det))
    d = len(server.moment)
    info = per_message(setting.clients, setting.clients, d * d + d)
    return Federation(after, server, None if state.acting is None else regression.estimate(ridges)), info


def pass_on(
    state: Federation,
    client: Client,
    sends: Callable[[Member], Bool[Array, ""]],
    is_told: Callable[[Member, Float[Array, ""]], Bool[Array, ""]] | None = None,
) -> tuple[Federation, Info]:
    """Those who are due send what they have seen, one after another; after each, the server tells some of the clients.

    These are the ones with `is_told(member, log det V of the server)`, or else the sender.
    """
    setting, d = client.context, len(state.server.moment)
    numbers = jnp.arange(len(setting.real), dtype=jnp.int32)

    def due(state: Federation) -> Bool[Array, " M"]:
        return jax.vmap(sends)(state.members) & (state.members.unsent > 0) & setting.real

    def one_message(carry: tuple) -> tuple:
        state, uploads, downloads, sending = carry
        sender, is_sent = jnp.argmax(sending).astype(jnp.int32), sending.any()
        own = jax.tree.map(lambda x: x[sender], state.members)
        server = state.server.plus(pooling.of_pulls(own.ridge, client.arms[sender], own.unsent))
        fitted = pooling.fit(server, own.ridge.prior)
        server = server.about(fitted.theta)

        def receive_(member: Member, arms: Float[Array, "K d"], has_sent: Any, is_told: Any) -> Member:
            return receive(member, arms, has_sent, is_told, server, fitted.log_det)

        if is_told is None:
            told = (numbers == sender) & is_sent
            after = receive_(own, client.arms[sender], is_sent, is_sent)
            members = jax.tree.map(lambda x, new: x.at[sender].set(new), state.members, after)
        else:
            # Whoever has sent knows that the server knows its pulls, too.
            has_sent, before = (numbers == sender) & is_sent, state.members
            known = before._replace(
                unsent=jnp.where(has_sent, 0, before.unsent),
                shared_log_det=before.shared_log_det + jnp.where(has_sent, before.growth, 0),
            )
            told = jax.vmap(is_told, in_axes=(0, None))(known, fitted.log_det)
            told = told & (server.observations > known.ridge.observations - known.unsent) & setting.real & is_sent
            members = jax.vmap(receive_)(before, client.arms, has_sent, told)
        acting = state.acting
        if acting is not None:
            acting = where_client(told, regression.estimate(members.ridge), acting)
        server = jax.tree.map(lambda new, old: jnp.where(is_sent, new, old), server, state.server)
        state = Federation(members, server, acting)
        return state, uploads + is_sent, downloads + told.sum(), due(state) & (numbers > sender)

    zero = jnp.zeros_like(state.server.observations)
    first = (state, zero, zero, due(state))
    state, uploads, downloads, _ = lax.while_loop(lambda carry: any_lane(carry[3].any()), one_message, first)
    return state, per_message(uploads, downloads, d * d + d)


def receive(
    member: Member,
    arms: Float[Array, "K d"],
    has_sent: Bool[Array, ""],
    is_told: Bool[Array, ""],
    server: Sums,
    log_det: Float[Array, ""],
) -> Member:
    """A client after a message: the server knows its pulls too if it has sent them; it knows all if it is told.

    `log_det` is the server's log det V.
    """
    news = pooling.of_pulls(member.ridge, arms, member.unsent)
    known = pooling.of_the_rest(member.ridge, member.unsent)
    known_too = jax.tree.map(lambda new, old: jnp.where(has_sent, new, old), known.plus(news), known)
    rest = jax.tree.map(lambda new, old: jnp.where(is_told, new, old), server, known_too)
    unsent, own, left = jax.tree.map(
        lambda x: jnp.where(has_sent, jnp.zeros_like(x), x), (member.unsent, member.ridge.pulls, news)
    )
    ridge = pooling.with_pulls(member.ridge._replace(pulls=own), arms, rest, left)
    shared_log_det = jnp.where(is_told, log_det, jnp.where(has_sent, ridge.log_det, member.shared_log_det))
    after = Member(ridge, unsent, ridge.log_det - shared_log_det, shared_log_det)
    return jax.tree.map(lambda new, old: jnp.where(has_sent | is_told, new, old), after, member)


def where_client(mask: Bool[Array, " M"], new: Any, old: Any) -> Any:
    """`jnp.where` per client, over pytrees with a leading axis M."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)

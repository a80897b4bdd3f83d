"""RelativeConUCB whose clients share what their users say of key terms (Xie et al. 2021)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.algorithms.conversational.conucb import State
from fedbandit_jax.algorithms.conversational.relative_conucb import RelativeConUCB
from fedbandit_jax.clocks.base import MadeFor
from fedbandit_jax.clocks.federation import FederatedRounds, per_message
from fedbandit_jax.clocks.rounds import Client, Info, Questions

# Of a State; all else every client has of its own, with an axis M.
SHARED = ("gram", "moment", "inverse", "questions", "term_widths")
EACH = tuple(name for name in State._fields if name not in SHARED)
AXES: Any = State(*(0 if name in EACH else None for name in State._fields))  # type: ignore[arg-type]
ANSWER = 2  # scalars of an answer: the key term that was preferred, and the other one


@dataclass(frozen=True, kw_only=True)
class SharedRelativeConUCB(RelativeConUCB, FederatedRounds):
    r"""RelativeConUCB with one regression on key terms for all clients; that on arms stays each client's own.

    $$ \hat\theta_i = M_i^{-1} \Big( \lambda \sum_{s<t} r_{i,s} x_{i,s} + (1-\lambda) \tilde\theta \Big), \qquad
       \tilde\theta = \tilde M^{-1} \tilde Y \;\text{ of the questions of all clients} $$

    Before a round with questions all clients ask theirs, one client after another; each knows the answers before its
    own. Then all pull. The hyperparameters are those of RelativeConUCB. An answer is a message of 2 scalars, the key
    term that was preferred and the other one: an upload, and a download for each of the other M - 1 clients. The paper
    counts no messages.

    When: users are alike. Where they are not, what one says misleads the others.

    Paper: Xie, Yu, Zhao and Li, "Comparison-based Conversational Recommender System with Relative Bandit Feedback",
    SIGIR 2021, [arXiv 2208.09837](https://arxiv.org/abs/2208.09837), its variants with shared feedback. In the authors'
    code an answer counts for users who have come before; here all clients are there from the start. The code leaves out
    the $M_i^{-1}$ before $(1-\lambda) \tilde\theta$ when feedback is shared, which is taken for a mistake.
    """

    made_for: ClassVar[MadeFor] = {"arrivals": ("asks all clients before a round", ("all",))}

    def start(self, client: Client) -> State:
        start = super().start
        states = jax.vmap(lambda arms: start(client._replace(arms=arms)))(client.arms)
        return states._replace(**{name: getattr(states, name)[0] for name in SHARED})

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, " M"]:
        choose = super().choose

        def of_one(state: State, arms: Float[Array, "K d"], mask: Bool[Array, " K"]) -> Int[Array, ""]:
            return choose(state, client._replace(arms=arms, mask=mask), key)

        return first_arms(client) + jax.vmap(of_one, in_axes=(AXES, 0, 0))(state, *by_client(client))

    def learn(self, state: State, client: Client, arm: Int[Array, " M"], reward: Float[Array, " M"]) -> State:
        learn = super().learn

        def of_one(state: State, arms: Float[Array, "K d"], arm: Int[Array, ""], reward: Float[Array, ""]) -> State:
            return learn(state, client._replace(arms=arms), arm, reward)

        places = arm - first_arms(client)
        each = jax.vmap(of_one, in_axes=(AXES, 0, 0, 0), out_axes=AXES)
        return each(state, by_client(client)[0], places, reward)

    def refresh(self, state: State, client: Client) -> State:
        refresh = super().refresh

        def of_one(state: State, arms: Float[Array, "K d"]) -> State:
            return refresh(state, client._replace(arms=arms))

        return jax.vmap(of_one, in_axes=(AXES, 0), out_axes=AXES)(state, by_client(client)[0])

    def theta_hat(self, state: State) -> Float[Array, "M d"]:
        return jax.vmap(super().theta_hat, in_axes=(AXES,))(state)

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        """Ask for client.who; the clock recomputes the state of all clients when all have asked."""
        own = state._replace(**{name: jax.tree.map(lambda x: x[client.who], getattr(state, name)) for name in EACH})
        (asked, credits), info = self.compare(own, client, questions)
        downloads = questions.count * (client.context.clients - 1)
        messages = per_message(questions.count, downloads, ANSWER)
        return state._replace(
            gram=asked.gram,
            moment=asked.moment,
            inverse=credits.inverse,
            questions=state.questions + self.rows * questions.count,
            term_widths=credits.widths,
        ), info | messages


def by_client(client: Client) -> tuple[Float[Array, "M K d"], Bool[Array, "M K"]]:
    """The arms of each client, and which of them are real."""
    M = len(client.context.real)
    return client.arms.reshape(M, -1, client.arms.shape[-1]), client.mask.reshape(M, -1)


def first_arms(client: Client) -> Int[Array, " M"]:
    """The place of each client's first arm among those of all."""
    M = len(client.context.real)
    return client.mask.size // M * jnp.arange(M, dtype=jnp.int32)

"""Hier-LinUCB (Zuo et al. 2022): a key term first, then one of its arms; it asks until asking no longer pays."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.linucb import LinUCB
from fedbandit_jax.clocks.base import MadeFor, Trace
from fedbandit_jax.clocks.rounds import Client, Info, Questions
from fedbandit_jax.linalg import regression
from fedbandit_jax.linalg.portable import argmax
from fedbandit_jax.linalg.regression import Ridge
from fedbandit_jax.worlds.problem import Problem

PATIENCE = 10  # rounds after which it does not look yet whether to stop, of the public code


class State(NamedTuple):
    ridge: Ridge
    pulled: Float[Array, " K"]  # rounds in which an arm was chosen
    chosen: Float[Array, " J"]  # rounds in which a key term was
    rounds: Float[Array, ""]  # played so far
    asking: Bool[Array, ""]
    term: Int[Array, ""]  # of this round; J if no arm has one
    term_ucb: Float[Array, ""]  # of its representative, before the question


@dataclass(frozen=True, kw_only=True)
class HierLinUCB(LinUCB):
    r"""Every round chooses a key term and one of its arms; it asks about the key term until asking no longer pays.

    $$ U(x) = x^\top \hat\theta + \alpha \lVert x \rVert_{V^{-1}}, \qquad
       f_k = \arg\max_{x \in k} U(x), \qquad k_t = \arg\max_k \; U(f_k), \qquad x_t = \arg\max_{x \in k_t} \; U(x) $$

    f_k is the representative of key term k: the arm of k that may be the best. The user's answer is `gamma` times the
    reward of the best arm of k, with noise, and enters the regression as that of gamma f_k. After round t it stops
    asking, or begins again, as this is true or false:

    $$ \gamma U(f_k) + \kappa \sqrt{\frac{\ln t}{n_k}} \; < \; U(x_t) - \kappa \sqrt{\frac{\ln t}{n_x}} $$

    n_k and n_x are the rounds in which the key term and the arm were chosen. It asks in the first eleven rounds in any
    case. gamma=None is the discount of the world. With gamma = 1 asking is as good as pulling and never stops.

    This is a reconstruction. In the public code the representative is found with the true theta, which no learner may
    see, and all key terms share one by mistake; here it is the optimistic arm, and the constants are of that code:
    alpha = 1, lam = 0.5, kappa = 1. Figures of the paper are not to be expected of it. Arms without key terms are
    never pulled, unless no arm has one.

    When: the best arms of a key term speak for it, and questions cost as much as pulls: in worlds with answers="max"
    and charged=True.

    Paper: Zuo, Hu, Yu, Li, Zhao and Joe-Wong, "Hierarchical Conversational Preference Elicitation with Bandit
    Feedback", CIKM 2022, [arXiv 2209.06129](https://arxiv.org/abs/2209.06129).
    """

    asks_key_terms: ClassVar[bool] = True
    asks_every_round: ClassVar[bool] = True
    asks_as_it_likes: ClassVar[bool] = True
    made_for: ClassVar[MadeFor] = {
        "contexts": ("counts the pulls of the arms that it starts with", ("fixed",)),
        "answers": ("takes answers for those of the best arm", ("max",)),
    }

    alpha: Hyperparameter = param(1.0, low=0, ends="[)", words=("theory",), search=Between(0.01, 2))
    lam: Hyperparameter = param(0.5, low=0, ends="()", search=Between(0.01, 10))
    kappa: Hyperparameter = param(1.0, low=0, ends="[)", search=Between(0.01, 2))
    gamma: Hyperparameter = param(None, low=0, high=1, ends="(]")

    @property
    def title(self) -> str:
        return "Hier-LinUCB"

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        gamma = problem.world.discount if self.gamma is None else self.gamma
        return super(HierLinUCB, self.replace(gamma=gamma)).run(key, problem, checkpoints)

    def start(self, client: Client) -> State:  # type: ignore[override]
        ridge, J = super().start(client), len(client.key_terms)
        none = jnp.zeros_like(ridge.means)
        return State(ridge, none, jnp.zeros(J, none.dtype), none[0], jnp.bool_(True), jnp.int32(J), none[0])

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        first, J = links_of(client).min(axis=1), len(client.key_terms)
        ucb = jnp.where(first < J, self.ucb(state.ridge, client), -jnp.inf)
        best = ucb.max()
        # max over k of max over the arms of k is the max over arms; of key terms that are as good, the first.
        term = jnp.where(ucb >= best, first, J).min()
        f = argmax(jnp.where(has(client, term), ucb, -jnp.inf))
        asked = state.asking & (term < J)
        # An answer about gamma f is gamma^2 of a pull of f with the reward answer / gamma.
        reward = questions.about(jnp.int32(0), term) / self.gamma
        part = jnp.where(asked, self.gamma**2, 0)
        ridge = regression.part_of_a_pull(state.ridge, client.arms, f, reward, part)
        ridge = ridge._replace(observations=state.ridge.observations + asked)
        state = state._replace(ridge=ridge, chosen=state.chosen.at[term].add(1), term=term, term_ucb=best)
        return state, {"conversations": asked, "regret": jnp.where(asked, questions.cost(term), 0)}

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:  # type: ignore[override]
        theirs = has(client, state.term) | (state.term == len(state.chosen))
        return argmax(jnp.where(theirs, self.ucb(state.ridge, client), -jnp.inf))

    def learn(  # type: ignore[override]
        self, state: State, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> State:
        arm_ucb = self.ucb(state.ridge, client)[arm]
        ridge = regression.pull(state.ridge, client.arms, arm, reward)
        grown = jnp.log(state.rounds + 1)
        bonus = self.kappa * jnp.sqrt(grown / jnp.maximum(state.chosen.at[state.term].get(mode="clip"), 1))
        malus = self.kappa * jnp.sqrt(grown / (state.pulled[arm] + 1))
        enough = self.gamma * state.term_ucb + bonus < arm_ucb - malus
        rounds = state.rounds + 1
        pulled = state.pulled + (jnp.arange(state.pulled.size) == arm)
        return state._replace(ridge=ridge, pulled=pulled, rounds=rounds, asking=~(enough & (rounds > PATIENCE)))

    def refresh(self, state: State, client: Client) -> State:  # type: ignore[override]
        return state._replace(ridge=super().refresh(state.ridge, client))

    def theta_hat(self, state: State) -> Float[Array, " d"]:  # type: ignore[override]
        return state.ridge.theta


def links_of(client: Client) -> Int[Array, "K n"]:
    """The key terms of each arm; a world with answers="max" has them."""
    assert client.links is not None
    return client.links


def has(client: Client, term: Int[Array, ""]) -> Bool[Array, " K"]:
    """Which arms carry a key term; padding carries none."""
    carried: Bool[Array, "K n"] = jnp.equal(links_of(client), term)
    return client.mask & carried.any(axis=1)

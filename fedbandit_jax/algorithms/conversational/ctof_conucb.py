"""CtoF-ConUCB (Wu et al. 2021): ConUCB whose key terms are clusters of arms, coarse at first, then fine."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Between, Hyperparameter, param
from fedbandit_jax.algorithms.conversational.conucb import ConUCB
from fedbandit_jax.clocks.base import Algorithm, MadeFor
from fedbandit_jax.clocks.rounds import Client, Info, Questions, RoundAlgorithm
from fedbandit_jax.linalg.representatives import cluster_centres, greedy_centres


class State(NamedTuple):
    conucb: Any  # of ConUCB
    order: Int[Array, " K"]  # arms in the order in which they become centres
    rounds: Float[Array, ""]  # played so far


@dataclass(frozen=True, kw_only=True)
class CtoFConUCB(ConUCB):
    r"""ConUCB that needs no key terms: it asks about clusters of the client's arms, coarse at first, then fine.

    $$ n(t) = \min\left( \left\lfloor K \log_2\left(1 + \delta_c \frac{t}{T}\right) \right\rfloor + 1, \; K \right) $$

    Before a question in round t + 1 the K arms are put into n(t) clusters. Centres are found greedily, each as far as
    it can be from those before it. Then come `lloyd` steps of K-means: arms go to the nearest centre, and centres to
    the mean of their arms. The user is asked about a centre, and the rest is ConUCB: the credit, both regressions, and
    lam, lam_t, alpha, alpha_t. A cluster that K-means leaves empty is not asked about.

    delta_c says how fast clusters become single arms: from round T / delta_c on they are. T is the horizon; with
    T=None that of the sweep, which counts the rounds of all clients where one comes at a time.

    Otherwise than in the public code, the first centre is the first arm and not a random one, so that the centres of
    n clusters are the first n of one order; K-means takes a fixed number of steps instead of up to 300; all arms are
    clustered, not the tenth with the best scores; and clients learn alone, without clusters of users.

    When: arms come without key terms, and there are few enough of them to be clustered.

    Paper: Wu, Zhao, Yu and Li, "Clustering of Conversational Bandits for User Preference Learning and Elicitation",
    CIKM 2021.
    """

    asks_key_terms: ClassVar[bool] = False
    made_for: ClassVar[MadeFor] = RoundAlgorithm.made_for | {
        "contexts": ("clusters the arms that it starts with", ("fixed",))
    }

    delta_c: Hyperparameter = param(1.0, low=0, ends="[)", search=Between(0.1, 10))
    T: Hyperparameter = param(None, low=0, ends="()")
    # Static, as a loop whose length differs between runs of a batch would be as long as the longest.
    lloyd: Hyperparameter = param(5, low=0, ends="[)", static=True)

    @property
    def title(self) -> str:
        return "CtoF-ConUCB"

    def check(self, *, dim: int, clients: int, arms: int, horizon: int, noise: float) -> None:
        super().check(dim=dim, clients=clients, arms=arms, horizon=horizon, noise=noise)
        _checks.whole("lloyd", self.lloyd, 0)

    def prepare(self, horizon: int) -> Algorithm:
        return super().prepare(horizon).replace(T=float(horizon) if self.T is None else self.T)

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> Any:
        """None: every client asks about key terms of its own."""
        return ()

    def conucb(self) -> ConUCB:
        """Who learns from the questions and pulls arms."""
        return ConUCB(**{field.name: getattr(self, field.name) for field in fields(ConUCB)})

    def start(self, client: Client) -> State:  # type: ignore[override]
        order = greedy_centres(client.arms, client.mask)
        conucb = self.conucb().start(client)._replace(term_widths=None)  # each time of other centres
        return State(conucb, order, jnp.zeros_like(client.noise))

    def choose(self, state: State, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:  # type: ignore[override]
        return self.conucb().choose(state.conucb, client, key)

    def learn(  # type: ignore[override]
        self, state: State, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> State:
        return state._replace(conucb=self.conucb().learn(state.conucb, client, arm, reward), rounds=state.rounds + 1)

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:  # type: ignore[override]
        centres = cluster_centres(client.arms, client.mask, state.order, self.clusters(state, client), self.lloyd)
        # The centre of a cluster that is not there is 0, which has no credit.
        asked, info = self.conucb().ask(state.conucb, client._replace(key_terms=centres), questions.of(centres))
        return state._replace(conucb=asked), info

    def clusters(self, state: State, client: Client) -> Int[Array, ""]:
        """n(t)."""
        K = client.mask.sum(dtype=jnp.int32)
        log2 = jnp.log1p(self.delta_c * state.rounds / self.T) / math.log(2)
        return jnp.minimum(jnp.floor(log2 * K).astype(jnp.int32) + 1, K)

    def refresh(self, state: State, client: Client) -> State:  # type: ignore[override]
        return state._replace(conucb=self.conucb().refresh(state.conucb, client))

    def theta_hat(self, state: State) -> Float[Array, " d"]:  # type: ignore[override]
        return self.conucb().theta_hat(state.conucb)

"""GraphConUCB (Zhao et al. 2022): ConUCB whose answers spread over a graph of key terms."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax import _checks
from fedbandit_jax._parameters import Hyperparameter, param
from fedbandit_jax.algorithms.conversational.conucb import ConUCB, State
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.clocks.rounds import Client, Info, Questions, ask_in_turn
from fedbandit_jax.linalg import spread
from fedbandit_jax.linalg.design import g_optimal_design, on_support
from fedbandit_jax.worlds.catalog import Catalog

LEAST_COSINE = 1e-3  # of the authors' code: key terms at a right angle have nothing to tell of each other
SQUARINGS = 5  # of a matrix, whose 32nd power is applied 32 times: its 1024th leaves the largest eigenvector alone
ROWS = 64  # neighbours that are added up at a time
DESIGN_TOL = 1e-2


class Graph(NamedTuple):
    """What is worked out once from the key terms and their arms."""

    weights: Float[Array, " J"]  # pi: how often each key term is asked about
    spread: Float[Array, "J d"] | None  # sum_l S_kl x_l of each key term; None where answers do not spread
    grams: Float[Array, "J d d"] | None  # sum x x' over the neighbours of each


@dataclass(frozen=True, kw_only=True)
class GraphConUCB(ConUCB):
    r"""ConUCB that draws its questions from an optimal design, and takes an answer as one about similar key terms, too.

    Key terms are neighbours, $A_{kl} = 1$, if an arm carries both, and each is its own. They are as similar as

    $$ S_{kl} = (1 - \gamma) \frac{A_{kl}}{\deg_k + \deg_l - A_{kl}} + \gamma A_{kl} \cos(\tilde x_k, \tilde x_l),
       \qquad S_{kk} = 1, $$

    where cosines below 0.001 are 0. A question is about a key term k, drawn from weights pi that do not depend on the
    learner. Its answer r counts for all of $N(k) = \{l : S_{kl} \ne 0\}$:

    $$ \tilde M \leftarrow \tilde M + \sum_{l \in N(k)} \tilde x_l \tilde x_l^\top, \qquad
       \tilde Y \leftarrow \tilde Y + r \sum_{l \in N(k)} S_{kl} \tilde x_l $$

    These targets r S shrink towards 0, which is a bias unless rewards are centred. With graph_feedback=False an answer
    counts for k alone. Arms are chosen as by ConUCB, with its lam, lam_t, alpha and alpha_t.

    `design` says what pi is optimal for. "graph": for $a_k = \sqrt{\sigma_1} v_1$, from the first singular pair of
    $\sum_{l \in N(k)} \tilde x_l \tilde x_l^\top$, which is what an answer tells most of. "G": for the key terms
    themselves. "D" is another word for "G": G- and D-optimal weights are the same (Kiefer and Wolfowitz 1960).

    When: key terms are many and badly labelled, so that what is said of one should count for others. It needs a catalog
    with `weights`, unless graph_feedback=False and design="G". Where only some key terms may be asked about, pi is kept
    to these; if it has none of them, all are equally likely.

    Paper: Zhao, Yu, Xie and Li, "Knowledge-aware Conversational Preference Elicitation with Bandit Feedback", WWW 2022,
    [doi 10.1145/3485447.3512152](https://doi.org/10.1145/3485447.3512152). The formulas are those of the authors'
    code (neighbours at one step, gamma = 0.5), not checked with the paper. Which settings gave its figures is not
    known. The code's own "GraphConUCB" has design="graph"; its name does not mention graph feedback, but the abstract
    does. One thing is different: the code looks for a support by random draws, which depends on a seed and may stop
    before it is nearly optimal, and then asks uniformly. Here pi is the optimal design itself, to one percent.
    """

    gamma: Hyperparameter = param(0.5, low=0, high=1, static=True)  # static, so that all runs of a batch share a graph
    graph_feedback: Hyperparameter = True
    design: Hyperparameter = param("graph", words=("graph", "G", "D"))

    @property
    def needs_graph(self) -> bool:
        return bool(self.graph_feedback) or self.design == "graph"

    def check(self, **setting: Any) -> None:
        super().check(**setting)
        _checks.flag("graph_feedback", self.graph_feedback)

    def for_catalog(self, catalog: Catalog) -> Algorithm:
        if self.needs_graph and catalog.weights is None:
            raise ValueError(no_graph(catalog.name))
        return self

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> Graph:
        if not self.needs_graph:
            return Graph(optimal_weights(key_terms), None, None)
        if links is None:
            raise ValueError(no_graph("the problem"))
        S = similarity(key_terms, links, self.gamma)
        grams = grams_of_neighbours(key_terms, S != 0)
        weights = optimal_weights(first_directions(grams) if self.design == "graph" else key_terms)
        return Graph(weights, S @ key_terms, grams) if self.graph_feedback else Graph(weights, None, None)

    def start(self, client: Client) -> State:
        return super().start(client)._replace(term_widths=None)

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        terms, (weights, told, grams) = client.key_terms, client.context
        assert client.term_mask is not None
        until = jnp.cumsum(allowed_weights(weights, client.term_mask))

        def one(i: Int[Array, ""], carry: tuple) -> tuple:
            gram, moment = carry
            k = draw_key_term(questions.key(i), until)
            answer = questions.about(i, k)
            if told is None:
                return (gram + jnp.outer(terms[k], terms[k]), moment + answer * terms[k]), k
            return (gram + grams[k], moment + answer * told[k]), k

        (gram, moment), info = ask_in_turn(questions, one, (state.gram, state.moment))
        asked = state._replace(gram=gram, moment=moment, questions=state.questions + questions.count)
        root, half, inverse, drawn_to = self.key_term_level(asked)
        level = spread.with_root(state.level, client.arms, root, half)
        change = drawn_to - level.ridge.extra_moment
        level = spread.add_to_moment(level, inverse, client.arms, change, self.lam)
        return asked._replace(level=level, inverse=inverse), info


def no_graph(of: str) -> str:
    told = "it needs Catalog.from_arrays(weights=...), or graph_feedback=False and design='G'"
    return f"GraphConUCB makes its graph of the weights of arms on key terms, but {of} has none: {told}"


def similarity(key_terms: Float[Array, "J d"], links: Int[Array, "A n"], gamma: float) -> Float[Array, "J J"]:
    """S; `links` are the key terms of each arm, padded with J."""
    J, dtype = len(key_terms), key_terms.dtype
    own = jnp.eye(J, dtype=bool)

    def add_slot(s: Int[Array, ""], near: Bool[Array, "J J"]) -> Bool[Array, "J J"]:
        """The s-th key term of every arm is near to all of the arm's."""
        return near.at[links[:, s][:, None], links].set(True, mode="drop")

    near = lax.fori_loop(0, links.shape[1], add_slot, own)
    degree = near.sum(axis=1).astype(dtype)
    tanimoto = near / (degree[:, None] + degree[None, :] - near)
    unit = key_terms / jnp.linalg.norm(key_terms, axis=1, keepdims=True)
    cosine = unit @ unit.T
    cosine = jnp.where(near & (cosine >= LEAST_COSINE), cosine, 0)
    return jnp.where(own, 1, (1 - gamma) * tanimoto + gamma * cosine).astype(dtype)


def grams_of_neighbours(key_terms: Float[Array, "J d"], near: Bool[Array, "J J"]) -> Float[Array, "J d d"]:
    """The sum of x x' over the neighbours of each key term. Most have few, which are gathered some at a time."""
    J, d = key_terms.shape

    def one(near: Bool[Array, " J"]) -> Float[Array, "d d"]:
        neighbours = jnp.nonzero(near, size=-(-J // ROWS) * ROWS, fill_value=J)[0]

        def add(block: Int[Array, ""], total: Float[Array, "d d"]) -> Float[Array, "d d"]:
            some = lax.dynamic_slice(neighbours, (block * ROWS,), (ROWS,))
            rows = key_terms.at[some].get(mode="fill", fill_value=0)
            return total + rows.T @ rows

        return lax.fori_loop(0, -(-near.sum() // ROWS), add, jnp.zeros((d, d), key_terms.dtype))

    return lax.map(one, near)


def first_directions(grams: Float[Array, "J d d"]) -> Float[Array, "J d"]:
    """sqrt(sigma_1) v_1 of each matrix; signs are free. J eigendecompositions would take longer than the rest."""

    def one(total: Float[Array, "d d"]) -> Float[Array, " d"]:
        def square(_: Any, power: Float[Array, "d d"]) -> Float[Array, "d d"]:
            power = power @ power
            return power / jnp.abs(power).max()

        power = lax.fori_loop(0, SQUARINGS, square, total / jnp.abs(total).max())

        def apply(_: Any, v: Float[Array, " d"]) -> Float[Array, " d"]:
            v = power @ v
            return v / jnp.linalg.norm(v)

        v = lax.fori_loop(1, 2**SQUARINGS, apply, power[:, jnp.argmax(jnp.diagonal(power))])
        return jnp.sqrt(v @ total @ v) * v

    return lax.map(one, grams, batch_size=min(ROWS, len(grams)))


def optimal_weights(rows: Float[Array, "J d"]) -> Float[Array, " J"]:
    """G-optimal weights on their support."""
    return on_support(g_optimal_design(rows, jnp.ones(len(rows), bool), DESIGN_TOL).weights)


def allowed_weights(weights: Float[Array, " J"], mask: Bool[Array, " J"]) -> Float[Array, " J"]:
    """Those of the key terms in the mask, or all of these alike if they have none."""
    kept = jnp.where(mask, weights, 0)
    return jnp.where((kept > 0).any(), kept, mask.astype(weights.dtype))


def draw_key_term(key: Key[Array, ""], until: Float[Array, " J"]) -> Int[Array, ""]:
    """A draw in proportion to weights, given as the sums of all up to each."""
    u = jax.random.uniform(key, (), jnp.float32).astype(until.dtype)  # float32: the same draw in both precisions
    # Rounding may take u times the sum up to the sum itself, beyond the last weight.
    last, drawn = (until < until[-1]).sum(dtype=jnp.int32), (until <= u * until[-1]).sum(dtype=jnp.int32)
    return jnp.minimum(drawn, last)

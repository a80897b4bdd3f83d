"""RelativeConUCB (Xie et al. 2021): ConUCB whose questions compare two key terms."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from fedbandit_jax._parameters import Hyperparameter, OneOf, param
from fedbandit_jax.algorithms.conversational.conucb import ConUCB, Credits, Square, State, credits_of, heard
from fedbandit_jax.clocks.rounds import Client, Info, Questions, ask_in_turn
from fedbandit_jax.linalg import spread
from fedbandit_jax.linalg.portable import any_lane, argmax, in_turn, largest_of_lanes, two_products

VARIANTS = ("pos", "pos-neg", "difference", "difference-fast")
TILE = 128  # of the J x J pairs, so many by so many at a time
NEAR = 0.999  # of the best credit: rounding does not hide a pair that is as good
Pair = tuple[Int[Array, ""], Int[Array, ""]]  # two key terms, k1 and k2


@dataclass(frozen=True, kw_only=True)
class RelativeConUCB(ConUCB):
    r"""ConUCB that asks which of two key terms the user prefers; what it learns is made up from the answer.

    The arm is chosen as by ConUCB. Of the key terms that may be asked about, "pos" and "pos-neg" take the one of the
    largest credit, and the one of the largest credit when that has entered $\tilde M$; it may be the same again:

    $$ c(f) = \frac{\lVert X M^{-1} \tilde M^{-1} f \rVert^2}{1 + f^\top \tilde M^{-1} f}, \qquad
       k_1 = \arg\max_j \; c(\tilde x_j), \quad
       k_2 = \arg\max_j \; c(\tilde x_j) \;\text{ with }\; \tilde M + \tilde x_{k_1} \tilde x_{k_1}^\top $$

    "difference" takes the pair of the largest $c(\tilde x_{k_1} - \tilde x_{k_2})$, "difference-fast" the same $k_1$ as
    the others, and then the best $k_2$ for it. With the winner w and the loser v, the regression on key terms is told

    $$ \text{pos: } \tilde x_w \mapsto 1; \quad
       \text{pos-neg: } \tilde x_w \mapsto 1,\; \tilde x_v \mapsto 0; \quad
       \text{difference: } \tilde x_w - \tilde x_v \mapsto 1 $$

    The targets 1 and 0 are the paper's, made for rewards between 0 and 1. A difference cancels whatever all key terms
    have in common, which is then learned from arms alone. lam, lam_t, alpha and alpha_t are those of ConUCB, with the
    same defaults in the authors' code; "theory" is ConUCB's, and proves nothing of comparisons. A comparison is one
    question, and costs the mean of what its two key terms do where questions cost regret. "difference" looks at all
    pairs of the n key terms that it may ask about, in O(n J d); the others take O(J d) a question.

    When: users are asked to compare. The paper's world is World(contexts="redrawn", rewards="zero-one",
    candidates="related"), with preferences="own" and `datasets.synthetic_relative`.

    Paper: Xie, Yu, Zhao and Li, "Comparison-based Conversational Recommender System with Relative Bandit Feedback",
    SIGIR 2021, [arXiv 2208.09837](https://arxiv.org/abs/2208.09837). The variants follow the authors' public code.
    """

    variant: Hyperparameter = param("difference-fast", words=VARIANTS, search=OneOf(VARIANTS))

    @property
    def title(self) -> str:
        return f"{self.name}-{self.variant}"

    @property
    def rows(self) -> int:
        """That an answer adds to the regression on key terms."""
        return 2 if self.variant == "pos-neg" else 1

    def ask(self, state: State, client: Client, questions: Questions) -> tuple[State, Info]:
        (state, credits), info = self.compare(state, client, questions)
        return self.believe(state, client, credits, self.rows * questions.count), info

    def compare(self, state: State, client: Client, questions: Questions) -> tuple[tuple[State, Credits], Info]:
        """What is heard of key terms, and told of them, after some questions."""
        columns, shadow = client.key_terms.T, spread.shadow(state.level, client.arms)

        def one(i: Int[Array, ""], carry: tuple) -> tuple[tuple, Int[Array, " 2"]]:
            state, credits = carry
            k1, k2 = self.pair(credits, shadow, client)
            first, second = client.key_terms[k1], client.key_terms[k2]
            rows, targets = self.told(first, second, questions.compare(i, k1, k2))
            for row, target in zip(rows, targets, strict=True):
                state, credits = heard(state, credits, row, target), credits.after(row, columns, shadow)
            return (state, credits), jnp.stack([k1, k2])

        cost = lambda pair: jax.vmap(questions.cost)(jnp.atleast_1d(pair)).mean()  # noqa: E731
        start = state, credits_of(columns, state.inverse, shadow, state.term_widths)
        return ask_in_turn(questions, one, start, cost)

    def pair(self, credits: Credits, shadow: Square, client: Client) -> Pair:
        """The key terms to compare."""
        if self.variant == "difference":
            assert client.term_mask is not None
            return in_turn(best_difference, client.key_terms, client.term_mask, credits, shadow)
        k1, columns = argmax(client.among_candidates(credits.of_terms())), client.key_terms.T
        if self.variant == "difference-fast":
            second = credits_of_differences(credits, k1, client.key_terms[k1], columns, shadow)
        else:
            second = credits.after(client.key_terms[k1], columns, shadow).of_terms()
        return k1, argmax(client.among_candidates(second))

    def told(
        self, x1: Float[Array, " d"], x2: Float[Array, " d"], first_wins: Bool[Array, ""]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """The rows that enter Mt after an answer, and their targets."""
        winner, loser = jnp.where(first_wins, x1, x2), jnp.where(first_wins, x2, x1)
        one, zero = jnp.ones_like(x1[0]), jnp.zeros_like(x1[0])
        if self.variant == "pos":
            return winner[None], one[None]
        if self.variant == "pos-neg":
            return jnp.stack([winner, loser]), jnp.stack([one, zero])
        return (winner - loser)[None], one[None]


def credits_of_differences(
    credits: Credits, k: Int[Array, ""], x: Float[Array, " d"], columns: Float[Array, "d J"], shadow: Square
) -> Float[Array, " J"]:
    """c(x_j - x_k) of every key term j: with A symmetric, its form is that of j, that of k, less twice x_j' A x_k."""
    w = credits.inverse @ x
    along, across = two_products(w, credits.inverse @ (shadow @ w), columns)
    influence = credits.influence + credits.influence[k] - 2 * across
    return influence / (1 + credits.widths + credits.widths[k] - 2 * along)


def best_difference(terms: Float[Array, "J d"], mask: Bool[Array, " J"], credits: Credits, shadow: Square) -> Pair:
    """The first pair k < l of those in `mask` with the largest credit of x_k - x_l; one key term alone twice.

    With G = T A T', (x_k - x_l)' A (x_k - x_l) = G_kk + G_ll - 2 G_kl. A credit is n / (1 + m) of two such forms, and
    above v only if the one form n - v m is above v. So pairs are looked at in tiles, and both forms are worked out only
    of tiles in which some pair comes near the best credit that is known.
    """
    J = len(terms)
    influence = credits.inverse @ shadow @ credits.inverse
    numbers = jnp.nonzero(mask, size=-(-J // TILE) * TILE, fill_value=J)[0].astype(jnp.int32)
    rows, own_n, own_m = (
        x.at[numbers].get(mode="fill", fill_value=0) for x in (terms, credits.influence, credits.widths)
    )
    towards_n, towards_m = rows @ influence, rows @ credits.inverse
    k = argmax(jnp.where(mask, credits.of_terms(), -jnp.inf))
    reached = jnp.where(mask, credits_of_differences(credits, k, terms[k], terms.T, shadow), 0).max()

    def look_at(i: Int[Array, ""], j: Int[Array, ""], found: tuple) -> tuple:
        def part(x: Array, block: Int[Array, ""]) -> Array:
            return lax.dynamic_slice_in_dim(x, block * TILE, TILE)

        def between(own: Float[Array, " n"], towards: Float[Array, "n d"]) -> Float[Array, "TILE TILE"]:
            return part(own, i)[:, None] + part(own, j)[None, :] - 2 * (part(towards, i) @ part(rows, j).T)

        def exactly(found: tuple) -> tuple:
            ks, ls = part(numbers, i), part(numbers, j)
            pairs = (ls[None, :] > ks[:, None]) & (ls[None, :] < J)
            ratios = jnp.where(pairs, between(own_n, towards_n) / (1 + between(own_m, towards_m)), -jnp.inf).ravel()
            place = argmax(ratios)
            best, old_k, old_l = found
            value, k, l = ratios[place], ks[place // TILE], ls[place % TILE]  # noqa: E741
            earlier = (k < old_k) | (k == old_k) & (l < old_l)
            better = (value > best) | (value == best) & earlier
            return tuple(jnp.where(better, x, old) for x, old in zip((value, k, l), found, strict=True))

        v = NEAR * jnp.maximum(reached, found[0])
        near = between(own_n - v * own_m, towards_n - v * towards_m).max() > v
        return lax.cond(any_lane(near | jnp.isneginf(found[0])), exactly, lambda same: same, found)

    blocks = -(-largest_of_lanes(mask.sum(dtype=jnp.int32)) // TILE)
    nothing = (jnp.array(-jnp.inf, terms.dtype), numbers[0], numbers[0])
    _, k1, k2 = lax.fori_loop(
        0, blocks, lambda i, found: lax.fori_loop(i, blocks, lambda j, found: look_at(i, j, found), found), nothing
    )
    return k1, k2

"""What a learner of the round clock sees: its client, and the user who answers its questions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from fedbandit_jax.linalg import Real
from fedbandit_jax.linalg.sampling import fold_in
from fedbandit_jax.worlds import channels
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import Alone, Round, Together, one_of

Info = dict[str, Any]  # what a step counts, by name: "communication" in scalars, or a metric of the algorithm's own
Number = Int[Array, ""] | int


class Client(NamedTuple):
    """All that a learner may see.

    Where arms are redrawn, those of the round are there when it chooses, learns or asks, and NaN otherwise.
    """

    arms: Float[Array, "K d"]
    mask: Bool[Array, " K"]  # False where arms are padding
    key_terms: Float[Array, "J d"]
    noise: Float[Array, ""]  # subgaussian constant of rewards and answers: their standard deviation, or 1 for clicks
    context: Any = ()  # what the learner worked out from the key terms, see RoundAlgorithm.context
    user_bound: Float[Array, ""] | float = 1.0  # S: no user has a larger norm
    fixed: bool = True  # the arms stay as they are
    who: Int[Array, ""] | None = None  # comes, of clients that share what they know, where one comes at a time
    links: Int[Array, "K n"] | None = None  # key terms of the arms, padded with J; None where nobody knows them
    term_mask: Bool[Array, " J"] | None = None  # which key terms may be asked about
    every_term: bool = True  # all of them, in every round

    @property
    def theta(self) -> None:
        raise AttributeError("a learner does not see theta: the user answers, in `ask` by questions.answer(i, x)")

    def among_candidates(self, scores: Float[Array, " J"]) -> Float[Array, " J"]:
        """Scores of key terms, -infinity for those that may not be asked about."""
        if self.every_term:
            return scores
        assert self.term_mask is not None
        return jnp.where(self.term_mask, scores, -jnp.inf)


def client_of(problem: Problem, stage: Alone, context: Any) -> Client:
    """What a learner sees of a stage before the first round."""
    world = problem.world
    return Client(
        stage.arms,
        stage.mask,
        problem.key_terms,
        problem.sigma,
        context,
        problem.user_bound,
        world.fixed,
        links=stage.arm_links,
        term_mask=jnp.ones(len(problem.key_terms), bool),
        every_term=world.candidates == "all",
    )


def in_round(client: Client, round: Round) -> Client:
    """What it sees in a round."""
    seen = client._replace(arms=round.arms, mask=round.mask, who=round.who, links=round.links)
    if client.every_term:
        return seen
    assert round.links is not None
    return seen._replace(term_mask=channels.related(round.links, len(client.key_terms)))


@dataclass(frozen=True)
class Questions:
    """The questions that are due before a round, and the user who answers them.

    They count from 0: `i` is the number of a question. `key(i)` is for a random choice of what to ask. A question is
    asked once, by one of `answer`, `about`, `compare` and `duel`.
    """

    count: Number
    _stage: Alone
    _round: Round
    _t: Int[Array, ""]
    _first: Number  # of them, among all questions of the run
    _candidates: Bool[Array, " J"]
    _expected: Float[Array, " J"] | None = None  # answers about key terms, where they are not those about vectors

    @classmethod
    def before(
        cls, stage: Alone, client: Client, round: Round, t: Int[Array, ""], first: Number, count: Number
    ) -> "Questions":
        """`count` questions before the pull of round t."""
        world = stage.world
        expected = stage.expected_answers(t) if world.charged or world.answers != "mean" else None
        assert client.term_mask is not None
        return cls(count, stage, round, t, first, client.term_mask, expected)

    def key(self, i: Number) -> Key[Array, ""]:
        """PRNG key for choosing what question i is about."""
        return fold_in(fold_in(self._stage.question_key, self._first + i), 1)  # not its answer's

    def answer(self, i: Number, x: Float[Array, " d"], n: Real | None = None) -> Float[Array, ""]:
        """What the user says of a vector: an arm, or something like a key term; with n, the sum of n such answers."""
        return self._say(i, self._stage.mean_of(x, self._t), n)

    def about(self, i: Number, k: Number, n: Real | None = None) -> Float[Array, ""]:
        """What the user says of key term number k, as `World.answers` has it; with n, the sum of n such answers."""
        return self._say(i, self._mean_about(k), n)

    def of(self, vectors: Float[Array, "n d"]) -> "Questions":
        """The same questions, with vectors in the place of the key terms, where answers are means."""
        assert self._stage.world.answers == "mean"
        return replace(self, _stage=self._stage._replace(key_terms=vectors))

    def compare(self, i: Number, k: Number, l: Number) -> Bool[Array, ""]:  # noqa: E741, a key term as k is
        """Does the user prefer key term k to l? Each expected answer has Gaussian noise of its own."""
        return self._stage.compare(self._mean_about(k), self._mean_about(l), self._first + i)

    def duel(self, i: Number, x: Float[Array, " d"], y: Float[Array, " d"]) -> Bool[Array, ""]:
        """Does x beat y? With probability sigmoid((x - y).theta)."""
        difference = self._stage.mean_of(x, self._t) - self._stage.mean_of(y, self._t)
        return self._stage.duel(difference, self._first + i)

    def cost(self, k: Number) -> Float[Array, ""]:
        """The regret of asking about key term k: 0, or in a world that charges what the best candidate has more."""
        if not self._stage.world.charged:
            return jnp.zeros_like(self._stage.noise)
        assert self._expected is not None
        return jnp.where(self._candidates, self._expected, -jnp.inf).max() - self._expected[k]

    def cost_of_arm(self, arm: Number) -> Float[Array, ""]:
        """The regret of asking about an arm: 0, or in a world that charges that of a pull."""
        return self._round.losses[arm] if self._stage.world.charged else jnp.zeros_like(self._stage.noise)

    @property
    def charged(self) -> bool:
        return bool(self._stage.world.charged)

    def _mean_about(self, k: Number) -> Float[Array, ""]:
        if self._stage.world.answers != "mean":
            assert self._expected is not None
            return self._expected[k]
        assert self._stage.key_terms is not None
        return self._stage.mean_of(self._stage.key_terms[k], self._t)

    def _say(self, i: Number, mean: Float[Array, ""], n: Real | None) -> Float[Array, ""]:
        question = self._first + i
        if n is None:
            return self._stage.say(mean, self._round, question)
        return self._stage.say_often(mean, self._round, question, jnp.asarray(n, mean.dtype))


def ask_in_turn(
    questions: Questions,
    one: Callable[[Int[Array, ""], Any], tuple[Any, Number]],
    carry: Any,
    cost: Callable[[Number], Float[Array, ""]] | None = None,
) -> tuple[Any, Info]:
    """Ask all questions: one(i, carry) asks the i-th and returns what it has learned, and the key term asked about.

    The Info is {"regret": what they cost together} in a world that charges, and empty in others. `cost` is
    `questions.cost`, or `questions.cost_of_arm` where `one` returns an arm.
    """
    if not questions.charged:
        return lax.fori_loop(0, questions.count, lambda i, carry: one(i, carry)[0], carry), {}
    price = questions.cost if cost is None else cost

    def charge(i: Int[Array, ""], paying: tuple) -> tuple:
        carry, spent = paying
        carry, k = one(i, carry)
        return carry, spent + price(k)

    carry, spent = lax.fori_loop(0, questions.count, charge, (carry, price(0) * 0))
    return carry, {"regret": spent}


def ask_each_client(
    learner: Any, stage: Together, client: Client, state: Any, t: Int[Array, ""], first: Number, count: Number
) -> tuple[Any, Info]:
    """Clients that share what they know ask one after another: `client.who` asks; padded clients do not.

    After the last, the state is recomputed.
    """
    real = stage.clients.mask.any(axis=1)

    def ask(i: Int[Array, ""], state: Any) -> tuple[Any, Info]:
        one = one_of(stage.clients, i)
        round = one.round_alone(t)._replace(who=i)
        met = in_round(client, round)
        state, info = learner.ask(state, met, Questions.before(one, met, round, t, first, count))
        return state, {name: jnp.asarray(number, client.noise.dtype) for name, number in info.items()}

    def next_client(i: Int[Array, ""], carry: tuple) -> tuple:
        state, told = ask(i, carry[0])
        after = (state, {name: carry[1][name] + number for name, number in told.items()})
        return jax.tree.map(lambda new, old: jnp.where(real[i], new, old), after, carry)

    _, counted = jax.eval_shape(ask, jnp.int32(0), state)
    nothing = {name: jnp.zeros_like(client.noise) for name in counted}
    state, info = lax.fori_loop(0, len(real), next_client, (state, nothing))
    return learner.refresh(state, client), info

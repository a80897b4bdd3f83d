"""The round clock: one learner per client, a pull every round, questions when the schedule allows them.

Rounds are played in stretches that end at a checkpoint, before a round with questions, or with a block of random
numbers, whichever is first. The clock is the same for all runs of a batch, so questions cost only where they are asked.
Nothing of size T is kept.

Where one client comes at a time, a client that plays alone counts its own rounds: it plays as it would otherwise, and
its curves are read at the rounds in which it came.
"""

import inspect
import math
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from fedbandit_jax import _runtime
from fedbandit_jax.clocks import messages, optimistic
from fedbandit_jax.clocks.base import Algorithm, MadeFor, Trace
from fedbandit_jax.clocks.client import Client, Info, Questions, ask_each_client, client_of, in_round
from fedbandit_jax.clocks.client import ask_in_turn as ask_in_turn
from fedbandit_jax.clocks.schedule import NEVER, Schedule
from fedbandit_jax.linalg.portable import for_each_lane, largest_of_lanes, traced, when
from fedbandit_jax.linalg.sampling import fold_in
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import BLOCK, EACH_CLIENT, Alone, Round, Stage, Together, one_of, own_rounds, stages_of
from fedbandit_jax.worlds.world import World

CHOICES = 2  # of a client's keys, after those of rewards and questions: of the learner's own choices
# Blocks between exact recomputations, 2048 rounds. The means of float32 stay within 1e-4; of the widths, those of the
# arms pulled most are off by a tenth after 10^4 rounds, and by 1e-3 after 10^5 (benchmarks/drift.py).
REFRESH = 32
# Clients on a core that pass messages, unless one federation has more. DisLinUCB with ten takes 1.2 us a client-round
# where one federation is played at a time, 2.2 where two are.
TALKING = 8


@runtime_checkable
class Asker(Protocol):
    """What asks questions: a learner, or one of several that play the same rounds, see clocks/variants.py."""

    def question_schedule(self) -> Any:
        """When to ask."""

    def ask(self, state: Any, client: Client, questions: Questions) -> Any:
        """The state after some questions, or (state, info)."""


class RoundAlgorithm(Algorithm, abstract=True):
    """Base class of learners that play round by round, each client for itself.

    A subclass says how its state starts, which arm to pull, what to learn from a reward and, if it asks questions,
    how; the clock, the batching and the curves come from here. `learn` and `ask` return the new state, or a pair of it
    and an `Info`, which the clock adds up into curves.

    A field `schedule` says when it asks. With `asks_every_round` it asks before every pull instead. With
    `asks_as_it_likes` it may ask any number of questions then, or none, and counts them itself, as "conversations" in
    its Info. With `duels` it chooses two arms, an array of two, and the reward is 1 if the first beats the second, else
    0; the regret of a round is the mean of theirs, "weak_regret" that of the better arm, "strong_regret" of the other.
    """

    independent_clients: ClassVar[bool] = True
    passes_messages: ClassVar[bool] = False  # at rounds that its state decides, see clocks/federation.py
    # True if `exchange` is a no-op for runs without a due message; the loop then skips a masking copy.
    minds_who_is_due: ClassVar[bool] = False
    asks_every_round: ClassVar[bool] = False
    asks_as_it_likes: ClassVar[bool] = False
    duels: ClassVar[bool] = False
    optimistic: ClassVar[bool] = False  # its rounds are LinUCB's, see clocks/optimistic.py
    made_for: ClassVar[MadeFor] = {
        "contexts": ("keeps to the arms that it starts with", ("fixed",)),
        "answers": ("asks about vectors", ("mean",)),
        "candidates": ("asks about any key term", ("all",)),
        "charged": ("does not tell what its questions cost", (False,)),
    }

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__(abstract)
        if "ask" in vars(cls) and "first" in inspect.signature(cls.ask).parameters:
            raise TypeError(
                f"{cls.__name__}.ask(self, state, client, first, count, key) is release 0.1's: it must be "
                "ask(self, state, client, questions), with questions.count, .answer(i, x) and .key(i)"
            )

    def plays_in(self, world: World) -> bool:
        return True

    def clients_per_core(self, arms: int, dim: int) -> int:
        """The power of two from which on arms and state fill half of a core's L2 cache: measured to be fastest.

        Of those that pass messages few, as all runs of a batch wait where in one of them a message is due.
        """
        if self.passes_messages:
            return TALKING

        def arms_and_state() -> tuple:
            client = self.unknown_client(arms, dim)
            return client.arms, self.start(client)

        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(arms_and_state)))
        return 2 ** math.ceil(math.log2(max(_runtime.l2_cache() / 2 / size, 1)))

    def unknown_client(self, arms: int, dim: int) -> Client:
        """What `start` is given, of that size."""
        one, links = jnp.zeros((1, dim)), jnp.zeros((arms, 1), jnp.int32)
        nothing = jnp.zeros(arms, bool)
        return Client(jnp.zeros((arms, dim)), nothing, one, one[0, 0], links=links, term_mask=jnp.ones(1, bool))

    def question_schedule(self) -> Schedule:
        """When to ask; a field named `schedule` says it, without one never."""
        return Schedule.of(getattr(self, "schedule", NEVER), 0)

    def prepare(self, horizon: int) -> Algorithm:
        """A schedule given as a function becomes a table."""
        if not self.asks_by_schedule():
            return self
        return self.replace(schedule=Schedule.of(self.hyperparameters()["schedule"], horizon))

    def context(self, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> Any:
        """What to work out once from the key terms, and those of each arm of the catalog, which all runs share.

        Once a program; for every chunk of it, if it computes with a hyperparameter that may differ between runs.
        `links` are padded with J; None where the catalog has no weights. A learner may do without them, and take
        key_terms alone.
        """
        return ()

    def start(self, client: Client) -> Any:
        """The state before the first round."""
        raise NotImplementedError

    def choose(self, state: Any, client: Client, key: Key[Array, ""]) -> Int[Array, ""]:
        """The arm to pull; the key is new in every round."""
        raise NotImplementedError

    def learn(self, state: Any, client: Client, arm: Int[Array, ""], reward: Float[Array, ""]) -> Any:
        """The state after a pull, or (state, info)."""
        raise NotImplementedError

    def ask(self, state: Any, client: Client, questions: Questions) -> Any:
        """The state after some questions, or (state, info)."""
        return state

    def refresh(self, state: Any, client: Client) -> Any:
        """The state recomputed without rounding drift, every 2048 rounds."""
        return state

    def theta_hat(self, state: Any) -> Float[Array, " d"]:
        """The estimate of theta."""
        raise NotImplementedError

    def due(self, state: Any, client: Client, t: Int[Array, ""]) -> Bool[Array, ""]:
        """After t rounds: does anybody have a message? Only of learners with `passes_messages`."""
        raise NotImplementedError

    def exchange(self, state: Any, client: Client, t: Int[Array, ""]) -> tuple[Any, Info]:
        """The state after the messages that are due, and what is counted of them."""
        raise NotImplementedError

    def run(self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"]) -> Trace:
        return self.run_asking(key, problem, checkpoints, self)

    def run_asking(
        self, key: Key[Array, ""], problem: Problem, checkpoints: Float[Array, " P"], asker: "Asker"
    ) -> Trace:
        """Play one federation with the rounds of this learner and the questions of another."""
        context = problem.context
        if context is None:
            context = context_of(self, problem.key_terms, problem.links)
        one_comes = problem.world.arrivals == "one"

        def play(stage: Alone, i: Int[Array, ""]) -> Curves:
            client = client_of(problem, stage, context)
            choice_key = jax.random.fold_in(jax.random.fold_in(key, i), CHOICES)
            came = None
            if one_comes:
                came = own_rounds(problem.arrivals_key, i, problem.federation, checkpoints.astype(jnp.int32))
            return play_rounds(self, stage, client, choice_key, checkpoints, came, asker)

        stages, ids = stages_of(problem, key), problem.client_ids
        if len(ids) == 1:  # as the engine has it: loops inside one another take long to trace under `vmap`
            curves = jax.tree.map(lambda curve: curve[None], play(one_of(stages, 0), ids[0]))
        else:
            curves = jax.vmap(play, in_axes=(EACH_CLIENT, 0))(stages, ids)
        real = problem.client_mask
        sums = jax.tree.map(lambda curve: jnp.where(real[:, None], curve, 0).sum(axis=0), curves)
        counts = sums.counts
        asked_besides = counts.pop("conversations", jnp.zeros_like(checkpoints))  # by learners that ask as they see fit
        return Trace(
            regret=counts.pop("regret"),
            conversations=(sums.asked + asked_besides) / problem.num_clients,
            communication=counts.pop("communication", jnp.zeros_like(checkpoints)),
            theta_error=sums.theta_error / problem.num_clients,
            counts=counts,
        )


def context_of(learner: Any, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None) -> Any:
    """What it works out of the key terms, or of them and the arms that carry them."""
    try:
        inspect.signature(learner.context).bind(key_terms, links)
    except TypeError:
        return learner.context(key_terms)
    return learner.context(key_terms, links)


class Curves(NamedTuple):
    """At P checkpoints."""

    asked: Float[Array, " P"]  # questions of the schedule
    theta_error: Float[Array, " P"]
    counts: dict[str, Float[Array, " P"]]  # regret, and what the learner's Info tells


class Total(NamedTuple):
    """A long sum, with what rounding has left out of it so far: in float32 small terms would never move it."""

    value: Float[Array, ""]
    left_out: Float[Array, ""]

    def add(self, term: Float[Array, ""]) -> "Total":
        term = term + self.left_out
        value = self.value + term
        return Total(value, term - (value - self.value))


class Game(NamedTuple):
    """Where a client's run stands; the clock (t, row, asked) is the same in all runs of a batch."""

    t: Int[Array, ""]  # rounds played
    row: Int[Array, ""]  # checkpoints passed
    asked: Int[Array, ""]
    state: Any
    seen: Any  # what the stage remembers
    totals: dict[str, Total]
    curves: Curves


def state_and_info(returned: Any, state: Any) -> tuple[Any, Info]:
    """What `learn` or `ask` returned: a state like the one before, or a pair of one and an Info."""
    alike: Any = jax.tree.structure(returned) == jax.tree.structure(state)  # type: ignore[operator]
    return (returned, {}) if alike else returned


def sum_of_infos(one: Info, other: Info) -> Info:
    return {**one, **other, **{name: one[name] + other[name] for name in one.keys() & other.keys()}}


def of_each_lane(key: UInt32[Array, "*M 2"], state: Any) -> Any:
    """A state whose arrays are each lane's own; what is one number, such as a count, may be the same in all lanes."""
    leaves, structure = jax.tree.flatten(state)
    arrays = iter(for_each_lane(key, [leaf for leaf in leaves if jnp.ndim(leaf)]))
    return jax.tree.unflatten(structure, [next(arrays) if jnp.ndim(leaf) else leaf for leaf in leaves])


def play_rounds(
    learner: RoundAlgorithm,
    stage: Stage,
    client: Client,
    choice_key: Key[Array, ""],
    checkpoints: Float[Array, " P"],
    came: Int[Array, " P"] | None = None,
    asker: Asker | None = None,
) -> Curves:
    """Play on a stage to the last checkpoint; where several clients are played as one, several pulls a round.

    `came` are the rounds that the client has played by each checkpoint, if these are not all of them. `asker` asks
    in place of the learner.

    Four loops, one inside another: from one question or recomputation to the next, as these copy the state; over blocks
    of random numbers; from checkpoint to checkpoint; and over rounds.
    """
    asker = learner if asker is None else asker
    schedule = NEVER if learner.asks_every_round else asker.question_schedule()
    if learner.duels:
        assert isinstance(stage, Alone)
        stage = stage._replace(uniform=())
    dtype = checkpoints.dtype
    stops = checkpoints.astype(jnp.int32)
    # Lanes with fewer arrivals keep stepping until the longest lane ends; their extra rounds are discarded.
    last = stops[-1] if came is None else largest_of_lanes(came[-1])

    def one_round(t: Int[Array, ""], state: Any, seen: Any, drawn: Any) -> tuple[Any, Any, Info]:
        round, seen = stage.round(drawn, t, seen)
        told: Info = {}
        if learner.asks_every_round:
            state, told = ask(state, t, t, jnp.int32(1), round)
            if not learner.asks_as_it_likes:
                told = {**told, "conversations": 1 + told.get("conversations", 0)}
        met = in_round(client, round)
        arm = learner.choose(state, met, fold_in(choice_key, t))
        reward = reward_of_duel(arm, round) if learner.duels else stage.reward(round.means[arm], round.chance)
        state, info = state_and_info(learner.learn(state, met, arm, reward), state)
        # An arm that does not exist is NaN, like padding: indexing alone would take another one for it.
        lost = round.losses.at[arm].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        regret = {"regret": lost.sum()}
        if learner.duels:
            regret = {"regret": lost.mean(), "weak_regret": lost.min(), "strong_regret": lost.max()}
        return state, seen, sum_of_infos(told, {**info, **regret})

    def reward_of_duel(arm: Int[Array, " 2"], round: Round) -> Float[Array, ""]:
        assert isinstance(stage, Alone)
        means = round.means[arm]
        return stage.wins(means[0] - means[1], round.chance).astype(means.dtype)

    def ask(
        state: Any, t: Int[Array, ""], asked: Int[Array, ""], due: Int[Array, ""], round: Round | None = None
    ) -> tuple[Any, Info]:
        if isinstance(stage, Together):
            return ask_each_client(learner, stage, client, state, t, asked, due)
        assert isinstance(stage, Alone)
        round = stage.round_alone(t) if round is None else round
        met, user = in_round(client, round), stage
        if learner.asks_as_it_likes:
            # Nobody knows how many questions there will be: each time has numbers of its own.
            user, asked = stage._replace(question_key=fold_in(stage.question_key, asked)), jnp.int32(0)
        questions = Questions.before(user, met, round, t, asked, due)
        return state_and_info(asker.ask(state, met, questions), state)

    def as_counts(info: Info) -> dict[str, Float[Array, ""]]:
        return {name: jnp.asarray(number, dtype) for name, number in info.items()}

    def add(totals: dict[str, Total], terms: dict[str, Float[Array, ""]]) -> dict[str, Total]:
        return totals | {name: totals[name].add(term) for name, term in terms.items()}

    def write(game: Game, row: Int[Array, ""]) -> Curves:
        error = stage.error(learner.theta_hat(game.state), game.t, game.seen)
        asked = zeros[0] if learner.asks_as_it_likes else game.asked.astype(dtype)
        values = Curves(asked, error, {name: total.value for name, total in game.totals.items()})
        return jax.tree.map(lambda curve, value: curve.at[row].set(value, mode="drop"), game.curves, values)

    def play_to_checkpoint(until: Int[Array, ""], drawn: Any, game: Game) -> Game:
        """To the next checkpoint, or `until`."""
        end = jnp.minimum(stops[game.row], until)

        def step(t: Int[Array, ""], carry: tuple) -> tuple:
            state, seen, sums = carry
            state, seen, info = traced_round(t, state, seen, drawn)
            return state, seen, jax.tree.map(jnp.add, sums, as_counts(info))

        start = (game.state, game.seen, for_each_lane(lane, dict.fromkeys(of_rounds, zeros[0])))
        if learner.passes_messages:
            end, (state, seen, sums), sent = play(drawn, game.t, end, step, start)
            game = game._replace(totals=add(game.totals, sent))
        else:
            state, seen, sums = play(drawn, game.t, end, step, start)
        game = game._replace(t=end, state=state, seen=seen, totals=add(game.totals, sums))
        # Every stretch writes into the row of the next checkpoint; the one that ends there is the last to do so.
        return game._replace(row=game.row + (end == stops[game.row]), curves=write(game, game.row))

    def play_own_rounds(until: Int[Array, ""], drawn: Any, game: Game) -> Game:
        """To `until`; every round writes into the row of the first checkpoint by which it was played."""

        def step(t: Int[Array, ""], game: Game) -> Game:
            state, seen, info = traced_round(t, game.state, game.seen, drawn)
            game = game._replace(t=t + 1, state=state, seen=seen, totals=add(game.totals, as_counts(info)))
            assert came is not None
            return game._replace(curves=write(game, jnp.searchsorted(came, game.t)))

        return lax.fori_loop(game.t, until, step, game)

    stretch = play_to_checkpoint if came is None else play_own_rounds

    def play_block(until: Int[Array, ""], game: Game) -> Game:
        """To the end of a block of random numbers, or `until`."""
        block = game.t // BLOCK
        end = jnp.minimum((block + 1) * BLOCK, until)
        drawn = stage.draw(block)
        return lax.while_loop(lambda game: game.t < end, lambda game: stretch(end, drawn, game), game)

    def play_between_events(game: Game) -> Game:
        """Ask what is due, play until the next question or recomputation, recompute if that is due."""
        if schedule is not NEVER:
            due = schedule.due(game.t + 1)

            def ask_now(carry: tuple[Any, dict[str, Total]]) -> tuple[Any, dict[str, Total]]:
                state, info = traced_ask(carry[0], game.t, game.asked, due)
                return state, add(carry[1], as_counts(info))

            state, totals = when(due > 0, ask_now, (game.state, game.totals))
            game = game._replace(state=state, totals=totals, asked=game.asked + due)
        refresh = (game.t // (BLOCK * REFRESH) + 1) * BLOCK * REFRESH
        until = jnp.minimum(jnp.minimum(refresh, last), schedule.quiet_until(game.t + 1))
        game = lax.while_loop(lambda game: game.t < until, lambda game: play_block(until, game), game)
        return game._replace(state=when(game.t == refresh, lambda state: learner.refresh(state, client), game.state))

    zeros, nothing = jnp.zeros_like(checkpoints), jnp.int32(0)
    lane = jax.random.key_data(choice_key)
    state, seen, own_zeros = of_each_lane(lane, learner.start(client)), stage.begin(), for_each_lane(lane, zeros)
    traced_round, (*_, of_rounds) = traced(one_round, nothing, state, seen, jax.eval_shape(stage.draw, nothing))
    of_questions: Info = {}
    if schedule is not NEVER:
        traced_ask, (_, of_questions) = traced(ask, state, nothing, nothing, nothing)
    silence, play = {}, optimistic.player(learner, stage, client)
    if learner.passes_messages:
        of_messages = jax.eval_shape(lambda state: learner.exchange(state, client, nothing)[1], state)
        silence = dict.fromkeys(of_messages, zeros[0])
        play = messages.player(learner, stage, client, silence)
    counted = dict.fromkeys([*of_rounds, *of_questions, *silence], own_zeros)
    totals = {name: Total(own_zeros[0], own_zeros[0]) for name in counted}
    error = stage.error(learner.theta_hat(state), nothing, seen)
    curves = Curves(zeros, jnp.full_like(zeros, error), counted)
    game = Game(nothing, nothing, nothing, state, seen, totals, curves)
    curves = lax.while_loop(lambda game: game.t < last, play_between_events, game).curves
    if came is None:
        return curves
    # Of checkpoints without a round between them, the first has been written; before the first round, there is nothing.
    row = jnp.searchsorted(came, came)
    untouched = Curves(zeros, jnp.full_like(zeros, error), counted)
    return jax.tree.map(lambda curve, start: jnp.where(came > 0, curve[row], start), curves, untouched)

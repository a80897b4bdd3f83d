"""What the clocks expect of the methods of an algorithm or a world, looked at before anything is compiled.

Methods are called once on shapes in place of numbers, which takes milliseconds. Errors that they raise themselves are
left alone.
"""

import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import IDENTITY, METRICS, Algorithm, Trace, is_column
from fedbandit_jax.clocks.client import client_of
from fedbandit_jax.clocks.elimination import PhaseElimination
from fedbandit_jax.clocks.rounds import Client, Questions, RoundAlgorithm, context_of
from fedbandit_jax.clocks.schedule import NEVER
from fedbandit_jax.worlds.problem import Problem
from fedbandit_jax.worlds.stage import Alone, Round
from fedbandit_jax.worlds.world import World

COUNTED = ("communication", "conversations")  # metrics of all algorithms that a learner may count itself
ARM = "the arm to pull, one integer such as jnp.argmax(scores)"
TWO_ARMS = "the two arms of a duel, an array of two integers"


class Shape(NamedTuple):
    """Sizes of a program: M clients, K arms, J key terms, d dimensions, P checkpoints; and its precision.

    n is the most key terms that an arm carries, None where the catalog has no weights.
    """

    M: int
    K: int
    J: int
    d: int
    P: int
    dtype: str
    n: int | None = None

    def array(self, *size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(size, self.dtype)

    def links(self, *size: int) -> jax.ShapeDtypeStruct | None:
        return None if self.n is None else jax.ShapeDtypeStruct((*size, self.n), jnp.int32)


class Word(str):
    """Prints without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def check_methods(algorithm: Algorithm, world: World, shape: Shape) -> tuple[str, ...]:
    """What it counts and tells in a world, besides the metrics of all.

    Raises ValueError, in one sentence, for a method that is missing or returns something else than it must.
    """
    leaves, structure = jax.tree.flatten((algorithm, world))
    return _check_methods(structure, len(leaves), shape)


@lru_cache(maxsize=4096)
def _check_methods(structure: Any, leaves: int, shape: Shape) -> tuple[str, ...]:
    with jax.enable_x64(shape.dtype == "float64"):
        algorithm, world = jax.tree.unflatten(structure, [shape.array()] * leaves)
        if isinstance(algorithm, RoundAlgorithm) and type(algorithm).run is RoundAlgorithm.run:
            return check_learner(algorithm, shape, world)
        return check_run(algorithm, world, shape)


def check_method(given: Algorithm | World, base: type, name: str, returns: str = "", spare: int = 0) -> None:
    """Is it there, if it `returns` something that is needed, and does it take what it is given?

    It may do without the last `spare` of that.
    """
    kind, own, inherited = type(given).__name__, getattr(type(given), name), getattr(base, name)
    taken = list(inspect.signature(inherited).parameters)
    if own is inherited:
        if returns:
            there = f"{name}({', '.join(taken)})"
            raise ValueError(f"{kind}.{name} is missing: it must be a method {there} that returns {returns}")
        return
    if not callable(own):
        _checks.fail(f"{kind}.{name}", own, f"it must be a method {name}({', '.join(taken)})")
    try:
        takes = inspect.signature(getattr(given, name))
    except (TypeError, ValueError):  # not every function tells
        return
    if not any(binds(takes, taken[1 : len(taken) - left_out]) for left_out in range(spare + 1)):
        method = f"{kind}.{name}({', '.join(takes.parameters)})"
        raise ValueError(f"{method} is not allowed: it must take ({', '.join(taken[1:])})")


def binds(takes: inspect.Signature, given: list[str]) -> bool:
    try:
        takes.bind(*given)
    except TypeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------- values


def kind_of(value: Any) -> Any:
    """The type and shape of an array or a number; None of anything else."""
    try:
        return jax.typeof(value)
    except TypeError:
        return None


def in_words(value: Any) -> str:
    """A value or a structure of values, with arrays as float32[10]."""

    def word(leaf: Any) -> Any:
        return leaf if kind_of(leaf) is None else Word(str(kind_of(leaf)).lstrip("~"))

    return _checks.shown(jax.tree.map(word, value))


def is_real(value: Any, *size: int) -> bool:
    """Is it an array of real numbers, of that size?"""
    kind = kind_of(value)
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    return kind is not None and kind.shape == size and any(jnp.issubdtype(kind.dtype, one) for one in kinds)


def wrong(given: Algorithm | World, method: str, returned: Any, must: str) -> None:
    raise ValueError(f"{type(given).__name__}.{method} returned {in_words(returned)}: it must return {must}")


# ----------------------------------------------------------------------------------------------- the round clock


def check_learner(learner: RoundAlgorithm, shape: Shape, world: World) -> tuple[str, ...]:
    """The methods that the round clock calls; returns the names that they count."""
    check_method(learner, RoundAlgorithm, "start", "the state before the first round")
    check_method(learner, RoundAlgorithm, "choose", TWO_ARMS if learner.duels else ARM)
    check_method(learner, RoundAlgorithm, "learn", "the state after a pull, or (state, info)")
    check_method(learner, RoundAlgorithm, "theta_hat", f"the estimate of theta, {shape.d} numbers")
    check_method(learner, RoundAlgorithm, "refresh")
    check_method(learner, RoundAlgorithm, "context", spare=1)
    if asks(learner):
        when = "that it asks in every round" if learner.asks_every_round else "of `schedule`"
        info = ", with an Info of its 'conversations'" if learner.asks_as_it_likes else ", or (state, info)"
        check_method(learner, RoundAlgorithm, "ask", f"the state after the questions {when}{info}")
    told: dict[str, None] = {}

    def meet_user(learner: RoundAlgorithm, problem: Problem, key: Any) -> tuple[Client, Alone]:
        arms, links = problem.arms[0], None if problem.arm_links is None else problem.arm_links[0]
        context = context_of(learner, problem.key_terms, problem.links)
        stage = Alone(
            problem.world, problem.pool, arms, problem.arm_mask[0], problem.theta[0], problem.noise, *[key] * 3
        )
        stage = stage._replace(key_terms=problem.key_terms, links=problem.links, arm_links=links)
        return client_of(problem, stage, context), stage

    def start(learner: RoundAlgorithm, problem: Problem, key: Any) -> Any:
        state = learner.start(meet_user(learner, problem, key)[0])
        if state is None or any(kind_of(leaf) is None for leaf in jax.tree.leaves(state)):
            wrong(learner, "start", state, "the state before the first round, of arrays and numbers")
        return state

    def play(learner: RoundAlgorithm, problem: Problem, key: Any, state: Any, count: Any) -> Any:
        return play_a_round(learner, *meet_user(learner, problem, key), told, state, key, count)

    key, count = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    given = learner, problem_of(shape._replace(M=1), world), key
    state = jax.eval_shape(start, *given)
    settled = jax.tree.map(meet, state, jax.eval_shape(play, *given, state, count))
    if settled != state:
        jax.eval_shape(play, *given, settled, count)
    if learner.asks_as_it_likes and asks(learner) and "conversations" not in told:
        raise ValueError(f"{learner.name}.ask does not count 'conversations': it must, as it asks as it likes")
    return tuple(told)


def asks(learner: RoundAlgorithm) -> bool:
    return learner.asks_every_round or learner.question_schedule() is not NEVER


def problem_of(shape: Shape, world: World) -> Problem:
    """Shapes in place of numbers."""
    shapes: dict[str, Any] = dict(
        arms=shape.array(shape.M, shape.K, shape.d),
        arm_mask=jax.ShapeDtypeStruct((shape.M, shape.K), bool),
        key_terms=shape.array(shape.J, shape.d),
        theta=shape.array(shape.M, shape.d),
        noise=shape.array(),
        horizon=shape.array(),
        client_ids=jax.ShapeDtypeStruct((shape.M,), jnp.int32),
        user_bound=shape.array(),
        world=world,
        pool=shape.array(shape.K, shape.d),
        key=jax.eval_shape(lambda: jax.random.key(0)),
        federation=jax.ShapeDtypeStruct((), jnp.int32),
        links=shape.links(shape.K),
        arm_links=shape.links(shape.M, shape.K),
    )
    return Problem(**shapes)


def meet(before: Any, after: Any) -> Any:
    """A number of Python in a state takes the type of what it becomes, as in JAX's loops."""
    if not before.weak_type or before.dtype == after.dtype:
        return before
    return jax.ShapeDtypeStruct(before.shape, jnp.promote_types(before.dtype, after.dtype))


def play_a_round(
    learner: RoundAlgorithm, client: Client, stage: Alone, told: dict[str, None], state: Any, key: Any, count: Any
) -> Any:
    """Every method once, as the clock does it; returns the state and adds to `told` what was counted."""
    arm: Any = learner.choose(state, client, key)
    if not is_real(arm, *[2] * learner.duels) or not jnp.issubdtype(jnp.result_type(arm), jnp.integer):
        wrong(learner, "choose", arm, TWO_ARMS if learner.duels else ARM)
    learned = new_state(learner, "learn", learner.learn(state, client, arm, client.noise), state, told)
    theta = stage.theta
    if asks(learner):
        means = client.arms @ theta
        round = Round(client.arms, client.mask, means, means, client.noise, links=client.links)
        questions = Questions.before(stage, client, round, count, count, count)
        new_state(learner, "ask", learner.ask(state, client, questions), state, told)
    new_state(learner, "refresh", learner.refresh(state, client), state, None)
    estimate: Any = learner.theta_hat(state)
    if not is_real(estimate, theta.size):
        wrong(learner, "theta_hat", estimate, f"the estimate of theta, {theta.size} numbers")
    return learned


def new_state(learner: RoundAlgorithm, method: str, returned: Any, state: Any, told: dict[str, None] | None) -> Any:
    """The state that a method returned, if it is like the one before; with an Info, where it may count."""
    wanted: Any = jax.tree.structure(state)
    alike = wanted == jax.tree.structure(returned)
    if not alike and told is not None and isinstance(returned, tuple | list) and len(returned) == 2:
        first, info = returned
        if wanted == jax.tree.structure(first):
            told |= dict.fromkeys(check_info(learner, method, info))
            returned, alike = first, True
    if not alike:
        pair = "" if told is None else ", or a pair of it and an Info"
        wrong(learner, method, returned, f"a state like that of `start`, {in_words(state)}{pair}")
    for (path, leaf), before in zip(jax.tree_util.tree_leaves_with_path(returned), jax.tree.leaves(state), strict=True):
        now, then = kind_of(leaf), kind_of(before)
        if now is None or now.shape != then.shape or (now.dtype != then.dtype and not then.weak_type):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            place = f" for `{name}`" if name else ""
            raise ValueError(
                f"{learner.name}.{method} returned {in_words(leaf)}{place}, which `start` made {in_words(before)}: "
                "a state must keep its shape and type"
            )
    return returned


def check_info(learner: RoundAlgorithm, method: str, info: Any) -> Iterable[str]:
    """The names that an Info counts."""
    who = f"{learner.name}.{method}"
    if not isinstance(info, Mapping) or not all(isinstance(name, str) for name in info):
        such = "its Info must be a dict of numbers by name, such as {'uploads': 1}"
        raise ValueError(f"{who} returned {in_words(info)} beside its state: {such}")
    for name, number in info.items():
        if not is_real(number):
            raise ValueError(f"{who} counts {in_words(number)} as {name!r}: it must be one number")
        if is_column(name) and name not in COUNTED and (method, name) != ("ask", "regret"):
            raise ValueError(f"{who} counts {name!r}: it must have another name, as that is a column of the results")
    return list(info)


# ---------------------------------------------------------------------------------------------------- other clocks


def check_run(algorithm: Algorithm, world: World, shape: Shape) -> tuple[str, ...]:
    """`run` itself; returns the names in its trace that not all traces have."""
    check_method(algorithm, Algorithm, "run", "a Trace")
    if isinstance(algorithm, PhaseElimination):
        check_method(algorithm, PhaseElimination, "radius", "the radius of a phase's estimate, one number")
    told: list[str] = []

    def run(algorithm: Algorithm, key: Any, problem: Problem, checkpoints: Any) -> None:
        trace: Any = algorithm.run(key, problem, checkpoints)
        if not isinstance(trace, Trace):
            wrong(algorithm, "run", trace, "a Trace")
        told.extend(check_trace(algorithm, trace, shape.P))

    key = jax.eval_shape(lambda: jax.random.key(0))
    jax.eval_shape(run, algorithm, key, problem_of(shape, world), shape.array(shape.P))
    return tuple(told)


def check_trace(algorithm: Algorithm, trace: Trace, P: int) -> list[str]:
    """Curves at P checkpoints, diagnostics of as many phases each, and names that are free."""
    who = f"{algorithm.name}.run"
    for part in (trace.counts, trace.phases):
        if not isinstance(part, Mapping) or not all(isinstance(name, str) for name in part):
            wrong(algorithm, "run", trace, "a Trace whose `counts` and `phases` are dicts of arrays by name")
    curves = {name: getattr(trace, name) for name in METRICS} | {f"counts[{n!r}]": x for n, x in trace.counts.items()}
    for name, curve in curves.items():
        if not is_real(curve, P):
            must = f"it must be {P} real numbers, one for each checkpoint"
            raise ValueError(f"{who} returned {in_words(curve)} as `{name}`: {must}")
    phases = trace.phases
    kinds = [kind_of(row) for row in phases.values()]
    length = kinds[0].shape[:1] if kinds and kinds[0] is not None else (0,)
    if phases and ("phase" not in phases or not all(is_real(row, *length) for row in phases.values())):
        must = "it must have 'phase' and, under each name, a number for each phase"
        raise ValueError(f"{who} returned {in_words(phases)} as `phases`: {must}")
    taken = [name for name in trace.counts if is_column(name)] + [name for name in phases if name in IDENTITY]
    if taken:
        raise ValueError(f"{who} tells {taken[0]!r}: it must have another name, as that is a column of the results")
    return [*trace.counts, *phases]


# ----------------------------------------------------------------------------------------------- worlds of one's own


def check_own_world(world: World, shape: Shape) -> None:
    """The methods that the clocks call, given numbers of the right shape."""
    for name in ("theta_at", "mean", "reward", "sum_of_rewards", "sigma", "draw", "arms"):
        check_method(world, World, name)
    if world.fixed and (type(world).draw is not World.draw or type(world).arms is not World.arms):
        name = type(world).__name__
        _checks.fail(f"contexts of {name}", world.contexts, "it has its own arms of a round, so it must be 'redrawn'")
    leaves, structure = jax.tree.flatten(world)
    with jax.enable_x64(shape.dtype == "float64"):
        traced = jax.tree.unflatten(structure, [shape.array()] * len(leaves))
        key, t = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
        arms, theta = shape.array(shape.K, shape.d), shape.array(shape.d)
        jax.eval_shape(partial(meet_a_round, shape), traced, arms, theta, shape.array(), key, t)


def meet_a_round(shape: Shape, world: World, arms: Any, theta: Any, noise: Any, key: Any, t: Any) -> None:
    """Every method once, as the stage does it."""
    now: Any = world.theta_at(theta, t)
    if not is_real(now, shape.d):
        wrong(world, "theta_at", now, f"the preference of round t, {shape.d} numbers")
    if not world.fixed:
        drawn = world.draw(key[None], arms, shape.K)
        arms = world.arms(jax.tree.map(lambda x: x[0], drawn), arms)
        if not is_real(arms, shape.K, shape.d):
            wrong(world, "arms", arms, f"the arms of a round, {shape.K} rows of {shape.d} numbers")
    means: Any = world.mean(arms, now)
    if not is_real(means, shape.K):
        wrong(world, "mean", means, "the expected rewards, one number for each row of x")
    reward: Any = world.reward(means[0], noise, noise)
    if not is_real(reward):
        wrong(world, "reward", reward, "a reward of the shape of `mean`")
    if not is_real(world.sigma(noise)):
        wrong(world, "sigma", world.sigma(noise), "the subgaussian constant, one number")
    if type(world).sum_of_rewards is not World.sum_of_rewards:
        sums: Any = world.sum_of_rewards(jnp.ones_like(means), means, noise, means, key)
        if not is_real(sums, shape.K):
            wrong(world, "sum_of_rewards", sums, "a sum for each of `means`")

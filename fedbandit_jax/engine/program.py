"""Programs: the lanes of a batch stacked as arrays, compiled once, and played on all devices a chunk at a time.

Federations with fewer clients or arms than the largest of the batch are padded and masked.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, Key, UInt32

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import MEANS, Algorithm, Trace
from fedbandit_jax.clocks.rounds import RoundAlgorithm, context_of
from fedbandit_jax.clocks.variants import Variants
from fedbandit_jax.engine import executables
from fedbandit_jax.engine.batches import Batch, clients_per_device, power_of_two_above
from fedbandit_jax.worlds.problem import FederationDraw, draw_federation, sample_problem
from fedbandit_jax.worlds.world import World

# CPU: XLA's default level, 3, compiles a quarter longer, for rounds that are a twelfth slower and phases that are the
# same. And a device is a core, so nothing is to be shared out to threads: of a round, that takes longer than the round.
# GPU: a loop becomes a CUDA graph, or the host would decide before every pass whether to go on, as below CUDA 12.3.
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
COMPILER_OPTIONS: dict[str, dict[str, Any]] = {
    "cpu": {"xla_backend_optimization_level": 1, "xla_disable_hlo_passes": "cpu-parallel-task-assigner"},
    "gpu": {"xla_gpu_enable_command_buffer": GRAPHS},
}
KEYS_AT_ONCE = 1024


class DeviceCatalog(NamedTuple):
    """A catalog on the device."""

    arms: Float[Array, "A d"]
    key_terms: Float[Array, "J d"]
    users: Float[Array, "U d"]
    user_bound: Float[Array, ""]
    links: Int[Array, "A n"] | None = None  # key terms of the arms, padded with J, where the catalog knows them
    context: Any = None  # what a learner works out from all this, see `context_for_all`
    playing: Int[Array, ""] | None = None  # which of several learners plays, where they share a program


class LaneInputs(NamedTuple):
    """The numbers of one lane, besides its algorithm's; a leading axis when batched."""

    clients: Int[Array, "*R"]
    arms: Int[Array, "*R"]
    noise: Float[Array, "*R"]
    user: Int[Array, "*R"]
    first_client: Int[Array, "*R"]
    keys: UInt32[Array, "*R 2 2"]  # of arm sets and of play


class Program:
    """The compiled program of a batch, on all devices of this process."""

    def __init__(
        self, batch: Batch, *, seed: int, devices: Sequence[jax.Device], rounds: np.ndarray | None = None
    ) -> None:
        """`rounds` are other rounds to keep than the batch's, as many."""
        cells, cell_of_lane = batch.cells, batch.cell
        self.batch = batch
        self.num_devices = len(devices)
        at_once = clients_per_device(batch.algorithm, batch.max_arms, batch.catalog.dim, devices[0])
        lanes = max(1, at_once // batch.max_clients)
        if devices[0].platform != "cpu":  # few programs for all numbers of runs, and none for more than there are
            lanes = min(lanes, power_of_two_above(len(cell_of_lane) / self.num_devices))
        self.chunk = self.num_devices * lanes  # lanes at a time
        self.executable: Any = None
        self.draw: Any = None  # the compiled program that draws the federations of a chunk
        self.compile_seconds = self.play_seconds = 0.0
        self.memory = 0  # bytes that a chunk takes on all devices
        self.work = 0.0  # in clients x arms x phases
        self.work_on_padding = 0.0

        def of_lanes(name: str, dtype: Any) -> Any:
            return np.array([getattr(cell, name) for cell in cells], dtype)[cell_of_lane]

        self.inputs = LaneInputs(
            clients=of_lanes("clients", np.int32),
            arms=of_lanes("arms", np.int32),
            noise=of_lanes("noise", batch.dtype),
            user=batch.user.astype(np.int32),
            first_client=batch.client.astype(np.int32),
            keys=keys_of_runs(seed, batch.user, batch.seed),
        )
        self.algorithms, self.worlds = (
            jax.tree.map(lambda *values: np.asarray(values, batch.dtype)[cell_of_lane], *given)
            for given in (batch.played, batch.worlds)
        )
        mesh = jax.make_mesh((len(devices),), ("lanes",), axis_types=(AxisType.Auto,), devices=list(devices))
        features: Any = (batch.catalog.arms, batch.catalog.key_terms, batch.catalog.users, batch.catalog.user_bound)
        shared = [DeviceCatalog(*features), batch.rounds if rounds is None else rounds]
        with self.precision():
            in_precision = jax.tree.map(lambda x: np.asarray(x, batch.dtype), shared)
            playing = None if batch.playing is None else np.int32(batch.playing)
            in_precision[0] = in_precision[0]._replace(links=batch.catalog.links, playing=playing)
            self.everywhere = NamedSharding(mesh, PartitionSpec())
            self.catalog, self.rounds = jax.device_put(in_precision, self.everywhere)
        self.static: dict[str, Any] = {"mesh": mesh, "max_clients": batch.max_clients, "max_arms": batch.max_arms}
        self.platform = devices[0].platform

    def precision(self) -> AbstractContextManager:
        """The switch of JAX under which the program is made and played."""
        return jax.enable_x64(self.batch.dtype == "float64")

    @cached_property
    def shared(self) -> tuple[DeviceCatalog, Float[Array, " P"]]:
        """What all lanes have in common, with what the learner works out from it: once, not for every chunk."""
        with self.precision():
            key_terms = np.asarray(self.batch.catalog.key_terms, self.batch.dtype)
            context = context_for_all(self.batch.played[0], key_terms, self.batch.catalog.links)
            return self.catalog._replace(context=jax.device_put(context, self.everywhere)), self.rounds

    @property
    def pool(self) -> DeviceCatalog:
        """What federations are drawn from."""
        return self.catalog._replace(context=None, playing=None)

    def of_lanes(self, lanes: np.ndarray) -> tuple[Algorithm | Variants, World, LaneInputs]:
        """What a chunk has lane by lane; a short one is padded by repeating its last lane, as shapes are fixed."""
        index = lanes[np.minimum(np.arange(self.chunk), len(lanes) - 1)]
        algorithms, worlds, inputs = jax.tree.map(lambda x: x[index], (self.algorithms, self.worlds, self.inputs))
        return algorithms, worlds, inputs

    def arguments(self, lanes: np.ndarray) -> tuple:
        """Arguments of `run_batch` for one chunk, whose federations are drawn."""
        algorithms, worlds, inputs = self.of_lanes(lanes)
        catalog, rounds = self.shared
        drawn = self.draw(worlds, inputs, self.pool)
        return algorithms, worlds, inputs, drawn, catalog, rounds

    def shapes(self) -> tuple:
        """Arguments of `run_batch` for one chunk, with shapes in place of the federations, which are not drawn."""
        algorithms, worlds, inputs = self.of_lanes(np.zeros(1, int))
        catalog, rounds = self.shared
        with self.precision():
            drawn = jax.eval_shape(partial(draw_batch, **self.static), worlds, inputs, self.pool)
        return algorithms, worlds, inputs, drawn, catalog, rounds

    def compile(self, budget: float = float("inf")) -> None:
        """Compile, for as many lanes at a time as fit into a budget of bytes.

        JAX finds the executable again if it has compiled the same for another batch.
        """
        while True:
            began = time.perf_counter()
            with self.precision():
                self.compile_draw()
                algorithms, worlds, *arrays = self.arguments(np.zeros(1, int))
                options = compiler_options(self.platform)
                program = jitted(run_batch, self.platform)
                self.executable = executables.compiled(program, (algorithms, worlds), arrays, self.static, options)
            self.compile_seconds += time.perf_counter() - began
            needs = self.executable.memory_analysis()
            if needs is None:  # not every backend tells
                return
            parts = needs.temp_size_in_bytes, needs.argument_size_in_bytes, 2 * needs.output_size_in_bytes
            self.memory = self.num_devices * sum(parts)
            if self.memory <= budget:
                return
            if self.chunk == self.num_devices:
                allowed = f"the smallest program takes {self.memory / 1e9:.2g} GB"
                _checks.fail("memory", f"{budget / 1e9:.2g}GB", allowed)
            fitting = int(self.chunk / self.num_devices * budget / self.memory)
            self.chunk = self.num_devices * max(1, min(fitting, self.chunk // self.num_devices - 1))

    def take_over(self, other: "Program") -> None:
        """Play by what was compiled for a program of an equal batch."""
        self.executable, self.draw, self.chunk, self.memory = other.executable, other.draw, other.chunk, other.memory

    def compile_draw(self) -> None:
        """Compile what draws the federations; all algorithms that play as many lanes of one shape share it."""
        _, worlds, inputs = self.of_lanes(np.zeros(1, int))
        arrays = inputs, self.pool
        options = compiler_options(self.platform)
        self.draw = executables.compiled(jitted(draw_batch, self.platform), (worlds,), arrays, self.static, options)

    def play(self, lanes: np.ndarray) -> Iterator[Trace]:
        """Traces of some lanes, in order, a chunk each; out of memory, chunks of half the size go on."""
        done = 0
        while done < len(lanes):
            try:
                for part in self.chunks(lanes[done:]):
                    yield part
                    done += len(part.regret)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk == self.num_devices:
                    raise
                before, self.chunk = self.chunk, self.num_devices * (self.chunk // self.num_devices // 2)
                warnings.warn(f"out of memory with {before} lanes at a time: going on with {self.chunk}", stacklevel=2)
                self.compile()

    def chunks(self, lanes: np.ndarray) -> Iterator[Trace]:
        """The next chunk is on its way while one is read; whoever stops reading leaves an idle device."""
        waiting: list[tuple[np.ndarray, Trace]] = []
        try:
            for first in range(0, len(lanes), self.chunk):
                index = lanes[first : first + self.chunk]
                waiting.append((index, self.dispatch(index)))
                if len(waiting) > 1:
                    yield self.to_host(*waiting.pop(0))
            while waiting:
                yield self.to_host(*waiting.pop(0))
        finally:
            jax.block_until_ready([trace for _, trace in waiting])

    def dispatch(self, lanes: np.ndarray) -> Trace:
        """Send a chunk on its way."""
        with self.precision():
            return self.executable(*self.arguments(lanes))

    def to_host(self, lanes: np.ndarray, trace: Trace) -> Trace:
        """The traces of a chunk as NumPy arrays, and what of its work went into padding."""
        trace = jax.tree.map(np.asarray, trace)
        alone = self.batch.max_clients == 1
        clients = np.ones(len(lanes), int) if alone else self.inputs.clients[lanes]
        phases = (trace.phases["phase"] > 0).sum(axis=1) if trace.phases else np.ones(self.chunk, int)
        longest = phases.reshape(self.num_devices, -1).max(axis=1)  # a device goes on until its last lane is done
        spent = self.batch.max_clients * self.batch.max_arms * self.chunk * float(longest.mean())
        self.work += spent
        self.work_on_padding += spent - float((clients * self.inputs.arms[lanes] * phases[: len(lanes)]).sum())
        return jax.tree.map(lambda x: x[: len(lanes)], trace)

    def finished(self, runs: np.ndarray) -> Iterator[tuple[np.ndarray, Trace]]:
        """Play some runs; yields them, and their traces, as soon as all of their lanes are done."""
        lanes = self.batch.lanes_of(runs)
        begin = np.searchsorted(lanes, self.batch.first_lane[runs])
        end = begin + self.batch.lanes_of_run[runs]
        order = np.argsort(end, kind="stable")
        runs, begin, end = runs[order], begin[order], end[order]
        given, kept_from, played = 0, 0, 0
        waiting: list[Trace] = []
        for part in self.play(lanes):
            waiting.append(part)
            played += len(part.regret)
            whole = slice(given, int(np.searchsorted(end, played, side="right")))
            if whole.stop == given:
                continue
            together = concatenate(waiting)
            yield runs[whole], add_up(together, begin[whole] - kept_from, end[whole] - kept_from)
            given = whole.stop
            needed_from = int(begin[given:].min(initial=played))
            waiting = [jax.tree.map(lambda x, n=needed_from - kept_from: x[n:], together)]
            kept_from = needed_from


def add_up(lanes: Trace, begin: np.ndarray, end: np.ndarray) -> Trace:
    """Traces of runs, each of some neighbouring lanes: clients that play alone are added up."""
    count = end - begin
    if (count == 1).all():
        return jax.tree.map(lambda x: x[begin], lanes)
    edges = np.column_stack([begin, end]).ravel()

    def add(curve: np.ndarray) -> np.ndarray:
        closed = np.concatenate([curve, np.zeros_like(curve[:1])])  # an edge may lie behind the last lane
        return np.add.reduceat(closed, edges, axis=0)[::2]

    total: Trace = jax.tree.map(add, lanes)
    return total._replace(**{name: getattr(total, name) / count[:, None] for name in MEANS})


def concatenate(parts: Sequence[Trace]) -> Trace:
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def keys_of_runs(seed: int, user: np.ndarray, index: np.ndarray) -> Any:
    """Keys of the arm sets and the play of runs, which depend on the seed, the user and the index of the seed alone.

    Worked out apart from the programs, as every use of a key takes each of them a quarter of a second to compile.
    """
    pairs, place = np.unique(user.astype(np.uint64) << 32 | index.astype(np.uint64), return_inverse=True)
    filled = np.resize(pairs, -(-len(pairs) // KEYS_AT_ONCE) * KEYS_AT_ONCE).reshape(-1, KEYS_AT_ONCE)
    key = jax.random.key(seed)
    blocks = [_keys_of_block(key, (pair >> 32).astype(np.uint32), pair.astype(np.uint32)) for pair in filled]
    return np.concatenate(blocks)[place]


@jax.jit
def _keys_of_block(
    key: Key[Array, ""], user: UInt32[Array, " n"], index: UInt32[Array, " n"]
) -> UInt32[Array, "n 2 2"]:
    def keys(user: UInt32[Array, ""], index: UInt32[Array, ""]) -> Key[Array, " 2"]:
        return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, user), index))

    return jax.random.key_data(jax.vmap(keys)(user, index))


def context_for_all(algorithm: Algorithm | Variants, key_terms: np.ndarray, links: np.ndarray | None) -> Any:
    """The context of a learner, which is the same in all lanes; None if there is none, or lanes must see to it.

    Traced with abstract hyperparameters; if the context needs their values, tracing fails and each lane computes its
    own.
    """
    if not isinstance(algorithm, RoundAlgorithm | Variants):
        return None
    unknown = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), key_terms.dtype), algorithm)
    try:
        return _context(unknown, key_terms, links)
    except (TypeError, AttributeError):
        return None


@partial(jax.jit, static_argnums=0)
def _context(
    learner: RoundAlgorithm | Variants, key_terms: Float[Array, "J d"], links: Int[Array, "A n"] | None
) -> Any:
    with jax.default_matmul_precision("highest"):
        context = context_of(learner, key_terms, links)
    if not all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(context)):
        raise TypeError("a number of the learner's may be part of a shape")
    return context


def compiler_options(platform: str) -> dict[str, Any] | None:
    """XLA's options for a kind of device, unless JAX has been told to compile quickly."""
    return None if jax.config.values["jax_disable_most_optimizations"] else COMPILER_OPTIONS.get(platform)


@cache
def jitted(function: Any, platform: str) -> Any:
    """`run_batch` or `draw_batch` as JAX compiles it for a kind of device."""
    static = ("mesh", "max_clients", "max_arms")
    return jax.jit(function, static_argnames=static, compiler_options=compiler_options(platform))


def over_lanes(one: Any, mesh: jax.sharding.Mesh, lanes: Sequence[Any], shared: Sequence[Any]) -> Any:
    """Results of a function of single lanes for a chunk of lanes, spread over the devices of a mesh."""
    per_device = jax.vmap(one, in_axes=(0,) * len(lanes) + (None,) * len(shared))
    spread, everywhere = PartitionSpec("lanes"), PartitionSpec()
    specs = (spread,) * len(lanes) + (everywhere,) * len(shared)
    return jax.shard_map(per_device, mesh=mesh, in_specs=specs, out_specs=spread, check_vma=False)(*lanes, *shared)


def draw_batch(
    worlds: World,
    inputs: LaneInputs,
    catalog: DeviceCatalog,
    *,
    mesh: jax.sharding.Mesh,
    max_clients: int,
    max_arms: int,
) -> FederationDraw:
    """Draw the federations of a chunk of lanes."""

    def one(world: World, lane: LaneInputs, catalog: DeviceCatalog) -> FederationDraw:
        return draw_federation(
            jax.random.wrap_key_data(lane.keys)[0],
            catalog.arms,
            catalog.users,
            clients=lane.clients,
            num_arms=lane.arms,
            max_clients=max_clients,
            max_arms=max_arms,
            first_client=lane.first_client,
            world=world,
            user=lane.user,
            links=catalog.links,
            num_key_terms=len(catalog.key_terms),
        )

    return over_lanes(one, mesh, (worlds, inputs), (catalog,))


def run_batch(
    algorithms: Algorithm | Variants,
    worlds: World,
    inputs: LaneInputs,
    drawn: FederationDraw,
    catalog: DeviceCatalog,
    rounds: Float[Array, " P"],
    *,
    mesh: jax.sharding.Mesh,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Play a chunk of lanes."""
    one = partial(run_one, max_clients=max_clients, max_arms=max_arms)
    return over_lanes(one, mesh, (algorithms, worlds, inputs, drawn), (catalog, rounds))


def run_one(
    algorithm: Algorithm | Variants,
    world: World,
    lane: LaneInputs,
    drawn: FederationDraw | None,
    catalog: DeviceCatalog,
    rounds: Float[Array, " P"],
    *,
    max_clients: int,
    max_arms: int,
) -> Trace:
    """Play one federation, or one client of it; pure in its arguments."""
    arms_key, play_key = jax.random.wrap_key_data(lane.keys)
    problem = sample_problem(
        arms_key,
        catalog.arms,
        catalog.key_terms,
        catalog.users,
        clients=lane.clients,
        num_arms=lane.arms,
        noise=lane.noise,
        horizon=rounds[-1],
        max_clients=max_clients,
        max_arms=max_arms,
        first_client=lane.first_client,
        user_bound=catalog.user_bound,
        world=world,
        user=lane.user,
        links=catalog.links,
        context=catalog.context,
        drawn=drawn,
    )
    with jax.default_matmul_precision("highest"):  # GPUs and TPUs would round the factors of products to a few digits
        if isinstance(algorithm, Variants):
            assert catalog.playing is not None
            return algorithm.run(play_key, problem, rounds, catalog.playing)
        return algorithm.run(play_key, problem, rounds)

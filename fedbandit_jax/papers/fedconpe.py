"""The paper's experiments, presets, line-ups and readings, as data.

The paper publishes neither its code nor the constants of its runs, so every experiment is played under three presets:

    theory      radii of the theorems for everyone
    released    the baselines with the constants of their public code, FedConPE with those of its theory
    tuned       every algorithm with the best of equally many trials, on users that are not scored (`tuning`)

FedConPE is the paper's with N = C = 1 and delta = 0.1 unless it is tuned. The seventh experiment, `clients` and `arms`
on real data, is those two with other catalogs.

Constants are not all that the paper leaves open. A `Reading` settles every such choice in one way, and `readings` are
all of them.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedbandit_jax.algorithms import ArmCon, ConLinUCB, ConUCB, FedConPE, FedLinPE, LinPE, LinUCB, SharedLinUCB
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.papers.record import Paper

PRESETS = ("theory", "released", "tuned")
NOISE = 0.1  # the paper is silent; the public code of its baselines has it
USERS = 10
CHECKPOINTS = 60  # of every experiment, so that they share programs

# With the defaults of the package, which are the constants of the public code.
LINE_UP: tuple[Algorithm, ...] = (
    FedConPE(),
    LinUCB(),
    ArmCon(),
    ConUCB(),
    ConLinUCB(strategy="BS"),
    ConLinUCB(strategy="MCR"),
    ConLinUCB(strategy="UCB"),
)
BASELINES = tuple(algorithm.title for algorithm in LINE_UP[1:])
QUICK_BASELINES = ("LinUCB", "ArmCon", "ConUCB", "ConLinUCB-BS")  # one of the three kinds of ConLinUCB


@dataclass(frozen=True)
class Experiment:
    """What is played, what its figure shows, and what the paper claims of it."""

    id: str
    title: str
    claim: str
    clients: tuple[int, ...] = (10,)
    arms: tuple[int, ...] = (100,)
    horizon: int = 6000
    metric: str = "regret"
    x: str = "round"  # of its figure: round, clients or arms
    last_round: int | None = None  # the figure and the verdict end here, before the horizon
    schedules: tuple[str, ...] = ("log",)  # of the baselines' questions
    least_percent: float = 0.0  # below every baseline, where the claim is such a figure
    relatives: bool = False  # also play what the paper does not compare with
    quick_clients: tuple[int, ...] | None = None  # fewer and smaller, where it is swept: for --quick
    quick_arms: tuple[int, ...] | None = None
    baselines: tuple[str, ...] = BASELINES

    @property
    def tuning_setting(self) -> tuple[int, int, int]:
        """(M, K, T) at which its algorithms are tuned: the middle of its lists."""
        return self.clients[len(self.clients) // 2], self.arms[len(self.arms) // 2], self.horizon

    @property
    def line_up(self) -> tuple[Algorithm, ...]:
        """FedConPE and its baselines, with their defaults."""
        return LINE_UP[:1] + tuple(algorithm for algorithm in LINE_UP[1:] if algorithm.title in self.baselines)

    def quick(self) -> "Experiment":
        """A smaller one, whose programs and tuned constants are those of other quick experiments."""
        few = QUICK_BASELINES if self.metric != "conversations" else QUICK_BASELINES[-1:]  # b(t) is the same for all
        clients, arms = self.quick_clients or self.clients, self.quick_arms or self.arms
        horizon = min(self.horizon, Experiment.horizon)
        return replace(self, clients=clients, arms=arms, horizon=horizon, relatives=False, baselines=few)

    def algorithms(self, preset: str, constants: Mapping[str, Mapping[str, Any]] | None = None) -> list[Algorithm]:
        """FedConPE and the baselines; `constants` are the tuned ones, by title."""
        first, *baselines = self.line_up
        found: list[Algorithm] = [with_constants(first, preset, constants)]
        for algorithm in baselines:
            asks = algorithm.asks_by_schedule()
            if asks or self.metric != "conversations":
                chosen = with_constants(algorithm, preset, constants)
                found += [chosen.replace(schedule=name) for name in self.schedules] if asks else [chosen]
        return found

    def extras(self, preset: str) -> list[Algorithm]:
        """Relatives, for comparison; no claim is about them."""
        if not self.relatives or preset == "tuned":
            return []
        return [with_constants(SharedLinUCB(), preset, None), LinPE(), FedLinPE()]


def with_constants(algorithm: Algorithm, preset: str, constants: Mapping[str, Mapping[str, Any]] | None) -> Algorithm:
    """An algorithm under a preset."""
    if preset == "tuned":
        return algorithm.replace(**(constants or {})[algorithm.title])
    radii = [name for name in ("alpha", "alpha_t") if hasattr(algorithm, name)]
    return algorithm.replace(**dict.fromkeys(radii, "theory")) if preset == "theory" else algorithm


EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        Experiment(
            "single",
            "One client",
            "FedConPE's regret is at least 5.25 % below every baseline's, M = 1",
            clients=(1,),
            least_percent=5.25,
        ),
        Experiment(
            "multi",
            "Ten clients",
            "FedConPE's regret is at least 37.05 % below every baseline's, M = 10",
            least_percent=37.05,
            relatives=True,
        ),
        Experiment(
            "clients",
            "Number of clients",
            "the baselines' regret grows linearly in M, FedConPE's like sqrt(M)",
            clients=(3, 6, 9, 12, 15),
            quick_clients=(5, 10),
            x="clients",
        ),
        # The paper does not say M here: ten, as in the others.
        Experiment(
            "arms",
            "Number of arms",
            "FedConPE's regret is flat in K",
            arms=(100, 150, 200, 250, 300),
            quick_arms=(50, 100),
            horizon=10_000,
            x="arms",
        ),
        Experiment(
            "accuracy",
            "Accuracy of the estimate",
            "FedConPE's estimate is the most accurate over the first 2000 rounds, M = 5",
            clients=(5,),
            metric="theta_error",
            last_round=2000,
        ),
        Experiment(
            "questions",
            "Questions asked",
            "FedConPE asks the fewest questions, M = 10",
            metric="conversations",
            schedules=("log", "linear"),
        ),
    )
}


PAPER = Paper(
    "fedconpe",
    "FedConPE: the paper's experiments, rerun and judged",
    'Li, Liu and Lui, "FedConPE: Efficient Federated Conversational Bandits with Heterogeneous Clients", IJCAI 2024, '
    "arXiv 2405.02881",
    EXPERIMENTS,
)


# ------------------------------------------------------------------------------------------------------------ readings

ADMISSIBLE = "admissible"
CHOICES: dict[str, tuple[str, ...]] = {
    # What counts and radii allow for: the noise there is, or the letter of the paper, whose noise is 1-subgaussian.
    "sigma": ("noise", "1"),
    # With C = 1; or C as the catalog's key terms offer it, and the least N that it admits, N C^2 = 1.
    "N": ("1", ADMISSIBLE, "1.5", "2", "5", "10", "30", "100"),
    # About directions that no active arm of a client has.
    "null_space": ("ask", "skip"),
    "rounding": ("ceil", "unbiased"),
    "baselines": PRESETS,
}
QUICK_CHOICES = CHOICES | {"N": ("1", ADMISSIBLE, "10"), "baselines": ("theory", "released")}
# How long users are, before the other choices: as the appendix has them first.
SYNTHETIC_NORMS = ("drawn", "unit")
REAL_NORMS = ("svd", "scaled")
APPENDIX_NORMS = ("drawn", "svd")
SWEPT_NORMS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(frozen=True)
class Reading:
    """One way to settle all that the paper leaves open; the values are those of `CHOICES`, and of a user norm."""

    user_norm: str
    sigma: str = "noise"
    N: str = "1"
    null_space: str = "ask"
    rounding: str = "ceil"
    baselines: str = "released"

    def fedconpe(self, realised_C: float) -> FedConPE:
        """The paper's algorithm on a catalog whose key terms offer that C."""
        C = min(realised_C, 1.0) if self.N == ADMISSIBLE else 1.0
        N = 1 / C**2 if self.N == ADMISSIBLE else float(self.N)
        return FedConPE(N=N, C=C, sigma=self.sigma_value, null_space=self.null_space, rounding=self.rounding)

    def line_up(
        self, baselines: Sequence[Algorithm], constants: Mapping[str, Mapping[str, Any]] | None
    ) -> list[Algorithm]:
        """The baselines; where radii are those of theorems, they allow for the same sigma."""
        chosen = [with_constants(algorithm, self.baselines, constants) for algorithm in baselines]
        if self.baselines != "theory":
            return chosen
        return [algorithm.replace(sigma=self.sigma_value) for algorithm in chosen]

    @property
    def sigma_value(self) -> float:
        return NOISE if self.sigma == "noise" else float(self.sigma)


def readings(user_norm: str, realised_C: float, choices: Mapping[str, Sequence[str]] = CHOICES) -> Iterator[Reading]:
    """All readings with users of a norm; where key terms span too little for any C > 0, no N is admissible."""
    for values in itertools.product(*choices.values()):
        reading = Reading(user_norm, **dict(zip(choices, values, strict=True)))
        if realised_C > 0 or reading.N != ADMISSIBLE:
            yield reading

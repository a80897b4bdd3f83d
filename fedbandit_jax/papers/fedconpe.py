"""The paper's experiments, presets and line-ups, as data.

The paper publishes neither its code nor the constants of its runs, so every experiment is played under three presets:

    theory      radii of the theorems for everyone
    released    the baselines with the constants of their public code, FedConPE with those of its theory
    tuned       every algorithm with the best of equally many trials, on users that are not scored (`tuning`)

FedConPE is the paper's with N = C = 1 and delta = 0.1 unless it is tuned. The seventh experiment, `clients` and `arms`
on real data, is those two with other catalogs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedbandit_jax.algorithms import ArmCon, ConLinUCB, ConUCB, FedConPE, FedLinPE, LinPE, LinUCB, SharedLinUCB
from fedbandit_jax.clocks.base import Algorithm

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

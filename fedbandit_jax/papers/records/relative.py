"""RelativeConUCB's paper as data: Xie, Yu, Zhao and Li, SIGIR 2021.

Its synthetic experiment, on the catalog that the authors' script draws: 200 users of 400 rounds, 50 arms a round,
clicks, and questions that only key terms of the arms of the round are compared in. ConUCB may ask about all of them, as
in the authors' code. There a user comes at random and 400 times on average; here each comes 400 times, so that users
are runs of their own and can be paired. The paper shows its regrets in figures only.
"""

from fedbandit_jax.algorithms import ConUCB, LinUCB, RelativeConUCB
from fedbandit_jax.datasets import synthetic_relative
from fedbandit_jax.papers.claims import Claim, below
from fedbandit_jax.papers.paper import Experiment
from fedbandit_jax.papers.record import Paper
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import World

USERS, ARMS, ROUNDS, NOISE, SEEDS = 200, 50, 400, 0.1, 2  # the noise is that of each side of a comparison
VARIANTS = ("pos", "pos-neg", "difference", "difference-fast")
TITLES = {variant: f"RelativeConUCB-{variant}" for variant in VARIANTS}


def catalog(seed: int = 0) -> Catalog:
    """Always the authors' own draw, whatever the seed: it is of the noise and of the arms of a round."""
    return synthetic_relative()


def paired(label: str, other: str) -> Claim:
    return below(label, other, errors=True)


EXPERIMENTS = {
    "synthetic": Experiment(
        "synthetic",
        "Comparisons in place of answers",
        "Users who compare key terms teach a learner more than users who say what each is worth",
        algorithms=tuple(RelativeConUCB(variant=variant) for variant in VARIANTS),
        world=World(contexts="redrawn", rewards="zero-one", candidates="related"),
        besides=((World(contexts="redrawn", rewards="zero-one"), (LinUCB(alpha=0.5, lam=1.0), ConUCB())),),
        claims=(
            *(paired(title, "ConUCB") for title in TITLES.values()),
            *(paired(TITLES[variant], "LinUCB") for variant in ("difference", "difference-fast")),
            paired(TITLES["difference"], TITLES["pos-neg"]),
            paired("ConUCB", "LinUCB"),
        ),
        catalog=catalog,
        clients=1,
        arms=ARMS,
        horizon=ROUNDS,
        noise=NOISE,
        users=USERS,
        seeds=SEEDS,
        quick_users=40,
        quick_seeds=1,
    )
}
PAPER = Paper(
    "relative",
    "RelativeConUCB: which of two key terms?",
    'Xie, Yu, Zhao and Li, "Comparison-based Conversational Recommender System with Relative Bandit Feedback", SIGIR '
    "2021, arXiv 2208.09837",
    EXPERIMENTS,
)

"""ConLinUCB's paper as data: Wang, Liu, Li and Lui, AAAI 2023.

Its public code has two configurations, an early and a late one, which differ in constants and in when they ask; both
are played on the Last.fm features that the code came with. These are not drawn: they must be given.

The paper shows its regrets in figures only. The figures here were computed elsewhere, from the formulas of the public
code for the same users. They check the simulator, and nothing that is published. Users are drawn from all of the file:
its first ones are not like the others, and lose more to an arm taken at random.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from fedbandit_jax.algorithms import ArmCon, ConLinUCB, ConUCB, LinUCB
from fedbandit_jax.clocks.base import Algorithm
from fedbandit_jax.papers.claims import Claim, Published, agrees, below
from fedbandit_jax.papers.paper import Experiment
from fedbandit_jax.papers.record import Paper
from fedbandit_jax.worlds.world import World

DATA = "conlinucb"
IN_FILE, COUNT, ARMS, HORIZON, NOISE = 500, 100, 50, 1000, 0.1
USERS = tuple(np.random.default_rng(123).permutation(IN_FILE)[:COUNT].tolist())
UCB, MCR, BS = (f"ConLinUCB-{strategy}" for strategy in ("UCB", "MCR", "BS"))
ORDER = ("LinUCB", "ArmCon", "ConUCB", UCB, BS)  # from the most regret to the least
COMPUTED = {  # mean regret at T = 1000, and standard error over users
    "LinUCB": (21.02, 0.38),
    "ArmCon": (18.52, 0.44),
    "ConUCB": (17.56, 0.35),
    UCB: (16.07, 0.38),
    BS: (14.74, 0.36),
    MCR: (14.28, 0.35),
}
RIDGE = (
    "ConLinUCB has a ridge of 0.1 to 0.2 where ConUCB and LinUCB have 1 or near it: its estimate is freer, which is a "
    "likely reason, not a tested one"
)


def line_up(schedule: str, ridges: dict[str, float]) -> tuple[Algorithm, ...]:
    """All six, with the constants of a configuration; `ridges` are lam by title."""
    return (
        LinUCB(alpha=0.5, lam=ridges["LinUCB"]),
        ArmCon(alpha=0.5, lam=ridges["ArmCon"], schedule=schedule),
        ConUCB(alpha=0.25, alpha_t=0.25, lam=0.5, lam_t=1.0, schedule=schedule),
        *(
            ConLinUCB(strategy=title.rpartition("-")[2], alpha=0.1, lam=ridges[title], schedule=schedule)
            for title in (UCB, MCR, BS)
        ),
    )


def computed_elsewhere(label: str) -> Claim:
    mean, error = COMPUTED[label]
    return agrees(label, "regret", Published(mean, error * COUNT**0.5, COUNT, "computed elsewhere"))


CLAIMS = (
    *(below(less, more) for more, less in pairwise(ORDER)),
    below(MCR, "ConUCB"),
    *(below(label, "ConUCB", "theta_error", "error of the estimate", RIDGE) for label in (BS, MCR)),
)
SETTING: dict[str, Any] = {
    "catalog": DATA,
    "clients": 1,
    "arms": ARMS,
    "horizon": HORIZON,
    "noise": NOISE,
    "world": World(contexts="redrawn", shared_noise=True),
    "users": USERS,
    "seeds": 4,
    "quick_users": 25,
    "quick_seeds": 1,
}
EXPERIMENTS = {
    "log": Experiment(
        "log",
        "Questions that grow rarer",
        "Questions lower the regret, those of ConLinUCB most, and its estimate is the most accurate",
        algorithms=line_up("log", {"LinUCB": 1.0, "ArmCon": 1.15, UCB: 0.1, MCR: 0.1, BS: 0.1}),
        claims=(*map(computed_elsewhere, COMPUTED), *CLAIMS),
        **SETTING,
    ),
    "tenth": Experiment(
        "tenth",
        "A question after every tenth round",
        "Questions lower the regret, those of ConLinUCB most, and its estimate is the most accurate",
        algorithms=line_up("1 every 10", {"LinUCB": 1.2, "ArmCon": 1.2, UCB: 0.2, MCR: 0.15, BS: 0.15}),
        claims=CLAIMS,
        **SETTING,
    ),
}
PAPER = Paper(
    "conlinucb",
    "ConLinUCB: key terms in one regression",
    'Wang, Liu, Li and Lui, "Efficient Explorative Key-term Selection Strategies for Conversational Contextual '
    'Bandits", AAAI 2023, arXiv 2303.00315',
    EXPERIMENTS,
    data=(DATA,),
)

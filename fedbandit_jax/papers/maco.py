"""MACO's paper as data: Dai, Xie, Liu, Wang, Li, Wang and Lui, arXiv 2501.01849 and AAAI 2026.

What it says of its constants, of the number of agents and of its baselines. Its arms are embeddings of texts, which are
not available: here they are FedConPE's synthetic ones in 50 dimensions, with users of norm 1 as the theorems have them.
So nothing is compared with the paper's regrets, only changes and orders. The noise is 0.1, as in the public code; that
code's phases are others than the paper's, and what is played is the paper. Its counts are for noise of 1 (sigma = 1), a
hundred times as many as this noise takes (sigma = 0.1); the paper does not say which its runs have, so both are judged.
The public code makes its user four times as long as the theorems allow: so everything is played with both.
"""

from collections.abc import Callable
from typing import Any

from fedbandit_jax.algorithms import MACO, ArmCon, ConLinUCB, ConUCB, LinUCB
from fedbandit_jax.datasets import synthetic
from fedbandit_jax.papers.claims import Claim, below_all, changes, grows
from fedbandit_jax.papers.paper import Experiment
from fedbandit_jax.papers.readings.readings import with_norm
from fedbandit_jax.papers.record import Paper
from fedbandit_jax.papers.verdict import TOLERANCE
from fedbandit_jax.worlds.catalog import Catalog

CLIENTS, ARMS, HORIZON, NOISE = 4, 40, 100_000, 0.1
SIGMAS = (NOISE, 1.0)
LITTLE = 2.0  # percent; Table III has 0.1 between beta = 0.8 and 0.9
FALL = (5.9, 9.3)  # percent, from delta = 0.05 to 0.15 in the four settings of Table III
LONG = 4.0  # norm of the public code's user
LEAST_PERCENT = 8.29  # of the abstract
BASELINES: tuple[Any, ...] = (LinUCB(), ArmCon(), ConUCB(), *(ConLinUCB(strategy=one) for one in ("BS", "MCR", "UCB")))
EXPLORES = "its first phases play all active arms alike, when learners with the constants of public code have settled"
POOLED = "as the theorem says, agents share one estimate: of four times as many, each loses less"


def catalog(seed: int = 0) -> Catalog:
    return synthetic(seed, user_norm="unit")


def with_long_users(seed: int = 0) -> Catalog:
    """As the public code has them."""
    return with_norm(synthetic(seed), LONG, "synthetic-long-users")


def about_constants(sigma: float) -> tuple[Claim, ...]:
    """Claims of Table III: beta has no effect, delta a small one."""

    def label(beta: float, delta: float) -> str:
        return f"MACO delta={delta:g} sigma={sigma:g} beta={beta:g}"

    insensitive = (
        changes(
            label(0.8, delta),
            label(0.9, delta),
            -LITTLE,
            LITTLE,
            f"sigma = {sigma:g}: beta hardly matters, from 0.9 to 0.8 at delta = {delta:g}: at most {LITTLE:g} %",
        )
        for delta in (0.05, 0.15)
    )
    text = f"sigma = {sigma:g}: regret falls by {FALL[0]:g} to {FALL[1]:g} % from delta = 0.05 to 0.15 at beta = 0.9"
    return *insensitive, changes(label(0.9, 0.15), label(0.9, 0.05), *FALL, text)


def about_clients(sigma: float) -> tuple[Claim, Claim]:
    """Claims of the theorem, and of the AAAI table as reported: four times the agents, four times the regret."""
    label = f"MACO sigma={sigma:g}"
    most = 0.5 + TOLERANCE
    root = f"sigma = {sigma:g}: regret grows no faster than sqrt(M), an exponent of at most {most:g}"
    linear = f"sigma = {sigma:g}: regret grows linearly in M, as in the AAAI table: an exponent of 1 ± {TOLERANCE:g}"
    return (
        grows(label, "clients", -float("inf"), most, root),
        grows(label, "clients", 1 - TOLERANCE, 1 + TOLERANCE, linear, POOLED),
    )


def about_baselines(sigma: float) -> Claim:
    text = f"sigma = {sigma:g}: at least {LEAST_PERCENT:g} % less regret than every baseline"
    return below_all(f"MACO sigma={sigma:g}", [one.title for one in BASELINES], LEAST_PERCENT, text, EXPLORES)


def experiments(mark: str, norm: str, drawn: Callable[[int], Catalog]) -> tuple[Experiment, ...]:
    """All of them, with users of a norm, which their names end with."""
    setting: dict[str, Any] = {
        "catalog": drawn,
        "arms": ARMS,
        "noise": NOISE,
        "quick_users": 5,
        "quick_seeds": 1,
    }
    return (
        Experiment(
            f"constants{mark}",
            f"beta and delta, users of norm {norm}",
            "beta has little effect, and the regret falls by some percent as delta grows",
            algorithms=(MACO(beta=[0.8, 0.9], delta=[0.05, 0.15], sigma=list(SIGMAS)),),
            claims=tuple(claim for sigma in SIGMAS for claim in about_constants(sigma)),
            clients=CLIENTS,
            horizon=HORIZON,
            users=20,
            seeds=5,
            **setting,
        ),
        Experiment(
            f"clients{mark}",
            f"Number of agents, users of norm {norm}",
            "the regret of all agents together grows like sqrt(M)",
            algorithms=(MACO(sigma=list(SIGMAS)),),
            claims=tuple(claim for sigma in SIGMAS for claim in about_clients(sigma)),
            clients=(4, 8, 16),
            horizon=HORIZON,
            users=20,
            seeds=5,
            x="clients",
            **setting,
        ),
        Experiment(
            f"baselines{mark}",
            f"Against the baselines, users of norm {norm}",
            f"MACO's regret is at least {LEAST_PERCENT:g} % below every baseline's",
            algorithms=(MACO(sigma=list(SIGMAS)), *BASELINES),
            claims=tuple(map(about_baselines, SIGMAS)),
            clients=CLIENTS,
            horizon=20_000,
            users=40,
            seeds=1,
            **setting,
        ),
    )


EXPERIMENTS = {one.id: one for one in (*experiments("", "1", catalog), *experiments("4", f"{LONG:g}", with_long_users))}
PAPER = Paper(
    "maco",
    "MACO: agents that ask where their arms tell little",
    'Dai, Xie, Liu, Wang, Li, Wang and Lui, "Multi-Agent Conversational Online Learning for Adaptive LLM Response '
    'Identification", arXiv 2501.01849, 2025; at AAAI 2026 as "A Multi-Agent Conversational Bandit Approach to Online '
    'Evaluation and Selection of User-Aligned LLM Responses"',
    EXPERIMENTS,
)

"""The paper's theorems against FedConPE's own runs: many small federations that meet every assumption.

sigma = 1, as in the proofs, users of unit norm (Assumption 1), and horizons of several phases. Key terms offer every
direction at least C = 1/2 (tried on thousands of directions), and N = 4, so that N C^2 = 1.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.algorithms import FedConPE, SharedLinUCB
from fedbandit_jax.datasets import synthetic
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.papers.theory import bounds as theory
from fedbandit_jax.papers.verdict import FAILS, HOLDS, TOLERANCE, Row, decide, decide_all, decide_each
from fedbandit_jax.results import statistics
from fedbandit_jax.results.results import Results
from fedbandit_jax.worlds.catalog import Catalog

N, C, DELTA = 4.0, 0.5, 0.1
DIM, CLIENTS, ARMS, HORIZON, USERS = 8, 4, 20, 2**18, 20
HARD_HORIZON = 2**12
Interval = tuple[float, float, float]  # value, low, high
RUN = ["clients", "arms", "horizon", "user", "seed"]


@dataclass(frozen=True)
class Axes:
    """What is swept; the middle of things, DIM, CLIENTS, ARMS and HORIZON, must be among them."""

    clients: tuple[int, ...] = (1, 4, 16, 64)
    arms: tuple[int, ...] = (10, 20, 40, 80, 160)
    horizons: tuple[int, ...] = (2**12, 2**14, 2**16, 2**18)
    dims: tuple[int, ...] = (4, 8, 16)


QUICK_AXES = Axes(clients=(1, 4), arms=(10, 20), horizons=(2**12, 2**18), dims=(4, 8))  # of few programs


@dataclass(frozen=True)
class Runs:
    """What the checks look at."""

    clients: Results  # over M
    growth: Results  # over K and T
    dims: dict[int, Results]
    hard: Results


def check_theory(
    out: Path, *, seeds: int, seed: int = 0, quick: bool = False
) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rows of the verdict, and the parts that were run: sweeps of 20 users x `seeds`, below out/theory."""
    parts: list[dict[str, Any]] = []
    axes = QUICK_AXES if quick else Axes()
    small = {dim: small_catalog(dim, seed) for dim in axes.dims}
    ours = FedConPE(N=N, C=C, delta=DELTA)
    hard = hard_instance(DIM, CLIENTS, HARD_HORIZON)

    def run(name: str, catalog: Catalog, algorithms: Any, count: int = seeds, **swept: Any) -> Results:
        began, folder = time.perf_counter(), Path("theory") / name
        setting = {"clients": CLIENTS, "arms": ARMS, "horizon": HORIZON} | swept
        users = len(catalog.users)
        results = sweep(
            catalog,
            algorithms,
            **setting,
            noise=1.0,
            users=users,
            seeds=count,
            seed=seed,
            checkpoints=8,
            out=out / folder,
        )
        seconds = round(time.perf_counter() - began, 1)
        told = {"folder": str(folder), "seconds": seconds, "users": users, "seeds": count}
        parts.append({"experiment": "theory", "preset": "theory", "dataset": "synthetic", **told})
        return results

    fewer = max(seeds // 4, 2)
    growth = run("growth", small[DIM], ours, fewer, arms=axes.arms, horizon=axes.horizons)
    others = {dim: run(f"dim-{dim}", catalog, ours, fewer) for dim, catalog in small.items() if dim != DIM}
    at_hard = [FedConPE(N=DIM, C=DIM**-0.5, delta=DELTA), SharedLinUCB()]
    runs = Runs(
        clients=run("clients", small[DIM], ours, clients=axes.clients),
        growth=growth,
        dims={DIM: part_of(growth, arms=ARMS, horizon=HORIZON), **others},
        hard=run("hard", hard, at_hard, fewer, arms=DIM, horizon=HARD_HORIZON),
    )
    rows = [
        *judge_events(runs.clients),
        judge_upper_bound(runs.clients),
        judge_lower_bound(runs.hard),
        *judge_communication(runs),
        judge_phases([runs.clients, runs.growth, *runs.dims.values()]),
        judge_questions(runs.clients),
        judge_lemma(runs.clients),
        *judge_growth(runs),
    ]
    where = {"experiment": "theory", "preset": "theory", "dataset": "synthetic"}
    return [{**where, "why": "", **row} for row in rows], parts


def part_of(results: Results, **setting: int) -> Results:
    """The runs at one setting."""
    curves, phases = results.to_pandas(), results.phases()
    for name, value in setting.items():
        curves, phases = curves[curves[name] == value], phases[phases[name] == value]
    return Results(curves, phases, results.settings)


def small_catalog(dim: int, seed: int) -> Catalog:
    """The synthetic data in few dimensions, where key terms offer at least C, and users of norm 1 (Assumption 1)."""
    catalog = synthetic(seed=seed, dim=dim, num_arms=500, num_key_terms=1000, num_users=USERS, user_norm="unit")
    if catalog.realised_C < C:
        _checks.fail("seed", seed, f"its key terms offer {catalog.realised_C:.2f}, less than C={C:g}: take another")
    return catalog


def hard_instance(dim: int, clients: int, horizon: int) -> Catalog:
    """The instances of the lower bound's proof: all arms orthogonal, and no telling which is the best.

    Arms and key terms are e_1 .. e_d for every client. With D = sqrt((d - 1) / (M T)), the first user is D e_1, and
    user i > 1 is D e_1 + 2 D e_i: who tells the two apart has pulled arm i too often for the first, and who does not
    loses D a round to the second. Rows are not scaled to unit norm, as D is what makes the instance hard.
    """
    gap = np.sqrt((dim - 1) / (clients * horizon))
    axes = np.eye(dim)
    users = gap * axes[0] + 2 * gap * axes * (np.arange(dim) > 0)[:, None]
    return Catalog(axes, axes, users, name="hard instance")


# ------------------------------------------------------------------------------------------------------- the checks


def judge_events(results: Results) -> list[Row]:
    """The good event, and what follows from it."""
    phases = results.phases()
    whole = phases[phases["complete"]]
    good = whole.groupby(RUN)["good_event"].all()
    worst = int(good.groupby("clients").mean().idxmin())
    bad, total = int((~good[worst]).sum()), len(good[worst])
    low, high = statistics.share_interval(bad, total)
    found = phases.set_index(RUN).loc[good[good].index]
    kept = found.groupby(RUN)["best_arm_active"].all()
    bound = theory.active_gap_bound(found["eps"], clients=found.index.get_level_values("clients"), N=N)
    small = found["max_gap"] <= bound * (1 + 1e-4)
    later = found["phase"] > 1
    first_bad = found[~later & ~small]
    return [
        row(
            f"the bad event has a probability of at most delta = {DELTA:g}",
            decide(low, high, most=DELTA),
            (bad / total, low, high),
            f"{bad} of {total} federations, M = {worst} [{low:.4f}, {high:.4f}]",
        ),
        always("on the good event the best arm survives", kept, "federations"),
        always(
            "on the good event active arms have gaps of at most 8 sqrt(N/M) eps, from phase 2", small[later], "phases"
        ),
        always(
            "... and in phase 1",
            small[~later],
            "phases",
            f"phase 1 starts with all arms, and the bound falls with M: with M = {int(first_bad.index[0][0])} it is "
            f"{theory.active_gap_bound(0.5, clients=first_bad.index[0][0], N=N):.2f}, less than the largest gap"
            if len(first_bad)
            else "",
        ),
    ]


def judge_upper_bound(results: Results) -> Row:
    """The regret stays below the explicit bound with probability 1 - delta."""
    final = results.final()
    bound = theory.regret_upper_bound(
        final["horizon"], dim=DIM, clients=final["clients"], arms=final["arms"], delta=DELTA, N=N, sigma=1.0
    )
    above, total = int((final["regret"] > bound).sum()), len(final)
    low, high = statistics.share_interval(above, total)
    largest = float((final["regret"] / bound).max())
    return row(
        f"the regret exceeds the upper bound with a probability of at most delta = {DELTA:g}",
        decide(low, high, most=DELTA),
        (above / total, low, high),
        f"{above} of {total} federations [{low:.4f}, {high:.4f}]; at most {largest:.1%} of the bound",
    )


def judge_lower_bound(results: Results) -> Row:
    """On the worst of the hard instances, neither of two algorithms beats the bound; that none does needs the proof."""
    final = results.final()
    bound = float(theory.regret_lower_bound(HARD_HORIZON, dim=DIM, clients=CLIENTS))

    def multiples(confidence: float) -> pd.DataFrame:
        rows = []
        for label, group in final.groupby("label"):
            by_user = group.groupby("user")["regret"]
            worst = by_user.get_group(by_user.mean().idxmax()).to_numpy() / bound
            half = float(statistics.half_width(worst, confidence=confidence))
            rows.append((label, worst.mean(), worst.mean() - half, worst.mean() + half))
        return pd.DataFrame(rows, columns=["label", "value", "low", "high"])

    table = decide_each(multiples, least=1)
    least = table.loc[table["value"].idxmin()]
    return row(
        "on the hard instance neither of two algorithms has a regret below the lower bound",
        decide_all(table["word"].tolist()),
        (float(least["value"]), float(least["low"]), float(least["high"])),
        ", ".join(f"{r.label} {r.value:.0f} times the bound [{r.low:.0f}, {r.high:.0f}]" for r in table.itertuples()),
    )


def judge_communication(runs: Runs) -> list[Row]:
    """Scalars sent: the count, and the growth with d, M and T."""
    parts = []
    for dim, results in ((DIM, runs.clients), (DIM, runs.growth), *runs.dims.items()):
        final = results.final()
        bound = theory.communication_bound(final["horizon"], dim=dim, clients=final["clients"])
        parts.append(final["communication"] / bound)
    ratios = np.concatenate(parts)
    per_phase = 3 * DIM**2 + 5 * DIM
    final = runs.growth.final()
    final = final[final["arms"] == ARMS].assign(doublings=lambda t: np.log2(t["horizon"]))
    table = final.pivot_table(index=["user", "seed"], columns="doublings", values="communication") / CLIENTS
    at = table.columns.to_numpy(float) - table.columns.to_numpy(float).mean()
    slopes = (table @ at / (at @ at)).groupby("user").mean().to_numpy()
    half = float(statistics.half_width(slopes))
    value, low, high = float(slopes.mean()), float(slopes.mean()) - half, float(slopes.mean()) + half
    return [
        always(
            "communication is at most M log2(T) (3 d^2 + 5 d) scalars",
            pd.Series(ratios <= 1),
            "federations",
            more=f"; at most {ratios.max():.0%} of it",
        ),
        row(
            f"communication grows like log T: at most {per_phase} scalars a client with each doubling of T, d = {DIM}",
            decide(low, high, most=per_phase),
            (value, low, high),
            f"{value:.0f} scalars [{low:.0f}, {high:.0f}]",
        ),
        at_most("communication in M", exponent_in_clients(runs, "communication"), 1),
        at_most("communication in d", exponent_in_dim(runs, "communication"), 2),
    ]


def judge_phases(tables: list[Results]) -> Row:
    """There are at most log2 T of them."""
    most = pd.concat([r.phases().groupby(RUN)["phase"].max() for r in tables])
    room = np.log2(most.index.get_level_values("horizon").to_numpy(float))
    return always(
        "there are at most log2 T phases",
        pd.Series(most.to_numpy() <= room),
        "federations",
        more=f"; at most {most.max()} phases",
    )


def judge_questions(results: Results) -> Row:
    """Theorem 4, on whole phases; a pair's questions may exceed their real number by less than one, by rounding up."""
    phases = results.phases()
    phases = phases[phases["complete"]]
    bound = theory.question_fraction_bound(phases["eps"], phases["lambda_min"], dim=DIM, N=N, C=C)
    wanted = (phases["questions"] + phases["dropped"] - phases["uploaded"]) / phases["length"]
    asking = phases["questions"] > 0
    share = (phases["questions"] / phases["length"])[asking]
    return always(
        "a phase's questions are at most Theorem 4's fraction of its pulls, up to rounding",
        wanted <= bound + 1e-4,
        "phases",
        more=f"; {asking.mean():.0%} of the phases ask, {share.mean():.0%} of their pulls on average",
    )


def judge_lemma(results: Results) -> Row:
    """With the questions added, V has no eigenvalue below s: of phases that ask."""
    phases = results.phases()
    asking = phases[phases["uploaded"] > 0]
    short = asking[~asking["lemma_holds"]]
    least = (short["lambda_min_after"] / short["wanted_information"]).min() if len(short) else 1.0
    return always(
        "with the questions, every eigenvalue of the information is at least s",
        asking["lemma_holds"],
        "phases with questions",
        "its proof drops the cross terms of k k', and the key terms of two weak directions may work against each "
        f"other: the least eigenvalue was {least:.2f} s",
    )


def judge_growth(runs: Runs) -> list[Row]:
    """Regret O(sqrt(d M T log(K M log T / delta)))."""
    by_horizon = part_of(runs.growth, arms=ARMS).exponent("horizon").iloc[0]
    by_arms = part_of(runs.growth, horizon=HORIZON).exponent("arms").iloc[0]
    why = (
        "these instances are random, far from the worst, and their regret, well below the bound, follows their gaps, "
        "which change with d and K: no contradiction to the bound"
    )
    return [
        at_most("the random instances' regret in T", interval(by_horizon), 0.5, why),
        at_most("the random instances' regret in M", exponent_in_clients(runs, "regret"), 0.5, why),
        at_most("the random instances' regret in d", exponent_in_dim(runs, "regret"), 0.5, why),
        at_most("the random instances' regret in K", interval(by_arms), 0, why),
    ]


# -------------------------------------------------------------------------------------------------------------- rows


def row(claim: str, word: str, values: Interval, figure: str, why: str = "") -> Row:
    value, low, high = values
    reason = why if word != HOLDS else ""
    return {"claim": claim, "verdict": word, "value": value, "low": low, "high": high, "figure": figure, "why": reason}


def always(claim: str, seen: pd.Series, of: str, why: str = "", more: str = "") -> Row:
    """A claim without exception: one counterexample refutes it. Its value is the share of cases in which it held."""
    held, total = int(seen.sum()), len(seen)
    low, high = statistics.share_interval(held, total)
    figure = f"in {held} of {total} {of}{more}"
    return row(claim, HOLDS if held == total else FAILS, (held / total, low, high), figure, why)


def at_most(what: str, values: Interval, power: float, why: str = "") -> Row:
    """A fitted exponent is at most `power`, within the tolerance that logarithms need."""
    value, low, high = values
    claim = f"{what} grows no faster than its bound: an exponent of at most {power:g} (+ {TOLERANCE:g} for logarithms)"
    word = decide(low, high, most=power + TOLERANCE)
    return row(claim, word, values, f"exponent {value:.2f} [{low:.2f}, {high:.2f}]", why)


def interval(found: Any) -> Interval:
    return float(found["exponent"]), float(found["low"]), float(found["high"])


def exponent_in_clients(runs: Runs, metric: str) -> Interval:
    return interval(runs.clients.exponent("clients", metric).iloc[0])


def exponent_in_dim(runs: Runs, metric: str) -> Interval:
    table = pd.concat([results.final().assign(dim=dim) for dim, results in runs.dims.items()])
    return interval(statistics.power_law(table, "dim", metric))

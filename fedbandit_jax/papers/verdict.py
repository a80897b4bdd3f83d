"""The verdict: does a claim hold, with what figure, and if not, why.

A claim holds if the whole interval of what was measured, of 95 % unless said, clears it, does not hold if the whole
interval falls short of it, and is undecided otherwise. A claim about every baseline holds if it holds for each, and
does not if it fails for one. One of several decides there, so that it fails only by an interval widened for their
number: what is true of all is refuted no more often than what is true of one. Users are the units of these intervals:
they speak of other users of the same data too. Where a few users carry most of a mean there is no interval, and the
claim is undecided. The figure of a comparison therefore also counts the users for which it goes that way, with an exact
interval of their share, which no user can outweigh.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedbandit_jax.clocks.schedule import Schedule
from fedbandit_jax.papers.fedconpe import BASELINES, Experiment
from fedbandit_jax.results import statistics
from fedbandit_jax.results.numbers import share_in_words
from fedbandit_jax.results.results import Results

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
# An exponent within 0.1 counts as equal: log(K M ...) alone moves one by 0.5 / LOG, about 0.05. Over K = 100 to 300 it
# is a change of 12 %, over M = 3 to 15 one of 17 %.
TOLERANCE = 0.1
EARLY = 0.01  # of the 5 % of errors, what looks before the last may make together
US = "FedConPE"

Row = dict[str, Any]


def decide(low: float, high: float, least: float = -np.inf, most: float = np.inf) -> str:
    """Is a value, known to lie in [low, high], within [least, most]?"""
    if np.isnan(low) or np.isnan(high):
        return UNDECIDED
    if least <= low and high <= most:
        return HOLDS
    return FAILS if high < least or low > most else UNDECIDED


def decide_all(words: Sequence[str]) -> str:
    """The verdict on a claim about each of several baselines."""
    if FAILS in words:
        return FAILS
    return HOLDS if words and set(words) == {HOLDS} else UNDECIDED


def confidence_of_each(count: int, confidence: float = statistics.CONFIDENCE) -> float:
    """That several intervals need to be right all at once as often as one of them alone (Bonferroni)."""
    return 1 - (1 - confidence) / max(count, 1)


def confidence_of_look(look: int, last: bool) -> float:
    """That of the first, second ... look at results that grow, if the first one that decides is the verdict.

    Look k may err in 1 % / 2^k, and the last in what these leave of 5 %: together they do so no more often (union
    bound), whatever they share. Only what ends the looks must know nothing of the verdict.
    """
    spent = EARLY * (1 - 2.0 ** (1 - look))
    return statistics.CONFIDENCE + spent if last else 1 - EARLY / 2.0**look


def decide_each(
    intervals: Callable[[float], pd.DataFrame],
    least: float = -np.inf,
    most: float = np.inf,
    confidence: float = statistics.CONFIDENCE,
) -> pd.DataFrame:
    """The rows of a claim about each of several, with a word on each; `intervals` gives them for a confidence.

    Where a row's own interval clears the claim, it is the row's: all of them must. Else it is the widened one.
    """
    plain = intervals(confidence)
    wide = intervals(confidence_of_each(len(plain), confidence))
    holds = (least <= plain["low"]) & (plain["high"] <= most)
    table = plain.assign(**{end: plain[end].where(holds, wide[end]) for end in ("low", "high")})
    words = [decide(low, high, least, most) for low, high in zip(table["low"], table["high"], strict=True)]
    return table.assign(word=words)


def judge(experiment: Experiment, results: Results, confidence: float = statistics.CONFIDENCE) -> list[Row]:
    """The rows of the verdict table that an experiment gives, without preset and data set.

    An interval of another confidence than 95 % says so in the row's figure.
    """
    rows = judge_claims(experiment, results, confidence)
    tell = explain_questions if experiment.metric == "conversations" else explain
    for row in rows:
        row["confidence"] = confidence
        if confidence != statistics.CONFIDENCE:
            row["figure"] += f" at {100 * confidence:.5g} %"
        about_baselines = row.pop("about_baselines", False)  # of which FedConPE's phases tell nothing
        row["why"] = "" if row["verdict"] == HOLDS or about_baselines else tell(results)
    return [{"experiment": experiment.id, **row} for row in rows]


def judge_claims(experiment: Experiment, results: Results, confidence: float = statistics.CONFIDENCE) -> list[Row]:
    """What the paper claims of an experiment, judged, without an explanation."""
    if experiment.x == "clients":
        return [judge_linear(results, confidence), judge_root(results, confidence)]
    if experiment.x == "arms":
        return [judge_flat(results, confidence)]
    if experiment.metric == "conversations":
        return [judge_questions(results, schedule, confidence) for schedule in experiment.schedules]
    if experiment.metric == "theta_error":
        return [judge_accuracy(experiment, results, confidence)]
    return [judge_below(results, experiment.claim, experiment.least_percent, "regret", "regret", confidence)]


def decided(rows: Sequence[Row]) -> bool:
    """Is every one of its rows?"""
    return all(row["verdict"] != UNDECIDED for row in rows)


def judge_below(
    results: Results,
    claim: str,
    percent: float,
    metric: str,
    what: str,
    confidence: float = statistics.CONFIDENCE,
) -> Row:
    """FedConPE lies at least `percent` below each of the baselines; the row tells of the one that decides.

    `least` is how far it lies below the one that it beats least, whether or not that one decides.
    """

    def comparisons(confidence: float) -> pd.DataFrame:
        table = results.compare(US, metric, confidence, columns="all")
        return table[table["other"].isin(BASELINES)]

    table = decide_each(comparisons, least=percent, confidence=confidence)
    verdict, worst = beaten_least(table)
    value, low, high = percent_below(worst)
    return {
        "claim": claim,
        "verdict": verdict,
        "value": value,
        "low": low,
        "high": high,
        "least": float(table["percent_below"].min()),
        "figure": f"{what} {apart(worst, worst['other'])}",
    }


def beaten_least(table: pd.DataFrame) -> tuple[str, pd.Series]:
    """The verdict of all comparisons; of the others that make it, the one that is beaten least."""
    verdict = decide_all(table["word"].tolist())
    decisive = table[table["word"] == verdict]
    return verdict, decisive.loc[decisive["percent_below"].idxmin()]


def percent_below(found: Mapping[str, Any] | pd.Series) -> tuple[float, float, float]:
    """A paired comparison's value, low and high."""
    return float(found["percent_below"]), float(found["low"]), float(found["high"])


def apart(found: Mapping[str, Any] | pd.Series, other: str) -> str:
    """A paired comparison in words: percent below another's or above, or many times as much, and for how many users."""
    value, low, high = percent_below(found)
    if value <= -100:
        told, ends = f"{1 - value / 100:,.1f} times {other}'s", (1 - high / 100, 1 - low / 100)
    elif value < 0:
        told, ends = f"{-value:,.1f} % above {other}'s", (-high, -low)
    else:
        told, ends = f"{value:,.1f} % below {other}'s", (low, high)
    if np.isfinite(ends).all():
        told += f" [{ends[0]:,.1f}, {ends[1]:,.1f}]"
    elif found["note"]:
        told += f" ({found['note']})"
    return f"{told}, lower for {share_in_words(found, found['unit'])}"


def judge_accuracy(experiment: Experiment, results: Results, confidence: float = statistics.CONFIDENCE) -> Row:
    """The mean error over the first rounds is the lowest."""
    early = mean_over_rounds(results, experiment.metric, experiment.last_round or experiment.horizon)
    return judge_below(early, experiment.claim, 0, experiment.metric, "mean error", confidence)


def mean_over_rounds(results: Results, metric: str, last: int) -> Results:
    """Results whose final metric is its mean over the checkpoints up to a round."""
    curves = results.to_pandas()
    run = ["label", *statistics.PLACES, "user", "seed"]
    means = curves[curves["round"] <= last].groupby(run, sort=False)[metric].mean().reset_index()
    means.insert(len(run), "round", means["horizon"])  # metrics are behind it
    return Results(means, pd.DataFrame(), results.settings)


def judge_questions(results: Results, schedule: str, confidence: float = statistics.CONFIDENCE) -> Row:
    """FedConPE asks less than the baselines with a schedule, which all ask b(T)."""
    ours = results.only(US).summary("conversations", columns="all", confidence=confidence).iloc[0]
    horizon = int(ours["horizon"])
    allowed = Schedule.of(schedule, horizon)(horizon)
    value, low, high = (float(ours[name]) for name in ("mean", "low", "high"))
    formula = {"log": "5 floor(log t)", "linear": "floor(t / 50)"}[schedule]
    return {
        "claim": f"FedConPE asks fewer questions than baselines that ask {formula}",
        "verdict": decide(low, high, most=allowed),
        "value": value,
        "low": low,
        "high": high,
        "figure": f"{value:,.0f} questions a client{ends(low, high, ',.0f')}, against {allowed:,.0f}",
    }


def judge_linear(results: Results, confidence: float = statistics.CONFIDENCE) -> Row:
    """Each baseline's regret grows like M."""

    def exponents(confidence: float) -> pd.DataFrame:
        table = results.exponent("clients", confidence=confidence)
        return table[table["label"].isin(BASELINES)]

    table = decide_each(exponents, 1 - TOLERANCE, 1 + TOLERANCE, confidence)
    verdict = decide_all(table["word"].tolist())
    decisive = table[table["word"] == verdict]
    worst = decisive.loc[(decisive["exponent"] - 1).abs().idxmax()]
    return {
        "claim": f"the baselines' regret grows linearly in M: exponents 1 ± {TOLERANCE:g}",
        "verdict": verdict,
        **exponent_figure(worst, f" of {worst['label']}"),
        "about_baselines": True,
    }


def judge_root(results: Results, confidence: float = statistics.CONFIDENCE) -> Row:
    """FedConPE's regret grows like sqrt(M), or slower: an exponent of at most 0.5, within the tolerance."""
    found = results.exponent("clients", label=US, confidence=confidence).iloc[0]
    return {
        "claim": f"FedConPE's regret grows no faster than sqrt(M): an exponent of at most {0.5 + TOLERANCE:g}",
        "verdict": decide(found["low"], found["high"], most=0.5 + TOLERANCE),
        **exponent_figure(found),
    }


def judge_flat(results: Results, confidence: float = statistics.CONFIDENCE) -> Row:
    """FedConPE's regret does not change with K: an exponent of 0, within the tolerance."""
    table = results.exponent("arms", confidence=confidence).set_index("label")
    found = table.loc[US]
    others = table.loc[[label for label in BASELINES if label in table.index], "exponent"]
    told = f"; baselines' from {others.min():.2f} to {others.max():.2f}" if len(others) else ""
    return {
        "claim": f"FedConPE's regret is flat in K: an exponent of 0 ± {TOLERANCE:g}",
        "verdict": decide(found["low"], found["high"], -TOLERANCE, TOLERANCE),
        **exponent_figure(found, told),
    }


def exponent_figure(found: pd.Series, more: str = "") -> Row:
    value, low, high = (float(found[name]) for name in ("exponent", "low", "high"))
    return {
        "value": value,
        "low": low,
        "high": high,
        "figure": f"exponent {value:.2f}{ends(low, high, '.2f')}{more}",
    }


def ends(low: float, high: float, form: str) -> str:
    """An interval behind its value, or that there is none."""
    return f" [{low:{form}}, {high:{form}}]" if np.isfinite([low, high]).all() else " (no interval)"


def explain(results: Results, runs: int = 100) -> str:
    """A sentence on where FedConPE's rounds, regret and questions go, from the phases of some of its runs."""
    by = ["clients", "arms", "user", "seed"]
    ours = (t[t["algorithm"] == US] for t in (results.phases(), results.to_pandas()))
    phases, curves = (table.set_index(by).sort_index() for table in ours)
    tables = []
    for run in curves.index.unique()[:: max(1, len(curves.index.unique()) // runs)]:
        table, curve = phases.loc[[run]], curves.loc[[run]]
        ends = np.append(0.0, table["start"] + table["length"])
        regret = np.interp(ends, np.append(0, curve["round"]), np.append(0, curve["regret"]))
        rounds, lost = table["length"] / ends[-1], np.diff(regret) / max(regret[-1], 1e-12)
        tables.append(table.assign(rounds=rounds, lost=lost, share_active=table["active_mean"] / run[1]))
    shares = pd.concat(tables)
    mean = shares.groupby("phase")[["rounds", "lost", "share_active"]].sum() / len(tables)
    worst = mean["lost"].idxmax()
    active = shares[shares["phase"] == worst]["share_active"].mean()
    told = (
        f"phase {worst} makes {mean.loc[worst, 'lost']:.0%} of FedConPE's regret: it takes "
        f"{mean.loc[worst, 'rounds']:.0%} of the rounds, spread over a design on {active:.0%} of the arms"
    )
    asked = phases.groupby(by)["questions"].sum().mean()
    return f"{told}; {shares.groupby(by)['phase'].max().mean():.1f} phases fit, with {asked:,.0f} questions a client"


def explain_questions(results: Results) -> str:
    """A sentence on what FedConPE asks for."""
    phases = results.phases()
    phases = phases[phases["algorithm"] == US]
    asked = phases.groupby("phase")["questions"].sum()
    most = phases[phases["phase"] == asked.idxmax()]
    return (
        f"phase {asked.idxmax()} asks {asked.max() / asked.sum():.0%} of the questions: its designs, on "
        f"{most['active_mean'].mean():.0f} active arms, leave {most['uploaded'].mean():.0f} directions without enough "
        f"information, and each is asked about, in {most['questions'].sum() / most['length'].sum():.0%} of the rounds"
    )

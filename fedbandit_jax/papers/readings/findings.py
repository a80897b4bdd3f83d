"""What the readings tell: where a claim holds, what it hangs on, and whether all claims hold at once.

Rows are those of `readings`: a data set, a reading, a claim, a verdict and what was measured.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedbandit_jax.papers.fedconpe import ADMISSIBLE, APPENDIX_NORMS, CHOICES, EXPERIMENTS
from fedbandit_jax.papers.readings.readings import CLAIMS, HEADLINE
from fedbandit_jax.papers.verdict import FAILS, HOLDS, UNDECIDED

WORDS = (HOLDS, FAILS, UNDECIDED)
READING = ["user_norm", *CHOICES]
# The paper's figures are the least over its data sets.
PUBLISHED = {claim: EXPERIMENTS[claim].least_percent for claim in HEADLINE}


def tally(rows: pd.DataFrame) -> pd.DataFrame:
    """In how many readings each claim holds, does not hold, or is undecided, on each data set."""
    words = rows.groupby(["dataset", "claim"], sort=False)["verdict"].value_counts().unstack(fill_value=0)
    counts = words.reindex(columns=list(WORDS), fill_value=0).rename_axis(columns=None)
    return in_order(counts.assign(readings=counts.sum(axis=1)).reset_index(), rows)


def in_order(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Claims as the paper has them, data sets as they come."""
    place = {name: i for i, name in enumerate([*CLAIMS, *rows["dataset"].unique()])}
    return table.sort_values(["claim", "dataset"], key=lambda names: names.map(place), ignore_index=True)


def verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per data set and reading, a column per claim."""
    table = rows.pivot(index=["dataset", *READING], columns="claim", values="verdict")
    return table[[claim for claim in CLAIMS if claim in table]]


def all_at_once(rows: pd.DataFrame) -> pd.DataFrame:
    """The readings of a data set under which every claim holds."""
    table = verdicts(rows)
    return table[(table == HOLDS).all(axis=1)].reset_index()[["dataset", *READING]]


def most_at_once(rows: pd.DataFrame) -> pd.DataFrame:
    """The readings of each data set under which most claims hold, how many, and which do not."""
    table = verdicts(rows)
    hold = (table == HOLDS).sum(axis=1)
    best = table[hold == hold.groupby(level="dataset").transform("max")]
    others = best.apply(
        lambda row: ", ".join(f"{claim} {word}" for claim, word in row.items() if word != HOLDS), axis=1
    )
    return pd.DataFrame({"hold": hold[best.index], "others": others}).reset_index()


def nowhere(rows: pd.DataFrame) -> pd.DataFrame:
    """The claims that hold under no reading of a data set, and under how many they are undecided."""
    table = tally(rows)
    return table.loc[table[HOLDS] == 0, ["dataset", "claim", UNDECIDED, "readings"]].reset_index(drop=True)


def excluding(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of claims that hold under no reading of a data set together, though each holds under some."""
    found = []
    for data, table in verdicts(rows).groupby(level="dataset", sort=False):
        holds = table == HOLDS
        for one, other in itertools.combinations(holds.columns, 2):
            apart, together = (int(holds[one].sum()), int(holds[other].sum())), int((holds[one] & holds[other]).sum())
            if min(apart) > 0 and together == 0:
                found.append(
                    {"dataset": data, "one": one, "other": other, "holds_one": apart[0], "holds_other": apart[1]}
                )
    return pd.DataFrame(found, columns=["dataset", "one", "other", "holds_one", "holds_other"])


def hangs_on(rows: pd.DataFrame) -> pd.DataFrame:
    """How often a choice decides: of pairs of readings that differ in it alone, the share where only one holds."""
    table = verdicts(rows) == HOLDS
    found = []
    for data, holds in table.groupby(level="dataset", sort=False):
        for choice in READING:
            wide = holds.droplevel("dataset").unstack(choice)
            values = wide.columns.get_level_values(1).unique()
            for claim in holds.columns:
                pairs = [wide[claim][list(pair)].dropna() for pair in itertools.combinations(values, 2)]
                total = sum(map(len, pairs))
                turned = sum(int((pair.iloc[:, 0] != pair.iloc[:, 1]).sum()) for pair in pairs)
                found.append({"dataset": data, "claim": claim, "choice": choice, "share": turned / max(total, 1)})
    table = pd.DataFrame(found).pivot(index=["claim", "dataset"], columns="choice", values="share").reset_index()
    return in_order(table.rename_axis(columns=None), rows)


def closest(rows: pd.DataFrame) -> pd.DataFrame:
    """Readings by how close they come to the paper's figures, the least over the data sets at hand.

    The distance is that of the two ratios of regrets, FedConPE's to the best baseline's, in logarithms: "13 times" and
    "a thirteenth" are equally far from 1. Users are as the appendix has them on all data sets, or have another norm on
    those data sets that know it.
    """
    headline = rows[rows["claim"].isin(HEADLINE)]
    found = []
    for users, norms in norms_together(headline).items():
        part = headline[
            [norm == norms.get(data) for data, norm in zip(headline["dataset"], headline["user_norm"], strict=True)]
        ]
        least = part.pivot_table(index=list(CHOICES), columns="claim", values="least", aggfunc="min")
        told = ", ".join(f"{norm} ({data})" for data, norm in norms.items())
        found.append(least.assign(users=users, norms=told).reset_index())
    table = pd.concat(found, ignore_index=True)
    squares = [(np.log1p(-table[claim] / 100) - np.log1p(-PUBLISHED[claim] / 100)) ** 2 for claim in HEADLINE]
    table = table.assign(distance=np.sqrt(sum(squares))).sort_values("distance", kind="stable", ignore_index=True)
    return table[["users", "norms", *CHOICES, *HEADLINE, "distance"]]


def norms_together(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Which norm each data set has, by what the users are called in all of them."""
    there = {data: list(norms) for data, norms in rows.groupby("dataset", sort=False)["user_norm"].unique().items()}
    appendix = {data: next((n for n in norms if n in APPENDIX_NORMS), norms[0]) for data, norms in there.items()}
    found = {"as in the appendix": appendix}
    for word in dict.fromkeys(n for norms in there.values() for n in norms if n not in APPENDIX_NORMS):
        found[word] = {data: word if word in norms else appendix[data] for data, norms in there.items()}
    return found


def begins_to_hold(norms: pd.DataFrame) -> pd.DataFrame:
    """The least norm of those tried from which on the headline holds, NaN if it never does."""
    found = []
    for (data, baselines, claim), rows in norms.groupby(["dataset", "baselines", "claim"], sort=False):
        rows = rows.sort_values("norm")
        after = rows["norm"][(rows["verdict"] == HOLDS)[::-1].cummin()[::-1]]
        found.append({"dataset": data, "baselines": baselines, "claim": claim, "norm": after.min()})
    return pd.DataFrame(found)


def front(
    rows: pd.DataFrame, where: Sequence[str] = ("dataset", "user_norm", "sigma", "null_space", "rounding")
) -> pd.DataFrame:
    """Questions asked against regret, ten clients: a row per FedConPE and baselines.

    `questions` are those of a client; `percent_below` is how far the regret is below the best baseline's.
    """
    keys = [*where, "N", "baselines"]
    by_claim = {claim: part.set_index(keys) for claim, part in rows.groupby("claim")}
    questions, below = by_claim["questions-log"]["value"], by_claim["multi"]["least"]
    return pd.DataFrame({"questions": questions, "percent_below": below}).reset_index()


def in_words(rows: pd.DataFrame, norms: pd.DataFrame) -> list[str]:
    """The findings, a sentence each."""
    return [*answers(rows), *failures(rows), *exclusions(rows), published(rows), *thresholds(norms)]


def answers(rows: pd.DataFrame) -> list[str]:
    """Is there a reading under which all claims hold at once?"""
    found = []
    total = rows.groupby("dataset", sort=False)[READING].apply(lambda part: len(part.drop_duplicates()))
    whole, most = all_at_once(rows), most_at_once(rows)
    for data, count in total.items():
        there = int((whole["dataset"] == data).sum())
        if there:
            found.append(f"{data}: all {len(CLAIMS)} claims hold at once under {there} of {count} readings.")
            continue
        best = most[most["dataset"] == data]
        first = best.iloc[0]
        found.append(
            f"{data}: under none of {count} readings do all {len(CLAIMS)} claims hold at once. At most "
            f"{first['hold']} do, under {len(best)} of them, such as: {tell_reading(first)}; but {first['others']}."
        )
    return found


def failures(rows: pd.DataFrame) -> list[str]:
    return [
        f"{row.dataset}: '{CLAIMS[row.claim]}' holds under no reading; under {row.undecided} of {row.readings} it is "
        "undecided."
        for row in nowhere(rows).itertuples()
    ]


def exclusions(rows: pd.DataFrame) -> list[str]:
    return [
        f"{row.dataset}: '{CLAIMS[row.one]}' holds under {row.holds_one} readings and '{CLAIMS[row.other]}' under "
        f"{row.holds_other}, but never under the same."
        for row in excluding(rows).itertuples()
    ]


def published(rows: pd.DataFrame) -> str:
    """Which reading comes closest to the paper's figures."""
    best = closest(rows).iloc[0]
    figures = " and ".join(f"{PUBLISHED[claim]:g} %" for claim in HEADLINE)
    ours = " and ".join(f"{best[claim]:.1f} %" for claim in HEADLINE)
    return (
        f"The paper's least advantages are {figures}, with one client and with ten. Closest is: users "
        f"{best['norms']}, {tell_choices(best)}: {ours}, the least over these data sets."
    )


def thresholds(norms: pd.DataFrame) -> list[str]:
    """For which norms of the users the headline holds."""
    found = []
    begins = begins_to_hold(norms).set_index(["dataset", "claim", "baselines"])["norm"]
    for (data, claim), part in norms.groupby(["dataset", "claim"], sort=False):
        told = []
        for baselines, rows in part.groupby("baselines", sort=False):
            held, first = rows.loc[rows["verdict"] == HOLDS, "norm"], begins[data, claim, baselines]
            where = f"from {first:g} on" if first == first else f"at {', '.join(f'{norm:g}' for norm in held)}"
            told.append(f"{where if len(held) else 'nowhere'} ({baselines})")
        tried = f"{part['norm'].min():g} to {part['norm'].max():g}"
        found.append(f"{data}, users of norm {tried}: '{CLAIMS[claim]}' holds {', '.join(told)}.")
    return found


def tell_reading(row: pd.Series) -> str:
    return f"users {row['user_norm']}, {tell_choices(row)}"


def tell_choices(row: pd.Series) -> str:
    N = "N and C as the key terms admit" if row["N"] == ADMISSIBLE else f"N = {row['N']}, C = 1"
    return (
        f"sigma = {row['sigma']}, {N}, null space {row['null_space']}, rounding {row['rounding']}, "
        f"baselines {row['baselines']}"
    )

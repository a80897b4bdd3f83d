"""What a report says of the readings: the answer, tables claim by claim, maps."""

from functools import partial
from pathlib import Path

import pandas as pd

from fedbandit_jax.papers.fedconpe import CHOICES
from fedbandit_jax.papers.readings import findings
from fedbandit_jax.papers.readings.readings import CLAIMS, HEADLINE, read
from fedbandit_jax.report import maps
from fedbandit_jax.report.contents import Picture, Report, Table, facts, read_json

CLOSEST = 8  # readings in the table of those that come closest to the paper's figures
TITLE = "FedConPE: the paper's claims under every reading of it"


def of_readings(folder: Path) -> Report:
    rows, norms = read(folder)
    record = read_json(folder / "readings.json")
    pictures = [
        *(map_picture(str(data), part) for data, part in rows.groupby("dataset", sort=False)),
        Picture(
            "norms",
            "The headline against the users' norm",
            partial(maps.draw_norms, norms),
            "FedConPE with N = C = 1 and sigma the noise. Filled: the claim holds. Dotted: the paper's figure.",
        ),
        *(front_picture(str(data), part) for data, part in rows.groupby("dataset", sort=False)),
    ]
    seconds = sum(record["seconds"].values())
    settings = facts({"command": record["command"], "time": f"{seconds:,.0f} s", **record["settings"]}, {})
    tables = [tally_table(rows), hangs_table(rows), closest_table(rows), most_table(rows)]
    return Report(TITLE, findings.in_words(rows, norms), (), [settings], opening=tables, pictures=pictures)


def map_picture(data: str, rows: pd.DataFrame) -> Picture:
    return Picture(
        f"readings-{data}",
        f"Where each claim holds: {data}",
        partial(maps.draw_map, rows),
        "Down: norm of the users, constants of the baselines. Across: N (adm.: N and C as the key terms admit) and "
        "sigma. In a cell, above: questions about the null space asked, below: skipped; left: counts rounded up, "
        "right: unbiased.",
    )


def front_picture(data: str, rows: pd.DataFrame) -> Picture:
    return Picture(
        f"front-{data}",
        f"Questions against regret, over N: {data}",
        partial(maps.draw_front, rows),
        "Ten clients; N grows from right to left. Dotted: what the baselines ask, 5 floor(log t) and floor(t/50), and "
        "the paper's 37.05 %. Both claims hold in the lower left corner.",
    )


def tally_table(rows: pd.DataFrame) -> Table:
    table = findings.tally(rows)
    body = [
        [CLAIMS[row["claim"]], row["dataset"], *(str(row[name]) for name in (*findings.WORDS, "readings"))]
        for _, row in table.iterrows()
    ]
    return Table("In how many readings a claim holds", ("claim", "data set", *findings.WORDS, "readings"), body)


def hangs_table(rows: pd.DataFrame) -> Table:
    table = findings.hangs_on(rows)
    choices = ("user_norm", *CHOICES)
    body = [
        [CLAIMS[row["claim"]], row["dataset"], *(f"{row[name]:.0%}" for name in choices)] for _, row in table.iterrows()
    ]
    note = "Of pairs of readings that differ in one choice alone: the share in which the claim holds in one only."
    return Table("What a claim hangs on", ("claim", "data set", *choices), body, note)


def closest_table(rows: pd.DataFrame) -> Table:
    best = findings.closest(rows).head(CLOSEST)
    body = [
        [row["norms"], *(row[name] for name in CHOICES), *(f"{row[claim]:.1f} %" for claim in HEADLINE)]
        for _, row in best.iterrows()
    ]
    figures = " and ".join(f"{value:g} %" for value in findings.PUBLISHED.values())
    note = f"Below the best baseline, M = 1 and M = 10, the least over the data sets; the paper has {figures}."
    return Table("Closest to the paper's figures", ("users", *CHOICES, "M = 1", "M = 10"), body, note)


def most_table(rows: pd.DataFrame) -> Table:
    best = findings.most_at_once(rows)
    body = [
        [row["dataset"], *(row[name] for name in ("user_norm", *CHOICES)), str(row["hold"]), row["others"]]
        for _, row in best.iterrows()
    ]
    columns = ("data set", "users", *CHOICES, f"hold, of {len(CLAIMS)}", "others")
    return Table("Readings under which most claims hold", columns, body)

"""What a report says of several papers that were rerun: all their claims in one table."""

from collections import Counter
from pathlib import Path
from typing import Any

from fedbandit_jax.papers.record import FIRST, PAPERS, find
from fedbandit_jax.report.contents import Report, Table, counted, read_json

HEADINGS = {"holds": "hold", "does not hold": "do not hold", "undecided": "undecided"}


def folders_of(folder: Path) -> dict[str, Path]:
    """The folders inside one that a paper was played in, by its name, in the order of the shell's papers."""
    found = {}
    for path in sorted(folder.glob("*/reproduction.json")):
        found[read_json(path).get("paper", FIRST)] = path.parent
    return {name: found[name] for name in PAPERS if name in found}


def of_papers(folder: Path) -> Report:
    """The claims of all papers that were played, each with its verdict."""
    rows: list[dict[str, Any]] = []
    tallies = []
    quick = False
    folders = folders_of(folder)
    for name, place in folders.items():
        quick |= bool(read_json(place / "reproduction.json").get("quick"))
        verdicts = read_json(place / "verdict.json") if (place / "verdict.json").is_file() else []
        rows += [{"paper": name, **row} for row in verdicts]
        counts = Counter(row["verdict"] for row in verdicts)
        tallies.append([find(name).title, str(len(verdicts)), *(str(counts[word]) for word in HEADINGS)])
    words = Counter(row["verdict"] for row in rows)
    told = ", ".join(f"{words[word]} {said}" for word, said in HEADINGS.items())
    intro = [
        f"{counted(len(rows), 'claim')} of {counted(len(folders), 'paper')}: {told}.",
        "A claim holds if the whole interval of what was measured clears it, does not hold if the whole interval falls "
        "short of it, and is undecided otherwise. fedbandit report of the folder of one paper draws its figures.",
    ]
    if quick:
        intro.append("Made with --quick: a taste, with too few users and seeds to decide much.")
    columns = ("paper", "claims", *HEADINGS.values())
    return Report("Claims", intro, [], [Table("Papers", columns, tallies)], rows)

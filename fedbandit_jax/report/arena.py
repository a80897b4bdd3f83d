"""What a report says of the arena: who is on the front of regret and communication, in every world."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedbandit_jax.papers.arena import COST
from fedbandit_jax.report.contents import Picture, Report, Table, counted, facts, read_json, short
from fedbandit_jax.results.numbers import number, with_interval
from fedbandit_jax.results.results import Results

TITLE = "The arena: federated learners on one engine"


def of_arena(folder: Path) -> Report:
    record = read_json(folder / "arena.json")
    size = record["settings"]
    intro = [
        f"M = {size['clients']} clients, K = {size['arms']} arms, T = {size['horizon']} rounds; "
        f"{counted(size['users'], 'user')} × {counted(size['seeds'], 'seed')}, the same for all. "
        f"Tuned constants had {size['trials']} trials of each algorithm, for regret alone, on other users.",
        *(sentence(part, kind, rows) for part in record["parts"] for kind, rows in by_constants(part)),
    ]
    if size["quick"]:
        intro.append("Made with --quick: a taste, with too few users and seeds to decide much.")
    tables = [table(part) for part in record["parts"]]
    left_out = [
        [part["dataset"], part["world"], title, why]
        for part in record["parts"]
        for title, why in part["left_out"].items()
    ]
    if left_out:
        tables.append(Table("Left out", ("data set", "world", "algorithm", "why"), left_out))
    seconds = sum(part["seconds"] for part in record["parts"])
    told = {"command": "\n".join(record["commands"]), "made": record["created"], "time": f"{seconds:,.0f} s", **size}
    pictures = [picture for part in record["parts"] for picture in pictures_of(folder, part)]
    return Report(TITLE, intro, (), [facts(told, record)], opening=tables, pictures=pictures)


def by_constants(part: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for kind in dict.fromkeys(row["constants"] for row in part["rows"]):
        yield kind, [row for row in part["rows"] if row["constants"] == kind]


def sentence(part: Mapping[str, Any], kind: str, rows: list[Mapping[str, Any]]) -> str:
    """Who is on the front, and of whom that is not known."""
    on, open_ = ([row["algorithm"] for row in rows if row["front"] == word] for word in ("on the front", "undecided"))
    undecided = f"; undecided: {', '.join(open_)}" if open_ else ""
    where = f"{part['dataset']}, {part['world']} arms, {kind} constants"
    return f"{where}: on the front {', '.join(on) or 'nobody'}{undecided}."


def table(part: Mapping[str, Any]) -> Table:
    rows = [
        [
            row["constants"],
            row["algorithm"],
            with_interval(*(as_number(row[name]) for name in ("regret", "low", "high"))),
            number(as_number(row["scalars"])),
            number(as_number(row["messages"])) if row["messages"] is not None else "",
            row["front"] + (f" by {row['by']}" if row["by"] and row["front"] == "dominated" else ""),
            ", ".join(f"{name} = {short(value)}" for name, value in row["tuned"].items()),
        ]
        for row in part["rows"]
    ]
    columns = ("constants", "algorithm", "regret", "scalars sent", "messages", "Pareto front", "tuned")
    note = "Means with 95 % intervals, at the last round. The front is among constants of one kind."
    return Table(f"{part['dataset']}, {part['world']} arms", columns, rows, note)


def as_number(value: float | None) -> float:
    """JSON has no NaN."""
    return float("nan") if value is None else float(value)


def pictures_of(folder: Path, part: Mapping[str, Any]) -> Iterator[Picture]:
    data, world = part["dataset"], part["world"]
    results = Results.load(folder / data / world / "together")
    for kind, _ in by_constants(part):
        yield Picture(
            f"arena-{data}-{world}-{kind}",
            f"{data}, {world} arms, {kind} constants",
            partial(draw, results.only(constants=kind)),
            "Regret against scalars sent, both ways, by all clients. Means and 95 % intervals.",
        )


def draw(results: Results) -> Any:
    from fedbandit_jax.results.plots import style

    with style(figure_figsize=(6.4, 4.2)):
        return results.plot.tradeoff(COST).get_figure(root=True)

"""A report of a folder: one HTML page, a Markdown summary, and every figure as PDF and PNG.

    DIR/report.html     verdicts, figures to zoom into, settings; needs no network and no other file
    DIR/report.md       the same in short
    DIR/figures/        NAME.pdf and NAME.png

DIR is what `fedbandit reproduce`, `sweep` or `run`, or `Results.save`, wrote; several reproductions in one
folder give one table of all their claims.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import islice, product
from pathlib import Path
from typing import Any

import pandas as pd

from fedbandit_jax import _checks
from fedbandit_jax.papers.fedconpe import LINE_UP
from fedbandit_jax.results import statistics
from fedbandit_jax.results.drawing import AXIS_NAMES, Line, curve_lines, swept_lines
from fedbandit_jax.results.numbers import mean_and_interval, number
from fedbandit_jax.results.results import Results, read_saved
from fedbandit_jax.results.statistics import show

FIRST = tuple(algorithm.title for algorithm in LINE_UP)  # their colours are the same in all figures
MOST_LINES = 12  # of a figure
MOST_FIGURES = 48  # of a sweep's report
MOST_ROWS = 200  # of a sweep's summary
PLAIN_NAMES = {
    **AXIS_NAMES,
    "theta_error": "‖θ̂ − θ‖",
    "clients": "clients M",
    "arms": "arms K",
    "horizon": "horizon T",
    "noise": "noise σ",
}


@dataclass(frozen=True)
class Figure:
    """A metric of some results, against the round or a swept parameter."""

    name: str  # of its files
    title: str
    section: str
    where: Mapping[str, str]  # what readers may choose by, such as the preset
    results: Results
    metric: str
    x: str = "round"
    note: str = ""
    order: Sequence[str] = ()  # labels whose colours come first, so that figures agree

    def lines(self) -> list[Line]:
        if self.x == "round":
            return curve_lines(self.results.to_pandas(), self.results.setting_columns(), self.metric)
        return swept_lines(self.results.final(), self.x, self.metric)

    @property
    def y_scale(self) -> str:
        return "log" if self.metric == "theta_error" else "linear"

    def save(self, folder: Path) -> None:
        """NAME.pdf and NAME.png, in the look of a paper."""
        import matplotlib.pyplot as plt

        from fedbandit_jax.results.plots import Plots, style

        with style():
            plots = Plots(self.results, self.order)
            by_round = self.x == "round"
            ax = plots.curves(self.metric, y=self.y_scale) if by_round else plots.against(self.x, self.metric)
            drawn: Any = ax.get_figure(root=True)
            for form in ("pdf", "png"):
                drawn.savefig(folder / f"{self.name}.{form}", dpi=200)
            plt.close(drawn)


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn once, with matplotlib."""

    name: str  # of its files
    title: str
    draw: Callable[[], Any]  # a matplotlib figure
    note: str = ""

    def save(self, folder: Path) -> None:
        """NAME.pdf, NAME.png and NAME.svg, which the page shows."""
        import matplotlib.pyplot as plt

        drawn = self.draw()
        for form in ("pdf", "png", "svg"):
            drawn.savefig(folder / f"{self.name}.{form}", dpi=200)
        plt.close(drawn)


@dataclass(frozen=True)
class Table:
    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Report:
    title: str
    intro: Sequence[str]  # paragraphs
    figures: Sequence[Figure]
    tables: Sequence[Table]
    verdicts: Sequence[Mapping[str, Any]] = ()
    sections: Mapping[str, str] = field(default_factory=dict)  # headings of figures, with a sentence each
    opening: Sequence[Table] = ()  # tables that come before the figures
    pictures: Sequence[Picture] = ()  # before the verdicts and the other figures


def write(folder: str | Path) -> Path:
    """Write report.html, report.md and figures/ into a folder of results; return the path of the page."""
    from fedbandit_jax.report import pages  # which is made of what is defined here

    folder = Path(folder)
    report = read(folder)
    (folder / "figures").mkdir(exist_ok=True)
    drawn: list[Figure | Picture] = [*report.figures, *report.pictures]
    for figure in drawn:
        figure.save(folder / "figures")
    (folder / "report.md").write_text(pages.markdown(report), encoding="utf-8")
    page = folder / "report.html"
    page.write_text(pages.page(report, folder / "figures"), encoding="utf-8")
    return page


def read(folder: Path) -> Report:
    """What there is to report of a folder."""
    parts = []
    if (folder / "readings.json").is_file():
        from fedbandit_jax.report.readings import of_readings  # which is made of what is defined here

        parts.append(of_readings(folder))
    if (folder / "reproduction.json").is_file():
        from fedbandit_jax.report.reproductions import of_reproduction

        parts.append(of_reproduction(folder))
    if (folder / "arena.json").is_file():
        from fedbandit_jax.report.arena import of_arena

        parts.append(of_arena(folder))
    if parts:
        return reduce(joined, parts)
    if any(folder.glob("*/reproduction.json")):
        from fedbandit_jax.report.claims import of_papers

        return of_papers(folder)
    if (folder / "manifest.json").is_file() or (folder / "settings.json").is_file():
        return of_results(Results.load(folder), folder.resolve().name)
    allowed = "it must be a folder that fedbandit reproduce, sweep or run wrote"
    _checks.fail("folder", str(folder), allowed if folder.is_dir() else f"{allowed}, and there is none of that name")
    raise AssertionError


def joined(one: Report, other: Report) -> Report:
    """Both in one, under the other's title."""
    lists = [name.name for name in fields(Report) if name.name not in ("title", "sections")]
    content: dict[str, Any] = {name: [*getattr(one, name), *getattr(other, name)] for name in lists}
    return Report(other.title, sections={**one.sections, **other.sections}, **content)


# ------------------------------------------------------------------------------------------------------- of everything


def span(values: pd.Series) -> str:
    """The value, or from which to which."""
    return show(values.min()) if values.min() == values.max() else f"{show(values.min())} to {show(values.max())}"


def in_order(curves: pd.DataFrame) -> pd.DataFrame:
    """FedConPE first, then the baselines as the paper lists them, then others as they come."""
    place = {title: i for i, title in enumerate(FIRST)}
    return curves.sort_values("algorithm", kind="stable", key=lambda titles: titles.map(place).fillna(len(place)))


def facts(settings: Mapping[str, Any], environment: Mapping[str, Any]) -> Table:
    """Settings, versions and devices."""
    told = {name: value for name, value in settings.items() if name not in ("versions", "devices")}
    told |= environment.get("versions", {})
    devices = list(environment.get("devices", []))
    told |= {"devices": ", ".join(f"{devices.count(name)} × {name}" for name in dict.fromkeys(devices))}
    rows = [[name, short(value)] for name, value in told.items() if value not in (None, "")]
    return Table("Settings and versions", ("", ""), rows)


# ------------------------------------------------------------------------------------------------- a sweep or a run


def of_results(results: Results, name: str) -> Report:
    """Curves at every place, final regret against what was swept, a summary."""
    final = results.final()
    varied = statistics.varied_parameters(final, results.setting_columns())
    places = statistics.varied_places(final)
    figures = [*against_figures(results, varied, places), *curve_figures(results, places)]
    labels = list(in_order(final)["label"].unique())
    intro = [
        f"{counted(len(final), 'run')} of {', '.join(labels) if len(labels) < 8 else f'{len(labels)} algorithms'} on "
        f"{', '.join(final['dataset'].unique())}: "
        f"{counted(final['user'].nunique(), 'user')}, {counted(final['seed'].nunique(), 'seed')} each."
    ]
    if len(figures) > MOST_FIGURES:
        intro.append(f"The first {MOST_FIGURES} of {len(figures)} figures are shown.")
    sections = {
        "Regret": "Summed over clients; less is better.",
        "Against what was swept": "Lines are fitted power laws.",
    }
    settings, summary = facts(results.settings, results.settings), summary_table(results, places)
    return Report(name, intro, figures[:MOST_FIGURES], [settings], (), sections, [summary])


def curve_figures(results: Results, places: Sequence[str]) -> Iterator[Figure]:
    for where, part in split(results, places):
        best, note = least(part)
        yield Figure(
            file_name("regret", where), in_words(where) or "All", "Regret", where, best, "regret", "round", note
        )


def against_figures(results: Results, varied: Sequence[str], places: Sequence[str]) -> Iterator[Figure]:
    for parameter in varied:
        for where, part in split(results, [c for c in places if c != parameter]):
            if not swept_lines(part.final(), parameter, "regret", fit=False):
                continue
            best, note = least(part, parameter)
            title = ", ".join(filter(None, (f"against {PLAIN_NAMES.get(parameter, parameter)}", in_words(where))))
            name = file_name(f"regret-{parameter}", where)
            yield Figure(name, title, "Against what was swept", where, best, "regret", parameter, note)


def split(results: Results, columns: Sequence[str]) -> Iterator[tuple[dict[str, str], Results]]:
    """The results of each combination of values of some columns, and what these are."""
    curves = in_order(results.to_pandas())
    for values in product(*(sorted(curves[c].unique()) for c in columns)):
        rows = curves[(curves[list(columns)] == list(values)).all(axis=1)] if columns else curves
        if len(rows):
            where = {c: show(v) for c, v in zip(columns, values, strict=True)}
            yield where, Results(rows, pd.DataFrame(), results.settings)


def least(results: Results, parameter: str | None = None) -> tuple[Results, str]:
    """The settings of least final regret, if there are too many for a figure, and a note that says so."""
    final = results.final()
    lines = [(label, rows) for label, _, rows in statistics.lines(final, *([parameter] if parameter else []))]
    if len(lines) <= MOST_LINES:
        return results, ""
    ranked = sorted(lines, key=lambda line: line[1]["regret"].mean())
    labels = {label for _, rows in islice(ranked, MOST_LINES) for label in final.loc[rows.index, "label"]}
    curves = results.to_pandas()
    note = f"The {MOST_LINES} of {len(lines)} with least final regret."
    return Results(curves[curves["label"].isin(labels)], pd.DataFrame(), results.settings), note


def summary_table(results: Results, places: Sequence[str]) -> Table:
    """Final metrics of every setting."""
    found = {metric: results.summary(metric) for metric in results.metrics}
    order = found["regret"].sort_values([*places, "mean"]).index
    rows = [
        [
            found["regret"].loc[i, "label"],
            *(show(found["regret"].loc[i, c]) for c in places),
            *(mean_and_interval(found[metric].loc[i]) for metric in results.metrics),
        ]
        for i in order[:MOST_ROWS]
    ]
    names = [PLAIN_NAMES.get(metric, metric) for metric in results.metrics]
    note = "At the last round: mean and 95 % interval."
    if len(order) > MOST_ROWS:
        note += f" The first {MOST_ROWS} of {len(order)} settings."
    return Table("Summary", ("algorithm", *(PLAIN_NAMES.get(c, c) for c in places), *names), rows, note)


# --------------------------------------------------------------------------------------------------------- helpers


def short(value: Any) -> str:
    """A value in few digits, or as it is."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {short(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(short(entry) for entry in value)
    return str(value)


def counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def in_words(where: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in where.items())


def file_name(*parts: Any) -> str:
    """A plain name for a file, out of anything."""
    text = "-".join(in_words(part) if isinstance(part, Mapping) else str(part) for part in parts if part)
    return "".join(c if c.isalnum() or c in "-=." else "-" for c in text.replace(", ", "-"))


def read_json(path: Path) -> Any:
    return read_saved(path, json.loads, "delete it, and the command that wrote it makes it again")

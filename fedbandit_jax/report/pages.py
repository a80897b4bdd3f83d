"""The pages of a report: HTML with figures that can be zoomed, and Markdown."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedbandit_jax.report.contents import PLAIN_NAMES, Figure, Report, Table
from fedbandit_jax.results.drawing import MARKERS, STYLES, Line, Look, dodged, lowest_mean

# Said by a sign and a word as well as by a colour.
SIGNS = {"holds": "✓", "does not hold": "✗", "undecided": "?"}
DASHES = dict(
    zip(STYLES, ("solid", "dash", "dashdot", "dot", "longdash", "longdashdot", "2px", "9px,3px"), strict=True)
)
SYMBOLS = dict(
    zip(
        MARKERS,
        ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "triangle-left"),
        strict=True,
    )
)
DIGITS = 5  # significant ones, in figures


# ------------------------------------------------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """The report in short, with pictures."""
    lines = [f"# {report.title}", *map(for_markdown, report.intro)]
    for picture in report.pictures:
        lines += [
            f"**{for_markdown(picture.title)}** {for_markdown(picture.note)}",
            f"![{for_markdown(picture.title)}](figures/{picture.name}.png)",
        ]
    for heading, rows in verdict_tables(report):
        body = [
            [
                f"{SIGNS[row['verdict']]} {row['verdict']}",
                *([row["paper"], row["experiment"]] if "paper" in row else []),
                row["claim"],
                row["dataset"],
                row["preset"],
                row["figure"],
                row["why"],
            ]
            for row in rows
        ]
        paper = ("paper", "experiment") if "paper" in rows[0] else ()
        columns = ("verdict", *paper, "claim", "data set", "preset", "measured", "why")
        lines += [f"## {heading}", markdown_table(columns, body)]
    lines += [text for table in report.opening for text in table_in_markdown(table)]
    for section, figures in sections(report):
        lines += [f"## {section}", report.sections.get(section, "")]
        for figure in figures:
            note = f"{figure.title}. {figure.note}".strip()
            lines += [
                f"**{for_markdown(note)}**",
                f"![{for_markdown(f'{section}: {figure.title}')}](figures/{figure.name}.png)",
            ]
    lines += [text for table in report.tables for text in table_in_markdown(table)]
    return "\n\n".join(line for line in lines if line) + "\n"


def table_in_markdown(table: Table) -> list[str]:
    return [f"## {table.heading}", table.note, markdown_table(table.columns, table.rows)]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(for_markdown(cell) for cell in row) + " |" for row in body)


def for_markdown(text: str) -> str:
    """Text that stays in its cell and means itself."""
    plain = text if text == "---" else escape(text, quote=False)
    for sign in ("\\", "|", "*", "_", "`", "[", "]"):
        plain = plain.replace(sign, "\\" + sign)
    return plain.replace("\n", "<br>")


# ----------------------------------------------------------------------------------------------------------- HTML


def page(report: Report, figures: Path) -> str:
    """One page that needs nothing else; `figures` is the folder that has the pictures."""
    from plotly.offline import get_plotlyjs  # slow to import

    assets = files("fedbandit_jax.report") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    judged = dict(verdict_tables(report))
    return template().render(
        report=report,
        filters=filters(report),
        glance=glance(judged.get("Verdict", [])),
        judged=judged,
        signs=SIGNS,
        where_of=where_of,
        links={(figure.name.split("-")[0], *figure.where.values()): figure.name for figure in report.figures},
        sections=sections(report),
        drawings={figure.name: drawing(figure) for figure in report.figures},
        pictures={picture.name: as_link(figures / f"{picture.name}.svg") for picture in report.pictures},
        style=style,
        scripts=(get_plotlyjs(), script),
    )


def as_link(path: Path) -> str:
    """A picture inside the page."""
    return f"data:image/svg+xml;base64,{b64encode(path.read_bytes()).decode()}"


def template() -> Template:
    """The page's markup, which escapes all that is not marked as safe."""
    environment = Environment(
        loader=PackageLoader("fedbandit_jax.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Browsers refuse NaN in JSON. Keys stay in their order.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("report.html.j2")


def verdict_tables(report: Report) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The claims about experiments, and those about the theory; those of several papers are in one table."""
    if any("paper" in row for row in report.verdicts):
        yield "Claims", list(report.verdicts)
        return
    for heading, theory in (("Verdict", False), ("The theorems", True)):
        rows = [row for row in report.verdicts if (row["experiment"] == "theory") == theory]
        if rows:
            yield heading, rows


def sections(report: Report) -> Iterator[tuple[str, list[Figure]]]:
    for section in dict.fromkeys(figure.section for figure in report.figures):
        yield section, [figure for figure in report.figures if figure.section == section]


def where_of(row: Mapping[str, Any]) -> dict[str, str]:
    paper = {"paper": row["paper"]} if "paper" in row else {}
    return {**paper, "data set": row["dataset"], "preset": row["preset"], "verdict": row["verdict"]}


def filters(report: Report) -> dict[str, list[str]]:
    """The values of everything that figures and verdicts differ in."""
    options: dict[str, dict[str, None]] = {}
    for where in (*(where_of(row) for row in report.verdicts), *(figure.where for figure in report.figures)):
        for name, value in where.items():
            options.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in options.items() if len(values) > 1}


def glance(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Verdicts by claim, and by data set and preset: how many columns a data set has, their presets, the cells."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    columns = dict.fromkeys((row["dataset"], row["preset"]) for row in rows)
    ordered = sorted(columns, key=lambda column: datasets.index(column[0]))
    found = {(row["claim"], row["dataset"], row["preset"]): row["verdict"] for row in rows}
    claims = dict.fromkeys(row["claim"] for row in rows)
    return {
        "datasets": Counter(dataset for dataset, _ in ordered),
        "presets": [preset for _, preset in ordered],
        "claims": {claim: [found.get((claim, *column)) for column in ordered] for claim in claims},
    }


# -------------------------------------------------------------------------------------------------- plotly figures
# Names are escaped, as plotly reads them as HTML.


def drawing(figure: Figure) -> dict[str, Any]:
    """Data and layout for plotly: means and intervals, never single runs."""
    lines = figure.lines()
    look = Look([line[:2] for line in lines], figure.order)
    draw = curve_traces if figure.x == "round" else point_traces
    at = [line.at for line in lines] if figure.x == "round" else dodged(lines, "linear")
    # No metric is negative, and a logarithmic axis has no 0: bands and bars end a little below the lowest mean.
    floor = lowest_mean(lines) / 2
    lines = [line._replace(low=np.maximum(line.low, np.minimum(line.middle, floor))) for line in lines]
    traces = [trace for line, x in zip(lines, at, strict=True) for trace in draw(line, x, look(line.label, line.place))]
    rangemode = "tozero" if figure.x == "round" else "normal"
    values = sorted({float(value) for line in lines for value in line.at})
    ticks = (
        {"tickvals": values, "ticktext": [f"{v:g}" for v in values]} if figure.x != "round" and len(values) <= 8 else {}
    )
    layout = {
        "xaxis": {"title": {"text": PLAIN_NAMES.get(figure.x, figure.x)}, "rangemode": rangemode, **ticks},
        "yaxis": {"title": {"text": PLAIN_NAMES[figure.metric]}, "type": figure.y_scale, "rangemode": "tozero"},
        "hovermode": "x" if figure.x == "round" else "closest",
    }
    if any(line.law for line in lines):
        layout["legend"] = {"title": {"text": "exponents of fitted power laws, 95 % intervals", "side": "top"}}
    return {"data": traces, "layout": layout}


def curve_traces(line: Line, at: np.ndarray, drawn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A curve and its band, which the legend switches together."""
    shared = {"legendgroup": escape(line.name), "type": "scatter", "mode": "lines"}
    edge = [*rounded(line.high), *rounded(line.low[::-1])]
    around = [*rounded(at), *rounded(at[::-1])]
    band = {"fill": "toself", "fillcolor": faint(drawn["color"]), "line": {"width": 0}, "hoverinfo": "skip"}
    yield shared | {"x": around, "y": edge, "showlegend": False} | band
    yield shared | {
        "x": rounded(at),
        "y": rounded(line.middle),
        "customdata": list(zip(rounded(line.low), rounded(line.high), strict=True)),
        "name": escape(line.name),
        "line": {"color": drawn["color"], "width": 2, "dash": DASHES[drawn["linestyle"]]},
        "hovertemplate": "%{y:.4~g} [%{customdata[0]:.4~g}, %{customdata[1]:.4~g}]",
    }


def point_traces(line: Line, at: np.ndarray, drawn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Means with error bars, and the fitted power law."""
    shared = {"legendgroup": escape(line.name), "type": "scatter"}
    fitted = line.fitted != line.name
    stroke = {"color": drawn["color"], "width": 2, "dash": DASHES[drawn["linestyle"]]}
    if fitted:
        dense = np.linspace(line.at.min(), line.at.max(), 40)
        law = line.law["factor"] * dense ** line.law["exponent"]
        yield (
            shared
            | {"x": rounded(dense), "y": rounded(law), "mode": "lines", "line": stroke, "hoverinfo": "skip"}
            | {"showlegend": False}
        )
    yield shared | {
        "x": rounded(at),
        "y": rounded(line.middle),
        "name": escape(line.fitted.replace(": exponent ", ": ")),
        "mode": "markers" if fitted else "lines+markers",
        "line": stroke,
        "marker": {"color": drawn["color"], "size": 8, "symbol": SYMBOLS[drawn["marker"]]},
        "error_y": {
            "array": rounded(line.high - line.middle),
            "arrayminus": rounded(line.middle - line.low),
            "color": drawn["color"],
            "thickness": 1.5,
            "width": 3,
        },
        "customdata": [
            [short, *ends] for short, *ends in zip(rounded(line.at), rounded(line.low), rounded(line.high), strict=True)
        ],
        "hovertemplate": "%{customdata[0]}: %{y:.4~g} [%{customdata[1]:.4~g}, %{customdata[2]:.4~g}]",
    }


def rounded(values: np.ndarray) -> list[float | None]:
    """Few digits, as text is what counts here; what is not finite is left out."""
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def faint(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.2)"

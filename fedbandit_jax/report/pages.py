"""The pages of a report: HTML with figures that can be zoomed, and Markdown."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from fedbandit_jax.report.contents import PLAIN_NAMES, Figure, Report, Table
from fedbandit_jax.results.drawing import MARKERS, STYLES, Line, Look, dodged

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
    lines = [f"# {report.title}", *report.intro]
    for heading, rows in verdict_tables(report):
        body = [
            [
                f"{SIGNS[row['verdict']]} {row['verdict']}",
                row["claim"],
                row["dataset"],
                row["preset"],
                row["figure"],
                row["why"],
            ]
            for row in rows
        ]
        columns = ("verdict", "claim", "data set", "preset", "measured", "why")
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


def page(report: Report) -> str:
    """One page that needs nothing else."""
    from plotly.offline import get_plotlyjs  # slow to import

    assets = files("fedbandit_jax.report") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    drawn = {figure.name: drawing(figure) for figure in report.figures}
    body = [
        f"<header><h1>{escape(report.title)}</h1>",
        *(f"<p>{escape(text)}</p>" for text in report.intro),
        "</header>",
        filters(report),
        glance(report),
        *verdicts(report),
        *(details(table) for table in report.opening),
        *figures_of(report),
        *(details(table) for table in report.tables),
        "<footer><p>Click on a name in a legend to hide its curve, twice to see it alone; drag to zoom, double-click "
        "to go back. The same figures are in the folder figures beside this page, as PDF and PNG.</p></footer>",
    ]
    data = json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(report.title)}</title>",
            f"<style>\n{style}</style></head><body><main>",
            *body,
            f'</main><script type="application/json" id="drawings">{data}</script>',
            f"<script>{get_plotlyjs()}</script>",
            f"<script>\n{script}</script></body></html>\n",
        ]
    )


def verdict_tables(report: Report) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The claims about experiments, and those about the theory."""
    for heading, theory in (("Verdict", False), ("The theorems", True)):
        rows = [row for row in report.verdicts if (row["experiment"] == "theory") == theory]
        if rows:
            yield heading, rows


def sections(report: Report) -> Iterator[tuple[str, list[Figure]]]:
    for section in dict.fromkeys(figure.section for figure in report.figures):
        yield section, [figure for figure in report.figures if figure.section == section]


def where_of(row: Mapping[str, Any]) -> dict[str, str]:
    return {"data set": row["dataset"], "preset": row["preset"], "verdict": row["verdict"]}


def filters(report: Report) -> str:
    """A choice for everything that figures and verdicts differ in."""
    options: dict[str, dict[str, None]] = {}
    for where in (*(where_of(row) for row in report.verdicts), *(figure.where for figure in report.figures)):
        for name, value in where.items():
            options.setdefault(name, {})[value] = None
    chosen = [
        f'<label>{escape(name)} <select data-filter="{escape(name)}"><option value="">all</option>'
        + "".join(f"<option>{escape(value)}</option>" for value in values)
        + "</select></label>"
        for name, values in options.items()
        if len(values) > 1
    ]
    return f'<nav aria-label="Show only">{"".join(chosen)}</nav>' if chosen else ""


def pill(verdict: str) -> str:
    kind, sign = verdict.replace(" ", "-"), SIGNS[verdict]
    return f'<span class="pill {kind}"><i aria-hidden="true">{sign}</i> {escape(verdict)}</span>'


def glance(report: Report) -> str:
    """Claims by data set and preset, a word in each cell."""
    rows = next((rows for heading, rows in verdict_tables(report) if heading == "Verdict"), [])
    columns = list(dict.fromkeys((row["dataset"], row["preset"]) for row in rows))
    if len(columns) < 2:
        return ""
    datasets = list(dict.fromkeys(dataset for dataset, _ in columns))
    columns.sort(key=lambda column: datasets.index(column[0]))
    found = {(row["claim"], row["dataset"], row["preset"]): row["verdict"] for row in rows}
    spans = [(dataset, sum(column[0] == dataset for column in columns)) for dataset in datasets]
    head = "".join(f'<th colspan="{count}" scope="colgroup">{escape(dataset)}</th>' for dataset, count in spans)
    presets = "".join(f"<th scope=col>{escape(preset)}</th>" for _, preset in columns)
    body = ""
    for claim in dict.fromkeys(row["claim"] for row in rows):
        cells = [found.get((claim, *column)) for column in columns]
        body += f"<tr><th scope=row>{escape(claim)}</th>" + "".join(
            f"<td>{pill(verdict) if verdict else ''}</td>" for verdict in cells
        )
        body += "</tr>"
    return (
        '<section><h2>At a glance</h2><div class="wide"><table class="glance"><thead>'
        f"<tr><th rowspan=2></th>{head}</tr><tr>{presets}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def verdicts(report: Report) -> Iterator[str]:
    """Tables of claims; each points to its figure."""
    names = {(*figure.name.split("-")[:1], *figure.where.values()): figure.name for figure in report.figures}
    for heading, rows in verdict_tables(report):
        yield f'<section><h2>{heading}</h2><table class="verdicts"><thead><tr>'
        yield "".join(
            f"<th>{name}</th>" for name in ("verdict", "claim", "data set", "preset", "measured, 95 % interval")
        )
        yield "</tr></thead><tbody>"
        for row in rows:
            figure = names.get((row["experiment"], row["dataset"], row["preset"]))
            claim = escape(row["claim"])
            cells = {
                "verdict": pill(row["verdict"]),
                "claim": f'<a href="#{escape(figure)}">{claim}</a>' if figure else claim,
                "data set": escape(row["dataset"]),
                "preset": escape(row["preset"]),
                "measured": escape(row["figure"] or "")
                + (f"<small>{escape(row['why'])}</small>" if row["why"] else ""),
            }
            tds = "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in cells.items())
            yield f'<tr data-where="{escape(json.dumps(where_of(row)))}">{tds}</tr>'
        yield "</tbody></table></section>"


def figures_of(report: Report) -> Iterator[str]:
    """A card for each figure, drawn when it is scrolled to."""
    for section, figures in sections(report):
        yield f"<section><h2>{escape(section)}</h2><p>{escape(report.sections.get(section, ''))}</p><div class=cards>"
        for figure in figures:
            yield (
                f'<figure id="{escape(figure.name)}" data-where="{escape(json.dumps(dict(figure.where)))}">'
                f"<figcaption><strong>{escape(figure.title)}</strong>"
                f'<button type="button" aria-pressed="false">log scale</button></figcaption>'
                f'<div class="plot" role="img" aria-label="{escape(f"{section}: {figure.title}")}"></div>'
                f"<small>{escape(figure.note)}</small></figure>"
            )
        yield "</div></section>"


def details(table: Table) -> str:
    """A table of facts, closed until it is wanted unless it is short."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns) if any(table.columns) else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell).replace(chr(10), '<br>')}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    opened = " open" if len(table.rows) <= 30 else ""
    return (
        f"<section><details{opened}><summary><h2>{escape(table.heading)}</h2></summary>{note}"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        "</details></section>"
    )


# -------------------------------------------------------------------------------------------------- plotly figures


def drawing(figure: Figure) -> dict[str, Any]:
    """Data and layout for plotly: means and intervals, never single runs."""
    lines = figure.lines()
    look = Look([line[:2] for line in lines], figure.order)
    draw = curve_traces if figure.x == "round" else point_traces
    at = [line.at for line in lines] if figure.x == "round" else dodged(lines, "linear")
    # No metric is negative, and a logarithmic axis has no 0: bands and bars end a little below the lowest mean.
    floor = min(line.middle[line.middle > 0].min(initial=np.inf) for line in lines) / 2
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

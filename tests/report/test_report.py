"""Reports: what the page, the summary and the figures say."""

import json
import re
from html import escape
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

import fedbandit_jax as fb
from fedbandit_jax.cli import main as cli
from fedbandit_jax.papers.fedconpe import EXPERIMENTS
from fedbandit_jax.report import contents as report
from fedbandit_jax.report import pages as report_text
from fedbandit_jax.report.reproductions import experiment_figure
from fedbandit_jax.results.numbers import with_half
from tests.frames import made_of, runs
from tests.reports import NASTY, REGRET, SPREAD, reproduction, verdict


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A reproduction with its report."""
    made = reproduction(tmp_path_factory.mktemp("reproduction"))
    assert report.write(made) == made / "report.html"
    return made


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text()


def without_scripts(page):
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def drawings(page):
    return json.loads(re.search(r'id="drawings">(.*?)</script>', page, flags=re.DOTALL)[1])


class Text(HTMLParser):
    """All that a reader sees, every address that the page points to, and what can be chosen by."""

    def __init__(self, page):
        super().__init__()
        self.words, self.addresses, self.where = [], [], []
        self.feed(page)

    def handle_data(self, data):
        self.words.append(data.strip())

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("href", "src")]
        self.where += [json.loads(value) for name, value in attrs if name == "data-where"]


def test_the_page_says_what_was_judged(page):
    words = Text(without_scripts(page)).words
    assert "4 claims judged: 2 hold, 1 do not hold, 1 are undecided." in words
    assert [word for word in words if word in report_text.SIGNS].count(
        "does not hold"
    ) == 2 + 1  # glance, table, filter
    assert "The theorems" in words
    assert "the best arm survives" in words
    assert "N = 1.235, rounding = unbiased" in words
    assert "2024-02-03T04:05:06+00:00" in words
    assert "2 × cpu:cpu" in words
    assert "0.7.1" in words
    assert "10 s in all; what was found on disk is not counted again." in words
    assert "Made with --quick: a taste, with too few users and seeds to decide much." in words


def test_text_is_text(folder, page):
    """In the claim, in the reason and in the command, which data may bring along."""
    assert NASTY not in page
    assert sum(NASTY in word for word in Text(without_scripts(page)).words) >= 4
    assert page.count("alert(") == without_scripts(page).count("alert(")
    summary = (folder / "report.md").read_text()
    assert "<script>" not in summary
    row = next(line for line in summary.splitlines() if "✗ does not hold" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 7, "no sign of a cell ends it"
    assert r"\*a\* \[b\](c)" in row


def test_text_is_text_wherever_it_stands(tmp_path):
    """Quotes too, which would end an attribute, and lines, which cells keep apart."""
    odd = f"""{NASTY} "it's" </title>"""
    row = verdict("multi", odd, "holds", dataset=odd, claim=odd, figure=odd, why=odd)
    figure = report.Figure(
        "multi-a", odd, odd, {"data set": odd, odd: odd}, made_of(runs(odd, SPREAD)), "regret", note=odd
    )
    table = report.Table(odd, (odd,), [[f"{odd}\n{odd}"]], odd)
    picture = report.Picture("picture", odd, plt.figure, odd)
    picture.save(tmp_path)
    made = report.Report(
        odd, [odd], [figure], [table], [row, row | {"preset": "theory"}], {odd: odd}, [table], [picture]
    )
    page = report_text.page(made, tmp_path)
    assert NASTY not in page
    assert page.count("alert(") == without_scripts(page).count("alert(") + json.dumps(drawings(page)).count("alert(")
    told = Text(without_scripts(page))
    places = {
        "title, heading and intro": 3,
        "picture": 2,
        "filter": 1,
        "glance": 3,
        "rows of verdicts": 5 + 4,
        "section": 2,
        "figure": 2,
        "tables": 2 * 5,
    }
    assert told.words.count(odd) == sum(places.values())
    both = {"data set": odd, "verdict": "holds"}
    assert told.where == [both | {"preset": odd}, both | {"preset": "theory"}, {"data set": odd, odd: odd}]
    assert [t["name"] for t in drawings(page)["multi-a"]["data"] if "name" in t] == [escape(odd)]  # plotly reads HTML


def test_the_page_needs_no_other_file(page):
    assert page.count("plotly.js v") == 1
    addresses = Text(without_scripts(page)).addresses
    assert all(address.startswith(("#", "data:")) for address in addresses), addresses
    ids = re.findall(r'<figure id="([^"]+)"', page)
    assert {address[1:] for address in addresses if address.startswith("#")} == {
        "multi-theory-synthetic",
        "multi-released-synthetic",
        "clients-theory-synthetic",
    }
    assert len(ids) == len(set(ids)) == 8


def test_curves_have_bands_that_go_with_them(page):
    data = drawings(page)["multi-theory-synthetic"]["data"]
    units = SPREAD.mean(axis=1)
    half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem(units)
    for (band, curve), (label, regret) in zip(zip(data[::2], data[1::2], strict=True), REGRET.items(), strict=True):
        assert curve["name"] == label
        assert curve["legendgroup"] == band["legendgroup"]
        assert (band["showlegend"], curve.get("showlegend", True)) == (False, True)
        np.testing.assert_allclose(curve["y"], [regret / 2, regret], rtol=1e-4)
        high, low = band["y"][:2], band["y"][:1:-1]
        np.testing.assert_allclose(high, np.array([0.5, 1]) * regret * (1 + half), rtol=1e-4)
        np.testing.assert_allclose(low, np.array([0.5, 1]) * regret * (1 - half), rtol=1e-4)
        np.testing.assert_allclose(curve["customdata"], np.transpose([low, high]))
    assert len({curve["line"]["color"] for curve in data[1::2]}) == 3


def test_points_are_where_the_parameter_is(page):
    drawn = drawings(page)["clients-theory-synthetic"]
    points = [trace for trace in drawn["data"] if "error_y" in trace]
    assert [trace["name"] for trace in points] == [f"{label}: 1.00 [1.00, 1.00]" for label in REGRET]
    for trace, regret in zip(points, REGRET.values(), strict=True):
        np.testing.assert_allclose(trace["y"], [3 * regret, 9 * regret], rtol=1e-4)
        np.testing.assert_allclose(trace["x"], [3, 9], atol=0.1)
        assert [shown[0] for shown in trace["customdata"]] == [3, 9]
        law = next(t for t in drawn["data"] if t["legendgroup"] == trace["legendgroup"] and "error_y" not in t)
        np.testing.assert_allclose(law["y"], regret * np.array(law["x"]), rtol=1e-4)
    assert drawn["layout"]["xaxis"]["tickvals"] == [3, 9]


def test_baselines_that_ask_the_same_are_one_line(page):
    data = [trace for trace in drawings(page)["questions-released-synthetic"]["data"] if "name" in trace]
    told = {trace["name"]: trace["y"] for trace in data}
    assert told == {
        "FedConPE": [45, 90],
        "the 2 baselines, 5 ⌊log t⌋": [20, 40],
        "the 2 baselines, ⌊t/50⌋": [60, 120],
    }


def test_the_error_ends_where_the_experiment_says():
    results = made_of(runs("FedConPE", SPREAD))
    curves = results.to_pandas()
    late = fb.Results(curves.assign(round=curves["round"] * 30, horizon=3000), results.phases(), {})
    part = {"dataset": "d", "preset": "theory", "users": 3, "seeds": 2}
    figure = experiment_figure(EXPERIMENTS["accuracy"], part, late)
    (line,) = figure.lines()
    assert line.at.tolist() == [1500]
    assert (figure.metric, figure.y_scale) == ("theta_error", "log")


def test_bands_stay_on_a_logarithmic_axis():
    """Intervals that reach below 0 end above it: there is no such regret, and a logarithm has no such place."""
    wild = made_of(runs("A", 100 * np.array([[0.1], [1], [2]])))
    figure = report.Figure("n", "t", "s", {}, wild, "regret")
    assert figure.lines()[0].low.min() < 0
    band, _ = report_text.drawing(figure)["data"]
    assert min(band["y"]) > 0


def test_every_figure_is_saved_and_shown(folder):
    names = {path.name for path in (folder / "figures").iterdir()}
    expected = [
        f"{e}-{p}-synthetic" for e in ("multi", "clients", "accuracy", "questions") for p in ("theory", "released")
    ]
    assert names == {f"{name}.{form}" for name in expected for form in ("pdf", "png")}
    for name in names:
        start = (folder / "figures" / name).read_bytes()[:4]
        assert start == (b"%PDF" if name.endswith("pdf") else b"\x89PNG")
    summary = (folder / "report.md").read_text()
    assert re.findall(r"\]\((.*?\.png)\)", summary) == [f"figures/{name}.png" for name in expected]
    assert summary.startswith("# FedConPE: the paper's experiments, rerun and judged\n")
    assert not plt.get_fignums()


def test_what_is_missing_is_left_out(tmp_path):
    """One experiment, no verdict yet, and a part whose folder was deleted."""
    made = reproduction(tmp_path, experiments=("multi",), presets=("theory",))
    (made / "verdict.json").unlink()
    record = json.loads((made / "reproduction.json").read_text())
    record["parts"].append(record["parts"][0] | {"experiment": "arms"})
    record["tuned"] = {}
    (made / "reproduction.json").write_text(json.dumps(record))
    page = report.write(made).read_text()
    words = Text(without_scripts(page)).words
    assert "No claim has been judged yet." in words
    assert "Tuned constants" not in words
    assert re.findall(r'<figure id="([^"]+)"', page) == ["multi-theory-synthetic"]
    assert "<select" not in page


# ---------------------------------------------------------------------------------------------- sweeps and runs


def test_a_sweep_has_a_report(catalog, tmp_path):
    out = tmp_path / "grid"
    arguments = {"clients": [2, 3], "arms": 7, "horizon": 60, "users": 2, "seeds": 2, "checkpoints": 4}
    results = fb.sweep(catalog, [fb.LinUCB(alpha=[0.5, 1]), fb.Uniform()], **arguments, out=out)
    shown = CliRunner().invoke(cli.app, ["report", str(out)])
    assert shown.exit_code == 0, shown.output
    assert str(out / "report.html") in shown.output
    page = (out / "report.html").read_text()
    assert re.findall(r'<figure id="([^"]+)"', page) == [
        "regret-clients",
        "regret-alpha-clients=2",
        "regret-alpha-clients=3",
        "regret-clients=2",
        "regret-clients=3",
    ]
    found = results.summary().query("label == 'Uniform' and clients == 3").iloc[0]
    mean, half = found["mean"], found["high"] - found["mean"]
    curve = next(t for t in drawings(page)["regret-clients=3"]["data"] if t.get("name") == "Uniform")
    assert curve["y"][-1] == pytest.approx(mean, rel=1e-4)
    words = Text(without_scripts(page)).words
    assert with_half(mean, half) in words
    assert results.settings["versions"]["jax"] in words
    assert any(catalog.fingerprint in word for word in words)
    again = fb.sweep(catalog, fb.Uniform(), **arguments, out=out)  # a report does not spoil the folder
    assert again.settings["runs_computed"] == 0


def test_a_saved_result_has_a_report(tmp_path):
    made_of(runs("A", SPREAD)).save(tmp_path)
    page = report.write(tmp_path).read_text()
    assert re.findall(r'<figure id="([^"]+)"', page) == ["regret"]


def test_a_figure_shows_the_best_of_many(tmp_path):
    rows = [row for k in range(20) for row in runs(f"A x={k}", (20 - k) * SPREAD, x=float(k))]
    made_of(rows).save(tmp_path)
    page = report.write(tmp_path).read_text()
    drawn = [t["name"] for t in drawings(page)["regret"]["data"] if "name" in t]
    assert drawn == [f"A x={k}" for k in range(8, 20)]
    assert "The 12 of 20 with least final regret." in page
    assert [t["name"] for t in drawings(page)["regret-x"]["data"] if "name" in t] == ["A"]


# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", ["empty", "nowhere"])
def test_another_folder_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    allowed = "is not allowed: it must be a folder that fedbandit reproduce, sweep or run wrote"
    with pytest.raises(ValueError, match=rf"^folder='.*{name}' {allowed}"):
        report.write(tmp_path / name)
    assert not list((tmp_path / "empty").iterdir())


def test_a_damaged_record_is_named(tmp_path):
    made = reproduction(tmp_path, experiments=("multi",), presets=("theory",))
    (made / "reproduction.json").write_text("{")
    with pytest.raises(ValueError, match=r"reproduction.json is damaged: delete it, and the command"):
        report.write(made)

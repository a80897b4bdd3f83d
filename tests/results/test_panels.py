"""Small multiples: what is in which panel, and that all of it can be seen."""

from itertools import pairwise, product

import matplotlib.pyplot as plt
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.results.drawing import COLORS
from tests.frames import made_of, runs

SPREAD = np.array([[0.8, 1.0], [0.9, 1.1], [1.2, 1.0]])  # (user, seed), of mean 1


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def grid(labels, growth=0.0, **places):
    """The regret of label i is (1 + i) times the product of the numbers of its place, to the power of `growth`."""
    rows = []
    for values in product(*places.values()):
        size = np.prod(np.array(values, float)) ** growth
        for i, label in enumerate(labels):
            rows += runs(label, (1 + i) * size * SPREAD, **dict(zip(places, values, strict=True)))
    return made_of(rows)


def shown(ax):
    return [panel for panel in ax.figure.axes if panel.axison]


def titles(ax):
    return [panel.get_title() for panel in shown(ax)]


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_a_panel_for_each_place_and_one_legend():
    ax = grid("AB", clients=[4, 2, 8], growth=1).plot.regret()
    assert titles(ax) == ["clients=2", "clients=4", "clients=8"]
    assert ax is ax.figure.axes[0]
    assert legend_of(ax.figure) == ["A", "B"]
    for panel, M in zip(shown(ax), (2, 4, 8), strict=True):
        assert panel.get_legend() is None
        assert [line.get_color() for line in panel.lines] == list(COLORS[:2])
        np.testing.assert_allclose([line.get_ydata()[-1] for line in panel.lines], [M, 2 * M])
    assert [panel.get_ylabel() for panel in shown(ax)] == ["regret", "", ""]
    assert [panel.get_xlabel() for panel in shown(ax)] == ["round"] * 3


def test_a_label_looks_the_same_where_others_are_missing():
    rows = [row for label, M in (("A", 2), ("B", 2), ("B", 4)) for row in runs(label, SPREAD, clients=M)]
    first, second = shown(made_of(rows).plot.regret())
    assert second.lines[0].get_color() == first.lines[1].get_color() == COLORS[1]
    ordered = fb.plots.Plots(made_of(rows), order=["B", "A"]).regret()
    assert [line.get_color() for line in ordered.lines] == [COLORS[1], COLORS[0]]


def test_two_places_make_rows_and_columns():
    """The one of more values goes to the right; what is missing stays empty; a third is told by the legend."""
    ax = grid("AB", arms=[5, 9], clients=[2, 4, 8]).plot.regret()
    assert titles(ax) == ["clients=2", "clients=4", "clients=8", "", "", ""]
    assert [text.get_text() for panel in shown(ax)[2::3] for text in panel.texts] == ["arms=5", "arms=9"]
    whole = grid("AB", arms=[5, 9], clients=[2, 4]).to_pandas()
    part = whole[(whole["arms"] == 5) | (whole["clients"] == 2)]
    ragged = fb.Results(part, whole[:0], {}).plot.regret()
    assert [panel.axison for panel in ragged.figure.axes] == [True, True, True, False]
    assert [panel.get_xlabel() for panel in ragged.figure.axes] == ["", "round", "round", ""]
    third = grid("AB", arms=[5, 9], clients=[2, 4, 8], noise=[0.1, 1.0]).plot.regret()
    assert len(shown(third)) == 6
    assert legend_of(third.figure) == ["A, noise=0.1", "B, noise=0.1", "A, noise=1", "B, noise=1"]


def test_many_values_go_down():
    ax = grid("AB", clients=range(1, 9), arms=[5, 9]).plot.regret()
    assert ax.get_subplotspec().get_gridspec().get_geometry() == (8, 2)
    assert titles(ax)[:2] == ["arms=5", "arms=9"]


@pytest.mark.parametrize(("growth", "shared"), [(0.5, True), (2.0, False)])
def test_panels_share_an_axis_unless_one_would_be_flat(growth, shared):
    first, *_, last = shown(grid("AB", growth, clients=[2, 4, 8]).plot.regret())
    assert (first.get_ylim() == last.get_ylim()) is shared
    assert all(panel.get_ylim()[0] == 0 for panel in (first, last))
    assert last.get_ylim()[1] > 2 * 8**growth
    last.figure.canvas.draw()
    assert bool([tick for tick in last.get_yticklabels() if tick.get_visible()]) is not shared


def test_errors_share_a_logarithmic_axis():
    panels = shown(grid("AB", 2.0, clients=[2, 8]).plot.theta_error())
    assert len({panel.get_ylim() for panel in panels}) == 1
    assert {panel.get_yscale() for panel in panels} == {"log"}


def test_one_label_or_a_given_axes_has_one_panel():
    ax = grid("A", clients=[2, 4]).plot.regret()
    assert ax.figure.axes == [ax]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["A, clients=2", "A, clients=4"]
    _, given = plt.subplots()
    assert grid("AB", clients=range(1, 9)).plot.conversations(given) is given
    assert len(given.lines) == 16


@pytest.mark.parametrize("width", [3.3, 6.4])
@pytest.mark.parametrize(("count", "places"), [(2, [2, 4]), (12, [2, 4, 8]), (4, [2, 4, 8, 9, 10, 11])])
def test_all_of_a_figure_is_seen(count, places, width):
    labels = [f"algorithm {i}" for i in range(count)]
    with fb.plots.style(figure_figsize=(width, 3)):
        curves = grid(labels, clients=places).to_pandas()
        long = curves.assign(round=60 * curves["round"], horizon=6000, regret=1000 * curves["regret"])
        figure = fb.Results(long, curves[:0], {}).plot.regret().figure
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        axes = [ax for ax in figure.axes if ax.axison]
        boxes = [ax.get_tightbbox() for ax in axes]
        assert figure.get_size_inches()[0] == pytest.approx(width)
        assert all(ax.get_window_extent().width > 0.9 * figure.dpi for ax in axes)
        assert all(ax.get_window_extent().height > 0.8 * figure.dpi for ax in axes)
        for ax in axes:
            ticks = [tick.get_window_extent() for tick in ax.get_xticklabels() if tick.get_visible()]
            assert not any(a.x1 + 2 > b.x0 for a, b in pairwise(ticks))
    assert not any(legend.overlaps(box) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    for box in (legend, *boxes):
        assert figure.bbox.x0 - 1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0 <= box.y1 <= figure.bbox.y1 + 1


def test_too_many_say_how_to_choose(tmp_path):
    rows = [row for i in range(13) for row in runs(f"A x={i}", SPREAD, x=float(i))] + runs("B", SPREAD)
    allowed = "14 lines are more than the 12 that a panel can tell apart: choose by x or algorithm first"
    with pytest.raises(ValueError, match=rf"^{allowed}, as results.only\(x=0\) does, or pass an ax$"):
        made_of(rows).plot.regret()
    many = grid("AB", clients=range(1, 8), arms=range(1, 8))
    with pytest.raises(ValueError, match=r"^49 panels are more than the 36 of a figure: choose by "):
        many.plot.regret()
    assert not plt.get_fignums(), "no empty figure is left over"
    assert len(made_of(rows).only(x=range(12)).plot.regret().lines) == 12
    many.only(clients=[1, 2]).plot.regret().figure.savefig(tmp_path / "many.png")
    assert (tmp_path / "many.png").is_file()

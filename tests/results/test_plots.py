"""Figures: what their artists show."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import fedbandit_jax as fb
from fedbandit_jax.results.drawing import COLORS, MARKERS, STYLES, apart, pareto_front
from tests.frames import PLACE, made_of, runs

SPREAD = np.array([[0.8, 1.0], [0.9, 1.1], [1.2, 1.0]])  # (user, seed), of mean 1


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def half_of(values):
    units = np.asarray(values).mean(axis=1)
    return scipy.stats.t.ppf(0.975, len(units) - 1) * scipy.stats.sem(units)


def points_of(bars):
    """x, y and the ends of the vertical bars of an errorbar."""
    ends = np.array([segment[:, 1] for segment in bars.lines[2][-1].get_segments()])
    return *bars.lines[0].get_xydata().T, ends


@pytest.fixture
def grid():
    """Regret 10 M^0.5 N for FedConPE, 4 M for LinUCB."""
    rows = []
    for M in (2, 4, 8):
        for N in (1.0, 2.0):
            rows += runs(f"FedConPE N={N:g}", 10 * M**0.5 * N * SPREAD, clients=M, N=N)
        rows += runs("LinUCB", 4 * M * SPREAD, clients=M, N=np.nan)
    return made_of(rows)


# ---------------------------------------------------------------------------------------------------- curves


def test_quantile_bands():
    values = np.arange(20.0).reshape(4, 5) ** 2
    ax = made_of(runs("A", values)).plot.regret(band="quantiles")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [np.median(values) / 2, np.median(values)])
    vertices = ax.collections[0].get_paths()[0].vertices
    ends = vertices[vertices[:, 0] == 100, 1]
    np.testing.assert_allclose([ends.min(), ends.max()], np.quantile(values, [0.1, 0.9]))
    with pytest.raises(ValueError, match=r"^band='sd' is not allowed: it must be 'interval' or 'quantiles'$"):
        made_of(runs("A", values)).plot.regret(band="sd")


def test_the_error_of_the_estimate_is_on_a_logarithmic_axis():
    ax = made_of(runs("A", 0.1 * SPREAD)).plot.theta_error()
    assert ax.get_yscale() == "log"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.05, 0.1])
    assert 0.025 <= ax.get_ylim()[0] < 0.05


def test_conversations():
    ax = made_of(runs("A", SPREAD)).plot.conversations()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [5, 10])
    assert ax.get_ylabel() == "questions per client"
    nothing = made_of([row | {"conversations": 0.0} for row in runs("A", SPREAD)])
    with pytest.raises(ValueError, match=r"^y='log' is not allowed: it must be 'linear', as conversations of A is 0"):
        nothing.plot.curves("conversations", y="log")
    assert len(plt.get_fignums()) == 1, "no empty figure is left over"


def test_lines_differ_without_colour():
    """In grey, line styles and markers tell lines apart; labels keep their colour and places their style."""
    one_place = made_of([row for label in "ABCDEFGHIJ" for row in runs(label, SPREAD)]).plot.regret().lines
    assert len({(line.get_marker(), str(line._dash_pattern)) for line in one_place}) == 10
    assert [line.get_color() for line in one_place] == list(COLORS)
    grid = made_of([row for label in "AB" for M in (2, 3) for row in runs(label, SPREAD, clients=M)])
    several = grid.plot.regret(plt.subplots()[1])
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in several.lines]
    assert looks == [(COLORS[i], MARKERS[i], STYLES[j]) for i in (0, 1) for j in (0, 1)]
    one_label = made_of([row for M in (2, 3) for row in runs("A", SPREAD, clients=M)]).plot.regret().lines
    assert [line.get_color() for line in one_label] == list(COLORS[:2])


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def test_every_colour_stands_out_from_paper():
    """Contrast as the web's accessibility guidelines define it; 2 to 1 suits lines that also have markers."""
    assert all(1.05 / (luminance(color) + 0.05) > 2 for color in COLORS)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_legends_cover_no_data(count):
    ax = made_of([row for i in range(count) for row in runs(f"algorithm {i}", (1 + i) * SPREAD)]).plot.regret()
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert not legend.overlaps(ax.get_window_extent())
    shown = ax.figure.bbox
    assert shown.x0 <= legend.x0
    assert legend.x1 <= shown.x1
    assert legend.y1 <= shown.y1
    assert ax.get_window_extent().width > 0.5 * plt.rcParams["figure.figsize"][0] * ax.figure.dpi


@pytest.mark.parametrize(("count", "y"), [(5, "linear"), (9, "log"), (12, "linear")])
def test_names_of_many_curves_are_at_their_ends(count, y):
    """Beside the axes, in the order of the curves, in their colours; none covers another, and all are seen."""
    results = made_of([row for i in range(count) for row in runs(f"algorithm {i}", (1 + i**2) * SPREAD)])
    ax = results.plot.curves("regret", y=y)
    ax.figure.canvas.draw()
    assert ax.get_legend() is None
    names = [text for text in ax.texts if text.get_text()]
    assert [name.get_text() for name in names] == [f"algorithm {i}" for i in range(count)]
    assert [name.get_color() for name in names] == [line.get_color() for line in ax.lines]
    boxes = [Text.get_window_extent(name) for name in names]
    assert all(a.y1 <= b.y0 + 1 for a, b in pairwise(boxes)), "curves are ordered from the lowest to the highest"
    for box in boxes:
        assert box.x0 >= ax.get_window_extent().x1
        assert box.x1 <= ax.figure.bbox.x1
        assert ax.figure.bbox.y0 <= box.y0 < box.y1 <= ax.figure.bbox.y1
    assert ax.get_window_extent().width > 0.5 * plt.rcParams["figure.figsize"][0] * ax.figure.dpi


def test_heights_are_kept_where_they_are_apart():
    np.testing.assert_allclose(apart(np.array([0.9, 0.1, 0.5]), 0.2), [0.9, 0.1, 0.5])
    np.testing.assert_allclose(apart(np.array([0.5, 0.52, 0.1]), 0.1), [0.46, 0.56, 0.1])
    np.testing.assert_allclose(apart(np.array([1.0, 1.0, 0.0]), 0.2), [0.8, 1.0, 0.0])
    np.testing.assert_allclose(apart(np.zeros(3), 0.2), [0, 0.2, 0.4])


# --------------------------------------------------------------------------------------------------- against


def test_against_shows_means_bars_and_exponents(grid):
    ax = grid.plot.against("clients", x="log", y="log")
    assert legend_of(ax) == [
        "FedConPE N=1: exponent 0.50 [0.50, 0.50]",
        "FedConPE N=2: exponent 0.50 [0.50, 0.50]",
        "LinUCB: exponent 1.00 [1.00, 1.00]",
    ]
    at = np.array([2.0, 4, 8])
    for i, (bars, mean) in enumerate(zip(ax.containers, (10 * at**0.5, 20 * at**0.5, 4 * at), strict=True)):
        x, y, ends = points_of(bars)
        np.testing.assert_allclose(np.log2(x), np.log2(at) + 0.024 * (i - 1))  # side by side, not one on another
        np.testing.assert_allclose(y, mean)
        np.testing.assert_allclose(ends, mean[:, None] + np.outer(mean, [-1, 1]) * half_of(SPREAD), rtol=1e-9)
    fits = [line for line in ax.lines if not line.get_label().startswith("_")]
    np.testing.assert_allclose(fits[2].get_ydata(), 4 * fits[2].get_xdata())
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("clients $M$", "regret")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "4", "8"]


def test_against_without_a_fit_joins_the_points(grid):
    _, given = plt.subplots()
    ax = grid.only("LinUCB").plot.against("clients", "communication", fit=False, interval="log", ax=given)
    assert ax is given
    assert legend_of(ax) == ["LinUCB"]
    x, y, ends = points_of(ax.containers[0])
    np.testing.assert_allclose(y, 400 * x)
    log = grid.only("LinUCB").summary("communication", interval="log")
    np.testing.assert_allclose(ends, log[["low", "high"]])
    assert ax.containers[0].lines[0].get_linestyle() == "-"


def test_against_a_hyperparameter(grid):
    """A label without it makes no line; places have lines of their own."""
    ax = grid.plot.against("N")
    assert legend_of(ax) == [f"FedConPE, clients={M}: exponent 1.00 [1.00, 1.00]" for M in (2, 4, 8)]
    np.testing.assert_allclose(points_of(ax.containers[1])[1], [20, 40])
    assert ax.get_xlabel() == "N"


def test_against_says_what_it_cannot_draw(grid):
    allowed = "it must be a number that varies in these results, here 'clients' or 'N'"
    with pytest.raises(ValueError, match=rf"^parameter='arms' is not allowed: {allowed}$"):
        grid.plot.against("arms")
    with pytest.raises(ValueError, match=r"^x='cubic' is not allowed: it must be 'linear' or 'log'$"):
        grid.plot.against("clients", x="cubic")
    quiet = made_of([row for noise in (0.0, 1.0) for row in runs("A", SPREAD, noise=noise)])
    with pytest.raises(ValueError, match=r"^x='log' is not allowed: it must be 'linear', as noise is 0 somewhere$"):
        quiet.plot.against("noise", x="log")
    assert not plt.get_fignums(), "no empty figure is left over"
    assert legend_of(quiet.plot.against("noise")) == ["A"]


def test_points_of_many_lines_stay_near_their_value():
    rows = [row for label in "ABCDEFGHIJKL" for M in (2, 5, 20) for row in runs(label, M * SPREAD, clients=M)]
    x = np.array([points_of(bars)[0] for bars in made_of(rows).plot.against("clients").containers])
    assert len(np.unique(x)) == x.size
    np.testing.assert_allclose(x.mean(axis=0), [2, 5, 20])
    assert np.abs(x - [2, 5, 20]).max() < 3 / 4, "no point is nearer to another value"


def test_figures_of_several_results_agree():
    both, one = (made_of([row for label in labels for row in runs(label, SPREAD)]) for labels in ("AB", "B"))
    assert (
        fb.plots.Plots(one, order=["A", "B"]).regret().lines[0].get_color() == both.plot.regret().lines[1].get_color()
    )
    assert one.plot.regret().lines[0].get_color() == COLORS[0]


# --------------------------------------------------------------------------------------------------- heat map


def test_heatmap(grid):
    ax = grid.plot.heatmap("clients", "N", "regret", label="FedConPE")
    means = 10 * np.outer([1, 2], np.sqrt([2, 4, 8]))  # N upwards, clients to the right
    np.testing.assert_allclose(ax.collections[0].get_array(), means)
    half = half_of(SPREAD)
    texts = {(text.get_position()): text.get_text() for text in ax.texts}
    for (i, j), mean in np.ndenumerate(means):
        digits = 0 if mean * half > 9.95 else 1  # half an interval has two
        assert texts[j + 0.5, i + 0.5] == f"{mean:.{digits}f}\n± {mean * half:.{digits}f}"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "4", "8"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["1", "2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("clients $M$", "N")
    assert ax.figure.axes[1].get_ylabel() == "regret"
    # Numbers can be read: white on the dark half, black on the bright one.
    colors = ax.collections[0].cmap(ax.collections[0].norm(means.ravel()))
    for text, color in zip(ax.texts, colors, strict=True):
        a, b = sorted([luminance(color), luminance(text.get_color())])
        assert (b + 0.05) / (a + 0.05) > 3.5


def test_a_missing_cell_stays_empty():
    rows = [row for M, K in ((2, 5), (3, 5), (2, 9)) for row in runs("A", [[float(M * K)]], clients=M, arms=K)]
    ax = made_of(rows).plot.heatmap("clients", "arms")
    assert sorted(text.get_text() for text in ax.texts) == ["10", "15", "18"]
    assert ax.collections[0].get_array().mask.tolist() == [[False, False], [False, True]]


def test_heatmap_says_what_it_needs(grid):
    with pytest.raises(ValueError, match=r"^y='arms' is not allowed: it must be a number that varies"):
        grid.plot.heatmap("clients", "arms")
    with pytest.raises(ValueError, match=r"^y='clients' is not allowed: it must be another parameter than x$"):
        grid.plot.heatmap("clients", "clients")
    rows = [
        row
        for M in (2, 3)
        for K in (5, 9)
        for T in (100, 200)
        for row in runs("A", [[1.0]], clients=M, arms=K, noise=T)
    ]
    with pytest.raises(ValueError, match=r"nothing else may vary, but there are noise=100 and noise=200$"):
        made_of(rows).plot.heatmap("clients", "arms")
    with pytest.raises(ValueError, match=r"^label=None is not allowed: it must be 'A' or 'B'$"):
        made_of(
            [row for L in "AB" for M in (2, 3) for K in (5, 9) for row in runs(L, SPREAD, clients=M, arms=K)]
        ).plot.heatmap("clients", "arms")


# -------------------------------------------------------------------------------------------------- trade-off

KNOWN = {"A": (0, 9), "B": (1, 5), "C": (2, 6), "D": (3, 2), "E": (3, 3), "F": (5, 2)}  # questions, regret


def test_the_pareto_front_of_a_known_frame():
    assert pareto_front(np.array(list(KNOWN.values()), float)) == [0, 1, 3]
    assert pareto_front(np.array([[3.0, 1], [1, 3], [2, 2], [2, 2]])) == [1, 2, 3, 0]
    assert pareto_front(np.array([[1.0, 1]])) == [0]


def test_the_front_is_what_nothing_dominates():
    points = np.random.default_rng(0).integers(0, 12, size=(60, 2)).astype(float)
    by_hand = {i for i, p in enumerate(points) if not any((q <= p).all() and (q < p).any() for q in points)}
    front = pareto_front(points)
    assert set(front) == by_hand
    assert (np.diff(points[front, 0]) >= 0).all()
    assert (np.diff(points[front, 1]) <= 0).all()


def known():
    return made_of(
        [
            row | {"conversations": questions * SPREAD[row["user"], row["seed"]]}
            for label, (questions, regret) in KNOWN.items()
            for row in runs(label, regret * SPREAD)
        ]
    )


def names_of(ax):
    """Beside points."""
    return [text.get_text() for text in ax.texts]


def test_tradeoff():
    ax = known().plot.tradeoff("conversations", x_scale="linear")
    assert legend_of(ax) == ["on the front", "dominated", "Pareto front"]
    assert names_of(ax) == list(KNOWN)
    front = next(line for line in ax.lines if line.get_label() == "Pareto front")
    np.testing.assert_allclose(front.get_xydata(), [(0, 9), (0, 9), (1, 5), (3, 2), (5, 2)])
    assert front.get_drawstyle() == "steps-post"
    for bars, (label, (x, y)) in zip(ax.containers, KNOWN.items(), strict=True):
        np.testing.assert_allclose(bars.lines[0].get_xydata(), [(x, y)])
        horizontal, vertical = (c.get_segments()[0] for c in bars.lines[2])
        half = half_of(SPREAD)
        np.testing.assert_allclose(horizontal, [(x - half * x, y), (x + half * x, y)], atol=1e-9)
        np.testing.assert_allclose(vertical, [(x, y - half * y), (x, y + half * y)], atol=1e-9)
        assert bars.lines[0].get_fillstyle() == ("full" if label in "ABD" else "none")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("questions per client", "regret")
    with pytest.raises(ValueError, match=r"^y='regret' is not allowed: it must be another metric than x$"):
        known().plot.tradeoff(x="regret")
    with pytest.raises(ValueError, match=r"^y_scale='log' is not allowed: .* as conversations is 0 somewhere$"):
        known().plot.tradeoff(x="regret", y="conversations", y_scale="log")
    with pytest.raises(ValueError, match=r"^x_scale='sqrt' is not allowed: it must be 'auto' or 'linear' or 'log'$"):
        known().plot.tradeoff(x_scale="sqrt")


def test_nothing_has_a_place_of_its_own_on_a_logarithmic_axis():
    ax = known().plot.tradeoff("conversations", x_scale="log")
    at = {label: bars.lines[0].get_xdata()[0] for label, bars in zip(KNOWN, ax.containers, strict=True)}
    assert at["B"] == 1
    assert 0 < at["A"] < min(x for x, _ in KNOWN.values() if x > 0)
    ticks = dict(zip(ax.get_xticks(), [text.get_text() for text in ax.get_xticklabels()], strict=True))
    assert ticks.pop(at["A"]) == "0"
    assert all(place >= 0.5 and word != "0" for place, word in ticks.items())
    assert ax.get_xlim()[0] < at["A"]


def test_axes_are_logarithmic_where_values_differ_much():
    def scales(*factors):
        rows = [row for i, f in enumerate(factors) for row in runs(f"L{i}", f * SPREAD)]
        ax = made_of(rows).plot.tradeoff()
        return ax.get_xscale(), ax.get_yscale()

    assert scales(1, 2, 4) == ("linear", "linear")
    assert scales(1, 2, 40) == ("log", "log")


def test_variants_are_joined_in_the_order_of_their_number():
    sent = {0.5: 9.0, 1: 4.0, 10: 5.0}
    rows = [
        row | {"communication": x, "alpha": alpha}
        for alpha, x in sent.items()
        for row in runs(f"FedLinUCB alpha={alpha:g}", 10 / x * SPREAD)
    ]
    rows += [row | {"communication": 0.0} for row in runs("LinUCB", 9 * SPREAD)]
    ax = made_of(rows).plot.tradeoff(x_scale="linear")
    # One end has the name of all.
    names = names_of(ax)
    assert names[3] == "LinUCB"
    assert names[:3] in (["FedLinUCB alpha=0.5", "alpha=1", "alpha=10"], ["alpha=0.5", "FedLinUCB alpha=1", "alpha=10"])
    colors = [to_rgb(bars.lines[0].get_color()) for bars in ax.containers]
    assert colors[0] == colors[1] == colors[2] != colors[3]
    line = next(line for line in ax.lines if len(line.get_xdata()) == 3 and line.get_linewidth() < 1)
    assert line.get_xdata().tolist() == [9, 4, 5]
    assert to_rgb(line.get_color()) == colors[0]


def test_names_do_not_cover_each_other_or_points():
    rng = np.random.default_rng(1)
    rows = []
    for i, (x, y) in enumerate(rng.lognormal(sigma=1.2, size=(18, 2))):
        rows += [row | {"communication": 1e4 * x} for row in runs(f"Algorithm{i}", 100 * y * SPREAD)]
    with fb.plots.style(figure_figsize=(6.4, 4.2)):
        ax = made_of(rows).plot.tradeoff()
        ax.figure.canvas.draw()
        boxes = [Text.get_window_extent(text) for text in ax.texts]  # without leaders
        assert len(boxes) == 18
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i])
        points = [ax.transData.transform(bars.lines[0].get_xydata()[0]) for bars in ax.containers]
        assert not any(box.contains(*point) for box in boxes for point in points)
        frame = ax.figure.bbox
        assert all(frame.contains(*corner) for box in boxes for corner in box.corners())


def test_every_place_has_its_own_front(grid):
    """A panel each, or on one axis if that is given."""
    first = grid.plot.tradeoff(x="communication")
    panels = first.figure.axes
    assert [ax.get_title() for ax in panels] == [f"clients={M}" for M in (2, 4, 8)]
    together = grid.plot.tradeoff(x="communication", ax=plt.subplots()[1])
    assert legend_of(together)[-3:] == [f"Pareto front, clients={M}" for M in (2, 4, 8)]
    # Communication is 100 times the regret here, so one setting betters all: the one of least regret.
    ends = zip((8, 16, 10 * 8**0.5), (200**0.5 * 2, 40, 20 * 8**0.5), strict=True)
    for k, (least, most) in enumerate(ends):
        expected = [(100 * least, most), (100 * least, least), (100 * most, least)]
        for ax, place in ((panels[k], ""), (together, f", clients={2 * 2**k}")):
            front = next(line for line in ax.lines if line.get_label() == f"Pareto front{place}")
            np.testing.assert_allclose(front.get_xydata(), expected)


# ----------------------------------------------------------------------------------------------------- phases


@pytest.fixture
def diagnosed():
    shared = {"dataset": "made up", "algorithm": "FedConPE", **PLACE, "elimination_scale": 1.0}
    phases = [
        {
            **shared,
            "label": f"FedConPE N={N}",
            "N": float(N),
            "user": user,
            "seed": 0,
            "phase": phase,
            "eps": 0.5**phase,
        }
        | {"active_mean": 12 / phase + user, "questions": 10 * phase * N, "max_gap": 0.1 / phase}
        | {"lambda_min": 0.1 * user, "lambda_min_after": 0.2 + 0.1 * user, "wanted_information": 0.5 / N}
        for N in (1, 3)
        for user in range(3)
        for phase in (1, 2, 3)
        if phase < 3 or user < 2  # the last user's run ends sooner
    ]
    return made_of(runs("FedConPE N=1", SPREAD) + runs("FedConPE N=3", SPREAD), phases)


def test_phases_show_means_of_those_that_reach_them(diagnosed):
    ax = diagnosed.plot.phases()
    assert legend_of(ax) == ["FedConPE N=1", "FedConPE N=3"]
    x, y, ends = points_of(ax.containers[0])
    np.testing.assert_allclose(x, [1, 2, 3])
    np.testing.assert_allclose(y, [13, 7, 4.5])
    half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem([0, 1, 2])
    np.testing.assert_allclose(ends[1], [7 - half, 7 + half])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("phase", "active arms")
    questions = diagnosed.plot.phases("questions", label="FedConPE N=3")
    np.testing.assert_allclose(points_of(questions.containers[0])[1], [30, 60, 90])


def test_phases_show_eigenvalues_against_what_is_wanted(diagnosed):
    ax = diagnosed.plot.phases("lambda_min", label="FedConPE N=1")
    assert legend_of(ax) == ["FedConPE N=1, after", "FedConPE N=1, before", "FedConPE N=1, wanted $s$"]
    after, before = (points_of(bars)[1] for bars in ax.containers)
    np.testing.assert_allclose(after, [0.3, 0.3, 0.25])
    np.testing.assert_allclose(before, [0.1, 0.1, 0.05])
    wanted = next(line for line in ax.lines if line.get_label().endswith("$s$"))
    np.testing.assert_allclose(wanted.get_ydata(), [0.5, 0.5, 0.5])


def test_phases_show_gaps_against_their_bound(diagnosed):
    ax = diagnosed.plot.phases("max_gap")
    bounds = [line for line in ax.lines if line.get_label().endswith("bound")]
    for bound, N in zip(bounds, (1, 3), strict=True):
        np.testing.assert_allclose(bound.get_xdata(), [2, 3])
        np.testing.assert_allclose(bound.get_ydata(), 8 * np.sqrt(N / 3) * np.array([1 / 4, 1 / 8]))
    np.testing.assert_allclose(points_of(ax.containers[1])[1], [0.1, 0.05, 0.1 / 3])
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize("metric", ["active_mean", "lambda_min_after", "eps", "max_gap", "good_event"])
def test_phases_take_any_column(diagnosed, metric):
    phases = diagnosed.phases()
    phases["good_event"] = phases["user"] > 0
    ax = fb.Results(diagnosed.to_pandas(), phases, {}).plot.phases(metric, label="FedConPE N=1")
    means = phases[phases["label"] == "FedConPE N=1"].groupby("phase")[metric].mean()
    np.testing.assert_allclose(points_of(ax.containers[0])[1], means)
    assert ax.get_ylabel() == {"max_gap": "largest gap of an active arm"}.get(metric, metric)
    assert ax.get_yscale() == ("log" if metric in ("eps", "max_gap") else "linear")
    assert legend_of(ax)[0] == "FedConPE N=1"


def test_what_may_be_negative_is_drawn_whole(diagnosed):
    phases = diagnosed.phases().assign(margin=-1.0)
    ax = fb.Results(diagnosed.to_pandas(), phases, {}).plot.phases("margin")
    assert ax.get_ylim()[0] < -1


def test_phases_say_what_is_not_there(diagnosed):
    with pytest.raises(ValueError, match=r"^metric='regret' is not allowed: it must be 'active' or 'questions' or "):
        diagnosed.plot.phases("regret")
    with pytest.raises(ValueError, match=r"^label='LinPE' is not allowed: it must be 'FedConPE N=1' or "):
        diagnosed.plot.phases("active", label="LinPE")
    with pytest.raises(ValueError, match=r"^metric='questions' is not allowed: no algorithm of these results tells it"):
        made_of(runs("A", SPREAD)).plot.phases("questions")


def test_a_gap_without_its_parameters_has_no_bound(diagnosed):
    phases = diagnosed.phases().assign(N=[1.0] * 8 + [np.nan] * 8)
    ax = fb.Results(diagnosed.to_pandas(), phases, {}).plot.phases("max_gap")
    assert legend_of(ax) == ["FedConPE N=1", "FedConPE N=3", "FedConPE N=1, bound"]


def test_phases_of_real_runs(catalog):
    results = fb.sweep(catalog, fb.FedConPE(), clients=2, arms=7, horizon=400, users=2, checkpoints=4)
    phases = results.phases().groupby("phase")
    for metric, column in (("active", "active_mean"), ("questions", "questions"), ("lambda_min", "lambda_min_after")):
        drawn = points_of(results.plot.phases(metric).containers[0])[1]
        np.testing.assert_allclose(drawn, phases[column].mean(), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ style


def test_style_is_for_paper_and_for_a_while():
    before = dict(plt.rcParams)
    with fb.plots.style(figure_figsize=(3.3, 2.2)):
        assert plt.rcParams["pdf.fonttype"] == plt.rcParams["ps.fonttype"] == 42
        figure = made_of(runs("A", SPREAD)).plot.regret().figure
    np.testing.assert_allclose(figure.get_size_inches(), (3.3, 2.2))
    assert dict(plt.rcParams) == before
    with pytest.raises(ValueError, match=r"^changes='size' is not allowed: it must be one of matplotlib's rcParams"):
        fb.plots.style(size=3)


def test_figures_are_saved_as_vectors_and_pixels(grid, tmp_path):
    with fb.plots.style():
        for name in ("pdf", "svg", "png"):
            for draw in (
                lambda: grid.plot.against("clients"),
                lambda: grid.plot.heatmap("clients", "N", label="FedConPE"),
            ):
                draw().figure.savefig(tmp_path / f"figure.{name}")
                content = (tmp_path / f"figure.{name}").read_bytes()
                assert content[:4] == {"pdf": b"%PDF", "svg": b"<?xm", "png": b"\x89PNG"}[name]
                if name == "pdf":
                    assert b"/Type3" not in content
    with pytest.raises(AttributeError, match="has no attribute 'figures'"):
        fb.figures  # noqa: B018

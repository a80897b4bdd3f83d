"""Intervals, quantiles, paired comparisons and fitted exponents, against computations by hand and simulation."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fedbandit_jax as fb
from benchmarks.coverage import COLUMNS, HARD, PAIRS, SEEDS, SHAPES, USERS, coverage, hard_means, hard_pairs, shapes
from fedbandit_jax.results import statistics
from tests.frames import made_of, runs

NORMAL = np.random.default_rng(0).normal(size=(12, 4))


def by_jackknife(units, of, count=None, level=0.975):
    """Half the t-interval of the mean of the pseudo-values of a function of the units' means; `count` of them weigh."""
    n = len(units)
    whole = of(units.mean(axis=0))
    pseudo = [n * whole - (n - 1) * of(np.delete(units, i, axis=0).mean(axis=0)) for i in range(n)]
    return scipy.stats.t.ppf(level, (count or n) - 1) * scipy.stats.sem(pseudo)


def weighing(units):
    """The effective number of units, by hand."""
    return max(sum(column) ** 2 / sum(column**2) for column in units.T)


def correction(units, weights, level=0.975):
    """What the skew of the users adds to a contrast of logarithms of means, by hand.

    It is 3/2 h min(h, 1) of each column, where h = t s / mean / sqrt(users), without what s / mean = 0.5 makes of h.
    """
    h = scipy.stats.t.ppf(level, len(units) - 1) * scipy.stats.sem(units) / units.mean(axis=0)
    beyond = np.maximum(1 - 0.5 * units.mean(axis=0) / units.std(axis=0, ddof=1), 0)
    return float(weights @ (1.5 * beyond * h * np.minimum(h, 1)))


# ------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("users", USERS)
def test_intervals_cover_as_often_as_they_say(users, seeds):
    """95 ± 1 %; of 20,000 trials a share has a standard error of 0.15 %.

    From five users on, the summary makes room for users that are skewed to either side: half a percent more.
    """
    for name, share in coverage(users, seeds, skew=False).items():
        middle = 0.955 if name == "summary" and users >= statistics.ENOUGH else 0.95
        assert share == pytest.approx(middle, abs=0.01), name


@pytest.mark.parametrize("users", USERS)
def test_intervals_of_skewed_users(users):
    """From five users on, those that differ by factors cost 1 % at most; without the corrections 2 % to 9 %."""
    found = coverage(users, 1, skew=True)
    for name in COLUMNS[2:]:
        assert 0.91 < found[name] < 0.96, name
    assert found['summary "t"'] < found['summary "log"'] - 0.02
    for name, before in (("summary", 'summary "t"'), ("compare", "compare before"), ("exponent", "exponent before")):
        if users >= statistics.ENOUGH:
            assert found[name] == pytest.approx(0.95, abs=0.01), name
            assert found[before] < 0.937, name
        else:
            assert found[name] == pytest.approx(found[before], abs=0.005), name


@pytest.mark.parametrize("users", [5, 20])
def test_means_of_users_of_many_shapes(users):
    """Within 3 standard errors, 1.0 % for 4,000 trials, of at least 95 %; 93 % where one in seven has over 3.5 times
    the median. Resampling keeps it less, and BCa less than t."""
    found = shapes(users)
    for shape, least in zip(SHAPES, (0.94, 0.94, 0.94, 0.93, 0.94), strict=True):
        told = {name: share for name, (share, _) in ((name, row[shape]) for name, row in found.items())}
        assert least - 0.005 < told["auto"] < 0.975, shape
        assert told["auto"] > max(told["t"], told["bootstrap-t"], told["BCa"]) - 0.005, shape
        assert told["BCa"] < told["t"] + 0.025, shape
    assert found["auto"]["normal 0.25"][1] < 1.2
    assert found["auto"]["lognormal 0.8"][1] < 2.1


@pytest.mark.parametrize("case", HARD)
def test_few_means_mislead_where_users_differ_by_factors(case):
    """At 20 users: intervals leave out the truth in at most so many percent, with 3 standard errors (0.7 %).

    Users of a kind that was not played cannot be seen: with one user in 20 of that kind, 0.95^20 = 36 % of the
    experiments have none, and no interval of a mean can help. That of the median holds everywhere.
    """
    found = hard_means(case, 20, trials=4000)
    most = {"lognormal 1.2": 0.07, "lognormal 2.0": 0.10, "one in 20 loses 20 times": 0.36}.get(case, 0.05)
    assert 1 - found["mean"] < most + 0.014
    assert found["mean"] > found['mean "t"'] - 0.005
    assert found["median"] > 0.95 - 0.015  # 2,000 trials
    if case == "lognormal 2.0":
        assert found["no interval"] > 0.7
        assert found['mean "t"'] < 0.65
    if case.startswith("left"):
        assert found["no interval"] < 0.01


@pytest.mark.parametrize("case", PAIRS)
def test_few_comparisons_mislead_where_users_differ_by_factors(case):
    """At 20 users; skew that both learners share does no harm, and what needs no mean holds as it says."""
    found = hard_pairs(case, 20, trials=4000)
    one, other, _ = case
    most = 0.055 if max(one, other) < 2 or one == other else 0.11
    assert 1 - found["percent_below"] < most + 0.014
    for name in ("better_for", "typical_below"):
        assert found[name] > 0.95 - 0.015, name


def test_ends_of_means_by_hand():
    """Users with half / mean of 0.2 and 1.1: from e^-h to e^(h + 2/3 h min(h, 1)); skewed to the left, the low end is
    further, by 3 h (skewness - 1/2) / sqrt(users)."""
    units = np.array([0.0, 1.0, 1.0, 2.0, 5.0])
    half = scipy.stats.t.ppf(0.975, 4) * scipy.stats.sem(units)
    for shift, stretch in ((half / 0.2 - 1.8, 0.2), (half / 1.1 - 1.8, 1.0)):
        columns = np.stack([units + shift, units - 2.1], axis=1)
        mean = columns.mean(axis=0)
        h = half / mean[0]
        low, high = statistics.mean_ends(columns, mean)
        assert [low[0], high[0]] == pytest.approx([mean[0] * np.exp(-h), mean[0] * np.exp(h * (1 + 2 / 3 * stretch))])
        assert [low[1], high[1]] == pytest.approx([mean[1] - half, mean[1] + half])  # one is negative
        few = columns[:4]
        for found, by_t in zip(statistics.mean_ends(few, mean), statistics.mean_ends(few, mean, "t"), strict=True):
            np.testing.assert_array_equal(found, by_t)
    left = 20 - units
    h, g = half / left.mean(), scipy.stats.skew(units)
    assert g > 1
    low, high = statistics.mean_ends(left[:, None], left.mean(keepdims=True))
    ends = np.exp(-h * (1 + 3 / np.sqrt(5) * (g - 0.5))), np.exp(h + 2 / 3 * h**2)
    assert [low[0], high[0]] == pytest.approx([left.mean() * end for end in ends])
    low, high = statistics.mean_ends(np.zeros((6, 1)), np.zeros(1))
    assert (low[0], high[0]) == (0, 0)


def test_a_mean_that_few_users_carry_has_no_interval():
    """Fewer effective units than the square root of all; or, from ten users on, a tail index below 1.1."""
    few = np.array([1.0, 1.0, 1.0, 1.0, 16.0])  # 400 / 260 = 1.5 effective units
    assert statistics.too_few(few[:, None]) == "too few users: 1 of 5 carries half"
    assert np.isnan(statistics.mean_ends(few[:, None], few.mean(keepdims=True))).all()
    assert np.isfinite(statistics.mean_ends(few[:, None], few.mean(keepdims=True), "t")).all()
    enough = np.array([1.0, 1.0, 1.0, 1.0, 4.0])  # 64 / 20 = 3.2
    assert statistics.too_few(enough[:, None]) == ""
    # The upper quarter of twelve users is three: on average, their logarithms lie 0.92 above the fourth largest.
    tail = np.concatenate([np.ones(9), np.exp([0.2, 0.8, 1.76])])
    assert statistics.effective_units(tail[:, None])[0] > np.sqrt(12)
    assert statistics.too_few(tail[:, None], ("LinUCB",)) == ("too few users: 3 of 12 carry half of LinUCB")
    assert not statistics.too_few_carry(np.append(tail[:-1], np.exp(1.7))[:, None])[0]
    assert not statistics.too_few_carry(-few[:, None])[0]
    assert not statistics.too_few_carry(np.zeros((12, 1)))[0]


def test_carriers():
    assert statistics.carriers(np.array([1.0, 1.0, 1.0, 1.0])) == 2
    assert statistics.carriers(np.array([1.0, 9.0, 2.0])) == 1
    assert statistics.carriers(np.zeros(3)) == 0


@pytest.mark.parametrize(("users", "outside"), [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5)])
def test_the_median_by_hand(users, outside):
    """Published tables of order-statistic intervals: of 20 values, the 6th to the 15th."""
    units = np.random.default_rng(0).permutation(users) + 1.0
    median, low, high = statistics.median_interval(units)
    assert (median, low, high) == ((users + 1) / 2, outside + 1, users - outside)


def test_the_median_of_five_users_has_no_interval_of_95_percent():
    """The least and the largest of five hold it with 1 - 2 / 2^5 = 93.75 %."""
    units = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    assert np.isnan(statistics.median_interval(units)[1:]).all()
    assert statistics.median_interval(units, 0.93) == (3, 1, 5)


def test_summary_says_where_it_has_no_interval():
    """Then it tells the median; a reader of all columns always has it."""
    calm, wild = 100 + NORMAL[:6], np.full((6, 4), 2.0)
    wild[3] = 300.0
    results = made_of(runs("calm", calm) + runs("wild", wild))
    assert "note" not in results.only("calm").summary()
    table = results.summary().set_index("label")
    assert table.loc["wild", "note"] == "too few users: 1 of 6 carries half"
    assert table.loc["wild", ["low", "high"]].isna().all()
    assert table.loc["wild", ["median", "median_low", "median_high"]].tolist() == [2, 2, 300]
    assert table.loc["calm", "note"] == ""
    assert table.loc["calm", "low"] < 100 < table.loc["calm", "high"]
    of_t = results.summary(interval="t").set_index("label")
    assert of_t.loc["wild", "note"] == "too few users: 1 of 6 carries half"
    assert np.isfinite(of_t.loc["wild", "high"]), "an interval that was asked for is there, beside the note"
    one = made_of(runs("one", [[1.0, 1.0, 1.0, 1.0, 1.0, 90.0]])).summary().iloc[0]
    assert one["note"] == "too few seeds: 1 of 6 carries half"


def test_compare_counts_users():
    """9 of 10 users are better; the share's interval is Clopper's and Pearson's, 0.555 to 0.997."""
    theirs = np.full((10, 1), 2.0)
    ours = theirs - 1
    ours[4] = 30.0
    results = made_of(runs("ours", ours) + runs("theirs", theirs))
    found = results.compare("ours")
    assert found["better_for"].iloc[0] == "9 of 10 [0.55, 1.00]"
    assert found["note"].iloc[0] == "too few users: 1 of 10 carries half of ours"
    assert found[["low", "high"]].isna().all(axis=None)
    logs = np.log(ours / theirs)[:, 0]
    half = scipy.stats.t.ppf(0.975, 9) * scipy.stats.sem(logs)
    by_hand = [100 * (1 - np.exp(logs.mean() + end)) for end in (0, half, -half)]
    whole = results.compare("ours", columns="all").iloc[0]
    np.testing.assert_allclose(whole[["typical_below", "typical_low", "typical_high"]].astype(float), by_hand)
    equal = made_of(runs("ours", theirs) + runs("theirs", theirs)).compare("ours", columns="all").iloc[0]
    assert (equal["better"], equal["worse"]) == (0, 0)
    assert np.isnan(equal["better_low"])


def test_the_jackknife_by_hand():
    units = np.exp(0.8 * NORMAL)
    weights = np.array([0.5, -2.0, 1.0, 0.0])
    count = weighing(units)
    assert 5 < count < 12
    assert abs(correction(units, weights)) > 0.01

    def by_hand(level):
        half = by_jackknife(units, lambda means: np.log(means) @ weights, count, level)
        shift = correction(units, weights, level)
        return min(shift, 0) - half, max(shift, 0) + half

    assert statistics.log_ends(units, weights) == pytest.approx(by_hand(0.975), rel=1e-9)
    batch = statistics.log_ends(np.stack([units, 7 * units[::-1]]), weights)
    for found, end in zip(batch, by_hand(0.975), strict=True):
        np.testing.assert_allclose(found, end, rtol=1e-9)
    assert statistics.log_ends(units, weights, confidence=0.99) == pytest.approx(by_hand(0.995), rel=1e-9)


def test_few_users_may_carry_both_sides_of_a_ratio():
    """Users that differ by factors of thousands, and a ratio that is much the same for all."""
    theirs = np.exp(2 * NORMAL[:, 0])
    ours = 0.7 * theirs * np.exp(0.01 * NORMAL[:, 1])
    low, high = statistics.log_ends(np.stack([ours, theirs], axis=1), np.array([1.0, -1.0]))
    assert statistics.too_few_carry(np.stack([ours, theirs], axis=1)).all()
    assert -0.1 < low < 0 < high < 0.1
    assert np.isnan(statistics.log_ends(np.stack([0 * ours + 1, theirs], axis=1), np.array([1.0, -1.0]))).all()


def test_effective_units():
    most = np.array([[1.0], [1.0], [1.0], [1.0], [96.0]])
    assert statistics.effective_units(most)[0] == pytest.approx(100**2 / 9220)
    np.testing.assert_allclose(statistics.effective_units(np.hstack([most, np.ones((5, 1))])), [100**2 / 9220, 5])
    assert np.isnan(statistics.effective_units(np.zeros((3, 1)))[0])


def test_what_has_no_jackknife_has_no_interval():
    """One unit, a unit that has all there is, or a mean below zero."""
    for units in ([1.0], [0.0, 0.0, 5.1, 0.0], [0.3, 0.1, 1e12], [-1.0, -2.0, 0.5]):
        assert np.isnan(statistics.log_ends(np.array(units)[:, None], np.ones(1))).all(), units


def test_units_are_users_or_the_seeds_of_one():
    """Every user counts the same, however many seeds it has; the order of runs does not matter."""
    users, values = [0, 1, 0, 0, 2, 2], [1.0, 10.0, 2.0, 3.0, 4.0, 8.0]
    runs_of = pd.DataFrame({"a": values}, index=pd.Index(users, name="user"))
    assert statistics.interval_units(runs_of).tolist() == [[2], [10], [6]]
    assert statistics.interval_units(runs_of.loc[[0]]).tolist() == [[1], [2], [3]]


def test_summary_with_logarithms():
    values = np.exp(NORMAL)
    results = made_of(runs("A", values) + runs("B", [[4.0]]) + runs("C", 100 + NORMAL))
    t, log = (results.summary(interval=interval, columns="all").set_index("label") for interval in ("t", "log"))
    pd.testing.assert_frame_equal(t[["count", "mean", "sd"]], log[["count", "mean", "sd"]])
    half = by_jackknife(values.mean(axis=1), np.log)
    t, log = t[["low", "high"]], log[["low", "high"]]
    np.testing.assert_allclose(log.loc["A"], values.mean() * np.exp([-half, half]), rtol=1e-9)
    assert log.loc["B"].isna().all()
    np.testing.assert_allclose(log.loc["C"], t.loc["C"], atol=0.01)
    with pytest.raises(ValueError, match=r"^interval='bootstrap' is not allowed: it must be 'auto' or 't' or 'log'$"):
        results.summary(interval="bootstrap")


# ------------------------------------------------------------------------------------------------- quantiles


def test_quantiles_of_runs_at_every_checkpoint():
    values = NORMAL + 5
    results = made_of(runs("A", values, N=2.0) + runs("B", 3 * values, N=np.nan))
    table = results.quantiles("conversations", levels=(0.05, 0.5, 0.975))
    assert list(table.columns[-4:]) == ["round", "q5", "q50", "q97.5"]
    assert table[["label", "round"]].values.tolist() == [["A", 50], ["A", 100], ["B", 50], ["B", 100]]
    for i, factor in enumerate((5, 10, 15, 30)):
        by_hand = factor * np.quantile(values, [0.05, 0.5, 0.975])
        np.testing.assert_allclose(table.iloc[i][["q5", "q50", "q97.5"]].astype(float), by_hand, rtol=1e-12)


def test_quantiles_check_their_levels():
    results = made_of(runs("A", NORMAL))
    assert list(results.quantiles().columns[-3:]) == ["q10", "q50", "q90"]
    with pytest.raises(ValueError, match=r"^levels=1.5 is not allowed: it must be a number in \[0, 1\]$"):
        results.quantiles(levels=[0.5, 1.5])
    with pytest.raises(ValueError, match=r"^levels=\[\] is not allowed: it must name at least one quantile$"):
        results.quantiles(levels=[])


# --------------------------------------------------------------------------------------------------- pairing


def test_pairing_pairs():
    """Runs that differ wildly among themselves, by a small and steady amount within a pair."""
    theirs = 100 * np.exp(3 * NORMAL)
    ours = theirs - 10 - NORMAL[::-1]
    rows = runs("ours", ours) + runs("theirs", theirs)
    found = made_of(rows).compare("ours", columns="all").iloc[0]
    assert found["pairs"] == 48
    assert found["difference"] == pytest.approx(np.mean(ours - theirs))
    units = (ours - theirs).mean(axis=1)
    half = scipy.stats.t.ppf(0.975, 11) * scipy.stats.sem(units)
    assert half < 0.5
    for end, sign in (("difference_low", -1), ("difference_high", 1)):
        assert found[end] == pytest.approx(units.mean() + sign * half, rel=1e-9)
    apart = [row | {"user": 11 - row["user"]} if row["label"] == "ours" else row for row in rows]
    mixed = made_of(apart).compare("ours", columns="all").iloc[0]
    assert mixed["difference"] == pytest.approx(found["difference"])
    assert mixed["difference_high"] - mixed["difference_low"] > 50 * half


def test_only_common_runs_are_compared():
    ours = [[1.0, 2.0], [3.0, 4.0], [np.nan, 50.0]]
    theirs = [[2.0, 4.0], [6.0, np.nan], [900.0, np.nan]]
    found = made_of(runs("ours", ours) + runs("theirs", theirs)).compare("ours", columns="all").iloc[0]
    assert (found["pairs"], found["percent_below"]) == (3, 50)
    # Users 0 and 1 have the means 1.5 and 3 against 3 and 6: a difference of -2.25.
    assert found["difference"] == -2.25
    assert found["low"] == pytest.approx(50)
    nothing = made_of(runs("ours", [[1.0, np.nan]]) + runs("theirs", [[np.nan, 1.0]]))
    assert nothing.compare("ours").empty


def test_a_ratio_to_nothing_has_no_percentage():
    found = (
        made_of(runs("ours", [[1.0], [2.0]]) + runs("theirs", [[0.0], [0.0]])).compare("ours", columns="all").iloc[0]
    )
    assert np.isnan(found[["percent_below", "low", "high"]].astype(float)).all()
    assert found["difference"] == 1.5


def test_the_percentage_by_hand():
    """Users 0 and 1 have two seeds each, user 2 one; a higher confidence makes it wider."""
    ours, theirs = [[1.0, 2.0], [3.0, 4.0], [6.0, np.nan]], [[2.0, 4.0], [6.0, 5.0], [7.0, np.nan]]
    results = made_of(runs("ours", ours) + runs("theirs", theirs))
    found = results.compare("ours", columns="all").iloc[0]
    units = np.array([[1.5, 3.0], [3.5, 5.5], [6.0, 7.0]])
    half = by_jackknife(units, lambda means: np.log(means[0] / means[1]))
    ratio = 11 / 15.5
    by_hand = [100 * (1 - ratio * np.exp(end)) for end in (0, half, -half)]
    np.testing.assert_allclose(found[["percent_below", "low", "high"]].astype(float), by_hand, rtol=1e-9)
    wide = results.compare("ours", confidence=0.99, columns="all").iloc[0]
    assert wide["low"] < found["low"] < found["high"] < wide["high"]
    assert wide["difference_low"] < found["difference_low"] < found["difference_high"] < wide["difference_high"]
    with pytest.raises(ValueError, match=r"^confidence=1 is not allowed: it must be a number in \(0, 1\)$"):
        results.compare("ours", confidence=1)


def test_nothing_is_all_below_something():
    """LinUCB asks no questions: 100 % fewer, without doubt, unless there is a single pair."""
    for users, ends in ((3, 100), (1, np.nan)):
        rows = runs("ours", np.zeros((users, 1))) + runs("theirs", 1 + NORMAL[:users, :1] ** 2)
        found = made_of(rows).compare("ours", columns="all").iloc[0]
        np.testing.assert_array_equal(found[["percent_below", "low", "high"]].astype(float), [100, ends, ends])


def test_the_percentage_covers_as_often_as_it_says():
    rng, trials, covered = np.random.default_rng(3), 300, 0
    index = pd.MultiIndex.from_product([range(10), range(3)], names=["user", "seed"])
    for _ in range(trials):
        user = 100 + 20 * rng.normal(size=(10, 1))
        ours, theirs = (share * user + 5 * rng.normal(size=(10, 3)) for share in (0.7, 1.0))
        found = statistics.paired(pd.DataFrame({"a": ours.ravel(), "b": theirs.ravel()}, index=index))
        covered += found["low"] <= 30 <= found["high"]
    assert covered / trials == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / trials))


def test_a_percentage_never_says_less_than_nothing():
    """A few large regrets among tiny ones: the ratio has no useful error of its own, its logarithm has."""
    index = pd.MultiIndex.from_product([range(4), range(4)], names=["user", "seed"])
    theirs = np.full((4, 4), 0.01)
    theirs[1, 2] = 3.0
    found = statistics.paired(pd.DataFrame({"a": np.full(16, 10.0), "b": theirs.ravel()}, index=index))
    assert found["low"] < found["percent_below"] < found["high"] <= 100


# ------------------------------------------------------------------------------------------------- exponents


def power_law_rows(exponents, *, noise=0.0, at=(2, 4, 8, 16)):
    rng = np.random.default_rng(2)
    return [
        row
        for label, exponent in exponents.items()
        for M in at
        for row in runs(label, 3 * M**exponent * np.exp(noise * rng.normal(size=(8, 2))), clients=M)
    ]


def test_the_exponent_of_an_exact_power_law():
    table = made_of(power_law_rows({"A": 0.5, "B": 1.0, "C": -2.0})).exponent("clients")
    assert table["label"].tolist() == ["A", "B", "C"]
    assert (table["points"] == 4).all()
    np.testing.assert_allclose(table[["exponent", "low", "high"]], [[0.5] * 3, [1] * 3, [-2] * 3], rtol=1e-9)
    np.testing.assert_allclose(table["factor"], 3, rtol=1e-9)
    assert list(table.columns[:5]) == ["label", "dataset", "arms", "horizon", "noise"]


def test_users_are_taken_together_across_the_parameter():
    """Users differ by factors of ten but all follow M^0.5: no doubt about the exponent."""
    scale = np.exp(NORMAL)
    rows = [row for M in (2, 5, 9) for row in runs("A", scale * M**0.5, clients=M)]
    found = made_of(rows).exponent("clients").iloc[0]
    np.testing.assert_allclose(found[["exponent", "low", "high"]].astype(float), 0.5, rtol=1e-9)


def test_the_exponent_by_hand():
    results = made_of(power_law_rows({"A": 0.5}, noise=0.2))
    found = results.exponent("clients", label="A").iloc[0]
    means = results.summary().set_index("clients")["mean"]
    slope, intercept = np.polyfit(np.log(means.index), np.log(means), 1)
    assert found["exponent"] == pytest.approx(slope)
    assert found["factor"] == pytest.approx(np.exp(intercept))
    units = results.final().pivot_table(index="user", columns="clients", values="regret").to_numpy()
    half = by_jackknife(units, lambda of: np.polyfit(np.log([2, 4, 8, 16]), np.log(of), 1)[0], weighing(units))
    shift = correction(units, np.array([-3, -1, 1, 3]) / (10 * np.log(2)))
    assert [found["low"], found["high"]] == pytest.approx([slope - half + min(shift, 0), slope + half + max(shift, 0)])
    wide = results.exponent("clients", confidence=0.99).iloc[0]
    assert wide["low"] < found["low"] < found["high"] < wide["high"]


def test_an_exponent_says_why_it_has_no_interval():
    """At M = 2 one of six users carries half of the regret, at M = 8 all are alike."""
    wild = np.full((6, 2), 2.0)
    wild[3] = 300.0
    rows = runs("wild", wild, clients=2) + runs("wild", 100 + NORMAL[:6, :2], clients=8)
    calm = runs("calm", 100 + NORMAL[:6, :2], clients=2) + runs("calm", 200 + NORMAL[:6, :2], clients=8)
    table = made_of(rows + calm).exponent("clients").set_index("label")
    assert table.loc["wild", "note"] == "too few users: 1 of 6 carries half of clients=2"
    assert table.loc["wild", ["low", "high"]].isna().all()
    assert table.loc["calm", "note"] == ""
    assert "note" not in made_of(calm).exponent("clients")


def test_a_swept_hyperparameter_makes_one_line():
    rows = [
        row for N in (1.0, 2.0, 4.0) for row in runs(f"FedConPE N={N:g} C=1", [[N**0.25], [2 * N**0.25]], N=N, C=1.0)
    ]
    rows += runs("FedConPE N=1 C=2", [[5.0], [6.0]], N=1.0, C=2.0)  # a single value makes no line
    rows += runs("LinUCB", [[5.0], [6.0]], N=np.nan)
    results = made_of(rows)
    table = results.exponent("N")
    assert table["label"].tolist() == ["FedConPE C=1"]
    assert table["exponent"].iloc[0] == pytest.approx(0.25)
    assert len(table[["clients", "arms"]].columns) == 2


def test_lines_are_named_by_columns():
    """Whatever the labels say; a column may hold numbers, words and nothing."""
    settings = [{"sigma": sigma, "C": C} for sigma in (None, 0.1) for C in (0.5, "realised")]
    rows = [
        row | {"label": f"variant {i} of N={N}"}
        for i, setting in enumerate(settings)
        for N in (1, 2, 4)
        for row in runs("FedConPE", [[N ** (i + 1.0)]], N=N, **setting)
    ]
    table = made_of(rows + runs("LinUCB", [[5.0]], lam=1.0)).exponent("N")
    assert table["label"].tolist() == [
        "FedConPE sigma=None C=0.5",
        "FedConPE sigma=None C=realised",
        "FedConPE sigma=0.1 C=0.5",
        "FedConPE sigma=0.1 C=realised",
    ]
    np.testing.assert_allclose(table["exponent"], [1, 2, 3, 4])


def test_functions_of_one_name_have_lines_of_their_own():
    """A table has the same text for both; only their labels differ."""
    asked = {"log": ("log", 1), "<lambda> (1)": ("<lambda>", 2), "<lambda> (2)": ("<lambda>", 3)}
    rows = [
        row
        for alpha in (0.5, 1.0, 2.0)
        for name, (text, power) in asked.items()
        for row in runs(f"ArmCon alpha={alpha:g} schedule={name}", [[alpha**power]], alpha=alpha, schedule=text)
    ]
    mixed = [rows[i] for i in (7, 0, 5, 4, 8, 3, 1, 2, 6)]
    for found in (made_of(rows).exponent("alpha"), made_of(mixed).exponent("alpha")):
        exponents = found.set_index("label")["exponent"]
        assert exponents[[f"ArmCon schedule={name}" for name in asked]].tolist() == pytest.approx([1, 2, 3])
        assert len(found) == 3
    alike = [row for row in rows if row["schedule"] == "<lambda>"]
    assert made_of(alike).exponent("alpha")["label"].tolist() == ["ArmCon (1)", "ArmCon (2)"]


def test_many_functions_keep_their_numbers():
    rows = [
        row
        for alpha, order in ((1.0, range(12)), (2.0, reversed(range(12))))
        for i in order
        for row in runs(f"A alpha={alpha:g} b=f ({i + 1})", [[alpha**i]], alpha=alpha, b="f")
    ]
    found = made_of(rows).exponent("alpha").set_index("label")["exponent"]
    np.testing.assert_allclose(found[[f"A ({i + 1})" for i in range(12)]], range(12), atol=1e-9)


def test_a_swept_place_leaves_labels_as_they_are():
    """Though of one variant alone, columns would not name N."""
    rows = [row for M in (2, 3) for N in (1.0, 2.0) for row in runs(f"A N={N:g}", [[M * N]], clients=M, N=N)]
    assert made_of(rows).only("A N=2").exponent("clients")["label"].tolist() == ["A N=2"]


def test_each_place_has_its_own_exponent():
    rows = [row for K, p in ((5, 1.0), (9, 2.0)) for M in (2, 3) for row in runs("A", [[M**p]], clients=M, arms=K)]
    table = made_of(rows).exponent("clients")
    assert table[["arms", "exponent"]].round(9).values.tolist() == [[5, 1], [9, 2]]
    assert table["low"].isna().all()


def test_what_has_no_logarithm_has_no_exponent():
    rows = [row for noise in (0.0, 1.0, 2.0) for row in runs("A", [[1 + noise]], noise=noise)]
    assert np.isnan(made_of(rows).exponent("noise")["exponent"].iloc[0])
    rows = [row | {"conversations": 0.0} for row in power_law_rows({"A": 0.5})]
    assert np.isnan(made_of(rows).exponent("clients", "conversations")["exponent"].iloc[0])


def test_exponent_says_what_varies():
    results = made_of(power_law_rows({"A": 0.5}))
    varies = "it must be a number that varies in these results, here 'clients'$"
    for parameter in ("arms", "dataset", "label", "N"):
        with pytest.raises(ValueError, match=rf"^parameter='{parameter}' is not allowed: {varies}"):
            results.exponent(parameter)
    with pytest.raises(ValueError, match=r"^parameter='arms' is not allowed: .*, here none does$"):
        made_of(runs("A", [[1.0]])).exponent("arms")
    with pytest.raises(ValueError, match=r"^label='B' is not allowed: it must be 'A'$"):
        results.exponent("clients", label="B")


def test_statistics_of_real_runs(catalog):
    results = fb.sweep(catalog, fb.Uniform(), clients=[2, 4], arms=7, horizon=300, users=2, seeds=2, checkpoints=4)
    assert results.exponent("clients")["exponent"].iloc[0] == pytest.approx(
        1, abs=0.2
    )  # M clients lose M times as much
    assert len(results.quantiles()) == 2 * 4

"""Tables, statistics, storage and figures of results."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fedbandit_jax as fb
from fedbandit_jax.clocks.base import METRICS
from fedbandit_jax.results.results import missing_as_nan
from tests.frames import PLACE, curves_of

ROUNDS = np.array([50, 100])


def made_up(values, *, users, seeds, labels=("FedConPE",), clients=(3,)):
    """Results whose final regret is `values` (label, clients, user, seed); half of it at half time."""
    values = np.asarray(values, float).reshape(len(labels), len(clients), len(users), len(seeds))
    tables = []
    for label, regrets in zip(labels, values, strict=True):
        rows = [
            {"algorithm": label, "label": label, "clients": M, "arms": 5, "horizon": 100, "noise": 0.1}
            | {"user": user, "seed": seed, "N": 1.0 if label == "FedConPE" else np.nan}
            for M in clients
            for user in users
            for seed in seeds
        ]
        final = regrets.ravel()
        curve = np.stack([final / 2, final], axis=1)
        metrics = dict(zip(METRICS, (curve, 10 * curve, 100 * curve, 1 / (1 + curve)), strict=True))
        tables.append(curves_of(pd.DataFrame(rows), ROUNDS, metrics))
    return fb.Results(pd.concat(tables, ignore_index=True), pd.DataFrame(), {"seed": 0})


@pytest.fixture(scope="module")
def played(catalog):
    return fb.sweep(
        catalog,
        [fb.FedConPE(N=[1, 2.0]), fb.Uniform()],
        clients=2,
        arms=7,
        horizon=600,
        users=3,
        seeds=2,
        checkpoints=16,
    )


# ---------------------------------------------------------------------------------------------------- tables

HYPERPARAMETERS = {
    *("N", "C", "delta", "sigma", "exploration_scale", "elimination_scale"),
    *("rounding", "key_term_rule", "design_tol", "design_method", "null_space", "ridge"),
}
SENT = ["uploads", "downloads", "scalars_up", "scalars_down"]
RUN_COLUMNS = ["dataset", "algorithm", "label", "clients", "arms", "horizon", "noise", "user", "seed"]


def test_tidy_columns(played):
    table = played.to_pandas()
    columns = list(table.columns)
    assert columns[:9] == RUN_COLUMNS
    assert set(columns[9:-9]) == HYPERPARAMETERS
    assert columns[-9:] == ["round", "regret", "conversations", "communication", "theta_error", *SENT]
    assert len(table) == (2 + 1) * 3 * 2 * 16
    run = table.iloc[16 * 7 : 16 * 8]  # the eighth run: N = 2, user 0, seed 1
    assert run[["dataset", "label", "user", "seed", "N"]].drop_duplicates().values.tolist() == [
        ["synthetic", "FedConPE N=2", 0, 1, 2.0]
    ]
    np.testing.assert_array_equal(run["round"], np.linspace(600 / 16, 600, 16).round())
    assert table["round"].dtype == np.int64
    assert (run["regret"].diff().dropna() >= 0).all()


def test_final_rows(played):
    final = played.final()
    assert len(final) == 3 * 3 * 2
    assert (final["round"] == 600).all()
    assert not final.duplicated(["label", "user", "seed"]).any()
    assert list(final.columns) == list(played.to_pandas().columns)


def test_finals_of_several_horizons(catalog):
    results = fb.sweep(catalog, fb.Uniform(), clients=2, arms=7, horizon=[600, 300], users=1, checkpoints=16)
    final = results.final()
    assert final[["horizon", "round"]].values.tolist() == [[600, 600], [300, 300]]


def test_tables_are_copies(played):
    for table in (played.to_pandas(), played.phases(), played.final()):
        table.loc[:, "theta_error"] = -1.0
    for table in (played.to_pandas(), played.phases(), played.final()):
        assert (table["theta_error"] >= 0).all()


def test_phases(played):
    phases = played.phases()
    wanted = ["phase", "length", "active_min", "active_mean", "active_max", "questions", "lambda_min"]
    wanted += ["lambda_min_after", "lemma_holds", "good_event", "best_arm_active", "theta_error"]
    assert HYPERPARAMETERS | set(RUN_COLUMNS + wanted) <= set(phases.columns)
    assert set(phases["algorithm"]) == {"FedConPE"}
    for name in ("complete", "lemma_holds", "good_event", "best_arm_active"):
        assert phases[name].dtype == bool
    for _, run in phases.groupby(["label", "user", "seed"]):
        assert run["phase"].tolist() == list(range(1, len(run) + 1))
        assert run["length"].sum() == 600
        np.testing.assert_array_equal(run["start"], run["length"].cumsum() - run["length"])
        assert run["complete"].iloc[:-1].all()


def test_phases_say_what_the_curves_say(played):
    """Every column holds what its name says."""
    phases, final = played.phases(), played.final().set_index(["label", "user", "seed"])
    np.testing.assert_array_equal(phases["eps"], 0.5 ** phases["phase"])
    np.testing.assert_allclose(phases["wanted_information"], 3 / (4 * (1 - phases["eps"] ** 2) * 6 * phases["N"]), 1e-5)
    assert (phases["active_min"] >= 1).all()
    assert (phases["active_min"] <= phases["active_mean"]).all()
    assert (phases["active_mean"] <= phases["active_max"]).all()
    assert (phases["active_max"] <= 7).all()
    assert (phases["lambda_min_after"] >= phases["lambda_min"] - 1e-6).all()
    assert (phases["questions"] <= phases["length"]).all()
    held = phases["lambda_min_after"] >= phases["wanted_information"] * (1 - 1e-4)
    np.testing.assert_array_equal(phases["lemma_holds"], held)
    for run, rows in phases.groupby(["label", "user", "seed"]):
        assert rows["questions"].sum() == pytest.approx(final.loc[run, "conversations"])
        assert rows["theta_error"].iloc[-1] == final.loc[run, "theta_error"]
        # Per client and phase: 1 + d up and 1 + d + 1 down for a pair, d^2 + d up and d down.
        scalars = rows["uploaded"] * (7 + 8) + 36 + 6 + 6
        assert 2 * scalars.sum() == pytest.approx(final.loc[run, "communication"])


def test_only(played):
    some = played.only("FedConPE N=2", "Uniform")
    assert some.final()["label"].unique().tolist() == ["FedConPE N=2", "Uniform"]
    assert some.phases()["label"].unique().tolist() == ["FedConPE N=2"]
    assert repr(some) == "Results(12 runs of FedConPE N=2, Uniform)"
    assert played.only("Uniform").phases().empty
    with pytest.raises(ValueError, match=r"^label='LinUCB' is not allowed: it must be 'FedConPE N=1' or "):
        played.only("LinUCB")


@pytest.fixture
def counted():
    """FedConPE alone counts uploads, N for each client, half of them at half time."""

    def program(title, label, hyperparameters, uploads):
        rows = [
            {"dataset": "made up", "algorithm": title, "label": label, "clients": M, "arms": 5, "horizon": 100}
            | {"noise": 0.1, "user": user, "seed": 0, **hyperparameters, "round": t, "regret": float(M * t)}
            | {name: M * each * t / 100 for name, each in uploads.items()}
            for M in (3, 9)
            for user in (0, 1)
            for t in ROUNDS
        ]
        return pd.DataFrame(rows), pd.DataFrame()

    ours = [program("FedConPE", f"FedConPE N={N}", {"N": float(N)}, {"uploads": N}) for N in (1, 2)]
    return fb.Results.from_tables([program("LinUCB", "LinUCB", {"alpha": 0.5}, {}), *ours], {})


def test_metrics_are_the_columns_behind_the_round(played, counted, tmp_path):
    everyones = ["regret", "conversations", "communication", "theta_error"]
    assert played.metrics == [*everyones, *SENT]
    assert (played.only("Uniform").final()[SENT] == 0).all(axis=None), "who sends nothing has none"
    for results in (counted, fb.Results.load(counted.save(tmp_path))):
        assert results.metrics == ["regret", "uploads"]
        assert results.setting_columns() == [*RUN_COLUMNS[:-2], "alpha", "N"]
        assert list(results.to_pandas().columns[-3:]) == ["round", *results.metrics]
    assert counted.only("LinUCB").metrics == ["regret"]


def test_what_an_algorithm_counts_has_statistics(counted):
    """Of those that tell it; the others have none, and no line in a figure."""
    summary = counted.summary("uploads").set_index(["label", "clients"])["mean"]
    assert summary["LinUCB"].isna().all()
    assert summary["FedConPE N=2"].tolist() == [6, 18]
    exponents = counted.exponent("clients", "uploads")
    assert exponents["label"].tolist() == ["FedConPE N=1", "FedConPE N=2"]
    np.testing.assert_allclose(exponents["exponent"], 1)
    assert counted.compare("FedConPE N=1", "uploads")["percent_below"].tolist() == [50, 50]
    allowed = r"^metric='uploads' is not allowed: it must be 'regret'$"
    for ask in (counted.only("LinUCB").summary, counted.only("LinUCB").plot.curves):
        with pytest.raises(ValueError, match=allowed):
            ask("uploads")


def test_what_an_algorithm_counts_is_drawn(counted):
    def names(ax):
        return [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()]

    curves, against = counted.plot.curves("uploads", plt.subplots()[1]), counted.plot.against("clients", "uploads")
    assert names(curves) == [f"FedConPE N={N}, clients={M}" for N in (1, 2) for M in (3, 9)]
    np.testing.assert_allclose([line.get_ydata() for line in curves.lines], [[1.5, 3], [4.5, 9], [3, 6], [9, 18]])
    assert names(against) == ["FedConPE N=1", "FedConPE N=2"]
    tradeoff = counted.plot.tradeoff("uploads")
    assert [text.get_text() for text in tradeoff.texts] == ["FedConPE N=1", "N=2"]
    heatmap = counted.plot.heatmap("clients", "N", "uploads")
    np.testing.assert_allclose(heatmap.collections[0].get_array(), [[3, 9], [6, 18]])
    assert curves.get_ylabel() == against.get_ylabel() == tradeoff.get_xlabel() == "uploads"
    assert heatmap.figure.axes[1].get_ylabel() == "uploads"
    with pytest.raises(ValueError, match=r"^x='reward' is not allowed: it must be 'regret' or 'uploads'$"):
        counted.plot.tradeoff("reward")
    plt.close("all")


def test_who_sends_nothing_has_no_messages():
    """0 in a table with others who count them, also after a load; missing where scalars are sent and not told of."""

    def program(label, sent, **counts):
        row = {"dataset": "made up", "algorithm": label, "label": label, **PLACE}
        rows = [
            row
            | {"user": user, "seed": 0, "round": t, "regret": float(t + user), "communication": float(sent * t)}
            | {name: float(each * t) for name, each in counts.items()}
            for user in (0, 1)
            for t in ROUNDS
        ]
        return pd.DataFrame(rows), pd.DataFrame()

    told = program("SharedLinUCB", 12, uploads=3, bits_up=64)
    results = fb.Results.from_tables([program("LinUCB", 0), told, program("FedConPE", 7)], {})
    means = results.summary("uploads").set_index("label")["mean"]
    assert means["LinUCB"] == 0
    assert means["SharedLinUCB"] == 300
    assert np.isnan(means["FedConPE"])
    assert results.summary("bits_up").set_index("label").loc["LinUCB", "mean"] == 0
    assert results.compare("LinUCB", "uploads")["percent_below"].tolist() == [100]
    assert results.final().set_index("label").loc["LinUCB", "uploads"].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"^metric='uploads' is not allowed: FedConPE does not count it$"):
        results.compare("FedConPE", "uploads")
    assert fb.Results.from_tables([program("LinUCB", 0)], {}).metrics == ["regret", "communication"]


def test_messages_of_a_sweep_are_found_again(catalog, tmp_path):
    """In memory, in the sweep's folder and in a saved one; where runs do not have them, there are none."""
    algorithms, setting = [fb.SharedLinUCB(), fb.LinUCB()], {"arms": 5, "horizon": 40, "users": 2, "checkpoints": 2}
    played = fb.simulate(catalog, algorithms, clients=3, **setting, out=tmp_path / "sweep")
    for results in (
        played,
        fb.Results.load(tmp_path / "sweep"),
        fb.Results.load(played.save(tmp_path / "saved")),
    ):
        means = {m: results.summary(m).set_index("label")["mean"] for m in ("uploads", "downloads", "scalars_up")}
        assert [means["uploads"][label] for label in ("SharedLinUCB", "LinUCB")] == [120, 0]
        assert [means["downloads"][label] for label in ("SharedLinUCB", "LinUCB")] == [120, 0]
        assert means["scalars_up"]["SharedLinUCB"] == 120 * (catalog.dim + 1)
    without = played.to_pandas().drop(columns=["uploads", "downloads", "scalars_up", "scalars_down"])
    fb.Results(without, pd.DataFrame(), {}).save(tmp_path / "old")
    assert fb.Results.load(tmp_path / "old").metrics == list(METRICS)


# ------------------------------------------------------------------------------------------------ statistics


def test_the_interval_treats_users_as_the_units():
    """Seeds of a user are averaged first: they share the user, so they are no independent units."""
    rng = np.random.default_rng(0)
    values = 10 * rng.normal(size=(1, 1, 6, 1)) + rng.normal(size=(1, 1, 6, 4)) + 100
    results = made_up(values, users=range(6), seeds=range(4))
    row, auto = (results.summary(interval=name, columns="all").iloc[0] for name in ("t", "auto"))
    means = values[0, 0].mean(axis=1)
    low, high = scipy.stats.t.interval(0.95, 5, loc=means.mean(), scale=scipy.stats.sem(means))
    np.testing.assert_allclose(row[["mean", "low", "high"]].astype(float), [values.mean(), low, high], rtol=1e-12)
    h = high / means.mean() - 1
    assert -scipy.stats.skew(means) < 0.5
    ends = means.mean() * np.exp([-h, h + 2 / 3 * h**2])
    np.testing.assert_allclose(auto[["low", "high"]].astype(float), ends, rtol=1e-12)
    assert results.summary(columns="all").iloc[0].equals(auto)
    assert row["count"] == 24
    assert row["sd"] == pytest.approx(values.std(ddof=1), rel=1e-12)


def test_the_interval_of_one_user_is_over_seeds():
    values = np.array([3.0, 5.0, 4.0, 8.0])
    row = made_up(values, users=[2], seeds=range(4)).summary().iloc[0]
    low, high = scipy.stats.t.interval(0.95, 3, loc=5.0, scale=scipy.stats.sem(values))
    np.testing.assert_allclose(row[["mean", "low", "high"]].astype(float), [5, low, high], rtol=1e-12)


def test_one_run_has_no_interval():
    row = made_up([3.0], users=[0], seeds=[0]).summary(columns="all").iloc[0]
    assert (row["count"], row["mean"]) == (1, 3)
    assert np.isnan(row[["sd", "low", "high"]].astype(float)).all()


def test_a_summary_has_a_row_per_setting():
    values = np.arange(16.0)  # 2 labels, 2 numbers of clients, 2 users, 2 seeds
    results = made_up(values, users=[0, 1], seeds=[0, 1], labels=("FedConPE", "Uniform"), clients=(3, 4))
    summary = results.summary("communication")
    assert summary[["label", "clients"]].values.tolist() == [
        ["FedConPE", 3],
        ["FedConPE", 4],
        ["Uniform", 3],
        ["Uniform", 4],
    ]
    np.testing.assert_allclose(summary["mean"], [150, 550, 950, 1350])
    with pytest.raises(ValueError, match=r"^metric='reward' is not allowed: it must be 'regret' or "):
        results.summary("reward")


def test_compare_is_paired():
    """Exactly 20 % less in every pair leaves no doubt, however much the pairs differ among themselves."""
    theirs = np.array([[10.0, 1000.0], [50.0, 7.0], [300.0, 40.0]])
    results = made_up([0.8 * theirs, theirs], users=range(3), seeds=range(2), labels=("FedConPE", "LinUCB"))
    row = results.compare("FedConPE", columns="all").iloc[0]
    assert (row["label"], row["other"], row["pairs"], row["clients"]) == ("FedConPE", "LinUCB", 6, 3)
    np.testing.assert_allclose(row[["percent_below", "low", "high"]].astype(float), 20, rtol=1e-9)
    above = results.compare("LinUCB").iloc[0]
    assert above["percent_below"] == pytest.approx(-25)


def test_compare_has_an_interval_over_users():
    rng = np.random.default_rng(1)
    theirs = 100 + rng.normal(size=(40, 3))
    ours = 70 + 10 * rng.normal(size=(40, 1)) + rng.normal(size=(40, 3))
    row = (
        made_up([ours, theirs], users=range(40), seeds=range(3), labels=("FedConPE", "LinUCB"))
        .compare("FedConPE")
        .iloc[0]
    )
    assert row["percent_below"] == pytest.approx(100 * (1 - ours.mean() / theirs.mean()))
    # Nearly all the spread is that of the 40 user means of `ours`; their ratio to 100 makes it a percentage. It is
    # nearly symmetric, as the interval of the ratio's logarithm is short.
    half = scipy.stats.t.ppf(0.975, 39) * scipy.stats.sem(ours.mean(axis=1))
    assert row["high"] - row["percent_below"] == pytest.approx(half, rel=0.05)
    assert row["percent_below"] - row["low"] == pytest.approx(half, rel=0.05)


def test_compare_stays_within_a_place_and_checks_its_label():
    values = [[[10.0, 20.0]], [[40.0, 30.0]], [[20.0, 40.0]], [[80.0, 60.0]]]
    results = made_up(values, users=[0, 1], seeds=[0], labels=("FedConPE", "LinUCB"), clients=(3, 4))
    found = results.compare("FedConPE")
    # 3 clients: 30 against 60; 4 clients: 70 against 140.
    assert found[["clients", "other"]].values.tolist() == [[3, "LinUCB"], [4, "LinUCB"]]
    np.testing.assert_allclose(found["percent_below"], [50, 50])
    with pytest.raises(ValueError, match=r"^label='ConUCB' is not allowed"):
        results.compare("ConUCB")


def test_compare_one_pair():
    row = made_up([1.0, 4.0], users=[0], seeds=[0], labels=("A", "B")).compare("A", columns="all").iloc[0]
    assert (row["pairs"], row["percent_below"]) == (1, 75)
    assert np.isnan(row["low"])
    assert np.isnan(row["high"])


# --------------------------------------------------------------------------------------------------- storage


def test_saved_results_come_back(played, tmp_path):
    folder = played.save(tmp_path / "a" / "b")
    files = ["SHA256SUMS", "curves.parquet", "phases.parquet", "settings.json"]
    assert sorted(p.name for p in folder.iterdir()) == files
    loaded = fb.Results.load(folder)
    pd.testing.assert_frame_equal(loaded.to_pandas(), played.to_pandas())
    pd.testing.assert_frame_equal(loaded.phases(), played.phases())
    pd.testing.assert_frame_equal(loaded.summary(), played.summary())
    assert loaded.settings == played.settings
    assert {"seed", "catalogs", "versions", "devices", "compile_seconds", "run_seconds"} <= set(loaded.settings)


def test_words_and_numbers_in_one_column_come_back(tmp_path):
    """C is a number or "realised", sigma a number or None."""
    runs = {"label": list("abcd"), "horizon": 100, "user": 0, "seed": 0, "C": [1.0, 0.5, "realised", np.nan]}
    runs = pd.DataFrame(runs | {"sigma": [None, None, 0.1, 1], "rounding": ["ceil", "unbiased", "ceil", np.nan]})
    curves = curves_of(missing_as_nan(runs), ROUNDS[1:], dict.fromkeys(METRICS, np.ones((4, 1))))
    results = fb.Results(curves, pd.DataFrame(), {})
    loaded = fb.Results.load(results.save(tmp_path))
    pd.testing.assert_frame_equal(loaded.to_pandas(), results.to_pandas())
    assert loaded.to_pandas()["C"].tolist()[:3] == [1.0, 0.5, "realised"]
    assert loaded.to_pandas()["rounding"].tolist()[:3] == ["ceil", "unbiased", "ceil"]
    np.testing.assert_array_equal(loaded.to_pandas()["sigma"], [np.nan, np.nan, 0.1, 1])
    assert loaded.phases().empty
    assert len(loaded.summary()) == 4


@pytest.mark.parametrize("present", [[], ["settings.json"]])
def test_load_of_a_folder_without_results(tmp_path, present):
    for name in present:
        (tmp_path / name).write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"holds no saved results: curves.parquet, phases.parquet"):
        fb.Results.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere holds no saved results: .*settings.json not found"):
        fb.Results.load(tmp_path / "nowhere")


# --------------------------------------------------------------------------------------------------- figures


def band_of(ax, i):
    """Lower and upper edge of the i-th band, by round."""
    vertices = ax.collections[i].get_paths()[0].vertices
    rounds = np.unique(vertices[:, 0])
    return rounds, *(np.array([f(vertices[vertices[:, 0] == t, 1]) for t in rounds]) for f in (np.min, np.max))


def test_the_regret_plot_shows_means_and_bands():
    values = np.array([[[10.0, 14.0], [20.0, 16.0], [30.0, 36.0]], [[50.0, 60.0], [70.0, 70.0], [90.0, 85.0]]])
    results = made_up(values, users=range(3), seeds=range(2), labels=("FedConPE", "Uniform"))
    ax = results.plot.regret()
    assert len(ax.lines) == len(ax.collections) == 2
    for i in range(2):
        units = values[i].mean(axis=1)
        half = scipy.stats.t.ppf(0.975, 2) * scipy.stats.sem(units)
        np.testing.assert_allclose(ax.lines[i].get_xdata(), ROUNDS)
        np.testing.assert_allclose(ax.lines[i].get_ydata(), [units.mean() / 2, units.mean()])
        rounds, low, high = band_of(ax, i)
        np.testing.assert_allclose(rounds, ROUNDS)
        np.testing.assert_allclose(high, [(units.mean() + half) / 2, units.mean() + half])
        np.testing.assert_allclose(low, [(units.mean() - half) / 2, units.mean() - half])
        band, line = ax.collections[i].get_facecolor()[0, :3], ax.lines[i].get_color()
        np.testing.assert_allclose(band, plt.matplotlib.colors.to_rgb(line))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["FedConPE", "Uniform"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("round", "regret")
    plt.close(ax.figure)


def test_plots_name_what_differs_and_take_an_axes():
    results = made_up(np.arange(4.0) + 1, users=[0, 1], seeds=[0], clients=(3, 4))
    _, given = plt.subplots()
    ax = results.plot.curves("conversations", given)
    assert ax is given
    assert [line.get_label() for line in ax.lines] == ["FedConPE, clients=3", "FedConPE, clients=4"]
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [17.5, 35])
    with pytest.raises(ValueError, match=r"^metric='reward' is not allowed"):
        results.plot.curves("reward")
    plt.close(ax.figure)


def test_a_single_run_is_drawn_without_a_band():
    ax = made_up([4.0], users=[0], seeds=[0]).plot.regret()
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 4])
    _, low, high = band_of(ax, 0)
    np.testing.assert_array_equal(low, high)
    plt.close(ax.figure)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_of_a_real_run_is_drawn(played, metric):
    ax = played.plot.curves(metric)
    table = played.to_pandas()
    for line, label in zip(ax.lines, ("FedConPE N=1", "FedConPE N=2", "Uniform"), strict=True):
        mean = table[table["label"] == label].groupby("round")[metric].mean()
        np.testing.assert_allclose(line.get_ydata(), mean)
    plt.close(ax.figure)

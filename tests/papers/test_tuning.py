"""Tuning: Sobol points, halving on common random numbers, an equal budget, what is told of it."""

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax._parameters import search_space
from fedbandit_jax.engine import calls
from fedbandit_jax.papers.fedconpe import LINE_UP
from fedbandit_jax.papers.tuning.search import draw_trials, rungs_of
from fedbandit_jax.papers.tuning.tuned import budget_of

SETTING = {"dim": 6, "clients": 2, "arms": 5, "horizon": 10**6, "noise": 0.1}
SMALL = {"clients": 1, "arms": 4, "horizon": 20, "progress": False}


@dataclass(frozen=True, kw_only=True)
class Valley(fb.Algorithm, abstract=True):
    """Regret is least at alpha = 0.3 and lam = 2; users differ by factors, runs by chance, rule "b" is twice as bad."""

    alpha: float = fb.param(1.0, low=0, search=fb.Between(0.01, 10))
    lam: float = fb.param(1.0, low=0, search=fb.Between(0, 4, log=False))
    rule: str = fb.param("a", words=("a", "b"), search=fb.OneOf(("a", "b")))
    chance: float = 0.3

    def run(self, key, problem, checkpoints):
        own = jax.random.fold_in(key, (1e6 * self.alpha).astype(jnp.int32))
        size = jnp.exp(jax.random.normal(key) + self.chance * jax.random.normal(own))
        slope = 1 + jnp.log(self.alpha / 0.3) ** 2 + (self.lam - 2) ** 2
        slope = jnp.where(self.alpha > 9, jnp.inf, slope)
        regret = (2 if self.rule == "b" else 1) * slope * size * checkpoints
        return fb.Trace(regret, 0 * regret, 0 * regret, 0 * checkpoints)


@dataclass(frozen=True, kw_only=True)
class Words(Valley, abstract=True):
    """A space of two points."""

    alpha: float = 0.3
    lam: float = 2.0


@pytest.fixture
def computed(monkeypatch):
    """Runs that each sweep has computed."""
    counts, sweep = [], calls.sweep

    def counted(*given, **options):
        results = sweep(*given, **options)
        counts.append(results.settings["runs_computed"])
        return results

    monkeypatch.setattr(calls, "sweep", counted)
    return counts


@pytest.fixture(scope="module")
def users():
    return fb.datasets.synthetic(seed=0, dim=3, num_arms=20, num_key_terms=5, num_users=50)


@pytest.fixture(scope="module")
def valley(users):
    return fb.tune(users, [Valley(), fb.Uniform(), Valley(chance=0.1)], trials=64, **SMALL)


# ------------------------------------------------------------------------------------------------------------- trials


@pytest.mark.parametrize("algorithm", LINE_UP, ids=lambda a: a.title)
def test_trials(algorithm):
    """Equally many, all different and allowed, inside their space; the default first; fewer are a prefix of more."""
    trials = draw_trials(algorithm, 40, **SETTING)
    assert len(trials) == 40
    assert trials[0] == algorithm
    assert draw_trials(algorithm, 7, **SETTING) == trials[:7]
    space = search_space(type(algorithm))
    assert len({tuple(trial.hyperparameters()[name] for name in space) for trial in trials}) == 40
    for trial in trials[1:]:
        trial.check(**SETTING)
        for name, values in space.items():
            drawn = trial.hyperparameters()[name]
            assert values.low <= drawn <= values.high if isinstance(values, fb.Between) else drawn in values.words
        same = {name: value for name, value in trial.hyperparameters().items() if name not in space}
        assert same == {name: value for name, value in algorithm.hyperparameters().items() if name not in space}


def test_points_fill_the_space_evenly():
    """Of 64 Sobol points, every eighth of each side and every 8 x 8th of the square has as many as the others."""
    drawn = draw_trials(fb.LinUCB(), 65, **SETTING)[1:]
    space = search_space(fb.LinUCB)
    places = np.array([[space[name].place(getattr(t, name)) for name in ("alpha", "lam")] for t in drawn])
    for side in places.T:
        assert np.histogram(side, 8, (0, 1))[0].tolist() == [8] * 8
    assert np.histogram2d(*places.T, 4, [(0, 1)] * 2)[0].tolist() == [[4] * 4] * 4
    words = [trial.rounding for trial in draw_trials(fb.FedConPE(), 65, **SETTING)[1:]]
    assert words.count("ceil") == 32


def test_trials_that_share_a_program():
    trials = draw_trials(fb.FedConPE(), 10, words=False, **SETTING)
    assert {trial.rounding for trial in trials} == {"ceil"}
    assert len({trial.N for trial in trials}) == 10


def test_refused_points_are_left_out():
    trials = draw_trials(fb.FedConPE(N=4, C=0.5), 30, **SETTING)
    assert len(trials) == 30
    assert all(trial.N >= 4 for trial in trials)
    with pytest.raises(ValueError, match="N C\\^2 must be at least 1"):
        draw_trials(fb.FedConPE(N=1e4, C=0.01), 30, **SETTING)


def test_a_small_space_is_tried_once():
    assert [trial.rule for trial in draw_trials(Words(), 30, **SETTING)] == ["a", "b"]
    assert draw_trials(fb.Uniform(), 30, **SETTING) == [fb.Uniform()]


def test_every_algorithm_has_the_knobs_of_its_own():
    spaces = {algorithm.title: search_space(type(algorithm)) for algorithm in LINE_UP}
    assert all(spaces.values())
    # In this order, own hyperparameters first: points are drawn in it.
    assert list(spaces["FedConPE"]) == ["N", "exploration_scale", "elimination_scale", "rounding"]
    assert list(spaces["ConUCB"]) == ["lam", "lam_t", "alpha", "alpha_t"]
    assert list(spaces["ArmCon"]) == list(spaces["ConLinUCB-BS"]) == ["alpha", "lam"]


# -------------------------------------------------------------------------------------------------------------- rungs


def test_rungs():
    rungs = rungs_of(128, range(20), 2)
    assert [(rung.trials, rung.runs) for rung in rungs] == [(128, 5), (32, 14), (8, 40)]
    assert budget_of(rungs) == 96 * 5 + 24 * 14 + 8 * 40
    budgets = [budget_of(rungs_of(n, range(20), 2)) for n in range(1, 600)]
    assert budgets == sorted(budgets), "more trials cost more"
    assert [(r.trials, r.runs) for r in rungs_of(3, range(2), 1)] == [(3, 2)]


@pytest.mark.parametrize("count", [1, 3, 10, 20, 41])
def test_rungs_grow(count):
    """Runs of a rung are among those of the next."""
    rungs = rungs_of(256, range(count), math.ceil(40 / count))
    for one, more in itertools.pairwise(rungs):
        assert set(one.users) <= set(more.users)
        assert one.seeds <= more.seeds
        assert one.runs < more.runs
    assert rungs[-1].runs >= 40


def test_the_best_is_near_the_optimum(valley):
    best, nothing, other = valley.algorithms
    assert (nothing, other.chance) == (fb.Uniform(), 0.1)
    for found in (best, other):
        assert 0.1 < found.alpha < 0.9
        assert 1.2 < found.lam < 2.8
        assert found.rule == "a"
    table = valley.table().set_index("algorithm")
    row = table.loc["Valley chance=0.3"]
    assert row["low"] < row["mean"] < row["high"] < row["given"]
    assert row["percent_below"] == pytest.approx(100 * (1 - row["mean"] / row["given"]))
    assert row["converged"] in ("yes", "unclear", "no")
    assert table.loc["Uniform", "runs"] == 0
    assert table.loc["Uniform", "mean"] == table.loc["Uniform", "given"]


def test_the_budget_is_equal_and_the_pairs_are_common(valley):
    trials, runs = valley.trials(), valley.runs
    spent = runs.groupby("algorithm").size()
    assert spent.to_dict() == dict.fromkeys(spent.index, valley.budget)
    assert valley.table()["runs"].tolist() == [valley.budget, 0, valley.budget]
    for rung, wanted in enumerate(valley.rungs, 1):
        here = runs[runs["rung"] == rung]
        pairs = {(user, seed) for user in wanted.users for seed in range(wanted.seeds)}
        for _, own in here.groupby(["algorithm", "trial"]):
            assert set(zip(own["user"], own["seed"], strict=True)) == pairs
    tuned = trials[trials["algorithm"] != "Uniform"]
    assert (tuned.loc[tuned["best"], "runs"] >= 40).all()
    assert (tuned.loc[tuned["trial"] == 0, "runs"] >= 40).all(), "what is given stays to the end"
    assert not set(runs["user"]) & set(valley.scored["user"])


def test_the_best_has_the_lowest_mean_of_the_last_rung(valley):
    trials = valley.trials()
    for _, own in trials[trials["runs"] > 0].groupby("algorithm"):
        last = own[own["rung"] == own["rung"].max()]
        assert last.loc[last["mean"].idxmin(), "best"]
        assert own["estimate"].min() == own.loc[own["best"], "estimate"].item() == last["mean"].min()
        assert last["estimate"].tolist() == pytest.approx(last["mean"].tolist())


def test_the_best_so_far(valley):
    for owner, curve in valley.progress().groupby("algorithm"):
        own = valley.trials().set_index("algorithm").loc[owner]
        assert curve["trials"].tolist() == list(range(1, 65))
        assert curve["runs"].iloc[-1] == valley.budget
        assert (curve["regret"].diff().dropna() <= 0).all()
        assert curve["regret"].iloc[0] == own["estimate"].iloc[0]
        assert curve["regret"].iloc[-1] == own["estimate"].min()


def test_converged(users):
    """Where all trials but the given one are late, their gain is what the rule looks at."""
    few = fb.tune(users, [Valley(alpha=5.0, chance=0.0)], trials=2, words=False, **SMALL)
    row = few.table().iloc[0]
    assert few.best[0].number == 1
    assert row["late_gain"] > 3
    assert row["converged"] == "no"
    again = fb.tune(users, [few.algorithms[0].replace(alpha=0.3, lam=2.0)], trials=2, words=False, **SMALL)
    assert again.table().iloc[0][["late_gain", "converged"]].tolist() == [0, "yes"]
    unclear = fb.tune(users, [Valley(alpha=5.0, chance=0.3)], trials=2, words=False, **SMALL).table().iloc[0]
    assert (unclear["late_gain"] > 3, unclear["converged"]) == (True, "unclear")


def test_what_is_given_may_be_the_best(users):
    """Though others were luckier in the first rung; no estimate is below its mean."""
    found = fb.tune(users, Valley(alpha=0.3, lam=2.0, chance=1.0), trials=64, words=False, **SMALL)
    trials = found.trials()
    assert trials["estimate"].min() == trials.loc[trials["best"], "mean"].item()
    assert found.progress()["regret"].iloc[-1] == trials.loc[trials["best"], "mean"].item()


def test_settings_have_ranges(valley):
    settings = valley.settings()
    assert settings["hyperparameter"].tolist() == ["alpha", "lam", "rule"] * 2
    numbers = settings[settings["hyperparameter"] != "rule"]
    assert (numbers["low"] <= numbers["best"]).all()
    assert (numbers["best"] <= numbers["high"]).all()
    assert not settings["at_edge"].any()


def test_trials_that_are_not_finite_are_left(users):
    found = fb.tune(users, Valley(), trials=64, **SMALL).trials()
    wild = found[found["alpha"] > 9]
    assert len(wild)
    assert np.isinf(wild["mean"]).all()
    with pytest.raises(FloatingPointError, match="no trial of Valley ends in finite numbers"):
        fb.tune(users, Valley(alpha=9.5, chance=math.inf), trials=2, **SMALL)


# ------------------------------------------------------------------------------------------------- programs and folders


def test_numbers_never_recompile(users, traced):
    """A program for every combination of words, whatever the trials, the rungs and the users are."""
    here = SMALL | {"arms": 5}  # a shape of its own
    fb.tune(users, Valley(), trials=32, **here)
    assert sorted(algorithm.rule for algorithm in traced) == ["a", "b"]
    traced.clear()
    fb.tune(users, Valley(alpha=2.0, chance=0.2), trials=70, users=range(5, 25), **here)
    assert not traced


def test_the_same_call_goes_on(users, tmp_path, computed, monkeypatch):
    """Stopped in the second rung, no run is played twice; more trials play only what is new."""
    whole = fb.tune(users, Valley(), trials=32, **SMALL)
    in_one_go = list(computed)
    assert sum(in_one_go[:-1]) == whole.budget
    computed.clear()
    options = SMALL | {"trials": 32, "out": tmp_path / "out"}
    sweep = calls.sweep

    def interrupted(*given, **more):
        if len(computed) == 1:
            raise KeyboardInterrupt
        return sweep(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(calls, "sweep", interrupted)
        sentence = f"stopped in rung 2 of 2: finished runs are kept; .*out='{tmp_path / 'out'}' goes on"
        with pytest.raises(KeyboardInterrupt, match=sentence):
            fb.tune(users, Valley(), **options)
        with pytest.raises(KeyboardInterrupt, match="without out= nothing is kept"):
            fb.tune(users, Valley(), **options | {"out": None})
    computed.clear()
    again = fb.tune(users, Valley(), **options)
    assert computed == [0, *in_one_go[1:]]
    assert repr(again) == repr(whole)
    computed.clear()
    assert repr(fb.tune(users, Valley(), **options)) == repr(whole)
    assert computed == [0, 0, 0]


def test_progress_says_the_rung(users):
    records = []
    fb.tune(users, Valley(), trials=32, **SMALL | {"progress": records.append})
    assert [(r["rung"], r["scoring"]) for r in records if r.get("seconds_left") == 0] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert {record["rungs"] for record in records} == {2}


# ------------------------------------------------------------------------------------------------ arguments, figures


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"trials": 1}, "trials=1 is not allowed: it must be a whole number of at least 2"),
        ({"clients": [2, 3]}, "clients=[2, 3] is not allowed: tune takes one number"),
        ({"users": 51}, "users=51 is not allowed"),
        ({"users": 30}, "score_users=30 is not allowed: synthetic has 20 users besides the 30 that it is tuned on"),
        ({"score_users": [3, 30]}, "score_users=[3, 30] is not allowed: it must name other users .* but 3 is both"),
        ({"seeds": 0}, "seeds=0 is not allowed"),
        ({"arms": 21}, "arms=21 is not allowed"),
        ({"algorithms": Valley(alpha=[1.0, 2.0])}, "it is there twice, but for what is tuned: alpha, lam, rule"),
        ({"algorithms": Valley(alpha=-1.0)}, "alpha=-1.0 is not allowed"),
        ({"algorithms": []}, "algorithms=[] is not allowed"),
        ({"catalog": None}, "catalog=None is not allowed"),
    ],
)
def test_mistakes_are_one_sentence(users, given, sentence, nothing_traced, without_type_checks):
    arguments = {"catalog": users, "algorithms": Valley()} | SMALL | given
    with pytest.raises(ValueError, match="is not allowed") as caught:
        fb.tune(**arguments)
    assert "\n" not in str(caught.value)
    for part in sentence.split(" .* "):
        assert part in str(caught.value)


@pytest.mark.parametrize("values", [(0, 1), (2, 1), (1, math.inf)])
def test_a_space_has_two_ends(values):
    with pytest.raises(ValueError, match="is not allowed"):
        fb.Between(*values)


def test_other_users_follow(users):
    found = fb.tune(users, Valley(), trials=2, users=[2, 3], score_users=3, **SMALL)
    assert found.scoring.users == (4, 5, 6)
    assert found.rungs[-1].runs == 40
    assert set(found.scores.final()["user"]) == {4, 5, 6}


def test_figures(valley):
    ax = valley.plot()
    assert [line.get_label().split(",")[0] for line in ax.get_lines()] == ["Valley chance=0.3", "Valley chance=0.1"]
    ends = [line.get_ydata()[-1] for line in ax.get_lines()]
    assert ends == valley.progress().groupby("algorithm", sort=False)["regret"].last().tolist()
    axes = [ax for ax in valley.plot.hyperparameters().figure.axes if ax.axison]
    assert [ax.get_xlabel() for ax in axes] == ["alpha", "lam", "rule"] * 2
    assert [ax.get_xscale() for ax in axes[:2]] == ["log", "linear"]
    assert len(valley.plot.hyperparameters("Valley chance=0.1").figure.axes) == 3
    with pytest.raises(ValueError, match=r"algorithm='Uniform' is not allowed: it must be 'Valley chance=0.3' or"):
        valley.plot.hyperparameters("Uniform")

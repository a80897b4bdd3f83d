"""Random search with an equal budget."""

import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.parameters import Between
from fedbandit_jax.papers import tuning
from fedbandit_jax.papers.fedconpe import LINE_UP
from fedbandit_jax.papers.tuning import draw_trials, search_space

SETTING = {"dim": 6, "clients": 2, "arms": 5, "horizon": 10**6, "noise": 0.1}


@pytest.mark.parametrize("algorithm", LINE_UP, ids=lambda a: a.title)
def test_trials(algorithm):
    """Equally many, all different and allowed, inside their space; the default first; fewer are a prefix of more."""
    trials = draw_trials(algorithm, 40)
    assert len(trials) == 40
    assert trials[0] == algorithm
    assert draw_trials(algorithm, 7) == trials[:7]
    assert draw_trials(algorithm, 7, seed=1)[1:] != trials[1:7]
    space = search_space(algorithm)
    assert len({tuple(trial.hyperparameters()[name] for name in space) for trial in trials}) == 40
    for trial in trials[1:]:
        trial.check(**SETTING)
        for name, values in space.items():
            drawn = trial.hyperparameters()[name]
            assert values.low <= drawn <= values.high if isinstance(values, Between) else drawn in values.words
        same = {name: value for name, value in trial.hyperparameters().items() if name not in space}
        assert same == {name: value for name, value in algorithm.hyperparameters().items() if name not in space}


def test_trials_that_share_a_program():
    trials = draw_trials(fb.FedConPE(), 10, words=False)
    assert {trial.rounding for trial in trials} == {"ceil"}
    assert len({trial.N for trial in trials}) == 10


def test_every_algorithm_has_the_knobs_of_its_own():
    spaces = {algorithm.title: search_space(algorithm) for algorithm in LINE_UP}
    assert all(spaces.values())
    # In this order, own hyperparameters first: trials are drawn in it.
    assert list(spaces["FedConPE"]) == ["N", "exploration_scale", "elimination_scale", "rounding"]
    assert list(spaces["ConUCB"]) == ["lam", "lam_t", "alpha", "alpha_t"]
    assert list(spaces["ArmCon"]) == list(spaces["ConLinUCB-BS"]) == ["alpha", "lam"]


def test_draws_are_uniform_in_the_logarithm():
    rng = np.random.default_rng(0)
    drawn = np.log10([Between(0.01, 100).draw(rng) for _ in range(4000)])
    assert np.histogram(drawn, 4, (-2, 2))[0] == pytest.approx(np.full(4, 1000), abs=4 * np.sqrt(750))
    drawn = [Between(0, 1, log=False).draw(rng) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=4 / np.sqrt(12 * 4000))


def test_the_best_trial_is_chosen(catalog, tmp_path):
    """Of the mean final regret over the training users; all trials are in one folder, and found again."""
    line_up = (fb.LinUCB(), fb.ConLinUCB(strategy="MCR"))
    options = {"setting": (2, 7, 200), "trials": 5, "users": [3, 5], "seeds": 2}
    chosen = tuning.tune(catalog, line_up, **options, out=tmp_path / "a")
    results = fb.Results.load(tmp_path / "a")
    final = results.final()
    assert set(final["user"]) == {3, 5}
    assert final.groupby("algorithm").size().tolist() == [20, 20]
    for title, values in chosen.items():
        means = final[final["algorithm"] == title].groupby(["alpha", "lam"])["regret"].mean()
        assert len(means) == 5
        assert means.idxmin() == (values["alpha"], values["lam"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    assert tuning.tune(catalog, line_up, **options, out=tmp_path / "a") == chosen
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()} == before

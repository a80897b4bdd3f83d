"""The algorithm of the guide, as a user would have it: a file outside the package."""

import importlib.util

import numpy as np

import fedbandit_jax as fb
from tests.examples import ROOT, blocks


def test_the_example_runs(tmp_path, traced):
    (code,) = blocks(ROOT / "notebooks" / "docs" / "guides" / "own-algorithm.md")
    file = tmp_path / "epsilon_greedy.py"
    file.write_text(code)
    assert len(code.splitlines()) <= 50
    spec = importlib.util.spec_from_file_location("epsilon_greedy", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert fb.REGISTRY.pop("EpsilonGreedy") is module.EpsilonGreedy  # for other tests it never was
    catalog = fb.datasets.synthetic(seed=0, dim=5, num_arms=60, num_key_terms=20, num_users=5)
    setting = {"clients": 2, "arms": 15, "horizon": 1500, "users": 5, "noise": 0.3}
    results = fb.sweep(catalog, [module.EpsilonGreedy(epsilon=[0.0, 0.05, 1.0]), fb.Uniform()], **setting)
    regret = results.summary().set_index("label")["mean"]
    assert regret["EpsilonGreedy epsilon=0.05"] < 0.5 * regret["Uniform"]
    # With epsilon = 1 it plays uniformly: 2 clients x 1500 rounds of it differ from a fixed order by chance only.
    assert np.isclose(regret["EpsilonGreedy epsilon=1"], regret["Uniform"], rtol=0.05)
    traced.clear()
    fb.sweep(catalog, module.EpsilonGreedy(epsilon=0.3), **setting)
    best = fb.tune(
        catalog, module.EpsilonGreedy(epsilon=0.5), trials=20, seeds=4, checkpoints=128, **setting | {"users": 2}
    )
    assert not traced
    assert best.algorithms[0].epsilon < 0.2
    assert best.settings()["hyperparameter"].tolist() == ["epsilon", "lam"]

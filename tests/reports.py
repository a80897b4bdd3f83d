"""A folder such as `fedbandit reproduce` writes, made of given numbers."""

import json

import numpy as np

from tests.frames import made_of, runs

SPREAD = np.array([[0.8, 1.0], [0.9, 1.1], [1.2, 1.0]])  # (user, seed), of mean 1
NASTY = "<script>alert('&')</script> | *a* [b](c)"
REGRET = {"FedConPE": 200.0, "LinUCB": 100.0, "ConUCB": 50.0}


def results_of(experiment):
    if experiment == "clients":
        return made_of(
            [row for label, r in REGRET.items() for M in (3, 9) for row in runs(label, r * M * SPREAD, clients=M)]
        )
    if experiment == "questions":
        rows = [row | {"schedule": np.nan, "conversations": 90.0} for row in runs("FedConPE", SPREAD)]
        for label in ("ConUCB", "ArmCon"):
            for schedule, asked in (("log", 40.0), ("linear", 120.0)):
                made = runs(f"{label} schedule={schedule}", SPREAD)
                rows += [row | {"schedule": schedule, "conversations": asked} for row in made]
        return made_of(rows)
    return made_of([row for label, r in REGRET.items() for row in runs(label, r * SPREAD)])


def verdict(experiment, preset, word, **more):
    return {
        "experiment": experiment,
        "preset": preset,
        "dataset": "synthetic",
        "claim": f"the claim of {experiment}",
        "verdict": word,
        "value": 1.5,
        "low": 1.0,
        "high": None,
        "figure": "regret 12.3 % below [10.1, 14.5] LinUCB's",
        "why": "",
    } | more


def reproduction(folder, experiments=("multi", "clients", "accuracy", "questions"), presets=("theory", "released")):
    """Write DIR/<dataset>/<preset>/<experiment>, reproduction.json and verdict.json."""
    parts = []
    for preset in presets:
        for experiment in experiments:
            results_of(experiment).save(folder / "synthetic" / preset / experiment)
            part = {"experiment": experiment, "preset": preset, "dataset": "synthetic", "seconds": 1.25}
            parts.append(part | {"folder": f"synthetic/{preset}/{experiment}", "users": 3, "seeds": 2})
    record = {
        "command": f"fedbandit reproduce --data 'x={NASTY}.zip'",
        "created": "2024-02-03T04:05:06+00:00",
        "versions": {"jax": "0.7.1", "fedbandit-jax": "0.1.0"},
        "devices": ["cpu:cpu", "cpu:cpu"],
        "quick": True,
        "settings": {"noise": 0.1, "data": {"synthetic": "abc123"}},
        "parts": parts,
        "tuned": {"synthetic": {"multi": {"FedConPE": {"N": 1.23456789, "rounding": "unbiased"}}}},
    }
    (folder / "reproduction.json").write_text(json.dumps(record))
    rows = [
        verdict("multi", "theory", "does not hold", why=NASTY),
        verdict("multi", "released", "undecided"),
        verdict("clients", "theory", "holds", claim=NASTY),
        verdict("theory", "theory", "holds", claim="the best arm survives"),
    ]
    (folder / "verdict.json").write_text(json.dumps(rows))
    return folder

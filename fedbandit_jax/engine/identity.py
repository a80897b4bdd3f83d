"""What a run is, for those who look for it later: its hash, and the manifest of the folder that it is in."""

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np

from fedbandit_jax import _checks
from fedbandit_jax.clocks.base import REGISTRY
from fedbandit_jax.engine.code import code_of, is_package
from fedbandit_jax.engine.sweep import Sweep
from fedbandit_jax.results.folders import FORMAT
from fedbandit_jax.worlds.world import LATER


def manifest_of(sweep: Sweep, settings: dict[str, Any]) -> dict[str, Any]:
    """What all runs in one folder must have in common, its catalogs by name, and what they were made with."""
    manifest = {
        "specification": {
            "format": FORMAT,
            **{name: settings[name] for name in ("seed", "dtype", "prng", "threefry_partitionable")},
            "checkpoints": sweep.checkpoints,
            "spacing": sweep.spacing,
            "device": sorted(set(settings["devices"])),
            "versions": {name: settings["versions"][name] for name in ("fedbandit-jax", "jax", "jaxlib")},
        },
        "catalogs": settings["catalogs"],
        "made_with": {name: settings[name] for name in ("versions", "devices")},
    }
    found: dict[str, Any] = json.loads(json.dumps(manifest))
    return found


def run_ids(sweep: Sweep) -> np.ndarray:
    """A hash of the content of each run, in the order of the table of runs."""
    codes = {kind: code_of(kind) for cell in sweep.cells for kind in (type(cell.algorithm), type(cell.world))}
    ids = []
    for catalog, cell in sweep.catalogs_and_cells():
        content: list[Any] = [
            catalog.fingerprint,
            cell.algorithm.title,
            codes[type(cell.algorithm)],
            cell.clients,
            cell.arms,
            cell.horizon,
            float(cell.noise),
            codes[type(cell.world)],
        ]
        for given in (cell.algorithm, cell.world):
            for name, value in sorted(given.hyperparameters().items()):
                value = plain(name, value)
                if given is cell.world and name in LATER and value == LATER[name]:
                    continue
                content.append([name, float(value) if type(value) is int else value])  # N=1 is N=1.0
        text = json.dumps(content)
        ids += [hashlib.sha256(f"{text} {u} {s}".encode()).hexdigest()[:20] for u in sweep.users for s in sweep.seeds]
    return np.array(ids, dtype=object)


def plain(name: str, value: Any) -> Any:
    """A hyperparameter as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value):
        return repr(value)
    _checks.fail(name, value, "with out= it must be a number or a word, by which the run is found again")


def as_json(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(name, str(v) if callable(v) else v) for name, v in hyperparameters.items()}


def package_hyperparameters() -> dict[str, Any]:
    """Names and defaults of the hyperparameters of the package's own algorithms."""
    found: dict[str, Any] = {}
    for name in sorted(REGISTRY):
        if is_package(REGISTRY[name]):
            for field in dataclasses.fields(REGISTRY[name]):  # type: ignore[arg-type]
                found.setdefault(field.name, field.default)
    return found

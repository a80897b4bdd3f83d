"""Sweeps written down as TOML: the arguments of `sweep`, a table `data`, and a table for each algorithm.

out = "runs/clients"         # optional; where finished runs are kept, results/<name of the file> by default
clients = [3, 6, 9]          # clients, arms, horizon, noise: a number or a list
arms = 100
horizon = 6000
users = 10                   # users, seeds: a count or a list of indices
seeds = 8                    # also: noise, seed, checkpoints, spacing, dtype, as in fedbandit_jax.sweep
                             # for `fedbandit tune` also: trials, score_users, words, as in fedbandit_jax.tune

[data]                       # optional; the synthetic catalog by default; [[data]] for each of several
path = "lastfm.npz"          # "synthetic", a prepared catalog, or an archive or folder; relative to this file
dim = 50                     # also: kind, num_arms, num_users, num_key_terms, features, user_norm, normalise, seed

[world]                      # optional; FedConPE's paper by default; [[world]] for each of several
contexts = "redrawn"         # also: arm_sets, preferences, arrivals, rewards, shared_noise, answers, discount,
                             # candidates, charged, as in fedbandit_jax.World

[[algorithms]]               # one table for each, with any of its hyperparameters, a value or a list
name = "FedConPE"
N = [1, 2, 4]
"""

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbandit_jax import _checks, datasets
from fedbandit_jax.clocks.base import REGISTRY, Algorithm
from fedbandit_jax.engine.calls import sweep
from fedbandit_jax.worlds.catalog import Catalog
from fedbandit_jax.worlds.world import FIELDS, World

LARGEST_FILE = 2 * 10**6  # bytes: they are read in two seconds
NOT_IN_FILES = ("catalog", "algorithms", "progress", "options")
DATA = ("path", "kind", "num_arms", "num_users", "num_key_terms", "dim", "features", "user_norm", "normalise", "seed")


@dataclass(frozen=True)
class SweepFile:
    """What a file says."""

    data: list[dict[str, Any]]
    algorithms: list[Algorithm]
    arguments: dict[str, Any]
    out: Path

    def catalogs(self) -> list[Catalog]:
        return [datasets.load(**one) for one in self.data]


def read(path: str | Path, *calls: Callable[..., Any]) -> SweepFile:
    """Read a file; a key that is no argument of `sweep` or other calls is an error that names what is near, or all."""
    path = _checks.path("file", path, "a TOML file")
    if not path.is_file():
        raise _checks.missing(path, "a TOML file")
    if path.stat().st_size > LARGEST_FILE:
        _checks.fail("file", str(path), f"it must have at most {LARGEST_FILE} bytes")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} is not TOML that can be read: its lists or tables are nested too deeply") from error
    except ValueError as error:  # of TOML, of UTF-8, or of a number with too many digits
        raise ValueError(f"{path} is not TOML: {error}") from error
    arguments = dict.fromkeys(name for call in (sweep, *calls) for name in inspect.signature(call).parameters)
    known = [name for name in arguments if name not in NOT_IN_FILES]
    check_keys(path, "tune" if calls else "the sweep", content, (*known, "data", "algorithms"))
    if "world" in content:
        content["world"] = worlds(path, content["world"])
    tables = content.pop("algorithms", [])
    data = [catalog(path, table) for table in _checks.as_list("data", content.pop("data", {}))]
    if not data:
        _checks.fail("data", data, "it must be a table, [data], or several, [[data]]")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        _checks.fail("algorithms", tables, "it must be one or more tables, [[algorithms]], each with a name")
    for name, value in content.items():
        if isinstance(value, dict):
            _checks.fail(name, value, "it must be a value or a list, not a table")
    out = content.pop("out", f"results/{path.stem}")
    if not isinstance(out, str) or not out:
        _checks.fail("out", out, "it must be the path of a folder")
    return SweepFile(data, [algorithm(path, table) for table in tables], content, Path(out))


def catalog(path: Path, table: Any) -> dict[str, Any]:
    """An entry of [data], as `datasets.load` wants it."""
    if not isinstance(table, dict):
        _checks.fail("data", table, "it must be a table, [data], or several, [[data]]")
    check_keys(path, "[data]", table, DATA)
    place = str(table.get("path", "synthetic"))
    if place != "synthetic":
        if "num_key_terms" in table:
            _checks.fail("num_key_terms", table["num_key_terms"], "only the synthetic catalog takes it")
        place = str(path.parent / place)
    return table | {"path": place}


def worlds(path: Path, given: Any) -> list[World]:
    """The entries of [world]."""
    tables = _checks.as_list("world", given)
    for table in tables:
        if not isinstance(table, dict):
            _checks.fail("world", table, "it must be a table, [world], or several, [[world]]")
        check_keys(path, "[world]", table, FIELDS)
    return [World(**table) for table in tables]


def algorithm(path: Path, table: dict[str, Any]) -> Algorithm:
    """An entry of [[algorithms]]."""
    given = dict(table)
    name = given.pop("name", None)
    if not isinstance(name, str):
        _checks.fail("name", name, f"each of [[algorithms]] needs one of {', '.join(sorted(REGISTRY))}")
    check_keys(path, "the registry of algorithms", [str(name)], sorted(REGISTRY))
    kind = REGISTRY[str(name)]
    check_keys(path, str(name), given, [field.name for field in dataclasses.fields(kind)])  # type: ignore[arg-type]
    return kind(**given)


def check_keys(path: Path, where: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for key in given:
        if key not in known:
            raise ValueError(f"{_checks.shown(key)} in {path} is not a key of {where}: {_checks.hint(key, known)}")

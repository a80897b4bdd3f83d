"""Papers, and the record of a folder in which one is played.

DIR/reproduction.json   what was run, and with what
DIR/verdict.json        claim by claim: holds, does not hold, undecided
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from fedbandit_jax import _checks, _runtime
from fedbandit_jax._files import write_checked
from fedbandit_jax.engine.calls import describe_environment
from fedbandit_jax.results.results import read_saved
from fedbandit_jax.worlds.catalog import Catalog

FIRST = "fedconpe"  # the paper of folders that do not say so
PAPERS = (FIRST, "fedlinucb", "pls", "conlinucb", "relative", "maco")  # each a module here


@dataclass(frozen=True)
class Paper:
    """Where it appeared, and its experiments by name; those of FedConPE are played by `reproduce`."""

    name: str
    title: str
    reference: str
    experiments: Mapping[str, Any]
    data: tuple[str, ...] = ()  # that it is played on and that cannot be drawn, by the names that the shell takes


def find(name: str) -> Paper:
    """The paper of a name, as the shell knows it."""
    _checks.choice("paper", name, PAPERS)
    paper = import_module(f"fedbandit_jax.papers.{name}").PAPER
    assert isinstance(paper, Paper)
    return paper


class Record:
    """reproduction.json and verdict.json of a folder, written whole after every part."""

    def __init__(
        self,
        folder: Path,
        paper: str,
        settings: Mapping[str, Any],
        catalogs: Mapping[str, Catalog],
        command: str,
        *,
        must_agree: Sequence[str],
        presets: Sequence[str],
        experiments: Sequence[str],
    ) -> None:
        """`must_agree` are the settings that all of a folder share; presets and experiments are in order."""
        self.folder, self.presets, self.experiments = folder, list(presets), list(experiments)
        self.content = read_json(folder / "reproduction.json", {})
        self.rows: list[dict[str, Any]] = read_json(folder / "verdict.json", [])
        there = self.content.get("settings", {})
        if self.content.get("paper", FIRST) != paper and self.content:
            made = f"it is of {self.content.get('paper', FIRST)}, not of {paper}; use another folder"
            _checks.fail("out", str(folder), made)
        for name in must_agree:
            if there.get(name, settings[name]) != settings[name]:
                _checks.fail("out", str(folder), f"it was made with {name}={there[name]!r}, not {settings[name]!r}")
        data = dict(there.get("data", {}))
        for name, catalog in catalogs.items():
            if data.setdefault(name, catalog.fingerprint) != catalog.fingerprint:
                _checks.fail("out", str(folder), f"its {name!r} is another catalog; use another name or folder")
        environment = describe_environment(_runtime.devices())
        commands = [c for c in self.content.get("commands", []) if c != command]
        self.content = {
            "paper": paper,
            "command": command,
            "commands": [*commands, command],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": environment["versions"],
            "devices": environment["devices"],
            "quick": settings["quick"],
            "settings": {**settings, "data": data},
            "parts": self.content.get("parts", []),
            "tuned": self.content.get("tuned", {}),
        }

    def keep_tuned(self, data: str, experiment: str, constants: dict[str, dict[str, Any]]) -> None:
        self.content["tuned"].setdefault(data, {})[experiment] = constants
        self.write()

    def add(self, parts: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> None:
        """Parts and their rows, in place of the same parts' old ones."""
        folders = {part["folder"] for part in parts}
        self.content["parts"] = [part for part in self.content["parts"] if part["folder"] not in folders] + list(parts)
        replaced = {identity(row) for row in rows}
        self.rows = [row for row in self.rows if identity(row) not in replaced] + list(rows)
        order = [*self.content["settings"]["data"], "synthetic"]  # which the theorems' checks are played on
        self.rows.sort(
            key=lambda row: (
                order.index(row["dataset"]),
                self.presets.index(row["preset"]),
                self.experiments.index(row["experiment"]),
            )
        )
        self.write()

    def write(self) -> None:
        write_json(self.folder / "reproduction.json", self.content)
        write_json(self.folder / "verdict.json", self.rows)


def tell(rows: Sequence[Mapping[str, Any]], say: Callable[[str], None]) -> None:
    for row in rows:
        say(f"    {row['verdict']}: {row['claim']} ({row['figure']})")


def identity(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["experiment"], row["preset"], row["dataset"]


def write_json(path: Path, content: Any) -> None:
    """Write a record whole or not at all, with its checksum beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n"
    write_checked(path.parent, {path.name: text.encode()})


def without_nan(value: Any) -> Any:
    """As JSON has it: what is not finite is null."""
    if isinstance(value, Mapping):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path, default: Any) -> Any:
    """Content of a record, compared with its checksum; the default if there is none."""
    if not path.exists():
        return default
    return read_saved(path, json.loads, "delete it, and the same command makes it again")

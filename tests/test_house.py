"""The house: every room says what it is for; every algorithm has its file, its oracle and its line in the protocol."""

import ast
import importlib
from pathlib import Path

import pytest

import fedbandit_jax as fb
from tests import reference
from tests.algorithms.test_protocol import ALGORITHMS

PACKAGE = Path(fb.__file__).parent
ROOMS = ("worlds", "datasets", "linalg", "clocks", "algorithms", "engine", "results", "papers", "report", "cli")
FAMILIES = tuple(f"fedbandit_jax.algorithms{family}" for family in ("", ".clustered", ".conversational", ".federated"))
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)
OWN = {name: kind for name, kind in fb.REGISTRY.items() if kind.__module__.startswith("fedbandit_jax.")}


def test_the_rooms_are_these():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ROOMS)
    families = {f"fedbandit_jax.algorithms.{path.parent.name}" for path in PACKAGE.glob("algorithms/*/__init__.py")}
    assert families == set(FAMILIES[1:])


@pytest.mark.parametrize(
    "room",
    [
        *(f"fedbandit_jax.{room}" for room in ROOMS),
        *FAMILIES[1:],
        *(f"fedbandit_jax.papers.{part}" for part in ("readings", "theory", "tuning")),
    ],
)
def test_a_room_says_what_it_is_for(room):
    text = importlib.import_module(room).__doc__
    assert text
    assert text.strip().endswith(".")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_says_what_is_in_it(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("name", OWN)
def test_an_algorithm_has_its_file_its_oracle_and_its_line(name):
    home = OWN[name].__module__
    room, _, file = home.rpartition(".")
    assert room in FAMILIES
    assert [other for other, kind in OWN.items() if kind.__module__ == home] == [name], "a file of its own"
    assert file.replace("_", "") == name.lower()
    assert callable(getattr(reference, file)), "an oracle in tests/reference under the name of its file"
    assert any(type(algorithm) is OWN[name] for algorithm in ALGORITHMS), "a line in tests/algorithms/test_protocol.py"
    assert OWN[name].__doc__

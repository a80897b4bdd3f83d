"""What an algorithm does is a part of what its runs are: edited code does not find the runs of the old."""

import importlib.util
import subprocess
import sys
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine.code import code_of

SMALL = {"clients": 2, "arms": 6, "horizon": 100, "users": 2, "checkpoints": 4}
GREEDY = """
from dataclasses import dataclass
import jax
import jax.numpy as jnp
import numpy as np
import fedbandit_jax as fb
import helpers
from fedbandit_jax import regression

SCALE = 1.0
TABLE = np.array([1.0, 2.0])

def score(state):
    return SCALE * inner(state)

def inner(state):
    return state.means  # a comment

@dataclass(frozen=True, kw_only=True)
class Greedy(fb.RoundAlgorithm, abstract=True):
    lam: float = 1.0
    threshold = 3

    def start(self, client):
        return regression.start(client.arms, self.lam)

    def choose(self, state, client, key):
        best = jax.vmap(lambda x: x + 0 * TABLE[0] * helpers.half)(score(state))
        return jnp.argmax(jnp.where(client.mask, best, -jnp.inf))

    @jax.jit
    def learn(self, state, client, arm, reward):
        return regression.pull(state, client.arms, arm, reward)

    def theta_hat(self, state):
        return state.theta
"""
HELPERS = "half = 0.5\nunused = 1\n"


def load(folder, name, text=GREEDY, helpers=HELPERS):
    """The class Greedy of a module that a user wrote."""
    for module, content in (("helpers", helpers), (name, text)):
        file = folder / f"{module}-{abs(hash((content, name)))}.py"
        file.write_text(content)
        spec = importlib.util.spec_from_file_location(module, file)
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[name].Greedy


EDITS = {
    "a method": ("jnp.argmax(", "jnp.argmin("),
    "a constant of a method": ("-jnp.inf", "-1.0"),
    "a function that it calls": ("SCALE * inner(state)", "inner(state)"),
    "a function that this one calls": ("return state.means", "return -state.means"),
    "a number of the module": ("SCALE = 1.0", "SCALE = 2.0"),
    "an array of the module, used in a function inside": ("[1.0, 2.0]", "[1.5, 2.0]"),
    "a number of the class": ("threshold = 3", "threshold = 4"),
    "a decorated method": ("arm, reward)\n\n", "arm, -reward)\n\n"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed(tmp_path, edit):
    before, after = EDITS[edit]
    assert GREEDY.count(before) == 1
    assert code_of(load(tmp_path, "mine", GREEDY.replace(before, after))) != code_of(load(tmp_path, "mine"))


def test_an_edit_of_a_module_of_ones_own_is_noticed(tmp_path):
    code = code_of(load(tmp_path, "mine"))
    assert code_of(load(tmp_path, "mine", helpers=HELPERS.replace("0.5", "0.25"))) != code
    assert code_of(load(tmp_path, "mine", helpers=HELPERS.replace("1", "2"))) == code, "what is not used does not count"


def test_comments_and_spaces_do_not_count(tmp_path):
    moved = "\n\n# moved\n" + GREEDY.replace("  # a comment", "").replace("def inner(", "\n\ndef inner(")
    assert code_of(load(tmp_path, "mine", moved)) == code_of(load(tmp_path, "mine"))


def test_another_process_finds_the_same(tmp_path):
    """Hashes of words differ between processes; what code does must not."""
    script = tmp_path / "script.py"
    (tmp_path / "helpers.py").write_text(HELPERS)
    words = GREEDY.replace("return state.means", "return state.means if 1 not in {2, 'x', 'yy', 'z'} else 0")
    script.write_text(words + "\nfrom fedbandit_jax.engine.code import code_of\nprint(code_of(Greedy))\n")
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"}
    found = {
        subprocess.run(
            [sys.executable, script],
            env=environment | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_edited_code_plays_again_and_the_old_runs_stay(tmp_path, catalog):
    out = tmp_path / "out"
    first = fb.sweep(catalog, load(tmp_path, "mine")(), **SMALL, out=out)
    again = fb.sweep(catalog, load(tmp_path, "mine")(), **SMALL, out=out)
    assert (again.settings["runs_found"], again.settings["runs_computed"]) == (2, 0)
    other = load(tmp_path, "mine", GREEDY.replace("jnp.argmax(", "jnp.argmin(").replace("-jnp.inf", "jnp.inf"))
    edited = fb.sweep(catalog, other(), **SMALL, out=out)
    assert (edited.settings["runs_found"], edited.settings["runs_computed"]) == (0, 2)
    assert (edited.final()["regret"] > first.final()["regret"]).all()


def test_a_class_of_the_same_name_is_another(tmp_path, catalog):
    fb.sweep(catalog, fb.LinUCB(), **SMALL, out=tmp_path)

    @dataclass(frozen=True, kw_only=True)
    class LinUCB(fb.LinUCB, abstract=True):
        def choose(self, state, client, key):
            return jnp.int32(0)

    own = fb.sweep(catalog, LinUCB(), **SMALL, out=tmp_path)
    assert own.settings["runs_computed"] == 2
    assert code_of(LinUCB) != code_of(fb.LinUCB)


def test_the_package_counts_its_revisions(monkeypatch):
    code = code_of(fb.ArmCon)
    monkeypatch.setattr(fb.LinUCB, "revision", 2)  # from which it inherits
    assert code_of(fb.ArmCon) != code


def test_a_catalog_cannot_be_changed_in_place(catalog):
    for matrix in (catalog.arms, catalog.key_terms, catalog.users):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 7.0
    arms = np.eye(3)
    mine = fb.Catalog(arms, arms, arms)
    arms[0, 0] = 7.0  # one's own array stays one's own
    assert mine.arms[0, 0] == 1.0

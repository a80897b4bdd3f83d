"""Compiled programs on disk: found before anything is traced, and only where they are the same."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.engine import executables

SMALL = {"clients": 2, "arms": 5, "horizon": 60, "users": 2, "checkpoints": 4}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Programs are kept here, and JAX's own cache, in which tests share what they compile, is not looked at."""
    monkeypatch.setattr(_runtime, "cache_folder", lambda: tmp_path)
    before = jax.config.values["jax_compilation_cache_dir"]
    use_cache(None)
    monkeypatch.setattr(executables, "_found_by_jax", set())
    jax.clear_caches()  # what JAX has in memory is not compiled again, and so not kept
    yield tmp_path / "programs"
    use_cache(before)


def use_cache(path):
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_compilation_cache_dir", path)
    compilation_cache.reset_cache()


def entries(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.program")}


def play(catalog, algorithm, **options):
    return fb.simulate(catalog, algorithm, **SMALL | options).to_pandas()


def test_a_program_is_found_without_tracing(catalog, folder, traced):
    """Also one with calls of LAPACK, and the curves are the same to the bit."""
    for algorithm in (fb.LinUCB(), fb.FedConPE()):
        first = play(catalog, algorithm)
        count = len(traced)
        assert count
        jax.clear_caches()
        again = play(catalog, algorithm)
        assert len(traced) == count
        pd.testing.assert_frame_equal(again, first, check_exact=True)
        other = play(catalog, algorithm, seed=1, noise=0.3)  # other numbers, the same program
        assert len(traced) == count
        assert not np.array_equal(other["regret"], first["regret"])


def test_learners_share_the_program_that_draws(catalog, folder):
    play(catalog, fb.LinUCB())
    assert len(entries(folder)) == 2
    play(catalog, fb.ArmCon())
    assert len(entries(folder)) == 3


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_or_foreign_entry_is_a_miss(catalog, folder, traced, damage):
    first = play(catalog, fb.Uniform())
    kept = entries(folder)
    for name, content in kept.items():
        changed = {
            "flip": content[:500] + bytes([content[500] ^ 1]) + content[501:],
            "cut": content[: len(content) // 2],
            "empty": b"",
            "other": b"\0" * 32 + b"no program",
        }[damage]
        (folder / name).write_bytes(changed)
    count = len(traced)
    jax.clear_caches()
    pd.testing.assert_frame_equal(play(catalog, fb.Uniform()), first, check_exact=True)
    assert len(traced) > count
    assert entries(folder).keys() == kept.keys()
    assert all(entries(folder)[name] != b"" for name in kept), "written anew"


def test_a_word_a_shape_and_a_release_make_another_program(catalog, folder, monkeypatch):
    seen = set()

    def new(**options):
        jax.clear_caches()
        play(catalog, options.pop("algorithm", fb.Uniform()), **options)
        found = set(entries(folder))
        fresh = found - seen
        seen.update(found)
        return len(fresh)

    assert new() == 2
    assert new() == 0
    assert new(arms=6) == 2
    assert new(world=fb.World(rewards="uniform")) == 2
    assert new(dtype="float64") == 2
    monkeypatch.setattr(executables, "package_code", lambda: "edited")
    assert new() == 2
    monkeypatch.setattr(executables, "machine", lambda: "another processor")
    assert new() == 2


def own_class(bonus):
    @dataclasses.dataclass(frozen=True)
    class Mine(fb.LinUCB):
        def upper_bound(self):
            return bonus

    return Mine


def test_an_edit_of_a_class_is_another_program():
    """The text of a closure's number is a part of the identity; an object that has none makes no identity."""
    texts = [executables.code_and_words(own_class(bonus)()) for bonus in (1.0, 1.0, 2.0)]
    assert texts[0] == texts[1] != texts[2]
    assert executables.code_and_words(own_class(object())()) is None
    assert executables.code_and_words(fb.LinUCB()) != executables.code_and_words(fb.ArmCon())
    assert executables.code_and_words(fb.LinUCB(alpha=1.0)) == executables.code_and_words(fb.LinUCB(alpha=2.0))
    assert executables.code_and_words(fb.LinUCB(alpha="theory")) != executables.code_and_words(fb.LinUCB(alpha=2.0))


def test_the_oldest_are_forgotten(tmp_path, monkeypatch):
    import os

    for age, name in enumerate("abcd"):
        path = tmp_path / f"{name}.program"
        path.write_bytes(bytes(10))
        os.utime(path, (1000 - age, 1000 - age))
    monkeypatch.setattr(executables, "LIMIT", 25)
    executables.forget_oldest(tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "b"]


def test_programs_play_whichever_cache_they_come_from(catalog, folder, tmp_path):
    """XLA writes a program that JAX has read from its own cache without its functions: such a one is not kept."""
    use_cache(str(tmp_path / "jax"))
    first = play(catalog, fb.Uniform())
    for path in folder.glob("*.program"):
        path.unlink()
    jax.clear_caches()
    for _ in range(2):  # found on disk by JAX, then in its memory
        pd.testing.assert_frame_equal(play(catalog, fb.Uniform()), first, check_exact=True)
    jax.clear_caches()
    pd.testing.assert_frame_equal(play(catalog, fb.Uniform()), first, check_exact=True)


def test_the_switch(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FEDBANDIT_COMPILE_CACHE", "true")
    assert _runtime.cache_folder() == tmp_path / "fedbandit_jax"
    monkeypatch.setenv("FEDBANDIT_COMPILE_CACHE", "false")
    assert _runtime.cache_folder() is None

"""In which order programs are compiled, and that the first one plays while others compile."""

import dataclasses
import threading

import fedbandit_jax as fb
from fedbandit_jax import _runtime
from fedbandit_jax.engine import calls
from fedbandit_jax.engine.program import Program

SMALL = {"clients": 2, "arms": 5, "horizon": 60, "users": 2, "checkpoints": 4}
SECONDS = 60.0  # after which a program that waits for another to play gives up


def compiled_titles(monkeypatch):
    """Grows by the title of each program that is compiled, in the order in which compilations begin."""
    titles, compile_program = [], Program.compile

    def noted(program, budget=float("inf")):
        titles.append(program.batch.algorithm.title)
        return compile_program(program, budget)

    monkeypatch.setattr(Program, "compile", noted)
    return titles


def test_a_program_plays_while_another_compiles(catalog, monkeypatch):
    played, compile_program, play_program = threading.Event(), Program.compile, calls.play_program

    def wait_for_play(program, budget=float("inf")):
        if program.batch.algorithm.title == "FedConPE":
            assert played.wait(SECONDS), "nothing has played while this one was compiled"
        return compile_program(program, budget)

    def note_play(*arguments):
        play_program(*arguments)
        played.set()

    monkeypatch.setattr(_runtime, "cores", lambda: 2)
    monkeypatch.setattr(Program, "compile", wait_for_play)
    monkeypatch.setattr(calls, "play_program", note_play)
    results = fb.simulate(catalog, [fb.FedConPE(), fb.Uniform()], **SMALL)
    assert list(results.final()["algorithm"].unique()) == ["FedConPE", "Uniform"]


def test_where_the_pool_is_small_nothing_plays_while_others_compile(catalog, monkeypatch):
    compiled = compiled_titles(monkeypatch)
    compiled_before_play, play_program = [], calls.play_program

    def note_play(*arguments):
        compiled_before_play.append(len(compiled))
        play_program(*arguments)

    monkeypatch.setattr(_runtime, "has_large_pool", lambda: False)
    monkeypatch.setattr(calls, "play_program", note_play)
    fb.simulate(catalog, [fb.DisLinUCB(), fb.Uniform()], **SMALL)
    assert compiled_before_play == [2, 2]


def test_what_takes_longest_is_compiled_first(catalog, monkeypatch):
    compiled = compiled_titles(monkeypatch)
    monkeypatch.setattr(_runtime, "cores", lambda: 1)
    fb.simulate(catalog, [fb.Uniform(), fb.ConUCB(), fb.LinPE()], **SMALL)
    assert compiled == ["LinPE", "ConUCB", "Uniform"]


def test_equal_programs_are_compiled_once(catalog, monkeypatch):
    """Learners of the same rounds, and catalogs of the same shape."""
    compiled = compiled_titles(monkeypatch)
    other = dataclasses.replace(catalog, name="other")
    results = fb.sweep([catalog, other], [fb.LinUCB(), fb.ArmCon()], **SMALL)
    assert len(compiled) == 1
    assert results.settings["programs"] == 1
    assert results.final().groupby(["dataset", "algorithm"]).ngroups == 4

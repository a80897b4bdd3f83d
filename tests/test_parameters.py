"""Hyperparameters that declare themselves."""

from dataclasses import dataclass

import jax
import pytest

import fedbandit_jax as fb
from fedbandit_jax._parameters import Between, declared


@dataclass(frozen=True, kw_only=True)
class Declared(fb.Algorithm, abstract=True):
    share: float = fb.param(0.5, low=0, high=1, ends="(]", search=Between(0.1, 1))
    width: float = fb.param(None, low=0, words=("theory",))
    rule: str = fb.param("a", words=("a", "b"))
    factor: float = fb.param(2.0, low=1, static=True)
    plain: float = 7.0


@dataclass(frozen=True, kw_only=True)
class Heir(Declared, abstract=True):
    extra: float = fb.param(1.0, low=0)
    factor: float = fb.param(3.0, low=2)


PLACE = {"dim": 2, "clients": 1, "arms": 2, "horizon": 10, "noise": 0.1}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"share": 0}, "share=0 is not allowed: it must be a number in (0, 1]"),
        ({"share": None}, "share=None is not allowed: it must be a number in (0, 1]"),
        ({"share": "theory"}, "share='theory' is not allowed: it must be a number in (0, 1]"),
        ({"width": -1.0}, "width=-1.0 is not allowed: it must be a number in [0, infinity) or 'theory'"),
        ({"width": "wide"}, "width='wide' is not allowed: it must be a number in [0, infinity) or 'theory'"),
        ({"rule": "c"}, "rule='c' is not allowed: it must be 'a' or 'b'"),
        ({"rule": 1}, "rule=1 is not allowed: it must be 'a' or 'b'"),
        ({"factor": float("nan")}, "factor=nan is not allowed: it must be a number in [1, infinity)"),
    ],
)
def test_a_wrong_value_is_one_sentence(given, sentence):
    with pytest.raises(ValueError, match="is not allowed") as caught:
        Declared(**given).check(**PLACE)
    assert str(caught.value) == sentence


def test_right_values_pass():
    for given in ({}, {"width": 3.0}, {"width": "theory"}, {"width": None}, {"share": 1}, {"plain": "anything"}):
        Declared(**given).check(**PLACE)


def test_numbers_are_traced_unless_they_are_static():
    assert jax.tree.leaves(Declared(width=3.0)) == [0.5, 3.0, 7.0]
    assert jax.tree.structure(Declared(factor=4.0)) != jax.tree.structure(Declared(factor=5.0))
    assert jax.tree.leaves(Heir(width=3.0)) == [0.5, 3.0, 3.0, 7.0, 1.0], "an heir may declare anew"


def test_own_hyperparameters_come_first():
    assert list(declared(Heir)) == ["factor", "extra", "share", "width", "rule"]
    assert declared(Heir)["factor"].low == 2
    assert [name for name, about in declared(Heir).items() if about.search] == ["share"]

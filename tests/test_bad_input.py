"""Input of wrong kinds, everywhere: one sentence that says what is allowed, before anything is compiled."""

import decimal
import fractions
import os
import random

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax import _checks, _runtime
from fedbandit_jax.engine.sweep import make_sweep
from tests import bad_inputs

SMALL = {"clients": 2, "arms": 7, "horizon": 600, "users": 2, "seeds": 1, "checkpoints": 4}
pytestmark = pytest.mark.usefixtures("without_type_checks")


def told(error, call, *given, **named):
    """The one sentence that a call ends with."""
    with pytest.raises(error) as caught:
        call(*given, **named)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "Errno" not in sentence
    return sentence


# ----------------------------------------------------------------------------------------------------- numbers

SCALARS = {
    "clients": np.int64(2),
    "arms": np.array(7),
    "horizon": jnp.array(600),
    "users": np.array(2),
    "seeds": jnp.int32(1),
    "checkpoints": np.int32(4),
    "noise": np.array(0.25),
    "seed": jnp.array(0),
    "memory": np.float32(4e9),
}


def test_arrays_without_axes_are_numbers(catalog, tmp_path):
    given = fb.simulate(catalog, fb.LinUCB(alpha=jnp.array(0.5), lam=np.float32(1)), **SCALARS, out=tmp_path)
    plain = fb.simulate(catalog, fb.LinUCB(alpha=0.5, lam=1), **SMALL, noise=0.25)
    np.testing.assert_array_equal(given.to_pandas()["regret"], plain.to_pandas()["regret"])


@pytest.mark.parametrize("name", ["clients", "arms", "users", "seeds", "checkpoints"])
def test_lists_may_hold_arrays_without_axes(catalog, name):
    for entries in (jnp.array([1, 2]), [np.int64(1), jnp.int32(2)], (np.array(1), 2.0)):
        with pytest.raises(ValueError, match=r"^dtype="):  # all else is right
            fb.sweep(catalog, fb.Uniform(), **SMALL | {name: entries}, dtype="none")


CONTAINERS = [
    {},
    {"a": 3},
    {3},
    np.array([[1, 2]]),
    [[1, 2]],
    iter([1, 2]),
    np.ma.array([4], mask=[True]),
    np.ma.masked,
]


@pytest.mark.parametrize("name", ["clients", "arms", "horizon", "noise"])
@pytest.mark.parametrize("value", CONTAINERS, ids=lambda value: type(value).__name__)
def test_axes_are_numbers_or_lists(catalog, nothing_traced, name, value):
    sentence = told(ValueError, fb.sweep, catalog, fb.Uniform(), **SMALL | {name: value})
    assert sentence.startswith(f"{name}={_checks.shown(value)} is not allowed: ")
    assert sentence.endswith("it must be a number or a list of numbers, such as [1, 2]")


@pytest.mark.parametrize("name", ["users", "seeds", "checkpoints"])
@pytest.mark.parametrize("value", [{}, {"a": 3}, b"4", np.array("4"), np.ma.array([4], mask=[True]), 4j, int])
def test_indices_are_numbers_or_lists(catalog, nothing_traced, name, value):
    sentence = told(ValueError, fb.sweep, catalog, fb.Uniform(), **SMALL | {name: value})
    assert sentence.startswith(f"{name}=")
    assert "it must be a whole number of at least 1 or a list of" in sentence


@pytest.mark.parametrize(
    "value", [{"a": 1}, np.array([[1.0, 2.0]]), [[1.0]], {0.5}, iter([1.0]), 1j, object(), np.ma.array([0.5], mask=[1])]
)
def test_hyperparameters_are_numbers_or_words(catalog, nothing_traced, value):
    sentence = told(ValueError, fb.sweep, catalog, fb.LinUCB(alpha=value), **SMALL)
    assert sentence.startswith("alpha of LinUCB=")
    assert sentence.endswith(" is not allowed: it must be a number or a word, or a list of them")


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", jax.random.key(0)), ("seed", 10**400), ("noise", 10**400), ("memory", {}), ("memory", 0j)],
)
def test_numbers_of_other_kinds(catalog, nothing_traced, name, value):
    assert " is not allowed: it must be a" in told(ValueError, fb.sweep, catalog, fb.Uniform(), **SMALL | {name: value})


# ------------------------------------------------------------------------------------------------------ too many

MANY = 10**12


@pytest.mark.parametrize("name", ["clients", "arms", "horizon", "users", "seeds", "checkpoints", "seed"])
@pytest.mark.parametrize("value", [MANY, float(MANY), np.int64(MANY)])
def test_too_many_of_one_kind(catalog, nothing_traced, name, value):
    sentence = told(ValueError, fb.sweep, catalog, fb.Uniform(), **SMALL | {name: value})
    assert sentence.startswith(f"{name}=1000000000000")
    assert " and at most " in sentence


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        (fb.LinUCB(), {"clients": 10**6, "seeds": 10**6}),
        (fb.LinUCB(), {"clients": 2 * 10**9}),
        (fb.FedConPE(), {"clients": 2 * 10**9}),
        (fb.FedConPE(), {"seeds": 2 * 10**9}),
        (fb.Uniform(), {"horizon": 10**9, "checkpoints": 10**9}),
        (fb.Uniform(), {"horizon": 10**9, "checkpoints": 10**7, "seeds": 10**4}),
    ],
)
def test_too_many_together(catalog, nothing_traced, monkeypatch, algorithm, changes):
    monkeypatch.setattr(_runtime, "memory_of_machine", lambda: 64e9)
    sentence = told(ValueError, fb.sweep, catalog, algorithm, **SMALL | changes)
    clients, seeds = (SMALL | changes)["clients"], (SMALL | changes)["seeds"]
    assert sentence.startswith(f"clients={clients} with 2 users, {seeds} seeds, 1 cells and ")
    assert sentence.endswith(" GB or more, and this machine has 64 GB")


def test_too_many_cells(catalog, nothing_traced):
    many = fb.LinUCB(alpha=np.linspace(0, 1, 2000), lam=np.linspace(1, 2, 2000))
    sentence = told(ValueError, fb.sweep, catalog, many, **SMALL)
    assert sentence == "a sweep of 4000000 cells is not allowed: give shorter lists, of 100000 cells at most"


# ---------------------------------------------------------------------------------------- catalogs and algorithms


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("LinUCB", "algorithms='LinUCB' is not allowed: it must be an Algorithm, such as LinUCB(), or a list of them"),
        ("linucb", "algorithms='linucb' is not allowed: it must be an Algorithm, such as LinUCB(), or a list of them"),
        ("best", "algorithms='best' is not allowed: it must be an Algorithm, such as FedConPE(), or a list of them"),
        (fb.LinUCB, "such as LinUCB(), or a list of them"),
        ([fb.Uniform(), fb.LinPE], "such as LinPE(), or a list of them"),
        ({"a": fb.LinUCB()}, "such as FedConPE(), or a list of them"),
        ([[fb.LinUCB()]], "such as FedConPE(), or a list of them"),
        (None, "such as FedConPE(), or a list of them"),
    ],
    ids=str,
)
def test_what_is_no_algorithm(catalog, nothing_traced, given, sentence):
    assert told(ValueError, fb.sweep, catalog, given, **SMALL).endswith(sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("synthetic", "it must be a Catalog, such as datasets.load('synthetic'), or a list of them"),
        (["lastfm.npz"], "it must be a Catalog, such as datasets.load('lastfm.npz'), or a list of them"),
        (np.ones((4, 3)), "it must be a Catalog, such as Catalog.from_arrays makes of arrays, or a list of them"),
        (
            fb.Uniform(),
            "it must be a Catalog, such as datasets.synthetic(), or a list of them; it comes before",
        ),
        (fb.Catalog, "it must be a Catalog, such as datasets.synthetic(), or a list of them"),
        (None, "it must be a Catalog, such as datasets.synthetic(), or a list of them"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_no_catalog(nothing_traced, given, sentence):
    found = told(ValueError, fb.simulate, given, fb.Uniform(), **SMALL)
    assert found.startswith("catalog=")
    assert f" is not allowed: {sentence}" in found


def test_algorithms_and_users_may_come_from_anywhere(catalog):
    """Also for several catalogs, each of which needs all of them."""
    other = fb.datasets.synthetic(seed=1, dim=6, num_arms=60, num_key_terms=30, num_users=6)
    catalogs = [catalog, fb.Catalog.from_arrays(other.arms, other.key_terms, other.users, name="other")]
    algorithms, users = (one for one in [fb.Uniform()]), (user for user in [0, 3])
    final = fb.sweep(catalogs, algorithms, **SMALL | {"users": users}).final()
    assert final[["dataset", "user"]].to_numpy().tolist() == [[d, u] for d in ("synthetic", "other") for u in (0, 3)]


# --------------------------------------------------------------------------------------------------------- paths

IMPOSSIBLE = {
    "beneath a file": ("{}/file/x", "but a part of its path is a file"),
    "a device": ("/dev/null/x", "but a part of its path is a file"),
    "processes": ("/proc/x", "but no folder can be made there"),
    "a long name": ("{}/" + "n" * 300, "but its name is too long"),
    "a file": ("{}/file", "it must be a folder, but there is a file of that name"),
    "no text": ("{}/a\0b", "it must be the path of a folder"),
    "half a letter": ("{}/\ud800", "but its name has letters that no file may have"),
    "nothing": ("", "it must be the path of a folder"),
    "blank": ("  ", "it must be the path of a folder"),
    "bytes": (b"abc", "it must be the path of a folder"),
    "a number": (3, "it must be the path of a folder"),
    "a list": (["out"], "it must be the path of a folder"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_folders(catalog, nothing_traced, tmp_path, case):
    (tmp_path / "file").touch()
    place, why = IMPOSSIBLE[case]
    place = place.format(tmp_path) if isinstance(place, str) else place
    results = fb.Results(pd.DataFrame(), pd.DataFrame(), {})
    sweep = told((ValueError, OSError), fb.sweep, catalog, fb.Uniform(), **SMALL, out=place)
    save = told((ValueError, OSError), results.save, place)
    for sentence, name in ((sweep, "out"), (save, "folder")):
        assert sentence.startswith(f"{name}={_checks.shown(place)} is not allowed: ")
        assert sentence.endswith(why)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("place", ["a\0b", "n" * 300, "", b"abc", 3, None])
@pytest.mark.parametrize("load", [fb.Results.load, fb.Catalog.load, fb.datasets.load])
def test_what_cannot_be_loaded(load, place):
    sentence = told(ValueError, load, place)
    assert f"={_checks.shown(place)} is not allowed: it must be " in sentence


@pytest.mark.parametrize("place", ["/proc/x.npz", "a\0b.npz", "n" * 300 + ".npz", "", b"abc", 3, None])
def test_where_no_catalog_can_be_saved(catalog, place):
    assert told((ValueError, OSError), catalog.save, place).startswith(f"path={_checks.shown(place)} is not allowed: ")


# --------------------------------------------------------------------------------------------------------- hints


def test_hints_are_given_where_they_are_close():
    known = ["alpha", "lam", "N"]
    for word, hint in {"alhpa": "alpha", "n": "N", "Lam": "lam"}.items():
        assert _checks.hint(word, known) == f"did you mean {hint!r}?"
    assert _checks.hint("seed", known) == "there is alpha, lam, N"
    assert _checks.hint("seed", []) == "it has none"


def test_hints_of_data_sets():
    sentence = told(FileNotFoundError, fb.datasets.load, "sinthetic")
    assert sentence == "sinthetic does not exist: did you mean 'synthetic'?"
    assert "did you mean" not in told(FileNotFoundError, fb.datasets.load, "yahoo")
    sentence = told(ValueError, fb.datasets.load, "synthetic", dims=3)
    assert sentence == "'dims' is not an option of this data set: did you mean 'dim'?"
    sentence = told(ValueError, fb.datasets.load, "synthetic", colour=3)
    assert sentence.endswith(": there is dim, num_arms, num_key_terms, num_users, user_norm")


def test_a_value_is_shown_in_one_line_that_is_not_too_long():
    assert _checks.shown(np.eye(2)) == "array([[1., 0.], [0., 1.]])"
    assert len(_checks.shown(list(range(10**4)))) <= _checks.LONGEST_SHOWN


# ------------------------------------------------------------------------------------------- everything, by chance

SAMPLE = 1500  # of all inputs; `python -m tests.bad_inputs` tries each


@pytest.fixture(scope="module")
def stopped_early(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    with bad_inputs.stopped_early(folder):
        yield folder


def test_a_sample_of_all_inputs_is_accepted_or_refused_in_one_sentence(stopped_early):
    given = random.Random(0).sample(bad_inputs.inputs(stopped_early), SAMPLE)
    found = {str(one): bad_inputs.outcome(one) for one in given}
    assert {name: end.words for name, end in found.items() if end.kind == "internals"} == {}
    kinds = [end.kind for end in found.values()]
    assert kinds.count("accepted") > SAMPLE / 50, "refusing everything is no check"
    assert kinds.count("refused") > SAMPLE / 2


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda value: None, "accepted", ""),
        (lambda value: _checks.fail("name", value, "it must be a word"), "refused", "name=None is not allowed"),
        (lambda value: _checks.fail("other", value, "it must be a word"), "internals", "does not name the argument"),
        (lambda value: value.size, "internals", "AttributeError"),
        (lambda value: _checks.whole("name\n", value), "internals", "has several lines"),
        (lambda value: os.listdir("name"), "internals", "Errno"),
        (lambda value: all(True for _ in range(10**12)), "internals", "took more than"),
    ],
)
def test_what_is_no_sentence_is_found(stopped_early, monkeypatch, call, kind, words):
    """The judge of the test above can tell."""
    monkeypatch.setattr(bad_inputs, "SECONDS", 0.2)
    found = bad_inputs.outcome(bad_inputs.Input("call(name)", "name", "None", lambda: None, call))
    assert found.kind == kind
    assert words in found.words


def test_long_lists_are_refused_before_their_combinations_are_made(catalog, nothing_traced):
    """The product of all lists counts, also of the fields of a world."""
    numbers = np.linspace(0.1, 0.9, 400)
    worlds = fb.World(discount=numbers, answers="max", preferences=np.arange(1, 400))
    for algorithm, changes in (
        (fb.LinUCB(alpha=numbers, lam=numbers), {}),
        (fb.LinUCB(alpha=numbers), {"noise": numbers}),
        (fb.Uniform(), {"world": worlds}),
    ):
        sentence = told(ValueError, fb.sweep, catalog, algorithm, **SMALL | changes)
        assert sentence.endswith(" cells is not allowed: give shorter lists, of 100000 cells at most")
    sentence = told(ValueError, fb.sweep, catalog, fb.LinUCB(alpha=range(10**9)), **SMALL)
    assert sentence == "alpha of LinUCB=range(0, 1000000000) is not allowed: it must have at most 100000 values"


@pytest.mark.parametrize("value", [1e-320, 5e-324, 1e-38, 1e39, 1e300])
@pytest.mark.parametrize("algorithm", [fb.PLS, fb.LinUCB, fb.DisLinUCB])
def test_numbers_beyond_single_precision(catalog, nothing_traced, algorithm, value):
    sentence = told(ValueError, fb.sweep, catalog, algorithm(lam=value), **SMALL)
    assert sentence.startswith(f"lam={value} is not allowed: it must be a number in (0, infinity), with a size from ")


def test_fractions_and_decimals_are_numbers(catalog):
    half = fractions.Fraction(1, 2)
    found = [
        make_sweep(catalog, fb.LinUCB(alpha=alpha, lam=2), **SMALL | {"noise": noise})
        for alpha, noise in ((half, half), (decimal.Decimal("0.5"), np.float16(0.5)), (0.5, 0.5))
    ]
    assert found[0].cells == found[1].cells == found[2].cells
    assert type(found[0].cells[0].algorithm.alpha) is float
    bounds = [fb.theory.regret_upper_bound(T, dim=3, clients=2, arms=5, delta=half) for T in (100, np.array(100.0))]
    assert bounds[0] == bounds[1] > 0
    several = fb.theory.regret_upper_bound(100, dim=3, clients=2, arms=5, delta=half, N=np.array([1, 2]))
    assert several.shape == (2,)
    assert several[0] == bounds[0] < several[1]


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (lambda: 5, "at t=1 it raises TypeError("),
        (fb.LinUCB, "at t=1 it raises TypeError("),
        (lambda t: t + 0 // (t - 3), "at t=3 it raises ZeroDivisionError("),
    ],
)
def test_schedules_that_cannot_be_called(catalog, nothing_traced, schedule, why):
    sentence = told(ValueError, fb.sweep, catalog, fb.ConUCB(schedule=schedule), **SMALL)
    assert sentence.startswith("schedule=")
    assert f" is not allowed: it must be a function b(t), but {why}" in sentence


def test_what_has_no_text_is_shown_by_its_type():
    class Silent:
        def __repr__(self):
            raise RuntimeError

    assert _checks.shown(Silent()) == "<Silent that cannot be shown>"
    assert _checks.shown(10**5000) == "<int that cannot be shown>"
    long = [0.5 + i for i in range(10**4)]
    assert _checks.shown(long) == _checks.in_one_line(repr(long))

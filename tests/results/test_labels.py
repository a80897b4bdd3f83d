"""Labels tell algorithms apart, in few words."""

import pytest

from fedbandit_jax.results.labels import labels_of


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((1, 2.5), ("1", "2.5")),
        ((1.0, 1.0000001), ("1.0", "1.0000001")),
        ((2_000_000, 3_000_000.0), ("2e+06", "3e+06")),
        ((None, 0.1), ("None", "0.1")),
        ((0.5, "realised"), ("0.5", "realised")),
        ((1.0, "1"), ("1.0", "1")),
        ((1.0, True), ("1", "True")),
    ],
)
def test_numbers_are_short_if_that_tells_them_apart(values, texts):
    assert labels_of([("A", {"x": value, "y": 3.0}) for value in values]) == [f"A x={text}" for text in texts]


def test_a_label_names_what_differs_within_its_title():
    """One is one, whole or real, as in tables, where a column has one type."""
    variants = [("A", {"x": 1, "y": 2.0}), ("B", {"x": 5.0}), ("A", {"x": 1.0, "y": 0.5}), ("A", {"x": 1})]
    assert labels_of(variants) == ["A y=2", "B", "A y=0.5", "A"]


def test_a_thousand_variants():
    variants = [("A", {"x": 0.5 + i, "y": i % 2, "z": "word"}) for i in range(1000)]
    wanted = [f"A x={i}.5 y={i % 2}" for i in range(1000)]
    assert labels_of(variants) == wanted
    assert labels_of([*variants[:500], ("B", {}), *variants[500:]]) == [*wanted[:500], "B", *wanted[500:]]
    [own for _, own in variants]


def test_what_has_one_text_is_numbered():
    class Function:
        def __str__(self):
            return "f"

    functions = [Function() for _ in range(1000)]
    assert labels_of([("A", {"b": b}) for b in functions]) == [f"A b=f ({i + 1})" for i in range(1000)]
    both = [("A", {"b": b, "x": x}) for x in (1.0, 2.0) for b in ("log", *functions[:2])]
    assert labels_of(both) == [
        f"A b={b}" for b in ("log x=1", "f x=1 (1)", "f x=1 (2)", "log x=2", "f x=2 (1)", "f x=2 (2)")
    ]

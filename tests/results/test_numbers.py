"""How numbers are written."""

import math

import pytest

from fedbandit_jax.results.numbers import number, with_half, with_interval


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (89.6, 187.3, "90 ± 190"),
        (1504.7, 407.9, "1,500 ± 410"),
        (10333.8, 1551.9, "10,300 ± 1,600"),
        (123456.7, 0.52, "123,456.70 ± 0.52"),
        (136.4, 51.7, "136 ± 52"),
        (0.0123456, 0.00078, "0.01235 ± 0.00078"),
        (0.5, 0.0996, "0.50 ± 0.10"),  # rounding adds a digit
        (99.96, 9.96, "100 ± 10"),
        (-3, 187, "0 ± 190"),  # and no -0
        (0, 3, "0.0 ± 3.0"),
        (2.3e-7, 4e-8, "(2.30 ± 0.40)e-07"),
        (3e17, 2e16, "(3.00 ± 0.20)e+17"),
        (4552, 0, "4,552"),  # no interval to tell
        (4552.4, math.nan, "4,552"),
        (100, 1e-5, "100"),  # rounding in single precision
    ],
)
def test_a_mean_ends_where_its_interval_ends(mean, half, text):
    assert with_half(mean, half) == text


@pytest.mark.parametrize(
    ("mean", "low", "high", "text"),
    [
        (136.4, 84.7, 188.1, "136 ± 52"),
        (89.6, 41.2, 312.7, "90 [41, 313]"),
        (1504.7, 1211, 2103, "1,500 [1,210, 2,100]"),
        (0.5, 0.42, 0.63, "0.500 [0.420, 0.630]"),
        (3e17, 2e17, 5e17, "(3.0 [2.0, 5.0])e+17"),
        (4552, 4552, 4552, "4,552"),
        (4552, math.nan, math.nan, "4,552"),
    ],
)
def test_an_interval_that_is_no_half_has_two_ends(mean, low, high, text):
    assert with_interval(mean, low, high) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.8, "1,234,568"),
        (999.96, "1,000"),
        (136.44, "136.4"),
        (10, "10"),
        (0.00123456, "0.001235"),
        (-0.5, "-0.5"),
        (0, "0"),
        (2.34567e-9, "2.346e-09"),
        (math.nan, "nan"),
    ],
)
def test_a_number_has_four_digits_or_all_before_the_point(value, text):
    assert number(value) == text

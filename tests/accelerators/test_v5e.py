"""Every algorithm as compiled for a TPU v5e, at the size of the tests."""

import pytest

from tests.accelerators import programs

programs.needs("v5e")


@pytest.fixture(scope="module")
def reports():
    return programs.compile_all("v5e")


@pytest.mark.parametrize("name", programs.NAMES)
def test_a_tpu_likes_the_program(reports, name):
    programs.check(reports[name])

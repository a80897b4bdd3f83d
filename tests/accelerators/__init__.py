"""Programs as XLA compiles them for accelerators that are not here: `make test-accelerators`."""

import pytest

pytest.register_assert_rewrite("tests.accelerators.programs")

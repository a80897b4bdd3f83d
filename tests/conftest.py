"""Set-up of the whole suite: shapes and types of the package checked at run time, no silent rank promotion."""

import gc
import itertools
import os
import shutil
import signal
import tempfile
from pathlib import Path

import jaxtyping
import pytest

os.environ["FEDBANDIT_COMPILE_CACHE"] = "false"  # tests of the shell command leave the user's cache alone

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Most of the time goes into compiling small programs. XLA's older code generator for CPUs takes a third of the time of
# the default one, and less without optimisations. Processes that the tests start inherit both; tests of the runtime
# start theirs without.
FAST_COMPILE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST_COMPILE}"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"

# What one process of a test run compiles, the others find on disk: workers, notebooks, the shell command.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="fedbandit-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # of single operations there are thousands
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"

# Before the package is imported: every annotated function checks the shapes and types it takes and gives. An int is
# a float to a type checker, so it is one here.
jaxtyping.install_import_hook("fedbandit_jax", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import fedbandit_jax as fb  # noqa: E402, I001 - it sets up the runtime, so it comes before JAX is used
from fedbandit_jax import _runtime  # noqa: E402
import hypothesis  # noqa: E402
import jax  # noqa: E402
from fedbandit_jax.engine import program  # noqa: E402
import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
_runtime.l2_cache = lambda: 2**16  # a batch has as many lanes as fill it: tests play few, the others would be copies
gc.freeze()  # tracing makes many small objects; looking through all modules each time took a twentieth of the suite
gc.set_threshold(50_000, 20, 50)
hypothesis.settings.register_profile("fedbandit", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("fedbandit")


def pytest_unconfigure():
    if not IS_WORKER:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def catalog() -> fb.Catalog:
    """Small enough to compile and run in no time, with more of everything than a run needs."""
    return fb.datasets.synthetic(seed=0, dim=6, num_arms=60, num_key_terms=30, num_users=6)


@pytest.fixture(autouse=True)
def close_figures():
    """No test sees the figures of another."""
    yield
    plt.close("all")


# A compiled program keeps some 700 pieces of memory mapped; Linux allows a process 65,530, and JAX dies beyond.
MOST_MAPPINGS, TESTS_BETWEEN = 25_000, 8
PLAYED = itertools.count(1)


@pytest.fixture(autouse=True)
def forget_programs():
    """Let go of compiled programs when there are many; what is needed again is found on disk."""
    yield
    maps = Path("/proc/self/maps")
    if next(PLAYED) % TESTS_BETWEEN == 0 and maps.is_file():
        with maps.open("rb") as file:
            if sum(1 for _ in file) > MOST_MAPPINGS:
                jax.clear_caches()


@pytest.fixture
def without_type_checks():
    """As users have it: the package's own checks of arguments come first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def traced(monkeypatch):
    """Grows whenever a program of the engine is traced, and so compiled."""
    programs, run_one = [], program.run_one

    def counted(algorithm, *rest, **shape):
        programs.append(algorithm)
        return run_one(algorithm, *rest, **shape)

    monkeypatch.setattr(program, "run_one", counted)
    return programs


@pytest.fixture
def nothing_traced(traced):
    """What a test looks at happens before anything is compiled."""
    yield
    assert not traced

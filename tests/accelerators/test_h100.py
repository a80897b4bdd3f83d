"""Every algorithm as compiled for an H100, at the sizes of the paper and 4096 clients at once."""

import pytest

from benchmarks import compiled, figure, runner
from benchmarks.measure import Effort
from benchmarks.targets import TARGETS
from tests.accelerators import graphs, programs, stretches

programs.needs("h100")
MOST_MEMORY = 2e9
# Loops inside one another that the host launches as one: rounds, to a checkpoint, of a block of random numbers, until
# something is recomputed; or, of learners that pass messages, the rounds to the next message.
GRAPHS = {"SharedLinUCB": 3, "FCLUB": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """For the text of some programs, and for what XLA dumps of others."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def reports(folder):
    kept = {name: {"keep": str(folder / name)} for name in stretches.PROGRAMS}
    dumped = {name: {"options": {**programs.HASTE, "xla_dump_to": str(folder / name)}} for name in GRAPHS}
    return programs.compile_all("h100", kept | dumped)


@pytest.mark.parametrize("name", programs.NAMES)
def test_a_gpu_likes_the_program(reports, name):
    programs.check(reports[name])


@pytest.mark.parametrize("name", programs.NAMES)
def test_a_batch_leaves_room_on_the_card(reports, name):
    assert reports[name].memory < MOST_MEMORY


@pytest.mark.parametrize("name", stretches.PROGRAMS)
def test_a_stretch_of_a_program_is_one_kernel(reports, folder, name):
    report, (K, d) = reports[name], (compiled.FULL[size] for size in ("arms", "dim"))
    found = stretches.in_program((folder / name).read_text(), report.lanes * report.clients, K, d)
    assert found["kernels"] == stretches.PROGRAMS[name]
    if found["kernels"] == 1:
        assert not found["large"]


@pytest.mark.parametrize("name", GRAPHS)
def test_rounds_are_launched_as_a_graph(reports, folder, name):
    assert reports[name].algorithm == name  # compiled
    assert graphs.loops_in_graphs(folder / name) == GRAPHS[name]


def test_eight_gpus_have_nothing_to_tell_each_other():
    """Each plays lanes of its own, so that a node of eight plays as fast as eight of one."""
    names = ("LinUCB", "FedConPE")
    case = {"at_once": 64, "sizes": compiled.TINY}
    found = list(
        compiled.reports(TARGETS["h100"], [{"algorithm": name, "devices": n, **case} for name in names for n in (1, 8)])
    )
    for one, eight in zip(found[::2], found[1::2], strict=True):
        assert (eight.devices, eight.lanes) == (8, one.lanes)
        assert not any(loop.collectives for loop in eight.program.walk())
        assert eight.memory == pytest.approx(one.memory, rel=0.05)  # on each


def test_the_suite_tells_what_it_compiled(tmp_path):
    found = runner.run(["accelerators"], Effort(0, "h100"), print)
    suite = found["suites"]["accelerators"]
    assert not suite["skipped"]
    assert {"kernels a stretch", "MB a stretch", "MB of memory", "client-rounds/s, estimated", "limit, estimated"} <= {
        row["metric"] for row in suite["rows"]
    }
    assert figure.draw(found, tmp_path / "bench.png").stat().st_size > 10_000

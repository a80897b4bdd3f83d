"""Batches: which runs share lanes, how many are played at a time, and what goes into padding."""

import jax
import numpy as np
import pandas as pd
import pytest

import fedbandit_jax as fb
from fedbandit_jax.engine import batches
from fedbandit_jax.engine import program as program_module
from fedbandit_jax.engine.batches import Batch, clients_in_memory, split_by_shape
from fedbandit_jax.engine.cells import make_cells
from fedbandit_jax.engine.program import Program
from fedbandit_jax.engine.sweep import make_sweep, memory_budget

SMALL = {"arms": 7, "horizon": 300, "users": 2, "seeds": 2, "checkpoints": 8}


def cells_of(catalog, algorithm, **axes):
    return make_cells(catalog, algorithm, **{"clients": 2, "arms": 7, "horizon": 300, "noise": 0.1} | axes)


def batch_of(catalog, cells, users, seeds, rounds=(100, 300)):
    return Batch(catalog, cells, users, seeds, np.array(rounds), "float32")


def test_runs_that_differ_in_clients_share_lanes(catalog):
    batch = batch_of(catalog, cells_of(catalog, fb.LinUCB(), clients=[2, 5, 3]), [4, 1], [0])
    assert len(batch.cell) == 10  # the five clients of both users
    assert batch.first_lane.tolist() == [0, 5, 0, 5, 0, 5]
    assert batch.lanes_of_run.tolist() == [2, 2, 5, 5, 3, 3]
    assert batch.user.tolist() == [4] * 5 + [1] * 5
    assert batch.client.tolist() == [0, 1, 2, 3, 4] * 2
    assert batch.lanes_of(np.array([0, 5])).tolist() == [0, 1, 5, 6, 7]
    # Federations meet: each is a lane of its own.
    batch = batch_of(catalog, cells_of(catalog, fb.FedLinPE(), clients=[2, 5, 3]), [4, 1], [0])
    assert len(batch.cell) == 6
    assert batch.lanes_of_run.tolist() == [1] * 6


@pytest.mark.parametrize("algorithm", [fb.ConUCB(), fb.LinPE(), fb.Uniform()], ids=lambda a: a.name)
def test_shared_lanes_are_added_up_right(catalog, algorithm):
    """A grid over M gives what each M gives alone, to the bit, although it plays only the largest."""
    together = fb.sweep(catalog, algorithm, **SMALL, clients=[2, 5, 3]).to_pandas()
    alone = [fb.sweep(catalog, algorithm, **SMALL, clients=M).to_pandas() for M in (2, 5, 3)]
    pd.testing.assert_frame_equal(together, pd.concat(alone, ignore_index=True), check_exact=True)


def test_what_is_stored_is_not_played_for_others(catalog, tmp_path):
    """With M=5 on disk, M=3 still plays its own three clients."""
    algorithm = fb.ArmCon()
    fb.sweep(catalog, algorithm, **SMALL, clients=5, out=tmp_path)
    both = fb.sweep(catalog, algorithm, **SMALL, clients=[3, 5], out=tmp_path)
    assert both.settings["runs_computed"] == 4
    pd.testing.assert_frame_equal(both.to_pandas(), fb.sweep(catalog, algorithm, **SMALL, clients=[3, 5]).to_pandas())


def test_federations_of_as_many_phases_are_neighbours(catalog):
    options = {"clients": 2, "arms": 7, "horizon": 5000, "noise": [0.5, 0.001, 0.05, 0.002]}
    cells = cells_of(catalog, fb.FedConPE(), **options)
    assert batch_of(catalog, cells, [0], [0, 1]).cell.tolist() == [0, 0, 2, 2, 3, 3, 1, 1]
    phases = fb.sweep(catalog, fb.FedConPE(), **options, users=1).phases()
    found = phases.groupby("noise", sort=False)["phase"].max().tolist()
    assert sorted(found, reverse=True) == [found[1], found[3], found[2], found[0]]
    assert [cell.steps(catalog.dim) for cell in cells] == pytest.approx(found, abs=1)


def test_clients_on_an_accelerator_follow_from_its_memory():
    """K = 100, d = 50: 0.96 MB each at most, in half of the memory."""
    for gigabytes, clients in {80: 2**14, 24: 2**13, 8: 2**12, 0: 1}.items():
        assert clients_in_memory({"bytes_limit": gigabytes * 10**9 + 10**6}, 100, 50) == clients
    assert clients_in_memory(None, 100, 50) == clients_in_memory({}, 100, 50) == 2**12


def test_the_share_of_padding(catalog, monkeypatch):
    """One device, six lanes at a time, eight lanes in all: 4 x 7 + 4 x 3 of 2 x 6 x 7 arms are real."""
    monkeypatch.setattr(fb.Uniform, "clients_per_core", lambda *_: 6)
    device = jax.local_devices()[:1]
    batch = batch_of(catalog, cells_of(catalog, fb.Uniform(), arms=[7, 3]), [0, 1], [0])
    program = Program(batch, seed=0, devices=device)
    program.compile()
    list(program.play(np.arange(8)))
    assert program.work == 2 * 6 * 7
    assert program.work - program.work_on_padding == 4 * 7 + 4 * 3


def test_padding_counts_phases_that_others_wait_for(catalog):
    """Federations of two and of eleven phases, side by side."""
    options = SMALL | {"clients": 2, "users": 1, "horizon": 5000, "seeds": 1}
    results = fb.sweep(catalog, fb.FedLinPE(), **options, noise=[0.5, 0.001])
    phases = results.phases().groupby("noise")["phase"].max()
    devices = len(jax.local_devices())
    lanes = devices * (fb.FedLinPE().clients_per_core(7, catalog.dim) // 2)
    share = 1 - phases.sum() / (lanes * phases.max())  # on the first device; the others play copies of the last lane
    assert results.settings["padding_share"] == pytest.approx(share, abs=0.01)


def test_one_shape_unless_padding_costs_more_than_compiling(catalog):
    cells = cells_of(catalog, fb.FedConPE(), clients=[3, 12, 15], arms=[5, 50])
    sizes = [(cell.clients, cell.arms) for cell in cells]

    def programs(runs):
        return [{(cell.clients, cell.arms) for cell in part} for part in split_by_shape(cells, runs, 160)]

    assert programs(10) == [set(sizes)]
    many = programs(1000)
    assert {(12, 50), (15, 50)} in many, "12 clients beside 15 are not worth a program"
    assert len(many) > 1
    assert sum(map(len, many)) == 6
    assert set().union(*many) == set(sizes)
    assert len(programs(10**6)) == 6
    # Long rounds cost more to pad than short ones, and compile no longer; phases cost the same however long they are.
    for algorithm, longer in ((fb.DisLinUCB(), 2), (fb.FedConPE(), 1)):
        cells = [cells_of(catalog, algorithm, clients=[3, 12], horizon=T) for T in (6000, 600_000)]
        assert [len(split_by_shape(part, 500, 160)) for part in cells] == [1, longer]
    # Clients that play alone are lanes of one client each: their number is no reason for padding.
    cells = cells_of(catalog, fb.LinUCB(), clients=[3, 12, 15], arms=[5, 50])
    assert [len(part) for part in split_by_shape(cells, 10**6, 32)] == [3, 3]


def test_results_do_not_depend_on_the_number_of_programs(catalog, monkeypatch, tmp_path):
    options = SMALL | {"arms": [3, 7], "clients": [2, 4], "dtype": "float64"}
    algorithms = [fb.SharedLinUCB(), fb.Uniform()]
    one = fb.sweep(catalog, algorithms, **options)
    assert one.settings["padding_share"] > 0.3
    assert one.settings["programs"] == 2
    monkeypatch.setattr(batches, "CHUNKS_TO_COMPILE", 0)
    several = fb.sweep(catalog, algorithms, **options, out=tmp_path)
    assert several.settings["programs"] == 6
    found = make_sweep(catalog, algorithms, **options).batches(jax.local_devices()[0])
    assert len({batch.key for batch in found}) == 6
    columns = ["regret", "conversations", "communication", "theta_error"]
    setting = one.to_pandas().columns.drop(columns)
    pd.testing.assert_frame_equal(several.to_pandas()[setting], one.to_pandas()[setting])
    np.testing.assert_allclose(several.to_pandas()[columns], one.to_pandas()[columns], rtol=1e-9)


# ------------------------------------------------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [("4GB", 4e9), ("1.5 gb", 1.5e9), ("512MiB", 2**29), (1000, 1000), (2.5e9, 2.5e9), ("1TB", 1e12), ("7kb", 7000)],
)
def test_memory_in_words(given, bytes_):
    assert memory_budget(given, jax.local_devices()) == bytes_


@pytest.mark.parametrize("given", ["much", "-4GB", 0, "0GB", "4GBs", True, -1.0, "", float("nan")])
def test_memory_that_makes_no_sense(catalog, given):
    with pytest.raises(
        ValueError, match=r"^memory=.* is not allowed: it must be a positive number of bytes, or a text"
    ):
        fb.sweep(catalog, fb.Uniform(), clients=2, **SMALL, memory=given)


def test_by_default_half_of_the_machine():
    assert 1e8 < memory_budget(None, jax.local_devices()) < 1e14


def test_fewer_lanes_fit_into_less_memory(catalog):
    algorithms = [fb.SharedLinUCB(), fb.Uniform()]
    reference = fb.sweep(catalog, algorithms, clients=[2, 3], **SMALL)
    budget = reference.settings["memory"] / 3
    small = fb.sweep(catalog, algorithms, clients=[2, 3], **SMALL, memory=budget)
    assert 0 < small.settings["memory"] <= budget
    for name in ("regret", "theta_error"):
        np.testing.assert_allclose(small.final()[name], reference.final()[name], rtol=1e-4)
    with pytest.raises(ValueError, match=r"^memory='1e-06GB' is not allowed: the smallest program takes [\d.e-]+ GB$"):
        fb.sweep(catalog, algorithms, clients=[2, 3], **SMALL, memory=1000)


def test_out_of_memory_halves_the_chunk_and_goes_on(catalog, monkeypatch):
    reference = fb.sweep(catalog, fb.Uniform(), clients=[2, 3], **SMALL, dtype="float64")
    devices = len(jax.local_devices())
    tried = []
    monkeypatch.setattr(fb.Uniform, "clients_per_core", lambda *_: 8)

    dispatch = program_module.Program.dispatch

    def limited(self, lanes):
        tried.append(self.chunk // devices)
        if tried[-1] > limit:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")
        return dispatch(self, lanes)

    monkeypatch.setattr(program_module.Program, "dispatch", limited)
    limit = 2
    with (
        pytest.warns(UserWarning, match=rf"^out of memory with {8 * devices} lanes at a time: going on with"),
        pytest.warns(UserWarning, match=rf"^out of memory with {4 * devices} lanes at a time: going on with"),
    ):
        found = fb.sweep(catalog, fb.Uniform(), clients=[2, 3], **SMALL, dtype="float64")
    assert tried[:3] == [8, 4, 2]
    columns = ["regret", "theta_error"]
    np.testing.assert_allclose(found.to_pandas()[columns], reference.to_pandas()[columns], rtol=1e-12)
    limit = 0
    with (
        pytest.warns(UserWarning, match=rf"lanes at a time: going on with {devices}$"),
        pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"),
    ):
        fb.sweep(catalog, fb.Uniform(), clients=[2, 3], **SMALL, dtype="float64")

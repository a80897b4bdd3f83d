"""Grids: bad input, expansion, one program for all numbers, and runs that do not know of each other."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedbandit_jax as fb
from fedbandit_jax.clocks.base import METRICS
from fedbandit_jax.engine import cells as grid
from fedbandit_jax.engine.batches import Batch
from fedbandit_jax.engine.program import Program, concatenate
from fedbandit_jax.engine.sweep import make_sweep

SMALL = {"clients": 2, "arms": 7, "horizon": 600, "users": 2, "seeds": 1, "checkpoints": 16}


# ------------------------------------------------------------------------------------------------ bad input

BAD_ARGUMENTS = [
    ("clients", 0, "a whole number of at least 1"),
    ("clients", -3, "a whole number of at least 1"),
    ("clients", 2.5, "a whole number of at least 1"),
    ("clients", "3", "a whole number of at least 1"),
    ("clients", True, "a whole number of at least 1"),
    ("clients", float("nan"), "a whole number of at least 1"),
    ("arms", 0, r"a whole number of at least 1 and at most 60 \(the arms of synthetic\)"),
    ("arms", 61, r"a whole number of at least 1 and at most 60 \(the arms of synthetic\)"),
    ("horizon", 0, "a whole number of at least 2 and at most 1000000000"),
    ("horizon", 1, "a whole number of at least 2 and at most 1000000000"),
    ("horizon", 10**9 + 1, "a whole number of at least 2 and at most 1000000000"),
    ("horizon", float("inf"), "a whole number of at least 2 and at most 1000000000"),
    ("noise", -0.1, r"a number in \[0, infinity\)"),
    ("noise", float("nan"), r"a number in \[0, infinity\)"),
    ("noise", float("inf"), r"a number in \[0, infinity\)"),
    ("users", 0, r"a whole number of at least 1 and at most 6 \(the users of synthetic\)"),
    ("users", 7, r"a whole number of at least 1 and at most 6 \(the users of synthetic\)"),
    ("users", "all", "a whole number of at least 1 or a list of indices"),
    ("users", "all", "a whole number of at least 1 or a list of indices"),
    ("users", [], "a whole number of at least 1 or a list of indices"),
    ("users", [1, 1], "its indices must differ"),
    ("seeds", 0, "a whole number of at least 1"),
    ("seeds", -1, "a whole number of at least 1"),
    ("seeds", [3, 3], "its indices must differ"),
    ("seed", -1, "a whole number of at least 0 and at most 2147483647"),
    ("seed", 2**31, "a whole number of at least 0 and at most 2147483647"),
    ("seed", 0.5, "a whole number of at least 0 and at most 2147483647"),
    ("spacing", "cubic", "it must be 'linear' or 'log'"),
    ("dtype", "float16", "it must be 'auto' or 'float32' or 'float64'"),
    ("checkpoints", 0, "a whole number of at least 1"),
    ("checkpoints", None, "a whole number of at least 1 or a list of rounds"),
    ("checkpoints", "all", "a whole number of at least 1"),
    ("algorithms", [], "it must name at least one algorithm"),
    ("algorithms", None, "it must be an Algorithm, such as FedConPE"),
]
BAD_ENTRIES = [
    ("users", [0, 6], 6, "a whole number of at least 0 and at most 5"),
    ("users", [-1], -1, "a whole number of at least 0 and at most 5"),
    ("seeds", [-1], -1, "a whole number of at least 0"),
    ("seeds", [2**31], 2**31, "a whole number of at least 0 and at most 2147483647"),  # would wrap around in int32
    ("checkpoints", [0, 10], 0, r"a whole number of at least 1 and at most 600 \(the horizon\)"),
    ("checkpoints", [601], 601, r"a whole number of at least 1 and at most 600 \(the horizon\)"),
    ("checkpoints", [1.5], 1.5, "a whole number of at least 1"),
    ("algorithms", "FedConPE", "FedConPE", r"it must be an Algorithm, such as FedConPE\(\), or a list of them"),
    ("algorithms", [fb.FedConPE], fb.FedConPE, r"it must be an Algorithm, such as FedConPE\(\)"),
]
BAD_HYPERPARAMETERS = [
    ("delta", 0, r"a number in \(0, 1\)"),
    ("delta", 1.0, r"a number in \(0, 1\)"),
    ("delta", -0.1, r"a number in \(0, 1\)"),
    ("delta", float("nan"), r"a number in \(0, 1\)"),
    ("delta", None, r"a number in \(0, 1\)"),
    ("C", 0, r"a number in \(0, 1\]"),
    ("C", 1.01, r"a number in \(0, 1\]"),
    ("C", -1, r"a number in \(0, 1\]"),
    ("C", "realized", r"a number in \(0, 1\] or 'realised' or 'catalog'"),
    ("N", 0, r"a number in \(0, infinity\)"),
    ("N", float("inf"), r"a number in \(0, infinity\)"),
    ("N", "one", r"a number in \(0, infinity\)"),
    ("sigma", -1, r"a number in \[0, infinity\)"),
    ("exploration_scale", 0, r"a number in \(0, infinity\)"),
    ("ridge", -0.1, r"a number in \[0, infinity\)"),
    ("elimination_scale", -1, r"a number in \(0, infinity\)"),
    ("design_tol", 1e-4, r"a number in \[0.001, 1\]"),
    ("design_tol", 2, r"a number in \[0.001, 1\]"),
    ("rounding", "floor", "it must be 'ceil' or 'unbiased'"),
    ("key_term_rule", "nearest", "it must be 'absolute' or 'signed'"),
    ("null_space", "drop", "it must be 'ask' or 'skip'"),
    ("design_method", "newton", "it must be 'multiplicative' or 'frank-wolfe' or 'optax'"),
]


def refused(call, catalog, message, algorithms=None, **changes):
    """The call raises one sentence."""
    arguments = SMALL | changes
    with pytest.raises(ValueError, match=message) as caught:
        call(catalog, fb.FedConPE() if algorithms is None else algorithms, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("name", "value", "allowed"), BAD_ARGUMENTS)
def test_bad_arguments(catalog, nothing_traced, name, value, allowed):
    for call in (fb.simulate, fb.sweep):
        arguments = {"algorithms": fb.FedConPE()} | SMALL | {name: value}
        with pytest.raises(ValueError, match=rf"^{name}=.* is not allowed: .*{allowed}") as caught:
            call(catalog, **arguments)
        assert f"{name}={value!r} " in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("name", "value", "culprit", "allowed"), BAD_ENTRIES)
def test_bad_entries_of_lists(catalog, nothing_traced, name, value, culprit, allowed):
    arguments = {"algorithms": fb.FedConPE()} | SMALL | {name: value}
    with pytest.raises(ValueError, match=rf"^{name}=.* is not allowed: .*{allowed}") as caught:
        fb.sweep(catalog, **arguments)
    assert f"{name}={culprit!r} " in str(caught.value)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("name", "value", "allowed"), BAD_HYPERPARAMETERS)
def test_bad_hyperparameters(catalog, nothing_traced, name, value, allowed):
    message = rf"^{name}={value!r} is not allowed: .*{allowed}"
    refused(fb.simulate, catalog, message, fb.FedConPE(**{name: value}))
    good = getattr(fb.FedConPE(), name)
    refused(fb.sweep, catalog, message, fb.FedConPE(**{name: [good, value]}))


@pytest.mark.parametrize("numbers", [{"N": 0.99}, {"C": 0.5}, {"N": 3, "C": 0.5}])
def test_more_than_one_question_a_round_is_refused(catalog, nothing_traced, numbers):
    refused(fb.simulate, catalog, r"^N=.* with C=.* is not allowed: N C\^2 must be at least 1", fb.FedConPE(**numbers))


def test_the_least_N_is_named(catalog, nothing_traced):  # noqa: N802
    """It is allowed, rounded as it is told."""
    C = catalog.realised_C
    for words in ({"C": "catalog"}, {"C": 0.9}):
        with pytest.raises(ValueError, match="so N at least") as caught:
            fb.simulate(catalog, fb.FedConPE(**words), **SMALL)
        least = float(str(caught.value).split("so N at least ")[1].split(",")[0])
        assert least == pytest.approx(1 / (C if words["C"] == "catalog" else 0.9) ** 2, abs=1e-3)
        make_sweep(catalog, fb.FedConPE(**words, N=least), **SMALL)


def test_the_catalogs_own_C(catalog):  # noqa: N802
    """The number as if given, under its word; each catalog of a sweep has its own; a warning where a number is more."""
    C = catalog.realised_C
    other = dataclasses.replace(catalog, key_terms=np.eye(6), name="axes")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_word = fb.sweep([catalog, other], fb.FedConPE(C="catalog", N=20), **SMALL).final()
        by_number = fb.simulate(catalog, fb.FedConPE(C=C, N=20), **SMALL).final()
        fb.simulate(catalog, fb.FedConPE(), **SMALL)  # the default is the paper's, and says nothing
    assert by_word["C"].tolist() == ["catalog"] * 4
    for name in METRICS:
        np.testing.assert_array_equal(by_word[by_word["dataset"] == "synthetic"][name], by_number[name])
    sentence = rf"^C=0.9 is more than the {C:.3g} that the key terms of synthetic offer every direction, "
    with pytest.warns(UserWarning, match=sentence) as caught:
        fb.simulate(catalog, fb.FedConPE(C=[0.8, 0.9], N=2), **SMALL)
    assert len([one for one in caught if "C=0.9" in str(one.message)]) == 1


def test_no_C_holds_where_key_terms_do_not_span(catalog, nothing_traced):  # noqa: N802
    flat = dataclasses.replace(catalog, key_terms=catalog.key_terms[:3], name="flat")
    message = r"^C='catalog' is not allowed: the key terms of flat span 3 of 6 dimensions: no C > 0 holds$"
    refused(fb.simulate, flat, message, fb.FedConPE(C="catalog"))


@pytest.mark.parametrize("numbers", [{"N": 4, "C": 0.5}, {"N": 1 / 0.7**2, "C": 0.7}, {"N": 0.1, "C": "realised"}])
def test_one_question_a_round_is_allowed(numbers):
    fb.FedConPE(**numbers).check(dim=5, clients=1, arms=5, horizon=10**6, noise=0.1)


@pytest.mark.parametrize(("name", "values"), [("clients", [2, 0]), ("arms", [5, 61]), ("noise", [0.1, -1.0])])
def test_one_bad_value_in_a_grid_is_enough(catalog, nothing_traced, name, values):
    refused(fb.sweep, catalog, rf"^{name}={values[1]!r} is not allowed", **{name: values})


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", ["clients", "arms", "horizon", "noise"])
def test_simulate_takes_one_setting(catalog, nothing_traced, name):
    refused(fb.simulate, catalog, rf"^{name}=\[5\] is not allowed: simulate takes one number; use sweep", **{name: [5]})
    refused(fb.sweep, catalog, rf"^{name}=\[\] is not allowed: it must not be empty", **{name: []})


def test_a_horizon_shorter_than_a_phase_warns_and_runs(catalog):
    # 8 d sigma^2 LOG = 8 * 6 * log(2 * 7 * 2 * log(300) / 0.1) = 354 rounds for the first phase.
    with pytest.warns(
        UserWarning, match=r"^horizon=300 is shorter than the first phase of FedConPE, at least 354 rounds"
    ):
        results = fb.simulate(catalog, fb.FedConPE(sigma=1.0), **SMALL | {"horizon": 300})
    phases = results.phases()
    assert (phases["phase"] == 1).all()
    assert not phases["complete"].any()
    assert (phases["length"] == 300).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fb.FedConPE(sigma=1.0).check(dim=6, clients=2, arms=7, horizon=600, noise=0.1)


# ------------------------------------------------------------------------------------------ grids and labels


def test_every_combination_is_a_cell(catalog):
    cells = grid.make_cells(
        catalog,
        [fb.FedConPE(N=[1, 2], delta=[0.1, 0.05]), fb.Uniform()],
        clients=[2, 3],
        arms=np.array([4, 5, 6]),
        noise=0.1,
        horizon=(500, 600),
    )
    found = [(c.label, c.clients, c.arms, c.noise, c.horizon) for c in cells]
    places = [(M, K, 0.1, T) for M in (2, 3) for K in (4, 5, 6) for T in (500, 600)]
    assert [place for _, *place in found] == [list(place) for place in places * 5]
    variants = [(c.algorithm.N, c.algorithm.delta) for c in cells[:48:12]]
    assert sorted(variants) == [(1, 0.05), (1, 0.1), (2, 0.05), (2, 0.1)]
    for cell in cells[:48]:
        assert set(cell.label.split()) == {"FedConPE", f"N={cell.algorithm.N}", f"delta={cell.algorithm.delta}"}
    assert [c.label for c in cells[48:]] == ["Uniform"] * 12
    assert all(type(x) is int for c in cells for x in (c.clients, c.arms, c.horizon))


def test_labels_tell_what_differs():
    def labels(*algorithms):
        return grid.labels(algorithms)

    assert labels(fb.FedConPE(), fb.Uniform()) == ["FedConPE", "Uniform"]
    assert labels(fb.FedConPE(N=1.0), fb.FedConPE(N=2.5)) == ["FedConPE N=1", "FedConPE N=2.5"]
    first, second = labels(fb.FedConPE(sigma=None, C=1.0), fb.FedConPE(sigma=0.1, C="realised"))
    assert set(first.split()) == {"FedConPE", "C=1", "sigma=None"}
    assert set(second.split()) == {"FedConPE", "C=realised", "sigma=0.1"}


def test_counts_and_lists_of_users_and_seeds(catalog):
    options = SMALL | {"users": range(2, 4), "seeds": (i for i in (5, 1))}
    final = fb.sweep(catalog, fb.Uniform(), **options).final()
    assert list(zip(final["user"], final["seed"], strict=True)) == [(2, 5), (2, 1), (3, 5), (3, 1)]
    final = fb.sweep(catalog, fb.Uniform(), **SMALL | {"users": 3, "seeds": 2}).final()
    assert list(zip(final["user"], final["seed"], strict=True)) == [(u, s) for u in range(3) for s in range(2)]


# ------------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("spacing", ["linear", "log"])
@pytest.mark.parametrize("horizon", [2, 100, 12_345, 10**9])
@pytest.mark.parametrize("count", [1, 2, 7, 128])
def test_rounds_kept(count, horizon, spacing):
    rounds = grid.rounds_to_keep(count, horizon, spacing)
    assert rounds[-1] == horizon
    assert rounds[0] >= 1
    assert (np.diff(rounds) > 0).all()
    assert len(rounds) <= min(count, horizon)
    assert rounds.dtype == np.int64
    steps = np.diff(rounds)
    if spacing == "linear":
        assert len(rounds) == min(count, horizon)
        assert len(steps) == 0 or np.ptp(steps) <= 1, "steps differ by rounding only"
    elif count > 1:
        # Equal ratios, up to rounding by half a round at either end.
        assert rounds[0] == 1
        ratio = horizon ** (1 / (min(count, horizon) - 1))
        wide = rounds[:-1] > 50 / (ratio - 1)
        np.testing.assert_allclose((rounds[1:] / rounds[:-1])[wide], ratio, rtol=0.05)


def test_explicit_rounds_are_kept_and_the_horizon_added():
    for given, expected in (
        ([5, 100], [5, 100]),
        ([50, 5, 5], [5, 50, 100]),
        ((100,), [100]),
        (np.array([7]), [7, 100]),
        ([], [100]),
    ):
        rounds = grid.rounds_to_keep(given, 100, "linear")
        np.testing.assert_array_equal(rounds, expected)
        assert rounds.dtype == np.int64


# ------------------------------------------------------------------------ one program, independent runs, dtypes

GRID = {"clients": [2, 4], "arms": [10, 12], "horizon": 600, "users": 2, "checkpoints": 16}
CURVES = ["round", *METRICS]


def rows_of(results, **where):
    """Curves of some runs, in the order of user, seed and round."""
    table = results.to_pandas()
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table)
    return table.sort_values([*where, "user", "seed", "round"], kind="stable")[["user", "seed", *CURVES]].to_numpy(
        float
    )


@pytest.fixture(scope="module")
def played(catalog):
    return fb.sweep(catalog, fb.FedConPE(N=[1.0, 2.0]), **GRID, seeds=2, dtype="float64")


def test_a_grid_is_one_program(played):
    assert played.settings["programs"] == 1
    assert len(played.final()) == 2 * 2 * 2 * 2 * 2


@pytest.mark.filterwarnings("ignore:horizon=50 is shorter")
def test_other_numbers_compile_nothing(catalog, played, traced):
    other = fb.sweep(
        catalog,
        fb.FedConPE(N=[1, 3.5, 7], delta=0.02, exploration_scale=2.0, elimination_scale=0.5, design_tol=0.05),
        clients=[4, 1, 3],
        arms=[5, 12],
        horizon=[900, 50],
        noise=[0.0, 0.3],
        users=[5, 3],
        seeds=[9],
        seed=123,
        checkpoints=16,
        dtype="float64",
    )
    assert not traced
    assert len(other.final()) == 3 * 3 * 2 * 2 * 2 * 2
    fb.sweep(catalog, fb.FedConPE(C="realised"), **GRID, dtype="float64")
    assert traced, "a word is another program, and the counter counts"


ALONE = GRID | {"clients": 2, "arms": 10}  # one place of the grid, without any padding


@pytest.mark.parametrize("null_space", ["ask", "skip"])
def test_a_run_is_the_same_alone_and_in_a_padded_grid(catalog, null_space):
    """All curves and phases to the horizon, also when so few arms are left that V has a null space."""
    algorithm = fb.FedConPE(N=[2.0, 1.0], null_space=null_space)
    inside = fb.sweep(catalog, algorithm, **GRID, seeds=2, dtype="float64")
    apart = fb.simulate(catalog, algorithm.replace(N=2.0), **ALONE, seeds=2, dtype="float64")
    assert (apart.phases()["active_max"] < catalog.dim).any(), "no null space to compare"
    where = {"clients": 2, "arms": 10, "N": 2.0}
    # Another shape may be summed in another order, and least squares of few observations magnifies rounding.
    np.testing.assert_allclose(rows_of(inside, **where), rows_of(apart), rtol=1e-7, atol=1e-12)
    phases = inside.phases()
    phases = phases[(phases["clients"] == 2) & (phases["arms"] == 10) & (phases["N"] == 2)]
    numbers = phases.columns[phases.columns.get_loc("phase") :]
    found, wanted = (table[numbers].astype(float).to_numpy() for table in (phases, apart.phases()))
    np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-12)


def test_the_order_of_a_grid_does_not_matter(catalog, played):
    turned = fb.sweep(
        catalog,
        fb.FedConPE(N=[2.0, 1.0]),
        **GRID | {"clients": [4, 2], "arms": [12, 10], "users": [1, 0]},
        seeds=[1, 0],
        dtype="float64",
    )
    by = {"clients": 4, "arms": 10, "N": 2.0}
    np.testing.assert_allclose(rows_of(turned, **by), rows_of(played, **by), rtol=1e-9, atol=1e-12)


def test_more_seeds_and_users_add_runs_and_change_none(catalog, played):
    more = fb.sweep(catalog, fb.FedConPE(N=[1.0, 2.0]), **GRID | {"users": 6}, seeds=7, dtype="float64").to_pandas()
    same = more[(more["user"] < 2) & (more["seed"] < 2)].reset_index(drop=True)
    np.testing.assert_allclose(same[CURVES], played.to_pandas()[CURVES], rtol=1e-9, atol=1e-12)
    final = more[more["round"] == 600]
    assert final["theta_error"].nunique() == len(final), "two runs met the same noise"


def test_other_checkpoints_see_the_same_curves(catalog, played):
    """Curves are exact wherever they are read."""
    rounds = played.to_pandas()["round"].unique()
    chosen = np.unique(np.concatenate([rounds[1::2], [3, 17, 100, 101, 333, 334, 335, 599]]))
    assert len(chosen) == 16  # as many as the grid keeps
    other = fb.sweep(catalog, fb.FedConPE(N=[1.0, 2.0]), **GRID | {"checkpoints": chosen}, seeds=2, dtype="float64")
    shared = [table[table["round"].isin(rounds[1::2])][CURVES] for table in (other.to_pandas(), played.to_pandas())]
    np.testing.assert_allclose(*shared, rtol=1e-12)
    # And regret never falls, not even between the grid's checkpoints.
    curves = other.to_pandas()["regret"].to_numpy().reshape(-1, 16)
    assert (np.diff(curves, axis=1) >= -1e-9).all()


def test_other_master_seeds_give_other_runs(catalog, played):
    other = fb.sweep(catalog, fb.FedConPE(N=[1.0, 2.0]), **GRID, seeds=2, seed=1, dtype="float64")
    assert (other.final()["regret"].to_numpy() != played.final()["regret"].to_numpy()).all()


def play(catalog, change):
    """Some runs with changed noise, straight through the program; traces with an axis R."""
    cells = grid.make_cells(catalog, fb.FedConPE(N=[1.0, 2.0]), clients=[2, 4], arms=12, horizon=600, noise=0.1)
    batch = Batch(catalog, cells, [0, 1], [0], grid.rounds_to_keep(16, 600, "linear"), "float64")
    program = Program(batch, seed=0, devices=jax.local_devices())
    program.inputs = program.inputs._replace(noise=change(program.inputs.noise))
    program.compile()
    return concatenate(list(program.play(np.arange(8))))


@pytest.mark.parametrize("noise", [0.7, np.nan])
def test_one_run_never_touches_another(catalog, noise):
    """Not even one that goes wrong; the others are the same to the bit."""

    others = np.arange(8) != 3
    reference = play(catalog, lambda noises: noises)
    changed = play(catalog, lambda noises: np.where(others, noises, noise))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[others], b[others]), reference, changed)
    assert not np.array_equal(reference.regret[3], changed.regret[3])


def test_runs_fill_several_chunks(catalog, monkeypatch):
    """Chunks cut a batch anywhere, the last one is filled up; nobody can tell from the results."""
    reference = fb.sweep(catalog, fb.Uniform(), **GRID, seeds=5, dtype="float64")
    monkeypatch.setattr(fb.Uniform, "clients_per_core", lambda *_: 7)  # clients per device, which do not divide all 120
    chunked = fb.sweep(catalog, fb.Uniform(), **GRID, seeds=5, dtype="float64")
    assert len(chunked.final()) == 40
    # Another program, which may sum in another order.
    np.testing.assert_allclose(chunked.to_pandas()[CURVES], reference.to_pandas()[CURVES], rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- dtypes


def fits_float32(values):
    return (values.astype(np.float32).astype(np.float64) == values).all()


def test_the_dtype_follows_the_horizon(catalog):
    limit = 2**20
    options = SMALL | {"checkpoints": 2}
    short = fb.simulate(catalog, fb.Uniform(), **options | {"horizon": limit}).final()["regret"].to_numpy()
    long = fb.simulate(catalog, fb.Uniform(), **options | {"horizon": limit + 1}).final()["regret"].to_numpy()
    wide = fb.simulate(catalog, fb.Uniform(), **options | {"horizon": limit}, dtype="float64").final()["regret"]
    assert fits_float32(short)
    assert not fits_float32(long)
    assert not fits_float32(wide.to_numpy())
    np.testing.assert_allclose(short, wide, rtol=1e-5)  # 7 arms x 2 clients, a few units of rounding each
    refused(
        fb.simulate,
        catalog,
        rf"^dtype='float32' is not allowed: horizon={limit + 1} needs float64",
        fb.Uniform(),
        horizon=limit + 1,
        dtype="float32",
    )


def test_the_callers_precision_is_left_alone(catalog):
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            final = fb.simulate(catalog, fb.Uniform(), **SMALL).final()["regret"].to_numpy()
            assert fits_float32(final), "float32 by default, whatever the caller has switched on"
            assert jax.numpy.ones(1).dtype == (np.float64 if enabled else np.float32)


def test_the_same_algorithm_twice_is_refused(catalog):
    """It would pass for twice as many independent runs."""
    message = r"^algorithms=LinUCB\(.*\) is not allowed: it is there twice, with the same hyperparameters"
    for twice in ([fb.LinUCB(), fb.LinUCB()], [fb.LinUCB(lam=1), fb.LinUCB(lam=1.0)], [fb.LinUCB(lam=[1, 1.0])]):
        with pytest.raises(ValueError, match=message):
            fb.sweep(catalog, twice, **SMALL)
    with pytest.raises(ValueError, match=r"^clients=\[2, 2\] is not allowed: its values must differ"):
        fb.sweep(catalog, fb.LinUCB(), **SMALL | {"clients": [2, 2]})


def test_labels_differ():
    near = grid.labels([fb.LinUCB(lam=1.0), fb.LinUCB(lam=1.0000001)])
    assert near == ["LinUCB lam=1.0", "LinUCB lam=1.0000001"]
    asking = [fb.ArmCon(schedule=b).prepare(50) for b in ("log", lambda t: t // 20, lambda t: t // 10)]
    assert grid.labels(asking) == [
        "ArmCon schedule=log",
        "ArmCon schedule=<lambda> (1)",
        "ArmCon schedule=<lambda> (2)",
    ]


def test_array_scalars_are_numbers(catalog):
    given = fb.sweep(catalog, fb.LinUCB(alpha=jnp.float32(0.5)), **SMALL | {"noise": np.float64(0.25)}).final()
    plain = fb.sweep(catalog, fb.LinUCB(alpha=0.5), **SMALL | {"noise": 0.25}).final()
    np.testing.assert_array_equal(given["regret"], plain["regret"])


def test_an_empty_list_of_hyperparameters_is_refused(catalog, nothing_traced):
    for algorithms in (fb.LinUCB(alpha=[]), [fb.Uniform(), fb.LinUCB(lam=np.array([]))]):
        with pytest.raises(ValueError, match=r"^(alpha|lam) of LinUCB=\[\] is not allowed: it must not be empty$"):
            fb.sweep(catalog, algorithms, **SMALL)


def test_a_class_without_decorator_is_told_and_harms_no_one(catalog, tmp_path):
    class Plain(fb.RoundAlgorithm):
        scale: float = 1.0

    class Heir(fb.LinUCB):
        scale: float = 1.0

    class Renamed(fb.LinUCB):  # nothing to decorate
        """LinUCB under another name."""

    try:
        for kind in (Plain, Heir):
            with pytest.raises(ValueError, match=rf"^{kind.__name__} has no fields: decorate class {kind.__name__}"):
                fb.sweep(catalog, kind(), **SMALL)
        fb.sweep(catalog, [fb.Uniform(), Renamed()], **SMALL, out=tmp_path)
    finally:
        for kind in (Plain, Heir, Renamed):
            del fb.REGISTRY[kind.__name__]

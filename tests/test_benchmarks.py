"""The benchmarks: what they make of numbers, what they count in programs, and that every suite measures something."""

import json
import math
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder
from jax import lax
from typer.testing import CliRunner

from benchmarks import SUITES, counts, federated_rivals, figure, judge, measure, rivals, roofline, runner
from benchmarks.measure import Effort, Row, Skipped
from fedbandit_jax.cli import bench as cli_bench
from fedbandit_jax.cli import main as cli
from tests import reference

ROOT = Path(__file__).parents[1]


def row(*samples, better="lower", **about):
    return Row("case", "s", samples, better, about)


def results(device="cpu: X", count=2, **rows):
    suites = {
        name: {"seconds": 1.0, "rows": [r.to_json() for r in found], "skipped": []} for name, found in rows.items()
    }
    versions = {"python": "3", "jax": "1"}
    environment = {"device": device, "device_count": count, "versions": versions}
    return {"format": 1, "made": "2026-01-01T00:00", "effort": "quick", "environment": environment, "suites": suites}


# ---- statistics


def test_exponents_are_those_of_power_laws():
    x = np.array([10, 20, 40, 10, 20, 40.0])
    assert judge.fitted_exponent(x, 3 * x**2.5) == pytest.approx((2.5, 0), abs=1e-6)
    y = x * np.exp([0.1, -0.2, 0.1, -0.1, 0.1, 0.3])
    slope, covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    assert judge.fitted_exponent(x, y) == pytest.approx((slope[0], np.sqrt(covariance[0, 0])))
    assert math.isnan(judge.fitted_exponent((1, 2), (1, 2)).error)
    with pytest.raises(ValueError, match="two different sizes"):
        judge.fitted_exponent((2, 2), (1, 2))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ((1.0, 1.1, 1.2), (1.3, 1.4, 1.5), "slower"),
        ((1.3, 1.4, 1.5), (1.0, 1.1, 1.2), "faster"),
        ((1.0, 1.1, 1.35), (1.3, 1.4, 1.5), "same"),  # the ranges overlap
        ((1.0, 1.001, 1.002), (1.01, 1.011, 1.012), "same"),  # apart, but by a percent
        ((1.0, 1.0), (5.0, 5.0), "not judged"),  # two samples have no range to speak of
    ],
)
def test_a_change_is_told_beyond_the_noise_only(old, new, told):
    assert judge.verdict(row(*old), row(*new))[1] == told
    # A rate is better when it is higher.
    rates = [row(*(1 / x for x in samples), better="higher") for samples in (old, new)]
    factor, verdict = judge.verdict(*rates)
    assert verdict == told
    assert factor == pytest.approx(np.median(old) / np.median(new))


def test_a_fact_is_not_judged():
    assert judge.verdict(row(1, 1, 1, better=""), row(9, 9, 9, better=""))[1] == "not judged"


def test_ranges_of_five_miss_each_other_by_chance_as_often_as_is_said():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 200_000, 5))
    apart = (a.max(axis=1) < b.min(axis=1)) | (b.max(axis=1) < a.min(axis=1))
    assert apart.mean() == pytest.approx(judge.chance_of_false_alarm([5]), rel=0.1)


def test_compare_says_what_changed():
    said = []
    old = results(a=[Row("x", "s", (1.0, 1.1, 1.2), "lower"), Row("gone", "s", (1.0,) * 3, "lower")])
    new = results(a=[Row("x", "s", (2.0, 2.1, 2.2), "lower"), Row("new", "s", (1.0,) * 3, "lower")])
    new["suites"]["yardstick"] = old["suites"]["yardstick"] = results(y=[row(1.0, 1.0, 1.0)])["suites"]["y"]
    new["environment"]["versions"] = {"python": "3", "jax": "2"}
    runner.say_changes(old, new, said.append)
    text = "\n".join(said)
    assert "slower 1.91 x: a: x, s" in text
    assert "jax was 1, is 2" in text
    assert "1 others are the same" in text
    assert "gone" not in text
    assert "new" not in text
    assert "Beware" not in text
    new["environment"] |= {"load_before": 12.34, "cores": 2}
    runner.say_changes(old, new, said.append)
    assert any("busy before the new results: a load of 12.3 on 2 cores" in line for line in said)


@pytest.mark.parametrize("other", [{"device": "gpu: Y"}, {"count": 4}])
def test_other_devices_are_not_compared(other):
    with pytest.raises(ValueError, match="cannot be compared"):
        judge.compare(results(), results(**other))


def test_the_largest_share_binds_if_it_accounts_for_half():
    assert judge.binding_limit({"arithmetic": 0.2, "memory": 0.7}, 1.0) == ("memory", pytest.approx(0.7), True)
    assert judge.binding_limit({"arithmetic": 0.2, "memory": 0.1}, 1.0) == ("arithmetic", pytest.approx(0.2), False)


def test_bandwidth_is_that_of_the_size_that_holds_the_working_set():
    machine = roofline.Machine(1e9, {2**16: 100.0, 2**20: 50.0, 2**27: 10.0}, 1e-6, True, 2**20)
    assert [machine.bytes_a_second(size) for size in (1, 2**16, 2**16 + 1, 2**24, 2**30)] == [100, 100, 50, 10, 10]


# ---- measuring


def test_calls_take_turns_after_a_warm_up():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    measure.LEAST_SECONDS, kept = 0.0, measure.LEAST_SECONDS
    try:
        timings = measure.time_in_turn(calls, 3)
    finally:
        measure.LEAST_SECONDS = kept
    assert order == [*"aabb", *"ababab"]  # each once to warm up and once to see how long it takes
    assert all(len(timing.wall) == 3 for timing in timings.values())


def test_ratios_are_paired():
    slow, fast = (measure.Timing(wall, 1.0) for wall in ((2.0, 40.0, 2.0), (1.0, 20.0, 1.0)))
    assert measure.ratios("c", "m", slow, fast).samples == (2, 2, 2)
    assert slow.row("c", "m", 10, "higher").samples == (5, 0.25, 5)
    assert slow.per(2).row("c", "m", 10).samples == (10, 200, 10)


def test_a_failing_case_does_not_stop_the_others():
    def one(case):
        if case == 2:
            raise MemoryError("too large\nfor this device")
        yield row(case)

    found = list(measure.each((1, 2, 3), str, one))
    assert [type(entry) for entry in found] == [Row, Skipped, Row]
    assert found[1] == Skipped("2", "MemoryError: too large")


# ---- counting


def count_loops(x, y):
    def inner(_, x):
        return x @ y

    def outer(_, x):
        x = lax.fori_loop(0, 3, inner, x + 1)
        return jnp.linalg.cholesky(x) + y[0][None, :]

    return lax.fori_loop(0, 5, outer, x)


def test_arithmetic_and_bytes_are_counted_by_loop():
    x = jnp.eye(8, dtype=jnp.float32)
    program = counts.of_jaxpr(jax.jit(count_loops).trace(x, x).jaxpr)
    (outer,) = program.loops
    (inner,) = outer.loops
    assert inner.flops == 2 * 8**3 + 1  # a product, and the loop's counter
    assert inner.bytes == 3 * 8 * 8 * 4 + 2 * 4  # reads x and y, writes x; reads and writes the counter
    assert outer.routines == Counter({counts.Routine("cholesky", 8, 8): 1})
    assert program.deepest("dot_general") is inner


def test_kernels_are_counted_by_loop():
    x = jnp.eye(64, dtype=jnp.float32)
    jitted = jax.jit(count_loops)
    compiled = counts.of_compiled(jitted.lower(x, x).compile().as_text())
    assert max(depth for depth, _ in compiled.walk()) == 2
    assert compiled.deepest("kernel").ops["kernel"] >= 1


def test_a_slice_is_read_not_the_whole():
    def body(i, carry):
        table, total = carry
        return table, total + table[i]

    def play(table):
        return lax.fori_loop(0, 9, body, (table, jnp.zeros(4)))

    (loop,) = counts.of_jaxpr(jax.jit(play).trace(jnp.ones((1000, 4))).jaxpr).loops
    assert loop.bytes < 200  # of 16,000 in the table


def test_only_the_branch_of_the_platform_counts():
    def play(x):
        return lax.platform_dependent(x, cpu=lambda x: x @ x, default=lambda x: x)

    traced = jax.jit(play).trace(jnp.eye(8))
    assert counts.of_jaxpr(traced.jaxpr, "cpu").flops == 2 * 8**3 + counts.of_jaxpr(traced.jaxpr, "cuda").flops


# ---- rivals


def test_rivals_play_the_same_game():
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(3, 10, 4))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True)
    theta, noise = rng.normal(size=(3, 4)) / 2, 0.1 * rng.normal(size=(3, 50))
    arms[:, 0] *= 1 + 1e-9  # unit vectors tie in the first round, and rounding would decide
    expected = [rivals.linucb_objects(*run) for run in zip(arms, theta, noise, strict=True)]
    np.testing.assert_allclose(rivals.linucb_numpy(arms, theta, noise), expected, rtol=1e-6)
    try:
        kernel = rivals.linucb_c()
    except OSError as error:
        pytest.skip(str(error))
    np.testing.assert_allclose(kernel(arms, theta, noise), expected, rtol=1e-2)


def test_rivals_play_the_same_game_as_federated_learners():
    """Public style against the oracle, on the same numbers."""
    rng = np.random.default_rng(3)
    arms, theta, noise = rng.normal(size=(3, 6, 4)), rng.normal(size=4), 0.1 * rng.normal(size=(3, 60))
    arms /= np.linalg.norm(arms, axis=2, keepdims=True) * rng.uniform(1, 1.5, (3, 6, 1))
    clients = [reference.Client.of_normals(x, theta, 1.0, z) for x, z in zip(arms, noise, strict=True)]
    rounds = reference.who_plays(60, 3)
    for rival, expected in (
        (federated_rivals.fedlinucb_objects, reference.fedlinucb(clients, rounds)),
        (federated_rivals.async_linucb_objects, reference.async_linucb(clients, rounds, gamma_U=6.0, gamma_D=6.0)),
    ):
        regret, uploads = rival(arms, theta, noise)
        assert regret == pytest.approx(expected.regret[-1])
        assert uploads == expected.uploads[-1] > 0


def redrawn_game(d, A, R, T):
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(A, d))
    pool *= rng.uniform(0.5, 1, size=(A, 1)) / np.linalg.norm(pool, axis=1, keepdims=True)
    return pool, rng.normal(size=(R, d)) / np.sqrt(d), 0.1 * rng.normal(size=(R, T))


def redrawn_by_definition(pool, theta, noise, indices, alpha=0.5, lam=1.0):
    """One client, V inverted in every round."""
    V, b, regret = lam * np.eye(len(theta)), np.zeros(len(theta)), 0.0
    for seen, z in zip(indices, noise, strict=True):
        x, inverse = pool[seen], np.linalg.inv(V)
        arm = np.argmax(x @ inverse @ b + alpha * np.sqrt(np.einsum("kd,de,ke->k", x, inverse, x)))
        V += np.outer(x[arm], x[arm])
        b += (x[arm] @ theta + z) * x[arm]
        regret += (x @ theta).max() - x[arm] @ theta
    return regret


@pytest.mark.parametrize(("K", "d"), [(10, 4), (17, 9), (30, 13), (37, 6), (1, 2)])
def test_rivals_play_the_same_game_on_redrawn_arms(K, d):
    """Of sizes that are not, and are, whole vectors and blocks of the kernel."""
    pool, theta, noise = redrawn_game(d, 60, 3, 60)
    indices = np.stack([rivals.distinct(np.random.default_rng(r), 60, 60, K) for r in range(3)])
    expected = [redrawn_by_definition(pool, *run) for run in zip(theta, noise, indices, strict=True)]
    found = rivals.linucb_redrawn_numpy(pool, theta, noise, K, indices=indices)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    try:
        kernels = rivals.linucb_redrawn_c(), rivals.linucb_redrawn_c("-DALL_PRODUCTS")
    except OSError as error:
        pytest.skip(str(error))
    for kernel in kernels:
        np.testing.assert_allclose(kernel(pool, theta, noise, K, indices=indices), expected, rtol=1e-4, atol=1e-4)


def test_rivals_draw_arms_without_replacement():
    rng = np.random.default_rng(0)
    drawn = rivals.distinct(rng, 20_000, 6, 4)
    assert (np.diff(drawn, axis=1) > 0).all()
    sets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(sets) == 15  # each of them as often as any other
    np.testing.assert_allclose(counts, 20_000 / 15, rtol=0.12)  # four standard deviations
    try:
        kernel = rivals.linucb_redrawn_c()
    except OSError as error:
        pytest.skip(str(error))
    # The kernel does not tell what it drew, but regret does: of two arms the longer, which is the worse one here, is
    # pulled in the first round, and no two pairs differ by the same.
    means, norms = np.array([0, 0.1, 0.4, 0.6]), np.array([1, 0.9, 0.8, 0.7])
    pool = np.stack([np.sqrt(norms**2 - means**2), means], axis=1)
    regret = kernel(pool, np.tile([0.0, 1.0], (20_000, 1)), np.zeros((20_000, 1)), 2)
    pairs, counts = np.unique(np.rint(10 * regret), return_counts=True)
    assert pairs.tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(counts, 20_000 / 6, rtol=0.07)  # four standard deviations
    # In later rounds too it fares as with draws that are known to be right.
    pool, theta, noise = redrawn_game(3, 40, 400, 100)
    mine, other = kernel(pool, theta, noise, 8), rivals.linucb_redrawn_numpy(pool, theta, noise, 8)
    assert abs(np.mean(mine - other)) < 4 * np.std(mine - other) / 20
    assert (kernel(pool, theta, noise, 8) == mine).all()  # whichever thread plays a client
    assert (kernel(pool, theta, noise, 8, seed=1) != mine).any()


def test_rival_designs_are_optimal():
    arms = np.random.default_rng(0).normal(size=(15, 3))
    designs = [rivals.textbook_frank_wolfe(arms, 1e-2)]
    if pytest.importorskip("cvxpy", reason="optional"):
        designs.append(rivals.convex_solver(arms))
    for weights in designs:
        inverse = np.linalg.inv(arms.T @ (weights[:, None] * arms))
        assert np.einsum("kd,de,ke->k", arms, inverse, arms).max() <= 3 * 1.0101


# ---- the whole


@pytest.mark.thorough
def test_every_suite_measures_something_and_the_file_tells_it(tmp_path):
    """In one test, as the suites share compiled programs."""
    said = []
    here = [name for name in SUITES if name != "accelerators"]  # which needs compilers that are not installed
    found = runner.run(here, Effort(0), said.append)
    assert set(found["suites"]) == {*here, "yardstick"}
    for name, suite in found["suites"].items():
        assert {entry["case"] for entry in suite["skipped"]} <= {"cvxpy"}, name  # which need not be installed
        assert suite["rows"], name
        for entry in suite["rows"]:
            assert np.isfinite(entry["samples"]).all(), (name, entry)
            may_be_none = not entry["better"] or entry["metric"].startswith("programs")
            assert may_be_none or all(x > 0 for x in entry["samples"]), (name, entry)
    limits = [r for r in found["suites"]["peers"]["rows"] if r["metric"] == "limit"]
    assert [r["case"] for r in limits] == ["LinUCB", "FedConPE"]
    assert all(r["about"]["limit"] for r in limits)

    file = tmp_path / "some" / "bench.json"
    runner.save(found, file)
    again = runner.load(file)
    assert again == json.loads(json.dumps(found))
    rows = judge.rows_by_name(again)
    assert rows["linalg", "cholesky d=4 batch=2", "us a matrix"].about["d"] == 4
    picture = figure.draw(again, file.with_suffix(".png"))
    assert picture.stat().st_size > 10_000
    assert picture.with_suffix(".pdf").is_file()
    changes = judge.compare(again, again)
    assert changes
    assert {change.verdict for change in changes} <= {"same", "not judged"}


def test_the_command_runs_a_suite_and_compares(tmp_path, monkeypatch):
    fake = [Row("x", "s", (1.0, 1.1, 1.2), "lower"), Skipped("y", "no such thing here")]
    monkeypatch.setattr("benchmarks.linalg.linalg", lambda effort: iter(fake))
    out = tmp_path / "bench.json"
    for again in ([], ["--compare", str(out)]):
        result = CliRunner().invoke(cli.app, ["bench", "linalg", "--quick", "--out", str(out), *again])
        assert result.exit_code == 0, result.output
    assert "not measured: y: no such thing here" in result.output
    assert "others are the same" in result.output


def test_a_suite_that_fails_is_told(monkeypatch):
    monkeypatch.setattr("benchmarks.linalg.linalg", lambda effort: iter(1 / n for n in (0,)))
    said = []
    found = runner.run(["linalg"], Effort(0), said.append)
    assert found["suites"]["linalg"]["skipped"] == [{"case": "linalg", "reason": "ZeroDivisionError: division by zero"}]
    assert any("linalg failed" in text for text in said)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["speed"], "suite='speed' is not allowed: it must be 'linalg' or"),
        (["--target", "h200"], "target='h200' is not allowed: it must be 'h100' or 'a100' or 'l4' or 'v5e'"),
        (["--compare", "nowhere.json"], "compare='nowhere.json' is not allowed: it cannot be read"),
        (["--compare", str(ROOT / "pyproject.toml")], "it cannot be read"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_measured(arguments, told, monkeypatch):
    monkeypatch.setattr(runner, "run", None)
    with pytest.raises(ValueError, match="is not allowed") as error:
        CliRunner().invoke(cli.app, ["bench", *arguments], catch_exceptions=False)
    assert told in str(error.value)


def test_help_names_the_suites():
    text = CliRunner().invoke(cli.app, ["bench", "--help"]).output
    assert all(suite in text for suite in SUITES)
    assert "--quick" in text


def test_a_second_measurement_of_a_day_gets_a_file_of_its_own(tmp_path):
    first = tmp_path / "bench-2026-11-01.json"
    names = []
    for _ in range(3):
        names.append(cli_bench.new_file(first).name)
        (tmp_path / names[-1]).touch()
    assert names == ["bench-2026-11-01.json", "bench-2026-11-01-2.json", "bench-2026-11-01-3.json"]


def test_benchmarks_are_those_of_this_checkout():
    assert Path(cli_bench.benchmarks().__file__).parent == ROOT / "benchmarks"


def test_the_wheel_has_every_file_of_the_package_and_of_the_benchmarks():
    found = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}

    def files(folder, home):
        paths = (path.relative_to(folder) for path in folder.rglob("*.*") if "__pycache__" not in path.parts)
        return {f"{home}/{path.as_posix()}" for path in paths if path.suffix != ".so"}

    package = files(ROOT / "fedbandit_jax", "fedbandit_jax")
    assert {f"fedbandit_jax/{name}" for name in ("py.typed", "report/assets/report.js")} <= package
    assert found == package | files(ROOT / "benchmarks", "fedbandit_jax/benchmarks")
    for file in (ROOT / "benchmarks").glob("*.py"):
        assert "from benchmarks" not in file.read_text(), f"{file.name} would not work inside the package"

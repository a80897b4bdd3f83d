"""Programs for devices that are not here: what is read from their text, how targets are described, the estimates."""

import re
from collections import Counter

import pytest

from benchmarks import accelerators, compiled, hlo
from benchmarks.accelerators import ASSUMPTIONS
from benchmarks.targets import TARGETS
from fedbandit_jax.engine import program

PROGRAM = """\
HloModule jit_play, is_scheduled=true

FileNames
1 "/somewhere/fedbandit_jax/clocks/rounds.py"
2 "/somewhere/fedbandit_jax/linalg/portable.py"
3 "/somewhere/jax/loops.py"

FunctionNames
1 "play_rounds.<locals>.play_to_checkpoint"
2 "fori_loop.<locals>.strided"
3 "fori_loop"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}
2 {file_name_id=2 function_name_id=2 line=9 end_line=9 column=1 end_column=9}
3 {file_name_id=3 function_name_id=3 line=9 end_line=9 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}

%fused_take (param_0: f32[100,8], param_1: s32[]) -> f32[1,8] {
  %param_0 = f32[100,8]{1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %taken = f32[1,8]{1,0} dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={1,8}
  ROOT %twice = f32[1,8]{1,0} add(%taken, %taken)
}

%fused_put (param_0.1: f32[100,8], param_1.1: f32[1,8], param_2: s32[]) -> f32[100,8] {
  %param_0.1 = f32[100,8]{1,0} parameter(0)
  %param_1.1 = f32[1,8]{1,0} parameter(1)
  %param_2 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  ROOT %put = f32[100,8]{1,0} dynamic-update-slice(%param_0.1, %param_1.1, %param_2, %zero.1)
}

%round (state: (s32[], f32[100,8])) -> (s32[], f32[100,8]) {
  %state = (s32[], f32[100,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %table = f32[100,8]{1,0} get-tuple-element(%state), index=1
  %row = f32[1,8]{1,0} fusion(%table, %i), kind=kLoop, calls=%fused_take
  %after = f32[100,8]{1,0} fusion(%table, %row, %i), kind=kLoop, calls=%fused_put
  ROOT %next = (s32[], f32[100,8]{1,0}) tuple(%i, %after)
}

%more (state.1: (s32[], f32[100,8])) -> pred[] {
  %state.1 = (s32[], f32[100,8]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

%seldom (given: f32[8,8]) -> f32[8,8] {
  %given = f32[8,8]{1,0} parameter(0)
  %eigh = (f32[8,8]{1,0}, f32[8]{0}) custom-call(%given), custom_call_target="cusolver_syevd_ffi"
  ROOT %vectors = f32[8,8]{1,0} get-tuple-element(%eigh), index=0
}

%mostly (given.1: f32[8,8]) -> f32[8,8] {
  ROOT %given.1 = f32[8,8]{1,0} parameter(0)
}

ENTRY %main (a: f32[100,8], b: f32[8,8], n: s32[], p: pred[]) -> f32[100,8] {
  %a = f32[100,8]{1,0} parameter(0)
  %b = f32[8,8]{1,0} parameter(1)
  %n = s32[] parameter(2)
  %p = pred[] parameter(3)
  %chosen = f32[8,8]{1,0} conditional(%p, %b, /*index=2*/%b), true_computation=%seldom, false_computation=%mostly
  %product = (f32[100,8]{1,0}, s8[64]{0}) custom-call(%a, %chosen), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  %x = f32[100,8]{1,0} get-tuple-element(%product), index=0
  %start = (s32[], f32[100,8]{1,0}) tuple(%n, %x)
  %while = (s32[], f32[100,8]{1,0}) while(%start), condition=%more, body=%round, \
metadata={op_name="jit(play)/while" stack_frame_id=3}, backend_config={"known_trip_count":{"n":"8"}}
  ROOT %copied = f32[100,8]{1,0} copy(%x)
}
"""
ROW, TABLE, NUMBER = 8 * 4, 100 * 8 * 4, 4


def test_a_program_is_read_as_a_tree_of_loops():
    program = hlo.read(PROGRAM)
    branch, loop = program.inside
    assert (loop.kind, loop.name, loop.turns) == ("loop", "rounds.play_to_checkpoint", 8)
    assert loop.kernels == Counter(fusion=2)
    assert loop.flops == 8  # an addition of rows
    assert (branch.kind, branch.calls) == ("branch", Counter({"cusolver_syevd_ffi f32[8,8]": 1}))
    assert program.kernels == Counter(library=1, copy=1)
    assert program.products == 2 * 100 * 8 * 8
    assert program.loops == [loop]
    assert hlo.Loop.from_json(program.to_json()) == program


def test_of_an_array_the_part_that_is_read_or_written_counts():
    (loop,) = hlo.read(PROGRAM).loops
    take, put = ROW + NUMBER + ROW, ROW + NUMBER + ROW  # a row and the index come, a row goes
    assert loop.bytes == take + put
    whole = PROGRAM.replace("dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={1,8}", "custom(%param_0)")
    (loop,) = hlo.read(whole).loops
    assert loop.bytes == TABLE + ROW + put  # all of the table comes, and no index


@pytest.mark.parametrize(
    ("line", "where", "told"),
    [
        ("%t = f32[8]{0} infeed(%i)", "host", "infeed"),
        ('%t = f32[8]{0} custom-call(%i), custom_call_target="xla_ffi_python_gpu_callback"', "host", None),
        ("%t = f32[100,8]{1,0:S(5)} copy(%table)", "host", "copy"),
        ("%t = f32[100,8]{1,0} all-reduce(%table), to_apply=%add", "collectives", "all-reduce"),
        ("%t = (f32[8]{0}, f32[64]{0}) all-gather-start(%row), dimensions={0}", "collectives", "all-gather"),
    ],
)
def test_transfers_are_found_in_the_loop_in_which_they_are(line, where, told):
    program = hlo.read(PROGRAM.replace("  ROOT %next =", f"  {line}\n  ROOT %next ="))
    (loop,) = program.loops
    assert list(getattr(loop, where)) == [told or "xla_ffi_python_gpu_callback"]
    assert not getattr(program, where)


COUNTED = {  # the loop of a compiler that does not tell its turns: a counter from 2 to 9
    "tuple(%i, %after)": "tuple(%copy.1, %after)",
    "  %row =": "  %one = s32[] constant(1)\n  %up = s32[] add(%i, %one)\n  %copy.1 = s32[] copy(%up)\n  %row =",
    "tuple(%n, %x)": "tuple(%first, %x)",
    "%n = s32[] parameter(2)": "%n = s32[] parameter(2)\n  %first = s32[] constant(2)",
    "  ROOT %yes = pred[] constant(true)": "  %c = s32[] get-tuple-element(%state.1), index=0\n"
    "  %end = s32[] constant(9)\n  ROOT %yes = pred[] compare(%c, %end), direction=LT",
    ', backend_config={"known_trip_count":{"n":"8"}}': "",
}


@pytest.mark.parametrize(
    ("change", "turns"),
    [
        ({}, 7),
        ({"direction=LT": "direction=NE"}, None),
        ({"%one = s32[] constant(1)": "%one = s32[] constant(2)"}, None),
        ({"%end = s32[] constant(9)": "%end = s32[] get-tuple-element(%state.1), index=0"}, None),
        ({"tuple(%first, %x)": "tuple(%n, %x)"}, None),
        ({"add(%i, %one)": "add(%one, %one)"}, None),
    ],
)
def test_turns_are_those_of_a_counter_where_nobody_tells_them(change, turns):
    text = PROGRAM
    for old, new in (*COUNTED.items(), *change.items()):
        assert old in text
        text = text.replace(old, new)
    (loop,) = hlo.read(text).loops
    assert loop.turns == turns


@pytest.mark.parametrize("target", hlo.NO_CALL)
def test_a_call_that_runs_nothing_is_none(target):
    line = f'%t = f32[8]{{0}} custom-call(%row), custom_call_target="{target}"'
    assert hlo.read(PROGRAM.replace("  ROOT %next =", f"  {line}\n  ROOT %next =")) == hlo.read(PROGRAM)
    other = hlo.read(PROGRAM.replace("  ROOT %next =", f"  {line.replace(target, 'Cholesky')}\n  ROOT %next ="))
    assert list(other.loops[0].calls) == ["Cholesky f32[1,8]"]


def test_float64_is_found():
    assert not hlo.has_float64(PROGRAM)
    assert hlo.has_float64(PROGRAM.replace("%twice = f32[1,8]", "%twice = f64[1,8]"))


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("(f32[3,5]{1,0}, pred[7]{0}, bf16[2]{0})", 60 + 7 + 4),
        ("f32[3,50]{1,0:T(8,128)}", 8 * 128 * 4),  # a TPU keeps whole tiles
        ("f32[50,3]{0,1:T(8,128)}", 8 * 128 * 4),
        ("f32[2,3,50]{2,1,0:T(8,128)}", 2 * 8 * 128 * 4),
        ("f32[3,50]{1,0:T(8,128)S(1)}", 0),  # and some beside its processor
    ],
)
def test_sizes_are_those_in_the_memory_of_the_device(shape, size):
    assert hlo.size(shape) == size


@pytest.mark.parametrize("target", [t for t in TARGETS.values() if t.platform == "gpu"], ids=lambda t: t.name)
def test_descriptions_agree_with_the_published_rates(target):
    """Two operations a cycle of every unit: core_count, fpus_per_core and clock make up the rate of the data sheet."""
    found = dict(re.findall(r"(\w+): ([\d.]+)", target.description()))
    rate = 2 * int(found["core_count"]) * int(found["fpus_per_core"]) * float(found["clock_rate_ghz"]) * 1e9
    assert rate == pytest.approx(target.flops, rel=0.01)
    assert float(found["memory_bandwidth"]) == target.bandwidth


# ---- estimates


def report(program, **more):
    sizes = {
        "lanes": 4096,
        "clients": 1,
        "client_rounds": 6000.0,
        "federations": 0.1,
        "rounds": 6000.0,
        "phases": 1,
        "stretches": 200,
    }
    about = {"memory": 10**9, "float64": False, "seconds": 1.0}
    return compiled.Report("LinUCB", "h100", 1, program=program, **sizes | about | more)


def round_of(turns=8, **cost):
    loop = hlo.Loop("rounds.play_to_checkpoint", turns=turns, **cost)
    return hlo.Loop("program", "program", inside=[hlo.Loop("rounds.play_rounds", inside=[loop])])


@pytest.mark.parametrize(
    ("cost", "limit", "seconds"),
    [
        ({"bytes": 3.35e9, "kernels": Counter(fusion=10)}, "memory bandwidth", 1e-3 / 0.75),
        ({"bytes": 1e3, "kernels": Counter(fusion=10)}, "kernel launches", 10 * TARGETS["h100"].launch),
        ({"flops": 66.9e9, "bytes": 1e3}, "arithmetic", 1e-3 / 0.5),
        ({"calls": Counter({"cusolver_potrf_ffi f32[300,100,10,10]": 2})}, "linear algebra routines", None),
    ],
)
def test_the_largest_limit_binds_and_sets_the_rate(cost, limit, seconds):
    found = {row.metric: row for row in accelerators.estimates(report(round_of(**cost)), TARGETS["h100"])}
    assert found["limit, estimated"].about["limit"] == limit
    seconds = seconds or 2 * 300 * 100 * 10**3 / 3 / (0.05 * 66.9e12)
    rate = found["client-rounds/s, estimated"]
    assert rate.median == pytest.approx(4096 / seconds)
    assert len(rate.samples) == len(ASSUMPTIONS)
    assert rate.low < rate.median < rate.high
    assert not rate.better, "an estimate is no measurement, and is not compared"


def test_a_loop_that_is_no_graph_waits_for_the_host(monkeypatch):
    target, middle = TARGETS["h100"], ASSUMPTIONS[1]
    calls = {"calls": Counter({"cusolver_potrf_ffi f32[10,10]": 1})}
    for cost, waits in (({}, 0), (calls, 1)):
        unit = accelerators.unit_of(round_of(turns=None, **cost))
        assert accelerators.limits_of(unit, target, middle)["loop conditions"] == waits * target.condition
    monkeypatch.setitem(program.COMPILER_OPTIONS["gpu"], "xla_gpu_enable_command_buffer", "FUSION")
    assert accelerators.limits_of(accelerators.unit_of(round_of(turns=None)), target, middle)["loop conditions"] > 0


def test_rounds_of_a_kernel_count_as_many_as_a_stretch_has():
    kernel = {"kernels": Counter(own=1), "own": Counter({"__gpu$xla.gpu.triton f32[4096,100,50]": 1})}
    stretch = hlo.Loop("rounds.play_block", turns=8, **kernel)
    program = hlo.Loop("program", "program", inside=[stretch])
    found = {row.metric: row for row in accelerators.estimates(report(program), TARGETS["h100"])}
    flops = 5 * 64 * 64 + 2 * 64 * 128 + 12 * 128  # of a client and a round
    assert found["limit, estimated"].about["limit"] == "arithmetic"
    assert found["client-rounds/s, estimated"].median == pytest.approx(0.1 * 66.9e12 / flops)


def test_steps_of_a_design_count_as_often_as_a_phase_takes_them():
    step = hlo.Loop("design._multiplicative", bytes=1e6, kernels=Counter(fusion=3))
    phase = hlo.Loop("phases.run_phases", bytes=4e6, kernels=Counter(fusion=20), inside=[step])
    unit = accelerators.unit_of(hlo.Loop("program", "program", inside=[phase]))
    assert (unit.name, unit.loop, unit.designs) == ("phase", phase, [step])
    least = accelerators.limits_of(unit, TARGETS["h100"], ASSUMPTIONS[1])
    assert least["memory bandwidth"] == pytest.approx((4e6 + 2 * 1e6) / 3.35e12 / 0.75)
    assert least["kernel launches"] == pytest.approx((20 + 2 * 3) * TARGETS["h100"].launch)


def test_memory_grows_with_clients_and_fills_the_card():
    some = [report(round_of(), lanes=n, memory=10**8 + 10**5 * n) for n in (4096, 1024)]
    fits = list(accelerators.memory(some, TARGETS["h100"]))[-1]
    assert fits.median == pytest.approx((0.75 * 80e9 - 10**8) / 10**5, rel=0.01)


def test_targets_stand_side_by_side():
    """H100 has ten times the bandwidth of the L4, and more; a program of which nothing is estimated has no line."""
    program = round_of(bytes=3e9, kernels=Counter(fusion=1))
    fact = accelerators.Row("Uniform", "kernels a run", (3.0,), "lower", {"algorithm": "Uniform"})
    found = [[fact, *accelerators.estimates(report(program), TARGETS[name])] for name in ("h100", "l4")]
    heads, _, line = accelerators.side_by_side(found)
    assert heads == "| | H100 SXM | L4 |"
    rates = [4096 * share * TARGETS[name].bandwidth / 3e9 for name in ("h100", "l4") for share in (0.6, 0.9)]
    slow, fast, slow_l4, fast_l4 = map(accelerators.short, rates)
    assert line == f"| LinUCB | {slow} to {fast} client-rounds | {slow_l4} to {fast_l4} client-rounds |"


def test_a_loop_of_unknown_length_has_no_estimate():
    inner = hlo.Loop("eigenvalues.some")
    program = hlo.Loop("program", "program", inside=[hlo.Loop("phases.run_phases", inside=[inner])])
    (skipped,) = accelerators.estimates(report(program), TARGETS["v5e"])
    assert "eigenvalues.some" in skipped.reason


def test_what_is_missing_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "fedbandit-jax[accelerators]"' in compiled.missing(TARGETS["h100"])
    (skipped,) = accelerators.accelerators(accelerators.Effort(1, "v5e"))
    assert skipped.case == "programs for TPU v5e"

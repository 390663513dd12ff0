"""The check of a recording on real traces: none of the healthy ones raises an alarm, and each
damaged one says what is wrong, with the figures of its healthy twin if that can be undone."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.document import ReportInput
from profiler.analysis.overview import extent, opening_of, summary_of
from profiler.importers.importing import import_trace
from profiler.importers.kineto.health import checked_trace
from profiler.importers.kineto.launches import DEVICE_WORK
from profiler.importers.nsys import read_run as read_nsys
from profiler.importers.rocprofv3.read import read_run as read_rocprofv3
from profiler.kineto.trace_file import read_kineto
from profiler.tools.sources import load
from profiler.trace.manifest_fields import HealthRule
from tests.corpus import CORPUS, needs_corpus
from tests.importers.kineto.traces import Trace

DAMAGED = CORPUS / "damaged"
BASE = DAMAGED / "00_base_correct.json"
KINETO = (
    *("torch/*.json.gz", "torch_*/**/*.json.gz", "hta/*.json.gz", "wild/switch_moe_*.json.gz"),
    *("wild/kineto_cuda_*.json.gz", "wild/kineto_autograd_*.json.gz", "wild/kineto_tb_*.json.gz"),
)
RECORDED = ("nsys/*.sqlite", "rocprofv3/*.json.gz", "rocprofv3/ruv_decode")
NOT_DAMAGED = ("00_base_correct", "f_gpu_only", "first_launch_late", "role_named_after_small_part")

pytestmark = needs_corpus


def found(patterns):
    """The files of the corpus, each as a parameter."""
    paths = sorted(path for pattern in patterns for path in CORPUS.glob(pattern))
    return [pytest.param(path, id=path.name) for path in paths if "truth" not in path.name]


def damage(notes):
    """The rules that are damage."""
    return [note.rule for note in notes if note.rule.damage]


@pytest.mark.parametrize("path", found(KINETO))
def test_healthy_traces_of_torch_raise_no_alarm(path):
    assert damage(checked_trace(read_kineto(path)).health) == []


@pytest.mark.parametrize("name", NOT_DAMAGED)
def test_unusual_traces_raise_no_alarm(name):
    assert damage(checked_trace(read_kineto(DAMAGED / f"{name}.json")).health) == []


@pytest.mark.parametrize("path", found(RECORDED))
def test_healthy_recordings_of_other_profilers_raise_no_alarm(path):
    """But for one whose authors thinned its kernels and launches out, as its SOURCE.txt says."""
    notes = (read_nsys(path) if path.suffix == ".sqlite" else read_rocprofv3([path])).health
    thinned = [HealthRule.LOST, HealthRule.UNLAUNCHED] if path.name == "ruv_decode" else []
    assert damage(notes) == thinned


BASES = (
    *("torch_pairs/Qwen_Qwen1.5-0.5B-Chat__h100", "torch_pairs/Qwen_Qwen1.5-0.5B-Chat__mi300"),
    *("torch_multirank/trace_filter/sampled_rank-0", "wild/switch_moe_a100"),
)


@pytest.mark.parametrize("kind", ["one", "some", "clock"])
@pytest.mark.parametrize("base", BASES)
def test_damage_to_real_traces_is_seen_and_undone(base, kind):
    """Device time within 1 %, times within the least latency of a launch, which is 25 µs."""
    trace = read_kineto(CORPUS / f"{base}.json.gz")
    work, kernels = trace.rows_of(*DEVICE_WORK), trace.rows_of("kernel")
    random = np.random.default_rng(len(base))
    start, duration = trace.start_ns.copy(), trace.duration_ns.copy()
    if kind == "one":
        duration[random.choice(kernels)] += 1_600_000_000
    elif kind == "some":
        number = max(round(0.0014 * len(kernels)), 1)
        duration[random.choice(kernels, number, replace=False)] += 50_000_000
    else:
        start[work] -= 100_000
    checked = checked_trace(replace(trace, start_ns=start, duration_ns=duration))
    assert damage(checked.health)
    true = int(trace.duration_ns[work].sum())
    assert int(checked.duration_ns[work].sum()) == pytest.approx(true, rel=0.01)
    assert int(abs(checked.start_ns[work] - trace.start_ns[work]).max()) <= 25_000


@pytest.fixture(scope="module")
def analysis_of(tmp_path_factory):
    """Analyses by file, made once each."""
    made = {}

    def of(path):
        if path not in made:
            made[path] = analyze(load(import_trace(path, tmp_path_factory.mktemp("traces"))))
        return made[path]

    return of


def screen(analysis):
    """The first screen: its headline, and its figures and checks by label."""
    given = ReportInput(analysis, *extent(analysis.inputs.run))
    opening = opening_of(given, summary_of(given))
    facts = {fact.label: fact.value for fact in (*opening.facts, *opening.checks)}
    return _plain(opening.headline), {label: _plain(value) for label, value in facts.items()}


def _plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def figures(analysis, device="cuda:0"):
    """End to end, busy time of a device, median and calls of the transformer."""
    (busy,) = analysis.devices.filter(device=device)["busy_ns"]
    submodules = analysis.submodules.filter(submodule="transformer")
    return (
        analysis.accounting.end_to_end_ns,
        busy,
        submodules["median_ns"].item(),
        submodules["calls"].item(),
    )


def shifted(tmp_path, by_us):
    """The healthy twin with the clock of its device moved."""
    document = json.loads(BASE.read_text())
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["ts"] += by_us
    path = tmp_path / "shifted.json"
    path.write_text(json.dumps(document))
    return path


def test_an_impossible_length_is_undone(analysis_of):
    analysis = analysis_of(DAMAGED / "a1_overflow_dur.json")
    headline, facts = screen(analysis)
    assert figures(analysis) == pytest.approx(figures(analysis_of(BASE)), rel=0.01)
    assert headline.startswith("damaged recording: 10.6 ms for 4 iterations: ")
    assert "1 kernel on cuda:0 stream 7" in facts["Corrected"]
    assert facts.get("Lost") != "no events"
    (row,) = analysis.health.to_dicts()
    assert (row["rule"], row["count"], row["action"]) == ("overrun", 1, "shortened")
    assert row["worst_ns"] == 3_400_000_000
    assert row["sentence"].endswith("; shortened.")


@pytest.mark.parametrize(
    ("name", "recorded_ns"),
    [
        ("a1_overflow_dur.json", 3_400_000_000),
        ("s5_nsys_overflow.sqlite", 3_400_000_000),
        ("r2_rocprofv3_overflow", 3_000_000_000),
    ],
)
def test_the_recorded_length_of_a_corrected_command_is_kept(name, recorded_ns, tmp_path):
    """As the file has it; of all other commands the column says nothing."""
    run = load(import_trace(DAMAGED / name, tmp_path))
    column = run.commands["recorded_ns"]
    assert column.drop_nulls().to_list() == [recorded_ns]
    (row,) = run.commands.filter(column.is_not_null()).to_dicts()
    assert row["duration_ns"] < 1_000_000
    assert row["device"].startswith(("cuda", "rocm"))


def test_an_impossible_length_of_nsys_is_undone(analysis_of):
    analysis = analysis_of(DAMAGED / "s5_nsys_overflow.sqlite")
    (row,) = analysis.health.to_dicts()
    assert (row["rule"], row["count"], row["action"]) == ("overrun", 1, "shortened")
    (busy,) = analysis.devices.filter(device="cuda:0")["busy_ns"]
    assert busy == pytest.approx(12e6, rel=0.01)
    assert analysis.steps["elapsed_ns"].max() < 3e6


def test_an_impossible_length_of_rocprofv3_is_undone(analysis_of):
    """19 kernels of 150 µs; one that ends before its start is set aside, so that nobody knows
    whether its device was idle."""
    analysis = analysis_of(DAMAGED / "r2_rocprofv3_overflow")
    rows = {row["rule"]: row for row in analysis.health.to_dicts()}
    assert set(rows) == {"overrun", "negative_length", "device_only"}
    assert (rows["overrun"]["count"], rows["overrun"]["action"]) == (1, "shortened")
    assert (rows["negative_length"]["count"], rows["negative_length"]["total"]) == (1, 20)
    (busy,) = analysis.devices.filter(device="rocm:4")["busy_ns"]
    assert busy == pytest.approx(19 * 150_000, rel=0.01)
    assert not analysis.findings


def test_lost_kernels_are_counted(analysis_of):
    """Calls that lost all of them are in no median: the others take what the twin's do."""
    analysis, twin = analysis_of(DAMAGED / "a3_lost_kernels.json"), analysis_of(BASE)
    headline, facts = screen(analysis)
    assert headline.startswith("damaged recording: ")
    assert facts["Lost"].startswith(
        "28 of 62 launches on cuda:0 have no kernel in the trace, 4 calls no work at all"
    )
    assert facts.get("Lost") != "no events"
    assert facts["Iterations"] == "8"
    *_, median, calls = figures(analysis)
    assert (median, calls) == (pytest.approx(figures(twin)[2], rel=0.01), 8)
    assert analysis.inputs.run.info.workless == (3, 4, 5, 6)
    assert "first_call" not in {finding.rule for finding in analysis.findings}


def test_kernels_without_a_time_leave_busy_unknown(analysis_of):
    analysis = analysis_of(DAMAGED / "b1_kernel_ts0.json")
    headline, facts = screen(analysis)
    assert facts["Set aside"].startswith("12 kernels without a time (0) on cuda:0")
    assert facts["cuda:0"] == "busy time is not known"
    assert "idle" not in headline
    assert analysis.devices.filter(device="cuda:0")["idle_share"].to_list() == [None]
    assert not [finding for finding in analysis.findings if finding.rule == "idle_gaps"]


@pytest.mark.parametrize("pid", [None, 9999])
def test_a_file_that_has_all_twice_is_read_once(tmp_path, pid):
    """All events again, or all of the host as those of another process: the twin's figures."""
    trace = json.loads(BASE.read_text())
    again = [dict(one) for one in trace["traceEvents"]]
    for one in again:
        if pid is not None and one.get("cat") != "kernel" and "pid" in one:
            one["pid"] = pid
    trace["traceEvents"] += again
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    read, twin = checked_trace(read_kineto(path)), checked_trace(read_kineto(BASE))
    assert damage(read.health) == [HealthRule.TWICE]
    assert {name: len(rows) for name, rows in read.rows.items()} == {
        name: len(rows) for name, rows in twin.rows.items()
    }
    run = load(import_trace(path, tmp_path / "traces"))
    healthy = load(import_trace(BASE, tmp_path / "traces"))
    for name in ("submodule", "start_ns", "duration_ns"):
        assert run.calls[name].cast(str).equals(healthy.calls[name].cast(str))


@pytest.mark.parametrize(
    ("place", "action"), [(0, "set_aside"), (3, "shortened"), (5, "set_aside")]
)
def test_a_range_that_cannot_be_so_long_is_no_call(place, action, analysis_of, tmp_path):
    """Of a text encoder, four iterations and a decoder one is 1.6 s too long and would contain what
    follows. An iteration is as long as the others; one alone of its name is left out."""
    trace = json.loads(BASE.read_text())
    ranges = [one for one in trace["traceEvents"] if one.get("cat") == "user_annotation"]
    ranges[place]["dur"] += 1_600_000
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    analysis, twin = analyze(load(import_trace(path, tmp_path / "traces"))), analysis_of(BASE)
    (note,) = analysis.inputs.run.info.health
    assert (str(note.rule), str(note.action), note.count) == ("range_too_long", action, 1)
    assert note.worst == ranges[place]["name"]
    found, true = (one.accounting.end_to_end_ns for one in (analysis, twin))
    assert found == pytest.approx(true, rel=0.01)
    calls, left = (one.submodules.select("submodule", "calls").rows() for one in (analysis, twin))
    alone = [(note.worst, 1)] if action == "set_aside" else []
    assert sorted(calls + alone) == sorted(left)
    assert figures(analysis)[2] == pytest.approx(figures(twin)[2], rel=0.01) or alone


COROUTINES = (
    ("text_encoder", 1_528, 96_647),
    ("transformer", 33_794, 108_340),
    ("vae_decoder", 83_043, 70_143),
)  # requests that wait for each other on one thread, as torch recorded them with asyncio
NESTED = (
    ("forward", 10_000, 190_000),
    *(("forward", 11_000 + 3_300 * n, 2_900) for n in range(57)),
)
SLOW_FIRST = (("request", 0, 70_000), *(("request", 71_000 + 4_000 * n, 3_900) for n in range(8)))
STOPPED = (*SLOW_FIRST[1:], ("request", 110_000, 150_000))  # after the span, which ends early


@pytest.mark.parametrize("ranges", [COROUTINES, NESTED, SLOW_FIRST, STOPPED])
def test_ranges_that_are_only_unusual_stay(ranges, tmp_path):
    """Ranges that cross, lie in others of their name, or are far longer than these are as the file
    has them, without a note."""
    trace = Trace()
    trace.event("Trace", "PyTorch Profiler (0)", 0, 250_000, pid="Spans", tid="PyTorch Profiler")
    for name, start, length in ranges:
        trace.event("user_annotation", name, start, length)
        trace.op("aten::linear", start + 10, 60)
    read = checked_trace(read_kineto(trace.write(tmp_path)))
    assert read.health == ()
    rows = read.rows_of("user_annotation")
    assert sorted(read.duration_ns[rows].tolist()) == sorted(1_000 * one for *_, one in ranges)


def test_of_many_names_each_range_beyond_the_end_is_set_aside_or_shortened(tmp_path):
    """The usual length is that of the exact name on the thread, and ends where the next begins."""
    trace = Trace()
    trace.event("Trace", "PyTorch Profiler (0)", 0, 10_000, pid="Spans", tid="PyTorch Profiler")
    for number in range(5):
        late = 1_600_000 * (number == 2)
        trace.event("user_annotation", f"block {number}", 1_000 * number, 900 + late)
        trace.event("user_annotation", "step", 1_000 * number + 10, 100 + late)
        trace.event("user_annotation", "step", 1_000 * number, 500, tid=2)
        trace.module("Linear_0", 1_000 * number + 20, 50 + late)
    trace.event("user_annotation", "step", 2_050, 90)
    read = checked_trace(read_kineto(trace.write(tmp_path)))
    found = [(str(one.action), one.count, one.total, one.usual_ns) for one in read.health]
    assert found == [("shortened", 2, 21, 100_000), ("set_aside", 1, 21, 0)]
    rows = read.rows_of("user_annotation", "python_function")
    names = read.events.names_of(rows)
    lengths = [*zip(names, read.duration_ns[rows].tolist(), strict=True)]
    assert "block 2" not in names
    assert lengths.count(("nn.Module: Linear_0", 50_000)) == 5
    assert sorted(length for name, length in lengths if name == "step") == sorted(
        [40_000, 90_000, *[100_000] * 4, *[500_000] * 5]
    )


@pytest.mark.parametrize("value", [None, "NaN"])
def test_kernels_without_a_start_leave_busy_unknown(value, tmp_path):
    """Three of 34 have none, and two operators: these are set aside and counted, as with a start
    of 0; on a clock that begins at 0 as well."""
    trace = json.loads(BASE.read_text())
    first = min(one["ts"] for one in trace["traceEvents"])
    for one in trace["traceEvents"]:
        one["ts"] -= first if value is None else 0
    for category, few in (("kernel", 3), ("cpu_op", 2)):
        some = [one for one in trace["traceEvents"] if one.get("cat") == category]
        for one in some[5 : 5 + few]:
            del one["ts"]
    text = json.dumps(trace)
    path = tmp_path / "trace.json"
    path.write_text(text if value is None else text.replace('"dur"', f'"tts": {value}, "dur"'))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    notes = {note.device: (note.rule, note.count) for note in analysis.inputs.run.info.health}
    assert notes == {"cuda:0": (HealthRule.NO_TIME, 3), "cpu:0": (HealthRule.NO_TIME, 2)}
    headline, facts = screen(analysis)
    assert headline.startswith("damaged recording")
    assert facts["cuda:0"] == "busy time is not known"
    assert analysis.kernels["executions"].sum() == 31
    assert not analysis.inputs.run.info.drops


@pytest.mark.parametrize("how", ["no length", "begun"])
def test_kernels_that_never_ended_have_no_length(tmp_path, how):
    """Four of 34 without a length, or with a begin alone: set aside, and busy time not known."""
    trace = json.loads(BASE.read_text())
    kernels = [one for one in trace["traceEvents"] if one.get("cat") == "kernel"]
    for one in kernels[5:9]:
        del one["dur"]
        one["ph"] = "B" if how == "begun" else "X"
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    _, facts = screen(analysis)
    assert facts["Set aside"].startswith("4 kernels on cuda:0 began and never ended")
    assert facts["cuda:0"] == "busy time is not known"
    assert analysis.kernels["executions"].sum() == 30


def test_events_of_the_host_that_never_ended_are_counted(tmp_path):
    """Three operators without an end; one that is recorded as a begin and an end is whole."""
    trace = json.loads(BASE.read_text())
    operators = [one for one in trace["traceEvents"] if one.get("cat") == "cpu_op"]
    for one in operators[3:6]:
        del one["dur"]
    whole = operators[7]
    end = {"ph": "E", "pid": whole["pid"], "tid": whole["tid"], "ts": whole["ts"] + whole["dur"]}
    whole["ph"] = "B"
    trace["traceEvents"].insert(trace["traceEvents"].index(whole) + 1, end)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    read, twin = checked_trace(read_kineto(path)), read_kineto(BASE)
    (note,) = read.health
    assert (note.rule, note.device, note.count) == (HealthRule.UNFINISHED, "cpu:0", 3)
    assert len(read.rows_of("cpu_op")) == len(twin.rows_of("cpu_op")) - 3
    lengths = [one.duration_ns[one.rows_of("cpu_op")].tolist() for one in (read, twin)]
    assert sorted(lengths[0]) == sorted(lengths[1][:3] + lengths[1][6:])


def test_launches_alone_are_times_of_the_host(analysis_of):
    headline, facts = screen(analysis_of(DAMAGED / "g_launch_no_kernels.json"))
    assert headline.startswith("34 launches on NVIDIA H100, no kernel recorded, times of the host")
    assert facts["No GPU work"].startswith("34 launches on NVIDIA H100, no kernel recorded")
    assert "cpu:0" not in facts


def test_host_work_before_the_first_launch_is_of_the_run(analysis_of):
    """From the first operator to the end of the last kernel, as the file has them."""
    path = DAMAGED / "first_launch_late.json"
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]
    begin = min(one["ts"] for one in events if one["cat"] == "cpu_op")
    end = max(one["ts"] + one["dur"] for one in events if one["cat"] == "kernel")
    analysis = analysis_of(path)
    assert analysis.accounting.end_to_end_ns == pytest.approx((end - begin) * 1e3, rel=1e-3)
    assert end - begin == pytest.approx(12_600, rel=0.01)


def test_merged_ranks_are_told_apart(analysis_of):
    analysis, twin = analysis_of(DAMAGED / "i_merged_ranks_collide.json"), analysis_of(BASE)
    (row,) = analysis.health.to_dicts()
    assert (row["rule"], row["action"]) == ("shared_launch_numbers", "rekeyed")
    (busy,) = twin.devices.filter(device="cuda:0")["busy_ns"]
    for device in ("cuda:0", "cuda:1"):
        (one,) = analysis.devices.filter(device=device)["busy_ns"]
        assert one == pytest.approx(busy, rel=0.01)
    calls = analysis.calls.group_by("device").len().sort("device").rows()
    assert calls == [("cuda:0", 6), ("cuda:1", 6)]
    headline, facts = screen(analysis)
    assert headline.startswith("10.6 ms for 4 iterations: 2 GPUs ")
    assert facts["Iterations"] == "4"
    assert "Merged" in facts
    assert figures(analysis)[2] == pytest.approx(figures(twin)[2], rel=0.01)


def test_work_whose_launches_are_all_lost_is_no_submodules(tmp_path):
    """The ranges of the host are as long as launching took: no share of them is a device's."""
    trace = json.loads(BASE.read_text())
    events = trace["traceEvents"]
    trace["traceEvents"] = [one for one in events if one.get("cat") not in ("cuda_runtime", "ac2g")]
    (tmp_path / "lost.json").write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(tmp_path / "lost.json", tmp_path / "traces")))
    headline, facts = screen(analysis)
    assert headline.endswith("the GPU computes 99 %")
    assert facts["Outside calls"].startswith("100 % of the work of cuda:0")
    assert facts["Device only"].startswith("34 kernels and no launch of one")


@pytest.mark.parametrize("apart_us", [3, 3000])
def test_ranks_under_one_process_number_have_no_shares(apart_us, tmp_path):
    """Two ranks in one file, whose processes have the same number: nothing tells which of two
    launches with one number is whose, so that no time of a device is a submodule's. What the
    devices did is that of the twin."""
    trace = json.loads(BASE.read_text())
    second = [dict(one, args=dict(one.get("args", {}))) for one in trace["traceEvents"]]
    for one in second:
        one["ts"] = one.get("ts", 0) + apart_us
        if one.get("cat") == "kernel":
            one["pid"] = one["args"]["device"] = 1
    trace["traceEvents"] += [one for one in second if one["ph"] == "X"]
    path = tmp_path / "ranks.json"
    path.write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    headline, facts = screen(analysis)
    assert headline.startswith("damaged recording: ")
    assert "transformer" not in headline
    assert facts["Uncertain"].startswith("34 of 68 launches have the number of an earlier one")
    twin = analyze(load(import_trace(BASE, tmp_path / "twin")))
    assert "transformer takes 92 %" in screen(twin)[0]
    (busy,) = twin.devices.filter(device="cuda:0")["busy_ns"]
    for device in ("cuda:0", "cuda:1"):
        (one,) = analysis.devices.filter(device=device)["busy_ns"]
        assert one == pytest.approx(busy, rel=0.01)


@pytest.mark.parametrize("lost", [0, 5])
@pytest.mark.parametrize("first", [1, (1 << 31) - 10, 2_500_000_000, (1 << 32) - 10])
def test_launch_numbers_may_be_written_with_a_sign(first, lost, tmp_path):
    """Numbers of 32 bits that begin anywhere, half of which are negative in the file: what ran is
    that of numbers from 1 on, and what was launched by the calls that are lost is carried over."""
    trace = json.loads(BASE.read_text())
    events = [one for one in trace["traceEvents"] if "correlation" in one.get("args", {})]
    known = sorted({one["args"]["correlation"] for one in events})
    for one in events:
        args = one["args"]
        place = known.index(args["correlation"])
        number = (first + place) % (1 << 32)
        args["correlation"] = number - (1 << 32) if number >= 1 << 31 else number
        if place < lost and one["cat"] != "kernel":
            trace["traceEvents"].remove(one)
    path = tmp_path / "signed.json"
    path.write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    found = [(row["rule"], row["count"]) for row in analysis.health.to_dicts()]
    assert found == ([("before", lost)] if lost else [])
    if not lost:
        twin = analyze(load(import_trace(BASE, tmp_path / "twin")))
        assert figures(analysis) == figures(twin)


@pytest.mark.parametrize("by_us", [-20, -100, -3000])
def test_a_clock_that_runs_ahead_is_shifted(by_us, tmp_path):
    analysis = analyze(load(import_trace(shifted(tmp_path, by_us), tmp_path)))
    twin = analyze(load(import_trace(BASE, tmp_path)))
    if by_us < -40:  # the least latency of the twin
        assert "ahead of the host" in screen(analysis)[1]["Clock"]
    assert figures(analysis) == pytest.approx(figures(twin), rel=0.01)


def test_the_time_between_two_cycles_is_left_out(analysis_of):
    """The run is as long as both recordings together, and its step as one of the twin."""
    analysis = analysis_of(DAMAGED / "l_two_cycles_hour_apart.json")
    twin = analysis_of(BASE)
    (row,) = analysis.health.to_dicts()
    assert (row["rule"], row["action"]) == ("gap", "left_out")
    assert row["excess_ns"] == pytest.approx(3600e9, rel=0.001)
    ran = [one.accounting.end_to_end_ns for one in (analysis, twin)]
    assert ran[0] == pytest.approx(2 * ran[1], rel=0.01)
    assert not [finding for finding in analysis.findings if finding.rule == "idle_gaps"]


def test_work_launched_before_the_recording_is_on_the_first_screen(analysis_of):
    path = CORPUS / "torch_pairs" / "Qwen_Qwen1.5-0.5B-Chat__h100.json.gz"
    _, facts = screen(analysis_of(path))
    assert facts["Before"].startswith("509 commands, 13.7 ms on cuda:0, were launched before")
    assert facts.get("Lost") != "no events"


def _lengths_in_ms(kernels):
    for one in kernels:
        one["dur"] /= 1_000


def _no_lengths(kernels):
    for one in kernels:
        one["dur"] = 0


def _no_times(kernels):
    for one in kernels:
        one["ts"] = 0


def _times_in_ms(kernels):
    for one in kernels:
        one["ts"] /= 1_000
        one["dur"] /= 1_000


def _other_launches(kernels):
    numbers = [one["args"]["correlation"] for one in kernels]
    for one, number in zip(kernels, numbers[17:] + numbers[:17], strict=True):
        one["args"]["correlation"] = number


def _a_third_without_time(kernels):
    for one in kernels[::3]:
        one["ts"] = 0


@pytest.mark.parametrize(
    ("damaged", "title", "label", "text"),
    [
        (_lengths_in_ms, "damaged recording: ", "Uncertain", "34 of 34 kernels on cuda:0"),
        (_times_in_ms, "damaged recording: ", "Uncertain", "34 of 34 kernels on cuda:0"),
        (_no_lengths, "no GPU work recorded", "Set aside", "34 kernels on cuda:0 recorded with a"),
        (_no_times, "no GPU work recorded", "Set aside", "34 kernels without a time (0)"),
        (_other_launches, "damaged recording: at least ", "Clock", "4 of 34 kernels on cuda:0"),
        (_a_third_without_time, "damaged recording: at least ", "Set aside", "12 kernels without"),
    ],
)
def test_what_depends_on_damage_is_not_on_the_first_screen(tmp_path, damaged, title, label, text):
    """One line says what is wrong; neither busy time, shares nor device times are shown."""
    trace = json.loads(BASE.read_text())
    damaged([one for one in trace["traceEvents"] if one.get("cat") == "kernel"])
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    shown = ReportInput(analysis, *extent(analysis.inputs.run))
    opening = opening_of(shown, summary_of(shown))
    headline, facts = screen(analysis)
    assert headline.startswith(title)
    assert "%" not in headline.partition("vae_decoder")[0] or title.startswith("no GPU")
    assert facts[label].startswith(text)
    assert facts.get("cuda:0", "busy time is not known") == "busy time is not known"
    for table in filter(None, (opening.submodules, opening.shapes)):
        columns = {one.name for one in table.columns}
        shares = {"busy_ns", "launch_bound_ns", "bound"} | ({"share"} if "dam" in title else set())
        assert not columns & shares
    assert analysis.contradictions.is_empty()


def test_numbers_that_are_texts_are_numbers(tmp_path):
    """Times as torch_npu writes them, in a trace of a GPU: the twin's figures."""
    trace = json.loads(BASE.read_text())
    for one in trace["traceEvents"]:
        one |= {name: str(one[name]) for name in ("ts", "dur") if name in one}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    twin = figures(analyze(load(import_trace(BASE, tmp_path / "twin"))))
    assert figures(analyze(load(import_trace(path, tmp_path / "traces")))) == twin


@pytest.mark.parametrize(("every", "noted"), [(10, [HealthRule.OPERATORS]), (0, [])])
def test_kernels_whose_operators_are_lost_are_counted(tmp_path, every, noted):
    """A tenth of the operators of a healthy trace is left out: as many kernels name one that is
    not there as a count over the file has."""
    path = CORPUS / "torch_pairs" / "Qwen_Qwen1.5-0.5B-Chat__h100.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = trace["traceEvents"]
    operators = [one for one in events if one.get("cat") == "cpu_op"][1:-1]
    lost = {one["args"]["External id"] for one in operators[::every]} if every else set()
    trace["traceEvents"] = [
        one
        for one in events
        if one.get("cat") != "cpu_op" or one["args"]["External id"] not in lost
    ]
    work = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    expected = sum(one["args"].get("External id") in lost for one in work)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    notes = [note for note in checked_trace(read_kineto(path)).health if note.rule.damage]
    assert [note.rule for note in notes] == noted
    assert [note.count for note in notes] == [expected] * len(noted)

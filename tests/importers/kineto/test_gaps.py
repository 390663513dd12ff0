"""What an importer keeps of the host for the longest gaps of devices."""

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.analyze import analyze
from profiler.analysis.host_bound import loading_ns
from profiler.importers import import_trace
from profiler.importers.kineto import commands
from profiler.importers.kineto.launches import Launches, launched_work
from profiler.kineto.trace_file import KinetoTrace, read_kineto_file
from profiler.tools.sources import load
from profiler.trace import ActivityKind, HostActivity
from tests.examples import examples
from tests.importers.kineto.traces import BASE_NS, Trace

_FEW = {"_GAPS": 3, "_GAPS_IN_ALL": 4, "_LEAST_NS": 2_000, "_REPEATED": 2, "_BLOCK": 2}
_TIMES = st.integers(0, 40)
_RANGES = st.lists(
    st.tuples(
        st.sampled_from(["python_function", "cpu_op", "user_annotation"]),
        st.sampled_from("abc"),
        _TIMES,
        st.integers(0, 30),
        st.integers(1, 2),
    ),
    max_size=25,
)
_WORKS = st.lists(
    st.tuples(_TIMES, st.integers(0, 5), st.none() | _TIMES, st.integers(0, 2), st.integers(1, 2)),
    min_size=1,
    max_size=12,
)


def _trace():
    """Two kernels of one call with a gap from 50 to 450 µs, which thread 1 launched behind; what
    thread 1 did from 60 to 400, in `check`, it called twelve times within; thread 2 slept."""
    trace = Trace(with_stack=1)
    trace.thread("main", 1)
    trace.thread("worker", 2)
    trace.module("Model_0", 0, 600)
    trace.frame("model.py(10): forward", 5, 590)
    trace.kernel("first", 20, 30, launched=10)
    trace.frame("model.py(20): check", 60, 340)
    for number in range(12):
        trace.frame("<built-in function assert_size_stride>", 70 + 20 * number, 5)
    trace.frame("time.py(1): sleep", 40, 420, tid=2)
    trace.kernel("second", 450, 100, launched=440)
    return trace


def test_the_innermost_function_that_covers_half_of_a_gap_is_kept(tmp_path):
    """`check` covers 340 of 400 µs, `forward` all; the sleep is of a thread that launched
    nothing."""
    run = _trace().imported(tmp_path)
    assert run.info.host_activities == (
        HostActivity(
            name="model.py: check",
            kind=ActivityKind.FUNCTION,
            thread="main",
            start_ns=BASE_NS + 60_000,
            duration_ns=340_000,
            repeated="assert_size_stride",
            times=12,
        ),
    )


def test_a_processor_of_inputs_stands_for_what_it_calls(tmp_path):
    """Of 100 µs between two kernels, 90 are in a function of C that an image processor calls."""
    trace = Trace(with_stack=1)
    trace.kernel("first", 20, 30, launched=10)
    folder = "transformers/models/owlv2/image_processing_owlv2.py"
    trace.frame(f"{folder}(368): preprocess", 52, 94)
    trace.frame(f"{folder}(301): resize", 53, 92)
    trace.frame("scipy/ndimage/_interpolation.py(739): zoom", 54, 91)
    trace.frame("<built-in function zoom_shift>", 55, 90)
    trace.kernel("second", 151, 100, launched=149)
    with_gaps = trace.imported(tmp_path).info.host_activities
    assert [one.name for one in with_gaps] == [f"{folder}: resize"]


def test_the_table_of_gaps_says_it(tmp_path):
    """The longest gap of the device, in its call, launched too late."""
    row = analyze(_trace().imported(tmp_path)).gaps.row(0, named=True)
    assert (row["begin_ns"], row["length_ns"]) == (BASE_NS + 50_000, 400_000)
    assert (row["cause"], row["position"], row["submodule"]) == ("launch", "inside", "Model")
    assert (row["host_activity"], row["host_activity_share"]) == ("model.py: check", 0.85)
    assert (row["repeated"], row["repeated_times"]) == ("assert_size_stride", 12)


def test_slow_calls_of_the_driver_add_up(tmp_path):
    """Between the first two kernels the host is in cudaFree, cudaMalloc and a launch, of which none
    takes half of the 40 ms: in all 12 + 14 + 13, and the 8 ms of another thread lie within. What
    waits for the device and what takes less than 1 ms is no loading."""
    trace = Trace()
    trace.module("Model_0", 0, 60_000)
    trace.kernel("first", 20, 30, launched=10)
    slow = [("cudaFree", 100, 12_000), ("cudaMalloc", 12_200, 14_000), ("cudaMalloc", 26_300, 900)]
    for name, start, length in slow:
        trace.event("cuda_runtime", name, start, length)
    trace.event("cuda_runtime", "cudaMalloc", 2_000, 8_000, tid=2)
    launch = {"correlation": 1_000}
    trace.event("cuda_runtime", "cudaLaunchKernel", 27_250, 13_000, **launch)
    trace.event("kernel", "second", 40_100, 10_000, pid=0, tid=7, device=0, stream=7, **launch)
    trace.event("cuda_runtime", "cudaDeviceSynchronize", 40_300, 9_900)
    (found,) = analyze(trace.imported(tmp_path)).findings
    own = sorted((begin, begin + took) for _, begin, took in [*slow[:2], ("", 27_250, 13_000)])
    within = sum(min(end, 40_100) - max(begin, 50) for begin, end in own)
    assert found.evidence["loading_ns"] == within * 1_000 == 38_850_000


def test_a_rank_waits_for_what_its_own_host_loads(tmp_path):
    """Two ranks wait alike; the host of one alone is in slow calls of the driver meanwhile."""
    files = []
    for rank, slow in enumerate((30_000, 100)):
        trace = Trace(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
        trace.module("Model_0", 0, 60_000)
        trace.kernel("first", 20, 30, launched=10, device=rank)
        trace.event("cuda_runtime", "cudaMalloc", 100, slow)
        trace.kernel("second", 40_100, 10_000, launched=40_000, device=rank)
        files.append(trace.write(tmp_path, f"rank{rank}.json"))
    import_trace(files, tmp_path / "job")
    analysis = analyze(load(tmp_path / "job"))
    found = [loading_ns(analysis, f"rank{rank}/cuda:{rank}") for rank in (0, 1)]
    assert found == [30_000_000, 0]


def test_short_gaps_have_none(tmp_path):
    """Of a gap of 40 µs nothing is kept: the least is 100 µs."""
    trace = Trace(with_stack=1)
    trace.module("Model_0", 0, 1000)
    trace.kernel("first", 20, 30, launched=10)
    trace.kernel("second", 90, 30, launched=85)
    assert trace.imported(tmp_path).info.host_activities == ()


def _read(ranges, works):
    """A trace, its launches, and the work of each device."""
    made = Trace()
    for category, name, start, length, thread in ranges:
        made.event(category, name, start, length, tid=thread)
    for start, length, launched, device, thread in works:
        made.kernel("k", start, length, launched=launched, device=device, tid=thread)
    file = io.BytesIO(json.dumps(made.document()).encode())
    trace = read_kineto_file(Path("trace.json"), file)
    row, launch = launched_work(trace)
    none = np.full(len(row), -1)
    devices = np.array([trace.events[one].args.device for one in row.tolist()])
    by_device = {str(name): np.flatnonzero(devices == name) for name in sorted({*devices.tolist()})}
    return trace, Launches(row, launch, none, none, none, trace.start_ns[row]), by_device


def _plain_gaps(trace, launches, here):
    """The longest gaps of a device: between all that ended and what begins next."""
    works = sorted(
        ((trace.start_ns.item(launches.row[one]), trace.end_ns.item(launches.row[one]), one))
        for one in here.tolist()
    )
    works.sort(key=lambda work: (work[0], work[2]))
    found, dry = [], BASE_NS
    for number, (start, _, one) in enumerate(works):
        dry = max(end for _, end, _ in works[:number]) if number else dry
        if start - dry > _FEW["_LEAST_NS"] and launches.launch[one] >= 0:
            found.append((dry, start, launches.launch.item(one)))
    return sorted(found, key=lambda gap: gap[0] - gap[1])[: _FEW["_GAPS"]]


def _plain_activity(trace: KinetoTrace, first, last, launch):
    """Name, begin, length, and what was repeated, by looking at every event of the file."""
    ranges = [
        (trace.start_ns.item(row), trace.end_ns.item(row), row)
        for row, event in enumerate(trace.events)
        if event.cat in commands._KINDS and trace.thread[row] == trace.thread[launch]
    ]
    there = [one for one in ranges if one[0] < last and one[1] > first]
    if not there:
        return None
    covered = {row: min(end, last) - max(start, first) for start, end, row in there}
    least = min((last - first) / 2, max(covered.values()))
    start, _, row = max(
        (one for one in there if covered[one[2]] >= least),
        key=lambda one: (one[0], -one[1], one[2]),
    )
    begin = max(start, first)
    inside = Counter(
        trace.events[other].name
        for start, end, other in there
        if other != row and start >= begin and end <= begin + covered[row]
    )
    name, times = max(inside.items(), key=lambda one: (one[1], one[0]), default=("", 0))
    many = (name, times) if times >= _FEW["_REPEATED"] else ("", 0)
    return trace.events[row].name, begin, covered[row], *many


@given(_RANGES, _WORKS)
@settings(max_examples=examples(200), deadline=None)
def test_activities_are_those_of_the_definition(ranges, works):
    """Whatever ranges overlap, and however blocks of them are passed over: the same as by looking
    at every event for every gap, of the longest gaps of each device the longest of all."""
    trace, launches, by_device = _read(ranges, works)
    longest = [gap for here in by_device.values() for gap in _plain_gaps(trace, launches, here)]
    longest.sort(key=lambda gap: gap[0] - gap[1])
    told = [_plain_activity(trace, *gap) for gap in longest[: _FEW["_GAPS_IN_ALL"]]]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _FEW.items():
            patch.setattr(commands, name, value)
        found = commands.host_activities(trace, launches, by_device, BASE_NS)
    got = [(one.name, one.start_ns, one.duration_ns, one.repeated, one.times) for one in found]
    assert sorted(got) == sorted(one for one in told if one is not None)
    assert got == sorted(got, key=lambda one: one[1:3])


def test_a_device_whose_recording_was_cut_is_not_idle_behind_it(tmp_path):
    """The host launches 40 kernels of 1 ms each, of which the last 20 had not been recorded when
    the recording ended, and goes on for 100 ms: what the device did then nobody knows."""
    trace = Trace()
    trace.module("LlamaForCausalLM_0", 0, 150_000)
    for number in range(40):
        trace.kernel("gemm", 10 + 1_000 * number, 900, launched=1_000 * number)
        if number >= 20:
            del trace.events[-1]
    made = analyze(trace.imported(tmp_path))
    (row,) = made.devices.filter(device="cuda:0").to_dicts()
    assert row["busy_ns"] == 20 * 900_000
    assert made.accounting.end_to_end_ns == 19_910_000
    assert made.accounting.unrecorded_ns == 150_000_000 - 19_910_000
    assert row["idle_share"] == pytest.approx(1 - row["utilization"])


def test_a_stall_of_the_first_call_is_no_gain_of_other_gaps(tmp_path):
    """Five calls of 20 ms with 5 ms between them; the host stands still for 200 ms in the first.
    `first_call` says that, and filling the other gaps gains 20 ms."""
    trace, at = Trace(), 0
    for number in range(5):
        stall = 0 if number else 200_000
        trace.module("UNet_0", at, 20_000 + stall)
        for part, late in ((0, 0), (10_000, stall)):
            trace.kernel("gemm", at + part + late + 10, 9_990, launched=at + part + late)
        at += 25_000 + stall
    made = analyze(trace.imported(tmp_path))
    found = {one.rule: one for one in made.findings}
    assert found["first_call"].cost_ns == 200_000_000
    assert found["idle_gaps"].cost_ns == pytest.approx(4 * 5_010_000, rel=0.01)


@pytest.mark.parametrize("told", ["processors", "annotation", "nothing"])
def test_work_of_the_host_around_the_calls_is_of_the_run(told, tmp_path):
    """Three calls of a detector with 122 ms of preprocessing ahead of each and 60 ms of drawing
    behind the last, as frames of a processor or an annotation around all tell; the wait for the
    device ahead of a gap takes 1 µs of it. Without these the file has the calls alone."""
    trace, at, prepare, work, behind = Trace(with_stack=1), 0, 122_000, 50_000, 60_000
    processor = "transformers/models/owlv2/image_processing_owlv2.py"
    for _ in range(3):
        if told == "processors":
            trace.frame(f"{processor}(368): preprocess", at, prepare)
        at += prepare
        trace.module("Owlv2ForObjectDetection_0", at, work)
        trace.kernel("gemm", at, work, launched=at - 1)
        trace.event("cuda_runtime", "cudaDeviceSynchronize", at + work - 1, 1)
        at += work
    if told == "processors":
        trace.frame(f"{processor}(471): post_process_object_detection", at, behind)
    elif told == "annotation":
        trace.event("user_annotation", "detect", 0, at + behind)
    made = analyze(trace.imported(tmp_path))
    found = {one.rule: one for one in made.findings}
    gaps = found["idle_gaps"]
    assert (gaps.evidence["cause"], gaps.evidence["gap_ns"]) == ("host", 2 * prepare * 1_000)
    around = 0 if told == "nothing" else prepare + behind
    assert made.accounting.end_to_end_ns == (3 * work + 2 * prepare + around) * 1_000
    assert ("idle_around" in found) == bool(around)
    if around:
        times = (prepare * 1_000, behind * 1_000)
        evidence = found["idle_around"].evidence
        assert (evidence["before_ns"], evidence["behind_ns"]) == times
    assert not {"scheduler_sync", "sync_bound", "host_bound"} & found.keys()

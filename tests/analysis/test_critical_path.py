"""The critical path, on runs whose every nanosecond is known."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.critical_path import critical_path_table, longest_chain
from profiler.analysis.idle_causes import Queues
from profiler.trace import CATEGORIES
from tests.analysis.linked_runs import gpu, host, linked, timeline, wait
from tests.examples import examples
from tests.runs import Command, make_call, make_run, make_span, tiny_run

PIPELINE = make_span("pipeline", "P", 0, 100, pipeline=0)


def _path(run):
    """Submodule, part, device, pieces and time of each row."""
    table = critical_path_table(timeline(run))
    return table.select("submodule", "part", "device", "pieces", "path_ns").rows()


def _call(index, submodule, start, end, device="cuda:0"):
    return make_call(index, submodule, start, end, device=device, pipeline=0)


def test_calls_and_host_work_one_after_the_other():
    """All that the tiny run does is on its path: 760 of 1000 ns."""
    assert _path(tiny_run()) == [
        ("transformer", "call", "rbln:0", 2, 500),
        ("text_encoder", "call", "rbln:1", 1, 90),
        (None, "host_work", "cpu:0", 3, 90),
        ("vae", "call", "rbln:0", 1, 80),
    ]
    table = critical_path_table(timeline(tiny_run()))
    assert table["wall_ns"].unique().to_list() == [1000]
    assert table["share"].to_list() == [0.5, 0.09, 0.09, 0.08]


def test_of_calls_at_once_the_longest_chain_counts():
    """a and then c take 55 ns; b, which overlaps both, 30."""
    calls = [
        _call(0, "a", 0, 40, "cpu:0"),
        _call(1, "b", 30, 60, "cpu:1"),
        _call(2, "c", 45, 60, "cpu:0"),
        _call(3, "d", 60, 100, "cpu:0"),
    ]
    assert _path(make_run(calls, (), [PIPELINE])) == [
        ("a", "call", "cpu:0", 1, 40),
        ("d", "call", "cpu:0", 1, 40),
        ("c", "call", "cpu:0", 1, 15),
    ]


def test_of_devices_at_once_the_longest_chain_of_tiles_counts():
    """The host is done at 10; cuda:0 works for a until 50, cuda:1 for b until 80: b's tile
    ends the path, the host in it until 10, and in a before."""
    calls = [_call(0, "a", 0, 5), _call(1, "b", 5, 10, "cuda:1")]
    commands = [host(0, 0, 2), gpu(0, 2, 50), host(1, 5, 7), gpu(1, 7, 80, device="cuda:1")]
    run = linked(make_run(calls, commands, [PIPELINE]), (0, 1), (2, 3))
    assert _path(run) == [
        ("b", "compute", "cuda:1", 1, 70),
        ("a", "launches", "cuda:0", 1, 5),
        ("b", "launches", "cuda:1", 1, 5),
    ]
    assert critical_path_table(timeline(run))["wall_ns"].unique().to_list() == [100]


def test_time_that_was_not_recorded_is_on_no_path():
    """A kernel, launched by 0.5 ms, begins at 22: the path is of the 2.5 ms that count."""
    ms = 1_000_000
    call = make_call(0, "t", 0, 24 * ms, device="cuda:0")
    commands = [host(0, 0, ms // 2), wait(0, ms, 24 * ms), gpu(0, 22 * ms, 24 * ms)]
    table = critical_path_table(timeline(linked(make_run([call], commands), (0, 2))))
    assert table["path_ns"].sum() == table["wall_ns"][0] == 5 * ms // 2


def test_device_behind_the_host_is_on_the_path():
    """The host launches until 20 and waits until 92; the device begins at 10 and is behind until
    90. The host returns at 100."""
    commands = [host(0, 0, 10), host(0, 10, 20), wait(0, 20, 92), gpu(0, 10, 40), gpu(0, 40, 90)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 3), (1, 4))
    assert _path(run) == [("t", "compute", "cuda:0", 2, 80), ("t", "launches", "cuda:0", 1, 20)]


def test_launched_commands_that_have_not_begun_are_queued():
    """3 ns lie between two kernels of which the second had been launched long before."""
    commands = [host(0, 0, 10), host(0, 10, 20), wait(0, 20, 92), gpu(0, 10, 40), gpu(0, 43, 90)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 3), (1, 4))
    assert _path(run) == [
        ("t", "compute", "cuda:0", 2, 77),
        ("t", "launches", "cuda:0", 1, 20),
        ("t", "queued", "cuda:0", 1, 3),
    ]


def test_while_a_queue_waits_for_others_the_path_is_in_their_work():
    """Between two kernels of a stream, from 40 to 75, a collective runs from 42 to 70, and beside
    it a kernel of another stream from 50 to 60; then nothing does."""
    ring = Command(-1, "cuda:0", "stream 9 collectives", "collective", "ring", 42, 28)
    beside = Command(0, "cuda:0", "stream 8", "compute", "kernel", 50, 10)
    hosts = [host(0, 0, 10), host(-1, 10, 12), host(0, 12, 14), host(0, 14, 20), wait(0, 20, 92)]
    commands = [*hosts, gpu(0, 10, 40), ring, beside, gpu(0, 75, 90)]
    made = make_run([_call(0, "t", 0, 100)], commands, [PIPELINE])
    run = linked(made, (0, 5), (1, 6), (2, 7), (3, 8))
    assert _path(run) == [
        ("t", "compute", "cuda:0", 3, 30 + 10 + 15),
        ("t", "launches", "cuda:0", 1, 20),
        (None, "collective", "cuda:0", 1, 18),
        ("t", "queued", "cuda:0", 1, 7),
    ]


def test_a_call_that_returned_from_copies_is_on_the_path_with_their_transfer():
    """A call launches a copy by 10 and returns; nobody waits for it but the pipeline call."""
    commands = [host(0, 0, 10), gpu(0, 10, 70, "copy")]
    run = linked(make_run([_call(0, "t", 0, 12)], commands, [PIPELINE]), (0, 1))
    assert _path(run) == [("t", "transfer", "cuda:0", 1, 58), ("t", "launches", "cuda:0", 1, 12)]


def test_command_that_waited_for_its_launch_leads_to_the_host():
    """The second kernel begins when its launch returns, at 60, the device idle from 40 on."""
    commands = [host(0, 0, 10), host(0, 50, 60), wait(0, 60, 90), gpu(0, 10, 40), gpu(0, 60, 90)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 3), (1, 4))
    assert _path(run) == [("t", "launches", "cuda:0", 1, 70), ("t", "compute", "cuda:0", 1, 30)]


def test_without_a_wait_the_path_stays_with_the_host():
    """Nobody waits for what was launched."""
    commands = [host(0, 0, 10), gpu(0, 10, 90)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 1))
    assert _path(run) == [("t", "launches", "cuda:0", 1, 100)]


def test_a_path_that_ends_with_a_kernel_ends_on_its_device():
    """The host returns at 40 and nobody waits; the last kernel ends with the pipeline call. The
    device was behind from the first launch on."""
    commands = [host(0, 0, 10), host(0, 10, 20), gpu(0, 10, 40), gpu(0, 40, 100)]
    run = linked(make_run([_call(0, "t", 0, 40)], commands, [PIPELINE]), (0, 2), (1, 3))
    assert _path(run) == [("t", "compute", "cuda:0", 2, 90), ("t", "launches", "cuda:0", 1, 10)]


def test_copy_to_the_host_waits_for_all_before_it():
    """A call returns at 20, its kernel runs until 80; cudaMemcpy from 30 to 90 launches a copy from
    80 to 88: the path is host, kernel, copy, host."""
    copy = Command(-1, "cpu:0", "CPU thread 1 launches", "host", "cudaMemcpy", 30, 60, pipeline=0)
    moved = Command(-1, "cuda:0", "stream 7 memcpy", "dma", "Memcpy DtoH", 80, 8, pipeline=0)
    commands = [copy, moved, host(0, 0, 10), gpu(0, 10, 80)]
    run = linked(make_run([_call(0, "t", 0, 20)], commands, [PIPELINE]), (0, 1), (2, 3))
    assert _path(run) == [
        ("t", "compute", "cuda:0", 1, 70),
        ("t", "launches", "cuda:0", 1, 10),
        (None, "transfer", "cuda:0", 1, 8),
        (None, "host_work", "cpu:0", 1, 2),
    ]


def _copying(layer, returned):
    """The path of a call that launches a kernel, which runs from 10 to 80, and a copy, from 80 to
    88, from 20 until it `returned`."""
    moved = Command(0, "cuda:0", "stream 7 memcpy", "copy", "copy", 80, 8, kernel="Memcpy HtoD")
    commands = [host(0, 0, 10), host(0, 20, returned, layer), gpu(0, 10, 80), moved]
    return _path(linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 2), (1, 3)))


def test_blocking_copy_is_a_wait_if_its_call_returns_just_before_it_ends():
    """By the clocks of an MI300X hipMemcpyWithStream does: the path is on the device until 86. An
    asynchronous call that returned then waited for nothing."""
    assert _copying("hipMemcpyWithStream", 86) == [
        ("t", "compute", "cuda:0", 1, 70),
        ("t", "launches", "cuda:0", 1, 24),
        ("t", "transfer", "cuda:0", 1, 6),
    ]
    assert _copying("hipMemcpyAsync", 86) == [("t", "launches", "cuda:0", 1, 100)]


def test_launches_that_return_when_their_work_has_ended_are_waits():
    """The job of 10 to 90 is prepared until 20 and runs until 86, the next one of 90 to 98 runs
    until 97; by a clock that differs, the last ends 1 ns after its launch returned. So do launches
    of MTIA. Were it to run on for long, the first would tell nothing."""
    name = "runFunction - job_prep_and_submit_for_execution"
    hosts = [host(0, 10, 90, name), host(0, 90, 94, name), host(0, 94, 98, name)]
    for last, on_device in ((99, {"compute": 66 + 3 + 3}), (120, {})):
        commands = [*hosts, gpu(0, 20, 86), gpu(0, 91, 94), gpu(0, 95, last)]
        run = make_run(
            [_call(0, "t", 0, 200)], commands, [make_span("pipeline", "P", 0, 200, pipeline=0)]
        )
        path = {row[1]: row[-1] for row in _path(linked(run, (0, 3), (1, 4), (2, 5)))}
        assert path == {"launches": 200 - sum(on_device.values()), **on_device}


def test_flow_from_a_device_to_the_host_is_a_wait():
    """An import that tells what a host command waited for needs no name."""
    waited = Command(0, "cpu:0", "Host", "host", "result", 20, 70)
    commands = [host(0, 0, 10), waited, gpu(0, 10, 90)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 2), (2, 1))
    assert _path(run) == [("t", "compute", "cuda:0", 1, 80), ("t", "launches", "cuda:0", 1, 20)]


def test_work_of_no_call_that_nobody_launched_is_a_link():
    """A transfer between two calls."""
    moved = Command(-1, "rbln:0", "External HDMA", "dma", "input", 40, 20, pipeline=0)
    calls = [_call(0, "a", 0, 40, "rbln:0"), _call(1, "b", 60, 100, "rbln:0")]
    assert (None, "transfer", "rbln:0", 1, 20) in _path(make_run(calls, [moved], [PIPELINE]))


def test_each_pipeline_call_has_its_own_path():
    """Two at once, each of 100 ns, with calls of 60 and 70 on one device, of which the second has
    its tile behind the first; a call outside is of none."""
    spans = [PIPELINE, make_span("pipeline", "P", 50, 150, pipeline=1)]
    calls = [
        make_call(0, "t", 10, 70, pipeline=0),
        make_call(1, "t", 60, 130, pipeline=1),
        make_call(2, "t", 200, 300),
    ]
    table = critical_path_table(timeline(make_run(calls, (), spans)))
    rows = table.select("pipeline", "path_ns", "wall_ns").rows()
    assert rows == [(0, 60, 100), (1, 60, 100)]


def test_run_without_pipeline_calls_is_taken_as_one():
    """From the first call to the last."""
    calls = [make_call(0, "a", 0, 40), make_call(1, "b", 60, 100)]
    table = critical_path_table(timeline(make_run(calls)))
    assert table.select("pipeline", "submodule", "path_ns", "wall_ns").rows() == [
        (-1, "a", 40, 100),
        (-1, "b", 40, 100),
    ]


def test_run_without_calls_has_no_path():
    """Commands of no call say nothing of submodules."""
    run = make_run((), [gpu(-1, 0, 10)], [PIPELINE])
    assert critical_path_table(timeline(run)).is_empty()


_INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=9)


@settings(max_examples=examples(100), deadline=None)
@given(_INTERVALS)
def test_chain_is_the_longest_of_all_chains(intervals):
    """Against all subsets in which each begins when the one before has ended."""
    start = np.array([start for start, _ in intervals], dtype=np.int64)
    end = start + np.array([took for _, took in intervals], dtype=np.int64)
    chain = longest_chain(start, end)
    assert (start[chain][1:] >= end[chain][:-1]).all()
    best = {0: 0}  # end of a chain → the most that one adds up to
    for i in np.lexsort((start, end)).tolist():
        fits = max((took for until, took in best.items() if until <= start[i]), default=0)
        took = fits + int(end[i] - start[i])
        best[int(end[i])] = max(best.get(int(end[i]), 0), took)
    assert int((end[chain] - start[chain]).sum()) == max(best.values())


_TIMES = st.tuples(st.integers(0, 80), st.integers(0, 30))
_LAYERS = st.sampled_from(("cudaLaunchKernel", "cudaStreamSynchronize", "kernel"))


@st.composite
def _runs(draw):
    """Calls of up to two pipeline calls, commands, and any flows between them."""
    spans = []
    for number in range(draw(st.integers(0, 2))):
        start, took = draw(_TIMES)
        spans.append(make_span("pipeline", "P", start, start + took, pipeline=number))
    calls = []
    for index in range(draw(st.integers(1, 4))):
        start, took = draw(_TIMES)
        pipeline = draw(st.integers(0, 1)) if spans else -1
        calls.append(make_call(index, f"t{index}", start, start + took, pipeline=pipeline))
    commands = []
    for _ in range(draw(st.integers(0, 12))):
        start, took = draw(_TIMES)
        call, pipeline = draw(st.integers(-1, len(calls) - 1)), draw(st.integers(-1, 1))
        device, category = (
            draw(st.sampled_from(("cpu:0", "cuda:0"))),
            draw(st.sampled_from(CATEGORIES)),
        )
        commands.append(
            Command(call, device, "q", category, draw(_LAYERS), start, took, pipeline=pipeline)
        )
    rows = st.integers(0, max(len(commands) - 1, 0))
    pairs = draw(st.lists(st.tuples(rows, rows), max_size=8)) if commands else []
    return calls, commands, spans, pairs


def test_path_of_a_pipeline_call_does_not_go_back_to_others():
    """A stream that never ran empty since the first of 50 pipeline calls: the path of each is its
    own 10 kernels, whatever ran before."""
    calls, kernels = 50, 10
    spans = [make_span("pipeline", "P", 100 * p, 100, pipeline=p) for p in range(calls)]
    own = [make_call(p, "t", 100 * p, 100 * p + 100, pipeline=p) for p in range(calls)]
    count = calls * kernels
    commands = [host(n // kernels, *[n // kernels * 100] * 2) for n in range(count)]
    commands += [gpu(n // kernels, 10 * n, 10 * n + 10) for n in range(count)]
    commands += [wait(p, 100 * p + 90, 100 * p + 100) for p in range(calls)]
    run = linked(make_run(own, commands, spans), *((n, count + n) for n in range(count)))
    line = timeline(run)
    queues = Queues.of(line)
    begin = int(line.pipelines.starts.min())
    for pipeline in range(calls):
        first = begin + 100 * pipeline
        (stretch,) = queues.stretches(first, first + 100)
        row, ran, queued = queues.parts(stretch, line.commands)
        assert (stretch.end - stretch.start, len(row)) == (100, kernels)
        assert (ran.sum(), queued.sum()) == (100, 0)
    assert critical_path_table(line)["path_ns"].to_list() == [100] * calls


@settings(max_examples=examples(150), deadline=None)
@given(_runs())
def test_path_is_at_most_the_time_of_the_pipeline_call_and_at_least_its_longest_tile(parts):
    """Whatever flows say, of each pipeline call; on the devices' axis."""
    calls, commands, spans, pairs = parts
    line = timeline(linked(make_run(calls, commands, spans), *pairs))
    table, axis = critical_path_table(line), line.axis
    assert (table["path_ns"] > 0).all()
    assert (table["pieces"] > 0).all()
    numbers = {span.pipeline for span in spans} or {-1}
    for number in numbers:
        rows = table.filter(pl.col("pipeline") == number)
        code = line.pipelines.numbers.tolist().index(number) if spans else None
        counted = axis.counted_in(code)
        own = np.flatnonzero([c.pipeline == number for c in calls])
        longest = counted.within(axis.begin[own], axis.end[own]).max(initial=0)
        assert rows["path_ns"].sum() >= longest
        if len(rows):
            assert rows["path_ns"].sum() <= rows["wall_ns"][0]
            assert rows["wall_ns"].unique().to_list() == [counted.length]


@st.composite
def _streamed(draw):
    """A host that launches batches of kernels one after the other, what it works between them, and
    whether it waits for the device then, which nobody records: (run, on the device in ns, whole).

    What waits is mostly the device's: its batches take at least 20 times what the host adds. What
    does not wait is the host's: a kernel takes at most three quarters of what it does between two.
    """
    waits = draw(st.booleans())
    batches = draw(st.lists(st.integers(1, 4 if waits else 1), min_size=3, max_size=12))
    host_ns = draw(st.integers(2, 40)) if waits else draw(st.integers(40, 400))
    length = (
        st.integers(40 * host_ns, 400 * host_ns)
        if waits
        else st.integers(host_ns // 8, host_ns * 3 // 4)
    )
    now, free, on_device = 0, 0, 0
    hosts, kernels = [], []
    for number, batch in enumerate(batches):
        launched = None
        for _ in range(batch):
            hosts.append(host(0, now, now + 1))
            start = max(now + 1, free)
            free = start + draw(length)
            kernels.append(gpu(0, start, free))
            launched = now + 1 if launched is None else launched
            now += 1
        if waits or number == len(batches) - 1:
            on_device += free - launched  # the path ends on the device
            now = max(now, free)
        now += host_ns
    end = free + draw(st.sampled_from((0, host_ns if waits else 0)))  # when the host returns
    call = make_call(0, "t", 0, end, device="cuda:0")
    pairs = [(n, len(hosts) + n) for n in range(len(hosts))]
    return linked(make_run([call], [*hosts, *kernels]), *pairs), on_device, end


@settings(max_examples=examples(60), deadline=None)
@given(_streamed())
def test_silent_host_waits_for_a_device_that_is_never_idle(made):
    """Without a recorded wait: a device that is always busy is on the path for all that it worked
    through, one that waits for the host's launches for its last kernel alone."""
    run, on_device, whole = made
    table = critical_path_table(timeline(run))
    parts = table.group_by("part").agg(pl.col("path_ns").sum())
    found = dict(parts.iter_rows())
    assert found.pop("launches") == whole - on_device
    assert sum(found.values()) == on_device


def _guessed(run):
    """Part, time and what of it is guessed, of each row."""
    return critical_path_table(timeline(run)).select("part", "path_ns", "guessed_ns").rows()


def test_what_rests_on_a_wait_that_nobody_recorded_is_guessed():
    """The device works from 10 to 40 and from 42 to 98, the call returns at 100. A silent host is
    taken to have waited for both; a recorded wait for the first leaves the second, waits for each
    leave nothing."""
    silent = [host(0, 0, 10), host(0, 41, 42), gpu(0, 10, 40), gpu(0, 42, 98)]
    waits = [wait(0, 10, 40), wait(0, 42, 98)]
    for recorded, guessed in ((0, 86), (1, 56), (2, None)):
        run = make_run([_call(0, "t", 0, 100)], [*silent, *waits[:recorded]], [PIPELINE])
        assert _guessed(linked(run, (0, 2), (1, 3))) == [
            ("compute", 86, guessed),
            ("launches", 14, None),
        ]


def test_host_that_is_recorded_at_work_does_not_wait():
    """The device is busy for 90 of 100 ns; the host was at work of its own for all of them."""
    work = Command(-1, "cpu:0", "host", "host", "tokenize", 10, 82)
    commands = [host(0, 0, 10), work, host(0, 92, 95), gpu(0, 10, 90), gpu(0, 95, 100)]
    run = linked(make_run([_call(0, "t", 0, 100)], commands, [PIPELINE]), (0, 3), (2, 4))
    assert _path(run) == [("t", "launches", "cuda:0", 1, 95), ("t", "compute", "cuda:0", 1, 5)]
    silent = [commands[n] for n in (0, 2, 3, 4)]
    run = linked(make_run([_call(0, "t", 0, 100)], silent, [PIPELINE]), (0, 2), (1, 3))
    assert _path(run) == [("t", "compute", "cuda:0", 2, 85), ("t", "launches", "cuda:0", 1, 15)]


def test_work_that_is_launched_after_its_call_returned_is_no_computing_until_then():
    """As in training: the call returns at 100, and its last kernel of 10 ns, of its backward pass,
    is launched at 890. The device computes for 20 ns, which is all that the path can say of it."""
    commands = [host(0, 5, 6), gpu(0, 10, 20), host(0, 890, 891), gpu(0, 900, 910)]
    run = linked(make_run([make_call(0, "net", 0, 100, device="cuda:0")], commands), (0, 1), (2, 3))
    path = critical_path_table(timeline(run))
    computed = path.filter(pl.col("part") == "compute")["path_ns"].sum()
    assert computed <= 20
    assert path["path_ns"].sum() == 910

"""What idle devices waited for, on runs whose every nanosecond is known."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis import Axis, PipelineCalls
from profiler.trace import CATEGORIES, Drop, DropKind
from tests.analysis.asked import asked
from tests.analysis.linked_runs import gpu, host, linked, wait
from tests.examples import examples, examples_of_reports
from tests.runs import EPOCH, Command, make_call, make_run, make_span, tiny_run, why

PARTS = ("data_ns", "other_device_ns", "launch_ns", "queue_ns", "host_ns")
IN_TILES = ("launch_ns", "unknown_cause_ns", "sync_ns", "queue_ns")
CAUSES = (*IN_TILES, "copy_wait_ns", "other_device_ns", "host_ns", "before_after_ns")


def _rows(run):
    return {row["device"]: row for row in asked(run).idle.to_dicts()}


def _parts(row):
    return tuple(row[name] for name in PARTS)


def _compute(call, device, start, end, category="compute"):
    return Command(call, device, f"t {category}", category, "op", start, end - start)


def test_tiny_run():
    """rbln:0 computes 470 of 780 ns: 5 it waits for a transfer, 105 in calls, 200 between them, of
    which the scheduler takes 80; half of its transfer is hidden. cpu:0 only hosts."""
    rows = _rows(tiny_run())
    assert sorted(rows) == ["rbln:0", "rbln:1"]
    row = rows["rbln:0"]
    assert (row["span_ns"], row["computing_ns"], row["waiting_ns"]) == (780, 470, 310)
    assert _parts(row) == (5, 0, 105, 0, 200)
    assert row["host_work_ns"] == 80
    assert (row["transfer_ns"], row["overlapped_ns"], row["overlap_share"]) == (10, 5, 0.5)
    assert _parts(rows["rbln:1"]) == (0, 0, 20, 0, 0)
    assert rows["rbln:1"]["overlap_share"] is None


def test_devices_that_take_turns_wait_for_each_other():
    """cpu:0 stands still from 10 to 30, of which cpu:1's call takes 16."""
    calls = [
        make_call(0, "a", 0, 10, device="cpu:0"),
        make_call(1, "b", 12, 28, device="cpu:1"),
        make_call(2, "c", 30, 50, device="cpu:0"),
    ]
    commands = [
        _compute(0, "cpu:0", 0, 10),
        _compute(1, "cpu:1", 12, 28),
        _compute(2, "cpu:0", 30, 50),
    ]
    rows = _rows(make_run(calls, commands))
    assert _parts(rows["cpu:0"]) == (0, 16, 0, 0, 4)
    assert rows["cpu:1"]["waiting_ns"] == 0


def test_device_does_not_wait_for_a_pipeline_call_of_others():
    """The call on cpu:1 is another pipeline call's: cpu:0 has nothing to do with it."""
    calls = [
        make_call(0, "a", 0, 10, device="cpu:0", pipeline=0),
        make_call(1, "b", 12, 28, device="cpu:1", pipeline=1),
        make_call(2, "c", 30, 50, device="cpu:0", pipeline=0),
    ]
    spans = [
        make_span("pipeline", "P", 0, 50, pipeline=0),
        make_span("pipeline", "P", 12, 28, pipeline=1),
    ]
    work = ((0, "cpu:0", 0, 10), (1, "cpu:1", 14, 20), (2, "cpu:0", 30, 50))
    commands = [_compute(*one) for one in work]
    assert _parts(_rows(make_run(calls, commands, spans))["cpu:0"]) == (0, 0, 0, 0, 20)


@pytest.mark.parametrize(("other", "parts"), [("b", (0, 20, 0, 0, 0)), ("a", (0, 0, 0, 0, 20))])
def test_device_does_not_wait_for_copies_of_its_own_work(other, parts):
    """Between two calls of `a` another device runs for 20 ns: `b`, whose result may be needed, or
    `a` as well, on another part of the batch, which tells of no wait."""
    calls = [
        make_call(0, "a", 0, 10, device="cuda:0"),
        make_call(1, other, 10, 30, device="cuda:1"),
        make_call(2, "a", 30, 50, device="cuda:0"),
    ]
    commands = [gpu(0, 0, 10), _compute(1, "cuda:1", 10, 30), gpu(2, 30, 50)]
    assert _parts(_rows(make_run(calls, commands))["cuda:0"]) == parts


def test_node_on_the_host_is_waiting_for_another_device():
    """In a call of cuda:0 the CPU runs a node for 20 ns, and 10 ns nothing runs."""
    calls = [make_call(0, "t", 0, 100, device="cuda:0")]
    commands = [
        _compute(0, "cuda:0", 0, 30),
        _compute(0, "cpu:0", 30, 50),
        _compute(0, "cuda:0", 60, 100),
    ]
    rows = _rows(make_run(calls, commands))
    assert _parts(rows["cuda:0"]) == (0, 20, 10, 0, 0)
    assert rows["cpu:0"]["waiting_ns"] == 0


def test_device_sync_is_waiting_for_another_device():
    """Of 30 ns between two commands, a sync of the device takes 20."""
    calls = [make_call(0, "t", 0, 60)]
    commands = [
        _compute(0, "rbln:0", 0, 10),
        _compute(0, "rbln:0", 15, 35, "sync"),
        _compute(0, "rbln:0", 40, 60),
    ]
    assert _parts(_rows(make_run(calls, commands))["rbln:0"]) == (0, 20, 10, 0, 0)


@pytest.mark.parametrize("layer", ["copy-done.2", "async-copy (copy-done)", "slice-start"])
def test_device_waits_for_its_own_copy(layer):
    """XLA's `copy-done` of 20 ns is a wait for a copy, which no other device runs."""
    calls = [make_call(0, "t", 0, 60, device="tpu:0")]
    commands = [
        _compute(0, "tpu:0", 0, 10),
        Command(0, "tpu:0", "t sync", "sync", layer, 15, 20),
        _compute(0, "tpu:0", 40, 60),
    ]
    row = _rows(make_run(calls, commands))["tpu:0"]
    assert row["copy_wait_ns"] == 20
    assert _parts(row) == (0, 0, 10, 0, 0)


def test_launched_commands_are_queued():
    """Kernels begin at 8, 25 and 50, launched at 0, 6 and 40; from launch to begin it takes 9 on a
    dry device, 8 and 10: the second was launched in time before 20."""
    calls = [make_call(0, "t", 0, 60, device="cuda:0")]
    commands = [
        *(host(0, start, end) for start, end in ((0, 5), (6, 10), (40, 45))),
        *(gpu(0, start, end) for start, end in ((8, 20), (25, 35), (50, 60))),
    ]
    row = _rows(linked(make_run(calls, commands), (0, 3), (1, 4), (2, 5)))["cuda:0"]
    assert _parts(row) == (0, 0, 23, 5, 0)


@pytest.mark.parametrize(
    ("returned", "start", "parts"),
    [
        (44, 45, (0, 0, 23, 0, 0)),  # loading a library, and compiling, lie within the call
        (29, 45, (0, 0, 8, 15, 0)),  # in the queue since then
        (44, 37, (0, 0, 8, 7, 0)),  # no later than from the queue, though the call goes on
    ],
)
def test_a_launch_that_returns_late_is_late(returned, start, parts):
    """The last kernel's launch begins at 12, the device runs dry at 30, and from launch to begin it
    takes 8 on a dry device."""
    calls = [make_call(0, "t", 0, 60, device="cuda:0")]
    commands = [
        *(host(0, begin, end) for begin, end in ((0, 5), (6, 10), (12, returned))),
        *(gpu(0, begin, end) for begin, end in ((8, 20), (20, 30), (start, 60))),
    ]
    row = _rows(linked(make_run(calls, commands), (0, 3), (1, 4), (2, 5)))["cuda:0"]
    assert _parts(row) == parts


def test_call_is_under_way_until_its_last_command_has_ended():
    """The first call returns at 10 and computes until 30 with a gap of 4; the next begins at 40."""
    calls = [make_call(i, "t", s, e, device="cuda:0") for i, s, e in ((0, 0, 10), (1, 40, 50))]
    commands = [gpu(0, 5, 20), gpu(0, 24, 30), gpu(1, 45, 50)]
    assert _parts(_rows(make_run(calls, commands))["cuda:0"]) == (0, 0, 14, 0, 10)


def test_device_with_untraced_calls_is_left_out():
    """Nobody knows what it did in them."""
    calls = [make_call(0, "t", 0, 10), make_call(1, "t", 20, 30, traced=False)]
    assert _rows(make_run(calls, [_compute(0, "rbln:0", 0, 10)])) == {}


def test_waiting_is_idle_time_and_time_of_transfers_alone():
    """The table of devices calls idle what nothing at all ran in."""
    analysis = asked(tiny_run())
    idle = analysis.devices.drop_nulls("idle_ns").join(analysis.idle, on="device")
    assert len(idle) == 2
    beside = idle["busy_ns"] - idle["computing_ns"]
    assert (idle["waiting_ns"] == idle["idle_ns"] + beside).all()


_TIMES = st.tuples(st.integers(0, 40), st.integers(0, 12))
_DEVICES = st.sampled_from(("cpu:0", "cuda:0", "cuda:1"))


@st.composite
def _runs(draw):
    """Runs of up to 52 ns: calls in two pipeline calls, commands in and out of them, launches."""
    spans = [
        make_span("pipeline", "P", 0, 60, pipeline=number)
        for number in range(draw(st.integers(0, 2)))
    ]
    calls = []
    for index in range(draw(st.integers(0, 4))):
        start, took = draw(_TIMES)
        pipeline = draw(st.integers(-1, 1)) if spans else -1
        calls.append(
            make_call(
                index,
                draw(st.sampled_from("tu")),
                start,
                start + took,
                device=draw(_DEVICES),
                pipeline=pipeline,
            )
        )
    commands = []
    for _ in range(draw(st.integers(0, 12))):
        start, took = draw(_TIMES)
        call = draw(st.integers(-1, len(calls) - 1))
        category = draw(st.sampled_from(CATEGORIES))
        commands.append(_compute(call, draw(_DEVICES), start, start + took, category))
    commands.sort(key=lambda command: (command.call, command.start))
    sources = [i for i, command in enumerate(commands) if command.category == "host"]
    targets = [i for i, command in enumerate(commands) if command.category == "compute"]
    pairs = []
    if sources:
        pairs = [
            (draw(st.sampled_from(sources)), target) for target in targets if draw(st.booleans())
        ]
    return calls, commands, spans, pairs


_WORKING = {
    ("compute", "other"): "computing",
    ("collective",): "exposed_ns",
    ("dma", "copy"): "data_ns",
}


def _reason(moment, device, calls, commands, pipelines, tiles, counted):
    """Which part a nanosecond of a device is, told without unions."""

    def runs(command):
        return command.start <= moment < command.start + command.duration

    own = [
        c
        for c in calls
        if tiles[c.index][2] == device
        or any(
            m.call == c.index
            and m.device == device
            and m.category not in ("host", "sync")
            and m.duration
            for m in commands
        )
    ]
    numbers = {c.index for c in own}

    def under_way(call):
        begin, end, _ = tiles[call.index]
        return begin <= moment < end

    here = [m for m in commands if m.device == device and runs(m)]
    for working, part in _WORKING.items():
        if any(m.category in working for m in here):
            return part
    if not any(first <= moment < last for first, last in counted):
        return "before_after_ns"
    elsewhere = (m for m in commands if m.device != device and runs(m) and m.call in numbers)
    if any(m.category == "sync" for m in here) or any(
        m.category not in ("host", "sync") for m in elsewhere
    ):
        return "other_device_ns"
    if any(map(under_way, own)):
        return "launch_ns"
    mine, run_here = {c.pipeline for c in own}, {c.submodule for c in own}
    beside = (
        c
        for c in calls
        if c.index not in numbers
        and c.submodule not in run_here
        and (not pipelines or (c.pipeline in mine and c.pipeline in pipelines))
    )
    return "other_device_ns" if any(map(under_way, beside)) else "host_ns"


@settings(max_examples=examples(150), deadline=None)
@given(_runs())
def test_every_nanosecond_is_put_down_to_what_the_rules_say(parts):
    """Against a reading of the rules one nanosecond at a time; queued is a part of host there."""
    calls, commands, spans, pairs = parts
    run = linked(make_run(calls, commands, spans), *pairs)
    numbers = {span.pipeline for span in spans}
    axis = Axis.of(run, PipelineCalls.of(run))
    counted = list(zip(axis.counted.start - EPOCH, axis.counted.end - EPOCH, strict=True))
    columns = ("call", "begin_ns", "end_ns", "tile_device")
    tiles = {n: (b - EPOCH, e - EPOCH, d) for n, b, e, d in run.tiles.calls.select(columns).rows()}
    for device, row in _rows(run).items():
        on_it = [m.start for m in commands if m.device == device]
        first = min([*on_it, *(begin for begin, _, d in tiles.values() if d == device)])
        found = dict.fromkeys((*CAUSES, "data_ns", "exposed_ns", "computing"), 0)
        for moment in range(first, first + row["span_ns"]):
            found[_reason(moment, device, calls, commands, numbers, tiles, counted)] += 1
        assert found["computing"] == row["computing_ns"]
        for name in ("data_ns", "exposed_ns", "other_device_ns", "before_after_ns"):
            assert found[name] == row[name]
        waited = row["sync_ns"]  # in calls, or between them
        assert 0 <= found["host_ns"] - row["host_ns"] <= waited
        host = found["launch_ns"] + found["host_ns"]
        untold = row["unknown_cause_ns"]
        assert host == row["launch_ns"] + untold + row["queue_ns"] + row["host_ns"] + waited


@pytest.mark.parametrize("run", [make_run(), make_run([make_call(0, "t", 0, 10)])])
def test_run_without_commands_has_no_rows(run):
    """Calls alone do not tell what a device did."""
    assert asked(run).idle.is_empty()


def test_long_gaps():
    """Of gaps of 100 µs, 100,001 ns and 400 µs the last two are long."""
    starts = (0, 200_000, 400_001, 900_001)
    call = make_call(0, "transformer", 0, 1_000_001, device="cuda:0")
    commands = [_compute(0, "cuda:0", start, start + 100_000) for start in starts]
    row = _rows(make_run([call], commands))["cuda:0"]
    assert (row["long_gaps"], row["long_gap_ns"]) == (2, 100_001 + 400_000)


def test_a_device_that_ran_dry_while_the_host_waited_is_sync_bound():
    """The host waits from 5 to 21 for the kernel that ends at 20, and launches at 30 only: all of
    the gap from 20 to 32 is for that wait. Before the first kernel it waited for nothing."""
    calls = [make_call(0, "t", 0, 40, device="cuda:0")]
    commands = [host(0, 0, 2), host(0, 30, 31), wait(0, 5, 21), gpu(0, 2, 20), gpu(0, 32, 40)]
    row = _rows(linked(make_run(calls, commands), (0, 3), (1, 4)))["cuda:0"]
    assert (row["launch_ns"], row["sync_ns"], row["idle_ns"]) == (2, 12, 14)


def test_a_launch_that_was_not_recorded_is_nobody_s_fault():
    """The second kernel has no launch, though others have one: whether the host was late for it
    nobody knows, whatever the host waited for. It is seen until it returns behind the last one."""
    calls = [make_call(0, "t", 0, 60, device="cuda:0")]
    commands = [host(0, 0, 2), wait(0, 5, 21), gpu(0, 2, 20), gpu(0, 32, 40), gpu(0, 45, 50)]
    run = linked(make_run(calls, [*commands, host(0, 43, 44)]), (0, 2), (5, 4))
    row = _rows(run)["cuda:0"]
    assert (row["launch_ns"], row["unknown_cause_ns"], row["sync_ns"]) == (2 + 5 + 10, 12, 0)
    assert row["idle_ns"] == 29
    rows = asked(run).gaps.select("length_ns", "cause").rows()
    assert sorted(rows) == [(2, "launch"), (5, "launch"), (10, "launch"), (12, "unrecorded")]


def test_launches_that_return_when_their_work_has_ended_leave_nothing_to_queue():
    """The host waits in each of three launches (MTIA's) until its kernel has ended, so that all of
    the idle time is its own, also what ends with copies whose launches were not recorded: after a
    wait for as long as that took, 10 + 5 + 8, and late for the rest. Idle table, tile and the
    host's own time tell the same."""
    name = "runFunction - job_prep_and_submit_for_execution"
    calls = [make_call(0, "t", 0, 100, device="mtia:0")]
    hosts = [host(0, 4, 20, name), host(0, 33, 40, name), host(0, 60, 70, name)]
    works = [(10, 20), (30, 32), (35, 40), (48, 50), (62, 70), (97, 100)]
    kinds = ("compute", "dma", "compute", "dma", "compute", "dma")
    work = [gpu(0, *at, kind, "mtia:0") for at, kind in zip(works, kinds, strict=True)]
    run = linked(make_run(calls, [*hosts, *work]), (0, 3), (1, 5), (2, 7))
    analysis, row = asked(run), _rows(run)["mtia:0"]
    idle = 100 - sum(end - start for start, end in works)
    after_waits = min(10, 30 - 20) + min(5, 48 - 40) + min(8, 97 - 70)
    assert (row["idle_ns"], row["unknown_cause_ns"]) == (idle, 0)
    assert (row["sync_ns"], row["launch_ns"]) == (after_waits, idle - after_waits)
    assert run.tiles.calls["launch_bound_ns"].to_list() == [idle]
    waited = analysis.operators.filter(pl.col("layer") == name)["waited_ns"].sum()
    assert waited == run.tiles.waits.length == (20 - 10) + (40 - 35) + (70 - 62)


def test_what_was_carried_over_is_outside():
    """A kernel of before the recording ends at 10, the first tile begins at 20: nobody waited."""
    calls = [make_call(0, "t", 20, 40, device="cuda:0")]
    commands = [host(0, 20, 21), gpu(-1, 0, 10), gpu(0, 24, 40)]
    row = _rows(linked(make_run(calls, commands), (0, 2)))["cuda:0"]
    assert (row["before_after_ns"], row["launch_ns"], row["idle_ns"]) == (10, 4, 14)
    assert row["idle_share"] == 4 / 20


def test_time_of_a_cut_file_is_not_recorded():
    """A drop names the file of the second call: that nothing ran in its tile is not known."""
    calls = [make_call(0, "t", 0, 10, step=0), make_call(1, "t", 10, 30, step=1)]
    commands = [_compute(0, "rbln:0", 0, 6), _compute(1, "rbln:0", 10, 15)]
    drop = Drop(DropKind.TRUNCATED_FILE, calls[1].file_name, 9, "bytes", why("cut"))
    row = _rows(make_run(calls, commands, drops=(drop,)))["rbln:0"]
    assert (row["idle_ns"], row["launch_ns"], row["unrecorded_ns"]) == (4, 4, 15)
    whole = _rows(make_run(calls, commands))["rbln:0"]
    assert (whole["idle_ns"], whole["unrecorded_ns"]) == (19, 0)


@settings(max_examples=examples_of_reports(100), deadline=None)
@given(_runs(), st.integers(0, 15))
def test_the_table_of_devices_agrees_where_files_are_cut(parts, cut):
    """Idle and unrecorded time, and the headline's share, whichever calls' files drops name."""
    calls, commands, spans, pairs = parts
    drops = tuple(
        Drop(DropKind.TRUNCATED_FILE, call.file_name, 9, "bytes", why("cut"))
        for call in calls
        if cut >> call.index & 1
    )
    analysis = asked(linked(make_run(calls, commands, spans, drops=drops), *pairs))
    assert analysis.contradictions["sentence"].to_list() == []
    names = ("device", "idle_ns", "unrecorded_ns", "idle_share")
    devices = {row[0]: row for row in analysis.devices.select(names).rows()}
    for row in analysis.idle.select(names).rows():
        assert row == devices[row[0]]


def test_work_before_the_clocks_zero_is_added_up():
    """Times of other producers may be negative: 3 ns compute, 2 ns of a copy beside them."""
    computed = Command(-1, "cuda:0", "stream 7", "compute", "kernel", -10, 3)
    copied = Command(-1, "cuda:0", "stream 8", "dma", "copy", -7, 2)
    (row,) = asked(make_run(commands=[computed, copied])).idle.to_dicts()
    assert (row["span_ns"], row["computing_ns"], row["data_ns"], row["idle_ns"]) == (5, 3, 2, 0)

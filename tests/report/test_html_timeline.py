"""The lanes of the page's timeline and the events in them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from profiler.analysis import extent
from profiler.analysis.analyze import analyze
from profiler.report import timeline_of
from profiler.report.html.timeline import module_stretches
from profiler.run import COUNTERS, FLOWS, Run, schema
from profiler.trace import HOST_TRACK, ActivityKind, Drop, DropKind, HostActivity
from tests.analysis.linked_runs import gpu, host, linked
from tests.queued_runs import QueuedCall, QueuedPipeline
from tests.report.rendered import report_of
from tests.runs import EPOCH, Command, make_call, make_info, make_run, tiny_run, why


def lanes(timeline):
    return [(lane["device"], lane["track"], lane["kind"]) for lane in timeline.document["lanes"]]


def behind() -> Run:
    """A pipeline whose device works on after its calls returned."""
    call = QueuedCall("transformer", "batched", kernels=20, host=5_000, length=40_000)
    return QueuedPipeline((QueuedCall("text_encoder", "prompt"),), [[call]] * 3, ()).simulated().run


def replaced(run, **frames):
    fields = {name: getattr(run, name) for name in Run.__slots__}
    return Run(**{**fields, **frames})


def test_lanes_are_in_order_of_reading():
    """Spans come first, then each device: its calls, its host track, its tracks by category."""
    assert lanes(timeline_of(tiny_run())) == [
        ("", "Stages", "spans"),
        ("", "Steps", "spans"),
        ("cpu:0", "Host", "commands"),
        ("rbln:0", "Calls", "calls"),
        ("rbln:0", "Cluster 0", "commands"),
        ("rbln:0", "Cluster 1", "commands"),
        ("rbln:0", "Task DMA", "commands"),
        ("rbln:1", "Calls", "calls"),
        ("rbln:1", "Cluster 0", "commands"),
    ]


def drawn(run: Run) -> dict[str, list[tuple[int, int]]]:
    """Of each lane of spans its begins and lengths, in ns of the run's clock."""
    timeline, (begin, _) = timeline_of(run), extent(run)
    table, found = timeline.tables["spans"], {}
    for lane in timeline.document["lanes"]:
        if lane["kind"] == "spans":
            rows = slice(lane["first"], lane["first"] + lane["count"])
            starts = (table["start"][rows] + begin).tolist()
            found[str(lane["track"])] = [
                *zip(starts, table["duration"][rows].tolist(), strict=True)
            ]
    return found


def test_stages_and_steps_are_drawn_as_the_tables_have_them():
    """Beside a device that works behind the host they end with their tiles, and the host's own
    ranges are lanes of their own; without launches there is one lane each."""
    run = behind()
    analysis, lanes = analyze(run), drawn(run)
    assert [*lanes] == ["Stages", "Steps", "Stages (host)", "Steps (host)"]
    stages = analysis.stages.filter(pl.col("calls") > 0)  # the decoder was not called
    assert [length for _, length in lanes["Stages"]] == stages["elapsed_ns"].to_list()
    steps = analysis.steps.select("start_ns", "elapsed_ns").rows()
    assert lanes["Steps"] == steps
    for lane, kind in (("Stages (host)", "stage"), ("Steps (host)", "step")):
        recorded = run.spans.filter(pl.col("kind") == kind).sort("start_ns")
        assert lanes[lane] == recorded.select("start_ns", "duration_ns").rows()
    alone = drawn(tiny_run())
    stages = analyze(tiny_run()).stages["elapsed_ns"].to_list()
    assert [*alone] == ["Stages", "Steps"]
    assert [length for _, length in alone["Stages"]] == stages


def test_calls_that_their_device_noted_are_drawn_where_it_was_on_them():
    """Two calls whose host ranges are 10 ns; the device noted 60 and 70 ns, one after the other."""
    calls = [
        replace(
            make_call(n, "vae", 10 * n, 10 * n + 10, device="cuda:0", traced=False),
            device_lag_ns=lag,
            device_duration_ns=length,
        )
        for n, (lag, length) in enumerate([(5, 60), (55, 70)])
    ]
    drawn_calls = timeline_of(make_run(calls)).tables["calls"]
    assert drawn_calls["start"].tolist() == [5, 65]
    assert drawn_calls["duration"].tolist() == [60, 70]
    assert drawn_calls["host"].tolist() == [10, 10]


def test_tracks_sort_by_number():
    """`stream 7` stands above `stream 13`, and devices without a name come last."""
    commands = [
        Command(-1, device, track, "compute", "x", 0, 1)
        for device, track in ((None, "t"), ("cuda:0", "stream 13"), ("cuda:0", "stream 7"))
    ]
    found = [lane[:2] for lane in lanes(timeline_of(make_run(commands=commands)))]
    assert found == [("cuda:0", "stream 7"), ("cuda:0", "stream 13"), ("", "t")]


def test_a_lane_names_all_categories_of_its_track():
    """A track with work of the host and of the device has both, in the usual order, and stands
    where its device work belongs; each command keeps its own."""
    kinds = (("b", "dma"), ("a", "sync"), ("a", "host"), ("b", "host"), ("b", "dma"))
    commands = [
        Command(-1, "cuda:0", track, category, "x", number, 1)
        for number, (track, category) in enumerate(kinds)
    ]
    timeline = timeline_of(make_run(commands=commands))
    found = [(lane["track"], lane["category"]) for lane in timeline.document["lanes"]]
    assert found == [("b", "host, dma"), ("a", "host, sync")]
    codes = timeline.tables["commands"]["category"]
    names = [timeline.document["categories"][code] for code in codes]
    assert names == ["dma", "host", "dma", "sync", "host"]


def test_a_lane_says_which_of_its_commands_are_the_hosts():
    """Waits of a CPU beside an accelerator are the host's, as in the table of operators; those of
    a stream are not, and without accelerators none is."""
    wait = Command(-1, "cpu:0", "python sync", "sync", "cudaDeviceSynchronize", 0, 9)
    event = Command(-1, "cuda:0", "stream 7 sync", "sync", "event", 0, 9)

    def told(*commands):
        document = timeline_of(make_run(commands=commands)).document
        names = document["categories"]
        return [[names[place] for place in lane["host"]] for lane in document["lanes"]]

    assert told(wait, event) == [["host", "sync"], ["host"]]
    assert told(wait) == [["host"]]


def test_rows_of_a_lane_are_its_own(three_steps):
    """Each lane names a stretch of its table that holds exactly the commands of its track."""
    run, _ = three_steps
    timeline = timeline_of(run)
    counts = run.commands.group_by("device", "track").len()
    expected = {(row["device"], row["track"]): row["len"] for row in counts.rows(named=True)}
    found = [lane for lane in timeline.document["lanes"] if lane["kind"] == "commands"]
    assert {(lane["device"], lane["track"]): lane["count"] for lane in found} == expected
    edges = [(lane["first"], lane["first"] + lane["count"]) for lane in found]
    assert edges[0][0] == 0
    assert edges[-1][1] == len(run.commands)
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(edges))
    start = timeline.tables["commands"]["start"]
    assert all((np.diff(start[first:end]) >= 0).all() for first, end in edges)


def test_times_are_relative_and_exact():
    """The first event is at 0 and every time fits a double, though the clock's does not."""
    timeline = timeline_of(tiny_run())
    assert timeline.document["span"] == 1000
    assert timeline.tables["calls"]["start"].tolist() == [210, 560, 910, 10]
    assert timeline.tables["commands"]["start"].max() < 2**53 < EPOCH


def test_commands_carry_their_texts(three_steps):
    """Codes of a command lead to the layer, op type and call that the run has for it."""
    run, _ = three_steps
    timeline = timeline_of(run)
    strings, table = timeline.document["strings"], timeline.tables["commands"]
    row = run.commands.with_row_index().filter(pl.col("layer") == "decoder.up_blocks.3.conv1")[5]
    at = np.flatnonzero(
        (table["start"] == row["start_ns"][0] - extent(run)[0])
        & (table["duration"] == row["duration_ns"][0])
    )
    (found,) = [i for i in at if strings[table["layer"][i]] == row["layer"][0]]
    assert strings[table["op_type"][found]] == "Conv"
    assert timeline.tables["calls"]["call"][table["call"][found]] == row["call"][0]
    assert table["index"][found] == row["command_index"][0]


def test_a_null_text_is_no_string():
    """A command without an op type has the code -1."""
    timeline = timeline_of(make_run(commands=[Command(-1, "cpu:0", "t", "other", "x", 0, 1)]))
    assert timeline.tables["commands"]["op_type"].tolist() == [-1]
    assert timeline.tables["commands"]["role"].tolist() == [-1]


def test_the_longest_commands_stay():
    """Of more commands than the limit the longest are kept, and the document has the total."""
    commands = [Command(-1, "cpu:0", "t", "other", f"l{i}", i * 10, i) for i in range(1, 9)]
    timeline = timeline_of(make_run(commands=commands), limit=3)
    assert sorted(timeline.tables["commands"]["duration"].tolist()) == [6, 7, 8]
    assert timeline.document["commands"] == 8


def test_flows_follow_their_commands():
    """Flows lead to the same commands in the page's order, and go with commands left out."""
    commands = [
        Command(-1, "b:0", "t", "other", "first", 0, 5),
        Command(-1, "a:0", "t", "other", "second", 5, 4),
        Command(-1, "a:0", "t", "other", "third", 9, 1),
    ]
    flows = pl.DataFrame({"source": [0, 1], "target": [1, 2]}, schema=schema(FLOWS))
    run = replaced(make_run(commands=commands), flows=flows)

    def pairs(timeline):
        strings, layer = timeline.document["strings"], timeline.tables["commands"]["layer"]
        ends = (timeline.tables["flows"][end] for end in ("source", "target"))
        return [tuple(strings[layer[at]] for at in pair) for pair in zip(*ends, strict=True)]

    assert pairs(timeline_of(run)) == [("first", "second"), ("second", "third")]
    assert pairs(timeline_of(run, limit=2)) == [("first", "second")]


def test_counters_stand_below_their_device():
    """Each counter is a lane at the end of its device's lanes."""
    rows = [(-1, "rbln:0", "memory", "bytes", EPOCH + t, float(t)) for t in (20, 10)]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    timeline = timeline_of(replaced(tiny_run(), counters=counters))
    place = lanes(timeline).index(("rbln:0", "memory", "counters"))
    assert lanes(timeline)[place - 1][1] == "Task DMA"
    assert lanes(timeline)[place + 1] == ("rbln:1", "Calls", "calls")
    assert timeline.tables["counters"]["value"].tolist() == [10, 20]


def test_a_counter_keeps_its_fractions():
    """A share between 0 and 1 is no flat line at 0: its values are thousandths. Others stay whole,
    and only bytes have a unit: what others count, their names say."""
    rows = [
        (-1, "cuda:0", name, unit, EPOCH + at, value)
        for name, unit, values in (
            ("SM active", "count", (0.25, 0.875)),
            ("clock", "count", (1410.0, 1980.0)),
            ("memory", "bytes", (2.0**33, 0.0)),
        )
        for at, value in enumerate(values)
    ]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    timeline = timeline_of(replaced(make_run(), counters=counters))
    told = {lane["track"]: (lane["category"], lane["parts"]) for lane in timeline.document["lanes"]}
    assert told == {"SM active": ("", 1000), "clock": ("", 1), "memory": ("bytes", 1)}
    assert timeline.tables["counters"]["value"].tolist() == [250, 875, 1410, 1980, 2**33, 0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300])
def test_a_strange_counter_is_no_obstacle(value):
    """A counter that is no number, or too large for one, still gives a page."""
    rows = [(-1, None, "memory", None, EPOCH, value)]
    counters = pl.DataFrame(rows, schema=schema(COUNTERS), orient="row")
    timeline = timeline_of(replaced(make_run(), counters=counters))
    assert lanes(timeline) == [("", "memory", "counters")]


def test_modules_are_stretches_of_blocks():
    """Consecutive compute commands of one numbered module become one bar, others none."""
    layers = [f"blocks.{i}.{part}" for i in range(2) for part in ("q", "k", "v", "o")] + ["norm"]
    run = tiny_run(
        commands=[
            Command(1, "rbln:0", "t", "compute", layer, 210 + 10 * i, 9)
            for i, layer in enumerate(layers)
        ]
    )
    timeline = timeline_of(run)
    (lane,) = [lane for lane in timeline.document["lanes"] if lane["kind"] == "modules"]
    table, strings = timeline.tables["modules"], timeline.document["strings"]
    assert [strings[name] for name in table["name"]] == ["blocks.0", "blocks.1"]
    assert table["start"].tolist() == [210, 250]
    assert table["duration"].tolist() == [39, 39]
    assert (lane["device"], lane["count"]) == ("rbln:0", 2)


def test_without_modules_there_is_no_lane():
    """Modules of hardly more than one command each give no lane."""
    assert all(kind != "modules" for _, _, kind in lanes(timeline_of(tiny_run())))


def test_generated_kernels_are_no_modules():
    """A kernel whose name ends in a number is an operator that stands alone: beside blocks of many
    commands it gives no lane of its own, and does not take theirs."""
    name = "triton_poi_fused_add_8"
    works = [
        Command(0, "cuda:0", "s", "compute", f"blocks.{i // 5}.attn", 10 * i, 5) for i in range(10)
    ]
    works += [
        Command(1, "cuda:0", "s", "compute", name, 200 + 10 * i, 5, op_type=name) for i in range(40)
    ]
    calls = [make_call(0, "vae", 0, 100), make_call(1, "transformer", 200, 700)]
    run = make_run(calls, works)
    found = module_stretches(run.commands, run.calls)
    assert found["module"].to_list() == ["blocks.0", "blocks.1"]


def test_what_the_host_did_in_long_gaps_has_a_lane():
    """As it was recorded; of two at one time the first."""
    times = [(100, 50), (120, 60), (150, 10)]
    activities = tuple(
        HostActivity(
            name=f"f{start}",
            kind=ActivityKind.FUNCTION,
            thread=HOST_TRACK,
            start_ns=EPOCH + start,
            duration_ns=length,
        )
        for start, length in times
    )
    run = make_run([make_call(0, "vae", 0, 300)], info=make_info(host_activities=activities))
    assert drawn(run)["Host in long gaps"] == [(EPOCH + 100, 50), (EPOCH + 150, 10)]


def test_an_empty_run_has_a_timeline():
    """A run without anything has no lanes, and lasts 0 ns."""
    timeline = timeline_of(make_run())
    assert timeline.document["lanes"] == []
    assert timeline.document["span"] == 0


def test_unclosed_commands_end_where_they_start():
    """A command that never closed does not shorten or lengthen the run."""
    commands = [Command(-1, "cpu:0", HOST_TRACK, "host", "open", 5, -1)]
    run = make_run(
        commands=commands, drops=(Drop(DropKind.UNCLOSED_SLICE, "f", 1, "slices", why("")),)
    )
    assert extent(run) == (EPOCH + 5, EPOCH + 5)


def test_calls_of_devices_that_work_behind_the_host_are_drawn_as_their_tiles():
    """The first call returns at 10, its kernel runs from 5 to 60: the second, asked for at 10, is
    drawn behind it; how long the host was in each is kept."""
    calls = [make_call(i, "t", s, e, device="cuda:0") for i, s, e in ((0, 0, 10), (1, 10, 20))]
    commands = [host(0, 0, 4), gpu(0, 5, 60), host(1, 10, 14), gpu(1, 60, 90)]
    table = timeline_of(linked(make_run(calls, commands), (0, 1), (2, 3))).tables["calls"]
    assert [table[name].tolist() for name in ("start", "duration", "host")] == [
        [0, 60],
        [60, 30],
        [10, 10],
    ]


@pytest.mark.parametrize("launched", [True, False])
def test_calls_start_in_their_table_where_the_timeline_draws_them(launched):
    """The call that is asked for at 10 starts at 60, behind the first one's work, with the host's
    begin beside; if no launch was recorded both are drawn as the host's, and nothing is beside."""
    calls = [make_call(i, "t", s, e, device="cuda:0") for i, s, e in ((0, 0, 10), (1, 10, 20))]
    commands = [host(0, 0, 4), gpu(0, 5, 60), host(1, 10, 14), gpu(1, 60, 90)]
    run = make_run(calls, commands)
    run = linked(run, (0, 1), (2, 3)) if launched else run
    (shown,) = (
        part.table
        for section in report_of(analyze(run)).sections
        for part in section.parts
        if part.table is not None and part.table.key == "calls"
    )
    begins = {column.label: shown.frame[column.name].to_list() for column in shown.columns}
    assert begins["start"] == timeline_of(run).tables["calls"]["start"].tolist()
    assert begins["start"] == [0, 60 if launched else 10]
    assert begins.get("host start") == ([0, 10] if launched else None)

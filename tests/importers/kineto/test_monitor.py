"""Traces of torch ≥ 2.14: `.pftrace` as JSON, and as the packets that `cupti_monitor` writes.

`data/window.json.gz` and `data/window.pftrace` are one window, encoded by torch 2.14.1 itself
(`monitor_window.py`): of 120 kernels of AMD-AGI/TraceLens' trace of Qwen1.5 0.5B on an H100 (MIT),
20 of them as nodes of a CUDA graph, with made-up power, clocks and activity.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.importers import import_trace
from profiler.kineto import is_perfetto
from profiler.kineto.perfetto_file import json_of, trace_class
from profiler.kineto.trace_file import read_kineto
from profiler.tools.sources import load
from tests.importers.kineto.traces import flux

_DATA = Path(__file__).parent / "data"
_JSON, _PACKETS = _DATA / "window.json.gz", _DATA / "window.pftrace"
_ALONE = {"Trace"}  # in the JSON alone
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def _rows(path):
    """Name, start, length and what is read of the arguments of each event, by category."""
    trace = read_kineto(path)
    told: dict[str, Counter] = {}
    times = zip(trace.start_ns.tolist(), trace.duration_ns.tolist(), strict=True)
    for event, (start, length) in zip(trace.events, times, strict=True):
        args = event.args
        dims = json.loads(bytes(args.dims) or b"null") if args else None
        stream = args.stream if args and event.cat in _WORK else None
        known = (args.correlation, stream, args.bytes, str(dims)) if args else None
        name = event.name.split()[0] if event.cat == "gpu_memcpy" else event.name
        told.setdefault(event.cat, Counter())[name, start, length, known] += 1
    return {category: rows for category, rows in told.items() if category not in _ALONE}


def test_both_encodings_of_a_window_read_alike():
    """All events, with their times to the ns, their correlations, streams, sizes and shapes; which
    way a copy went is in the JSON alone."""
    of_json, of_packets = _rows(_JSON), _rows(_PACKETS)
    assert of_json.keys() == of_packets.keys()
    for category, rows in of_json.items():
        assert of_packets[category] == rows, category
    assert {category: sum(rows.values()) for category, rows in of_json.items()}["kernel"] == 120


def _run(path, tmp_path):
    return load(import_trace(path, tmp_path / f"{path.name}.run"))


def test_their_runs_are_the_same(tmp_path):
    """Commands, launches, counters and energy, and each device's busy time, which is that of the
    JSON's text."""
    runs = [_run(path, tmp_path) for path in (_JSON, _PACKETS)]
    frames = []
    for run in runs:
        names = pl.col("device", "layer", "module", "kernel").cast(pl.String)
        work = run.commands.filter(
            pl.col("track").cast(pl.String).str.contains("memcpy|copy").not_()
        )
        frames.append(work.select(names, "start_ns", "duration_ns").sort("start_ns", "layer"))
    assert frames[0].equals(frames[1])
    assert len(runs[0].flows) == len(runs[1].flows) > 100
    tables = [analyze(run).tables() for run in runs]
    cycles = pl.col("counter").str.starts_with("Cycles")  # cut to whole ones in the JSON
    counters = [one["device_counters"].filter(cycles.not_()) for one in tables]
    assert counters[0].equals(counters[1])
    assert len(counters[0]) == 5
    assert tables[0]["energy"].equals(tables[1]["energy"])
    intervals = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in json.loads(gzip.decompress(_JSON.read_bytes()))["traceEvents"]
        if event.get("cat") in _WORK
    )
    busy = reached = 0.0
    for start, end in intervals:
        busy += max(end - max(start, reached), 0)
        reached = max(reached, end)
    for one in tables:
        row = one["devices"].filter(pl.col("device") == "cuda:0").row(0, named=True)
        assert row["busy_ns"] == pytest.approx(busy * 1000, abs=len(intervals))


@pytest.mark.parametrize("path", [_JSON, _PACKETS])
def test_annotations_name_parts_of_a_cuda_graph(path, tmp_path):
    """The 20 nodes of the replay are of the parts that `mark_kernels` named, without a capture."""
    run = _run(path, tmp_path)
    modules = run.commands["module"].cast(pl.String).drop_nulls()
    found = Counter(modules.str.extract(r"(model\.layers\..*)").drop_nulls().to_list())
    assert found == {"model.layers.1.attention": 10, "model.layers.1.mlp": 10}


def test_counters_of_packets_are_those_that_were_encoded():
    """Power as the script made it: 300 W, and 1 W more each ms."""
    samples = read_kineto(_PACKETS).samples
    of = samples.names.index(("GPU 0 Counters", "Power (W)"))
    power = samples.value[samples.series == of]
    assert np.array_equal(power, 300.0 + np.arange(len(power)))
    assert len(power) > 1


def test_a_pftrace_may_be_json(tmp_path):
    """The ordinary profiler writes Chrome JSON under that name."""
    named = flux().write(tmp_path, "run.pftrace")
    assert len(load(import_trace(named, tmp_path / "out")).calls) == 5
    assert not is_perfetto(named.read_bytes())


def test_packets_that_are_cut_are_read_as_far_as_they_are_whole(tmp_path):
    """What is lost is a drop; what follows JSON's line feed is no packet."""
    text = gzip.decompress(_PACKETS.read_bytes())
    cut = tmp_path / "cut.pftrace"
    cut.write_bytes(text[: len(text) - 40])
    trace = read_kineto(cut)
    assert trace.dropped == 1
    whole = read_kineto(_PACKETS)
    assert len(trace.samples.value) in (len(whole.samples.value) - 1, len(whole.samples.value) - 2)
    assert not is_perfetto(b'\n{"traceEvents": [' + b" " * 300)


def test_a_damaged_packet_is_lost_alone(tmp_path):
    """A kernel with an argument that is longer than its packet: one drop, and all other events are
    there."""
    text = gzip.decompress(_PACKETS.read_bytes())
    place = text.index(b"correlation", text.index(b"stream id")) - 1
    damaged = tmp_path / "damaged.pftrace"
    damaged.write_bytes(text[:place] + b"\x7f" + text[place + 1 :])
    trace, whole = read_kineto(damaged), read_kineto(_PACKETS)
    assert (trace.dropped, len(trace.events)) == (1, len(whole.events) - 1)


@pytest.mark.parametrize("kind", ["thread", "process", "plain"])
def test_a_track_that_is_described_again_keeps_its_thread(kind):
    """While a slice of 3 µs is open, a second description says no more than a name, or the same."""
    trace = trace_class()()

    def describe(*, whole):
        described = trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
        described.uuid, described.name = 7, "work"
        if whole and kind == "thread":
            described.thread.pid, described.thread.tid = 5, 6
        if kind == "process":
            described.process.pid = 5

    def border(kind, time):
        packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=time)
        packet.track_event.type, packet.track_event.track_uuid = kind, 7
        packet.track_event.name = "slice"

    describe(whole=True)
    border(1, 1_000)
    describe(whole=False)
    border(2, 4_000)
    events = json.loads(b"".join(json_of([trace.SerializeToString()])))["traceEvents"]
    (found,) = (event for event in events if event["ph"] == "X")
    assert found["dur"] == 3
    if kind != "plain":
        assert found["pid"] == 5


def test_render_stages_of_another_producer_are_work(tmp_path):
    """A device by its gpu_id, a stream by its queue's name; slices are paired by their nesting and
    are ranges."""
    trace = trace_class()()
    packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=1000)
    for iid, name in ((1, "Dispatch"), (2, "Queue A")):
        packet.interned_data.gpu_specifications.add(iid=iid, name=name)
    packet = trace.packet.add(trusted_packet_sequence_id=1)
    packet.track_descriptor.uuid, packet.track_descriptor.thread.pid = 5, 70
    for kind, time, name in ((1, 2000, "frame"), (1, 3000, "draw"), (2, 4000, ""), (2, 9000, "")):
        packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=time)
        packet.track_event.type, packet.track_event.track_uuid = kind, 5
        packet.track_event.name = name
    packet = trace.packet.add(trusted_packet_sequence_id=1, timestamp=5000)
    stage = packet.gpu_render_stage_event
    stage.gpu_id, stage.stage_iid, stage.hw_queue_iid, stage.duration = 1, 1, 2, 2500
    path = tmp_path / "app.bin"
    path.write_bytes(trace.SerializeToString())
    read = read_kineto(path)
    times = zip(read.start_ns.tolist(), read.duration_ns.tolist(), strict=True)
    assert sorted(
        (event.cat, event.name, *time) for event, time in zip(read.events, times, strict=False)
    ) == [
        ("kernel", "Dispatch", 5000, 2500),
        ("user_annotation", "draw", 3000, 1000),
        ("user_annotation", "frame", 2000, 7000),
    ]
    run = _run(path, tmp_path)
    row = run.commands.select("device", "track", "duration_ns").row(0)
    assert row == ("cuda:1", "stream Queue A", 2500)


def test_nodes_that_record_events_or_wait_for_the_host_are_no_work(tmp_path):
    """They are commands of category sync, so the device's busy time is without them."""
    trace = flux()
    trace.kernel("gemm", 60, 10, launched=23)
    trace.kernel("HostNode: done", 75, 20, launched=24, cat="graph_host_node")
    trace.kernel("EventRecord", 96, 1, launched=25, cat="graph_event_node")
    run = trace.imported(tmp_path)
    device = run.commands.filter(pl.col("device").cast(pl.String) == "cuda:0")
    assert device["category"].cast(pl.String).to_list() == ["compute", "sync", "sync"]
    busy = analyze(run).devices.filter(pl.col("device") == "cuda:0")["busy_ns"].to_list()
    assert busy == [10_000]

"""Forms in which others write what they recorded for a viewer: unitrace's JSON, XLA's
trace.json.gz, rocprofv3's Perfetto trace, torch's JSON under a Perfetto name, chrome traces of
Triton's Proton and of VizTracer."""

from __future__ import annotations

import gzip
import json
import re
import shutil

import polars as pl
import pytest

from profiler.analysis.analyze import analyze
from profiler.analysis.dropped_data import unchecked
from profiler.errors import InputError
from profiler.importers import import_trace
from profiler.importers.perfetto import read_run
from profiler.tools.sources import Imports, load, load_source, resolve
from tests.corpus import CORPUS, needs_corpus
from tests.trace.wire import fields


def _imported(path, folder):
    return load(import_trace(path, folder))


def _on(run, kind):
    return run.commands.filter(pl.col("device").cast(pl.String).str.starts_with(kind))


def _written(folder, name, document):
    path = folder / name
    path.write_text(json.dumps(document))
    return path


@needs_corpus
@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("u_unitrace.json", "xpu:0"),
        ("x_tensorboard.trace.json.gz", "gpu:0"),
        ("y_rocprofv3.pftrace", "rocm:0"),
        ("w_proton.chrome_trace", "cuda:0"),
    ],
)
def test_the_corpus_has_twenty_kernels_in_each_form(name, device, tmp_path):
    """20 kernels of 150 µs on the one device (`damaged/README.md`)."""
    work = _on(_imported(CORPUS / "damaged" / name, tmp_path), device)
    assert work["duration_ns"].to_list() == [150_000] * 20


@needs_corpus
@pytest.mark.parametrize("left", ["cat", "width"])
def test_processes_of_unitrace_without_names_are_known_by_their_rows(left, tmp_path):
    """Without the names, and without the categories or the kernels' SIMD width."""
    document = json.loads((CORPUS / "damaged" / "u_unitrace.json").read_text())
    rows = [row for row in document["traceEvents"] if row["ph"] != "M"]
    for row in rows:
        if left == "width":
            row["name"] = row["name"].partition("[")[0]
        else:
            del row["cat"]
    run = _imported(_written(tmp_path, "python.json", {"traceEvents": rows}), tmp_path)
    assert _on(run, "xpu:0")["duration_ns"].to_list() == [150_000] * 20
    assert run.flows.height == 20


@needs_corpus
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_rows_of_xlas_viewer_without_a_time_leave_busy_unknown(key, tmp_path):
    """Two of its 60 rows; only 20 are of a stream, the others name them once more."""
    packed = (CORPUS / "damaged" / "x_tensorboard.trace.json.gz").read_bytes()
    document = json.loads(gzip.decompress(packed))
    rows = [row for row in document["traceEvents"] if row.get("tid") == 13 and "dur" in row]
    for row in rows[5:7]:
        del row[key]
    run = _imported(_written(tmp_path, "x.trace.json", document), tmp_path)
    found = [(str(one.rule), one.device, one.count, one.total) for one in run.info.health]
    assert ("no_time", "gpu:0", 2, 20) in found
    (row,) = analyze(run).devices.filter(device="gpu:0").to_dicts()
    assert row["idle_share"] is None


@needs_corpus
def test_a_slice_of_perfetto_that_never_ended_has_no_length(tmp_path):
    """The last end of a kernel is left out of rocprofv3's file: 19 kernels, and one that is said to
    have begun."""
    data = (CORPUS / "damaged" / "y_rocprofv3.pftrace").read_bytes()
    packets, begin = [], 0
    for _, payload, end in fields(data):
        packets.append((payload, data[begin:end]))
        begin = end
    ends = [place for place, (payload, _) in enumerate(packets) if _is_end(payload)]
    del packets[ends[-1]]
    path = tmp_path / "open.pftrace"
    path.write_bytes(b"".join(packet for _, packet in packets))
    run = _imported(path, tmp_path)
    (note,) = [one for one in run.info.health if one.rule.damage]
    assert (str(note.rule), note.device, note.count) == ("unfinished", "rocm:0", 1)
    assert len(_on(run, "rocm:0")) == 19


def _is_end(packet):
    """Whether a packet is the end of a slice: field 9 of its track_event, field 11, is 2."""
    (event,) = [payload for number, payload, _ in fields(packet) if number == 11] or [b""]
    return (9, b"\x02") in [(number, payload) for number, payload, _ in fields(event)]


def unitrace():
    """On two GPUs: a kernel each, and on the first a copy of 64 bytes and a barrier."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "HOST<machine>"}},
        {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "DEVICE<Max 1550>"}},
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "DEVICE<Max 1550>"}},
    ]
    work = (
        (2, "gemm[SIMD16 {128;1;1} {256;1;1}]", 100.0, 50.0),
        (3, "norm[SIMD32 {64;1;1} {256;1;1}]", 110.0, 20.0),
        (2, "zeCommandListAppendMemoryCopy(M2D)[64 bytes]", 160.0, 10.0),
        (2, "zeCommandListAppendBarrier", 170.0, 5.0),
    )
    for number, (pid, name, start, length) in enumerate(work):
        call = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "id": number, "dur": 2.0}
        events.append(call | {"name": "zeCommandListAppend", "ts": 10.0 * number})
        row = {"ph": "X", "pid": pid, "tid": 1, "cat": "gpu_op", "args": {"id": str(number)}}
        events.append(row | {"name": name, "ts": start, "dur": length})
    return {"traceEvents": events}


def test_unitrace_has_kernels_copies_and_their_launches(tmp_path):
    """Kernels by their names, without groups; a copy with its way and bytes; barriers are no
    work; each is linked to the call that appended it."""
    run = _imported(_written(tmp_path, "a.json", unitrace()), tmp_path / "out")
    found = _on(run, "xpu").select(
        *(pl.col(name).cast(pl.String) for name in ("device", "layer", "kernel")), "duration_ns"
    )
    assert sorted(found.rows()) == [
        ("xpu:0", "Memcpy HtoD", "Memcpy HtoD", 10_000),
        ("xpu:0", "gemm", "gemm", 50_000),
        ("xpu:1", "norm", "norm", 20_000),
    ]
    assert len(run.flows) == 3
    assert run.info.devices["xpu:1"].hardware == "Max 1550"
    copy = _on(run, "xpu").filter(pl.col("layer").cast(pl.String) == "Memcpy HtoD")
    assert copy["bytes_written"].to_list() == [64]


@needs_corpus
@pytest.mark.parametrize("name", ["u_unitrace.json", "d_ascend_trace_view.json"])
def test_work_without_a_length_never_ended(name, tmp_path):
    """Of the twenty kernels of 150 µs two have no length: they are set aside, and busy time is not
    known."""
    trace = json.loads((CORPUS / "damaged" / name).read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    long = [one for one in events if one.get("ph") == "X" and float(one["dur"]) == 150]
    assert len(long) == 20
    for one in long[4:6]:
        del one["dur"]
    path = tmp_path / name
    path.write_text(json.dumps(trace))
    analysis = analyze(load(import_trace(path, tmp_path / "traces")))
    (row,) = analysis.health.filter(rule="unfinished").to_dicts()
    assert (row["count"], row["action"]) == (2, "set_aside")


def test_unitrace_of_the_host_alone_is_one_sentence(tmp_path):
    events = unitrace()["traceEvents"][:1]
    path = _written(tmp_path, "a.json", {"traceEvents": events})
    with pytest.raises(InputError, match="holds no kernel and no copy of a GPU: record with"):
        import_trace(path, tmp_path / "out")


def tpu_view():
    """Two executed modules of an operation each."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:TPU:0"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 1, "args": {"name": "XLA Modules"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 2, "args": {"name": "XLA Ops"}},
    ]
    for start in (0.0, 100.0):
        module = {"ph": "X", "pid": 3, "tid": 1, "ts": start, "dur": 80.0}
        events.append(module | {"name": "jit_step(7)"})
        op = {"ph": "X", "pid": 3, "tid": 2, "ts": start + 5, "dur": 60.0, "name": "fusion.1"}
        events.append(op | {"args": {"hlo_category": "convolution fusion", "long_name": "%f"}})
    return {"traceEvents": [*events, {}]}


def test_the_view_of_xla_has_modules_of_a_tpu_as_calls(tmp_path):
    """Lines of a TPU are read as those of its XSpace: two executed modules are two calls."""
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(tpu_view()).encode()))
    run = _imported(path, tmp_path / "out")
    assert run.calls["submodule"].cast(pl.String).to_list() == ["jit_step"] * 2
    assert _on(run, "tpu")["duration_ns"].to_list() == [60_000] * 2


@needs_corpus
def test_json_under_the_name_of_a_perfetto_trace_is_read_by_content(tmp_path):
    """torch 2.14's export_chrome_trace writes Chrome JSON into a file called .pftrace."""
    path = tmp_path / "x.pftrace"
    shutil.copy(CORPUS / "damaged" / "00_base_correct.json", path)
    assert len(_on(_imported(path, tmp_path / "out"), "cuda")) == 34


def proton(streams):
    """The text of Proton's chrome trace: a JSON object a line, each of one stream with three
    kernels of 50 µs, as nlohmann::json writes it."""
    lines = []
    for stream in streams:
        kernel = {"cat": "kernel", "dur": 50.0, "name": "add", "ph": "X", "tid": stream}
        call_stack = {"call_stack": ["ROOT", "scope", "add"]}
        rows = [{"args": call_stack, **kernel, "ts": 100.0 * at + stream} for at in range(3)]
        line = {"displayTimeUnit": "us", "traceEvents": rows}
        lines.append(json.dumps(line, separators=(",", ":")))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("chunk", [100, 1 << 22])
def test_proton_writes_an_object_for_each_stream(chunk, tmp_path, monkeypatch):
    """All kernels of all streams are read, wherever the file is cut into chunks, and no text is
    called damaged."""
    monkeypatch.setattr("profiler.kineto.trace_file._CHUNK", chunk)
    path = tmp_path / "a.chrome_trace"
    path.write_text(proton([0, 7, 12]))
    run = _imported(path, tmp_path / "out")
    streams = _on(run, "cuda").group_by("track").agg(pl.col("duration_ns").sum())
    assert {str(track): length for track, length in streams.iter_rows()} == {
        f"stream {number}": 150_000 for number in (0, 7, 12)
    }
    assert [str(note.rule) for note in run.info.health] == ["device_only"]


def test_what_viztracer_recorded_is_host_work(tmp_path):
    """A file that the library writes here: its functions are frames of the host, and the run lasts
    from the first to the last."""
    viztracer = pytest.importorskip("viztracer", reason="needs the perfetto extra")
    path = tmp_path / "viztracer.json"
    with viztracer.VizTracer(output_file=str(path), verbose=0):
        sorted(range(100), key=lambda one: -one)
    events = [one for one in json.loads(path.read_text())["traceEvents"] if one["ph"] == "X"]
    other = path.with_name("other.json")  # some versions write the category like this
    other.write_text(re.sub(r'"cat": ?"FEE"', '"cat": "fee"', path.read_text(), flags=re.I))
    run = _imported(path, tmp_path / "out")
    assert _imported(other, tmp_path / "out").calls["duration_ns"].to_list() == [
        *run.calls["duration_ns"]
    ]
    first = min(one["ts"] for one in events)
    last = max(one["ts"] + one["dur"] for one in events)
    (call,) = run.calls.select("device", "duration_ns").rows()
    assert call[0] == "cpu:0"
    assert call[1] == pytest.approx((last - first) * 1000, abs=2)
    assert len(events) > 100
    advice = [advice for _, advice in unchecked(analyze(run)).values()]
    assert advice == ["Also record with torch.profiler: only Python's functions were recorded."]


def write_perfetto(folder):
    """Ten slices of 80 µs on `GPU queue 1` within a slice `transformer` of a thread, and a flow
    from a slice `launch` to each but the last."""
    trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = trace_pb2.Trace()

    def packet():
        added = trace.packet.add()
        added.trusted_packet_sequence_id = 1
        return added

    def event(time, track, name="", flow=None):
        one = packet()
        one.timestamp, one.track_event.track_uuid = time, track
        one.track_event.type = 1 if name else 2
        if name:
            one.track_event.name = name
        if flow is not None:
            one.track_event.flow_ids.append(flow)

    first = packet()
    first.sequence_flags = 1
    thread = first.track_descriptor
    thread.uuid, thread.thread.pid, thread.thread.tid = 2, 5, 6
    queue = packet().track_descriptor
    queue.uuid, queue.name = 3, "GPU queue 1"
    base = 10**12
    event(base, 2, "transformer")
    for number in range(10):
        at = base + 100_000 * number
        flow = number if number < 9 else None
        event(at + 1_000, 2, "launch", flow)
        event(at + 3_000, 2)
        event(at + 5_000, 3, "gemm", flow)
        event(at + 85_000, 3)
    event(base + 1_100_000, 2)
    path = folder / "app.pftrace"
    path.write_bytes(trace.SerializeToString())
    return path


def test_any_perfetto_trace_is_read_if_the_user_says_what_devices_are(tmp_path):
    """Slices of the tracks that match are work in the call whose range is open; flows lead from
    launches; without device= its slices stay commands, as before."""
    path = write_perfetto(tmp_path)
    options = {"device": r"GPU queue (\d+)"}
    run = load(import_trace(path, tmp_path / "out", options=options))
    work = _on(run, "gpu")
    assert set(work["device"].cast(pl.String)) == {"gpu:1"}
    assert work["duration_ns"].to_list() == [80_000] * 10
    assert run.calls["submodule"].cast(pl.String).to_list() == ["transformer"]
    assert len(run.flows) == 9
    assert len(load(path).commands) == 21


def timeline(form):
    """Kernels of 80 µs on two streams and a copy, as TensorFlow's timelines have them, in a step of
    a thread that begins and ends; times are in µs from 1970."""
    base = 1_490_280_130_000_000
    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in enumerate(("/gpu:0/stream:12 Compute", "/gpu:0/stream:13 Compute", "app"))
    ]
    events += [
        {"ph": "X", "cat": "Op", "name": name, "pid": pid, "tid": 0, "ts": base + at, "dur": 80}
        for name, pid, at in (("MatMul", 0, 10), ("MatMul", 1, 50), ("MEMCPYHtoD", 0, 200))
    ]
    events += [
        {"ph": phase, "name": "unet", "pid": 2, "tid": "main", "ts": base + at}
        for phase, at in (("B", 0), ("E", 300), ("E", 310))
    ]
    return events if form == "array" else {"traceEvents": events}


@pytest.mark.parametrize("form", ["array", "object"])
def test_any_chrome_trace_is_read_if_the_user_says_what_devices_are(form, tmp_path):
    """Tracks have the names of their processes; without device= the error says how to give it."""
    path = _written(tmp_path, "timeline.json", timeline(form))
    run = load(import_trace(path, tmp_path / "out", options={"device": r"gpu:(\d)/stream"}))
    work = _on(run, "gpu")
    assert work["duration_ns"].to_list() == [80_000] * 3
    assert work["track"].n_unique() == 2
    assert analyze(run).devices.filter(device="gpu:0")["busy_ns"].to_list() == [200_000]
    assert run.calls.select(pl.col("submodule").cast(pl.String), "duration_ns").rows() == [
        ("unet", 300_000)
    ]
    with pytest.raises(InputError, match="--import device=REGEX"):
        load(path)
    with pytest.raises(InputError, match="/gpu:0/stream:12 Compute 0, /gpu:0/stream:13 Compute 0"):
        import_trace(path, tmp_path / "out", options={"device": "TPU"})


def test_chrome_json_behind_a_blank_line_is_read(tmp_path):
    """A line feed is also the first byte of a Perfetto trace."""
    path = tmp_path / "timeline.json"
    path.write_text("\n" + json.dumps(timeline("object")))
    (found,) = resolve([[path]], {"device": r"gpu:(\d)/stream"})
    with Imports() as imports:
        run = load_source(imports.ready(found.newest))
    assert _on(run, "gpu")["duration_ns"].to_list() == [80_000] * 3


def _lengths(run):
    calls = [call.commands for call in (run.make_calls or list)()]
    return sorted(length for one in calls for length in one.duration_ns.tolist())


@pytest.mark.parametrize(
    ("first", "second", "lengths"),
    [
        ({"cat": "A", "id": 1}, {"cat": "B", "id": 1}, [5_000, 8_000]),
        ({"id": 1, "scope": "A"}, {"id": 1, "scope": "B"}, [5_000, 8_000]),
        ({"id2": {"local": "0x1"}}, {"id2": {"local": "0x2"}}, [5_000, 8_000]),
        ({"id2": {"local": 1}}, {"id2": {"local": 1}, "pid": 2}, [5_000, 8_000]),
        ({"id2": {"global": 1}}, {"id2": {"global": 1}, "pid": 2}, [4_000, 9_000]),
        ({"id": 1}, {"id": 1}, [4_000, 9_000]),
    ],
)
def test_async_events_end_by_category_id_and_scope(first, second, lengths, tmp_path):
    """The first begins at 0 µs and the second at 1; an end at 5 µs has the id of the first, one at
    9 µs that of the second. Events of one id are nested, in all processes if the id is global."""
    ends = [("b", first, 0), ("b", second, 1), ("e", first, 5), ("e", second, 9)]
    common = {"cat": "A", "name": "work", "pid": 1, "tid": 1}
    events = [{**common, **ids, "ph": phase, "ts": at} for phase, ids, at in ends]
    run = read_run(_written(tmp_path, "async.json", {"traceEvents": events}), device="1")
    assert _lengths(run) == lengths


@pytest.mark.parametrize("phase", ["", "XB", "bE"])
def test_events_of_an_unknown_phase_are_not_read(phase, tmp_path):
    """A phase is one letter: only the slice of 4 µs is work, and nothing is lost."""
    common = {"cat": "A", "name": "work", "pid": 1, "tid": 1, "dur": 4}
    events = [{**common, "ph": "X", "ts": 0}, {**common, "ph": phase, "ts": 5}]
    run = read_run(_written(tmp_path, "phases.json", {"traceEvents": events}), device="1")
    assert _lengths(run) == [4_000]
    assert not run.drops
    assert [str(note.rule) for note in run.health] == ["device_only"]


@pytest.mark.parametrize(("asked", "calls"), [("transformer", 1), ("launch", 10)])
def test_without_a_device_all_slices_are_the_hosts(asked, calls, tmp_path):
    """Calls are the slices that were named; what ran within one is in it, on its thread."""
    path = write_perfetto(tmp_path)
    run = load(import_trace(path, tmp_path / "out", options={"submodules": asked}))
    assert run.calls["submodule"].cast(pl.String).to_list() == [asked] * calls
    assert run.calls["duration_ns"].to_list() == [1_100_000 if calls == 1 else 2_000] * calls
    assert len(run.commands) == 21
    places = run.commands.select(pl.col("device", "category").cast(pl.String)).unique().rows()
    assert places == [("cpu:0", "host")]


def test_a_trace_without_a_slice_is_a_sentence(tmp_path):
    path = tmp_path / "empty.pftrace"
    path.write_bytes(b"\n\x02\x50\x01")
    with pytest.raises(InputError, match=r"without a slice that has an end|no slice 'a'"):
        import_trace(path, tmp_path / "out", options={"submodules": "a"})


def test_a_track_that_is_not_there_is_named(tmp_path):
    path = write_perfetto(tmp_path)
    with pytest.raises(InputError, match=r"matches device='TPU': .* there are .*GPU queue 1"):
        import_trace(path, tmp_path / "out", options={"device": "TPU"})
    with pytest.raises(InputError, match="is no regular expression"):
        import_trace(path, tmp_path / "out", options={"device": "("})

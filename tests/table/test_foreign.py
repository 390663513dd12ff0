"""Traces of other producers: whatever their tracks are called, every slice is a command."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from profiler.run import write_parquet
from profiler.tools.sources import load
from profiler.trace import schema

_TRACKS = ("process", "worker", "plain", "below", "nameless")


def _track(trace: Any, uuid: int) -> Any:
    track = trace.packet.add().track_descriptor
    track.uuid = uuid
    return track


def _event(trace: Any, time_ns: int, kind: int, track: int, name: str = "") -> Any:
    packet = trace.packet.add(timestamp=time_ns, trusted_packet_sequence_id=5)
    packet.track_event.type, packet.track_event.track_uuid = kind, track
    if name:
        packet.track_event.name = name
    return packet.track_event


def _slice(trace: Any, start: int, end: int, track: int, name: str) -> Any:
    begin = _event(trace, start, schema.SLICE_BEGIN, track, name)
    _event(trace, end, schema.SLICE_END, track)
    return begin


def _written(trace: Any, path: Path) -> Path:
    path.write_bytes(trace.SerializeToString())
    return path


def _five_tracks() -> Any:
    """One slice on each of: a process, its thread, a root, a track below it, one without name."""
    trace = schema.Trace()
    process = _track(trace, 1).process
    process.pid, process.process_name = 40, "server"
    thread = _track(trace, 2).thread
    thread.pid, thread.tid, thread.thread_name = 40, 41, "worker"
    _track(trace, 3).name = "Requests"
    below = _track(trace, 4)
    below.name, below.parent_uuid = "Queue", 3
    _track(trace, 5)
    for position, name in enumerate(_TRACKS):
        _slice(trace, 10 * position + 1, 10 * position + 6, position + 1, name)
    return trace


def test_devices_and_tracks(tmp_path: Path) -> None:
    """The device is the process that a track belongs to, else the root above it, if any. A track
    without name is called by its first slice."""
    commands = load(_written(_five_tracks(), tmp_path / "any.pb")).commands
    assert commands.select("layer", "device", "track").rows() == [
        ("process", "server", "server"),
        ("worker", "server", "worker"),
        ("plain", None, "Requests"),
        ("below", "Requests", "Queue"),
        ("nameless", None, "nameless"),
    ]
    assert commands["start_ns"].to_list() == [1, 11, 21, 31, 41]
    assert commands["duration_ns"].to_list() == [5] * 5


def test_thread_of_a_process_without_name(tmp_path: Path) -> None:
    """A thread of which only numbers are known is called by them, and so is its process."""
    trace = schema.Trace()
    thread = _track(trace, 2).thread
    thread.pid, thread.tid = 40, 41
    _slice(trace, 1, 6, 2, "work")
    commands = load(_written(trace, tmp_path / "any.pb")).commands
    assert commands.select("device", "track").rows() == [("process 40", "thread 41")]


def test_moments_are_commands_of_no_duration(tmp_path: Path) -> None:
    """An instant inside a slice takes no time, closes nothing and is no drop; what never closed
    has -1."""
    trace = schema.Trace()
    _track(trace, 3).name = "Requests"
    _event(trace, 10, schema.SLICE_BEGIN, 3, "outer")
    _event(trace, 12, schema.INSTANT, 3, "mark")
    _event(trace, 30, schema.SLICE_END, 3)
    _event(trace, 40, schema.INSTANT, 3, "mark")
    _event(trace, 50, schema.SLICE_BEGIN, 3, "open")
    run = load(_written(trace, tmp_path / "any.pb"))
    assert run.commands.select("layer", "command_index", "start_ns", "duration_ns").rows() == [
        ("outer", 0, 10, 20),
        ("mark", 0, 12, 0),
        ("mark", 1, 40, 0),
        ("open", 0, 50, -1),
    ]
    assert [(drop.kind, drop.count) for drop in run.drops] == [("unclosed_slice", 1)]


@pytest.mark.parametrize("name", ["any.pb.gz", "any.pb", "trace"])
def test_packed_file(tmp_path: Path, name: str) -> None:
    """A gzipped trace loads like the trace, whatever it is called."""
    plain = load(_written(_five_tracks(), tmp_path / "plain.pb"))
    packed = tmp_path / name
    packed.write_bytes(gzip.compress(_five_tracks().SerializeToString()))
    assert load(packed).commands.equals(plain.commands)


def test_packed_packets(tmp_path: Path) -> None:
    """Packets inside a deflated packet load like packets."""
    plain = load(_written(_five_tracks(), tmp_path / "plain.pb"))
    packets = zlib.compress(_five_tracks().SerializeToString())
    packet = _bytes(50, packets)  # TracePacket.compressed_packets
    packed = tmp_path / "packed.pb"
    packed.write_bytes(_bytes(1, packet))
    assert load(packed).commands.equals(plain.commands)


def _varint(value: int) -> bytes:
    low = value & 0x7F
    return bytes([low]) if value == low else bytes([low | 0x80]) + _varint(value >> 7)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _annotation(name: str, value: bytes) -> bytes:
    """`TrackEvent.debug_annotations` with a name and an encoded value."""
    return _bytes(4, _bytes(10, name.encode()) + value)


def _annotated() -> Any:
    trace = schema.Trace()
    _track(trace, 3).name = "Requests"
    values = {
        "int": _varint(4 << 3) + _varint((1 << 64) - 7),
        "uint": _varint(3 << 3) + _varint((1 << 64) - 1),
        "text": _bytes(6, b"attention"),
        "real": _varint(5 << 3 | 1) + struct.pack("<d", 0.5),
        "bool": _varint(2 << 3) + _varint(1),
    }
    _slice(trace, 1, 5, 3, "bare")
    begin = _slice(trace, 11, 15, 3, "annotated")
    begin.MergeFromString(b"".join(_annotation(name, value) for name, value in values.items()))
    return trace


_EXPECTED = {
    "debug.int": "-7",
    "debug.uint": str((1 << 64) - 1),
    "debug.text": "attention",
    "debug.real": "0.5",
    "debug.bool": "true",
}


def test_arguments(tmp_path: Path) -> None:
    """Debug annotations of every type are rows of `args`, by their command, exact as text."""
    run = load(_written(_annotated(), tmp_path / "any.pb"))
    args = run.args.collect()
    assert args["command"].unique().to_list() == [1]
    assert dict(args.select("key", "value").iter_rows()) == _EXPECTED
    real = run.args.filter(pl.col("key") == "debug.real").collect()
    assert real["value"].to_list() == ["0.5"]


def test_arguments_in_parquet(tmp_path: Path) -> None:
    """Arguments come back from Parquet."""
    run = load(_written(_annotated(), tmp_path / "any.pb"))
    write_parquet(run, tmp_path / "parquet")
    assert load(tmp_path / "parquet").args.collect().equals(run.args.collect())

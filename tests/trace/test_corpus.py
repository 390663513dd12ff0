"""Traces of other producers: Perfetto's own parser tests, and its Python builder."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.errors import InputError
from profiler.trace import read_bytes, read_trace
from tests.corpus import PERFETTO_TESTS, needs_corpus


@needs_corpus
@pytest.mark.parametrize("path", PERFETTO_TESTS, ids=lambda path: path.stem)
def test_perfetto_parser_tests(path: Path) -> None:
    """Each of Perfetto's parser tests is read or refused, never a crash."""
    try:
        trace = read_trace(path)
    except InputError:
        return
    assert len(trace.slices.track) == len(trace.slices.start_ns)


def test_trace_by_perfettos_python_builder() -> None:
    """Threads, processes, nesting and counters of a trace by Perfetto's builder are read."""
    builders = pytest.importorskip(
        "perfetto.trace_builder.proto_builder", reason="needs the perfetto extra"
    )
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    builder = builders.TraceProtoBuilder()
    packet = builder.add_packet()
    packet.track_descriptor.uuid = 1
    packet.track_descriptor.process.pid = 100
    packet.track_descriptor.process.process_name = "server"
    packet = builder.add_packet()
    packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = 2, 1
    packet.track_descriptor.thread.pid, packet.track_descriptor.thread.tid = 100, 101
    packet.track_descriptor.thread.thread_name = "worker"
    for timestamp, kind, name in (
        (1000, TrackEvent.TYPE_SLICE_BEGIN, "outer"),
        (1100, TrackEvent.TYPE_SLICE_BEGIN, "inner"),
        (1300, TrackEvent.TYPE_SLICE_END, ""),
        (1500, TrackEvent.TYPE_SLICE_END, ""),
    ):
        packet = builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = timestamp, 1
        packet.track_event.type, packet.track_event.track_uuid = kind, 2
        if name:
            packet.track_event.name = name
    trace = read_bytes(builder.serialize())
    assert [track.name for track in trace.tracks] == ["server", "worker"]
    assert [trace.strings[code] for code in trace.slices.name] == ["outer", "inner"]
    assert trace.slices.start_ns.tolist() == [1000, 1100]
    assert trace.slices.duration_ns.tolist() == [500, 200]
    assert trace.slices.depth.tolist() == [0, 1]
    assert trace.drops == ()

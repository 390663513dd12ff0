"""A trace is the same run in whatever order the files of a bundle stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from google.protobuf import descriptor_pb2
from polars.testing import assert_frame_equal

from profiler.run.load import load_trace
from profiler.trace import (
    ROOT_DEVICE,
    BundleWriter,
    Call,
    CommandBuilder,
    CommandColumns,
    RunInfo,
    Span,
    Track,
    call_files,
    read_bytes,
    schema,
)
from tests.trace.samples import EPOCH_NS, small_bundle

_MANY = 90_000  # commands a call: two of them are a trace whose end is looked at ahead
_NOTE = 1500  # a field of TrackEvent that only a trace itself describes


def _ties(start_ns: int) -> CommandColumns:
    """Commands of which every third takes no time and shares its moment with the next one."""
    rows = np.arange(_MANY)
    text, none = np.zeros(_MANY, dtype=np.int32), np.full(_MANY, -1, dtype=np.int64)
    return CommandColumns(
        tracks=(Track("cpu:0", "stream", "compute"),),
        strings=("", *(f"layer {number}" for number in range(7))),
        track=text,
        layer=(rows % 7 + 1).astype(np.int32),
        command_index=rows.astype(np.int32),
        op_type=text,
        role=text,
        shapes=text,
        stage=text,
        step=np.full(_MANY, -1, dtype=np.int32),
        start_ns=start_ns + (rows + 2) // 3 * 1000,
        duration_ns=np.where(rows % 3 == 1, 300, 0).astype(np.int64),
        bytes_read=none,
        bytes_written=none,
        flops=none,
        flows=np.zeros((0, 2), dtype=np.int64),
    )


def _large_bundle(parent: Path) -> Path:
    """Two calls behind each other, and a span that begins with the first and ends with the last."""
    length = _MANY // 3 * 1000 + 5000
    with BundleWriter.create(parent, "large") as bundle:
        for index in range(2):
            begin = EPOCH_NS + index * length
            place = ("transformer", "denoise", "cond", index, "cpu:0", begin, length, True, {})
            bundle.write_call(Call(index, *place), _ties(begin))
        spans = [
            Span("pipeline", "pipeline", "", -1, EPOCH_NS, 2 * length),
            Span("step", "step 1", "denoise", 1, EPOCH_NS + length, length),
        ]
        bundle.write_host(spans, CommandBuilder().build(), ROOT_DEVICE)
        return bundle.finish(RunInfo(producer="capture"))


@pytest.mark.parametrize("written", [small_bundle, _large_bundle])
def test_any_order_of_files_is_the_same_run(written, tmp_path: Path) -> None:
    """Host spans first, as they are written, last, or between: the same frames, ties included."""
    bundle = written(tmp_path)
    host, (first, *calls) = bundle / "host.pb", call_files(bundle)
    merged = load_trace(bundle / "merged.pb")
    assert len(merged.calls) > 1
    for number, files in enumerate(([first, *calls, host], [*calls[::-1], host, first])):
        path = tmp_path / f"{number}.pb"
        path.write_bytes(b"".join(file.read_bytes() for file in files))
        run = load_trace(path)
        for name in ("calls", "commands", "spans", "counters", "flows"):
            assert_frame_equal(_plain(getattr(run, name)), _plain(getattr(merged, name)))


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))


def test_a_type_that_changes_after_an_event_is_known_to_it() -> None:
    """An event's field is called as the last description calls it, whatever stood before the event;
    one that repeats what is known changes nothing."""
    assert _keys([_described("first"), _event(), _described("second")]) == ["second"]
    assert _keys([_event(), _described("first")]) == ["first"]
    assert _keys([_described("first"), _event(), _described("first", b"other")]) == ["first"]


def _keys(packets: Sequence[bytes]) -> list[str]:
    """The keys of all arguments of a trace of these packets."""
    trace = read_bytes(b"".join(b"\x0a" + _varint(len(packet)) + packet for packet in packets))
    assert trace.drops == ()
    return [trace.strings[key] for key in trace.args.key]


def _event() -> bytes:
    """A packet with a moment on track 7 that has a field of its own."""
    packet = schema.TracePacket(timestamp=5, trusted_packet_sequence_id=3)
    packet.track_event.type = schema.INSTANT
    packet.track_event.track_uuid = 7
    packet.track_event.name = "moment"
    own = _varint(_NOTE << 3 | 2) + b"\x01x"
    event = packet.track_event.SerializeToString() + own
    packet.ClearField("track_event")
    return packet.SerializeToString() + _varint(11 << 3 | 2) + _varint(len(event)) + event


def _described(name: str, comment: bytes = b"") -> bytes:
    """A packet that describes the field; `comment` makes equal descriptions of different bytes."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name=f"own{comment.decode()}.proto", package="own")
    file.extension.add(
        name=name,
        number=_NOTE,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        extendee=".perfetto.protos.TrackEvent",
    )
    packet = schema.TracePacket(trusted_packet_sequence_id=3)
    packet.extension_descriptor.extension_set = files.SerializeToString()
    return packet.SerializeToString()


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])

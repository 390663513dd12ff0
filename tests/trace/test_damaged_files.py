"""Files that are cut, hostile or of another kind: read as far as they go, or refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.errors import InputError
from profiler.trace import TraceColumns, encode_call, read_bytes, read_trace, schema
from tests.runs import told
from tests.trace import wire
from tests.trace.samples import small_calls
from tests.trace.strategies import hostile_traces

_WHOLE = encode_call(*small_calls()[0])
_ENDS = [end for *_, end in wire.fields(_WHOLE)]


def _readable(data: bytes) -> TraceColumns | None:
    """The trace, with columns that fit each other; None where it is refused."""
    try:
        trace = read_bytes(data)
    except InputError:
        return None
    slices, rows = trace.slices, len(trace.slices)
    assert {len(getattr(slices, name)) for name in slices.__slots__} == {rows}
    for codes, size in (
        (slices.track, len(trace.tracks)),
        (slices.name, len(trace.strings)),
        (slices.parent + 1, rows + 1),
        (trace.flows.ravel(), rows),
        (trace.args.slice, rows),
        (trace.args.key, len(trace.strings)),
        (trace.counters.track, len(trace.tracks)),
    ):
        assert ((codes >= 0) & (codes < size)).all()
    return trace


def test_cut_at_every_byte() -> None:
    """A file cut anywhere keeps every whole packet, and its drop counts the bytes behind them."""
    seen = -1
    for size in range(len(_WHOLE)):
        whole = max((end for end in _ENDS if end <= size), default=0)
        trace = _readable(_WHOLE[:size])
        assert (trace is None) == (whole == 0)
        if trace is None:
            continue
        lost = [drop for drop in trace.drops if drop.kind == "truncated_file"]
        assert [drop.count for drop in lost] == ([size - whole] if size > whole else [])
        assert all(f"at byte {whole:,} of {size:,}" in told(drop) for drop in lost)
        begun = len(trace.slices) + len(trace.calls)
        assert begun >= seen
        seen = begun
    assert seen == len(read_bytes(_WHOLE).slices) + 1


def test_cut_file_says_what_it_left_open() -> None:
    """Slices and the call that were open at the cut are kept, and said to be unclosed."""
    kinds = [packet.track_event.type for packet in schema.Trace.FromString(_WHOLE).packet]
    before_the_first_end = _ENDS[kinds.index(schema.SLICE_END) - 1]
    trace = read_bytes(_WHOLE[:before_the_first_end], "half.pb")
    assert len(trace.calls) == 1
    units = {drop.unit for drop in trace.drops if drop.kind == "unclosed_slice"}
    assert units == {"calls", "slices"}


@given(st.binary(max_size=300))
def test_noise(data: bytes) -> None:
    """Random bytes are read or refused, never a crash."""
    _readable(data)


@given(st.integers(0, len(_WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_damage_anywhere(at: int, damage: bytes) -> None:
    """A trace with some bytes overwritten is read or refused, never a crash."""
    _readable(_WHOLE[:at] + damage + _WHOLE[at + len(damage) :])


@given(hostile_traces())
def test_any_field_with_any_value(trace: Any) -> None:
    """Well-formed packets that no tracer writes are read, with times that tables can hold."""
    found = _readable(trace.SerializeToString())
    if found is not None:
        assert (found.slices.start_ns >= 0).all()
        assert (found.slices.duration_ns >= -1).all()


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a packet of 2^64 - 1 bytes
        b"\x0a\xff\xff\xff\xff\x07",  # of 2^31 - 1 bytes
        b"\x0a\x05\x5a\xff\xff\xff\x7f",  # a track event longer than its packet
        b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # a length without end
        b"\x0a\x00" * 1000,  # packets without content
    ],
)
def test_hostile_lengths(data: bytes) -> None:
    """Lengths that the file does not have are refused without allocating them."""
    with pytest.raises(InputError, match="not a Perfetto trace"):
        read_bytes(data)


def test_hostile_length_behind_a_trace() -> None:
    """A packet that claims more than the file has costs only itself."""
    trace = read_bytes(_WHOLE + b"\x0a\xff\xff\xff\xff\x07")
    (drop,) = trace.drops
    assert (drop.kind, drop.count) == ("truncated_file", 6)
    assert len(trace.slices) == len(read_bytes(_WHOLE).slices)


def test_deep_nesting() -> None:
    """Messages nested beyond any sense are refused without exhausting the stack."""
    nested = b""
    for _ in range(5000):
        nested = b"\x0a" + _length(len(nested)) + nested
    assert _readable(nested) is None


def _length(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def test_text_that_is_not_utf8() -> None:
    """Names that are not valid UTF-8 are read with replacement characters."""
    trace = read_bytes(_WHOLE.replace(b"mlp.fc1", b"mlp\xff\xfe\xfd1"))
    assert "mlp\ufffd\ufffd\ufffd1" in trace.strings


def test_files_that_cannot_be_traces(tmp_path: Any) -> None:
    """A missing file, an empty one, a folder: each is refused in one sentence."""
    empty = tmp_path / "empty.pb"
    empty.touch()
    for path, reason in (
        (tmp_path / "missing.pb", "No such file"),
        (empty, "is empty"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(InputError, match=reason):
            read_trace(path)


def test_other_protobufs() -> None:
    """Messages of other formats are no traces."""
    from google.protobuf import any_pb2, descriptor_pb2, timestamp_pb2

    descriptors = descriptor_pb2.FileDescriptorSet()
    any_pb2.DESCRIPTOR.CopyToProto(descriptors.file.add())
    others = (
        descriptors,
        timestamp_pb2.Timestamp(seconds=10, nanos=5),
        any_pb2.Any(type_url="type.googleapis.com/x", value=random.Random(0).randbytes(100)),
    )
    for message in others:
        with pytest.raises(InputError, match="not a Perfetto trace"):
            read_bytes(message.SerializeToString())


@pytest.mark.parametrize("part", ["trace_packet_defaults", "clock_snapshot", "interned_data"])
def test_damage_within_a_packet(part: str) -> None:
    """What a packet says of those behind it may be damaged while its frame is whole: it is said."""
    trace = schema.Trace.FromString(_WHOLE)
    packet = next(packet for packet in trace.packet if packet.HasField(part))
    whole = packet.SerializeToString()
    inner = getattr(packet, part).SerializeToString()
    damaged = whole.replace(inner, b"\xff" * len(inner))
    assert damaged != whole
    data = _WHOLE.replace(whole, damaged)
    drops = [
        drop
        for drop in read_bytes(data).drops
        if told(drop) == "they are damaged and cannot be read"
    ]
    assert [(drop.kind, drop.count) for drop in drops] == [("dropped_events", 1)]

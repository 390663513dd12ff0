"""Hypothesis strategies: traces of any producer, well-formed but in any order."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2
from hypothesis import strategies as st

from profiler.trace import schema

__all__ = ["foreign_traces"]

_SEQUENCES = (1, 2, 3)
_DESCRIBES = 9  # a sequence of its own: a thread described on one becomes that of its events
_TRACKS = (11, 12, 13, 14, 15, 16)
_LONELY = 99  # a track that nobody describes
_CLOCK = 64
_WORDS = ("", "a", "b", "mlp.fc1", "\u00fc\u00df")
_TEXTS = {1: "first", 2: "second", 5_000_000: "a text with a large number"}


@st.composite
def foreign_traces(draw: st.DrawFn) -> Any:
    """Sequences with their own clocks and interned names, tracks of every kind, events in any
    order of time; descriptors and texts before or after what refers to them."""
    trace = schema.Trace()
    early, late = [_text_packet()], []
    for track in _TRACKS:
        (early if draw(st.booleans()) else late).append(_track_packet(draw, track))
    if draw(st.booleans()):
        early, late = early[1:], [*late, early[0]]
    for sequence in _SEQUENCES[: draw(st.integers(1, 3))]:
        trace.packet.append(_start_packet(draw, sequence))
    trace.packet.extend(early)
    for _ in range(draw(st.integers(0, 25))):
        trace.packet.append(_any_packet(draw))
    trace.packet.extend(late)
    return trace


def _any_packet(draw: st.DrawFn) -> Any:
    kind = draw(st.integers(0, 20))
    sequence = draw(st.sampled_from(_SEQUENCES))
    if kind == 0:
        return _start_packet(draw, sequence)
    if kind == 1:
        packet = schema.TracePacket(trusted_packet_sequence_id=sequence)
        event = packet.trace_packet_defaults.track_event_defaults
        event.track_uuid = draw(st.sampled_from(_TRACKS))
        return packet
    return _event_packet(draw, sequence)


def _start_packet(draw: st.DrawFn, sequence: int) -> Any:
    """Clears the state and interns names; sometimes the sequence has a clock of its own."""
    packet = schema.TracePacket(trusted_packet_sequence_id=sequence)
    packet.sequence_flags = schema.INCREMENTAL_STATE_CLEARED
    for iid, word in enumerate(draw(st.permutations(_WORDS)), 1):
        packet.interned_data.event_names.add(iid=iid, name=f"name {word}")
        packet.interned_data.event_categories.add(iid=iid * 1000, name=f"category {word}")
    if draw(st.booleans()):
        packet.trace_packet_defaults.timestamp_clock_id = _CLOCK
        incremental = sequence != 3
        clocks = packet.clock_snapshot.clocks
        clocks.add(clock_id=schema.CLOCK_BOOTTIME, timestamp=1000)
        clocks.add(
            clock_id=_CLOCK,
            timestamp=7,
            is_incremental=incremental,
            unit_multiplier_ns=sequence,
        )
    return packet


def _track_packet(draw: st.DrawFn, uuid: int) -> Any:
    packet = schema.TracePacket(trusted_packet_sequence_id=_DESCRIBES)
    track = packet.track_descriptor
    track.uuid, track.name = uuid, f"track {uuid}"
    kind = draw(st.sampled_from(["plain", "plain", "thread", "process", "counter", "counter"]))
    if kind == "thread":
        track.thread.pid, track.thread.tid = 100, uuid
        track.thread.thread_name = f"thread {uuid}"
    elif kind == "process":
        track.process.pid, track.process.process_name = uuid, f"process {uuid}"
    elif kind == "counter":
        track.counter.unit = draw(st.integers(0, 3))
    if kind != "process":
        track.parent_uuid = draw(st.sampled_from([0, *range(_TRACKS[0], uuid)]))
    return packet


def _text_packet() -> Any:
    """Our own extension and its numbered texts."""
    enum = descriptor_pb2.EnumDescriptorProto(name="Text")
    for number, text in _TEXTS.items():
        enum.value.add(name=text, number=number)
    file = descriptor_pb2.FileDescriptorProto(
        name="texts.proto", package="profile_sd3.trace", enum_type=[enum]
    )
    packet = schema.TracePacket(trusted_packet_sequence_id=1)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    packet.extension_descriptor.extension_set = schema.EXTENSION_SET + files.SerializeToString()
    return packet


def _event_packet(draw: st.DrawFn, sequence: int) -> Any:
    packet = schema.TracePacket(trusted_packet_sequence_id=sequence)
    packet.timestamp = draw(st.integers(0, 60))
    if draw(st.integers(0, 5)) == 0:
        packet.timestamp_clock_id = draw(st.sampled_from([schema.CLOCK_BOOTTIME, _CLOCK]))
    if draw(st.booleans()):
        packet.sequence_flags = schema.NEEDS_INCREMENTAL_STATE
    event = packet.track_event
    event.type = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
    if draw(st.integers(0, 4)):
        event.track_uuid = draw(st.sampled_from([*_TRACKS, _LONELY]))
    if event.type == schema.COUNTER:
        _set_value(draw, event)
    elif event.type != schema.SLICE_END:
        _name(draw, event)
    if event.type == schema.SLICE_BEGIN:
        _extend(draw, event)
    if event.type != schema.COUNTER:
        ids = st.lists(st.integers(1, 3), max_size=2)
        event.flow_ids.extend(draw(ids))
        event.terminating_flow_ids.extend(draw(ids))
    return packet


def _set_value(draw: st.DrawFn, event: Any) -> None:
    if draw(st.booleans()):
        event.counter_value = draw(st.integers(-(1 << 63), (1 << 63) - 1))
    elif draw(st.booleans()):
        event.double_counter_value = draw(st.floats(allow_nan=False))


def _name(draw: st.DrawFn, event: Any) -> None:
    how = draw(st.integers(0, 3))
    if how < 2:
        event.name_iid = draw(st.integers(1, len(_WORDS)))
    elif how == 2:
        event.name = draw(st.sampled_from(_WORDS))
    iids = st.integers(1, len(_WORDS)).map(lambda iid: iid * 1000)
    event.category_iids.extend(draw(st.lists(iids, max_size=2)))
    event.categories.extend(draw(st.lists(st.sampled_from(_WORDS), max_size=2)))


def _extend(draw: st.DrawFn, event: Any) -> None:
    kind = draw(st.integers(0, 12))
    if kind == 0:
        call = event.Extensions[schema.CALL]
        call.index, call.submodule, call.device = draw(st.integers(0, 9)), "vae", "cpu:0"
    elif kind == 1:
        event.Extensions[schema.SPAN].kind = "stage"
    elif kind < 8:
        _fill_command(draw, event.Extensions[schema.COMMAND])


def _fill_command(draw: st.DrawFn, command: Any) -> None:
    numbers = st.sampled_from([0, *_TEXTS])
    for name in ("layer", "op_type", "role", "shapes", "stage", "kernel", "module"):
        how = draw(st.integers(0, 3))
        if how == 0 and name not in ("kernel", "module"):  # these travel as numbers alone
            setattr(command, name, draw(st.sampled_from(_WORDS)))
        elif how == 1:
            setattr(command, f"{name}_text", draw(numbers))
    for name in ("command_index", "step", "pipeline"):
        if draw(st.booleans()):
            setattr(command, name, draw(st.integers(-1, (1 << 31) - 1)))
    for name in ("bytes_read", "bytes_written", "flops"):
        if draw(st.booleans()):
            setattr(command, name, draw(st.integers(-1, (1 << 63) - 1)))

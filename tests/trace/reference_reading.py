"""What a trace of ours says, read with Perfetto's own message definitions: slow and literal.

Events are taken in order of time, those of one moment as they stand in the file; that is what
trace_processor does.
"""

from __future__ import annotations

from collections import Counter as Bag
from dataclasses import dataclass, field
from typing import Any

import pytest

from profiler.trace import schema

__all__ = ["Reading", "Slice", "read"]

theirs = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
    reason="Perfetto's message definitions are missing: install the perfetto extra",
)

_TEXTS = ("layer", "op_type", "role", "shapes", "stage")


@dataclass(slots=True, eq=False)
class Slice:
    """`fields` are those of the extension, texts as texts; `duration_ns` -1: never ended."""

    device: str
    track: str
    uuid: int
    name: str
    category: str
    start_ns: int
    fields: tuple[tuple[str, Any], ...]
    parent: Slice | None
    duration_ns: int = -1

    def key(self) -> tuple[Any, ...]:
        """All that a reader may know of the slice, parents included."""
        own = (self.device, self.track, self.name, self.category, self.start_ns, self.duration_ns)
        return (*own, self.fields, self.parent.key() if self.parent else None)


@dataclass(slots=True)
class Reading:
    slices: list[Slice] = field(default_factory=list)
    samples: Bag[tuple[str, str, str, int, int]] = field(default_factory=Bag)
    flows: Bag[tuple[Any, Any]] = field(default_factory=Bag)

    def keys(self) -> Bag[Any]:
        return Bag(piece.key() for piece in self.slices)


@dataclass(slots=True)
class _Sequence:
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    clock: int = 0
    track: int = 0
    clocks: dict[int, list[int]] = field(default_factory=dict)  # value, offset, unit, incremental


@dataclass(slots=True)
class _Event:
    time_ns: int
    kind: int
    uuid: int
    name: str
    category: str
    fields: tuple[tuple[str, Any], ...]
    value: int
    flow_ids: list[int]
    terminating_flow_ids: list[int]


def read(data: bytes) -> Reading:
    """Read whole files, one after another."""
    packets = _Packets()
    for packet in theirs.Trace.FromString(data).packet:
        packets.read(packet)
    return _imported(packets)


class _Packets:
    def __init__(self) -> None:
        self.sequences: dict[int, _Sequence] = {}
        self.texts: dict[int, str] = {}
        self.tracks: dict[int, Any] = {}
        self.events: list[_Event] = []

    def read(self, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        if packet.sequence_flags & theirs.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            self.sequences[number] = _Sequence()
        sequence = self.sequences[number]
        if packet.HasField("trace_packet_defaults"):
            sequence.clock = packet.trace_packet_defaults.timestamp_clock_id
            sequence.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        for entry in packet.interned_data.event_names:
            assert entry.iid not in sequence.names
            sequence.names[entry.iid] = entry.name
        for entry in packet.interned_data.event_categories:
            sequence.categories[entry.iid] = entry.name
        self._snapshot(sequence, packet.clock_snapshot)
        self._define(packet)
        if packet.HasField("track_descriptor"):
            self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            self._event(sequence, packet, packet.track_event)

    def _snapshot(self, sequence: _Sequence, snapshot: Any) -> None:
        clocks = {clock.clock_id: clock for clock in snapshot.clocks}
        for clock in clocks.values():
            unit = clock.unit_multiplier_ns or 1
            offset = clocks[schema.CLOCK_REALTIME].timestamp - clock.timestamp * unit
            sequence.clocks[clock.clock_id] = [clock.timestamp * unit, offset, unit]

    def _define(self, packet: Any) -> None:
        for file in packet.extension_descriptor.extension_set.file:
            for enum in file.enum_type:
                assert enum.name == "Text"
                for value in enum.value:
                    assert self.texts.setdefault(value.number, value.name) == value.name

    def _event(self, sequence: _Sequence, packet: Any, event: Any) -> None:
        clock = sequence.clocks[sequence.clock]
        clock[0] += packet.timestamp * clock[2]
        categories = [sequence.categories[iid] for iid in event.category_iids]
        self.events.append(
            _Event(
                clock[0] + clock[1],
                event.type,
                event.track_uuid or sequence.track,
                sequence.names[event.name_iid] if event.name_iid else "",
                ",".join(categories),
                self._fields(event),
                event.counter_value,
                list(event.flow_ids),
                list(event.terminating_flow_ids),
            )
        )

    def _fields(self, event: Any) -> tuple[tuple[str, Any], ...]:
        from google.protobuf import message_factory, unknown_fields

        found: dict[str, Any] = {}
        for unknown in unknown_fields.UnknownFieldSet(event):
            for extension in (schema.COMMAND, schema.CALL, schema.SPAN):
                if extension.number != unknown.field_number:
                    continue
                parse = message_factory.GetMessageClass(extension.message_type).FromString
                message = parse(unknown.data)
                for entry, value in message.ListFields():
                    key = entry.name.removesuffix("_text")
                    text = entry.name.endswith("_text")
                    found[key] = self.texts[value] if text else str(value)
        return tuple(sorted(found.items()))


def _imported(packets: _Packets) -> Reading:
    reading = Reading()
    stacks: dict[int, list[Slice]] = {}
    flows: dict[int, list[tuple[bool, Slice]]] = {}
    for event in sorted(packets.events, key=lambda event: event.time_ns):
        stack = stacks.setdefault(event.uuid, [])
        descriptor = packets.tracks[event.uuid]
        device = packets.tracks[descriptor.parent_uuid].name
        if event.kind == theirs.TrackEvent.TYPE_COUNTER:
            unit = str(descriptor.counter.unit)
            reading.samples[device, descriptor.name, unit, event.time_ns, event.value] += 1
            continue
        if event.kind == theirs.TrackEvent.TYPE_SLICE_BEGIN:
            place = (device, descriptor.name, event.uuid, event.name, event.category)
            parent = stack[-1] if stack else None
            stack.append(Slice(*place, event.time_ns, event.fields, parent))
            reading.slices.append(stack[-1])
        piece = stack[-1]
        for flow_id in event.flow_ids:
            flows.setdefault(flow_id, []).append((False, piece))
        for flow_id in event.terminating_flow_ids:
            flows.setdefault(flow_id, []).append((True, piece))
        if event.kind == theirs.TrackEvent.TYPE_SLICE_END:
            stack.pop().duration_ns = event.time_ns - piece.start_ns
    for ends in flows.values():
        (_, source), (_, target) = sorted(ends, key=lambda end: end[0])
        reading.flows[source.key(), target.key()] += 1
    return reading

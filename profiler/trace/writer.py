"""Columns → a complete Perfetto trace.

Layout of a file, in packets of one sequence:

1. clock snapshot (REALTIME, and the sequence's incremental clock 64 set to the same value),
   state cleared, clock 64 as default;
2. the descriptor of our extension;
3. one descriptor per device, track and counter;
4. slice begins and ends, counters and flows in order of time, names interned.

Everything a reader needs is in each file, and nothing is shared between files but track uuids,
which derive from names: so the bytes of several files, one after another, are one trace.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiler.errors import InputError
from profiler.events import CALLS_TRACK, HOST_TRACK, PIPELINE_TRACK, Call, Span, Track
from profiler.trace import schema
from profiler.trace.columns import CommandColumns, Counter

__all__ = ["HOST_SEQUENCE", "encode_call", "encode_host", "track_uuid"]

HOST_SEQUENCE = 1  # calls use their index + 2
_TRACK_ORDER = (PIPELINE_TRACK, CALLS_TRACK, HOST_TRACK)


def track_uuid(*path: str) -> int:
    """The uuid of a track from its names: equal in every file, at most 35 bits (5 wire bytes)."""
    digest = hashlib.blake2b("\x00".join(path).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 29 or 1


def encode_call(
    call: Call, commands: CommandColumns, counters: Sequence[Counter] = (), sequence: int = 0
) -> bytes:
    """The trace of one call: its span on the device's call track, its commands, its counters."""
    writer = _Writer(sequence or call.index + 2)
    slices = [_call_slice(call), *_command_slices(commands)]
    _add_flows(slices, commands, first=1, sequence=writer.sequence)
    return writer.encode(slices, counters)


def encode_host(spans: Iterable[Span], commands: CommandColumns, device: str) -> bytes:
    """`host.pb`: pipeline, stage and step spans of the root `device`, and its host work."""
    slices = [_span_slice(span, device) for span in spans]
    first = len(slices)
    slices.extend(_command_slices(commands))
    _add_flows(slices, commands, first=first, sequence=HOST_SEQUENCE)
    return _Writer(HOST_SEQUENCE).encode(slices, ())


@dataclass(slots=True)
class _Slice:
    track: Track
    name: str
    start_ns: int
    end_ns: int
    extension: tuple[Any, dict[str, Any]]
    flow_ids: list[int] = field(default_factory=list)
    terminating_flow_ids: list[int] = field(default_factory=list)


def _call_slice(call: Call) -> _Slice:
    inputs = [{"name": name, "shape": shape} for name, shape in call.input_shapes.items()]
    fields = {
        "index": call.index,
        "submodule": call.submodule,
        "stage": call.stage,
        "branch": call.branch,
        "step": call.step,
        "device": call.device,
        "ops_traced": call.ops_traced,
        "inputs": inputs,
    }
    track = Track(call.device, CALLS_TRACK, "other")
    return _Slice(track, call.submodule, call.start_ns, call.end_ns, (schema.CALL, fields))


def _span_slice(span: Span, device: str) -> _Slice:
    fields = {"kind": span.kind, "stage": span.stage, "step": span.step}
    track = Track(device, PIPELINE_TRACK, "other")
    end_ns = span.start_ns + span.duration_ns
    return _Slice(track, span.name, span.start_ns, end_ns, (schema.SPAN, fields))


def _command_slices(commands: CommandColumns) -> Iterator[_Slice]:
    strings, tracks = commands.strings, commands.tracks
    optional = ("bytes_read", "bytes_written", "flops")
    numbers = {name: getattr(commands, name).tolist() for name in (*optional, "step")}
    texts = {
        name: getattr(commands, name).tolist() for name in ("op_type", "role", "shapes", "stage")
    }
    starts, ends = commands.start_ns.tolist(), commands.end_ns.tolist()
    layers, indices = commands.layer.tolist(), commands.command_index.tolist()
    for row, track in enumerate(commands.track.tolist()):
        layer = strings[layers[row]]
        fields: dict[str, Any] = {"layer": layer, "command_index": indices[row]}
        for name, codes in texts.items():
            if codes[row]:
                fields[name] = strings[codes[row]]
        for name in optional:
            if numbers[name][row] >= 0:
                fields[name] = numbers[name][row]
        if texts["stage"][row]:
            fields["step"] = numbers["step"][row]
        extension = (schema.COMMAND, fields)
        yield _Slice(tracks[track], layer, starts[row], ends[row], extension)


def _add_flows(
    slices: list[_Slice], commands: CommandColumns, *, first: int, sequence: int
) -> None:
    """Give each dependency an id that no other file uses: sequence in the upper 32 bits."""
    for number, (source, target) in enumerate(commands.flows.tolist(), 1):
        flow_id = (sequence << 32) | number
        slices[first + source].flow_ids.append(flow_id)
        slices[first + target].terminating_flow_ids.append(flow_id)


def _lanes(slices: Sequence[_Slice]) -> Iterator[tuple[_Slice, int]]:
    """Give slices of one track the first lane on which they nest properly.

    Slices of one Perfetto track must nest. Where a producer's commands overlap without nesting,
    the later one goes to a further lane: a track of its own under the same name.
    """
    open_ends: dict[Track, list[list[int]]] = {}
    for piece in slices:
        lanes = open_ends.setdefault(piece.track, [])
        for number, stack in enumerate(lanes):
            while stack and stack[-1] <= piece.start_ns:
                stack.pop()
            if not stack or piece.end_ns <= stack[-1]:
                stack.append(piece.end_ns)
                yield piece, number
                break
        else:
            lanes.append([piece.end_ns])
            yield piece, len(lanes) - 1


class _Writer:
    """Builds one file: one packet sequence with its interning state and incremental clock."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self._trace = schema.Trace()
        self._clock = 0
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}

    def encode(self, slices: Sequence[_Slice], counters: Sequence[Counter]) -> bytes:
        ordered = sorted(
            slices, key=lambda s: (s.start_ns, s.end_ns > s.start_ns, s.start_ns - s.end_ns)
        )
        placed = [
            (piece, track_uuid(piece.track.device, piece.track.name, str(lane)))
            for piece, lane in _lanes(ordered)
        ]
        starts = [p.start_ns for p in ordered[:1]] + [int(c.times_ns[0]) for c in counters]
        self._start(min(starts, default=0))
        self._describe([(piece.track, uuid) for piece, uuid in placed], counters)
        events = heapq.merge(
            _slice_events(placed), _counter_events(counters), key=lambda event: event[0]
        )
        for time_ns, uuid, kind, payload in events:
            self._event(time_ns, uuid, kind, payload)
        data: bytes = self._trace.SerializeToString()
        return data

    def _packet(self) -> Any:
        return self._trace.packet.add(trusted_packet_sequence_id=self.sequence)

    def _start(self, base_ns: int) -> None:
        if base_ns < 0:
            raise InputError(f"a trace cannot start before the epoch, but one starts at {base_ns} ns")
        packet = self._packet()
        packet.sequence_flags = schema.INCREMENTAL_STATE_CLEARED
        packet.trace_packet_defaults.timestamp_clock_id = schema.FIRST_SEQUENCE_CLOCK
        snapshot = packet.clock_snapshot
        snapshot.primary_trace_clock = schema.CLOCK_REALTIME
        snapshot.clocks.add(clock_id=schema.CLOCK_REALTIME, timestamp=base_ns)
        snapshot.clocks.add(
            clock_id=schema.FIRST_SEQUENCE_CLOCK, timestamp=base_ns, is_incremental=True
        )
        self._clock = base_ns
        self._packet().extension_descriptor.extension_set = schema.EXTENSION_SET

    def _describe(
        self, tracks: Sequence[tuple[Track, int]], counters: Sequence[Counter]
    ) -> None:
        devices = sorted({t.device for t, _ in tracks} | {c.device for c in counters})
        for device in devices:
            descriptor = self._packet().track_descriptor
            descriptor.uuid = track_uuid(device)
            descriptor.name = device
            descriptor.child_ordering = schema.ORDER_EXPLICIT
        described: dict[int, Track] = {uuid: track for track, uuid in tracks}
        for uuid, track in described.items():
            descriptor = self._packet().track_descriptor
            descriptor.uuid, descriptor.parent_uuid = uuid, track_uuid(track.device)
            descriptor.name = track.name
            descriptor.sibling_order_rank = _rank(track)
        for counter in counters:
            descriptor = self._packet().track_descriptor
            descriptor.uuid = track_uuid(counter.device, counter.name, "counter")
            descriptor.parent_uuid = track_uuid(counter.device)
            descriptor.name = counter.name
            descriptor.sibling_order_rank = 99
            descriptor.counter.unit = (
                schema.UNIT_BYTES if counter.unit == "bytes" else schema.UNIT_COUNT
            )

    def _event(self, time_ns: int, uuid: int, kind: int, payload: Any) -> None:
        packet = self._packet()
        packet.timestamp = time_ns - self._clock
        self._clock = time_ns
        packet.sequence_flags = schema.NEEDS_INCREMENTAL_STATE
        event = packet.track_event
        event.type, event.track_uuid = kind, uuid
        if kind == schema.COUNTER:
            event.counter_value = payload
        elif kind == schema.SLICE_BEGIN:
            self._begin(packet, event, payload)

    def _begin(self, packet: Any, event: Any, piece: _Slice) -> None:
        event.name_iid = self._intern(packet, "event_names", self._names, piece.name)
        event.category_iids.append(
            self._intern(packet, "event_categories", self._categories, piece.track.category)
        )
        key, fields = piece.extension
        message = event.Extensions[key]
        for name, value in fields.items():
            if name == "inputs":
                for entry in value:
                    message.inputs.add(**entry)
            else:
                setattr(message, name, value)
        event.flow_ids.extend(piece.flow_ids)
        event.terminating_flow_ids.extend(piece.terminating_flow_ids)

    @staticmethod
    def _intern(packet: Any, kind: str, table: dict[str, int], text: str) -> int:
        iid = table.get(text)
        if iid is None:
            iid = table[text] = len(table) + 1
            getattr(packet.interned_data, kind).add(iid=iid, name=text)
        return iid


def _rank(track: Track) -> int:
    """Pipeline, calls and host work first, then the device's own queues by category."""
    if track.name in _TRACK_ORDER:
        return _TRACK_ORDER.index(track.name)
    order = ("compute", "dma", "copy", "sync", "host", "other")
    return 10 + order.index(track.category) if track.category in order else 20


_Event = tuple[int, int, int, Any]


def _slice_events(placed: Sequence[tuple[_Slice, int]]) -> Iterator[_Event]:
    """Begins and ends in order of time; on one track an end comes before the next begin.

    `placed` is in order of start, parents before children, and nests on every track.
    """
    ends: list[tuple[int, int, int]] = []  # (end, -opening order, uuid): innermost first
    for opened, (piece, uuid) in enumerate(placed):
        while ends and ends[0][0] <= piece.start_ns:
            end_ns, _, ended = heapq.heappop(ends)
            yield end_ns, ended, schema.SLICE_END, None
        yield piece.start_ns, uuid, schema.SLICE_BEGIN, piece
        heapq.heappush(ends, (piece.end_ns, -opened, uuid))
    while ends:
        end_ns, _, ended = heapq.heappop(ends)
        yield end_ns, ended, schema.SLICE_END, None


def _counter_events(counters: Sequence[Counter]) -> Iterator[_Event]:
    samples = (
        (int(time_ns), track_uuid(counter.device, counter.name, "counter"), int(value))
        for counter in counters
        for time_ns, value in zip(counter.times_ns, counter.values, strict=True)
    )
    for time_ns, uuid, value in sorted(samples):
        yield time_ns, uuid, schema.COUNTER, value

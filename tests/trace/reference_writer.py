"""The writer as it was before the C++ core: one Python object an event, packets by protobuf.

Slow and simple, it says what a file must hold: the tests hold the core's files against its own.
Its events stand in order of time, texts and tracks stand in each event.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2

from profiler.errors import InputError
from profiler.trace import (
    HOST_TRACK,
    NO_PIPELINE,
    NO_STEP,
    UNKNOWN,
    Call,
    CommandColumns,
    Counter,
    Span,
    Track,
    schema,
)
from profiler.trace.events import CALLS_TRACK, NO_ITERATION, PIPELINE_TRACK

__all__ = ["encode_call", "encode_host"]

COUNTER_RANK: Final = 1_000_000  # below every queue
_FIRST_TRACKS = (PIPELINE_TRACK, CALLS_TRACK, HOST_TRACK)
_CATEGORY_ORDER = ("compute", "dma", "copy", "sync", "host", "other")
_NUMBER = re.compile(r"\d+")
_NUMBERS: dict[str, int] = {}  # of texts, in all files

Event = tuple[int, int, int, Any]  # time, track uuid, TrackEvent.Type, payload


@dataclass(slots=True, eq=False)
class Slice:
    """One slice to write; `end_ns` is `UNKNOWN` for one that never closed.

    `extension` is the extension field and its values. `flow_ids` and `terminating_flow_ids` go to
    the begin event, `closing_flow_ids` end at the end event.
    """

    track: Track
    name: str
    start_ns: int
    end_ns: int
    extension: tuple[Any, dict[str, Any]]
    flow_ids: list[int] = field(default_factory=list)
    terminating_flow_ids: list[int] = field(default_factory=list)
    closing_flow_ids: list[int] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, bool, int]:
        """Parents before children; what takes no time before what begins at the same moment."""
        return (self.start_ns, self.end_ns > self.start_ns, -self.end_ns)


@dataclass(frozen=True, slots=True)
class Lane:
    """One Perfetto track of a file: the slices of `track` that nest on it."""

    track: Track
    uuid: int


def connect(source: Slice, target: Slice, flow_id: int) -> None:
    """Draw a flow. Perfetto directs flows by time, so a target that was already open when its
    source began (a wait) takes the flow at its end."""
    source.flow_ids.append(flow_id)
    waited = target.order <= source.order and target.end_ns > source.start_ns
    (target.closing_flow_ids if waited else target.terminating_flow_ids).append(flow_id)


def place(slices: Sequence[Slice], sequence: int) -> list[tuple[Slice, Lane]]:
    """Slices in order of their begin, each with the first lane of its track on which it nests.

    A slice that never closed gets a lane of its own, so that nothing seems to lie in it.
    """
    lanes: dict[Track, list[tuple[Lane, list[int]]]] = {}  # with the ends of its open slices
    bits = max(24, sequence.bit_length())
    placed: list[tuple[Slice, Lane]] = []
    count = 0
    for piece in sorted(slices, key=lambda piece: piece.order):
        known = lanes.setdefault(piece.track, [])
        lane = None if piece.end_ns == UNKNOWN else _free_lane(known, piece)
        if lane is None:
            count += 1
            lane = Lane(piece.track, (count << bits) | sequence)
            if piece.end_ns != UNKNOWN:
                known.append((lane, [piece.end_ns]))
        placed.append((piece, lane))
    return placed


def _free_lane(lanes: Sequence[tuple[Lane, list[int]]], piece: Slice) -> Lane | None:
    """The first lane on which `piece` nests, with `piece` opened on it."""
    for lane, ends in lanes:
        while ends and ends[-1] <= piece.start_ns:
            ends.pop()
        if not ends or piece.end_ns <= ends[-1]:
            ends.append(piece.end_ns)
            return lane
    return None


def rank(track: Track) -> int:
    """The place of a track on its device: pipeline, calls, host work, then queues by category
    and by the number in their name. The UI orders equal ranks by name."""
    if track.name in _FIRST_TRACKS:
        return _FIRST_TRACKS.index(track.name)
    known = track.category in _CATEGORY_ORDER
    group = _CATEGORY_ORDER.index(track.category) if known else len(_CATEGORY_ORDER)
    number = _NUMBER.search(track.name)
    return (group + 1) * 100_000 + min(int(number.group()) if number else 0, 99_999)


def slice_events(placed: Sequence[tuple[Slice, Lane]]) -> Iterator[Event]:
    """Begins and ends in order of time; on one lane an end comes before the next begin.

    `placed` is what `place` returns: it nests on every lane.
    """
    ends: list[tuple[int, int, int, Slice]] = []  # end, -opening order, uuid: innermost first
    for opened, (piece, lane) in enumerate(placed):
        while ends and ends[0][0] <= piece.start_ns:
            end_ns, _, ended, closed = heapq.heappop(ends)
            yield end_ns, ended, schema.SLICE_END, closed
        yield piece.start_ns, lane.uuid, schema.SLICE_BEGIN, piece
        if piece.end_ns != UNKNOWN:
            heapq.heappush(ends, (piece.end_ns, -opened, lane.uuid, piece))
    while ends:
        end_ns, _, ended, closed = heapq.heappop(ends)
        yield end_ns, ended, schema.SLICE_END, closed


HOST_SEQUENCE: Final = 1  # calls use their index + 2


def shared_uuid(*path: str) -> int:
    """The uuid of a device or counter from its names: equal in every file, above all lanes."""
    digest = hashlib.blake2b("\x00".join(path).encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest, "little") | 1 << 48


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


def _call_slice(call: Call) -> Slice:
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
    if call.pipeline != NO_PIPELINE:
        fields["pipeline"] = call.pipeline
    if call.iteration != NO_ITERATION:
        fields["iteration"] = call.iteration
    if call.device_duration_ns != UNKNOWN:
        fields["device_lag_ns"] = call.device_lag_ns
        fields["device_duration_ns"] = call.device_duration_ns
    track = Track(call.device, CALLS_TRACK, "other")
    return Slice(track, call.submodule, call.start_ns, call.end_ns, (schema.CALL, fields))


def _span_slice(span: Span, device: str) -> Slice:
    fields: dict[str, Any] = {"kind": span.kind, "stage": span.stage, "step": span.step}
    if span.pipeline != NO_PIPELINE:
        fields["pipeline"] = span.pipeline
    track = Track(device, PIPELINE_TRACK, "other")
    end_ns = span.start_ns + span.duration_ns
    return Slice(track, span.name, span.start_ns, end_ns, (schema.SPAN, fields))


def _command_slices(commands: CommandColumns) -> Iterator[Slice]:
    strings, tracks = commands.strings, commands.tracks
    optional = ("bytes_read", "bytes_written", "flops")
    numbers = {name: getattr(commands, name).tolist() for name in (*optional, "step")}
    names = ("op_type", "role", "shapes", "stage", "kernel", "module")
    columns = {name: getattr(commands, name) for name in names}
    texts = {name: column.tolist() for name, column in columns.items() if column is not None}
    starts = commands.start_ns.tolist()
    ends = np.where(commands.duration_ns == UNKNOWN, UNKNOWN, commands.end_ns).tolist()
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
        if commands.pipeline is not None and commands.pipeline[row] != NO_PIPELINE:
            fields["pipeline"] = int(commands.pipeline[row])
        if numbers["step"][row] != NO_STEP:
            fields["step"] = numbers["step"][row]
        extension = (schema.COMMAND, fields)
        called = strings[commands.name[row]] if commands.name is not None else ""
        yield Slice(tracks[track], called or layer, starts[row], ends[row], extension)


def _encodable(text: str) -> str:
    """`text` without lone surrogates, which JSON may hold and UTF-8 may not."""
    return text.encode("utf-8", "replace").decode()


def _add_flows(slices: list[Slice], commands: CommandColumns, *, first: int, sequence: int) -> None:
    """Give each dependency an id that no other file uses: sequence in the upper 32 bits."""
    for number, (source, target) in enumerate(commands.flows.tolist(), 1):
        flow_id = (sequence << 32) | number
        connect(slices[first + source], slices[first + target], flow_id)


class _Writer:
    """Builds one file: one packet sequence with its interning state and incremental clock."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self._trace = schema.Trace()
        self._clock = 0
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._defined: set[int] = set()

    def encode(self, slices: Sequence[Slice], counters: Sequence[Counter]) -> bytes:
        placed = place(slices, self.sequence)
        starts = [piece.start_ns for piece, _ in placed[:1]]
        starts += [int(counter.times_ns.min()) for counter in counters if len(counter.times_ns)]
        self._start(min(starts, default=0))
        self._describe_devices({*(piece.track.device for piece, _ in placed)}, counters)
        self._describe_lanes(lane for _, lane in placed)
        self._describe_counters(counters)
        for piece, _ in placed:
            for name in {"kernel", "module"} & piece.extension[1].keys():
                self._number(_encodable(piece.extension[1][name]))
        events = heapq.merge(
            slice_events(placed), _counter_events(counters), key=lambda event: event[0]
        )
        for time_ns, uuid, kind, payload in events:
            self._event(time_ns, uuid, kind, payload)
        data: bytes = self._trace.SerializeToString()
        return data

    def _packet(self) -> Any:
        return self._trace.packet.add(trusted_packet_sequence_id=self.sequence)

    def _start(self, base_ns: int) -> None:
        if base_ns < 0:
            raise InputError(
                f"a trace cannot start before the epoch, but one starts at {base_ns} ns"
            )
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

    def _describe_devices(self, devices: set[str], counters: Sequence[Counter]) -> None:
        for device in sorted(devices | {counter.device for counter in counters}):
            descriptor = self._packet().track_descriptor
            descriptor.uuid = shared_uuid(device)
            descriptor.name = _encodable(device)
            descriptor.child_ordering = schema.ORDER_EXPLICIT

    def _describe_lanes(self, lanes: Iterable[Lane]) -> None:
        for lane in dict.fromkeys(lanes):
            descriptor = self._packet().track_descriptor
            descriptor.uuid, descriptor.parent_uuid = lane.uuid, shared_uuid(lane.track.device)
            descriptor.name = _encodable(lane.track.name)
            descriptor.sibling_order_rank = rank(lane.track)

    def _describe_counters(self, counters: Sequence[Counter]) -> None:
        for counter in counters:
            descriptor = self._packet().track_descriptor
            descriptor.uuid = shared_uuid(counter.device, counter.name)
            descriptor.parent_uuid = shared_uuid(counter.device)
            descriptor.name = _encodable(counter.name)
            descriptor.sibling_order_rank = COUNTER_RANK
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
        else:
            event.terminating_flow_ids.extend(payload.closing_flow_ids)

    def _begin(self, packet: Any, event: Any, piece: Slice) -> None:
        event.name_iid = self._intern(packet, "event_names", self._names, piece.name)
        event.category_iids.append(
            self._intern(packet, "event_categories", self._categories, piece.track.category)
        )
        key, fields = piece.extension
        message = event.Extensions[key]
        for name, value in fields.items():
            if name == "inputs":
                for entry in value:
                    message.inputs.add(**{key: _encodable(text) for key, text in entry.items()})
            elif name in ("kernel", "module"):  # travel as numbers alone
                setattr(message, f"{name}_text", self._number(_encodable(value)))
            else:
                setattr(message, name, _encodable(value) if isinstance(value, str) else value)
        event.flow_ids.extend(piece.flow_ids)
        event.terminating_flow_ids.extend(piece.terminating_flow_ids)

    def _number(self, text: str) -> int:
        """The number of a text, which the file defines once."""
        number = _NUMBERS.setdefault(text, len(_NUMBERS) + 1)
        if number not in self._defined:
            self._defined.add(number)
            enum = descriptor_pb2.EnumDescriptorProto(name="Text")
            enum.value.add(name=text, number=number)
            file = descriptor_pb2.FileDescriptorProto(package=schema.PACKAGE, enum_type=[enum])
            files = descriptor_pb2.FileDescriptorSet(file=[file])
            self._packet().extension_descriptor.extension_set = files.SerializeToString()
        return number

    @staticmethod
    def _intern(packet: Any, kind: str, table: dict[str, int], text: str) -> int:
        iid = table.get(text)
        if iid is None:
            iid = table[text] = len(table) + 1
            getattr(packet.interned_data, kind).add(iid=iid, name=_encodable(text))
        return iid


def _counter_events(counters: Sequence[Counter]) -> Iterator[Event]:
    samples = (
        (int(time_ns), shared_uuid(counter.device, counter.name), int(value))
        for counter in counters
        for time_ns, value in zip(counter.times_ns, counter.values, strict=True)
    )
    for time_ns, uuid, value in sorted(samples):
        yield time_ns, uuid, schema.COUNTER, value

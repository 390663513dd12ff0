"""A Perfetto trace → columns: slices paired and interned names resolved, of any producer.

    trace = read_trace(Path("traces/run/006_transformer.step000.pb"))
    trace.calls[0].submodule, len(trace.slices)
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from profiler.errors import InputError
from profiler.events import NO_CALL, NO_STEP, UNKNOWN, Call, Loss, Span, SpanKind
from profiler.trace import schema
from profiler.trace.columns import Int32s, Int64s

__all__ = ["CounterColumns", "SliceColumns", "TraceColumns", "TrackRow", "read_bytes", "read_trace"]

_LIMIT = (1 << 31) - 1  # protobuf's own limit for one message


@dataclass(frozen=True, slots=True)
class TrackRow:
    """One track of a trace. `kind` is `process`, `thread`, `counter` or `plain`; `parent` is the
    index of the parent in `TraceColumns.tracks`, -1 for a root."""

    uuid: int
    name: str
    kind: str
    parent: int
    unit: str


@dataclass(frozen=True, slots=True, eq=False)
class SliceColumns:
    """n slices in order of their begin. Text columns index `TraceColumns.strings` (0 is "").

    `call` is the index of the call that the slice's file records, -1 for slices of no call.
    `duration_ns` is -1 for a slice that never ends. `command_index` is -1 where the slice
    carries no command of ours; then `layer` equals `name`. Bytes and FLOPs: -1 is unknown.
    """

    track: Int32s
    call: Int32s
    name: Int32s
    category: Int32s
    depth: Int32s
    layer: Int32s
    command_index: Int32s
    op_type: Int32s
    role: Int32s
    shapes: Int32s
    stage: Int32s
    step: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    bytes_read: Int64s
    bytes_written: Int64s
    flops: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class CounterColumns:
    """m samples: `track` indexes `TraceColumns.tracks`; `value` is float64."""

    track: Int32s
    time_ns: Int64s
    value: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class TraceColumns:
    """What one trace holds. Calls and spans of ours stand in `calls` and `spans`, every other
    slice in `slices`. `flows` is int64 [k, 2]: rows in `slices` from which to which, where both
    ends are in `slices`."""

    tracks: tuple[TrackRow, ...]
    strings: tuple[str, ...]
    slices: SliceColumns
    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    counters: CounterColumns
    flows: Int64s
    losses: tuple[Loss, ...]


def read_trace(path: Path) -> TraceColumns:
    """Read one `.pb`; a cut file is read up to its last whole packet and the loss reported.

    Raises InputError where the file cannot be opened or is no Perfetto trace.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise InputError(f"{path} is empty: record or copy it again")
        if size > _LIMIT:
            raise InputError(f"{path} is larger than 2 GiB: read the call files one by one instead")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read_bytes(bytes(data), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(data: bytes, where: str = "the trace") -> TraceColumns:
    """Read a trace from memory; `where` names it in errors and losses."""
    packets, losses = _packets(data, where)
    reading = _Reading(where)
    for packet in packets:
        reading.packet(packet)
    return reading.finish(losses)


def _packets(data: bytes, where: str) -> tuple[Any, list[Loss]]:
    from google.protobuf.message import DecodeError

    losses: list[Loss] = []
    try:
        trace = schema.Trace.FromString(data)
    except DecodeError:
        whole = _last_whole_packet(data)
        lost = len(data) - whole
        try:
            trace = schema.Trace.FromString(data[:whole])
        except DecodeError:
            trace = schema.Trace()
        detail = f"cut or damaged at byte {whole:,} of {len(data):,}"
        losses.append(Loss("truncated_file", Path(where).name, lost, "bytes", detail))
    if not trace.packet:
        raise InputError(f"{where} is not a Perfetto trace: give a .pb written by a tracer")
    return trace.packet, losses


def _last_whole_packet(data: bytes) -> int:
    """The offset behind the last packet that is framed wholly and parses."""
    from google.protobuf.message import DecodeError

    offset, size = 0, len(data)
    while offset < size and data[offset] == 0x0A:  # field 1 of Trace, length-delimited
        length, shift, cursor = 0, 0, offset + 1
        while cursor < size and shift < 35:
            byte = data[cursor]
            length |= (byte & 0x7F) << shift
            shift, cursor = shift + 7, cursor + 1
            if byte < 0x80:
                break
        else:
            break
        if cursor + length > size:
            break
        try:
            schema.TracePacket.FromString(data[cursor : cursor + length])
        except DecodeError:
            break
        offset = cursor + length
    return offset


@dataclass(slots=True)
class _Sequence:
    """Incremental state of one packet sequence."""

    id: int
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    clock: int = 0  # default clock id, 0: the trace clock
    track: int = 0  # default track uuid
    clocks: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # id: value, offset, unit


@dataclass(slots=True)
class _Rows:
    """Slices while they are read: one list per column, filled in step."""

    columns: dict[str, list[int]] = field(
        default_factory=lambda: {name: [] for name in SliceColumns.__slots__}
    )

    def add(self, row: dict[str, int]) -> int:
        for name, column in self.columns.items():
            column.append(row.get(name, _EMPTY.get(name, 0)))
        return len(self.columns["start_ns"]) - 1


_EMPTY = {
    "command_index": -1,
    "step": NO_STEP,
    "duration_ns": UNKNOWN,
    "bytes_read": UNKNOWN,
    "bytes_written": UNKNOWN,
    "flops": UNKNOWN,
}
_WIDE = ("start_ns", "duration_ns", "bytes_read", "bytes_written", "flops")


class _Reading:
    """One pass over the packets of a trace."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, Any] = {}
        self._strings: dict[str, int] = {"": 0}
        self._rows = _Rows()
        self._open: dict[int, list[tuple[str, int, Any]]] = {}
        self._calls: list[Call] = []
        self._call_of_sequence: dict[int, int] = {}
        self._spans: list[Span] = []
        self._counters: list[tuple[int, int, float]] = []
        self._flow_ends: dict[int, list[tuple[int, int]]] = {}
        self._last_ns = 0

    def packet(self, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        sequence = self._sequences.get(number)
        if sequence is None:
            sequence = self._sequences[number] = _Sequence(number)
        if packet.sequence_flags & schema.INCREMENTAL_STATE_CLEARED:
            sequence.names.clear()
            sequence.categories.clear()
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            sequence.clock = defaults.timestamp_clock_id
            sequence.track = defaults.track_event_defaults.track_uuid
        if packet.HasField("clock_snapshot"):
            self._snapshot(sequence, packet.clock_snapshot)
        if packet.HasField("interned_data"):
            for entry in packet.interned_data.event_names:
                sequence.names[entry.iid] = entry.name
            for entry in packet.interned_data.event_categories:
                sequence.categories[entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            self._tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor)
        if packet.HasField("track_event"):
            self._event(sequence, packet)

    @staticmethod
    def _snapshot(sequence: _Sequence, snapshot: Any) -> None:
        values = {clock.clock_id: clock for clock in snapshot.clocks}
        primary = values.get(snapshot.primary_trace_clock or schema.CLOCK_BOOTTIME)
        for clock_id, clock in values.items():
            unit = clock.unit_multiplier_ns or 1
            value = clock.timestamp * unit
            base = primary.timestamp if primary is not None else value
            incremental = value if clock.is_incremental else -1
            sequence.clocks[clock_id] = (incremental, base - value, unit)

    @staticmethod
    def _time(sequence: _Sequence, packet: Any) -> int:
        clock_id = packet.timestamp_clock_id or sequence.clock
        time = int(packet.timestamp)
        if clock_id not in sequence.clocks:
            return time
        value, offset, unit = sequence.clocks[clock_id]
        if value < 0:
            return time * unit + offset
        value += time * unit
        sequence.clocks[clock_id] = (value, offset, unit)
        return value + offset

    def _event(self, sequence: _Sequence, packet: Any) -> None:
        event = packet.track_event
        time_ns = self._time(sequence, packet)
        self._last_ns = max(self._last_ns, time_ns)
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.track
        if event.type == schema.SLICE_BEGIN:
            self._begin(sequence, event, uuid, time_ns)
        elif event.type == schema.SLICE_END:
            self._end(uuid, time_ns)
        elif event.type == schema.COUNTER:
            whole = event.HasField("counter_value")
            value = event.counter_value if whole else event.double_counter_value
            self._counters.append((uuid, time_ns, float(value)))

    def _begin(self, sequence: _Sequence, event: Any, uuid: int, time_ns: int) -> None:
        stack = self._open.setdefault(uuid, [])
        name = event.name or sequence.names.get(event.name_iid, "")
        if event.HasExtension(schema.CALL):
            message = event.Extensions[schema.CALL]
            stack.append(("call", time_ns, message))
            self._call_of_sequence[sequence.id] = message.index
            return
        if event.HasExtension(schema.SPAN):
            stack.append(("span", time_ns, (name, event.Extensions[schema.SPAN])))
            return
        categories = [*event.categories, *map(sequence.categories.get, event.category_iids)]
        row = {
            "track": uuid,
            "call": sequence.id,
            "name": self._intern(name),
            "category": self._intern(",".join(c for c in categories if c)),
            "depth": len(stack),
            "start_ns": time_ns,
        }
        self._command_fields(row, event)
        index = self._rows.add(row)
        stack.append(("slice", time_ns, index))
        for flow_id in (*event.flow_ids, *event.terminating_flow_ids):
            self._flow_ends.setdefault(flow_id, []).append((time_ns, index))

    def _command_fields(self, row: dict[str, int], event: Any) -> None:
        row["layer"] = row["name"]
        if not event.HasExtension(schema.COMMAND):
            return
        command = event.Extensions[schema.COMMAND]
        for fields, value in command.ListFields():
            row[fields.name] = self._intern(value) if isinstance(value, str) else value

    def _end(self, uuid: int, time_ns: int) -> None:
        stack = self._open.get(uuid)
        if not stack:
            return
        kind, start_ns, payload = stack.pop()
        if kind == "slice":
            self._rows.columns["duration_ns"][payload] = time_ns - start_ns
        elif kind == "call":
            self._calls.append(_call(payload, start_ns, time_ns - start_ns))
        else:
            self._spans.append(_span(*payload, start_ns, time_ns - start_ns))

    def _intern(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def finish(self, losses: list[Loss]) -> TraceColumns:
        losses = [*losses, *self._unclosed()]
        self._close_calls_and_spans()
        return TraceColumns(
            tracks=self._track_rows(),
            strings=tuple(self._strings),
            slices=self._slice_columns(),
            calls=tuple(sorted(self._calls, key=lambda call: call.index)),
            spans=tuple(sorted(self._spans, key=_outer_first)),
            counters=self._counter_columns(),
            flows=np.array(list(self._flows()), dtype=np.int64).reshape(-1, 2),
            losses=tuple(losses),
        )

    def _close_calls_and_spans(self) -> None:
        """End calls and spans that never ended at the last event seen; `_unclosed` says so."""
        for uuid, stack in self._open.items():
            while any(kind != "slice" for kind, _, _ in stack):
                if stack[-1][0] == "slice":
                    stack.pop()
                else:
                    self._end(uuid, self._last_ns)

    def _unclosed(self) -> Iterator[Loss]:
        for kind in ("call", "span", "slice"):
            count = sum(entry[0] == kind for stack in self._open.values() for entry in stack)
            if count:
                yield Loss("unclosed_slice", Path(self._where).name, count, f"{kind}s", "begun, never ended")

    def _used_tracks(self) -> list[int]:
        events = [*self._rows.columns["track"], *(uuid for uuid, _, _ in self._counters)]
        return list(dict.fromkeys([*self._tracks, *events]))

    def _track_rows(self) -> tuple[TrackRow, ...]:
        uuids = self._used_tracks()
        index = {uuid: position for position, uuid in enumerate(uuids)}
        return tuple(_track_row(uuid, self._tracks.get(uuid), index) for uuid in uuids)

    def _slice_columns(self) -> SliceColumns:
        index = {uuid: position for position, uuid in enumerate(self._used_tracks())}
        columns = dict(self._rows.columns)
        columns["track"] = [index[uuid] for uuid in columns["track"]]
        calls = self._call_of_sequence
        columns["call"] = [calls.get(number, NO_CALL) for number in columns["call"]]
        return SliceColumns(
            **{
                name: np.array(values, dtype=np.int64 if name in _WIDE else np.int32)
                for name, values in columns.items()
            }
        )

    def _counter_columns(self) -> CounterColumns:
        index = {uuid: position for position, uuid in enumerate(self._used_tracks())}
        return CounterColumns(
            np.array([index[uuid] for uuid, _, _ in self._counters], dtype=np.int32),
            np.array([time_ns for _, time_ns, _ in self._counters], dtype=np.int64),
            np.array([value for _, _, value in self._counters], dtype=np.float64),
        )

    def _flows(self) -> Iterator[tuple[int, int]]:
        for ends in self._flow_ends.values():
            ordered = sorted(ends)
            for (_, source), (_, target) in zip(ordered, ordered[1:], strict=False):
                yield source, target


def _outer_first(span: Span) -> tuple[int, int, int]:
    return (span.start_ns, -span.duration_ns, get_args(SpanKind).index(span.kind))


def _track_row(uuid: int, descriptor: Any, index: dict[int, int]) -> TrackRow:
    if descriptor is None:
        return TrackRow(uuid, f"track {uuid}", "plain", -1, "")
    parent = index.get(descriptor.parent_uuid, -1) if descriptor.parent_uuid else -1
    name, kind, unit = descriptor.name or descriptor.static_name, "plain", ""
    if descriptor.HasField("thread"):
        kind, name = "thread", descriptor.thread.thread_name or name
    elif descriptor.HasField("process"):
        kind, name = "process", descriptor.process.process_name or name
    elif descriptor.HasField("counter"):
        kind = "counter"
        unit = {schema.UNIT_BYTES: "bytes", schema.UNIT_COUNT: "count"}.get(
            descriptor.counter.unit, descriptor.counter.unit_name
        )
    return TrackRow(uuid, name or f"track {uuid}", kind, parent, unit)


def _call(message: Any, start_ns: int, duration_ns: int) -> Call:
    return Call(
        index=message.index,
        submodule=message.submodule,
        stage=message.stage,
        branch=message.branch,
        step=message.step if message.HasField("step") else NO_STEP,
        device=message.device,
        start_ns=start_ns,
        duration_ns=duration_ns,
        ops_traced=message.ops_traced,
        input_shapes={entry.name: entry.shape for entry in message.inputs},
    )


def _span(name: str, message: Any, start_ns: int, duration_ns: int) -> Span:
    kinds: dict[str, SpanKind] = {"pipeline": "pipeline", "stage": "stage", "step": "step"}
    step = message.step if message.HasField("step") else NO_STEP
    kind = kinds.get(message.kind, "step")
    return Span(kind, name, message.stage, step, start_ns, duration_ns)

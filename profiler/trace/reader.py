"""A Perfetto trace → columns: slices paired and interned names resolved, of any producer.

    trace = read_trace(Path("traces/run/006_transformer.step000.pb"))
    trace.calls[0].submodule, len(trace.slices)

Calls and spans of ours are told apart from all other slices, which are commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np

from profiler.errors import InputError
from profiler.events import NO_CALL, NO_STEP, UNKNOWN, Call, Loss, Span, SpanKind
from profiler.trace import schema
from profiler.trace.columns import CounterColumns, SliceColumns, TraceColumns, TrackRow
from profiler.trace.framing import file_bytes, whole_length
from profiler.trace.state import SequenceState, text, track_name, track_unit

__all__ = ["read_bytes", "read_trace"]


def read_trace(path: Path) -> TraceColumns:
    """Read one `.pb`; a cut file is read up to its last whole packet and the loss reported.

    Raises InputError where the file cannot be opened or is no Perfetto trace.
    """
    return read_bytes(file_bytes(path), str(path))


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
        whole = whole_length(data)
        trace = schema.Trace.FromString(data[:whole])
        detail = f"cut or damaged at byte {whole:,} of {len(data):,}"
        losses.append(Loss("truncated_file", Path(where).name, len(data) - whole, "bytes", detail))
    if not any(packet.ListFields() for packet in trace.packet):
        raise InputError(f"{where} is not a Perfetto trace: give a .pb written by a tracer")
    return trace.packet, losses


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
        self._sequences: dict[int, SequenceState] = {}
        self._tracks: dict[int, Any] = {}
        self._strings: dict[str, int] = {"": 0}
        self._rows = _Rows()
        self._open: dict[int, list[tuple[str, int, Any]]] = {}
        self._calls: list[Call] = []
        self._call_of_sequence: dict[int, int] = {}
        self._spans: list[Span] = []
        self._counters: list[tuple[int, int, int, float]] = []  # track, sequence, time, value
        self._flow_ends: dict[int, list[tuple[int, bool, int]]] = {}  # time, terminating, row
        self._last_ns: dict[int, int] = {}  # by sequence
        self._sequence_of: dict[int, int] = {}  # by track

    def packet(self, packet: Any) -> None:
        number = packet.trusted_packet_sequence_id
        sequence = self._sequences.get(number)
        if sequence is None:
            sequence = self._sequences[number] = SequenceState(number)
        sequence.update(packet)
        if packet.HasField("track_descriptor"):
            self._tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor)
        if packet.HasField("track_event"):
            self._event(sequence, packet)

    def _event(self, sequence: SequenceState, packet: Any) -> None:
        event = packet.track_event
        time_ns = sequence.time_ns(packet)
        self._last_ns[sequence.id] = max(self._last_ns.get(sequence.id, 0), time_ns)
        uuid = sequence.track_of(event)
        self._sequence_of[uuid] = sequence.id
        if event.type == schema.SLICE_BEGIN:
            self._begin(sequence, event, uuid, time_ns)
        elif event.type == schema.SLICE_END:
            self._end(event, uuid, time_ns)
        elif event.type == schema.COUNTER:
            whole = event.HasField("counter_value")
            value = event.counter_value if whole else event.double_counter_value
            self._counters.append((uuid, sequence.id, time_ns, float(value)))

    def _begin(self, sequence: SequenceState, event: Any, uuid: int, time_ns: int) -> None:
        stack = self._open.setdefault(uuid, [])
        name = sequence.name_of(event)
        if event.HasExtension(schema.CALL):
            message = event.Extensions[schema.CALL]
            stack.append(("call", time_ns, message))
            self._call_of_sequence[sequence.id] = message.index
            return
        if event.HasExtension(schema.SPAN):
            stack.append(("span", time_ns, (name, event.Extensions[schema.SPAN])))
            return
        row = {
            "track": uuid,
            "call": sequence.id,
            "name": self._intern(name),
            "category": self._intern(",".join(sequence.categories_of(event))),
            "depth": len(stack),
            "start_ns": time_ns,
        }
        self._command_fields(row, event)
        index = self._rows.add(row)
        stack.append(("slice", time_ns, index))
        self._note_flows(event, time_ns, index)

    def _note_flows(self, event: Any, time_ns: int, row: int) -> None:
        for flow_id in event.flow_ids:
            self._flow_ends.setdefault(flow_id, []).append((time_ns, False, row))
        for flow_id in event.terminating_flow_ids:
            self._flow_ends.setdefault(flow_id, []).append((time_ns, True, row))

    def _command_fields(self, row: dict[str, int], event: Any) -> None:
        row["layer"] = row["name"]
        if not event.HasExtension(schema.COMMAND):
            return
        command = event.Extensions[schema.COMMAND]
        for fields, value in command.ListFields():
            row[fields.name] = value if isinstance(value, int) else self._intern(text(value))

    def _end(self, event: Any, uuid: int, time_ns: int) -> None:
        stack = self._open.get(uuid)
        if not stack:
            return
        if stack[-1][0] == "slice":
            _, start_ns, row = stack.pop()
            self._rows.columns["duration_ns"][row] = max(time_ns - start_ns, 0)
            self._note_flows(event, time_ns, row)
        else:
            self._close(stack, time_ns)

    def _close(self, stack: list[tuple[str, int, Any]], time_ns: int) -> None:
        """End the call or span on top of `stack`."""
        kind, start_ns, payload = stack.pop()
        duration_ns = max(time_ns - start_ns, 0)
        if kind == "call":
            self._calls.append(_call(payload, start_ns, duration_ns))
        else:
            name, message = payload
            self._spans.append(_span(name, message, start_ns, duration_ns))

    def _intern(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def finish(self, losses: list[Loss]) -> TraceColumns:
        losses = [*losses, *self._unclosed()]
        self._close_calls_and_spans()
        index = self._track_index()
        return TraceColumns(
            tracks=tuple(_track_row(uuid, self._tracks.get(uuid), index) for uuid in index),
            strings=tuple(self._strings),
            slices=self._slice_columns(index),
            calls=tuple(sorted(self._calls, key=lambda call: call.index)),
            spans=tuple(sorted(self._spans, key=_outer_first)),
            counters=self._counter_columns(index),
            flows=np.array(list(self._flows()), dtype=np.int64).reshape(-1, 2),
            losses=tuple(losses),
        )

    def _close_calls_and_spans(self) -> None:
        """End calls and spans that never ended at their file's last event; `_unclosed` says so."""
        for uuid, stack in self._open.items():
            last_ns = self._last_ns.get(self._sequence_of.get(uuid, -1), 0)
            while stack:
                if stack[-1][0] == "slice":
                    stack.pop()
                else:
                    self._close(stack, last_ns)

    def _unclosed(self) -> Iterator[Loss]:
        kinds = Counter(kind for stack in self._open.values() for kind, _, _ in stack)
        name = Path(self._where).name
        for kind, count in sorted(kinds.items()):
            yield Loss("unclosed_slice", name, count, f"{kind}s", "begun, never ended")

    def _track_index(self) -> dict[int, int]:
        """Position of each track in `TraceColumns.tracks`, by uuid."""
        events = [*self._rows.columns["track"], *(uuid for uuid, *_ in self._counters)]
        uuids = dict.fromkeys([*self._tracks, *events])
        return {uuid: position for position, uuid in enumerate(uuids)}

    def _slice_columns(self, index: dict[int, int]) -> SliceColumns:
        columns = dict(self._rows.columns)
        columns["track"] = [index[uuid] for uuid in columns["track"]]
        calls = self._call_of_sequence
        columns["call"] = [calls.get(number, NO_CALL) for number in columns["call"]]
        arrays: dict[str, Any] = {
            name: np.array(values, dtype=np.int64 if name in _WIDE else np.int32)
            for name, values in columns.items()
        }
        return SliceColumns(**arrays)

    def _counter_columns(self, index: dict[int, int]) -> CounterColumns:
        calls = self._call_of_sequence
        return CounterColumns(
            np.array([index[uuid] for uuid, *_ in self._counters], dtype=np.int32),
            np.array([calls.get(of, NO_CALL) for _, of, *_ in self._counters], dtype=np.int32),
            np.array([time_ns for *_, time_ns, _ in self._counters], dtype=np.int64),
            np.array([value for *_, value in self._counters], dtype=np.float64),
        )

    def _flows(self) -> Iterator[tuple[int, int]]:
        """A flow goes from event to event in order of time; where it has one end of each kind,
        as ours have, the terminating one is its target whatever the time."""
        for ends in self._flow_ends.values():
            if sorted(terminating for _, terminating, _ in ends) == [False, True]:
                ends.sort(key=lambda end: end[1])
            else:
                ends.sort()
            for (*_, source), (*_, target) in pairwise(ends):
                yield source, target


def _outer_first(span: Span) -> tuple[int, int, int]:
    return (span.start_ns, -span.duration_ns, get_args(SpanKind).index(span.kind))


def _track_row(uuid: int, descriptor: Any, index: dict[int, int]) -> TrackRow:
    if descriptor is None:
        return TrackRow(uuid, f"track {uuid}", "plain", -1, "")
    parent = index.get(descriptor.parent_uuid, -1) if descriptor.parent_uuid else -1
    kinds = ("thread", "process", "counter")
    kind = next((kind for kind in kinds if descriptor.HasField(kind)), "plain")
    unit = track_unit(descriptor) if kind == "counter" else ""
    return TrackRow(uuid, track_name(descriptor) or f"track {uuid}", kind, parent, unit)


def _call(message: Any, start_ns: int, duration_ns: int) -> Call:
    return Call(
        index=message.index,
        submodule=text(message.submodule),
        stage=text(message.stage),
        branch=text(message.branch),
        step=message.step if message.HasField("step") else NO_STEP,
        device=text(message.device),
        start_ns=start_ns,
        duration_ns=duration_ns,
        ops_traced=message.ops_traced,
        input_shapes={text(entry.name): text(entry.shape) for entry in message.inputs},
    )


def _span(name: str, message: Any, start_ns: int, duration_ns: int) -> Span:
    kinds: dict[str, SpanKind] = {"pipeline": "pipeline", "stage": "stage", "step": "step"}
    step = message.step if message.HasField("step") else NO_STEP
    kind = kinds.get(message.kind, "step")
    return Span(kind, name, text(message.stage), step, start_ns, duration_ns)

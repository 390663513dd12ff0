"""One file of RBLN's profiler → columns: slices, the rows they lie on, arguments, flows.

This is the only module that knows how the file is read. It decodes with messages of its own until
`profiler.trace.reader` returns debug annotations and process ids; then `read_rbln` becomes an
adapter of `read_trace` and everything below it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profiler.errors import InputError
from profiler.events import Loss
from profiler.importers.rbln_messages import trace_message
from profiler.importers.rbln_tracks import Row
from profiler.trace import schema
from profiler.trace.columns import Int32s, Int64s

__all__ = ["RblnTrace", "read_rbln"]

ARGUMENTS = "Slice Arguments"
_LIMIT = (1 << 31) - 1  # protobuf's own limit for one message
_LAST_NS = 1 << 62
_DEEPEST = 64  # rows above a track


@dataclass(frozen=True, slots=True, eq=False)
class RblnTrace:
    """n slices in order of their begin.

    `track` indexes `rows`; `name` and `arguments` index `strings` (0 is ""); `arguments` is the
    JSON text of `Slice Arguments`. `duration_ns` is -1 for a slice that never ends. `flows` is
    int64 [m, 2]: from which slice to which.
    """

    file: str
    rows: tuple[Row, ...]
    strings: tuple[str, ...]
    track: Int32s
    name: Int32s
    arguments: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    flows: Int64s
    losses: tuple[Loss, ...]

    def __len__(self) -> int:
        return len(self.start_ns)


def read_rbln(path: Path) -> RblnTrace:
    """Read one file; a cut one up to its last whole packet. Raises InputError where it cannot."""
    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path} is larger than 2 GiB: import the numbered files without it")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    packets, losses = _packets(data, path)
    reading = _Reading(path.name)
    for packet in packets:
        reading.packet(packet)
    return reading.finish(losses)


def _packets(data: bytes, path: Path) -> tuple[Sequence[Any], list[Loss]]:
    from google.protobuf.message import DecodeError

    trace, whole = trace_message()(), len(data)
    try:
        trace.ParseFromString(data)
    except DecodeError:
        trace.Clear()
        whole = 0
        for start, end in _framed(data):
            try:
                trace.packet.add().ParseFromString(data[start:end])
            except DecodeError:
                del trace.packet[-1]
                break
            whole = end
    if not trace.packet:
        raise InputError(f"{path} is not a Perfetto trace: give a .pb of RBLN's profiler")
    detail = f"cut or damaged at byte {whole:,} of {len(data):,}"
    lost = len(data) - whole
    losses = [Loss("truncated_file", path.name, lost, "bytes", detail)] if lost else []
    return trace.packet, losses


def _framed(data: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each packet that lies wholly in `data`, up to the first that does not."""
    cursor = 0
    while cursor < len(data) and data[cursor] == 0x0A:  # field 1 of Trace, length-delimited
        cursor, length, shift, byte = cursor + 1, 0, 0, 0x80
        while byte >= 0x80 and cursor < len(data) and shift < 35:
            byte = data[cursor]
            length |= (byte & 0x7F) << shift
            cursor, shift = cursor + 1, shift + 7
        if byte >= 0x80 or cursor + length > len(data):
            return
        yield cursor, cursor + length
        cursor += length


_Event = tuple[int, int, int, int, int, tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class _Sequence:
    names: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    track: int = 0


@dataclass(slots=True)
class _Reading:
    file: str
    sequences: dict[int, _Sequence] = field(default_factory=dict)
    descriptors: dict[int, Any] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    events: list[_Event] = field(default_factory=list)
    absurd: int = 0
    samples: int = 0

    def packet(self, packet: Any) -> None:
        sequence = self.sequences.setdefault(packet.trusted_packet_sequence_id, _Sequence())
        if packet.sequence_flags & schema.INCREMENTAL_STATE_CLEARED:
            sequence.names.clear()
            sequence.keys.clear()
            sequence.values.clear()
        if packet.HasField("trace_packet_defaults"):
            sequence.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
        if packet.HasField("interned_data"):
            data = packet.interned_data
            sequence.names.update((entry.iid, entry.name) for entry in data.event_names)
            sequence.keys.update((e.iid, e.name) for e in data.debug_annotation_names)
            sequence.values.update((e.iid, e.name) for e in data.debug_annotation_string_values)
        if packet.HasField("track_descriptor"):
            self.descriptors.setdefault(packet.track_descriptor.uuid, packet.track_descriptor)
        if packet.HasField("track_event"):
            self._event(sequence, packet.timestamp, packet.track_event)

    def _event(self, sequence: _Sequence, time_ns: int, event: Any) -> None:
        if event.type == schema.COUNTER:
            self.samples += 1
            return
        if time_ns >= _LAST_NS:
            self.absurd += 1
            return
        uuid = event.track_uuid if event.HasField("track_uuid") else sequence.track
        name = event.name or sequence.names.get(event.name_iid, "")
        text = ""
        for annotation in event.debug_annotations:
            if (annotation.name or sequence.keys.get(annotation.name_iid)) == ARGUMENTS:
                text = annotation.string_value or sequence.values.get(
                    annotation.string_value_iid, ""
                )
        codes = (self._intern(name), self._intern(text))
        flows = (*event.flow_ids_old, *event.flow_ids)
        ended = (*event.terminating_flow_ids_old, *event.terminating_flow_ids)
        self.events.append((time_ns, event.type, uuid, *codes, flows, ended))

    def _intern(self, text: Any) -> int:
        return self.strings.setdefault(_text(text), len(self.strings))

    def finish(self, losses: list[Loss]) -> RblnTrace:
        self.events.sort(key=lambda event: event[0])  # stable: ties as in the file
        slices, flows, stray = _pair(self.events)
        columns = np.array(slices, dtype=np.int64).reshape(-1, 5).T
        uuids, track = np.unique(columns[0], return_inverse=True)
        losses.extend(self._losses(int((columns[4] < 0).sum()), stray))
        return RblnTrace(
            file=self.file,
            rows=tuple(_rows(self.descriptors, uuids.tolist())),
            strings=tuple(self.strings),
            track=track.reshape(-1).astype(np.int32),
            name=columns[1].astype(np.int32),
            arguments=columns[2].astype(np.int32),
            start_ns=columns[3],
            duration_ns=columns[4],
            flows=np.array(flows, dtype=np.int64).reshape(-1, 2),
            losses=tuple(losses),
        )

    def _losses(self, unclosed: int, stray: int) -> Iterator[Loss]:
        if unclosed:
            yield Loss("unclosed_slice", self.file, unclosed, "slices", "begun, never ended")
        for count, what, detail in (
            (stray, "events", "ends of slices that never began"),
            (self.absurd, "events", "their timestamps are beyond any clock"),
            (self.samples, "samples", "counters are not documented for this producer"),
        ):
            if count:
                yield Loss("dropped_events", self.file, count, what, detail)


def _pair(events: Sequence[_Event]) -> tuple[list[list[int]], list[tuple[int, int]], int]:
    """Slices [track, name, arguments, start, duration] and flows of events in order of time, and
    how many ends have no begin. Instants are slices without a duration.

    A flow goes from the event that last carried its id to the next one that does; an event that
    terminates the id ends it, and a later one begins anew.
    """
    slices: list[list[int]] = []
    flows: list[tuple[int, int]] = []
    stacks: dict[int, list[int]] = {}
    sources: dict[int, int] = {}
    stray = 0
    for time_ns, kind, uuid, name, arguments, carried, ended in events:
        stack = stacks.setdefault(uuid, [])
        if kind == schema.SLICE_BEGIN:
            stack.append(len(slices))
            slices.append([_signed(uuid), name, arguments, time_ns, -1])
            row = stack[-1]
        elif kind == schema.INSTANT:
            row = len(slices)
            slices.append([_signed(uuid), name, arguments, time_ns, 0])
        elif stack:
            row = stack.pop()
            slices[row][4] = time_ns - slices[row][3]
        else:
            stray += 1
            continue
        for flow_id in (*carried, *ended):
            if flow_id in sources:
                flows.append((sources[flow_id], row))
            sources[flow_id] = row
        for flow_id in ended:
            sources.pop(flow_id, None)
    return slices, flows, stray


def _signed(uuid: int) -> int:
    return uuid - (1 << 64) if uuid >> 63 else uuid


def _rows(descriptors: dict[int, Any], uuids: Sequence[int]) -> Iterator[Row]:
    processes = {
        descriptor.process.pid: _text(descriptor.process.process_name or descriptor.name)
        for descriptor in descriptors.values()
        if descriptor.HasField("process")
    }
    roots: dict[str, dict[int, int]] = {}
    for signed in uuids:
        lineage = _lineage(descriptors, signed % (1 << 64))
        path = [_row_name(descriptors.get(uuid), uuid) for uuid in lineage]
        root = descriptors.get(lineage[0])
        if root is not None and root.HasField("thread") and root.thread.HasField("pid"):
            pid = root.thread.pid
            yield Row(pid, (processes.get(pid) or f"process {pid}", *path))
        elif root is not None and root.HasField("process"):
            yield Row(root.process.pid, tuple(path))
        else:
            alike = roots.setdefault(path[0], {})
            yield Row(alike.setdefault(lineage[0], len(alike)), tuple(path))


def _lineage(descriptors: dict[int, Any], uuid: int) -> list[int]:
    """The uuids from the outermost row down to `uuid`; cycles and absurd depths are cut."""
    lineage = [uuid]
    while uuid in descriptors and descriptors[uuid].parent_uuid in descriptors:
        uuid = descriptors[uuid].parent_uuid
        if uuid in lineage or len(lineage) == _DEEPEST:
            break
        lineage.append(uuid)
    return lineage[::-1]


def _row_name(descriptor: Any, uuid: int) -> str:
    if descriptor is None:
        return f"track {uuid}"
    own = descriptor.thread.thread_name or descriptor.process.process_name
    return _text(own or descriptor.name or descriptor.static_name or f"track {uuid}")


def _text(value: Any) -> str:
    """protobuf returns the bytes of a text that is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

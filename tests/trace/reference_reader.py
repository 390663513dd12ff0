"""A slow reader by the same rules as the core, on protobuf messages: what it must agree with.

It knows the messages of `schemas/`, no legacy events and no arguments. Traces are expected to be
well-formed and to give every track another name, so that no two of them share a row.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2

from profiler.trace import schema

__all__ = ["Reading", "Slice", "read"]

_TEXTS = ("layer", "op_type", "role", "shapes", "stage")
_NUMBERED = (*_TEXTS, "kernel", "module")
_NUMBERS = ("command_index", "step", "pipeline", "bytes_read", "bytes_written", "flops")
_BOOTTIME = 6


@dataclass(slots=True, eq=False)
class Slice:
    """One slice, call or span while it is read; `row` is its place among the slices."""

    row: int | None
    uuid: int
    name: str | None
    category: str | None
    start_ns: int
    depth: int
    parent: int
    sequence: int
    duration_ns: int = -1
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Reading:
    """Rows as tuples. Tracks are named by their uuid."""

    slices: list[Slice] = field(default_factory=list)
    instants: list[int] = field(default_factory=list)
    counters: list[tuple[int, int, float]] = field(default_factory=list)
    flows: list[tuple[int, int]] = field(default_factory=list)
    calls: list[tuple[int, int, int]] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    call_of_sequence: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _State:
    """What the packets of one sequence share until it is cleared."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    track: int | None = None
    clock: int = 0


@dataclass(slots=True)
class _Clock:
    """A clock of one sequence; `points` are its times and the trace's at each snapshot."""

    unit_ns: int = 1
    incremental: bool = False
    running_ns: int = 0
    points: list[tuple[int, int]] = field(default_factory=list)

    def trace_ns(self, timestamp: int) -> int:
        own_ns = timestamp * self.unit_ns
        if self.incremental:
            own_ns = self.running_ns = self.running_ns + own_ns
        before = [point for point in self.points if point[0] <= own_ns]
        there, base = before[-1] if before else self.points[0]
        return own_ns - there + base


def read(trace: Any) -> Reading:
    tokens = _Tokens()
    for packet in trace.packet:
        tokens.packet(packet)
    tokens.try_again()
    importer = _Importer(tokens)
    for time_ns, state, sequence, event, value in sorted(tokens.events, key=lambda e: e[0]):
        importer.event(time_ns, state, sequence, event, value)
    return importer.finish()


class _Tokens:
    """What must be found out in the order of the file."""

    def __init__(self) -> None:
        self.events: list[tuple[int, _State, int, Any, float]] = []
        self.tracks: dict[int, Any] = {}
        self.texts: dict[int, str] = {}  # of any sequence: what is defined last
        self.own_texts: dict[tuple[int, int], str] = {}  # by sequence and number
        self._states: dict[int, _State] = defaultdict(_State)
        self._valid: set[int] = set()
        self._clocks: dict[int, _Clock] = {}
        self._deferred: list[Any] = []  # packets whose clock is unknown so far

    def packet(self, packet: Any) -> None:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & schema.INCREMENTAL_STATE_CLEARED:
            self._states[sequence] = _State()
            self._valid.add(sequence)
        self._update(packet, sequence)
        if packet.HasField("clock_snapshot"):
            self._snapshot(packet.clock_snapshot, sequence)
        elif packet.HasField("extension_descriptor"):
            self._extension(packet.extension_descriptor.extension_set, sequence)
        elif packet.sequence_flags & schema.NEEDS_INCREMENTAL_STATE and sequence not in self._valid:
            return
        elif packet.HasField("track_event"):
            self._event(packet, sequence)
        elif packet.HasField("track_descriptor"):
            self.tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor)

    def try_again(self) -> None:
        """At the end of the file, with the state of the end."""
        for packet in self._deferred[:]:
            self._event(packet, packet.trusted_packet_sequence_id)

    def _update(self, packet: Any, sequence: int) -> None:
        state = self._states[sequence]
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            event = defaults.track_event_defaults
            track = event.track_uuid if event.HasField("track_uuid") else None
            state = _State(state.names, state.categories, track, defaults.timestamp_clock_id)
            self._states[sequence] = state
        if sequence not in self._valid:
            return
        for entry in packet.interned_data.event_names:
            state.names.setdefault(entry.iid, entry.name)
        for entry in packet.interned_data.event_categories:
            state.categories.setdefault(entry.iid, entry.name)

    def _snapshot(self, snapshot: Any, sequence: int) -> None:
        """Every snapshot of these traces relates one clock of a sequence to the trace's own."""
        base, own = snapshot.clocks
        clock = self._clocks.setdefault(sequence << 32 | own.clock_id, _Clock())
        clock.unit_ns = own.unit_multiplier_ns or 1
        clock.incremental = own.is_incremental
        clock.running_ns = own.timestamp * clock.unit_ns
        clock.points.append((clock.running_ns, base.timestamp))

    def _extension(self, data: bytes, sequence: int) -> None:
        for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
            for enum in file.enum_type:
                if (file.package, enum.name) == ("profile_sd3.trace", "Text"):
                    self.texts.update((value.number, value.name) for value in enum.value)
                    self.own_texts.update(
                        ((sequence, value.number), value.name) for value in enum.value
                    )

    def _time(self, packet: Any, sequence: int) -> int | None:
        state = self._states[sequence]
        clock = packet.timestamp_clock_id if packet.HasField("timestamp_clock_id") else state.clock
        if clock in {0, _BOOTTIME}:
            return int(packet.timestamp)
        own = self._clocks.get(sequence << 32 | clock)
        return own.trace_ns(packet.timestamp) if own is not None else None

    def _event(self, packet: Any, sequence: int) -> None:
        time_ns = self._time(packet, sequence)
        event = packet.track_event
        if time_ns is None:
            self._deferred.append(packet)
            return
        if time_ns < 0 or not sequence:
            return
        value = 0.0
        if event.type == schema.COUNTER:
            track = event.track_uuid or self._states[sequence].track
            if track not in self.tracks or not self.tracks[track].HasField("counter"):
                return
            whole = event.HasField("counter_value")
            if not whole and not event.HasField("double_counter_value"):
                return
            value = float(event.counter_value if whole else event.double_counter_value)
        self.events.append((time_ns, self._states[sequence], sequence, event, value))


class _Importer:
    """Events in order of time."""

    def __init__(self, tokens: _Tokens) -> None:
        self._tokens = tokens
        self._reading = Reading()
        self._open: dict[int, list[Slice]] = defaultdict(list)
        self._flows: dict[int, tuple[Slice, bool]] = {}  # and whether a command of ours opened it
        self._early: dict[int, Slice] = {}  # targets of ours whose source has not begun yet
        self._sample_times: list[tuple[int, int]] = []  # sequence, time

    def event(self, time_ns: int, state: _State, sequence: int, event: Any, value: float) -> None:
        uuid = event.track_uuid if event.HasField("track_uuid") else (state.track or 0)
        if not event.type or not self._reaches_a_root(uuid):
            return
        if event.type == schema.COUNTER:
            self._sample_times.append((sequence, time_ns))
            self._reading.counters.append((uuid, time_ns, value))
            return
        name = state.names.get(event.name_iid) if event.name_iid else None
        if not event.name_iid and event.HasField("name"):
            name = event.name
        category = _category(state, event)
        if event.type == schema.SLICE_END:
            self._end(time_ns, uuid, event)
            return
        stack = self._open[uuid]
        self._make_room(stack, time_ns, moment=event.type == schema.INSTANT)
        parent = stack[-1].row if stack and stack[-1].row is not None else -1
        piece = Slice(None, uuid, name, category, time_ns, len(stack), parent, sequence)
        stack.append(piece)
        if not self._is_ours(piece, event):
            piece.row = len(self._reading.slices)
            self._reading.slices.append(piece)
        if event.type == schema.INSTANT:
            piece.duration_ns = 0
            self._reading.instants.append(len(self._reading.slices) - 1)
        self._note_flows(piece, event)

    def _reaches_a_root(self, uuid: int) -> bool:
        for _ in range(100):
            if uuid == 0:
                return True
            track = self._tokens.tracks.get(uuid)
            if track is None:
                return True  # only events know it
            uuid = track.parent_uuid
            if uuid and uuid not in self._tokens.tracks and uuid not in self._open:
                return False
        return False

    def _is_ours(self, piece: Slice, event: Any) -> bool:
        """Take in the extension; whether the slice is a call or a span."""
        if event.type == schema.SLICE_BEGIN and event.HasExtension(schema.CALL):
            piece.fields = {"call": event.Extensions[schema.CALL]}
            self._reading.call_of_sequence[piece.sequence] = event.Extensions[schema.CALL].index
            return True
        if event.type == schema.SLICE_BEGIN and event.HasExtension(schema.SPAN):
            piece.fields = {"span": event.Extensions[schema.SPAN]}
            return True
        piece.fields = {"layer": piece.name or ""}
        if event.type == schema.SLICE_BEGIN and event.HasExtension(schema.COMMAND):
            command = event.Extensions[schema.COMMAND]
            piece.fields.update(self._command(command, piece.sequence))
        return False

    def _command(self, command: Any, sequence: int) -> dict[str, Any]:
        fields = {name: getattr(command, name) for name in _TEXTS if command.HasField(name)}
        fields |= {name: getattr(command, name) for name in _NUMBERS if command.HasField(name)}
        for name in _NUMBERED:
            number = getattr(command, f"{name}_text")
            if command.HasField(f"{name}_text"):
                own = self._tokens.own_texts.get((sequence, number))
                fields[name] = own or self._tokens.texts[number] if number else ""
        return fields

    @staticmethod
    def _make_room(stack: list[Slice], time_ns: int, *, moment: bool = False) -> None:
        """Moments stay only for other moments of the same time."""
        while (
            stack and stack[-1].duration_ns == 0 and not (moment and stack[-1].start_ns == time_ns)
        ):
            stack.pop()

    def _end(self, time_ns: int, uuid: int, event: Any) -> None:
        """Ends of these traces name nothing, so each fits the innermost slice."""
        stack = self._open[uuid]
        self._make_room(stack, time_ns)
        if not stack:
            return
        piece = stack.pop()
        piece.duration_ns = time_ns - piece.start_ns
        self._close_mark(piece, piece.duration_ns)
        self._note_flows(piece, event)

    def _close_mark(self, piece: Slice, duration_ns: int) -> None:
        if "call" in piece.fields:
            index = piece.fields["call"].index
            self._reading.calls.append((index, piece.start_ns, duration_ns))
        elif "span" in piece.fields:
            self._reading.spans.append((piece.name or "", piece.start_ns, duration_ns))

    def _note_flows(self, piece: Slice, event: Any) -> None:
        """Flows that a command of ours opened keep their direction, whatever the times."""
        own = event.type == schema.SLICE_BEGIN and event.HasExtension(schema.COMMAND)
        for flow in event.flow_ids:
            if own and flow in self._early:
                self._connect(piece, self._early.pop(flow), ours=True)
                continue
            last, ours = self._flows.get(flow, (None, own))
            self._connect(last, piece)
            self._flows[flow] = (piece, ours if last is None else False)
        for flow in event.terminating_flow_ids:
            if own and flow not in self._flows:
                self._early.setdefault(flow, piece)
                continue
            last, ours = self._flows.pop(flow, (None, False))
            self._connect(last, piece, ours=ours)

    def _connect(self, last: Slice | None, piece: Slice, *, ours: bool = False) -> None:
        if last is None or last.row is None or piece.row is None:
            return
        back = last.start_ns > piece.start_ns and not ours
        source, target = (piece, last) if back else (last, piece)
        assert source.row is not None
        assert target.row is not None
        self._reading.flows.append((source.row, target.row))

    def finish(self) -> Reading:
        for stack in self._open.values():
            for piece in stack:
                if piece.duration_ns < 0:
                    self._close_mark(piece, self._last_ns(piece) - piece.start_ns)
        return self._reading

    def _last_ns(self, mark: Slice) -> int:
        """The last event of a call, or of no call for a span."""
        calls = self._reading.call_of_sequence
        index = mark.fields["call"].index if "call" in mark.fields else -1
        ends = [s for s in self._reading.slices if calls.get(s.sequence, -1) == index]
        times = [s.start_ns + max(s.duration_ns, 0) for s in ends]
        times += [time for sequence, time in self._sample_times if calls.get(sequence, -1) == index]
        return max([mark.start_ns, *times])


def _category(state: _State, event: Any) -> str | None:
    iids, texts = event.category_iids, event.categories
    if len(iids) == 1 and not texts:
        return state.categories.get(iids[0], f"unknown({iids[0]})")
    if not iids and len(texts) == 1:
        return str(texts[0])
    joined = ""
    for text in (*(state.categories[iid] for iid in iids if iid in state.categories), *texts):
        joined = f"{joined},{text}" if joined else text
    return joined or None

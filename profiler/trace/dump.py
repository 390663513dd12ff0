"""`profile-sd3 dump`: a trace as text lines in file order.

    12 2 1795253400123456789 begin "cpu:0/Host" "scheduler.step" category=host command.step=0

A line has the packet number, the packet sequence, the time in ns (`-` if there is none), the
kind and its fields. Texts are JSON strings, and other fields are `key=value`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profiler.errors import InputError
from profiler.trace import schema
from profiler.trace.compression import decoded_packets, file_bytes, not_a_trace

# --- What `profile-sd3 dump` must remember from packet to packet: interned names, clocks, defaults.
#
# Each packet sequence of a trace has its own (`SequenceState`); tracks belong to the whole trace.


_LATEST_NS = (1 << 63) - 1
_UNITS = {schema.UNIT_BYTES: "bytes", schema.UNIT_COUNT: "count"}


def text(value: str | bytes) -> str:
    """The text of a string field; protobuf returns bytes if it is not valid UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


@dataclass(slots=True)
class SequenceState:
    """Incremental state of one packet sequence. `clock` is its default clock, 0 the trace's own;
    `track` its default track. `clocks` maps a clock to its running value (-1 if its timestamps are
    absolute), its offset to the trace's clock, and its unit in ns."""

    id: int
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    clock: int = 0
    track: int = 0
    clocks: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def update(self, packet: Any) -> None:
        """Update the state with what `packet` says before its event."""
        if packet.sequence_flags & schema.INCREMENTAL_STATE_CLEARED:
            self.names.clear()
            self.categories.clear()
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            self.clock = defaults.timestamp_clock_id
            self.track = defaults.track_event_defaults.track_uuid
        if packet.HasField("clock_snapshot"):
            self._set_clocks(packet.clock_snapshot)
        if packet.HasField("interned_data"):
            for entry in packet.interned_data.event_names:
                self.names[entry.iid] = text(entry.name)
            for entry in packet.interned_data.event_categories:
                self.categories[entry.iid] = text(entry.name)

    def _set_clocks(self, snapshot: Any) -> None:
        values = {clock.clock_id: clock for clock in snapshot.clocks}
        primary = values.get(snapshot.primary_trace_clock or schema.CLOCK_BOOTTIME)
        for clock_id, clock in values.items():
            unit = clock.unit_multiplier_ns or 1
            value = clock.timestamp * unit
            base = primary.timestamp if primary is not None else value
            running = value if clock.is_incremental else -1
            self.clocks[clock_id] = (running, base - value, unit)

    def time_ns(self, packet: Any) -> int:
        """The packet's time in ns, limited to int64: a hostile file must not overflow it."""
        clock_id = packet.timestamp_clock_id or self.clock
        value, offset, unit = self.clocks.get(clock_id, (-1, 0, 1))
        time = int(packet.timestamp) * unit
        if value >= 0:
            time += value
            self.clocks[clock_id] = (time, offset, unit)
        return min(max(time + offset, 0), _LATEST_NS)

    def track_of(self, event: Any) -> int:
        """The uuid of the track on which `event` happens."""
        return int(event.track_uuid if event.HasField("track_uuid") else self.track)

    def name_of(self, event: Any) -> str:
        return text(event.name) or self.names.get(event.name_iid, "")

    def categories_of(self, event: Any) -> list[str]:
        known = self.categories
        interned = [known[iid] for iid in event.category_iids if iid in known]
        return [*map(text, event.categories), *interned]


def track_name(descriptor: Any) -> str:
    """The name that a track descriptor gives, "" for none."""
    name = ""
    if descriptor.HasField("thread"):
        name = descriptor.thread.thread_name
    elif descriptor.HasField("process"):
        name = descriptor.process.process_name
    return text(name or descriptor.name or descriptor.static_name)


def track_unit(descriptor: Any) -> str:
    """The unit of a counter track, "" for none."""
    counter = descriptor.counter
    return _UNITS.get(counter.unit) or text(counter.unit_name)


def numbered_texts(extension_set: bytes) -> dict[int, str]:
    """The texts of commands that an ExtensionDescriptor defines, by their numbers."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(extension_set).file
    except DecodeError:
        return {}
    enums = [enum for file in files if file.package == schema.PACKAGE for enum in file.enum_type]
    return {
        value.number: text(value.name)
        for enum in enums
        if enum.name == "Text"
        for value in enum.value
    }


# --- A trace file with other texts: everything of a packet that this package knows, and no more.


_PACKAGES = (schema.PACKAGE, "perfetto.protos")  # the latter: what ours extends
_PACKED = ("compressed_packets", "zstd_compressed_packets")


def with_texts(data: bytes, replaced: Callable[[str], str], where: str = "the trace") -> bytes:
    """Return the packets of `data`, unpacked, with each text replaced by `replaced(text)`. Fields
    of other tools that this package does not know are removed."""
    known = _Texts(replaced)
    parts: list[bytes] = []
    for _, packet in decoded_packets(data, where):
        if any(map(packet.HasField, _PACKED)):
            continue  # its packets follow
        packet.DiscardUnknownFields()
        known.replace(packet)
        if packet.HasField("extension_descriptor"):
            descriptor = packet.extension_descriptor
            descriptor.extension_set = known.extension_set(descriptor.extension_set)
        trace = schema.Trace()
        trace.packet.append(packet)
        parts.append(trace.SerializeToString())
    return b"".join(parts)


class _Texts:
    """Replaces texts in messages; `replaced` is called once per text."""

    def __init__(self, replaced: Callable[[str], str]) -> None:
        self._replaced = replaced
        self._known: dict[str, str] = {}

    def replace(self, message: Any) -> None:
        """Replace all texts of a message, and of those in it, in place."""
        for field, value in message.ListFields():
            if field.message_type is not None:
                for part in (value,) if hasattr(value, "ListFields") else value:
                    self.replace(part)
            elif field.type == field.TYPE_STRING:
                self._set(message, field, value)

    def _set(self, message: Any, field: Any, value: Any) -> None:
        if isinstance(value, (str, bytes)):  # no extension of ours is a text itself
            setattr(message, field.name, self._one(value))
        else:
            value[:] = map(self._one, value)

    def _one(self, value: str | bytes) -> str:
        before = text(value)
        if before not in self._known:
            self._known[before] = self._replaced(before)
        return self._known[before]

    def extension_set(self, data: bytes) -> bytes:
        """Our definitions with the texts of commands, which are values of an enum, replaced; empty
        if they are not ours."""
        if data == schema.EXTENSION_SET:
            return data
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(data)
        except DecodeError:
            return b""
        found.DiscardUnknownFields()
        kept = [file for file in found.file if file.package in _PACKAGES]
        for enum in (enum for file in kept for enum in file.enum_type if enum.name == "Text"):
            for value in enum.value:
                value.name = self._one(value.name)
        return bytes(descriptor_pb2.FileDescriptorSet(file=kept).SerializeToString())


# --- A trace as lines of text, in file order: to read, to grep, to compare.


_KINDS: Final = {
    schema.SLICE_BEGIN: "begin",
    schema.SLICE_END: "end",
    schema.INSTANT: "instant",
    schema.COUNTER: "counter",
}
_ORDERS: Final = {1: "lexicographic", 2: "chronological", 3: "explicit"}
_CLOCKS: Final = {1: "realtime", 3: "monotonic", 6: "boottime"}
_EXTENSIONS: Final = (schema.COMMAND, schema.CALL, schema.SPAN)
_DEEPEST: Final = 64  # names in a track's path; parents in a file may form a cycle


def dump_lines(path: Path) -> Iterator[str]:
    """Yield the lines of the trace at `path`. Of a cut file, the whole packets are shown.

    Raises InputError if the file cannot be read or, after the last line, if it is cut.
    """
    data = file_bytes(path)
    dump = _Dump()
    end = 0
    for number, (offset, packet) in enumerate(decoded_packets(data, str(path)), 1):
        yield from dump.packet(number, packet)
        end = offset
    if not end:
        raise not_a_trace(str(path))
    if end < len(data):
        lost = f"the last {len(data) - end:,} of {len(data):,} bytes are lost"
        raise InputError(f"{path} is cut or damaged at byte {end:,}, {lost}: copy it again")


class _Dump:
    """The state that earlier packets set: that of each sequence, and the tracks."""

    def __init__(self) -> None:
        self._sequences: dict[int, SequenceState] = {}
        self._tracks: dict[int, Any] = {}
        self._lanes: dict[tuple[int, str], list[int]] = {}  # tracks of a sequence sharing a path
        self._texts: dict[int, dict[int, str]] = {}  # texts of commands, by sequence and number

    def packet(self, number: int, packet: Any) -> Iterator[str]:
        sequence_id = packet.trusted_packet_sequence_id
        sequence = self._sequences.setdefault(sequence_id, SequenceState(sequence_id))
        sequence.update(packet)
        head = f"{number} {sequence_id}"
        before = (*_clocks(packet), *self._extension(packet))
        before += (*self._track(packet), *_interned(packet), *_compressed(packet))
        yield from (f"{head} - {line}" for line in before)
        if packet.HasField("track_event"):
            yield f"{head} {sequence.time_ns(packet)} {self._event(sequence, packet.track_event)}"
        elif not before:
            yield f"{head} - other bytes={packet.ByteSize()}"

    def _extension(self, packet: Any) -> Iterator[str]:
        if packet.HasField("extension_descriptor"):
            data = packet.extension_descriptor.extension_set
            texts = numbered_texts(data)
            self._texts.setdefault(packet.trusted_packet_sequence_id, {}).update(texts)
            yield f"extension bytes={len(data)}"
            yield from (f"text={key} {_quoted(value)}" for key, value in texts.items() if key)

    def _track(self, packet: Any) -> Iterator[str]:
        if not packet.HasField("track_descriptor"):
            return
        descriptor = packet.track_descriptor
        self._tracks.setdefault(descriptor.uuid, descriptor)
        path = self._path(packet.trusted_packet_sequence_id, descriptor.uuid)
        words = [f"track {_quoted(path)} uuid={descriptor.uuid}"]
        if descriptor.parent_uuid:
            words.append(f"parent={descriptor.parent_uuid}")
        if descriptor.child_ordering:
            words.append(f"children={_ORDERS.get(descriptor.child_ordering)}")
        if descriptor.HasField("sibling_order_rank"):
            words.append(f"rank={descriptor.sibling_order_rank}")
        if descriptor.HasField("counter"):
            words.append(f"unit={_quoted(track_unit(descriptor))}")
        yield " ".join(words)

    def _path(self, sequence_id: int, uuid: int) -> str:
        """The names from the root to a track, joined by slashes; `#2` is the second of a name."""
        track, names = uuid, list[str]()
        while len(names) < _DEEPEST:
            descriptor = self._tracks.get(uuid)
            names.append((descriptor and track_name(descriptor)) or f"track {uuid}")
            if descriptor is None or not descriptor.parent_uuid:
                break
            uuid = descriptor.parent_uuid
        path = "/".join(reversed(names))
        lanes = self._lanes.setdefault((sequence_id, path), [])
        if track not in lanes:
            lanes.append(track)
        number = lanes.index(track)
        return f"{path}#{number + 1}" if number else path

    def _event(self, sequence: SequenceState, event: Any) -> str:
        words = [
            _KINDS.get(event.type, "event"),
            _quoted(self._path(sequence.id, sequence.track_of(event))),
        ]
        name = sequence.name_of(event)
        if name or event.type in (schema.SLICE_BEGIN, schema.INSTANT):
            words.append(_quoted(name))
        words += (f"category={_word(category)}" for category in sequence.categories_of(event))
        for field in ("counter_value", "double_counter_value"):
            if event.HasField(field):
                words.append(f"value={getattr(event, field)}")
        for extension in _EXTENSIONS:
            if event.HasExtension(extension):
                texts = self._texts.get(sequence.id, {})
                words += _fields(extension.name, event.Extensions[extension], texts)
        words += (f"flow={flow_id}" for flow_id in event.flow_ids)
        words += (f"terminating_flow={flow_id}" for flow_id in event.terminating_flow_ids)
        return " ".join(words)


def _clocks(packet: Any) -> Iterator[str]:
    if packet.HasField("clock_snapshot"):
        snapshot = packet.clock_snapshot
        words = ["clock"]
        for clock in snapshot.clocks:
            name = _CLOCKS.get(clock.clock_id, str(clock.clock_id))
            words.append(f"{name}={clock.timestamp}")
        if snapshot.primary_trace_clock:
            primary = snapshot.primary_trace_clock
            words.append(f"primary={_CLOCKS.get(primary, str(primary))}")
        yield " ".join(words)
    if packet.HasField("trace_packet_defaults"):
        defaults = packet.trace_packet_defaults
        track = defaults.track_event_defaults.track_uuid
        yield f"defaults clock={defaults.timestamp_clock_id}" + (f" track={track}" if track else "")


def _compressed(packet: Any) -> Iterator[str]:
    """Yield the size of compressed packets; the packets themselves follow."""
    for field in ("compressed_packets", "zstd_compressed_packets"):
        if packet.HasField(field):
            yield f"{field} bytes={len(getattr(packet, field))}"


def _interned(packet: Any) -> Iterator[str]:
    if packet.HasField("interned_data"):
        for kind in ("event_categories", "event_names"):
            for entry in getattr(packet.interned_data, kind):
                yield f"interned {kind}={entry.iid} {_quoted(text(entry.name))}"


def _fields(prefix: str, message: Any, texts: Mapping[int, str]) -> Iterator[str]:
    """Yield the set fields of a message under trace_processor's names."""
    for field, value in message.ListFields():
        key = f"{prefix}.{field.name}"
        if field.message_type is not None:
            for position, entry in enumerate(value):
                yield from _fields(f"{key}[{position}]", entry, texts)
        elif field.name.endswith("_text"):
            shown = _quoted(texts[value]) if value in texts else value
            yield f"{key.removesuffix('_text')}={shown}"
        else:
            yield f"{key}={_quoted(text(value)) if isinstance(value, str | bytes) else value}"


def _word(value: str) -> str:
    return value if value.isidentifier() else _quoted(value)


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=not value.isprintable())

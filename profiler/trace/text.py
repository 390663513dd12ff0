"""A trace as lines of text, in file order: to read, to grep, to compare.

    12 2 1795253400123456789 begin "cpu:0/Host" "scheduler.step" category=host command.step=0

Packet number, packet sequence, time in ns (`-` where there is none), kind, then what that kind has:
texts are JSON strings, everything else is `key=value`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from profiler.errors import InputError
from profiler.trace import schema
from profiler.trace.framing import decoded_packets, file_bytes
from profiler.trace.state import SequenceState, numbered_texts, text, track_name, track_unit
from profiler.trace.unpack import not_a_trace

__all__ = ["dump_lines"]

_KINDS: Final = {
    schema.SLICE_BEGIN: "begin",
    schema.SLICE_END: "end",
    schema.INSTANT: "instant",
    schema.COUNTER: "counter",
}
_ORDERS: Final = {1: "lexicographic", 2: "chronological", 3: "explicit"}
_CLOCKS: Final = {1: "realtime", 3: "monotonic", 6: "boottime"}
_EXTENSIONS: Final = (schema.COMMAND, schema.CALL, schema.SPAN)
_DEEPEST: Final = 64  # names in a track's path; a file may claim parents in a circle


def dump_lines(path: Path) -> Iterator[str]:
    """Yield the lines of the trace at `path`; of a file that is cut, those of its whole packets.

    Raises InputError where the file cannot be read or, after the last line, where it is cut.
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
    """What earlier packets said: the state of each sequence, and the tracks."""

    def __init__(self) -> None:
        self._sequences: dict[int, SequenceState] = {}
        self._tracks: dict[int, Any] = {}
        self._lanes: dict[tuple[int, str], list[int]] = {}  # tracks of a sequence sharing a path
        self._texts: dict[int, dict[int, str]] = {}  # of commands, by sequence and number

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
    """The packets themselves follow."""
    for field in ("compressed_packets", "zstd_compressed_packets"):
        if packet.HasField(field):
            yield f"{field} bytes={len(getattr(packet, field))}"


def _interned(packet: Any) -> Iterator[str]:
    if packet.HasField("interned_data"):
        for kind in ("event_categories", "event_names"):
            for entry in getattr(packet.interned_data, kind):
                yield f"interned {kind}={entry.iid} {_quoted(text(entry.name))}"


def _fields(prefix: str, message: Any, texts: Mapping[int, str]) -> Iterator[str]:
    """The set fields of a message under the names that trace_processor gives them."""
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

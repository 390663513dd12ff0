"""What `profile-sd3 dump` must remember from packet to packet: interned names, clocks, defaults.

Each packet sequence of a trace has its own (`SequenceState`); tracks belong to the whole trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from profiler.trace import schema

__all__ = ["SequenceState", "numbered_texts", "text", "track_name", "track_unit"]

_LATEST_NS = (1 << 63) - 1
_UNITS = {schema.UNIT_BYTES: "bytes", schema.UNIT_COUNT: "count"}


def text(value: str | bytes) -> str:
    """Text of a string field: protobuf hands out bytes where it is not valid UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


@dataclass(slots=True)
class SequenceState:
    """Incremental state of one packet sequence. `clock` is its default clock, 0 the trace's own;
    `track` its default track. `clocks` maps a clock to its running value (-1 where its timestamps
    are absolute), what to add to get the trace's clock, and its unit in ns."""

    id: int
    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    clock: int = 0
    track: int = 0
    clocks: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def update(self, packet: Any) -> None:
        """Take in what `packet` says before its event."""
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
        """The packet's time, held within int64: a hostile file must not overflow it."""
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

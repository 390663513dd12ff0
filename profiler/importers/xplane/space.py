"""A file of XLA's profiler as planes, lines and events.

Source of the format: openxla/xla, xla/tsl/profiler/protobuf/xplane.proto. A plane's names stand
behind its lines, so that a plane that is cut has none: the whole planes of a cut file are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from profiler.errors import InputError
from profiler.importers.head import content_of

__all__ = ["Event", "Line", "Plane", "Space", "read_space"]

_Stat = int | float | str
_PLANES = 0x0A  # tag of XSpace.planes: field 1, length-delimited
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LATEST_PS = 1 << 62  # 53 days: a begin and a length together fit 64 bits
_TASK = "Task Environment"


@dataclass(frozen=True, slots=True)
class Event:
    """Times are picoseconds from the profile's begin. `text` is the name; of an operation on a TPU
    that is its HLO, and `name` the short one. `stats` are the event's own over its kind's."""

    name: str
    text: str
    start_ps: int
    duration_ps: int
    stats: Mapping[str, _Stat]


@dataclass(frozen=True, slots=True)
class Line:
    """`untimed` counts events that tell no begin, or one that cannot be."""

    name: str
    events: tuple[Event, ...]
    untimed: int


@dataclass(slots=True)
class Plane:
    """Lines are read when they are asked for."""

    name: str
    stats: Mapping[str, _Stat]
    _message: Any = field(repr=False)
    _start_ns: int = 0
    _names: dict[int, str] = field(default_factory=dict, repr=False)
    _kinds: dict[int, tuple[str, str, dict[str, _Stat]]] = field(default_factory=dict, repr=False)

    def tells(self, stat: str) -> bool:
        """Whether any event may have this statistic."""
        return stat in self._names.values()

    def lines(self) -> Iterator[Line]:
        """The lines in the order of the file."""
        for message in self._message.lines:
            base = message.timestamp_ns
            if base >= self._start_ns > 0:  # counts from 1970, others from the profile's begin
                base -= self._start_ns
            yield self._line(message, base * 1000)

    def _line(self, message: Any, base_ps: int) -> Line:
        events, untimed = [], 0
        for one in message.events:
            start, length = base_ps + one.offset_ps, one.duration_ps
            if one.WhichOneof("data") == "num_occurrences" or not _is_time(start, length):
                untimed += 1
                continue
            name, text, told = self._kind(one.metadata_id)
            stats = {**told, **_stats(one.stats, self._names)} if one.stats else told
            events.append(Event(name, text, start, length, stats))
        return Line(_text(message.name), tuple(events), untimed)

    def _kind(self, number: int) -> tuple[str, str, dict[str, _Stat]]:
        found = self._kinds.get(number)
        if found is None:
            message = self._message.event_metadata
            if number in message:
                one = message[number]
                text = _text(one.name)
                stats = _stats(one.stats, self._names)
                found = _text(one.display_name) or text, text, stats
            else:
                found = "", "", {}
            self._kinds[number] = found
        return found


@dataclass(frozen=True, slots=True)
class Space:
    """`start_ns` is when the profile began, in CLOCK_REALTIME, 0 where nobody tells. `damaged`
    counts planes that could not be read, `cut` says whether the file ends within one."""

    planes: tuple[Plane, ...]
    start_ns: int
    damaged: int
    cut: bool


def read_space(path: Path) -> Space:
    """Read a file. Raises InputError where it has no whole plane."""
    data = memoryview(content_of(path))
    messages, damaged, end = [], 0, 0
    for part, behind in _parts(data):
        end = behind
        plane = _parsed(part) if part is not None else None
        damaged += part is not None and plane is None
        messages += [plane] if plane is not None else []
    if not messages:
        raise InputError(f"{path} is damaged or was cut within its first plane: record it again")
    planes = [_plane(message) for message in messages]
    told = (plane.stats.get("profile_start_time") for plane in planes if plane.name == _TASK)
    start = next((one for one in told if isinstance(one, int) and 0 < one < 1 << 61), 0)
    for plane in planes:
        plane._start_ns = start  # noqa: SLF001 - known once all planes are read
    return Space(tuple(planes), start, damaged, end < len(data))


def _plane(message: Any) -> Plane:
    names = {key: _text(one.name) for key, one in message.stat_metadata.items()}
    return Plane(_text(message.name), _stats(message.stats, names), message, _names=names)


@cache
def _message() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    data = files("profiler.importers.xplane").joinpath("schema.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("profile_sd3.xplane.XPlane"))


def _parsed(data: memoryview) -> Any | None:
    from google.protobuf.message import DecodeError

    try:
        return _message().FromString(bytes(data))
    except DecodeError:
        return None


def _parts(data: memoryview) -> Iterator[tuple[memoryview | None, int]]:
    """The whole fields of a message: the content of a plane, None of another field; and where the
    next one begins. Ends where a field is not whole."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length, at = _length(tag & 7, data, at)
        if at < 0 or at + length > len(data):
            return
        yield (data[at : at + length] if tag == _PLANES else None), at + length
        at += length


def _length(kind: int, data: memoryview, at: int) -> tuple[int, int]:
    """How many bytes a field has from where on, which is -1 where it cannot be read."""
    if at < 0 or kind not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
        return 0, -1
    if kind == _BYTES:
        return _varint(data, at)
    if kind == _VARINT:
        return 0, _varint(data, at)[1]
    return (8 if kind == _FIXED64 else 4), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and where it ends, -1 where it does not."""
    value = shift = 0
    while 0 <= at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return 0, -1


def _is_time(start_ps: int, duration_ps: int) -> bool:
    return 0 <= start_ps < _LATEST_PS and 0 <= duration_ps < _LATEST_PS


def _stats(messages: Any, names: Mapping[int, str]) -> dict[str, _Stat]:
    """Values by their names; those of bytes are left out."""
    found: dict[str, _Stat] = {}
    for one in messages:
        kind = one.WhichOneof("value")
        if kind is None or kind == "bytes_value":
            continue
        value = getattr(one, kind)
        if kind == "ref_value":
            value = names.get(value, "")
        found[names.get(one.metadata_id, "")] = _text(value) if kind == "str_value" else value
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

"""Read an XLA profile as planes, lines and events: the file itself, or the viewer's version of
it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.errors import InputError
from profiler.importers.chrome_rows import read_events
from profiler.importers.importer import content_of
from profiler.kineto.operators import Scalar
from profiler.trace.events import HOST_TRACK
from profiler.trace.manifest_fields import ActivityKind, HostActivity

# --- A file of XLA's profiler as planes, lines and events.
#
# Source of the format: openxla/xla, xla/tsl/profiler/protobuf/xplane.proto. A plane's names stand
# behind its lines, so that a plane that is cut has none: the whole planes of a cut file are read.


Stat = int | float | str
_PLANES = 0x0A  # tag of XSpace.planes: field 1, length-delimited
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}  # kinds of fields; lengths of those that are fixed
LATEST_PS = 1 << 62  # 53 days: a start and a length together fit 64 bits
_TASK = "Task Environment"


@dataclass(frozen=True, slots=True)
class Event:
    """One event; times are picoseconds from the profile's start. `text` is the name; for a TPU
    operation it is the HLO, and `name` is short. `stats` are the event's own, then its kind's."""

    name: str
    text: str
    start_ps: int
    duration_ps: int
    stats: Mapping[str, Stat]


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `untimed` counts events without a valid start or length, `aggregates` those that
    stand for several and have no start."""

    name: str
    events: tuple[Event, ...]
    untimed: int = 0
    aggregates: int = 0


@dataclass(slots=True)
class Plane:
    """One plane; its lines are read when used."""

    name: str
    stats: Mapping[str, Stat]
    _message: Any = field(repr=False)
    _start_ns: int = 0
    _names: dict[int, str] = field(default_factory=dict, repr=False)
    _kinds: dict[int, tuple[str, str, dict[str, Stat]]] = field(default_factory=dict, repr=False)

    def lines(self) -> Iterator[Line]:
        """The lines in the order of the file."""
        for message in self._message.lines:
            base = message.timestamp_ns
            if base >= self._start_ns > 0:  # it counts from 1970, others from the profile's start
                base -= self._start_ns
            events, untimed, aggregates = [], 0, 0
            for one in message.events:
                start, length = base * 1000 + one.offset_ps, one.duration_ps
                if one.WhichOneof("data") == "num_occurrences":
                    aggregates += 1
                    continue
                if not (0 <= start < LATEST_PS and 0 <= length < LATEST_PS):
                    untimed += 1
                    continue
                name, text, category = self._kind(one.metadata_id)
                stats = {**category, **_stats(one.stats, self._names)} if one.stats else category
                events.append(Event(name, text, start, length, stats))
            yield Line(_text(message.name), tuple(events), untimed, aggregates)

    def _kind(self, number: int) -> tuple[str, str, dict[str, Stat]]:
        if number not in self._kinds:
            known = self._message.event_metadata
            if number in known:
                text, stats = _text(known[number].name), _stats(known[number].stats, self._names)
                self._kinds[number] = _text(known[number].display_name) or text, text, stats
            else:
                self._kinds[number] = "", "", {}
        return self._kinds[number]


@dataclass(frozen=True, slots=True)
class Space:
    """`start_ns` is when the profile started, in CLOCK_REALTIME, 0 if unknown. `damaged`
    counts planes that could not be read, `cut` says whether the file ends within one."""

    planes: tuple[Plane, ...]
    start_ns: int
    damaged: int
    cut: bool


def read_space(path: Path) -> Space:
    """Read a file. Raises InputError if it has no whole plane."""
    from google.protobuf.message import DecodeError

    data = memoryview(content_of(path))
    messages, damaged, end = [], 0, 0
    for part, behind in _parts(data):
        end = behind
        try:
            messages += [_message().FromString(bytes(part))] if part is not None else []
        except DecodeError:
            damaged += 1
    if not messages:
        raise InputError(f"{path} is damaged or was cut within its first plane: record it again")
    planes = []
    for message in messages:
        names = {key: _text(one.name) for key, one in message.stat_metadata.items()}
        stats = _stats(message.stats, names)
        planes.append(Plane(_text(message.name), stats, message, _names=names))
    starts = (plane.stats.get("profile_start_time") for plane in planes if plane.name == _TASK)
    start = next((one for one in starts if isinstance(one, int) and 0 < one < 1 << 61), 0)
    for plane in planes:
        plane._start_ns = start  # noqa: SLF001 - known once all planes are read
    return Space(tuple(planes), start, damaged, end < len(data))


@cache
def _message() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    data = files("profiler.importers").joinpath("xplane.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("profile_sd3.xplane.XPlane"))


def _parts(data: memoryview) -> Iterator[tuple[memoryview | None, int]]:
    """Yield the whole fields of a message: the content of a plane, None for other fields; and the
    offset of the next field. Ends at an incomplete field."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        length = _FIXED.get(tag & 7, 0)
        if tag & 7 in (_VARINT, _BYTES):
            length, at = _varint(data, at)
            length *= tag & 7 == _BYTES
        elif not length:
            return
        if at < 0 or at + length > len(data):
            return
        yield (data[at : at + length] if tag == _PLANES else None), at + length
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number and its end, -1 if it is incomplete."""
    value = shift = 0
    while 0 <= at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return 0, -1


def _stats(messages: Any, names: Mapping[int, str]) -> dict[str, Stat]:
    """The values by name, without values of bytes."""
    found: dict[str, Stat] = {}
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


# --- The file that XLA's profiler writes for its viewer (`*.trace.json.gz`).
#
# Processes are planes (`/device:GPU:0`, `/host:CPU`), threads are lines (`Stream #13(Compute)`,
# `XLA Ops`). Times are µs from the profile's start. The viewer's file has at most a million events,
# the longest ones. Source: openxla/xprof, plugin/xprof/convert/trace_viewer (trace_events_to_json).


_DIGITS = 18  # of a number that is written as a text
_PS = 1_000_000  # a µs
_TEXT = "long_name"  # of an operation on a TPU its HLO


class _Row(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: dict[str, Any] | None = None


class _File(msgspec.Struct):
    traceEvents: list[_Row]  # noqa: N815  the key's own name


@dataclass(slots=True)
class _ViewPlane(Plane):
    """A plane whose lines are rows of the viewer's file."""

    rows: dict[Scalar, list[_Row]] = field(default_factory=dict)
    names: dict[Scalar, str] = field(default_factory=dict)

    def lines(self) -> Iterator[Line]:
        """Yield the threads in the order of the file."""
        for thread, rows in self.rows.items():
            events = [_event(row) for row in rows]
            timed = tuple(event for event in events if event is not None)
            yield Line(self.names.get(thread, str(thread)), timed, len(events) - len(timed))


def read_view(path: Path) -> Space:
    """Read a file, plain or gzip. Raises InputError if it has no event of a device or host."""
    planes: dict[Scalar, _ViewPlane] = {}
    rows, damage = read_events(path, _Row, _File)
    for row in rows:
        plane = planes.setdefault(row.pid, _ViewPlane("", {}, None))
        name = str(row.args.get("name", "")) if row.args else ""
        if row.ph == "X":
            plane.rows.setdefault(row.tid, []).append(row)
        elif row.name == "process_name":
            plane.name = name
        elif row.name == "thread_name":
            plane.names[row.tid] = name
    if not any(plane.rows for plane in planes.values()):
        raise InputError(f"{path} holds no event: give the .xplane.pb beside it")
    return Space(tuple(planes.values()), 0, 0, bool(damage))


def _event(row: _Row) -> Event | None:
    start, length = _picoseconds(row.ts), _picoseconds(row.dur)
    if start is None or length is None:
        return None
    stats = {name: _stat(value) for name, value in (row.args or {}).items()}
    return Event(row.name, str(stats.get(_TEXT, row.name)), start, length, stats)


def _picoseconds(us: float | None) -> int | None:
    found = -1.0 if us is None else us * _PS
    return round(found) if 0 <= found < LATEST_PS else None


def _stat(value: object) -> Stat:
    """Convert a value: the viewer's file has numbers as texts."""
    if isinstance(value, int | float):
        return value
    text = str(value)
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else text


# --- What the host did while devices were idle. Of other host events, the bundle has only those
# that launched something.
#
# Lines with Python frames (`$file.py:12 function`) or calls of compiled functions
# (`PjitFunction(f)`) are the program's own threads; the runtime's threads launch for it. For a gap,
# the thread that launched its end (`Build buffer allocations`) says more than the program's. On
# GPUs that thread is two lines: its launches, and what XLA did, such as the operation of a launch.


_Times = npt.NDArray[np.int64]
FRAME, COMPILED = "$", "PjitFunction("
_GAPS = 32  # per device
_LAUNCHES = 16  # per line, whose operations are searched
_LEAST_NS = 100_000  # no launch takes so long


class DeviceWork(NamedTuple):
    """Starts and ends of a device's work, int64, and the host line that launched each piece, "" if
    not known."""

    start: _Times
    end: _Times
    thread: list[str]


def activities(
    program: Sequence[Line], others: Sequence[Line], start_ns: int, worked: Iterable[DeviceWork]
) -> tuple[HostActivity, ...]:
    """What the host did in the longest gaps of each device, each once and with its full length. On
    the line that launched the end of the gap, it is the innermost event that covers at least half
    of the gap. Otherwise, on the `program`'s lines, the innermost that does, else the one that
    covers most. `start_ns` is the profile's start."""
    own = _Host.of(program, start_ns, HOST_TRACK)
    threads = {
        lines[0].name: _Host.of(lines, start_ns, lines[0].name) for lines in _same_threads(others)
    }
    kept = set()
    for work in worked:
        for first, last, thread in _gaps(work):
            other = threads.get(thread)
            found = other.activity(first, last, least=0.5) if other is not None else None
            kept.add(found or own.activity(first, last))
    known = [one for one in kept if one is not None]
    return tuple(sorted(known, key=lambda one: (one.start_ns, one.duration_ns, one.name)))


def _same_threads(others: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield each line that launched XLA operations, followed by the line, if any, on which these
    operations enclose most of its launches."""
    launching = {}
    for line in others:
        calls = [e for e in line.events if e.stats.get("correlation_id") and "hlo_op" in e.stats]
        if calls:
            launching[line.name] = line, calls[:_LAUNCHES]
    names = {call.stats["hlo_op"] for _, calls in launching.values() for call in calls}
    operations = defaultdict(list)
    for number, other in enumerate(others):
        for event in other.events:
            if event.name in names:
                end = event.start_ps + event.duration_ps
                operations[event.name].append((event.start_ps, end, number))
    for line, calls in launching.values():
        around = Counter(
            number
            for call in calls
            for begin, end, number in operations[str(call.stats["hlo_op"])]
            if begin <= call.start_ps < end
        )
        most = around.most_common(1)
        yield [line, *(others[number] for number, times in most if 2 * times > len(calls))]


def _gaps(work: DeviceWork) -> Iterator[tuple[int, int, str]]:
    """Yield start and end of the longest gaps between pieces of work, in any order, and the line
    that launched the end of each."""
    order = np.argsort(work.start, kind="stable")
    dry, wet = np.maximum.accumulate(work.end[order])[:-1], work.start[order][1:]
    long = np.flatnonzero(wet - dry > _LEAST_NS)
    longest = long[np.argsort(dry[long] - wet[long], kind="stable")[:_GAPS]]
    for at in longest.tolist():
        yield int(dry[at]), int(wet[at]), work.thread[order[at + 1]]


class _Host(Struct, frozen=True, eq=False):
    """The events of some lines, with start and end of each in ns; `thread` is the thread name of
    their activities."""

    names: list[str]
    begin: _Times
    end: _Times
    thread: str

    @classmethod
    def of(cls, lines: Sequence[Line], start_ns: int, thread: str) -> _Host:
        events = [event for line in lines for event in line.events if event.duration_ps]
        begin = np.array([event.start_ps for event in events], dtype=np.int64) // 1000 + start_ns
        length = np.array([event.duration_ps for event in events], dtype=np.int64) // 1000
        return cls([event.name for event in events], begin, begin + length, thread)

    def activity(self, first: int, last: int, least: float = 0) -> HostActivity | None:
        """What the host did from `first` to `last`, if it covers at least the share `least` of
        that; None if not known."""
        there = np.flatnonzero((self.begin < last) & (self.end > first))
        if not len(there):
            return None
        covered = np.minimum(self.end[there], last) - np.maximum(self.begin[there], first)
        half = np.flatnonzero(2 * covered >= last - first)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        if covered[kept[0]] < least * (last - first):
            return None
        place = kept[np.lexsort((-self.end[there[kept]], self.begin[there[kept]]))[-1]]
        row = there[place]
        name, kind = self.names[row], ActivityKind.RANGE
        if name.startswith(FRAME):  # `$/home/me/train.py:3 loop`: folders stay in the file
            source, blank, function = name.removeprefix(FRAME).partition(" ")
            name, kind = f"{source.rpartition('/')[2]}{blank}{function}", ActivityKind.FUNCTION
        return HostActivity(
            name=name,
            kind=kind,
            thread=self.thread,
            start_ns=int(self.begin[row]),
            duration_ns=int(self.end[row] - self.begin[row]),
        )

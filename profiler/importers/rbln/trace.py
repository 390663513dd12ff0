"""RBLN trace files: their commands, tracks and streams, and one clock for all devices.

A process leaves these files:

    traces/rbln_20260902_012906319_0.pb   its first runtime call
    traces/rbln_20260902_012906319_1.pb   the second, ...
    traces/rbln_20260902_012906319.pb     aggregate of all: never counted beside its shards
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from profiler.files import decoded
from profiler.grammars.names import UNNAMED, parse_command_name
from profiler.importers.foreign_run import drops_of
from profiler.trace.columns import (
    ARG_KINDS,
    CommandColumns,
    Counter,
    Int32s,
    Int64s,
    TraceColumns,
    TrackRow,
    read_trace,
)
from profiler.trace.events import NO_STEP, UNKNOWN, Category, Drop, DropKind, DropReason, Track
from profiler.trace.manifest_fields import DeviceClock, PlacedBy

# --- One timeline for devices whose clocks are not related.
#
# RBLN's traces hold no clock snapshot, and each device measures on its own clock. The first device
# keeps its times; so do, among themselves, the calls of every other device, which is moved as a
# whole to where the order of the calls allows it. That is a picture, not a measurement: such a
# device is labelled unaligned, with the interval in which its true offset lies if calls did not
# overlap.


Extent = tuple[int, int]  # first start and last end in ns, on the device's clock
_OPEN = 1 << 66  # no bound: more than any difference of times
_MOST_DEVICES = 64  # whose order is determined
_Apart = dict[tuple[int, int], int]  # of two devices: the difference of their offsets
_Extents = Sequence[Mapping[str, Extent]]  # of each call in order, by device


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the clocks of devices were aligned: in `devices` by `own_clock` (the reference),
    `shared_call` (its first command in a call of several devices starts that call), `call_order`,
    `run_start` (nothing else fits), or `end_to_end` (its clock starts again in every file).
    `offsets[i][device]` is what to add to the times of call i on that device."""

    reference: str
    devices: dict[str, DeviceClock]
    offsets: tuple[Mapping[str, int], ...]


def place(calls: _Extents, *, in_order: bool = True) -> Clocks:
    """Align all devices with the clock of the first one, and shift all if times would be negative.
    If the calls are not `in_order`, all devices start at the same time."""
    devices = list(dict.fromkeys(device for call in calls for device in call))
    starts = [[call[device][0] for call in calls if device in call] for device in devices]
    if any(later <= earlier for one in starts for earlier, later in pairwise(one)):
        return _end_to_end(calls, devices)  # the files do not share the device's clock
    clocks = _placements(calls, devices) if in_order else _run_start(calls, devices)
    begins = (extent[0] + clocks[one].offset_ns for call in calls for one, extent in call.items())
    first = min((*begins, 0))
    clocks = {d: structs.replace(one, offset_ns=one.offset_ns - first) for d, one in clocks.items()}
    offsets = tuple({device: clocks[device].offset_ns for device in call} for call in calls)
    return Clocks(devices[0] if devices else "", clocks, offsets)


def _end_to_end(calls: _Extents, devices: Sequence[str]) -> Clocks:
    """Place calls one after the other: on each of its devices, a call starts when the call before
    ended."""
    cursor = 0
    offsets: list[dict[str, int]] = []
    for call in calls:
        offsets.append({device: cursor - extent[0] for device, extent in call.items()})
        cursor += max((extent[1] - extent[0] for extent in call.values()), default=0)
    clock = DeviceClock(placed_by=PlacedBy.END_TO_END)
    return Clocks(devices[0], dict.fromkeys(devices, clock), tuple(offsets))


def _placements(calls: _Extents, devices: Sequence[str]) -> dict[str, DeviceClock]:
    """Offsets that keep calls in order, in the middle of the possible range."""
    codes = {device: code for code, device in enumerate(devices)}
    shared = _shared(calls, codes)
    bounds = _bounds(calls, codes, shared)
    if not bounds:
        return _run_start(calls, devices)
    together = {code for pair in shared for code in pair}
    reference, *others = range(len(devices))
    offsets = {reference: 0}
    placements = {devices[0]: DeviceClock(placed_by=PlacedBy.OWN_CLOCK)}
    for device in others:
        most = min(bounds[device][fixed] + offset for fixed, offset in offsets.items())
        least = max(offset - bounds[fixed][device] for fixed, offset in offsets.items())
        open_end = least if most >= _OPEN // 2 else most
        offset = (least + most) // 2 if max(most, -least) < _OPEN // 2 else open_end
        offsets[device] = offset
        room = bounds[device][reference] + bounds[reference][device]
        placements[devices[device]] = DeviceClock(
            placed_by=PlacedBy.SHARED_CALL if device in together else PlacedBy.CALL_ORDER,
            offset_ns=offset,
            uncertainty_ns=room if room < _OPEN // 2 else None,
        )
    return placements


def _bounds(calls: _Extents, codes: Mapping[str, int], shared: _Apart) -> list[list[int]]:
    """`bounds[a][b]`: the most by which a's offset may exceed b's; empty if no offsets are
    possible.

    A call ends before the next starts: end(a) + offset(a) <= start(b) + offset(b). Devices that
    share a call start it together instead. A negative bound of a device with itself shows that
    calls overlapped.
    """
    count = len(codes)
    if not 0 < count <= _MOST_DEVICES:
        return []
    bounds = [[0 if a == b else _OPEN for b in range(count)] for a in range(count)]
    ends: dict[int, int] = {}
    for call in calls:
        extents = {codes[device]: extent for device, extent in call.items()}
        for b, (start, _) in extents.items():
            for a, end in ends.items():
                if a != b:
                    bounds[a][b] = min(bounds[a][b], start - end)
        for code, (_, end) in extents.items():
            ends[code] = max(ends.get(code, end), end)
    for (a, b), apart in shared.items():
        bounds[a][b], bounds[b][a] = apart, -apart
    for via, row in enumerate(bounds):  # bounds of bounds are bounds (Floyd and Warshall)
        for own in bounds:
            for b, bound in enumerate(row):
                own[b] = min(own[b], own[via] + bound)
    return bounds if all(bounds[a][a] >= 0 for a in range(count)) else []


def _shared(calls: _Extents, codes: Mapping[str, int]) -> _Apart:
    """Offsets with which the devices of a call start it together, from the first call that they
    share."""
    shared: _Apart = {}
    for call in calls:
        for first, second in pairwise(call):
            pair = (codes[first], codes[second])
            if pair not in shared and pair[::-1] not in shared:
                shared[pair] = call[second][0] - call[first][0]
    return shared


def _run_start(calls: _Extents, devices: Sequence[str]) -> dict[str, DeviceClock]:
    """Align the first event of every device with that of the first device."""
    first = {device: min(call[device][0] for call in calls if device in call) for device in devices}
    return {
        device: DeviceClock(
            placed_by=PlacedBy.RUN_START if number else PlacedBy.OWN_CLOCK,
            offset_ns=first[devices[0]] - first[device],
        )
        for number, device in enumerate(devices)
    }


# --- Where RBLN's commands run: from the rows of a trace to device, track and category.
#
# A trace has thread tracks named after the kind of command. What stands above them depends on the
# version and is only partly documented: a process row a device, chiplet groups within a device, or
# nothing at all. So every row above a track is read for what its name says.


DEVICE_KIND = "rbln"

CATEGORIES_OF_TRACKS: Mapping[str, Category] = {
    "Host": "host",
    "Neural Engine Clusters": "compute",
    "General Compute Engine": "compute",
    "External HDMA": "dma",
    "Neural DMA": "copy",
    "Task DMA": "copy",
    "Device HDMA": "copy",
    "Device Sync": "sync",
}
_CATEGORIES = {name.casefold(): category for name, category in CATEGORIES_OF_TRACKS.items()}
_DEVICE = re.compile(r"\b(?:device|npu|rbln)[\s:#_-]*([0-9]{1,5})\b", re.IGNORECASE)
_NO_DEVICE = re.compile(r"\b(?:chiplet|ccl|host)\b", re.IGNORECASE)

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Row:
    """A track and its parents: names from the outermost row to its own.

    `key` distinguishes outermost rows of one name: the pid of a process, else which of the file's
    rows of that name it is.
    """

    key: int
    path: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path[-1]


def track_category(name: str) -> Category:
    """The category of a track with that name; `other` if not known."""
    return _CATEGORIES.get(name.strip().casefold(), "other")


def tracks_of(
    files: Sequence[Sequence[Row]], defaults: Sequence[str] = ()
) -> list[tuple[Track, ...]]:
    """The tracks of each file's rows.

    A device has the number in the name of a row above its tracks. Devices without one are numbered
    over all files, in order of their keys. A track without a device (a common host) belongs to the
    file's first device; in a file without any, to that in `defaults`, by file, or `rbln:0`. Groups
    within a device (`Chiplet 2`) become part of the name.
    """
    unnumbered = {key for rows in files for key in map(_unnumbered_device, rows) if key is not None}
    known = {n for rows in files for n in map(_device_number, rows) if n is not None}
    free = (number for number in range(len(unnumbered) + len(known)) if number not in known)
    numbers = dict(zip(sorted(unnumbered), free, strict=False))
    each = zip(files, defaults or [""] * len(files), strict=True)
    return [_tracks(rows, numbers, default) for rows, default in each]


def _tracks(rows: Sequence[Row], numbers: Mapping[_Key, int], default: str) -> tuple[Track, ...]:
    keys = map(_unnumbered_device, rows)
    devices = [
        _device_number(row) if key is None else numbers[key]
        for row, key in zip(rows, keys, strict=True)
    ]
    first = min((number for number in devices if number is not None), default=None)
    common = default or f"{DEVICE_KIND}:0" if first is None else f"{DEVICE_KIND}:{first}"
    names = [common if number is None else f"{DEVICE_KIND}:{number}" for number in devices]
    return tuple(
        Track(name, " / ".join((*_groups(row), row.name)), track_category(row.name))
        for row, name in zip(rows, names, strict=True)
    )


def _device_number(row: Row) -> int | None:
    matches = filter(None, map(_DEVICE.search, row.path[:-1]))
    return next((int(match[1]) for match in matches), None)


def _unnumbered_device(row: Row) -> _Key | None:
    """The key of a row's device without a number; None if no row is a device."""
    if len(row.path) < 2 or _device_number(row) is not None or _NO_DEVICE.search(row.path[0]):
        return None
    return row.key, row.path[0]


def _groups(row: Row) -> Iterator[str]:
    """Yield the rows between the device and the track; for a row that names both, the group in its
    name."""
    above = row.path[:-1]
    if _unnumbered_device(row) is not None:
        above = above[1:]
    for name in above:
        left = _DEVICE.sub("", name).strip(" \t-_/:,.()[]")
        if left != row.name and (left == name or _NO_DEVICE.search(left)):
            yield left


# --- One file of RBLN's profiler → columns: slices, the rows they lie on, arguments, flows.


ARGUMENTS = "Slice Arguments"
_TEXT_KINDS = [ARG_KINDS.index(kind) for kind in ("string", "json")]


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
    drops: tuple[Drop, ...]

    def __len__(self) -> int:
        return len(self.start_ns)


def read_rbln(path: Path) -> RblnTrace:
    """Read one file; a cut one up to its last whole packet. Raises InputError if it cannot be
    read."""
    trace = read_trace(path)
    used, track = np.unique(trace.slices.track, return_inverse=True)
    samples, lost = len(trace.counters.time_ns), DropKind.DROPPED_EVENTS
    reason = DropReason.COUNTERS_UNDOCUMENTED
    return RblnTrace(
        file=path.name,
        rows=tuple(_rows(trace.tracks, used.tolist())),
        strings=trace.strings,
        track=track.reshape(-1).astype(np.int32),
        name=trace.slices.name,
        arguments=_arguments(trace),
        start_ns=trace.slices.start_ns,
        duration_ns=trace.slices.duration_ns,
        flows=trace.flows,
        drops=(*trace.drops, *drops_of(lost, samples, "samples", reason, path.name)),
    )


def _arguments(trace: TraceColumns) -> Int32s:
    """The text code of `Slice Arguments` of each slice, 0 if it has none."""
    texts = np.zeros(len(trace.slices), dtype=np.int32)
    key = f"debug.{ARGUMENTS}"
    if key in trace.strings:
        args = trace.args
        found = (args.key == trace.strings.index(key)) & np.isin(args.kind, _TEXT_KINDS)
        texts[args.slice[found]] = args.value[found]
    return texts


def _rows(tracks: Sequence[TrackRow], used: Sequence[int]) -> Iterator[Row]:
    roots: dict[str, dict[int, int]] = {}
    for index in used:
        lineage = [index]
        while tracks[lineage[-1]].parent >= 0:  # the reader has left out what goes in a circle
            lineage.append(tracks[lineage[-1]].parent)
        root = tracks[lineage[-1]]
        path = tuple(tracks[at].name for at in reversed(lineage))
        if root.pid is None:
            alike = roots.setdefault(path[0], {})
            yield Row(alike.setdefault(lineage[-1], len(alike)), path)
        elif root.kind == "process":
            yield Row(root.pid, path)
        else:
            yield Row(root.pid, (root.process or f"process {root.pid}", *path))


# --- The commands of one RBLN trace: names parsed, `Slice Arguments` read, times moved.


CYCLES = "comp_cycle"
_BYTES = re.compile(r":([0-9]{1,18})Byte")
_READS = re.compile(r"\b(?:read|load)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(?:write|store)\b", re.IGNORECASE)
_MOST = 1 << 53  # bytes or cycles of one command; more is no measurement


class _Document(msgspec.Struct):
    transfer: list[str] = []
    comp_cycle: list[str | int] = []


class Arguments(NamedTuple):
    """The `Slice Arguments` of one command; `UNKNOWN` if they lack a value."""

    bytes_read: int = UNKNOWN
    bytes_written: int = UNKNOWN
    cycles: int = UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class RblnCommands:
    """The commands of one call, and data without a column.

    `counters` are the cycles that the device counted, cumulative within the call; `cycles` is their
    sum, `UNKNOWN` without any. `malformed` slices have arguments that cannot be read, `unnamed`
    ones a name that fits no grammar.
    """

    columns: CommandColumns
    counters: tuple[Counter, ...]
    cycles: int
    malformed: int
    unnamed: int


def parse_arguments(text: str) -> Arguments | None:
    """Read the JSON of `Slice Arguments`, `{"transfer": ["…:64Byte"], "comp_cycle": ["12"]}`.

    A transfer reads its source and writes its destination, so its bytes count as both; a text
    before the colon with the word read or load counts as read only, write or store as written
    only. None if `text` is not of that form.
    """
    try:
        document = decoded(text, _Document)
        cycles = [int(value) for value in document.comp_cycle]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    read = written = 0
    for transfer in document.transfer:
        match = _BYTES.search(transfer)
        if match is None:
            return None
        what, size = transfer[: match.start()], int(match[1])
        only_read, only_written = bool(_READS.search(what)), bool(_WRITES.search(what))
        read += size if only_read or not only_written else 0
        written += size if only_written or not only_read else 0
    if min(cycles, default=0) < 0 or max(read, written, sum(cycles)) > _MOST:
        return None
    moved = (read, written) if document.transfer else (UNKNOWN, UNKNOWN)
    return Arguments(*moved, sum(cycles) if cycles else UNKNOWN)


def commands_of(
    trace: RblnTrace, tracks: Sequence[Track], offsets: Mapping[str, int]
) -> RblnCommands:
    """The commands of `trace`, whose rows are `tracks`, each device moved by its offset in ns."""
    move = np.array([offsets[track.device] for track in tracks], dtype=np.int64)
    start_ns = trace.start_ns + (move[trace.track] if len(tracks) else 0)
    order = np.argsort(start_ns, kind="stable")
    name, text = trace.name[order], trace.arguments[order]
    known = {track: at for at, track in enumerate(dict.fromkeys(tracks))}  # of one device and name
    renumbered = np.array([known[track] for track in tracks], dtype=np.int32)
    names = _Names.of(trace.strings, name)
    (bytes_read, bytes_written, cycles), malformed = _parsed_arguments(trace.strings, text)
    position = np.empty(len(trace), dtype=np.int64)
    position[order] = np.arange(len(trace))
    none: Int32s = np.zeros(len(trace), dtype=np.int32)
    layer = names.layer[name]
    columns = CommandColumns(
        tracks=tuple(known),
        strings=names.strings,
        track=renumbered[trace.track[order]],
        layer=layer,
        command_index=_command_index(names.command_index[name], layer),
        op_type=names.op_type[name],
        role=none,
        shapes=none,
        stage=none,
        step=np.full(len(trace), NO_STEP, dtype=np.int32),
        start_ns=start_ns[order],
        duration_ns=trace.duration_ns[order],
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        flops=np.full(len(trace), UNKNOWN, dtype=np.int64),
        flows=position[trace.flows],
    )
    counted = cycles >= 0
    return RblnCommands(
        columns=columns,
        counters=tuple(_cycle_counters(columns, cycles)),
        cycles=int(cycles[counted].sum()) if counted.any() else UNKNOWN,
        malformed=malformed,
        unnamed=int((names.command_index[name] < 0).sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """The parsed names: codes into `strings` for each string of a trace, used if it is a name."""

    strings: tuple[str, ...]
    layer: Int32s
    op_type: Int32s
    command_index: Int32s

    @classmethod
    def of(cls, strings: Sequence[str], used: Int32s) -> _Names:
        codes = {"": 0}
        table = np.zeros((3, len(strings)), dtype=np.int32)
        for position in np.unique(used).tolist():
            name = strings[position]
            command = parse_command_name(name)
            texts, index = (name, ""), UNKNOWN
            if command is not None:
                texts, index = (command.layer, command.op_type), command.command_index
            table[:, position] = (*(codes.setdefault(text, len(codes)) for text in texts), index)
        return cls(tuple(codes), table[0], table[1], table[2])


def _parsed_arguments(strings: Sequence[str], used: Int32s) -> tuple[Int64s, int]:
    """What n texts of `Slice Arguments` say, int64 [3, n] in the order of `Arguments`, and how many
    cannot be read; `used` indexes `strings`."""
    table = np.full((3, len(strings)), UNKNOWN, dtype=np.int64)
    malformed = np.zeros(len(strings), dtype=np.bool_)
    for position in np.unique(used).tolist():
        if strings[position]:
            found = parse_arguments(strings[position])
            malformed[position] = found is None
            table[:, position] = found or Arguments()
    return np.take(table, used, axis=1), int(malformed[used].sum())


def _command_index(parsed: Int32s, layer: Int32s) -> Int32s:
    """Command indices as in the names; commands without one are numbered within their layer."""
    index = parsed.copy()
    seen: dict[int, int] = {}
    for row in np.flatnonzero(parsed < 0).tolist():
        code = int(layer[row])
        index[row] = seen.get(code, 0)
        seen[code] = index[row] + 1
    return index


def _cycle_counters(columns: CommandColumns, cycles: Int64s) -> Iterator[Counter]:
    """Yield the cycles of each track, added up at the end of the command that spent them."""
    counted = cycles >= 0
    for code in np.unique(columns.track[counted]).tolist():
        rows = np.flatnonzero(counted & (columns.track == code))
        ends = columns.end_ns[rows]
        order = np.argsort(ends, kind="stable")
        track = columns.tracks[code]
        values = np.cumsum(cycles[rows][order])
        yield Counter(track.device, f"{track.name} {CYCLES}", "count", ends[order], values)


# --- One file that holds several runtime calls, divided into them.
#
# From version 0.12 the names of commands say of which runtime instance (`i`) and in which of its
# calls (`W`) they ran, so an aggregate without its files is as many calls as there are pairs of the
# two. Host commands carry no `W`, and some tracks no such names: they go to the call in which they
# lie, between two calls to the one that their sequence number continues, else to the one that
# follows, since inputs are prepared on the host.


@dataclass(frozen=True, slots=True)
class Streams:
    """The runtime calls in one file, with the instance and workload of each, `UNNAMED` if not
    known. `numbered`: the workloads number all calls in order. If the calls are not `in_order`,
    their order is not known, because they have no common clock."""

    traces: tuple[RblnTrace, ...]
    keys: tuple[tuple[int, int], ...]
    numbered: bool
    in_order: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """The named commands of one runtime call on one device."""

    number: int
    instance: int
    start_ns: int
    end_ns: int
    first: int  # sequence numbers
    last: int


@dataclass(slots=True, eq=False)
class _Named:
    """The parsed name of each slice."""

    instance: Int64s
    workload: Int64s
    sequence: Int64s

    @classmethod
    def of(cls, trace: RblnTrace) -> _Named:
        table = np.full((3, len(trace.strings)), UNNAMED, dtype=np.int64)
        for code in np.unique(trace.name).tolist():
            command = parse_command_name(trace.strings[code])
            if command is not None:
                table[:, code] = (command.instance, command.workload, command.sequence)
        return cls(*table[:, trace.name])


def divide(trace: RblnTrace) -> Streams | None:
    """The runtime calls in `trace`; None if its names have no more than one."""
    named = _Named.of(trace)
    known = np.flatnonzero(named.workload != UNNAMED)
    pairs = np.stack((named.instance[known], named.workload[known]), axis=1)
    keys, codes = np.unique(pairs, axis=0, return_inverse=True)
    if len(keys) < 2:
        return None
    call = np.full(len(trace), -1, dtype=np.int64)
    call[known] = codes.reshape(-1)
    names = [track.device for track in tracks_of([trace.rows])[0]]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    device = np.array([numbers[name] for name in names], dtype=np.int64)[trace.track]
    by_device = [
        [*_calls(trace, named, keys, call, device == code)] for code in range(device.max() + 1)
    ]
    _place_others(trace, named, call, device, by_device)
    order, numbered, in_order = _order(keys, by_device)
    parts = [_part(trace, call == number) for number in order]
    keyed = [(int(keys[number][0]), int(keys[number][1])) for number in order]
    if (call < 0).any():  # of an instance, or on a device, of which no call is named
        parts.append(_part(trace, call < 0))
        keyed.append((UNNAMED, UNNAMED))
        in_order = False
    between = len(trace.flows) - sum(len(part.flows) for part in parts)
    lost, reason = DropKind.DROPPED_EVENTS, DropReason.FLOWS_BETWEEN_CALLS
    drops = (*trace.drops, *drops_of(lost, between, "flows", reason, trace.file))
    return Streams((replace(parts[0], drops=drops), *parts[1:]), tuple(keyed), numbered, in_order)


def _part(trace: RblnTrace, chosen: npt.NDArray[np.bool_]) -> RblnTrace:
    """The trace of the chosen slices, with their rows and the flows among them; without drops."""
    index = np.flatnonzero(chosen)
    rows, track = np.unique(trace.track[index], return_inverse=True)
    position = np.full(len(trace), -1, dtype=np.int64)
    position[index] = np.arange(len(index))
    flows = position[trace.flows]
    return replace(
        trace,
        rows=tuple(trace.rows[row] for row in rows.tolist()),
        track=track.reshape(-1).astype(np.int32),
        name=trace.name[index],
        arguments=trace.arguments[index],
        start_ns=trace.start_ns[index],
        duration_ns=trace.duration_ns[index],
        flows=flows[(flows >= 0).all(axis=1)],
        drops=(),
    )


def _calls(
    trace: RblnTrace, named: _Named, keys: Int64s, call: Int64s, here: npt.NDArray[np.bool_]
) -> Iterator[_Call]:
    """The calls on one device, in order of their first command there."""
    rows = np.flatnonzero(here & (call >= 0))
    rows = rows[np.lexsort((trace.start_ns[rows], call[rows]))]
    if not len(rows):
        return
    cuts = np.flatnonzero(np.diff(call[rows])) + 1
    begins = np.concatenate(([0], cuts))
    numbers, starts = call[rows[begins]], trace.start_ns[rows[begins]]
    ends = np.maximum.reduceat((trace.start_ns + np.maximum(trace.duration_ns, 0))[rows], begins)
    first = np.minimum.reduceat(named.sequence[rows], begins)
    last = np.maximum.reduceat(named.sequence[rows], begins)
    columns = (numbers, keys[numbers, 0], starts, ends, first, last)
    order = np.argsort(starts, kind="stable")
    yield from map(_Call, *(column[order].tolist() for column in columns))


def _place_others(
    trace: RblnTrace,
    named: _Named,
    call: Int64s,
    device: Int64s,
    by_device: Sequence[Sequence[_Call]],
) -> None:
    """Assign slices without a workload to calls of their instance on their device; slices without
    an instance to any call there."""
    others = np.flatnonzero(call < 0)
    groups = np.stack((device[others], named.instance[others]), axis=1)
    for where, instance in np.unique(groups, axis=0).tolist():
        able = [one for one in by_device[where] if instance in (UNNAMED, one.instance)]
        if not able:
            continue
        rows = others[(groups == (where, instance)).all(axis=1)]
        starts = np.array([one.start_ns for one in able])
        before = np.searchsorted(starts, trace.start_ns[rows], side="right") - 1
        for row, at in zip(rows.tolist(), before.tolist(), strict=True):
            start, sequence = int(trace.start_ns[row]), int(named.sequence[row])
            call[row] = _chosen(able, at, start, sequence).number


def _chosen(calls: Sequence[_Call], at: int, start_ns: int, sequence: int) -> _Call:
    """The call of a slice; `calls` are in order, `at` is the last one that starts no later than the
    slice."""
    if at < 0 or at + 1 == len(calls) or start_ns < calls[at].end_ns:
        return calls[max(at, 0)]
    before, after = calls[at], calls[at + 1]
    return before if sequence > before.last and sequence > after.first else after


def _order(keys: Int64s, by_device: Sequence[Sequence[_Call]]) -> tuple[list[int], bool, bool]:
    """The calls in order, whether their workloads number them, and whether the order is known.

    Workloads that differ in all instances, and rise on each device, count the calls of all of them
    (inferred). Otherwise the times of a single device give the order; those of several do not.
    """
    instances, workloads = keys[:, 0].tolist(), keys[:, 1].tolist()
    rising = all(
        workloads[before.number] < workloads[after.number]
        for calls in by_device
        for before, after in pairwise(calls)
    )
    if len({*workloads}) == len(workloads) and (rising or len({*instances}) == 1):
        return sorted(range(len(workloads)), key=workloads.__getitem__), True, True
    first: dict[int, int] = {}
    for calls in by_device:
        for one in calls:  # behind the first call of its device
            first.setdefault(one.number, one.start_ns - calls[0].start_ns)
    devices = sum(bool(calls) for calls in by_device)
    return sorted(first, key=first.__getitem__), False, devices == 1

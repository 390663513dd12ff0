"""Import a Perfetto or Chrome trace of any producer, with some tracks as devices.

    import_trace(Path("app.pftrace"), Path("traces"), options={"device": r"GPU (\\d+)"})

Slices on these tracks are work, and each track is a stream. All other slices are ranges of host
threads; those with a flow to work are its launches. Nothing is inferred from names: without
`device` all slices are the host's, its commands and the ranges that calls are taken from. In Chrome
JSON a track is a thread, with the names of process and thread; its flows are not read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.errors import InputError
from profiler.importers.chrome_rows import Row, read_rows
from profiler.importers.foreign_run import ForeignRunBuilder, drops_of
from profiler.importers.gpu_calls import (
    KINDS,
    LATEST,
    NO_TIME,
    Api,
    Marks,
    MarkTexts,
    Names,
    Work,
    asked_for,
    global_ids,
)
from profiler.importers.gpu_run import Devices, Machine, Recorded, gpu_run
from profiler.importers.importer import head_of
from profiler.kineto.operators import Scalar
from profiler.trace.columns import Int64s, TraceColumns, TrackRow, read_trace
from profiler.trace.compression import begins_with_packet
from profiler.trace.events import Drop, DropKind, DropReason
from profiler.trace.manifest_fields import Device, HealthNote

_NAMED = 8  # tracks in a message
_NONE = -1
_LONGEST = 1000  # characters of a name that the expression is matched with


def read_run(path: Path, device: str = "", submodules: str = "") -> ForeignRunBuilder:
    """Read one trace. `device` matches the tracks of devices, `submodules` are the names of slices
    that are calls, separated by commas. Raises InputError if it cannot be read, no track matches or
    there is no slice."""
    trace = read_trace(path) if begins_with_packet(head_of(path)) else _chrome_trace(path)
    number = _devices(path, trace, device)
    given = asked_for(submodules)
    on_device = number[trace.slices.track] != _NONE
    work_rows, host_rows = np.flatnonzero(on_device), np.flatnonzero(~on_device)
    launch = np.full(len(trace.slices), _NONE, dtype=np.int64)
    leads = on_device[trace.flows[:, 1]] & ~on_device[trace.flows[:, 0]]
    launch[trace.flows[leads, 1]] = trace.flows[leads, 0]
    closed = host_rows[trace.slices.duration_ns[host_rows] >= 0]
    launches = np.unique(launch[launch != _NONE]) if device else closed
    recorded = Recorded(
        work=_work(trace, work_rows, number, launch),
        api=_api(trace, launches),
        marks=_marks(trace, np.setdiff1d(host_rows, launches) if device else host_rows, given),
        drops=tuple(lost for lost in trace.drops if _is_loss(lost)),
    ).timed(path.name)
    recorded.marks.check(path, given, "slice")
    if not device:
        _check_times(path, _ends(trace, closed), recorded.api)
    codes, place = np.unique(recorded.work.device, return_inverse=True)
    names = tuple(f"gpu:{code}" for code in codes.tolist())
    machine = Machine(
        base_ns=0,
        clock=None,
        placed=Devices(place.reshape(-1), names),
        devices={name: Device() for name in names},
    )
    run = gpu_run(ForeignRunBuilder("perfetto", path.stem, path, None), recorded, machine)
    if isinstance(trace, _ChromeTrace):
        run.health = (*run.health, *trace.health)
    return run


# --- Chrome JSON as the same columns: complete events, and begins with their ends.


_THREAD = frozenset({"X", "B", "E"})
_READ = _THREAD | {"b", "e"}
_ENDS = frozenset({"E", "e"})


@dataclass(frozen=True, slots=True)
class _Slices:
    """Slices in order of their begin; `duration_ns` is -1 for one that never ends."""

    track: Int64s
    start_ns: Int64s
    duration_ns: Int64s
    name: Int64s

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True, slots=True)
class _ChromeTrace:
    """What is read of Chrome JSON: as in `TraceColumns`, and notes on text that was damaged."""

    tracks: tuple[TrackRow, ...]
    strings: tuple[str, ...]
    slices: _Slices
    flows: Int64s
    drops: tuple[Drop, ...]
    health: tuple[HealthNote, ...]


_Lane = tuple[Scalar, Scalar, tuple[str, Scalar] | None]
"""What an end has in common with its begin: process and thread; or process, id, category and scope,
for an id of all processes without the process."""


def _chrome_trace(path: Path) -> _ChromeTrace:
    rows, health = read_rows(path)
    named = {(row.name, row.pid, row.tid): row.named for row in rows if row.ph == "M"}
    processes = {pid: name for (what, pid, _), name in named.items() if what == "process_name"}
    timed = [row for row in rows if row.ph in _READ]
    kept = sorted((row for row in timed if row.start_ns >= 0), key=lambda row: row.start_ns)
    pids: dict[Scalar, int] = {}
    tracks: dict[_Lane, TrackRow] = {}
    names: dict[str, int] = {}
    ongoing: defaultdict[int, list[int]] = defaultdict(list)
    found: list[list[int]] = []  # track, start, length, name
    for row in kept:
        lane = _lane(row)
        track = tracks.get(lane)
        if track is None:
            thread = named.get(("thread_name", row.pid, row.tid)) or lane[1]
            name = f"{processes.get(row.pid) or row.pid} {thread}"
            number, pid = len(tracks), pids.setdefault(row.pid, len(pids))
            track = TrackRow(number, name, "thread", _NONE, "", pid, number)
            tracks[lane] = track
        begun = ongoing[track.uuid]
        if row.ph not in _ENDS:
            length = row.duration_ns if row.ph == "X" and bytes(row.dur) else _NONE
            begun += [] if row.ph == "X" else [len(found)]
            place = names.setdefault(row.name, len(names))
            found.append([track.uuid, row.start_ns, length, place])
        elif begun:
            one = found[begun.pop()]
            one[2] = row.start_ns - one[1]
    lost, reason = len(timed) - len(kept), DropReason.NO_TIME
    return _ChromeTrace(
        tracks=(*tracks.values(),),
        strings=(*names,),
        slices=_Slices(*np.array(found, dtype=np.int64).reshape(-1, 4).T.copy()),
        flows=np.zeros((0, 2), dtype=np.int64),
        drops=(*drops_of(DropKind.DROPPED_EVENTS, lost, "events", reason, path.name),),
        health=health,
    )


def _lane(row: Row) -> _Lane:
    if row.ph in _THREAD:
        return row.pid, row.tid, None
    if row.id2 is not None and row.id2.shared is not None:
        return None, f"id {row.id2.shared}", (row.cat, row.scope)
    local = row.id if row.id2 is None or row.id2.local is None else row.id2.local
    return row.pid, f"id {local}", (row.cat, row.scope)


_Trace = TraceColumns | _ChromeTrace


def _is_loss(drop: Drop) -> bool:
    """Whether events are missing that are not counted elsewhere. A track may be described again:
    its first description stays, and events of a track without one have a drop of their own. Slices
    without an end are counted among the ranges and the work."""
    again = drop.detail.code is DropReason.BAD_DESCRIPTORS
    return not again and drop.kind is not DropKind.UNCLOSED_SLICE


def _check_times(path: Path, ends: Int64s, api: Api) -> None:
    """Raise InputError if nothing of the host takes time: no slice has an end, or those that do are
    later than any clock counts to."""
    if len(api) and api.end.max() > api.start.min():
        return
    late = int((ends >= LATEST).sum())
    if late:
        raise InputError(
            f"{path} has {late} of {len(ends)} slices after the year 2043, and the others take no "
            "time: its clock is wrong or the file is damaged; record again"
        )
    if not len(api):
        raise InputError(
            f"{path} is a Perfetto trace without a slice that has an end: record again"
        )


def _devices(path: Path, trace: _Trace, device: str) -> Int64s:
    """The device number of each track, -1 for host tracks."""
    try:
        pattern = re.compile(device)
    except re.error as error:
        raise InputError(f"device={device!r} is no regular expression ({error})") from error
    matches = [pattern.search(_name(track)) if device else None for track in trace.tracks]
    number = [_NONE if one is None else _group(one) for one in matches]
    if device and max(number, default=_NONE) == _NONE:
        known = dict.fromkeys(_name(track) for track in trace.tracks if track.kind != "counter")
        named = ", ".join([*known][:_NAMED]) + (", …" if len(known) > _NAMED else "")
        raise InputError(
            f"no track of {path} matches device={device!r}: give a regular expression that finds "
            f"those of devices; there are {named or 'none'}"
        )
    return np.array(number, dtype=np.int64)


def _group(found: re.Match[str]) -> int:
    group = found[1] if found.re.groups else None
    return int(group) if group is not None and group.isdecimal() and len(group) < 6 else 0


def _name(track: TrackRow) -> str:
    return track.name[:_LONGEST]


def _ends(trace: _Trace, rows: Int64s) -> Int64s:
    slices = trace.slices
    length = slices.duration_ns[rows]
    return np.where(length < 0, NO_TIME, slices.start_ns[rows] + length)


def _pids(trace: _Trace, rows: Int64s) -> Int64s:
    known = [_NONE if track.pid is None else track.pid for track in trace.tracks]
    return np.array([*known, _NONE], dtype=np.int64)[trace.slices.track[rows]]


def _threads(trace: _Trace, rows: Int64s) -> Int64s:
    """The global thread id of each row; a track without a thread counts as one."""
    known = [at if track.tid is None else track.tid for at, track in enumerate(trace.tracks)]
    tid = np.array([*known, 0], dtype=np.int64)[trace.slices.track[rows]]
    return global_ids(_pids(trace, rows), tid)


def _work(trace: _Trace, rows: Int64s, number: Int64s, launch: Int64s) -> Work:
    names = Names()
    track = trace.slices.track[rows]
    used, place = np.unique(trace.slices.name[rows], return_inverse=True)
    return Work(
        name=names.of([trace.strings[code] for code in used.tolist()], place.reshape(-1)),
        start=trace.slices.start_ns[rows],
        end=_ends(trace, rows),
        pid=np.full(len(rows), _NONE, dtype=np.int64),
        correlation=launch[rows] + 1,
        names=tuple(names.texts),
        kind=np.full(len(rows), KINDS.index("kernel"), dtype=np.int64),
        device=number[track],
        stream=track.astype(np.int64),
        bytes=np.full(len(rows), _NONE, dtype=np.int64),
        lane="track",
    )


def _api(trace: _Trace, rows: Int64s) -> Api:
    names = Names()
    used, place = np.unique(trace.slices.name[rows], return_inverse=True)
    return Api(
        name=names.of([trace.strings[code] for code in used.tolist()], place.reshape(-1)),
        start=trace.slices.start_ns[rows],
        end=_ends(trace, rows),
        pid=_pids(trace, rows),
        correlation=rows + 1,
        names=tuple(names.texts),
        thread=_threads(trace, rows),
        waits=np.zeros(len(rows), dtype=np.bool_),
    )


def _marks(trace: _Trace, rows: Int64s, given: Sequence[str]) -> Marks:
    ends = _ends(trace, rows)
    kept = rows[ends > trace.slices.start_ns[rows]]
    known = MarkTexts()
    texts = [trace.strings[code] for code in trace.slices.name[kept].tolist()]
    times = trace.slices.start_ns[kept], _ends(trace, kept), _threads(trace, kept)
    return Marks.of(*times, *known.of(texts), known, given, int((ends == NO_TIME).sum()))

"""Build a run from a GPU recording: its commands, devices, calls and spans.

    return gpu_run(builder, recorded, machine)

An importer reads its files into a builder, `Recorded` and `Machine`. Layers come from the ranges
around a launch (`model.layers.0.mlp/aten::mm`), else from the kernel's short name. Shapes are
known if `emit_marks(record_shapes=True)` recorded them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from profiler.errors import InputError
from profiler.importers.foreign_run import (
    ForeignRunBuilder,
    PlacedCall,
    attribution_of,
    drops_of,
    without_work,
)
from profiler.importers.gpu_calls import (
    KINDS,
    NO_TIME,
    OPEN,
    Api,
    Bools,
    Marks,
    Placing,
    Work,
    in_time,
    launches,
    place,
    there,
    threads_of,
)
from profiler.kineto.operators import copy_name, kernel_name, queue
from profiler.trace.columns import CommandColumns, Counter, Int32s, Int64s, distinct, number_within
from profiler.trace.events import (
    NO_CALL,
    NO_STEP,
    ROOT_DEVICE,
    UNKNOWN,
    Drop,
    DropKind,
    DropReason,
    Track,
)
from profiler.trace.health import Checked, check
from profiler.trace.manifest_fields import (
    ClockName,
    Clocks,
    Device,
    Graphs,
    HealthNote,
    HealthRule,
    Recording,
    Shortened,
)
from profiler.trace.runtime_calls import NO_END, DeviceRows, captured, elsewhere, host_calls

# --- Work and host calls of a recording as commands of their calls.
#
# - `layer`: the path of the module around the launch, as ranges tell it, and the operator
#   (`model.layers.0.mlp/aten::mm`); without a module the operator, without one the kernel's short
#   name; of a host call the function.
# - `op_type`: the operator, of an engine's layer that of its node; of copies, sets and replayed
#   graphs their name; else the kernel's short name.
# - `kernel`: the full name, demangled.
# - `shapes`: the operator's inputs, if `emit_marks(record_shapes=True)` recorded them.


_KERNEL, _COPY = KINDS.index("kernel"), KINDS.index("gpu_memcpy")
_TEXTS = ("layer", "op_type", "shapes", "kernel", "module")


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The devices of a recording: `code` is an index in `names` for each piece of work, int64
    [n]."""

    code: Int64s
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Commands:
    """All k commands of a recording by number, first the work, then the host's calls; texts index
    `strings`, tracks `tracks`. `sorts` has a row of texts per sort of work, `sort` is the sort of
    each piece of work, `functions` the text of each host function."""

    work: Work
    api: Api
    launch: Int64s
    tracks: tuple[Track, ...]
    strings: tuple[str, ...]
    sorts: Int64s
    sort: Int32s
    functions: Int64s
    track: Int32s
    call: Int64s
    order: Int64s  # by call, then start

    @classmethod
    def of(
        cls, work: Work, api: Api, marks: Marks, devices: Devices, launch: Int64s, call: Int64s
    ) -> Commands:
        """Build the commands. `launch` is the row in `api` of each piece of work, `call` the call
        of each command."""
        texts = {"": 0}
        sorts, sort = _sorts(work, api, marks, launch, texts)
        functions = [texts.setdefault(name, len(texts)) for name in api.names]
        of_work, tracks = _work_tracks(work, devices)
        of_api, host_tracks = _host_tracks(api, len(tracks))
        return cls(
            work=work,
            api=api,
            launch=launch,
            tracks=(*tracks, *host_tracks),
            strings=tuple(texts),
            sorts=sorts,
            sort=sort,
            functions=np.array(functions, dtype=np.int64),
            track=np.concatenate((of_work, of_api)).astype(np.int32),
            call=call,
            order=np.lexsort((np.concatenate((work.start, api.start)), call)),
        )

    def columns(self, call: int) -> CommandColumns:
        """The commands of a call, those outside calls for `NO_CALL`."""
        rows = self._rows(call)
        did = rows < len(self.work)
        work, api = rows[did], rows[~did] - len(self.work)
        texts = np.zeros((len(_TEXTS), len(rows)), dtype=np.int32)
        texts[:, did] = self.sorts[self.sort[work]].T
        if len(api):
            texts[0, ~did] = self.functions[self.api.name[api]]
        used, codes = _used(texts, len(self.strings))
        text = dict(zip(_TEXTS, codes, strict=True))
        tracks, track = np.unique(self.track[rows], return_inverse=True)
        none: Int32s = np.zeros(len(rows), dtype=np.int32)
        start = _of_both(did, self.work.start[work], self.api.start[api])
        end = _of_both(did, self.work.end[work], self.api.end[api])
        size = self.work.bytes[work]
        copied = np.where(self.work.kind[work] == _COPY, size, UNKNOWN)
        unknown = np.full(len(api), UNKNOWN, dtype=np.int64)
        return CommandColumns(
            tracks=tuple(self.tracks[code] for code in tracks.tolist()),
            strings=tuple(self.strings[code] for code in used.tolist()),
            track=track.reshape(-1).astype(np.int32),
            command_index=number_within(text["layer"]),
            role=none,
            stage=none,
            step=np.full(len(rows), NO_STEP, dtype=np.int32),
            start_ns=start,
            duration_ns=end - start,
            bytes_read=_of_both(did, copied, unknown),
            bytes_written=_of_both(did, size, unknown),
            flops=np.full(len(rows), UNKNOWN, dtype=np.int64),
            flows=self._flows(did, work, api),
            **text,
        )

    def lengths(self, recorded: Int64s) -> Iterator[tuple[Track, int, int, int]]:
        """Yield track, start, length and recorded length of work whose `recorded` length
        differs."""
        work = np.flatnonzero(recorded >= 0)
        length = self.work.end[work] - self.work.start[work]
        columns = (self.track[work], self.work.start[work], length, recorded[work])
        for track, *times in zip(*(one.tolist() for one in columns), strict=True):
            yield self.tracks[track], *times

    def device_codes(self, call: int, devices: Devices) -> Int64s:
        """The device of each piece of work in a call."""
        rows = self._rows(call)
        return devices.code[rows[rows < len(self.work)]]

    def _rows(self, call: int) -> Int64s:
        first, last = np.searchsorted(self.call, (call, call + 1), sorter=self.order)
        return self.order[first:last]

    def _flows(self, did: Bools, work: Int64s, api: Int64s) -> Int64s:
        """Flows from each launch to its work, if both are in the call, as positions in it. `did`
        says which of the call's commands are work."""
        launch = self.launch[work]
        order = np.argsort(api)
        at = np.minimum(np.searchsorted(api, launch, sorter=order), max(len(api) - 1, 0))
        if not len(api):
            return np.zeros((0, 2), dtype=np.int64)
        found = (launch >= 0) & (api[order[at]] == launch)
        source = np.flatnonzero(~did)[order[at[found]]]
        return np.stack((source, np.flatnonzero(did)[found]), axis=1)


def _used(texts: Int32s, count: int) -> tuple[Int64s, Int32s]:
    """The codes of the used strings among `count`, always with the first, and the new codes of
    `texts`."""
    there = np.zeros(count, dtype=np.bool_)
    there[0] = True
    there[texts] = True
    numbers: Int32s = (np.cumsum(there) - 1).astype(np.int32)
    return np.flatnonzero(there), numbers[texts]


def _of_both(did: Bools, work: Int64s, api: Int64s) -> Int64s:
    """Merge a column of work and one of host calls; `did` says which rows are work."""
    column = np.empty(len(did), dtype=np.int64)
    column[did], column[~did] = work, api
    return column


def _work_tracks(work: Work, devices: Devices) -> tuple[Int64s, list[Track]]:
    """The track of each piece of work, by stream and kind of queue."""
    sort = work.kind * max(len(work.names), 1) + work.name
    sorts, of_sort = np.unique(sort, return_inverse=True)
    queues: dict[tuple[str, str], int] = {}
    numbers = []
    for one in sorts.tolist():
        kind, name = divmod(one, max(len(work.names), 1))
        where = queue(KINDS[kind], work.names[name])
        numbers.append(queues.setdefault(where, len(queues)))
    of_queue = np.array(numbers, dtype=np.int64)[of_sort.reshape(-1)]
    found, track = distinct(devices.code, work.stream, of_queue)
    named = list(queues)
    tracks = []
    for device, stream, of in found:
        behind, category = named[of]
        name = f"{work.lane} {stream}{behind}" if stream >= 0 else behind.strip() or work.lane
        tracks.append(Track(devices.names[device], name, category))
    return track, tracks


def _host_tracks(api: Api, before: int) -> tuple[Int64s, list[Track]]:
    """The track of each host call, by thread, with waits on a separate track."""
    found, track = distinct(api.thread, api.waits.astype(np.int64))
    several = len(np.unique(api.pid)) > 1
    tracks = []
    for thread, waits in found:
        name = f"thread {thread & 0xFFFFFF}"
        if several:
            name = f"process {(thread >> 24) & 0xFFFFFF} {name}"
        category = "sync" if waits else "host"
        tracks.append(Track(ROOT_DEVICE, f"{name} sync" if waits else name, category))
    return track + before, tracks


def _sorts(
    work: Work, api: Api, marks: Marks, launch: Int64s, texts: dict[str, int]
) -> tuple[Int64s, Int32s]:
    """The distinct rows of texts of work, int64 [sorts, texts], and the index of each piece's
    row."""
    threads, launched = threads_of(marks, api), launch >= 0
    thread = np.searchsorted(threads, api.thread[launch[launched]]).astype(np.int32)
    start = api.start[launch[launched]]

    def around(texts: Bools) -> Int64s:
        """The innermost range with a marked text around each launch, -1 for none."""
        ranges = marks.ranges(texts, threads, nested=False)
        found = np.full(len(launch), -1, dtype=np.int64)
        at = ranges.innermost(thread, start)
        found[launched] = np.where(at >= 0, ranges.row[at], -1) if len(ranges) else -1
        return found

    row = around(marks.operators)
    at = (
        np.append(marks.text, -1)[row],
        np.append(marks.sizes, 0)[row],
        np.append(marks.text, -1)[around(there(marks.modules))],
    )
    found, place = distinct(work.kind, work.name, *at)
    rows = [_command(work, marks, texts, row) for row in found]
    return np.array(rows, dtype=np.int64).reshape(-1, len(_TEXTS)), place.astype(np.int32)


def _command(
    work: Work, marks: Marks, texts: dict[str, int], row: tuple[int, ...]
) -> tuple[int, ...]:
    """The texts of one sort of command, in order of `_TEXTS`."""
    kind, name, operator, shapes, module = row
    full = label = op_type = work.names[name]
    if kind == _KERNEL and operator >= 0:
        label, op_type = marks.plain(operator), marks.op_type(operator)
    elif kind == _KERNEL:
        label = op_type = kernel_name(full)
    elif kind == _COPY and " -> " in full:
        label = op_type = copy_name(full)
    path = marks.modules[module] if module >= 0 else ""
    layer = f"{path}/{label}" if path else label
    shape = marks.shapes[shapes] if kind == _KERNEL else ""
    said = (layer, op_type, shape, full, path)
    return tuple(texts.setdefault(text, len(texts)) for text in said)


# --- What a recorder of GPUs saw → a bundle. An importer reads its files into two values:
#
# Launches, calls, devices, spans and what is dropped for want of a time follow from these.


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The content of the files, with their times. `drops` are data already left out;
    `lost_dispatches` is how many dispatch numbers are missing, of how many."""

    work: Work
    api: Api
    marks: Marks
    drops: tuple[Drop, ...] = ()
    lost_dispatches: tuple[int, int] = (0, 0)

    def timed(self, where: str) -> Recorded:
        """The content with valid times; the rest becomes a drop. Work without a start or an end, or
        with an end before its start, stays, so that the check of the recording can count and reject
        it."""
        start, end = self.work.start, self.work.end
        odd = (end == NO_END) | ((end >= 0) & in_time(end, end))
        inside = in_time(start, end) | (odd & in_time(start, start))
        work = self.work
        if not inside.all():
            start, end = (np.where(inside, times, NO_TIME) for times in (start, end))
            work = replace(work, start=start, end=end)
        api = self.api.timed()
        lost, reason = DropKind.DROPPED_EVENTS, DropReason.NO_TIME
        drops = (
            *self.drops,
            *drops_of(lost, len(self.api) - len(api), "events", reason, where),
            *drops_of(
                DropKind.UNCLOSED_SLICE, self.marks.unclosed, "events", DropReason.NO_END, where
            ),
        )
        marks = self._closed_marks(work, api)
        return replace(self, work=work, api=api, marks=marks, drops=drops)

    def _closed_marks(self, work: Work, api: Api) -> Marks:
        """The ranges; those without an end are closed at the end of the recording."""
        marks = self.marks
        ongoing = marks.end == OPEN
        if not ongoing.any():
            return marks
        ends = (part.max(initial=0) for part in (work.end, api.end, marks.end[~ongoing]))
        return replace(marks, end=np.where(ongoing, np.maximum(max(ends), marks.start), marks.end))

    def move(self, base_ns: int) -> None:
        """Add `base_ns` to all times, in place: a copy of a large file's would take too much
        memory."""
        for part in (self.work, self.api, self.marks):
            np.add(part.start, base_ns, out=part.start)
            np.add(part.end, base_ns, out=part.end)


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """The machine and its clock: `base_ns` is added to the files' times to get those of `clock`;
    `placed` has the device of each piece of work. `counters` are already on the run's clock.
    `elsewhere` is how much work names another device than it is listed under, by both. `hardware`
    names the GPUs, for a recording without work."""

    base_ns: int
    clock: ClockName | None
    placed: Devices
    devices: Mapping[str, Device]
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    counters: tuple[Counter, ...] = ()
    elsewhere: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    hardware: str = ""


def _checked(recorded: Recorded, machine: Machine) -> tuple[Recorded, Devices, Checked]:
    """Return the recording with corrected times and without impossible rows."""
    work, api, placed = recorded.work, recorded.api, machine.placed
    pids = np.union1d(np.unique(api.pid), np.unique(work.pid))
    pids = pids[pids != UNKNOWN]
    process = [
        np.where(rows.pid == UNKNOWN, UNKNOWN, np.searchsorted(pids, rows.pid))
        for rows in (work, api)
    ]
    streams, stream = distinct(placed.code, work.pid, work.stream)
    # a driver moves unified memory's pages concurrently with a stream
    of_driver = np.array(["(unified memory)" in name for name in work.names], dtype=np.bool_)
    on_host = np.array([name == ROOT_DEVICE for name in placed.names], dtype=np.bool_)
    rows = DeviceRows(
        start=work.start,
        end=work.end,
        device=placed.code,
        stream=stream,
        process=process[0],
        correlation=work.correlation,
        kernel=np.where(work.kind == _KERNEL, work.name, -1),
        exempt=on_host[placed.code] | (work.kind == KINDS.index("graph")) | of_driver[work.name],
        devices=placed.names,
        streams=tuple(f"{work.lane} {number}" for _, _, number in streams),
        kernels=work.names,
    )
    calls = (api.names, api.name, api.start, api.end, process[1], api.thread, api.correlation)
    found = check(rows, *host_calls(*calls), machine.hardware)
    if found.changed:
        work = replace(work, start=found.start, end=found.end).select(found.kept)
        if found.process is not None:
            work = replace(work, pid=pids[found.process[found.kept]])
        placed = replace(placed, code=placed.code[found.kept])
    found = replace(found, start=work.start, end=work.end)  # not twice in memory
    return replace(recorded, work=work), placed, found


def _lost(dispatches: tuple[int, int], checked: Checked, placed: Devices) -> Iterator[HealthNote]:
    """Yield a note of missing dispatches, unless the check already counted their launches."""
    count, total = dispatches
    if count and not any(note.rule is HealthRule.LOST for note in checked.notes):
        devices = ", ".join(name for name in placed.names if name != ROOT_DEVICE)
        share = count / total
        yield HealthNote(
            rule=HealthRule.LOST, device=devices, count=count, total=total, share=share
        )


_CAPTURED = re.compile(r"Launch\w*Kernel|Memcpy\w*Async|Memset\w*Async")


def _graphs(api: Api, launch: Int64s) -> Graphs | None:
    """How many calls were captured into graphs, and how many launched graphs; None if none was
    captured. `launch` is the call of each piece of work."""

    def called(sought: Callable[[str], object]) -> Bools:
        return np.isin(api.name, [code for code, name in enumerate(api.names) if sought(name)])

    inside = captured(api.names, api.name, api.start, api.thread) & called(_CAPTURED.search)
    inside[launch[launch >= 0]] = False  # it ran at once: the capture's end is not recorded
    if not inside.any():
        return None
    replays = called(lambda name: "GraphLaunch" in name)
    return Graphs(captured=int(inside.sum()), replays=int(replays.sum()))


def gpu_run(run: ForeignRunBuilder, recorded: Recorded, machine: Machine) -> ForeignRunBuilder:
    """Fill `run` and return it. `recorded` has valid times, contains work or launches of it if
    there is a device, and is shifted in place."""
    recorded, placed, checked = _checked(recorded, machine)
    if machine.placed.names and not len(recorded.work):
        raise InputError(
            f"{run.source} holds no kernel and no copy with a time that can be: its clock or "
            "its writer failed, record again"
        )
    machine = replace(machine, placed=placed)
    apart = elsewhere(machine.elsewhere, len(machine.placed.code))
    run.health = (*checked.notes, *apart, *_lost(recorded.lost_dispatches, checked, placed))
    recorded.move(machine.base_ns)
    work, api, marks = recorded.work, recorded.api, recorded.marks
    launch = launches(work, api)
    placing = place(work, api, launch, marks)
    call = np.concatenate((placing.work, placing.api))
    placing = replace(placing, work=call[: len(work)], api=call[len(work) :])  # no second copy
    commands = Commands.of(work, api, marks, machine.placed, launch, call)
    run.capability(
        timeline=True,
        launches=bool((launch >= 0).any()),
        shapes=len(marks.shapes) > 1,
        bytes=bool((work.bytes >= 0).any()),
        metrics=any(one.unit != "bytes" for one in machine.counters),
        memory=any(one.unit == "bytes" for one in machine.counters),
    )
    run.all_traced = True
    run.versions = machine.versions
    run.devices |= machine.devices
    run.recording = Recording(nvtx_domains=marks.speaking, graphs=_graphs(api, launch))
    run.clocks = Clocks(clock=machine.clock, base_ns=machine.base_ns)
    times = work.end - work.start, placing.work >= 0, launch < 0
    run.attribution = {
        device: attribution_of(*times, np.flatnonzero(machine.placed.code == code))
        for code, device in enumerate(machine.placed.names)
    }
    run.shortened = [
        Shortened(
            device=on.device, track=on.name, start_ns=start, duration_ns=length, recorded_ns=was
        )
        for on, start, length, was in commands.lengths(checked.recorded[checked.kept])
    ]
    run.workless = without_work(placing.api[checked.unserved], placing.work)
    run.drops += recorded.drops
    run.counters += machine.counters
    run.end_ns = int(work.end[placing.work >= 0].max(initial=0))
    call_of = partial(_call, placing, commands, machine.placed)
    run.make_calls = partial(map, call_of, range(len(placing.calls)))
    run.make_host = partial(commands.columns, NO_CALL)
    run.make_landmarks = lambda: (
        (marks.texts[code], begin)
        for code, begin in zip(marks.text.tolist(), marks.start.tolist(), strict=True)
    )
    return run


def _call(placing: Placing, commands: Commands, devices: Devices, number: int) -> PlacedCall:
    """Return a call with its commands, on the device that most of its work ran on."""
    columns = commands.columns(number)
    codes = commands.device_codes(number, devices)
    device = devices.names[int(np.bincount(codes).argmax())] if len(codes) else ROOT_DEVICE
    call = replace(placing.calls[number], index=number, device=device, ops_traced=len(columns) > 0)
    return PlacedCall(call, columns)

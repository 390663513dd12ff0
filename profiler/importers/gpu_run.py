"""Build a run from a GPU recording: its commands, devices, calls and spans.

    return GpuRun.of(source, recorded, machine)

An importer reads its files into `Source`, `Recorded` and `Machine`. Layers come from the ranges
around a launch (`model.layers.0.mlp/aten::mm`), else from the kernel's short name. Shapes are
known if `emit_marks(record_shapes=True)` recorded them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from profiler.importers.foreign_run import device_by_submodule, spans
from profiler.importers.gpu_calls import (
    KINDS,
    Api,
    Bools,
    Marks,
    PlacedCall,
    Placing,
    Work,
    distinct,
    launches,
    place,
    threads_of,
)
from profiler.kineto.operators import kernel_name, queue
from profiler.text import Note
from profiler.trace.bundle import BundleWriter
from profiler.trace.columns import CommandColumns, Counter, Int32s, Int64s, number_within
from profiler.trace.events import (
    NO_CALL,
    NO_STEP,
    ROOT_DEVICE,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Track,
)
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import (
    AttributedTo,
    Attribution,
    ClockName,
    Clocks,
    Device,
    Overhead,
    Recording,
    Submodule,
    UnknownCost,
    WhyUnknown,
)

# --- Work and host calls of a recording as commands of their calls.
#
# - `layer`: the path of the module around the launch, as ranges tell it, and the operator
#   (`model.layers.0.mlp/aten::mm`); without a module the operator, without one the kernel's short
#   name; of a host call the function.
# - `op_type`: the operator; of copies, sets and replayed graphs their name; else the kernel's
# short
#   name.
# - `kernel`: the full name, demangled.
# - `shapes`: the operator's inputs, where `emit_marks(record_shapes=True)` recorded them.


_KERNEL, _COPY = KINDS.index("kernel"), KINDS.index("gpu_memcpy")
_TEXTS = ("layer", "op_type", "shapes", "kernel", "module")


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The devices of a recording: `code` of each piece of work, int64 [n], indexes `names`."""

    code: Int64s
    names: tuple[str, ...]


class _Texts:
    """Texts as positions in one tuple, whose first is ""."""

    def __init__(self) -> None:
        self.codes = {"": 0}

    def of(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))


@dataclass(frozen=True, slots=True, eq=False)
class Commands:
    """All k commands of a recording by number, the work before the host's calls; texts index
    `strings`, tracks `tracks`. `sorts` has a row of texts for each sort of command, `sort` is that
    of each piece of work; `functions` has the text of each of the host's functions."""

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
    order: Int64s  # by call, then begin

    @classmethod
    def of(  # what the parts of a recording are
        cls,
        work: Work,
        api: Api,
        marks: Marks,
        devices: Devices,
        launch: Int64s,
        call: Int64s,
    ) -> Commands:
        """`launch` is the row in `api` of each piece of work, `call` the call of each command."""
        texts = _Texts()
        sorts, sort = _sorts(work, api, marks, launch, texts)
        functions = np.array([texts.of(name) for name in api.names], dtype=np.int64)
        of_work, tracks = _work_tracks(work, devices)
        of_api, host_tracks = _host_tracks(api, len(tracks))
        return cls(
            work=work,
            api=api,
            launch=launch,
            tracks=(*tracks, *host_tracks),
            strings=tuple(texts.codes),
            sorts=sorts,
            sort=sort,
            functions=functions,
            track=np.concatenate((of_work, of_api)).astype(np.int32),
            call=call,
            order=np.lexsort((np.concatenate((work.start, api.start)), call)),
        )

    def columns(self, call: int) -> CommandColumns:
        """The commands of a call, those of none for `NO_CALL`."""
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

    def device_codes(self, call: int, devices: Devices) -> Int64s:
        """The device of each piece of work in a call."""
        rows = self._rows(call)
        return devices.code[rows[rows < len(self.work)]]

    def _rows(self, call: int) -> Int64s:
        first, last = np.searchsorted(self.call, (call, call + 1), sorter=self.order)
        return self.order[first:last]

    def _flows(self, did: Bools, work: Int64s, api: Int64s) -> Int64s:
        """From each launch to what it launched, where both are in a call: positions in it, where
        `did` says which of its commands are work."""
        launch = self.launch[work]
        order = np.argsort(api)
        at = np.minimum(np.searchsorted(api, launch, sorter=order), max(len(api) - 1, 0))
        if not len(api):
            return np.zeros((0, 2), dtype=np.int64)
        found = (launch >= 0) & (api[order[at]] == launch)
        source = np.flatnonzero(~did)[order[at[found]]]
        return np.stack((source, np.flatnonzero(did)[found]), axis=1)


def _used(texts: Int32s, count: int) -> tuple[Int64s, Int32s]:
    """Which of `count` strings are used, the first one always, and their numbers among these."""
    there = np.zeros(count, dtype=np.bool_)
    there[0] = True
    there[texts] = True
    numbers: Int32s = (np.cumsum(there) - 1).astype(np.int32)
    return np.flatnonzero(there), numbers[texts]


def _of_both(did: Bools, work: Int64s, api: Int64s) -> Int64s:
    """A column of work and host calls in the order in which `did` has them."""
    column = np.empty(len(did), dtype=np.int64)
    column[did], column[~did] = work, api
    return column


def _work_tracks(work: Work, devices: Devices) -> tuple[Int64s, list[Track]]:
    """The track of each piece of work: its stream, apart by what queue it is on."""
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
    tracks = [
        Track(devices.names[device], _lane(work, stream, named[of][0]), named[of][1])
        for device, stream, of in found
    ]
    return track, tracks


def _lane(work: Work, stream: int, queue_name: str) -> str:
    """The name of a track, from what follows that of its stream; without it where that is not
    known."""
    if stream < 0:
        return queue_name.strip() or work.lane
    return f"{work.lane} {stream}{queue_name}"


def _host_tracks(api: Api, before: int) -> tuple[Int64s, list[Track]]:
    """The track of each host call: its thread, apart where the host waits."""
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
    work: Work, api: Api, marks: Marks, launch: Int64s, texts: _Texts
) -> tuple[Int64s, Int32s]:
    """The texts of each sort of work, int64 [sorts, texts], and which sort each piece of it is."""
    operator, shapes, module = _around(api, marks)
    at = (
        np.append(operator, -1)[launch],
        np.append(shapes, 0)[launch],
        np.append(module, -1)[launch],
    )
    found, place = distinct(work.kind, work.name, *at)
    rows = [_command(work, marks, texts, row) for row in found]
    return np.array(rows, dtype=np.int64).reshape(-1, len(_TEXTS)), place.astype(np.int32)


def _command(work: Work, marks: Marks, texts: _Texts, row: tuple[int, ...]) -> tuple[int, ...]:
    """The texts of one sort of command, in order of `_TEXTS`."""
    kind, name, operator, shapes, module = row
    full = work.names[name]
    label = full
    if kind == _KERNEL:
        label = marks.plain(operator) if operator >= 0 else kernel_name(full)
    path = marks.modules[module] if module >= 0 else ""
    layer = f"{path}/{label}" if path else label
    shape = marks.shapes[shapes] if kind == _KERNEL else ""
    return tuple(texts.of(text) for text in (layer, label, shape, full, path))


def _around(api: Api, marks: Marks) -> tuple[Int64s, Int64s, Int64s]:
    """The texts of the innermost operator with its shapes, and of the innermost module, around the
    begin of each host call; -1, 0 and -1 for none."""
    threads = threads_of(marks, api)
    row = _innermost(api, marks, threads, marks.operators)
    operator = np.append(marks.text, -1)[row]
    shapes = np.append(marks.sizes, 0)[row]
    marked = np.array([bool(path) for path in marks.modules], dtype=np.bool_)
    module = np.append(marks.text, -1)[_innermost(api, marks, threads, marked)]
    return operator, shapes, module


def _innermost(api: Api, marks: Marks, threads: Int64s, texts: Bools) -> Int64s:
    """The innermost range with a marked text around the begin of each host call, -1 for none."""
    code = np.searchsorted(threads, api.thread).astype(np.int32)
    ranges = marks.ranges(texts, threads)
    return np.append(ranges.row, -1)[ranges.innermost(code, api.start)]


# --- What a recorder of GPUs saw → a bundle. An importer reads its files into two values:
#
#     return GpuRun.of(source, recorded, machine)
#
# Launches, calls, devices, spans and what is dropped for want of a time follow from these.


@dataclass(frozen=True, slots=True)
class Source:
    """Where a run is from: the importer's name, the path that was given, how many files it is, and
    what to call the run."""

    producer: str
    path: Path
    name: str
    files: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What the files hold, in their times. `drops` are what of them is left out already."""

    work: Work
    api: Api
    marks: Marks
    drops: tuple[Drop, ...] = ()

    def timed(self, where: str) -> Recorded:
        """What has a begin, and an end that is not before it; the rest is a drop."""
        work, api = self.work.timed(), self.api.timed()
        timeless = [
            (len(self.work) - len(work), "commands"),
            (len(self.api) - len(api), "events"),
        ]
        found = [
            Drop(DropKind.DROPPED_EVENTS, where, count, unit, Note.of(DropReason.NO_TIME))
            for count, unit in timeless
            if count
        ]
        if self.marks.unclosed:
            note = Note.of(DropReason.NO_END)
            unclosed = self.marks.unclosed
            found.append(Drop(DropKind.UNCLOSED_SLICE, where, unclosed, "events", note))
        return Recorded(work, api, self.marks, (*self.drops, *found))

    def move(self, base_ns: int) -> None:
        """Put the times `base_ns` later, in place: a second copy of a large file's is too much."""
        for part in (self.work, self.api, self.marks):
            np.add(part.start, base_ns, out=part.start)
            np.add(part.end, base_ns, out=part.end)


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """`base_ns` is to be added to the files' times, which are those of `clock` then; `placed` has
    the device of each piece of work. `counters` are on the run's clock already."""

    base_ns: int
    clock: ClockName | None
    placed: Devices
    devices: Mapping[str, Device]
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class GpuRun:
    """A run of an importer; times are on the run's clock."""

    source: Source
    machine: Machine
    work: Work
    shapes: bool  # whether ranges tell any
    launch: Int64s
    placing: Placing
    commands: Commands
    ranges: tuple[tuple[str, ...], Int32s, Int64s]  # their texts, the code and begin of each
    domains: tuple[str, ...]  # named ones that ranges which say what ran are of
    drops: tuple[Drop, ...]

    @classmethod
    def of(cls, source: Source, recorded: Recorded, machine: Machine) -> GpuRun:
        """`recorded` is timed, and the run's from now on; it holds work."""
        recorded.move(machine.base_ns)
        work, api, marks = recorded.work, recorded.api, recorded.marks
        launch = launches(work, api)
        placing = place(work, api, launch, marks)
        call = np.concatenate((placing.work, placing.api))
        commands = Commands.of(work, api, marks, machine.placed, launch, call)
        shapes, ranges = len(marks.shapes) > 1, (marks.texts, marks.text, marks.start)
        drops = recorded.drops
        domains = marks.speaking
        return cls(source, machine, work, shapes, launch, placing, commands, ranges, domains, drops)

    @property
    def name(self) -> str:
        """What to call the run."""
        return self.source.name

    def landmarks(self) -> Iterator[tuple[str, int]]:
        """The ranges that the program named, with their begins."""
        texts, text, start = self.ranges
        for code, begin in zip(text.tolist(), start.tolist(), strict=True):
            yield texts[code], begin

    @property
    def capabilities(self) -> set[str]:
        """The timeline, and what else was recorded."""
        known = {
            "launches": bool((self.launch >= 0).any()),
            "shapes": self.shapes,
            "bytes": bool((self.work.bytes >= 0).any()),
            "metrics": any(one.unit != "bytes" for one in self.machine.counters),
            "memory": any(one.unit == "bytes" for one in self.machine.counters),
        }
        return {"timeline", *(name for name, there in known.items() if there)}

    def write(self, bundle: BundleWriter) -> RunInfo:
        """Write a file a call, and what ran in none as host work."""
        placed = enumerate(self.placing.calls)
        calls = [self._write_call(bundle, number, one) for number, one in placed]
        last = int(self.work.end[self.placing.work >= 0].max(initial=0))
        told = spans(self.name, self.placing.calls, last)
        outside = self.commands.columns(NO_CALL)
        bundle.write_host(told, outside, ROOT_DEVICE, self.machine.counters)
        return self._info(calls)

    def _write_call(self, bundle: BundleWriter, number: int, placed: PlacedCall) -> Call:
        columns = self.commands.columns(number)
        call = Call(
            index=number,
            submodule=placed.submodule,
            stage=placed.stage,
            branch="",
            step=placed.step,
            device=self._device_of(number),
            start_ns=placed.start_ns,
            duration_ns=placed.end_ns - placed.start_ns,
            ops_traced=len(columns) > 0,
            iteration=placed.iteration,
        )
        bundle.write_call(call, columns)
        return call

    def _device_of(self, number: int) -> str:
        """The device that most of a call's work ran on, the root device where none did."""
        devices = self.machine.placed
        codes = self.commands.device_codes(number, devices)
        return devices.names[int(np.bincount(codes).argmax())] if len(codes) else ROOT_DEVICE

    def _info(self, calls: list[Call]) -> RunInfo:
        source, machine = self.source, self.machine
        return RunInfo(
            producer=source.producer,
            pipeline=self.name,
            command_line=("profile-sd3", "import", str(source.path)),
            versions=dict(machine.versions),
            devices={ROOT_DEVICE: Device(), **machine.devices},
            submodules={
                name: Submodule(device=device, activate_profiler=True)
                for name, device in device_by_submodule(calls).items()
            },
            recording=Recording(
                source=source.path.name, files=source.files, nvtx_domains=self.domains
            ),
            clocks=Clocks(clock=machine.clock, base_ns=machine.base_ns),
            overhead=Overhead(unknown=(UnknownCost(why=WhyUnknown.NOT_TOLD),)),
            attribution=self._attribution(),
            drops=self.drops,
        )

    def _attribution(self) -> dict[str, Attribution]:
        """By device: how much of its time belongs to calls, and how many launches are unknown."""
        length = self.work.end - self.work.start
        inside = self.placing.work >= 0
        found = {}
        for code, device in enumerate(self.machine.placed.names):
            here = self.machine.placed.code == code
            total, attributed = int(length[here].sum()), int(length[here & inside].sum())
            found[device] = Attribution(
                to=AttributedTo.CALLS,
                attributed_ns=attributed,
                total_ns=total,
                share=attributed / total if total else 1.0,
                commands=int(here.sum()),
                commands_outside_calls=int((here & ~inside).sum()),
                launch_unknown=int((here & (self.launch < 0)).sum()),
            )
        return found

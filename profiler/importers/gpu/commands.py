"""Work and host calls of a recording as commands of their calls.

- `layer`: the path of the module around the launch, as ranges tell it, and the operator
  (`model.layers.0.mlp/aten::mm`); without a module the operator, without one the kernel's short
  name; of a host call the function.
- `op_type`: the operator; of copies, sets and replayed graphs their name; else the kernel's short
  name.
- `kernel`: the full name, demangled.
- `shapes`: the operator's inputs, where `emit_marks(record_shapes=True)` recorded them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler.events import NO_STEP, ROOT_DEVICE, UNKNOWN, Track
from profiler.importers.gpu.activity import KINDS, Api, Work
from profiler.importers.gpu.distinct import distinct
from profiler.importers.gpu.marks import Marks
from profiler.kineto.names import kernel_name, queue
from profiler.trace.columns import CommandColumns, Int32s, Int64s, number_within

__all__ = ["Commands", "Devices"]

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
    """All k commands of a recording, the work before the host's calls, int64 [k] each; texts index
    `strings`, `track` `tracks`. `source` is the launch of each command, -1 for none, `call` the
    position of its call."""

    tracks: tuple[Track, ...]
    strings: tuple[str, ...]
    texts: dict[str, Int64s]
    track: Int64s
    start: Int64s
    end: Int64s
    read: Int64s
    written: Int64s
    source: Int64s
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
        columns = _texts_of(work, api, marks, launch, texts)
        of_work, tracks = _work_tracks(work, devices)
        of_api, host_tracks = _host_tracks(api, len(tracks))
        unknown = np.full(len(api), UNKNOWN, dtype=np.int64)
        start = np.concatenate((work.start, api.start))
        copied = np.where(work.kind == _COPY, work.bytes, UNKNOWN)
        return cls(
            tracks=(*tracks, *host_tracks),
            strings=tuple(texts.codes),
            texts=columns,
            track=np.concatenate((of_work, of_api)),
            start=start,
            end=np.concatenate((work.end, api.end)),
            read=np.concatenate((copied, unknown)),
            written=np.concatenate((work.bytes, unknown)),
            source=np.concatenate((np.where(launch >= 0, launch + len(work), -1), unknown)),
            call=call,
            order=np.lexsort((start, call)),
        )

    def columns(self, call: int) -> CommandColumns:
        """The commands of a call, those of none for `NO_CALL`."""
        first, last = np.searchsorted(self.call, (call, call + 1), sorter=self.order)
        rows = self.order[first:last]
        found = {name: self.texts[name][rows] for name in _TEXTS}
        used, place = np.unique(
            np.concatenate([np.zeros(1, dtype=np.int64), *found.values()]), return_inverse=True
        )
        codes = np.split(place.reshape(-1)[1:].astype(np.int32), len(_TEXTS))
        text = dict(zip(_TEXTS, codes, strict=True))
        tracks, track = np.unique(self.track[rows], return_inverse=True)
        none: Int32s = np.zeros(len(rows), dtype=np.int32)
        return CommandColumns(
            tracks=tuple(self.tracks[code] for code in tracks.tolist()),
            strings=tuple(self.strings[code] for code in used.tolist()),
            track=track.reshape(-1).astype(np.int32),
            command_index=number_within(text["layer"]),
            role=none,
            stage=none,
            step=np.full(len(rows), NO_STEP, dtype=np.int32),
            start_ns=self.start[rows],
            duration_ns=self.end[rows] - self.start[rows],
            bytes_read=self.read[rows],
            bytes_written=self.written[rows],
            flops=np.full(len(rows), UNKNOWN, dtype=np.int64),
            flows=self._flows(rows),
            **text,
        )

    def _flows(self, rows: Int64s) -> Int64s:
        """From each launch to what it launched, where both are in `rows`."""
        position = np.full(len(self.start) + 1, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        source = position[self.source[rows]]
        there = np.flatnonzero((self.source[rows] >= 0) & (source >= 0))
        return np.stack((source[there], there), axis=1)


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


def _texts_of(
    work: Work, api: Api, marks: Marks, launch: Int64s, texts: _Texts
) -> dict[str, Int64s]:
    """The columns of text of all commands."""
    operator, shapes, module = _around(api, marks)
    at = (
        np.append(operator, -1)[launch],
        np.append(shapes, 0)[launch],
        np.append(module, -1)[launch],
    )
    found, place = distinct(work.kind, work.name, *at)
    rows = [_command(work, marks, texts, row) for row in found]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(_TEXTS))[place]
    names = np.array([texts.of(name) for name in api.names], dtype=np.int64)
    functions = names[api.name] if len(api) else api.name
    nothing = np.zeros(len(api), dtype=np.int64)
    host = {"layer": functions}
    return {
        name: np.concatenate((table[:, column], host.get(name, nothing)))
        for column, name in enumerate(_TEXTS)
    }


def _command(work: Work, marks: Marks, texts: _Texts, row: tuple[int, ...]) -> tuple[int, ...]:
    """The texts of one sort of command, in order of `_TEXTS`."""
    kind, name, operator, shapes, module = row
    full = work.names[name]
    label = full
    if kind == _KERNEL:
        label = marks.texts[operator] if operator >= 0 else kernel_name(full)
    path = marks.modules[module] if module >= 0 else ""
    layer = f"{path}/{label}" if path else label
    shape = marks.shapes[shapes] if kind == _KERNEL else ""
    return tuple(texts.of(text) for text in (layer, label, shape, full, path))


def _around(api: Api, marks: Marks) -> tuple[Int64s, Int64s, Int64s]:
    """The texts of the innermost operator with its shapes, and of the innermost module, around the
    begin of each host call; -1, 0 and -1 for none."""
    threads = np.unique(np.concatenate((marks.thread, api.thread)))
    code = np.searchsorted(threads, api.thread).astype(np.int32)
    operators = marks.ranges(marks.operators, threads)
    inner = operators.innermost(code, api.start)
    row = np.append(operators.row, -1)[inner]
    operator = np.append(marks.text, -1)[row]
    shapes = np.append(marks.sizes, 0)[row]
    marked = np.array([bool(path) for path in marks.modules], dtype=np.bool_)
    modules = marks.ranges(marked, threads)
    inside = modules.innermost(code, api.start)
    module = np.append(marks.text, -1)[np.append(modules.row, -1)[inside]]
    return operator, shapes, module

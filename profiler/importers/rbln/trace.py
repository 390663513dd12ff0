"""One file of RBLN's profiler → columns: slices, the rows they lie on, arguments, flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.importers.rbln.tracks import Row
from profiler.notes import Note
from profiler.trace.columns import ARG_KINDS, Int32s, Int64s, TraceColumns, TrackRow
from profiler.trace.reader import read_trace

__all__ = ["ARGUMENTS", "RblnTrace", "read_rbln"]

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
    """Read one file; a cut one up to its last whole packet. Raises InputError where it cannot."""
    trace = read_trace(path)
    used, track = np.unique(trace.slices.track, return_inverse=True)
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
        drops=(*trace.drops, *_samples(trace, path.name)),
    )


def _arguments(trace: TraceColumns) -> Int32s:
    """For each slice the text of its `Slice Arguments`, 0 where it has none."""
    texts = np.zeros(len(trace.slices), dtype=np.int32)
    key = f"debug.{ARGUMENTS}"
    if key in trace.strings:
        args = trace.args
        found = (args.key == trace.strings.index(key)) & np.isin(args.kind, _TEXT_KINDS)
        texts[args.slice[found]] = args.value[found]
    return texts


def _samples(trace: TraceColumns, file: str) -> Iterator[Drop]:
    count = len(trace.counters.time_ns)
    if count:
        detail = Note.of(DropReason.COUNTERS_UNDOCUMENTED)
        yield Drop(DropKind.DROPPED_EVENTS, file, count, "samples", detail)


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

"""A Perfetto trace → columns: slices paired and interned names resolved, of any producer.

    trace = read_trace(Path("traces/run/006_transformer.step000.pb"))
    trace.calls[0].submodule, len(trace.slices)

The reading itself is done by `profiler.trace._core`, by trace_processor's rules: events in order
of time, whatever their order in the file; slices paired per track. Memory stays below 64 times the
size of the trace and 1 MiB, whatever is in it; of a packed trace, of what it unpacks to, which
`unpack` bounds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np

from profiler.drop_reasons import DropReason
from profiler.errors import InputError
from profiler.events import NO_CALL, Call, Drop, DropKind, Span, SpanKind
from profiler.notes import Note
from profiler.trace import _core
from profiler.trace.columns import (
    ArgColumns,
    CounterColumns,
    SliceColumns,
    TraceColumns,
    TrackRow,
    same,
)
from profiler.trace.unpack import Unpacker, is_gzip, not_a_trace

__all__ = ["read_bytes", "read_trace"]

_Piece = TypeVar("_Piece", Call, Span)
_MAPPED = 1 << 20  # files from this size on are mapped, not read

_CALL_DURATION, _SPAN_DURATION = 7, 5  # places in the rows of the core

_LOST = {
    "clock": DropReason.CLOCK_UNRELATED_IN_FILE,
    "time": DropReason.NO_TIME,
    "no_sequence": DropReason.NO_SEQUENCE,
    "state_lost": DropReason.STATE_MISSING,
    "track": DropReason.NO_TRACK,
    "counter": DropReason.NO_COUNTER,
    "phase": DropReason.UNKNOWN_TYPE,
    "overlap": DropReason.NOT_NESTED,
    "depth": DropReason.TOO_DEEP,
    "malformed": DropReason.DAMAGED,
    "argument": DropReason.BAD_ARGUMENTS,
    "descriptor": DropReason.BAD_DESCRIPTORS,
    "snapshot": DropReason.BAD_SNAPSHOTS,
    "compressed": DropReason.BAD_COMPRESSED,
}
_UNITS = {
    "argument": "arguments",
    "descriptor": "descriptors",
    "snapshot": "snapshots",
    "compressed": "packets",
}


def read_trace(path: Path) -> TraceColumns:
    """Read one trace file; a cut file is read up to its last whole packet and the drop reported.

    Files from 1 MiB on are mapped into memory, which spares a copy of them and the pages that it
    would take: nobody may cut them shorter meanwhile. Raises InputError where the file cannot be
    opened or is no Perfetto trace.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            raise InputError(f"{path} is empty: record or copy it again")
        with path.open("rb") as file:
            if size < _MAPPED:
                return read_bytes(file.read(), str(path))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return read_bytes(data, str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(data: bytes | mmap.mmap, where: str = "the trace") -> TraceColumns:
    """Read a trace from memory; `where` names it in errors and drops."""
    unpacker = Unpacker(len(data), where)
    with memoryview(data) as view:
        if not is_gzip(view):
            return _decode(view, where, unpacker)
        unpacked, failure = unpacker.gunzip(view)
        trace = _decode(unpacked, where, unpacker)
        if not failure:
            return trace
        detail = Note.of(DropReason.GZIP_CUT, error=str(failure), unpacked=len(unpacked))
        drop = Drop(DropKind.TRUNCATED_FILE, Path(where).name, 1, "files", detail)
        others = (known for known in trace.drops if known.kind != DropKind.TRUNCATED_FILE)
        return replace(trace, drops=(drop, *others))


def _decode(data: bytes | memoryview, where: str, unpacker: Unpacker) -> TraceColumns:
    try:
        found = _core.decode(data, unpacker)
    except (MemoryError, OverflowError, ValueError) as error:
        reason = str(error) or "it needs more memory than there is"
        raise InputError(f"cannot read {where}: {reason}") from error
    if found["packets"] == 0:
        raise not_a_trace(where)
    return _columns(found, len(data), where)


def _columns(found: Mapping[str, Any], size: int, where: str) -> TraceColumns:
    slices = _slices(found["slices"])
    counters = CounterColumns(**found["counters"])
    flows = found["flows"]
    calls = [Call(*row) for row in found["calls"]]
    spans = [_span(*row) for row in found["spans"]]
    return TraceColumns(
        tracks=tuple(_named(TrackRow(*row)) for row in found["tracks"]),
        strings=found["strings"],
        slices=slices,
        calls=tuple(sorted(_closed(calls, slices, counters), key=_by_index)),
        spans=tuple(sorted(_closed(spans, slices, counters), key=_outer_first)),
        counters=counters,
        flows=np.stack([flows["source"], flows["target"]], axis=1).astype(np.int64),
        drops=tuple(_drops(found, slices, size, Path(where).name)),
        instants=found["instants"],
        args=ArgColumns(**found["args"]),
    )


_ABSENT = dict.fromkeys(("depth", "op_type", "role", "shapes", "stage", "kernel", "module"), 0)


def _slices(found: Mapping[str, Any]) -> SliceColumns:
    """The columns as they are. What no slice has is one value, repeated without taking memory."""
    rows = len(found["start_ns"])
    columns = dict(found)
    if len(found["layer"]) < rows:
        columns["layer"] = found["name"]  # that of every slice
    for name, column in columns.items():
        if len(column) < rows:
            columns[name] = same(column.dtype.type(_ABSENT.get(name, -1)), rows)
    return SliceColumns(**columns)


def _named(track: TrackRow) -> TrackRow:
    """Threads and processes are called by their own names, whatever their tracks are called."""
    name = track.name
    if track.kind == "thread":
        name = track.thread or name or f"thread {track.tid}"
    elif track.kind == "process":
        name = track.process or name or f"process {track.pid}"
    return replace(track, name=name or f"track {track.uuid}")


def _closed(
    pieces: Sequence[_Piece], slices: SliceColumns, counters: CounterColumns
) -> Iterator[_Piece]:
    """Calls or spans; what never ended ends with the last event of its call, or of no call."""
    unclosed = any(piece.duration_ns < 0 for piece in pieces)
    last_ns = _last_events(slices, counters) if unclosed else {}
    for piece in pieces:
        if piece.duration_ns < 0:
            index = piece.index if isinstance(piece, Call) else NO_CALL
            end_ns = max(last_ns.get(index, 0), piece.start_ns)
            yield replace(piece, duration_ns=end_ns - piece.start_ns)
        else:
            yield piece


def _last_events(slices: SliceColumns, counters: CounterColumns) -> dict[int, int]:
    """When the last event of each call was, by the call's index."""
    ends = slices.start_ns + np.maximum(slices.duration_ns, 0)
    calls, place = np.unique(np.concatenate([slices.call, counters.call]), return_inverse=True)
    last_ns = np.zeros(len(calls), dtype=np.int64)
    np.maximum.at(last_ns, place, np.concatenate([ends, counters.time_ns]))
    return dict(zip(calls.tolist(), last_ns.tolist(), strict=True))


def _by_index(call: Call) -> int:
    return call.index


def _span(  # a row of the core
    kind: str, name: str, stage: str, step: int, start_ns: int, duration_ns: int, pipeline: int
) -> Span:
    kinds: dict[str, SpanKind] = {kind: kind for kind in get_args(SpanKind)}
    return Span(kinds.get(kind, "step"), name, stage, step, start_ns, duration_ns, pipeline)


def _outer_first(span: Span) -> tuple[int, int, int]:
    return (span.start_ns, -span.duration_ns, get_args(SpanKind).index(span.kind))


def _drops(found: Mapping[str, Any], slices: SliceColumns, size: int, name: str) -> Iterator[Drop]:
    whole = found["whole"]
    if whole < size:
        detail = Note.of(DropReason.CUT_OR_DAMAGED, at=whole, size=size)
        yield Drop(DropKind.TRUNCATED_FILE, name, size - whole, "bytes", detail)
    for reason, count in found["dropped"].items():
        unit, detail = _UNITS.get(reason, "events"), Note.of(_LOST[reason])
        yield Drop(DropKind.DROPPED_EVENTS, name, count, unit, detail)
    if found["unmatched_ends"]:
        detail = Note.of(DropReason.NO_BEGIN)
        yield Drop(DropKind.DROPPED_EVENTS, name, found["unmatched_ends"], "events", detail)
    unclosed = {
        "calls": sum(row[_CALL_DURATION] < 0 for row in found["calls"]),
        "slices": int(np.count_nonzero(slices.duration_ns < 0)),
        "spans": sum(row[_SPAN_DURATION] < 0 for row in found["spans"]),
    }
    for unit, count in unclosed.items():
        if count:
            yield Drop(DropKind.UNCLOSED_SLICE, name, count, unit, Note.of(DropReason.NO_END))

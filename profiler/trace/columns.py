"""Read a Perfetto trace of any producer into columns.

    trace = read_trace(Path("traces/run/006_transformer.step000.pb"))
    trace.calls[0].submodule, len(trace.slices)

`profiler.trace._core` reads by trace_processor's rules: events in order of time, slices paired
per track. Memory stays below 64 times the (unpacked) size of the trace plus 1 MiB.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from profiler.errors import InputError
from profiler.files import opened, size_of
from profiler.text import Note
from profiler.trace import _core
from profiler.trace.compression import Unpacker, is_gzip, not_a_trace
from profiler.trace.events import (
    NO_CALL,
    NO_PIPELINE,
    NO_STEP,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    SpanKind,
    Track,
)

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def same(value: np.generic, rows: int) -> npt.NDArray[Any]:
    """A NumPy scalar repeated `rows` times without taking memory: an array without strides, to be
    read only. Ten times as fast as `np.broadcast_to`."""
    return np.ndarray((rows,), value.dtype, value.tobytes(), strides=(0,))


TEXT_COLUMNS = ("layer", "op_type", "role", "shapes", "stage", "kernel", "module", "name")
"""The columns of `CommandColumns` that index its strings."""


@dataclass(frozen=True, slots=True, eq=False)
class CommandColumns:
    """n commands in order of their start.

    `track` indexes `tracks`; `layer`, `op_type`, `role`, `shapes`, `stage`, `kernel`, `module` and
    `name` index `strings`, whose entry 0 is "". `name` is what the command's slice is called in the
    trace, 0 if that is the layer. Times are ns; `duration_ns`, `bytes_read`, `bytes_written` and
    `flops` are `UNKNOWN` (-1) if not measured. `stage`, `step` and `pipeline` are set for host work
    only: commands of a call have their call's. `pipeline`, `kernel`, `module` and `name` may be
    None if no command has one. `flows` has shape (m, 2): row of the source, row of the target of
    each dependency.
    """

    tracks: tuple[Track, ...]
    strings: tuple[str, ...]
    track: Int32s
    layer: Int32s
    command_index: Int32s
    op_type: Int32s
    role: Int32s
    shapes: Int32s
    stage: Int32s
    step: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    bytes_read: Int64s
    bytes_written: Int64s
    flops: Int64s
    flows: Int64s
    pipeline: Int32s | None = None
    kernel: Int32s | None = None
    module: Int32s | None = None
    name: Int32s | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64s:
        """Ends, int64 [n]; a command that never closed (-1) ends where it starts."""
        return self.start_ns + np.maximum(self.duration_ns, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A value over time on a device: `values[i]`, whole or float64, holds from `times_ns[i]` on.

    `unit` is "bytes" or "count".
    """

    device: str
    name: str
    unit: str
    times_ns: Int64s
    values: Int64s | npt.NDArray[np.float64]


class TrackRow(Struct, frozen=True):
    """One track of a trace. `kind` is `process`, `thread`, `counter` or `plain`; `parent` is the
    index of the parent in `TraceColumns.tracks`, -1 for a root.

    `process` and `thread` name what the track belongs to, itself or through its parents, with their
    ids `pid` and `tid`: "" and None if it belongs to none.
    """

    uuid: int
    name: str
    kind: str
    parent: int
    unit: str
    pid: int | None = None
    tid: int | None = None
    process: str = ""
    thread: str = ""


class SliceColumns(Struct, frozen=True, eq=False):
    """n slices in order of their begin. Text columns index `TraceColumns.strings` (0 is "").

    `depth` counts the slices that enclose one on its track, `parent` is the row of the innermost
    of them, -1 for none. `call` is the index of the call that the slice's file records, -1 for
    slices of no call.
    `duration_ns` is -1 for a slice that never ends. `command_index` is -1 if the slice
    carries no command of ours; then `layer` equals `name`. Bytes and FLOPs: -1 is unknown.
    """

    track: Int32s
    call: Int32s
    name: Int32s
    category: Int32s
    depth: Int32s
    parent: Int32s
    layer: Int32s
    command_index: Int32s
    op_type: Int32s
    role: Int32s
    shapes: Int32s
    stage: Int32s
    step: Int32s
    pipeline: Int32s
    kernel: Int32s
    module: Int32s
    start_ns: Int64s
    duration_ns: Int64s
    bytes_read: Int64s
    bytes_written: Int64s
    flops: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)


ARG_KINDS = ("int", "uint", "string", "real", "pointer", "bool", "json", "null")


class ArgColumns(Struct, frozen=True, eq=False):
    """k arguments of slices, by slice. `slice` is a row, `key` a text under trace_processor's
    syntax (`debug.a.b[0].c`), `kind` indexes `ARG_KINDS`. `value` holds integers as they are, reals
    by their bits (`value.view(np.float64)`), texts as indices of the strings."""

    slice: Int32s
    key: Int32s
    kind: npt.NDArray[np.uint8]
    value: Int64s

    def __len__(self) -> int:
        return len(self.slice)


class CounterColumns(Struct, frozen=True, eq=False):
    """m samples: `track` indexes `TraceColumns.tracks`; `call` is the index of the call whose file
    contains the sample, -1 for none; `value` is float64."""

    track: Int32s
    call: Int32s
    time_ns: Int64s
    value: np.ndarray[Any, np.dtype[np.float64]]


class TraceColumns(Struct, frozen=True, eq=False):
    """The content of one trace. Our own calls and spans are in `calls` and `spans`, all other
    slices in `slices`. `instants` are the rows of `slices` that are moments: they have no duration.
    `flows` is int64 [k, 2]: rows in `slices` from which to which, if both ends are in `slices`."""

    tracks: tuple[TrackRow, ...]
    strings: tuple[str, ...]
    slices: SliceColumns
    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    counters: CounterColumns
    flows: Int64s
    drops: tuple[Drop, ...]
    instants: Int32s
    args: ArgColumns

    def args_of(self, row: int) -> dict[str, Any]:
        """The arguments of one slice, by key. Slow: for single slices, not for loops."""
        args = self.args
        first, last = np.searchsorted(args.slice, [row, row + 1]).tolist()
        return {self.strings[args.key[i]]: self._arg_value(i) for i in range(first, last)}

    def _arg_value(self, index: int) -> Any:
        kind, value = ARG_KINDS[self.args.kind[index]], int(self.args.value[index])
        if kind in {"string", "json"}:
            return self.strings[value]
        if kind == "real":
            return float(self.args.value[index : index + 1].view(np.float64)[0])
        if kind in {"uint", "pointer"}:
            return value % (1 << 64)
        return {"bool": bool(value), "null": None}.get(kind, value)


WIDE_COLUMNS = ("start_ns", "duration_ns", "bytes_read", "bytes_written", "flops")
"""The columns of `CommandColumns` that are int64."""
_ROW = ("track", *TEXT_COLUMNS, "step", "pipeline", *WIDE_COLUMNS, "command_index")
_OPTIONAL = {"pipeline": NO_PIPELINE, "kernel": 0, "module": 0, "name": 0}  # value if absent


@dataclass(slots=True)
class CommandBuilder:
    """Collects commands in any order. `build` sorts them and numbers the commands of each layer:
    those that were given a number keep it, the others are numbered after them."""

    _tracks: dict[Track, int] = field(default_factory=dict)
    _strings: dict[str, int] = field(default_factory=lambda: {"": 0})
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _tables: list[Int64s] = field(default_factory=list)  # of rows before these
    _count: int = 0  # of rows in them
    _flows: list[tuple[int, int]] = field(default_factory=list)
    _flow_tables: list[Int64s] = field(default_factory=list)

    def __len__(self) -> int:
        return self._count + len(self._rows)

    def add(  # noqa: PLR0913  # one argument a column
        self,
        track: Track,
        layer: str,
        op_type: str,
        start_ns: int,
        duration_ns: int,
        *,
        role: str = "",
        shapes: str = "",
        stage: str = "",
        kernel: str = "",
        module: str = "",
        name: str = "",
        step: int = NO_STEP,
        pipeline: int = NO_PIPELINE,
        bytes_read: int = UNKNOWN,
        bytes_written: int = UNKNOWN,
        flops: int = UNKNOWN,
        command_index: int = UNKNOWN,
    ) -> int:
        """Append one command and return its row."""
        strings, code = self._strings, self._strings.setdefault
        row = (
            self._tracks.setdefault(track, len(self._tracks)),
            code(layer, len(strings)),
            code(op_type, len(strings)),
            code(role, len(strings)),
            code(shapes, len(strings)),
            code(stage, len(strings)),
            code(kernel, len(strings)),
            code(module, len(strings)),
            code(name, len(strings)),
            step,
            pipeline,
            start_ns,
            duration_ns,
            bytes_read,
            bytes_written,
            flops,
            command_index,
        )
        self._rows.append(row)
        return len(self) - 1

    def kind(self, track: Track, layer: str, op_type: str, **texts: Any) -> tuple[int, ...]:
        """The values that some commands share, for `add_all`; `texts` are those of `add`."""
        self.add(track, layer, op_type, 0, 0, **texts)
        return self._rows.pop()

    def add_all(
        self, kinds: Sequence[tuple[int, ...]], kind: Int64s, start_ns: Int64s, duration_ns: Int64s
    ) -> int:
        """Append one command per entry of `kind`, an index into `kinds`. Return the row of the
        first."""
        first = len(self)
        self._close()
        table = np.array(kinds, dtype=np.int64).reshape(-1, len(_ROW))[kind]
        table[:, _ROW.index("start_ns")] = start_ns
        table[:, _ROW.index("duration_ns")] = duration_ns
        self._tables.append(table)
        self._count += len(table)
        return first

    def _close(self) -> None:
        """Turn the rows that were added one by one into a table."""
        self._tables.append(np.array(self._rows, dtype=np.int64).reshape(-1, len(_ROW)))
        self._count += len(self._rows)
        self._rows = []

    def link(self, source: int, target: int) -> None:
        """Record that the command in row `target` depends on the one in row `source`."""
        self._flows.append((source, target))

    def link_all(self, sources: Int64s, targets: Int64s) -> None:
        """Record that the commands in the rows `targets` depend on those in the rows `sources`."""
        self._flow_tables.append(np.stack((sources, targets), axis=1))

    def build(self) -> CommandColumns:
        self._close()
        table = np.concatenate(self._tables)
        count = len(table)
        columns = dict(zip(_ROW, table.T, strict=True))
        order = np.lexsort((np.arange(count), columns["start_ns"]))
        position = np.empty(count, dtype=np.int64)
        position[order] = np.arange(count)
        linked = np.array(self._flows, dtype=np.int64).reshape(-1, 2)
        flows = np.concatenate((linked, *self._flow_tables))
        sorted_columns: dict[str, Any] = {
            name: np.ascontiguousarray(
                column[order], dtype=np.int64 if name in WIDE_COLUMNS else np.int32
            )
            for name, column in columns.items()
        }
        for name, absent in _OPTIONAL.items():
            if (sorted_columns[name] == absent).all():
                sorted_columns[name] = None
        return CommandColumns(
            tracks=tuple(self._tracks),
            strings=tuple(self._strings),
            command_index=numbered(sorted_columns["layer"], sorted_columns.pop("command_index")),
            flows=position[flows] if len(flows) else flows,
            **sorted_columns,
        )


def numbered(layer: Int32s, given: Int32s) -> Int32s:
    """The number of each command within its layer: the `given` one for the first command that has
    it, else the next above the layer's largest given number."""
    numbers = number_within(layer)
    rows = np.flatnonzero(given != UNKNOWN)
    if not len(rows):
        return numbers
    _, first = np.unique(np.stack([layer[rows], given[rows]]), axis=1, return_index=True)
    kept = rows[first]
    after = np.zeros(int(layer.max()) + 1, dtype=np.int32)
    np.maximum.at(after, layer[kept], given[kept] + 1)
    others = np.setdiff1d(np.arange(len(layer)), kept)
    numbers[kept] = given[kept]
    numbers[others] = after[layer[others]] + number_within(layer[others])
    return numbers


def number_within(layer: Int32s) -> Int32s:
    """How many earlier rows have the same layer, for each row."""
    order = np.argsort(layer, kind="stable")
    begins = np.flatnonzero(np.diff(layer[order], prepend=-1))
    sizes = np.diff(begins, append=len(layer))
    numbers = np.empty(len(layer), dtype=np.int32)
    numbers[order] = np.arange(len(layer)) - np.repeat(begins, sizes)
    return numbers


# --- Distinct rows. NumPy's own `unique` of several columns sorts records: 10 × slower.


def distinct(*columns: npt.NDArray[Any]) -> tuple[list[tuple[int, ...]], Int64s]:
    """The distinct rows of some columns of integers, and for each row the index of its distinct
    row, int64 [n]."""
    place: Int64s = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        if len(column) and column.min() == column.max():
            continue
        count, code = _coded(column)
        code += place * max(count, 1)
        place = _coded(code)[1] if place.any() else code
    first: Int64s = np.zeros(int(place.max(initial=-1)) + 1, dtype=np.int64)
    first[place] = np.arange(len(place))
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), place


def _coded(column: npt.NDArray[Any]) -> tuple[int, Int64s]:
    """How many values are in a column of integers, and the rank of each row's, int64 [n]. Sorting
    takes three times the memory, and is left to values that are far apart."""
    least = int(column.min(initial=0))
    span = int(column.max(initial=0)) - least + 1
    if span > max(len(column) // 4, 1 << 16):
        values = np.unique(column)
        return len(values), np.searchsorted(values, column)
    at = column - least
    there = np.zeros(span, dtype=np.bool_)
    there[at] = True
    rank: Int64s = np.cumsum(there) - 1
    return int(rank[-1]) + 1, rank[at]


# --- Commands that were built in pieces, joined.


_Known = TypeVar("_Known", bound=Hashable)


def join_commands(pieces: Iterable[CommandColumns]) -> CommandColumns:
    """All commands in order of start, ties in the order of `pieces`. The commands of each layer are
    numbered again."""
    tracks: dict[Track, int] = {}
    strings: dict[str, int] = {"": 0}
    found: dict[str, list[npt.NDArray[Any]]] = {}
    rows = 0
    for piece in (CommandBuilder().build(), *pieces):
        codes = {n: _given(getattr(piece, n), len(piece), 0) for n in TEXT_COLUMNS}
        texts = _codes(piece.strings, codes.values(), strings)
        columns: dict[str, npt.NDArray[Any]] = {n: texts[codes[n]] for n in TEXT_COLUMNS}
        columns |= {name: getattr(piece, name) for name in ("step", *WIDE_COLUMNS)}
        columns["track"] = _codes(piece.tracks, [piece.track], tracks)[piece.track]
        columns["pipeline"] = _given(piece.pipeline, len(piece), NO_PIPELINE)
        columns["flows"] = piece.flows + rows
        rows += len(piece)
        for name, column in columns.items():
            found.setdefault(name, []).append(column)
    joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in found.items()}
    order = np.argsort(joined["start_ns"], kind="stable")
    position = np.empty(rows, dtype=np.int64)
    position[order] = np.arange(rows)
    flows = position[joined.pop("flows")]
    joined = {name: column[order] for name, column in joined.items()}
    return CommandColumns(
        tracks=tuple(tracks),
        strings=tuple(strings),
        command_index=number_within(joined["layer"]),
        flows=flows,
        **joined,
    )


def take_commands(columns: CommandColumns, rows: npt.NDArray[np.int64]) -> CommandColumns:
    """The commands in `rows`, ascending int64 [k], with the flows between them."""
    position = np.full(len(columns), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    flows = position[columns.flows]
    taken: dict[str, Any] = {"flows": flows[(flows >= 0).all(axis=1)]}
    for column in fields(columns):
        values = getattr(columns, column.name)
        if column.name != "flows" and isinstance(values, np.ndarray):
            taken[column.name] = values[rows]
    return replace(columns, **taken)


def _codes(values: Sequence[_Known], used_in: Iterable[Int32s], known: dict[_Known, int]) -> Int32s:
    """The number of each of `values` in `known`; values that are used and not `known` are added."""
    codes = np.zeros(len(values), dtype=np.int32)
    for code in np.unique(np.concatenate(list(used_in))).tolist():
        codes[code] = known.setdefault(values[code], len(known))
    return codes


def _given(column: Int32s | None, rows: int, absent: int) -> Int32s:
    """The column, or `absent` for all rows if it is None."""
    return np.full(rows, absent, dtype=np.int32) if column is None else column


# --- A Perfetto trace of any producer → columns: slices paired and interned names resolved.
# `Unpacker` bounds the unpacked size of a packed one.


_Piece = TypeVar("_Piece", Call, Span)
_MAPPED = 1 << 20  # files from this size on are mapped, not read

_CALL_DURATION, _SPAN_DURATION = 7, 5  # indices in the core's rows

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
    """Read one trace file. A cut file is read up to its last whole packet, and a drop says so.

    Files from 1 MiB on are mapped into memory, which saves a copy: they must not be truncated
    meanwhile. Raises InputError if the file cannot be opened or is no Perfetto trace.
    """
    try:
        with opened(path) as file:
            size = size_of(file)
            if size == 0:
                raise InputError(f"{path} is empty: record or copy it again")
            if size < _MAPPED:
                return read_bytes(file.read(size), str(path))
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
        return structs.replace(trace, drops=(drop, *others))


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
        calls=tuple(sorted(_closed(calls, slices, counters), key=lambda one: one.index)),
        spans=tuple(sorted(_closed(spans, slices, counters), key=_outer_first)),
        counters=counters,
        flows=np.stack([flows["source"], flows["target"]], axis=1).astype(np.int64),
        drops=tuple(_drops(found, slices, size, Path(where).name)),
        instants=found["instants"],
        args=ArgColumns(**found["args"]),
    )


_ABSENT = dict.fromkeys(("depth", "op_type", "role", "shapes", "stage", "kernel", "module"), 0)


def _slices(found: Mapping[str, Any]) -> SliceColumns:
    """The columns of the core. A column without values becomes one value, repeated without taking
    memory."""
    rows = len(found["start_ns"])
    columns = dict(found)
    if len(found["layer"]) < rows:
        columns["layer"] = found["name"]  # the name is the layer of every slice
    for name, column in columns.items():
        if len(column) < rows:
            columns[name] = same(column.dtype.type(_ABSENT.get(name, -1)), rows)
    return SliceColumns(**columns)


def _named(track: TrackRow) -> TrackRow:
    """The track with its own name; threads and processes are named by their own names."""
    name = track.name
    if track.kind == "thread":
        name = track.thread or name or f"thread {track.tid}"
    elif track.kind == "process":
        name = track.process or name or f"process {track.pid}"
    return structs.replace(track, name=name or f"track {track.uuid}")


def _closed(
    pieces: Sequence[_Piece], slices: SliceColumns, counters: CounterColumns
) -> Iterator[_Piece]:
    """Calls or spans with an end: one that never ended gets that of the last event of its call, or
    of events outside calls."""
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

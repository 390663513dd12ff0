"""Load a bundle or a Perfetto trace into a `Run`.

    run = load_bundle(Path("traces/20261121-093000-sd3"))
    run = load_trace(Path("any.pb"))         # any Perfetto trace: its slices are commands

What was executed but is not in the files is in `run.drops`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.errors import InputError, MissingPackageError
from profiler.run.columns import (
    ARGS,
    CATEGORY,
    COMMANDS,
    COUNTERS,
    FLOWS,
    ROLE,
    TEXT,
    Column,
    empty,
    frame_of_calls,
    frame_of_spans,
)
from profiler.run.intervals import rows_of_calls
from profiler.run.run import Run, sound, track_names
from profiler.text import Note
from profiler.trace.bundle import HOST_NAME, MERGED_NAME
from profiler.trace.columns import (
    ARG_KINDS,
    TEXT_COLUMNS,
    WIDE_COLUMNS,
    ArgColumns,
    CounterColumns,
    Int32s,
    SliceColumns,
    TraceColumns,
    read_trace,
    same,
)
from profiler.trace.events import (
    NO_RANK,
    UNKNOWN,
    Call,
    Drop,
    DropKind,
    DropReason,
    Span,
    rank_of_device,
)
from profiler.trace.manifest import MANIFEST_NAME, Manifest, RunInfo, read_manifest
from profiler.trace.manifest_fields import Shortened

# --- The commands of several traces as one frame, a column at a time.
#
# Each trace has its columns as the decoder left them: numbers, or codes of a table of texts. A
# column of the frame is made of all of them at once, so that neither a frame a trace nor a second
# copy is made, and what it was made from is freed before the next one.


_VARIES = object()
_ROWS = "start_ns"  # the column that has a value for each row, whatever it says


class Part(Struct, frozen=True, eq=False):
    """A column of n commands: numbers, or codes (int32, none negative) of the rows of a `table`. An
    array without strides has one value for all commands."""

    values: npt.NDArray[Any]
    table: pl.Series | None = None


Parts = dict[str, Part]
"""The declared columns of one trace's commands, of which all have the same length."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commands_of(traces: Sequence[Parts]) -> pl.DataFrame:
    """Return the commands of all `traces`, one trace after the other, and empty the traces. As many
    columns are made at a time as there are cores. A column with a single value takes no memory."""
    filled = [parts for parts in traces if len(parts[_ROWS].values)]
    if not filled:
        return empty(COMMANDS)

    def made(column: Column) -> pl.Series | pl.Expr:
        return _joined_column(column, [parts.pop(column.name) for parts in filled])

    with ThreadPoolExecutor(cores()) as pool:
        columns = list(pool.map(made, COMMANDS))
    return _frame({column.name: one for column, one in zip(COMMANDS, columns, strict=True)})


def _frame(columns: dict[str, pl.Series | pl.Expr]) -> pl.DataFrame:
    """A frame of `columns`: series, at least one, and expressions of single values for all rows."""
    series = {name: c for name, c in columns.items() if isinstance(c, pl.Series)}
    values = {name: c for name, c in columns.items() if isinstance(c, pl.Expr)}
    frame = pl.DataFrame(series)
    return frame.with_columns(**values)[list(columns)] if values else frame


def _joined_column(column: Column, pieces: list[Part]) -> pl.Series | pl.Expr:
    """Return one column of all traces, a piece of each, and empty `pieces`."""
    value = _VARIES if column.name == _ROWS else _one_value(pieces)
    if value is not _VARIES:
        unknown = column.nullable and isinstance(value, int) and value < 0
        return pl.lit(None if unknown else value, dtype=column.dtype)
    if pieces[0].table is not None:
        return texts_of(pieces[0] if len(pieces) == 1 else _with_one_table(pieces))
    arrays = [piece.values for piece in pieces]
    pieces.clear()
    joined = arrays[0] if len(arrays) == 1 else _join_arrays(arrays)
    series = pl.Series(np.ascontiguousarray(joined))
    return _known(series) if column.nullable else series


def _join_arrays(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The arrays, which are freed one by one, behind each other."""
    found, first = np.empty(sum(map(len, arrays)), dtype=arrays[0].dtype), 0
    while arrays:
        array = arrays.pop(0)
        found[first : first + len(array)] = array
        first += len(array)
    return found


def _with_one_table(pieces: list[Part]) -> Part:
    """Join parts with a table each into one, whose table is all of theirs, and free them one by
    one."""
    tables = [piece.table for piece in pieces if piece.table is not None]
    codes = np.empty(sum(len(piece.values) for piece in pieces), dtype=np.int32)
    first = base = 0
    for table in tables:
        values = pieces.pop(0).values
        np.add(values, np.int32(base), out=codes[first : first + len(values)])
        first, base = first + len(values), base + len(table)
    return Part(codes, pl.concat(tables, rechunk=True))


def _one_value(pieces: Sequence[Part]) -> Any:
    """Return the single value of all commands in all pieces; `_VARIES` if there is none."""
    value = _VARIES
    for piece in pieces:
        if piece.values.strides != (0,):
            return _VARIES
        code = piece.values[0].item()
        own = code if piece.table is None else piece.table[code]
        if value is not _VARIES and own != value:
            return _VARIES
        value = own
    return value


def texts_of(piece: Part) -> pl.Series:
    """Return the text of each command of a part with a table."""
    assert piece.table is not None
    if piece.values.strides == (0,):
        return piece.table.new_from_index(int(piece.values[0]), len(piece.values))
    return piece.table[pl.Series(piece.values.view(np.uint32))]  # polars' own indices: no cast


def _known(series: pl.Series) -> pl.Series:
    """Return amounts with null for -1 (unknown)."""
    least: Any = series.min()
    return series.set(series < 0, None) if least < 0 else series


def with_calls(parts: Parts, calls: pl.DataFrame) -> None:
    """Set pipeline call, stage and step of commands to those of their calls; host work keeps its
    own."""
    of_command = parts["call"].values
    if not len(calls) or not len(of_command):
        return
    one = of_command.strides == (0,)  # as in a file of a bundle
    rows = rows_of_calls(pl.Series(of_command[:1] if one else of_command), calls["call"])
    own = rows < 0
    if one and own[0]:
        return
    if one:
        rows, own = same(rows[0], len(of_command)), own[:0]
    for name in ("pipeline", "step", "stage"):
        parts[name] = _from_calls(parts[name], calls[name], rows, own)


def _from_calls(
    part: Part, of_call: pl.Series, rows: npt.NDArray[Any], own: npt.NDArray[np.bool_]
) -> Part:
    """Return a column of commands with their calls' values, by `rows` of the calls. Commands for
    which `own` is true keep their values of `part`."""
    keeps = bool(own.any())
    if part.table is None:
        numbers = of_call.to_numpy()
        if rows.strides == (0,):
            return Part(same(numbers[rows[0]], len(rows)))
        return Part(np.where(own, part.values, numbers[rows]) if keeps else numbers[rows])
    if not keeps:
        return Part(rows, of_call)
    codes = np.where(own, part.values + np.int32(len(of_call)), rows)
    return Part(codes, pl.concat([of_call, part.table]))


# --- One trace as frames: the columns of the reader, with texts and tracks in the place of numbers.


_Rows = npt.NDArray[np.int64]
_TEXT_COLUMNS = ("stage", "layer", "module", "op_type", "kernel", "shapes")
_NUMBERS = ("pipeline", "step", "command_index", *WIDE_COLUMNS)
_NO_COUNTERS, _NO_FLOWS = empty(COUNTERS), empty(FLOWS)  # made once: most traces have none
_FEW = 1 << 12  # strings: taking all of them is faster than looking which are used


class TraceFrames(Struct, frozen=True, eq=False):
    """One trace as frames. `counters`, `flows` and `args` (None if there are none) have the
    declared columns, in which rows of commands count from 0; `commands` are the columns of `rows`
    commands in order of call and start. Stage and step of commands are as in the trace: only host
    work has its own."""

    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    drops: tuple[Drop, ...]
    rows: int
    commands: Parts
    counters: pl.DataFrame
    flows: pl.DataFrame
    args: pl.LazyFrame | None


def trace_frames(trace: TraceColumns) -> TraceFrames:
    """The frames of `trace`, and free its columns one by one if the caller keeps no reference."""
    tracks, strings = track_names(trace.tracks), trace.strings
    counters = _counters_frame(trace, tracks)
    order = _order(trace.slices.call)
    flows = _flows_frame(trace, order)
    args = _args_frame(trace.args, strings, order)
    calls, spans, drops = trace.calls, trace.spans, trace.drops
    columns = asdict(trace.slices)
    del trace
    rows = len(columns["start_ns"])
    commands = _commands(columns, strings, tracks, order)
    return TraceFrames(calls, spans, drops, rows, commands, counters, flows, args)


def _order(call: npt.NDArray[np.int32]) -> _Rows | None:
    """The order of rows by call, rows without a call last; None if they are already in order."""
    if not len(call) or call.strides == (0,):
        return None
    keys = call.view(np.uint32)  # -1 becomes the largest
    if bool((keys[1:] >= keys[:-1]).all()):
        return None
    values, codes = np.unique(keys, return_inverse=True)
    narrow = codes.astype(np.uint16) if len(values) <= 1 << 16 else codes  # sorted by radix
    return np.argsort(narrow, kind="stable")


def _positions(order: _Rows) -> _Rows:
    """Return the position of each row after sorting."""
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.arange(len(order))
    return positions


def _commands(
    columns: dict[str, npt.NDArray[Any]],
    strings: Sequence[str],
    tracks: tuple[list[str], list[str]],
    order: _Rows | None,
) -> Parts:
    """Return the declared columns of the slices in `columns`, and empty `columns`."""
    for unused in ("name", "depth", "parent"):
        del columns[unused]
    plain = pl.Series(strings, dtype=pl.String)
    texts = _text_table(plain, [columns[name] for name in _TEXT_COLUMNS])
    known = texts.set(pl.Series(np.arange(len(texts)) == 0), None)  # 0 is ""
    tables = {name: texts if name == "layer" else known for name in _TEXT_COLUMNS}
    unnumbered = bool((columns["command_index"] < 0).any())

    def taken(name: str) -> npt.NDArray[Any]:
        column = columns.pop(name)
        return column if order is None or column.strides == (0,) else column[order]

    found = _on_tracks(taken("track"), tracks)
    found["call"] = Part(_narrowed(taken("call")))
    found["category"] = _closed(_narrowed(taken("category")), plain, CATEGORY, "other")
    found["role"] = _closed(taken("role"), plain, ROLE, None)
    found |= {name: Part(taken(name), table) for name, table in tables.items()}
    found |= {name: Part(taken(name)) for name in _NUMBERS}
    found["recorded_ns"] = Part(same(np.int64(UNKNOWN), len(found[_ROWS].values)))
    if unnumbered:
        found["command_index"] = _number_commands(found)
    return found


def _closed(
    codes: npt.NDArray[Any], strings: pl.Series, allowed: pl.Enum, other: str | None
) -> Part:
    """Return a column of words of a closed list, with `other` for words that are not in it."""
    if len(codes) and codes.strides == (0,):
        strings, codes = strings.gather([codes[0].item()]), same(np.int32(0), len(codes))
    table = strings.cast(allowed, strict=False)
    return Part(codes, table if other is None else table.fill_null(other))


def _on_tracks(track: npt.NDArray[np.int32], tracks: tuple[list[str], list[str]]) -> Parts:
    """Return the columns device, track and rank of the commands."""
    found: Parts = {}
    for name, texts, table in zip(("device", "track"), tracks, _tables(*tracks), strict=True):
        found[name] = Part(_narrowed(track, texts), table)
    ranks = [rank_of_device(device) for device in tracks[0]]
    number = np.array(ranks or [NO_RANK], dtype=np.int32)
    one = len(set(ranks)) <= 1
    found["rank"] = Part(same(number[0], len(track)) if one else number[track])
    return found


def _narrowed(codes: npt.NDArray[Any], texts: Sequence[str] = ()) -> npt.NDArray[Any]:
    """Return the codes, without memory if all are equal or stand for one text. If `texts` are many
    compared with the rows, only the codes are compared."""
    if not len(codes) or codes.strides == (0,):
        return codes
    one = 64 * len(texts) < len(codes) and len(set(texts)) == 1
    if one or (codes[0] == codes[-1] and bool((codes == codes[0]).all())):
        return same(codes[0], len(codes))
    return codes


def _number_commands(parts: Parts) -> Part:
    """Command indices, in which commands without one count by start within their call and layer."""
    series = {name: pl.Series(parts[name].values) for name in ("call", "command_index")}
    frame = pl.DataFrame({**series, "layer": texts_of(parts["layer"])})
    order = pl.int_range(pl.len(), dtype=pl.Int32).over("call", "layer")
    known = pl.col("command_index") >= 0
    numbers = frame.select(pl.when(known).then("command_index").otherwise(order))
    return Part(numbers.to_series().to_numpy())


def _text_table(strings: pl.Series, columns: Sequence[npt.NDArray[np.int32]]) -> pl.Series:
    """Return the strings as a categorical column. If there are many, null for those that `columns`
    do not use: a trace may hold millions."""
    if len(strings) <= _FEW:
        return strings.cast(TEXT)
    used = np.zeros(len(strings), dtype=np.bool_)
    for column in columns:
        used[column[:1] if column.strides == (0,) else column] = True
    return strings.set(pl.Series(~used), None).cast(TEXT)


def _tables(*texts: Sequence[str]) -> Iterator[pl.Series]:
    """Yield lists of texts as categorical columns, with null for "" (no text)."""
    for column in texts:
        yield pl.Series([text or None for text in column], dtype=pl.String).cast(TEXT)


def _counters_frame(trace: TraceColumns, tracks: tuple[list[str], list[str]]) -> pl.DataFrame:
    """Return the counter samples in order of call, samples without a call last."""
    counters = trace.counters
    if not len(counters.time_ns):
        return _NO_COUNTERS
    tables = _tables(*tracks, [track.unit for track in trace.tracks])
    texts = [texts_of(Part(counters.track, table)) for table in tables]
    columns = (counters.call, *texts, counters.time_ns, counters.value)
    frame = pl.DataFrame(dict(zip(_NO_COUNTERS.columns, columns, strict=True)))
    order = _order(counters.call)
    return frame if order is None else frame[order]


def _flows_frame(trace: TraceColumns, order: _Rows | None) -> pl.DataFrame:
    if not len(trace.flows):
        return _NO_FLOWS
    rows = trace.flows if order is None else _positions(order)[trace.flows]
    return pl.DataFrame({"source": rows[:, 0].copy(), "target": rows[:, 1].copy()})


def _args_frame(
    args: ArgColumns, strings: Sequence[str], order: _Rows | None
) -> pl.LazyFrame | None:
    """Return arguments in order of command; their values become text when the frame is
    collected."""
    if not len(args):
        return None
    command = args.slice if order is None else _positions(order)[args.slice]
    key = _text_table(pl.Series(strings, dtype=pl.String), [args.key]).gather(args.key)
    columns = {"command": command, "key": key, "kind": args.kind, "value": args.value}
    frame = pl.DataFrame(columns)
    if order is not None:
        frame = frame.sort("command", maintain_order=True)
    value = pl.struct("kind", "value").map_batches(
        partial(_arg_values, strings), return_dtype=pl.String(), is_elementwise=True
    )
    return frame.lazy().select(pl.col("command").cast(pl.Int64), "key", value=value)


def _arg_values(strings: Sequence[str], args: pl.Series) -> pl.Series:
    """The value of each argument as text, null for null."""
    kinds, values = (args.struct.field(name).to_numpy() for name in ("kind", "value"))
    texts: list[pl.Series] = [pl.Series([], dtype=pl.String)]
    rows: list[_Rows] = [np.zeros(0, dtype=np.int64)]
    for kind in np.unique(kinds).tolist():
        rows.append(np.flatnonzero(kinds == kind))
        texts.append(_as_text(ARG_KINDS[kind], values[rows[-1]], strings))
    return pl.concat(texts).gather(_positions(np.concatenate(rows)))


def _as_text(kind: str, values: npt.NDArray[np.int64], strings: Sequence[str]) -> pl.Series:
    if kind in {"string", "json"}:
        return pl.Series(strings, dtype=pl.String).gather(values)
    if kind == "null":
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(values))
    if kind == "real":
        return pl.Series(values.view(np.float64)).cast(pl.String)
    if kind in {"uint", "pointer"}:
        return pl.Series(values.view(np.uint64)).cast(pl.String)
    return pl.Series(values != 0 if kind == "bool" else values).cast(pl.String)


# --- Small traces put together before they become frames: what Polars takes for a frame, whatever
# is in it, is more than the work on some thousand rows. A bundle has a file a call.


_TEXTS = (*TEXT_COLUMNS, "category")


def together(traces: list[TraceColumns]) -> list[TraceColumns]:
    """Join the `traces` into one, with the same commands in the same order. They stay as they are
    if one has arguments, commands without a number, or calls that are not behind those of the trace
    before."""
    if len(traces) < 2 or any(
        len(trace.args) or (trace.slices.command_index < 0).any() for trace in traces
    ):
        return traces
    calls = ([trace.slices.call for trace in traces], [trace.counters.call for trace in traces])
    return [_join_traces(traces)] if all(map(_in_order, calls)) else traces


def _in_order(columns: Sequence[Int32s]) -> bool:
    """Whether calls ascend within each trace and from trace to trace, none (-1) last."""
    calls = [column.view(np.uint32) for column in columns if len(column)]
    within = all(bool((call[1:] >= call[:-1]).all()) for call in calls)
    return within and all(before[-1] < behind[0] for before, behind in pairwise(calls))


def _join_traces(traces: Sequence[TraceColumns]) -> TraceColumns:
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    codes = [np.array([known[text] for text in t.strings], dtype=np.int32) for t in traces]
    rows, tracks = _offsets(len(t.slices) for t in traces), _offsets(len(t.tracks) for t in traces)
    firsts = {"track": tracks, "parent": rows}
    columns = {
        name: _repeated_column(name, traces, codes, firsts.get(name))
        for name in SliceColumns.__struct_fields__
    }
    samples = [trace.counters for trace in traces]
    counters = {
        name: np.concatenate([getattr(one, name) for one in samples])
        for name in CounterColumns.__struct_fields__
    }
    samples_of = [len(one.track) for one in samples]
    counters["track"] += np.repeat(np.array(tracks, dtype=np.int32), samples_of)
    return replace(
        traces[0],
        tracks=tuple(
            row if row.parent < 0 else replace(row, parent=row.parent + first)
            for trace, first in zip(traces, tracks, strict=True)
            for row in trace.tracks
        ),
        strings=tuple(known),
        slices=SliceColumns(**columns),
        calls=tuple(chain.from_iterable(trace.calls for trace in traces)),
        spans=tuple(chain.from_iterable(trace.spans for trace in traces)),
        counters=CounterColumns(**counters),
        flows=np.concatenate([t.flows + at for t, at in zip(traces, rows, strict=True)]),
        drops=tuple(chain.from_iterable(trace.drops for trace in traces)),
        instants=np.concatenate([t.instants + at for t, at in zip(traces, rows, strict=True)]),
    )


def _offsets(lengths: Iterable[int]) -> list[int]:
    """Return the offset of each piece."""
    return list(accumulate(lengths, initial=0))[:-1]


def _repeated_column(
    name: str, traces: Sequence[TraceColumns], codes: Sequence[Int32s], firsts: Sequence[int] | None
) -> npt.NDArray[Any]:
    """Return a column of all traces: texts recoded by `codes`, tracks and rows shifted by `firsts`.
    A value that is the same throughout is repeated without taking memory."""
    pieces = [getattr(trace.slices, name) for trace in traces]
    if name in _TEXTS:
        pieces = [
            same(code[piece[0]], len(piece))
            if len(piece) and piece.strides == (0,)
            else code[piece]
            for code, piece in zip(codes, pieces, strict=True)
        ]
    elif firsts is not None:
        pieces = [np.where(p < 0, p, p + first) for p, first in zip(pieces, firsts, strict=True)]
    filled = [piece for piece in pieces if len(piece)]
    if filled and all(p.strides == (0,) and p[0] == filled[0][0] for p in filled):
        return same(filled[0][0], sum(map(len, filled)))
    return np.concatenate(pieces)


# --- Bundle or single trace → `Run`.


_TOGETHER = 1 << 21  # bytes of small files that become one trace


def load_bundle(directory: Path) -> Run:
    """Load the bundle in `directory`: every call file once, then `host.pb`, on all cores."""
    manifest = read_manifest(directory / MANIFEST_NAME)
    found: dict[tuple[str, str, str], Drop] = {}  # besides those in the manifest
    sizes = {entry.file: entry.bytes for entry in manifest.calls}
    sizes[HOST_NAME] = manifest.files.get(HOST_NAME, UNKNOWN)
    traces: list[TraceFrames] = []
    for part, lost in _read_parts(directory, list(_batches(sizes))):
        traces.extend(part)
        part.clear()
        for drop in lost:
            found.setdefault((drop.kind, drop.where, drop.unit), drop)
    for drop in _copy_drops(directory, manifest):
        found[drop.kind, drop.where, drop.unit] = drop
    drops = manifest.info.drops
    for drop in drops:
        found.pop((drop.kind, drop.where, drop.unit), None)
    calls = _calls(manifest, traces)
    run = _assemble(manifest.run_id, traces, manifest.info, calls, (*drops, *found.values()))
    return sound(run, directory)


def _batches(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The files with their sizes in their order, small ones together."""
    batch: dict[str, int] = {}
    batched = 0  # bytes
    for name, size in sizes.items():
        if batch and batched + size > _TOGETHER:
            yield batch
            batch, batched = {}, 0
        batch[name] = size
        batched += max(size, 0)
    yield batch


def _read_parts(
    directory: Path, batches: Sequence[Mapping[str, int]]
) -> Iterable[tuple[list[TraceFrames], list[Drop]]]:
    """Return the result of `_read_batch` for each batch, in order; the largest are started first.

    Each thread frees what its frames do not need before it reads the next batch.
    """
    rows, pool = range(len(batches)), ThreadPoolExecutor(min(cores(), len(batches)))
    try:
        largest_first = sorted(rows, key=lambda row: sum(batches[row].values()), reverse=True)
        parts = {row: pool.submit(_read_batch, directory, batches[row]) for row in largest_first}
        return [parts[row].result() for row in rows]
    finally:
        pool.shutdown(cancel_futures=True)


def _read_batch(directory: Path, sizes: Mapping[str, int]) -> tuple[list[TraceFrames], list[Drop]]:
    """Return the files of a batch as frames, and the data they lack."""
    parts = [_read_part(directory / name, size) for name, size in sizes.items()]
    lost = [drop for _, drops in parts for drop in drops]
    traces = together([trace for trace, _ in parts if trace is not None])
    parts.clear()
    return [trace_frames(traces.pop(0)) for _ in range(len(traces))], lost  # no trace is kept


def _read_part(path: Path, size: int) -> tuple[TraceColumns | None, list[Drop]]:
    """Read one file of a bundle, and determine what it lacks against its `size` in the manifest."""
    name = path.name
    if not path.is_file():
        detail = Note.of(DropReason.NOT_THERE, file=name)
        return None, [Drop(DropKind.MISSING_FILE, name, 1, "files", detail)]
    try:
        trace = read_trace(path)
    except MissingPackageError:
        raise
    except InputError as error:
        detail = Note.of(DropReason.ERROR, error=str(error))
        return None, [Drop(DropKind.TRUNCATED_FILE, name, max(size, UNKNOWN), "bytes", detail)]
    drops = list(trace.drops)
    found = path.stat().st_size
    if found < size and all(drop.kind != DropKind.TRUNCATED_FILE for drop in drops):
        detail = Note.of(DropReason.CUT_SHORT, at=found, size=size)
        drops.append(Drop(DropKind.TRUNCATED_FILE, name, size - found, "bytes", detail))
    elif found > size != UNKNOWN:
        detail = Note.of(DropReason.LARGER_THAN_RECORDED, size=found, recorded=size)
        drops.append(Drop(DropKind.CHANGED_FILE, name, found - size, "bytes", detail))
    return trace, drops


def _copy_drops(directory: Path, manifest: Manifest) -> Iterator[Drop]:
    """Yield how `merged.pb`, which is not read, differs in size from the manifest; nothing if the
    file was removed."""
    recorded, merged = manifest.files.get(MERGED_NAME), directory / MERGED_NAME
    size = merged.stat().st_size if merged.is_file() else recorded
    if recorded is not None and size is not None and size != recorded:
        detail = Note.of(DropReason.COPY_DIFFERS, size=size, recorded=recorded)
        yield Drop(DropKind.DAMAGED_COPY, MERGED_NAME, abs(recorded - size), "bytes", detail)


def load_trace(path: Path) -> Run:
    """Load a single Perfetto trace of any producer; slices that are no call are commands."""
    trace = trace_frames(read_trace(path))
    info = RunInfo(producer="profile-sd3" if trace.calls or trace.spans else "foreign")
    calls = {call.index: call for call in reversed(trace.calls)}
    drops = list(trace.drops)
    if twice := len(trace.calls) - len(calls):
        detail = Note.of(DropReason.CALLS_TWICE)
        drops.append(Drop(DropKind.DROPPED_EVENTS, path.name, twice, "calls", detail))
    return sound(_assemble(path.name, [trace], info, list(calls.values()), drops), path)


def _calls(manifest: Manifest, traces: Sequence[TraceFrames]) -> list[Call]:
    """Return the calls as their files have them, or as the manifest does if the file is lost."""
    found = {call.index: call for trace in traces for call in trace.calls}
    return [found.get(entry.call.index, entry.call) for entry in manifest.calls]


def _assemble(
    run_id: str,
    traces: list[TraceFrames],
    info: RunInfo,
    calls: Sequence[Call],
    drops: Sequence[Drop],
) -> Run:
    """The run of these traces, which are given up: their commands become those of the run a column
    at a time."""
    # The rank of all, if the run is of one rank of a job.
    alone = info.job.ranks[0].rank if info.job is not None and len(info.job.ranks) == 1 else NO_RANK
    calls_frame = frame_of_calls(calls, alone)
    starts = list(zip(traces, _offsets(trace.rows for trace in traces), strict=True))
    offset = (trace.flows.select(pl.all() + first) for trace, first in starts if len(trace.flows))
    command = pl.col("command")
    args = [one.args.with_columns(command + first) for one, first in starts if one.args is not None]
    counters = _join_frames((trace.counters for trace in traces), COUNTERS)
    flows = _join_frames(offset, FLOWS)
    spans = frame_of_spans([span for trace in traces for span in trace.spans])
    commands = [trace.commands for trace in traces]
    for parts in commands:
        if alone != NO_RANK:
            parts["rank"] = Part(same(np.int32(alone), len(parts["rank"].values)))
        with_calls(parts, calls_frame)
    starts.clear()
    traces.clear()
    return Run(
        run_id=run_id,
        calls=calls_frame,
        commands=_as_recorded(commands_of(commands), info.shortened),
        counters=counters,
        flows=flows,
        spans=spans,
        args=pl.concat(args) if args else empty(ARGS).lazy(),
        info=info,
        drops=tuple(drops),
    )


def _as_recorded(commands: pl.DataFrame, shortened: Sequence[Shortened]) -> pl.DataFrame:
    """Return the commands with the length in the imported file, `recorded_ns`, of those that were
    `shortened`."""
    if not shortened:
        return commands
    known = {
        (one.device, one.track, one.start_ns, one.duration_ns): one.recorded_ns for one in shortened
    }
    starts = pl.Series([one.start_ns for one in shortened])
    here = commands.with_row_index("row").filter(pl.col("start_ns").is_in(starts.implode()))
    recorded = np.full(len(commands), UNKNOWN, dtype=np.int64)
    for row, *key in here.select("row", "device", "track", "start_ns", "duration_ns").rows():
        recorded[row] = known.get(tuple(key), UNKNOWN)
    return commands.with_columns(recorded_ns=_known(pl.Series(recorded)))


def _join_frames(frames: Iterable[pl.DataFrame], columns: Sequence[Column]) -> pl.DataFrame:
    """Concatenate the frames without copying their rows."""
    return pl.concat([frame for frame in frames if len(frame)] or [empty(columns)], rechunk=False)

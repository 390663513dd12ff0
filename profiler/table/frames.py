"""One trace as frames: the columns of the reader, with texts and tracks in the place of numbers.

No row is touched by Python: a column of text is one gather from a short table, numbers are taken
over as they are, and a column that says the same of every slice takes neither time nor memory until
somebody asks for its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.events import NO_RANK, Call, Drop, Span, rank_of_device
from profiler.table.columns import CATEGORY, COMMANDS, COUNTERS, FLOWS, ROLE, TEXT, empty
from profiler.table.tracks import track_names
from profiler.trace.columns import ARG_KINDS, ArgColumns, SliceColumns, TraceColumns

__all__ = ["TraceFrames", "trace_frames"]

_Rows = npt.NDArray[np.int64]
_TEXT_COLUMNS = ("stage", "layer", "module", "op_type", "kernel", "shapes")
_NO_COUNTERS, _NO_FLOWS = empty(COUNTERS), empty(FLOWS)  # made once: most traces have none
_FEW = 1 << 12  # strings: taking all of them is faster than looking which are used


class TraceFrames(Struct, frozen=True, eq=False):
    """One trace. `commands`, `counters`, `flows` and `args` (None: there are none) have the
    declared columns, in which rows of commands count from 0; commands are in order of call and
    start. Stage and step of commands are as the trace has them: only host work has its own."""

    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    drops: tuple[Drop, ...]
    commands: pl.DataFrame
    counters: pl.DataFrame
    flows: pl.DataFrame
    args: pl.LazyFrame | None


def trace_frames(trace: TraceColumns) -> TraceFrames:
    """The frames of `trace`. What nobody else refers to is freed on the way, column by column."""
    tracks, strings = track_names(trace.tracks), trace.strings
    units = [track.unit for track in trace.tracks]
    counters = _counters_frame(trace, tracks, units)
    order = _order(trace.slices.call)
    flows = _flows_frame(trace, order)
    args = _args_frame(trace.args, strings, order)
    calls, spans, drops = trace.calls, trace.spans, trace.drops
    columns = {field.name: getattr(trace.slices, field.name) for field in fields(SliceColumns)}
    del trace
    commands = _commands_frame(columns, strings, tracks, order)
    return TraceFrames(calls, spans, drops, commands, counters, flows, args)


def _order(call: npt.NDArray[np.int32]) -> _Rows | None:
    """Rows in order of their call, those of none last; None where they are."""
    if not len(call) or call.strides == (0,):
        return None
    keys = call.view(np.uint32)  # -1 becomes the largest
    if bool((keys[1:] >= keys[:-1]).all()):
        return None
    values, codes = np.unique(keys, return_inverse=True)
    narrow = codes.astype(np.uint16) if len(values) <= 1 << 16 else codes  # sorted by radix
    return np.argsort(narrow, kind="stable")


def _positions(order: _Rows) -> _Rows:
    """Where each row stands after sorting."""
    positions = np.empty(len(order), dtype=np.int64)
    positions[order] = np.arange(len(order))
    return positions


def _commands_frame(
    columns: dict[str, npt.NDArray[Any]],
    strings: Sequence[str],
    tracks: tuple[list[str], list[str]],
    order: _Rows | None,
) -> pl.DataFrame:
    """The declared columns of the slices in `columns`, which is emptied."""
    for unused in ("name", "depth", "parent"):
        del columns[unused]
    texts = _text_table(strings, [columns[name] for name in _TEXT_COLUMNS])
    known = texts.set(pl.Series(np.arange(len(texts)) == 0), None)  # 0 is ""
    devices, names = _tables(*tracks)
    tables = {
        "stage": known,
        "layer": texts,
        "module": known,
        "op_type": known,
        "kernel": known,
        "shapes": known,
        "category": _closed(strings, CATEGORY).fill_null("other"),
        "role": _closed(strings, ROLE),
    }

    def taken(name: str) -> npt.NDArray[Any]:
        column = columns.pop(name)
        return column if order is None or column.strides == (0,) else column[order]

    found: dict[str, pl.Series | pl.Expr] = {}
    track = taken("track")
    found["device"], found["track"] = _gathered(devices, track), _gathered(names, track)
    found["rank"] = _numbers_of(tracks[0], track)
    del track
    for name, table in tables.items():
        found[name] = _gathered(table, taken(name))
    for name in ("bytes_read", "bytes_written", "flops"):
        found[name] = _known(taken(name))
    unnumbered = bool((columns["command_index"] < 0).any())
    for name in ("call", "pipeline", "step", "command_index", "start_ns", "duration_ns"):
        found[name] = _numbers(taken(name))
    frame = _frame({column.name: found[column.name] for column in COMMANDS})
    return _number_commands(frame) if unnumbered else frame


def _frame(columns: Mapping[str, pl.Series | pl.Expr]) -> pl.DataFrame:
    """A frame of columns, of which at least one is a series, and of single values for all rows."""
    series = {name: c for name, c in columns.items() if isinstance(c, pl.Series)}
    values = {name: c for name, c in columns.items() if isinstance(c, pl.Expr)}
    return pl.DataFrame(series).with_columns(**values)[list(columns)]


def _text_table(strings: Sequence[str], columns: Sequence[npt.NDArray[np.int32]]) -> pl.Series:
    """The strings as a categorical column; where they are many, null at those that `columns` do
    not use, of which a trace may hold millions."""
    if len(strings) <= _FEW:
        return pl.Series(strings, dtype=pl.String).cast(TEXT)
    used = np.zeros(len(strings), dtype=np.bool_)
    for column in columns:
        used[column[:1] if column.strides == (0,) else column] = True
    values = [text if use else None for text, use in zip(strings, used.tolist(), strict=True)]
    return pl.Series(values, dtype=pl.String).cast(TEXT)


def _tables(*texts: Sequence[str]) -> Iterator[pl.Series]:
    """Texts, of which "" means none, as categorical columns."""
    for column in texts:
        yield pl.Series([text or None for text in column], dtype=pl.String).cast(TEXT)


def _closed(strings: Sequence[str], allowed: pl.Enum) -> pl.Series:
    """The strings as values of a closed list, null for what is not in it."""
    return pl.Series(strings, dtype=pl.String).cast(allowed, strict=False)


def _gathered(table: pl.Series, codes: npt.NDArray[np.int32]) -> pl.Series | pl.Expr:
    """The rows `codes` of a table; one value where all are the same."""
    if len(codes) and (codes.strides == (0,) or _is_one_value(table, len(codes))):
        return pl.lit(table[int(codes[0])], dtype=table.dtype)
    return table[pl.Series(codes.view(np.uint32))]  # polars' own indices: no cast; no expression


def _numbers_of(devices: Sequence[str], codes: npt.NDArray[np.int32]) -> pl.Series | pl.Expr:
    """The rank of the device of each track, by the tracks' codes."""
    ranks = [rank_of_device(device) for device in devices]
    if len(set(ranks)) <= 1:
        return pl.lit(ranks[0] if ranks else NO_RANK, dtype=pl.Int32)
    return pl.Series(np.array(ranks, dtype=np.int32)[codes])


def _is_one_value(table: pl.Series, rows: int) -> bool:
    """Whether all of a table is one value; not asked of one that is long beside its `rows`."""
    return 64 * len(table) < rows and table.n_unique() == 1


def _known(values: npt.NDArray[np.int64]) -> pl.Series | pl.Expr:
    """Amounts, -1 (unknown) as null."""
    if len(values) and values.strides == (0,) and values[0] < 0:
        return pl.lit(None, dtype=pl.Int64)
    series = pl.Series(values)
    return series.set(series < 0, None)


def _numbers(values: npt.NDArray[Any]) -> pl.Series | pl.Expr:
    if len(values) and values.strides == (0,):
        return pl.lit(values[0])
    return pl.Series(np.ascontiguousarray(values))


def _number_commands(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the commands that carry no command index: by start within their call and layer."""
    order = pl.int_range(pl.len(), dtype=pl.Int32).over("call", "layer")
    known = pl.col("command_index") >= 0
    return frame.with_columns(command_index=pl.when(known).then("command_index").otherwise(order))


def _counters_frame(
    trace: TraceColumns, tracks: tuple[list[str], list[str]], units: Sequence[str]
) -> pl.DataFrame:
    """The samples in order of call, those of none last."""
    counters = trace.counters
    if not len(counters.time_ns):
        return _NO_COUNTERS
    devices, names, unit = _tables(*tracks, units)
    frame = _frame(
        {
            "call": _numbers(counters.call),
            "device": _gathered(devices, counters.track),
            "name": _gathered(names, counters.track),
            "unit": _gathered(unit, counters.track),
            "time_ns": _numbers(counters.time_ns),
            "value": _numbers(counters.value),
        }
    )
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
    """Arguments by command; their values become text when somebody collects them."""
    if not len(args):
        return None
    command = args.slice if order is None else _positions(order)[args.slice]
    frame = pl.DataFrame(
        {
            "command": command,
            "key": _text_table(strings, [args.key]).gather(args.key),
            "kind": args.kind,
            "value": args.value,
        }
    )
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

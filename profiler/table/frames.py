"""One trace as frames: the columns of the reader, with texts and tracks in the place of numbers.

No row is touched by Python. Commands stay as the reader left them, each column of codes beside the
short table of what they stand for: `command_parts` makes the frame of all traces of a run at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.events import NO_RANK, Call, Drop, Span, rank_of_device
from profiler.table.columns import CATEGORY, COUNTERS, FLOWS, ROLE, TEXT, empty
from profiler.table.command_parts import Part, Parts, texts_of
from profiler.table.tracks import track_names
from profiler.trace.columns import ARG_KINDS, ArgColumns, SliceColumns, TraceColumns, same

__all__ = ["TraceFrames", "trace_frames"]

_Rows = npt.NDArray[np.int64]
_TEXT_COLUMNS = ("stage", "layer", "module", "op_type", "kernel", "shapes")
_NUMBERS = (
    "pipeline",
    "step",
    "command_index",
    "start_ns",
    "duration_ns",
    "bytes_read",
    "bytes_written",
    "flops",
)
_NO_COUNTERS, _NO_FLOWS = empty(COUNTERS), empty(FLOWS)  # made once: most traces have none
_FEW = 1 << 12  # strings: taking all of them is faster than looking which are used


class TraceFrames(Struct, frozen=True, eq=False):
    """One trace. `counters`, `flows` and `args` (None: there are none) have the declared columns,
    in which rows of commands count from 0; `commands` are the columns of `rows` commands in order
    of call and start. Stage and step of commands are as the trace has them: only host work has its
    own."""

    calls: tuple[Call, ...]
    spans: tuple[Span, ...]
    drops: tuple[Drop, ...]
    rows: int
    commands: Parts
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
    rows = len(columns["start_ns"])
    commands = _commands(columns, strings, tracks, order)
    return TraceFrames(calls, spans, drops, rows, commands, counters, flows, args)


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


def _commands(
    columns: dict[str, npt.NDArray[Any]],
    strings: Sequence[str],
    tracks: tuple[list[str], list[str]],
    order: _Rows | None,
) -> Parts:
    """The declared columns of the slices in `columns`, which is emptied."""
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
    if unnumbered:
        found["command_index"] = _numbered(found)
    return found


def _closed(
    codes: npt.NDArray[Any], strings: pl.Series, allowed: pl.Enum, other: str | None
) -> Part:
    """Values of a closed list, `other` for what is not in it."""
    if len(codes) and codes.strides == (0,):
        text = strings[codes[0].item()]
        known = pl.Series([text], dtype=pl.String).cast(allowed, strict=False)
        if other is not None and known.null_count():
            known = pl.Series([other], dtype=allowed)
        return Part(same(np.int32(0), len(codes)), known)
    table = strings.cast(allowed, strict=False)
    return Part(codes, table if other is None else table.fill_null(other))


def _on_tracks(track: npt.NDArray[np.int32], tracks: tuple[list[str], list[str]]) -> Parts:
    """Device and track of each command, and the rank of the device."""
    found: Parts = {}
    for name, texts, table in zip(("device", "track"), tracks, _tables(*tracks), strict=True):
        found[name] = Part(_narrowed(track, texts), table)
    ranks = [rank_of_device(device) for device in tracks[0]]
    number = np.array(ranks or [NO_RANK], dtype=np.int32)
    one = len(set(ranks)) <= 1
    found["rank"] = Part(same(number[0], len(track)) if one else number[track])
    return found


def _narrowed(codes: npt.NDArray[Any], texts: Sequence[str] = ()) -> npt.NDArray[Any]:
    """The codes, without memory where all are the same or stand for the same of `texts`; of texts
    that are many beside the rows, only the codes are looked at."""
    if not len(codes) or codes.strides == (0,):
        return codes
    one = 64 * len(texts) < len(codes) and len(set(texts)) == 1
    if one or (codes[0] == codes[-1] and bool((codes == codes[0]).all())):
        return same(codes[0], len(codes))
    return codes


def _numbered(parts: Parts) -> Part:
    """Command indices, in which commands without one count by start within their call and layer."""
    series = {name: pl.Series(parts[name].values) for name in ("call", "command_index")}
    frame = pl.DataFrame({**series, "layer": texts_of(parts["layer"])})
    order = pl.int_range(pl.len(), dtype=pl.Int32).over("call", "layer")
    known = pl.col("command_index") >= 0
    return Part(
        frame.select(pl.when(known).then("command_index").otherwise(order)).to_series().to_numpy()
    )


def _text_table(strings: pl.Series, columns: Sequence[npt.NDArray[np.int32]]) -> pl.Series:
    """The strings as a categorical column; where they are many, null at those that `columns` do
    not use, of which a trace may hold millions."""
    if len(strings) <= _FEW:
        return strings.cast(TEXT)
    used = np.zeros(len(strings), dtype=np.bool_)
    for column in columns:
        used[column[:1] if column.strides == (0,) else column] = True
    return strings.set(pl.Series(~used), None).cast(TEXT)


def _tables(*texts: Sequence[str]) -> Iterator[pl.Series]:
    """Texts, of which "" means none, as categorical columns."""
    for column in texts:
        yield pl.Series([text or None for text in column], dtype=pl.String).cast(TEXT)


def _counters_frame(
    trace: TraceColumns, tracks: tuple[list[str], list[str]], units: Sequence[str]
) -> pl.DataFrame:
    """The samples in order of call, those of none last."""
    counters = trace.counters
    if not len(counters.time_ns):
        return _NO_COUNTERS
    devices, names, unit = _tables(*tracks, units)
    frame = pl.DataFrame(
        {
            "call": counters.call,
            "device": texts_of(Part(counters.track, devices)),
            "name": texts_of(Part(counters.track, names)),
            "unit": texts_of(Part(counters.track, unit)),
            "time_ns": counters.time_ns,
            "value": counters.value,
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
            "key": _text_table(pl.Series(strings, dtype=pl.String), [args.key]).gather(args.key),
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

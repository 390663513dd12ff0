"""Small traces put together before they become frames: what Polars takes for a frame, whatever is
in it, is more than the work on some thousand rows.

    traces = together([read_trace(path) for path in small])

A bundle has a file a call, so that a run of 28 steps is some 40 of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import CounterColumns, Int32s, SliceColumns, TraceColumns, same

__all__ = ["together"]

_TEXTS = (
    "name",
    "category",
    "layer",
    "op_type",
    "role",
    "shapes",
    "stage",
    "kernel",
    "module",
)


def together(traces: list[TraceColumns]) -> list[TraceColumns]:
    """The `traces` as one, with the same commands in the same order; as they are where one has
    what only frames of its own keep apart: arguments, commands without a number, or calls that
    others have too."""
    if len(traces) < 2 or not all(map(_is_plain, traces)):
        return traces
    if not _in_order([trace.slices.call for trace in traces]):
        return traces
    if not _in_order([trace.counters.call for trace in traces]):
        return traces
    return [_joined(traces)]


def _is_plain(trace: TraceColumns) -> bool:
    return bool((trace.slices.command_index >= 0).all()) and not len(trace.args)


def _in_order(columns: Sequence[Int32s]) -> bool:
    """Whether the calls of each trace are in order and behind those of the one before, none (-1)
    last."""
    calls = [column.view(np.uint32) for column in columns if len(column)]
    return all(bool((call[1:] >= call[:-1]).all()) for call in calls) and all(
        before[-1] < behind[0] for before, behind in pairwise(calls)
    )


def _joined(traces: Sequence[TraceColumns]) -> TraceColumns:
    known: defaultdict[str, int] = defaultdict()
    known.default_factory = known.__len__
    codes = [np.array([known[text] for text in t.strings], dtype=np.int32) for t in traces]
    rows, tracks = _offsets(len(t.slices) for t in traces), _offsets(len(t.tracks) for t in traces)
    columns = {
        field.name: _column(field.name, traces, codes, rows, tracks)
        for field in fields(SliceColumns)
    }
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
        counters=_counters(traces, tracks),
        flows=np.concatenate([t.flows + at for t, at in zip(traces, rows, strict=True)]),
        drops=tuple(chain.from_iterable(trace.drops for trace in traces)),
        instants=np.concatenate([t.instants + at for t, at in zip(traces, rows, strict=True)]),
    )


def _offsets(lengths: Iterator[int]) -> list[int]:
    """Where each piece begins."""
    return [0, *np.cumsum([*lengths]).tolist()][:-1]


def _column(
    name: str,
    traces: Sequence[TraceColumns],
    codes: Sequence[Int32s],
    rows: Sequence[int],
    tracks: Sequence[int],
) -> npt.NDArray[Any]:
    """A column of all traces; one value, repeated without taking memory, where it is in each."""
    pieces = [getattr(trace.slices, name) for trace in traces]
    if name in _TEXTS:
        pieces = [_taken(code, piece) for code, piece in zip(codes, pieces, strict=True)]
    elif name == "track":
        pieces = [piece + first for piece, first in zip(pieces, tracks, strict=True)]
    elif name == "parent":
        pieces = [
            np.where(piece < 0, piece, piece + first)
            for piece, first in zip(pieces, rows, strict=True)
        ]
    filled = [piece for piece in pieces if len(piece)]
    if filled and all(p.strides == (0,) and p[0] == filled[0][0] for p in filled):
        return same(filled[0][0], sum(map(len, filled)))
    found: npt.NDArray[Any] = np.concatenate(pieces)
    return found


def _counters(traces: Sequence[TraceColumns], tracks: Sequence[int]) -> CounterColumns:
    samples = [trace.counters for trace in traces]
    on = [one.track + first for one, first in zip(samples, tracks, strict=True)]
    return CounterColumns(
        track=np.concatenate(on),
        call=np.concatenate([one.call for one in samples]),
        time_ns=np.concatenate([one.time_ns for one in samples]),
        value=np.concatenate([one.value for one in samples]),
    )


def _taken(codes: Int32s, piece: Int32s) -> Int32s:
    if len(piece) and piece.strides == (0,):
        return same(codes[piece[0]], len(piece))
    return codes[piece]

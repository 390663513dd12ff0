"""Commands that were built in pieces, as the columns of one table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.events import NO_PIPELINE, Track
from profiler.trace.columns import (
    TEXT_COLUMNS,
    CommandBuilder,
    CommandColumns,
    Int32s,
    number_within,
)

__all__ = ["join_commands", "take_commands"]

_NUMBERS = ("step", "start_ns", "duration_ns", "bytes_read", "bytes_written", "flops")
_Known = TypeVar("_Known", bound=Hashable)


def join_commands(pieces: Iterable[CommandColumns]) -> CommandColumns:
    """All commands in order of their start, those that start together in the order of `pieces`;
    the commands of each layer are numbered anew."""
    tracks: dict[Track, int] = {}
    strings: dict[str, int] = {"": 0}
    found: dict[str, list[npt.NDArray[Any]]] = {}
    rows = 0
    for piece in (CommandBuilder().build(), *pieces):
        codes = {n: _given(getattr(piece, n), len(piece), 0) for n in TEXT_COLUMNS}
        texts = _codes(piece.strings, codes.values(), strings)
        columns: dict[str, npt.NDArray[Any]] = {n: texts[codes[n]] for n in TEXT_COLUMNS}
        columns |= {name: getattr(piece, name) for name in _NUMBERS}
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
    """The number of each of `values` among those that are `known`, which grow by what is used."""
    codes = np.zeros(len(values), dtype=np.int32)
    for code in np.unique(np.concatenate(list(used_in))).tolist():
        codes[code] = known.setdefault(values[code], len(known))
    return codes


def _given(column: Int32s | None, rows: int, absent: int) -> Int32s:
    """A column that may be absent."""
    return np.full(rows, absent, dtype=np.int32) if column is None else column

"""The commands of several traces as one frame, a column at a time.

    frame = commands_of([parts_of_one_trace, parts_of_another])

Each trace has its columns as the decoder left them: numbers, or codes of a table of texts. A column
of the frame is made of all of them at once, so that neither a frame a trace nor a second copy is
made, and what it was made from is freed before the next one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.table.columns import COMMANDS, Column, empty
from profiler.table.command_times import rows_of_calls
from profiler.trace.columns import same

__all__ = ["Part", "Parts", "commands_of", "cores", "texts_of", "with_calls"]

_VARIES = object()
_ROWS = "start_ns"  # the column that has a value for each row, whatever it says


class Part(Struct, frozen=True, eq=False):
    """A column of n commands: numbers, or codes (int32, none negative) of the rows of a `table`. An
    array without strides says the same of every command."""

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
    """The commands of all `traces`, which are emptied, one trace behind the other; as many columns
    as there are cores are made at a time. One that is the same value throughout takes no memory."""
    filled = [parts for parts in traces if len(parts[_ROWS].values)]
    if not filled:
        return empty(COMMANDS)

    def made(column: Column) -> pl.Series | pl.Expr:
        return _column(column, [parts.pop(column.name) for parts in filled])

    with ThreadPoolExecutor(cores()) as pool:
        columns = list(pool.map(made, COMMANDS))
    return _frame({column.name: one for column, one in zip(COMMANDS, columns, strict=True)})


def _frame(columns: dict[str, pl.Series | pl.Expr]) -> pl.DataFrame:
    """A frame of columns, of which at least one is a series, and of single values for all rows."""
    series = {name: c for name, c in columns.items() if isinstance(c, pl.Series)}
    values = {name: c for name, c in columns.items() if isinstance(c, pl.Expr)}
    frame = pl.DataFrame(series)
    return frame.with_columns(**values)[list(columns)] if values else frame


def _column(column: Column, pieces: list[Part]) -> pl.Series | pl.Expr:
    """One column of the traces that `pieces`, which is emptied, are of."""
    value = _VARIES if column.name == _ROWS else _one_value(pieces)
    if value is not _VARIES:
        unknown = column.nullable and isinstance(value, int) and value < 0
        return pl.lit(None if unknown else value, dtype=column.dtype)
    if pieces[0].table is not None:
        return texts_of(pieces[0] if len(pieces) == 1 else _with_one_table(pieces))
    arrays = [piece.values for piece in pieces]
    pieces.clear()
    series = pl.Series(np.ascontiguousarray(arrays[0] if len(arrays) == 1 else _joined(arrays)))
    return _known(series) if column.nullable else series


def _joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The arrays, which are freed one by one, behind each other."""
    found = np.empty(sum(map(len, arrays)), dtype=arrays[0].dtype)
    first = 0
    for _ in range(len(arrays)):
        array = arrays.pop(0)
        found[first : first + len(array)] = array
        first += len(array)
    return found


def _with_one_table(pieces: list[Part]) -> Part:
    """Parts with a table each, which are freed one by one, as one: its table is all of theirs."""
    tables = [piece.table for piece in pieces if piece.table is not None]
    codes = np.empty(sum(len(piece.values) for piece in pieces), dtype=np.int32)
    first = base = 0
    for table in tables:
        values = pieces.pop(0).values
        np.add(values, np.int32(base), out=codes[first : first + len(values)])
        first, base = first + len(values), base + len(table)
    return Part(codes, pl.concat(tables, rechunk=True))


def _one_value(pieces: Sequence[Part]) -> Any:
    """What all of the pieces say of every command; `_VARIES` where they differ."""
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
    """The texts of a part with a table."""
    assert piece.table is not None
    if piece.values.strides == (0,):
        return piece.table.new_from_index(int(piece.values[0]), len(piece.values))
    return piece.table[pl.Series(piece.values.view(np.uint32))]  # polars' own indices: no cast


def _known(series: pl.Series) -> pl.Series:
    """Amounts, -1 (unknown) as null."""
    least: Any = series.min()
    return series.set(series < 0, None) if least < 0 else series


def with_calls(parts: Parts, calls: pl.DataFrame) -> None:
    """Give commands their call's pipeline call, stage and step; host work keeps its own."""
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
    for name in ("pipeline", "step"):
        parts[name] = _from_calls(parts[name], calls[name], rows, own)
    parts["stage"] = _from_calls(parts["stage"], calls["stage"], rows, own)


def _from_calls(
    part: Part, of_call: pl.Series, rows: npt.NDArray[Any], own: npt.NDArray[np.bool_]
) -> Part:
    """The values of calls by `rows`, but for the commands which keep their `own`."""
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

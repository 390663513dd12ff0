"""Answers and tables as text: columns that fit the terminal, and all there is where it is piped.

Names come from traces: what does not print, such as control codes, is shown as escapes.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import polars as pl
from rich.cells import cell_len, set_cell_size

from profiler.plugins import plain_text
from profiler.report.query.tables import SqlTable, tables_of_sql
from profiler.text import count, counted

__all__ = ["answer_lines", "table_lines"]

_GAP = "  "
_LEAST = 12  # columns of text are cut down to so many characters before any is left out
_CELL = 60  # characters of a cell on a terminal
_PLAN = ["explain_key", "explain_value"]
_LOOKED_AT = 1000  # rows that decide how wide columns are where all are shown
_TYPES = {pl.Int32: "INTEGER", pl.Int64: "BIGINT", pl.Float64: "DOUBLE", pl.Boolean: "BOOLEAN"}


def answer_lines(
    batches: Iterable[pl.DataFrame], limit: int | None, width: int | None
) -> Iterator[str]:
    """The rows as lines below a heading: at most `limit` (None: all), within `width` characters
    (None: however wide). What is left out is said in the last lines."""
    rest = iter(batches)
    first = next(rest)
    wanted = _LOOKED_AT if limit is None else limit
    while len(first) <= wanted and (more := next(rest, None)) is not None:
        first = pl.concat([first, more])
    if first.columns == _PLAN:
        yield from (
            _printable(line) for text in first["explain_value"] for line in text.splitlines()
        )
        return
    names = [_printable(name) for name in first.columns]
    right = [dtype.is_numeric() for dtype in first.dtypes]
    rows = list(_rows(first.head(wanted)))
    widths = _widths(names, rows, right, width)
    yield _line(names, widths, right)
    yield _GAP.join("─" * size for size in widths)
    for row in rows:
        yield _line(row, widths, right)
    others = chain([first[wanted:]], rest)
    if limit is None:
        for row in chain.from_iterable(map(_rows, others)):
            yield _line(row, widths, right)
    elif left := sum(map(len, others)):
        yield f"… and {count(left)} more of {count(left + len(rows))} rows: --rows 0 shows all"
    if len(widths) < len(names):
        left_out = ", ".join(names[len(widths) :])
        text = f"… and {counted(len(names) - len(widths), 'more column')}: {left_out}"
        yield from textwrap.wrap(text, width or len(text))


def table_lines(width: int) -> Iterator[str]:
    """Every table that SQL sees, with its columns, their types, units and meanings."""
    for table in tables_of_sql().values():
        yield from textwrap.wrap(f"{table.name}: {table.rows}", width)
        yield from _column_lines(table, width)
        yield ""


def _column_lines(table: SqlTable, width: int) -> Iterator[str]:
    longest = max(len(column.name) for column in table.columns)
    for column in table.columns:
        kind = _type_name(column.dtype)
        null = ", may be null" if column.nullable else ""
        unit = f" ({column.unit})" if column.unit and column.unit != "row" else ""
        head = f"  {column.name:<{longest}}  {kind:<7}  "
        text = f"{column.meaning}{unit}{null}"
        yield from textwrap.wrap(
            text, max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head)
        )


def _type_name(dtype: pl.DataType) -> str:
    """What DuckDB calls a type."""
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.DataType):
        return f"{_type_name(dtype.inner)}[]"
    return _TYPES.get(dtype.base_type(), "VARCHAR")


def _rows(frame: pl.DataFrame) -> Iterator[list[str]]:
    return ([_cell(value) for value in row] for row in frame.iter_rows())


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.1f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, (list, dict)):
        return _printable(json.dumps(value, ensure_ascii=False, default=str))
    return _printable(str(value))


def _printable(text: str) -> str:
    return plain_text(text, _as_escape)


def _as_escape(character: str) -> str:
    return character.encode("unicode_escape", "replace").decode()


def _widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None
) -> list[int]:
    """How wide each column is; of columns that do not fit even when cut, the first ones only."""
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    if width is None:
        return widths
    widths = [min(size, _CELL) for size in widths]
    least = [
        size if at_right else min(size, _LEAST)
        for size, at_right in zip(widths, right, strict=True)
    ]
    kept = 1
    while kept < len(least) and sum(least[: kept + 1]) + len(_GAP) * kept <= width:
        kept += 1
    widths = widths[:kept]
    over = sum(widths) + len(_GAP) * (kept - 1) - width
    while over > 0:
        size, column = max(
            ((size, -at) for at, size in enumerate(widths) if size > least[at]), default=(0, 0)
        )
        if not size:
            break
        widths[-column] -= 1
        over -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    fitted = (
        cell.rjust(size) if at_right else _fitted(cell, size)
        for cell, size, at_right in zip(cells, widths, right, strict=False)
    )
    return _GAP.join(fitted).rstrip()


def _fitted(text: str, size: int) -> str:
    """`text` in `size` characters; of a long one begin and end, which tells module paths apart."""
    taken = cell_len(text)
    if taken <= size:
        return text + " " * (size - taken)
    head = set_cell_size(text, (size - 1) // 3)
    tail = text
    while cell_len(tail) > size - 1 - cell_len(head):
        tail = tail[1:]
    return set_cell_size(f"{head}…{tail}", size)

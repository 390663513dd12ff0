"""Tables of a report for a terminal: the columns that fit, and the rows that are shown at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from profiler.report.model import TableView
from profiler.report.terminal.columns import (
    figures,
    lists,
    numbers,
    percents,
    rates,
    ratios,
    scaled_rates,
    sizes,
    texts,
    time_unit,
    times,
)
from profiler.report.terminal.layout import Drawn, clean, continued, table
from profiler.report.views import worded
from profiler.run.columns import Column
from profiler.text import RATES, RateUnits, count

__all__ = ["drawn", "table_texts"]

_SHRUNK = {"layer": 30, "text": 12, "list": 12, "word": 24}  # characters that a column must keep


def table_texts(view: TableView, width: int) -> Iterator[RenderableType]:
    """The first rows, those of each variant by itself, and how many there are of them."""
    for label, frame in ((view.label, view.printed), *view.variants):
        if view.variants:
            yield Text(f"One row per {label}:", style="dim")
        yield from _grids(view, frame, width)
        if len(frame) > view.shown:
            yield Text(f"{count(view.shown)} of {count(len(frame))} rows", style="dim")


def _grids(view: TableView, frame: pl.DataFrame, width: int) -> Iterator[RenderableType]:
    """One table, or as many as its columns need."""
    columns = drawn(view, frame)
    sets = continued(columns, view.repeated, width) if view.repeated else [columns]
    strong = [*_strong(view, frame)]
    below = [] if view.below is None else frame.head(view.shown)[view.below.name].to_list()
    shown = [clean(text or "") for text in below]
    for some in sets:
        yield table(some, width, strong=strong, below=shown)


def _strong(view: TableView, frame: pl.DataFrame) -> Iterator[int]:
    """The rows that are flagged, and the last of the totals."""
    shown = frame.head(view.shown)
    if view.strong:
        yield from shown[view.strong].arg_true()
    if view.totals is not None:
        yield len(shown) + len(view.totals) - 1


def drawn(view: TableView, frame: pl.DataFrame, *, significant: bool = False) -> list[Drawn]:
    """The columns of a table with the cells of its first rows and its totals, `frame` its own or
    that of a variant; rates are in one unit for all rows, times in that of the table or, where a
    column has only much shorter ones and the table no totals, in its own: headers name it. Times
    have the same number of digits behind the point, or three `significant` ones."""
    rows = frame.head(view.shown)
    values = {
        column.name: [*worded(column, rows[column.name]), *_of_totals(view, column)]
        for column in view.columns
    }
    longest = max((_most(values[c.name]) for c in view.columns if c.kind == "ns"), default=0)
    return [
        _rates(column, values[column.name], frame[column.name], RATES[column.kind])
        if column.kind in RATES
        else _column(
            column,
            values[column.name],
            longest,
            own_unit=view.totals is None,
            significant=significant,
        )
        for column in view.columns
    ]


def _of_totals(view: TableView, column: Column) -> list[Any]:
    return [] if view.totals is None else view.totals[column.name].to_list()


def _most(values: Sequence[int | None]) -> int:
    return max((abs(value) for value in values if value is not None), default=0)


def _column(
    shown: Column,
    values: list[Any],
    longest_ns: int,
    *,
    own_unit: bool,
    significant: bool = False,
) -> Drawn:
    """The values as their kind is written: times in the unit of `longest_ns`, the table's longest,
    or in the column's `own_unit` where all of them are below a tenth of that."""
    label, rank = shown.label, shown.importance
    if shown.kind in ("ns", "instant"):
        shorter = own_unit and _most(values) < time_unit(longest_ns)[0] / 10
        like_ns = (_most(values) or longest_ns) if shorter else longest_ns
        return times(label, values, rank=rank, like_ns=like_ns, significant=significant)
    if shown.kind in _SHRUNK:
        write = lists if any(isinstance(value, list) for value in values) else texts
        return write(label, values, rank=rank, shrink=_SHRUNK[shown.kind])
    return _WRITERS[shown.kind](label, values, rank)


def _rates(shown: Column, values: list[Any], all_rows: pl.Series, units: RateUnits) -> Drawn:
    """Rates in the unit that suits the largest of all rows, so that tables of a run agree."""
    largest = all_rows.max()
    like = largest if isinstance(largest, float) else 0.0
    return scaled_rates(shown.label, values, units, like, rank=shown.importance)


def _flags(label: str, values: list[Any], rank: int) -> Drawn:
    cells = (None if value is None else "yes" if value else "no" for value in values)
    return texts(label, cells, rank=rank)


def _factors(label: str, values: list[Any], rank: int) -> Drawn:
    """Untraced over traced time; exactly 1 is what the analysis makes of a cost within noise."""
    column = ratios(label, values, rank=rank)
    cells = zip(column.cells, values, strict=True)
    return replace(column, cells=tuple("within noise" if v == 1 else c for c, v in cells))


def _steps(label: str, values: list[Any], rank: int) -> Drawn:
    known = [None if value is None or value < 0 else value for value in values]
    return numbers(label, known, rank=rank)


_WRITERS: dict[str, Callable[[str, list[Any], int], Drawn]] = {
    "bytes": lambda label, values, rank: sizes(label, values, rank=rank),
    "ratio": lambda label, values, rank: percents(label, values, rank=rank),
    "share": lambda label, values, rank: percents(label, values, rank=rank),
    "change": lambda label, values, rank: percents(label, values, rank=rank, signed=True),
    "count": lambda label, values, rank: numbers(label, values, rank=rank),
    "number": lambda label, values, rank: rates(label, values, rank=rank),
    "factor": lambda label, values, rank: ratios(label, values, rank=rank),
    "figure": lambda label, values, rank: figures(label, values, rank=rank),
    "overhead_ratio": _factors,
    "flag": _flags,
    "step": _steps,
}

"""Frames of an analysis as tables that are shown: columns that say something, rows ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import polars as pl
from msgspec.structs import replace

from profiler.analysis.table import Table
from profiler.report.model import Bars, Figure, Opens, Selected, TableView
from profiler.report.sentences.worded import labels, worded_cell
from profiler.run.columns import DATA_ONLY, Column, column_of
from profiler.text import NoteCode

__all__ = [
    "columns_of",
    "declared_figure",
    "inwards",
    "on_devices",
    "ranked",
    "registered_view",
    "renamed",
    "table",
    "worded",
]

_INWARDS = "\N{NO-BREAK SPACE}" * 2
_MAY_BE_ALL_ZERO = frozenset(
    {
        *("dma_ns", "copy_ns", "collective_ns", "exposed_ns", "sync_ns", "other_ns", "host_ns"),
        *("data_ns", "copy_wait_ns", "other_device_ns", "waited_ns", "rate"),
        *(
            "queue_ns",
            "transfer_ns",
            "overlapped_ns",
            "unknown_ns",
            "unknown_cause_ns",
            "modulation_ns",
        ),
        *("long_gaps", "long_gap_ns", "warmup_steps", "warmup_ns", "weight_bytes"),
        *("launch_bound_ns", "before_kernel_ns", "hidden_ns", "unrecorded_ns", "carried_over_ns"),
        "modulation_share",
    }
)


class _Options(TypedDict, total=False):
    shown: int
    held: int
    search: bool
    sort: str
    label: str
    variants: tuple[tuple[str, pl.DataFrame], ...]
    totals: pl.DataFrame | None
    selected: Selected | None
    folded: bool
    opens: Opens | None
    strong: str
    nested: bool
    paper: pl.DataFrame | None
    below: Column | None


def table(
    key: str,
    name: str,
    columns: Sequence[str | Column],
    declared: Sequence[Column],
    frame: pl.DataFrame,
    **options: Unpack[_Options],
) -> TableView | None:
    """`frame` as a table of these `columns`, by name as they are `declared`; None without rows, or
    where none of them would be shown. The options are those of `TableView`."""
    if frame.is_empty() or not options.get("shown", 1):
        return None
    first, *others = columns_of(columns, declared)
    kept = (first, *(column for column in others if _says_something(frame[column.name])))
    view = TableView(key, name, kept, frame, **options)
    sort = view.sort
    variants = tuple((label, ranked(rows, sort)) for label, rows in view.variants)
    return replace(view, frame=ranked(frame, sort), variants=variants)


def ranked(frame: pl.DataFrame, sort: str) -> pl.DataFrame:
    """The rows by that column, largest first and nulls last; as they are for ""."""
    if not sort:
        return frame
    return frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)


def inwards(depth: pl.Expr) -> pl.Expr:
    """What stands before a name that is `depth` levels in."""
    return pl.lit(_INWARDS).repeat_by(depth).list.join("")


def columns_of(columns: Sequence[str | Column], declared: Sequence[Column]) -> tuple[Column, ...]:
    """The columns, those given by name as they are `declared`."""
    known = {column.name: column for column in declared}
    return tuple(known[one] if isinstance(one, str) else one for one in columns)


def renamed(declared: Sequence[Column], name: str, **changes: Any) -> Column:
    """A declared column as one table shows it otherwise: `label`, `kind`, `meaning`,
    `importance`."""
    return column_of(declared, name, **changes)


def on_devices(
    columns: Sequence[str | Column], declared: Sequence[Column], frame: pl.DataFrame, name: str
) -> list[str | Column]:
    """The columns; `device` stays in a narrow terminal where rows of one `name` are of
    several devices, which nothing else tells apart."""
    several = frame.group_by(name).agg(pl.col("device").n_unique() > 1)["device"].any()
    return [
        renamed(declared, one, importance=0) if several and one == "device" else one
        for one in columns
    ]


def worded(column: Column, values: pl.Series) -> list[Any]:
    """What a report says for the values of a column: labels of codes and sentences of notes, all
    other values as they are."""
    codes = column.codes
    if codes is None:
        return values.to_list()
    if issubclass(codes, NoteCode):
        return [None if text is None else worded_cell(text, codes) for text in values]
    return [text or None for text in labels(values, codes)]


def registered_view(table: Table, frame: pl.DataFrame) -> TableView | None:
    """A table of the analysis as it is declared; None without rows or columns to show."""
    columns = [column for column in table.columns if column.importance != DATA_ONLY]
    if not columns or frame.is_empty():
        return None
    kept = tuple(c for c in columns if c is columns[0] or _says_something(frame[c.name]))
    selected = None if table.partials is None else Selected(table.name)
    title = table.title or _heading(table.name)
    return TableView(table.name, title, kept, frame, table.shown, selected=selected)


def _heading(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _says_something(column: pl.Series) -> bool:
    """Whether a column holds any value, and one that is often 0 any other."""
    if column.null_count() == len(column):
        return False
    if column.dtype == pl.String:
        return bool((column != "").any())
    return column.name not in _MAY_BE_ALL_ZERO or bool((column != 0).any())


def declared_figure(
    table: Table, frame: pl.DataFrame, bars: tuple[Bars, ...] = ()
) -> Figure | None:
    """The figure that a table declares; None if it declares none. `bars` are what a terminal shows
    of it."""
    spec = table.figure
    return None if spec is None else Figure(table.name, spec.kind, (spec.columns, frame), bars)

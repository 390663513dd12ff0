"""Frames of an analysis as tables that are shown: columns that say something, rows ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import polars as pl

from profiler.report.model import Shown, TableView
from profiler.table.columns import Column

__all__ = ["meanings_of", "ranked", "table"]

_MAY_BE_ALL_ZERO = frozenset(
    {
        *("dma_ns", "copy_ns", "sync_ns", "other_ns", "host_ns", "data_ns", "other_device_ns"),
        *("queued_ns", "transfer_ns", "overlapped_ns", "unknown_ns", "modulation_ns"),
        *("long_gaps", "long_gap_ns", "warmup_steps", "warmup_ns", "weight_bytes"),
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


def table(
    key: str,
    name: str,
    shown_columns: Sequence[Shown],
    declared: Sequence[Column],
    frame: pl.DataFrame,
    **options: Unpack[_Options],
) -> TableView | None:
    """`frame` as a table; None without rows, or where none of them would be shown. The options are
    those of `TableView`; `declared` are the columns whose meanings `shown_columns` do not give."""
    if frame.is_empty() or not options.get("shown", 1):
        return None
    first = shown_columns[0]
    kept = tuple(c for c in shown_columns if c is first or _says_something(frame[c.name]))
    view = TableView(key, name, kept, meanings_of(kept, declared), frame, **options)
    sort = view.sort
    variants = tuple((label, ranked(rows, sort)) for label, rows in view.variants)
    return replace(view, frame=ranked(frame, sort), variants=variants)


def ranked(frame: pl.DataFrame, sort: str) -> pl.DataFrame:
    """The rows by that column, largest first and nulls last; as they are for ""."""
    if not sort:
        return frame
    return frame.sort(sort, descending=True, nulls_last=True, maintain_order=True)


def meanings_of(shown: Sequence[Shown], declared: Sequence[Column]) -> dict[str, str]:
    """What each column means, by its name."""
    known = {column.name: column.meaning for column in declared}
    return {column.name: column.meaning or known[column.name] for column in shown}


def _says_something(column: pl.Series) -> bool:
    """Whether a column holds any value, and one that is often 0 any other."""
    known = column.drop_nulls()
    if known.dtype == pl.String:
        known = known.filter(known != "")
    if known.is_empty():
        return False
    return column.name not in _MAY_BE_ALL_ZERO or bool((known != 0).any())

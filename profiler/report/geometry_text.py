"""Operators that were split over tracks or devices, or move data beside computing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from profiler.analysis.operators.codes import SplitPart
from profiler.analysis.result import Analysis
from profiler.report.excerpts import split_operators
from profiler.report.layout import numbers, ratios, table, texts, times
from profiler.report.lines import of_all
from profiler.report.sentences.worded import labels

__all__ = ["geometry_sections"]

_OPERATORS = 5


def geometry_sections(
    analysis: Analysis, top: int, width: int
) -> Iterator[tuple[str, list[Table | Text]]]:
    """Title and table; nothing where no operator of a submodule was split."""
    rows, found = split_operators(analysis.geometry, min(top, _OPERATORS))
    if len(rows):
        shown = of_all(min(top, _OPERATORS, found), found)
        yield f"Split operators, {shown} by busy time", [_split(rows, width)]


def _split(rows: pl.DataFrame, width: int) -> Table:
    longest = max(rows["busy_sum_ns"], default=0)
    first = rows["part"] == SplitPart.WHOLE.value
    parts = pl.Series([f"  {part}" for part in labels(rows["part"], SplitPart)], dtype=pl.String)
    names = rows["layer"].zip_with(first, rows["device"].fill_null(parts))
    uneven = rows["device_imbalance"]
    return table(
        [
            texts("operator", names, shrink=24),
            texts("submodule", rows["submodule"], rank=3, shrink=11),
            numbers("calls", rows["calls"], rank=5),
            numbers("commands", rows["commands"], rank=4),
            numbers("tracks", rows["tracks"]),
            times("union", rows["wall_union_ns"], like_ns=longest),
            times("busy", rows["busy_sum_ns"], like_ns=longest),
            times("gaps", rows["gap_ns"], rank=1, like_ns=longest),
            ratios("parallel", rows["parallel_efficiency"]),
            ratios("imbalance", rows["imbalance"]),
            *([ratios("of devices", uneven, rank=2)] if uneven.is_not_null().any() else []),
        ],
        width,
    )

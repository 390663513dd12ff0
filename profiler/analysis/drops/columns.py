"""The columns of what was executed but is not in the trace."""

from __future__ import annotations

import polars as pl

from profiler.events import DropKind
from profiler.table.columns import Column

__all__ = ["LOSSES"]

_TEXT = pl.String()
_INT64 = pl.Int64()

LOSSES: tuple[Column, ...] = (
    Column(
        "kind",
        _TEXT,
        "",
        ", ".join(f"`{kind}`" for kind in DropKind),
    ),
    Column("where", _TEXT, "", "file or part that lost it"),
    Column("count", _INT64, "", "how much, -1 where nobody can tell"),
    Column("unit", _TEXT, "", "what `count` counts"),
    Column("detail", _TEXT, "", "what happened, in words"),
)

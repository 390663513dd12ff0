"""The columns of what was executed but is not in the trace."""

from __future__ import annotations

import polars as pl

from profiler.run.columns import DATA_ONLY, INT64, STRING, Column
from profiler.trace.events import DropKind, DropReason

__all__ = ["DROPS"]


DROPS: tuple[Column, ...] = (
    Column(
        "kind",
        STRING,
        "",
        ", ".join(f"`{kind}`" for kind in DropKind),
    ),
    Column(
        "time_missing",
        pl.Boolean(),
        "",
        "whether time of the run is missing from the report because of it",
        importance=DATA_ONLY,
    ),
    Column("where", STRING, "", "file or part in which it was dropped"),
    Column("count", INT64, "", "how much; -1 where unknown"),
    Column("unit", STRING, "", "what `count` counts"),
    Column(
        "detail",
        STRING,
        "",
        "what happened: a list of one object, with a `DropReason` as `code` and its values",
        codes=DropReason,
    ),
)

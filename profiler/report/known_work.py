"""What is known of devices' work: nothing of calls whose operators were not traced.

The tables of an analysis have 0 there, for what was recorded adds up to that; a reader takes it for
a device that did nothing.
"""

from __future__ import annotations

import polars as pl

__all__ = ["with_known_work"]

_OF_WORK = ("busy_ns", "idle_inside_ns", "launch_bound_ns", "before_kernel_ns", "hidden_ns")


def with_known_work(frame: pl.DataFrame, calls: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Calls, or groups of calls that have the columns `by` in common, in their order, without
    device time and what derives from it (null) where some of them were not traced. `calls` is the
    analysis' table of all calls."""
    untraced = calls.filter((pl.col("commands") == 0) & ~pl.col("ops_traced"))
    if untraced.is_empty():
        return frame
    keys = untraced.select(*by, untraced=pl.lit(value=True)).unique()
    found = frame.join(keys, on=by, how="left", nulls_equal=True, maintain_order="left")
    known = pl.col("untraced").is_null()
    columns = [name for name in _OF_WORK if name in frame.columns]
    shown = found.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in columns)
    return shown.drop("untraced")

"""From when to when a run lasted."""

from __future__ import annotations

import polars as pl

from profiler.table.run import Run

__all__ = ["extent"]


def extent(run: Run) -> tuple[int, int]:
    """First and last instant of the run, ns on its clock; (0, 0) where it holds nothing."""
    starts, ends = [], []
    for frame in (run.spans, run.calls, run.commands):
        if len(frame):
            end = pl.col("start_ns") + pl.col("duration_ns").clip(0)
            first, last = frame.select(pl.col("start_ns").min(), end.max().alias("end")).row(0)
            starts.append(first)
            ends.append(last)
    if len(run.counters):
        first, last = run.counters.select(
            pl.col("time_ns").min(), pl.col("time_ns").max().alias("end")
        ).row(0)
        starts.append(first)
        ends.append(last)
    return min(starts, default=0), max(ends, default=0)

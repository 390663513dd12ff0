"""From when to when a run lasted."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.run.intervals import batches
from profiler.run.run import Run

__all__ = ["extent"]


def extent(run: Run) -> tuple[int, int]:
    """First and last instant of the run, ns on its clock; (0, 0) where it holds nothing."""
    starts, ends = [], []
    for frame in (run.spans, run.calls, run.commands):
        if len(frame):
            start, duration = frame["start_ns"].to_numpy(), frame["duration_ns"].to_numpy()
            starts.append(int(start.min()))
            ends += [
                int((start[rows] + np.maximum(duration[rows], 0)).max())
                for rows in batches(len(frame))
            ]
    if len(run.counters):
        first, last = run.counters.select(
            pl.col("time_ns").min(), pl.col("time_ns").max().alias("end")
        ).row(0)
        starts.append(first)
        ends.append(last)
    return min(starts, default=0), max(ends, default=0)

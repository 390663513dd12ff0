"""How busy each device was over the run: its busy share in each of a few intervals of equal
length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from profiler.analysis.axis import Axis
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.analysis.waiting.gap_columns import BUSY_TIMELINE
from profiler.run.columns import schema
from profiler.run.intervals import Times

__all__ = ["busy_timeline"]

_INTERVALS = 200  # of a device


def busy_timeline(devices: Sequence[DeviceGaps], axis: Axis) -> pl.DataFrame:
    """`_INTERVALS` rows a device (`columns.BUSY_TIMELINE`), in order of device and time, from the
    begin of the first pipeline call to the end of the last; fewer where the run is as short."""
    windows = axis.windows
    if not len(windows):
        return pl.DataFrame(schema=schema(BUSY_TIMELINE))
    first, last = int(windows.start[0]), int(windows.end[-1])
    count = min(_INTERVALS, last - first)
    edges = first + np.arange(count + 1) * (last - first) // count
    return pl.concat(
        [pl.DataFrame(schema=schema(BUSY_TIMELINE)), *(_course(gaps, edges) for gaps in devices)]
    )


def _course(gaps: DeviceGaps, edges: Times) -> pl.DataFrame:
    """The rows of one device, between `edges`."""
    begin, end = edges[:-1], edges[1:]
    inside = np.clip(end, *gaps.span) - np.clip(begin, *gaps.span)
    busy = inside - gaps.dry(begin, end)
    lost = _both(gaps, edges)
    columns = {
        "device": [gaps.device] * len(begin),
        "begin_ns": begin,
        "end_ns": end,
        "busy_share": busy / (end - begin),
        "unrecorded_share": lost / (end - begin),
    }
    return pl.DataFrame(columns, schema=schema(BUSY_TIMELINE))


def _both(gaps: DeviceGaps, edges: Times) -> Times:
    """How long between `edges` nothing ran and nothing was recorded, int64."""
    lost = gaps.unrecorded
    moments = np.unique(np.concatenate((edges, lost.start, lost.end)))
    begin, end = moments[:-1], moments[1:]
    rows = np.flatnonzero((lost.within(begin, end) > 0) & (begin >= edges[0]) & (end <= edges[-1]))
    found: Times = np.zeros(len(edges) - 1, dtype=np.int64)
    place = np.searchsorted(edges, begin[rows], side="right") - 1
    np.add.at(found, place, gaps.dry(begin[rows], end[rows]))
    return found

"""When the first and the last kernel of each call ran on a device, and what lies before them.

A kernel is a command of category compute or other; copies, which may run long before, are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.codes import GapPosition
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.events import CATEGORIES
from profiler.table.batches import Times
from profiler.table.run import Run
from profiler.table.tiles.stretches import Stretches

__all__ = ["KernelsOfCalls", "before_first_kernels"]

_KERNELS = np.array([name in ("compute", "other") for name in CATEGORIES])
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class KernelsOfCalls:
    """Of each call of a run, int64 [n]: begin and end of its tile, and on one device the begin of
    its `first` kernel and the end of its `last`; the former behind the latter for none. `own` are
    the rows of those that used the device."""

    begin: Times
    end: Times
    first: Times
    last: Times
    own: Times

    @classmethod
    def of(cls, gaps: DeviceGaps, run: Run, commands: CommandArrays) -> KernelsOfCalls:
        """On the device of `gaps`; `commands` are those of `run`, whose calls are sorted."""
        here = commands.device == commands.devices.index(gaps.device)
        rows = np.flatnonzero(here & _KERNELS[commands.category] & (commands.call >= 0))
        first = np.full(len(run.calls), _NEVER)
        last = np.full(len(run.calls), -_NEVER)
        if len(rows):
            call = commands.call[rows]
            heads = np.flatnonzero(np.diff(call, prepend=-1))
            np.minimum.at(first, call[heads], np.minimum.reduceat(commands.start[rows], heads))
            np.maximum.at(last, call[heads], np.maximum.reduceat(commands.end[rows], heads))
        begin, end = (run.tiles.calls[name].to_numpy() for name in ("begin_ns", "end_ns"))
        return cls(begin, end, first, last, gaps.calls)

    def place(self, start: int, end: int) -> tuple[GapPosition, int]:
        """Where a gap of the device lies, and the row of the call: that in whose tile at least half
        of it lies; between calls the next, -1 for none."""
        begin, until = self.begin[self.own], self.end[self.own]
        inside = np.minimum(until, end) - np.maximum(begin, start)
        place = int(inside.argmax()) if len(inside) else -1
        if place < 0 or 2 * int(inside[place]) < end - start:
            behind = np.flatnonzero(begin >= start)
            following = self.own[behind[begin[behind].argmin()]] if len(behind) else -1
            return GapPosition.BETWEEN_CALLS, int(following)
        call = int(self.own[place])
        first, last = int(self.first[call]), int(self.last[call])
        position = GapPosition.INSIDE
        if end <= first < _NEVER:
            position = GapPosition.BEFORE_FIRST_KERNEL
        elif -_NEVER < last <= start:
            position = GapPosition.AFTER_LAST_KERNEL
        return position, call


def before_first_kernels(
    devices: Iterable[DeviceGaps], run: Run, commands: CommandArrays
) -> pl.Series:
    """How long each call was launch-bound before its first kernel, in its tile; 0 without kernels,
    null where nobody knows what its device did, int64 [n]."""
    found = pl.Series([None] * len(run.calls), dtype=pl.Int64)
    placed = run.tiles.calls["tile_device"].cast(pl.String).to_numpy()
    for gaps in devices:
        kernels = KernelsOfCalls.of(gaps, run, commands)
        rows = np.flatnonzero(placed == gaps.device)
        begin, end = kernels.begin[rows], kernels.end[rows]
        there = kernels.first[rows] < _NEVER
        until = np.where(there, np.minimum(kernels.first[rows], end), begin)
        late = np.flatnonzero(gaps.late & (gaps.end > gaps.start))
        bound = Stretches(gaps.start[late], gaps.end[late]).minus(gaps.unrecorded)
        found = found.scatter(rows, bound.within(begin, until))
    return found

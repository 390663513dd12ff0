"""When the first and the last kernel of each call ran on a device, and what lies before them.

A kernel is a command of category compute or other; copies, which may run long before, are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.codes import GapPosition
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.run.intervals import Times, batches, group_heads
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES

__all__ = ["KernelsOfCalls", "before_first_kernels"]

_KERNELS = np.array([name in ("compute", "other") for name in CATEGORIES])
_NEVER = np.iinfo(np.int64).max


class KernelsOfCalls(Struct, frozen=True, eq=False):
    """Of each call of a run, int64 [n]: begin and end of its tile, and on one device the begin of
    its `first` kernel and the end of its `last`; the former behind the latter for none. `own` are
    the rows of those that used the device."""

    begin: Times
    end: Times
    first: Times
    last: Times
    own: Times

    @classmethod
    def of(
        cls, devices: Iterable[DeviceGaps], run: Run, commands: CommandArrays
    ) -> dict[str, KernelsOfCalls]:
        """On each of some devices, by name; `commands` are those of `run`, whose calls are
        sorted."""
        begin, end = (run.tiles.calls[name].to_numpy() for name in ("begin_ns", "end_ns"))
        first, last = _extents(commands, len(run.calls))
        number = {name: row for row, name in enumerate(commands.devices)}
        return {
            gaps.device: cls(
                begin, end, first[number[gaps.device]], last[number[gaps.device]], gaps.calls
            )
            for gaps in devices
        }

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


def _extents(commands: CommandArrays, calls: int) -> tuple[Times, Times]:
    """Begin of the first and end of the last kernel on each device of each call, int64 [devices,
    calls] each; the former behind the latter for none."""
    places = len(commands.devices) + 1, calls + 1  # the last are no device and no call
    first, last = np.full(places, _NEVER), np.full(places, -_NEVER)
    for rows in batches(len(commands.start)):
        device, call = commands.device[rows], commands.call[rows]
        kernels = _KERNELS[commands.category[rows]]
        heads = group_heads(device, call)
        place = (device[heads] + 1) * np.int64(calls + 1) - 1  # of no call
        place -= np.where(call[heads] < 0, 0, calls - call[heads])
        begins = np.where(kernels, commands.start[rows], _NEVER)
        np.minimum.at(first.reshape(-1), place, np.minimum.reduceat(begins, heads))
        ends = np.where(kernels, commands.end[rows], -_NEVER)
        np.maximum.at(last.reshape(-1), place, np.maximum.reduceat(ends, heads))
    return first[:, :-1], last[:, :-1]


def before_first_kernels(
    devices: Iterable[DeviceGaps], run: Run, kernels: Mapping[str, KernelsOfCalls]
) -> pl.Series:
    """How long each call was launch-bound before its first kernel, in its tile; 0 without kernels,
    null where nobody knows what its device did, int64 [n]. `kernels` are those of all devices."""
    found = pl.Series([None] * len(run.calls), dtype=pl.Int64)
    placed = run.tiles.calls["tile_device"].cast(pl.String).to_numpy()
    for gaps in devices:
        of_calls = kernels[gaps.device]
        rows = np.flatnonzero(placed == gaps.device)
        begin, end = of_calls.begin[rows], of_calls.end[rows]
        there = of_calls.first[rows] < _NEVER
        until = np.where(there, np.minimum(of_calls.first[rows], end), begin)
        bound = gaps.launched_late.minus(gaps.unrecorded)
        found = found.scatter(rows, bound.within(begin, until))
    return found

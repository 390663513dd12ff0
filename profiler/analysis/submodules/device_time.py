"""How long the work of several calls ran on devices: the union of theirs, however they overlap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler.analysis.arrays import HOST, SYNC, CommandArrays
from profiler.analysis.inputs import Inputs, shared
from profiler.run.intervals import Codes, Times, batches, group_heads, union_by

__all__ = ["device_time", "work_extents"]

_Flags = npt.NDArray[np.bool_]


@shared
def work_extents(of: Inputs) -> tuple[Times, Times]:
    """Begin of the first and end of the last work of each call of the run on devices, int64 [calls]
    each; the end is before the begin where there is none."""
    commands, calls = of.everything, len(of.run.calls)
    first = np.full(calls + 1, np.iinfo(np.int64).max)
    last = np.full(calls + 1, np.iinfo(np.int64).min)
    for rows in batches(len(commands.call)):
        call, start, end = commands.call[rows], commands.start[rows], commands.end[rows]
        worked = _worked(commands, rows)
        if not worked.all():
            call, start, end = call[worked], start[worked], end[worked]
        if len(call):
            heads = group_heads(call)
            np.minimum.at(first, call[heads], np.minimum.reduceat(start, heads))
            np.maximum.at(last, call[heads], np.maximum.reduceat(end, heads))
    return first[:-1], last[:-1]


def device_time(of: Inputs, groups: Codes, count: int) -> Times:
    """The union of the kernels and copies of each group of calls, int64 [count] in ns.

    `groups` has the group of each call of the run, -1 for none. Where a call's work lies in its
    tile on the run's only device, or all of a group's calls ran one after the other, the times of
    the calls add up; the work of others is united.
    """
    tiles, commands = of.run.tiles, of.everything
    busy, found = tiles.calls["busy_ns"].to_numpy(), np.zeros(count, dtype=np.int64)
    kept = groups >= 0
    np.add.at(found, groups[kept], busy[kept])
    mixed = np.zeros(count, dtype=np.bool_)
    mixed[groups[kept & (tiles.calls["hidden_ns"].to_numpy() > 0)]] = True
    mixed |= len(tiles.devices) > 1
    if mixed.any():
        mixed &= _beside(work_extents(of), groups, count)
    if mixed.any():
        code = np.append(np.where(kept & mixed[groups], groups, -1), -1)[commands.call]
        code[~_worked(commands, slice(None))] = -1
        found[mixed] = union_by(commands.start, commands.end, code, count)[mixed]
    return found


def _worked(commands: CommandArrays, rows: slice) -> _Flags:
    """Which commands are work of a device in a call."""
    category = commands.category[rows]
    found: _Flags = (category != HOST) & (category != SYNC)
    found &= commands.call[rows] >= 0
    found &= commands.device[rows] < len(commands.devices)
    return found


def _beside(extents: tuple[Times, Times], groups: Codes, count: int) -> _Flags:
    """Whether work of one call of a group begins before that of another has ended, bool [count]."""
    first, last = extents
    own = np.flatnonzero((groups >= 0) & (last > first))
    own = own[np.lexsort((first[own], groups[own]))]
    found = np.zeros(count, dtype=np.bool_)
    same = groups[own][1:] == groups[own][:-1]
    found[groups[own][1:][same & (first[own][1:] < last[own][:-1])]] = True
    return found

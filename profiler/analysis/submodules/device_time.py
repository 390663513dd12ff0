"""How long the work of several calls ran on devices: the union of theirs, however they overlap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler.analysis.arrays import HOST, SYNC, CommandArrays
from profiler.table.batches import Codes, Times
from profiler.table.intervals import group_heads, union_by
from profiler.table.tiles.of_run import RunTiles

__all__ = ["device_time", "work_extents"]

_Flags = npt.NDArray[np.bool_]


def device_time(commands: CommandArrays, tiles: RunTiles, groups: Codes, count: int) -> Times:
    """The union of the kernels and copies of each group of calls, int64 [count] in ns.

    `groups` has the group of each call, -1 for none; `tiles` are those of the run. Where a call's
    work lies in its tile on the run's only device, or all of a group's calls ran one after the
    other, the times of the calls add up; the work of others is united.
    """
    busy, found = tiles.calls["busy_ns"].to_numpy(), np.zeros(count, dtype=np.int64)
    kept = groups >= 0
    np.add.at(found, groups[kept], busy[kept])
    mixed = np.zeros(count, dtype=np.bool_)
    mixed[groups[kept & (tiles.calls["hidden_ns"].to_numpy() > 0)]] = True
    mixed |= len(tiles.devices) > 1
    worked = _worked(commands) if mixed.any() else None
    if worked is None:
        return found
    mixed &= _beside(commands, worked, groups, count)
    if mixed.any():
        code = np.append(np.where(kept & mixed[groups], groups, -1), -1)[commands.call]
        code[~worked] = -1
        found[mixed] = union_by(commands.start, commands.end, code, count)[mixed]
    return found


def _worked(commands: CommandArrays) -> _Flags:
    """Which commands are work of a device in a call."""
    found: _Flags = (commands.category != HOST) & (commands.category != SYNC)
    found &= commands.call >= 0
    found &= commands.device < len(commands.devices)
    return found


def _beside(commands: CommandArrays, worked: _Flags, groups: Codes, count: int) -> _Flags:
    """Whether work of one call of a group begins before that of another has ended, bool [count]."""
    first, last = _extents(commands, worked, len(groups))
    own = np.flatnonzero((groups >= 0) & (last > first))
    own = own[np.lexsort((first[own], groups[own]))]
    found = np.zeros(count, dtype=np.bool_)
    same = groups[own][1:] == groups[own][:-1]
    found[groups[own][1:][same & (first[own][1:] < last[own][:-1])]] = True
    return found


def work_extents(commands: CommandArrays, calls: int) -> tuple[Times, Times]:
    """From when to when each call worked on devices, int64 [calls] each; where it did not, it ends
    when it begins."""
    first, last = _extents(commands, _worked(commands), calls)
    some = last > first
    begin = int(first[some].min()) if some.any() else 0
    return np.where(some, first, begin), np.where(some, last, begin)


def _extents(commands: CommandArrays, worked: _Flags, calls: int) -> tuple[Times, Times]:
    """Begin of the first and end of the last work of each call; the end is before the begin where
    there is none."""
    first = np.full(calls, np.iinfo(np.int64).max)
    last = np.full(calls, np.iinfo(np.int64).min)
    if len(worked):
        heads = group_heads(commands.call)
        call = commands.call[heads]
        start = np.where(worked, commands.start, np.iinfo(np.int64).max)
        of_calls = call >= 0
        begin = np.minimum.reduceat(start, heads)
        np.minimum.at(first, call[of_calls], begin[of_calls])
        end = np.maximum.reduceat(np.where(worked, commands.end, np.iinfo(np.int64).min), heads)
        np.maximum.at(last, call[of_calls], end[of_calls])
    return first, last

"""How much of their calls' tiles commands have to themselves.

Each moment of a tile belongs to the command that began first of those that ran, of those that
began together to the one that ended first, so that the commands of a call have the union of their
times in its tile, however many ran side by side and in whatever order they stand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler.analysis.arrays import CommandArrays
from profiler.run.intervals import Codes, Times, batches, is_sorted, reaches

__all__ = ["own_times"]

_Tiles = tuple[Times, Times, Times]  # begins, lengths, what lies before, of the tiles of calls


def own_times(
    commands: CommandArrays,
    kind: Codes,
    kept: npt.NDArray[np.bool_],
    tiles: tuple[Times, Times],
    stage: Codes,
    stages: int,
) -> Times:
    """What commands have of the tiles of their calls, by stage of the call and kind, int64
    [stages, kinds] in ns.

    `kind` is the kind of each command, `kept` are the kinds that work on a device; `tiles` are
    begins and lengths, `stage` the stages, of the calls.
    """
    begin, length = tiles
    found = np.zeros(stages * len(kept), dtype=np.int64)
    # Tiles are laid one behind the other: a single running maximum serves all of them.
    offset = np.cumsum(length) - length
    tiles_of = (begin, length, offset)
    order, first = _in_order(commands, kind, _kept(commands, kind, kept), tiles_of)
    until = 0
    for batch in batches(len(order)):
        rows = order[batch]
        call = commands.call[rows]
        last = _in_tiles(call, commands.end[rows], tiles_of)
        before, reach = reaches(last, until)
        own = np.maximum(last - np.maximum(first[batch], before), 0)
        code = stage[call] * np.int64(len(kept)) + kind[rows]
        found += np.bincount(code, own, len(found)).astype(np.int64)  # exact to 2^53
        until = int(reach[-1])
    return found.reshape(stages, -1)


def _kept(commands: CommandArrays, kind: Codes, kept: npt.NDArray[np.bool_]) -> Times:
    """The rows of the commands of calls whose kinds are `kept`."""
    which = np.empty(len(kind), dtype=np.bool_)
    for rows in batches(len(kind)):
        np.logical_and(kept[kind[rows]], commands.call[rows] >= 0, out=which[rows])
    return np.flatnonzero(which)


def _in_order(
    commands: CommandArrays, kind: Codes, rows: Times, tiles: _Tiles
) -> tuple[Times, Times]:
    """The rows by when they began in their tiles, and when that was; of those that began together
    by end and kind."""
    begun = np.empty(len(rows), dtype=np.int64)
    for batch in batches(len(rows)):
        some = rows[batch]
        begun[batch] = _in_tiles(commands.call[some], commands.start[some], tiles)
    if not is_sorted(begun):
        order = np.argsort(begun, kind="stable")
        rows, begun = rows[order], begun[order]
    same = begun[1:] == begun[:-1]
    if same.any():
        at = np.flatnonzero(np.append(same, [False]) | np.append([False], same))
        tied = rows[at]
        keys = (kind[tied], commands.end[tied], commands.start[tied], begun[at])
        rows[at] = tied[np.lexsort(keys)]
    return rows, begun


def _in_tiles(call: Codes, time: Times, tiles: _Tiles) -> Times:
    """Times in the tiles of their calls, behind all tiles before."""
    begin, length, offset = tiles
    found: Times = np.clip(time - begin[call], 0, length[call]) + offset[call]
    return found

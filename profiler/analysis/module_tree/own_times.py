"""How much of their calls' tiles commands have to themselves.

Each moment of a tile belongs to the command that began first of those that ran, so that the
commands of a call have the union of their times in its tile, however many ran side by side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiler.analysis.arrays import CommandArrays
from profiler.table.batches import Codes, Times, batches, is_sorted
from profiler.table.intervals import reaches

__all__ = ["own_times"]


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
    first = _in_tiles(commands.call, commands.start, begin, length, offset)
    order = None if is_sorted(first) else np.argsort(first, kind="stable")
    until = 0
    for batch in batches(len(first)):
        rows = np.arange(*batch.indices(len(first))) if order is None else order[batch]
        rows = rows[kept[kind[rows]] & (commands.call[rows] >= 0)]
        if not len(rows):
            continue
        call = commands.call[rows]
        last = _in_tiles(call, commands.end[rows], begin, length, offset)
        before, reach = reaches(last, until)
        own = np.maximum(last - np.maximum(first[rows], before), 0)
        code = stage[call] * np.int64(len(kept)) + kind[rows]
        found += np.bincount(code, own, len(found)).astype(np.int64)  # exact to 2^53
        until = int(reach[-1])
    return found.reshape(stages, -1)


def _in_tiles(call: Codes, time: Times, begin: Times, length: Times, offset: Times) -> Times:
    """Times in the tiles of their calls, behind all tiles before; of no call 0."""
    found = np.empty(len(time), dtype=np.int64)
    for rows in batches(len(time)):
        of = call[rows]
        inside = np.clip(time[rows] - begin[of], 0, length[of]) + offset[of]
        found[rows] = np.where(of >= 0, inside, 0)
    return found

"""Calls of which drops say that commands are missing."""

from __future__ import annotations

import numpy as np

from profiler.run.intervals import Stretches
from profiler.run.run import Run
from profiler.trace.events import Call

__all__ = ["dropped_calls", "dropped_tiles"]


def dropped_tiles(run: Run) -> Stretches:
    """The tiles of these calls: that nothing ran there is not known."""
    rows = np.array(dropped_calls(run), dtype=np.int64)
    tiles = run.tiles.calls
    begin, end = (tiles[name].to_numpy()[rows] for name in ("begin_ns", "end_ns"))
    return Stretches.union(begin, end)


def dropped_calls(run: Run) -> list[int]:
    """The rows of `run.calls` whose own file a drop names that says that time is missing."""
    named = {drop.where for drop in run.drops if drop.kind.time_missing}
    if not named:
        return []
    columns = ("call", "submodule", "stage", "branch", "step")
    rows = run.calls.select(columns).rows()
    return [
        row
        for row, (call, submodule, stage, branch, step) in enumerate(rows)
        if Call(call, submodule, stage, branch or "", step, "", 0, 0, True).file_name in named
    ]

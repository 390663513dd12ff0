"""When commands of devices were launched: what flows from host commands to them tell."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.analysis.arrays import HOST, CommandArrays
from profiler.run.intervals import Times, batches
from profiler.run.run import Run

__all__ = ["NOT_LAUNCHED", "Launches", "launches_of"]

NOT_LAUNCHED = np.iinfo(np.int64).min


class Launches(Struct, frozen=True, eq=False):
    """`source` and `target` are rows of commands, int64 [m]: host commands, and what each launched
    on a device. `returned` is when the launch of each command of the run had returned, int64 [n],
    NOT_LAUNCHED where none is known; it is empty where there are no launches."""

    source: Times
    target: Times
    returned: Times

    def __len__(self) -> int:
        return len(self.source)


def launches_of(run: Run, commands: CommandArrays) -> Launches:
    """The launches of `run`; `commands` are the arrays of all its commands."""
    source, target = (run.flows[name].to_numpy() for name in ("source", "target"))
    kept = np.zeros(len(source), dtype=np.bool_)
    for rows in batches(len(source)):
        kept[rows] = commands.category[source[rows]] == HOST
        kept[rows] &= commands.category[target[rows]] != HOST
    source, target = source[kept], target[kept]
    returned = np.full(len(commands.start) if len(source) else 0, NOT_LAUNCHED)
    np.maximum.at(returned, target, commands.end[source])
    return Launches(source, target, returned)

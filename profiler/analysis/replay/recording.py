"""What a replay needs of a run, and the script that says which of its host's time runs again."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.analysis.replay.waits import Waits, waits_of
from profiler.analysis.replay.works import NEVER, Works, works_of
from profiler.run.device_timeline import Flags, Times, launches_of
from profiler.run.run import Run

__all__ = ["Recording", "Script", "recording_of"]


class Recording(Struct, frozen=True, eq=False):
    """Works and waits of a run; `launch_ns` is how long a launch takes the host, the median."""

    works: Works
    waits: Waits
    launch_ns: int


def recording_of(run: Run) -> Recording | None:
    """What of `run`, whose calls are in order of their numbers, can be replayed; None where it
    recorded no launches."""
    launches = launches_of(run.commands, run.flows)
    works = works_of(run, launches) if launches is not None else None
    if launches is None or works is None:
        return None
    source = np.unique(launches.source[works.row[works.launch > NEVER]])
    taken = launches.end[source] - launches.start[source]
    return Recording(works, waits_of(works, launches), int(np.median(taken)))


class Script(Struct, frozen=True, eq=False):
    """k slices of the host's recorded time, one after the other, int64 [k]: each from `first` up to
    `last`. A slice takes `pace` times as long as it did, float64 [k]; where it is a `graph`, bool
    [k], all its launches are one at its begin, and it takes as long as that."""

    first: Times
    last: Times
    pace: np.ndarray[tuple[int], np.dtype[np.float64]]
    graph: Flags

    @classmethod
    def of(cls, first: Times, last: Times) -> Script:
        """Slices as they were."""
        count = len(first)
        return cls(first, last, np.ones(count), np.zeros(count, dtype=np.bool_))

    def at(self, slices: Times, moments: Times) -> Times:
        """Moments in slices, from the slices' begins on, before anything waits."""
        away = (moments - self.first[slices]) * np.where(self.graph, 0.0, self.pace)[slices]
        found: Times = np.rint(away).astype(np.int64)
        return found

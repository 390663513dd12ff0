"""What the host did in a time at which a device had nothing to run: of what was recorded of it.

That is its commands (launches, waits, host work of no call) and the activities that an importer
kept of Python frames, operators and runtime calls (`RunInfo.host_activities`). Of all that the
launching thread was in, the innermost that covers at least half of the time; where none does, the
one that covers most of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.analysis.arrays import HOST, SYNC, CommandArrays
from profiler.analysis.host_side import thread_of
from profiler.analysis.waiting.codes import HostDoing
from profiler.run.intervals import Stretches, Times
from profiler.run.run import Run
from profiler.trace.events import HOST_TRACK, NO_RANK, device_of_rank, rank_of_device

__all__ = ["Doing", "HostDoings"]

_LEAST = 10  # of a time: what covers less than one part in so many is not what the host did


class Doing(Struct, frozen=True):
    """What the host was in, for how much of a time, and what it called most often meanwhile."""

    name: str
    kind: HostDoing
    covered_ns: int
    repeated: str | None = None
    times: int | None = None


class HostDoings(Struct, frozen=True, eq=False):
    """k things that the host was in, in order of begin: `start` and `end`, int64 [k]; `reach` is
    the latest end so far; `row` that of the command, or of the activity behind -1, int64."""

    run: Run
    start: Times
    end: Times
    reach: Times
    row: Times

    @classmethod
    def of(cls, run: Run, commands: CommandArrays, times: Stretches) -> HostDoings:
        """Of all commands of a run that lie in some of these times."""
        hosts = (commands.category == HOST) | (commands.category == SYNC)
        rows = np.flatnonzero(hosts) if len(times) else np.zeros(0, dtype=np.int64)
        place = np.searchsorted(times.end, commands.start[rows], side="right")
        begins = np.append(times.start, np.iinfo(np.int64).max)[place]
        rows = rows[begins < commands.end[rows]]
        known = run.info.host_activities
        begun = np.array([one.start_ns for one in known], dtype=np.int64)
        lasted = np.array([one.duration_ns for one in known], dtype=np.int64)
        start = np.concatenate((begun, commands.start[rows]))
        end = np.concatenate((begun + lasted, commands.end[rows]))
        row = np.concatenate((-1 - np.arange(len(known)), rows))
        order = np.lexsort((-end, start))
        start, end, row = start[order], end[order], row[order]
        return cls(run, start, end, np.maximum.accumulate(end), row)

    def during(self, first: int, last: int, launch: int) -> Doing | None:
        """What the host did from `first` to `last`, of the thread of the command in row `launch`;
        of any where that is -1. None where nothing tells."""
        thread = self._thread_of(launch) if launch >= 0 else ""
        host = self._on_rank(launch, HOST_TRACK) if launch >= 0 else ""
        places = slice(
            int(np.searchsorted(self.reach, first, side="right")),
            int(np.searchsorted(self.start, last, side="left")),
        )
        start = np.maximum(self.start[places], first)
        covered = np.minimum(self.end[places], last) - start
        rows = self.row[places]
        own = [
            i
            for i in np.flatnonzero(covered * _LEAST >= last - first).tolist()
            if not thread or self._thread_of(int(rows[i])) in (thread, host)
        ]
        if not own:
            return None
        half = [i for i in own if 2 * covered[i] >= last - first]
        most = max(covered[i] for i in own)
        kept = half or [i for i in own if covered[i] == most]
        found = max(kept, key=lambda i: (start[i], -covered[i], rows[i]))
        return self._doing(int(rows[found]), int(covered[found]))

    def _doing(self, row: int, covered: int) -> Doing:
        if row < 0:
            one = self.run.info.host_activities[-1 - row]
            kind, repeated = HostDoing(one.kind.value), one.repeated or None
            return Doing(one.name, kind, covered, repeated, one.times or None)
        kind = HostDoing.HOST_WORK
        if self._waited(row):
            kind = HostDoing.WAIT
        elif self._launched(row):
            kind = HostDoing.LAUNCH
        return Doing(self._text("layer", row), kind, covered)

    def _waited(self, row: int) -> bool:
        """Whether a command is a wait for a device, such as a copy that returned behind its end."""
        start, took = (int(self.run.commands[name][row]) for name in ("start_ns", "duration_ns"))
        first = np.array([start])
        waited = int(self.run.tiles.waits.within(first, first + took)[0])
        return waited == took

    def _launched(self, row: int) -> bool:
        return bool((self.run.flows["source"] == row).any())

    def _text(self, column: str, row: int) -> str:
        return str(self.run.commands[column][row])

    def _thread_of(self, row: int) -> str:
        if row < 0:
            return self.run.info.host_activities[-1 - row].thread
        return self._on_rank(row, thread_of(self._text("track", row)))

    def _on_rank(self, row: int, thread: str) -> str:
        """The thread of the rank of a command."""
        rank = rank_of_device(str(self.run.commands["device"][row] or ""))
        return thread if rank == NO_RANK else device_of_rank(rank, thread)

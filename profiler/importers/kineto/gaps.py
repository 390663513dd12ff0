"""What the host did while devices had nothing to run: kept of Python frames, operators and runtime
calls, of which the bundle holds only those that launched or waited.

For each of the longest gaps of a device one activity, clipped to the gap: on the thread that
launched what ended it, the innermost range that covers at least half of it, else the one that
covers most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from profiler.importers.kineto.commands import thread_name
from profiler.importers.kineto.frames import PYTHON
from profiler.importers.kineto.host import plain_name
from profiler.importers.kineto.launch import OPERATORS, RUNTIME, Launches
from profiler.kineto.ranges import Bools
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int32s, Int64s
from profiler.trace.manifest_fields import ActivityKind, HostActivity

__all__ = ["host_activities"]

_GAPS = 32  # of a device
_LEAST_NS = 100_000  # no launch takes so long
_REPEATED = 10  # calls of one name, from which on they are told
_RANGES = ("user_annotation",)
_KINDS = {
    PYTHON: ActivityKind.FUNCTION,
    OPERATORS: ActivityKind.OPERATOR,
    **dict.fromkeys(RUNTIME, ActivityKind.RUNTIME_CALL),
    **dict.fromkeys(_RANGES, ActivityKind.RANGE),
}


def host_activities(
    trace: KinetoTrace, launches: Launches, devices: Sequence[str], begin_ns: int
) -> tuple[HostActivity, ...]:
    """What the host did in the longest gaps of each device; `devices` has that of each launch,
    `begin_ns` is when the first call began."""
    rows = trace.rows_of(*_KINDS)
    if not len(rows) or not len(launches):
        return ()
    host = _Host(trace, rows, trace.start_ns[rows], trace.end_ns[rows], trace.thread[rows])
    names = np.array(devices)
    found: list[HostActivity] = []
    for device in sorted(set(devices)):
        for start, end, launch in _gaps(trace, launches, names == device, begin_ns):
            activity = host.activity(start, end, int(trace.thread[launch]))
            if activity is not None:
                found.append(activity)
    return tuple(sorted(found, key=lambda one: (one.start_ns, one.duration_ns)))


def _gaps(
    trace: KinetoTrace,
    launches: Launches,
    here: Bools,
    begin_ns: int,
) -> Iterator[tuple[int, int, int]]:
    """Begin, end, and the launch of what ended it, of the longest gaps of a device, in any order;
    of those alone whose end was launched. `here` is its work."""
    work = launches.row[here]
    start, end = trace.start_ns[work], trace.end_ns[work]
    order = np.argsort(start, kind="stable")
    launch = launches.launch[here][order]
    dry = np.append(begin_ns, np.maximum.accumulate(end[order])[:-1])
    wet = start[order]
    rows = np.flatnonzero((wet - dry > _LEAST_NS) & (launch >= 0))
    longest = rows[np.argsort(dry[rows] - wet[rows], kind="stable")[:_GAPS]]
    columns = (dry[longest].tolist(), wet[longest].tolist(), launch[longest].tolist())
    yield from zip(*columns, strict=True)


class _Host(Struct, frozen=True, eq=False):
    """What was recorded of the host: `rows` of the trace, with begin, end and thread of each."""

    trace: KinetoTrace
    rows: Int64s
    start: Int64s
    end: Int64s
    thread: Int32s

    def activity(self, first: int, last: int, thread: int) -> HostActivity | None:
        """What the host was in on a thread from `first` to `last`; None where nothing tells."""
        there = np.flatnonzero((self.start < last) & (self.end > first) & (self.thread == thread))
        if not len(there):
            return None
        begin = np.maximum(self.start[there], first)
        covered = np.minimum(self.end[there], last) - begin
        half = np.flatnonzero(2 * covered >= last - first)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        place = kept[np.lexsort((-self.end[there[kept]], self.start[there[kept]]))[-1]]
        event = self.trace.events[self.rows[there[place]]]
        until = begin[place] + covered[place]
        whole = (self.start[there] >= begin[place]) & (self.end[there] <= until)
        whole[place] = False
        repeated, times = self._repeated(there[whole])
        return HostActivity(
            name=plain_name(event.name),
            kind=_KINDS[event.cat],
            thread=thread_name(self.trace, int(self.rows[there[place]])),
            start_ns=int(begin[place]),
            duration_ns=int(covered[place]),
            repeated=repeated,
            times=times,
        )

    def _repeated(self, there: Int64s) -> tuple[str, int]:
        """The name that most of some ranges have, and how many; "" and 0 for few."""
        names = Counter(self.trace.events.name_of(row) for row in self.rows[there].tolist())
        name, times = max(names.items(), key=lambda one: (one[1], one[0]), default=("", 0))
        return (plain_name(name), times) if times >= _REPEATED else ("", 0)

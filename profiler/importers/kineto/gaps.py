"""What the host did while devices had nothing to run: kept of Python frames, operators and runtime
calls, of which the bundle holds only those that launched or waited.

For each of the longest gaps of a device, and of the longest of all devices, one activity, clipped
to the gap: on the thread that launched what ended it, the innermost range that covers at least half
of it, else the one that covers most.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from profiler.importers.kineto.commands import thread_name
from profiler.importers.kineto.frames import PYTHON
from profiler.importers.kineto.host import plain_name
from profiler.importers.kineto.launch import OPERATORS, RUNTIME, Launches
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import ActivityKind, HostActivity

__all__ = ["host_activities"]

_GAPS = 32  # of a device
_GAPS_IN_ALL = 512  # as many as 16 devices have; a file may name any number of them
_LEAST_NS = 100_000  # no launch takes so long
_REPEATED = 10  # calls of one name, from which on they are told
_BLOCK = 1024  # ranges that are passed over at once
_RANGES = ("user_annotation",)
_KINDS = {
    PYTHON: ActivityKind.FUNCTION,
    OPERATORS: ActivityKind.OPERATOR,
    **dict.fromkeys(RUNTIME, ActivityKind.RUNTIME_CALL),
    **dict.fromkeys(_RANGES, ActivityKind.RANGE),
}


class _Gap(NamedTuple):
    """When a device had nothing to run, and the launch of what ended that."""

    start_ns: int
    end_ns: int
    launch: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def host_activities(
    trace: KinetoTrace, launches: Launches, by_device: Mapping[str, Int64s], begin_ns: int
) -> tuple[HostActivity, ...]:
    """What the host did in the longest gaps; `by_device` has the places among the launches of what
    each device did, `begin_ns` is when the first call began."""
    rows = trace.rows_of(*_KINDS)
    if not len(rows) or not len(launches):
        return ()
    every = [gap for here in by_device.values() for gap in _gaps(trace, launches, here, begin_ns)]
    gaps = nlargest(_GAPS_IN_ALL, every, key=lambda gap: gap.length_ns)
    threads = {thread: _Thread.of(trace, rows, thread) for thread in _launching(trace, gaps)}
    found = [threads[int(trace.thread[gap.launch])].activity(gap) for gap in gaps]
    told = [one for one in found if one is not None]
    return tuple(sorted(told, key=lambda one: (one.start_ns, one.duration_ns)))


def _gaps(trace: KinetoTrace, launches: Launches, here: Int64s, begin_ns: int) -> list[_Gap]:
    """The longest gaps of a device, in any order; of those alone whose end was launched."""
    work = launches.row[here]
    start = trace.start_ns[work]
    end = start + trace.duration_ns[work]
    order = np.argsort(start, kind="stable")
    launch = launches.launch[here][order]
    dry = np.append(begin_ns, np.maximum.accumulate(end[order])[:-1])
    wet = start[order]
    rows = np.flatnonzero((wet - dry > _LEAST_NS) & (launch >= 0))
    longest = rows[np.argsort(dry[rows] - wet[rows], kind="stable")[:_GAPS]]
    columns = (dry[longest].tolist(), wet[longest].tolist(), launch[longest].tolist())
    return list(map(_Gap, *columns))


def _launching(trace: KinetoTrace, gaps: list[_Gap]) -> set[int]:
    """The threads that launched what ended gaps."""
    return {int(trace.thread[gap.launch]) for gap in gaps}


class _Thread(Struct, frozen=True, eq=False):
    """What a thread of the host was in: n `rows` of the trace in order of their begins, with begin
    and end of each, and the latest end of each `_BLOCK` of them."""

    trace: KinetoTrace
    rows: Int64s
    start: Int64s
    end: Int64s
    latest: Int64s

    @classmethod
    def of(cls, trace: KinetoTrace, rows: Int64s, thread: int) -> _Thread:
        """Those of `rows` that are of a thread."""
        rows = rows[trace.thread[rows] == thread]
        rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
        end = trace.start_ns[rows] + trace.duration_ns[rows]
        latest = np.maximum.reduceat(end, np.arange(0, len(end), _BLOCK)) if len(end) else end
        return cls(trace, rows, trace.start_ns[rows], end, latest)

    def activity(self, gap: _Gap) -> HostActivity | None:
        """What the host was in during a gap; None where nothing tells."""
        first, last, _ = gap
        there = self._between(first, last)
        if not len(there):
            return None
        begin = np.maximum(self.start[there], first)
        covered = np.minimum(self.end[there], last) - begin
        half = np.flatnonzero(2 * covered >= last - first)
        kept = half if len(half) else np.flatnonzero(covered == covered.max())
        place = kept[np.lexsort((-self.end[there[kept]], self.start[there[kept]]))[-1]]
        row = self.rows.item(there[place])
        until = begin[place] + covered[place]
        whole = (self.start[there] >= begin[place]) & (self.end[there] <= until)
        whole[place] = False
        repeated, times = self._repeated(there[whole])
        event = self.trace.events[row]
        return HostActivity(
            name=plain_name(event.name),
            kind=_KINDS[event.cat],
            thread=thread_name(self.trace, row),
            start_ns=int(begin[place]),
            duration_ns=int(covered[place]),
            repeated=repeated,
            times=times,
        )

    def _between(self, first: int, last: int) -> Int64s:
        """Which were open at some time from `first` to `last`. Blocks of which none was, though
        they began before, are passed over: a thread is in few of its ranges at once."""
        begun = int(np.searchsorted(self.start, last))
        blocks = np.flatnonzero(self.latest[: -(-begun // _BLOCK)] > first)
        some = (blocks[:, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        some = some[some < begun]
        return some[np.flatnonzero(self.end[some] > first)]

    def _repeated(self, there: Int64s) -> tuple[str, int]:
        """The name that most of some ranges have, and how many; "" and 0 for few."""
        names, counts = np.unique(self.trace.events.name[self.rows[there]], return_counts=True)
        times = int(counts.max(initial=0))
        if times < _REPEATED:
            return "", 0
        most = names[counts == times].tolist()
        return plain_name(max(self.trace.events.names[name] for name in most)), times

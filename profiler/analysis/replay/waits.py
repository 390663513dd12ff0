"""What the host waited for: blocking copies, synchronization, launches into a full queue."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.analysis.replay.works import NEVER, Works
from profiler.run.device_timeline import Flags, Launches, Times

__all__ = ["Waits", "waits_of"]

_QUICK = 0.05  # of the launches: where a device is behind nearly all wait for room
_LONG = 5  # of those: a launch that takes longer may have waited for room in its queue
_DEEP = 16  # pieces of work: fewer fill no queue
_FULL = 0.95  # of the most that ever waited: a launch that returns then waited for room


class Waits(Struct, frozen=True, eq=False):
    """v times at which the host waited for a device, in order of their begins, int64 [v] each.

    Where `own` is the work that the call launched, it waits for the work `back` places before that
    on its stream: 0 for a blocking copy, the depth of the queue for a launch into a full one. Where
    it is -1 it waits for what was launched before on `streams`, bool [v, s]. Once that has ended
    the host returns after `tail`; it takes `least` also where it waits for nothing.
    """

    begin: Times
    end: Times
    own: Times
    back: Times
    streams: Flags
    tail: Times
    least: Times


def waits_of(works: Works, launches: Launches) -> Waits:
    """When the host waited, but for waits within others; of a blocking copy for its own work."""
    begin, end, own, back = _all(works, launches)
    order = np.lexsort((-end, begin))
    begin, end, own, back = begin[order], end[order], own[order], back[order]
    before = np.append(NEVER, np.maximum.accumulate(end))[: len(end)]
    kept = end > before
    begin, end, own, back = begin[kept], end[kept], own[kept], back[kept]
    last = works.last_launched(begin)
    until = np.where(last >= 0, works.end[last], NEVER)
    streams = (last >= 0) & (until <= end[:, None]) & (own < 0)[:, None]
    done = np.where(streams, until, NEVER).max(axis=1, initial=NEVER)
    done = np.where(own >= 0, works.end[own - back], done)
    previous = np.maximum(own - 1, 0)
    alone = (own == 0) | (works.stream[previous] != works.stream[own])
    free = np.where(own < 0, done, np.where(alone, NEVER, works.end[previous]))
    return Waits(
        begin=begin,
        end=end,
        own=own,
        back=back,
        streams=streams,
        tail=end - np.maximum(begin, np.minimum(done, end)),
        least=np.where(free <= begin, end - begin, 0),
    )


def _all(works: Works, launches: Launches) -> tuple[Times, Times, Times, Times]:
    """Begin, end, own work and how far back of all waits."""
    place = np.full(len(launches.source) + 1, -1)  # the last is of no command
    place[works.row] = np.arange(len(works.row))
    place[-1] = -1
    own = place[launches.blocked_on]
    gone = (launches.blocked_on >= 0) & (own < 0)  # a copy on no device that is replayed
    begin, end, own = (c[~gone] for c in (launches.blocked_start, launches.blocked_end, own))
    full, back = _full_queues(works, launches)
    source = launches.source[works.row[full]]
    return (
        np.append(begin, launches.start[source]),
        np.append(end, launches.end[source]),
        np.append(own, full),
        np.append(np.zeros(len(own), dtype=np.int64), back),
    )


def _full_queues(works: Works, launches: Launches) -> tuple[Times, Times]:
    """Work whose launch waited for room in its stream's queue, and how many pieces of work that
    holds: the launch took long, and when it returned as many waited as ever did."""
    found, depth = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    known = (works.launch > NEVER) & (works.row >= 0)
    source = launches.source[works.row[known]]
    taken = np.zeros(len(known), dtype=np.int64)
    taken[known] = launches.end[source] - launches.start[source]
    quick = float(np.quantile(taken[known], _QUICK)) if known.any() else 0.0
    for first, last in zip(works.heads[:-1], works.heads[1:], strict=True):
        here = np.arange(first, last)
        until = np.sort(works.end[first:last])
        returned = works.launch[here] + taken[here]
        done = np.searchsorted(until, returned, side="right")
        waiting = np.where(known[here] & (done > 0), here - first - done, 0)
        most = int(waiting.max(initial=0))
        if most < _DEEP:
            continue
        full = (waiting >= _FULL * most) & (taken[here] > _LONG * quick)
        found.append(here[full])
        depth.append(waiting[full] + 1)
    return np.concatenate(found), np.concatenate(depth)

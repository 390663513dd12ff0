"""One device's axis: its work in order of begin, and the gaps in which nothing ran on it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profiler.table.batches import choose, is_sorted
from profiler.table.tiles.launches import Codes, Flags, Launches, Times
from profiler.table.tiles.stretches import Stretches

__all__ = ["Busy", "DeviceAxis", "value_at"]

_FOREVER = np.iinfo(np.int64).max // 4


class Busy(Struct, frozen=True, eq=False):
    """When a device worked: from `begin` to `end`, but for `gaps`, which go on before and after."""

    gaps: Stretches
    begin: int
    end: int

    @property
    def length(self) -> int:
        """How long it worked, in ns."""
        return int(self.within(np.array([self.begin]), np.array([self.end]))[0])

    def within(self, first: Times, last: Times) -> Times:
        """How long it worked in each `[first, last)`, int64; 0 where that is empty."""
        length: Times = np.maximum(last - first, 0)
        return length - self.gaps.within(first, last)


class DeviceAxis(Struct, frozen=True, eq=False):
    """m pieces of work of one device in order of begin, [m] each: `start`, `end`, `call` (a row of
    the calls, -1 for none; it changes at `heads`), `reach` (until when the device was busy),
    `launch` (when it was launched: its own begin where nobody knows, before everything where it
    was carried over), and `source`, the row of the command that launched it, -1 for none: all
    None where no launch of a run was recorded.

    `gaps` are the times at which nothing ran, from before all time to after it; `ender` is the
    work that ends each but the last, empty where no launches are known. `latency_ns` lasts from a
    launch to its work on a device that had run dry, the median.
    """

    start: Times
    end: Times
    call: Codes
    heads: Times
    reach: Times
    launch: Times
    source: Codes | None
    gaps: Stretches
    ender: Times
    latency_ns: int

    @classmethod
    def empty(cls) -> DeviceAxis:
        """The axis of a device that did nothing."""
        none = np.zeros(0, dtype=np.int64)
        always = Stretches(np.array([-_FOREVER]), np.array([_FOREVER]))
        return cls(none, none, none, none, none, none, None, always, none, 0)

    @classmethod
    def of(
        cls, start: Times, end: Times, call: Codes, launches: Launches | None, rows: Flags | slice
    ) -> DeviceAxis:
        """The axis of the work in `rows` of the commands, in any order; at least one piece."""
        launch, source = start, None
        if launches is not None:
            source = launches.source[rows]
            launch = _launched(start, source, launches, rows)
        if not is_sorted(start):
            order = np.argsort(start, kind="stable")
            call, end, launch = call[order], end[order], launch[order]
            start = launch if launches is None else start[order]
            source = None if source is None else source[order]
        reach = _reach(end)
        dries = start[1:] > reach[:-1]
        dry, wet = np.empty((2, int(np.count_nonzero(dries)) + 2), dtype=np.int64)
        dry[0], dry[-1], wet[0], wet[-1] = -_FOREVER, reach[-1], start[0], _FOREVER
        choose(reach[:-1], dries, dry[1:-1])
        choose(start[1:], dries, wet[1:-1])
        gaps, heads = Stretches(dry, wet), _heads(call)
        if source is None:
            none = np.zeros(0, dtype=np.int64)
            return cls(start, end, call, heads, reach, launch, None, gaps, none, 0)
        ender = np.append(0, np.flatnonzero(dries) + 1)
        latency = _latency(start, launch, source, ender, dry)
        return cls(start, end, call, heads, reach, launch, source, gaps, ender, latency)

    @property
    def busy(self) -> Busy:
        """When the device worked, without what did."""
        return Busy(self.gaps, int(self.start[0]), int(self.reach[-1]))

    @property
    def own(self) -> Flags:
        """Which work was not carried over, bool [m]."""
        found: Flags = self.launch > -_FOREVER
        return found

    @property
    def known(self) -> Flags:
        """Whether the launch of each was recorded, bool [m]."""
        if self.source is None:
            return np.zeros(len(self.start), dtype=np.bool_)
        found: Flags = self.source >= 0
        return found

    def free_at(self, moments: Times) -> Times:
        """When all had ended that was launched before each moment, int64; long ago for nothing."""
        launch, reach = self.launch, self.reach
        if self.source is not None and not bool((launch[1:] >= launch[:-1]).all()):
            order = np.argsort(launch, kind="stable")
            launch, reach = launch[order], np.maximum.accumulate(self.end[order])
        place = np.searchsorted(launch, moments, side="left") - 1
        return value_at(reach, place, -_FOREVER)

    def next_begin(self, moments: Times) -> Times:
        """When the first work from each moment on begins, int64; never, for the end of time."""
        place = np.searchsorted(self.start, moments, side="left")
        return value_at(self.start, place, _FOREVER)

    def late(self, launches: Launches) -> Flags:
        """For each gap but the last, whether the host is to blame for it: what ended it was
        launched too late, or by a graph launch that had not returned when the device ran dry."""
        if self.source is None:
            return np.zeros(len(self.gaps) - 1, dtype=np.bool_)
        dry, source = self.gaps.start[:-1], self.source[self.ender]
        late: Flags = (source >= 0) & (self.launch[self.ender] + self.latency_ns > dry)
        if len(launches.graphs):
            late |= np.isin(source, launches.graphs) & (launches.end[source] > dry)
        return late

    def launch_bound(self, launches: Launches) -> Stretches:
        """The gaps that the host is to blame for."""
        if self.source is None:
            return Stretches.none()
        return self.gaps.where(np.append(self.late(launches), False))

    def pending(self, launches: Launches, least_ns: int) -> Stretches:
        """When nothing ran for more than `least_ns` though the work behind had been launched."""
        if self.source is None:
            return Stretches.none()
        dry, wet = self.gaps.start[:-1], self.gaps.end[:-1]
        some = np.flatnonzero(wet - dry > least_ns)
        source = self.source[self.ender[some]]
        some, source = some[source >= 0], source[source >= 0]
        since = np.maximum(launches.end[source], dry[some])
        return Stretches(since, wet[some]).longer_than(least_ns)


def value_at(values: Times, places: Times, otherwise: int) -> Times:
    """The values at some places, int64; `otherwise` before the first and behind the last."""
    found = np.full(len(places), otherwise)
    there = np.flatnonzero((places >= 0) & (places < len(values)))
    found[there] = values[places[there]]
    return found


def _launched(start: Times, source: Codes, launches: Launches, rows: Flags | slice) -> Times:
    """When each of some work was launched, int64."""
    launch = launches.start[source]  # -1 takes the last: put right below
    np.minimum(launch, start, out=launch)  # clocks of host and device may differ a little
    unknown = np.flatnonzero(source < 0)
    launch[unknown] = start[unknown]
    if len(unknown) and len(launches.carried):
        own = np.arange(len(launches.source))[rows]
        launch[unknown[np.isin(own[unknown], launches.carried)]] = -_FOREVER
    return launch


def _reach(end: Times) -> Times:
    """Until when a device was busy with each piece of work and those before it: `end` itself where
    they end in order."""
    return end if is_sorted(end) else np.maximum.accumulate(end)


def _heads(owner: Codes) -> Times:
    """The rows at which the owner changes, the first included."""
    changes = np.ones(len(owner), dtype=np.bool_)
    changes[1:] = owner[1:] != owner[:-1]
    return np.flatnonzero(changes)


def _latency(start: Times, launch: Times, source: Codes, ender: Times, dry: Times) -> int:
    """The median time from a launch on a device that had run dry to its work; 0 for none."""
    measured = (source[ender] >= 0) & (launch[ender] >= dry[:-1])
    waited = (start[ender] - launch[ender])[measured]
    return int(np.median(waited)) if len(waited) else 0

"""The tiles of the calls of one device: which part of its axis each call takes.

    begin = max(host begin, end of all that was launched before, end of the tiles before)
    end   = max(host return, end of its last work), cut where work of another owner begins behind
            its last work

Calls go in the order of their host begins. A call without work takes what no earlier work covers
of its host range, up to the next work of another owner. Where the device has noted the time ahead
of such a call and behind it, that stands for the begin and the end of its work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.table.intervals import union_by
from profiler.table.tiles.device_axis import DeviceAxis, value_at
from profiler.table.tiles.launches import Codes, Flags, Launches, Times
from profiler.table.tiles.stretches import Stretches

__all__ = ["NO_LEAD", "Ranges", "Tiles", "noted_by_rank", "tiles_on"]

NO_LEAD = -1


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """k tiles of one device, int64 [k] each, in ns, as `columns.TILES` describes them; `lead` is
    NO_LEAD where no launch is known. `busy` and `hidden` are of this device alone."""

    begin: Times
    end: Times
    busy: Times
    idle_inside: Times
    launch_bound: Times
    lead: Times
    hidden: Times
    unrecorded: Times

    @property
    def elapsed(self) -> Times:
        """Length of each tile less what was not recorded in it."""
        found: Times = self.end - self.begin - self.unrecorded
        return found


class Ranges(Struct, frozen=True, eq=False):
    """Of all n calls, int64 [n] each: host `begin`, when the host had `returned`, and where the
    device has `noted` (bool [n]) it, when it was `asked` to begin and `done`."""

    begin: Times
    returned: Times
    noted: Flags
    asked: Times
    done: Times

    @classmethod
    def of(cls, calls: pl.DataFrame) -> Ranges:
        """Those of a run's calls (`CALLS`)."""
        begin = calls["start_ns"].to_numpy()
        returned = begin + np.maximum(calls["duration_ns"].to_numpy(), 0)
        lag, length = calls["device_lag_ns"], calls["device_duration_ns"]
        noted = (lag.is_not_null() & length.is_not_null()).to_numpy()
        asked = begin + lag.fill_null(0).to_numpy()
        return cls(begin, returned, noted, asked, asked + length.fill_null(0).to_numpy())


def noted_by_rank(calls: pl.DataFrame) -> dict[int, Stretches]:
    """When devices noted to be on a run's calls, by the rank of these."""
    ranges, found = Ranges.of(calls), {}
    for rank in calls["rank"].unique().to_list() if ranges.noted.any() else ():
        own = ranges.noted & (calls["rank"] == rank).to_numpy()
        found[rank] = Stretches.union(ranges.asked[own], ranges.done[own])
    return found


class _Own(Struct, frozen=True, eq=False):
    """What k calls have on a device: `count` of pieces of work, `first` begin and `last` end of
    them (the host's begin where there are none), `lead`, and whether any launch is known. `heads`
    are where the work of the axis changes its `owner`, from one call to another."""

    count: Times
    first: Times
    last: Times
    lead: Times
    launched: Flags
    heads: Times
    owner: Codes

    @classmethod
    def of(cls, axis: DeviceAxis, calls: Times, begin: Times, total: int) -> _Own:
        """Of the calls in `calls`, rows of `total`, whose host ranges begin at `begin`."""
        heads = axis.heads
        owner = axis.call[heads]
        count = np.zeros(total + 1, dtype=np.int64)  # the last is of no call
        np.add.at(count, owner, np.diff(heads, append=len(axis.call)))
        first = np.full(total + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, owner, axis.start[heads])
        last = np.full(total + 1, np.iinfo(np.int64).min)
        if len(heads):
            np.maximum.at(last, owner, np.maximum.reduceat(axis.end, heads))
        lead = _leads(axis, total)[calls]
        none = count[calls] == 0
        return cls(
            count=count[calls],
            first=np.where(none, begin, first[calls]),
            last=np.where(none, begin, last[calls]),
            lead=lead,
            launched=lead > NO_LEAD,
            heads=heads,
            owner=owner,
        )


def _leads(axis: DeviceAxis, total: int) -> Times:
    """From the launch of each call's first launched work to its begin, NO_LEAD for none."""
    lead = np.full(total, NO_LEAD)
    if axis.source is None:
        return lead
    rows = np.flatnonzero((axis.source >= 0) & (axis.call >= 0))[::-1]
    lead[axis.call[rows]] = axis.start[rows] - axis.launch[rows]  # the first is written last
    return lead


def tiles_on(
    axis: DeviceAxis,
    launches: Launches | None,
    unrecorded: Stretches,
    rows: Times,
    ranges: Ranges,
) -> Tiles:
    """The tiles of some calls, in their order: `rows` of all calls, which have these `ranges`.
    `unrecorded` is of the device."""
    begin, returned = ranges.begin[rows], ranges.returned[rows]
    own = _Own.of(axis, rows, begin, len(ranges.begin))
    worked = own.count > 0
    noted = ranges.noted[rows] & ~worked
    free = np.maximum(begin, axis.free_at(begin))
    free = np.where(noted, np.maximum(free, ranges.asked[rows]), free)
    last = np.where(worked, own.last, np.where(noted, np.maximum(free, ranges.done[rows]), free))
    wanted = np.minimum(np.maximum(last, returned), np.maximum(axis.next_begin(last), last))
    order = np.argsort(begin, kind="stable")
    until = np.empty_like(free)
    reach = np.maximum.accumulate(wanted[order])
    until[order] = np.append(np.iinfo(np.int64).min, reach[:-1])[: len(reach)]
    start = np.maximum(free, until)
    end = np.maximum(start, wanted)
    inner = np.clip(last, start, end)  # up to its last work
    lost = unrecorded.within(start, end)
    idle = axis.gaps.within(start, end) - lost
    bound = np.zeros(len(rows), dtype=np.int64)
    if launches is not None:
        blamed = axis.launch_bound(launches).minus(unrecorded).within(start, inner)
        tail = axis.gaps.within(inner, end) - unrecorded.within(inner, end)
        bound = np.where(own.launched, blamed + tail, 0)
    busy, hidden = _busy(axis, own, rows, start, end)
    return Tiles(
        begin=start,
        end=end,
        busy=busy,
        idle_inside=np.where(worked, idle, 0),
        launch_bound=bound,
        lead=own.lead,
        hidden=hidden,
        unrecorded=lost,
    )


def _busy(
    axis: DeviceAxis, own: _Own, calls: Times, start: Times, end: Times
) -> tuple[Times, Times]:
    """How long the work of each call ran, and how much of that outside of its tile.

    Where nothing but all of a call's own work runs in its tile, that is what is no gap there. For
    the others the unions of their work are made.
    """
    first = np.searchsorted(axis.start, start, side="left")
    last = np.maximum(np.searchsorted(axis.start, end, side="left"), first)
    reached = value_at(axis.reach, first - 1, np.iinfo(np.int64).min)
    alone = (last - first == own.count) & (own.first >= start) & (own.last <= end)
    alone &= reached <= start
    busy = np.where(own.count > 0, end - start - axis.gaps.within(start, end), 0)
    hidden = np.zeros(len(calls), dtype=np.int64)
    others = np.flatnonzero(~alone & (own.count > 0))
    if len(others):
        number = np.full(int(max(calls.max(), own.owner.max())) + 2, -1)
        number[calls[others]] = np.arange(len(others))
        of_head = number[own.owner]
        sizes = np.diff(own.heads, append=len(axis.call))
        rows = np.flatnonzero(np.repeat(of_head >= 0, sizes))
        group = np.repeat(of_head[of_head >= 0], sizes[of_head >= 0])
        begun, ended = axis.start[rows], axis.end[rows]
        busy[others] = union_by(begun, ended, group, len(others))
        begun = np.maximum(begun, start[others][group])
        ended = np.minimum(ended, end[others][group])
        kept = ended > begun
        inside = union_by(begun[kept], ended[kept], group[kept], len(others))
        hidden[others] = busy[others] - inside
    return busy, hidden

"""The device timeline of a run: when each call occupied its device, and the gaps.

    run.tiles.calls["elapsed_ns"]

A call's tile is its exclusive part of the device's axis:

    start = max(host start, end of all work launched before, end of the tiles before)
    end   = max(host return, end of its last work), cut at later work of another call

A device command without a launch that runs ahead of all launched work on its stream is carried
over. All of it is computed on first use and stored in no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.run.columns import DATA_ONLY, INT32, INT64, NS, STRING, Column, col, schema
from profiler.run.intervals import (
    Codes,
    CommandTimes,
    Stretches,
    Times,
    choose,
    chosen,
    ends,
    is_sorted,
    union_by,
)
from profiler.run.launches import NOBODY, Flags, Launches, device_work, launches_of
from profiler.trace.events import NO_RANK, rank_of_device
from profiler.trace.health import EMPTY_NS
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import HealthAction, HealthNote, HealthRule, Job

# --- The columns of tiles and of devices' axes.


TILES: tuple[Column, ...] = (
    col("call", INT32, "number of the call in its run"),
    col("tile_device", STRING, "the device that its tile is of: most of its work ran"),
    col("begin_ns", NS, "begin of its tile, on the run's clock", importance=DATA_ONLY),
    col("end_ns", NS, "end of its tile", importance=DATA_ONLY),
    col(
        "elapsed_ns",
        NS,
        "what it adds to the end-to-end time: length of its tile minus unrecorded_ns",
    ),
    col(
        "busy_ns",
        NS,
        "union of its kernels and copies on all devices: commands of every category except host "
        "and sync",
        label="device time",
        importance=1,
    ),
    col(
        "idle_inside_ns",
        NS,
        "time in its tile in which nothing ran on the device",
        label="idle inside",
        importance=13,
    ),
    col(
        "launch_bound_ns",
        NS,
        "part of idle_inside_ns in which the host launched too late, or had nothing more to launch",
        label="launch-bound",
        importance=2,
        hide_if_zero=True,
    ),
    col(
        "queue_lead_ns",
        NS,
        "from the launch of its first kernel to its start; null if no launch is known",
        True,
        label="lead",
        importance=17,
    ),
    col(
        "hidden_ns",
        NS,
        "part of busy_ns outside of its tile, hidden beneath other calls",
        label="hidden",
        importance=16,
        hide_if_zero=True,
    ),
    col(
        "unrecorded_ns",
        NS,
        "time in its tile in which work waited but nothing was recorded; in no other column",
        label="not recorded",
        importance=11,
        hide_if_zero=True,
    ),
)

DEVICE_AXES: tuple[Column, ...] = (
    col("device", STRING, "a device that worked"),
    col("first_ns", NS, "begin of its first work, on the run's clock"),
    col("last_ns", NS, "end of its last work"),
    col("idle_ns", NS, "nothing ran between these, less unrecorded_ns"),
    col(
        "unrecorded_ns",
        NS,
        "nothing was recorded though work waited, between these",
        hide_if_zero=True,
    ),
    col(
        "carried_over_ns",
        NS,
        "union of work launched before the recording began",
        hide_if_zero=True,
    ),
    col("carried_over", INT64, "how many commands that were"),
    col("latency_ns", NS, "from a launch to its work, the median on the dry device"),
)


# --- One device's axis: its work in order of start, and the gaps in which nothing ran on it.


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
        """How long it worked in each `[first, last)`, int64; 0 if that is empty."""
        length: Times = np.maximum(last - first, 0)
        return length - self.gaps.within(first, last)


class DeviceAxis(Struct, frozen=True, eq=False):
    """m pieces of work of one device in order of start, [m] each: `start`, `end`, `call` (a row of
    the calls, -1 for none; it changes at `heads`), `reach` (until when the device was busy),
    `launch` (when it was launched: its own start if unknown, before everything if it
    was carried over), and `source`, the row of the command that launched it, below 0 for none: all
    None if no launch of a run was recorded.

    `gaps` are the times at which nothing ran, from before all time to after it; `ender` is the
    work that ends each but the last, or what is launched behind a driver's copies that do, empty if
    no launches are known. `latency_ns` lasts from a
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
        if len(source) and int(source.min()) == NOBODY:
            behind = np.append(np.flatnonzero(source > NOBODY), len(source) - 1)
            ender = behind[np.searchsorted(behind[:-1], ender)]
        latency = _latency(start, launch, source, ender, dry)
        return cls(start, end, call, heads, reach, launch, source, gaps, ender, latency)

    @property
    def busy(self) -> Busy:
        """When the device worked, without what did."""
        return Busy(self.gaps, int(self.start[0]), int(self.reach[-1]))

    @property
    def own(self) -> Flags:
        """Which work was not carried over, bool [m]."""
        return self.launch > -_FOREVER

    @property
    def known(self) -> Flags:
        """Whether the launch of each was recorded, bool [m]."""
        if self.source is None:
            return np.zeros(len(self.start), dtype=np.bool_)
        return self.source >= 0

    def free_at(self, moments: Times) -> Times:
        """When all had ended that was launched before each moment, int64; long ago for nothing."""
        launch, reach = self.launch, self.reach
        if self.source is not None and not bool((launch[1:] >= launch[:-1]).all()):
            order = np.argsort(launch, kind="stable")
            launch, reach = launch[order], np.maximum.accumulate(self.end[order])
        place = np.searchsorted(launch, moments, side="left") - 1
        return value_at(reach, place, -_FOREVER)

    def next_begin(self, moments: Times) -> Times:
        """When the first work from each moment on starts, int64; never, for the end of time."""
        place = np.searchsorted(self.start, moments, side="left")
        return value_at(self.start, place, _FOREVER)

    def late(self, launches: Launches) -> Flags:
        """For each gap but the last, whether the host is to blame for it: what ended it was
        launched too late, or by a call that had not returned when the device ran dry. What such a
        call had put into the queue starts within the latency, unless it launches a graph."""
        if self.source is None:
            return np.zeros(len(self.gaps) - 1, dtype=np.bool_)
        if self.queues_nothing(launches):
            return np.ones(len(self.gaps) - 1, dtype=np.bool_)
        dry, source = self.gaps.start[:-1], self.source[self.ender]
        late = self.launch[self.ender] + self.latency_ns > dry
        waits = self.gaps.end[:-1] > dry + self.latency_ns
        if len(launches.graphs):
            waits |= np.isin(source, launches.graphs)
        late |= waits & (launches.end[source] > dry)  # -1 takes the last: put right below
        late &= source >= 0
        return late

    def queues_nothing(self, launches: Launches) -> bool:
        """Whether every launch for it that was recorded returned when its work had ended: then
        nothing waits in a queue, and whatever ends a gap, its launch recorded or not, is late."""
        if self.source is None or not launches.synchronous:
            return False
        known = self.source[self.source >= 0]
        return len(known) > 0 and bool(np.isin(known, launches.blocked_by).all())

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
    """Until when a device was busy with each piece of work and those before it: `end` itself if
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


# --- The axes of a run's devices: what worked when on each, what was carried over or not recorded.


_Values = TypeVar("_Values", bound=npt.NDArray[np.integer[Any]])

_CUT = 0.05  # of the launches; of healthy recordings 0.01
_LEAST_NS = 1_000_000  # nothing for longer, though work or the host waits, was not recorded


class Axes(Struct, frozen=True, eq=False):
    """By device, in order of their names: its axis, the work that was carried over, and when
    nothing was recorded though work waited, on no device of its rank, or before and after that rank
    was recorded. `carried_count` is how many commands that work was; `own_carried` is when only
    such work ran on all devices, `lost` when nothing was recorded on any though work of one
    waited."""

    axes: Mapping[str, DeviceAxis]
    carried: Mapping[str, Stretches]
    carried_count: Mapping[str, int]
    unrecorded: Mapping[str, Stretches]
    own_carried: Stretches
    lost: Stretches
    launches: Launches | None

    @property
    def waits(self) -> Stretches:
        """When the host waited for a device."""
        launches = self.launches
        if launches is None:
            return Stretches.none()
        return Stretches.union(launches.blocked_start, launches.blocked_end)


def axes_of(
    commands: pl.DataFrame,
    flows: pl.DataFrame,
    times: CommandTimes,
    calls: pl.DataFrame,
    info: RunInfo,
) -> Axes:
    """The axes of all devices that worked; `times` are those of the `commands`. That devices noted
    to be on `calls` without commands is no time that nobody recorded."""
    launches = launches_of(commands, flows, times)
    axes = work_axes(times, launches)
    missing, outside = _missing(axes, times, calls, info.health), _outside(axes, info.job)
    if launches is None or not axes:  # nothing waited for a device that did nothing
        lost = Stretches.of_all(missing.values())
        return Axes(axes, {}, {}, _joined(missing, outside), Stretches.none(), lost, launches)
    carried: dict[str, Stretches] = {}
    counts: dict[str, int] = {}
    for name, axis in axes.items() if len(launches.carried) else ():
        over = ~axis.own
        carried[name] = Stretches.union(axis.start[over], axis.end[over])
        counts[name] = int(over.sum())
    alone = Stretches.of_all(carried.values())
    if len(alone):
        own = [Stretches.union(a.start[a.own], a.end[a.own]) for a in axes.values()]
        alone = alone.minus(Stretches.of_all(own))
    unrecorded, noted = _unrecorded(axes, launches, times), noted_by_rank(calls)
    for name, each in unrecorded.items():
        if rank_of_device(name) in noted:
            unrecorded[name] = each.minus(noted[rank_of_device(name)])
    unrecorded = _joined(unrecorded, missing)
    lost = Stretches.of_all(unrecorded.values())
    if len(set(map(rank_of_device, axes))) > 1 or missing:
        worked = [Stretches.union(axis.start, axis.end) for axis in axes.values()]
        lost = lost.minus(Stretches.of_all(worked))
    return Axes(axes, carried, counts, _joined(unrecorded, outside), alone, lost, launches)


def _joined(some: dict[str, Stretches], more: dict[str, Stretches]) -> dict[str, Stretches]:
    both = {name: Stretches.of_all((more[name], some[name])) for name in some.keys() & more.keys()}
    return some | more | both


def _missing(
    axes: Mapping[str, DeviceAxis],
    times: CommandTimes,
    calls: pl.DataFrame,
    notes: Iterable[HealthNote],
) -> dict[str, Stretches]:
    """By device, when it was not recorded, by the `notes`: between two recordings, and behind the
    last work of one that had not run much of what was launched when its recording ended."""
    found: dict[str, Stretches] = {}
    for note in notes:
        if note.rule is HealthRule.GAP and note.action is HealthAction.NOTED:
            ran = Stretches.union(times.start, times.end)
            between = Stretches(ran.end[:-1], ran.start[1:]).longer_than(EMPTY_NS)
            found = _joined(found, dict.fromkeys(axes, between))
        elif note.rule is HealthRule.CUT and note.share > _CUT:
            until = ends(calls).max(initial=0, keepdims=True)
            for name in axes.keys() & note.device.split(", "):
                behind = Stretches(axes[name].reach[-1:], until).longer_than(_LEAST_NS)
                found = _joined(found, {name: behind})
    return found


def _outside(axes: Iterable[str], job: Job | None) -> dict[str, Stretches]:
    """By device, when other ranks of its job were recorded and its own was not, of those that say
    so and whose clocks agree."""
    begin, end = {}, {}
    for one in job.ranks if job is not None else ():
        if one.begin_ns is not None and one.end_ns is not None and one.aligned is not False:
            begin[one.rank], end[one.rank] = one.begin_ns, one.end_ns
    found = {}
    for name in axes:
        rank = rank_of_device(name)
        if rank in begin:
            starts = np.array([min(begin.values()), end[rank]])
            until = np.array([begin[rank], max(end.values())])
            found[name] = Stretches.union(starts, until).longer_than(_LEAST_NS)
    return found


def work_axes(times: CommandTimes, launches: Launches | None = None) -> dict[str, DeviceAxis]:
    """The axis of each device that worked, by name; commands that took no time are no work."""
    works = device_work(times.category)
    works &= times.end > times.start
    alone = len(times.devices) == 1 and not int(times.device.max(initial=0))
    axes: dict[str, DeviceAxis] = {}
    for number, name in enumerate(times.devices):
        rows = _rows(works if alone else works & (times.device == number))
        if rows is not None:
            start, end = _of(times.start, rows), _of(times.end, rows)
            call = _of(times.call, rows)
            axes[name] = DeviceAxis.of(start, end, call, launches, rows)
    return axes


def _of(values: _Values, rows: Flags | slice) -> _Values:
    """The values in some rows."""
    if isinstance(rows, slice):
        some: _Values = values[rows]  # type: ignore[assignment]  # a view of the same type
        return some
    return chosen(values, rows, int(np.count_nonzero(rows)))


def _rows(which: Flags) -> Flags | slice | None:
    """The chosen rows, a slice if they follow each other, so that nothing is copied; None for
    none."""
    count = int(np.count_nonzero(which))
    if not count:
        return None
    first, last = int(which.argmax()), len(which) - int(which[::-1].argmax())
    return slice(first, last) if last - first == count else which


def _unrecorded(
    axes: Mapping[str, DeviceAxis], launches: Launches, times: CommandTimes
) -> dict[str, Stretches]:
    """When nothing ran on any device of its rank though work of this one, or its host, waited for
    long."""
    long = launches.blocked_end - launches.blocked_start > _LEAST_NS
    # a call that returns while its copy runs may have filled a buffer: no work need be missing
    copied = np.where(launches.blocked_on >= 0, launches.end[launches.blocked_on], 0)
    long &= launches.end[launches.blocked_by] >= copied
    host_ranks = np.array([*map(rank_of_device, times.devices), NO_RANK])
    blocked_ranks = host_ranks[times.device[launches.blocked_by]]
    ranks: dict[int, list[str]] = {}
    for name in axes:
        ranks.setdefault(rank_of_device(name), []).append(name)
    found: dict[str, Stretches] = {}
    for rank, names in ranks.items():
        own = long & (blocked_ranks == rank)
        blocked = Stretches.union(launches.blocked_start[own], launches.blocked_end[own])
        gaps = [axes[name].gaps.longer_than(_LEAST_NS) for name in names]
        empty = reduce(Stretches.both, gaps)
        for name in names:
            if axes[name].known.any():
                waits = Stretches.of_all((axes[name].pending(launches, _LEAST_NS), blocked))
                found[name] = waits.both(empty).longer_than(_LEAST_NS)
    return found


# --- The tiles of the calls of one device: which part of its axis each call takes.
#
#     begin = max(host begin, end of all that was launched before, end of the tiles before)
#     end   = max(host return, end of its last work), cut where work of another owner begins
# behind
#             its last work
#
# Calls go in the order of their host begins. A call without work takes what no earlier work covers
# of its host range, up to the next work of another owner. If the device has noted the time ahead of
# such a call and behind it, that stands for the start and the end of its work.


NO_LEAD = -1


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """k tiles of one device, int64 [k] each, in ns, as `columns.TILES` describes them; `lead` is
    NO_LEAD if no launch is known. `busy` and `hidden` are of this device alone."""

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
        return self.end - self.begin - self.unrecorded


class Ranges(Struct, frozen=True, eq=False):
    """Of all n calls, int64 [n] each: host `begin`, when the host had `returned`, and if the
    device has `noted` (bool [n]) it, when it was `asked` to start and `done`."""

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
    """What k calls have on a device: `count` of pieces of work, `first` start and `last` end of
    them (the host's start if there are none), `lead`, and whether any launch is known. `heads`
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
        """Of the calls in `calls`, rows of `total`, whose host ranges start at `begin`."""
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
    """From the launch of each call's first launched work to its start, NO_LEAD for none."""
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

    If nothing but all of a call's own work runs in its tile, that is what is no gap there. For
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


# --- The tiles of a run's calls, what its devices did around them, and the run's end to end.
#
# Everything is computed from what was recorded when it is first asked for; no file holds it.


class EndToEnd(Struct, frozen=True):
    """From `begin_ns` to `end_ns`, of which `unrecorded_ns` and `carried_over_ns` do not count."""

    begin_ns: int
    end_ns: int
    unrecorded_ns: int
    carried_over_ns: int

    @property
    def elapsed_ns(self) -> int:
        """What counts of it."""
        return self.end_ns - self.begin_ns - self.unrecorded_ns - self.carried_over_ns


class RunTiles(Struct, frozen=True, eq=False):
    """`calls` has one row a call of the run (`TILES`), in its order, `devices` one a device that
    worked (`DEVICE_AXES`), by name.

    `unrecorded` and `carried_over` are stretches that belong to no part of the run: nothing was
    recorded on any device though work waited, and nothing ran but what had been launched before
    the recording began. `waits` are when the host waited for a device, `unrecorded_on` is what of
    `unrecorded` each device had. `on_several` are the rows of calls that worked on several devices,
    and when the last of that work ended on any, int64 [k] each: a tile ends on its own device.
    `synchronous` are the names of launches that return when their work has ended. `whole` lasts
    from the first tile or work of a device to the last; None if there are neither.
    """

    calls: pl.DataFrame
    devices: pl.DataFrame
    unrecorded: Stretches
    carried_over: Stretches
    waits: Stretches
    unrecorded_on: Mapping[str, Stretches]
    on_several: tuple[Times, Times]
    synchronous: tuple[str, ...]
    whole: EndToEnd | None

    def between(self, begin_ns: int, end_ns: int) -> EndToEnd:
        """The time from `begin_ns` to `end_ns`, with what does not count of it."""
        return _between(begin_ns, end_ns, self.unrecorded, self.carried_over)


def tiles_of(calls: pl.DataFrame, axes: Axes) -> RunTiles:
    """The tiles of a run's calls (`CALLS`) on the axes of its devices."""
    worked = _counts(axes, len(calls))
    ranges = Ranges.of(calls)
    names, place = _places(calls, axes, worked, ranges.noted)
    found = {each.name: np.zeros(len(calls), dtype=np.int64) for each in fields(Tiles)}
    for code in np.unique(place).tolist():
        rows = np.flatnonzero(place == code)
        axis = axes.axes.get(names[code], DeviceAxis.empty())
        lost = axes.unrecorded.get(names[code], Stretches.none())
        tiles = tiles_on(axis, axes.launches, lost, rows, ranges)
        for name, column in found.items():
            column[rows] = getattr(tiles, name)
    on_several = _with_other_devices(found, axes, worked)
    return RunTiles(
        calls=_frame(calls, names, place, found),
        devices=_devices(axes),
        unrecorded=axes.lost,
        carried_over=axes.own_carried,
        waits=axes.waits,
        unrecorded_on=axes.unrecorded,
        on_several=on_several,
        synchronous=() if axes.launches is None else axes.launches.synchronous,
        whole=_whole(axes, found, axes.lost),
    )


def _counts(axes: Axes, total: int) -> npt.NDArray[np.int64]:
    """How much of each call's work ran on each device, int64 [devices, calls]."""
    found = np.zeros((len(axes.axes), total + 1), dtype=np.int64)  # the last is of no call
    for row, axis in zip(found, axes.axes.values(), strict=True):
        np.add.at(row, axis.call[axis.heads], np.diff(axis.heads, append=len(axis.call)))
    return found[:, :total]


def _places(
    calls: pl.DataFrame, axes: Axes, counts: npt.NDArray[np.int64], noted: Flags
) -> tuple[list[str], npt.NDArray[Any]]:
    """Names of devices, and for each call the one of its tile: if most of its work ran; if it
    has none, if it is placed, but the only device if that one did nothing and has `noted`
    nothing of it."""
    placed = calls["device"].cast(pl.String).to_list()
    names = [*axes.axes, *sorted(set(placed) - axes.axes.keys())]
    own = np.array([names.index(name) for name in placed], dtype=np.int64)
    if len(axes.axes) == 1:
        own[(own > 0) & ~noted] = 0
    if not len(counts):
        return names, own
    most = counts.argmax(axis=0)
    at = np.minimum(own, len(counts) - 1)
    there = np.where(own < len(counts), counts[at, np.arange(len(own))], 0)
    return names, np.where(counts.max(axis=0) > there, most, own)


def _with_other_devices(
    found: dict[str, Times], axes: Axes, counts: npt.NDArray[np.int64]
) -> tuple[Times, Times]:
    """Make `busy` and what is `hidden` of it unions over all devices, of the calls that worked on
    several; their rows, and when the last of their work ended."""
    several = np.flatnonzero((counts > 0).sum(axis=0) > 1)
    if not len(several):
        return several, several
    number = np.full(len(found["busy"]) + 1, -1)
    number[several] = np.arange(len(several))
    parts = [(a.start, a.end, number[a.call]) for a in axes.axes.values()]
    start, end, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    own = group >= 0
    start, end, group = start[own], end[own], group[own]
    busy = union_by(start, end, group, len(several))
    begun = np.maximum(start, found["begin"][several][group])
    ended = np.minimum(end, found["end"][several][group])
    inside = ended > begun
    in_tiles = union_by(begun[inside], ended[inside], group[inside], len(several))
    found["busy"][several], found["hidden"][several] = busy, busy - in_tiles
    last = np.full(len(several), np.iinfo(np.int64).min)
    np.maximum.at(last, group, end)
    return several, last


def _between(
    begin_ns: int, end_ns: int, unrecorded: Stretches, carried_over: Stretches
) -> EndToEnd:
    first, last = np.array([begin_ns]), np.array([end_ns])
    lost, over = unrecorded.within(first, last), carried_over.within(first, last)
    return EndToEnd(begin_ns, end_ns, int(lost[0]), int(over[0]))


def _whole(axes: Axes, found: dict[str, Times], unrecorded: Stretches) -> EndToEnd | None:
    taken = found["end"] > found["begin"]
    begins, ends = [found["begin"][taken]], [found["end"][taken]]
    for axis in axes.axes.values():
        own = _first_own(axis, axes)
        begins.append(axis.start[own : own + 1])
        ends.append(axis.reach[-1:] if own < len(axis.start) else axis.reach[:0])
    first, last = np.concatenate(begins), np.concatenate(ends)
    if not len(first):
        return None
    return _between(int(first.min()), int(last.max()), unrecorded, axes.own_carried)


def _first_own(axis: DeviceAxis, axes: Axes) -> int:
    """The first work that was not carried over; behind the last if all of it was."""
    if not axes.carried:
        return 0
    own = np.flatnonzero(axis.own)
    return int(own[0]) if len(own) else len(axis.start)


def _frame(
    calls: pl.DataFrame, names: list[str], place: npt.NDArray[Any], found: dict[str, Times]
) -> pl.DataFrame:
    lead = pl.Series(found["lead"])
    return pl.DataFrame(
        {
            "call": calls["call"],
            "tile_device": pl.Series([names[code] for code in place.tolist()], dtype=pl.String),
            "begin_ns": found["begin"],
            "end_ns": found["end"],
            "elapsed_ns": found["end"] - found["begin"] - found["unrecorded"],
            "busy_ns": found["busy"],
            "idle_inside_ns": found["idle_inside"],
            "launch_bound_ns": found["launch_bound"],
            "queue_lead_ns": lead.set(lead == NO_LEAD, None),
            "hidden_ns": found["hidden"],
            "unrecorded_ns": found["unrecorded"],
        },
        schema=schema(TILES),
    )


def _devices(axes: Axes) -> pl.DataFrame:
    rows = []
    for name, axis in axes.axes.items():
        first, last = axis.start[:1], axis.reach[-1:]
        lost = axes.unrecorded.get(name, Stretches.none()).within(first, last)
        carried = axes.carried.get(name, Stretches.none())
        rows.append(
            (
                name,
                int(first[0]),
                int(last[0]),
                int((axis.gaps.within(first, last) - lost)[0]),
                int(lost[0]),
                carried.length,
                axes.carried_count.get(name, 0),
                axis.latency_ns,
            )
        )
    return pl.DataFrame(rows, schema=schema(DEVICE_AXES), orient="row")

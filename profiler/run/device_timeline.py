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
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.run.columns import DATA_ONLY, INT32, INT64, NS, STRING, Column, col, schema
from profiler.run.intervals import Codes, CommandTimes, Stretches, Times, chosen, ends, union_by
from profiler.run.launches import DeviceAxis, Flags, Launches, device_work, launches_of, value_at
from profiler.trace.events import NO_RANK, rank_of_device
from profiler.trace.manifest import RunInfo
from profiler.trace.manifest_fields import EMPTY_NS, HealthAction, HealthNote, HealthRule, Job

# --- The columns of tiles and of devices' axes.


TILES: tuple[Column, ...] = (
    col("call", INT32, "number of the call in its run"),
    col("tile_device", STRING, "the device on which most of its work ran"),
    col("begin_ns", NS, "start on the device, on the run's clock", importance=DATA_ONLY),
    col("end_ns", NS, "end on the device", importance=DATA_ONLY),
    col(
        "elapsed_ns",
        NS,
        "what it adds to the end-to-end time: from its start to its end on the device, minus "
        "unrecorded_ns",
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
        "part of elapsed_ns in which nothing ran on the device",
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
        "part of busy_ns outside of its elapsed time, hidden beneath other calls",
        label="hidden",
        importance=16,
        hide_if_zero=True,
    ),
    col(
        "unrecorded_ns",
        NS,
        "time of the call in which work waited but nothing was recorded; in no other column",
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


# --- The axes of a run's devices: what worked when on each, what was carried over or not recorded.


_Values = TypeVar("_Values", bound=npt.NDArray[np.integer[Any]])

_CUT = 0.05  # of the launches had not run at the end; 0.01 in healthy recordings
_LEAST_NS = 1_000_000  # if longer idle though work or the host waits: not recorded


class Axes(Struct, frozen=True, eq=False):
    """The axes of a run's devices, and the times that do not count.

    By device, in order of names: `axes`; `carried`, when carried-over work ran, and
    `carried_count`, how many commands that was; `unrecorded`, when no device of the rank recorded
    anything though work waited, or before and after the rank was recorded. Of all devices:
    `own_carried`, when only carried-over work ran; `lost`, when nothing was recorded on any though
    work of one waited.
    """

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
    """Return the axes of all devices that worked; `times` are those of the `commands`. If a device
    noted that it worked on `calls` without commands, that time does not count as unrecorded."""
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
    """Return when each device was not recorded, by the health `notes`: between two recordings, or
    after the last work if much of what was launched had not run when the recording ended."""
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
    """Return when each device's rank was not recorded but other ranks of its job were. Only ranks
    with a known recording period and an aligned clock count."""
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
    """The axis of each device that worked, by name; commands without duration are not work."""
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
    """Return the values of some rows."""
    if isinstance(rows, slice):
        some: _Values = values[rows]  # type: ignore[assignment]  # a view of the same type
        return some
    return chosen(values, rows, int(np.count_nonzero(rows)))


def _rows(which: Flags) -> Flags | slice | None:
    """Return the chosen rows, as a slice if they are contiguous, so that nothing is copied; None if
    there are none."""
    count = int(np.count_nonzero(which))
    if not count:
        return None
    first, last = int(which.argmax()), len(which) - int(which[::-1].argmax())
    return slice(first, last) if last - first == count else which


def _unrecorded(
    axes: Mapping[str, DeviceAxis], launches: Launches, times: CommandTimes
) -> dict[str, Stretches]:
    """Return, by device, when no device of its rank ran anything for long though work of this
    device, or the rank's host, waited."""
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
# Calls are in order of their host starts. A call without work takes the part of its host range that
# no earlier work covers, up to the next work of another call. If the device itself noted when it
# started and ended such a call, these are the start and the end of its work.


NO_LEAD = -1


class Tiles(Struct, frozen=True, eq=False):
    """The tiles of k calls on one device, int64 [k] each, in ns, as described by `TILES`; `lead` is
    NO_LEAD if no launch is known. `busy` and `hidden` count this device only."""

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
        """Length of each tile without its unrecorded time."""
        return self.end - self.begin - self.unrecorded


class Ranges(Struct, frozen=True, eq=False):
    """Times of all n calls, int64 [n] each: host `begin`, and when the host had `returned`. If the
    device has `noted` its own times (bool [n]): when it was `asked` to start, and `done`."""

    begin: Times
    returned: Times
    noted: Flags
    asked: Times
    done: Times

    @classmethod
    def of(cls, calls: pl.DataFrame) -> Ranges:
        """Return the ranges of a run's calls (`CALLS`)."""
        begin = calls["start_ns"].to_numpy()
        returned = begin + np.maximum(calls["duration_ns"].to_numpy(), 0)
        lag, length = calls["device_lag_ns"], calls["device_duration_ns"]
        noted = (lag.is_not_null() & length.is_not_null()).to_numpy()
        asked = begin + lag.fill_null(0).to_numpy()
        return cls(begin, returned, noted, asked, asked + length.fill_null(0).to_numpy())


def noted_by_rank(calls: pl.DataFrame) -> dict[int, Stretches]:
    """Return when devices noted that they worked on a run's calls, by the calls' rank."""
    ranges, found = Ranges.of(calls), {}
    for rank in calls["rank"].unique().to_list() if ranges.noted.any() else ():
        own = ranges.noted & (calls["rank"] == rank).to_numpy()
        found[rank] = Stretches.union(ranges.asked[own], ranges.done[own])
    return found


class _Own(Struct, frozen=True, eq=False):
    """The work of k calls on one device: `count` of pieces, `first` start and `last` end (the
    host's start if there is no work), `lead`, and whether any launch is known. `heads` are the rows
    of the axis at which `owner`, the call of the work, changes."""

    count: Times
    first: Times
    last: Times
    lead: Times
    launched: Flags
    heads: Times
    owner: Codes

    @classmethod
    def of(cls, axis: DeviceAxis, calls: Times, begin: Times, total: int) -> _Own:
        """The work of `calls`, rows of all `total` calls, whose host ranges start at `begin`."""
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
    """Return the time from launch to start of each call's first launched work, NO_LEAD if there is
    none."""
    lead = np.full(total, NO_LEAD)
    if axis.source is None:
        return lead
    rows = np.flatnonzero((axis.source >= 0) & (axis.call >= 0))[::-1]
    lead[axis.call[rows]] = axis.start[rows] - axis.launch[rows]  # the first is written last
    return lead


def tiles_on(
    axis: DeviceAxis, launches: Launches | None, unrecorded: Stretches, rows: Times, ranges: Ranges
) -> Tiles:
    """Return the tiles of some calls on one device, in their order. The calls are `rows` of all
    calls, whose times are `ranges`; `unrecorded` is the device's."""
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
    """Return how long the work of each call ran, and how much of that outside of its tile.

    If all of a call's work and nothing else runs in its tile, the busy time is the tile without its
    gaps. For other calls it is the union of their work.
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


class EndToEnd(Struct, frozen=True):
    """The time from `begin_ns` to `end_ns`, of which `unrecorded_ns` and `carried_over_ns` do not
    count."""

    begin_ns: int
    end_ns: int
    unrecorded_ns: int
    carried_over_ns: int

    @property
    def elapsed_ns(self) -> int:
        """The time that counts."""
        return self.end_ns - self.begin_ns - self.unrecorded_ns - self.carried_over_ns


class RunTiles(Struct, frozen=True, eq=False):
    """The tiles of a run: `calls` has one row per call (`TILES`), in the run's order, `devices` one
    per device that worked (`DEVICE_AXES`), by name.

    `unrecorded` and `carried_over` are times that count for no part of the run: nothing was
    recorded on any device though work waited; only work launched before the recording started ran.
    `waits` are when the host waited for a device, `unrecorded_on` when each device was not
    recorded. `on_several` are the rows of calls that worked on several devices, and when the last
    of their work ended on any, int64 [k] each: a tile ends on its own device. `synchronous` are the
    names of launches that return when their work has ended. `whole` lasts from the first tile or
    device work to the last; None if there is neither.
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
        """Return the time from `begin_ns` to `end_ns` and how much of it does not count."""
        return _between(begin_ns, end_ns, self.unrecorded, self.carried_over)


def tiles_of(calls: pl.DataFrame, axes: Axes) -> RunTiles:
    """The tiles of a run's calls (`CALLS`) on the axes of its devices."""
    worked = _counts(axes, len(calls))
    ranges = Ranges.of(calls)
    names, place = _places(calls, axes, worked, ranges.noted)
    found = {name: np.zeros(len(calls), dtype=np.int64) for name in Tiles.__struct_fields__}
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
    """Return names of devices, and for each call the index of its tile's device: the one on which
    most of its work ran. Without work it is the device where the call is placed, or, unless that
    has `noted` the call, the only device that worked."""
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
    """Replace `busy` and `hidden` of calls that worked on several devices by unions over all
    devices. Return the rows of these calls, and when the last of their work ended."""
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
    """Return the row of the first work that was not carried over; the number of rows if all was."""
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

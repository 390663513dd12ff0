"""Launches: when work of each device was launched, when it ran, and when the host was blocked.

    launches = launches_of(run.commands, run.flows)
    launches.source[row]  # the row of the command that launched it

A flow from a host command to a device's is a launch. A device command without one was launched
before the recording started if it runs ahead of every launched command of its stream, because a
stream keeps the order of launches: it is *carried over*.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.run.intervals import Codes, CommandTimes, Stretches, Times, choose, ends, is_sorted
from profiler.trace.events import CATEGORIES, CPU_DEVICE

Flags = npt.NDArray[np.bool_]

_HOST, _SYNC = CATEGORIES.index("host"), CATEGORIES.index("sync")
_TRANSFERS = tuple(CATEGORIES.index(name) for name in ("dma", "copy"))
_OF_STREAM = re.compile(r" (memcpy|copy|collectives)$")
_WAITS = "(?i)synchronize"
_GRAPHS = "(?i)graph_?launch"
_FILLS = "(?i)^cu(da)?memset"  # of CUDA: they do not wait for the device
_OF_DRIVER = r"\(unified memory\)"
NOBODY = -2  # the `source` of a copy that the driver made by itself
_LEAST_LAUNCHES = 3  # of one name: fewer do not show whether they are synchronous
_LATER_PART = 20  # at most a 20th of the work of synchronous launches runs later


class Launches(Struct, frozen=True, eq=False):
    """Launches of n commands, and when the host waited for devices.

    `source` is the row of the command that launched each, int32 [n], -1 if none was recorded,
    `NOBODY` for copies that a driver makes of unified memory; `start` and `end` are the commands'
    own, int64 [n]. `graphs` are the rows of commands that launch whole graphs, `carried` the sorted
    rows of work that was launched before the recording started. The host's w waits, in any order,
    last from `blocked_start` to `blocked_end`; `blocked_by` is the row of the host's command,
    `blocked_on` that of the copy it waited for, -1 if it was no copy; int64 [w]. `synchronous` are
    the names of launches that return when their work has ended: the host waits in them, too.
    """

    source: npt.NDArray[np.int32]
    start: Times
    end: Times
    graphs: Times
    carried: Times
    blocked_start: Times
    blocked_end: Times
    blocked_on: Times
    blocked_by: Times
    synchronous: tuple[str, ...]


def device_work(category: Codes) -> Flags:
    """Return which commands are device work, neither host work nor waits; bool [n]."""
    found: Flags = (category != _HOST) & (category != _SYNC)
    return found


def launches_of(
    commands: pl.DataFrame, flows: pl.DataFrame, times: CommandTimes | None = None
) -> Launches | None:
    """Return the launches among the `flows` of a run's `commands`; None if there are none. `times`
    are the commands' times, if already computed."""
    if flows.is_empty():
        return None
    category = commands["category"].to_physical().to_numpy()
    source, target = flows["source"].to_numpy(), flows["target"].to_numpy()
    kept = (category[source] == _HOST) & device_work(category[target])
    if not kept.any():
        return None
    if not kept.all():
        source, target = source[kept], target[kept]
    start = commands["start_ns"].to_numpy() if times is None else times.start
    end = ends(commands) if times is None else times.end
    launched_by = np.full(len(start), -1, dtype=np.int32)
    launched_by[target[::-1]] = source[::-1]  # the first of several
    copies = blocking_copies(commands, source, target, start, end)
    hosts = np.flatnonzero((category == _HOST) | (category == _SYNC))
    called, graphs = _named(commands["layer"], hosts, _WAITS, _GRAPHS)
    waits = hosts[_waiting(commands["device"], category, hosts, called)]
    held = synchronous(commands, category, source, target, start, end)
    blocked = np.concatenate((source[copies], waits, source[held]))
    began, returned = start[blocked].copy(), end[blocked].copy()
    if len(held):  # the host waits while the work runs
        began[-len(held) :], returned[-len(held) :] = start[target[held]], end[target[held]]
    # a call that returns before its copy ends waits until it starts, then fills a buffer for it
    early = np.flatnonzero(returned[: len(copies)] < end[target[copies]])
    filled = np.maximum(start[target[copies[early]]], start[source[copies[early]]])
    returned[early] = np.minimum(returned[early], filled)
    unlaunched = np.flatnonzero(device_work(category) & (launched_by < 0))
    (of_driver,) = _named(commands["op_type"], unlaunched, _OF_DRIVER)
    launched_by[unlaunched[of_driver]] = NOBODY
    names = commands["layer"].gather(source[held]).unique()
    return Launches(
        source=launched_by,
        start=start,
        end=end,
        graphs=hosts[graphs],
        carried=_carried_over(commands, unlaunched[~of_driver], start, launched_by),
        blocked_start=began,
        blocked_end=returned,
        blocked_on=np.append(target[copies], np.full(len(waits) + len(held), -1)),
        blocked_by=blocked,
        synchronous=tuple(sorted(names.cast(pl.String).drop_nulls())),
    )


def blocking_copies(
    commands: pl.DataFrame, source: Times, target: Times, start: Times, end: Times
) -> Times:
    """Return which launches, from `source` to `target`, are of copies that the host waited for:
    their places, int64.

    Their calls returned when the copy had ended; or, if memory is pageable (it passes through a
    buffer of the driver) or the call is not asynchronous, when it had started: such a call waits
    for all work ahead of it, and returns up to 120 us before the end (V100), or, by the clocks of
    an MI300X, 4 us. CUDA's fills return at once: one that takes longer loads or sets up something.
    """
    copies = np.flatnonzero(
        np.isin(commands["category"].to_physical().to_numpy()[target], _TRANSFERS)
    )
    (fills,) = _named(commands["layer"], source[copies], _FILLS)
    copies = copies[~fills]
    begun = end[source[copies]] > start[target[copies]]
    ended = end[source[copies]] >= end[target[copies]]
    early = copies[begun & ~ended]
    if not len(early):
        return copies[ended]
    named = commands.select(
        pl.coalesce("kernel", "op_type").cast(pl.String).gather(target[early]).alias("copy"),
        pl.col("layer").cast(pl.String).gather(source[early]).alias("call"),
    )
    copy, call = pl.col("copy"), pl.col("call")
    waits = copy.str.contains("Pageable") | ~call.str.contains("Async")  # names of Kineto and nsys
    waits &= call.str.contains("Memcpy")
    ended[begun & ~ended] = named.select(waits.fill_null(False)).to_series().to_numpy()
    return copies[ended]


def synchronous(
    commands: pl.DataFrame, category: Codes, source: Codes, target: Times, start: Times, end: Times
) -> Times:
    """Return which launches, from `source` to `target`, return when their work has ended: their
    places, int64, without copies. All launches of a name are synchronous or none: hardly any of
    their work runs after they return (clocks differ a little), and each launches one command. A
    graph's launch may still be running when its first kernels do."""
    place = np.flatnonzero(~np.isin(category[target], _TRANSFERS))
    row, source = target[place], source[place]
    name = commands["layer"].gather(source).to_physical().fill_null(0).to_numpy()
    later = np.bincount(name, np.maximum(end[row] - np.maximum(start[row], end[source]), 0))
    held = (later * _LATER_PART <= np.bincount(name, end[row] - start[row]))[name]
    some, times = np.unique(source[held], return_counts=True)
    several = np.isin(name, name[held][np.isin(source[held], some[times > 1])])
    few = np.bincount(name)[name] < _LEAST_LAUNCHES
    found: Times = place[held & ~several & ~few]
    return found


def _waiting(device: pl.Series, category: Codes, hosts: Times, called: Flags) -> Flags:
    """Return which of the commands in rows `hosts` are waits of the host; `called` marks names of
    waits."""
    waits: Flags = called & (category[hosts] == _HOST)
    syncs = np.flatnonzero(category[hosts] == _SYNC)
    if len(syncs):
        (waits[syncs],) = _named(device, hosts[syncs], CPU_DEVICE)
    return waits


def _named(column: pl.Series, rows: Times, *patterns: str) -> list[Flags]:
    """Return which `rows` of a categorical column match, one bool array per pattern."""
    physical = column.to_physical()
    if physical.null_count():
        physical = physical.fill_null(0)
    codes = physical.to_numpy()[rows]
    used = np.flatnonzero(np.bincount(codes)) if len(codes) else np.zeros(0, dtype=np.int64)
    first = np.zeros(int(used.max(initial=0)) + 1, dtype=np.int64)
    first[codes[::-1]] = rows[::-1]
    names = column.gather(first[used]).cast(pl.String).fill_null("")
    found: list[Flags] = []
    for pattern in patterns:
        table = np.zeros(len(first), dtype=np.bool_)
        table[used] = names.str.contains(pattern).to_numpy()
        found.append(table[codes] if table.any() else np.zeros(len(rows), dtype=np.bool_))
    return found


def _carried_over(commands: pl.DataFrame, rows: Times, start: Times, launched_by: Codes) -> Times:
    """Return those of `rows`, work without a launch, that start before all launched work of their
    stream, or, if it has none, before the first launch for their device."""
    if not len(rows):
        return rows
    launched = np.flatnonzero(launched_by >= 0)
    both = np.concatenate((rows, launched))
    codes = commands["device"].to_physical().cast(pl.Int64).fill_null(-1) + 1
    streams, device = streams_of(commands, both), codes.to_numpy()[both]
    of_device = np.full(int(device.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(of_device, device[len(rows) :], start[launched_by[launched]])
    of_device[of_device == np.iinfo(np.int64).max] = np.iinfo(np.int64).min  # no launch is known
    first = np.empty(int(streams.max()) + 1, dtype=np.int64)
    first[streams] = of_device[device]
    of_launched = streams[len(rows) :]
    first[of_launched] = np.iinfo(np.int64).max
    np.minimum.at(first, of_launched, start[launched])
    return rows[start[rows] < first[streams[: len(rows)]]]


def streams_of(commands: pl.DataFrame, rows: Times) -> Times:
    """A number for the stream of each row: a stream's kernels and copies are on several tracks."""
    places = commands.select(pl.col("device", "track").gather(pl.Series(rows)))
    pairs = places.unique(maintain_order=True)
    names = [
        (device, _OF_STREAM.sub("", track))
        for device, track in pairs.select(pl.col("device", "track").cast(pl.String)).rows()
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    column = pl.Series([numbers[name] for name in names], dtype=pl.Int64)
    numbered = pairs.with_columns(number=column)
    joined = places.join(
        numbered, on=["device", "track"], how="left", maintain_order="left", nulls_equal=True
    )
    return joined["number"].to_numpy()


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
        reach = end if is_sorted(end) else np.maximum.accumulate(end)
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

"""What each device gap is attributed to, what the host did during it, and when the host stalled.

Every idle moment of a device gets the first cause that applies: unrecorded, outside, a copy,
another device, queue, unknown cause, launch, host. The rules are at `device_gaps`. Missing data is
never attributed to the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import (
    COMPUTES,
    HOST,
    SYNC,
    CommandArrays,
    host_unseen,
    thread_of,
    untraced_calls,
)
from profiler.analysis.context import Inputs
from profiler.analysis.idle_causes import DeviceGaps, GapPosition, HostDoing, WaitCause
from profiler.analysis.result import Analysis
from profiler.analysis.timeline import Axis, device_spans
from profiler.run.device_timeline import Axes
from profiler.run.intervals import Codes, Stretches, Times, batches, group_heads
from profiler.run.launches import NOBODY, DeviceAxis, Launches
from profiler.run.run import Run
from profiler.trace.events import HOST_TRACK, NO_RANK, Call, device_of_rank, rank_of_device

# --- Calls of which drops say that commands are missing.


def dropped_tiles(run: Run) -> Stretches:
    """The tiles of calls whose commands are missing: whether anything ran there is unknown."""
    rows = np.array(dropped_calls(run), dtype=np.int64)
    tiles = run.tiles.calls
    begin, end = (tiles[name].to_numpy()[rows] for name in ("begin_ns", "end_ns"))
    return Stretches.union(begin, end)


def dropped_calls(run: Run) -> list[int]:
    """The rows of `run.calls` whose file is named by a drop that says that time is missing."""
    named = {drop.where for drop in run.drops if drop.kind.has_missing_time}
    if not named:
        return []
    columns = ("call", "submodule", "stage", "branch", "step")
    rows = run.calls.select(columns).rows()
    return [
        row
        for row, (call, submodule, stage, branch, step) in enumerate(rows)
        if Call(call, submodule, stage, branch or "", step, "", 0, 0, True).file_name in named
    ]


# --- The gaps of each device, in which nothing runs on it, and what each is put down to.
#
# Every moment of a device's span, from its first command or tile to the end of its last, at which
# nothing runs on it is put down to the first of these that holds of it:
#
# - unrecorded: nothing was recorded though work or the host waited (`run/device_timeline.py`), or a
#   drop says that commands of the call whose tile it lies in are missing;
# - outside: it lies outside of the end-to-end time, such as among carried-over work (what of it was
#   the profiler's own work counts for nothing, not even for the span);
# - a copy: a command of its own runs that waits for an asynchronous copy (`copy-done` of XLA);
# - another device: another sync command of its own runs, or another device works for one of its
#   calls;
# - in the tile of one of its calls: queue, if what ends the gap had been launched in time, by a
#   call that had returned or whose work followed as quickly as from a queue; unknown cause, if its
#   launch was not recorded though others were (not if all of these returned when their work had
#   ended, so that nothing ever waited in a queue), or nothing of the host was; else launch: it was
#   launched too late, nothing was left to launch, or the trace knows no launches;
# - another device, once more: no tile of its own, but a tile of another device's call, of a
#   pipeline call in which this device has calls too. Calls of a submodule that this device runs
#   itself are copies of its own work (data parallel, one program on many devices): it does not wait
#   for them;
# - host: the rest, between calls.
#
# If the host waited for a device when this one ran dry, launch and host are *sync*: the host
# could not launch ahead, because it waited. What was not recorded is never put down to the host.


_Flags = npt.NDArray[np.bool_]
_COPY = re.compile(r"(copy|slice)-(start|done)")  # what XLA calls the two ends of a copy


def device_gaps(of: Inputs, axes: Axes, dropped: Sequence[int]) -> tuple[DeviceGaps, ...]:
    """Return the gaps of each device that worked and whose calls were traced, by name. `axes` are
    those of the run, `dropped` the rows of calls that drops name."""
    run = of.run
    spans = device_spans(run, of.everything)
    work = _Work.of(of, axes.axes, dropped)
    unrelated = {note.device for note in run.info.health if note.unrelated}
    placed = run.calls["device"].cast(pl.String).to_numpy()
    untraced = untraced_calls(run, run.calls)
    found = []
    for number, name in enumerate(axes.axes):
        here = placed == name
        if not (untraced & here).any() if here.any() else not untraced.any():
            lost = axes.unrecorded.get(name, Stretches.none())
            unseen = name in unrelated or host_unseen(run)
            found.append(work.gaps(number, name, spans[name], axes.launches, lost, unseen=unseen))
    return tuple(found)


class _Work(Struct, frozen=True, eq=False):
    """What the gaps of all devices are measured with. `uses` says which calls worked or have their
    tile on which device, bool [devices, calls]; `last` is when the last work of each call on each
    device ended, int64 [devices, calls], long ago for none; `pipeline` is the pipeline call of each
    call, None if the run has none, `submodule` a code of its submodule."""

    commands: CommandArrays
    layers: pl.Series
    axes: Sequence[DeviceAxis]
    axis: Axis
    begin: Times
    end: Times
    uses: npt.NDArray[np.bool_]
    last: npt.NDArray[np.int64]
    pipeline: Codes | None
    submodule: Codes
    missing: Stretches
    host: Stretches

    @classmethod
    def of(cls, of: Inputs, axes: Mapping[str, DeviceAxis], dropped: Sequence[int]) -> _Work:
        run, commands, pipelines = of.run, of.everything, of.pipelines
        tiles = run.tiles.calls
        begin, end = tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()
        last = np.full((len(axes), len(tiles) + 1), np.iinfo(np.int64).min)
        for row, one in zip(last, axes.values(), strict=True):
            np.maximum.at(row, one.call[one.heads], np.maximum.reduceat(one.end, one.heads))
        last = last[:, :-1]
        on = tiles["tile_device"].to_numpy()
        rows = np.array(dropped, dtype=np.int64)
        free = np.flatnonzero((commands.call < 0) & (commands.category == HOST))
        host = Stretches.union(commands.start[free], commands.end[free])
        return cls(
            commands=commands,
            layers=run.commands["layer"],
            axes=tuple(axes.values()),
            axis=of.axis,
            begin=begin,
            end=end,
            uses=(last > np.iinfo(np.int64).min) | (np.array([*axes])[:, None] == on[None, :]),
            last=last,
            pipeline=pipelines.code_of(run.calls) if len(pipelines.numbers) else None,
            submodule=run.calls["submodule"].cast(pl.Categorical).to_physical().to_numpy(),
            missing=Stretches.union(begin[rows], end[rows]),
            host=host.minus(of.axis.waits),
        )

    def gaps(
        self,
        number: int,
        name: str,
        span: tuple[int, int],
        launches: Launches | None,
        unrecorded: Stretches,
        *,
        unseen: bool,
    ) -> DeviceGaps:
        """The gaps of one device; `unseen` is whether nothing of the host was recorded, or only by
        another clock."""
        own = np.flatnonzero(self.uses[number])
        lost = Stretches.of_all((unrecorded, self.missing))
        counted = self.axis.counted.minus(lost)
        tiles = Stretches.union(self.begin[own], self.end[own])
        last = np.clip(self.last[number, own], self.begin[own], self.end[own])
        ended = Stretches.union(last, self.end[own])
        copying = self._copying(name)
        covers = [Stretches.of_all((copying, self._elsewhere(number, name))).both(counted)]
        for more in (ended, tiles, self._tiles_beside(self.uses[number]), self.host):
            covers.append(Stretches.of_all((covers[-1], more.both(counted))))
        axis = self.axes[number]
        launch, late = _ended(axis, launches)
        return DeviceGaps(
            device=name,
            calls=own,
            span=span,
            busy=axis.busy,
            launch=launch,
            late=late,
            unknown=_unknown(axis, launches, launch, unseen=unseen),
            counted=counted,
            copying=copying.both(counted),
            elsewhere=covers[0],
            tails=covers[1],
            own=covers[2],
            others=covers[3],
            host=covers[4],
            in_tiles=tiles.both(counted),
            profilers=self.axis.beside.minus(unrecorded),
            missing=self.axis.counted.both(lost),
            unrecorded=lost,
            waits=self.axis.waits,
        )

    def _elsewhere(self, number: int, name: str) -> Stretches:
        """Return when a sync command of the device ran, or another device worked for its calls."""
        commands, syncs = self.commands, self._syncs(name)
        several = self.uses[number] & ((self.last > np.iinfo(np.int64).min).sum(axis=0) > 0)
        shared = np.pad(self.uses & several, ((0, 0), (0, 1)))  # a call of -1 takes the last
        shared[number] = False
        others: list[int] = np.flatnonzero(shared.any(axis=1)).tolist()
        starts, ends = [commands.start[syncs]], [commands.end[syncs]]
        for axis, of_calls in ((self.axes[other], shared[other]) for other in others):
            kept = of_calls[axis.call]
            starts.append(axis.start[kept])
            ends.append(axis.end[kept])
        return Stretches.union(np.concatenate(starts), np.concatenate(ends))

    def _copying(self, name: str) -> Stretches:
        """Return when a command of the device ran that waits for a copy."""
        syncs = self._syncs(name)
        copies = self.layers[syncs].cast(pl.String).fill_null("").str.contains(_COPY.pattern)
        rows = syncs[copies.to_numpy()]
        return Stretches.union(self.commands.start[rows], self.commands.end[rows])

    def _syncs(self, name: str) -> Times:
        """The rows of the device's sync commands."""
        here = self.commands.device == self.commands.devices.index(name)
        return np.flatnonzero(here & (self.commands.category == SYNC))

    def _tiles_beside(self, own: _Flags) -> Stretches:
        """The tiles of other devices' calls, in pipeline calls (or in the run, if it has none) in
        which this device has calls. Calls of submodules that it runs itself are left out."""
        beside = ~own & ~np.isin(self.submodule, self.submodule[own])
        if self.pipeline is not None:
            beside &= np.isin(self.pipeline, self.pipeline[own & (self.pipeline >= 0)])
        rows = np.flatnonzero(beside)
        return Stretches.union(self.begin[rows], self.end[rows])


def _ended(axis: DeviceAxis, launches: Launches | None) -> tuple[Codes, _Flags] | tuple[None, None]:
    """Return for each gap of an axis the row of the command that launched the work after it, -1 if
    unknown, and whether it did so too late; no work follows the last gap. None without launches."""
    if launches is None or axis.source is None:
        return None, None
    return np.append(axis.source[axis.ender], np.int32(-1)), np.append(axis.late(launches), False)


def _unknown(
    axis: DeviceAxis, launches: Launches | None, launch: Codes | None, *, unseen: bool
) -> _Flags | None:
    """Return for each gap whether it is unknown if the host was late, since the launch of the work
    after it was not recorded; None if that is so of no gap. It is known for gaps that no launch
    ends: the last, and those before a driver's own copy."""
    if unseen:
        return np.ones(len(axis.gaps), dtype=np.bool_)
    if launches is None or launch is None:
        return None
    unknown = (launch < 0) & (launch != NOBODY)
    unknown[-1] = False
    return unknown if unknown.any() and not axis.queues_nothing(launches) else None


# --- What the host did while a device had nothing to run, as far as it was recorded.
#
# That is its commands (launches, waits, host work of no call) and the activities that an importer
# kept of Python frames, operators and runtime calls (`RunInfo.host_activities`). Of all that the
# launching thread was in, the innermost that covers at least half of the time; if none does, the
# one that covers most of it.


_LEAST = 10  # of a time: what covers less than this part is not what the host did


class Doing(Struct, frozen=True):
    """An activity of the host, how much of a time it covers, and what it called most often."""

    name: str
    kind: HostDoing
    covered_ns: int
    repeated: str | None = None
    times: int | None = None


class HostDoings(Struct, frozen=True, eq=False):
    """k activities of the host, in order of start: `start` and `end`, int64 [k]; `reach` is the
    latest end so far; `row` is the row of a command, or -1 - i for the i-th activity of the run,
    int64."""

    run: Run
    start: Times
    end: Times
    reach: Times
    row: Times

    @classmethod
    def of(cls, run: Run, commands: CommandArrays, times: Stretches) -> HostDoings:
        """Collect the run's host activities, and its host commands that lie in some of these
        times."""
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
        """Return what the host did from `first` to `last`, on the thread of the command in row
        `launch`, or on any thread if that is -1. None if unknown."""
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
        elif (self.run.flows["source"] == row).any():
            kind = HostDoing.LAUNCH
        return Doing(self._text("layer", row), kind, covered)

    def _waited(self, row: int) -> bool:
        """Whether a command is a wait for a device, such as a copy that returned behind its end."""
        start, took = (int(self.run.commands[name][row]) for name in ("start_ns", "duration_ns"))
        first = np.array([start])
        waited = int(self.run.tiles.waits.within(first, first + took)[0])
        return waited == took

    def _text(self, column: str, row: int) -> str:
        return str(self.run.commands[column][row])

    def _thread_of(self, row: int) -> str:
        if row < 0:
            return self.run.info.host_activities[-1 - row].thread
        return self._on_rank(row, thread_of(self._text("track", row)))

    def _on_rank(self, row: int, thread: str) -> str:
        """The name of a thread on the rank of a command."""
        rank = rank_of_device(str(self.run.commands["device"][row] or ""))
        return thread if rank == NO_RANK else device_of_rank(rank, thread)


# --- When the first and the last kernel of each call ran on a device, and what lies before them.
#
# A kernel is a command of category compute or other. Copies may run long before and do not count.


_NEVER = np.iinfo(np.int64).max


class KernelsOfCalls(Struct, frozen=True, eq=False):
    """Times of each call of a run, int64 [n]: start and end of its tile, and on one device the
    start of its `first` kernel and the end of its `last`; `first` is after `last` without kernels.
    `own` are the rows of calls that used the device."""

    begin: Times
    end: Times
    first: Times
    last: Times
    own: Times

    @classmethod
    def of(
        cls, devices: Iterable[DeviceGaps], run: Run, commands: CommandArrays
    ) -> dict[str, KernelsOfCalls]:
        """The kernels of calls on each device, by name; `commands` are those of `run`, whose calls
        are sorted."""
        begin, end = (run.tiles.calls[name].to_numpy() for name in ("begin_ns", "end_ns"))
        first, last = _extents(commands, len(run.calls))
        number = {name: row for row, name in enumerate(commands.devices)}
        return {
            gaps.device: cls(
                begin, end, first[number[gaps.device]], last[number[gaps.device]], gaps.calls
            )
            for gaps in devices
        }

    def place(self, start: int, end: int) -> tuple[GapPosition, int]:
        """Return where a gap of the device lies, and the row of its call: the one whose tile
        contains at least half of the gap, or else the next one, -1 for none."""
        begin, until = self.begin[self.own], self.end[self.own]
        inside = np.minimum(until, end) - np.maximum(begin, start)
        place = int(inside.argmax()) if len(inside) else -1
        if place < 0 or 2 * int(inside[place]) < end - start:
            behind = np.flatnonzero(begin >= start)
            following = self.own[behind[begin[behind].argmin()]] if len(behind) else -1
            return GapPosition.BETWEEN_CALLS, int(following)
        call = int(self.own[place])
        first, last = int(self.first[call]), int(self.last[call])
        position = GapPosition.INSIDE
        if end <= first < _NEVER:
            position = GapPosition.BEFORE_FIRST_KERNEL
        elif -_NEVER < last <= start:
            position = GapPosition.AFTER_LAST_KERNEL
        return position, call


def _extents(commands: CommandArrays, calls: int) -> tuple[Times, Times]:
    """Return the start of the first and the end of the last kernel on each device of each call,
    int64 [devices, calls] each; the first is after the last without kernels."""
    places = len(commands.devices) + 1, calls + 1  # the last are no device and no call
    first, last = np.full(places, _NEVER), np.full(places, -_NEVER)
    for rows in batches(len(commands.start)):
        device, call = commands.device[rows], commands.call[rows]
        kernels = COMPUTES[commands.category[rows]]
        heads = group_heads(device, call)
        place = (device[heads] + 1) * np.int64(calls + 1) - 1  # of no call
        place -= np.where(call[heads] < 0, 0, calls - call[heads])
        begins = np.where(kernels, commands.start[rows], _NEVER)
        np.minimum.at(first.reshape(-1), place, np.minimum.reduceat(begins, heads))
        ends = np.where(kernels, commands.end[rows], -_NEVER)
        np.maximum.at(last.reshape(-1), place, np.maximum.reduceat(ends, heads))
    return first[:, :-1], last[:, :-1]


def before_first_kernels(
    devices: Iterable[DeviceGaps], run: Run, kernels: Mapping[str, KernelsOfCalls]
) -> pl.Series:
    """Return how long each call was launch-bound before its first kernel, in its tile; 0 without
    kernels, null if it is unknown what its device did, int64 [n]. `kernels` are those of all
    devices."""
    found = pl.Series([None] * len(run.calls), dtype=pl.Int64)
    placed = run.tiles.calls["tile_device"].cast(pl.String).to_numpy()
    for gaps in devices:
        of_calls = kernels[gaps.device]
        rows = np.flatnonzero(placed == gaps.device)
        begin, end = of_calls.begin[rows], of_calls.end[rows]
        there = of_calls.first[rows] < _NEVER
        until = np.where(there, np.minimum(of_calls.first[rows], end), begin)
        bound = gaps.launched_late.minus(gaps.unrecorded)
        found = found.scatter(rows, bound.within(begin, until))
    return found


# --- Stalls: times at which the host stood still once. A stall is a long gap of a device in one
# call of a submodule, and other calls have no such gap. Its cause (a garbage collection, a library
# that is loaded, a profiler at its start) is not what each call launches.


_WITHOUT_DEVICE = (WaitCause.LAUNCH, WaitCause.OPERATORS, WaitCause.SYNC)
LONG_STALL = 10_000_000  # without a launch: no host that launches takes so long for the next
_ALIKE = 0.25  # of its length: with such a gap in another call it is no stall


class Stalls(Struct, frozen=True):
    """Number and total length of some stalls; what the host was in during the longest, "" if
    unknown; when the last began."""

    times: int
    length_ns: int
    host_in: str
    last_begin_ns: int


def stalls_of(
    analysis: Analysis,
    *,
    device: str | None = None,
    call: int | None = None,
    submodule: str | None = None,
    stage: str | None = None,
) -> Stalls | None:
    """The stalls in calls on a device, in one call, or of a submodule or stage; None if there are
    none. Without a device, stalls after a wait for one count too."""
    causes = (WaitCause.LAUNCH,) if device else _WITHOUT_DEVICE
    asked = {"device": device, "call": call, "submodule": submodule, "stage": stage}
    found = [
        row
        for row in _stalls(analysis, causes)
        if all(value in (None, row[name]) for name, value in asked.items())
    ]
    if not found:
        return None
    found.sort(key=lambda row: -row["length_ns"])
    return Stalls(
        len(found),
        sum(row["length_ns"] for row in found),
        str(found[0]["host_activity"] or ""),
        max(row["begin_ns"] for row in found),
    )


def stall_begins(analysis: Analysis) -> list[int]:
    """The starts of stalls that were not caused by a wait for a device."""
    return [row["begin_ns"] for row in _stalls(analysis, (WaitCause.LAUNCH,))]


def stall_times(analysis: Analysis) -> Stretches:
    """Return when the host stalled, in calls of any device."""
    rows = list(_stalls(analysis, _WITHOUT_DEVICE))
    begin = np.array([row["begin_ns"] for row in rows], dtype=np.int64)
    length = np.array([row["length_ns"] for row in rows], dtype=np.int64)
    return Stretches.union(begin, begin + length)


def _stalls(analysis: Analysis, causes: Sequence[WaitCause]) -> Iterator[dict[str, Any]]:
    """The gaps of these causes that are stalls."""
    waited = analysis.gaps.filter(pl.col("cause").is_in(causes))
    if not (waited["length_ns"] >= LONG_STALL).any():
        return
    waited = waited.with_columns(pl.col("submodule").cast(pl.String)).join(
        analysis.calls.select("call", "stage"), on="call", maintain_order="left"
    )
    calls = analysis.calls.group_by(pl.col("submodule").cast(pl.String)).len()
    several = {name for name, number in calls.iter_rows() if number > 1}
    for row in waited.filter(pl.col("length_ns") >= LONG_STALL).to_dicts():
        others = waited.filter(pl.col("call") != row["call"], submodule=row["submodule"])
        longest = others["length_ns"].max() or 0
        if row["submodule"] in several and longest < _ALIKE * row["length_ns"]:
            yield row

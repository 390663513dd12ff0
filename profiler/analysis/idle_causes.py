"""Why a device is idle: launches, queues and host waits behind each gap.

A command with a recorded launch is host-bound if the command before it in its queue had ended
when it was launched. Otherwise the device was behind. The host waits for a device in sync
commands, in copies that block, and in silences that match the device's work (`silent_waits`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import HOST, SYNC, CommandArrays, is_accelerator, queue_codes
from profiler.analysis.timeline import Axis, PipelineCalls
from profiler.run.intervals import (
    Codes,
    Stretches,
    Times,
    batches,
    group_heads,
    is_sorted,
    order_by,
    positions,
)
from profiler.run.launches import Busy, blocking_copies, synchronous
from profiler.run.run import Run
from profiler.trace.events import device_kind


class WaitCause(StrEnum):
    """Why nothing runs on a device."""

    LAUNCH = "launch"  # the host launches too late, or has no more to launch
    OPERATORS = "between_operators"  # launch on a CPU, for which no host launches
    SYNC = "sync"  # launch, because the host had waited for a device
    QUEUE = "queue"  # the next command was launched in time, and has not started
    COPY = "copy_wait"  # an asynchronous copy of its own
    OTHER_DEVICE = "other_device"
    HOST = "host"  # between calls
    DATA = "data"
    UNRECORDED = "unrecorded"


class GapPosition(StrEnum):
    """Where a gap of a device lies, seen from its calls."""

    BEFORE_FIRST_KERNEL = "before_first_kernel"  # of the call: copies may have run
    INSIDE = "inside"
    AFTER_LAST_KERNEL = "after_last_kernel"  # of the call, on this device
    BETWEEN_CALLS = "between_calls"


class HostDoing(StrEnum):
    """Kind of the host's activity: as `ActivityKind` has it, or by its commands."""

    FUNCTION = "function"
    OPERATOR = "operator"
    RUNTIME_CALL = "runtime_call"
    RANGE = "range"
    LAUNCH = "launch"
    WAIT = "wait"
    HOST_WORK = "host_work"


# --- The gaps of each device, in which nothing runs on it, and what each is put down to.


_Flags = npt.NDArray[np.bool_]
_Within = Callable[[Stretches], Times]
OUTSIDE = "outside"
UNKNOWN_CAUSE = "unknown_cause"
PARTS: tuple[str, ...] = (
    WaitCause.LAUNCH,
    UNKNOWN_CAUSE,
    WaitCause.SYNC,
    WaitCause.QUEUE,
    WaitCause.COPY,
    WaitCause.OTHER_DEVICE,
    WaitCause.HOST,
    WaitCause.UNRECORDED,
    OUTSIDE,
)
"""Causes of a moment without work."""


def cause_on(device: str, part: str) -> str:
    """Return what a cause of `PARTS` is called on a device."""
    if part == WaitCause.LAUNCH and not is_accelerator(device):
        return WaitCause.OPERATORS
    return part


class DeviceGaps(Struct, frozen=True, eq=False):
    """The k gaps of a device, in order. The first starts before all time and the last ends after
    it; only what lies in `span` counts. `launch` is the row of the command that launched the work
    after each gap, -1 if unknown, and `late` whether it did so too late, [k] each; both None if no
    launch was recorded. `unknown` is whether it is unknown if the host was late: that launch was
    not recorded; [k], None if that is so of no gap. `calls` are the rows of the calls that worked
    on the device, or have their tile there. `busy` is when it worked.

    Gaps are measured with times within the counted time (`counted`, end to end), each with those
    before it: `copying` is when the device waited for a copy of its own, `elsewhere` for another
    device, `tails` when its calls had no more to launch, `own` when a call of its own, `others`
    when a call of other devices, `host` when host work was under way. `profilers` is when callers
    waited for the profiler, outside of counted and unrecorded time. `in_tiles` are the tiles of its
    calls in counted time, `unrecorded` is when nothing was recorded of it, or a drop says so,
    `missing` the part of the end-to-end time that does not count for that, `waits` when the host
    waited for a device.
    """

    device: str
    calls: Times
    span: tuple[int, int]
    busy: Busy
    launch: Codes | None
    late: _Flags | None
    unknown: _Flags | None
    counted: Stretches
    copying: Stretches
    elsewhere: Stretches
    tails: Stretches
    own: Stretches
    others: Stretches
    host: Stretches
    in_tiles: Stretches
    profilers: Stretches
    missing: Stretches
    unrecorded: Stretches
    waits: Stretches

    def __len__(self) -> int:
        return len(self.busy.gaps)

    def ranges(self, rows: slice | Times) -> tuple[Times, Times]:
        """Start and end of some gaps within the span, int64 [len(rows)] each, in ns."""
        gaps = self.busy.gaps
        return np.clip(gaps.start[rows], *self.span), np.clip(gaps.end[rows], *self.span)

    def dry(self, first: Times, last: Times) -> Times:
        """How long nothing ran in each `[first, last)` within the span, int64, in ns."""
        return self.busy.gaps.within(np.clip(first, *self.span), np.clip(last, *self.span))

    @property
    def launched_late(self) -> Stretches:
        """The gaps, within the span, that ended with work that was launched too late."""
        if self.late is None:
            return Stretches.none()
        start, end = self.ranges(np.flatnonzero(self.late))
        return Stretches(start, end).where(end > start)

    def launched_by(self, row: int) -> int:
        """The row of the command that launched the work after a gap, -1 if unknown."""
        return -1 if self.launch is None else int(self.launch[row])

    def parts(self, rows: Times) -> Times:
        """Return the time of some gaps by cause, int64 [len(PARTS), len(rows)], in ns: the columns
        add up to their lengths."""
        start, end = self.ranges(rows)
        until = np.minimum(start + self._waited(start), end)
        blocked = np.ones(len(rows), dtype=np.bool_)
        kind = (self._in_time(rows), self._unknown(rows))
        head = self._parts(lambda c: c.within(start, until), until - start, blocked, *kind)
        rest = self._parts(lambda c: c.within(until, end), end - until, ~blocked, *kind)
        return head + rest

    def long_parts(self, length: int) -> dict[str, int]:
        """Return the time, by cause, of gaps with more than `length` ns of idle time, in ns."""
        rows = self._at_least(length + 1)
        rows = rows[self.counted.within(*self.ranges(rows)) > length]
        return dict(zip(PARTS, self.parts(rows).sum(axis=1).tolist(), strict=True))

    def _waited(self, moments: Times) -> Times:
        """Return how long the host had waited for a device at each moment, 0 if it did not; int64,
        in ns. Without the wait it would have been that much earlier, so no more of a gap is due to
        it."""
        waits = self.waits
        if not len(waits):
            return np.zeros(len(moments), dtype=np.int64)
        since = waits.start[np.searchsorted(waits.start, moments, side="right") - 1]
        return np.where(waits.holds(moments), moments - since, 0)

    def totals(self) -> dict[str, int]:
        """Return the time of all gaps by cause, in ns. `inside` is the part in tiles of the
        device's calls, `host_work` the host's part with host work of no call, `profiler` the
        profiler's own work, which is not in `outside`.

        Overlaps are computed from covers, which are few, not from gaps.
        """
        sums = dict.fromkeys((*PARTS, "inside", "host_work", "profiler"), 0)
        span = Stretches(*np.array([[each] for each in self.span]))
        for kind, gaps in self._kinds():
            within = self._overlap_with(gaps)
            found = self._parts(within, within(span), *kind)
            for name, (length,) in zip(PARTS, found.tolist(), strict=True):
                sums[name] += length
            sums["inside"] += int(within(self.in_tiles)[0])
            sums["profiler"] += int(within(self.profilers)[0])
            if not kind[0]:
                sums["host_work"] += int((within(self.host) - within(self.others))[0])
        sums[OUTSIDE] -= sums["profiler"]
        return sums

    def parts_in(self, windows: Sequence[Stretches]) -> list[dict[str, int]]:
        """Return the time of the gaps by cause in each of some windows, in ns."""
        sums = [dict.fromkeys(PARTS, 0) for _ in windows]
        span = Stretches(*np.array([[each] for each in self.span]))
        for kind, gaps in self._kinds():
            for window, found in zip(windows, sums, strict=True):
                within = self._overlap_with(gaps.both(window))
                lengths = self._parts(within, within(span), *kind).tolist()
                for name, (length,) in zip(PARTS, lengths, strict=True):
                    found[name] += length
        return sums

    def _parts(
        self, within: _Within, length: Times, blocked: _Flags, in_time: _Flags, unknown: _Flags
    ) -> Times:
        """The time of gaps by cause, from how much of them lies `within` each cover, [len(PARTS),
        k]."""
        borders = (self.elsewhere, self.tails, self.own, self.others, self.counted)
        elsewhere, tails, own, others, counted = map(within, borders)
        copying, unrecorded = within(self.copying), within(self.unrecorded)
        queue = np.where(in_time, own - tails, 0)
        launch, host = own - elsewhere - queue, counted - others
        return np.stack(
            (
                np.where(blocked | unknown, 0, launch),
                np.where(unknown, launch, 0),
                np.where(blocked, np.where(unknown, 0, launch) + host, 0),
                queue,
                copying,
                elsewhere + others - own - copying,
                np.where(blocked, 0, host),
                unrecorded,
                length - unrecorded - counted,
            )
        )

    def _overlap_with(self, gaps: Stretches) -> _Within:
        """Return a function: how much of a cover lies in `gaps` and the span, int64 [1]."""

        def overlap(cover: Stretches) -> Times:
            first, last = np.clip(cover.start, *self.span), np.clip(cover.end, *self.span)
            length: Times = gaps.within(first, last).sum(keepdims=True)
            return length

        return overlap

    def _kinds(self) -> Iterator[tuple[tuple[_Flags, _Flags, _Flags], Stretches]]:
        """Yield gaps by whether the host was late because it had waited, whether the work after
        them was launched in time, and whether that is unknown, bool [1] each. Kinds without gaps
        are left out. A gap that started while the host waited is split: it is of the first kind for
        as long as the host had waited."""
        if self.launch is None and self.unknown is None and not len(self.waits):
            never = np.array([False])
            yield (never, never, never), self.busy.gaps
            return
        kind = np.zeros(len(self), dtype=np.uint8)
        for rows in batches(len(self)):
            blocked = self.waits.holds(self.ranges(rows)[0])
            kind[rows] = 4 * self._unknown(rows) + 2 * blocked + self._in_time(rows)
        for number in np.flatnonzero(np.bincount(kind)).tolist():
            in_time, unknown = (np.array([bool(number & bit)]) for bit in (1, 4))
            gaps = self.busy.gaps.where(kind == number)
            if number & 2:
                start = np.clip(gaps.start, *self.span)
                until = np.minimum(start + self._waited(start), gaps.end)
                waited = Stretches(gaps.start, until).where(until > gaps.start)
                yield (np.array([True]), in_time, unknown), waited
                gaps = Stretches(until, gaps.end).where(gaps.end > until)
            yield (np.array([False]), in_time, unknown), gaps

    def _in_time(self, rows: slice | Times) -> _Flags:
        """Return whether the work after each gap is known to have been launched in time."""
        if self.launch is None or self.late is None:
            return np.zeros(len(self.busy.gaps.start[rows]), dtype=np.bool_)
        return (self.launch[rows] >= 0) & ~self.late[rows] & ~self._unknown(rows)

    def _unknown(self, rows: slice | Times) -> _Flags:
        """Return whether it is unknown if the host was late for the work after each gap."""
        if self.unknown is None:
            return np.zeros(len(self.busy.gaps.start[rows]), dtype=np.bool_)
        return self.unknown[rows]

    @property
    def end_to_end_ns(self) -> int:
        """The end-to-end time of the run, whether recorded of this device or not."""
        return self.counted.length + self.missing.length

    def longest(self, count: int) -> Times:
        """The rows of at most `count` gaps with most idle or unrecorded time, longest first; gaps
        without any are left out. The longest gaps are examined first, so that most are not
        needed."""
        tried = count
        while True:
            tried = min(16 * tried, len(self))
            least = self._length_of(tried)
            rows = self._at_least(least)
            first, last = self.ranges(rows)
            length = self.counted.within(first, last) + self.unrecorded.within(first, last)
            order = np.argsort(-length, kind="stable")[:count]
            order = order[length[order] > 0]
            enough = len(order) == count and int(length[order[-1]]) >= least
            if enough or tried == len(self):
                return rows[order]

    def _length_of(self, rank: int) -> int:
        """The length of the gap at `rank` by length, longest first; the gaps at both ends come
        before."""
        most = np.zeros(0, dtype=np.int64)
        for rows in batches(len(self)):
            most = np.concatenate((most, self._whole(rows)))
            most = np.partition(most, max(len(most) - rank, 0))[-rank:]
        return int(most.min())

    def _at_least(self, length: int) -> Times:
        """The rows of the gaps of at least `length` ns, and of those at the ends."""
        return np.concatenate(
            [
                rows.start + np.flatnonzero(self._whole(rows) >= length)
                for rows in batches(len(self))
            ]
        )

    def _whole(self, rows: slice) -> Times:
        """The lengths of some gaps, including what lies outside of the span."""
        return self.busy.gaps.end[rows] - self.busy.gaps.start[rows]

    def longer_than(self, length: int) -> Times:
        """Return the idle time of each gap that has more than `length` ns of it."""
        idle = self.counted.within(*self.ranges(self._at_least(length + 1)))
        return idle[idle > length]


# --- When commands of devices were launched, by flows from host commands.


NOT_LAUNCHED = np.iinfo(np.int64).min


class Launches(Struct, frozen=True, eq=False):
    """Launches of a run: `source` and `target`, rows of commands, int64 [m], are host commands and
    what each launched on a device. `returned` is when the launch of each command of the run had
    returned, int64 [n], NOT_LAUNCHED if none is known; it is empty if there are no launches."""

    source: Times
    target: Times
    returned: Times

    def __len__(self) -> int:
        return len(self.source)


def launches_of(run: Run, commands: CommandArrays) -> Launches:
    """The launches of `run`; `commands` are the arrays of all its commands."""
    source, target = (run.flows[name].to_numpy() for name in ("source", "target"))
    kept = np.zeros(len(source), dtype=np.bool_)
    for rows in batches(len(source)):
        kept[rows] = commands.category[source[rows]] == HOST
        kept[rows] &= commands.category[target[rows]] != HOST
    source, target = source[kept], target[kept]
    returned = np.full(len(commands.start) if len(source) else 0, NOT_LAUNCHED)
    np.maximum.at(returned, target, commands.end[source])
    return Launches(source, target, returned)


# --- What happened when in a run: the input of the analyses that say who waited for whom.


class RunTimeline(Struct, frozen=True, eq=False):
    """A whole run whose calls are sorted by `call`: its commands as arrays, its axis, what launched
    which command, and its pipeline calls."""

    run: Run
    commands: CommandArrays
    axis: Axis
    launches: Launches
    pipelines: PipelineCalls


# --- Waits of the host that were not recorded: inferred from its silence while a device worked.
#
# If a trace has no wait, a launch that comes just after the device ran dry has two explanations:
# the host worked for as long, or it waited for the device. Nothing of the host was recorded
# meanwhile. Work that takes as long as what the device does, time and again, is not to be expected;
# so the host is taken to have waited if the device was busy for nearly all of its silence: in the
# commands of a call on a queue, launches that came too late left the device idle for at most a
# tenth of the times in which the host was silent. A host that launches too late leaves it idle for
# longer.


_IDLE_PART = 10  # max idle part of the host's silence, as 1 / n


class Silences(Struct, frozen=True, eq=False):
    """What was recorded of each host, by the code of its device: starts in order, and the latest
    end so far; int64 [k] each."""

    recorded: dict[int, tuple[Times, Times]]

    @classmethod
    def of(cls, commands: CommandArrays, launchers: Times) -> Silences:
        """Collect the hosts of the commands in rows `launchers`, int64 [m]."""
        kinds = np.isin(commands.category, (HOST, SYNC))
        recorded = {}
        for host in np.unique(commands.device[launchers]).tolist():
            rows = np.flatnonzero(kinds & (commands.device == host))
            rows = rows[np.argsort(commands.start[rows], kind="stable")]
            recorded[host] = (commands.start[rows], np.maximum.accumulate(commands.end[rows]))
        return cls(recorded)

    def since(self, host: int, moments: Times) -> Times:
        """Return since when nothing was recorded of a host at each moment, -1 if something was, or
        nothing had been yet."""
        begun, until = self.recorded[host]
        before = np.searchsorted(begun, moments, side="right") - 1
        since = np.where(before >= 0, until[before], -1)
        return np.where(since <= moments, since, -1)

    def waited(self, host: int, ended: int, last: int) -> bool:
        """Whether a host that was silent until `last` is taken to have waited for work that `ended`
        on a device."""
        since = int(self.since(host, np.array([last]))[0])
        return 0 <= since < ended and (last - ended) * _IDLE_PART <= last - since


def silent_waits(
    commands: CommandArrays,
    silences: Silences,
    row: Times,
    source: Times,
    queue: Codes,
    dry: Times,
    late: npt.NDArray[np.bool_],
) -> Times:
    """Return the places in `row` of commands that the host is taken to have waited for before it
    launched the next one of the queue, int64 [w], in order.

    `row`, `source` and `queue`, int64 [m]: commands by queue and start, what launched each, the
    queue of each; `dry`, when the queue had done all up to each; `late`, bool [m]: launched after
    the one before in its queue had ended, of which there is one.
    """
    place = np.flatnonzero(late) - 1
    ended = dry[place]
    gap = np.maximum(commands.start[row[place + 1]] - ended, 0)
    since = np.full(len(place), -1)
    host = commands.device[source[place + 1]]
    for code in np.unique(host).tolist():
        own = np.flatnonzero(host == code)
        since[own] = silences.since(code, ended[own])
    silent = (since >= 0) & (since < ended)
    worked = np.where(silent, ended - since, 0)
    call = commands.call[row[place]].astype(np.int64)
    key = queue[place].astype(np.int64) * (int(call.max(initial=0)) + 2) + call + 1
    _, group = np.unique(key, return_inverse=True)
    idle, busy = np.bincount(group, gap), np.bincount(group, worked)
    waited = idle * _IDLE_PART <= idle + busy
    return place[silent & waited[group]]


# --- Queues of devices, and when the host waited for them: how the critical path is traced back.
#
# Commands that were launched (by a flow from a host command) are in queues, one per stream. A
# command had been launched when its launch returned; if it started before that, when its launch
# began. It is *host-bound* if the one before it in its queue had ended by then: the device waited
# for the host. Else the device was behind, and the command before it is what it waited for. The
# host waits for a device in
#
# - sync commands on a CPU, and host commands that are called Synchronize: for the last command that
#   ended meanwhile;
# - host commands that launched a transfer and did not return before it had ended, or were blocked
#   by it (`blocking_copies`): for that;
# - host commands that launched other work and return when it has ended, by whatever name: for that,
#   launched when it begins;
# - host commands and waits with a flow from a command of a device: for that;
# - silences in which a device worked and after which the host launched at once, or the path ends,
#   though no wait was recorded: for what ended last (`silent_waits`).
#
# The critical path, backward from its end, stays with the host until the host returned from such a
# wait, or starts on a device if a command ends with it. Then it is what the device did up to there,
# back to the last host-bound command, and from there on the host again, when it had launched this
# one. That gives *stretches*: times at which the path is on a device. At all other times it is on
# the host.


_WAITS = "(?i)synchronize"


class Stretch(Struct, frozen=True):
    """The path is on a device from `start` to `end`: commands `first` to `last` of `Queues.row`,
    none of which had ended by `start`. `guessed`: due to a wait that was not recorded."""

    start: int
    end: int
    first: int
    last: int
    guessed: bool


class Queues(Struct, frozen=True, eq=False):
    """m launched commands by queue and start, int64 [m]: `row` of the command; `reach`, until when
    the queue was busy; `bound`, the place of the last host-bound one up to it; `launched`, when it
    had been launched; `host`, the code of the device that launched it. Waits of the host in order
    of their ends, int64 [w]: `returned`, `awaited`, the place of the command waited for, and bool
    [w] `guessed`, whether it was not recorded. `silences`: when nothing was recorded of hosts;
    `shared`: the codes of devices with several queues."""

    row: Times
    reach: Times
    bound: Times
    launched: Times
    host: Codes
    returned: Times
    awaited: Times
    guessed: npt.NDArray[np.bool_]
    silences: Silences
    shared: tuple[int, ...]

    @classmethod
    def of(cls, timeline: RunTimeline) -> Queues:
        """The queues of a run."""
        commands, launches = timeline.commands, timeline.launches
        if not len(launches):
            nothing = np.zeros(0, dtype=np.int64)
            return cls(*(nothing,) * 7, nothing.astype(np.bool_), Silences({}), ())
        row, queue, launched, source = _in_queues(timeline)
        of = timeline.run.commands
        held = synchronous(of, commands.category, source, row, commands.start, commands.end)
        launched[held] = commands.start[row[held]]
        heads = group_heads(queue)
        reach = commands.end[row]
        for first, last in zip(heads, [*heads[1:], len(row)], strict=True):
            np.maximum.accumulate(reach[first:last], out=reach[first:last])
        host_bound = np.ones(len(row), dtype=np.bool_)
        host_bound[1:] = launched[1:] > reach[:-1]
        host_bound[heads] = True
        bound = np.where(host_bound, np.arange(len(row)), 0)
        np.maximum.accumulate(bound, out=bound)
        host_bound[heads] = False  # nothing ran before them in their queue
        silences = Silences.of(commands, source)
        silent = silent_waits(commands, silences, row, source, queue, reach, host_bound)
        held_until = np.minimum(commands.end[source[held]], reach[held])
        waits = _waits(timeline, row, reach, heads, silent, held, held_until)
        host = commands.device[source]
        shared = np.flatnonzero(np.bincount(commands.device[row[heads]]) > 1).tolist()
        return cls(row, reach, bound, launched, host, *waits, silences, tuple(shared))

    def stretches(self, first: int, last: int) -> list[Stretch]:
        """Return when the path that ends on the host at `last` is on devices, back to `first`; in
        order of time, disjoint."""
        found: list[Stretch] = []
        moment, wait = last, len(self.returned)
        if (ending := self._ending(last)) is not None:
            guessed = int(self.reach[ending]) < last
            moment = self._add(found, ending, last, first, last, guessed)
        while True:
            wait = bisect_right(self.returned, moment, 0, wait) - 1
            if wait < 0 or self.returned[wait] <= first:
                return found[::-1]
            awaited, returned = int(self.awaited[wait]), int(self.returned[wait])
            guessed = bool(self.guessed[wait])
            moment = self._add(found, awaited, returned, first, moment, guessed)

    def _ending(self, last: int) -> int | None:
        """The place of the command that ends at `last`, or that a silent host waited for until
        then; None if there is none."""
        if not len(self.reach):
            return None
        place = int(np.argmax(np.where(self.reach <= last, self.reach, -1)))
        ended, host = int(self.reach[place]), int(self.host[place])
        silent = ended < last and self.silences.waited(host, ended, last)
        return place if ended == last or silent else None

    def _add(
        self, found: list[Stretch], awaited: int, until: int, first: int, moment: int, guessed: bool
    ) -> int:
        """Add the stretch that ends with the command `awaited` or at `until`, and starts at `first`
        or later. Return where the path goes on: at `moment` without a stretch."""
        bound = int(self.bound[awaited])
        end = min(int(self.reach[awaited]), until)
        start = max(int(self.launched[bound]), first)
        if start >= end:
            return moment
        bound += int(np.searchsorted(self.reach[bound : awaited + 1], start, side="right"))
        found.append(Stretch(start, end, bound, awaited, guessed))
        return start

    def parts(self, stretch: Stretch, commands: CommandArrays) -> tuple[Times, Times, Times]:
        """Return the rows of the commands in a stretch, the time that each ran in it, and the time
        before each in which its queue was empty though it had been launched; int64 [k] each, in ns.
        The times add up to the stretch."""
        places = slice(stretch.first, stretch.last + 1)
        row = self.row[places]
        until = np.clip(self.reach[places], stretch.start, stretch.end)
        taken = np.diff(until, prepend=stretch.start)
        ran = np.minimum(taken, until - np.clip(commands.start[row], stretch.start, until))
        return row, ran, taken - ran


def _in_queues(timeline: RunTimeline) -> tuple[Times, Codes, Times, Times]:
    """Return the rows of launched commands by queue and start, the queue of each, when it had been
    launched, and by which row."""
    commands, source, row = timeline.commands, timeline.launches.source, timeline.launches.target
    if not (row[1:] > row[:-1]).all():
        row, first = np.unique(row, return_index=True)
        source = source[first]
    start, launched = np.empty_like(row), np.empty_like(row)
    for part in batches(len(row)):
        start[part] = begun = commands.start[row[part]]
        returned = commands.end[source[part]]
        early = np.minimum(commands.start[source[part]], begun)
        launched[part] = np.where(returned <= begun, returned, early)
    if not is_sorted(start):
        order = np.argsort(start, kind="stable")
        row, launched, source = row[order], launched[order], source[order]
    queue, queues = queue_codes(timeline.run.commands["track"].gather(row))
    queue += commands.device[row] * queues
    if (queue == queue[0]).all():
        return row, queue, launched, source
    order = order_by(queue, (len(commands.devices) + 1) * queues)
    return row[order], queue[order], launched[order], source[order]


def _waits(
    timeline: RunTimeline,
    row: Times,
    reach: Times,
    heads: Times,
    silent: Times,
    held: Times,
    held_until: Times,
) -> tuple[Times, Times, npt.NDArray[np.bool_]]:
    """Return when the host returned from waits, in order, the place in `row` of the command waited
    for, and whether the wait was not recorded. Such a wait, for the places `silent`, returned when
    the command had ended. Of waits with one end, recorded ones come last."""
    run, commands, launches = timeline.run, timeline.commands, timeline.launches
    by, to = launches.source, launches.target
    copied = blocking_copies(run.commands, by, to, commands.start, commands.end)
    source, target = (run.flows[name].to_numpy() for name in ("source", "target"))
    on_host = np.flatnonzero(np.isin(commands.category[target], (HOST, SYNC)))
    on_host = on_host[commands.category[source[on_host]] != HOST]
    others, behind = _of_synchronizations(run, commands, reach, heads)
    hosts = np.concatenate((by[copied], target[on_host], others))
    places = _places(row, np.concatenate((to[copied], source[on_host])))
    awaited = np.concatenate((places, behind))
    hosts, awaited = hosts[awaited >= 0], awaited[awaited >= 0]
    returned = np.concatenate((reach[silent], held_until, commands.end[hosts]))
    awaited = np.concatenate((silent, held, awaited))
    order = np.argsort(returned, kind="stable")
    return returned[order], awaited[order], order < len(silent)


def _places(row: Times, wanted: Times) -> Times:
    """Where each wanted row stands in `row`, -1 if it does not."""
    order = np.argsort(row, kind="stable")
    place = positions(wanted, row[order])
    return np.where(place >= 0, order[place], -1)


def _of_synchronizations(
    run: Run, commands: CommandArrays, reach: Times, heads: Times
) -> tuple[Times, Times]:
    """Rows of waits for whatever runs (sync commands on CPUs, and host commands that are called
    so), and the place of what ended last in each, -1 for nothing."""
    layer = run.commands["layer"]
    names = layer.unique()
    called = names.filter(names.cast(pl.String).str.contains(_WAITS)).to_physical().to_list()
    codes = layer.to_physical().to_numpy()
    found = np.zeros(len(codes), dtype=np.bool_)
    for code in called:
        found |= codes == code
    found &= commands.category == HOST
    on_cpu = np.array([*(device_kind(name) == "cpu" for name in commands.devices), False])
    rows = np.flatnonzero(found | ((commands.category == SYNC) & on_cpu[commands.device]))
    start, end = commands.start[rows], commands.end[rows]
    awaited = np.full(len(rows), -1)
    ended = start.copy()
    for first, last in zip(heads.tolist(), [*heads[1:].tolist(), len(reach)], strict=True):
        place = first + np.searchsorted(reach[first:last], end, side="right") - 1
        later = (place >= first) & (reach[place] > ended)
        awaited[later], ended[later] = place[later], reach[place[later]]
    return rows, awaited

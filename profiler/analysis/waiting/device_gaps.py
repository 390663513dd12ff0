"""The gaps of each device, in which nothing runs on it, and what each is put down to.

`find_gaps` makes them and has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.analysis.waiting.codes import WaitCause
from profiler.run.device_timeline import Busy
from profiler.run.intervals import Codes, Stretches, Times, batches

__all__ = ["OUTSIDE", "PARTS", "UNKNOWN_CAUSE", "DeviceGaps"]

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
"""What a moment without work is put down to."""


class DeviceGaps(Struct, frozen=True, eq=False):
    """The k gaps of a device, in order; the first goes on before all time and the last behind it,
    of which what lies in its `span` counts. `launch` is the row of the command that launched what
    ends each, -1 where none is known, and `late` whether it did so too late, [k] each; both None
    where no launch was recorded. `unknown` is whether nothing tells if the host was late: the
    launch of what ends the gap was not recorded, where others were or nothing of the host was; [k],
    None where that is so of no gap. `calls` are the rows of the calls that worked on the device, or
    have their tile there. `busy` is when it worked.

    What they are measured with: `copying` is when it waited for a copy of its own, `elsewhere` when
    that or another device, `own` when a call of its own,
    `others` when a call of other devices, `host` when host work was under way, each with those
    before it; `tails` is `elsewhere` with when its calls had no more to launch. These lie in the
    time that counts (`counted`, end to end). `profilers` is when callers waited for the profiler,
    outside of that and of what was not recorded. `in_tiles` are the tiles of its calls there,
    `missing` is what of the end-to-end time does not count because a drop says that it is
    missing, `unrecorded` when nothing was recorded, that included, `waits` when the host waited for
    a device.
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
        """Begin and end of some gaps within the span, int64 [len(rows)] each, in ns."""
        gaps = self.busy.gaps
        return np.clip(gaps.start[rows], *self.span), np.clip(gaps.end[rows], *self.span)

    def dry(self, first: Times, last: Times) -> Times:
        """How long nothing ran in each `[first, last)` within the span, int64, in ns."""
        return self.busy.gaps.within(np.clip(first, *self.span), np.clip(last, *self.span))

    @property
    def launched_late(self) -> Stretches:
        """The gaps that ended with what was launched too late, within the span."""
        if self.late is None:
            return Stretches.none()
        start, end = self.ranges(np.flatnonzero(self.late))
        return Stretches(start, end).where(end > start)

    def launched_by(self, row: int) -> int:
        """The row of the command that launched what ends a gap, -1 where none is known."""
        return -1 if self.launch is None else int(self.launch[row])

    def parts(self, rows: Times) -> Times:
        """What some gaps are put down to, int64 [len(PARTS), len(rows)], in ns: the columns add up
        to their lengths."""
        start, end = self.ranges(rows)
        kind = self.waits.holds(start), self._in_time(rows), self._unknown(rows)
        return self._parts(lambda cover: cover.within(start, end), end - start, *kind)

    def totals(self) -> dict[str, int]:
        """What all gaps together are put down to, in ns, by part; `inside` is what of them lies in
        tiles of its calls, `host_work` what of the host's part was host work of no call. `outside`
        is without the profiler's own work, which is `profiler`.

        How much of the gaps of a kind lies in a cover is how much of the cover lies in them: covers
        are few.
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

    def _parts(
        self,
        within: _Within,
        length: Times,
        blocked: _Flags,
        in_time: _Flags,
        unknown: _Flags,
    ) -> Times:
        """The parts of gaps by how much of them lies `within` a cover, [len(PARTS), k]."""
        borders = (self.elsewhere, self.tails, self.own, self.others, self.counted)
        elsewhere, tails, own, others, counted = map(within, borders)
        copying = within(self.copying)
        queue = np.where(in_time, own - tails, 0)
        launch = own - elsewhere - queue
        host = counted - others
        unrecorded = within(self.unrecorded)
        found: Times = np.stack(
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
        return found

    def _overlap_with(self, gaps: Stretches) -> _Within:
        """How much of a cover lies in some gaps and the span, int64 [1]."""

        def overlap(cover: Stretches) -> Times:
            first, last = np.clip(cover.start, *self.span), np.clip(cover.end, *self.span)
            length: Times = gaps.within(first, last).sum(keepdims=True)
            return length

        return overlap

    def _kinds(self) -> Iterator[tuple[tuple[_Flags, _Flags, _Flags], Stretches]]:
        """The gaps by whether the host was blocked when each began, whether what ended it had been
        launched in time, and whether nobody knows, bool [1] each; kinds without gaps are left
        out."""
        if self.launch is None and self.unknown is None and not len(self.waits):
            never = np.array([False])
            yield (never, never, never), self.busy.gaps
            return
        kind = np.zeros(len(self), dtype=np.uint8)
        for rows in batches(len(self)):
            blocked = self.waits.holds(self.ranges(rows)[0])
            kind[rows] = 4 * self._unknown(rows) + 2 * blocked + self._in_time(rows)
        for number in np.flatnonzero(np.bincount(kind)).tolist():
            flags = tuple(np.array([bool(number & bit)]) for bit in (2, 1, 4))
            yield (flags[0], flags[1], flags[2]), self.busy.gaps.where(kind == number)

    def _in_time(self, rows: slice | Times) -> _Flags:
        """Whether what ends each gap had been launched in time."""
        if self.launch is None or self.late is None:
            return np.zeros(len(self.busy.gaps.start[rows]), dtype=np.bool_)
        in_time: _Flags = (self.launch[rows] >= 0) & ~self.late[rows]
        return in_time

    def _unknown(self, rows: slice | Times) -> _Flags:
        """Whether nothing tells if the host was late for what ends each gap."""
        if self.unknown is None:
            return np.zeros(len(self.busy.gaps.start[rows]), dtype=np.bool_)
        unknown: _Flags = self.unknown[rows]
        return unknown

    @property
    def end_to_end_ns(self) -> int:
        """The end-to-end time."""
        return self.counted.length + self.missing.length

    def longest(self, count: int) -> Times:
        """The rows of at most `count` gaps with most idle or unrecorded time of the run, the
        longest first; none without any. The longest altogether are looked at first, so that most
        need not be."""
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
                found: Times = rows[order]
                return found

    def _length_of(self, rank: int) -> int:
        """The length of the gap that is so many-th in the order of lengths, those at the ends and
        then the longest first."""
        most = np.zeros(0, dtype=np.int64)
        for rows in batches(len(self)):
            most = np.concatenate((most, self._whole(rows)))
            most = np.partition(most, max(len(most) - rank, 0))[-rank:]
        return int(most.min())

    def _at_least(self, length: int) -> Times:
        """The rows of the gaps of at least `length` ns, and of those at the ends."""
        found = (
            rows.start + np.flatnonzero(self._whole(rows) >= length) for rows in batches(len(self))
        )
        return np.concatenate([*found])

    def _whole(self, rows: slice) -> Times:
        """The lengths of some gaps, with what of those at the ends lies outside of the span."""
        length: Times = self.busy.gaps.end[rows] - self.busy.gaps.start[rows]
        return length

    def longer_than(self, length: int) -> Times:
        """How much of each gap counts as idle, of those of which it is more than `length` ns."""
        idle = self.counted.within(*self.ranges(self._at_least(length + 1)))
        found: Times = idle[idle > length]
        return found

"""Unions of time intervals as lists, and how much of one lies before given moments."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.run.intervals import Codes, Times, batches, is_sorted, reaches

__all__ = ["Cover", "Covered", "InOrder", "covered_before", "union_and_shared"]


class Cover(Struct, frozen=True, eq=False):
    """Disjoint intervals `[start, end)` in ns in order of time, none empty, int64 [n] each."""

    start: Times
    end: Times

    @classmethod
    def of(cls, start: Times, end: Times) -> Cover:
        """The union of intervals in any order; those that are empty count for nothing."""
        kept = np.flatnonzero(end > start)
        if len(kept) < len(start):
            start, end = start[kept], end[kept]
        if not len(start):
            return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        if not is_sorted(start):
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        until = np.maximum.accumulate(end)
        heads = np.append(0, np.flatnonzero(start[1:] > until[:-1]) + 1)
        return cls(start[heads], until[np.append(heads[1:], len(start)) - 1])

    @property
    def length(self) -> int:
        """Its length in ns."""
        return int((self.end - self.start).sum())

    def clipped(self, first: int, last: int) -> Cover:
        """What lies in `[first, last)`."""
        return Cover.of(np.maximum(self.start, first), np.minimum(self.end, last))

    def holds(self, moments: Times) -> npt.NDArray[np.bool_]:
        """Whether each moment lies in it, bool [len(moments)]."""
        found = np.zeros(len(moments), dtype=np.bool_)
        for rows in batches(len(moments) if len(self.start) else 0):
            place = np.searchsorted(self.start, moments[rows], side="right") - 1
            found[rows] = (place >= 0) & (moments[rows] < self.end[place])
        return found

    def before(self, moments: Times) -> Times:
        """How much of it lies before each moment, int64 [len(moments)]; moments in any order."""
        if not len(self.start):
            return np.zeros(len(moments), dtype=np.int64)
        sums = np.cumsum(self.end - self.start)
        place = np.searchsorted(self.start, moments, side="right") - 1
        beyond = np.maximum(self.end[place] - moments, 0)
        found: Times = np.where(place >= 0, sums[place] - beyond, 0)
        return found


class InOrder(Struct, frozen=True, eq=False):
    """Some of many intervals in order of their start, taken by slices of that order. `rows` are
    their rows, int32 [n]; None where they are all, and stand in order."""

    start: Times
    end: Times
    rows: Codes | None

    @classmethod
    def of(cls, start: Times, end: Times, which: npt.NDArray[np.bool_]) -> InOrder:
        """Those that `which`, bool [len(start)], chooses."""
        if which.all() and is_sorted(start):
            return cls(start, end, None)
        rows = np.flatnonzero(which).astype(np.int32)
        if not all(is_sorted(start[rows[part]]) for part in batches(len(rows), overlap=1)):
            rows = rows[np.argsort(start[rows], kind="stable")]
        return cls(start, end, rows)

    def __len__(self) -> int:
        return len(self.start if self.rows is None else self.rows)

    def taken(self, column: Times, places: slice) -> Times:
        """What a column of all intervals says of these at some places."""
        return column[places] if self.rows is None else column[self.rows[places]]

    def starts(self, places: slice) -> Times:
        return self.taken(self.start, places)

    def ends(self, places: slice) -> Times:
        return self.taken(self.end, places)


class Covered:
    """How much of the union of many intervals lies before moments asked in order. The union
    itself is never held: it is worked through a batch at a time.

    No interval ends before it starts.
    """

    def __init__(self, work: InOrder) -> None:
        self._work = work
        self._parts = batches(len(work))
        self._total, self._until = 0, int(work.starts(slice(0, 1))[0]) if len(work) else 0
        self._next()

    def before(self, moments: Times) -> Times:
        """How much lies before each moment, int64 [len(moments)]. They are sorted, and none comes
        before those asked earlier."""
        found = np.zeros(len(moments), dtype=np.int64)
        answered = 0
        while answered < len(moments):
            last = len(moments)
            if self._behind is not None:
                last = int(np.searchsorted(moments, self._behind))
            found[answered:last] = self._answers(moments[answered:last])
            answered = last
            if last < len(moments):
                self._next()
        return found

    def _answers(self, moments: Times) -> Times:
        if not len(self._begin):
            return np.zeros(len(moments), dtype=np.int64)
        place = np.searchsorted(self._begin, moments, side="right") - 1
        inside = self._sums[place] - np.maximum(self._reach[place] - moments, 0)
        found: Times = np.where(place >= 0, inside, 0)  # before the first: nothing
        return found

    def _next(self) -> None:
        """Go on to the next batch, of which there is one."""
        places = next(self._parts, slice(0, 0))
        self._begin, self._behind = self._work.starts(places), None
        self._sums = self._reach = self._begin
        if not len(self._begin):
            return
        behind = self._work.starts(slice(places.stop, places.stop + 1))
        self._behind = int(behind[0]) if len(behind) else None
        added, self._reach = reaches(self._work.ends(places), self._until)
        np.maximum(added, self._begin, out=added)
        np.subtract(self._reach, added, out=added)
        self._sums = np.cumsum(added, out=added)
        self._sums += self._total
        self._total, self._until = int(self._sums[-1]), int(self._reach[-1])


def covered_before(work: InOrder, moments: Times) -> Times:
    """How much of the union of many intervals lies before each moment, int64 [len(moments)];
    `moments` are sorted, no interval ends before it starts."""
    return Covered(work).before(moments)


def union_and_shared(some: InOrder, others: InOrder) -> tuple[int, int]:
    """The length in ns of the union of `some`, and of what of it lies in the union of `others`."""
    union = shared = 0
    until = int(some.starts(slice(0, 1))[0]) if len(some) else 0
    covered = Covered(others)
    for places in batches(len(some)):
        moments = np.empty((len(some.starts(places)), 2), dtype=np.int64)
        before, reach = reaches(some.ends(places), until)
        np.maximum(before, some.starts(places), out=moments[:, 0])  # none overlaps the one before
        moments[:, 1] = reach
        union += int((reach - moments[:, 0]).sum())
        inside = covered.before(moments.ravel())
        shared += int((inside[1::2] - inside[::2]).sum())
        until = int(reach[-1])
    return union, shared

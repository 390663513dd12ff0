"""Unions of time intervals as lists, and how much of one lies before given moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.analysis.batches import Times, batches, is_sorted

__all__ = ["Cover", "covered_before"]


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
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
        if not len(self.start):
            return np.zeros(len(moments), dtype=np.bool_)
        place = np.searchsorted(self.start, moments, side="right") - 1
        found: npt.NDArray[np.bool_] = (place >= 0) & (moments < self.end[place])
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


def covered_before(start: Times, end: Times, moments: Times) -> Times:
    """How much of the union of many intervals lies before each moment, int64 [len(moments)].

    `start` and `moments` are sorted, `end` is nowhere before `start`. The union itself is never
    held: it is worked through a batch at a time.
    """
    found = np.zeros(len(moments), dtype=np.int64)
    total, answered = 0, 0
    until = int(start[0]) if len(start) else 0
    for rows in batches(len(start)):
        begin, reach = start[rows], np.maximum.accumulate(end[rows])
        np.maximum(reach, until, out=reach)
        added = np.empty_like(reach)
        added[0], added[1:] = until, reach[:-1]
        np.maximum(added, begin, out=added)
        np.subtract(reach, added, out=added)
        sums = np.cumsum(added, out=added)
        last = len(moments)
        if rows.stop < len(start):
            last = int(np.searchsorted(moments, start[rows.stop], side="left"))
        asked = moments[answered:last]
        place = np.searchsorted(begin, asked, side="right") - 1
        inside = total + sums[place] - np.maximum(reach[place] - asked, 0)
        found[answered:last] = np.where(place >= 0, inside, 0)  # before the first: nothing
        answered, total, until = last, total + int(sums[-1]), int(reach[-1])
    return found

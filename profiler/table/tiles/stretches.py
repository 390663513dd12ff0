"""Disjoint stretches of time, and how much of them lies between any two moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Stretches"]

_Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Disjoint stretches `[start, end)` of time in ns, in order, none empty; int64 [k] each."""

    start: _Times
    end: _Times
    _sums: list[_Times] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def none(cls) -> Stretches:
        """No stretch."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def union(cls, start: _Times, end: _Times) -> Stretches:
        """The union of intervals in any order; empty ones count for nothing."""
        kept = np.flatnonzero(end > start)
        order = kept[np.argsort(start[kept], kind="stable")]
        start, end = start[order], end[order]
        if not len(start):
            return cls(start, end)
        until = np.maximum.accumulate(end)
        heads = np.append(0, np.flatnonzero(start[1:] > until[:-1]) + 1)
        return cls(start[heads], until[np.append(heads[1:], len(start)) - 1])

    @classmethod
    def of_all(cls, several: Iterable[Stretches]) -> Stretches:
        """The union of several."""
        found = [*several, cls.none()]
        return cls.union(
            np.concatenate([each.start for each in found]),
            np.concatenate([each.end for each in found]),
        )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """Their length together, in ns."""
        return int((self.end - self.start).sum())

    def before(self, moments: _Times) -> _Times:
        """How much of them lies before each moment, int64 [len(moments)]."""
        if not len(self):
            return np.zeros(len(moments), dtype=np.int64)
        if not self._sums:
            lengths = self.end - self.start
            self._sums.append(np.cumsum(lengths, out=lengths))
        place = np.searchsorted(self.start, moments, side="right") - 1
        beyond = np.maximum(self.end[place] - moments, 0)
        found: _Times = np.where(place >= 0, self._sums[0][place] - beyond, 0)
        return found

    def within(self, first: _Times, last: _Times) -> _Times:
        """How much of them lies in each `[first, last)`, int64; 0 where that is empty."""
        return self.before(np.maximum(first, last)) - self.before(first)

    def longer_than(self, length: int) -> Stretches:
        """Those of more than `length` ns."""
        return self.where(self.end - self.start > length)

    def where(self, kept: npt.NDArray[np.bool_]) -> Stretches:
        """Some of them; bool [k]."""
        return Stretches(self.start[kept], self.end[kept])

    def clipped(self, first: int, last: int) -> Stretches:
        """What of them lies in `[first, last)`."""
        places = slice(
            int(np.searchsorted(self.end, first, side="right")),
            int(np.searchsorted(self.start, last, side="left")),
        )
        start = np.maximum(self.start[places], first)
        return Stretches(start, np.minimum(self.end[places], last))

    def holds(self, moments: _Times) -> npt.NDArray[np.bool_]:
        """Whether each moment lies in one, its end included; bool [len(moments)]."""
        if not len(self):
            return np.zeros(len(moments), dtype=np.bool_)
        place = np.searchsorted(self.start, moments, side="right") - 1
        found: npt.NDArray[np.bool_] = (place >= 0) & (moments <= self.end[place])
        return found

    def minus(self, other: Stretches) -> Stretches:
        """What of them lies outside of `other`."""
        return self._parts(other, inside=False)

    def both(self, other: Stretches) -> Stretches:
        """What of them lies in `other`."""
        return self._parts(other, inside=True)

    def _parts(self, other: Stretches, *, inside: bool) -> Stretches:
        if not len(other):
            return Stretches.none() if inside else self
        if inside and len(other) == 1:
            return self.clipped(int(other.start[0]), int(other.end[0]))
        moments = np.unique(np.concatenate((self.start, self.end, other.start, other.end)))
        first, last = moments[:-1], moments[1:]
        kept = (self.within(first, last) > 0) & ((other.within(first, last) > 0) == inside)
        return Stretches.union(first[kept], last[kept])

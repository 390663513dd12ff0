"""Events that two recorders both saw, and what these say of their clocks.

An event is a name and a moment. Two lists of them are of the same run where, with one of them
moved, most events of names that both have lie at the same moments. How far it must be moved need
not be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s

__all__ = ["FEWEST", "Events", "Fit", "fit", "pairs_at"]

FEWEST = 3  # events in common, from which on two clocks are related
_CANDIDATES = 400_000  # differences of times that are looked at
_TRIED = 12  # offsets, those with the most such differences
_MOST_OF = 0.5  # of the events that could be in common


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """n events: `name` is a code, int64 [n], of names that are the same for all recorders (`of`);
    `time_ns` when each began, int64 [n]."""

    name: Int64s
    time_ns: Int64s

    @classmethod
    def of(cls, names: Sequence[str], times_ns: Int64s, codes: dict[str, int]) -> Self:
        """Events by their names; `codes` is what all recorders share, and gets new names."""
        found = [codes.setdefault(name, len(codes)) for name in names]
        return cls(np.array(found, dtype=np.int64), np.asarray(times_ns, dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Self:
        """All events of some, in their order."""
        none = np.zeros(0, dtype=np.int64)
        return cls(
            np.concatenate([none, *(one.name for one in parts)]),
            np.concatenate([none, *(one.time_ns for one in parts)]),
        )

    def __len__(self) -> int:
        return len(self.name)

    def among(self, names: Int64s) -> Events:
        """Those of these names."""
        kept = np.isin(self.name, names)
        return Events(self.name[kept], self.time_ns[kept])

    def within(self, first: int, last: int) -> int:
        """How many began then."""
        return int(((self.time_ns >= first) & (self.time_ns <= last)).sum())


@dataclass(frozen=True, slots=True)
class Fit:
    """`offset_ns` is to be added to the own times; `pairs` events are in common then, apart by
    `residual_ns` in the median and by `worst_ns` at most."""

    offset_ns: int
    pairs: int
    residual_ns: int
    worst_ns: int

    def better(self, other: Fit | None) -> bool:
        """Whether it relates more events, or as many more exactly."""
        if other is None:
            return True
        return (self.pairs, -self.residual_ns) > (other.pairs, -other.residual_ns)


def fit(
    own: Events,
    other: Events,
    within_ns: int,
    near: tuple[int, int] | None = None,
    *,
    of_all: bool = False,
) -> Fit | None:
    """How far `own` is to be moved for its events to be `other`'s; events may differ by `within_ns`
    then. `near` is an offset that is known to lie within so many ns of the true one.

    None where fewer than three moments are in common, where another offset fits as well, since what
    repeats evenly tells none, or where the events in common are not half of what both could have
    seen: of names that both have, while both recorded; where no offset is known in advance, of all
    that one of them has of these names, or `of_all` names.
    """
    smaller = min(len(own), len(other)) if of_all else 0
    names = np.intersect1d(own.name, other.name)
    own, other = own.among(names), other.among(names)
    found: list[Fit] = []
    for offset in _candidates(own, other, within_ns, near):
        one = _refined(own, other, offset, within_ns)
        if one is not None and all(abs(one.offset_ns - f.offset_ns) > within_ns for f in found):
            found.append(one)
    best: Fit | None = None
    for one in found:
        best = one if one.better(best) else best
    if best is None or not _is_most(own, other, best, within_ns):
        return None
    if near is None and best.pairs < _MOST_OF * (smaller or min(len(own), len(other))):
        return None
    alike = [one for one in found if one is not best and _is_as_good(one, best)]
    if alike and near is None:
        return None
    if alike and near is not None:
        return min((best, *alike), key=lambda one: abs(one.offset_ns - near[0]))
    return best


def _is_as_good(one: Fit, best: Fit) -> bool:
    return one.pairs >= best.pairs and one.residual_ns <= 2 * best.residual_ns + 1_000


def _is_most(own: Events, other: Events, best: Fit, within_ns: int) -> bool:
    """Whether most of what either saw while both were recording was seen by the other."""
    moved = own.time_ns + best.offset_ns
    first = max(int(moved.min()), int(other.time_ns.min())) - within_ns
    last = min(int(moved.max()), int(other.time_ns.max())) + within_ns
    fewer = min(Events(own.name, moved).within(first, last), other.within(first, last))
    return best.pairs >= _MOST_OF * fewer


def _candidates(
    own: Events, other: Events, within_ns: int, near: tuple[int, int] | None
) -> list[int]:
    """Offsets at which many events may be in common, the likeliest first: differences of times of
    the same name, of the rarest names first."""
    parts: list[Int64s] = []
    room = _CANDIDATES
    names, counts = np.unique(own.name, return_counts=True)
    order = np.argsort(other.name, kind="stable")
    theirs = other.name[order]
    first = np.searchsorted(theirs, names)
    last = np.searchsorted(theirs, names, side="right")
    for at in np.argsort(counts * (last - first), kind="stable").tolist():
        if room < counts[at] * (last[at] - first[at]) and parts:
            break
        mine = own.time_ns[own.name == names[at]]
        there = other.time_ns[order[first[at] : last[at]]]
        apart = _differences(mine, there, room)
        if near is not None:
            apart = apart[np.abs(apart - near[0]) <= near[1]]
        parts.append(apart)
        room -= len(mine) * len(there)
    values = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    return _densest(values, within_ns, near[0] if near is not None else 0)


def _densest(values: Int64s, within_ns: int, centre: int) -> list[int]:
    """The middles of the places where the most values lie, of equal ones those nearest the centre;
    `values` are sorted."""
    end = np.searchsorted(values, values + 2 * within_ns, side="right")
    count = end - np.arange(len(values))
    chosen: list[int] = []
    while len(chosen) < _TRIED and len(count) and count.max() > 0:
        most = np.flatnonzero(count == count.max())
        start = int(most[np.argmin(np.abs(values[most] - centre))])
        middle = int(np.median(values[start : int(end[start])]))
        chosen.append(middle)
        count[np.abs(values - middle) <= 2 * within_ns] = 0
        count[start] = 0
    return chosen


def _differences(own: Int64s, other: Int64s, room: int) -> Int64s:
    """All differences, of some of the own events where they would be too many."""
    most = max(room // max(len(other), 1), 1)
    if len(own) > most:
        own = own[np.linspace(0, len(own) - 1, most).astype(np.int64)]
    found: Int64s = (other[None, :] - own[:, None]).reshape(-1)
    return found


def _refined(own: Events, other: Events, offset: int, within_ns: int) -> Fit | None:
    """The fit near an offset: the median of what the events in common are apart."""
    for _ in range(3):
        mine, theirs = pairs_at(own, other, offset, within_ns)
        if len(mine) < FEWEST:
            return None
        apart = other.time_ns[theirs] - own.time_ns[mine]
        median = round(float(np.median(apart - offset))) + offset
        if median == offset:
            break
        offset = median
    if len(np.unique(own.time_ns[mine] // max(within_ns, 1))) < FEWEST:
        return None  # all at one moment, which says less
    left = np.abs(apart - offset)
    return Fit(offset, len(mine), round(float(np.median(left))), int(left.max()))


def pairs_at(own: Events, other: Events, offset_ns: int, within_ns: int) -> tuple[Int64s, Int64s]:
    """The rows of events that are the same, `own` moved by an offset: each is the other's nearest
    of its name, within so many ns."""
    time = np.concatenate((own.time_ns + offset_ns, other.time_ns))
    name = np.concatenate((own.name, other.name))
    theirs = np.arange(len(time)) >= len(own)
    order = np.lexsort((theirs, time, name))
    time, name, theirs = time[order], name[order], theirs[order]
    nearest = _nearest(time, name, theirs)
    mutual = (nearest >= 0) & ~theirs
    rows = np.flatnonzero(mutual)
    rows = rows[nearest[nearest[rows]] == rows]
    rows = rows[np.abs(time[rows] - time[nearest[rows]]) <= within_ns]
    return order[rows], order[nearest[rows]] - len(own)


def _nearest(time: Int64s, name: Int64s, theirs: npt.NDArray[np.bool_]) -> Int64s:
    """For each event, in order of name and time, the row of the nearest of the other recorder's of
    that name; -1 for none. Of two as near it is the earlier."""
    before = np.where(theirs, _last(~theirs), _last(theirs))
    after = len(time) - 1 - np.where(theirs, _last(~theirs[::-1])[::-1], _last(theirs[::-1])[::-1])
    after = np.where(after >= len(time), -1, after)
    before = np.where((before >= 0) & (name[before] == name), before, -1)
    after = np.where((after >= 0) & (name[after] == name), after, -1)
    back = np.where(before >= 0, time - time[before], np.iinfo(np.int64).max)
    ahead = np.where(after >= 0, time[after] - time, np.iinfo(np.int64).max)
    return np.where(back <= ahead, before, after)


def _last(there: npt.NDArray[np.bool_]) -> Int64s:
    """For each row the last one up to it that is `there`; -1 for none."""
    found: Int64s = np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))
    return found

"""Interval arithmetic: lengths of unions of many groups, without a loop over rows.

A union of intervals, sorted by group and start, costs O(n log n) for the sort and O(n) for the
rest. Work runs in batches that fit the processor's caches, so memory does not grow with the
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

# --- Work on many rows in batches: what a batch works with fits in the processor's caches, and the
# memory it takes does not grow with the run.


Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
_Values = TypeVar("_Values", bound=npt.NDArray[np.integer[Any]])

_BATCH = 1 << 18  # rows


def batches(rows: int, overlap: int = 0) -> Iterator[slice]:
    """Slices that divide `rows` rows; each reaches `overlap` rows into the next."""
    yield from (slice(first, first + _BATCH + overlap) for first in range(0, rows, _BATCH))


def stretches(heads: Times, rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges `[first, last)` of `heads`, the first rows of groups, each with about a batch of
    the `rows` rows. No group is divided."""
    first = 0
    while first < len(heads):
        last = max(int(np.searchsorted(heads, heads[first] + _BATCH, side="right")) - 1, first + 1)
        if rows <= heads[first] + _BATCH:
            last = len(heads)
        yield first, last
        first = last


def order_by(codes: Codes, groups: int) -> Times:
    """Return the stable order that sorts codes from 0 to `groups - 1`, in linear time: NumPy sorts
    16-bit values by radix."""
    if groups <= 1 << 16:
        return np.argsort(codes.astype(np.uint16, copy=False), kind="stable")
    if groups <= 1 << 32:
        return np.lexsort((codes.astype(np.uint16), (codes >> 16).astype(np.uint16)))
    return np.argsort(codes, kind="stable")


def is_sorted(values: Codes) -> bool:
    """Whether no value is less than the one before it."""
    parts = (values[rows] for rows in batches(len(values), overlap=1))
    return all(bool((part[:-1] <= part[1:]).all()) for part in parts)


def choose(values: Codes, which: npt.NDArray[np.bool_], out: Codes) -> None:
    """Write the values that `which` chooses into `out`, which has room for them and no more.

    Polars filters a batch several times as fast as NumPy does, if few or many are chosen.
    """
    first = 0
    for rows in batches(len(values)):
        some = pl.Series(values[rows]).filter(pl.Series(which[rows])).to_numpy()
        out[first : first + len(some)] = some
        first += len(some)


def chosen(values: _Values, which: npt.NDArray[np.bool_], count: int) -> _Values:
    """Return the `count` values at which `which` is true."""
    found: Any = np.empty(count, dtype=values.dtype)
    choose(values, which, found)
    some: _Values = found
    return some


def counts(codes: Codes, groups: int) -> Times:
    """Return how many rows each group has, int64 [groups]; codes below 0 are ignored."""
    found = np.zeros(groups + 1, dtype=np.int64)
    for rows in batches(len(codes)):
        found += np.bincount(codes[rows] + 1, minlength=groups + 1)
    return found[1:]


# --- When, on which device and in which call commands ran: what everything is computed from.


_FEW = 1 << 10  # rows


class CommandTimes(Struct, frozen=True, eq=False):
    """When and where n commands ran. `call` is a row of the frame of calls, -1 for none; `device`
    indexes `devices` (a command on no device has the code after the last), `category` indexes
    `CATEGORIES`. A command that never closed ends where it starts."""

    call: Codes
    start: Times
    end: Times
    device: Codes
    devices: tuple[str, ...]
    category: Codes

    @classmethod
    def of(cls, commands: pl.DataFrame, calls: pl.DataFrame) -> CommandTimes:
        """Return the times of a frame of commands; `calls` has their calls, in any order."""
        device, devices = text_codes(commands["device"])
        start = commands["start_ns"].to_numpy()
        return cls(
            call=rows_of_calls(commands["call"], calls["call"]),
            start=start,
            end=_ends(commands, start),
            device=device,
            devices=tuple(devices),
            category=commands["category"].to_physical().to_numpy(),
        )


def ends(frame: pl.DataFrame) -> Times:
    """`start_ns + duration_ns`, int64 [n]; a negative duration counts as none."""
    return _ends(frame, frame["start_ns"].to_numpy())


def _ends(frame: pl.DataFrame, start: Times) -> Times:
    duration, end = frame["duration_ns"], np.empty(len(frame), dtype=np.int64)
    for rows in batches(len(frame)):
        np.maximum(duration[rows].to_numpy(), 0, out=end[rows])
        end[rows] += start[rows]
    return end


def text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """Return a code from 0 for each row of a text column, and the sorted texts that codes index;
    null has the code after the last."""
    if len(column) <= _FEW:
        return _few_text_codes(column)
    of_rows, names = codes_of_text(column)
    codes = np.empty(len(column), dtype=np.int32)
    for rows in batches(len(column)):
        codes[rows] = of_rows(rows)
    return codes, names


def codes_of_text(column: pl.Series) -> tuple[Callable[[slice], Codes], list[str]]:
    """Return what `text_codes` returns, but the codes as a function of a slice of rows."""
    if len(column) <= _FEW:
        codes, texts = _few_text_codes(column)
        return codes.__getitem__, texts
    present = column.unique().drop_nulls()
    names = present.cast(pl.String).to_list()
    order = sorted(range(len(names)), key=names.__getitem__)
    found = present.to_physical().to_numpy()
    null = int(found.max(initial=0)) + 1
    table = np.full(null + 1, len(names), dtype=np.int32)
    table[found[order]] = np.arange(len(names))
    in_order = [names[i] for i in order]
    if not names:  # a column without a text
        return lambda rows: np.zeros(len(column[rows]), dtype=np.int32), in_order
    return lambda rows: table[physical_codes(column, rows, null)], in_order


def _few_text_codes(column: pl.Series) -> tuple[Codes, list[str]]:
    """Do `text_codes` for a short column without Polars, whose expressions take longer than the
    work."""
    texts = column.to_list()
    names = sorted({text for text in texts if text is not None})
    codes = {text: code for code, text in enumerate(names)} | {None: len(names)}
    return np.array([codes[text] for text in texts], dtype=np.int32), names


def physical_codes(column: pl.Series, rows: slice, null: int) -> Codes:
    """Return the internal codes of some rows of a categorical column; null has the code `null`."""
    codes = column[rows].to_physical()
    return (codes.fill_null(null) if codes.null_count() else codes).to_numpy()


def positions(keys: Codes, values: Codes) -> Codes:
    """The index of each key in the sorted, distinct `values`, -1 if it is not there; int32."""
    found = np.full(len(keys), -1, dtype=np.int32)
    for rows in batches(len(keys) if len(values) else 0):
        place = np.minimum(np.searchsorted(values, keys[rows]), len(values) - 1)
        found[rows] = np.where(values[place] == keys[rows], place, -1)
    return found


def rows_of_calls(of_command: pl.Series, calls: pl.Series) -> Codes:
    """Return for each command the row of its call in `calls`, -1 for none; int32. The numbers of
    calls may be in any order."""
    wanted, numbers = of_command.to_numpy(), calls.to_numpy()
    if bool((numbers == np.arange(len(numbers))).all()):
        if int(wanted.max(initial=-1)) < len(numbers) and int(wanted.min(initial=-1)) >= -1:
            return wanted
        there = (wanted >= 0) & (wanted < len(numbers))
        return np.where(there, wanted, np.int32(-1))
    order = np.argsort(numbers, kind="stable")
    place = positions(wanted, numbers[order])
    found: Codes = np.append(order, -1).astype(np.int32)[place]  # -1 picks the appended -1
    return found


# --- Lengths of unions of time intervals, many groups at once, without a Python loop over rows.
#
# Sorted by group and start, an interval adds to the union of its group what lies behind the
# furthest end seen so far. Groups are laid one behind the other on one time line, so that a single
# running maximum serves them all: O(n log n) for the sort, O(n) for the rest.
#
# Many intervals are worked on in batches, in order of their start. Of the batches before one only
# the furthest end of each group matters.


def union_by(start: Times, end: Times, codes: Codes, groups: int) -> Times:
    """Length in ns of the union of the intervals `[start, end)` of each group, int64 [groups].

    `codes` names the group of each interval, from 0 to `groups - 1`; an interval with a code
    below 0 is left out. Intervals may come in any order. An interval that ends before it starts
    counts as empty; a group without any has 0.
    """
    lengths = np.zeros(groups, dtype=np.int64)
    covered = np.full(groups, np.iinfo(np.int64).min)  # end of what earlier batches cover
    order = None if is_sorted(start) else np.argsort(start, kind="stable")
    for batch in batches(len(start)):
        rows = batch if order is None else order[batch]
        group = codes[rows]
        kept = np.flatnonzero(group >= 0)
        if len(kept):
            kept = kept[order_by(group[kept], groups)]
            _add_union(start[rows][kept], end[rows][kept], group[kept], covered, lengths)
    return lengths


def _add_union(start: Times, end: Times, codes: Codes, covered: Times, lengths: Times) -> None:
    """Add to `lengths` what the intervals, by group and start, cover behind `covered`."""
    heads = group_heads(codes)
    groups = codes[heads]
    np.maximum(start, np.repeat(covered[groups], np.diff(heads, append=len(codes))), out=start)
    np.maximum(end, start, out=end)
    covered[groups] = np.maximum(covered[groups], np.maximum.reduceat(end, heads))
    lengths[groups] += union_sorted(start, end, heads)


def union_length(start: Times, end: Times) -> int:
    """Length in ns of the union of the intervals `[start, end)`."""
    return int(union_by(start, end, np.zeros(len(start), dtype=np.uint16), 1)[0])


def union_sorted(start: Times, end: Times, heads: Times) -> Times:
    """Return the length of each group's union, int64 [len(heads)], for at least one interval.

    Rows are sorted by group, within a group by start; `heads` are the first rows of the groups.
    Works in place: `start` and `end` are overwritten.
    """
    np.maximum(end, start, out=end)
    begin = start[heads]
    extent = np.maximum.reduceat(end, heads) - begin
    shift = np.repeat(np.cumsum(extent) - extent - begin, np.diff(heads, append=len(start)))
    start += shift
    end += shift
    del shift
    np.maximum(start[1:], np.maximum.accumulate(end)[:-1], out=start[1:])
    np.subtract(end, start, out=end)
    np.maximum(end, 0, out=end)
    return np.add.reduceat(end, heads)


def group_heads(*codes: Codes) -> Times:
    """Return the rows at which any of the `codes`, which are not empty, changes, including the
    first row."""
    changes = np.ones(len(codes[0]), dtype=np.bool_)
    changes[1:] = False
    for column in codes:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def reaches(end: Times, until: int) -> tuple[Times, Times]:
    """Return how far the intervals before each one reach, and how far they reach with it, int64 [n]
    each.

    The intervals are at least one, in order of their start; those before them reach `until`.
    """
    reach = np.maximum.accumulate(end)
    np.maximum(reach, until, out=reach)
    before = np.empty_like(reach)
    before[0], before[1:] = until, reach[:-1]
    return before, reach


# --- Disjoint stretches of time, and how much of them lies between any two moments.


class Stretches(Struct, frozen=True, eq=False):
    """Disjoint stretches `[start, end)` of time in ns, in order, none empty; int64 [k] each."""

    start: Times
    end: Times
    _sums: list[Times] = field(default_factory=list)

    @classmethod
    def none(cls) -> Stretches:
        """Return no stretches."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def union(cls, start: Times, end: Times) -> Stretches:
        """Return the union of intervals in any order; empty ones are ignored."""
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
        """Return the union of several `Stretches`."""
        found = [*several, cls.none()]
        return cls.union(
            np.concatenate([each.start for each in found]),
            np.concatenate([each.end for each in found]),
        )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        """Total length of the stretches, in ns."""
        return int((self.end - self.start).sum())

    def before(self, moments: Times) -> Times:
        """Return how much of the stretches lies before each moment, in ns, int64 [len(moments)]."""
        if not len(self):
            return np.zeros(len(moments), dtype=np.int64)
        if not self._sums:
            lengths = self.end - self.start
            self._sums.append(np.cumsum(lengths, out=lengths))
        place = np.searchsorted(self.start, moments, side="right") - 1
        beyond = np.maximum(self.end[place] - moments, 0)
        return np.where(place >= 0, self._sums[0][place] - beyond, 0)

    def within(self, first: Times, last: Times) -> Times:
        """How much of the stretches lies in each `[first, last)`, int64; 0 if that is empty."""
        return self.before(np.maximum(first, last)) - self.before(first)

    def longer_than(self, length: int) -> Stretches:
        """Return the stretches of more than `length` ns."""
        return self.where(self.end - self.start > length)

    def where(self, kept: npt.NDArray[np.bool_]) -> Stretches:
        """Return the stretches for which `kept` is true; bool [k]."""
        return Stretches(self.start[kept], self.end[kept])

    def clipped(self, first: int, last: int) -> Stretches:
        """Return the parts of the stretches in `[first, last)`."""
        places = slice(
            int(np.searchsorted(self.end, first, side="right")),
            int(np.searchsorted(self.start, last, side="left")),
        )
        start = np.maximum(self.start[places], first)
        return Stretches(start, np.minimum(self.end[places], last))

    def holds(self, moments: Times) -> npt.NDArray[np.bool_]:
        """Return whether each moment lies in a stretch, its end included; bool [len(moments)]."""
        if not len(self):
            return np.zeros(len(moments), dtype=np.bool_)
        place = np.searchsorted(self.start, moments, side="right") - 1
        return (place >= 0) & (moments <= self.end[place])

    def minus(self, other: Stretches) -> Stretches:
        """Return the parts of the stretches outside of `other`."""
        return self._parts(other, inside=False)

    def both(self, other: Stretches) -> Stretches:
        """Return the intersection of the stretches with `other`."""
        return self._parts(other, inside=True)

    def _parts(self, other: Stretches, *, inside: bool) -> Stretches:
        if not len(other):
            return Stretches.none() if inside else self
        if inside and len(other) == 1:
            return self.clipped(int(other.start[0]), int(other.end[0]))
        # Sorted runs merge in one pass; a moment that comes twice makes an empty stretch.
        moments = np.concatenate((self.start, self.end, other.start, other.end))
        moments.sort(kind="stable")
        first, last = moments[:-1], moments[1:]
        kept = np.diff(self.before(moments)) > 0
        kept &= (np.diff(other.before(moments)) > 0) == inside
        return Stretches.union(first[kept], last[kept])


# --- Unions of time intervals as lists, and how much of one lies before given moments.


class InOrder(Struct, frozen=True, eq=False):
    """Some of many intervals in order of their start, taken by slices of that order. `rows` are
    their rows, int32 [n]; None if they are all, and stand in order."""

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

"""Ranges that nest on the threads that recorded them: what lies in what, what is around a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from profiler.trace.columns import Int32s, Int64s

__all__ = ["Bools", "Ranges"]

_BATCH = 1 << 15  # ranges that are Python objects at once
_NEVER = 1 << 63
Bools = np.ndarray[Any, np.dtype[np.bool_]]


class Ranges(Struct, frozen=True, eq=False):
    """n ranges `[start_ns, end_ns)` in order of thread, start, and outer before inner.

    `row` is whatever the ranges stand for, int64 [n]; `parent` is the index of the innermost
    range around each, -1 for none.
    """

    row: Int64s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s
    parent: Int64s

    @classmethod
    def of(cls, row: Int64s, thread: Int32s, start_ns: Int64s, end_ns: Int64s) -> Ranges:
        """Sort and nest ranges given in any order; equal ones nest in the order given."""
        order = np.lexsort((-end_ns, start_ns, thread))
        thread, start_ns, end_ns = thread[order], start_ns[order], end_ns[order]
        return cls(row[order], thread, start_ns, end_ns, _parents(thread, start_ns, end_ns))

    @classmethod
    def outermost_of(cls, row: Int64s, thread: Int32s, start_ns: Int64s, end_ns: Int64s) -> Ranges:
        """Of the ranges given those that lie in no other, as `of(…).outermost()` has them: begun
        when all before them on their thread had ended."""
        order = np.lexsort((-end_ns, start_ns, thread))
        kept = [np.zeros(0, dtype=np.int64)]
        heads = np.flatnonzero(np.diff(thread[order], prepend=-1, append=-1))
        for first, last in zip(heads[:-1].tolist(), heads[1:].tolist(), strict=True):
            here = order[first:last]
            reached = np.maximum.accumulate(end_ns[here])
            alone = np.append(True, reached[:-1] <= start_ns[here[1:]])
            kept.append(here[alone])
        rows = np.concatenate(kept)
        return cls.of(row[rows], thread[rows], start_ns[rows], end_ns[rows])

    def __len__(self) -> int:
        return len(self.start_ns)

    def innermost(self, thread: Int32s, time_ns: Int64s) -> Int64s:
        """The index of the innermost range around each time on its thread, -1 for none: of those
        that have begun and not ended there the last one."""
        first, last = self._begun(thread, time_ns)
        return _last_open(self.end_ns, first, last, time_ns)

    def _begun(self, thread: Int32s, time_ns: Int64s) -> tuple[Int64s, Int64s]:
        """The indices of the first range on each time's thread and of the last one that has begun
        there, which is before the first where none has."""
        order = np.argsort(thread, kind="stable")
        codes, sizes = np.unique(thread, return_counts=True)
        tails = np.cumsum(sizes)
        begins = np.searchsorted(self.thread, codes)
        ends = np.searchsorted(self.thread, codes, side="right")
        first, last = np.empty((2, len(thread)), dtype=np.int64)
        bounds = (one.tolist() for one in (tails - sizes, tails, begins, ends))
        for head, tail, begin, end in zip(*bounds, strict=True):
            here = order[head:tail]
            begun = np.searchsorted(self.start_ns[begin:end], time_ns[here], side="right")
            first[here], last[here] = begin, begun + (begin - 1)
        return first, last

    def outermost_marked(self, marked: Bools) -> Int64s:
        """For each range the outermost marked one among it and those around it, -1 for none."""
        found: list[int] = []
        for index, (parent, mark) in enumerate(
            zip(self.parent.tolist(), marked.tolist(), strict=True)
        ):
            above = found[parent] if parent >= 0 else -1
            found.append(index if above < 0 and mark else above)
        return np.array(found, dtype=np.int64)

    def select(self, kept: Bools) -> Ranges:
        """Some of the ranges, nested anew."""
        return Ranges.of(self.row[kept], self.thread[kept], self.start_ns[kept], self.end_ns[kept])

    def outermost(self) -> Ranges:
        """The ranges that lie in no other."""
        return self.select(self.parent < 0)


def _parents(thread: Int32s, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    parents = np.empty(len(thread), dtype=np.int64)
    stack, ends = [-1], [_NEVER]
    current = -1
    for first in range(0, len(thread), _BATCH):
        some = slice(first, first + _BATCH)
        columns = (one[some].tolist() for one in (thread, start_ns, end_ns))
        found: list[int] = []
        for index, (code, start, end) in enumerate(zip(*columns, strict=True), first):
            if code != current:
                stack, ends = [-1], [_NEVER]
                current = code
            while ends[-1] <= start:
                stack.pop()
                ends.pop()
            found.append(stack[-1])
            stack.append(index)
            ends.append(end)
        parents[some] = found
    return parents


def _last_open(end_ns: Int64s, first: Int64s, last: Int64s, time_ns: Int64s) -> Int64s:
    """Of the ranges from `first` to `last` the last that ends after each time, -1 for none.

    Backwards through blocks that double, by the latest end in each, to one in which a range ends
    after the time, and down in it: as many passes as the number of ranges has bits.
    """
    found = last.copy()
    over = last >= first
    over[over] = end_ns[last[over]] <= time_ns[over]
    asked = np.flatnonzero(over)
    block = last[asked]  # up to the last range none in it ends after the time
    latest = [end_ns]  # by blocks of 1, 2, 4, … ranges
    reached: list[tuple[Int64s, Int64s]] = []
    while len(asked):
        before = block - 1
        inside = (block & 1 == 1) & (latest[-1][before] > time_ns[asked])
        reached.append((asked[inside], before[inside]))
        left = ~inside & ((block & ~1) << (len(latest) - 1) > first[asked])
        found[asked[~inside & ~left]] = -1
        asked, block = asked[left], block[left] >> 1
        pairs = latest[-1][: len(latest[-1]) // 2 * 2]
        latest.append(np.maximum(pairs[::2], pairs[1::2]))
    asked, block = np.empty((2, 0), dtype=np.int64)
    for ends, (more, blocks) in zip(reversed(latest[:-1]), reversed(reached), strict=True):
        later = 2 * block + 1
        block = np.append(later - (ends[later] <= time_ns[asked]), blocks)
        asked = np.append(asked, more)
    found[asked] = block
    return np.where(found >= first, found, -1)

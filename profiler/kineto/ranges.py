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
        """The index of the innermost range around each time on its thread, -1 for none."""
        found = np.full(len(time_ns), -1, dtype=np.int64)
        for code in np.unique(thread).tolist():
            first, last = np.searchsorted(self.thread, (code, code + 1))
            here = thread == code
            begun = np.searchsorted(self.start_ns[first:last], time_ns[here], side="right")
            found[here] = np.where(begun > 0, begun - 1 + first, -1)
        over = found >= 0
        over[over] = self.end_ns[found[over]] <= time_ns[over]
        while over.any():
            found[over] = self.parent[found[over]]
            over &= found >= 0
            over[over] = self.end_ns[found[over]] <= time_ns[over]
        return found

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

"""Lengths of unions of time intervals, many groups at once, without a Python loop over rows.

Sorted by group and start, an interval adds to the union of its group what lies behind the
furthest end seen so far. Groups are laid one behind the other on one time line, so that a single
running maximum serves them all: O(n log n) for the sort, O(n) for the rest.

Many intervals are worked on in batches, in order of their start. Of the batches before one only the
furthest end of each group matters.
"""

from __future__ import annotations

import numpy as np

from profiler.table.batches import Codes, Times, batches, is_sorted, order_by

__all__ = ["group_heads", "reaches", "union_by", "union_length", "union_sorted"]


def union_by(start: Times, end: Times, codes: Codes, groups: int) -> Times:
    """Length in ns of the union of the intervals `[start, end)` of each group, int64 [groups].

    `codes` names the group of each interval, from 0 to `groups - 1`; an interval with a code
    below 0 is left out. Intervals may come in any order. An interval that ends before it starts
    counts as empty; a group without any has 0.
    """
    lengths = np.zeros(groups, dtype=np.int64)
    covered = np.full(groups, np.iinfo(np.int64).min)  # to where, by the batches before
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
    """Length of the union of each group, int64 [len(heads)], for at least one interval.

    Rows are sorted by group, within a group by start; `heads` are the first rows of the groups.
    Works in place: `start` and `end` hold nothing of use afterwards.
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
    lengths: Times = np.add.reduceat(end, heads)
    return lengths


def group_heads(*codes: Codes) -> Times:
    """The rows at which any of `codes` changes, the first row included; they are not empty."""
    changes = np.ones(len(codes[0]), dtype=np.bool_)
    changes[1:] = False
    for column in codes:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def reaches(end: Times, until: int) -> tuple[Times, Times]:
    """How far the intervals before each one reach, and how far with it, int64 [n] each.

    The intervals are at least one, in order of their start; those before them reach `until`.
    """
    reach = np.maximum.accumulate(end)
    np.maximum(reach, until, out=reach)
    before = np.empty_like(reach)
    before[0], before[1:] = until, reach[:-1]
    return before, reach

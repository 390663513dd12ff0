"""Lengths of unions of time intervals, many groups at once, without a Python loop over rows.

Sorted by group and start, an interval adds to the union of its group what lies behind the
furthest end seen so far. Groups are laid one behind the other on one time line, so that a single
running maximum serves them all: O(n log n) for the sort, O(n) for the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Codes", "Times", "group_heads", "narrow", "union_by", "union_length", "union_sorted"]

Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]


def union_by(start: Times, end: Times, codes: Codes, groups: int) -> Times:
    """Length in ns of the union of the intervals `[start, end)` of each group, int64 [groups].

    `codes` names the group of each interval, from 0 to `groups - 1`; an interval with a code
    below 0 is left out. Intervals may come in any order. An interval that ends before it starts
    counts as empty; a group without any has 0.
    """
    lengths = np.zeros(groups, dtype=np.int64)
    kept = codes >= 0
    if not kept.all():
        start, end, codes = start[kept], end[kept], codes[kept]
    del kept
    if len(start):
        order = np.lexsort((start, narrow(codes, groups)))
        codes = codes[order]
        heads = group_heads(codes)
        lengths[codes[heads]] = union_sorted(start[order], end[order], heads)
    return lengths


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


def narrow(codes: Codes, groups: int) -> Codes:
    """16-bit codes where they fit: NumPy sorts those by radix, in linear time."""
    return codes.astype(np.uint16, copy=False) if groups <= 1 << 16 else codes

"""Unions of intervals worked through in batches: the same as counting every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.run import intervals as batches
from profiler.run.intervals import InOrder, covered_before, union_and_shared

SPAN = 200  # ns


def intervals(count, seed):
    """Random intervals, some of them empty."""
    random = np.random.default_rng(seed)
    start = random.integers(0, SPAN - 20, count)
    return start, start + random.integers(0, 20, count)


def covered(start, end):
    """Whether each nanosecond lies in one of the intervals."""
    found = np.zeros(SPAN, dtype=bool)
    for first, last in zip(start, end, strict=True):
        found[first:last] = True
    return found


@pytest.fixture(params=[2, 5, 1 << 18], autouse=True)
def batch(request, monkeypatch):
    """Batches of a few rows have borders everywhere."""
    monkeypatch.setattr(batches, "_BATCH", request.param)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("every", [1, 2])
def test_covered_before_counts_what_lies_before(seed, in_order, every):
    """Of all intervals or every other one, in order of start or not."""
    start, end = intervals(40, seed)
    if in_order:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    which = np.arange(len(start)) % every == 0
    work = InOrder.of(start, end, which)
    moments = np.unique(np.random.default_rng(seed).integers(0, SPAN, 30))
    expected = np.append(0, np.cumsum(covered(start[which], end[which])))[moments]
    assert covered_before(work, moments).tolist() == expected.tolist()
    assert len(work) == which.sum()


def test_nothing_is_copied_of_what_stands_in_order():
    """All intervals, sorted: there are no rows to go by."""
    start = np.arange(10)
    assert InOrder.of(start, start + 1, np.ones(10, dtype=bool)).rows is None
    assert InOrder.of(start[::-1], start[::-1] + 1, np.ones(10, dtype=bool)).rows is not None


def test_no_interval_covers_nothing():
    """No command computes: 0 before every moment."""
    none = np.zeros(0, dtype=np.int64)
    work = InOrder.of(none, none, np.zeros(0, dtype=bool))
    assert covered_before(work, np.array([1, 2])).tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("counts", [(40, 25), (3, 60), (60, 2), (20, 0), (0, 20)])
def test_union_and_shared_are_what_counting_gives(seed, counts):
    """The union of some intervals, and what of it lies in others, each in any order."""
    (start, end), (other_start, other_end) = (
        intervals(count, seed + 10 * place) for place, count in enumerate(counts)
    )
    some = InOrder.of(start, end, np.ones(len(start), dtype=bool))
    others = InOrder.of(other_start, other_end, np.ones(len(other_start), dtype=bool))
    here, there = covered(start, end), covered(other_start, other_end)
    assert union_and_shared(some, others) == (here.sum(), (here & there).sum())

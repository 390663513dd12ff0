"""Unions of intervals, against sets of whole nanoseconds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.run import intervals
from profiler.run.intervals import group_heads, reaches, union_by, union_length

INTERVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-50, 50), st.integers(-5, 30)), max_size=40
)


def _columns(rows):
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return table[:, 1], table[:, 1] + table[:, 2], table[:, 0]


def test_overlap_and_gap_count_once():
    """[0,10) and [5,20) and [30,40) cover 30 ns."""
    start, end = np.array([5, 0, 30]), np.array([20, 10, 40])
    assert union_length(start, end) == 30


def test_interval_inside_another_adds_nothing():
    """A short interval after a long one does not end the long one early."""
    start, end = np.array([0, 10, 50]), np.array([100, 20, 60])
    assert union_length(start, end) == 100


def test_no_interval_has_no_length():
    """Groups without intervals are 0, and so is everything of nothing."""
    none = np.zeros(0, dtype=np.int64)
    assert union_by(none, none, none, 2).tolist() == [0, 0]


def test_groups_do_not_see_each_other():
    """The same interval counts in each group it is in."""
    start, end = np.array([0, 0, 5]), np.array([10, 10, 15])
    assert union_by(start, end, np.array([2, 0, 2]), 4).tolist() == [10, 0, 15, 0]


def test_code_below_zero_is_left_out():
    """An interval of no group counts nowhere."""
    start, end = np.array([0, 5]), np.array([10, 30])
    assert union_by(start, end, np.array([0, -1]), 1).tolist() == [10]


def test_times_of_today_do_not_overflow():
    """Nanoseconds since the epoch in ten thousand groups stay exact."""
    start = np.full(10_000, 1_800_000_000_000_000_000)
    lengths = union_by(start, start + 7, np.arange(10_000), 10_000)
    assert set(lengths.tolist()) == {7}


def test_more_groups_than_16_bits():
    """Codes beyond 65,535 keep their own groups."""
    codes = np.array([70_000, 3, 70_000])
    lengths = union_by(np.array([0, 0, 5]), np.array([10, 4, 12]), codes, 70_001)
    assert (lengths[70_000], lengths[3], lengths.sum()) == (12, 4, 16)


def test_heads_where_any_column_changes():
    """A group begins where one of the columns changes."""
    heads = group_heads(np.array([1, 1, 2, 2]), np.array([0, 1, 1, 1]))
    assert heads.tolist() == [0, 1, 2]


@settings(deadline=None)
@given(INTERVALS, st.sampled_from([1, 2, 7, 1 << 18]))
def test_union_is_the_number_of_covered_nanoseconds(rows, batch):
    """For any intervals in any order, empty and reversed ones too, in batches of any size."""
    start, end, codes = _columns(rows)
    covered = [set() for _ in range(4)]
    for code, first, last in zip(codes, start, end, strict=True):
        covered[code].update(range(first, last))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", batch)
        lengths = union_by(start, end, codes, 4)
    assert lengths.tolist() == [len(group) for group in covered]


def test_reaches():
    """How far the intervals before each reach, and with it; those before all reach 7."""
    before, reach = reaches(np.array([5, 20, 10, 30]), 7)
    assert before.tolist() == [7, 7, 20, 20]
    assert reach.tolist() == [7, 20, 20, 30]

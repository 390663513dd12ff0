"""Ranges that nest: those that lie in no other, and the innermost around a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.kineto.events import Ranges

_MANY = 300_000
_DEEP = 100_000
_RANGE = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6))


@given(st.lists(_RANGE, max_size=12))
def test_outermost_ranges_are_those_without_a_parent(given_ranges):
    """Found without nesting all ranges they are what nesting finds, where ranges cross as well."""
    thread, start_ns, length = _columns(given_ranges, 3)
    row = np.arange(len(given_ranges)) + 100
    given_as = row, thread.astype(np.int32), start_ns, start_ns + length
    found, nested = Ranges.outermost_of(*given_as), Ranges.of(*given_as).outermost()
    assert found.row.tolist() == nested.row.tolist()
    assert found.start_ns.tolist() == nested.start_ns.tolist()
    assert found.thread.tolist() == nested.thread.tolist()
    assert found.parent.tolist() == nested.parent.tolist()


@given(
    st.lists(_RANGE, max_size=30),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 20)), max_size=12),
)
def test_the_innermost_range_is_the_last_begun_of_those_open(given_ranges, given_times):
    """By going back over all ranges of the thread, also where ranges cross, begin together or are
    empty."""
    thread, start_ns, length = _columns(given_ranges, 3)
    ranges = Ranges.of(np.arange(len(thread)), thread.astype(np.int32), start_ns, start_ns + length)
    plain = [
        max(
            (index for index in range(len(ranges)) if _is_open(ranges, index, code, time)),
            default=-1,
        )
        for code, time in given_times
    ]
    codes, times = _columns(given_times, 2)
    assert ranges.innermost(codes.astype(np.int32), times).tolist() == plain


def _is_open(ranges, index, code, time):
    around = ranges.start_ns[index] <= time < ranges.end_ns[index]
    return bool(ranges.thread[index] == code and around)


def test_many_threads_are_gone_over_once():
    """A range and a time on each of 300,000 threads: to go over all times for each of them would
    be 90 billion comparisons."""
    thread = np.arange(_MANY, dtype=np.int32)
    start_ns = thread.astype(np.int64)
    ranges = Ranges.of(np.arange(_MANY), thread, start_ns, start_ns + 2)
    found = ranges.innermost(thread[::-1].copy(), start_ns[::-1] + 1)
    assert np.array_equal(found, start_ns[::-1])


def test_deep_ranges_are_not_climbed_one_by_one():
    """As many times as ranges in each other, each after the ends of those further in: one by one
    would be five billion steps."""
    start_ns = np.arange(_DEEP)
    thread = np.zeros(_DEEP, dtype=np.int32)
    ranges = Ranges.of(start_ns, thread, start_ns, 2 * _DEEP - start_ns)
    assert np.array_equal(ranges.innermost(thread, start_ns + _DEEP), start_ns[::-1])


def _columns(rows, count):
    return [np.array([row[column] for row in rows], dtype=np.int64) for column in range(count)]

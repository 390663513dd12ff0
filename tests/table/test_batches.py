"""Batches: any size gives what one piece gives."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.run import intervals
from profiler.run.intervals import counts, is_sorted, order_by, rows_of_calls, stretches

CODES = st.lists(st.integers(0, 5), max_size=30)


@pytest.fixture(params=[1, 3, 1 << 18])
def _size(request, monkeypatch):
    monkeypatch.setattr(intervals, "_BATCH", request.param)


@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize(
    ("values", "expected"),
    [([], True), ([4], True), ([1, 1, 2, 3], True), ([1, 2, 3, 2], False), ([2, 1, 1, 1], False)],
)
def test_is_sorted(values, expected):
    """A decrease is found also where one batch ends and the next begins."""
    assert is_sorted(np.array(values, dtype=np.int64)) is expected


@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize(
    ("calls", "rows"),
    [([0, 1, 2], [1, -1, 2, -1, 0]), ([2, 0, 1], [2, -1, 0, -1, 1]), ([1, 4], [0, -1, -1, -1, -1])],
)
@pytest.mark.parametrize("unknown", [3, 7])
def test_rows_of_calls(calls, rows, unknown):
    """Of commands of the calls 1, none, 2, one that is not there, and 0; the next number too."""
    of_command = pl.Series([1, -1, 2, unknown, 0], dtype=pl.Int32)
    assert rows_of_calls(of_command, pl.Series(calls, dtype=pl.Int32)).tolist() == rows


@pytest.mark.usefixtures("_size")
def test_counts():
    """Codes below 0 are of no group; groups without rows have 0."""
    assert counts(np.array([2, -1, 0, 2, 2, -1]), 4).tolist() == [1, 0, 3, 0]


@pytest.mark.parametrize("groups", [6, 1 << 20, 1 << 40])
def test_order_by_is_stable(groups):
    """Equal codes keep their order, however many bits they need."""
    codes = np.array([4, groups - 1, 0, 4, groups - 1])
    assert order_by(codes, groups).tolist() == [2, 0, 3, 1, 4]


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 9), max_size=12), batch=st.integers(1, 20))
def test_stretches_divide_no_group(sizes, batch):
    """Stretches follow each other over all groups; one longer than a batch is a single group."""
    heads, rows = np.cumsum([0, *sizes])[:-1], sum(sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_BATCH", batch)
        found = list(stretches(heads, rows))
    assert [group for first, last in found for group in range(first, last)] == [*range(len(sizes))]
    for first, last in found:
        assert last - first == 1 or sum(sizes[first:last]) <= batch

"""Ranges that nest: those that lie in no other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.kineto.ranges import Ranges

_RANGE = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6))


@given(st.lists(_RANGE, max_size=12))
def test_outermost_ranges_are_those_without_a_parent(given_ranges):
    """Found without nesting all ranges they are what nesting finds, where ranges cross as well."""
    thread, start_ns, length = (
        np.array([each[column] for each in given_ranges], dtype=np.int64) for column in range(3)
    )
    row = np.arange(len(given_ranges)) + 100
    given_as = row, thread.astype(np.int32), start_ns, start_ns + length
    found, nested = Ranges.outermost_of(*given_as), Ranges.of(*given_as).outermost()
    assert found.row.tolist() == nested.row.tolist()
    assert found.start_ns.tolist() == nested.start_ns.tolist()
    assert found.thread.tolist() == nested.thread.tolist()
    assert found.parent.tolist() == nested.parent.tolist()

"""Offsets of clocks from events that two recorders saw."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.importers.mixed_align import Events, fit, pairs_at

OFF_NS = 12_345_678_901


def events(seed, count=2_000, names=30):
    """Events of some names at times that do not repeat."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(2_000, 20_000, count))
    return Events(random.integers(0, names, count), times)


def moved(seen, by):
    return Events(seen.name, seen.time_ns + by)


@pytest.mark.parametrize("some", [slice(None), slice(500, 900), slice(0, 40)])
def test_an_offset_is_found_whatever_part_was_seen(some):
    """Of all events or some, each up to 500 ns off: the median is the offset within 100 ns, and the
    residual that of the jitter."""
    own = events(1)
    jitter = np.random.default_rng(2).integers(-500, 501, len(own))
    there = moved(own, OFF_NS + jitter)
    other = Events(there.name[some], there.time_ns[some])
    for mine, theirs, sign in ((own, other, 1), (other, own, -1)):
        found = fit(mine, theirs, 10_000)
        assert abs(found.offset_ns - sign * OFF_NS) < 100
        assert found.pairs == len(other)
        assert 150 < found.residual_ns < 350
        assert found.worst_ns < 600


def test_other_work_of_the_same_names_tells_nothing():
    """Where no offset makes half of the events meet, there is none."""
    assert fit(events(1), events(3), 10_000) is None


def test_fewer_than_three_moments_tell_nothing():
    """Two events in common, or many at one moment, relate no clocks; three moments do."""
    own = Events(np.arange(3), np.array([0, 50_000, 170_000]))
    assert fit(own, moved(own, OFF_NS), 10_000).offset_ns == OFF_NS
    two = Events(own.name[:2], own.time_ns[:2])
    assert fit(two, moved(two, OFF_NS), 10_000) is None
    together = Events(np.arange(9), np.arange(9) * 10)
    assert fit(together, moved(together, OFF_NS), 10_000) is None


def test_what_repeats_evenly_needs_a_clock():
    """Ten of a hundred equal events fit at many places; a clock says which."""
    own = Events(np.zeros(100, dtype=np.int64), np.arange(100) * 1_000_000)
    other = Events(own.name[40:50], own.time_ns[40:50] + 777)
    assert fit(own, other, 10_000) is None
    assert fit(own, other, 10_000, (0, 1_000_000_000)).offset_ns == 777


def test_a_pair_is_of_one_name_and_each_in_one():
    """Events of other names, too far off, or taken by a nearer one are in no pair."""
    own = Events(np.array([1, 1, 2, 3]), np.array([0, 60, 500, 900]))
    other = Events(np.array([1, 2, 4, 3]), np.array([50, 500, 0, 2_000]))
    mine, theirs = pairs_at(own, other, 0, 100)
    assert list(zip(mine.tolist(), theirs.tolist(), strict=True)) == [(1, 0), (2, 1)]

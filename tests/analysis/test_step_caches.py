"""Calls under a step cache: one by one, by how much they skipped, and the finding."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analysis.steps import by_cache, outliers
from tests.analysis.asked import asked
from tests.runs import make_call, make_info, make_run

DURATIONS = (90, 40, 12, 44, 10)  # the first call is no steady one


def cached_run(skipped=(0, 0, 2, 0, 2)):
    """A denoiser of three blocks that may be skipped, under FirstBlockCache."""
    calls, begin = [], 0
    for step, duration in enumerate(DURATIONS):
        calls.append(
            make_call(step, "transformer", begin, begin + duration, step=step, branch="cond")
        )
        begin += duration
    told = [
        {
            "call": n,
            "cache": "FirstBlockCache",
            "blocks": 3,
            "skipped": [f"b.{i}" for i in range(k)],
        }
        for n, k in enumerate(skipped)
    ]
    told[1]["residual_ratio"] = 0.25
    return make_run(calls, info=make_info("capture", cached_calls=told))


def test_each_call():
    """A row a call, with what it skipped; the ratio where there was one."""
    frame = asked(cached_run()).cached_calls
    assert frame["skipped_blocks"].to_list() == [0, 0, 2, 0, 2]
    assert frame["residual_ratio"].to_list() == [None, 0.25, None, None, None]
    assert frame["skipped"].to_list() == [None, None, "b.0, b.1", None, "b.0, b.1"]
    assert frame["elapsed_ns"].to_list() == list(DURATIONS)
    assert frame["branch"].to_list() == ["cond"] * 5


def test_full_and_skipping_calls_are_apart():
    """Medians of steady calls of either kind: of 40 and 44, of 12 and 10."""
    frame = asked(cached_run()).cache_use
    assert frame.select("skipped_blocks", "calls", "steady_calls", "median_ns").rows() == [
        (0, 3, 2, 42),
        (2, 2, 2, 11),
    ]
    assert frame["total_ns"].sum() == sum(DURATIONS)


def test_steps_tell_how_much_was_skipped():
    """Of the three blocks of each step's call; null in a run without a cache."""
    assert asked(cached_run()).steps["skipped_share"].to_list() == [0, 0, 2 / 3, 0, 2 / 3]
    plain = make_run([make_call(0, "transformer", 0, 10, step=0)])
    assert asked(plain).steps["skipped_share"].to_list() == [None]


def test_the_summary_of_steps_tells_full_from_skipping_ones():
    """Medians of the steady steps of either kind, 40 and 44 full, 12 and 10 skipping, and the words
    of the report; nothing of it without a cache, and where it skipped nothing no words."""
    steps = asked(cached_run()).step_summary
    assert (steps.full_steps, steps.full_median_ns) == (3, 42)
    assert (steps.skipping_steps, steps.skipping_median_ns) == (2, 11)
    words = str(by_cache(steps)).replace("\N{NO-BREAK SPACE}", " ")
    assert words == "3 full, median 42 ns; 2 with skipped blocks, median 11 ns"
    none = asked(cached_run((0,) * 5)).step_summary
    assert (none.full_steps, none.skipping_steps, none.skipping_median_ns) == (5, 0, None)
    assert by_cache(none) is None
    plain = asked(make_run([make_call(0, "transformer", 0, 10, step=0)])).step_summary
    assert (plain.full_steps, by_cache(plain)) == (None, None)


def test_a_full_step_among_skipping_ones_is_no_outlier():
    """Steps are held against those of their kind."""
    durations = np.array([100, 10, 10, 10, 100, 10, 10, 10, 30])
    assert outliers(durations).tolist() == [d > 10 for d in durations]
    skips = durations < 100
    assert outliers(durations, skips).tolist() == [d == 30 for d in durations]


@pytest.mark.parametrize("skipped", [(0, 0, 2, 0, 2), (0,) * 5])
def test_finding(skipped):
    """It tells how much was skipped, also where that is nothing."""
    (found,) = (f for f in asked(cached_run(skipped)).findings if f.rule == "step_cache")
    assert found.evidence["calls"] == 5
    assert found.evidence["skipping_calls"] == sum(map(bool, skipped))
    assert found.evidence["skipped_blocks_share"] == sum(skipped) / 15
    assert ("skipping_median_ns" in found.evidence) == any(skipped)


def test_without_a_cache():
    """No rows and no finding."""
    analysis = asked(make_run([make_call(0, "transformer", 0, 10, step=0)]))
    assert analysis.cached_calls.is_empty()
    assert analysis.cache_use.is_empty()
    assert "step_cache" not in {found.rule for found in analysis.findings}

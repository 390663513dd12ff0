"""Which steps the finding about outliers names, and what it says of first steps."""

import pytest

from profiler.analysis import words
from profiler.analysis.analyze import analyze
from tests.analysis.comparison.small import steps_run

USUAL = (100,) * 10
SLOW_FIRST = (300, *USUAL[1:])
SLOW_FOURTH = (*USUAL[:3], 300, *USUAL[4:])
EACH = "The first step of each pipeline call does one-time work"


def _found(*pipelines):
    (found,) = (f for f in analyze(steps_run(*pipelines)).findings if f.rule == "outlier_steps")
    return found


def _title(*pipelines):
    return words(_found(*pipelines)).title


@pytest.mark.parametrize(
    ("pipelines", "steps"),
    [
        ((USUAL, USUAL, SLOW_FIRST), "2:0"),
        ((USUAL, SLOW_FIRST, SLOW_FIRST), "1:0, 2:0"),
        ((SLOW_FIRST, SLOW_FIRST, SLOW_FOURTH), "2:3, 1:0"),
    ],
)
def test_some_first_steps_are_not_each(pipelines, steps):
    """Steps are named with their pipeline call, and the recommendation is not about every one."""
    found = _found(*pipelines)
    assert sorted(found.evidence["steps"].split(", ")) == sorted(steps.split(", "))
    assert EACH not in words(found).recommendation


def test_one_step_of_several_calls_is_named_with_its_call():
    """The title says which call."""
    assert _title(USUAL, USUAL, SLOW_FIRST).startswith("Step 0 of pipeline call 2 takes")
    assert _title(SLOW_FOURTH).startswith("Step 3 takes")


def test_all_first_steps_and_no_other():
    """Only then each pays; the first of the run, which is its warm-up, is one of them."""
    found = _found(SLOW_FIRST, SLOW_FIRST, SLOW_FIRST)
    assert found.evidence["pattern"] == "each_first_step"
    assert words(found).recommendation.startswith(EACH)

"""A script that profiles itself with torch's tools gets the events that it gets without us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.switched_on import drops

pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
SCHEDULE = (HERE / "own_profiler_schedule.py").read_text(encoding="utf-8")
WAYS = (HERE / "own_profilers.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_profiler_that_is_prepared_during_a_call(scripts, times):
    """torch.profiler with a schedule ends normally: our session in its warm-up step crashed it."""
    for _ in range(times):
        ended = scripts.run(SCHEDULE)
        assert (ended.code, ended.out) == (0, "linear 2\nend\n"), ended.err


def test_calls_beside_it_are_recorded_without_operators(scripts):
    """The two calls in its warm-up and active step have none: a drop; the others have theirs."""
    ended = scripts.run(SCHEDULE)
    assert "script's own torch.profiler" in ended.err
    assert [kind for kind, _ in drops(ended.bundle)] == ["untraced_call"]


@pytest.mark.parametrize(
    "way",
    [
        "repeated",
        "by_another_thread",
        "inside_a_call",
        "started_before_us",
        *(
            pytest.param(way, marks=pytest.mark.nightly)
            for way in (
                "before_the_first_call",
                "written_when_ready",
                "left_in_warm_up",
                "several_threads",
                "across_calls",
                "autograd",
                "itt",
                "execution_trace",
                "with_execution_trace",
                "by_hand",
            )
        ),
    ],
)
def test_their_events_are_those_of_an_unprofiled_process(scripts, way):
    """The script prints what its profiler recorded, by name: the same with us, and no crash."""
    plain = scripts.run(WAYS, way, RBLN_PROFILER=None)
    assert (plain.code, plain.out.splitlines()[-1:]) == (0, ["end"]), plain.err
    if way == "started_before_us":
        ours = scripts.run(WAYS, way, "begin_later", RBLN_PROFILER=None)
    else:
        ours = scripts.run(WAYS, way)
    assert (ours.code, ours.out) == (0, plain.out), ours.err
    assert ours.bundle

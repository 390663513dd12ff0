"""The time of one request and its interval: by hand, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.analyze import analyze
from profiler.analysis.prediction.predict import predict
from profiler.analysis.prediction.request import request_time
from profiler.analysis.prediction.scenario import Scenario
from profiler.analysis.prediction.workload import Task, Workload
from tests.analysis.prediction.requested import stepped_run, workload

_NONE = np.zeros(0, dtype=np.int64)
_TIMES = st.lists(st.integers(1, 10**9), min_size=2, max_size=5)


def _workload(first, steady, once, steps=None):
    """p pipeline calls of an encoder and steps of a transformer."""
    first, steady, once = (np.array(values, dtype=np.int64) for values in (first, steady, once))
    encoder = Task("text_encoder", "text_encoder", "encode", "", "cpu:0", _NONE, once[:, None])
    denoiser = Task("transformer", "transformer", "denoise", "", "cpu:0", first, steady)
    whole = once + first + steady.sum(axis=1)
    count = steps or steady.shape[1] + 1
    return Workload((encoder,), (denoiser,), (), count, {}, {}, whole, ("cpu:0",))


def test_what_was_measured_once_has_no_interval():
    """One pipeline call of two steps: nothing repeats."""
    found = request_time(_workload([100], [[90]], [50]), {})
    assert (found.ns, found.low, found.high, found.resampled) == (240, None, None, "")
    assert found.once_ns == 240


def test_steps_of_one_pipeline_call_are_drawn():
    """Equal steps leave an interval of no width; what is not drawn was measured once."""
    found = request_time(_workload([100], [[90, 90, 90]], [50]), {})
    assert (found.low, found.ns, found.high) == (420, 420, 420)
    assert (found.resampled, found.once_ns) == ("steps", 150)


def test_more_scatter_is_a_wider_interval():
    """Steps of 80 to 100 ns against steps of 60 to 120."""
    narrow, wide = (
        request_time(_workload([100], [[90 - d, 90, 90 + d, 90 - d, 90 + d]], [50]), {})
        for d in (10, 30)
    )
    assert narrow.ns == wide.ns == 600
    assert wide.low < narrow.low < narrow.ns < narrow.high < wide.high


def test_one_step_is_measured_once_in_one_pipeline_call():
    """`--steps 1` of one pipeline call draws nothing."""
    found = request_time(_workload([100], [[90, 80, 70]], [50], steps=1), {})
    assert (found.ns, found.low, found.once_ns) == (150, None, 150)


def test_pipeline_calls_are_drawn_from_three_on():
    """Each of three with its own steps; two are too few, and their steps are drawn together."""
    three = request_time(_workload([10] * 3, [[5, 5], [6, 6], [7, 7]], [50, 60, 70]), {})
    assert three.resampled == "pipeline calls"
    assert three.once_ns == 0
    assert three.low < three.ns == 60 + 10 + 12 < three.high
    two = request_time(_workload([10] * 2, [[5, 5], [6, 6]], [50, 60]), {})
    assert two.resampled == "steps"


def test_bounds_of_an_estimate_widen_the_interval():
    """Between 90 and 120 % of the denoiser's 280 ns, beside 50 that are certain."""
    found = request_time(_workload([100], [[90, 90]], [50]), {"transformer": (0.9, 1.2)})
    assert found.ns == 330
    assert 50 + 0.9 * 280 < found.low < 320
    assert 345 < found.high < 50 + 1.2 * 280


def test_the_same_question_has_the_same_answer():
    """The bootstrap is seeded."""
    asked = _workload([100], [[90, 95, 99]], [50])
    assert request_time(asked, {"transformer": (0.5, 2)}) == request_time(
        asked, {"transformer": (0.5, 2)}
    )


_steps = st.integers(2, 4).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(0, 10**6), min_size=n, max_size=n), min_size=1, max_size=4
    )
)


@given(_steps)
@settings(max_examples=25, deadline=None)
def test_nothing_changed_is_always_what_was_measured(pipelines):
    """For any times of steps in any number of pipeline calls: the mean of the pipeline calls, and
    parts that add up to it."""
    run = stepped_run([[[("transformer", "cond", t)] for t in steps] for steps in pipelines])
    found = predict(run, analyze(run), Scenario())
    assert found.request.ns == pytest.approx(found.measured.ns)
    assert found.measured.ns == pytest.approx(workload(run).measured_ns.mean())
    for parts in (found.stages, found.submodules):
        assert sum(part.after_ns for part in parts) == pytest.approx(found.request.ns)
        assert sum(part.before_ns for part in parts) == pytest.approx(found.measured.ns)
    if found.request.low is not None:
        assert found.request.low <= found.request.ns <= found.request.high


@given(_TIMES, st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_more_steps_never_take_less(times, steps):
    """Monotone in steps; without guidance or a submodule it never takes more."""
    run = stepped_run([[[("transformer", "cond", t), ("transformer", "uncond", t)] for t in times]])
    analysis = analyze(run)

    def ns(**scenario):
        return predict(run, analysis, Scenario(**scenario)).request.ns

    assert ns(steps=steps) <= ns(steps=steps + 1)
    assert ns(steps=steps, guidance=False) <= ns(steps=steps)
    assert ns(steps=steps, drop=("vae",)) <= ns(steps=steps)

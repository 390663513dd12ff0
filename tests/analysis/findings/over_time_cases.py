"""Runs for the rules about first calls, drift and outliers."""

from itertools import accumulate, pairwise

from tests.analysis.findings.cases import analyzed, gpu_call, misses, triggers
from tests.runs import make_call, make_span


def _calls(*durations, **more):
    """Calls one after the other from 0 on, each in its step."""
    ends = list(accumulate(durations, initial=0))
    return [gpu_call(i, a, b, **more) for i, (a, b) in enumerate(pairwise(ends))]


@triggers("first_call", first_ns=100, later_median_ns=40, excess_ns=60, later_calls=3)
def first_call_of_two_and_a_half():
    return analyzed(_calls(100, 40, 40, 50, branch="cond"))


@misses("first_call")
def first_call_less_than_twice():
    return analyzed(_calls(159, 80, 80, 80))


@misses("first_call")
def first_call_of_a_short_submodule():
    """49 of 1000 ns."""
    return analyzed(_calls(59, 10, 10))


@misses("first_call")
def first_call_is_of_another_kind():
    """A batch of both branches, then calls without guidance: more work, no initialization."""
    calls = [gpu_call(0, 0, 200, branch="batched"), gpu_call(1, 200, 300, branch="cond")]
    return analyzed([*calls, gpu_call(2, 300, 400, branch="cond")])


@triggers("first_call", first_ns=300, later_median_ns=100)
def first_prompt():
    """An encoder does the same for both prompts."""
    place = {"stage": "encode", "device": "cpu:0"}
    return analyzed(
        [
            make_call(0, "text_encoder_3", 0, 300, branch="prompt", **place),
            make_call(1, "text_encoder_3", 300, 400, branch="negative_prompt", **place),
        ]
    )


def _steps(*durations):
    ends = list(accumulate(durations, initial=0))
    pairs = list(pairwise(ends))
    spans = [make_span("step", f"step {i}", a, b, i) for i, (a, b) in enumerate(pairs)]
    return analyzed(_calls(*durations), spans=spans, end=ends[-1])


@triggers("slow_start", warmup_steps=2, warmup_ns=200, later_median_ns=100)
def two_slow_steps():
    return _steps(200, 200, *[100] * 10)


@misses("slow_start")
def one_slow_step():
    return _steps(200, *[100] * 11)


@misses("slow_start")
def two_slightly_slow_steps():
    """2 times 7 of 1214 ns."""
    return _steps(107, 107, *[100] * 10)


@triggers("step_drift", drift_per_step_ns=2, steps=10, median_ns=109)
def two_more_each_step():
    return _steps(*range(100, 120, 2))


@misses("step_drift")
def half_a_percent_more_each_step():
    """45 ns from first to last, of a median of 1022."""
    return _steps(*range(1000, 1050, 5))


@misses("step_drift")
def steps_that_vary():
    return _steps(100, 130, 95, 125, 100, 120, 105, 130, 110, 128, 104, 131)


@triggers("outlier_steps", steps="7", excess_ns=40, longest_ns=140, median_ns=100)
def one_long_step():
    return _steps(*[100] * 7, 140, *[100] * 4)


@misses("outlier_steps")
def one_slightly_long_step():
    """20 of 1220 ns."""
    return _steps(*[100] * 7, 120, *[100] * 4)


@misses("outlier_steps")
def warm_up_is_no_outlier():
    return _steps(300, *[100] * 11)

"""Steps: how long each took, and which stand out."""

from itertools import pairwise

import numpy as np

from profiler.analysis.steps import outliers
from tests.analysis.asked import asked
from tests.runs import EPOCH, TINY_CALLS, Command, make_call, make_run, make_span, tiny_run


def _timed(durations):
    """A run of steps with these durations, each one call, without commands."""
    edges = np.cumsum([0, *durations]).tolist()
    pairs = list(pairwise(edges))
    calls = [make_call(i, "t", a, b, step=i) for i, (a, b) in enumerate(pairs)]
    steps = [make_span("step", f"step {i}", a, b, i) for i, (a, b) in enumerate(pairs)]
    total = edges[-1]
    spans = [make_span("pipeline", "P", 0, total), make_span("stage", "denoise", 0, total), *steps]
    return make_run(calls, (), spans)


def test_steps_split_into_calls_host_work_and_idle():
    """Step 0 is its call of 300 ns, whose commands cover 250; 50 ns later comes step 1. On the
    host they took 350 and 260."""
    steps = asked(tiny_run()).steps
    dropped = ("start_ns", "between_host_ns", "branches", "skipped_share", "outlier")
    rows = steps.drop(dropped).rows()
    assert steps["between_host_ns"].to_list() == [None, 40]
    assert rows == [
        (0, 0, 300, None, 350, 1, 300, 0, 0, 250, 300, 0),
        (0, 1, 200, 50, 260, 1, 200, 0, 0, 160, 200, 0),
    ]
    assert (steps["start_ns"] - EPOCH).to_list() == [210, 560]


def test_between_the_calls_of_a_step_the_host_works_or_nothing_happens():
    """Of 20 ns between two calls of a step 12 are the host's."""
    calls = [
        make_call(0, "t", 0, 40, step=0, branch="cond"),
        make_call(1, "t", 60, 90, step=0, branch="uncond"),
    ]
    host = Command(-1, "cpu:0", "Host", "host", "guidance", 45, 12, "", "denoise", 0)
    spans = [make_span("pipeline", "P", 0, 100), make_span("stage", "denoise", 0, 100)]
    row = asked(make_run(calls, [host], spans)).steps.row(0, named=True)
    columns = ("elapsed_ns", "calls_ns", "host_ns", "idle_ns")
    assert [row[name] for name in columns] == [90, 70, 12, 8]


def test_summary_of_steps():
    """Two steps of 300 and 200 ns; the first holds a first call, but one step alone has no median:
    it is that of both."""
    summary = asked(tiny_run()).step_summary
    assert (summary.count, summary.min_ns, summary.max_ns) == (2, 200, 300)
    assert (summary.median_ns, summary.mean_ns) == (250, 250)
    assert (summary.outliers, summary.measured_by) == ((), "step_spans")


def test_slow_step_stands_out():
    """Nine steps around 100 ns and one of 150."""
    analysis = asked(_timed([100, 101, 99, 100, 150, 100, 101, 99, 100, 100]))
    assert analysis.step_summary.outliers == ("4",)
    assert analysis.steps["outlier"].to_list().index(True) == 4


def test_rule_for_outliers():
    """Three scaled MADs are not enough: it takes 5 % as well, and five steps."""
    even = [1000, 1000, 1001, 1000, 1040]
    assert not outliers(np.array(even)).any()
    assert outliers(np.array([*even[:4], 1060])).tolist() == [False] * 4 + [True]
    assert not outliers(np.array([100, 100, 100, 900])).any()


def test_spread_hides_what_is_within_it():
    """110 is no outlier among steps that vary by 10 %."""
    assert not outliers(np.array([90, 95, 100, 105, 110])).any()


def test_fast_step_is_no_outlier():
    """Only what takes longer needs a look."""
    assert not outliers(np.array([100, 100, 100, 100, 100, 10])).any()


def test_steps_of_several_pipeline_calls_stay_apart():
    """Step 0 of the second pipeline call is another row, named by its pipeline call."""
    runs = [(0, 100), (200, 300)]
    spans, calls = [], []
    for start, end in runs:
        spans += [make_span("pipeline", "P", start, end), make_span("stage", "denoise", start, end)]
        for step in range(4):
            begin = start + 20 * step
            length = 40 if (start, step) == (200, 3) else 18
            spans.append(make_span("step", f"step {step}", begin, begin + length, step))
            back = begin + length - 3
            calls.append(make_call(len(calls), "t", begin, back, step=step))
    analysis = asked(make_run(calls, (), spans))
    assert analysis.steps.select("pipeline", "step").rows() == [
        (p, s) for p in (0, 1) for s in range(4)
    ]
    assert analysis.steps["calls"].to_list() == [1] * 8
    assert analysis.step_summary.outliers == ("1:3",)


def test_run_without_step_spans_measures_by_calls():
    """Step 0 of conditional and unconditional calls lasts from the first to the last."""
    calls = [
        make_call(0, "t", 0, 40, step=0, branch="cond"),
        make_call(1, "t", 50, 90, step=0, branch="uncond"),
        make_call(2, "t", 100, 140, step=1, branch="cond"),
    ]
    commands = [Command(1, "rbln:0", "C", "compute", "mlp", 55, 30)]
    analysis = asked(make_run(calls, commands))
    assert analysis.steps["elapsed_ns"].to_list() == [90, 40]
    assert analysis.steps["duration_ns"].to_list() == [None, None]
    assert analysis.steps["idle_ns"].to_list() == [10, 0]
    assert analysis.steps["busy_ns"].to_list() == [30, 0]
    assert analysis.step_summary.measured_by == "calls"


def test_device_work_of_no_call_counts_for_its_step():
    """What the host starts on a device between calls keeps the device busy."""
    run = tiny_run(
        commands=[Command(-1, "rbln:0", "C", "compute", "add", 515, 20, "", "denoise", 0)]
    )
    assert asked(run).steps["busy_ns"].to_list() == [20, 0]


def test_run_without_steps():
    """Encoders only: no step, and a summary of nothing."""
    analysis = asked(make_run(TINY_CALLS[:1]))
    assert analysis.steps.is_empty()
    assert (analysis.step_summary.count, analysis.step_summary.max_ns) == (0, 0)

"""What an importer keeps of the host for the longest gaps of devices."""

from profiler.analysis.analyze import analyze
from profiler.trace.manifest_fields import ActivityKind, HostActivity
from tests.importers.kineto.traces import BASE_NS, Trace


def _trace():
    """Two kernels of one call with a gap from 50 to 450 µs, which thread 1 launched behind; what
    thread 1 did from 60 to 400, in `check`, it called twelve times within; thread 2 slept."""
    trace = Trace(with_stack=1)
    trace.thread("main", 1)
    trace.thread("worker", 2)
    trace.module("Model_0", 0, 600)
    trace.frame("model.py(10): forward", 5, 590)
    trace.kernel("first", 20, 30, launched=10)
    trace.frame("model.py(20): check", 60, 340)
    for number in range(12):
        trace.frame("<built-in function assert_size_stride>", 70 + 20 * number, 5)
    trace.frame("time.py(1): sleep", 40, 420, tid=2)
    trace.kernel("second", 450, 100, launched=440)
    return trace


def test_the_innermost_function_that_covers_half_of_a_gap_is_kept(tmp_path):
    """`check` covers 340 of 400 µs, `forward` all; the sleep is of a thread that launched
    nothing."""
    run = _trace().imported(tmp_path)
    assert run.info.host_activities == (
        HostActivity(
            name="model.py: check",
            kind=ActivityKind.FUNCTION,
            thread="main",
            start_ns=BASE_NS + 60_000,
            duration_ns=340_000,
            repeated="assert_size_stride",
            times=12,
        ),
    )


def test_the_table_of_gaps_says_it(tmp_path):
    """The longest gap of the device, in its call, launched too late."""
    row = analyze(_trace().imported(tmp_path)).gaps.row(0, named=True)
    assert (row["begin_ns"], row["length_ns"]) == (BASE_NS + 50_000, 400_000)
    assert (row["cause"], row["position"], row["submodule"]) == ("launch", "inside", "Model")
    assert (row["host_doing"], row["host_doing_share"]) == ("model.py: check", 0.85)
    assert (row["repeated"], row["repeated_times"]) == ("assert_size_stride", 12)


def test_short_gaps_have_none(tmp_path):
    """Of a gap of 40 µs nothing is kept: the least is 100 µs."""
    trace = Trace(with_stack=1)
    trace.module("Model_0", 0, 1000)
    trace.kernel("first", 20, 30, launched=10)
    trace.kernel("second", 90, 30, launched=85)
    assert trace.imported(tmp_path).info.host_activities == ()

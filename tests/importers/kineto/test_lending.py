"""Work that a thread without calls launched: that of the one call open at that time."""

from __future__ import annotations

import pytest

from profiler.importers.kineto.calls import find_calls
from profiler.importers.kineto.launches import find_launches
from profiler.importers.kineto.modules import Frames
from profiler.kineto.events import Ranges
from profiler.kineto.trace_file import read_kineto

from .traces import Trace


def launched_calls(folder, trace):
    """The call of each kernel of a trace, -1 for none."""
    read = read_kineto(trace.write(folder))
    frames = Frames.of(read)
    return find_launches(read, frames, find_calls(frames)).call.tolist()


def test_the_one_open_call_may_have_begun_before_others_that_ended(tmp_path):
    """Of two calls on threads of their own one has ended, then none is left; while both are open
    nobody says whose the work is."""
    trace = Trace()
    trace.module("First_0", 0, 100, tid=10)
    trace.module("Second_0", 10, 20, tid=11)
    for launched in (5, 15, 50, 110):
        trace.kernel("gemm", 200 + launched, 5, launched=launched)
    assert launched_calls(tmp_path, trace) == [0, -1, 0, -1]


@pytest.mark.parametrize("threads", [2, 200])
def test_times_are_looked_up_as_often_for_many_threads_with_calls(tmp_path, monkeypatch, threads):
    """Each look-up goes over all work that is lent: one for each thread would be quadratic."""
    trace = Trace()
    for number in range(threads):
        trace.module("Net_0", 100 * number, 50, tid=10 + number)
        trace.kernel("gemm", 100 * number + 20, 5, launched=100 * number + 10)
    asked = []
    innermost = Ranges.innermost

    def counted(ranges, *about):
        asked.append(len(ranges))
        return innermost(ranges, *about)

    monkeypatch.setattr(Ranges, "innermost", counted)
    assert launched_calls(tmp_path, trace) == list(range(threads))
    assert len(asked) < 20

"""In which pass of a loop that is not denoising each call is: a token, a training step.

Where the trace has two or more `ProfilerStep#n`, a call in one of them is in iteration n. Else, in
a section that is no diffusion, the module that is called most often is the loop's, if that is
three times or more: its k-th call begins iteration k, and what follows it belongs to it, until it
is called again. A module that holds more time wins among those called equally often.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from profiler.events import NO_ITERATION
from profiler.importers.kineto.calls import STEP_MARK, CallRange
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["LEAST_PASSES", "iterations_by_module", "iterations_by_step"]

LEAST_PASSES = 3
"""Calls of one module from which on they are passes of a loop."""


def iterations_by_step(trace: KinetoTrace, calls: Sequence[CallRange]) -> list[int] | None:
    """Of each call the number of the profiler step in which it begins, `NO_ITERATION` outside.

    None for a trace with fewer than two profiler steps: one is no loop.
    """
    steps = sorted(
        (int(trace.start_ns[row]), int(trace.end_ns[row]), int(match[1]))
        for row in trace.rows_of("user_annotation").tolist()
        if (match := STEP_MARK.fullmatch(trace.events.name_of(row)))
    )
    if len(steps) < 2:
        return None
    begins = [begin for begin, _, _ in steps]
    found = []
    for call in calls:
        place = bisect_right(begins, call.start_ns) - 1
        inside = place >= 0 and call.start_ns < steps[place][1]
        found.append(steps[place][2] if inside else NO_ITERATION)
    return found


def iterations_by_module(calls: Sequence[CallRange]) -> list[int]:
    """Of each call the pass of the module that is called most often, `NO_ITERATION` before its
    first one, and of all calls where none is called `LEAST_PASSES` times."""
    loop = _most_called(calls)
    found, passes = [], NO_ITERATION
    for call in calls:
        passes += call.instance == loop
        found.append(passes)
    return found


def _most_called(calls: Sequence[CallRange]) -> str | None:
    """The instance that makes the loop; None without one."""
    weight: dict[str, tuple[int, int]] = {}
    for call in calls:
        times, length = weight.get(call.instance, (0, 0))
        weight[call.instance] = (times + 1, length + call.end_ns - call.start_ns)
    loop = max(weight, key=lambda instance: weight[instance], default=None)
    return loop if loop is not None and weight[loop][0] >= LEAST_PASSES else None

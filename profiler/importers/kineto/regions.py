"""The calls of a trace, by the best that it tells: modules, else ranges that its script named, else
what its operators show, else that its kernels repeat themselves; else all of it is one.

What a script named comes after a guess only where that finds a whole diffusion pipeline: scripts
name the run, and rarely what is in it.
"""

from __future__ import annotations

import numpy as np

from profiler.importers.kineto.anchors import anchored_calls
from profiler.importers.kineto.annotations import annotated_calls, stepped_calls
from profiler.importers.kineto.calls import CallRange, Ran, call_ranges, find_calls, guessed_call
from profiler.importers.kineto.frames import PYTHON, Frames
from profiler.importers.kineto.graphs import Replays
from profiler.importers.kineto.guidance import paired
from profiler.importers.kineto.launch import OPERATORS, launched_work
from profiler.importers.kineto.periods import periodic_calls
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import CallsFrom

__all__ = ["GRAPH", "WHOLE", "calls_of"]

GRAPH = "graph"
"""What the call of a graph of which no capture tells is called, with a number where there are
several graphs."""

WHOLE = "trace"
"""What the one call is called where nothing tells calls apart."""

_HOST = (OPERATORS, PYTHON)


def calls_of(
    trace: KinetoTrace, frames: Frames, replays: Replays
) -> tuple[list[CallRange], CallsFrom | None]:
    """The calls in order of their start, and what tells them; None where modules do. A graph that
    was launched in none of them is a call as well."""
    calls, source = _told(trace, frames)
    if source in (CallsFrom.KERNEL_PERIOD, CallsFrom.NOTHING):
        graphs = _graphs(trace, [], replays)
        if not graphs:
            return calls, source
        guessed = any(call.guessed for call in graphs)
        source = CallsFrom.CAPTURED_OPERATORS if guessed else CallsFrom.GRAPH_LAUNCHES
        return paired(trace, graphs), source
    calls = calls + _graphs(trace, calls, replays)
    return paired(trace, sorted(calls, key=lambda call: (call.start_ns, call.end_ns))), source


def _graphs(trace: KinetoTrace, calls: list[CallRange], replays: Replays) -> list[CallRange]:
    """The launches of graphs that lie in no call, as calls of what was captured."""
    rows = replays.launches
    if not len(rows):
        return []
    ran = np.isin(rows, launched_work(trace)[1])
    outside = call_ranges(calls).innermost(trace.thread[rows], trace.start_ns[rows]) < 0
    several = max(replays.alike.values(), default=1) > 1
    return [_replay(trace, row, replays, several) for row in rows[ran & outside].tolist()]


def _replay(trace: KinetoTrace, row: int, replays: Replays, several: bool) -> CallRange:
    """One launch of a graph: a call of the part that was guessed in its capture, else named by the
    captured module, else by its number among graphs of other kernels."""
    place = int(trace.thread[row]), int(trace.start_ns[row]), int(trace.end_ns[row])
    capture = replays.fitting.get(row)
    if capture is not None and capture.part is not None:
        part = capture.part
        return guessed_call(*place, part.instance, part.class_name, part.inputs)
    name = GRAPH
    if capture is not None and capture.root:
        name = f"{GRAPH} {capture.root}"
    elif several:
        name = f"{GRAPH} {replays.alike.get(row, 0)}"
    return CallRange(*place, name, name, False, (), told=False)


def _told(trace: KinetoTrace, frames: Frames) -> tuple[list[CallRange], CallsFrom | None]:
    modules = find_calls(frames)
    if modules:
        return modules, None
    for found, source in (
        (anchored_calls, CallsFrom.OPERATORS),
        (annotated_calls, CallsFrom.ANNOTATIONS),
        (stepped_calls, CallsFrom.PROFILER_STEPS),
    ):
        calls = [call for call in found(trace) if call.ran is not Ran.CAPTURED]
        if calls:
            return calls, source
    work, launch = launched_work(trace)
    calls = periodic_calls(trace, work, launch)
    if calls:
        return calls, CallsFrom.KERNEL_PERIOD
    return [_whole(trace, work, launch)], CallsFrom.NOTHING


def _whole(trace: KinetoTrace, work: Int64s, launch: Int64s) -> CallRange:
    """All that devices did, or, where none did anything, all that the host did, as one call."""
    launched = launch[launch >= 0]
    rows = np.concatenate((work, launched)) if len(work) else trace.rows_of(*_HOST)
    threads = np.bincount(trace.thread[launched if len(launched) else rows])
    start, end = int(trace.start_ns[rows].min()), int(trace.end_ns[rows].max())
    return CallRange(int(threads.argmax()), start, end, WHOLE, WHOLE, False, (), told=False)

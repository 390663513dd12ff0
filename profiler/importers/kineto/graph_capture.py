"""Graphs that a trace captures: their windows, the launches in them, and whether it replays any."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from profiler.importers.kineto.launch import RUNTIME
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = ["Window", "capture_windows", "only_captures_graphs"]

_BEGIN = re.compile(r"StreamBeginCapture")
_CAPTURED = "StreamEndCapture"  # of CUDA and HIP alike, behind `cuda`, `cu` or `hip`
_REPLAYED = "GraphLaunch"
_WORK = re.compile(r"Launch\w*Kernel|Memcpy\w*Async|Memset\w*Async")


class Window(Struct, frozen=True):
    """From begin to end of a capture on a thread; `launches` are the rows of what was captured."""

    thread: int
    start_ns: int
    end_ns: int
    launches: Int64s


def capture_windows(trace: KinetoTrace) -> list[Window]:
    """The captures of a trace that hold a launch, in order of their ends."""
    rows = trace.rows_of(*RUNTIME)
    if not trace.events.named(rows, lambda name: _CAPTURED in name).any():
        return []
    rows = rows[np.argsort(trace.start_ns[rows], kind="stable")]
    open_on: dict[int, tuple[int, list[int]]] = {}
    found: list[Window] = []
    for row in rows.tolist():
        name, thread = trace.events.name_of(row), int(trace.thread[row])
        if _BEGIN.search(name):
            open_on[thread] = (int(trace.start_ns[row]), [])
        elif _CAPTURED in name and thread in open_on:
            begin, launches = open_on.pop(thread)
            captured = np.array(launches, dtype=np.int64)
            found.append(Window(thread, begin, int(trace.end_ns[row]), captured))
        elif thread in open_on and _WORK.search(name):
            open_on[thread][1].append(row)
    return [window for window in found if len(window.launches)]


def only_captures_graphs(trace: KinetoTrace) -> bool:
    """Whether a graph was captured and none was launched: between begin and end of a capture,
    launches become nodes of the graph, and nothing runs."""
    rows = trace.rows_of(*RUNTIME)
    captured = bool(trace.events.named(rows, lambda name: _CAPTURED in name).any())
    return captured and not trace.events.named(rows, lambda name: _REPLAYED in name).any()

"""Traces that engines record while they build a graph, and replay none."""

from __future__ import annotations

from profiler.importers.kineto.launch import RUNTIME
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["only_captures_graphs"]

_CAPTURED = "StreamEndCapture"  # of CUDA and HIP alike, behind `cuda`, `cu` or `hip`
_REPLAYED = "GraphLaunch"


def only_captures_graphs(trace: KinetoTrace) -> bool:
    """Whether a graph was captured and none was launched: between begin and end of a capture,
    launches become nodes of the graph, and nothing runs."""
    rows = trace.rows_of(*RUNTIME)
    captured = bool(trace.events.named(rows, lambda name: _CAPTURED in name).any())
    return captured and not trace.events.named(rows, lambda name: _REPLAYED in name).any()

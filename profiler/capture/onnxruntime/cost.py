"""What recording one node of ONNX Runtime costs: measured on a chain of elementwise nodes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from profiler.capture.event_cost import EventCost
from profiler.capture.onnxruntime.small_models import chain, small_model

__all__ = ["onnx_event_cost"]

_NODES, _PAIRS, _RUNS = 200, 9, 3  # of each few runs the fastest counts
_SHAPE = [256, 256]  # large enough that ONNX Runtime spreads a node over its threads


def onnx_event_cost() -> EventCost | None:
    """The cost of one recorded node; None where noise exceeds it.

    Nodes run on all cores, as those of models do: recording them tells how their threads were
    used. Processor time would count threads that wait for work, so wall time it is.
    """
    import onnxruntime

    model = small_model(chain(_NODES), _SHAPE, np.ones(_SHAPE, np.float32))
    feeds = {"x": np.zeros(_SHAPE, dtype=np.float32)}
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        sessions = []
        for profiled in (False, True):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            if profiled:
                options.enable_profiling = True
                options.profile_file_prefix = str(Path(folder) / "overhead")
            sessions.append(
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            )
        plain, traced = sessions
        _fastest(plain, feeds), _fastest(traced, feeds)  # the first runs allocate
        pairs = [_fastest(traced, feeds) - _fastest(plain, feeds) for _ in range(_PAIRS)]
        traced.end_profiling()
    return EventCost.of_pairs(pairs, _NODES)


def _fastest(session: Any, feeds: dict[str, Any]) -> float:
    """Wall time of the fastest of a few runs, in s."""
    found = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        session.run(None, feeds)
        found.append(time.perf_counter() - begin)
    return min(found)

"""What tracing operators costs on this machine, measured when a run ends.

ONNX Runtime builds a record of shapes, sizes and memory for each executed node. The cost is
measured on a chain of small nodes, run with and without profiling in turn; the median difference
per node times the events of a run estimates what tracing added to it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["OPERATOR_METHOD", "operator_event_ns"]

OPERATOR_METHOD = (
    "ONNX Runtime's cost per recorded node, measured on this machine on a chain of 200 "
    "elementwise nodes on all cores, with and without profiling in turn (median of pairs), times "
    "the operator events of the run; hooks: time in the profiler's own code inside the run"
)
_NODES, _PAIRS = 200, 11
_SHAPE = [256, 256]  # large enough that ONNX Runtime spreads a node over its threads


def operator_event_ns() -> float:
    """Median cost of one recorded node in ns, never below 0."""
    import onnxruntime

    model = _chain()
    feeds = {"x": np.zeros(_SHAPE, dtype=np.float32)}
    with tempfile.TemporaryDirectory() as folder:
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
        _seconds(plain, feeds), _seconds(traced, feeds)  # the first runs allocate
        pairs = [_seconds(traced, feeds) - _seconds(plain, feeds) for _ in range(_PAIRS)]
        traced.end_profiling()
    return max(statistics.median(pairs) * 1e9 / _NODES, 0.0)


def _seconds(session: Any, feeds: dict[str, Any]) -> float:
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin


def _chain() -> bytes:
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Add", [f"y{i}" if i else "x", "c"], [f"y{i + 1}"], name=f"add_{i}")
        for i in range(_NODES)
    ]
    constant = helper.make_tensor(
        "c", TensorProto.FLOAT, _SHAPE, np.ones(_SHAPE, np.float32).ravel()
    )
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE)],
        [helper.make_tensor_value_info(f"y{_NODES}", TensorProto.FLOAT, _SHAPE)],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 8
    return bytes(model.SerializeToString())

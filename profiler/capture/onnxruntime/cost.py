"""What recording a node of ONNX Runtime costs: measured on chains of nodes of several sizes.

Recording costs a node the more, the more memory the node itself went through: what recording needs
(code, arguments of events, the allocator's lists) has then left the processor's caches. It is 5 to
8 µs for a node that stays within them and 10 to 19 µs for one that goes through 3 MiB, on one
thread as on several.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiler.capture.event_cost import EventCost
from profiler.capture.onnxruntime.small_models import chain, small_model

__all__ = ["onnx_event_cost"]

_SIDES = (16, 256, 362, 512)  # of square tensors of float32
_TENSORS, _ITEM = 3, 4  # a node reads one tensor and the constant, and writes one
_NODES, _PAIRS, _RUNS = 20, 9, 5  # short runs: some of them find the cores of a busy machine free
_LONGEST_S = 0.4  # of one chain, after which no further pair is begun


def onnx_event_cost(touched: Mapping[int, int]) -> EventCost | None:
    """What recording a node costs on average, where `touched` says by n how many nodes went through
    less than 2**n bytes, at least half of that; None where noise exceeds it.

    Between the sizes that were measured it is interpolated, beyond them it is as at the nearest.
    """
    sizes = np.log2([_TENSORS * _ITEM * side**2 for side in _SIDES])
    powers = np.array(list(touched) or [0])
    places = np.clip(powers - 0.5, sizes[0], sizes[-1])
    weights = np.array(list(touched.values()) or [1])
    needed = int(np.searchsorted(sizes, places.max())) + 1
    curves = [list(_pairs(side)) for side in _SIDES[:needed]]
    pairs = [
        float(np.average(np.interp(places, sizes[:needed], curve), weights=weights))
        for curve in zip(*curves, strict=False)  # a busy machine left time for fewer of some
    ]
    if len(pairs) > 1:
        return EventCost.of_pairs(pairs, _NODES)
    return EventCost(pairs[0] * 1e9 / _NODES) if pairs[0] > 0 else None


def _pairs(side: int) -> Iterator[float]:
    """Differences in s of runs with and without profiling of a chain of square tensors, at least
    one.

    Processor time would count threads that wait for work, so wall time it is: of a few runs of
    either kind, in turn, the fastest.
    """
    import onnxruntime

    shape = [side, side]
    model = small_model(chain(_NODES), shape, np.ones(shape, np.float32))
    feeds = {"x": np.zeros(shape, dtype=np.float32)}
    with tempfile.TemporaryDirectory(prefix="profile-sd3-") as folder:
        sessions = []
        for profiled in (False, True):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            if profiled:
                options.enable_profiling = True
                options.profile_file_prefix = str(Path(folder) / "overhead")
            sessions.append(
                onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            )
        plain, traced = sessions
        _seconds(plain, feeds), _seconds(traced, feeds)  # the first runs allocate
        begin = time.perf_counter()
        for _ in range(_PAIRS):
            runs = [(_seconds(plain, feeds), _seconds(traced, feeds)) for _ in range(_RUNS)]
            without, with_ = map(min, zip(*runs, strict=True))
            yield with_ - without
            if time.perf_counter() > begin + _LONGEST_S:
                break
        traced.end_profiling()


def _seconds(session: Any, feeds: dict[str, Any]) -> float:
    """Wall time of one run."""
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin

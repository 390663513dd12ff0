"""What recording a node of ONNX Runtime costs, by the gaps between a run's own nodes.

How much it is depends on what else runs: 5 to 8 µs in a session of small nodes on an idle machine,
twice as much where nodes push what recording needs out of the processor's caches, and more where
cores are shared. About a third of it lies between the nodes, in the profile itself (the rest
lies within them: sizes and shapes are noted before an event ends). That share is a property of ONNX
Runtime's code: it is measured on a chain of nodes, and the gaps of the run tell the rest.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler.capture.event_cost import EventCost
from profiler.capture.onnxruntime.node_gaps import gaps_between
from profiler.capture.onnxruntime.small_models import chain, small_model
from profiler.capture.operator_source import Gaps
from profiler.ort_profiles.profile import read_profile

__all__ = ["onnx_event_cost"]

_SIDE = 16  # of square tensors of float32
_NODES, _PAIRS, _RUNS = 20, 25, 5  # short runs: some of them find the cores of a busy machine free
_LONGEST_S = 0.8  # after which no further pair is begun


class _Pair(NamedTuple):
    """A run with profiling and one without: by how many s the former took longer, and the ns from
    one of its nodes to the next."""

    longer_s: float
    gap_ns: float


def onnx_event_cost(gaps: Gaps) -> EventCost | None:
    """What recording a node costs on average in a run whose nodes lie so far apart; as on the chain
    where that is not known. None where noise exceeds it."""
    own = gaps.mean_ns
    pairs = [
        pair.longer_s if own is None else pair.longer_s * own / pair.gap_ns
        for pair in _pairs()
        if pair.gap_ns > 0
    ]
    if len(pairs) > 1:
        return EventCost.of_pairs(pairs, _NODES)
    return EventCost(pairs[0] * 1e9 / _NODES) if pairs and pairs[0] > 0 else None


def _pairs() -> list[_Pair]:
    """At least one, of a chain of small nodes.

    Processor time would count threads that wait for work, so wall time it is: of a few runs of
    either kind, in turn, the fastest.
    """
    import onnxruntime

    shape = [_SIDE, _SIDE]
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
        timed = list(_timed(plain, traced, feeds))
        runs = [gaps_between(run.nodes) for run in read_profile(Path(traced.end_profiling()))]
    return [_Pair(longer_s, runs[1 + run].mean_ns or 0.0) for longer_s, run in timed]


def _timed(plain: Any, traced: Any, feeds: dict[str, Any]) -> Iterator[tuple[float, int]]:
    """By how many s the fastest of a few traced runs took longer than the fastest of as many plain
    ones, and which traced run that was, from 0."""
    begin = time.perf_counter()
    for pair in range(_PAIRS):
        runs = [(_seconds(plain, feeds), _seconds(traced, feeds)) for _ in range(_RUNS)]
        without, with_ = zip(*runs, strict=True)
        yield min(with_) - min(without), pair * _RUNS + with_.index(min(with_))
        if time.perf_counter() > begin + _LONGEST_S:
            break


def _seconds(session: Any, feeds: dict[str, Any]) -> float:
    """Wall time of one run."""
    begin = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - begin

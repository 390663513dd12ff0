"""Calls of a trace without modules: the ranges that its script named (`record_function`, NVTX).

A call is an outermost such range of a thread. A range around all others tells nothing apart: it is
left for those in it. Ranges that torch itself opens (`Optimizer.step#SGD.step`, those of
collectives and of compiled graphs) are none; where nothing else is named, profiler steps are calls.
"""

from __future__ import annotations

import re

import numpy as np

from profiler.importers.kineto.calls import STEP_MARK, CallRange
from profiler.kineto.ranges import Ranges
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["annotated_calls", "stepped_calls"]

_OWN = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(|(?:nccl|gloo|mpi|ucc|c10d):"
    r"|## Call CompiledFxGraph|CompiledF|DistributedDataParallel\.|FullyShardedDataParallel\."
    r"|FSDP::|record_param_comms|\[pl\]|Torch-Compiled"
)
_WRAPPERS = 8  # ranges around all others, at most


def annotated_calls(trace: KinetoTrace) -> list[CallRange]:
    """The ranges that the script named, in order of time; none where one holds all it named."""
    rows = trace.rows_of("user_annotation")
    named = [row for row in rows.tolist() if not _OWN.match(trace.events.name_of(row))]
    ranges = trace.ranges(np.array(named, dtype=np.int64))
    for _ in range(_WRAPPERS):
        outer = np.flatnonzero(ranges.parent < 0)
        if len(outer) != 1:
            break
        ranges = ranges.select(np.arange(len(ranges)) != outer[0])
    return _calls(trace, ranges.outermost()) if len(ranges) else []


def stepped_calls(trace: KinetoTrace) -> list[CallRange]:
    """The steps of torch.profiler's schedule as calls of one submodule."""
    rows = trace.rows_of("user_annotation")
    steps = [row for row in rows.tolist() if STEP_MARK.fullmatch(trace.events.name_of(row))]
    return _calls(trace, trace.ranges(np.array(steps, dtype=np.int64)).outermost())


def _calls(trace: KinetoTrace, ranges: Ranges) -> list[CallRange]:
    calls = [
        _call(trace.events.name_of(row), int(thread), int(start), int(end))
        for row, thread, start, end in zip(
            ranges.row.tolist(), ranges.thread, ranges.start_ns, ranges.end_ns, strict=True
        )
    ]
    return sorted(calls, key=lambda call: (call.start_ns, call.end_ns))


def _call(name: str, thread: int, start_ns: int, end_ns: int) -> CallRange:
    plain = name.partition("#")[0] if STEP_MARK.fullmatch(name) else name.strip("# ") or name
    return CallRange(
        thread=thread,
        start_ns=start_ns,
        end_ns=end_ns,
        instance=plain,
        class_name=plain,
        is_autoencoder=False,
        modules=(),
        told=False,
    )

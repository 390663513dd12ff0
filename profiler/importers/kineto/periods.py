"""Passes of a loop that only its kernels tell: the same names in the same order, again and again.

Kernels are taken in the order of their launches. The period is the distance at which a kernel
comes back that ran three times or more; it holds where nine of ten kernels are the same one period
later. A pass lasts on its host from its first launch to the next pass's.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.iterations import LEAST_PASSES
from profiler.kineto.trace_file import KinetoTrace
from profiler.trace.columns import Int64s

__all__ = ["period_of", "periodic_calls"]

_REPEATED = "repeated kernels"
_ALIKE = 0.9  # of the kernels, one period later
_LEAST = 4  # kernels of a period: fewer are a loop within an operation
_TRIED = 8  # distances, the most frequent first


def periodic_calls(trace: KinetoTrace, work: Int64s, launch: Int64s) -> list[CallRange]:
    """A call for each period of the kernels in `work`, whose launches `launch` has; none without
    a period, or where launches are not known."""
    known = trace.events.of_category(work, "kernel")
    known &= launch >= 0
    order = np.argsort(trace.start_ns[launch[known]], kind="stable")
    rows, launches = work[known][order], launch[known][order]
    found = period_of(trace.events.name[rows].astype(np.int64))
    if found is None:
        return []
    begins = [*range(found[0], len(rows), found[1])]
    times = trace.start_ns[launches]
    ends = [*times[begins[1:]].tolist(), int(trace.end_ns[launches[begins[-1] :]].max())]
    thread = int(np.bincount(trace.thread[launches]).argmax())
    return [
        CallRange(thread, begin, end, _REPEATED, _REPEATED, False, (), told=False)
        for begin, end in zip(times[begins].tolist(), ends, strict=True)
        if end > begin
    ]


def period_of(names: Int64s) -> tuple[int, int] | None:
    """Where the first pass begins and how many long a pass is; None without a loop."""
    distances: Counter[int] = Counter()
    for code, count in enumerate(np.bincount(names).tolist() if len(names) else []):
        if count >= LEAST_PASSES:
            apart = np.diff(np.flatnonzero(names == code))
            most = int(np.bincount(apart).argmax())
            if most >= _LEAST:
                distances[most] += 1
    for period, _ in distances.most_common(_TRIED):
        same = names[:-period] == names[period:]
        passes = 1 + int(same.sum()) // period
        if passes >= LEAST_PASSES and float(same[same.argmax() :].mean()) >= _ALIKE:
            return int(same.argmax()), period
    return None

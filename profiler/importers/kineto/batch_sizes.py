"""How many inputs the calls of a trace had at once, from the shapes of their operators."""

from __future__ import annotations

import numpy as np

from profiler.importers.kineto.calls import CallRange
from profiler.importers.kineto.launch import OPERATORS
from profiler.importers.kineto.layers import input_dims
from profiler.kineto.trace_file import KinetoTrace

__all__ = ["BatchSizes"]


class BatchSizes:
    """The batch sizes of a trace's calls; its operators are sorted once."""

    def __init__(self, trace: KinetoTrace) -> None:
        rows = trace.rows_of(OPERATORS)
        self._trace = trace
        self._rows = rows[np.lexsort((trace.start_ns[rows], trace.thread[rows]))]
        self._thread = trace.thread[self._rows]
        self._start_ns = trace.start_ns[self._rows]

    def of(self, call: CallRange) -> int:
        """How many inputs a call had at once, 0 where shapes were not recorded.

        The most frequent leading dimension of the 4-dimensional inputs of attention, else of
        convolutions, else of all operators' inputs with three dimensions or more.
        """
        first, last = np.searchsorted(self._thread, (call.thread, call.thread + 1))
        times = (call.start_ns, call.end_ns)
        begin, end = first + np.searchsorted(self._start_ns[first:last], times)
        events = [self._trace.events[row] for row in np.sort(self._rows[begin:end]).tolist()]
        for word, ranks in (("attention", (4,)), ("conv", (4, 5)), ("", (3, 4, 5))):
            counts: dict[int, int] = {}
            for event in events:
                if word in event.name:
                    for dims in input_dims(event.args)[:1]:
                        if len(dims) in ranks:
                            counts[dims[0]] = counts.get(dims[0], 0) + 1
            if counts:
                return max(counts, key=lambda size: counts[size])
        return 0

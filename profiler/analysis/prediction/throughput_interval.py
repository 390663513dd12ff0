"""How far the throughput of a simulation may be off because so little was measured.

A seeded bootstrap of the mean times, over pipeline calls where there are two or more, else over
steps, which know nothing of how pipeline calls differ: each draw gives the least time for a request
(the busiest resource's, or the critical path by the concurrency), and the throughput goes with it.
Deviations are widened as those of means of few values are, by sqrt(n / (n - 1)) t(n - 1) / z
(Hesterberg 2015, Am. Stat. 69(4), 371-386). It says nothing about what the model leaves out, nor
about bounds of what was estimated.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from profiler.analysis.prediction.request_graph import RequestGraph
from profiler.analysis.prediction.tasks import Task
from profiler.analysis.prediction.workload import Workload
from profiler.bootstrap import PREDICTED_CONFIDENCE, draws, ends, mean_widening

__all__ = ["relative_interval", "shortest_periods"]

_DRAWS = 200
_Reals = npt.NDArray[np.float64]


def relative_interval(
    workload: Workload, graph: RequestGraph, concurrency: int, seed: int
) -> tuple[float, float] | None:
    """Bounds of the true throughput / the simulated one with 90 % confidence, None where nothing
    was measured more than once."""
    calls = len(workload.measured_ns)
    steps = max((task.steady_ns.shape[1] for task in workload.step), default=0)
    over_calls = calls > 1
    units = calls if over_calls else steps
    if units < 2:
        return None
    picked = draws(units, _DRAWS, np.random.default_rng(seed))

    def mean(task: Task, step: int) -> _Reals:
        """The mean time in each draw, the measured one as the last of all [draws + 1]."""
        values = task.first_ns if step == 0 and task.first_ns.size else task.steady_ns
        by_call = values.reshape(len(values), -1)
        if not by_call.size:
            return np.zeros(_DRAWS + 1)
        flat = by_call.mean(axis=1) if over_calls else by_call.ravel().astype(np.float64)
        drawn = flat[picked].mean(axis=1) if len(flat) == units else np.full(_DRAWS, flat.mean())
        return np.append(drawn, flat.mean())

    means: dict[tuple[int, bool], _Reals] = {}
    durations = np.zeros((len(graph.work), _DRAWS + 1))
    for node, work in enumerate(graph.work):
        for task, step in work:
            key = (id(task), step == 0)
            if key not in means:
                means[key] = mean(task, step)
            durations[node] += means[key]
    *drawn, measured = shortest_periods(graph, durations, concurrency)
    if measured <= 0:
        return None
    off = np.log(np.maximum(np.array(drawn), 1.0) / measured)
    low, high = ends(off * mean_widening(units, PREDICTED_CONFIDENCE), PREDICTED_CONFIDENCE)
    return min(math.exp(-high), 1.0), max(math.exp(-low), 1.0)


def shortest_periods(graph: RequestGraph, durations: _Reals, concurrency: int) -> list[float]:
    """The least time in ns between completions, for each column of `durations` [n, columns]."""
    busy = np.zeros((len(graph.resources), durations.shape[1]))
    np.add.at(busy, list(graph.resource), durations)
    begin = np.zeros_like(durations)
    longest = np.zeros(durations.shape[1])
    for node, following in enumerate(graph.after):
        done = begin[node] + durations[node]
        longest = np.maximum(longest, done)
        for other in following:
            begin[other] = np.maximum(begin[other], done)
    periods: list[float] = np.maximum(busy.max(axis=0), longest / concurrency).tolist()
    return periods

"""How long ONNX Runtime took from one node's end to the next one's begin: in a profiled session
most of that is recording, so that it tells what recording costs where it happens."""

from __future__ import annotations

import numpy as np

from profiler.capture.operator_source import Gaps
from profiler.ort_profiles.nodes import NodeColumns

__all__ = ["gaps_between"]

_CUT_NS = 500  # by which a gap looks longer on average: durations are cut to whole µs
_CAP = 8  # times the median: what is longer is another thread on this core


def gaps_between(nodes: NodeColumns) -> Gaps:
    """Of one run. Nodes that ran within others (`Loop`, `If`) or beside them have none; single
    long ones count as so many times the median."""
    order = np.argsort(nodes.start_ns, kind="stable")
    starts = nodes.start_ns[order]
    ends = np.maximum.accumulate(starts + nodes.duration_ns[order])
    found = starts[1:] - ends[:-1]
    found = found[found >= 0]
    if not len(found):
        return Gaps()
    capped = np.minimum(found, _CAP * max(float(np.median(found)), 1_000.0))
    return Gaps(len(found), max(float(capped.sum()) - _CUT_NS * len(found), 0.0))

"""How much memory executed nodes went through: recording a node costs the more, the more it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler.ort_profiles.nodes import NodeColumns, NodeKind
from profiler.trace.columns import Int64s

__all__ = ["TouchedBytes"]

_PER_NS = 50  # bytes that a core goes through at most: a Reshape of 1 MiB in 1 µs went through none


class TouchedBytes:
    """Counts nodes: `counts` has by n those that went through less than 2**n bytes, and at least
    half of that."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._kinds: Sequence[NodeKind] = ()
        self._sizes: Int64s = np.zeros(0, dtype=np.int64)

    def add(self, nodes: NodeColumns) -> None:
        """Those of one call. A node goes through what it reads and writes, but through no more than
        its time allows."""
        if self._kinds is not nodes.kinds or len(self._sizes) != len(nodes.kinds):
            told = [max(kind.bytes_read, 0) + max(kind.bytes_written, 0) for kind in nodes.kinds]
            self._kinds, self._sizes = nodes.kinds, np.array(told, dtype=np.int64)
        most = (nodes.duration_ns + 1000) * _PER_NS  # durations are cut to whole µs
        powers = np.frexp(np.minimum(self._sizes[nodes.kind], most))[1]
        for power, count in zip(*np.unique(powers, return_counts=True), strict=True):
            self.counts[int(power)] = self.counts.get(int(power), 0) + int(count)

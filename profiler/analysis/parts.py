"""Where the time of spans went: into calls, into work of no call, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from profiler.analysis.arrays import ends
from profiler.analysis.batches import Codes, Times
from profiler.analysis.intervals import union_by

__all__ = ["Grouped", "Parts", "parts_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Intervals `[start, end)` in ns, each in the group that `group` names; below 0: in none."""

    start: Times
    end: Times
    group: Codes

    @classmethod
    def of(cls, frame: pl.DataFrame, group: Codes) -> Grouped:
        """The intervals of a frame with `start_ns` and `duration_ns`."""
        return cls(frame["start_ns"].to_numpy(), ends(frame), group)

    def union(self, groups: int) -> Times:
        """The length of the union in each group, int64 [groups]."""
        return union_by(self.start, self.end, self.group, groups)

    def __add__(self, other: Grouped) -> Grouped:
        return Grouped(
            np.concatenate((self.start, other.start)),
            np.concatenate((self.end, other.end)),
            np.concatenate((self.group, other.group)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Where the time of each group of spans went, int64 [groups] each, in ns.

    `duration` is the union of the spans, `outside` what calls and host work add to it.
    """

    duration: Times
    calls: Times
    host: Times
    idle: Times
    outside: Times


def parts_of(spans: Grouped, calls: Grouped, host: Grouped, groups: int) -> Parts:
    """Split each group's time by the formulas of `accounting`."""
    recorded = calls + host
    duration = spans.union(groups)
    in_calls, in_recorded = calls.union(groups), recorded.union(groups)
    everything = (spans + recorded).union(groups)
    return Parts(
        duration=duration,
        calls=in_calls,
        host=in_recorded - in_calls,
        idle=everything - in_recorded,
        outside=everything - duration,
    )

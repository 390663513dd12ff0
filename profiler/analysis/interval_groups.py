"""Intervals in groups, and how long the union of each group is."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from profiler.run.intervals import Codes, Times, ends, union_by

__all__ = ["Grouped"]


class Grouped(Struct, frozen=True, eq=False):
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

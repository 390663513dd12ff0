"""Counters of memory in use, as a run has them: arenas of ONNX Runtime, allocators of torch
and CUDA."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.run.intervals import Times
from profiler.run.run import Run

__all__ = ["CHANGES", "MemoryCounter", "memory_counters", "summed"]

CHANGES = "since the pipeline began"
"""In the name of a counter that counts changes alone."""

_ARENA = " arena in use"
_ALLOCATED = r"^(torch|CUDA) allocated"


class MemoryCounter(Struct, frozen=True, eq=False):
    """What one counter held: `values[i]` bytes from `times[i]` on, `before` until then. `owner` is
    the submodule whose arena it is, None for an allocator."""

    name: str
    owner: str | None
    times: Times
    values: Times
    calls: Times

    @property
    def before(self) -> int:
        if CHANGES in self.name:
            return 0
        return int(self.values[0] if self.owner is None else self.values.min())

    def at(self, time: int) -> int:
        """Bytes held at a moment."""
        place = int(np.searchsorted(self.times, time, side="right"))
        return int(self.values[place - 1]) if place else self.before

    def added(self) -> dict[int, int]:
        """By call, the most that it held above what it held when the call's samples began."""
        rows = pl.DataFrame({"call": self.calls, "value": self.values})
        above = pl.col("value").max() - pl.col("value").first()
        found = rows.filter(pl.col("call") >= 0).group_by("call").agg(above)
        return dict(found.iter_rows())


def memory_counters(run: Run) -> dict[str, list[MemoryCounter]]:
    """The counters of memory in use, by device."""
    name = pl.col("name").cast(pl.String)
    known = name.str.ends_with(_ARENA) | name.str.contains(_ALLOCATED)
    rows = run.counters.filter(known, pl.col("unit").cast(pl.String) == "bytes")
    found: dict[str, list[MemoryCounter]] = {}
    texts = [pl.col("device").cast(pl.String), name]
    for (device, called), some in rows.drop_nulls("device").group_by(texts, maintain_order=True):
        samples = some.sort("time_ns", maintain_order=True).unique(
            "time_ns", keep="last", maintain_order=True
        )
        owner = str(called).removesuffix(_ARENA) if str(called).endswith(_ARENA) else None
        values = samples["value"].to_numpy().astype(np.int64)
        counter = MemoryCounter(
            str(called), owner, samples["time_ns"].to_numpy(), values, samples["call"].to_numpy()
        )
        found.setdefault(str(device), []).append(counter)
    return found


def summed(counters: list[MemoryCounter]) -> tuple[Times, Times]:
    """The sum of the counters after each of their samples: times and bytes."""
    if not counters:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    times = np.concatenate([counter.times for counter in counters])
    changes = [np.diff(counter.values, prepend=counter.before) for counter in counters]
    order = np.argsort(times, kind="stable")
    times, values = times[order], np.cumsum(np.concatenate(changes)[order])
    last = np.flatnonzero(np.append(np.diff(times), 1))
    return times[last], values[last] + sum(counter.before for counter in counters)

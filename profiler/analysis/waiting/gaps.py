"""The longest gaps of each device: when, in which call, what for, and what the host did in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.codes import WaitCause
from profiler.analysis.waiting.device_gaps import (
    OUTSIDE,
    PARTS,
    UNKNOWN_CAUSE,
    DeviceGaps,
)
from profiler.analysis.waiting.gap_columns import GAPS
from profiler.analysis.waiting.host_doing import Doing, HostDoings
from profiler.analysis.waiting.kernels_of_calls import KernelsOfCalls
from profiler.run.columns import schema
from profiler.run.intervals import Stretches, Times
from profiler.run.run import Run

__all__ = ["gap_table"]

_LONGEST = 20  # of a device
_PARTS = tuple(part for part in PARTS if part != OUTSIDE)
_CAUSES = tuple(WaitCause.UNRECORDED if part == UNKNOWN_CAUSE else part for part in _PARTS)


def gap_table(
    devices: Sequence[DeviceGaps],
    run: Run,
    commands: CommandArrays,
    kernels: Mapping[str, KernelsOfCalls],
) -> pl.DataFrame:
    """At most `_LONGEST` rows a device (`columns.GAPS`), longest first; gaps that lie outside of
    the end-to-end time are left out. `commands` and the `kernels` on each device are those of
    `run`, whose calls are sorted."""
    longest = [(gaps, *_longest(gaps)) for gaps in devices]
    times = Stretches.of_all(Stretches(*gaps.ranges(np.sort(rows))) for gaps, rows, _ in longest)
    doings = HostDoings.of(run, commands, times)
    rows = [
        row
        for gaps, places, parts in longest
        for row in _rows(gaps, places, parts, kernels[gaps.device], doings)
    ]
    return pl.DataFrame(rows, schema=schema(GAPS), orient="row")


def _longest(gaps: DeviceGaps) -> tuple[Times, Times]:
    """The longest gaps of a device, and what each is put down to (`_PARTS`), int64 [parts, k]."""
    rows = gaps.longest(_LONGEST)
    parts = gaps.parts(rows)
    return rows, parts[[PARTS.index(part) for part in _PARTS]]


def _rows(
    gaps: DeviceGaps,
    places: Times,
    parts: Times,
    calls: KernelsOfCalls,
    doings: HostDoings,
) -> Iterator[tuple[object, ...]]:
    names = doings.run.calls.select("call", pl.col("submodule").cast(pl.String), "step")
    ranges = zip(*(column.tolist() for column in gaps.ranges(places)), strict=True)
    for place, (start, end), found in zip(places.tolist(), ranges, parts.T, strict=True):
        position, call = calls.place(start, end)
        doing = doings.during(start, end, gaps.launched_by(place))
        yield (
            gaps.device,
            start,
            int(found.sum()),
            _CAUSES[int(found.argmax())],
            position,
            *((None, None, None) if call < 0 else names.row(call)),
            *((None,) * 5 if doing is None else _told(doing, end - start)),
        )


def _told(doing: Doing, length: int) -> tuple[object, ...]:
    return (doing.name, doing.kind, doing.covered_ns / length, doing.repeated, doing.times)

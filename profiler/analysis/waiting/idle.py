"""How idle each device was, and what for: the sums of its gaps, and how its transfers were hidden.

A device *computes* while a command of category compute or other runs on it, it *communicates*
while one of category collective does, and *transfers* while one of dma or copy does. With |A| the
length of the union of A, and C, K and T these commands,

    span = |C| + exposed + data + idle + unrecorded
    exposed = |C+K| - |C|          data = |C+K+T| - |C+K|

`waiting.device_gaps` says what the idle time is put down to; the parts add up to it to the
nanosecond, and it is the idle time of the table of devices. Of the end-to-end time,

    idle_share = (idle - outside + unused) / end to end

with what lies outside of it, and what of it lies outside of the device's own span. The span is
without the profiler's own work, for which the program waited. What transfers
took while the device computed or communicated is overlapped: |T| - data; so is |K| - exposed of
the collectives, whose time holds the wait for the last rank. Long gaps are those of which over
100 µs count as idle.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.waiting.columns import IDLE
from profiler.analysis.waiting.coverage import InOrder, covered_before
from profiler.analysis.waiting.device_gaps import OUTSIDE, UNKNOWN_CAUSE, DeviceGaps
from profiler.run.columns import schema
from profiler.trace.events import CATEGORIES

__all__ = ["idle_table"]

_COMPUTES = np.array([name in ("compute", "other") for name in CATEGORIES])
_MOVES = np.array([name in ("dma", "copy") for name in CATEGORIES])
_COMMUNICATES = np.array([name == "collective" for name in CATEGORIES])
_LONG_GAP_NS = 100_000
_IN_TILES = ("launch", UNKNOWN_CAUSE, "sync", "queue", "copy_wait", "other_device")


def idle_table(devices: Sequence[DeviceGaps], commands: CommandArrays) -> pl.DataFrame:
    """One row a device (`columns.IDLE`), by name, of the whole run, whose commands are
    `commands`."""
    transfers = np.flatnonzero((_MOVES | _COMMUNICATES)[commands.category])
    apart = {*np.flatnonzero(np.bincount(commands.device[transfers])).tolist()}
    rows = [_row(gaps, _unions(commands, gaps, apart)) for gaps in devices]
    return pl.DataFrame(rows, schema=schema(IDLE))


def _row(gaps: DeviceGaps, unions: tuple[int, int, int, int]) -> dict[str, object]:
    """The row of a device, whose unions are |C|, |C+K|, |K| and |T|."""
    sums, worked = gaps.totals(), gaps.busy.length
    computed, unmoved, communicated, moved = unions
    exposed, data = unmoved - computed, worked - unmoved
    first, last = gaps.span
    span = last - first - sums["profiler"]
    idle = span - worked - sums["unrecorded"]
    unused = gaps.counted.length - gaps.counted.clipped(first, last).length
    total = gaps.end_to_end_ns
    long = gaps.longer_than(_LONG_GAP_NS)
    return {
        "device": gaps.device,
        "span_ns": span,
        "computing_ns": computed,
        "waiting_ns": exposed + data + idle,
        "idle_ns": idle,
        **{f"{name}_ns": sums[name] for name in _IN_TILES},
        "host_ns": sums["host"],
        "host_work_ns": sums["host_work"],
        "outside_ns": sums[OUTSIDE],
        "data_ns": data,
        "collective_ns": communicated,
        "exposed_ns": exposed,
        "unrecorded_ns": sums["unrecorded"],
        "idle_inside_ns": sums["inside"],
        "unused_ns": unused,
        "idle_share": (idle - sums[OUTSIDE] + unused) / total if total else None,
        "transfer_ns": moved,
        "overlapped_ns": moved - data,
        "overlap_share": (moved - data) / moved if moved else None,
        "long_gaps": len(long),
        "long_gap_ns": int(long.sum()),
    }


def _unions(
    commands: CommandArrays, gaps: DeviceGaps, apart: Set[int]
) -> tuple[int, int, int, int]:
    """The lengths |C|, |C+K|, |K| and |T| on a device; `apart` are those of which C is not all."""
    worked, device = gaps.busy.length, commands.devices.index(gaps.device)
    if device not in apart:
        return worked, worked, 0, 0
    here = commands.device == device
    moves, communicates = here & _MOVES[commands.category], here & _COMMUNICATES[commands.category]
    moved, communicated = (_length(commands, which) for which in (moves, communicates))
    computes = here & _COMPUTES[commands.category]
    unmoved = _length(commands, computes | communicates) if moved else worked
    computed = _length(commands, computes) if communicated else unmoved
    return computed, unmoved, communicated, moved


def _length(commands: CommandArrays, which: npt.NDArray[np.bool_]) -> int:
    """Length of the union of some commands."""
    if not which.any():
        return 0
    work = InOrder.of(commands.start, commands.end, which)
    return int(covered_before(work, commands.end[which].max(keepdims=True))[0])

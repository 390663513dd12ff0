"""The tiles of a run's calls, what its devices did around them, and the run's end to end.

    run.tiles.calls["elapsed_ns"]

Everything is computed from what was recorded when it is first asked for; no file holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.table.columns import schema
from profiler.table.intervals import union_by
from profiler.table.tiles.axes import Axes
from profiler.table.tiles.calls import NO_LEAD, Ranges, Tiles, tiles_on
from profiler.table.tiles.columns import DEVICE_AXES, TILES
from profiler.table.tiles.device_axis import DeviceAxis
from profiler.table.tiles.launches import Flags, Times
from profiler.table.tiles.stretches import Stretches

__all__ = ["EndToEnd", "RunTiles", "tiles_of"]


class EndToEnd(Struct, frozen=True):
    """From `begin_ns` to `end_ns`, of which `unrecorded_ns` and `carried_over_ns` do not count."""

    begin_ns: int
    end_ns: int
    unrecorded_ns: int
    carried_over_ns: int

    @property
    def elapsed_ns(self) -> int:
        """What counts of it."""
        return self.end_ns - self.begin_ns - self.unrecorded_ns - self.carried_over_ns


class RunTiles(Struct, frozen=True, eq=False):
    """`calls` has one row a call of the run (`TILES`), in its order, `devices` one a device that
    worked (`DEVICE_AXES`), by name.

    `unrecorded` and `carried_over` are stretches that belong to no part of the run: nothing was
    recorded on any device though work waited, and nothing ran but what had been launched before
    the recording began. `waits` are when the host waited for a device, `unrecorded_on` is what of
    `unrecorded` each device had. `on_several` are the rows of calls that worked on several devices,
    and when the last of that work ended on any, int64 [k] each: a tile ends on its own device.
    `whole` lasts from the first tile or work of a device to the last; None where there are neither.
    """

    calls: pl.DataFrame
    devices: pl.DataFrame
    unrecorded: Stretches
    carried_over: Stretches
    waits: Stretches
    unrecorded_on: Mapping[str, Stretches]
    on_several: tuple[Times, Times]
    whole: EndToEnd | None

    def between(self, begin_ns: int, end_ns: int) -> EndToEnd:
        """The time from `begin_ns` to `end_ns`, with what does not count of it."""
        return _between(begin_ns, end_ns, self.unrecorded, self.carried_over)


def tiles_of(calls: pl.DataFrame, axes: Axes) -> RunTiles:
    """The tiles of a run's calls (`CALLS`) on the axes of its devices."""
    worked = _counts(axes, len(calls))
    ranges = Ranges.of(calls)
    names, place = _places(calls, axes, worked, ranges.noted)
    found = {each.name: np.zeros(len(calls), dtype=np.int64) for each in fields(Tiles)}
    for code in np.unique(place).tolist():
        rows = np.flatnonzero(place == code)
        axis = axes.axes.get(names[code], DeviceAxis.empty())
        lost = axes.unrecorded.get(names[code], Stretches.none())
        tiles = tiles_on(axis, axes.launches, lost, rows, ranges)
        for name, column in found.items():
            column[rows] = getattr(tiles, name)
    on_several = _with_other_devices(found["busy"], axes, worked)
    return RunTiles(
        calls=_frame(calls, names, place, found),
        devices=_devices(axes),
        unrecorded=axes.lost,
        carried_over=axes.own_carried,
        waits=axes.waits,
        unrecorded_on=axes.unrecorded,
        on_several=on_several,
        whole=_whole(axes, found, axes.lost),
    )


def _counts(axes: Axes, total: int) -> npt.NDArray[np.int64]:
    """How much of each call's work ran on each device, int64 [devices, calls]."""
    found = np.zeros((len(axes.axes), total + 1), dtype=np.int64)  # the last is of no call
    for row, axis in zip(found, axes.axes.values(), strict=True):
        np.add.at(row, axis.call[axis.heads], np.diff(axis.heads, append=len(axis.call)))
    return found[:, :total]


def _places(
    calls: pl.DataFrame, axes: Axes, counts: npt.NDArray[np.int64], noted: Flags
) -> tuple[list[str], npt.NDArray[Any]]:
    """Names of devices, and for each call the one of its tile: where most of its work ran; if it
    has none, where it is placed, but the only device where that one did nothing and has `noted`
    nothing of it."""
    placed = calls["device"].cast(pl.String).to_list()
    names = [*axes.axes, *sorted(set(placed) - axes.axes.keys())]
    own = np.array([names.index(name) for name in placed], dtype=np.int64)
    if len(axes.axes) == 1:
        own[(own > 0) & ~noted] = 0
    if not len(counts):
        return names, own
    most = counts.argmax(axis=0)
    at = np.minimum(own, len(counts) - 1)
    there = np.where(own < len(counts), counts[at, np.arange(len(own))], 0)
    return names, np.where(counts.max(axis=0) > there, most, own)


def _with_other_devices(
    busy: Times, axes: Axes, counts: npt.NDArray[np.int64]
) -> tuple[Times, Times]:
    """Make `busy` the union over all devices, of the calls that worked on several; their rows, and
    when the last of their work ended."""
    several = np.flatnonzero((counts > 0).sum(axis=0) > 1)
    if not len(several):
        return several, several
    number = np.full(len(busy) + 1, -1)
    number[several] = np.arange(len(several))
    parts = [(a.start, a.end, number[a.call]) for a in axes.axes.values()]
    start, end, group = (np.concatenate(column) for column in zip(*parts, strict=True))
    busy[several] = union_by(start, end, group, len(several))
    last = np.full(len(several), np.iinfo(np.int64).min)
    np.maximum.at(last, group[group >= 0], end[group >= 0])
    return several, last


def _between(
    begin_ns: int, end_ns: int, unrecorded: Stretches, carried_over: Stretches
) -> EndToEnd:
    first, last = np.array([begin_ns]), np.array([end_ns])
    lost, over = unrecorded.within(first, last), carried_over.within(first, last)
    return EndToEnd(begin_ns, end_ns, int(lost[0]), int(over[0]))


def _whole(axes: Axes, found: dict[str, Times], unrecorded: Stretches) -> EndToEnd | None:
    taken = found["end"] > found["begin"]
    begins, ends = [found["begin"][taken]], [found["end"][taken]]
    for axis in axes.axes.values():
        own = _first_own(axis, axes)
        begins.append(axis.start[own : own + 1])
        ends.append(axis.reach[-1:] if own < len(axis.start) else axis.reach[:0])
    first, last = np.concatenate(begins), np.concatenate(ends)
    if not len(first):
        return None
    return _between(int(first.min()), int(last.max()), unrecorded, axes.own_carried)


def _first_own(axis: DeviceAxis, axes: Axes) -> int:
    """The first work that was not carried over; behind the last where all of it was."""
    if not axes.carried:
        return 0
    own = np.flatnonzero(axis.own)
    return int(own[0]) if len(own) else len(axis.start)


def _frame(
    calls: pl.DataFrame, names: list[str], place: npt.NDArray[Any], found: dict[str, Times]
) -> pl.DataFrame:
    lead = pl.Series(found["lead"])
    return pl.DataFrame(
        {
            "call": calls["call"],
            "tile_device": pl.Series([names[code] for code in place.tolist()], dtype=pl.String),
            "begin_ns": found["begin"],
            "end_ns": found["end"],
            "elapsed_ns": found["end"] - found["begin"] - found["unrecorded"],
            "busy_ns": found["busy"],
            "idle_inside_ns": found["idle_inside"],
            "launch_bound_ns": found["launch_bound"],
            "lead_ns": lead.set(lead == NO_LEAD, None),
            "hidden_ns": found["hidden"],
            "unrecorded_ns": found["unrecorded"],
        },
        schema=schema(TILES),
    )


def _devices(axes: Axes) -> pl.DataFrame:
    rows = []
    for name, axis in axes.axes.items():
        first, last = axis.start[:1], axis.reach[-1:]
        lost = axes.unrecorded.get(name, Stretches.none()).within(first, last)
        carried = axes.carried.get(name, Stretches.none())
        rows.append(
            (
                name,
                int(first[0]),
                int(last[0]),
                int((axis.gaps.within(first, last) - lost)[0]),
                int(lost[0]),
                carried.length,
                axes.carried_count.get(name, 0),
                axis.latency_ns,
            )
        )
    return pl.DataFrame(rows, schema=schema(DEVICE_AXES), orient="row")

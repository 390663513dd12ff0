"""The axes of a run's devices: what worked when on each, what was carried over or not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.events import NO_RANK, rank_of_device
from profiler.table.batches import chosen
from profiler.table.command_times import CommandTimes
from profiler.table.tiles.device_axis import DeviceAxis
from profiler.table.tiles.launches import Flags, Launches, device_work, launches_of
from profiler.table.tiles.stretches import Stretches

__all__ = ["Axes", "axes_of", "work_axes"]

_Values = TypeVar("_Values", bound=npt.NDArray[np.integer[Any]])

_LEAST_NS = 1_000_000  # nothing for longer, though work or the host waits, was not recorded


class Axes(Struct, frozen=True, eq=False):
    """By device, in order of their names: its axis, the work that was carried over, and when
    nothing was recorded though work waited, on no device of its rank. `carried_count` is how many
    commands that work was; `own_carried` is when only such work ran on all devices, `lost` when
    nothing was recorded on any though work of one waited."""

    axes: Mapping[str, DeviceAxis]
    carried: Mapping[str, Stretches]
    carried_count: Mapping[str, int]
    unrecorded: Mapping[str, Stretches]
    own_carried: Stretches
    lost: Stretches
    launches: Launches | None

    @property
    def waits(self) -> Stretches:
        """When the host waited for a device."""
        launches = self.launches
        if launches is None:
            return Stretches.none()
        return Stretches.union(launches.blocked_start, launches.blocked_end)


def axes_of(
    commands: pl.DataFrame,
    flows: pl.DataFrame,
    times: CommandTimes,
    noted: Mapping[int, Stretches] = MappingProxyType({}),
) -> Axes:
    """The axes of all devices that worked; `times` are those of the `commands`. By rank, when
    devices were `noted` to be on calls without commands: that is no time that nobody recorded."""
    launches = launches_of(commands, flows, times)
    axes = work_axes(times, launches)
    if launches is None or not axes:  # nothing waited for a device that did nothing
        return Axes(axes, {}, {}, {}, Stretches.none(), Stretches.none(), launches)
    carried: dict[str, Stretches] = {}
    counts: dict[str, int] = {}
    for name, axis in axes.items() if len(launches.carried) else ():
        over = ~axis.own
        carried[name] = Stretches.union(axis.start[over], axis.end[over])
        counts[name] = int(over.sum())
    alone = Stretches.of_all(carried.values())
    if len(alone):
        own = [Stretches.union(a.start[a.own], a.end[a.own]) for a in axes.values()]
        alone = alone.minus(Stretches.of_all(own))
    unrecorded = _unrecorded(axes, launches, times)
    for name, each in unrecorded.items():
        if rank_of_device(name) in noted:
            unrecorded[name] = each.minus(noted[rank_of_device(name)])
    lost = Stretches.of_all(unrecorded.values())
    if len(set(map(rank_of_device, axes))) > 1:
        worked = [Stretches.union(axis.start, axis.end) for axis in axes.values()]
        lost = lost.minus(Stretches.of_all(worked))
    return Axes(axes, carried, counts, unrecorded, alone, lost, launches)


def work_axes(times: CommandTimes, launches: Launches | None = None) -> dict[str, DeviceAxis]:
    """The axis of each device that worked, by name; commands that took no time are no work."""
    works = device_work(times.category)
    works &= times.end > times.start
    alone = len(times.devices) == 1 and not int(times.device.max(initial=0))
    axes: dict[str, DeviceAxis] = {}
    for number, name in enumerate(times.devices):
        rows = _rows(works if alone else works & (times.device == number))
        if rows is not None:
            start, end = _of(times.start, rows), _of(times.end, rows)
            call = _of(times.call, rows)
            axes[name] = DeviceAxis.of(start, end, call, launches, rows)
    return axes


def _of(values: _Values, rows: Flags | slice) -> _Values:
    """The values in some rows."""
    if isinstance(rows, slice):
        some: _Values = values[rows]  # type: ignore[assignment]  # a view of the same type
        return some
    return chosen(values, rows, int(np.count_nonzero(rows)))


def _rows(which: Flags) -> Flags | slice | None:
    """The chosen rows, a slice where they follow each other, so that nothing is copied; None for
    none."""
    count = int(np.count_nonzero(which))
    if not count:
        return None
    first, last = int(which.argmax()), len(which) - int(which[::-1].argmax())
    return slice(first, last) if last - first == count else which


def _unrecorded(
    axes: Mapping[str, DeviceAxis], launches: Launches, times: CommandTimes
) -> dict[str, Stretches]:
    """When nothing ran on any device of its rank though work of this one, or its host, waited for
    long."""
    long = launches.blocked_end - launches.blocked_start > _LEAST_NS
    host_ranks = np.array([*map(rank_of_device, times.devices), NO_RANK])
    blocked_ranks = host_ranks[times.device[launches.blocked_by]]
    ranks: dict[int, list[str]] = {}
    for name in axes:
        ranks.setdefault(rank_of_device(name), []).append(name)
    found: dict[str, Stretches] = {}
    for rank, names in ranks.items():
        own = long & (blocked_ranks == rank)
        blocked = Stretches.union(launches.blocked_start[own], launches.blocked_end[own])
        gaps = [axes[name].gaps.longer_than(_LEAST_NS) for name in names]
        empty = reduce(Stretches.both, gaps)
        for name in names:
            if axes[name].known.any():
                waits = Stretches.of_all((axes[name].pending(launches, _LEAST_NS), blocked))
                found[name] = waits.both(empty).longer_than(_LEAST_NS)
    return found

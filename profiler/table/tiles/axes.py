"""The axes of a run's devices: what worked when on each, what was carried over or not recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl

from profiler.table.tiles.device_axis import DeviceAxis
from profiler.table.tiles.launches import Codes, Launches, Times, device_work, launches_of
from profiler.table.tiles.stretches import Stretches

__all__ = ["Axes", "axes_of"]

_LEAST_NS = 1_000_000  # nothing for longer, though work or the host waits, was not recorded


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """By device, in order of their names: its axis, the work that was carried over, and when
    nothing was recorded though work waited. `carried_count` is how many commands that work was;
    `own_carried` is when only such work ran on all devices."""

    axes: Mapping[str, DeviceAxis]
    carried: Mapping[str, Stretches]
    carried_count: Mapping[str, int]
    unrecorded: Mapping[str, Stretches]
    own_carried: Stretches
    launches: Launches | None

    @property
    def waits(self) -> Stretches:
        """When the host waited for a device."""
        launches = self.launches
        if launches is None:
            return Stretches.none()
        return Stretches.union(launches.blocked_start, launches.blocked_end)


def axes_of(calls: pl.DataFrame, commands: pl.DataFrame, flows: pl.DataFrame) -> Axes:
    """The axes of all devices that worked."""
    launches = launches_of(commands, flows)
    start = commands["start_ns"].to_numpy()
    length = commands["duration_ns"].to_numpy()
    call = _rows_of_calls(commands["call"], calls["call"])
    axes: dict[str, DeviceAxis] = {}
    for name, rows in _work(commands, length):
        begin = start[rows]
        axes[name] = DeviceAxis.of(begin, begin + length[rows], call[rows], launches, rows)
    if launches is None or not axes:  # nothing waited for a device that did nothing
        return Axes(axes, {}, {}, {}, Stretches.none(), launches)
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
    return Axes(axes, carried, counts, _unrecorded(axes, launches), alone, launches)


def _work(commands: pl.DataFrame, length: Times) -> Iterator[tuple[str, Times | slice]]:
    """The rows of each device's work, by name; commands that took no time are none."""
    works = device_work(commands["category"].to_physical().to_numpy()) & (length > 0)
    device = commands["device"]
    codes = device.to_physical().to_numpy()
    present = device.unique().drop_nulls()
    pairs = zip(present.cast(pl.String), present.to_physical(), strict=True)
    for name, code in sorted(pairs):
        here = works & (codes == code)
        if here.all():
            yield name, slice(None)
        elif here.any():
            yield name, np.flatnonzero(here)


def _rows_of_calls(of_command: pl.Series, calls: pl.Series) -> Codes:
    """For each command the row of its call, -1 for none."""
    numbers, wanted = calls.to_numpy(), of_command.to_numpy()
    if bool((numbers == np.arange(len(numbers))).all()):
        largest = wanted.max(initial=-1)
        return wanted if largest < len(numbers) else np.where(wanted < len(numbers), wanted, -1)
    table = np.full(max(int(wanted.max(initial=0)), int(numbers.max(initial=0))) + 2, -1)
    table[numbers] = np.arange(len(numbers))
    found: Codes = table[wanted]  # -1 takes the last
    return found


def _unrecorded(axes: Mapping[str, DeviceAxis], launches: Launches) -> dict[str, Stretches]:
    """When nothing ran on any device though work of this one, or the host, waited for long."""
    long = launches.blocked_end - launches.blocked_start > _LEAST_NS
    blocked = Stretches.union(launches.blocked_start[long], launches.blocked_end[long])
    empty = reduce(Stretches.both, [axis.gaps.longer_than(_LEAST_NS) for axis in axes.values()])
    found: dict[str, Stretches] = {}
    for name, axis in axes.items():
        if axis.known.any():
            waits = Stretches.of_all((axis.pending(launches, _LEAST_NS), blocked))
            found[name] = waits.both(empty).longer_than(_LEAST_NS)
    return found

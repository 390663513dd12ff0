"""Devices: how busy each was, with what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.axis import Axis
from profiler.analysis.device_spans import extent
from profiler.analysis.devices.columns import DEVICES
from profiler.analysis.recorded_times import times_recorded
from profiler.run.columns import schema
from profiler.run.device_timeline import Busy, RunTiles, device_work
from profiler.run.intervals import Codes, Stretches, Times, counts, positions, text_codes, union_by
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES, NO_RANK, rank_of_device
from profiler.trace.manifest_fields import Device

__all__ = ["Ran", "device_table"]


def device_table(
    calls: pl.DataFrame,
    ran: Ran,
    run: Run,
    axis: Axis,
    missing: Stretches,
    known: Mapping[str, Device],
    weights: Mapping[str, int],
) -> pl.DataFrame:
    """One row a device that has `calls` or commands, which `ran` (`DEVICES`), by name.

    `axis` is that of the whole `run`; `missing` is the time of calls of which a drop says that
    commands are missing: what of it nothing ran in is not recorded. `known` is
    `RunInfo.devices`, `weights` are bytes by device (`device_weights`). Commands on no device are
    left out. How idle a device was is known where it executed something but host work, and every
    call placed there (of a device without any: every call) was traced: else `idle_ns`,
    `idle_share` and `utilization` are null, as they are where nobody recorded when commands ran.
    """
    at = _Placed.of(calls, ran, run)
    busy = np.array([ran.length(name) for name in at.names], dtype=np.int64)
    commands_by_category, by_category = _by_category(ran.commands, at.commands, busy)
    ranks = _ranks(run)
    hardware = [known[name].hardware or None if name in known else None for name in at.names]
    table = pl.DataFrame(
        {
            "device": at.names,
            "rank": [ranks.get(name, NO_RANK) for name in at.names],
            "hardware": hardware,
            "calls": np.bincount(at.calls, minlength=len(at.names)),
            "commands": commands_by_category.sum(axis=1),
            "calls_ns": union_by(*at.tile_span, at.tiles, len(at.names)),
            "busy_ns": busy,
            **{f"{name}_ns": by_category[:, i] for i, name in enumerate(CATEGORIES)},
            **_times(at, busy, calls, ran, run, axis, missing),
            "carried_over_ns": _carried_over(run.tiles, at.names),
            "calls_share": _call_shares(axis, run, calls, at.calls, len(at.names)),
            "weight_bytes": pl.Series([weights.get(name) for name in at.names], dtype=pl.Int64),
        },
    )
    return table.select(pl.col(n).cast(t) for n, t in schema(DEVICES).items())


def _times(
    at: _Placed,
    busy: Times,
    calls: pl.DataFrame,
    ran: Ran,
    run: Run,
    axis: Axis,
    missing: Stretches,
) -> dict[str, pl.Series]:
    """The columns that say for how long each device ran something, nothing, or what nobody knows;
    `busy` is the first of these."""
    names, groups = at.names, len(at.names)
    of_commands = extent(ran.commands.start, ran.commands.end, at.commands, groups)
    of_calls = extent(*at.tile_span, at.tiles, groups)
    extents = (
        np.minimum(of_commands[0], of_calls[0]),
        np.maximum(of_commands[1], of_calls[1]),
    )
    lost = _unrecorded(run.tiles, missing, ran, names, extents)
    span = extents[1] - extents[0] - _profilers(run.tiles, axis, ran, names, extents)
    known = (busy > 0) & (span > 0) & ~_has_untraced(calls, at.calls, groups)
    known &= times_recorded(run.info)
    shares = _idle_shares(axis, missing, ran, names, of_commands)
    idle = {
        "idle_ns": pl.Series(span - busy - lost),
        "utilization": pl.Series(busy / np.maximum(span - lost, 1)),
        "idle_share": pl.Series(shares, dtype=pl.Float64),
    }
    return {
        "span_ns": pl.Series(span),
        "unrecorded_ns": pl.Series(lost),
        **{name: each.set(pl.Series(~known), None) for name, each in idle.items()},
    }


class _Placed(Struct, frozen=True, eq=False):
    """Which device is whose: the `names` of all, and places among these, -1 for none, of calls, of
    their tiles, which have begins and ends, and of commands."""

    names: list[str]
    calls: Codes
    tiles: Codes
    tile_span: tuple[Times, Times]
    commands: Codes

    @classmethod
    def of(cls, calls: pl.DataFrame, ran: Ran, run: Run) -> _Placed:
        """All devices that have calls or commands, in order of names."""
        commands = ran.commands
        codes, placed = text_codes(calls["device"])
        names = sorted({*commands.devices, *placed})
        tiles = calls.select("call").join(run.tiles.calls, on="call", maintain_order="left")
        place = {name: number for number, name in enumerate(names)}
        return cls(
            names,
            calls=_renumbered(codes, placed, names),
            tiles=np.array([place.get(name, -1) for name in tiles["tile_device"]], dtype=np.int32),
            tile_span=(tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()),
            commands=_renumbered(commands.device, commands.devices, names),
        )


class Ran(Struct, frozen=True, eq=False):
    """Commands, and when each device ran any of them that is its work."""

    commands: CommandArrays
    busy: Mapping[str, Busy]

    def length(self, device: str) -> int:
        """How long anything ran on a device, in ns."""
        return self.busy[device].length if device in self.busy else 0

    def within(self, device: str, stretches: Stretches) -> int:
        """How long anything ran on a device in some stretches of time, in ns."""
        if device not in self.busy:
            return 0
        return int(self.busy[device].within(stretches.start, stretches.end).sum())


def _idle_shares(
    axis: Axis, missing: Stretches, ran: Ran, names: list[str], extent: tuple[Times, Times]
) -> list[float | None]:
    """The share of the end-to-end time in which nothing ran on each device, and would have been
    recorded; `extent` is that of its commands."""
    total, counted = axis.counted.length, axis.counted.minus(missing)
    if not total:
        return [None] * len(names)
    found: list[float | None] = []
    for name, first, last in zip(names, *extent, strict=True):
        inside = ran.length(name)
        whole = len(counted) == 1 and counted.start[0] <= first and last <= counted.end[0]
        if inside and not whole:
            inside = ran.within(name, counted)
        found.append((counted.length - inside) / total)
    return found


def _call_shares(
    axis: Axis, run: Run, calls: pl.DataFrame, call_device: Codes, groups: int
) -> list[float | None]:
    """The share of the end-to-end time that the tiles of each device's calls take."""
    rows = positions(calls["call"].to_numpy(), run.calls["call"].to_numpy())
    total = axis.counted.length
    return [
        axis.taken(rows[call_device == number], told=False) / total if total else None
        for number in range(groups)
    ]


def _unrecorded(
    tiles: RunTiles, missing: Stretches, ran: Ran, names: list[str], span: tuple[Times, Times]
) -> Times:
    """How long nothing was recorded of each device, within its span, though work waited for it, or
    a drop says that it is missing, int64 [groups]."""
    (first, last), found = span, np.zeros(len(names), dtype=np.int64)
    for number, name in enumerate(names):
        lost = tiles.unrecorded_on.get(name, Stretches.none())
        if len(missing):
            lost = Stretches.of_all((lost, missing)).clipped(int(first[number]), int(last[number]))
            found[number] = lost.length - ran.within(name, lost)
        elif len(lost):
            own = slice(number, number + 1)
            found[own] = lost.within(first[own], last[own])
    return found


def _profilers(
    tiles: RunTiles, axis: Axis, ran: Ran, names: list[str], span: tuple[Times, Times]
) -> Times:
    """How long nothing ran on each device, within its span, because of the profiler, int64
    [groups]."""
    (first, last), found, beside = span, np.zeros(len(names), dtype=np.int64), axis.beside
    for number, name in enumerate(names if len(beside) else ()):
        own = beside.minus(tiles.unrecorded_on.get(name, Stretches.none()))
        own = own.clipped(int(first[number]), int(last[number]))
        found[number] = own.length - ran.within(name, own)
    return found


def _carried_over(tiles: RunTiles, names: list[str]) -> list[int]:
    found = dict(tiles.devices.select("device", "carried_over_ns").iter_rows())
    return [found.get(name, 0) for name in names]


def _renumbered(codes: Codes, of: list[str] | tuple[str, ...], names: list[str]) -> Codes:
    """Codes into `names` from codes into `of`; -1 for the code behind the last."""
    position = {name: number for number, name in enumerate(names)}
    return np.array([*(position[name] for name in of), -1], dtype=np.int32)[codes]


def _by_category(commands: CommandArrays, device: Codes, busy: Times) -> tuple[Times, Times]:
    """Number and wall union of the commands by device and category, int64 [groups, categories];
    `busy` is the union of all work of each device."""
    kinds, groups = len(CATEGORIES), len(busy)
    codes = device * np.int32(kinds) + commands.category
    codes[device < 0] = -1
    number = counts(codes, groups * kinds).reshape(groups, kinds)
    there = number * device_work(np.arange(kinds)) > 0
    alone = there & (there.sum(axis=1) == 1)[:, None]
    unknown = (number > 0) & ~alone
    found = np.where(alone, busy[:, None], 0)
    if unknown.any():
        table = np.append(np.where(unknown.ravel(), np.arange(groups * kinds), -1), -1)
        codes = table.astype(np.int32)[codes]  # -1 takes the last
        union = union_by(commands.start, commands.end, codes, groups * kinds)
        found += union.reshape(groups, kinds)
    return number, found


def _has_untraced(
    calls: pl.DataFrame, call_device: Codes, groups: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether calls that may have used a device were not traced, bool [groups]."""
    untraced = ~calls["ops_traced"].to_numpy()
    placed = np.bincount(call_device, minlength=groups) > 0
    here = np.bincount(call_device[untraced], minlength=groups) > 0
    return np.where(placed, here, untraced.any())


def _ranks(run: Run) -> dict[str, int]:
    """The rank of each device: what its name says, or that of the only rank there is."""
    job = run.info.job
    alone = job.ranks[0].rank if job is not None and len(job.ranks) == 1 else NO_RANK
    names = {*run.calls["device"].cast(pl.String), *run.commands["device"].unique().cast(pl.String)}
    return {name: max(rank_of_device(name), alone) for name in names if name is not None}

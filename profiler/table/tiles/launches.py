"""When each command was launched, and when the host was blocked: what the recorder tells of both.

A flow from a host command to a device's is a launch. A device command without one was launched
before the recording began where it runs ahead of every launched command of its stream, because a
stream keeps the order of launches: it is *carried over*.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.events import CATEGORIES, CPU_DEVICE
from profiler.table.command_times import CommandTimes, ends

__all__ = ["Codes", "Flags", "Launches", "Times", "device_work", "launches_of", "streams_of"]

Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.bool_]

_HOST, _SYNC = CATEGORIES.index("host"), CATEGORIES.index("sync")
_TRANSFERS = tuple(CATEGORIES.index(name) for name in ("dma", "copy"))
_OF_STREAM = re.compile(r" (memcpy|copy|collectives)$")
_WAITS = "(?i)synchronize"
_GRAPHS = "(?i)graph_?launch"


class Launches(Struct, frozen=True, eq=False):
    """Of n commands: `source` is the row of the command that launched each, int32 [n], -1 where
    none was recorded; `start` and `end` are the commands' own, int64 [n]. `graphs` are the rows of
    those that launch whole graphs, `carried` those of work that was launched before the recording
    began, sorted. When the host waited for devices, in any order: `blocked_start`, `blocked_end`
    and the row of the copy that it waited for, `blocked_on`, -1 for all else; `blocked_by` is that
    of the host's command; int64 [w]."""

    source: npt.NDArray[np.int32]
    start: Times
    end: Times
    graphs: Times
    carried: Times
    blocked_start: Times
    blocked_end: Times
    blocked_on: Times
    blocked_by: Times


def device_work(category: Codes) -> Flags:
    """Which commands are a device's work: neither the host's nor waiting; bool [n]."""
    found: Flags = (category != _HOST) & (category != _SYNC)
    return found


def launches_of(
    commands: pl.DataFrame, flows: pl.DataFrame, times: CommandTimes | None = None
) -> Launches | None:
    """The launches of a run's `commands` that its `flows` tell of; None where they tell of none.
    `times` are those of the commands, where they are known."""
    if flows.is_empty():
        return None
    category = commands["category"].to_physical().to_numpy()
    source, target = flows["source"].to_numpy(), flows["target"].to_numpy()
    kept = (category[source] == _HOST) & device_work(category[target])
    if not kept.any():
        return None
    if not kept.all():
        source, target = source[kept], target[kept]
    start = commands["start_ns"].to_numpy() if times is None else times.start
    end = ends(commands) if times is None else times.end
    launched_by = np.full(len(start), -1, dtype=np.int32)
    launched_by[target[::-1]] = source[::-1]  # of several the first
    copies = np.isin(category[target], _TRANSFERS)
    copies = np.flatnonzero(copies)[end[source[copies]] >= end[target[copies]]]
    hosts = np.flatnonzero((category == _HOST) | (category == _SYNC))
    called, graphs = _named(commands["layer"], hosts, _WAITS, _GRAPHS)
    waits = hosts[_waiting(commands["device"], category, hosts, called)]
    blocked = np.concatenate((source[copies], waits))
    return Launches(
        source=launched_by,
        start=start,
        end=end,
        graphs=hosts[graphs],
        carried=_carried_over(commands, category, start, launched_by),
        blocked_start=start[blocked],
        blocked_end=end[blocked],
        blocked_on=np.append(target[copies], np.full(len(waits), -1)),
        blocked_by=blocked,
    )


def _waiting(device: pl.Series, category: Codes, hosts: Times, called: Flags) -> Flags:
    """Which of these host and sync commands are the host's waits; `called` are called so."""
    waits: Flags = called & (category[hosts] == _HOST)
    syncs = np.flatnonzero(category[hosts] == _SYNC)
    if len(syncs):
        (waits[syncs],) = _named(device, hosts[syncs], CPU_DEVICE)
    return waits


def _named(column: pl.Series, rows: Times, *patterns: str) -> list[Flags]:
    """Which of some rows of a categorical column match each pattern."""
    physical = column.to_physical()
    if physical.null_count():
        physical = physical.fill_null(0)
    codes = physical.to_numpy()[rows]
    used = np.flatnonzero(np.bincount(codes)) if len(codes) else np.zeros(0, dtype=np.int64)
    first = np.zeros(int(used.max(initial=0)) + 1, dtype=np.int64)
    first[codes[::-1]] = rows[::-1]
    names = column.gather(first[used]).cast(pl.String).fill_null("")
    found: list[Flags] = []
    for pattern in patterns:
        table = np.zeros(len(first), dtype=np.bool_)
        table[used] = names.str.contains(pattern).to_numpy()
        found.append(table[codes] if table.any() else np.zeros(len(rows), dtype=np.bool_))
    return found


def _carried_over(
    commands: pl.DataFrame, category: Codes, start: Times, launched_by: Codes
) -> Times:
    """Rows of work without a launch that begins before every launched one of its stream."""
    rows = np.flatnonzero(device_work(category) & (launched_by < 0))
    if not len(rows):
        return rows
    launched = np.flatnonzero(launched_by >= 0)
    streams = streams_of(commands, np.concatenate((rows, launched)))
    first = np.full(int(streams.max()) + 1, np.iinfo(np.int64).min)  # without launches: unknown
    of_launched = streams[len(rows) :]
    first[of_launched] = np.iinfo(np.int64).max
    np.minimum.at(first, of_launched, start[launched])
    found: Times = rows[start[rows] < first[streams[: len(rows)]]]
    return found


def streams_of(commands: pl.DataFrame, rows: Times) -> Times:
    """A number for the stream of each row: its kernels and its copies stand on several tracks."""
    places = commands.select(pl.col("device", "track").gather(pl.Series(rows)))
    pairs = places.unique(maintain_order=True)
    names = [
        (device, _OF_STREAM.sub("", track))
        for device, track in pairs.select(pl.col("device", "track").cast(pl.String)).rows()
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    column = pl.Series([numbers[name] for name in names], dtype=pl.Int64)
    numbered = pairs.with_columns(number=column)
    joined = places.join(
        numbered, on=["device", "track"], how="left", maintain_order="left", nulls_equal=True
    )
    found: Times = joined["number"].to_numpy()
    return found

"""Launches: when each command of a device was launched, and when the host was blocked.

    launches = launches_of(run.commands, run.flows)
    launches.source[row]  # the row of the command that launched it

A flow from a host command to a device's is a launch. A device command without one was launched
before the recording started if it runs ahead of every launched command of its stream, because a
stream keeps the order of launches: it is *carried over*.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.run.intervals import Codes, CommandTimes, Times, ends
from profiler.trace.events import CATEGORIES, CPU_DEVICE

Flags = npt.NDArray[np.bool_]

_HOST, _SYNC = CATEGORIES.index("host"), CATEGORIES.index("sync")
_TRANSFERS = tuple(CATEGORIES.index(name) for name in ("dma", "copy"))
_OF_STREAM = re.compile(r" (memcpy|copy|collectives)$")
_WAITS = "(?i)synchronize"
_GRAPHS = "(?i)graph_?launch"
_OF_DRIVER = r"\(unified memory\)"
NOBODY = -2  # the `source` of a copy that the driver made by itself
_LEAST_LAUNCHES = 3  # of one name: fewer do not show whether they are synchronous
_LATER_PART = 20  # at most a 20th of the work of synchronous launches runs later


class Launches(Struct, frozen=True, eq=False):
    """Launches of n commands, and when the host waited for devices.

    `source` is the row of the command that launched each, int32 [n], -1 if none was recorded,
    `NOBODY` for copies that a driver makes of unified memory; `start` and `end` are the commands'
    own, int64 [n]. `graphs` are the rows of commands that launch whole graphs, `carried` the sorted
    rows of work that was launched before the recording started. The host's w waits, in any order,
    last from `blocked_start` to `blocked_end`; `blocked_by` is the row of the host's command,
    `blocked_on` that of the copy it waited for, -1 if it was no copy; int64 [w]. `synchronous` are
    the names of launches that return when their work has ended: the host waits in them, too.
    """

    source: npt.NDArray[np.int32]
    start: Times
    end: Times
    graphs: Times
    carried: Times
    blocked_start: Times
    blocked_end: Times
    blocked_on: Times
    blocked_by: Times
    synchronous: tuple[str, ...]


def device_work(category: Codes) -> Flags:
    """Return which commands are device work, neither host work nor waits; bool [n]."""
    found: Flags = (category != _HOST) & (category != _SYNC)
    return found


def launches_of(
    commands: pl.DataFrame, flows: pl.DataFrame, times: CommandTimes | None = None
) -> Launches | None:
    """Return the launches among the `flows` of a run's `commands`; None if there are none. `times`
    are the commands' times, if already computed."""
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
    launched_by[target[::-1]] = source[::-1]  # the first of several
    copies = blocking_copies(commands, source, target, start, end)
    hosts = np.flatnonzero((category == _HOST) | (category == _SYNC))
    called, graphs = _named(commands["layer"], hosts, _WAITS, _GRAPHS)
    waits = hosts[_waiting(commands["device"], category, hosts, called)]
    held = synchronous(commands, category, source, target, start, end)
    blocked = np.concatenate((source[copies], waits, source[held]))
    began, returned = start[blocked].copy(), end[blocked].copy()
    if len(held):  # the host waits while the work runs
        began[-len(held) :], returned[-len(held) :] = start[target[held]], end[target[held]]
    # a call that returns before its copy ends waits until it starts, then fills a buffer for it
    early = np.flatnonzero(returned[: len(copies)] < end[target[copies]])
    filled = np.maximum(start[target[copies[early]]], start[source[copies[early]]])
    returned[early] = np.minimum(returned[early], filled)
    unlaunched = np.flatnonzero(device_work(category) & (launched_by < 0))
    (of_driver,) = _named(commands["op_type"], unlaunched, _OF_DRIVER)
    launched_by[unlaunched[of_driver]] = NOBODY
    return Launches(
        source=launched_by,
        start=start,
        end=end,
        graphs=hosts[graphs],
        carried=_carried_over(commands, unlaunched[~of_driver], start, launched_by),
        blocked_start=began,
        blocked_end=returned,
        blocked_on=np.append(target[copies], np.full(len(waits) + len(held), -1)),
        blocked_by=blocked,
        synchronous=_names_of(commands["layer"], source[held]),
    )


def blocking_copies(
    commands: pl.DataFrame, source: Times, target: Times, start: Times, end: Times
) -> Times:
    """Return which launches, from `source` to `target`, are of copies that the host waited for:
    their places, int64.

    Their calls returned when the copy had ended; or, if memory is pageable (it passes through a
    buffer of the driver) or the call is not asynchronous, when it had started: such a call waits
    for all work ahead of it, and returns up to 120 us before the end (V100), or, by the clocks of
    an MI300X, 4 us.
    """
    copies = np.flatnonzero(
        np.isin(commands["category"].to_physical().to_numpy()[target], _TRANSFERS)
    )
    begun = end[source[copies]] > start[target[copies]]
    ended = end[source[copies]] >= end[target[copies]]
    early = copies[begun & ~ended]
    if not len(early):
        return copies[ended]
    named = commands.select(
        pl.coalesce("kernel", "op_type").cast(pl.String).gather(target[early]).alias("copy"),
        pl.col("layer").cast(pl.String).gather(source[early]).alias("call"),
    )
    copy, call = pl.col("copy"), pl.col("call")
    waits = copy.str.contains("Pageable") | ~call.str.contains("Async")  # names of Kineto and nsys
    waits &= call.str.contains("Memcpy")
    ended[begun & ~ended] = named.select(waits.fill_null(False)).to_series().to_numpy()
    return copies[ended]


def _names_of(column: pl.Series, rows: Times) -> tuple[str, ...]:
    return tuple(sorted(column.gather(rows).unique().cast(pl.String).drop_nulls()))


def synchronous(
    commands: pl.DataFrame,
    category: Codes,
    source: Codes,
    target: Times,
    start: Times,
    end: Times,
) -> Times:
    """Return which launches, from `source` to `target`, return when their work has ended: their
    places, int64, without copies. All launches of a name are synchronous or none: hardly any of
    their work runs after they return (clocks differ a little), and each launches one command. A
    graph's launch may still be running when its first kernels do."""
    place = np.flatnonzero(~np.isin(category[target], _TRANSFERS))
    row, source = target[place], source[place]
    name = commands["layer"].gather(source).to_physical().fill_null(0).to_numpy()
    later = np.bincount(name, np.maximum(end[row] - np.maximum(start[row], end[source]), 0))
    held = (later * _LATER_PART <= np.bincount(name, end[row] - start[row]))[name]
    some, times = np.unique(source[held], return_counts=True)
    several = np.isin(name, name[held][np.isin(source[held], some[times > 1])])
    few = np.bincount(name)[name] < _LEAST_LAUNCHES
    found: Times = place[held & ~several & ~few]
    return found


def _waiting(device: pl.Series, category: Codes, hosts: Times, called: Flags) -> Flags:
    """Return which of the commands in rows `hosts` are waits of the host; `called` marks names of
    waits."""
    waits: Flags = called & (category[hosts] == _HOST)
    syncs = np.flatnonzero(category[hosts] == _SYNC)
    if len(syncs):
        (waits[syncs],) = _named(device, hosts[syncs], CPU_DEVICE)
    return waits


def _named(column: pl.Series, rows: Times, *patterns: str) -> list[Flags]:
    """Return which `rows` of a categorical column match, one bool array per pattern."""
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


def _carried_over(commands: pl.DataFrame, rows: Times, start: Times, launched_by: Codes) -> Times:
    """Return those of `rows`, work without a launch, that start before all launched work of their
    stream, or, if it has none, before the first launch for their device."""
    if not len(rows):
        return rows
    launched = np.flatnonzero(launched_by >= 0)
    both = np.concatenate((rows, launched))
    codes = commands["device"].to_physical().cast(pl.Int64).fill_null(-1) + 1
    streams, device = streams_of(commands, both), codes.to_numpy()[both]
    of_device = np.full(int(device.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(of_device, device[len(rows) :], start[launched_by[launched]])
    of_device[of_device == np.iinfo(np.int64).max] = np.iinfo(np.int64).min  # no launch is known
    first = np.empty(int(streams.max()) + 1, dtype=np.int64)
    first[streams] = of_device[device]
    of_launched = streams[len(rows) :]
    first[of_launched] = np.iinfo(np.int64).max
    np.minimum.at(first, of_launched, start[launched])
    return rows[start[rows] < first[streams[: len(rows)]]]


def streams_of(commands: pl.DataFrame, rows: Times) -> Times:
    """A number for the stream of each row: a stream's kernels and copies are on several tracks."""
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
    return joined["number"].to_numpy()

"""What importers give the check of a recording, and damage done to it at random places.

given = recorded(path)            # of any producer
kind, damaged = injected("one", given, random)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from profiler.importers import gpu_run, xplane
from profiler.importers.kineto import health as kineto
from profiler.importers.nsys import read_run as read_nsys
from profiler.importers.rocprofv3.read import read_run as read_rocprofv3
from profiler.kineto.trace_file import read_kineto
from profiler.trace.health import check
from profiler.trace.runtime_calls import DeviceRows, DeviceSyncs, HostLaunches

LONG_NS, SHORT_NS, AHEAD_NS = 1_600_000_000, 50_000_000, 100_000


class Given(NamedTuple):
    """The columns of one recording."""

    rows: DeviceRows
    launches: HostLaunches
    syncs: DeviceSyncs


def _read(path: Path) -> object:
    if path.suffix == ".sqlite":
        return read_nsys(path)
    if path.suffix == ".pb":
        return xplane.read_run([path])
    if path.is_dir() or path.parent.name == "rocprofv3":
        return read_rocprofv3([path])
    return kineto.checked_trace(read_kineto(path))


def recorded(path: Path) -> Given:
    """What the importer of a file gives the check."""
    given: list[Given] = []

    def noting(rows, launches, syncs, hardware=""):
        given.append(deepcopy(Given(rows, launches, syncs)))  # importers go on with these
        return check(rows, launches, syncs, hardware)

    with pytest.MonkeyPatch.context() as patched:
        for importer in (kineto, gpu_run, xplane):
            patched.setattr(importer, "check", noting)
        _read(path)
    return given[0]


def taken(rows: DeviceRows, kept) -> DeviceRows:
    """Some of the rows, perhaps several times."""
    columns = [one.name for one in fields(rows) if isinstance(getattr(rows, one.name), np.ndarray)]
    return replace(rows, **{name: getattr(rows, name)[kept] for name in columns})


@dataclass(frozen=True)
class Injected:
    """A recording after damage to some `rows`, which one of `rules` must see, or why none can."""

    given: Given
    rows: np.ndarray
    rules: tuple[str, ...]
    unseen: str = ""


def _longer(given: Given, random: np.random.Generator, number: int, by_ns: int) -> Injected:
    rows = given.rows
    kernels = np.flatnonzero((rows.kernel >= 0) & ~rows.exempt)
    chosen = random.choice(kernels, min(number, len(kernels)), replace=False)
    end = rows.end.copy()
    end[chosen] += by_ns
    overrun = any(_is_followed(rows, one, int(end[one])) for one in chosen.tolist())
    why = "" if overrun else "nothing starts on its stream while it is said to run"
    rules = ("overrun", "outlived_synchronization")
    return Injected(given._replace(rows=replace(rows, end=end)), chosen, rules, why)


def _is_followed(rows: DeviceRows, row: int, until: int) -> bool:
    """Whether work of another launch starts on the stream of a row between its start and a time."""
    other = (rows.correlation != rows.correlation[row]) | (rows.correlation[row] <= 0)
    later = (rows.start > rows.start[row]) & (rows.start < until)
    return bool(((rows.stream == rows.stream[row]) & other & later & ~rows.exempt).any())


def _one(given: Given, random: np.random.Generator) -> Injected:
    return _longer(given, random, 1, LONG_NS)


def _some(given: Given, random: np.random.Generator) -> Injected:
    return _longer(given, random, max(1, round(0.0014 * len(given.rows))), SHORT_NS)


def _chosen(given: Given, random: np.random.Generator, share: float) -> np.ndarray:
    rows = np.flatnonzero((given.rows.end > given.rows.start) & ~given.rows.exempt)
    return random.choice(rows, max(1, int(share * len(rows))), replace=False)


def _without_time(given: Given, random: np.random.Generator) -> Injected:
    rows, chosen = given.rows, _chosen(given, random, 0.1)
    start, end = rows.start.copy(), rows.end.copy()
    start[chosen] = end[chosen] = 0
    others = start > 0
    span = int(end[others].max()) - int(start[others].min())
    relative = int(start[others].min()) <= 10 * span
    why = "times of the file are relative to its begin" if relative else ""
    return Injected(
        given._replace(rows=replace(rows, start=start, end=end)), chosen, ("no_time",), why
    )


def _negative(given: Given, random: np.random.Generator) -> Injected:
    rows, chosen = given.rows, _chosen(given, random, 0)
    end = rows.end.copy()
    end[chosen] = rows.start[chosen] - 1_000
    return Injected(given._replace(rows=replace(rows, end=end)), chosen, ("negative_length",))


def _twice(given: Given, random: np.random.Generator) -> Injected:
    chosen = _chosen(given, random, 0.05)
    rows = taken(given.rows, np.append(np.arange(len(given.rows)), chosen))
    return Injected(given._replace(rows=rows), chosen, ("twice",))


def _ahead(given: Given, random: np.random.Generator) -> Injected:
    rows = given.rows
    device = int(random.choice(np.unique(rows.device[~rows.exempt])))
    moved = np.where(rows.device == device, AHEAD_NS, 0)
    least = least_latency(given, device)
    why = "" if least < AHEAD_NS - 1_000 else "its queue was full throughout, or no launch is known"
    damaged = replace(rows, start=rows.start - moved, end=rows.end - moved)
    chosen = np.flatnonzero(moved)
    return Injected(given._replace(rows=damaged), chosen, ("clock", "drift"), why)


def least_latency(given: Given, device: int) -> int:
    """The least time from a launch to the start of its work on a device."""
    rows, launches = given.rows, given.launches
    begun: dict[tuple[int, int], int] = {}
    known = bool((rows.process >= 0).any())
    columns = (launches.process, launches.correlation, launches.start)
    for process, number, start in zip(*(one.tolist() for one in columns), strict=True):
        key = (process if known else 0, number)
        begun[key] = min(start, begun.get(key, start))
    here = np.flatnonzero((rows.device == device) & ~rows.exempt & (rows.correlation > 0))
    found = [
        int(rows.start[row]) - begun[key]
        for row in here.tolist()
        if (key := (int(rows.process[row]) if known else 0, int(rows.correlation[row]))) in begun
    ]
    return min(found, default=1 << 62)


KINDS: dict[str, Callable[[Given, np.random.Generator], Injected]] = {
    "one row + 1.6 s": _one,
    "0.14 % + 50 ms": _some,
    "start 0": _without_time,
    "negative length": _negative,
    "5 % twice": _twice,
    "clock - 100 µs": _ahead,
}


def busy_ns(rows: DeviceRows, start, end, kept) -> dict[int, int]:
    """How long each device was busy, by going through what it did in order."""
    found = {}
    for device in np.unique(rows.device).tolist():
        here = np.flatnonzero((rows.device == device) & kept)
        total, until = 0, -(1 << 62)
        for row in here[np.argsort(start[here], kind="stable")].tolist():
            total += max(int(end[row]) - max(int(start[row]), until), 0)
            until = max(until, int(end[row]))
        found[device] = total
    return found

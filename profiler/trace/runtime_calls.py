"""What devices of a recording did, and the calls of the runtime that launched it or waited for it.

    launches, syncs = host_calls(names, name, start, end, process, thread, correlation)

Each importer gives the check of a recording (`trace/health`) what it read in these columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s

Bools = npt.NDArray[np.bool_]

NO_END = -(1 << 62)
"""The end of a row that began and, as far as is recorded, never ended."""

KERNEL, GRAPH, OTHER = range(3)
"""What a launch launches: only a kernel or a graph must have work, a copy may be of no bytes."""

_LAUNCH = re.compile(
    r"(?:cuda|cu|hip)(?:(?:Ext|Module)*Launch(?:Cooperative)?Kernel|(GraphLaunch))"
)
_EXTENDED = re.compile("(?:cuda|cu)LaunchKernelEx")  # with attributes: dependent, perhaps
_DEVICE_SYNC = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize")
_CAPTURES = re.compile(r"\w*Stream(?:(Begin)|End)Capture")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """n kernels, copies and sets of devices. `device`, `stream` and `kernel` index the names;
    `stream` differs by device, process and context, `kernel` by grid if that is known, and is -1
    for copies and sets. `process` is -1 if it is not known, `correlation` is then not positive, or
    unique in the file. `exempt` rows may overlap: no queue of a device has them. The `end` of what
    never ended is `NO_END`."""

    start: Int64s
    end: Int64s
    device: Int64s
    stream: Int64s
    process: Int64s
    correlation: Int64s
    kernel: Int64s
    exempt: Bools
    devices: tuple[str, ...]
    streams: tuple[str, ...]
    kernels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class HostLaunches:
    """m calls of the runtime that launched work: `row` is the place of each among the calls that
    were given, `kind` `KERNEL`, `GRAPH` or `OTHER`; what is `captured` becomes a node of a graph
    and runs nothing, and `dependent` ones may start before the work ahead of them has ended."""

    row: Int64s
    start: Int64s
    end: Int64s
    process: Int64s
    correlation: Int64s
    kind: Int64s
    captured: Bools
    dependent: Bools

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSyncs:
    """Calls in which a process waited for all that it had launched on `device`, -1 if the file
    does not say on which."""

    start: Int64s
    end: Int64s
    process: Int64s
    device: Int64s


def host_calls(
    names: Sequence[str],
    name: Int64s,
    start: Int64s,
    end: Int64s,
    process: Int64s,
    thread: Int64s,
    correlation: Int64s,
) -> tuple[HostLaunches, DeviceSyncs]:
    """Return the launches and synchronizations among calls of a runtime; `name` indexes `names`."""
    launch, wait, capture, extended = (
        [pattern.match(text) for text in names]
        for pattern in (_LAUNCH, _DEVICE_SYNC, _CAPTURES, _EXTENDED)
    )
    kinds = [OTHER if one is None else GRAPH if one[1] else KERNEL for one in launch]
    marks = [0 if one is None else 1 if one[1] else -1 for one in capture]
    waiting, early = ([one is not None for one in found] for found in (wait, extended))
    kind, mark, waits, dependent = (
        np.array([*values, 0], dtype=np.int64)[name] for values in (kinds, marks, waiting, early)
    )
    numbered, waited = np.flatnonzero(correlation > 0), np.flatnonzero(waits)
    calls = HostLaunches(
        row=numbered,
        start=start[numbered],
        end=end[numbered],
        process=process[numbered],
        correlation=correlation[numbered],
        kind=kind[numbered],
        captured=_captured(mark, thread, start)[numbered],
        dependent=dependent[numbered] > 0,
    )
    nowhere = np.full(len(waited), -1, dtype=np.int64)
    return calls, DeviceSyncs(start[waited], end[waited], process[waited], nowhere)


def _captured(mark: Int64s, thread: Int64s, start: Int64s) -> Bools:
    """Which calls lie between start and end of a capture on their thread."""
    found = np.zeros(len(mark), dtype=np.bool_)
    if not mark.any():
        return found
    order = np.lexsort((start, thread))
    last = np.maximum.accumulate(np.where(mark[order] != 0, np.arange(len(order)), -1))
    inside = (last >= 0) & (mark[order][last] > 0) & (thread[order][last] == thread[order])
    found[order] = inside
    return found


def last_begun(keys: Int64s, start: Int64s, end: Int64s, asked: Int64s, at: Int64s) -> Int64s:
    """Return for each key that is asked for the row of the last call with it that had begun `at` a
    time, the first if none had; -1 if no call has it. Only a number that is used again has several:
    a call within one of its key is its part, as the driver's in the runtime's."""
    if not len(keys):
        return np.full(len(asked), -1, dtype=np.int64)
    calls = np.lexsort((-end, start, keys))
    part = (keys[calls[1:]] == keys[calls[:-1]]) & (start[calls[1:]] < end[calls[:-1]])
    calls = calls[np.append(True, ~part)]
    first = np.minimum(np.searchsorted(keys[calls], asked), len(calls) - 1)
    kind = np.repeat((0, 1), (len(calls), len(asked)))  # calls come before what asks for them
    order = np.lexsort((kind, np.append(start[calls], at), np.append(keys[calls], asked)))
    begun = np.maximum.accumulate(np.where(order < len(calls), order, -1))
    last = np.empty(len(order), dtype=np.int64)
    last[order] = begun
    found: Int64s = calls[np.maximum(last[len(calls) :], first)]
    return np.where(keys[calls[first]] == asked, found, -1)

"""Work of devices, and the runtime calls that launched it or waited for it, as columns.

    launches, syncs = host_calls(names, name, start, end, process, thread, correlation)

Importers pass these columns to the check of a recording (`trace/health`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

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
_EXTENDED = re.compile("(?:cuda|cu)LaunchKernelEx")  # with attributes, which may make it dependent
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
    """m runtime calls that launched work: `row` is the index of each among the given calls, `kind`
    is `KERNEL`, `GRAPH` or `OTHER`. A `captured` call becomes a node of a graph and runs nothing.
    Work of a `dependent` call may start before the work ahead of it has ended."""

    row: Int64s
    start: Int64s
    end: Int64s
    process: Int64s
    correlation: Int64s
    kind: npt.NDArray[np.int8]
    captured: Bools
    dependent: Bools

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSyncs:
    """Calls in which a process waited for all work that it had launched on `device`; -1 if the file
    does not name the device."""

    start: Int64s
    end: Int64s
    process: Int64s
    device: Int64s


def host_calls(
    names: Sequence[str],
    name: npt.NDArray[np.signedinteger[Any]],
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
        np.array([*values, 0], dtype=np.int8)[name] for values in (kinds, marks, waiting, early)
    )
    row, waited = np.flatnonzero(correlation > 0), np.flatnonzero(waits)
    numbered = row if len(row) < len(name) else slice(None)  # no copy of millions of calls
    calls = HostLaunches(
        row=row,
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


def _captured(mark: npt.NDArray[np.int8], thread: Int64s, start: Int64s) -> Bools:
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
    """Return for each key in `asked` the row of its last call that had started at time `at`, the
    first if none had; -1 if no call has the key. A key has several calls only if its number is
    reused: a call inside another one with its key, as a driver's in the runtime's, is a part of
    it."""
    if not len(keys):
        return np.full(len(asked), -1, dtype=np.int64)
    calls = np.lexsort((-end, start, keys))
    part = (keys[calls[1:]] == keys[calls[:-1]]) & (start[calls[1:]] < end[calls[:-1]])
    calls = calls[np.append(True, ~part)]
    first = np.minimum(np.searchsorted(keys[calls], asked), len(calls) - 1)
    kind = np.repeat((0, 1), (len(calls), len(asked)))  # calls come before queries
    order = np.lexsort((kind, np.append(start[calls], at), np.append(keys[calls], asked)))
    begun = np.maximum.accumulate(np.where(order < len(calls), order, -1))
    last = np.empty(len(order), dtype=np.int64)
    last[order] = begun
    found: Int64s = calls[np.maximum(last[len(calls) :], first)]
    return np.where(keys[calls[first]] == asked, found, -1)


# --- Replays of a graph of which the recording lost some work.
#
# All replays of a graph run the same kernels. Recordings do not say which graph a launch replays,
# so a set of kernels that several launches ran is taken as a graph.


_REPEATED = 3  # launches of the same kernels make a graph
_MOST_OF_A_GRAPH = 0.5  # of a graph's rows: fewer may be of another graph
_MIXER, _HALF_WORD = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_MOST, _MOST_GRAPHS = 2_000, 64  # replays and graphs that are looked at


def incomplete_replays(replay: Int64s, kernel: Int64s) -> tuple[int, int, int]:
    """How many replays lack work that other replays of their graph have, how many rows they lack,
    and how many they should have.

    `replay` and `kernel` are given per row of graph work. Replays are numbered in order of launch;
    the last one may be cut.
    """
    if not len(replay):
        return 0, 0, 0
    order = np.argsort(replay, kind="stable")
    replay = replay[order]
    heads = np.flatnonzero(np.append(True, replay[1:] != replay[:-1]))
    if len(heads) <= _REPEATED:
        return 0, 0, 0
    count = np.append(heads[1:], len(order)) - heads
    weights = np.arange(1, int(kernel.max()) + 3, dtype=np.uint64) * _MIXER
    weights = (weights ^ (weights >> _HALF_WORD)) * _MIXER  # sums of others are others
    ran = kernel[order] + 1  # copies are -1
    alike = np.add.reduceat(weights[ran], heads)  # sums of what ran, modulo 2^64
    found = np.unique(alike, return_index=True, return_inverse=True, return_counts=True)
    _, first, place, times = found
    whole = first[times >= _REPEATED]
    odd = np.flatnonzero((times < _REPEATED)[place])
    odd = odd[odd < len(count) - 1][:_MOST]
    if not len(whole) or not len(odd):
        return 0, 0, 0

    @lru_cache(2 * _MOST_GRAPHS)
    def kernels_of(number: int) -> Int64s:
        head = heads[number]
        return np.bincount(ran[head : head + count[number]], minlength=len(weights))

    graphs = sorted((int(count[one]), one) for one in whole.tolist())[:_MOST_GRAPHS]
    replays = lost = expected = 0
    for number in odd.tolist():
        own = int(count[number])
        for size, one in graphs:  # the smallest graph that has all of these kernels
            near = size * _MOST_OF_A_GRAPH <= own < size
            if near and (kernels_of(number) <= kernels_of(one)).all():
                replays, lost, expected = replays + 1, lost + size - own, expected + size
                break
    return replays, lost, expected


# --- Whether the clock of a device gains or loses against that of the host.
#
# Work that does not wait starts some µs after its launch. If that minimum latency grows or shrinks
# steadily over the recording, the clocks run at different rates.


_MS = 1_000_000
_WINDOWS, _LEAST_ROWS = 64, 64
_LEAST_SPAN_NS = 300 * _MS  # shorter healthy recordings have 3,000 ppm by chance
_LEAST_DRIFT, _MOST_DRIFT = 1e-4, 5e-3  # healthy ones have 2.9e-5; more is a queue that fills
_NEAR_NS = 15_000
_LEAST_WINDOWS, _NEAR_SPAN_NS = 5, 100 * _MS
_HALF, _EVEN = 0.5, 0.8  # of the windows: a queue does not fill so evenly
_Numbers = npt.NDArray[np.float64]


def latency_slope(launched: Int64s, latency: Int64s, *, early: bool) -> float | None:
    """The change of the minimum latency per time, a ratio; None if the clocks agree or it cannot be
    determined. `early`: work starts before its launch, which a queue cannot explain."""
    if len(launched) < _LEAST_ROWS:
        return None
    first, span = int(launched.min()), int(np.ptp(launched))
    if span < _LEAST_SPAN_NS:
        return None
    window = np.minimum((launched - first) * _WINDOWS // span, _WINDOWS - 1).astype(np.uint8)
    order = np.argsort(window, kind="stable")  # of small numbers, which is quick
    window = window[order]
    heads = np.flatnonzero(np.append(True, window[1:] != window[:-1]))
    lowest = np.minimum.reduceat(latency[order], heads).astype(np.float64)
    place = window[heads].astype(np.float64) * (span / _WINDOWS)
    near = np.flatnonzero(lowest <= lowest.min() + _NEAR_NS)  # whatever the queue did elsewhere
    if len(near) < _LEAST_WINDOWS or np.ptp(place[near]) < _NEAR_SPAN_NS:
        near = _near_line(place, lowest, early=early)
    if not len(near):
        return None
    along = place[near] - place[near].mean()
    slope = float((along * lowest[near]).sum() / (along * along).sum())
    return slope if _LEAST_DRIFT < abs(slope) <= _MOST_DRIFT else None


def _near_line(place: _Numbers, lowest: _Numbers, *, early: bool) -> Int64s:
    """The windows whose minimum latency is near the line below all of them; none if most are
    not."""
    low, high = _longest_edge(place, lowest)
    slope = (lowest[high] - lowest[low]) / (place[high] - place[low]) if high > low else 0.0
    line = lowest[low] + slope * (place - place[low])
    near = np.flatnonzero(lowest - line <= _NEAR_NS)
    enough = (_HALF if early else _EVEN) * len(place)
    if len(near) < max(enough, _LEAST_WINDOWS) or 2 * np.ptp(near) < len(place):
        return near[:0]
    return near


def _longest_edge(x: _Numbers, y: _Numbers) -> tuple[int, int]:
    """The ends of the longest edge of the lower hull of points in order of `x`."""
    hull: list[int] = []
    for place in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[place] - x[a]) < (y[place] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(place)
    edges = [(x[b] - x[a], a, b) for a, b in pairwise(hull)]
    _, low, high = max(edges, default=(0.0, 0, 0))
    return low, high

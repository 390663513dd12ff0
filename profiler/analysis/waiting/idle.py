"""What devices waited for while they computed nothing, and how much of their transfers they hid.

A device *computes* while a command of category compute or other runs on it, and *waits* in the rest
of its span, which lasts from its first command or call to the end of its last. With |A| the length
of the union of A's intervals, and C its computing commands,

    waiting = span - |C|

Each moment of waiting is put down to the first of these that holds of it:

- data: one of its transfers (dma, copy) runs, T;
- another device: a sync command of its own runs, or another device computes or transfers for a
  call of this device's, O;
- the host: a call of its own is under way, K, and nothing has been given to it to do. Of that,
  queued: the command that it begins with next had been launched (by a host command that had ended,
  as a flow tells): the host has done its part;
- another device, once more: a call of other devices is under way, of a pipeline call in which this
  device has calls too, F;
- between calls: the rest. Of that, between_host: host work of no call runs.

    data = |C+T| - |C|
    other device = |C+T+O| - |C+T|  +  |C+T+O+K+F| - |C+T+O+K|
    host + queued = |C+T+O+K| - |C+T+O|
    between = span - |C+T+O+K+F|

so that the five add up to `waiting` to the nanosecond. A call is under way from its begin until its
caller had it back and its last command had ended; it is of the devices that it is placed on or that
ran more than host work for it. `devices.idle_ns` is less than `waiting` by the time in which only
transfers or syncs ran. What transfers took while the device computed is overlapped: |T| - data.

Long gaps are those of over 100 µs from the end of one computing command to the begin of the next;
of a gap that leaves its pipeline call counts what lies in pipeline calls.

Devices that neither compute nor transfer, and those with calls that were not traced, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays, ends
from profiler.analysis.batches import Codes, Times, batches
from profiler.analysis.waiting.call_extents import CallExtents
from profiler.analysis.waiting.columns import IDLE
from profiler.analysis.waiting.coverage import Cover, InOrder, covered_before
from profiler.analysis.waiting.launches import NOT_LAUNCHED, Launches
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.events import CATEGORIES
from profiler.table.columns import schema

__all__ = ["idle_table"]

_Flags = npt.NDArray[np.bool_]
_COMPUTES, _TRANSFERS, _SYNCS, _HOSTS = range(4)
_DOES = np.array(
    [
        {"dma": _TRANSFERS, "copy": _TRANSFERS, "sync": _SYNCS, "host": _HOSTS}.get(name, _COMPUTES)
        for name in CATEGORIES
    ],
    dtype=np.int8,
)
_LAST = np.iinfo(np.int64).max
_LONG_GAP_NS = 100_000
_DATA, _OTHER, _HOST, _BETWEEN, _BETWEEN_HOST = range(5)  # what a moment is put down to


def idle_table(timeline: RunTimeline) -> pl.DataFrame:
    """One row a device (`columns.IDLE`), by name, of the whole run."""
    commands, calls, pipelines = timeline.commands, timeline.calls, timeline.pipelines
    of_pipeline = pipelines.code_of(timeline.run.calls) if len(pipelines.numbers) else None
    untraced = ~timeline.run.calls["ops_traced"].to_numpy()
    host_work = _cover(commands, np.flatnonzero((commands.call < 0) & (commands.category == HOST)))
    pipeline_calls = _pipeline_calls(timeline)
    rows = []
    for number, name in enumerate(calls.devices):
        placed, own = calls.placed[:, number], calls.uses[:, number]
        unknown = (untraced & placed).any() if placed.any() else untraced.any()
        if unknown or name not in commands.devices:
            continue
        device = _Device.of(name, commands, calls, own)
        if device is not None:
            others = _cover_of_calls(calls, _beside(own, of_pipeline))
            waits = device.waits(others, host_work)
            gaps = device.long_gaps(pipeline_calls)
            rows.append((name, *device.row(waits, timeline.launches), *gaps))
    return pl.DataFrame(rows, schema=schema(IDLE), orient="row")


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """The waiting time of a device between `moments` (sorted, int64 [m + 1]), by what each stretch
    is put down to: `reason` and `length`, int64 [m]."""

    moments: Times
    reason: Codes
    length: Times

    def total(self, *reasons: int) -> int:
        return int(self.length[np.isin(self.reason, reasons)].sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Device:
    """One device: its computing commands in order of start, and when else was what."""

    work: InOrder
    transfers: Cover
    elsewhere: Cover
    under_way: Cover
    first: int
    last: int

    @classmethod
    def of(
        cls, name: str, commands: CommandArrays, calls: CallExtents, own: _Flags
    ) -> _Device | None:
        """The device of that name with its `own` calls; None where it only hosts."""
        here = commands.device == commands.devices.index(name)
        does = np.where(here, _DOES[commands.category], np.int8(-1))
        moved = np.flatnonzero(does == _TRANSFERS)
        work = InOrder.of(commands.start, commands.end, does == _COMPUTES)
        if not len(work) and not len(moved):
            return None
        placed = calls.placed[:, calls.devices.index(name)]
        first = commands.start.min(initial=_LAST, where=here)
        last = commands.end.max(initial=-_LAST, where=here)
        waited = _cover(commands, np.flatnonzero(does == _SYNCS))
        several = own & (calls.uses.sum(axis=1) > 1)
        return cls(
            work=work,
            transfers=_cover(commands, moved),
            elsewhere=_joined(waited, _elsewhere(commands, name, several)),
            under_way=_cover_of_calls(calls, own),
            first=int(calls.start[placed].min(initial=first)),
            last=int(calls.end[placed].max(initial=last)),
        )

    def waits(self, others: Cover, host_work: Cover) -> _Waits:
        """Its waiting time; `others` are calls of other devices, `host_work` is of no call."""
        first, last = self.first, self.last
        layers = (
            (_DATA, self.transfers),
            (_OTHER, self.elsewhere.clipped(first, last)),
            (_HOST, self.under_way.clipped(first, last)),
            (_OTHER, others.clipped(first, last)),
            (_BETWEEN_HOST, host_work.clipped(first, last)),
        )
        borders = [np.array([first, last])]
        borders += [times for _, cover in layers for times in (cover.start, cover.end)]
        moments = np.concatenate(borders)
        moments.sort(kind="stable")  # of sorted runs; np.unique would hash them
        moments = moments[np.append(True, moments[1:] > moments[:-1])]
        computed = covered_before(self.work, moments)
        reason = np.full(len(moments) - 1, _BETWEEN, dtype=np.int8)
        for value, cover in reversed(layers):
            reason[cover.holds(moments[:-1])] = value
        return _Waits(moments, reason, np.diff(moments) - np.diff(computed))

    def row(self, waits: _Waits, launches: Launches) -> tuple[int | float | None, ...]:
        """The values of `columns.IDLE` from `span_ns` to `overlap`."""
        span, waiting = self.last - self.first, int(waits.length.sum())
        data, moved = waits.total(_DATA), self.transfers.length
        queued = self._queued(waits, launches)
        return (
            span,
            span - waiting,
            waiting,
            data,
            waits.total(_OTHER),
            waits.total(_HOST) - queued,
            queued,
            waits.total(_BETWEEN, _BETWEEN_HOST),
            waits.total(_BETWEEN_HOST),
            moved,
            moved - data,
            (moved - data) / moved if moved else None,
        )

    def long_gaps(self, inside: Cover) -> tuple[int, int]:
        """How many gaps between its computing commands have over 100 µs `inside`, and their sum."""
        count, total = 0, 0
        until = int(self.work.starts(slice(0, 1))[0]) if len(self.work) else 0
        for places in batches(len(self.work)):
            begin, reach = self.work.starts(places), np.maximum.accumulate(self.work.ends(places))
            np.maximum(reach, until, out=reach)
            before = np.append(until, reach[:-1])
            until = int(reach[-1])
            at = np.flatnonzero(begin - before > _LONG_GAP_NS)
            length = inside.before(begin[at]) - inside.before(before[at])
            long = length[length > _LONG_GAP_NS]
            count += len(long)
            total += int(long.sum())
        return count, total

    def _queued(self, waits: _Waits, launches: Launches) -> int:
        """Of the time put down to the host, that in which the command behind had been launched."""
        if not len(launches) or not len(self.work):
            return 0
        blamed = waits.reason == _HOST
        host = Cover.of(waits.moments[:-1][blamed], waits.moments[1:][blamed])
        queued, until = 0, self.first
        for places in batches(len(self.work)):
            begin, reach = self.work.starts(places), np.maximum.accumulate(self.work.ends(places))
            np.maximum(reach, until, out=reach)
            before = np.append(until, reach[:-1])
            until = int(reach[-1])
            returned = self.work.taken(launches.returned, places)
            at = np.flatnonzero((begin > before) & (returned > NOT_LAUNCHED) & (returned < begin))
            since = np.maximum(returned[at], before[at])
            queued += int((host.before(begin[at]) - host.before(since)).sum())
        return queued


def _elsewhere(commands: CommandArrays, name: str, several: _Flags) -> Cover:
    """When another device computed or transferred for one of these calls."""
    if not several.any():
        return _cover(commands, np.zeros(0, dtype=np.int64))
    kept = np.append(several, False)[commands.call]  # a call of -1 takes the last
    kept &= _DOES[commands.category] < _SYNCS
    kept &= commands.device != commands.devices.index(name)
    return _cover(commands, np.flatnonzero(kept))


def _beside(own: _Flags, of_pipeline: Codes | None) -> _Flags:
    """The calls that are not a device's `own`, of the pipeline calls in which it has some: of the
    run, where that has no pipeline calls. bool [n]."""
    if of_pipeline is None:
        return ~own
    found: _Flags = np.isin(of_pipeline, of_pipeline[own & (of_pipeline >= 0)]) & ~own
    return found


def _pipeline_calls(timeline: RunTimeline) -> Cover:
    """When pipeline calls were under way: always, where the run has no such spans."""
    spans = timeline.pipelines.spans
    if spans.is_empty():
        return Cover(np.array([-_LAST // 2]), np.array([_LAST // 2]))
    return Cover.of(spans["start_ns"].to_numpy(), ends(spans))


def _cover(commands: CommandArrays, rows: Times) -> Cover:
    return Cover.of(commands.start[rows], commands.end[rows])


def _cover_of_calls(calls: CallExtents, which: _Flags) -> Cover:
    return Cover.of(calls.start[which], calls.done[which])


def _joined(one: Cover, other: Cover) -> Cover:
    return Cover.of(np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end)))

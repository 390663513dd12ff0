"""One file that holds several runtime calls, divided into them.

From version 0.12 the names of commands say of which runtime instance (`i`) and in which of its
calls (`W`) they ran, so an aggregate without its files is as many calls as there are pairs of the
two. Host commands carry no `W`, and some tracks no such names: they go to the call in which they
lie, between two calls to the one that their sequence number continues, else to the one that
follows, since inputs are prepared on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profiler.drop_reasons import DropReason
from profiler.events import Drop, DropKind
from profiler.grammars.rbln import UNNAMED, parse_name
from profiler.importers.rbln.trace import RblnTrace
from profiler.importers.rbln.tracks import tracks_of
from profiler.notes import Note
from profiler.trace.columns import Int64s

__all__ = ["Streams", "divide"]


@dataclass(frozen=True, slots=True)
class Streams:
    """The runtime calls of one file, each with its instance and workload, `UNNAMED` where nothing
    tells. `numbered`: the workloads count all of them in their order. Where they are not
    `in_order`, nothing tells in which they were made, because no clock is common to them."""

    traces: tuple[RblnTrace, ...]
    keys: tuple[tuple[int, int], ...]
    numbered: bool
    in_order: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """The named commands of one runtime call on one device."""

    number: int
    instance: int
    start_ns: int
    end_ns: int
    first: int  # sequence numbers
    last: int


@dataclass(slots=True, eq=False)
class _Named:
    """What the name of each slice says."""

    instance: Int64s
    workload: Int64s
    sequence: Int64s

    @classmethod
    def of(cls, trace: RblnTrace) -> _Named:
        table = np.full((3, len(trace.strings)), UNNAMED, dtype=np.int64)
        for code in np.unique(trace.name).tolist():
            command = parse_name(trace.strings[code])
            if command is not None:
                table[:, code] = (command.instance, command.workload, command.sequence)
        return cls(*table[:, trace.name])


def divide(trace: RblnTrace) -> Streams | None:
    """The runtime calls that `trace` holds; None where its names tell of no more than one."""
    named = _Named.of(trace)
    known = np.flatnonzero(named.workload != UNNAMED)
    pairs = np.stack((named.instance[known], named.workload[known]), axis=1)
    keys, codes = np.unique(pairs, axis=0, return_inverse=True)
    if len(keys) < 2:
        return None
    call = np.full(len(trace), -1, dtype=np.int64)
    call[known] = codes.reshape(-1)
    device = _devices(trace)
    by_device = [
        [*_calls(trace, named, keys, call, device == code)] for code in range(device.max() + 1)
    ]
    _place_others(trace, named, call, device, by_device)
    order, numbered, in_order = _order(keys, by_device)
    parts = [_part(trace, call == number) for number in order]
    told = [(int(keys[number][0]), int(keys[number][1])) for number in order]
    if (call < 0).any():  # of an instance, or on a device, of which no call is named
        parts.append(_part(trace, call < 0))
        told.append((UNNAMED, UNNAMED))
        in_order = False
    between = len(trace.flows) - sum(len(part.flows) for part in parts)
    drops = (*trace.drops, *_between(trace.file, between))
    return Streams((replace(parts[0], drops=drops), *parts[1:]), tuple(told), numbered, in_order)


def _part(trace: RblnTrace, chosen: npt.NDArray[np.bool_]) -> RblnTrace:
    """The chosen slices, with the rows that they use and the flows among them; no drops."""
    index = np.flatnonzero(chosen)
    rows, track = np.unique(trace.track[index], return_inverse=True)
    position = np.full(len(trace), -1, dtype=np.int64)
    position[index] = np.arange(len(index))
    flows = position[trace.flows] if len(trace.flows) else trace.flows
    return replace(
        trace,
        rows=tuple(trace.rows[row] for row in rows.tolist()),
        track=track.reshape(-1).astype(np.int32),
        name=trace.name[index],
        arguments=trace.arguments[index],
        start_ns=trace.start_ns[index],
        duration_ns=trace.duration_ns[index],
        flows=flows[(flows >= 0).all(axis=1)] if len(flows) else flows,
        drops=(),
    )


def _devices(trace: RblnTrace) -> Int64s:
    """For each slice the number of its device among those of the file."""
    names = [track.device for track in tracks_of([trace.rows])[0]]
    distinct = list(dict.fromkeys(names))
    return np.array([distinct.index(name) for name in names], dtype=np.int64)[trace.track]


def _calls(
    trace: RblnTrace,
    named: _Named,
    keys: Int64s,
    call: Int64s,
    here: npt.NDArray[np.bool_],
) -> Iterator[_Call]:
    """The calls on one device, in order of their first command there."""
    rows = np.flatnonzero(here & (call >= 0))
    rows = rows[np.lexsort((trace.start_ns[rows], call[rows]))]
    if not len(rows):
        return
    cuts = np.flatnonzero(np.diff(call[rows])) + 1
    begins = np.concatenate(([0], cuts))
    numbers = call[rows[begins]]
    starts = trace.start_ns[rows[begins]]
    ends = np.maximum.reduceat((trace.start_ns + np.maximum(trace.duration_ns, 0))[rows], begins)
    first = np.minimum.reduceat(named.sequence[rows], begins)
    last = np.maximum.reduceat(named.sequence[rows], begins)
    for at in np.argsort(starts, kind="stable").tolist():
        number = int(numbers[at])
        span = (int(starts[at]), int(ends[at]))
        yield _Call(number, int(keys[number][0]), *span, int(first[at]), int(last[at]))


def _place_others(
    trace: RblnTrace,
    named: _Named,
    call: Int64s,
    device: Int64s,
    by_device: Sequence[Sequence[_Call]],
) -> None:
    """Give the slices without a workload to calls of their instance on their device; those of no
    instance to any there."""
    others = np.flatnonzero(call < 0)
    groups = np.stack((device[others], named.instance[others]), axis=1)
    for where, instance in np.unique(groups, axis=0).tolist():
        able = [one for one in by_device[where] if instance in (UNNAMED, one.instance)]
        if not able:
            continue
        rows = others[(groups == (where, instance)).all(axis=1)]
        starts = np.array([one.start_ns for one in able])
        before = np.searchsorted(starts, trace.start_ns[rows], side="right") - 1
        for row, at in zip(rows.tolist(), before.tolist(), strict=True):
            chosen = _chosen(able, at, int(trace.start_ns[row]), int(named.sequence[row]))
            call[row] = chosen.number


def _chosen(calls: Sequence[_Call], at: int, start_ns: int, sequence: int) -> _Call:
    """Of calls in order, `at` the last that begins no later, the one that a slice is of."""
    if at < 0 or at + 1 == len(calls) or start_ns < calls[at].end_ns:
        return calls[max(at, 0)]
    before, after = calls[at], calls[at + 1]
    return before if sequence > before.last and sequence > after.first else after


def _order(keys: Int64s, by_device: Sequence[Sequence[_Call]]) -> tuple[list[int], bool, bool]:
    """The calls in order, whether their workloads number them, and whether the order is known.

    Workloads that differ in all instances, and rise on each device, count the calls of all of them
    (inferred). Else the times of one device tell the order; those of several do not.
    """
    instances, workloads = keys[:, 0].tolist(), keys[:, 1].tolist()
    rising = all(
        workloads[before.number] < workloads[after.number]
        for calls in by_device
        for before, after in pairwise(calls)
    )
    if len({*workloads}) == len(workloads) and (rising or len({*instances}) == 1):
        return sorted(range(len(workloads)), key=workloads.__getitem__), True, True
    first: dict[int, int] = {}
    for calls in by_device:
        for one in calls:  # behind the first call of its device
            first.setdefault(one.number, one.start_ns - calls[0].start_ns)
    devices = sum(bool(calls) for calls in by_device)
    return sorted(first, key=first.__getitem__), False, devices == 1


def _between(file: str, count: int) -> Iterator[Drop]:
    if count:
        detail = Note.of(DropReason.FLOWS_BETWEEN_CALLS)
        yield Drop(DropKind.DROPPED_EVENTS, file, count, "flows", detail)

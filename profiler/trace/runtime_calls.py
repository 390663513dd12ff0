"""Work of devices, and the runtime calls that launched it or waited for it, as columns.

    launches, syncs = host_calls(names, name, start, end, process, thread, correlation)

Importers pass these columns to the check of a recording (`trace/health`), whose rules work on
`LaunchedRows`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import LARGEST, HealthAction, HealthNote, HealthRule

Bools = npt.NDArray[np.bool_]
_Integers = npt.NDArray[np.signedinteger[Any]]

NO_END = -(1 << 62)
"""The end of a row that began and, as far as is recorded, never ended."""

NEVER = 1 << 62
"""Later than all times."""

_FAR = 10  # times as far as the rest takes

FLOOR_NS, AFTER_SYNC_NS = 1_000, 20_000
"""Less is rounding, as in files of µs; healthy work ends at most 8.1 µs after a synchronization."""

KERNEL, GRAPH, OTHER = range(3)
"""What a launch launches: only a kernel or a graph must have work, a copy may be of no bytes."""

LAUNCH = re.compile(r"(?:cuda|cu|hip)(?:(?:Ext|Module)*Launch(?:Cooperative)?Kernel|(GraphLaunch))")
"""Names of calls that must have work; group 1 is that of a graph's."""

_EXTENDED = re.compile("(?:cuda|cu)LaunchKernelEx")  # with attributes, which may make it dependent
_DEVICE_SYNC = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize")
_CAPTURES = re.compile(r"\w*Stream(?:(Begin)|End)Capture")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """n kernels, copies and sets of devices. `device`, `stream` and `kernel` index the names;
    `stream` differs by device, process and context, `kernel` by grid if that is known, and is -1
    for copies and sets. `process` is -1 if it is not known, `correlation` is then not positive, or
    unique in the file. `exempt` rows may overlap: no queue of a device has them. The `end` of what
    never ended is `NO_END`, as is the `start` of what has none."""

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


def timeless(start: Int64s, end: Int64s) -> Bools:
    """Which events have no time: they start at or before 0 while all others start far later."""
    zero: Bools = start <= 0
    if not zero.any():
        return zero
    begun = int(start[zero.argmin()])  # any of the others
    if 0 < begun <= _FAR * (int(start.max()) - begun):
        return np.zeros_like(zero)
    first = int(np.where(zero, NEVER, start).min())
    last = int(np.where(zero, 0, end).max())
    if not last or first <= _FAR * (last - first):
        zero[:] = False
    return zero


def elsewhere(counts: Mapping[tuple[str, str], int], total: int) -> Iterator[HealthNote]:
    """Notes of work, of `total` rows, that names another device than it is listed under; how much
    by both."""
    for devices, count in counts.items():
        rule, device, share = HealthRule.ELSEWHERE, ", ".join(devices), count / total
        yield HealthNote(rule=rule, device=device, count=count, total=total, share=share)


def host_calls(
    names: Sequence[str],
    name: _Integers,
    start: Int64s,
    end: Int64s,
    process: Int64s,
    thread: Int64s,
    correlation: Int64s,
) -> tuple[HostLaunches, DeviceSyncs]:
    """Return the launches and synchronizations among calls of a runtime; `name` indexes `names`."""
    launch, wait, extended = (
        [pattern.match(text) for text in names] for pattern in (LAUNCH, _DEVICE_SYNC, _EXTENDED)
    )
    kinds = [OTHER if one is None else GRAPH if one[1] else KERNEL for one in launch]
    waiting, early = ([one is not None for one in found] for found in (wait, extended))
    kind, waits, dependent = (
        np.array([*values, 0], dtype=np.int8)[name] for values in (kinds, waiting, early)
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
        captured=captured(names, name, start, thread)[numbered],
        dependent=dependent[numbered] > 0,
    )
    nowhere = np.full(len(waited), -1, dtype=np.int64)
    return calls, DeviceSyncs(start[waited], end[waited], process[waited], nowhere)


def captured(names: Sequence[str], name: _Integers, start: Int64s, thread: Int64s) -> Bools:
    """Which calls lie between start and end of a capture on their thread; `names` has the name of
    each code in `name`."""
    capture = [_CAPTURES.match(text) for text in names]
    marks = [0 if one is None else 1 if one[1] else -1 for one in capture]
    mark = np.array([*marks, 0], dtype=np.int8)[name]
    found = np.zeros(len(mark), dtype=np.bool_)
    if not mark.any():
        return found
    order = np.lexsort((start, thread))
    last = np.maximum.accumulate(np.where(mark[order] != 0, np.arange(len(order)), -1))
    inside = (last >= 0) & (mark[order][last] > 0) & (thread[order][last] == thread[order])
    found[order] = inside
    return found


def first_return(syncs: DeviceSyncs, of: Bools, launched: Int64s) -> Int64s:
    """When the first of some synchronizations returned that started after each launch ended."""
    order = np.argsort(syncs.start[of], kind="stable")
    returned = np.minimum.accumulate(syncs.end[of][order][::-1])[::-1]
    place = np.searchsorted(syncs.start[of][order], launched)
    return np.append(returned, NEVER)[place]


# --- Launch numbers, which are unique in a process and begin again after 32 bits.


_CORRELATION_BITS = 40
_NUMBERS = 1 << 32  # of launches, before they begin again
_NEAR_NUMBERS = 4  # times as many as there are launches and rows


def unwrapped(rows: DeviceRows, launches: HostLaunches) -> tuple[DeviceRows, HostLaunches]:
    """The recording with launch numbers that go on after their 32 bits began again."""
    numbers = launches.correlation
    first, last = int(numbers.min(initial=_NUMBERS)), int(numbers.max(initial=0))
    if last - first < _NUMBERS // 2 or last >= _NUMBERS:
        return rows, launches

    def beyond(numbers: Int64s) -> Int64s:
        return np.where((numbers > 0) & (numbers < _NUMBERS // 2), numbers + _NUMBERS, numbers)

    return (
        replace(rows, correlation=beyond(rows.correlation)),
        replace(launches, correlation=beyond(numbers)),
    )


def launch_keys(process: Int64s | int, correlation: Int64s) -> Int64s:
    """A number for each pair of process and launch number, -1 for none."""
    mask = (1 << _CORRELATION_BITS) - 1
    return np.where(correlation > 0, (process << _CORRELATION_BITS) | (correlation & mask), -1)


class LaunchesByKey:
    """Launches sorted by key and start; `number` is the number of each launch's key."""

    def __init__(self, keys: Int64s, start: Int64s) -> None:
        self.order = np.lexsort((start, keys))
        self.keys, self.start = keys[self.order], start[self.order]
        self.again = repeats(self.keys)
        self.number = np.zeros_like(keys)
        self.number[self.order[1:]] = np.cumsum(~self.again)

    def nearest(self, wanted: Int64s, until: Int64s) -> Int64s:
        """The last launch with each key that began by a time, the first if none did; -1 for
        none with the key. Only a number that is used again has several."""
        ahead, most = int(self.keys[0]) - 1, int(self.keys[-1] - self.keys[0]) + 2
        near = ahead >= 0 and most <= _NEAR_NUMBERS * (len(self.keys) + len(wanted))
        if near and not self.again.any():  # a table is quicker than a search
            launch = np.full(most + 1, -1)
            launch[self.keys - ahead] = self.order
            return launch[np.clip(wanted - ahead, 0, most)]
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        there = (self.keys[place] == wanted) & (wanted >= 0)
        for row in np.flatnonzero(np.append(self.again, False)[place] & there).tolist():
            end = np.searchsorted(self.keys, wanted[row], side="right")
            begun = self.start[place[row] : end] <= until[row]
            place[row] += max(int(begun.sum()) - 1, 0)
        return np.where(there, self.order[place], -1)


def shared_numbers(launches: HostLaunches) -> tuple[int, Int64s]:
    """How many launch numbers several processes use, and which processes there are."""
    if not np.ptp(launches.process):
        return 0, launches.process[:1]
    known = launches.correlation > 0
    processes = np.unique(launches.process[known])
    pairs = np.unique(launch_keys(launches.process[known], launches.correlation[known]))
    numbers = pairs & ((1 << _CORRELATION_BITS) - 1)
    return len(numbers) - len(np.unique(numbers)), processes


def once(launches: HostLaunches) -> HostLaunches:
    """The launches without duplicates: a file with duplicate work may have duplicate launches."""
    columns = (launches.correlation, launches.start, launches.end, launches.kind)
    order = np.lexsort(columns)
    again = repeats(*(column[order] for column in columns))
    kept = np.sort(order[np.append(True, ~again)[: len(order)]])
    return HostLaunches(*(getattr(launches, one.name)[kept] for one in fields(launches)))


def repeats(first: _Integers, *others: _Integers) -> Bools:
    """Whether each row but the first has the values of the one before it in all of the columns."""
    found: Bools = first[1:] == first[:-1]
    for column in others:
        found &= column[1:] == column[:-1]
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


# --- The launch of each row, and the rows' times and notes while rules correct and reject them.


MOST_PROCESSES = 64  # that are distinguished
AGREE = 0.99
_FALLING = 0.05  # of the launches: so few may have wrong times
LEAST_PEERS = 3  # their median is the usual length of a kernel
NONE = np.zeros(0, dtype=np.int64)


class LaunchedRows:
    """The rows of a recording, the launch of each, and what the check's rules found so far: the
    corrected times, which rows are kept, and the notes."""

    def __init__(self, rows: DeviceRows, launches: HostLaunches, syncs: DeviceSyncs) -> None:
        rows, launches = unwrapped(rows, launches)
        self.rows, self.launches, self.syncs = rows, launches, syncs
        self.start, self.end = rows.start.copy(), rows.end.copy()
        self.kept = np.ones(len(rows), dtype=np.bool_)
        self.notes: list[HealthNote] = []
        self.rekeyed = False
        # rows in the order of their queues, used by all rules
        self.order = np.lexsort((rows.end, rows.start, rows.stream))
        self.process, self.launch = rows.process, np.full(len(rows), -1, dtype=np.int64)

    def _join(self) -> None:
        launches = self.launches
        if not len(launches):
            return
        known = bool((self.rows.process >= 0).any())
        shared, processes = (0, launches.process[:0]) if known else shared_numbers(launches)
        process = launches.process if known or shared else 0
        self.by_key = LaunchesByKey(launch_keys(process, launches.correlation), launches.start)
        if known:
            self.launch = self._launches_of(self.rows.process)
        elif shared:
            self._pair(shared, processes[:MOST_PROCESSES])
        else:
            self.launch = self._launches_of(0)
            self.process = np.append(launches.process, -1)[self.launch]
        self._again()
        if not self._reused():
            self._out_of_order()
        del self.by_key.keys, self.by_key.start  # not looked up again

    def _again(self) -> None:
        """Reject the second of two equal kernels of one launch: two recorders wrote it. If there
        are more than two, the launch number is wrong instead."""
        rows, launches = self.rows, self.launches
        ran = np.bincount(self.launch + 1, minlength=len(launches) + 1)
        if not (ran[1:] == 2).any():
            return
        keys = launch_keys(launches.process, launches.correlation)
        _, place, number = np.unique(keys, return_inverse=True, return_counts=True)
        of_kernel = (launches.kind == KERNEL) & (number[place.reshape(-1)] == 1)
        of_kernel = np.append(of_kernel, False)[self.launch]
        of_kernel &= (ran == 2)[self.launch + 1]
        some = np.flatnonzero(self.kept & of_kernel & (rows.kernel >= 0) & ~rows.exempt)
        some = some[np.lexsort((rows.start[some], rows.stream[some], self.launch[some]))]
        same = repeats(self.launch[some], rows.stream[some], rows.kernel[some])
        same &= np.abs(np.diff(rows.end[some] - rows.start[some])) <= FLOOR_NS
        self._set_aside(HealthRule.TWICE, self._marked(some[1:][same]))

    def _launches_of(self, process: Int64s | int, rows: Int64s | slice = slice(None)) -> Int64s:
        wanted = launch_keys(process, self.rows.correlation[rows])
        return self.by_key.nearest(wanted, self.rows.start[rows] + FLOOR_NS)

    def _pair(self, shared: int, processes: Int64s) -> None:
        """Assign each device to the process whose launches fit its work: no work starts before its
        launch or outlives a synchronization. Of several, take the one with the shortest latency."""
        rows, of = self.rows, dict(self._by_device(self.kept))
        process, launch = np.full((2, len(rows)), -1, dtype=np.int64)
        paired, alone = True, len(processes) >= len(of)  # one device per process?
        fits = {
            device: sorted(self._fit(here, one) for one in processes.tolist())
            for device, here in [*of.items()][:MOST_PROCESSES]
        }
        while fits:  # first the device for which the choice matters most
            device = max(fits, key=lambda one: fits[one][:2][-1][0] - fits[one][0][0])
            wrong, _, best = fits.pop(device)[0]
            here = of[device]
            process[here], launch[here] = best, self._launches_of(best, here)
            paired &= wrong <= (1 - AGREE) * len(here) + 1
            for others in fits.values() if alone else ():
                others[:] = [fit for fit in others if fit[2] != best]
        if paired:
            self.process, self.launch, self.rekeyed = process, launch, True
        action = HealthAction.REKEYED if paired else HealthAction.NOTED
        self._note(HealthRule.SHARED_NUMBERS, -1, count=shared, action=action, total=len(processes))

    def _fit(self, here: Int64s, process: int) -> tuple[int, float, int]:
        """How many of a device's rows contradict the launches of `process` (rows launched before
        all of them do not), their mean latency, and the process."""
        launch = self._launches_of(process, here)
        known = launch >= 0
        numbers = self.launches.correlation[self.launches.process == process]
        lost = ~known & (self.rows.correlation[here] >= int(numbers.min()))
        latency = self.rows.start[here][known] - self.launches.start[launch[known]]
        of = self.syncs.process == process
        until = first_return(self.syncs, of, self.launches.end[launch[known]])
        wrong = (latency < -FLOOR_NS) | (self.rows.end[here][known] > until + AFTER_SYNC_NS)
        mean = float(latency.mean()) if len(latency) else float(NEVER)
        return int(wrong.sum()) + int(lost.sum()), mean, process

    def _reused(self) -> bool:
        """Note launches that use the number of an earlier launch, and return whether any does.
        Nested calls share theirs legally."""
        launches, order = self.launches, self.by_key.order
        if not self.by_key.again.any():
            return False
        work = order[((launches.kind != OTHER) & (launches.correlation > 0))[order]]
        same = self.by_key.number[work[1:]] == self.by_key.number[work[:-1]]
        behind = launches.start[work[1:]] >= launches.end[work[:-1]]
        behind |= launches.end[work[1:]] > launches.end[work[:-1]] + FLOOR_NS
        again, total = int((same & behind).sum()), len(work)
        if again:
            share = again / total
            self._note(HealthRule.REUSED_NUMBERS, -1, count=again, total=total, share=share)
        return again > 0

    def _out_of_order(self) -> None:
        """Note processes whose launches before some moment all have higher numbers than those after
        it: a clock was set back. Numbers that only mix are those of a runtime with several queues
        (MTIA)."""
        launches = self.launches
        order = np.argsort(launches.start, kind="stable")
        number = launches.correlation[order]
        if not (number[1:] < number[:-1]).any():
            return
        for process in np.unique(launches.process)[:MOST_PROCESSES].tolist():
            number = launches.correlation[order[launches.process[order] == process]]
            after = np.maximum.accumulate(number[::-1])[::-1]
            split = np.flatnonzero(np.minimum.accumulate(number)[:-1] > after[1:]) + 1
            total = len(number)
            count = int(np.minimum(split, total - split).max(initial=0))
            if count > _FALLING * total:
                on = self.rows.device[self.process == process]
                names = ", ".join(self.rows.devices[one] for one in np.unique(on).tolist())
                more: dict[str, Any] = {"count": count, "total": total, "share": count / total}
                self._note(HealthRule.OUT_OF_ORDER, -1, **more, device_names=names)

    def _note(
        self,
        rule: HealthRule,
        device: int,
        rows: Int64s = NONE,
        excess_ns: int = 0,
        action: HealthAction = HealthAction.NOTED,
        **more: Any,
    ) -> None:
        streams = np.unique(self.rows.stream[rows]).tolist()
        note = HealthNote(
            rule=rule,
            device=self.rows.devices[device] if device >= 0 else more.pop("device_names", ""),
            stream=self.rows.streams[streams[0]] if len(streams) == 1 else "",
            count=more.pop("count", len(rows)),
            excess_ns=min(excess_ns, LARGEST),
            worst_ns=min(more.pop("worst_ns", 0), LARGEST),
            action=action,
            **more,
        )
        self.notes.append(note)

    def _name(self, row: int) -> str:
        kernel = int(self.rows.kernel[row])
        return self.rows.kernels[kernel][:200] if kernel >= 0 else ""

    def _worst(self, row: int, usual_ns: int | None = None) -> dict[str, Any]:
        if usual_ns is None:
            usual_ns = int(self._medians(self.rows.kernel[[row]], self.kept)[0])
        length = int(self.rows.end[row] - self.rows.start[row])
        return {"worst": self._name(row), "worst_ns": length, "usual_ns": usual_ns}

    def _medians(self, kernels: Int64s, among: Bools, least: int = LEAST_PEERS) -> Int64s:
        """The median length of each kernel, 0 if `among` has fewer than `least` rows of it."""
        wanted = np.zeros(len(self.rows.kernels) + 1, dtype=np.bool_)
        wanted[kernels] = True
        wanted[-1] = False  # copies and sets
        rows = np.flatnonzero(among & self.kept & wanted[self.rows.kernel])
        kernel, length = self.rows.kernel[rows], self.end[rows] - self.start[rows]
        order = np.lexsort((length, kernel))
        number = np.bincount(kernel, minlength=len(wanted))
        first = np.cumsum(number) - number
        ordered = np.append(length[order], 0)
        low, high = ordered[first + (number - 1) // 2], ordered[first + number // 2]
        found: Int64s = np.where(number >= least, (low + high) // 2, 0)
        return found[kernels]

    def _by_device(self, found: Bools) -> Iterator[tuple[int, Int64s]]:
        """Yield each device of the marked rows with these rows."""
        rows = np.flatnonzero(found)
        on = self.rows.device[rows]
        for device in np.flatnonzero(np.bincount(on)).tolist():
            yield device, rows[on == device]

    def _set_aside(self, rule: HealthRule, found: Bools, **more: Any) -> None:
        """Reject rows and note how many per device."""
        if not found.any():
            return
        totals = np.bincount(self.rows.device, minlength=len(self.rows.devices))
        for device, some in self._by_device(found):
            length = np.maximum(self.rows.end[some] - self.rows.start[some], 0)
            total = int(totals[device])
            note = {"total": total, "share": len(some) / total, "worst": self._name(int(some[0]))}
            self._note(rule, device, some, total_ns(length), HealthAction.SET_ASIDE, **note | more)
        self.kept &= ~found

    def _marked(self, rows: Int64s) -> Bools:
        """A bool per row: whether it is in `rows`."""
        found = np.zeros(len(self.rows), dtype=np.bool_)
        found[rows] = True
        return found


def total_ns(times: Int64s) -> int:
    """The sum of times, limited to what a manifest can hold: a damaged file's may overflow."""
    return int(min(float(times.sum(dtype=np.float64)), LARGEST))


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


# --- Calls of a runtime that are not in the recording, or take far longer than any runtime needs.


_LEAST_GAP, _LEAST_PACE = 0.05, 0.5  # of a process's time, of its usual rate of launch numbers
_LEAST_NUMBERS, _LEAST_LOST, _LAUNCHES = 100, 20, 50
_LONG_LAUNCH_NS, _QUICKEST = 250_000, 0.05  # healthy recordings are below 10 µs


def missing_parts(launches: HostLaunches, worked: Int64s) -> Iterator[HealthNote]:
    """Notes of times without any event during which the launch numbers go on as elsewhere: calls
    were made and are not in the file. `worked` is when devices started work. If the program only
    did something else, the numbers would hardly advance. Recorders skip many calls (a ROCm trace of
    XLA has 3 % of them), so enough must be missing that some would have been recorded."""
    for process in np.unique(launches.process).tolist():
        mine = np.flatnonzero(launches.process == process)
        if len(mine) < _LAUNCHES:
            continue
        mine = mine[np.argsort(launches.start[mine], kind="stable")]
        start, end = launches.start[mine], np.maximum.accumulate(launches.end[mine])
        span, idle = int(end[-1] - start[0]), start[1:] - end[:-1]
        found = idle > _LEAST_GAP * span
        if not found.any():
            continue
        number = launches.correlation[mine]
        numbers, more = int(number.max() - number.min()), np.diff(number)
        pace = numbers / max(span, 1)
        found &= more > _LEAST_NUMBERS
        found &= more > _LEAST_PACE * pace * idle
        found &= more * len(mine) > _LEAST_LOST * numbers
        found &= number[1:] > np.maximum.accumulate(number)[:-1]
        for at in np.flatnonzero(found).tolist():
            begin, until = int(end[at]), int(start[at + 1])
            middle = (begin + until) // 2
            if not ((worked >= middle) & (worked < until)).any():
                gap, count = until - begin, int(more[at]) - 1
                of: dict[str, Any] = {"count": count, "total": numbers, "share": gap / span}
                rule = HealthRule.MISSING_PART
                yield HealthNote(rule=rule, excess_ns=min(gap, LARGEST), **of)


def slow_launches(launches: HostLaunches) -> Iterator[HealthNote]:
    """A note of launches if nearly all take far longer on the host than any runtime needs: a full
    queue delays some, a wrong time unit all."""
    length = (launches.end - launches.start)[(launches.kind == KERNEL) & ~launches.captured]
    if len(length) < _LAUNCHES:
        return
    place = int(_QUICKEST * (len(length) - 1))
    if int((length <= _LONG_LAUNCH_NS).sum()) <= place:
        quick = int(np.partition(length, place)[place])
        of: dict[str, Any] = {"count": len(length), "total": len(length), "share": 1.0}
        yield HealthNote(rule=HealthRule.TOO_LONG, usual_ns=quick, **of)

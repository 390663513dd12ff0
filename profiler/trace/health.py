"""Check the events of a recording against each other: correct times, reject rows, make notes.

    checked = check(rows, launches, syncs)

An importer calls this with the columns that it read, before it makes calls of them. Each rule looks
for events that no device or runtime can produce; a note says how many there were and what was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiler.trace.columns import Int64s
from profiler.trace.manifest_fields import (
    EMPTY_NS,
    LARGEST,
    HealthAction,
    HealthNote,
    HealthRule,
)
from profiler.trace.runtime_calls import (
    AFTER_SYNC_NS,
    AGREE,
    FLOOR_NS,
    GRAPH,
    LEAST_PEERS,
    MOST_PROCESSES,
    NEVER,
    NO_END,
    NONE,
    OTHER,
    Bools,
    DeviceRows,
    DeviceSyncs,
    HostLaunches,
    LaunchedRows,
    first_return,
    incomplete_replays,
    latency_slope,
    missing_parts,
    once,
    repeats,
    slow_launches,
    timeless,
    total_ns,
)

_MS = 1_000_000
_FAR_NS = 100_000  # healthy recordings are below 13 µs
_LEAST_SHARE = 0.001  # of device time; healthy recordings are below 0.000023
_OVERLAPPING = 0.10  # of a device's rows: more have one cause, such as dependent launches
_IN_GRAPH_NS, _IN_GRAPH_TIMES = _MS, 10  # branches of a graph may overlap
_BEYOND_USUAL = 10  # times as long as its peers: hardly any healthy row is
_BEYOND_NS, _BEYOND_TIMES, _BEYOND_PEERS = _MS, 50, 5
_USUAL_LATENCY_NS = 8_000  # from launch to start with an empty queue: 2 to 25 µs
_EXACT_NS = 25_000
_LONGEST_LEAST_NS = 50_000  # the least latency of healthy recordings is 2 to 45 µs
_TIMES = 10  # times the rest: a gap between two recordings, a start without a time
_NEAR_NS = 15_000
_FEW = 0.01  # of a device's rows
_MOST_LENGTHLESS = 0.25  # of its kernels, on a clock of µs; healthy recordings are below 0.08
_SHORTEST_NS = 500  # of 200,000 kernels in 25 healthy recordings the shortest takes 560
_KERNELS, _SHORT, _SHORT_SHARE = 20, 5, 0.05  # kernels of a device; of these, shorter ones
_IDLE_NS, _OFTEN = 50_000, 20  # a device idle so long, so often, starts some work at once
_LEAST_SPAN_NS, _OF_MOMENT = 50 * _MS, 10  # steady clocks have two thirds of the time
_LATE_NS = 500_000  # healthy recordings are below 30 µs, unless a queue never runs dry
_COLLECTIVE = re.compile(  # these wait for others
    "nccl|rccl|hccl|hcom_|SendRecv|all_?reduce|cross_device_reduce", re.IGNORECASE
)
_MOST_NAMED = 8  # devices of a process
_MOST_NOTES = 200


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """The corrected times of the rows, which rows are kept, and the notes. `recorded` is the length
    in the file of each row that was shortened, -1 for others. `unserved` are the launches, by
    `row`, that should have work and have none. If processes share launch numbers, `process` is the
    process whose launch each row belongs to, else None."""

    start: Int64s
    end: Int64s
    kept: Bools
    recorded: Int64s
    unserved: Int64s
    notes: tuple[HealthNote, ...]
    process: Int64s | None = None

    @property
    def changed(self) -> bool:
        """Whether a rule changed anything."""
        return any(note.action is not HealthAction.NOTED for note in self.notes)


def check(
    rows: DeviceRows, launches: HostLaunches, syncs: DeviceSyncs, hardware: str = ""
) -> Checked:
    """Return the rows' corrected times and what is wrong with the recording. `hardware` names the
    machine's devices, for a note that none of them has work."""
    if not len(rows):
        notes = _host_only(launches, hardware)
        kept = np.zeros(0, dtype=np.bool_)
        return Checked(rows.start, rows.end, kept, NONE, NONE, tuple(notes))
    return _Check(rows, launches, syncs).checked()


def _host_only(
    launches: HostLaunches, hardware: str = "", action: HealthAction = HealthAction.NOTED
) -> Iterator[HealthNote]:
    lost = int(((launches.kind != OTHER) & ~launches.captured).sum())
    if lost:
        number: dict[str, Any] = {"count": lost, "total": lost, "share": 1.0}
        rule = HealthRule.HOST_ONLY
        yield HealthNote(rule=rule, worst=hardware[:200], action=action, **number)


class _Check(LaunchedRows):
    """Applies the rules to one recording in turn: each rule sees what those before it kept."""

    def __init__(self, rows: DeviceRows, launches: HostLaunches, syncs: DeviceSyncs) -> None:
        super().__init__(rows, launches, syncs)
        self.recorded = np.full(len(rows), -1, dtype=np.int64)
        self.unserved = NONE
        self.following = NONE  # the first row of the next launch, if any row overlaps that
        self.shifted: set[int] = set()

    def checked(self) -> Checked:
        """Apply all rules and return corrected times, kept rows and notes."""
        self._impossible()
        self._join()
        self._late()
        self._too_short()
        self._overruns()
        self._clocks()
        self._outlived()
        self._lost_work()
        self._beyond_peers()
        self._gaps()
        if not any(note.rule is HealthRule.GAP for note in self.notes):
            self.notes += missing_parts(self.launches, self.start[self.kept])
        self.notes += slow_launches(self.launches)
        self._drift()
        number = int(self.kept.sum())
        if not number:
            self.notes += _host_only(self.launches, action=HealthAction.SET_ASIDE)
        elif not (self.launch >= 0).any() and not self.rows.exempt.all():
            self._note(HealthRule.DEVICE_ONLY, -1, count=number, total=number, share=1.0)
        process = self.process if self.rekeyed else None
        notes = tuple(self.notes[:_MOST_NOTES])
        times = (self.start, self.end, self.kept, self.recorded)
        return Checked(*times, self.unserved, notes, process)

    # --- Rows without a time, without an end, of negative length, or recorded twice.

    def _impossible(self) -> None:
        rows = self.rows
        self._set_aside(HealthRule.NO_TIME, rows.start == NO_END)
        backwards = (rows.end < rows.start) & self.kept
        if backwards.any():
            unfinished = backwards & (rows.end == NO_END)
            self._set_aside(HealthRule.UNFINISHED, unfinished)
            self._set_aside(HealthRule.NEGATIVE, backwards & ~unfinished)
        start, end = rows.start, rows.end
        if not (start > 0).any():  # only launches have times
            start = np.append(start, self.launches.start)
            end = np.append(end, self.launches.end)
        self._set_aside(HealthRule.NO_TIME, timeless(start, end)[: len(rows)] & self.kept)
        self._astray()
        columns = (rows.start, rows.stream, rows.end, rows.kernel, rows.correlation)
        again = _like_the_one_before(self.order, *columns)
        if len(again):
            self._twice(again)
        self._lengthless()

    def _twice(self, again: Int64s) -> None:
        """Set aside what the file has a second time."""
        rows = self.rows
        twice = self._marked(again) & (rows.end > rows.start) & self.kept & ~rows.exempt
        if twice.any() and not (rows.start % 1_000).any():
            twice &= ~self._of_graphs()  # at µs resolution, branches of a graph may be equal
        self._set_aside(HealthRule.TWICE, twice)
        if twice.any():
            self.launches = once(self.launches)

    def _astray(self) -> None:
        """Reject rows far from all launches and from most of their device's rows: a second
        recording would have launches there."""
        rows, launches = self.rows, self.launches
        if not len(launches):
            return
        first, last = int(launches.start.min()), int(launches.end.max())
        away = self.kept & ((rows.start > last + EMPTY_NS) | (rows.start < first - EMPTY_NS))
        if not away.any():
            return
        for device, some in self._by_device(away):
            near = np.flatnonzero((rows.device == device) & self.kept & ~away)
            begin = min(first, int(rows.start[near].min(initial=NEVER)))
            until = max(last, int(rows.end[near].max(initial=-NEVER)))
            far = np.maximum(rows.start[some] - until, begin - rows.start[some])
            astray = self._marked(some[far > max(EMPTY_NS, _TIMES * (until - begin))])
            if int(astray.sum()) < len(near):
                self._set_aside(HealthRule.NO_TIME, astray, worst_ns=int(far.max()))

    def _late(self) -> None:
        """Set rows aside that begin over a minute after their launch, and so far behind all else
        that no queue was ahead of them, and what their devices did as far behind all launches."""
        rows, launches = self.rows, self.launches
        if not len(launches) or int(rows.start.max() - launches.start.min()) <= EMPTY_NS:
            return
        waited = rows.start - np.append(launches.start, NEVER)[self.launch]
        late = self.kept & (waited > EMPTY_NS)
        if not late.any():
            return
        devices = np.unique(rows.device[late])
        behind = rows.start > int(launches.end.max()) + EMPTY_NS
        late |= behind & self.kept & np.isin(rows.device, devices)
        others = self.kept & ~late
        if not others.any():  # all work is late by the clock: it was recorded
            return
        begin = min(int(times.min(initial=NEVER)) for times in (launches.start, rows.start[others]))
        until = max(int(times.max(initial=0)) for times in (launches.end, rows.end[others]))
        idle = int(rows.start[late].min()) - until
        if idle > max(EMPTY_NS, _TIMES * (until - begin)):
            self._set_aside(HealthRule.NO_TIME, late, worst_ns=idle)

    def _lengthless(self) -> None:
        """Reject kernels without length; if times are in µs, some may be legal."""
        rows = self.rows
        none = rows.end == rows.start
        if not none.any():
            return
        kernels = self.kept & (rows.kernel >= 0) & ~rows.exempt
        none &= kernels
        most = _FEW if (rows.start % 1_000).any() else _MOST_LENGTHLESS
        devices = (rows.device[none], rows.device[kernels])
        lost, of = (np.bincount(device, minlength=len(rows.devices)) for device in devices)
        many = lost / np.maximum(of, 1) > most
        self._set_aside(HealthRule.NO_LENGTH, none & many[rows.device])

    def _too_short(self) -> None:
        """Note devices of whose kernels some take less time than any kernel does."""
        rows = self.rows
        length = rows.end - rows.start
        short = (length < _SHORTEST_NS) & (length > 0)
        if not short.any():
            return
        kernels = self.kept & (rows.kernel >= 0) & ~rows.exempt & (self.launch >= 0)
        totals = np.bincount(rows.device[kernels], minlength=len(rows.devices))
        for device, some in self._by_device(short & kernels):
            total, longest = int(totals[device]), int(length[some].max())
            share = len(some) / total
            if total >= _KERNELS and len(some) >= _SHORT and share > _SHORT_SHARE:
                more: dict[str, Any] = {"total": total, "share": share, "usual_ns": longest}
                self._note(HealthRule.TOO_SHORT, device, some, **more)

    def _of_graphs(self) -> Bools:
        """Whether each row shares its stream and launch number with at least two others."""
        pairs = np.stack((self.rows.stream, self.rows.correlation))
        _, place, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
        return (counts[place.reshape(-1)] > 2) & (self.rows.correlation > 0)

    # --- Work recorded as still running when the next launch's work on its stream starts.

    def _overruns(self) -> None:
        rows = self.rows
        order = self.order[(self.kept & ~rows.exempt)[self.order]]
        if len(order) < 2 or not self._overlaps(order):
            return
        alike = repeats(rows.stream[order], rows.correlation[order])
        alike &= rows.correlation[order[1:]] > 0
        launched = np.append(True, ~alike)
        first, run = order[launched], np.cumsum(launched)
        behind = np.append(first, -1)[run]
        limit = self._limits(order, alike, behind)
        past = self.end[order] - limit
        if int(past.max()) <= FLOOR_NS:
            return
        self.following = np.full(len(rows), -1, dtype=np.int64)
        self.following[order] = behind
        over = np.zeros(len(rows), dtype=np.int64)
        over[order] = np.where(past > FLOOR_NS, past, 0)
        until = np.full(len(rows), NEVER, dtype=np.int64)
        until[order] = limit
        for device in np.unique(rows.device[over > 0]).tolist():
            here = (rows.device == device) & self.kept & ~rows.exempt
            self._overrun(device, here, np.where(here, over, 0), until)

    def _overlaps(self, order: Int64s) -> bool:
        """Whether any row runs past the start of the next on its stream."""
        stream, start = self.rows.stream[order], self.start[order]
        past = self.end[order[:-1]] - start[1:] > FLOOR_NS
        return bool((past & (stream[1:] == stream[:-1])).any())

    def _limits(self, order: Int64s, alike: Bools, behind: Int64s) -> Int64s:
        """When the next launch's work, the row `behind`, starts on the stream of each row, in this
        order; `alike` are those but the first of a launch. In a graph branches overlap by right, so
        there only what is far beyond its peers has a limit."""
        stream, start = self.rows.stream[order], self.start[order]
        same = (self.rows.stream[behind] == stream) & (behind >= 0)
        limit = np.where(same, self.start[behind], NEVER)
        length = self.end[order] - start
        at = np.flatnonzero(limit <= start)
        pairs = np.stack((order[at], behind[at]))
        counted = (self.rows.correlation[pairs] > 0).all(axis=0)
        long = (self.end[pairs] - self.start[pairs] > FLOOR_NS).all(axis=0)
        limit[at[~(counted & long)]] = NEVER
        at = np.flatnonzero(length > _IN_GRAPH_NS)
        if not len(at):
            return limit
        inner = np.append(np.where(alike, start[1:], NEVER), NEVER)[at]
        inner = np.where(inner <= start[at], NEVER, inner)
        free = limit[at] == NEVER
        inner = np.where(free, np.minimum(inner, _next_begin(stream, start, at)), inner)
        long = self.end[order[at]] - inner > _IN_GRAPH_NS
        at, inner = at[long], inner[long]
        rows = order[at]
        usual = self._medians(self.rows.kernel[rows], self.kept, LEAST_PEERS + 1)
        damaged = (usual > 0) & (self.end[rows] - self.start[rows] > _IN_GRAPH_TIMES * usual)
        limit[at] = np.where(damaged, np.minimum(limit[at], inner), limit[at])
        return limit

    def _overrun(self, device: int, here: Bools, over: Int64s, until: Int64s) -> None:
        beyond = np.flatnonzero(over)
        beyond = beyond[~self._may_overlap(beyond)]
        total = total_ns(self.end[here] - self.start[here])
        excess = total_ns(over[beyond])
        share = excess / max(total - excess, 1)
        far = beyond[over[beyond] >= _FAR_NS]
        if share < _LEAST_SHARE and not len(far):
            return
        most, noted = _OVERLAPPING * int(here.sum()) + 1, beyond[:0]
        if len(far) and len(beyond) > most:  # no legal overlap if far longer than peers
            wrong = self._beyond_usual(far)
            lengths = self.end[wrong] - self.start[wrong]
            wrong = wrong[2 * over[wrong] > lengths]  # unless the overlap is small for their length
            others = np.setdiff1d(beyond, wrong)
            far, noted = (far, noted) if len(others) <= most else (wrong, others)
        elif not len(far):
            noted = beyond
        if len(far):
            self._shorten(HealthRule.OVERRUN, device, here, far, until)
        if len(noted):
            excess, worst = total_ns(over[noted]), int(noted[over[noted].argmax()])
            share = excess / max(total_ns(self.end[here] - self.start[here]) - excess, 1)
            at = {"total": int(here.sum()), "share": share, **self._worst(worst)}
            self._note(HealthRule.OVERRUN, device, noted, excess, HealthAction.NOTED, **at)

    def _beyond_usual(self, rows: Int64s) -> Int64s:
        """Those of `rows` that are far longer than all other rows of their kernel."""
        usual = self._medians(self.rows.kernel[rows], ~self._marked(rows))
        return rows[(usual > 0) & (self.end[rows] - self.start[rows] > _BEYOND_USUAL * usual)]

    def _may_overlap(self, beyond: Int64s) -> Bools:
        """Whether the next launch's work may legally overlap each row: it was launched to start
        before the row ends (programmatic dependent launch), and the row is not longer than
        usual."""
        early = np.append(self.launches.dependent, False)[np.append(self.launch, -1)]
        usual = self._medians(self.rows.kernel[beyond], self.kept, LEAST_PEERS + 1)
        length = self.end[beyond] - self.start[beyond]
        healthy: Bools = early[self.following[beyond]] & (length <= _BEYOND_USUAL * usual)
        return healthy

    def _shorten(
        self, rule: HealthRule, device: int, here: Bools, rows: Int64s, until: Int64s
    ) -> None:
        """Cut rows to end at `until`; rows far longer than their peers get the peers' length."""
        before = self.end[rows] - self.start[rows]
        usual = self._medians(self.rows.kernel[rows], ~self._marked(rows))
        beyond = (usual > 0) & (before > _BEYOND_USUAL * usual)
        after = np.minimum(until[rows] - self.start[rows], np.where(beyond, usual, NEVER))
        after = np.minimum(after, before)
        worst = int((before - after).argmax())
        named = self._worst(int(rows[worst]), max(int(usual[worst]), 0))
        self.end[rows] = self.start[rows] + after
        first = self.recorded[rows] < 0
        self.recorded[rows[first]] = np.minimum(before[first], LARGEST)
        excess = total_ns(before - after)
        left = total_ns(self.end[here] - self.start[here])
        more = {"total": int(here.sum()), "share": excess / max(left, 1), **named}
        self._note(rule, device, rows, excess, HealthAction.SHORTENED, **more)

    # --- Work recorded as starting before its launch.

    def _clocks(self) -> None:
        rows = self.rows
        known = self.kept & (self.launch >= 0) & ~rows.exempt
        if not known.any():
            return
        launched = np.append(self.launches.start, 0)[self.launch]
        latency = np.where(known, self.start - launched, NEVER)
        early = latency < -FLOOR_NS
        if not early.any():
            return
        for device in np.unique(rows.device[early]).tolist():
            here = known & (rows.device == device)
            self._clock(device, here, early & here, latency)

    def _clock(self, device: int, here: Bools, early: Bools, latency: Int64s) -> None:
        """Shift a device's clock if one shift explains all early work; otherwise reject the early
        rows. If the clock drifts, the shift is right at one moment only."""
        strayed = early & self._strayed(np.flatnonzero(here))
        agreeing = early & ~strayed
        number, total = int(early.sum()), int(here.sum())
        least = int(latency[agreeing].min(initial=0))
        shift = _USUAL_LATENCY_NS - least
        slope = self._slope(np.flatnonzero(here & ~strayed), early=True)
        agree = int(agreeing.sum()) >= AGREE * number
        agree = agree and not self._few_among_healthy(latency[early], latency[here & ~early])
        near = int((latency[agreeing] <= least + _NEAR_NS).sum()) >= _FEW * number  # healthy: 3 %
        agree = agree and (slope is not None or (near and self._holds(here & ~strayed, shift)))
        # work that is early by less than the clocks' accuracy is kept
        aside = (strayed if agree else early) & (latency < -_NEAR_NS)
        self._set_aside(HealthRule.CLOCK, aside, total=total)
        if not agree:
            return
        whole = self.rows.device == device
        self.start[whole] += shift
        self.end[whole] += shift
        self.shifted.add(device)
        moment = slope is None and self._at_one_moment(np.flatnonzero(agreeing), latency)
        self._note(
            HealthRule.DRIFT if moment or slope is not None else HealthRule.CLOCK,
            device,
            excess_ns=shift,
            action=HealthAction.SHIFTED,
            count=number,
            total=total,
            share=0.0 if moment else number / total if slope is None else slope,
            worst_ns=-least,
        )

    def _at_one_moment(self, early: Int64s, latency: Int64s) -> bool:
        """Whether the earliest rows, relative to their launches, are in one part of the early
        work's time. A clock with a constant offset would spread them."""
        launched, ahead = self.launches.start[self.launch[early]], latency[early]
        near = launched[ahead <= ahead.min() + _NEAR_NS]
        span = int(np.ptp(launched))
        steady = _TIMES * int(np.ptp(near)) >= span
        return len(early) >= _OF_MOMENT and span >= _LEAST_SPAN_NS and not steady

    def _slope(self, rows: Int64s, *, early: bool = False) -> float | None:
        launched = self.launches.start[self.launch[rows]]
        return latency_slope(launched, self.start[rows] - launched, early=early)

    def _few_among_healthy(self, early: Int64s, others: Int64s) -> bool:
        """Whether so few rows are early that they are wrong themselves, not the device's clock: the
        latencies of `others` are as short as in a healthy recording. If the queue is hardly ever
        empty, few latencies are short. Early rows that are more numerous and similar are then the
        short latencies of a clock that is ahead."""
        if len(early) > max(2, len(others) // 100) or not len(others):
            return False
        least = int(others.min())
        short = int((others <= least + _NEAR_NS).sum())
        alike = int((early <= early.min() + _EXACT_NS).sum())
        if short < len(early) <= 4 * alike:
            return False
        return least <= _LONGEST_LEAST_NS and short >= LEAST_PEERS

    def _strayed(self, here: Int64s) -> Bools:
        """Whether each row starts before work that was launched earlier on its stream."""
        launched = self.launches.start[self.launch[here]]
        order = here[np.lexsort((self.start[here], launched, self.rows.stream[here]))]
        earlier = self.start[order[1:]] < self.start[order[:-1]]
        return self._marked(order[1:][repeats(self.rows.stream[order]) & earlier])

    def _holds(self, here: Bools, shift: int) -> bool:
        """Whether synchronizations still end after the work that they wait for."""
        rows = np.flatnonzero(here)
        late = self.end[rows] + shift > self._returns()[rows] + AFTER_SYNC_NS + _EXACT_NS
        return int(late.sum()) <= (1 - AGREE) * len(rows)

    def _returns(self) -> Int64s:
        """When the first synchronization that waits for each row returned; `NEVER` if none
        does."""
        found = np.full(len(self.rows), NEVER, dtype=np.int64)
        syncs = self.syncs
        for process in np.unique(syncs.process)[:MOST_PROCESSES].tolist():
            by_device = [*self._by_device((self.process == process) & (self.launch >= 0))]
            for device, rows in by_device:
                its = (syncs.device == device) | ((syncs.device < 0) & (len(by_device) == 1))
                its &= syncs.process == process
                found[rows] = first_return(syncs, its, self.launches.end)[self.launch[rows]]
        return found

    # --- Work that outlives a synchronization of its device.

    def _outlived(self) -> None:
        if not len(self.syncs.start):
            return
        rows, until = self.rows, self._returns()
        over = np.where(self.kept & ~rows.exempt, self.end - until, 0) > AFTER_SYNC_NS
        for device in np.unique(rows.device[over]).tolist():
            if device in self.shifted:
                continue
            here = (rows.device == device) & self.kept & ~rows.exempt
            total = int(here.sum())
            begun = over & here & (self.start >= until)
            if 0 < int(begun.sum()) <= max(2, _FEW * total):  # these are wrong, not the clock
                self._set_aside(HealthRule.OUTLIVED, begun, total=total)
                here, over = here & ~begun, over & ~begun
            some = np.flatnonzero(over & here)
            if not len(some):
                continue
            many = len(some) > _OVERLAPPING * total + 1  # too many to be just too long
            if many or self._is_late(here, some, until):  # or launched by another thread
                past = int((self.end[some] - until[some]).max())
                share = past / max(total_ns(self.end[here] - self.start[here]), 1)
                self._note(HealthRule.OUTLIVED, device, some, past, total=total, share=share)
            else:
                self._shorten(HealthRule.OUTLIVED, device, here, some, until)

    def _is_late(self, here: Bools, over: Int64s, until: Int64s) -> bool:
        """Whether the device's clock is late, rather than some rows too long: rows start after the
        synchronization, end only a little after it, or outlive most of them."""
        if bool((self.start[over] >= until[over]).any()):
            return True
        waited = np.unique(until[here & (until < NEVER)])
        passed = np.unique(until[over])
        small = int((self.end[over] - until[over]).max()) < _FAR_NS
        return small or (len(waited) > 1 and 2 * len(passed) > len(waited))

    # --- Launches without work, and work without a launch.

    def _lost_work(self) -> None:
        if not len(self.launches):
            return
        launches, rows, number = self.launches, self.rows, self.by_key.number
        known = self.launch[self.launch >= 0]
        due = self.by_key.order if len(known) else known  # else no work can be assigned
        due = due[((launches.kind != OTHER) & ~launches.captured)[due]]
        due = due[np.append(True, ~repeats(number[due]))[: len(due)]]  # one with its driver's call
        served = np.zeros(len(launches) + 1, dtype=np.bool_)
        served[number[known]] = True
        did = served[number[due]]
        self.unserved = launches.row[due[~did]]
        for process in np.unique(launches.process[due])[:MOST_PROCESSES].tolist():
            here = launches.process[due] == process
            self._lost_of(process, launches.start[due[here]], did[here])
        self._incomplete_replays()
        before = self.kept & ~rows.exempt & (self.launch < 0) & (rows.correlation > 0)
        for device, some in self._by_device(before):
            self._before(device, some)

    def _lost_of(self, process: int, start: Int64s, did: Bools) -> None:
        """Note launches of a process without work. If any work of its devices was recorded before
        one, and any after it or a synchronization that returned, it lost its work. Those before
        are of a time at which devices were not recorded yet, those after had not run when the
        recording ended."""
        if did.all():
            return
        kept = np.flatnonzero(self.kept & ~self.rows.exempt)
        device = self.rows.device[kept]
        its = np.bincount(device[self.process[kept] == process], minlength=len(self.rows.devices))
        devices = np.flatnonzero(its)
        on = kept[its[device] > 0] if len(devices) else kept
        first = min(int(times.min(initial=NEVER)) for times in (self.start[on], start[did]))
        last = int((start[did] if did.any() else self.start[on]).max(initial=0))
        if len(devices) == 1:
            last = max(last, int(self.syncs.start[self.syncs.process == process].max(initial=0)))
        ran = self.launch[on][self.launch[on] >= 0]
        if len(ran) and np.ptp(self.rows.stream[on]) == 0:  # copies queue on the stream, too
            last = max(last, int(self.launches.start[ran].max()))
        without = {
            HealthRule.LOST: ~did & (start > first) & (start < last),
            HealthRule.LATE: ~did & (start <= first),
            HealthRule.CUT: ~did & (start > first) & (start >= last),
        }
        total = len(start)
        names = ", ".join(self.rows.devices[one] for one in devices[:_MOST_NAMED].tolist())
        for rule, which in without.items():
            number = int(which.sum())
            if number:
                more: dict[str, Any] = {"count": number, "total": total, "share": number / total}
                self._note(rule, -1, **more, device_names=names)

    def _incomplete_replays(self) -> None:
        """Note replays of graphs that lack work which others of their graph have."""
        graph = np.append(self.launches.kind == GRAPH, False)
        if not graph.any():
            return
        for device, here in self._by_device(self.kept & graph[self.launch]):
            launch, number = self.launch[here], np.zeros(len(self.launches), dtype=np.int64)
            number[launch] = 1
            order = np.flatnonzero(number)
            order = order[np.argsort(self.launches.start[order], kind="stable")]
            number[order] = np.arange(len(order))
            replays, lost, expected = incomplete_replays(number[launch], self.rows.kernel[here])
            if replays:
                share = lost / expected
                self._note(HealthRule.REPLAYS, device, count=lost, total=expected, share=share)

    def _before(self, device: int, some: Int64s) -> None:
        """Note work with a launch number below those of all recorded launches and, if one process
        launched it, other work without a launch. Kernels that never have a launch are not noted:
        recorders do not know all calls that launch."""
        rows, launches = self.rows, self.launches
        here = np.flatnonzero((rows.device == device) & self.kept & ~rows.exempt)
        owners = np.unique(self.process[here][self.launch[here] >= 0])
        numbers = launches.correlation
        if len(owners) == 1:
            numbers = numbers[launches.process == owners[0]]
        before = rows.correlation[some] < int(numbers.min())
        launched = np.unique(rows.kernel[here[self.launch[here] >= 0]])
        found, others = some[before], some[~before & np.isin(rows.kernel[some], launched)]
        if len(others) and len(owners) == 1:
            share = len(others) / len(here)
            self._note(HealthRule.UNLAUNCHED, device, others, total=len(here), share=share)
        if len(found):
            length = self.end - self.start
            time, whole = total_ns(length[found]), total_ns(length[here])
            share = time / max(whole, 1)
            self._note(HealthRule.BEFORE, device, found, time, total=len(here), share=share)

    # --- Rules that confirm others, or concern the whole recording.

    def _beyond_peers(self) -> None:
        rows = self.rows
        length = self.end - self.start
        candidates = np.flatnonzero(length > _BEYOND_NS)
        kept = (rows.kernel >= 0) & self.kept & ~rows.exempt
        candidates = candidates[kept[candidates]]
        if not len(candidates):
            return
        usual = self._medians(rows.kernel[candidates], self.kept, _BEYOND_PEERS)
        far = candidates[(usual > 0) & (length[candidates] > _BEYOND_TIMES * usual)]
        named = [not _COLLECTIVE.search(self._name(row)) for row in far.tolist()]
        far = far[np.array(named, dtype=np.bool_)]
        if not len(far):
            return
        last = self.order[np.append(~repeats(rows.stream[self.order]), True)]
        for device, some in self._by_device(self._marked(far)):
            worst = int(some[length[some].argmax()])
            time, unseen = total_ns(length[some]), total_ns(length[np.intersect1d(some, last)])
            whole = total_ns(length[(rows.device == device) & self.kept & ~rows.exempt])
            # the last row of a stream has no later work to confirm its length
            more = self._worst(worst) | {"share": unseen / max(whole - unseen, 1)}
            self._note(HealthRule.BEYOND_PEERS, device, some, time, **more)

    def _gaps(self) -> None:
        """Note gaps of a minute or more without events, if they are far longer than the rest."""
        starts = self.start[self.kept], self.launches.start
        ends = self.end[self.kept], self.launches.end
        begin = min(int(times.min(initial=NEVER)) for times in starts)
        whole = max(int(times.max(initial=begin)) for times in ends) - begin
        if whole < EMPTY_NS:
            return
        start, end = np.concatenate(starts), np.concatenate(ends)
        order = np.argsort(start, kind="stable")
        idle = start[order][1:] - np.maximum.accumulate(end[order])[:-1]
        gaps = idle[idle > EMPTY_NS]
        empty = int(gaps.sum())
        if len(gaps) and empty > _TIMES * (whole - empty):
            share = empty / whole
            self._note(HealthRule.GAP, -1, count=len(gaps), excess_ns=empty, share=share)

    def _drift(self) -> None:
        """Note devices whose clock drifts, judged by the minimum latency over time."""
        known = self.kept & (self.launch >= 0) & ~self.rows.exempt
        for device, here in self._by_device(known):
            slope = None if device in self.shifted else self._slope(here)
            if slope is not None:
                self._note(HealthRule.DRIFT, device, count=1, total=len(here), share=slope)
            else:
                self._late_clock(device, here)

    def _late_clock(self, device: int, launched: Int64s) -> None:
        """Note a device that was often idle and never started work soon after its launch."""
        least = int((self.start[launched] - self.launches.start[self.launch[launched]]).min())
        if least < _LATE_NS:
            return
        rows = np.flatnonzero((self.rows.device == device) & self.kept & ~self.rows.exempt)
        rows = rows[np.argsort(self.start[rows], kind="stable")]
        idle = self.start[rows[1:]] - np.maximum.accumulate(self.end[rows])[:-1]
        launch = self.launch[rows]
        often = int(((idle > _IDLE_NS) & (launch[1:] != launch[:-1]) & (launch[1:] >= 0)).sum())
        if often >= _OFTEN:
            self._note(HealthRule.LATE_CLOCK, device, count=often, total=len(rows), worst_ns=least)


def _next_begin(stream: Int64s, start: Int64s, at: Int64s) -> Int64s:
    """When, behind the rows at some places, the next work of the same stream starts that does not
    start at the same time; rows are in order of stream and start."""
    heads = np.append(np.flatnonzero(~repeats(stream, start)) + 1, len(start))
    following = heads[np.searchsorted(heads, at, side="right")]
    inside = np.append(stream, -1)[following] == stream[at]
    return np.where(inside, np.append(start, NEVER)[following], NEVER)


def _like_the_one_before(order: Int64s, first: Int64s, *others: Int64s) -> Int64s:
    """The rows of an order that have the values of the one before them in all of the columns."""
    at = np.flatnonzero(repeats(first[order])) + 1
    for column in others:
        at = at[column[order[at]] == column[order[at - 1]]]
    return order[at]

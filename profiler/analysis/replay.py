"""Replay a run's launches: when its work would run if the host or the work took another time.

On each stream, in the recorded order,

    start = max(end of the work before + queue gap, launch + latency)

The host takes its recorded time between launches and waits again for a device. A replay is used
only if it reproduces the recorded device span without changes (`TOLERANCE`).
"""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from profiler.run.intervals import Stretches, Times, ends, positions
from profiler.run.launches import DeviceAxis, Flags, Launches, device_work, launches_of, streams_of
from profiler.run.run import Run
from profiler.text import Note, NoteCode

# --- The device work of a run as a replay needs it: what was launched when, on which stream.
#
# Between two pieces of work that both wait in a stream's queue a device takes a moment (1.4 to 1.6
# us on an H200 that is being recorded, 0.7 within a CUDA graph, next to nothing on an MI300X). It
# is measured on those that had been launched long before the work ahead of them ended.
#
# Work whose launch was not recorded follows what ran before it on its stream, as far behind it as
# it was. What one device did not record while others worked (`RunTiles.unrecorded_on`) is such work
# on each of its streams.
#
# Time that does not count end to end is cut out of the clock (`Clock`), for the host and the
# devices: a replay would otherwise put back what the measured time leaves out.


NEVER = np.iinfo(np.int64).min // 4
_SURELY = 20_000  # ns: work due that long before the end of the work ahead of it was surely queued
_FEW_GAPS = 20  # gaps between queued work: fewer tell nothing
USUAL = 50_000  # ns between queued work: longer, it waited for something else


class Clock(Struct, frozen=True, eq=False):
    """A clock that stands still during `lost`, but for 1 ns at each of `ticks`, what the host did
    then: launches and waits keep their order."""

    lost: Stretches
    ticks: Times

    @classmethod
    def of(cls, run: Run, launches: Launches) -> Clock:
        """The clock of the time of `run` that counts end to end."""
        lost = Stretches.of_all((run.tiles.unrecorded, run.tiles.carried_over))
        if not len(lost):
            return cls(lost, np.zeros(0, dtype=np.int64))
        source = np.unique(launches.source[launches.source >= 0])
        done = (launches.start[source], launches.blocked_start, launches.blocked_end)
        ticks = np.unique(np.concatenate(done))
        return cls(lost, ticks[lost.holds(ticks)])

    def at(self, moments: Times) -> Times:
        """Return what the clock shows at these moments of the run, int64."""
        return moments - self.lost.before(moments) + np.searchsorted(self.ticks, moments)

    def during(self, some: Stretches) -> Stretches:
        """Return these times of the run on the clock."""
        return Stretches.union(self.at(some.start), self.at(some.end))

    def launches(self, some: Launches) -> Launches:
        """Return these launches of the run on the clock."""
        names = ("start", "end", "blocked_start", "blocked_end")
        return replace(some, **{name: self.at(getattr(some, name)) for name in names})


class Works(Struct, frozen=True, eq=False):
    """w pieces of device work, stream by stream in order of start; int64 [w] each.

    `row` is its command, -1 for time that was not recorded, `call` the row of its call, -1 for
    none. `launch` is when it was launched, NEVER if that is not known, and `latency` how long it
    takes from there; `behind` is how long it starts after the work before it, were it launched
    early: as it did if its launch is not known, else what is usual on its stream. `moment` is the
    host's time to which it belongs: its launch, or a later one of work before it on its stream;
    NEVER for what was launched before the recording began. `heads` are where streams start, [s + 1]
    with the end.
    """

    row: Times
    call: Times
    stream: Times
    start: Times
    length: Times
    launch: Times
    latency: Times
    behind: Times
    moment: Times
    heads: Times

    @property
    def end(self) -> Times:
        """When each ended."""
        return self.start + self.length

    def last_launched(self, moments: Times) -> Times:
        """The last work of each stream that was launched before each moment, int64 [v, s]; -1 for
        none."""
        found = np.full((len(moments), len(self.heads) - 1), -1)
        for number, (first, last) in enumerate(zip(self.heads[:-1], self.heads[1:], strict=True)):
            place = np.searchsorted(self.moment[first:last], moments, side="left")
            found[:, number] = np.where(place > 0, first + place - 1, -1)
        return found


def works_of(run: Run, launches: Launches, clock: Clock) -> Works | None:
    """The work on devices whose launches are known; None if there is none. `launches` are on the
    clock."""
    rows, device = _rows(run, launches)
    if not len(rows):
        return None
    stream = np.unique(streams_of(run.commands, rows), return_inverse=True)[1].astype(np.int64)
    found = {
        "row": rows,
        "stream": stream,
        "start": launches.start[rows],
        "length": launches.end[rows] - launches.start[rows],
        "latency": _latencies(run, launches, rows, device, clock),
    }
    found = _with_unrecorded(found, run, device, clock)
    order = np.lexsort((found["start"], found["stream"]))
    rows, stream, start, length, latency = (column[order] for column in found.values())
    call = np.append(run.commands["call"].to_numpy(), -1)[rows]
    source = np.where(rows >= 0, launches.source[rows], -1)
    launch = np.where(source >= 0, np.minimum(launches.start[source], start), NEVER)
    heads = np.searchsorted(stream, np.arange(int(stream[-1]) + 2))
    parts = np.split(launch, heads[1:-1])
    before = np.append(NEVER, (start + length)[:-1])
    before[heads[:-1]] = start[heads[:-1]]
    between = _between(stream, launch, latency, start, before)
    return Works(
        row=rows,
        call=positions(call, run.calls["call"].to_numpy()).astype(np.int64),
        stream=stream,
        start=start,
        length=length,
        launch=launch,
        latency=latency,
        behind=np.where(source < 0, np.maximum(start - before, 0), between),
        moment=np.concatenate([np.maximum.accumulate(part) for part in parts]),
        heads=heads,
    )


def _between(stream: Times, launch: Times, latency: Times, start: Times, before: Times) -> Times:
    """Return how long after `before`, the end of the work ahead of it, each starts if it is queued:
    on each stream the mean of work that surely was queued, separately for the first work of a
    launch and for further work (of the same graph); 0 if there are fewer than `_FEW_GAPS`."""
    known = launch > NEVER
    follows = np.append(False, (launch[1:] == launch[:-1]) & (stream[1:] == stream[:-1])) & known
    gap = start - before
    queued = known & (launch + latency + _SURELY < before) & (gap >= 0) & (gap < USUAL)
    found = np.zeros(len(stream), dtype=np.int64)
    for number in range(int(stream[-1]) + 1):
        for kind in (follows, ~follows):
            here = (stream == number) & kind
            gaps = gap[here & queued]
            if len(gaps) >= _FEW_GAPS:
                found[here] = round(float(gaps.mean()))
    return found


def _rows(run: Run, launches: Launches) -> tuple[Times, pl.Series]:
    """The rows of work on devices whose launches are known, and the device of each."""
    category = run.commands["category"].to_physical().to_numpy()
    rows = np.flatnonzero(device_work(category) & (launches.end > launches.start))
    device = run.commands["device"].gather(rows).cast(pl.String)
    known = device.gather(np.flatnonzero(launches.source[rows] >= 0)).unique()
    kept = np.flatnonzero(device.is_in(known.implode()).to_numpy())
    return rows[kept], device.gather(kept)


def _latencies(run: Run, launches: Launches, rows: Times, device: pl.Series, clock: Clock) -> Times:
    """Return the latency of the device of each of `rows`, on the clock, int64."""
    names, of_row = np.unique(device.to_numpy(), return_inverse=True)
    if not len(clock.lost):
        known = dict(run.tiles.devices.select("device", "latency_ns").iter_rows())
        return np.array([known.get(name, 0) for name in names], dtype=np.int64)[of_row]
    found = np.zeros(len(names), dtype=np.int64)
    for number in range(len(names)):
        own = np.zeros(len(launches.start), dtype=np.bool_)
        own[rows[of_row == number]] = True
        none = np.full(int(own.sum()), -1)
        start, end = launches.start[own], launches.end[own]
        found[number] = DeviceAxis.of(start, end, none, launches, own).latency_ns
    return found[of_row]


def _with_unrecorded(
    found: dict[str, Times], run: Run, device: pl.Series, clock: Clock
) -> dict[str, Times]:
    """Add to the columns what a device did not record while the clock ran, as work on each of its
    streams."""
    for name, unrecorded in run.tiles.unrecorded_on.items():
        here = np.unique(found["stream"][: len(device)][(device == name).to_numpy()])
        left = clock.during(unrecorded.minus(clock.lost))
        more: dict[str, Times] = {
            "row": np.full(len(left) * len(here), -1),
            "stream": np.repeat(here, len(left)),
            "start": np.tile(left.start, len(here)),
            "length": np.tile(left.end - left.start, len(here)),
            "latency": np.zeros(len(left) * len(here), dtype=np.int64),
        }
        found = {key: np.append(column, more[key]) for key, column in found.items()}
    return found


# --- What the host waited for: blocking copies, synchronization, launches into a full queue.


_QUICK = 0.05  # of the launches: if a device is behind nearly all wait for room
_LONG = 5  # of those: a launch that takes longer may have waited for room in its queue
_DEEP = 16  # pieces of work: fewer fill no queue
_FULL = 0.95  # of the most that ever waited: a launch that returns then waited for room


class Waits(Struct, frozen=True, eq=False):
    """v times at which the host waited for a device, in order of their starts, int64 [v] each.

    If `own` is the work that the call launched, it waits for the work `back` places before that
    on its stream: 0 for a blocking copy, 1 for one that returns while the device still copies, the
    depth of the queue for a launch into a full one. If it is -1 it waits for what was launched
    before on `streams`, bool [v, s]. Once that has ended the host returns after `tail`; it takes
    `least` also if it waits for nothing.
    """

    begin: Times
    end: Times
    own: Times
    back: Times
    streams: Flags
    tail: Times
    least: Times


def waits_of(works: Works, launches: Launches) -> Waits:
    """Return when the host waited, without waits within others; a blocking copy waits for its own
    work."""
    begin, end, own, back = _all(works, launches)
    order = np.lexsort((-end, begin))
    before = np.append(NEVER, np.maximum.accumulate(end[order]))[:-1]
    order = order[end[order] > before]
    begin, end, own, back = (column[order] for column in (begin, end, own, back))
    last = works.last_launched(begin)
    until = np.where(last >= 0, works.end[last], NEVER)
    streams = (last >= 0) & (until <= end[:, None]) & (own < 0)[:, None]
    done = np.where(streams, until, NEVER).max(axis=1, initial=NEVER)
    done = np.where(own >= 0, works.end[own - back], done)
    ahead = np.where(np.isin(own, works.heads), NEVER, works.end[np.maximum(own - 1, 0)])
    free = np.where(own < 0, done, ahead)
    return Waits(
        begin=begin,
        end=end,
        own=own,
        back=back,
        streams=streams,
        tail=end - np.maximum(begin, np.minimum(done, end)),
        least=np.where(free <= begin, end - begin, 0),
    )


def _all(works: Works, launches: Launches) -> tuple[Times, Times, Times, Times]:
    """Start, end, own work and how far back of all waits, those within others too."""
    place = np.full(len(launches.source) + 1, -1)  # the last is of no command
    place[works.row] = np.arange(len(works.row))
    place[-1] = -1
    own = place[launches.blocked_on]
    # a call that returns while its copy runs waited for what is ahead on the stream, if anything is
    back = (own >= 0) & (works.end[own] > launches.blocked_end)
    gone = (launches.blocked_on >= 0) & (own < 0)  # a copy on no device that is replayed
    gone |= back & np.isin(own, works.heads)
    begin, end, own, back = (
        column[~gone] for column in (launches.blocked_start, launches.blocked_end, own, back)
    )
    full, depth = _full_queues(works, launches)
    source = launches.source[works.row[full]]
    return (
        np.append(begin, launches.start[source]),
        np.append(end, launches.end[source]),
        np.append(own, full),
        np.append(back.astype(np.int64), depth),
    )


def _full_queues(works: Works, launches: Launches) -> tuple[Times, Times]:
    """Return the work whose launch waited for room in its stream's queue, and the number of pieces
    of work that the queue holds. Such a launch took long, and when it returned as many were waiting
    as ever."""
    found, depth = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    known = (works.launch > NEVER) & (works.row >= 0)
    source = launches.source[works.row[known]]
    taken = np.zeros(len(known), dtype=np.int64)
    taken[known] = launches.end[source] - launches.start[source]
    quick = float(np.quantile(taken[known], _QUICK)) if known.any() else 0.0
    for first, last in zip(works.heads[:-1], works.heads[1:], strict=True):
        here = np.arange(first, last)
        until = np.sort(works.end[first:last])
        returned = works.launch[here] + taken[here]
        done = np.searchsorted(until, returned, side="right")
        waiting = np.where(known[here] & (done > 0), here - first - done, 0)
        most = int(waiting.max(initial=0))
        if most < _DEEP:
            continue
        full = (waiting >= _FULL * most) & (taken[here] > _LONG * quick)
        found.append(here[full])
        depth.append(waiting[full] + 1)
    return np.concatenate(found), np.concatenate(depth)


# --- What a replay needs of a run, and the script that says which of its host's time runs again.


class Recording(Struct, frozen=True, eq=False):
    """Works and waits of a run on its `clock`; `launch_ns` is how long a launch takes the host, the
    median."""

    works: Works
    waits: Waits
    launch_ns: int
    clock: Clock

    def waited(self, moments: Times) -> Times:
        """How long the host had waited for devices up to each moment, int64."""
        waits = self.waits
        if not len(waits.begin):
            return np.zeros(len(moments), dtype=np.int64)
        ended = np.maximum.accumulate(waits.end)
        begin = np.maximum(waits.begin, np.append(NEVER, ended[:-1]))
        before = np.append(0, np.cumsum(ended - begin))
        place = np.searchsorted(begin, moments, side="right") - 1
        inside = np.clip(moments - begin[place], 0, (ended - begin)[place])
        return np.where(place < 0, 0, before[place] + inside)


def recording_of(run: Run) -> Recording | None:
    """Return what a replay needs of `run`, whose calls are in order of their numbers; None if it
    recorded no launches."""
    launches = launches_of(run.commands, run.flows)
    if launches is None:
        return None
    clock = Clock.of(run, launches)
    if len(clock.lost):
        launches = clock.launches(launches)
    works = works_of(run, launches, clock)
    if works is None:
        return None
    source = np.unique(launches.source[works.row[works.launch > NEVER]])
    taken = launches.end[source] - launches.start[source]
    return Recording(works, waits_of(works, launches), int(np.median(taken)), clock)


class Script(Struct, frozen=True, eq=False):
    """k slices of the host's recorded time, one after the other, int64 [k]: each from `first` up to
    `last`. Of a slice what the host does takes `pace` times as long as it did, float64 [k]; waits
    for a device take what they take. If it is a `graph`, bool [k], all its launches are one at its
    start, and it takes as long as that."""

    first: Times
    last: Times
    pace: np.ndarray[tuple[int], np.dtype[np.float64]]
    graph: Flags

    @classmethod
    def of(cls, first: Times, last: Times) -> Script:
        """Make the script that runs slices as they were recorded."""
        count = len(first)
        return cls(first, last, np.ones(count), np.zeros(count, dtype=np.bool_))

    def at(self, recording: Recording, slices: Times, moments: Times) -> Times:
        """Return how long after the start of its slice each moment is, if each wait takes as long
        as it did, in ns."""
        waited = recording.waited(moments) - recording.waited(self.first)[slices]
        host = np.rint((moments - self.first[slices] - waited) * self.pace[slices])
        return np.where(self.graph[slices], 0, host.astype(np.int64) + waited)


# --- Replay: when work would have run had the host done only some of what it did, or the work taken
# another time.
#
# The host takes between launches what it took; if it waited for a device it waits again. On each
# stream, in the order that was recorded,
#
#     begin = max(end of the work before + what lies between two in a queue, launch + latency)
#
# The waits cut the launches into stretches in which the host is as far behind the recording as at
# their begin. In a stretch ends follow from a running maximum: with `c` the sum of lengths so far,
# `end = c + max(end before the stretch, max over the work so far of (launch + latency - c
# before))`, if the lengths have what lies before each piece of work in a queue, too.


class Replayed(Struct, frozen=True, eq=False):
    """The result of a replay, in ns. `begin` and `end` are the host's in each slice of the script,
    int64 [k]. `work` are the places of its m pieces of work in `Works`, `slice` their slices,
    `start` and `done` when they ran, int64 [m] each, slice by slice."""

    begin: Times
    end: Times
    work: Times
    slice: Times
    start: Times
    done: Times

    @property
    def device_span_ns(self) -> int:
        """From the first start of device work to the last end, 0 without any."""
        return int(self.done.max() - self.start.min()) if len(self.done) else 0


def replay(recording: Recording, script: Script, lengths: Times | None = None) -> Replayed:
    """Replay `script` from the start of its first slice. `lengths` are those of the works, int64
    [w], None: as recorded. Work that was launched before the script's start ends when it did."""
    works = recording.works
    if not len(script.first):
        none = np.zeros(0, dtype=np.int64)
        return Replayed(none, none, none, none, none, none)
    slices = np.arange(len(script.first))
    as_one = np.minimum(recording.launch_ns, script.last - script.first)
    taken = np.where(script.graph, as_one, script.at(recording, slices, script.last))
    place = script.first[0] + np.append(0, np.cumsum(taken))
    expanded = _Expanded.of(recording, script, place)
    length = (works.length if lengths is None else lengths)[expanded.work]
    stops = _stops(recording, script, place, expanded)
    last = works.last_launched(script.first[:1])[0]  # before the script
    free = np.where(last >= 0, works.end[last], NEVER).tolist()
    done, late_at, late = _run(expanded, length, stops, free)
    host = place + late[np.searchsorted(late_at, place, side="right")]
    return Replayed(
        begin=host[:-1],
        end=host[1:],
        work=expanded.work,
        slice=expanded.slice,
        start=done - length,
        done=done,
    )


class _Expanded(Struct, frozen=True, eq=False):
    """The work of a script, slice by slice and there in order of launches: its place in `Works`,
    its slice, stream, the moment of its launch, when it may start (NEVER: after what is before it)
    and how long after that, if the host is never late. `begins` is where each slice starts, `rank`
    the place of each of the works among those in order of launches, `low` the first in a slice."""

    work: Times
    slice: Times
    stream: Times
    moment: Times
    ready: Times
    behind: Times
    begins: Times
    rank: Times
    low: Times

    @classmethod
    def of(cls, recording: Recording, script: Script, place: Times) -> _Expanded:
        works = recording.works
        order = np.argsort(works.moment, kind="stable")
        sorted_moments = works.moment[order]
        low = np.searchsorted(sorted_moments, script.first, side="left")
        high = np.maximum(np.searchsorted(sorted_moments, script.last, side="left"), low)
        of_slice = np.repeat(np.arange(len(low)), high - low)
        begins = np.append(0, np.cumsum(high - low))
        work = order[np.arange(begins[-1]) - begins[of_slice] + low[of_slice]]
        launch = place[of_slice] + script.at(recording, of_slice, works.launch[work])
        known = works.launch[work] > NEVER
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(
            work=work,
            slice=of_slice,
            stream=works.stream[work],
            moment=place[of_slice] + script.at(recording, of_slice, works.moment[work]),
            ready=np.where(known, launch + works.latency[work], NEVER),
            behind=np.where(script.graph[of_slice] & known, 0, works.behind[work]),
            begins=begins,
            rank=rank,
            low=low,
        )

    def place_of(self, works: Times, slices: Times) -> Times:
        """Return the places of works that were launched in `slices`."""
        return self.begins[slices] + self.rank[works] - self.low[slices]


class _Stops(Struct, frozen=True, eq=False):
    """Waits in order of their ends, if the host is never late: start, end, tail and least time,
    int64 [v]; and the work they wait for, [v, n], -1 for none."""

    begin: Times
    end: Times
    tail: Times
    least: Times
    work: Times


def _stops(recording: Recording, script: Script, place: Times, expanded: _Expanded) -> _Stops:
    waits, works = recording.waits, recording.works
    low = np.searchsorted(waits.begin, script.first, side="left")
    high = np.maximum(np.searchsorted(waits.begin, script.last, side="left"), low)
    high = np.where(script.graph, low, high)
    of_slice = np.repeat(np.arange(len(low)), high - low)
    begins = np.append(0, np.cumsum(high - low))
    row = np.arange(begins[-1]) - begins[of_slice] + low[of_slice]
    begin = place[of_slice] + script.at(recording, of_slice, waits.begin[row])
    end = np.minimum(begin + waits.end[row] - waits.begin[row], place[of_slice + 1])
    targets = np.full((len(row), len(works.heads) - 1), -1)
    own = np.flatnonzero(waits.own[row] >= 0)
    own_place = expanded.place_of(waits.own[row[own]], of_slice[own])
    for number in range(len(works.heads) - 1):
        here = np.flatnonzero(expanded.stream == number)
        if not len(here):
            continue
        before = np.searchsorted(expanded.moment[here], begin, side="left") - 1
        waited = waits.streams[row, number] & (before >= 0)
        targets[:, number] = np.where(waited, here[before], -1)
        on_it = works.stream[waits.own[row[own]]] == number
        back = np.searchsorted(here, own_place[on_it]) - waits.back[row[own[on_it]]]
        targets[own[on_it], number] = np.where(back >= 0, here[back], -1)
    order = np.argsort(end, kind="stable")
    row = row[order]
    return _Stops(begin[order], end[order], waits.tail[row], waits.least[row], targets[order])


def _run(
    expanded: _Expanded, length: Times, stops: _Stops, free: list[int]
) -> tuple[Times, Times, Times]:
    """Return when each piece of work is done, int64 [m]; the moments at which the host's delay
    changes, int64 [v]; and its delay before the first and from each of them on, int64 [v + 1]."""
    done = np.full(len(length), NEVER)
    stretch = np.searchsorted(stops.end, expanded.moment, side="right")
    order = np.lexsort((expanded.stream, stretch))
    keys = stretch * np.int64(len(free)) + expanded.stream
    cuts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    groups = np.append(cuts, len(order)).tolist()
    of_group, streams = stretch[order[cuts]].tolist(), expanded.stream[order[cuts]].tolist()
    ready, behind, taken = expanded.ready[order], expanded.behind[order], length[order]
    begins, tails, leasts = stops.begin.tolist(), stops.tail.tolist(), stops.least.tolist()
    planned = stops.end.tolist()
    delays, late, group = [0], 0, 0
    for stop in range(len(planned) + 1):
        while group < len(of_group) and of_group[group] <= stop:
            rows = slice(groups[group], groups[group + 1])
            stream = streams[group]
            ends = _ends(ready[rows] + late, behind[rows], taken[rows], free[stream])
            done[order[rows]] = ends
            free[stream] = int(ends[-1])
            group += 1
        if stop == len(planned):
            break
        waited = stops.work[stop]
        until = int(done[waited[waited >= 0]].max(initial=NEVER))
        begun = begins[stop] + late
        late = max(begun + leasts[stop], max(begun, until) + tails[stop]) - planned[stop]
        delays.append(late)
    return done, stops.end, np.array(delays, dtype=np.int64)


def _ends(ready: Times, behind: Times, length: Times, free: int) -> Times:
    """Return when each piece of work of a stream ends, if the stream is free from `free` on."""
    total = np.cumsum(behind + length)
    known = ready > NEVER // 2
    earliest = np.where(known, ready + length - total, NEVER)
    return total + np.maximum(np.maximum.accumulate(earliest), free)


# --- Whether a run can be replayed: one host must explain the work of all devices, and unchanged
# the replay must give the device span that was recorded. Findings and predictions share the rule.


TOLERANCE = 0.01  # of the recorded device span: a replay that is further off predicts nothing
_AT_ONCE = 0.01  # of the time of calls: at most this much may overlap on two devices
_MISSING = 0.05  # of the time of work: at most this much may lack its launch


class Refusal(NoteCode):
    """Why launches cannot be replayed, so that nothing is predicted."""

    REPLAY_OFF = "replay_off"
    PARTLY_TRACED = "partly_traced"
    LAUNCHES_MISSING = "launches_missing"
    SEVERAL_AT_ONCE = "several_at_once"
    COLLECTIVES = "collectives"
    MANY_CALLS = "many_calls"


def why_not_replayed(run: Run, recording: Recording, calls: Flags | None = None) -> Note | None:
    """Return why a replay of `run` would mislead, even if unchanged it is as recorded; None if
    nothing says so. `calls` are those that are to be replayed, bool [n], None: all."""
    return _waits_for_others(run) or why_not_without_others(run, recording, calls)


def why_not_one_host(run: Run) -> Note | None:
    """Return why one host does not explain a run: devices wait for one another in collectives, or
    calls of several ran at the same time; None if it does."""
    return _waits_for_others(run) or _several_at_once(run)


def _waits_for_others(run: Run) -> Note | None:
    collectives = (run.commands["category"] == "collective").any()
    return Note.of(Refusal.COLLECTIVES) if collectives else None


def why_not_without_others(run: Run, recording: Recording, calls: Flags | None) -> Note | None:
    """Return why a replay in which collectives take no time would mislead."""
    several = _several_at_once(run)
    if several is not None:
        return several
    name = _partly_traced(run, recording, calls)
    if name is not None:
        return Note.of(Refusal.PARTLY_TRACED, submodule=name)
    works = recording.works
    worked = works.row >= 0
    of = int(works.length[worked].sum())
    missing = int(works.length[worked & (works.launch == NEVER) & (works.moment > NEVER)].sum())
    if missing > _MISSING * of:
        return Note.of(Refusal.LAUNCHES_MISSING, missing_share=missing / of)
    return None


def _several_at_once(run: Run) -> Note | None:
    calls = run.calls.with_columns(end=pl.Series(ends(run.calls)))
    of_device = {
        str(name): Stretches.union(own["start_ns"].to_numpy(), own["end"].to_numpy())
        for (name,), own in calls.group_by("device", maintain_order=True)
    }
    together = Stretches.of_all(of_device.values()).length
    if sum(each.length for each in of_device.values()) <= (1 + _AT_ONCE) * together:
        return None
    return Note.of(Refusal.SEVERAL_AT_ONCE, devices=tuple(of_device))


def _partly_traced(run: Run, recording: Recording, calls: Flags | None) -> str | None:
    """The first submodule by name of which some calls launched work and some were not traced."""
    names = np.array(run.calls["submodule"].cast(pl.String).fill_null("").to_list(), dtype=np.str_)
    missing = ~run.calls["ops_traced"].to_numpy()
    if calls is not None:
        missing &= calls
    launched = recording.works.call[recording.works.call >= 0]
    found = np.intersect1d(names[missing], names[launched])
    return str(found[0]) if len(found) else None


class Fidelity(Struct, frozen=True):
    """The device span of some host time in ns, as it was recorded and as it is replayed."""

    recorded_ns: int
    replayed_ns: int

    @property
    def ratio(self) -> float:
        """Replayed / recorded, 1 of nothing."""
        return self.replayed_ns / self.recorded_ns if self.recorded_ns > 0 else 1.0

    @property
    def believed(self) -> bool:
        """Whether the replay is within the tolerance."""
        return abs(self.ratio - 1.0) <= TOLERANCE


def fidelity(recording: Recording, unchanged: Replayed) -> Fidelity:
    """Return the fidelity of a replay in which nothing was changed."""
    works, some = recording.works, unchanged.work
    recorded = int(works.end[some].max() - works.start[some].min()) if len(some) else 0
    return Fidelity(recorded, unchanged.device_span_ns)


class WholeRun(Struct, frozen=True, eq=False):
    """All that was launched in a run, to be replayed with other lengths of work."""

    recording: Recording
    script: Script
    unchanged: Replayed
    fidelity: Fidelity


def whole_run(run: Run) -> WholeRun | None:
    """`run`, whose calls are in order of their numbers, to be replayed; None if it recorded no
    launches."""
    recording = recording_of(run)
    if recording is None:
        return None
    works, waits = recording.works, recording.waits
    moments = works.moment[works.moment > NEVER]
    first = np.array([waits.begin.min(initial=moments.min())])
    last = np.array([waits.end.max(initial=moments.max()) + 1])
    script = Script.of(first, last)
    unchanged = replay(recording, script)
    return WholeRun(recording, script, unchanged, fidelity(recording, unchanged))

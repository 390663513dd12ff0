"""Replay: when work would have run had the host done only some of what it did, or the work taken
another time.

The host takes between launches what it took; where it waited for a device it waits anew. On each
stream, in the order that was recorded,

    begin = max(end of the work before + what lies between two in a queue, launch + latency)

The waits cut the launches into stretches in which the host is as far behind the recording as at
their begin. In a stretch ends follow from a running maximum: with `c` the sum of lengths so far,
`end = c + max(end before the stretch, max over the work so far of (launch + latency - c before))`,
where the lengths have what lies before each piece of work in a queue, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from profiler.analysis.replay.recording import Recording, Script
from profiler.analysis.replay.works import NEVER
from profiler.run.device_timeline import Times

__all__ = ["Replayed", "replay"]

_Reals = npt.NDArray[np.float64]
_FEW = 4  # pieces of work, for which plain numbers are faster than arrays


class Replayed(Struct, frozen=True, eq=False):
    """What a replay came to, in ns. `begin` and `end` are the host's in each slice of the script,
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
        """From the first begin of device work to the last end, 0 without any."""
        return int(self.done.max() - self.start.min()) if len(self.done) else 0


def replay(
    recording: Recording, script: Script, lengths: Times | None = None, begin_ns: int | None = None
) -> Replayed:
    """The run of `script` from `begin_ns` on, None: where its first slice began.

    `lengths` are those of the works, int64 [w], None: as recorded. What had been launched before
    the script's begin ends when it did.
    """
    works = recording.works
    origin = int(script.first[0]) if begin_ns is None else begin_ns
    taken = np.rint((script.last - script.first) * script.pace).astype(np.int64)
    taken = np.where(script.graph, np.minimum(recording.launch_ns, taken), taken)
    place = origin + np.append(0, np.cumsum(taken))
    expanded = _Expanded.of(recording, script, place)
    length = (works.length if lengths is None else lengths)[expanded.work]
    stops = _stops(recording, script, place, expanded)
    done, late_at, late = _run(expanded, length, stops, _free(recording, script))
    return Replayed(
        begin=place[:-1] + _late(late_at, late, place[:-1]),
        end=place[1:] + _late(late_at, late, place[1:]),
        work=expanded.work,
        slice=expanded.slice,
        start=done - length,
        done=done,
    )


def _late(at: Times, late: Times, moments: Times) -> Times:
    """How far the host is behind at each moment."""
    found: Times = late[np.searchsorted(at, moments, side="right")]
    return found


def _free(recording: Recording, script: Script) -> list[int]:
    """When each stream is done with what was launched before the script."""
    works = recording.works
    last = works.last_launched(script.first[:1])[0]
    found: list[int] = np.where(last >= 0, works.end[last], NEVER).tolist()
    return found


class _Expanded(Struct, frozen=True, eq=False):
    """The work of a script, slice by slice and there in order of launches: its place in `Works`,
    its slice, stream, the moment of its launch, when it may begin (NEVER: after what is before it)
    and how long after that; were the host never late. `begins` is where each slice begins, `rank`
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
        launch = place[of_slice] + script.at(of_slice, works.launch[work])
        known = works.launch[work] > NEVER
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(
            work=work,
            slice=of_slice,
            stream=works.stream[work],
            moment=place[of_slice] + script.at(of_slice, works.moment[work]),
            ready=np.where(known, launch + works.latency[work], NEVER),
            behind=np.where(script.graph[of_slice] & known, 0, works.behind[work]),
            begins=begins,
            rank=rank,
            low=low,
        )

    def place_of(self, works: Times, slices: Times) -> Times:
        """Where work that was launched in slices stands."""
        found: Times = self.begins[slices] + self.rank[works] - self.low[slices]
        return found


class _Stops(Struct, frozen=True, eq=False):
    """Waits in order of their ends, were the host never late: begin, end, tail and least time,
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
    begin = place[of_slice] + script.at(of_slice, waits.begin[row])
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
        mine = own[works.stream[waits.own[row[own]]] == number]
        at = own_place[works.stream[waits.own[row[own]]] == number]
        back = np.searchsorted(here, at) - waits.back[row[mine]]
        targets[mine, number] = np.where(back >= 0, here[back], -1)
    order = np.argsort(end, kind="stable")
    return _Stops(
        begin[order], end[order], waits.tail[row][order], waits.least[row][order], targets[order]
    )


def _run(
    expanded: _Expanded, length: Times, stops: _Stops, free: list[int]
) -> tuple[Times, Times, Times]:
    """When each piece of work is done, int64 [m]; how late the host is, int64 [v + 1], before the
    first and from each of the moments on, int64 [v]."""
    done = np.full(len(length), NEVER)
    stretch = np.searchsorted(stops.end, expanded.moment, side="right")
    order = np.lexsort((np.arange(len(length)), expanded.stream, stretch))
    keys = stretch * np.int64(len(free)) + expanded.stream
    cuts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    groups = np.append(cuts, len(order)).tolist()
    of_group = stretch[order[cuts]].tolist() if len(cuts) else []
    streams = expanded.stream[order[cuts]].tolist() if len(cuts) else []
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
    """When work of a stream ends that is free from `free` on."""
    total = np.cumsum(behind + length)
    known = ready > NEVER // 2
    earliest = np.where(known, ready + length - total, NEVER)
    found: Times = total + np.maximum(np.maximum.accumulate(earliest), free)
    return found

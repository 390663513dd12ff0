"""What ran on which track while something else ran: the work that may explain why that was slow.

    source = BusySource.of(run, commands)
    busy = source.between(start, end, own_calls, limit)     # every track between two moments
    Window(busy, *merged(starts, ends), own).overlaps()      # ns by track, beside one's own

The calls of other pipeline calls count as work of a track `Calls`, so that a run without commands
shows them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.call_kinds import rows_by_call
from profiler.run.intervals import Codes, Times, counts, ends, is_sorted, order_by
from profiler.run.run import Run
from profiler.trace.events import CALLS_TRACK

__all__ = [
    "BusySource",
    "BusyTracks",
    "Place",
    "Tracks",
    "Window",
    "merged",
    "places",
    "rows_by_place",
]

Place = tuple[str, str]
"""A device ("" for none) and one of its tracks."""


class _Busy(Struct, frozen=True, eq=False):
    """When a track was busy: `covered` ns of it before each of `edges`; and what ran, by
    `start`."""

    edges: Times
    covered: Times
    start: Times
    end: Times
    layer: pl.Series

    @classmethod
    def of(cls, start: Times, end: Times, layer: pl.Series) -> _Busy:
        first, last = merged(start, end)
        edges = np.stack((first, last), axis=1).ravel()
        lengths = np.stack((np.zeros_like(first), last - first), axis=1).ravel()
        return cls(edges, np.cumsum(lengths), start, end, layer)

    def within(self, start: Times, end: Times) -> int:
        """How much of the disjoint intervals it was busy in, in ns."""
        base = self.edges[0]
        at = (np.interp(t - base, self.edges - base, self.covered) for t in (end, start))
        return round(float(np.sum(next(at) - next(at))))

    def longest(self, start: Times, end: Times) -> str:
        """The layer that ran longest within the disjoint intervals."""
        spans = _Busy.of(start, end, self.layer)
        base = spans.edges[0]
        last, first = (
            np.interp(t - base, spans.edges - base, spans.covered) for t in (self.end, self.start)
        )
        found = pl.DataFrame({"layer": self.layer.cast(pl.String), "time": last - first})
        return str(found.group_by("layer").sum().sort("time", "layer").item(-1, 0))


class BusyTracks(Struct, frozen=True, eq=False):
    """The tracks that were busy between two moments; `looked_at` commands were read for it."""

    tracks: Mapping[Place, _Busy]
    looked_at: int


class Window(Struct, frozen=True, eq=False):
    """Disjoint intervals in order, in which something of one's `own` tracks ran, among others."""

    busy: BusyTracks
    start: Times
    end: Times
    own: Set[Place]

    @property
    def length(self) -> int:
        """Sum of the intervals, in ns."""
        return int((self.end - self.start).sum())

    def overlaps(self) -> dict[Place, int]:
        """How long each track but one's own was busy within the intervals, in ns."""
        if not len(self.start):
            return {}
        others = (
            (place, busy) for place, busy in self.busy.tracks.items() if place not in self.own
        )
        return {place: busy.within(self.start, self.end) for place, busy in others}

    def longest(self, place: Place) -> str:
        """The layer that ran longest on a track within the intervals."""
        return self.busy.tracks[place].longest(self.start, self.end)


class BusySource(Struct, frozen=True, eq=False):
    """The commands of a run by call, and from when to when those of each call ran."""

    run: Run
    commands: CommandArrays
    tracks: Tracks
    rows: Mapping[int, slice | Times]
    first: Times
    last: Times

    @classmethod
    def of(cls, run: Run, commands: CommandArrays) -> BusySource:
        """`commands` are those of `run`, whose calls are sorted by `call`."""
        rows = dict(rows_by_call(commands.call, len(run.calls)))
        first, last = run.calls["start_ns"].to_numpy().copy(), ends(run.calls)
        for call, some in rows.items():
            first[call] = min(first[call], commands.start[some].min())
            last[call] = max(last[call], commands.end[some].max())
        return cls(run, commands, Tracks.of(run.commands["track"]), rows, first, last)

    def between(self, start: int, end: int, own: Set[int], limit: int) -> BusyTracks | None:
        """What ran from `start` to `end`; `own` are the rows of calls whose span does not count.

        None where more than `limit` commands would have to be looked at.
        """
        calls = np.flatnonzero((self.first < end) & (self.last > start))
        free = np.flatnonzero(self.commands.call < 0)
        picked = [free, *map(self.rows_of, calls.tolist())]
        if sum(map(len, picked)) > limit:
            return None
        rows = np.concatenate(picked)
        looked_at = len(rows)
        here = (self.commands.start[rows] < end) & (self.commands.end[rows] > start)
        tracks = self._commands(rows[here])
        tracks.update(self._calls(np.array([c for c in calls.tolist() if c not in own], np.int64)))
        return BusyTracks(tracks, looked_at)

    def rows_of(self, call: int) -> Times:
        """The rows of the commands of a call, in their order."""
        rows = self.rows.get(call, slice(0, 0))
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows

    def _commands(self, rows: Times) -> dict[Place, _Busy]:
        frame, commands = self.run.commands, self.commands
        return {
            place: _Busy.of(commands.start[some], commands.end[some], frame["layer"].gather(some))
            for place, some in rows_by_place(commands, self.tracks, rows)
        }

    def _calls(self, calls: Times) -> dict[Place, _Busy]:
        rows = self.run.calls[calls].with_columns(end=pl.Series(ends(self.run.calls)[calls]))
        return {
            (str(device), CALLS_TRACK): _Busy.of(
                some["start_ns"].to_numpy(), some["end"].to_numpy(), some["submodule"]
            )
            for (device,), some in rows.group_by(pl.col("device").cast(pl.String))
        }


class Tracks(Struct, frozen=True, eq=False):
    """The tracks of commands: their `names`, and a code for each, int [n]."""

    names: pl.Series
    codes: Codes

    @classmethod
    def of(cls, names: pl.Series) -> Tracks:
        """The column `track` of a frame of commands."""
        return cls(names, names.to_physical().to_numpy())


def rows_by_place(
    commands: CommandArrays, tracks: Tracks, rows: Times
) -> list[tuple[Place, Times]]:
    """The places of some of `commands`, whose tracks are `tracks`, each with its rows."""
    devices = (*commands.devices, "")
    track = tracks.codes[rows]
    width = int(track.max(initial=0)) + 1
    code = commands.device[rows].astype(np.int64) * width + track
    order = order_by(code, len(devices) * width)
    heads = np.flatnonzero(np.diff(code[order], prepend=-1))
    groups = np.split(rows[order], heads[1:]) if len(rows) else []
    return [
        ((devices[int(commands.device[some[0]])], str(tracks.names[int(some[0])])), some)
        for some in groups
    ]


def places(commands: CommandArrays, tracks: Tracks, rows: Times) -> set[Place]:
    """The places of some of `commands`, whose tracks are `tracks`."""
    devices = (*commands.devices, "")
    track = tracks.codes[rows]
    width = int(track.max(initial=0)) + 1
    code = commands.device[rows].astype(np.int64) * width + track
    found = np.flatnonzero(counts(code, len(devices) * width))
    first = (int(rows[np.argmax(code == number)]) for number in found.tolist())
    return {(devices[int(commands.device[row])], str(tracks.names[row])) for row in first}


def merged(start: Times, end: Times) -> tuple[Times, Times]:
    """The union of intervals as disjoint ones, in order."""
    if not len(start):
        return start, end
    if not is_sorted(start):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    heads = np.flatnonzero(np.append(True, start[1:] > reached[:-1]))
    return start[heads], reached[np.append(heads[1:] - 1, len(start) - 1)]

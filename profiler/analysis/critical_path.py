"""The critical path: what the end-to-end time of each pipeline call consists of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Set
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.commands import HOST, SYNC, CommandArrays, rows_by_call
from profiler.analysis.idle import if_times_recorded, timeline_of
from profiler.analysis.idle_causes import NOT_LAUNCHED, Queues, RunTimeline, Stretch
from profiler.analysis.question import Table
from profiler.analysis.table_text import Sentences
from profiler.analysis.timeline import Axis
from profiler.run.columns import DATA_ONLY, INT32, INT64, NS, SHARE, STRING, Column, col, schema
from profiler.run.intervals import (
    Codes,
    Stretches,
    Times,
    batches,
    ends,
    order_by,
    positions,
    text_codes,
)
from profiler.run.run import Run
from profiler.text import said
from profiler.trace.events import CALLS_TRACK, CATEGORIES, NO_PIPELINE

# --- What ran on which track while something else ran: the work that may explain why that was slow.
#
#     source = BusySource.of(run, commands)
#     busy = source.between(start, end, own_calls, limit)     # every track between two moments
#     Window(busy, times, own).overlaps()      # ns by track, beside one's own
#
# The calls of other pipeline calls count as work of a track `Calls`, so that a run without commands
# shows them too.


Place = tuple[str, str]
"""A device ("" for none) and one of its tracks."""


class _Busy(Struct, frozen=True, eq=False):
    """When a track was busy, and what ran: `layer` from `start` to `end`."""

    times: Stretches
    start: Times
    end: Times
    layer: pl.Series

    @classmethod
    def of(cls, start: Times, end: Times, layer: pl.Series) -> _Busy:
        return cls(Stretches.union(start, end), start, end, layer)


BusyTracks = Mapping[Place, _Busy]


class Window(Struct, frozen=True, eq=False):
    """Times in which something ran on the `own` tracks, and what else ran (`busy`)."""

    busy: BusyTracks
    times: Stretches
    own: Set[Place]

    def overlaps(self) -> dict[Place, int]:
        """Return how long each track outside of `own` was busy in these times, in ns."""
        first, last = self.times.start, self.times.end
        return {
            place: int(busy.times.within(first, last).sum())
            for place, busy in self.busy.items()
            if len(first) and place not in self.own
        }

    def longest(self, place: Place) -> str:
        """The layer that ran longest on a track in these times."""
        busy = self.busy[place]
        time = self.times.within(busy.start, busy.end)
        found = pl.DataFrame({"layer": busy.layer.cast(pl.String), "time": time})
        return str(found.group_by("layer").sum().sort("time", "layer").item(-1, 0))


class BusySource(Struct, frozen=True, eq=False):
    """The commands of a run by call with their tracks, and the first start and last end of each
    call."""

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

    def between(
        self, start: int, end: int, own: Set[int], limit: int
    ) -> tuple[BusyTracks | None, int]:
        """Return what ran from `start` to `end` by track, and how many commands were examined; None
        and 0 if these would be more than `limit`. `own` are rows of calls whose span does not
        count."""
        calls = np.flatnonzero((self.first < end) & (self.last > start))
        free = np.flatnonzero(self.commands.call < 0)
        picked = [free, *(rows_in(self.rows, call) for call in calls.tolist())]
        if sum(map(len, picked)) > limit:
            return None, 0
        rows = np.concatenate(picked)
        here = (self.commands.start[rows] < end) & (self.commands.end[rows] > start)
        tracks = self._commands(rows[here])
        tracks.update(self._calls(np.array([c for c in calls.tolist() if c not in own], np.int64)))
        return tracks, len(rows)

    def _commands(self, rows: Times) -> dict[Place, _Busy]:
        frame, commands = self.run.commands, self.commands
        return {
            place: _Busy.of(commands.start[some], commands.end[some], frame["layer"][some])
            for place, some in rows_by_place(commands, self.tracks, rows)
        }

    def _calls(self, calls: Times) -> dict[Place, _Busy]:
        frame, by_device = self.run.calls, dict[str, list[int]]()
        for call, device in zip(calls.tolist(), frame["device"].gather(calls), strict=True):
            by_device.setdefault(str(device), []).append(call)
        start, end, submodule = frame["start_ns"].to_numpy(), ends(frame), frame["submodule"]
        return {
            (device, CALLS_TRACK): _Busy.of(start[some], end[some], submodule[some])
            for device, some in by_device.items()
        }


def rows_in(rows: Mapping[int, slice | Times], call: int) -> Times:
    """The rows of a call as an array; none if it has none."""
    found = rows.get(call, slice(0, 0))
    return np.arange(found.start, found.stop) if isinstance(found, slice) else found


class Tracks(Struct, frozen=True, eq=False):
    """The tracks of commands: their `names`, and a code for each, int [n]."""

    names: pl.Series
    codes: Codes

    @classmethod
    def of(cls, names: pl.Series) -> Tracks:
        """The tracks of a frame of commands, from its column `track`."""
        return cls(names, names.to_physical().to_numpy())


def rows_by_place(
    commands: CommandArrays, tracks: Tracks, rows: Times
) -> list[tuple[Place, Times]]:
    """Group `rows` of `commands` by device and track; `tracks` are the tracks of all commands."""
    devices, codes = (*commands.devices, ""), tracks.codes[rows]
    width = int(codes.max(initial=0)) + 1
    code = commands.device[rows].astype(np.int64) * width + codes
    order = order_by(code, len(devices) * width)
    heads = np.flatnonzero(np.diff(code[order], prepend=-1))
    groups = np.split(rows[order], heads[1:]) if len(rows) else []
    return [
        ((devices[int(commands.device[some[0]])], str(tracks.names[int(some[0])])), some)
        for some in groups
    ]


# --- Words of the tables that say who waits for whom: closed sets.


class PathPart(StrEnum):
    """What a piece of the critical path is."""

    CALL = "call"
    LAUNCHES = "launches"  # of a call whose device works behind the host
    COMPUTE = "compute"
    TRANSFER = "transfer"
    COLLECTIVE = "collective"  # while nothing else runs on the device
    QUEUED = "queued"
    HOST_WORK = "host_work"


# --- Columns of the tables that say who waits for whom; `columns` puts them among the others.


CRITICAL_PATH: tuple[Column, ...] = (
    col(
        "pipeline",
        INT32,
        "number of the pipeline call; -1 if the run has none",
        importance=DATA_ONLY,
    ),
    col("submodule", STRING, "submodule of the call; null for work in no call", True),
    col("part", STRING, ", ".join(PathPart), codes=PathPart),
    col("device", STRING, "where it ran, or the call was placed", True, importance=2),
    col("pieces", INT64, "calls, commands or host work of that part on the path", importance=1),
    col("path_ns", NS, "their time on the critical path", label="on the path"),
    col(
        "guessed_ns",
        NS,
        "part of path_ns for which no wait of the host was recorded: it is guessed because "
        "nothing else was recorded of the host; null for none",
        True,
        label="of it guessed",
    ),
    col("wall_ns", NS, "wall time of the pipeline call", importance=DATA_ONLY),
    col("share", SHARE, "path_ns / wall_ns"),
)


# --- The longest chain of intervals that follow each other: the most that a path can be.


def longest_chain(start: Times, end: Times) -> Times:
    """Return the rows of non-overlapping intervals `[start, end)` with the longest sum, by time,
    int64.

    Overlapping intervals form a cluster; chains go through clusters one after another. If one
    interval spans a cluster, it is the chain there (what lies in it is part of it); other clusters
    take O(m log m) steps for their m intervals.
    """
    rows = np.flatnonzero(end > start)
    if not len(rows):
        return rows
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    begin, until = start[rows], np.maximum.accumulate(end[rows])
    heads = np.append(0, np.flatnonzero(begin[1:] >= until[:-1]) + 1)
    tails = np.append(heads[1:], len(rows))
    spanned = end[rows[heads]] == until[tails - 1]  # the first of a cluster is its longest there
    chains = [rows[heads[spanned]]]
    for first, last in zip(heads[~spanned].tolist(), tails[~spanned].tolist(), strict=True):
        cluster = rows[first:last]
        chains.append(cluster[_best(start[cluster].tolist(), end[cluster].tolist())])
    chain = np.concatenate(chains)
    return chain[np.argsort(start[chain], kind="stable")]


def _best(start: list[int], end: list[int]) -> list[int]:
    """The longest chain in one cluster: weighted interval scheduling, by ends."""
    order = sorted(range(len(end)), key=end.__getitem__)
    ends = [end[i] for i in order]
    best, before = [0], []  # best of the first i by end; how many of them end before i starts
    for place, i in enumerate(order):
        before.append(bisect_right(ends, start[i], 0, place))
        best.append(max(best[-1], end[i] - start[i] + best[before[-1]]))
    chain, place = [], len(order)
    while place:
        if best[place] == best[place - 1]:
            place -= 1
        else:
            chain.append(order[place - 1])
            place = before[place - 1]
    return chain[::-1]


# --- The critical path of each pipeline call: what its end-to-end time consists of, one thing at a
# time.
#
# All of it is on the devices' axis: its time is that of the pipeline call there, without what was
# not recorded (`analysis.axis`), and a call is on the path with its tile. The path's links are the
# longest chain of what follows one another: tiles, host work of no call outside of tiles, and what
# devices did in no call, unless it has a known launch. Tiles of one device never overlap; if
# several devices work at once, or host work runs beside, the chain with most time is on the path.
#
# Devices that are given their work ahead (torch on GPUs) run while the host goes on. If flows
# record what launched each command, the path is on a device while the host waited for it and it was
# behind: `Queues` says when. A call's time is then on the path as
#
# - call: its tile; if it launched work, `launches`: its tile while others waited for the host;
# - compute, transfer, collective: the device ran commands of the call while the host was ahead or
#   waited, or had returned from the call (if that computes, all of its tile from there on is
#   compute);
# - queued: in between, the next command had been launched but not begun. If another queue of the
#   device worked meanwhile, the path is in that instead: in a collective only while nothing
#   computes.
#
# Work of no call is `host work`, compute or transfer. With S the stretches on devices and X the
# chain, in the time of the pipeline call,
#
#     path = |S| + |X| - |X and S|
#
# so that it is at most the end-to-end time and at least the longest tile. What is left is time in
# which nothing recorded ran on the path.


_PARTS = tuple(part.value for part in PathPart)
_CALL, _LAUNCHES, _COMPUTE, _TRANSFER, _COLLECTIVE, _QUEUED, _HOST_WORK = range(len(_PARTS))
_NOT_COMPUTE = {"host": _HOST_WORK, "dma": _TRANSFER, "copy": _TRANSFER, "collective": _COLLECTIVE}
_PART = np.array([_NOT_COMPUTE.get(name, _COMPUTE) for name in CATEGORIES])


def critical_path_table(timeline: RunTimeline) -> pl.DataFrame:
    """One row per pipeline call, submodule, part and device (`CRITICAL_PATH`), the longest of each
    pipeline call first; empty for a run without calls."""
    if timeline.run.calls.is_empty():
        return pl.DataFrame(schema=schema(CRITICAL_PATH))
    names = _Names.of(timeline)
    activities = _Activities.of(timeline, names)
    queues = Queues.of(timeline)
    others = _others(timeline.commands, queues)
    paths = _Paths(timeline.commands, activities, timeline.axis, queues, others, names)
    numbers = timeline.pipelines.numbers.tolist() or [NO_PIPELINE]
    rows = [(number, *row) for place, number in enumerate(numbers) for row in paths.rows_of(place)]
    table = pl.DataFrame(rows, schema=schema(CRITICAL_PATH), orient="row")
    order = ["pipeline", "path_ns", "submodule", "part", "device"]
    return table.sort(order, descending=[False, True, False, False, False], nulls_last=True)


class _Names(Struct, frozen=True, eq=False):
    """Submodules, parts and devices as one number: (submodule * parts + part) * places + place. The
    last submodule and the last place mean none. `of_call` is the submodule of each call, one more
    for -1; `of_tile` the place of each call's tile, `of_device` that of each of
    `CommandArrays.devices`, one more for none."""

    submodules: list[str | None]
    places: list[str | None]
    of_call: Times
    of_tile: Times
    of_device: Times

    @classmethod
    def of(cls, timeline: RunTimeline) -> _Names:
        codes, submodules = text_codes(timeline.run.calls["submodule"])
        tiles = timeline.run.tiles.calls["tile_device"].to_list()
        devices = sorted({*timeline.commands.devices, *tiles})
        place = {name: number for number, name in enumerate(devices)}
        return cls(
            submodules=[*submodules, None],
            places=[*devices, None],
            of_call=np.append(codes, len(submodules)).astype(np.int64),
            of_tile=np.array([place[name] for name in tiles], dtype=np.int64),
            of_device=np.array([*(place[n] for n in timeline.commands.devices), len(devices)]),
        )

    def __len__(self) -> int:
        return len(self.submodules) * len(_PARTS) * len(self.places)

    def code(self, submodule: Times, part: Codes | int, place: Codes) -> Times:
        """The numbers of submodules, parts and places, int64 [n]."""
        return (submodule * len(_PARTS) + part) * len(self.places) + place

    def named(self, code: int) -> tuple[str | None, str, str | None]:
        """Submodule, part and device of a number."""
        rest, place = divmod(code, len(self.places))
        submodule, part = divmod(rest, len(_PARTS))
        return self.submodules[submodule], _PARTS[part], self.places[place]


class _Activities(Struct, frozen=True, eq=False):
    """Tiles and work of no call, by pipeline call: `start`, `end` and `code` (of `_Names`), int64
    [n]; those of pipeline call p are in `bounds[p]` to `bounds[p + 1]`."""

    start: Times
    end: Times
    code: Times
    bounds: Times

    @classmethod
    def of(cls, timeline: RunTimeline, names: _Names) -> _Activities:
        commands, axis = timeline.commands, timeline.axis
        free = _free_rows(timeline)
        nothing = np.full(len(free), len(names.submodules) - 1)
        started, ended = _outside_of_tiles(timeline, free)
        launched = timeline.run.tiles.calls["queue_lead_ns"].is_not_null().to_numpy()
        behind, returned = _worked_behind(timeline, launched)
        until = axis.end.copy()
        until[behind] = returned
        start = np.concatenate((axis.begin, returned, started))
        end = np.concatenate((until, axis.end[behind], ended))
        of_host = np.where(launched, _LAUNCHES, _CALL)
        of_calls = names.code(names.of_call[:-1], of_host, names.of_tile)
        kind = _kinds(timeline)[behind]
        if len(behind) and len(timeline.launches):
            worked = _worked(timeline, behind, returned)
            kind = np.where(2 * worked < axis.end[behind] - returned, _LAUNCHES, kind)
        of_behind = names.code(names.of_call[behind], kind, names.of_tile[behind])
        part = _PART[commands.category[free]]
        of_work = names.code(nothing, part, names.of_device[commands.device[free]])
        code = np.concatenate((of_calls, of_behind, of_work))
        pipeline = _pipeline_of(timeline, behind, free)
        order = np.argsort(pipeline, kind="stable")
        order = order[np.searchsorted(pipeline[order], 0) :]
        groups = max(len(timeline.pipelines.numbers), 1)
        bounds = np.searchsorted(pipeline[order], np.arange(groups + 1))
        return cls(start[order], end[order], code[order], bounds)

    def of_pipeline(self, place: int) -> slice:
        """The rows of one pipeline call."""
        return slice(*self.bounds[place : place + 2].tolist())


def _kinds(timeline: RunTimeline) -> Times:
    """Return what devices do in each call: compute, else a collective, else a transfer; compute if
    they do nothing."""
    commands = timeline.commands
    does = np.zeros((len(timeline.run.calls), len(_PARTS)), dtype=np.bool_)
    for rows in batches(len(commands.call)):
        call, category = commands.call[rows], commands.category[rows]
        works = (call >= 0) & (category != SYNC)
        does[call[works], _PART[category[works]]] = True
    kinds = np.array((_COMPUTE, _COLLECTIVE, _TRANSFER))
    found: Times = kinds[does[:, kinds].argmax(axis=1)]
    return found


def _worked_behind(timeline: RunTimeline, launched: npt.NDArray[np.bool_]) -> tuple[Times, Times]:
    """Return the rows of calls that `launched` work and returned before it was done, and when,
    within their tiles, they returned."""
    calls, axis = timeline.run.calls, timeline.axis
    returned = np.maximum(ends(calls), axis.begin)
    behind = np.flatnonzero(launched & (returned < axis.end))
    return behind, returned[behind]


def _worked(timeline: RunTimeline, calls: Times, since: Times) -> Times:
    """Return how long the device of each call's tile worked from `since` to the end of the tile, in
    ns."""
    commands, end = timeline.commands, timeline.axis.end[calls]
    tiles = timeline.run.tiles.calls["tile_device"].gather(calls).cast(pl.String).to_numpy()
    found = np.zeros(len(calls), dtype=np.int64)
    works = (commands.category != SYNC) & (commands.category != HOST)
    for code, device in enumerate(commands.devices):
        here, rows = tiles == device, np.flatnonzero(works & (commands.device == code))
        if here.any() and len(rows):
            busy = Stretches.union(commands.start[rows], commands.end[rows])
            found[here] = busy.within(since[here], end[here])
    return found


def _outside_of_tiles(timeline: RunTimeline, free: Times) -> tuple[Times, Times]:
    """Start and end of work of no call. Host work is cut where it overlaps the tile in which it
    starts or ends: a host that waits there is the tile's time."""
    commands, axis = timeline.commands, timeline.axis
    start, end = commands.start[free].copy(), commands.end[free].copy()
    tiles = Stretches.union(axis.begin, axis.end)
    rows = np.flatnonzero(commands.category[free] == HOST)
    if len(tiles) and len(rows):
        place = np.searchsorted(tiles.start, start[rows], side="right") - 1
        until = np.where(place >= 0, tiles.end[place], start[rows])
        place = np.searchsorted(tiles.start, end[rows], side="left") - 1
        inside = (place >= 0) & (tiles.end[place] > end[rows])
        since = np.where(inside, tiles.start[place], end[rows])
        start[rows] = np.maximum(start[rows], until)
        end[rows] = np.maximum(start[rows], since)
    return start, end


def _free_rows(timeline: RunTimeline) -> Times:
    """Return the rows of work of no call that has no known launch; waits are no work."""
    commands, launches = timeline.commands, timeline.launches
    free = np.flatnonzero((commands.call < 0) & (commands.category != SYNC))
    return free[launches.returned[free] == NOT_LAUNCHED] if len(launches) else free


def _pipeline_of(timeline: RunTimeline, behind: Times, free: Times) -> Codes:
    """The index of the pipeline call for each call, then for the rows `behind` of calls and the
    rows `free` of commands; -1 for none. Without pipeline calls all have 0."""
    run, pipelines, code = timeline.run, timeline.pipelines, timeline.axis.code
    if not len(pipelines.numbers):
        return np.zeros(len(code) + len(behind) + len(free), dtype=np.int32)
    of_free = positions(pipelines.number_of(run.commands, free), pipelines.numbers)
    return np.concatenate((code, code[behind], of_free))


_Others = Mapping[int, tuple[tuple[Times, Stretches], ...]]
"""By device: rows and disjoint times of its compute, collectives and transfers. A moment counts for
the command that started first."""


def _others(commands: CommandArrays, queues: Queues) -> _Others:
    """The work of devices with several queues, of which one may run while another waits."""
    found: dict[int, tuple[tuple[Times, Stretches], ...]] = {}
    for device in queues.shared:
        own = np.flatnonzero((commands.device == device) & (commands.category != SYNC))
        own = own[np.argsort(commands.start[own], kind="stable")]
        part = _PART[commands.category[own]]
        found[device] = tuple(
            _disjoint(commands, own[part == kind]) for kind in (_COMPUTE, _COLLECTIVE, _TRANSFER)
        )
    return found


def _disjoint(commands: CommandArrays, rows: Times) -> tuple[Times, Stretches]:
    """Return the `rows`, sorted by start, that run while no earlier one does, and when they do."""
    start, end = commands.start[rows], np.maximum.accumulate(commands.end[rows])
    begin = np.maximum(start, np.append(np.iinfo(np.int64).min, end[:-1])[: len(start)])
    kept = end > begin
    return rows[kept], Stretches(begin[kept], end[kept])


class _Paths(Struct, frozen=True, eq=False):
    """What the critical path of a pipeline call is computed from."""

    commands: CommandArrays
    activities: _Activities
    axis: Axis
    queues: Queues
    others: _Others
    names: _Names

    def rows_of(
        self, place: int
    ) -> Iterator[tuple[str | None, str, str | None, int, int, int | None, int, float]]:
        """The table's rows of a pipeline call, without its number."""
        known = len(self.axis.pipelines.numbers) > 0
        counted = self.axis.counted_in(place if known else None)
        wall_ns = counted.length
        if not wall_ns:
            return
        sums = np.zeros((3, len(self.names)), dtype=np.int64)
        stretches = self.queues.stretches(int(counted.start[0]), int(counted.end[-1]))
        on_device = ((*self._on_device(one, counted), one.guessed) for one in stretches)
        for code, took, guessed in ((*self._on_host(place, stretches, counted), False), *on_device):
            sums[0] += np.bincount(code[took > 0], minlength=len(self.names))
            exact = np.bincount(code, took, len(self.names)).astype(np.int64)  # to 2^53
            sums[1] += exact
            sums[2] += exact * guessed
        for number in np.flatnonzero(sums[1]).tolist():
            pieces, took_ns, guessed_ns = sums[:, number].tolist()
            share = took_ns / wall_ns
            yield (*self.names.named(number), pieces, took_ns, guessed_ns or None, wall_ns, share)

    def _on_host(
        self, place: int, stretches: list[Stretch], counted: Stretches
    ) -> tuple[Times, Times]:
        """Return the numbers of the chain's links, and the time of each outside of `stretches`.
        Only `counted` time counts, so the chain is computed in counted time."""
        rows = self.activities.of_pipeline(place)
        start = counted.before(self.activities.start[rows])
        end = counted.before(self.activities.end[rows])
        chain = longest_chain(start, end)
        start, end = start[chain], end[chain]
        began = np.array([stretch.start for stretch in stretches], dtype=np.int64)
        ended = np.array([stretch.end for stretch in stretches], dtype=np.int64)
        on_device = Stretches.union(counted.before(began), counted.before(ended))
        took = end - start - on_device.within(start, end)
        return self.activities.code[rows][chain], took

    def _on_device(self, stretch: Stretch, counted: Stretches) -> tuple[Times, Times]:
        """Numbers and times of the commands in a stretch. While they were queued, what other queues
        did counts; the rest of that time is `queued`."""
        row, ran, queued = self.queues.parts(stretch, self.commands)
        edges = np.append(stretch.start, np.cumsum(np.stack((queued, ran), axis=1).ravel()))
        edges[1:] += stretch.start
        moments = counted.before(edges)
        began, ended = moments[:-1:2], moments[1::2]
        links = [(self._code(row), moments[2::2] - ended)]
        waiting = Stretches.union(began, ended)
        for others, times in self.others.get(int(self.commands.device[row[0]]), ()):
            first = np.searchsorted(times.end, stretch.start, side="right")
            last = np.searchsorted(times.start, stretch.end, side="left")
            extents = times.start[first:last], times.end[first:last]
            begin, until = map(counted.before, extents)
            took = waiting.within(begin, until)
            links.append((self._code(others[first:last]), took))
            waiting = waiting.minus(Stretches.union(begin, until))
        links.append((self._code(row, _QUEUED), waiting.within(began, ended)))
        codes, took = zip(*links, strict=True)
        return np.concatenate(codes), np.concatenate(took)

    def _code(self, row: Times, part: int | None = None) -> Times:
        """The numbers of commands, with `part` or else the part of each."""
        submodule = self.names.of_call[self.commands.call[row]]
        place = self.names.of_device[self.commands.device[row]]
        parts = _PART[self.commands.category[row]] if part is None else part
        return self.names.code(submodule, parts, place)


# --- The table of critical paths.


TABLES = (
    Table(
        name="critical_path",
        row="one part of a pipeline call's critical path",
        section="idle",
        columns=CRITICAL_PATH,
        make=if_times_recorded(CRITICAL_PATH, lambda of: critical_path_table(timeline_of(of))),
        title="Critical path",
        about="Rows cover the whole run, the longest of each pipeline call first. "
        "[idle.md](idle.md) says what a path is and what its parts are.",
        rank=("pipeline", "-path_ns"),
        shown=30,
    ),
)


# --- Sentences about critical paths.


NULLS = {PathPart: said("other")}  # what the longest parts leave

SENTENCES: Sentences = {PathPart: {PathPart.LAUNCHES: "host launches"}}

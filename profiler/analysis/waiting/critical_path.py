"""The critical path of each pipeline call: what its end-to-end time consists of, one thing at a
time.

All of it is on the devices' axis: its time is that of the pipeline call there, without what was
not recorded (`analysis.axis`), and a call is on the path with its tile. The path's links are the
longest chain of what follows one another: tiles, host work of no call outside of tiles, and what
devices did in no call, unless somebody launched it. Tiles of one device never overlap; where
several devices work at once, or host work runs beside, the chain with most time is on the path.

Devices that are given their work ahead (torch on GPUs) run while the host goes on. Where flows tell
what launched which command, the path is on a device while the host waited for it and it was
behind: `device_queues` says when. A call's time is then on the path as

- call: its tile; where it launched work, `launches`: its tile while others waited for the host;
- compute, transfer: the device ran commands of the call while the host was ahead or waited, or had
  returned from the call (all of its tile from there on is compute);
- queued: in between, the next command had been launched but not begun.

Work of no call is `host work`, compute or transfer. With S the stretches on devices and X the
chain, in the time of the pipeline call,

    path = |S| + |X| - |X and S|

so that it is at most the end-to-end time and at least the longest tile. What is left is time in
which nothing recorded ran on the path.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import HOST, CommandArrays
from profiler.analysis.axis import Axis
from profiler.analysis.waiting.codes import PathPart
from profiler.analysis.waiting.columns import CRITICAL_PATH
from profiler.analysis.waiting.coverage import Cover
from profiler.analysis.waiting.device_queues import Queues, Stretch
from profiler.analysis.waiting.launches import NOT_LAUNCHED
from profiler.analysis.waiting.longest_chain import longest_chain
from profiler.analysis.waiting.run_timeline import RunTimeline
from profiler.run.columns import schema
from profiler.run.intervals import Codes, Stretches, Times, ends, positions, text_codes
from profiler.trace.events import CATEGORIES, NO_PIPELINE

__all__ = ["critical_path_table"]

_PARTS = tuple(part.value for part in PathPart)
_CALL, _LAUNCHES, _COMPUTE, _TRANSFER, _QUEUED, _HOST_WORK = range(len(_PARTS))
_PART = np.array(
    [
        {"host": _HOST_WORK, "dma": _TRANSFER, "copy": _TRANSFER}.get(name, _COMPUTE)
        for name in CATEGORIES
    ]
)
_SYNC = CATEGORIES.index("sync")


def critical_path_table(timeline: RunTimeline) -> pl.DataFrame:
    """One row a pipeline call, submodule, part and device (`columns.CRITICAL_PATH`), the longest of
    each pipeline call first; empty for a run without calls."""
    if timeline.run.calls.is_empty():
        return pl.DataFrame(schema=schema(CRITICAL_PATH))
    paths = _Paths.of(timeline)
    numbers = timeline.pipelines.numbers.tolist() or [NO_PIPELINE]
    rows = [(number, *row) for place, number in enumerate(numbers) for row in paths.rows_of(place)]
    table = pl.DataFrame(rows, schema=schema(CRITICAL_PATH), orient="row")
    order = ["pipeline", "path_ns", "submodule", "part", "device"]
    return table.sort(order, descending=[False, True, False, False, False], nulls_last=True)


class _Names(Struct, frozen=True, eq=False):
    """Submodules, parts and devices as one number: (submodule * parts + part) * places + place.
    The last submodule and the last place stand for none. `of_call` is the submodule of each call,
    one more for -1; `of_tile` the place of each call's tile, `of_device` that of each of
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
        """The numbers of these, int64 [n]."""
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
        launched = timeline.run.tiles.calls["lead_ns"].is_not_null().to_numpy()
        behind, returned = _worked_behind(timeline, launched)
        until = axis.end.copy()
        until[behind] = returned
        start = np.concatenate((axis.begin, returned, started))
        end = np.concatenate((until, axis.end[behind], ended))
        of_host = np.where(launched, _LAUNCHES, _CALL)
        of_calls = names.code(names.of_call[:-1], of_host, names.of_tile)
        of_behind = names.code(names.of_call[behind], _COMPUTE, names.of_tile[behind])
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


def _worked_behind(timeline: RunTimeline, launched: npt.NDArray[np.bool_]) -> tuple[Times, Times]:
    """Rows of calls that `launched` work and had returned before it was done, and from when on in
    their tiles they had."""
    calls, axis = timeline.run.calls, timeline.axis
    returned = np.maximum(ends(calls), axis.begin)
    behind = np.flatnonzero(launched & (returned < axis.end))
    return behind, returned[behind]


def _outside_of_tiles(timeline: RunTimeline, free: Times) -> tuple[Times, Times]:
    """Begin and end of work of no call; of the host's without what of it lies in the tile in which
    it begins or ends: a host that waits there is the tile's time."""
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
    """Rows of work of no call that nobody is known to have launched; waits are no work."""
    commands, launches = timeline.commands, timeline.launches
    free = np.flatnonzero((commands.call < 0) & (commands.category != _SYNC))
    return free[launches.returned[free] == NOT_LAUNCHED] if len(launches) else free


def _pipeline_of(timeline: RunTimeline, behind: Times, free: Times) -> Codes:
    """The place of the pipeline call of each call, then of the rows `behind` of calls and the rows
    `free` of commands; -1 for none. Without pipeline calls all are of one."""
    run, pipelines, code = timeline.run, timeline.pipelines, timeline.axis.code
    if not len(pipelines.numbers):
        return np.zeros(len(code) + len(behind) + len(free), dtype=np.int32)
    of_free = positions(pipelines.number_of(run.commands, free), pipelines.numbers)
    return np.concatenate((code, code[behind], of_free))


class _Paths(Struct, frozen=True, eq=False):
    """What paths are made of."""

    commands: CommandArrays
    activities: _Activities
    axis: Axis
    queues: Queues
    names: _Names

    @classmethod
    def of(cls, timeline: RunTimeline) -> _Paths:
        names = _Names.of(timeline)
        activities = _Activities.of(timeline, names)
        queues = Queues.of(timeline)
        return cls(timeline.commands, activities, timeline.axis, queues, names)

    def rows_of(
        self, place: int
    ) -> Iterator[tuple[str | None, str, str | None, int, int, int | None, int, float]]:
        """The rows of a pipeline call, without its number."""
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
        """Numbers of the links of the chain, and the time of each outside the stretches; in the
        time that counts alone, which is why the chain is one of times before which so much of it
        lies."""
        rows = self.activities.of_pipeline(place)
        start = counted.before(self.activities.start[rows])
        end = counted.before(self.activities.end[rows])
        chain = longest_chain(start, end)
        start, end = start[chain], end[chain]
        began = np.array([stretch.start for stretch in stretches], dtype=np.int64)
        ended = np.array([stretch.end for stretch in stretches], dtype=np.int64)
        on_device = Cover.of(counted.before(began), counted.before(ended))
        took = end - start - (on_device.before(end) - on_device.before(start))
        return self.activities.code[rows][chain], took

    def _on_device(self, stretch: Stretch, counted: Stretches) -> tuple[Times, Times]:
        """Numbers of the commands in a stretch and their times; once more for their queueing."""
        row, ran, queued = self.queues.parts(stretch, self.commands)
        edges = stretch.start + np.cumsum(np.stack((queued, ran), axis=1).ravel())
        lengths = np.diff(counted.before(np.append(stretch.start, edges)))
        submodule = self.names.of_call[self.commands.call[row]]
        place = self.names.of_device[self.commands.device[row]]
        part = _PART[self.commands.category[row]]
        codes = (self.names.code(submodule, kind, place) for kind in (part, _QUEUED))
        return np.concatenate(list(codes)), np.concatenate((lengths[1::2], lengths[::2]))

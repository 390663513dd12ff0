"""The gaps of each device, in which nothing runs on it, and what each is put down to.

Every moment of a device's span, from its first command or tile to the end of its last, at which
nothing runs on it is put down to the first of these that holds of it:

- unrecorded: nothing was recorded though work or the host waited (`table.tiles`), or a drop says
  that commands of the call whose tile it lies in are missing;
- outside: it lies outside of the end-to-end time, such as among carried-over work (what of it was
  the profiler's own work counts for nothing, not even for the span);
- a copy: a command of its own runs that waits for an asynchronous copy (`copy-done` of XLA);
- another device: another sync command of its own runs, or another device works for a call of this
  one's;
- in the tile of one of its calls: queue, where what ends the gap had been launched in time; unknown
  cause, where its launch was not recorded though others were, or nothing of the host was; else
  launch: it was launched too late, nothing was left to launch, or the trace knows no launches;
- another device, once more: no tile of its own, but a tile of another device's call, of a pipeline
  call in which this device has calls too. Calls of a submodule that this device runs itself are
  copies of its own work (data parallel, one program on many devices): it does not wait for them;
- host: the rest, between calls.

Where the host waited for a device when this one ran dry, launch and host are *sync*: the host could
not launch ahead, because it waited. What was not recorded is never put down to the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from profiler.analysis.arrays import HOST, SYNC, CommandArrays
from profiler.analysis.axis import Axis
from profiler.analysis.device_spans import device_spans
from profiler.analysis.host_side import host_unseen
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.waiting.device_gaps import DeviceGaps
from profiler.run.device_timeline import Axes, DeviceAxis, Launches
from profiler.run.intervals import Codes, Stretches, Times
from profiler.run.run import Run

__all__ = ["device_gaps"]

_Flags = npt.NDArray[np.bool_]
_COPY = re.compile(r"(copy|slice)-(start|done)")  # what XLA calls the two ends of a copy


def device_gaps(
    run: Run,
    commands: CommandArrays,
    axes: Axes,
    axis: Axis,
    pipelines: PipelineCalls,
    dropped: Sequence[int],
) -> tuple[DeviceGaps, ...]:
    """The gaps of each device that worked and whose calls were traced, by name.

    `commands`, `axes`, `axis` and `pipelines` are those of `run`, whose calls are sorted by `call`;
    `dropped` are the rows of calls that drops name.
    """
    spans = device_spans(run, commands)
    work, unseen = _Work.of(run, commands, axes.axes, axis, pipelines, dropped), host_unseen(run)
    placed = run.calls["device"].cast(pl.String).to_numpy()
    untraced = ~run.calls["ops_traced"].to_numpy()
    found = []
    for number, name in enumerate(axes.axes):
        here = placed == name
        if not (untraced & here).any() if here.any() else not untraced.any():
            lost = axes.unrecorded.get(name, Stretches.none())
            found.append(work.gaps(number, name, spans[name], axes.launches, lost, unseen=unseen))
    return tuple(found)


class _Work(Struct, frozen=True, eq=False):
    """What the gaps of all devices are measured with. `uses` tells which call, of those in rows,
    worked or has its tile on which device, bool [devices, calls]; `last` is when the last work of
    each call on each device ended, int64 likewise, long ago for none; `pipeline` is the pipeline
    call of each, None where the run has none, `submodule` a code of what each is a call of."""

    commands: CommandArrays
    layers: pl.Series
    axes: Sequence[DeviceAxis]
    axis: Axis
    begin: Times
    end: Times
    uses: npt.NDArray[np.bool_]
    last: npt.NDArray[np.int64]
    pipeline: Codes | None
    submodule: Codes
    missing: Stretches
    host: Stretches

    @classmethod
    def of(
        cls,
        run: Run,
        commands: CommandArrays,
        axes: Mapping[str, DeviceAxis],
        axis: Axis,
        pipelines: PipelineCalls,
        dropped: Sequence[int],
    ) -> _Work:
        tiles = run.tiles.calls
        begin, end = tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()
        last = np.full((len(axes), len(tiles) + 1), np.iinfo(np.int64).min)
        for row, one in zip(last, axes.values(), strict=True):
            np.maximum.at(row, one.call[one.heads], np.maximum.reduceat(one.end, one.heads))
        last = last[:, :-1]
        on = tiles["tile_device"].to_numpy()
        rows = np.array(dropped, dtype=np.int64)
        free = np.flatnonzero((commands.call < 0) & (commands.category == HOST))
        host = Stretches.union(commands.start[free], commands.end[free])
        return cls(
            commands=commands,
            layers=run.commands["layer"],
            axes=tuple(axes.values()),
            axis=axis,
            begin=begin,
            end=end,
            uses=(last > np.iinfo(np.int64).min) | (np.array([*axes])[:, None] == on[None, :]),
            last=last,
            pipeline=pipelines.code_of(run.calls) if len(pipelines.numbers) else None,
            submodule=run.calls["submodule"].cast(pl.Categorical).to_physical().to_numpy(),
            missing=Stretches.union(begin[rows], end[rows]),
            host=host.minus(axis.waits),
        )

    def gaps(
        self,
        number: int,
        name: str,
        span: tuple[int, int],
        launches: Launches | None,
        unrecorded: Stretches,
        *,
        unseen: bool,
    ) -> DeviceGaps:
        """The gaps of one device; `unseen` is whether nothing of the host was recorded."""
        own = np.flatnonzero(self.uses[number])
        counted = self.axis.counted.minus(self.missing)
        tiles = Stretches.union(self.begin[own], self.end[own])
        last = np.clip(self.last[number, own], self.begin[own], self.end[own])
        ended = Stretches.union(last, self.end[own])
        copying = self._copying(name)
        covers = [Stretches.of_all((copying, self._elsewhere(number, name))).both(counted)]
        for more in (ended, tiles, self._tiles_beside(self.uses[number]), self.host):
            covers.append(Stretches.of_all((covers[-1], more.both(counted))))
        axis = self.axes[number]
        launch, late = _ended(axis, launches)
        return DeviceGaps(
            device=name,
            calls=own,
            span=span,
            busy=axis.busy,
            launch=launch,
            late=late,
            unknown=_unknown(axis, launch, unseen=unseen),
            counted=counted,
            copying=copying.both(counted),
            elsewhere=covers[0],
            tails=covers[1],
            own=covers[2],
            others=covers[3],
            host=covers[4],
            in_tiles=tiles.both(counted),
            profilers=self.axis.beside.minus(unrecorded),
            missing=self.axis.counted.both(self.missing),
            unrecorded=Stretches.of_all((unrecorded, self.missing)),
            waits=self.axis.waits,
        )

    def _elsewhere(self, number: int, name: str) -> Stretches:
        """When a sync command of the device runs, or another device works for its calls."""
        commands, syncs = self.commands, self._syncs(name)
        found = [Stretches.union(commands.start[syncs], commands.end[syncs])]
        several = self.uses[number] & ((self.last > np.iinfo(np.int64).min).sum(axis=0) > 0)
        for other, axis in enumerate(self.axes):
            shared = np.append(several & self.uses[other], False)  # a call of -1 takes the last
            if other != number and shared.any():
                kept = shared[axis.call]
                found.append(Stretches.union(axis.start[kept], axis.end[kept]))
        return Stretches.of_all(found)

    def _copying(self, name: str) -> Stretches:
        """When a command of the device runs that waits for a copy."""
        syncs = self._syncs(name)
        copies = self.layers[syncs].cast(pl.String).fill_null("").str.contains(_COPY.pattern)
        rows = syncs[copies.to_numpy()]
        return Stretches.union(self.commands.start[rows], self.commands.end[rows])

    def _syncs(self, name: str) -> Times:
        """The rows of the device's sync commands."""
        here = self.commands.device == self.commands.devices.index(name)
        return np.flatnonzero(here & (self.commands.category == SYNC))

    def _tiles_beside(self, own: _Flags) -> Stretches:
        """The tiles of calls that are not a device's own, nor of submodules that it runs itself, of
        the pipeline calls in which it has some: of the run, where that has none."""
        beside = ~own & ~np.isin(self.submodule, self.submodule[own])
        if self.pipeline is not None:
            beside &= np.isin(self.pipeline, self.pipeline[own & (self.pipeline >= 0)])
        rows = np.flatnonzero(beside)
        return Stretches.union(self.begin[rows], self.end[rows])


def _ended(axis: DeviceAxis, launches: Launches | None) -> tuple[Codes, _Flags] | tuple[None, None]:
    """Of each gap of an axis, the row of the command that launched what ends it, -1 where none is
    known, and whether it did so too late; nothing ends the last. None without launches."""
    if launches is None or axis.source is None:
        return None, None
    return np.append(axis.source[axis.ender], np.int32(-1)), np.append(axis.late(launches), False)


def _unknown(axis: DeviceAxis, launch: Codes | None, *, unseen: bool) -> _Flags | None:
    """Of each gap whether nothing tells if the host was late, None where that is so of none: the
    launch of what ends it was not recorded. Nothing ends the last one: the host is seen there."""
    if unseen:
        return np.ones(len(axis.gaps), dtype=np.bool_)
    if launch is None:
        return None
    unknown = launch < 0
    unknown[-1] = False
    return unknown if unknown.any() else None

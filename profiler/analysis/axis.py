"""The devices' axis of a run: how long its pipeline calls lasted there, when their calls had their
tiles, and when the host worked beside them.

A pipeline call lasts from the begin of its span to the later of its span's end and the end of the
last command that was launched for it. Where it begins before all that the one before it launched
has ended, though on the host they follow each other, it lasts from there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from profiler.analysis.pipelines import PipelineCalls
from profiler.run.device_timeline import EndToEnd, Ranges, device_work
from profiler.run.intervals import Codes, Stretches, Times, ends
from profiler.run.run import Run
from profiler.trace.events import CATEGORIES, CPU_DEVICE, NO_CALL

__all__ = ["Axis", "GroupAxis"]

_HOST = CATEGORIES.index("host")
_CONVERT = "convert"  # the profiler's work that waits until nobody waits for it


class GroupAxis(Struct, frozen=True, eq=False):
    """What belongs to some pipeline calls: `windows` are their times, `tiles` their calls', `host`
    is when the host worked for them and no tile was, all of it less what was not recorded or
    carried over (`lost`, within the windows) and, outside of tiles, less the profiler's own work
    (`own`, within the windows). `begin` and `end` of the tiles are int64 [k], in
    order of `rows`, the rows of their calls; empty ones are none."""

    windows: Stretches
    tiles: Stretches
    host: Stretches
    lost: Stretches
    own: Stretches
    rows: Times
    begin: Times
    end: Times

    @property
    def counted(self) -> Stretches:
        """The windows less what does not count of them."""
        return self.windows.minus(self.lost).minus(self.own)

    def times(self, first: Times, last: Times) -> tuple[Times, Times, Times, Times]:
        """Elapsed, in calls, host work and idle, in each `[first, last)` of the windows, int64."""
        elapsed = self.counted.within(first, last)
        calls, host = self.tiles.within(first, last), self.host.within(first, last)
        return elapsed, calls, host, elapsed - calls - host


class Axis(Struct, frozen=True, eq=False):
    """The axis of a run. `first` and `last` are the windows of its pipeline calls, int64 [p], in
    order of `pipelines.numbers`; `begin` and `end` are the tiles of its calls, int64 [n], `code`
    their pipeline calls. `own` is the profiler's work: begin, end, and the pipeline call that
    waited for it; `waited` is all of it that some caller waited for, in tiles too."""

    pipelines: PipelineCalls
    first: Times
    last: Times
    begin: Times
    end: Times
    code: Codes
    work: tuple[Times, Times, Codes]
    own: tuple[Times, Times, Codes]
    waited: Stretches
    lost: Stretches
    waits: Stretches
    whole: EndToEnd | None
    _made: dict[int | None, Stretches] = field(default_factory=dict)
    _groups: dict[int, GroupAxis] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, pipelines: PipelineCalls) -> Axis:
        """The axis of `run`."""
        tiles = run.tiles
        begin, end = (tiles.calls[name].to_numpy() for name in ("begin_ns", "end_ns"))
        code = pipelines.code_of(run.calls)
        free = _free_work(run)
        of_free = pipelines.code_of(free)
        works = device_work(free["category"].to_physical().to_numpy())
        on_cpu = free["device"].cast(pl.String).str.contains(CPU_DEVICE).fill_null(value=False)
        last_work = np.where(works, ends(free), np.iinfo(np.int64).min)
        told = pipelines.known or len(pipelines.numbers) == 1  # for whom work of no call was
        last_work = last_work if told else np.full(len(free), np.iinfo(np.int64).min)
        first, last = _windows(pipelines, (code, _done(run)), (of_free, last_work))
        hosting = np.flatnonzero(~works | on_cpu.to_numpy())
        own = run.calls["start_ns"].to_numpy()
        work = (
            np.concatenate((free["start_ns"].to_numpy()[hosting], own)),
            np.concatenate((ends(free)[hosting], ends(run.calls))),
            np.concatenate((of_free[hosting], code)),
        )
        lost = Stretches.of_all((tiles.unrecorded, tiles.carried_over))
        spans = run.spans.filter(pl.col("kind") == "profiler")
        ours = (spans["start_ns"].to_numpy(), ends(spans), pipelines.code_of(spans))
        for_caller = np.flatnonzero((ours[2] >= 0) | (spans["name"] != _CONVERT).to_numpy())
        return cls(
            pipelines,
            first,
            last,
            begin,
            end,
            code,
            work,
            ours,
            Stretches.union(ours[0][for_caller], ours[1][for_caller]),
            lost,
            tiles.waits,
            tiles.whole,
        )

    def of_pipeline(self, code: int) -> GroupAxis:
        """What belongs to one pipeline call, by its place in `pipelines.numbers`."""
        if code not in self._groups:  # several tables ask for each
            self._groups[code] = self._group(code, self._windows(code))
        return self._groups[code]

    def of_all(self) -> GroupAxis:
        """What belongs to the run, as if all of its pipeline calls were one. Without any it lasts
        from the first tile or command of a device to the last."""
        return self._group(None, self._windows(None))

    def taken(self, rows: Codes, *, told: bool) -> int:
        """How long the tiles of some calls, rows of the run's, are in its pipeline calls: their
        union in each; in all as if they were one, where it is not `told` whose they are."""
        groups = range(len(self.first)) if told else [None]
        total = 0
        for code in groups:
            own = rows if code is None else rows[self.code[rows] == code]
            if len(own):
                tiles = Stretches.union(self.begin[own], self.end[own])
                total += tiles.both(self.counted_in(code)).length
        return total

    def taken_by_each(self, rows: Codes, begin: Times, end: Times, *, told: bool) -> Times:
        """The same of each call by itself, int64; its tile lasts from `begin` to `end`."""
        if not told:
            return self.counted_in(None).within(begin, end)
        found = np.zeros(len(rows), dtype=np.int64)
        for code in range(len(self.first)):
            own = np.flatnonzero(self.code[rows] == code)
            found[own] = self.counted_in(code).within(begin[own], end[own])
        return found

    @property
    def counted(self) -> Stretches:
        """The times of all pipeline calls, less what does not count: end to end."""
        return self.counted_in(None)

    @property
    def beside(self) -> Stretches:
        """When some caller waited for the profiler, no tile was, and nothing counts: a device's own
        span is without it."""
        if not len(self.waited):
            return self.waited
        tiles = Stretches.union(self.begin, self.end)
        return self.waited.minus(tiles).minus(self.counted)

    @property
    def windows(self) -> Stretches:
        """The times of all pipeline calls, with what does not count of them."""
        return self._windows(None)

    def counted_in(self, code: int | None) -> Stretches:
        """The time of one pipeline call, by its place in `pipelines.numbers`, or of all, less what
        does not count."""
        if code not in self._made:
            windows = self._windows(code)
            counted = windows.minus(self.lost.both(windows))
            self._made[code] = counted.minus(self._own(code, windows))
        return self._made[code]

    def _own(self, code: int | None, windows: Stretches) -> Stretches:
        """When one pipeline call, or any, waited for the profiler and no tile of it was."""
        start, end, codes = self.own
        rows = np.flatnonzero((codes >= 0) if code is None else (codes == code))
        if not len(rows):
            return Stretches.none()
        tiles = np.arange(len(self.code)) if code is None else np.flatnonzero(self.code == code)
        own = Stretches.union(start[rows], end[rows]).both(windows).minus(self.lost)
        return own.minus(Stretches.union(self.begin[tiles], self.end[tiles]))

    def _windows(self, code: int | None) -> Stretches:
        first, last = self.first, self.last
        if not len(first) and self.whole is not None:
            return Stretches(np.array([self.whole.begin_ns]), np.array([self.whole.end_ns]))
        if code is None:
            return Stretches.union(first, last)
        return Stretches.union(first[[code]], last[[code]])

    def _group(self, code: int | None, windows: Stretches) -> GroupAxis:
        def chosen(codes: Codes) -> npt.NDArray[np.bool_]:
            return np.ones(len(codes), np.bool_) if code is None else codes == code

        rows = np.flatnonzero(chosen(self.code) & (self.end > self.begin))
        begin, end = self.begin[rows], self.end[rows]
        lost = self.lost.both(windows)
        tiles = Stretches.union(begin, end).both(windows).minus(lost)
        own = self._own(code, windows)
        start, stop, codes = self.work
        worked = np.flatnonzero(chosen(codes))
        host = Stretches.union(start[worked], stop[worked]).both(windows)
        host = host.minus(self.waits).minus(lost).minus(own).minus(tiles)
        return GroupAxis(windows, tiles, host, lost, own, rows, begin, end)


def _free_work(run: Run) -> pl.DataFrame:
    """What ran in no call, in any order."""
    columns = ("call", "pipeline", "device", "category", "start_ns", "duration_ns")
    return run.commands.lazy().select(columns).filter(pl.col("call") == NO_CALL).collect()


def _done(run: Run) -> Times:
    """When the last of each call was done, int64 [n]: the end of its tile, or of what it did on
    another device. One that ran beneath the tile of another has an empty tile where that one ends,
    but was done when it returned, when its last command ended, or when its device noted that."""
    tiles = run.tiles.calls
    done = tiles["end_ns"].to_numpy().copy()
    empty = np.flatnonzero((tiles["end_ns"] <= tiles["begin_ns"]).to_numpy())
    if len(empty):
        beneath = run.calls[empty]
        work = run.commands.lazy().filter(pl.col("call").is_in(beneath["call"].implode()))
        last = work.group_by("call").agg(last_ns=(pl.col("start_ns") + pl.col("duration_ns")).max())
        worked = beneath.lazy().join(last, on="call", how="left", maintain_order="left")
        until = worked.select(pl.col("last_ns").fill_null(np.iinfo(np.int64).min)).collect()
        noted = Ranges.of(beneath)
        own = np.maximum(ends(beneath), until["last_ns"].to_numpy())
        own = np.where(noted.noted, np.maximum(own, noted.done), own)
        done[empty] = np.minimum(done[empty], own)
    rows, reached = run.tiles.on_several
    done[rows] = np.maximum(done[rows], reached)
    return done


def _windows(pipelines: PipelineCalls, *work: tuple[Codes, Times]) -> tuple[Times, Times]:
    """Begin and end of each pipeline call, int64 [p] each; `work` are codes and ends of what was
    done for them."""
    count = len(pipelines.numbers)
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    codes = pipelines.code_of_spans
    np.minimum.at(first, codes, pipelines.starts)
    np.maximum.at(last, codes, ends(pipelines.spans))
    returned = last.copy()
    for code, end in work:
        kept = code >= 0
        np.maximum.at(last, code[kept], end[kept])
    order = np.argsort(first, kind="stable")
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(last[order])[:-1])
    behind = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(returned[order])[:-1])
    follows = first[order] >= behind[: len(order)]  # on the host they do not overlap
    begun = np.where(follows, np.maximum(first[order], reach[: len(order)]), first[order])
    first[order] = begun
    return first, np.maximum(first, last)

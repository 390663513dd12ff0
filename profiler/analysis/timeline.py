"""The timeline of a run: pipeline calls, stages and device spans on the devices' axis.

A pipeline call lasts from the start of its span to the later of two moments: the end of the
span, and the end of the last command that was launched for it. If a pipeline call starts before
the launched work of the previous one has ended, it lasts from there. In runs without the column
`pipeline`, a row belongs to the latest pipeline span that started before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct, field

from profiler.analysis.commands import CommandArrays
from profiler.run.columns import INT32, NS, STEP, Column, col
from profiler.run.device_timeline import EndToEnd, Ranges
from profiler.run.intervals import (
    Codes,
    Stretches,
    Times,
    batches,
    ends,
    group_heads,
    positions,
    text_codes,
)
from profiler.run.launches import device_work
from profiler.run.run import Run
from profiler.trace.events import CPU_DEVICE, NO_CALL, NO_ITERATION, NO_PIPELINE

# --- Columns that tables of pipeline calls, stages and steps have in common: how their time on the
# device's axis is made up.


ON_AXIS: tuple[Column, ...] = (
    col("pipeline", INT32, "number of the pipeline call in the run, from 0", label="pipeline call"),
    col("step", STEP, "denoising step from the scheduler"),
    col("calls_ns", NS, "union of the calls inside", label="in calls"),
    col(
        "host_ns",
        NS,
        "time outside of calls in which the host worked, without its waits for devices",
        label="host work",
        hide_if_zero=True,
    ),
    col("idle_ns", NS, "elapsed_ns - calls_ns - host_ns", label="no call"),
)


# --- From when to when each device had anything to do: its commands and the tiles of its calls.


def device_spans(run: Run, commands: CommandArrays) -> dict[str, tuple[int, int]]:
    """By device, the first start and the last end of its commands and of the tiles on it, in ns;
    `commands` are those of `run`, devices without either are left out."""
    tiles = run.tiles.calls
    codes, names = text_codes(tiles["tile_device"].cast(pl.Categorical()))
    found: dict[str, tuple[int, int]] = {}
    for of, start, end, device in (
        (commands.devices, commands.start, commands.end, commands.device),
        (names, tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy(), codes),
    ):
        there = np.where(device < len(of), device, -1)
        for name, first, last in zip(of, *extent(start, end, there, len(of)), strict=True):
            if first <= last:
                before = found.get(name, (first, last))
                found[name] = (min(int(first), before[0]), max(int(last), before[1]))
    return found


def calls_on_axis(run: Run) -> pl.DataFrame:
    """The calls, with start and length of their tiles if their device has recorded launches or
    noted calls, so that they lie above their kernels; `host_ns` is the length of the host's
    range."""
    tiles = run.tiles.calls.select("call", "tile_device", "begin_ns", "end_ns", "queue_lead_ns")
    calls = run.calls.with_columns(host_ns=pl.col("duration_ns")).join(
        tiles, on="call", how="left", maintain_order="left"
    )
    device = pl.col("device").cast(pl.String)
    recorded = pl.col("queue_lead_ns").is_not_null() | pl.col("device_duration_ns").is_not_null()
    launched = recorded.any().over("tile_device")
    there = launched & (device == pl.col("tile_device"))
    return calls.with_columns(
        start_ns=pl.when(there).then("begin_ns").otherwise("start_ns"),
        duration_ns=pl.when(there)
        .then(pl.col("end_ns") - pl.col("begin_ns"))
        .otherwise("duration_ns"),
    )


def begun(run: Run, begin: Times, end: Times) -> Times:
    """Return when the host turned to each call of `run`, int64 [n]: when the call before it in its
    step (or outside of steps) had ended, or else when it started. `begin` and `end` are those of
    calls on one axis."""
    pipelines = PipelineCalls.of(run)
    part = np.column_stack((pipelines.number_of(run.calls), run.calls["step"].to_numpy()))
    order = np.lexsort((begin, part[:, 0]))
    follows = (part[order][1:] == part[order][:-1]).all(axis=1)
    before = np.minimum(np.maximum.accumulate(end[order])[:-1], begin[order][1:])
    found = begin.copy()
    found[order[1:]] = np.where(follows, before, found[order[1:]])
    return found


def extent(start: Times, end: Times, codes: Codes, groups: int) -> tuple[Times, Times]:
    """First start and last end of each group, int64 [groups], the latter before the former if
    it has none; codes below 0 are of none."""
    first = np.full(groups + 1, np.iinfo(np.int64).max)
    last = np.full(groups + 1, np.iinfo(np.int64).min)
    for rows in batches(len(codes)):
        heads = group_heads(codes[rows])
        group = codes[rows][heads]  # -1 takes the last
        np.minimum.at(first, group, np.minimum.reduceat(start[rows], heads))
        np.maximum.at(last, group, np.maximum.reduceat(end[rows], heads))
    return first[:-1], last[:-1]


# --- Which pipeline call a row of a run belongs to, and how many of them ran at the same time.
#
# A run that was recorded says so in its column `pipeline`. In others (foreign traces, bundles from
# before pipeline calls had numbers) a row belongs to the pipeline span that started last before it.
# In a run without any, such as of a script's own loops, each pass through the steps counts instead.


class PipelineCalls(Struct, frozen=True, eq=False):
    """The pipeline calls of a run. `known` is whether the run says which work belongs to which;
    `numbers` are those of its pipeline spans, sorted, int32 [p]; `spans` are these spans, `starts`
    when they started, as `passes` does; in a run without any, when the passes of its loops did."""

    known: bool
    numbers: Codes
    spans: pl.DataFrame
    starts: Times
    passes: Times

    @classmethod
    def of(cls, run: Run) -> PipelineCalls:
        """The pipeline calls of `run`."""
        spans = run.spans.filter(pl.col("kind") == "pipeline").sort("start_ns")
        source = spans if len(spans) else run.calls
        known = len(source) > 0 and bool(
            (source["pipeline"] != NO_PIPELINE).all()
            if len(spans)
            else (source["pipeline"] != NO_PIPELINE).any()
        )
        if not known:
            spans = spans.with_columns(pipeline=pl.int_range(pl.len(), dtype=pl.Int32))
        numbers = spans["pipeline"].unique().sort().to_numpy()
        starts = spans["start_ns"].to_numpy()
        return cls(known, numbers, spans, starts, starts if known or len(spans) else _passes(run))

    def number_of(self, frame: pl.DataFrame, rows: Times | None = None) -> Codes:
        """The number of the pipeline call of each row of `frame`, of its `rows` if they are
        given; int32, `NO_PIPELINE` if it is in none. In a run without any, that of its pass."""
        column = frame["pipeline" if self.known else "start_ns"]
        values = (column if rows is None else column.gather(rows)).to_numpy()
        if self.known:
            return values
        begun = np.searchsorted(self.passes, values, side="right") - 1
        return np.maximum(begun, 0).astype(np.int32)

    def code_of(self, frame: pl.DataFrame) -> Codes:
        """The place in `numbers` of each row's pipeline call, -1 for none."""
        return positions(self.number_of(frame), self.numbers)

    @property
    def code_of_spans(self) -> Codes:
        """The place in `numbers` of each of `spans`. Spans without a number have one each, also if
        two start at the same moment."""
        return (
            self.code_of(self.spans) if self.known else np.arange(len(self.spans), dtype=np.int32)
        )

    @property
    def extents(self) -> tuple[Times, Times]:
        """First start and last end of the spans of each pipeline call, int64 [p] each."""
        return extent(self.starts, ends(self.spans), self.code_of_spans, len(self.numbers))

    @property
    def apart(self) -> bool:
        """Whether it is known which work belongs to which pipeline call: the run says so, or they
        follow each other."""
        return len(self.numbers) > 0 and (self.known or not self.overlapping().any())

    def overlapping(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each pipeline call ran at the same time as another, bool [p]."""
        first, last = self.extents
        found = np.zeros(len(self.numbers), dtype=np.bool_)
        order = np.lexsort((last, first))
        reached = np.maximum.accumulate(last[order])
        into = first[order][1:] < reached[:-1]  # starts before one of those before it has ended
        found[order[1:]] = into
        # It may run into another than its neighbour: it does if it ends after a later start.
        after = np.searchsorted(first[order], last[order], side="left")
        found[order] |= after > np.arange(1, len(order) + 1)
        return found


def _passes(run: Run) -> Times:
    """When each pass through the steps began, or through the iterations of a run without steps: a
    submodule falls back to a smaller one then, or is first called in a smaller one than others. Of
    several processes it is not known."""
    if run.calls["rank"].n_unique() > 1:
        return np.empty(0, dtype=np.int64)
    steps = run.spans.filter(pl.col("kind") == "step").with_columns(submodule=pl.lit(""))
    rows, kind = run.calls if steps.is_empty() else steps, "step"
    if not (rows["step"] >= 0).any():
        kind = "iteration"
    rows = rows.filter(pl.col(kind) >= 0).sort("start_ns")
    numbers = rows[kind].to_numpy()
    if not len(rows) or not (numbers[1:] < numbers[:-1]).any():
        return rows["start_ns"].head(1).to_numpy()
    starts: list[int] = []
    reached: dict[str, int] = {}
    names = rows["submodule"].cast(pl.String).to_list()
    for name, number, start in zip(names, numbers.tolist(), rows["start_ns"], strict=True):
        least = max(reached.values(), default=number) if kind == "step" else number
        if not starts or number < reached.get(name, least):
            starts.append(start)
            reached = {}
        reached[name] = number
    return np.array(starts, dtype=np.int64)


def step_keys(pipeline: Codes, step: Codes) -> Times:
    """One number per step of a pipeline call, int64 [n], in order of both: the number of the call
    in the upper, the step in the lower 32 bits. `NO_STEP` is one below the call's first."""
    return (pipeline.astype(np.int64) << 32) + step


def call_groups(calls: pl.DataFrame, frame: pl.DataFrame, commands: CommandArrays) -> Codes:
    """The group of each command of `frame`, whose arrays are `commands`: the row of its call in
    `calls`, or for work of no call a number behind all calls, by pipeline call and step."""
    free = np.flatnonzero(commands.call < 0)
    group = commands.call.astype(np.int32)  # a copy: callers may write over it
    group[free] = commands.step[free] + (len(calls) + 1)
    last = frame["pipeline"].max()
    if isinstance(last, int) and last > 0:
        pipeline = frame["pipeline"].gather(free).to_numpy()
        _, place = np.unique(step_keys(pipeline, commands.step[free]), return_inverse=True)
        group[free] = len(calls) + place
    return group


# --- The devices' axis of a run: how long its pipeline calls lasted there, when their calls had
# their tiles, and when the host worked beside them.
#
# A pipeline call lasts from the start of its span to the later of its span's end and the end of the
# last command that was launched for it. If it starts before all that the one before it launched has
# ended, though on the host they follow each other, it lasts from there.


_CONVERT = "convert"  # the profiler's work that waits until no caller waits for it


class GroupAxis(Struct, frozen=True, eq=False):
    """The times of some pipeline calls: `windows` are their own, `tiles` those of their calls,
    `host` is when the host worked for them outside of tiles. Tiles and host are without `lost`,
    what was not recorded or carried over, and the host without `own`, the profiler's own work
    outside of tiles; both within the windows. `begin` and `end` of the tiles are int64 [k], in
    order of `rows`, the rows of their calls; empty tiles are left out."""

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
        """The windows without time that does not count."""
        return self.windows.minus(self.lost).minus(self.own)

    def times(self, first: Times, last: Times) -> tuple[Times, Times, Times, Times]:
        """Elapsed, in calls, host work and idle, in each `[first, last)` of the windows, int64."""
        elapsed = self.counted.within(first, last)
        calls, host = self.tiles.within(first, last), self.host.within(first, last)
        return elapsed, calls, host, elapsed - calls - host


class Axis(Struct, frozen=True, eq=False):
    """The axis of a run. `first` and `last` are the windows of its pipeline calls, int64 [p], in
    order of `pipelines.numbers`; `begin` and `end` are the tiles of its calls, int64 [n], `code`
    their pipeline calls. `own` is the profiler's work: start, end, and the pipeline call that
    waited for it; `waited` is all of it that some caller waited for, in tiles too. `lost` does not
    count; `carried` is the part of it in which only work from before the recording ran."""

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
    carried: Stretches
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
        known = pipelines.known or len(pipelines.numbers) == 1  # for whom work of no call was
        last_work = last_work if known else np.full(len(free), np.iinfo(np.int64).min)
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
            tiles.carried_over,
            tiles.waits,
            tiles.whole,
        )

    def of_pipeline(self, code: int) -> GroupAxis:
        """Return the times of one pipeline call, by its place in `pipelines.numbers`."""
        if code not in self._groups:  # several tables ask for each
            self._groups[code] = self._group(code, self._windows(code))
        return self._groups[code]

    def of_all(self) -> GroupAxis:
        """Return the times of the run, as if all of its pipeline calls were one. Without any it
        lasts from the first tile or command of a device to the last."""
        return self._group(None, self._windows(None))

    def taken(self, rows: Codes, *, separate: bool) -> int:
        """How long the tiles of some calls, rows of the run's, are in its pipeline calls: their
        union in each if they are `separate`, else in all as if they were one."""
        groups = range(len(self.first)) if separate else [None]
        total = 0
        for code in groups:
            own = rows if code is None else rows[self.code[rows] == code]
            if len(own):
                tiles = Stretches.union(self.begin[own], self.end[own])
                total += tiles.both(self.counted_in(code)).length
        return total

    @property
    def counted(self) -> Stretches:
        """The times of all pipeline calls, less what does not count: end to end."""
        return self.counted_in(None)

    @property
    def beside(self) -> Stretches:
        """When some caller waited for the profiler, outside of tiles and of counted time; the spans
        of devices are without it."""
        if not len(self.waited):
            return self.waited
        tiles = Stretches.union(self.begin, self.end)
        return self.waited.minus(tiles).minus(self.counted)

    @property
    def windows(self) -> Stretches:
        """The times of all pipeline calls, including what does not count."""
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
        """Return when one pipeline call, or any, waited for the profiler outside of its tiles."""
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
    """Return the commands of no call, in any order."""
    columns = ("call", "pipeline", "device", "category", "start_ns", "duration_ns")
    return run.commands.lazy().select(columns).filter(pl.col("call") == NO_CALL).collect()


def _done(run: Run) -> Times:
    """Return when the last work of each call was done, int64 [n]: at the end of its tile, or of its
    work on another device. A call that ran beneath the tile of another has an empty tile where that
    one ends, but was done when it returned, when its last command ended, or when its device noted
    that."""
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
    """Start and end of each pipeline call, int64 [p] each; `work` are codes and ends of what was
    done for them."""
    first, last = pipelines.extents
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


# --- Which stages a run has, and which part of each pipeline call is of which stage.


class StageRows(Struct, frozen=True, eq=False):
    """What stages are accounted for with, and their names."""

    axis: Axis
    calls: pl.DataFrame
    stage_of_call: Codes
    stage_spans: pl.DataFrame
    names: list[str]

    @classmethod
    def of(cls, run: Run, pipelines: PipelineCalls, axis: Axis) -> StageRows:
        """Collect the rows of `run` in pipeline calls, or all if these are not known."""
        calls = run.calls
        if pipelines.known and len(pipelines.numbers):
            calls = calls.filter(pl.Series(pipelines.code_of(calls)) >= 0)
        stage_spans = run.spans.filter(pl.col("kind") == "stage").sort("start_ns")
        names = _in_order(stage_spans, calls)
        return cls(axis, calls, _stage_codes(run.calls["stage"], names), stage_spans, names)

    def borders(self, group: GroupAxis, spans: Times) -> tuple[Times, Codes]:
        """Return where the parts of a pipeline call start, and the stage of each; by the stages'
        spans if it has no tile."""
        long_ago = np.iinfo(np.int64).min // 2
        if not len(group.rows):
            some = self.stage_spans[spans]
            begins = some["start_ns"].to_numpy().copy()
            begins[:1] = long_ago
            return begins, _stage_codes(some["stage"], self.names)
        order = np.lexsort((group.end, group.begin))
        stage = self.stage_of_call[group.rows][order]
        reach = np.maximum.accumulate(group.end[order])
        turns = np.flatnonzero(stage[1:] != stage[:-1])
        return np.append(long_ago, reach[turns]), stage[np.append(0, turns + 1)]


def stage_parts(run: Run, pipelines: PipelineCalls, axis: Axis) -> pl.DataFrame:
    """When each part of each stage was, as the account has them: columns `pipeline`, `stage`,
    `start_ns`, `end_ns`, in order of pipeline calls and time."""
    rows = StageRows.of(run, pipelines, axis)
    separate = pipelines.apart
    groups = enumerate(pipelines.numbers.tolist()) if separate else [(-1, NO_PIPELINE)]
    in_span = pipelines.code_of(rows.stage_spans)
    found: list[tuple[int, str, int, int]] = []
    for code, number in groups:
        group = axis.of_pipeline(code) if separate else axis.of_all()
        spans = np.flatnonzero(in_span == code) if separate else np.arange(len(rows.stage_spans))
        begins, stages = rows.borders(group, spans)
        if not len(begins) or not len(group.windows):
            continue
        first, last = int(group.windows.start[0]), int(group.windows.end[-1])
        begins = np.clip(begins, first, last)
        ends = np.append(begins[1:], last)
        for begin, end, stage in zip(begins.tolist(), ends.tolist(), stages.tolist(), strict=True):
            if end > begin and stage >= 0:
                found.append((number, rows.names[stage], begin, end))
    types = {"pipeline": pl.Int32, "stage": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(found, schema=types, orient="row")


def stage_starts(frame: pl.DataFrame) -> pl.DataFrame:
    """When each stage of `frame` started first: columns `stage`, `start_ns`."""
    stage = pl.col("stage").cast(pl.String)
    return frame.group_by(stage).agg(pl.col("start_ns").min()).drop_nulls()


def _in_order(stage_spans: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    begun = pl.concat([stage_starts(stage_spans), stage_starts(calls)])
    ordered = begun.group_by("stage").agg(pl.col("start_ns").min()).sort("start_ns", "stage")
    return ordered["stage"].to_list()


def _stage_codes(column: pl.Series, names: list[str]) -> Codes:
    codes, found = text_codes(column)
    position = {name: number for number, name in enumerate(names)}
    return np.array([position.get(name, -1) for name in found] + [-1], dtype=np.int32)[codes]


# --- How long passes of a loop that is not denoising last, and what is outside of them.
#
# An iteration lasts from the first tile of its calls to the first tile of the next iteration, or of
# a call in none; without either to the end of the run. What was not recorded then is part of it, as
# it is of the range that the program's own loop has in the trace.


_FOREVER = np.iinfo(np.int64).max


class IterationTimes(Struct, frozen=True):
    """Total time of the iterations of a run, of those that are `whole`, and of the run `before` the
    first, `after` the last and `between` them: each as counted time, and time that was not
    recorded."""

    inside: tuple[int, int]
    whole: tuple[int, int]
    before: tuple[int, int]
    between: tuple[int, int]
    after: tuple[int, int]

    @classmethod
    def of(cls, run: Run, axis: Axis, lacking: npt.NDArray[np.bool_]) -> IterationTimes:
        """The times of a run whose pipeline calls are accounted for as one; calls of iterations
        that are not whole are `lacking`, bool [calls]."""
        rows = np.flatnonzero(axis.end > axis.begin)
        rows = rows[np.lexsort((axis.end[rows], axis.begin[rows]))]
        number = run.calls["iteration"].to_numpy()[rows]
        turns = np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(rows)])
        begin, number = axis.begin[rows][turns], number[turns]
        passes = np.flatnonzero(number != NO_ITERATION)
        windows, counted = axis.windows, axis.counted
        lost = axis.lost.minus(axis.carried).both(windows)

        def within(times: Stretches) -> tuple[int, int]:
            return times.both(counted).length, times.both(lost).length

        if not len(passes):
            return cls((0, 0), (0, 0), within(windows), (0, 0), (0, 0))
        until = np.append(begin[1:], windows.end[-1:])[passes]
        over = np.flatnonzero(number[passes][1:] <= number[passes][:-1])  # another loop follows
        until[over] = np.maximum.reduceat(axis.end[rows], turns)[passes[over]]
        inside = Stretches.union(begin[passes], until).both(windows)
        kept = ~lacking[rows[turns[passes]]]
        whole = Stretches.union(begin[passes][kept], until[kept]).both(windows)
        rest = windows.minus(inside)
        before = rest.clipped(-_FOREVER, int(begin[passes[0]]))
        after = rest.clipped(int(until[-1]), _FOREVER)
        return cls(
            within(inside),
            within(whole),
            within(before),
            within(rest.minus(before).minus(after)),
            within(after),
        )

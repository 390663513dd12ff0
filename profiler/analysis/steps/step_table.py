"""Denoising steps: how long each took, on what, and which stand out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from profiler.analysis.arrays import CommandArrays
from profiler.analysis.axis import Axis, GroupAxis
from profiler.analysis.interval_groups import Grouped
from profiler.analysis.pipelines import PipelineCalls, step_keys
from profiler.analysis.steps.columns import STEPS
from profiler.analysis.steps.summary import outliers, skipping
from profiler.run.columns import schema
from profiler.run.device_timeline import device_work
from profiler.run.intervals import Codes, Times, ends, positions, union_by
from profiler.run.run import Run
from profiler.trace.events import NO_STEP

__all__ = ["step_parts", "step_table"]


def step_table(
    run: Run, commands: CommandArrays, pipelines: PipelineCalls, axis: Axis
) -> pl.DataFrame:
    """One row a step of each pipeline call (`STEPS`), in order of time.

    `commands` are those of the whole run, `pipelines` its pipeline calls, `axis` is its own. A step
    without a call lasts as its span does; in a run without step spans every step has calls.
    """
    calls = run.calls
    spans = run.spans.filter(pl.col("kind") == "step")
    recorded = len(spans) > 0
    if not recorded:
        spans = _spans_of_calls(calls, pipelines)
    if spans.is_empty():
        return pl.DataFrame(schema=schema(STEPS))
    keys = _keys(spans, pipelines)
    values = np.unique(keys)
    groups = len(values)
    call_groups = positions(_keys(calls, pipelines), values)
    in_group = Grouped.of(spans, positions(keys, values))
    number = (values >> 32).astype(np.int32)
    begin, end = _extents(in_group, run.tiles.calls, call_groups, groups)
    elapsed, in_calls, host, idle = _times(axis, pipelines, number, begin, end)
    skipped = _skipped_shares(run, call_groups, groups)
    table = pl.DataFrame(
        {
            "pipeline": number,
            "step": (values & 0xFFFFFFFF).astype(np.int32),
            "start_ns": begin,
            "end_ns": end,
            "elapsed_ns": elapsed,
            "duration_ns": in_group.union(groups) if recorded else None,
            "calls": np.bincount(call_groups[call_groups >= 0], minlength=groups),
            "branches": _branches(calls, call_groups, groups),
            "skipped_share": skipped,
            "calls_ns": in_calls,
            "host_ns": host,
            "idle_ns": idle,
            "busy_ns": _busy(run, commands, call_groups, pipelines, values),
            "outlier": outliers(elapsed, skipping(skipped)),
        }
    )
    before = pl.col("end_ns").shift().over("pipeline")
    ordered = table.sort("start_ns", "pipeline", "step").with_columns(before=before)
    ordered = _with_time_between(ordered, axis, pipelines)
    return ordered.select(pl.col(name).cast(dtype) for name, dtype in schema(STEPS).items())


def step_parts(run: Run, pipelines: PipelineCalls) -> pl.DataFrame:
    """When each step was, as the table of steps has it: columns `pipeline`, `step`, `start_ns`,
    `end_ns`, in order of time."""
    spans = run.spans.filter(pl.col("kind") == "step")
    if spans.is_empty():
        spans = _spans_of_calls(run.calls, pipelines)
    keys = _keys(spans, pipelines)
    values = np.unique(keys)
    call_groups = positions(_keys(run.calls, pipelines), values)
    in_group = Grouped.of(spans, positions(keys, values))
    begin, end = _extents(in_group, run.tiles.calls, call_groups, len(values))
    found = pl.DataFrame({"pipeline": values >> 32, "step": values & 0xFFFFFFFF})
    found = found.with_columns(start_ns=pl.Series(begin), end_ns=pl.Series(end))
    return found.sort("start_ns", "pipeline", "step")


def _with_time_between(steps: pl.DataFrame, axis: Axis, pipelines: PipelineCalls) -> pl.DataFrame:
    """`steps` with the time since the end of the step before, less the profiler's own work, and the
    host's work in it."""
    begin = steps["start_ns"].to_numpy()
    before = steps["before"].fill_null(steps["start_ns"]).to_numpy()
    number = steps["pipeline"].to_numpy()
    _, _, host, _ = _times(axis, pipelines, number, before, begin)
    (own,) = _times(axis, pipelines, number, before, begin, _own)
    known = pl.col("before").is_not_null()
    return steps.with_columns(
        between_ns=pl.col("start_ns") - pl.col("before") - pl.Series(own),
        between_host_ns=pl.when(known).then(pl.Series(host)),
    )


def _skipped_shares(run: Run, call_groups: Codes, groups: int) -> pl.Series:
    """The share of the blocks that step caches skipped in each step, null where none was on."""
    cached = run.info.cached_calls
    numbers = np.array([one.call for one in cached], dtype=np.int32)
    rows = positions(numbers, run.calls["call"].to_numpy())
    skipped, blocks = np.zeros(groups), np.zeros(groups)
    for row, one in zip(rows.tolist(), cached, strict=True):
        if row >= 0 and call_groups[row] >= 0:
            skipped[call_groups[row]] += len(one.skipped)
            blocks[call_groups[row]] += one.blocks
    share = skipped / np.maximum(blocks, 1)
    return pl.DataFrame({"share": share, "on": blocks > 0}).select(pl.when("on").then("share"))[
        "share"
    ]


def _extents(
    spans: Grouped, tiles: pl.DataFrame, call_groups: Codes, groups: int
) -> tuple[Times, Times]:
    """Begin and end of each step, int64 [groups] each: of its tiles; of its spans without any."""
    first, last = tiles["begin_ns"].to_numpy(), tiles["end_ns"].to_numpy()
    kept = (call_groups >= 0) & (last > first)
    begin, end = _extent(first[kept], last[kept], call_groups[kept], groups)
    spanned = _extent(spans.start, spans.end, spans.group, groups)
    without = end < begin
    return np.where(without, spanned[0], begin), np.where(without, spanned[1], end)


def _extent(start: Times, end: Times, group: Codes, groups: int) -> tuple[Times, Times]:
    first = np.full(groups, np.iinfo(np.int64).max)
    last = np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


def _times(
    axis: Axis,
    pipelines: PipelineCalls,
    number: Codes,
    begin: Times,
    end: Times,
    of: Callable[[GroupAxis, Times, Times], tuple[Times, ...]] = GroupAxis.times,
) -> tuple[Times, ...]:
    """What `of` says of each step, as elapsed, in calls, host work and idle: within its pipeline
    call, where the run tells what belongs to which."""
    if not pipelines.apart:
        return of(axis.of_all(), begin, end)
    none = np.zeros(0, dtype=np.int64)
    found = tuple(np.zeros(len(begin), np.int64) for _ in of(axis.of_all(), none, none))
    code = positions(number, pipelines.numbers)
    for own in np.unique(code).tolist():
        rows = np.flatnonzero(code == own)
        group = axis.of_pipeline(own) if own >= 0 else axis.of_all()
        for column, values in zip(found, of(group, begin[rows], end[rows]), strict=True):
            column[rows] = values
    return found


def _own(group: GroupAxis, begin: Times, end: Times) -> tuple[Times, ...]:
    return (group.own.within(begin, end),)


def _keys(frame: pl.DataFrame, pipelines: PipelineCalls) -> Times:
    return step_keys(pipelines.number_of(frame), frame["step"].to_numpy())


def _branches(calls: pl.DataFrame, call_groups: Codes, groups: int) -> pl.Series:
    """The branches of each step's calls in order of time, joined with commas."""
    named = calls.select(
        "start_ns", group=pl.Series(call_groups), branch=pl.col("branch").cast(pl.String)
    ).filter(pl.col("group") >= 0)
    joined = (
        named.drop_nulls("branch")
        .sort("start_ns", maintain_order=True)
        .group_by("group")
        .agg(pl.col("branch").unique(maintain_order=True).str.join(", "))
    )
    texts = dict(joined.iter_rows())
    return pl.Series([texts.get(group, "") for group in range(groups)], dtype=pl.String)


def _spans_of_calls(calls: pl.DataFrame, pipelines: PipelineCalls) -> pl.DataFrame:
    """One span a step of each pipeline call: from its first call's begin to its last call's end."""
    calls = calls.filter(pl.col("step") > NO_STEP)
    keys, last = pl.Series(_keys(calls, pipelines)), pl.Series(ends(calls))
    windows = calls.select("pipeline", "step", "start_ns", key=keys, end=last)
    spans = windows.group_by("key", "pipeline", "step").agg(
        pl.col("start_ns").min(), pl.col("end").max()
    )
    duration = pl.col("end") - pl.col("start_ns")
    return spans.select("pipeline", "step", "start_ns", duration_ns=duration)


def _busy(
    run: Run, commands: CommandArrays, call_groups: Codes, pipelines: PipelineCalls, values: Times
) -> Times:
    """Union of each step's commands of every category but host and sync: what devices worked.

    A command is in the step of its call, `call_groups` by row of `run.calls`, or in its own.
    """
    groups = np.append(call_groups, np.int32(-1))[commands.call]
    free = np.flatnonzero(commands.call < 0)
    of_pipeline = pipelines.number_of(run.commands, free)
    groups[free] = positions(step_keys(of_pipeline, commands.step[free]), values)
    groups[(commands.step <= NO_STEP) | ~device_work(commands.category)] = -1
    return union_by(commands.start, commands.end, groups, len(values))

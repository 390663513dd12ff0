"""Denoising steps: how long each took, on what, and which stand out."""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.arrays import HOST, CommandArrays, ends, positions
from profiler.analysis.batches import Codes, Times
from profiler.analysis.codes import OutlierRule, StepSource
from profiler.analysis.columns import STEPS
from profiler.analysis.intervals import union_by
from profiler.analysis.notes import Note
from profiler.analysis.parts import Grouped, parts_of
from profiler.analysis.pipelines import PipelineCalls, step_keys
from profiler.analysis.result import StepSummary
from profiler.events import NO_CALL, NO_STEP
from profiler.table.columns import schema
from profiler.table.run import Run

__all__ = ["OUTLIER_RULE", "outliers", "step_summary", "step_table"]

_SCALE = 1.4826  # the MAD times this estimates the standard deviation of normal data
_DEVIATIONS = 3.0
_RATIO = 1.05
_ENOUGH = 5  # steps; the median deviation of fewer says nothing
OUTLIER_RULE = Note.of(
    OutlierRule.MEDIAN_DEVIATION,
    deviations=_DEVIATIONS,
    scale=_SCALE,
    excess_share=round(_RATIO - 1, 6),
    fewest=_ENOUGH,
)
"""When a step stands out (Leys et al. 2013, J. Exp. Soc. Psychol. 49(4), 764-766)."""


def step_table(run: Run, commands: CommandArrays, pipelines: PipelineCalls) -> pl.DataFrame:
    """One row a step of each pipeline call (`columns.STEPS`), in order of time.

    `commands` are those of the whole run, `pipelines` its pipeline calls. A step of a run
    without step spans lasts from the begin of its first call to the end of its last.
    """
    calls = run.calls
    spans = run.spans.filter(pl.col("kind") == "step")
    if spans.is_empty():
        spans = _spans_of_calls(calls, pipelines)
    if spans.is_empty():
        return pl.DataFrame(schema=schema(STEPS))
    keys = _keys(spans, pipelines)
    values = np.unique(keys)
    groups = len(values)
    call_groups = positions(_keys(calls, pipelines), values)
    of_no_call = (pl.col("call") == NO_CALL) & (pl.col("step") > NO_STEP)
    times = run.commands.lazy().select("call", "pipeline", "step", "start_ns", "duration_ns")
    host = times.filter(of_no_call).collect()
    parts = parts_of(
        Grouped.of(spans, positions(keys, values)),
        Grouped.of(calls, call_groups),
        Grouped.of(host, positions(_keys(host, pipelines), values)),
        groups,
    )
    starts = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(starts, positions(keys, values), spans["start_ns"].to_numpy())
    table = pl.DataFrame(
        {
            "pipeline": (values >> 32).astype(np.int32),
            "step": (values & 0xFFFFFFFF).astype(np.int32),
            "start_ns": starts,
            "duration_ns": parts.duration,
            "calls": np.bincount(call_groups[call_groups >= 0], minlength=groups),
            "branches": _branches(calls, call_groups, groups),
            "calls_ns": parts.calls,
            "host_ns": parts.host,
            "idle_ns": parts.idle,
            "busy_ns": _busy(run, commands, call_groups, pipelines, values),
            "outlier": outliers(parts.duration),
        },
        schema=schema(STEPS),
    )
    return table.sort("start_ns", "pipeline", "step")


def step_summary(steps: pl.DataFrame, *, from_spans: bool) -> StepSummary:
    """Statistics of the rows of `steps`; outliers as they are marked there."""
    durations = steps["duration_ns"].to_numpy()
    measured_by = StepSource.STEP_SPANS if from_spans else StepSource.CALLS
    if not len(durations):
        return StepSummary(0, 0, 0, 0, 0, (), OUTLIER_RULE, measured_by)
    several = steps["pipeline"].n_unique() > 1
    found = steps.filter("outlier").select("pipeline", "step").iter_rows()
    return StepSummary(
        count=len(durations),
        min_ns=int(durations.min()),
        median_ns=int(np.median(durations)),
        max_ns=int(durations.max()),
        mean_ns=round(float(durations.mean())),
        outliers=tuple(f"{pipeline}:{step}" if several else str(step) for pipeline, step in found),
        rule=OUTLIER_RULE,
        measured_by=measured_by,
    )


def outliers(durations: Times) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which durations stand out by `OUTLIER_RULE`, bool [n]."""
    if len(durations) < _ENOUGH:
        return np.zeros(len(durations), dtype=np.bool_)
    median = np.median(durations)
    spread = _SCALE * np.median(np.abs(durations - median))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        durations > median + _DEVIATIONS * spread
    ) & (durations > _RATIO * median)
    return found


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
    """Wall union of each step's commands of every category but host.

    A command is in the step of its call, `call_groups` by row of `run.calls`, or in its own.
    """
    groups = np.append(call_groups, np.int32(-1))[commands.call]
    free = np.flatnonzero(commands.call < 0)
    of_pipeline = pipelines.number_of(run.commands, free)
    groups[free] = positions(step_keys(of_pipeline, commands.step[free]), values)
    groups[(commands.step <= NO_STEP) | (commands.category == HOST)] = -1
    return union_by(commands.start, commands.end, groups, len(values))

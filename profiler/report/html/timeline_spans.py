"""The stages and steps that the timeline draws: on the devices' axis, as the tables have them.

Where devices work behind the host, its own ranges lie elsewhere; they are drawn below, in lanes
that say so. What the profiler did is the host's everywhere.
"""

from __future__ import annotations

from enum import IntEnum

import polars as pl

from profiler.analysis.axis import Axis
from profiler.analysis.pipelines import PipelineCalls
from profiler.analysis.stage_rows import stage_parts
from profiler.analysis.steps.step_table import step_parts
from profiler.run.run import Run
from profiler.text import said
from profiler.trace.events import NO_STEP

__all__ = ["LANES", "SpanLane", "drawn_spans"]


class SpanLane(IntEnum):
    """The lanes of spans, in the order in which they are drawn."""

    STAGES = 0
    STEPS = 1
    HOST_STAGES = 2
    HOST_STEPS = 3
    PROFILER = 4


LANES = {
    SpanLane.STAGES: said("Stages"),
    SpanLane.STEPS: said("Steps"),
    SpanLane.HOST_STAGES: said("Stages (host)"),
    SpanLane.HOST_STEPS: said("Steps (host)"),
    SpanLane.PROFILER: said("Profiler"),
}
_COLUMNS = ("lane", "pipeline", "name", "stage", "step", "start_ns", "duration_ns")


def drawn_spans(run: Run, axis: Axis | None = None) -> pl.DataFrame:
    """The spans of all lanes, in any order: `lane`, `pipeline`, `name`, `stage`, `step`,
    `start_ns`, `duration_ns`. `axis` is the run's."""
    pipelines = PipelineCalls.of(run) if axis is None else axis.pipelines
    axis = Axis.of(run, pipelines) if axis is None else axis
    noted = run.calls["device_duration_ns"].is_not_null()
    behind = bool((run.tiles.calls["lead_ns"].is_not_null() | noted).any())
    found = []
    stages = _recorded(run, "stage", SpanLane.HOST_STAGES)
    parts = pl.DataFrame(schema=stages.schema)
    if len(stages) and len(pipelines.spans):  # else nothing tells how long a stage lasted
        parts = _stages(stage_parts(run, pipelines, axis))
    found += _both(parts, stages, behind=behind)
    found += _both(
        _steps(step_parts(run, pipelines), run),
        _recorded(run, "step", SpanLane.HOST_STEPS),
        behind=behind,
    )
    return pl.concat([*found, _recorded(run, "profiler", SpanLane.PROFILER)])


def _both(drawn: pl.DataFrame, recorded: pl.DataFrame, *, behind: bool) -> list[pl.DataFrame]:
    """Spans of the devices' axis, and beside them the recorded ones where these are others."""
    if drawn.is_empty():
        on_axis = int(recorded["lane"][0]) - SpanLane.HOST_STAGES if len(recorded) else 0
        lane = pl.lit(on_axis, dtype=pl.Int64)
        return [recorded if behind else recorded.with_columns(lane=lane)]
    times = ("start_ns", "duration_ns")
    alike = drawn.select(times).sort(times).equals(recorded.select(times).sort(times))
    return [drawn, recorded] if behind and not alike else [drawn]


def _stages(parts: pl.DataFrame) -> pl.DataFrame:
    return _of_lane(parts.with_columns(name="stage", step=pl.lit(NO_STEP)), SpanLane.STAGES)


def _steps(parts: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Steps with the stage of their calls, or of their recorded spans."""
    text = pl.col("stage").cast(pl.String)
    labelled = pl.concat(
        frame.filter(pl.col("step") > NO_STEP).select("step", stage=text)
        for frame in (run.calls, run.spans)
    )
    stages = labelled.drop_nulls().unique("step", keep="first", maintain_order=True)
    named = parts.join(stages, on="step", how="left", maintain_order="left")
    return _of_lane(named.with_columns(name=pl.format("step {}", "step")), SpanLane.STEPS)


def _of_lane(parts: pl.DataFrame, lane: SpanLane) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    return _typed(parts.with_columns(duration_ns=length), lane)


def _recorded(run: Run, kind: str, lane: SpanLane) -> pl.DataFrame:
    return _typed(run.spans.filter(pl.col("kind").cast(pl.String) == kind), lane)


def _typed(frame: pl.DataFrame, lane: SpanLane) -> pl.DataFrame:
    return frame.select(
        pl.lit(int(lane), dtype=pl.Int64).alias("lane"),
        pl.col("pipeline", "step", "start_ns", "duration_ns").cast(pl.Int64),
        pl.col("name", "stage").cast(pl.String),
    ).select(_COLUMNS)

"""Which stages a run has, and which part of each pipeline call is of which stage."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from profiler.analysis.axis import Axis, GroupAxis
from profiler.analysis.pipelines import PipelineCalls
from profiler.run.intervals import Codes, Times, text_codes
from profiler.run.run import Run
from profiler.trace.events import NO_PIPELINE

__all__ = ["StageRows", "stage_parts", "stage_starts"]


class StageRows(Struct, frozen=True, eq=False):
    """What the account is made of, and the names of the stages."""

    axis: Axis
    calls: pl.DataFrame
    stage_of_call: Codes
    stage_spans: pl.DataFrame
    names: list[str]

    @classmethod
    def of(cls, run: Run, pipelines: PipelineCalls, axis: Axis) -> StageRows:
        """The rows of `run` that lie in pipeline calls: all, where it does not tell."""
        calls = run.calls
        if pipelines.known and len(pipelines.numbers):
            calls = calls.filter(pl.Series(pipelines.code_of(calls)) >= 0)
        stage_spans = run.spans.filter(pl.col("kind") == "stage").sort("start_ns")
        names = _in_order(stage_spans, calls)
        return cls(axis, calls, _stage_codes(run.calls["stage"], names), stage_spans, names)

    def borders(self, group: GroupAxis, spans: Times) -> tuple[Times, Codes]:
        """Where the parts of a pipeline call begin, and of which stage each is; by the stages'
        spans where it has no tile."""
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
    told = pipelines.apart
    groups = enumerate(pipelines.numbers.tolist()) if told else [(-1, NO_PIPELINE)]
    in_span = pipelines.code_of(rows.stage_spans)
    found: list[tuple[int, str, int, int]] = []
    for code, number in groups:
        group = axis.of_pipeline(code) if told else axis.of_all()
        spans = np.flatnonzero(in_span == code) if told else np.arange(len(rows.stage_spans))
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
    """When each stage of `frame` began first: columns `stage`, `start_ns`."""
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

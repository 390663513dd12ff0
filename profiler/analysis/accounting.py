"""The accounting identity: end-to-end time = stages = calls + host work between them + idle.

For each stage, with S its spans, C its calls and H its work in no call (host work, and what that
started on devices), |A+B| the length of the union of their intervals, nothing clipped to anything:

    calls = |C|     host = |C+H| - |C|     idle = |S+C+H| - |C+H|

so that whatever sticks out of its stage, is claimed by two stages or lies between stages shows in
the residual instead of vanishing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from profiler.analysis.arrays import ends, text_codes
from profiler.analysis.batches import Codes, Times
from profiler.analysis.columns import STAGES
from profiler.analysis.intervals import union_by, union_length
from profiler.analysis.result import Accounting, StageAccount, SubmoduleTime
from profiler.events import NO_CALL
from profiler.table.columns import schema
from profiler.table.run import Run

__all__ = ["Grouped", "Parts", "account", "parts_of", "stage_table"]


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Intervals `[start, end)` in ns, each in the group that `group` names; below 0: in none."""

    start: Times
    end: Times
    group: Codes

    @classmethod
    def of(cls, frame: pl.DataFrame, group: Codes) -> Grouped:
        """The intervals of a frame with `start_ns` and `duration_ns`."""
        return cls(frame["start_ns"].to_numpy(), ends(frame), group)

    def union(self, groups: int) -> Times:
        """The length of the union in each group, int64 [groups]."""
        return union_by(self.start, self.end, self.group, groups)

    def __add__(self, other: Grouped) -> Grouped:
        return Grouped(
            np.concatenate((self.start, other.start)),
            np.concatenate((self.end, other.end)),
            np.concatenate((self.group, other.group)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Where the time of each group of spans went, int64 [groups] each, in ns.

    `duration` is the union of the spans, `outside` what calls and host work add to it.
    """

    duration: Times
    calls: Times
    host: Times
    idle: Times
    outside: Times


def parts_of(spans: Grouped, calls: Grouped, host: Grouped, groups: int) -> Parts:
    """Split each group's time by the formulas above."""
    recorded = calls + host
    duration = spans.union(groups)
    in_calls, in_recorded = calls.union(groups), recorded.union(groups)
    everything = (spans + recorded).union(groups)
    return Parts(
        duration=duration,
        calls=in_calls,
        host=in_recorded - in_calls,
        idle=everything - in_recorded,
        outside=everything - duration,
    )


def account(run: Run) -> tuple[Accounting, pl.DataFrame]:
    """The accounting of the whole run and its table of stages (`columns.STAGES`).

    Work of no call that names no stage is no stage's.
    """
    stage_spans = run.spans.filter(pl.col("kind") == "stage")
    pipelines = run.spans.filter(pl.col("kind") == "pipeline")
    names = _in_order(stage_spans, run.calls)
    parts = _stage_parts(run, stage_spans, names)
    end_to_end = union_length(pipelines["start_ns"].to_numpy(), ends(pipelines))
    spans = {"pipeline": pipelines, "stage": stage_spans}
    missing = [kind for kind, found in spans.items() if found.is_empty()]
    accounting = Accounting(
        end_to_end_ns=end_to_end,
        pipelines=len(pipelines),
        steps=_step_count(run),
        stages=(),
        residual_ns=0,
        residual_share=0.0,
        gap_ns=0,
        outside_ns=0,
        overlap_ns=0,
        submodules=_submodule_times(run.calls, end_to_end),
        possible=not missing,
        why_not=_why_not(run, missing),
    )
    if not missing:
        accounting = _with_residual(accounting, names, parts, pipelines, stage_spans)
    return accounting, stage_table(run.calls, stage_spans, names, parts, accounting)


def _with_residual(
    accounting: Accounting,
    names: list[str],
    parts: Parts,
    pipelines: pl.DataFrame,
    stage_spans: pl.DataFrame,
) -> Accounting:
    end_to_end = accounting.end_to_end_ns
    in_stages = union_length(stage_spans["start_ns"].to_numpy(), ends(stage_spans))
    both = pl.concat([pipelines, stage_spans])
    everything = union_length(both["start_ns"].to_numpy(), ends(both))
    gap, beyond = everything - in_stages, everything - end_to_end
    overlap = int(parts.duration.sum()) - in_stages
    outside = int(parts.outside.sum()) + beyond
    columns = (parts.duration, parts.calls, parts.host, parts.idle)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    stages = tuple(StageAccount(name, *row) for name, row in zip(names, numbers, strict=True))
    accounted = sum(stage.calls_ns + stage.host_ns + stage.idle_ns for stage in stages)
    return replace(
        accounting,
        stages=stages,
        residual_ns=end_to_end - accounted,
        residual_share=(gap + outside + overlap) / end_to_end if end_to_end else 0.0,
        gap_ns=gap,
        outside_ns=outside,
        overlap_ns=overlap,
    )


def stage_table(
    calls: pl.DataFrame,
    stage_spans: pl.DataFrame,
    names: list[str],
    parts: Parts,
    accounting: Accounting,
) -> pl.DataFrame:
    """The stages, those without a span included; nulls where the accounting is not possible."""
    possible, end_to_end = accounting.possible, accounting.end_to_end_ns
    begun = pl.concat([_stage_starts(stage_spans), _stage_starts(calls)])
    count = dict(calls.group_by(pl.col("stage").cast(pl.String)).len().iter_rows())
    spanned = dict(_stage_starts(stage_spans).iter_rows())
    starts = {**dict(begun.iter_rows()), **spanned}
    rows = [
        (
            name,
            starts[name],
            duration if possible else None,
            count.get(name, 0),
            in_calls,
            host if possible else None,
            idle if possible else None,
            duration / end_to_end if possible and end_to_end else None,
        )
        for name, duration, in_calls, host, idle in zip(
            names,
            parts.duration.tolist(),
            parts.calls.tolist(),
            parts.host.tolist(),
            parts.idle.tolist(),
            strict=True,
        )
    ]
    return pl.DataFrame(rows, schema=schema(STAGES), orient="row")


def _stage_starts(frame: pl.DataFrame) -> pl.DataFrame:
    stage = pl.col("stage").cast(pl.String)
    return frame.group_by(stage).agg(pl.col("start_ns").min()).drop_nulls()


def _in_order(stage_spans: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    begun = pl.concat([_stage_starts(stage_spans), _stage_starts(calls)])
    ordered = begun.group_by("stage").agg(pl.col("start_ns").min()).sort("start_ns", "stage")
    return ordered["stage"].to_list()


def _stage_parts(run: Run, stage_spans: pl.DataFrame, names: list[str]) -> Parts:
    times = run.commands.lazy().select("call", "stage", "start_ns", "duration_ns")
    host = times.filter(pl.col("call") == NO_CALL).collect()
    spans, calls, free = (
        Grouped.of(frame, _stage_codes(frame["stage"], names))
        for frame in (stage_spans, run.calls, host)
    )
    return parts_of(spans, calls, free, len(names))


def _stage_codes(column: pl.Series, names: list[str]) -> Codes:
    codes, found = text_codes(column)
    position = {name: number for number, name in enumerate(names)}
    return np.array([position.get(name, -1) for name in found] + [-1], dtype=np.int32)[codes]


def _submodule_times(calls: pl.DataFrame, end_to_end: int) -> tuple[SubmoduleTime, ...]:
    codes, names = text_codes(calls["submodule"])
    lengths = union_by(calls["start_ns"].to_numpy(), ends(calls), codes, len(names)).tolist()
    times = [
        SubmoduleTime(name, wall, wall / end_to_end if end_to_end else 0.0)
        for name, wall in zip(names, lengths, strict=True)
    ]
    return tuple(sorted(times, key=lambda time: (-time.wall_ns, time.submodule)))


def _step_count(run: Run) -> int:
    spans = run.spans.filter(pl.col("kind") == "step")
    if len(spans):
        return len(spans)
    return run.calls.filter(pl.col("step") >= 0)["step"].n_unique()


def _why_not(run: Run, missing: list[str]) -> str:
    if not missing:
        return ""
    reason = f"the trace holds no {' and no '.join(missing)} span"
    lost = any(loss.kind == "missing_file" and loss.where == "host.pb" for loss in run.losses)
    return reason + (", host.pb is missing" if lost else "")

"""The accounting identity: end-to-end time = stages = calls + host work between them + idle.

It holds for each pipeline call by itself. For each stage of one, with S its spans, C its calls and
H its work in no call (host work, and what that started on devices), |A+B| the length of the union
of their intervals, nothing clipped to anything:

    calls = |C|     host = |C+H| - |C|     idle = |S+C+H| - |C+H|

so that whatever sticks out of its stage, is claimed by two stages or lies between stages shows in
the residual instead of vanishing. The account of the run is the sum over its pipeline calls. Where
a run does not tell what belongs to which, it is accounted for as if it were one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl

from profiler.analysis.accounting.codes import NoAccount
from profiler.analysis.accounting.columns import PIPELINES, STAGES
from profiler.analysis.accounting.identity import Accounting, StageAccount, SubmoduleTime
from profiler.analysis.arrays import ends, text_codes
from profiler.analysis.batches import Codes, Times
from profiler.analysis.intervals import union_by, union_length
from profiler.analysis.notes import Note
from profiler.analysis.parts import Grouped, Parts, parts_of
from profiler.analysis.pipelines import PipelineCalls
from profiler.events import NO_CALL, DropKind
from profiler.table.columns import empty, schema
from profiler.table.run import Run

__all__ = ["account"]


@dataclass(frozen=True, slots=True, eq=False)
class _Balance:
    """Pipeline calls against their stages, in ns: `parts` has one row a pipeline call and one
    column a stage, the rest is of each pipeline call [p], as `Accounting` describes it."""

    parts: Parts
    end_to_end: Times
    gap: Times
    outside: Times
    overlap: Times

    @property
    def accounted(self) -> Times:
        """What the stages of each pipeline call account for, int64 [p]."""
        parts = self.parts
        sums: Times = (parts.calls + parts.host + parts.idle).sum(axis=1)
        return sums

    @property
    def unexplained(self) -> Times:
        """Gap, outside and overlap of each pipeline call, which do not cancel; int64 [p]."""
        return self.gap + self.outside + self.overlap

    def of_stages(self) -> Iterator[tuple[int, int, int, int]]:
        """Duration, calls, host and idle of each stage, summed over the pipeline calls."""
        parts = self.parts
        columns = (parts.duration, parts.calls, parts.host, parts.idle)
        yield from zip(*(column.sum(axis=0).tolist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """What the account is made of, and the names of the stages."""

    pipelines: pl.DataFrame
    stage_spans: pl.DataFrame
    calls: pl.DataFrame
    host: pl.DataFrame
    names: list[str]

    @classmethod
    def of(cls, run: Run, pipelines: PipelineCalls) -> _Rows:
        """The rows of `run` that lie in pipeline calls: all, where it does not tell."""
        calls = run.calls
        if pipelines.known and len(pipelines.numbers):
            calls = calls.filter(pl.Series(pipelines.code_of(calls)) >= 0)
        stage_spans = run.spans.filter(pl.col("kind") == "stage")
        times = run.commands.lazy().select("call", "pipeline", "stage", "start_ns", "duration_ns")
        host = times.filter(pl.col("call") == NO_CALL).collect()
        names = _in_order(stage_spans, calls)
        return cls(pipelines.spans, stage_spans, calls, host, names)

    def balance(self, pipelines: PipelineCalls | None) -> _Balance:
        """The balance of each of `pipelines`; of all as if they were one, for None."""
        groups = 1 if pipelines is None else len(pipelines.numbers)

        def of(frame: pl.DataFrame) -> Codes:
            if pipelines is None:
                return np.zeros(len(frame), dtype=np.int32)
            return pipelines.code_of(frame)

        def of_stage(frame: pl.DataFrame) -> Grouped:
            pipeline, stage = of(frame), _stage_codes(frame["stage"], self.names)
            code = pipeline.astype(np.int64) * len(self.names) + stage
            return Grouped.of(frame, np.where((pipeline < 0) | (stage < 0), -1, code))

        spans, calls, host = map(of_stage, (self.stage_spans, self.calls, self.host))
        parts = _by_pipeline(parts_of(spans, calls, host, groups * len(self.names)), groups)
        whole = Grouped.of(self.pipelines, of(self.pipelines))
        stages = Grouped.of(self.stage_spans, of(self.stage_spans))
        end_to_end, in_stages = whole.union(groups), stages.union(groups)
        everything = (whole + stages).union(groups)
        return _Balance(
            parts=parts,
            end_to_end=end_to_end,
            gap=everything - in_stages,
            outside=parts.outside.sum(axis=1) + everything - end_to_end,
            overlap=parts.duration.sum(axis=1) - in_stages,
        )


def _by_pipeline(parts: Parts, pipelines: int) -> Parts:
    """`parts` as one row a pipeline call."""
    columns = {field.name: getattr(parts, field.name) for field in fields(Parts)}
    stages = len(parts.duration) // max(pipelines, 1)
    return Parts(**{name: column.reshape(pipelines, stages) for name, column in columns.items()})


def account(
    run: Run, pipelines: PipelineCalls | None = None
) -> tuple[Accounting, pl.DataFrame, pl.DataFrame]:
    """The accounting of the whole run, its tables of stages and of pipeline calls
    (`STAGES`, `PIPELINES`).

    Work of no call that names no stage is no stage's.
    """
    pipelines = PipelineCalls.of(run) if pipelines is None else pipelines
    rows = _Rows.of(run, pipelines)
    groups = len(pipelines.numbers)
    told = pipelines.known and groups > 0
    balance = rows.balance(pipelines if told else None)
    apart = balance if told or groups <= 1 else rows.balance(pipelines)
    spans = {"pipeline": rows.pipelines, "stage": rows.stage_spans}
    missing = [kind for kind, found in spans.items() if found.is_empty()]
    end_to_end = int(balance.end_to_end.sum())
    outside = run.calls.join(rows.calls, on="call", how="anti")
    accounting = Accounting(
        end_to_end_ns=end_to_end,
        pipelines=groups,
        steps=_step_count(run),
        stages=(),
        residual_ns=0,
        residual_share=0.0,
        gap_ns=0,
        outside_ns=0,
        overlap_ns=0,
        submodules=_submodule_times(run.calls, pipelines, end_to_end),
        possible=not missing,
        why_not=_why_not(run, missing),
        wall_ns=union_length(rows.pipelines["start_ns"].to_numpy(), ends(rows.pipelines)),
        overlapping=int(pipelines.overlapping().sum()),
        told_apart=pipelines.known,
        calls_outside=len(outside),
        calls_outside_ns=union_length(outside["start_ns"].to_numpy(), ends(outside)),
    )
    if not missing:
        accounting = _with_residual(accounting, rows.names, balance)
    return (
        accounting,
        _stage_table(rows, balance, accounting),
        _pipeline_table(run, rows, pipelines, apart, accounting),
    )


def _with_residual(accounting: Accounting, names: list[str], balance: _Balance) -> Accounting:
    end_to_end, rows = accounting.end_to_end_ns, balance.of_stages()
    return replace(
        accounting,
        stages=tuple(StageAccount(name, *row) for name, row in zip(names, rows, strict=True)),
        residual_ns=end_to_end - int(balance.accounted.sum()),
        residual_share=int(balance.unexplained.sum()) / end_to_end if end_to_end else 0.0,
        gap_ns=int(balance.gap.sum()),
        outside_ns=int(balance.outside.sum()),
        overlap_ns=int(balance.overlap.sum()),
    )


def _stage_table(rows: _Rows, balance: _Balance, accounting: Accounting) -> pl.DataFrame:
    """The stages, those without a span included; nulls where the accounting is not possible."""
    possible, end_to_end = accounting.possible, accounting.end_to_end_ns
    begun = pl.concat([_stage_starts(rows.stage_spans), _stage_starts(rows.calls)])
    count = dict(rows.calls.group_by(pl.col("stage").cast(pl.String)).len().iter_rows())
    starts = {**dict(begun.iter_rows()), **dict(_stage_starts(rows.stage_spans).iter_rows())}
    table = [
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
        for name, (duration, in_calls, host, idle) in zip(
            rows.names, balance.of_stages(), strict=True
        )
    ]
    return pl.DataFrame(table, schema=schema(STAGES), orient="row")


def _pipeline_table(
    run: Run,
    rows: _Rows,
    pipelines: PipelineCalls,
    balance: _Balance,
    accounting: Accounting,
) -> pl.DataFrame:
    """The pipeline calls that have a span, each accounted for by itself; nulls where that is not
    possible."""
    groups = len(pipelines.numbers)
    if not groups:
        return empty(PIPELINES)
    steps = run.spans.filter(pl.col("kind") == "step")
    counted = {
        "steps": _counts(pipelines.code_of(steps), groups),
        "calls": _counts(pipelines.code_of(rows.calls), groups),
    }
    first = pipelines.spans.sort("pipeline", "start_ns").unique("pipeline", keep="first")
    parts, total = balance.parts, balance.end_to_end
    table = (
        first.sort("pipeline")
        .select("pipeline", "start_ns", name=pl.col("name").cast(pl.String))
        .with_columns(
            duration_ns=total,
            overlapping=pipelines.overlapping(),
            **counted,
            calls_ns=parts.calls.sum(axis=1),
            host_ns=parts.host.sum(axis=1),
            idle_ns=parts.idle.sum(axis=1),
            residual_ns=total - balance.accounted,
            residual_share=balance.unexplained / np.maximum(total, 1),
        )
    )
    if not accounting.possible:
        unknown = [column.name for column in PIPELINES if column.nullable]
        table = table.with_columns(pl.lit(None).alias(name) for name in unknown)
    ordered = table.sort("start_ns", "pipeline")
    return ordered.select(pl.col(name).cast(dtype) for name, dtype in schema(PIPELINES).items())


def _counts(codes: Codes, groups: int) -> Times:
    return np.bincount(codes[codes >= 0], minlength=groups)


def _stage_starts(frame: pl.DataFrame) -> pl.DataFrame:
    stage = pl.col("stage").cast(pl.String)
    return frame.group_by(stage).agg(pl.col("start_ns").min()).drop_nulls()


def _in_order(stage_spans: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    begun = pl.concat([_stage_starts(stage_spans), _stage_starts(calls)])
    ordered = begun.group_by("stage").agg(pl.col("start_ns").min()).sort("start_ns", "stage")
    return ordered["stage"].to_list()


def _stage_codes(column: pl.Series, names: list[str]) -> Codes:
    codes, found = text_codes(column)
    position = {name: number for number, name in enumerate(names)}
    return np.array([position.get(name, -1) for name in found] + [-1], dtype=np.int32)[codes]


def _submodule_times(
    calls: pl.DataFrame, pipelines: PipelineCalls, end_to_end: int
) -> tuple[SubmoduleTime, ...]:
    codes, names = text_codes(calls["submodule"])
    groups = 1
    if pipelines.known and len(pipelines.numbers):
        of_pipeline = pipelines.code_of(calls)
        groups = len(pipelines.numbers)
        codes = np.where(of_pipeline < 0, -1, codes + of_pipeline.astype(np.int64) * len(names))
    start, end = calls["start_ns"].to_numpy(), ends(calls)
    walls = union_by(start, end, codes, groups * len(names)).reshape(groups, len(names))
    times = [
        SubmoduleTime(name, wall, wall / end_to_end if end_to_end else 0.0)
        for name, wall in zip(names, walls.sum(axis=0).tolist(), strict=True)
    ]
    return tuple(sorted(times, key=lambda time: (-time.wall_ns, time.submodule)))


def _step_count(run: Run) -> int:
    spans = run.spans.filter(pl.col("kind") == "step")
    if len(spans):
        return len(spans)
    return run.calls.filter(pl.col("step") >= 0)["step"].n_unique()


def _why_not(run: Run, missing: list[str]) -> Note | None:
    if not missing:
        return None
    if len(missing) > 1:
        reason = Note.of(NoAccount.NO_SPANS, one=missing[0], other=missing[1])
    else:
        reason = Note.of(NoAccount.NO_SPAN, kind=missing[0])
    lost = any(
        loss.kind == DropKind.MISSING_FILE and loss.where == "host.pb" for loss in run.losses
    )
    return Note.of(NoAccount.HOST_FILE_MISSING, reason=reason) if lost else reason

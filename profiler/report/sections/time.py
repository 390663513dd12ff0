"""Where the time went: stages, pipeline calls, submodules, and steps."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis import columns
from profiler.analysis.result import Analysis
from profiler.messages import said
from profiler.report.charts.stages import stages
from profiler.report.model import Figure, Part, ReportInput, SectionKind, Shown, TableView
from profiler.report.sections.steps import step_parts
from profiler.report.views import table

__all__ = ["SECTION"]

_STAGES = (
    Shown("stage", "stage", "text"),
    Shown("duration_ns", "duration", "ns"),
    Shown("share", "share", "share", 2),
    Shown("calls", "calls", "count", 1),
    Shown("calls_ns", "in calls", "ns"),
    Shown("host_ns", "host work", "ns"),
    Shown("idle_ns", "idle", "ns"),
)
_PIPELINES = (
    Shown("pipeline", "pipeline call", "count"),
    Shown("name", "pipeline", "text"),
    Shown("start_ns", "start", "ns", 2),
    Shown("duration_ns", "duration", "ns"),
    Shown("overlapping", "at once", "flag", 4),
    Shown("steps", "steps", "count", 4),
    Shown("calls", "calls", "count", 3),
    Shown("calls_ns", "in calls", "ns"),
    Shown("host_ns", "host work", "ns"),
    Shown("idle_ns", "idle", "ns"),
    Shown("residual_share", "unaccounted", "share", 1),
)
_CALL_TIMES = (
    Shown("calls", "calls", "count"),
    Shown("total_ns", "total", "ns"),
    Shown("share", "share", "share"),
    Shown("first_ns", "first call", "ns"),
    Shown("min_ns", "shortest", "ns", 5),
    Shown("median_ns", "median", "ns"),
    Shown("max_ns", "longest", "ns", 2),
    Shown("busy_ns", "device time", "ns", 3),
)
_SUBMODULES = (
    Shown("submodule", "submodule", "text"),
    Shown("stage", "stage", "text", 6),
    Shown("device", "device", "text", 1),
    *_CALL_TIMES,
    Shown("commands", "commands", "count", 4),
    Shown("operators", "operators", "count", 5),
    Shown("calibration", "calibration", "calibration", 5),
)
_BRANCHES = (
    Shown("submodule", "submodule", "text"),
    Shown("branch", "branch", "text"),
    *_CALL_TIMES,
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Stages and their sum, pipeline calls where there are several, submodules, steps."""
    analysis = of.analysis
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    submodules = table(
        "submodules", "submodules", _SUBMODULES, columns.SUBMODULES, analysis.submodules, shown=20
    )
    return (
        *_stages(analysis),
        *_pipelines(of),
        Part(said("Submodules"), table=submodules),
        Part(
            said("Submodules by branch"),
            table=table("branches", "branches", _BRANCHES, columns.BRANCHES, branches, shown=20),
            folded=True,
        ),
        *step_parts(of),
    )


def _stages(analysis: Analysis) -> Iterator[Part]:
    if len(analysis.stages):
        yield Part(
            said("Stages: calls, host work, idle; whole run"),
            figure=Figure("stages", lambda theme: stages(analysis, theme)),
            table=_stage_table(analysis),
        )


def _stage_table(analysis: Analysis) -> TableView | None:
    """The stages, and below them what is left of the end-to-end time."""
    account, found = analysis.accounting, analysis.stages
    totals = None
    if account.possible and account.end_to_end_ns:
        sums = {name: [None, found[name].sum()] for name in ("calls", *_SUMMED)}
        totals = pl.DataFrame(
            {
                "stage": [said("residual"), said("end to end")],
                "duration_ns": [account.residual_ns, account.end_to_end_ns],
                "share": [account.residual_share, 1.0],
                **sums,
            },
            schema_overrides={name: found.schema[name] for name in sums},
        )
    return table("stages", "stages", _STAGES, columns.STAGES, found, shown=20, totals=totals)


_SUMMED = ("calls_ns", "host_ns", "idle_ns")


def _pipelines(of: ReportInput) -> Iterator[Part]:
    pipelines = of.analysis.pipelines
    if len(pipelines) > 1:
        relative = pipelines.with_columns(pl.col("start_ns") - of.begin_ns)
        made = table(
            "pipelines", "pipeline calls", _PIPELINES, columns.PIPELINES, relative, shown=12
        )
        yield Part(said("Pipeline calls"), table=made)


SECTION = SectionKind("time", 20, said("Where the time went"), _parts, contents=said("Time"))

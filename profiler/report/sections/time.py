"""Stages and steps: stages, pipeline calls, submodules, and steps."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.accounting.columns import PIPELINES, STAGES
from profiler.analysis.result import Analysis
from profiler.analysis.submodules.columns import BRANCHES, SUBMODULES
from profiler.report.known_work import with_known_work
from profiler.report.model import (
    Figure,
    Part,
    ReportInput,
    SectionKind,
    Selected,
    TableView,
)
from profiler.report.sections.steps import step_parts
from profiler.report.views import table
from profiler.text import said

__all__ = ["SECTION", "calls_overlap", "stages_figure", "submodule_names", "submodules_part"]

_AT_ONCE = 1.01  # times the share of the end-to-end time: more than rounding

_STAGES = (
    "stage",
    "elapsed_ns",
    "share",
    "calls",
    "calls_ns",
    "host_ns",
    "idle_ns",
    "duration_ns",
)
_PIPELINES = (
    "pipeline",
    "name",
    "start_ns",
    "elapsed_ns",
    "overlapping",
    "steps",
    "calls",
    "calls_ns",
    "host_ns",
    "idle_ns",
    "unrecorded_ns",
    "duration_ns",
    "residual_share",
)
_CALL_TIMES = (
    "calls",
    "elapsed_ns",
    "share",
    "first_ns",
    "min_ns",
    "median_ns",
    "max_ns",
    "busy_ns",
    "duration_ns",
)
_ON_DEVICE = ("idle_inside_ns", "launch_bound_ns", "hidden_ns", "unrecorded_ns", "lead_ns")
_SUBMODULES = (
    "submodule",
    "stage",
    "device",
    *_CALL_TIMES,
    *_ON_DEVICE,
    "commands",
    "operators",
    "overhead_ratio",
)
_BRANCHES = (
    "submodule",
    "branch",
    *_CALL_TIMES,
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """Stages and their sum, pipeline calls where there are several, submodules, steps."""
    analysis = of.analysis
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    return (
        *_stages(analysis),
        *_pipelines(of),
        submodules_part(analysis),
        Part(
            said("Submodules by branch"),
            table=table(
                "branches",
                "branches",
                _BRANCHES,
                BRANCHES,
                with_known_work(branches, analysis.calls, "submodule", "branch"),
                shown=20,
                selected=Selected("branches", shown_rows=True),
            ),
            folded=True,
        ),
        *step_parts(of),
    )


def submodule_names(analysis: Analysis) -> list[str]:
    """The submodules of the table, in order of first calls."""
    return analysis.submodules["submodule"].to_list()


def submodules_part(analysis: Analysis) -> Part:
    """The submodules, in order of first calls."""
    submodules = table(
        "submodules",
        "submodules",
        _SUBMODULES,
        SUBMODULES,
        with_known_work(analysis.submodules, analysis.calls, "submodule"),
        shown=20,
        selected=Selected("submodules"),
    )
    note = said(
        "Calls ran at the same time on several devices: elapsed adds them up, share is of the time "
        "in which any of them ran."
    )
    notes = (note,) if calls_overlap(analysis) else ()
    return Part(said("Submodules"), table=submodules, notes=notes)


def calls_overlap(analysis: Analysis) -> bool:
    """Whether calls of a submodule ran at the same time, on several devices (on one they share its
    tiles): their elapsed times add up to more than their part of the end-to-end time."""
    total = analysis.accounting.end_to_end_ns
    more = pl.col("elapsed_ns") > _AT_ONCE * total * pl.col("share")
    return bool(total) and not analysis.submodules.filter(more).is_empty()


def stages_figure(analysis: Analysis) -> Figure:
    """Calls, host work and idle time of each stage."""
    data = (analysis.stages, analysis.calls, analysis.accounting)
    return Figure("stages", "stages", data)


def _stages(analysis: Analysis) -> Iterator[Part]:
    if len(analysis.stages):
        yield Part(
            said("Stages: calls, host work, idle; whole run"),
            figure=stages_figure(analysis),
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
                "elapsed_ns": [account.residual_ns, account.end_to_end_ns],
                "share": [account.residual_share, 1.0],
                **sums,
            },
            schema_overrides={name: found.schema[name] for name in sums},
        )
    return table("stages", "stages", _STAGES, STAGES, found, shown=20, totals=totals)


_SUMMED = ("calls_ns", "host_ns", "idle_ns", "duration_ns")


def _pipelines(of: ReportInput) -> Iterator[Part]:
    pipelines = of.analysis.pipelines
    if len(pipelines) > 1:
        relative = pipelines.with_columns(pl.col("start_ns") - of.begin_ns)
        made = table("pipelines", "pipeline calls", _PIPELINES, PIPELINES, relative, shown=12)
        yield Part(said("Pipeline calls"), table=made)


SECTION = SectionKind(
    "time",
    20,
    said("Stages and steps"),
    _parts,
    tables=(
        "stages",
        "pipelines",
        "submodules",
        "branches",
        "steps",
        "step_times",
        "step_operators",
        "step_outliers",
    ),
)

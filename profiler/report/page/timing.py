"""Where the time went: stages, pipeline calls, submodules, devices, steps and calls."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis import columns
from profiler.analysis.result import Analysis
from profiler.messages import joined, said, sentence
from profiler.report import charts
from profiler.report.headline import at_once
from profiler.report.page.content import Figure, Part, Section, Shown, Table, table
from profiler.report.page.denoise import change_parts
from profiler.report.sentences.worded import label, why_not, worded
from profiler.report.units import counted, duration, percent

__all__ = ["accounting", "call_section", "step_section", "time_section"]

_PIPELINES = (
    Shown("pipeline", "pipeline call", "count"),
    Shown("name", "pipeline", "text"),
    Shown("start_ns", "start", "ns"),
    Shown("duration_ns", "duration", "ns"),
    Shown("overlapping", "at once", "flag"),
    Shown("steps", "steps", "count"),
    Shown("calls", "calls", "count"),
    Shown("calls_ns", "in calls", "ns"),
    Shown("host_ns", "host work", "ns"),
    Shown("idle_ns", "idle", "ns"),
    Shown("residual_share", "unaccounted", "share"),
)
_STAGES = (
    Shown("stage", "stage", "text"),
    Shown("duration_ns", "duration", "ns"),
    Shown("share", "share", "share"),
    Shown("calls", "calls", "count"),
    Shown("calls_ns", "in calls", "ns"),
    Shown("host_ns", "host work", "ns"),
    Shown("idle_ns", "idle", "ns"),
)
_DEVICES = (
    Shown("device", "device", "text"),
    Shown("hardware", "hardware", "text"),
    Shown("utilization", "busy of its span", "share"),
    Shown("span_ns", "span", "ns"),
    Shown("busy_ns", "busy", "ns"),
    Shown("idle_ns", "idle", "ns"),
    Shown("compute_ns", "compute", "ns"),
    Shown("dma_ns", "dma", "ns"),
    Shown("copy_ns", "copy", "ns"),
    Shown("sync_ns", "sync", "ns"),
    Shown("other_ns", "other", "ns", minor=True),
    Shown("host_ns", "host", "ns"),
    Shown("calls", "calls", "count"),
    Shown("commands", "commands", "count"),
)
_CALL_TIMES = (
    Shown("calls", "calls", "count"),
    Shown("total_ns", "total", "ns"),
    Shown("share", "share", "share"),
    Shown("first_ns", "first call", "ns"),
    Shown("min_ns", "shortest", "ns", minor=True),
    Shown("median_ns", "median", "ns"),
    Shown("max_ns", "longest", "ns"),
    Shown("busy_ns", "device time", "ns"),
)
_SUBMODULES = (
    Shown("submodule", "submodule", "text"),
    Shown("stage", "stage", "text", minor=True),
    Shown("device", "device", "text"),
    *_CALL_TIMES,
    Shown("commands", "commands", "count"),
    Shown("operators", "operators", "count", minor=True),
    Shown("calibration", "calibration", "calibration", minor=True),
)
_BRANCHES = (
    Shown("submodule", "submodule", "text"),
    Shown("branch", "branch", "text"),
    *_CALL_TIMES,
)
_CALLS = (
    Shown("call", "call", "count"),
    Shown("pipeline", "pipeline call", "step"),
    Shown("submodule", "submodule", "text"),
    Shown("stage", "stage", "text"),
    Shown("branch", "branch", "text"),
    Shown("step", "step", "step"),
    Shown("device", "device", "text"),
    Shown("start_ns", "start", "ns"),
    Shown("duration_ns", "duration", "ns"),
    Shown("busy_ns", "device time", "ns"),
    Shown("commands", "commands", "count"),
    Shown("operators", "operators", "count"),
    Shown("first", "first", "flag", minor=True),
    Shown("ops_traced", "traced", "flag", minor=True),
)


def time_section(analysis: Analysis, begin_ns: int) -> Section:
    """Stages, pipeline calls, submodules and devices; starts are relative to `begin_ns`."""
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    tables = (
        table("stages", "stages", _STAGES, columns.STAGES, analysis.stages),
        _pipelines(analysis, begin_ns),
        table("submodules", "submodules", _SUBMODULES, columns.SUBMODULES, analysis.submodules),
        table("branches", "branches", _BRANCHES, columns.BRANCHES, branches),
        table("devices", "devices", _DEVICES, columns.DEVICES, analysis.devices),
    )
    titles = (
        said("Stages"),
        said("Pipeline calls"),
        said("Submodules"),
        said("Submodules by branch"),
        said("Devices"),
    )
    parts = (
        Part(said("Stages: calls, host work, idle"), figure=Figure("stages", charts.stages)),
        Part(
            said("Devices: time by category of work"),
            figure=Figure("devices", charts.devices),
            beside=True,
        ),
        *(
            Part(title, table=made, folded=made is not None and made.key == "branches")
            for title, made in zip(titles, tables, strict=True)
        ),
    )
    return Section("time", said("Stages and devices"), said("Stages and devices"), parts)


def _pipelines(analysis: Analysis, begin_ns: int) -> Table | None:
    """Only where there are several."""
    pipelines = analysis.pipelines
    if len(pipelines) < 2:
        return None
    relative = pipelines.with_columns(pl.col("start_ns") - begin_ns)
    return table("pipelines", "pipeline calls", _PIPELINES, columns.PIPELINES, relative)


def accounting(analysis: Analysis) -> str:
    """The accounting identity in one sentence, with its residual."""
    return joined(" ", _sentences(analysis))


def _sentences(analysis: Analysis) -> Iterator[str]:
    account = analysis.accounting
    if not account.possible:
        yield said("No accounting of the whole time: {why}.", why=why_not(account.why_not))
        return
    parts = (
        ("calls", sum(stage.calls_ns for stage in account.stages)),
        ("host", sum(stage.host_ns for stage in account.stages)),
        ("idle", sum(stage.idle_ns for stage in account.stages)),
        ("residual", account.residual_ns),
    )
    yield said(
        "End to end {total} = calls {calls} + host work between them {host} + idle {idle} "
        "+ residual {residual} ({share}).",
        total=duration(account.end_to_end_ns),
        share=percent(account.residual_share),
        **{name: duration(ns) for name, ns in parts},
    )
    if account.overlapping:
        yield sentence(at_once(account))
    if account.calls_outside:
        yield said(
            "Not in it: {calls} in no pipeline call, {took}.",
            calls=counted(account.calls_outside, "call"),
            took=duration(account.calls_outside_ns),
        )


def step_section(analysis: Analysis) -> Section:
    """How long each step took, the matrix of its parts, what changes and what stands out."""
    steps = analysis.step_summary
    found = said("No outliers")
    if steps.outliers:
        found = said("Outliers: {steps}", steps=", ".join(steps.outliers))
    lead = said(
        "{steps}, median {median}, mean {mean}. {outliers}.",
        steps=counted(steps.count, "step"),
        median=duration(steps.median_ns),
        mean=duration(steps.mean_ns),
        outliers=found,
    )
    rule = said(
        "Measured by {measured_by}. An outlier is {rule}.",
        measured_by=label(steps.measured_by),
        rule=worded(steps.rule),
    )
    part = Part(lead=lead, figure=Figure("steps", charts.steps), notes=(rule,))
    parts = (part, *change_parts(analysis)) if steps.count else ()
    return Section("steps", said("Steps"), said("Steps"), parts)


def call_section(analysis: Analysis, begin_ns: int) -> Section:
    """Every call; starts are relative to `begin_ns`."""
    calls = analysis.calls.with_columns(pl.col("start_ns") - begin_ns)
    several = len(analysis.pipelines) > 1
    shown = _CALLS if several else [c for c in _CALLS if c.name != "pipeline"]
    made = table("calls", "calls", shown, columns.CALLS, calls, shown=15, search=True)
    return Section("calls", said("Calls"), said("Calls"), (Part(table=made),))

"""Where the time went: stages, pipeline calls, submodules, devices, steps and calls."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis import columns
from profiler.analysis.result import Analysis
from profiler.report import charts
from profiler.report.facts import at_once
from profiler.report.page.content import Figure, Part, Section, Shown, Table, table
from profiler.report.units import counted, duration, percent

__all__ = ["call_section", "step_section", "time_section"]

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
    Shown("utilization", "busy", "share"),
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
_SUBMODULES = (
    Shown("submodule", "submodule", "text"),
    Shown("stage", "stage", "text", minor=True),
    Shown("device", "device", "text"),
    Shown("calls", "calls", "count"),
    Shown("total_ns", "total", "ns"),
    Shown("share", "share", "share"),
    Shown("first_ns", "first call", "ns"),
    Shown("min_ns", "shortest", "ns", minor=True),
    Shown("median_ns", "median", "ns"),
    Shown("max_ns", "longest", "ns"),
    Shown("busy_ns", "device time", "ns"),
    Shown("commands", "commands", "count"),
    Shown("operators", "operators", "count", minor=True),
    Shown("calibration", "calibration", "factor", minor=True),
)
_BRANCHES = (
    Shown("submodule", "submodule", "text"),
    Shown("branch", "branch", "text"),
    Shown("calls", "calls", "count"),
    Shown("total_ns", "total", "ns"),
    Shown("share", "share", "share"),
    Shown("first_ns", "first call", "ns"),
    Shown("min_ns", "shortest", "ns", minor=True),
    Shown("median_ns", "median", "ns"),
    Shown("max_ns", "longest", "ns"),
    Shown("busy_ns", "device time", "ns"),
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
    """The accounting and what it consists of; starts are relative to `begin_ns`."""
    branches = analysis.branches.filter(pl.len().over("submodule") > 1)
    tables = (
        table("stages", "stages", _STAGES, columns.STAGES, analysis.stages),
        _pipelines(analysis, begin_ns),
        table("submodules", "submodules", _SUBMODULES, columns.SUBMODULES, analysis.submodules),
        table("branches", "branches", _BRANCHES, columns.BRANCHES, branches),
        table("devices", "devices", _DEVICES, columns.DEVICES, analysis.devices),
    )
    titles = ("Stages", "Pipeline calls", "Submodules", "Submodules by branch", "Devices")
    parts = (
        Part(lead=_accounting(analysis), always=True),
        Part("Stages: calls, host work, idle", figure=Figure("stages", charts.stages)),
        Part(
            "Devices: time by category of work",
            figure=Figure("devices", charts.devices),
            beside=True,
        ),
        *(Part(title, table=made) for title, made in zip(titles, tables, strict=True)),
    )
    return Section("time", "Where the time went", "Time", parts)


def _pipelines(analysis: Analysis, begin_ns: int) -> Table | None:
    """Only where there are several."""
    pipelines = analysis.pipelines
    if len(pipelines) < 2:
        return None
    relative = pipelines.with_columns(pl.col("start_ns") - begin_ns)
    return table("pipelines", "pipeline calls", _PIPELINES, columns.PIPELINES, relative)


def _accounting(analysis: Analysis) -> str:
    """The accounting identity in one sentence, with its residual."""
    return " ".join(_sentences(analysis))


def _sentences(analysis: Analysis) -> Iterator[str]:
    account = analysis.accounting
    if not account.possible:
        yield f"No accounting of the whole time: {account.why_not}."
        return
    parts = (
        ("calls", sum(stage.calls_ns for stage in account.stages)),
        ("host work between them", sum(stage.host_ns for stage in account.stages)),
        ("idle", sum(stage.idle_ns for stage in account.stages)),
        ("residual", account.residual_ns),
    )
    terms = " + ".join(f"{name} {duration(ns)}" for name, ns in parts)
    residual = percent(account.residual_share)
    yield f"End to end {duration(account.end_to_end_ns)} = {terms} ({residual})."
    if account.overlapping:
        yield f"{at_once(account)}."
    if account.calls_outside:
        calls = counted(account.calls_outside, "call")
        took = duration(account.calls_outside_ns)
        yield f"Not in it: {calls} in no pipeline call, {took}."


def step_section(analysis: Analysis) -> Section:
    """How long each step took."""
    steps = analysis.step_summary
    found = f"Outliers: {', '.join(steps.outliers)}" if steps.outliers else "No outliers"
    lead = (
        f"{counted(steps.count, 'step')}, median {duration(steps.median_ns)}, mean "
        f"{duration(steps.mean_ns)}. {found}."
    )
    rule = f"Measured by {steps.measured_by}. An outlier is {steps.rule}."
    part = Part(lead=lead, figure=Figure("steps", charts.steps), notes=(rule,))
    return Section("steps", "Steps", "Steps", (part,) if steps.count else ())


def call_section(analysis: Analysis, begin_ns: int) -> Section:
    """Every call; starts are relative to `begin_ns`."""
    calls = analysis.calls.with_columns(pl.col("start_ns") - begin_ns)
    several = len(analysis.pipelines) > 1
    shown = _CALLS if several else [c for c in _CALLS if c.name != "pipeline"]
    made = table("calls", "calls", shown, columns.CALLS, calls, shown=40, search=True)
    return Section("calls", "Calls", "Calls", (Part(table=made),))

"""The table of denoising steps."""

from __future__ import annotations

import polars as pl

from profiler.analysis.first_calls import unsteady_calls
from profiler.analysis.inputs import Inputs
from profiler.analysis.selection import steps_of
from profiler.analysis.steps.columns import STEPS
from profiler.analysis.steps.step_table import step_table
from profiler.analysis.steps.summary import StepSummary, step_summary
from profiler.analysis.table import Table

__all__ = ["TABLES", "summary"]


def summary(of: Inputs) -> StepSummary:
    """Statistics over the selected steps."""
    from_spans = bool((of.run.spans["kind"] == "step").any())
    calls = of.run.calls
    rows = calls["call"].is_in(unsteady_calls(of.run).implode())
    first = zip(of.pipelines.number_of(calls)[rows], calls["step"].filter(rows), strict=True)
    return step_summary(of.table("steps"), frozenset(first), from_spans=from_spans)


def _steps(of: Inputs) -> pl.DataFrame:
    """The steps that were selected, as they were in the whole run."""
    steps = step_table(of.run, of.everything, of.pipelines, of.axis)
    if of.selection.stage and "denoise" not in of.selection.stage:
        return steps.clear()
    if of.selection.step:
        kept = sorted(steps_of(of.run, of.selection.step))
        return steps.filter(pl.col("step").is_in(kept))
    return steps


TABLES = (
    Table(
        name="steps",
        row="one denoising step",
        section="time",
        columns=STEPS,
        make=_steps,
        title="Steps",
        about="There is a row for each step of each pipeline call, in order of time. A row "
        "describes the step in the whole run, whatever is selected.",
    ),
)

"""The tables of how the parts of steps change from step to step."""

from __future__ import annotations

from profiler.analysis.denoise.columns import STEP_OPERATORS, STEP_TIMES
from profiler.analysis.denoise.redundant_work_tables import redundant_work
from profiler.analysis.denoise.step_matrix import StepMatrix, step_matrix
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.table import Table

__all__ = ["TABLES", "steps_matrix"]


@shared
def steps_matrix(of: Inputs) -> StepMatrix:
    """The step matrix of the selected calls."""
    steps = of.table("steps")
    return step_matrix(of.calls, of.kinds, kind_roles(of), of.call_kinds, steps, of.pipelines)


TABLES = (
    Table(
        name="step_operators",
        row="one part of the steps, and how it changes over them",
        section="time",
        columns=STEP_OPERATORS,
        make=lambda of: steps_matrix(of).table(redundant_work(of).over_steps),
        title="What changes from step to step",
        about="Parts are whole steps, submodules, and their operators (blocks and roles instead, "
        "where there are more than 500 operators); within each level the longest come first. "
        "[steps.md](steps.md) describes how warm-up, drift and outliers are found.",
        reads=("steps",),
    ),
    Table(
        name="step_times",
        row="one part in one step",
        section="time",
        columns=STEP_TIMES,
        make=lambda of: steps_matrix(of).cells(),
        title="Operators by step",
        about="This is the step matrix: it has a row for each part and each step in which that "
        "part was traced and ran.",
        reads=("steps",),
    ),
)

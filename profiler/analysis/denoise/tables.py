"""The tables of what denoising steps have in common: how they change, the cost of guidance, what is
computed again."""

from __future__ import annotations

import polars as pl

from profiler.analysis.accounting.tables import accounting
from profiler.analysis.denoise.columns import (
    GUIDANCE,
    REDUNDANT_WORK,
    STEP_OPERATORS,
    STEP_OUTLIERS,
    STEP_TIMES,
)
from profiler.analysis.denoise.guidance import guidance_table
from profiler.analysis.denoise.outlier_causes import outlier_table
from profiler.analysis.denoise.redundant_work import RedundantWork, find_redundant_work
from profiler.analysis.denoise.step_matrix import StepMatrix, step_matrix
from profiler.analysis.inputs import Inputs, shared
from profiler.analysis.replay.shared_gains import replay_gains
from profiler.analysis.roles.tables import kind_roles
from profiler.analysis.roofline.tables import profiles
from profiler.analysis.table import Table

__all__ = ["TABLES"]


@shared
def _matrix(of: Inputs) -> StepMatrix:
    steps = of.table("steps")
    return step_matrix(of.calls, of.kinds, kind_roles(of), of.call_kinds, steps, of.pipelines)


@shared
def _redundant_work(of: Inputs) -> RedundantWork:
    return find_redundant_work(
        of.calls,
        of.kinds,
        kind_roles(of),
        of.call_kinds,
        of.pipelines.number_of(of.calls),
        of.run.info.submodules,
    )


def _outliers(of: Inputs) -> pl.DataFrame:
    return outlier_table(
        _matrix(of), of.run, of.everything, of.calls, of.frame, of.commands, of.kinds
    )


def _guidance(of: Inputs) -> pl.DataFrame:
    return guidance_table(
        of.calls,
        of.table("calls"),
        of.table("branches"),
        of.kinds.table,
        profiles(of),
        of.table("submodules").select("submodule", "overhead_ratio"),
        accounting(of).end_to_end_ns,
        lambda: replay_gains(of),
    )


TABLES = (
    Table(
        name="step_operators",
        row="one part of the steps, and how it changes over them",
        section="time",
        columns=STEP_OPERATORS,
        make=lambda of: _matrix(of).table(_redundant_work(of).over_steps),
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
        make=lambda of: _matrix(of).cells(),
        title="Operators by step",
        about="This is the step matrix: it has a row for each part and each step in which that "
        "part was traced and ran.",
        reads=("steps",),
    ),
    Table(
        name="step_outliers",
        row="one part in one step that stands out",
        section="time",
        columns=STEP_OUTLIERS,
        make=_outliers,
        title="Outliers and what explains them",
        about="The table lists outliers of at least a thousandth of a step, largest `excess_ns` "
        "first, and what in the rest of the trace explains each of them. It has at most the 50 "
        "outliers that cost most. `step_outliers_total` in JSON is the number of all outliers, "
        "which is the sum of `outliers` in [step_operators](#step_operators).",
        reads=("steps",),
        rank=("-excess_ns",),
    ),
    Table(
        name="guidance",
        row="one measure of the cost of guidance",
        section="guidance",
        columns=GUIDANCE,
        make=_guidance,
        title="Cost of classifier-free guidance",
        about="The table gives the cost of classifier-free guidance, the negative prompt and "
        "skip-layer guidance for each submodule. [steps.md](steps.md) has details.",
        reads=("branches", "calls", "submodules"),
    ),
    Table(
        name="redundant_work",
        row="one group of operators that is recomputed although its inputs are the same",
        section="guidance",
        columns=REDUNDANT_WORK,
        make=lambda of: _redundant_work(of).table,
        title="Computed again",
        about="Rows are in order of the time that hoisting would save, largest first. "
        "[steps.md](steps.md#redundant-work) describes the rules.",
        rank=("-saved_ns",),
    ),
)

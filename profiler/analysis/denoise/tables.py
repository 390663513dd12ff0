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
        about="Parts are whole steps, submodules, and their operators (or blocks and roles, where "
        "those are more than 500), each longest first. [steps.md](steps.md) says how warm-up, "
        "drift and outliers are found.",
        reads=("steps",),
    ),
    Table(
        name="step_times",
        row="one part in one step",
        section="time",
        columns=STEP_TIMES,
        make=lambda of: _matrix(of).cells(),
        title="Operators by step",
        about="The step matrix: a row for each step in which the part was traced and ran.",
        reads=("steps",),
    ),
    Table(
        name="step_outliers",
        row="one part in one step that stands out",
        section="time",
        columns=STEP_OUTLIERS,
        make=_outliers,
        title="Outliers and what explains them",
        about="They are outliers of at least a thousandth of a step, most `excess_ns` first, and "
        "what of the rest of the trace explains each: no more than the 50 that cost most. "
        "`step_outliers_total` in JSON is how many there are, the `outliers` of "
        "[step_operators](#step_operators) added up.",
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
        about="What classifier-free guidance, the negative prompt and skip-layer guidance cost, "
        "submodule by submodule. [steps.md](steps.md) says more.",
        reads=("branches", "calls", "submodules"),
    ),
    Table(
        name="redundant_work",
        row="one group of operators that is recomputed although its inputs are the same",
        section="guidance",
        columns=REDUNDANT_WORK,
        make=lambda of: _redundant_work(of).table,
        title="Computed again",
        about="What hoisting them would save, most first. [steps.md](steps.md#redundant-work) has "
        "the rules.",
        rank=("-saved_ns",),
    ),
)

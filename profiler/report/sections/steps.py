"""Steps: how long each took, how their parts change, why some stand out."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from profiler.analysis.denoise.columns import STEP_OPERATORS, STEP_OUTLIERS
from profiler.analysis.result import Analysis
from profiler.analysis.steps.launch_bound import launch_bound_steps
from profiler.report.excerpts import changing_parts, explained_outliers
from profiler.report.model import Figure, Part, ReportInput
from profiler.report.sections.matrix import Matrix, matrix_of
from profiler.report.sections.step_bars import step_bars
from profiler.report.sentences.worded import label, worded
from profiler.report.step_kinds import by_cache
from profiler.report.views import table
from profiler.run.columns import Column
from profiler.text import count, counted, duration, joined, said

__all__ = [
    "outlier_count",
    "selected_steps",
    "step_matrix",
    "step_operators_figure",
    "step_parts",
    "steps_figure",
]

_WORTH = 0.05  # of a step

_HELD = 100  # rows of a table
_PART = Column(
    "part", pl.String(), "", "layer and role, submodule, or step", label="part", kind="layer"
)
_CHANGES = (
    _PART,
    "submodule",
    "steps",
    "total_ns",
    "median_ns",
    "spread",
    "warmup_steps",
    "warmup_ns",
    Column(
        "drift",
        pl.Float64(),
        "",
        "drift_ns from the first step to the last / median",
        label="drift",
        kind="ratio",
    ),
    Column(
        "drift_low",
        pl.Float64(),
        "",
        "lower end of its 95 % interval",
        label="from",
        kind="ratio",
        importance=15,
    ),
    Column(
        "drift_high",
        pl.Float64(),
        "",
        "upper end of its 95 % interval",
        label="to",
        kind="ratio",
        importance=15,
    ),
    "outliers",
    "outlier_ns",
)
_OUTLIERS = (
    _PART,
    "pipeline",
    "step",
    "submodule",
    "total_ns",
    "excess_ns",
    "cause",
    "cause_ns",
    Column(
        "place",
        pl.String(),
        "",
        "device and track of the work that overlapped",
        label="on",
        kind="text",
        importance=1,
    ),
    "cause_layer",
)


def step_parts(of: ReportInput) -> Iterator[Part]:
    """Each step, the matrix of its parts, those that change, and outliers with their causes;
    nothing where the run has no steps."""
    if of.analysis.step_summary.count:
        yield _durations(of.analysis)
        yield from _matrix(of.analysis)
        yield from _changes(of)
        yield _outliers(of)


def outlier_count(analysis: Analysis) -> int:
    """How many outliers there are; `step_outliers` holds those that cost most."""
    return max(int(analysis.step_operators["outliers"].sum()), len(analysis.step_outliers))


def selected_steps(analysis: Analysis) -> list[int]:
    """The steps that the selection left, in order."""
    return [step for step in analysis.calls["step"].unique().sort().to_list() if step >= 0]


def _durations(analysis: Analysis) -> Part:
    summary = analysis.step_summary
    found = said("No outliers")
    if summary.outliers:
        found = said("Outliers: {steps}", steps=", ".join(summary.outliers))
    lead = said(
        "{steps}, median {median}, mean {mean}, {low} to {high}. {outliers}.",
        steps=counted(summary.count, "step"),
        median=duration(summary.median_ns),
        mean=duration(summary.mean_ns),
        low=duration(summary.min_ns),
        high=duration(summary.max_ns),
        outliers=found,
    )
    if kinds := by_cache(summary):
        lead = joined(" ", [lead, said("With a step cache: {kinds}.", kinds=kinds)])
    rule = said(
        "A step lasts from the first to the last tile of its calls; {measured_by} define the "
        "steps. The median is that of steady steps, in which no submodule is called for the first "
        "time or compiles. An outlier is {rule}.",
        measured_by=label(summary.measured_by),
        rule=worded(summary.rule),
    )
    bars = step_bars(analysis.steps, analysis.calls)
    figure = replace(steps_figure(analysis), bars=bars)
    return Part(
        said("Steps"),
        lead=lead,
        figure=figure,
        notes=(*_launch_bound(analysis), rule),
        anchor="steps",
    )


def _launch_bound(analysis: Analysis) -> tuple[str, ...]:
    """How much of each step the device waited for launches; nothing where that is little."""
    found = launch_bound_steps(analysis.calls)
    if found is None or found.high_ns < _WORTH * analysis.step_summary.median_ns:
        return ()
    times = {"low": duration(found.low_ns), "high": duration(found.high_ns)}
    if found.before_low_ns is None or found.before_high_ns is None:
        return (
            said(
                "{low} to {high} of each step are launch-bound: "
                "the device waits for the host to launch.",
                **times,
            ),
        )
    return (
        said(
            "{low} to {high} of each step are launch-bound: the device waits for the host to "
            "launch. {least} to {most} of that lie before the first kernel of its calls.",
            **times,
            least=duration(found.before_low_ns),
            most=duration(found.before_high_ns),
        ),
    )


def steps_figure(analysis: Analysis) -> Figure:
    """How long each step took."""
    return Figure("steps", "steps", (analysis.steps, analysis.step_summary))


def step_operators_figure(analysis: Analysis) -> Figure:
    """The step matrix as a heat map: the time of operators in each step against their median.

    Bounded: what has no row of its own shares the last one, and of many steps a column is the
    longest of several. Empty where operators of fewer than two steps were traced.
    """
    return _of_matrix(step_matrix(analysis))


def _of_matrix(matrix: Matrix | None) -> Figure:
    return Figure("matrix", "step_matrix", (matrix,))


def step_matrix(analysis: Analysis, *, patterns: bool = True) -> Matrix | None:
    """The time of parts in each step; None where fewer than two steps have operators. With
    `patterns`, equal layers of repeated blocks are one part."""
    return matrix_of(analysis.steps, analysis.step_times, patterns=patterns)


def _matrix(analysis: Analysis) -> Iterator[Part]:
    matrix = step_matrix(analysis)
    title = said("Operators by step")
    if matrix is not None:
        yield Part(title, matrix.sentence, figure=_of_matrix(matrix))
    elif len(analysis.steps) > 1:
        why = said("Nothing to compare: operators were traced in fewer than two of the steps.")
        yield Part(title, lead=why, always=True)


def _changes(of: ReportInput) -> Iterator[Part]:
    yield Part(
        said("What changes: parts with a warm-up, a drift beyond noise or outliers"),
        table=table(
            "changes",
            "parts that change",
            _CHANGES,
            STEP_OPERATORS,
            changing_parts(of.analysis.step_operators),
            shown=of.rows(10),
            held=_HELD,
        ),
    )


def _outliers(of: ReportInput) -> Part:
    """The outliers that cost most; the table of the analysis may hold fewer than there are."""
    found, total = of.analysis.step_outliers, outlier_count(of.analysis)
    several = found["pipeline"].n_unique() > 1
    shown = [column for column in _OUTLIERS if several or column != "pipeline"]
    left = said(
        "The {shown} of {total} outliers that cost most.",
        shown=count(len(found)),
        total=count(total),
    )
    return Part(
        said("Outliers and what explains them"),
        table=table(
            "outliers",
            "outliers",
            shown,
            STEP_OUTLIERS,
            explained_outliers(found),
            shown=of.rows(10),
            held=_HELD,
        ),
        notes=(left,) if total > len(found) else (),
        folded=True,
    )

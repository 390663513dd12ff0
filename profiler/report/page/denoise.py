"""How steps change, why some stand out, what guidance costs and what is computed again."""

from __future__ import annotations

from profiler.analysis.denoise.columns import (
    GUIDANCE,
    INVARIANTS,
    STEP_OPERATORS,
    STEP_OUTLIERS,
)
from profiler.analysis.result import Analysis
from profiler.messages import said, sentence
from profiler.report.excerpts import (
    HALF_OF_BATCH,
    again_notes,
    changing_parts,
    explained_outliers,
    only_at_most,
    outlier_count,
)
from profiler.report.lines import of_all
from profiler.report.page.content import Figure, Part, Section, Shown, table
from profiler.report.sentences.denoise import NO_CAUSE
from profiler.report.step_matrix import matrix_chart, matrix_of

__all__ = ["change_parts", "guidance_section"]

_ROWS = 100  # of a table
_PART = Shown("part", "part", "layer", meaning="layer and role, submodule, or step")
_CHANGES = (
    _PART,
    Shown("submodule", "submodule", "text"),
    Shown("steps", "steps", "count"),
    Shown("total_ns", "total", "ns"),
    Shown("median_ns", "median", "ns"),
    Shown("spread", "spread", "ratio"),
    Shown("warmup_steps", "warm-up", "count"),
    Shown("warmup_ns", "cost", "ns"),
    Shown("drift", "drift", "ratio", meaning="drift_ns from the first step to the last / median"),
    Shown("drift_low", "from", "ratio", True, "lower end of its 95 % interval"),
    Shown("drift_high", "to", "ratio", True, "upper end of its 95 % interval"),
    Shown("outliers", "outliers", "count"),
    Shown("outlier_ns", "cost of these", "ns"),
)
_OUTLIERS = (
    _PART,
    Shown("pipeline", "pipeline call", "count"),
    Shown("step", "step", "step"),
    Shown("submodule", "submodule", "text", minor=True),
    Shown("busy_ns", "time", "ns"),
    Shown("excess_ns", "too long", "ns"),
    Shown("cause", "cause", "word", none=NO_CAUSE),
    Shown("cause_ns", "of it", "ns"),
    Shown("place", "on", "text", meaning="device and track of the work that overlapped"),
    Shown("cause_layer", "running", "layer"),
)
_GUIDANCE = (
    Shown("what", "what", "word"),
    Shown("submodule", "submodule", "text"),
    Shown("branch", "branch", "text"),
    Shown("calls", "calls", "count"),
    Shown("wall_ns", "costs", "ns"),
    Shown("calibrated_ns", "untraced", "ns"),
    Shown("busy_ns", "device time", "ns"),
    Shown("share", "share", "share"),
    Shown("estimated", "estimated", "flag"),
    Shown("evidence", "evidence", "word", minor=True),
)
_INVARIANTS = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("rule", "what", "word"),
    Shown("same_over", "same over", "word"),
    Shown("calls", "calls", "count"),
    Shown("needed", "needed", "count"),
    Shown("busy_ns", "busy", "ns"),
    Shown("saved_ns", "saved", "ns"),
    Shown("estimated", "at most", "flag"),
    Shown("evidence", "evidence", "word", minor=True),
)


def change_parts(analysis: Analysis) -> tuple[Part, ...]:
    """The step matrix, its parts that change, and the outliers with their causes."""
    return (*_matrix(analysis), *_changes(analysis), *_outliers(analysis))


def _matrix(analysis: Analysis) -> tuple[Part, ...]:
    matrix = matrix_of(analysis)
    if matrix is None:
        why = said("Nothing to compare: operators were traced in fewer than two of the steps.")
        return (Part(lead=why, always=True),) if len(analysis.steps) > 1 else ()
    return (
        Part(
            said("Operators by step"),
            matrix.sentence,
            figure=Figure("matrix", lambda _, theme: matrix_chart(matrix, theme)),
        ),
    )


def _changes(analysis: Analysis) -> tuple[Part, ...]:
    changing = changing_parts(analysis.step_operators)
    rows = changing.head(_ROWS)
    made = table("changes", "parts that change", _CHANGES, STEP_OPERATORS, rows, shown=10)
    shown = of_all(len(rows), len(changing))
    title = said(
        "What changes: parts with a warm-up, a drift beyond noise or outliers, {shown}", shown=shown
    )
    return (Part(title, table=made),)


def _outliers(analysis: Analysis) -> tuple[Part, ...]:
    found = analysis.step_outliers
    rows = explained_outliers(found.head(_ROWS))
    several = found["pipeline"].n_unique() > 1
    shown = [column for column in _OUTLIERS if several or column.name != "pipeline"]
    made = table("outliers", "outliers", shown, STEP_OUTLIERS, rows, shown=10)
    return (
        Part(
            said(
                "Outliers and what explains them, {shown}",
                shown=of_all(len(rows), outlier_count(analysis)),
            ),
            table=made,
            folded=True,
        ),
    )


def guidance_section(analysis: Analysis) -> Section:
    """What guidance costs, and what is computed again although its inputs are the same."""
    guidance, again = analysis.guidance, analysis.invariants
    rows = again.head(_ROWS)
    estimated = guidance["estimated"].any()
    at_most = only_at_most(analysis)
    parts = (
        Part(
            said("What guidance costs"),
            table=table("guidance", "guidance", _GUIDANCE, GUIDANCE, guidance),
            notes=(sentence(HALF_OF_BATCH),) * estimated,
        ),
        Part(
            said(
                "Computed again, {shown} by what hoisting would save",
                shown=of_all(len(rows), len(again)),
            ),
            sentence(again_notes(analysis)),
            table=table("again", "computed again", _INVARIANTS, INVARIANTS, rows, shown=10),
            notes=(sentence(at_most),) * bool(at_most),
        ),
    )
    return Section("guidance", said("Guidance and redundancy"), said("Guidance"), parts)

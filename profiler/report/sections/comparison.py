"""What changed against a baseline: a sentence, a figure, tables from the whole to modules."""

from __future__ import annotations

import polars as pl

from profiler.analysis.comparison.codes import Side
from profiler.analysis.comparison.columns import METRICS, RUNS
from profiler.messages import Said, said, sentence
from profiler.report.changed_rows import with_blocks_together
from profiler.report.charts.comparison import changes
from profiler.report.model import Figure, Part, ReportInput, SectionKind
from profiler.report.sentences.changes import headline
from profiler.report.sentences.worded import worded
from profiler.report.views import renamed, table
from profiler.resampling import CONFIDENCE
from profiler.table.columns import MINOR, Column

__all__ = ["SECTION"]

_ROWS = 200  # of a table
_ONLY = tuple(side.alone.value for side in Side)
_TIMES = (
    renamed(METRICS, "base_ns", label="baseline"),
    renamed(METRICS, "new_ns", label="this run"),
    renamed(METRICS, "difference_ns", importance=MINOR),
    renamed(METRICS, "change", kind="change"),
    renamed(METRICS, "low", label="from", kind="change", importance=MINOR),
    renamed(METRICS, "high", label="to", kind="change", importance=MINOR),
    "verdict",
)
_WHOLE = (
    renamed(METRICS, "metric", label="part", kind="layer"),
    *_TIMES,
    renamed(METRICS, "calls", importance=MINOR),
)
_STEPS = (renamed(METRICS, "step", kind="step"), *_TIMES)
_ROLES = ("submodule", "role", *_TIMES)
_MODULES = (
    renamed(METRICS, "module", kind="layer"),
    "submodule",
    "role",
    *_TIMES,
)
_RUNS = (
    "side",
    renamed(RUNS, "run_id", label="run"),
    "pipeline",
    renamed(RUNS, "devices", kind="list"),
    renamed(RUNS, "pipelines", label="pipeline calls"),
    "steps",
    "calls",
    renamed(RUNS, "traced_calls", label="traced"),
)


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """How the run, the new side, compares with its baseline; nothing without one."""
    if of.against is None:
        return ()
    comparison, metrics = of.against, of.against.metrics
    single = pl.col("step").is_not_null()
    named = pl.col("module").is_not_null() & (pl.col("module") != "")
    modules = with_blocks_together(metrics.filter(named), pl.col("verdict").is_in(_ONLY))
    whole = metrics.filter(
        ~single & ~pl.col("level").is_in(("role", "modules", "module")).fill_null(value=False)
    )
    notes = (sentence(worded(note)) for note in comparison.notes)
    selected = bool(of.analysis.run.selection)
    runs = table("comparison_runs", "runs", _RUNS, RUNS, comparison.runs, shown=20)
    return (
        Part(
            lead=said("{headline}.", headline=headline(comparison)),
            figure=Figure("comparison", lambda theme: changes(comparison, theme)),
            table=table("comparison", "parts", _WHOLE, METRICS, whole, search=True),
            notes=(_rule(), *_of_whole_runs(selected), *notes),
            always=True,
        ),
        _part(said("Steps"), said("steps"), metrics.filter(single), _STEPS, of),
        _part(
            said("Roles, by difference"),
            said("roles"),
            metrics.filter(pl.col("level") == "role"),
            _ROLES,
            of,
        ),
        _part(said("Operators by module, by difference"), said("modules"), modules, _MODULES, of),
        Part(said("Runs"), table=runs),
    )


def _of_whole_runs(selected: bool) -> tuple[str, ...]:
    return (said("Whole runs are compared, whatever is selected."),) if selected else ()


def _rule() -> str:
    return said(
        "A change is called slower or faster where its {confidence} interval leaves out no change.",
        confidence=f"{CONFIDENCE:.0%}",
    )


def _part(
    title: Said, name: str, rows: pl.DataFrame, shown: tuple[str | Column, ...], of: ReportInput
) -> Part:
    """The rows that differ most, those that only one side has last; steps in their order."""
    ordered = rows
    if name != "steps":
        size = pl.col("difference_ns").abs().fill_null(-1)
        ordered = rows.sort(size, descending=True, maintain_order=True)
    made = table(
        f"comparison_{name}",
        name,
        shown,
        METRICS,
        ordered,
        shown=of.rows(10),
        held=_ROWS,
        search=len(ordered) > 10,
    )
    return Part(title, table=made)


SECTION = SectionKind(
    "comparison", 35, said("Against the baseline"), _parts, contents=said("Comparison")
)

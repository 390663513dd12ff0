"""What changed against a baseline: a sentence, a figure, tables from the whole to modules."""

from __future__ import annotations

import polars as pl

from profiler.analysis.comparison.columns import METRICS, RUNS
from profiler.analysis.comparison.compare import Comparison
from profiler.messages import Said, said, sentence
from profiler.report.comparison_chart import changes
from profiler.report.diff_text import headline
from profiler.report.lines import of_all
from profiler.report.page.content import Figure, Part, Section, Shown, table
from profiler.report.patterns import pattern
from profiler.resampling import CONFIDENCE

__all__ = ["comparison_section"]

_ROWS = 200  # of a table
_ONLY = "only in"
_TIMES = (
    Shown("base_ns", "baseline", "ns"),
    Shown("new_ns", "this run", "ns"),
    Shown("difference_ns", "difference", "ns", minor=True),
    Shown("change", "change", "change"),
    Shown("low", "from", "change", minor=True),
    Shown("high", "to", "change", minor=True),
    Shown("verdict", "verdict", "word"),
)
_WHOLE = (Shown("metric", "part", "layer"), *_TIMES, Shown("calls", "calls", "text", minor=True))
_STEPS = (Shown("step", "step", "step"), *_TIMES)
_ROLES = (Shown("submodule", "submodule", "text"), Shown("role", "role", "text"), *_TIMES)
_MODULES = (
    Shown("module", "module", "layer"),
    Shown("submodule", "submodule", "text"),
    Shown("role", "role", "text"),
    *_TIMES,
)
_RUNS = tuple(
    Shown(name, label, kind)
    for name, label, kind in (
        ("side", "side", "word"),
        ("run_id", "run", "text"),
        ("pipeline", "pipeline", "text"),
        ("devices", "devices", "list"),
        ("pipelines", "pipeline calls", "count"),
        ("steps", "steps", "count"),
        ("calls", "calls", "count"),
        ("traced_calls", "traced", "count"),
    )
)


def comparison_section(comparison: Comparison, *, selected: bool = False) -> Section:
    """`comparison` has this run as its new side; `selected`: the rest of the page shows a part."""
    metrics = comparison.metrics
    single = pl.col("step").is_not_null()
    named = pl.col("module").is_not_null() & (pl.col("module") != "")
    modules = _modules(metrics.filter(named))
    whole = metrics.filter(
        ~single & ~pl.col("level").is_in(("role", "modules", "module")).fill_null(value=False)
    )
    parts = (
        Part(
            lead=said("{headline}.", headline=headline(comparison)),
            figure=Figure("comparison", lambda _, theme: changes(comparison, theme)),
            table=table("comparison", "parts", _WHOLE, METRICS, whole, shown=10, search=True),
            notes=(_rule(), *_of_whole_runs(selected), *map(sentence, comparison.notes)),
            always=True,
        ),
        _part(said("Steps"), said("steps"), metrics.filter(single), _STEPS),
        _part(said("Roles"), said("roles"), metrics.filter(pl.col("level") == "role"), _ROLES),
        _part(said("Operators by module"), said("modules"), modules, _MODULES),
        Part(said("Runs"), table=table("comparison_runs", "runs", _RUNS, RUNS, comparison.runs)),
    )
    return Section("comparison", said("Against the baseline"), said("Comparison"), parts)


def _of_whole_runs(selected: bool) -> tuple[str, ...]:
    return (said("Whole runs are compared, whatever is selected."),) if selected else ()


def _rule() -> str:
    return said(
        "A change is called slower or faster where its {confidence} interval leaves out no change.",
        confidence=f"{CONFIDENCE:.0%}",
    )


def _part(title: Said, name: str, rows: pl.DataFrame, shown: tuple[Shown, ...]) -> Part:
    """The rows that differ most, those that only one side has last; steps in their order."""
    ordered = rows
    if name != "steps":
        size = pl.col("difference_ns").abs().fill_null(-1)
        ordered = rows.sort(size, descending=True, maintain_order=True)
    first = ordered.head(_ROWS)
    heading = said(
        "{title}, {number} by difference", title=title, number=of_all(len(first), len(rows))
    )
    if name == "steps":
        heading = title
    key, search = f"comparison_{name}", len(first) > 10
    made = table(key, name, shown, METRICS, first, shown=10, search=search)
    return Part(heading, table=made)


def _modules(rows: pl.DataFrame) -> pl.DataFrame:
    """Modules of both sides, those of equal blocks together where they are, and of those that one
    side lacks each by itself."""
    together = rows.filter(pl.col("level") == "modules")
    single = rows.filter(pl.col("level") == "module")
    folded = single.with_columns(module=pattern(pl.col("module")))
    keys = ["submodule", "role", "module"]
    covered = folded.join(together, on=keys, how="semi")["metric"].to_list()
    alone = pl.col("verdict").str.starts_with(_ONLY)
    return pl.concat([together, single.filter(alone | ~pl.col("metric").is_in(covered))])

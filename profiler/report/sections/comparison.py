"""What changed against a baseline: a sentence, a figure, tables from the whole to modules."""

from __future__ import annotations

from profiler.report.model import Figure, Part, ReportInput, SectionKind
from profiler.text import said, sentence

__all__ = ["SECTION"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """How the run, the new side, compares with its baseline; nothing without one."""
    if of.against is None:
        return ()
    # Some thirty modules, most of which only comparisons need.
    from profiler.report.compared_parts import (
        metric_parts,
        operation_parts,
        rule,
        runs_part,
        times_table,
        tree_part,
    )
    from profiler.report.sentences.changes import headline
    from profiler.report.sentences.worded import worded

    comparison = of.against
    notes = (sentence(worded(note)) for note in comparison.notes)
    selected = bool(of.analysis.run.selection)
    return (
        Part(
            lead=said("{headline}.", headline=headline(comparison)),
            figure=Figure("comparison", "comparison", (comparison,)),
            table=times_table(comparison),
            notes=(rule(), *_of_whole_runs(selected), *notes),
            always=True,
        ),
        tree_part(comparison, of.rows(15)),
        *metric_parts(comparison, of.rows(10)),
        *operation_parts(comparison, of.rows(10)),
        runs_part(comparison),
    )


def _of_whole_runs(selected: bool) -> tuple[str, ...]:
    return (said("Whole runs are compared, whatever is selected."),) if selected else ()


SECTION = SectionKind("comparison", 35, said("Against the baseline"), _parts)

"""The report of two sides for a page: the sections below its first screen, which hold tables."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.report.compared_parts import (
    calls_part,
    metric_parts,
    operation_parts,
    rule,
    runs_part,
    times_table,
    tree_part,
)
from profiler.report.comparing import side_facts, verdicts
from profiler.report.model import TOP, Part, Report, Section, Summary
from profiler.report.sentences.changes import headline, sample_line
from profiler.report.sentences.worded import worded
from profiler.text import said, sentence

__all__ = ["two_runs_report"]


def two_runs_report(comparison: Comparison, gates: Sequence[Gate] = ()) -> Report:
    """How the new runs differ from the base, from the module tree to single calls."""
    facts = side_facts(comparison)
    sample = Part(notes=(sentence(sample_line(comparison)),))
    times = Part(table=times_table(comparison), notes=(rule(),))
    sections = (
        Section(
            "tree",
            said("Module tree"),
            (_untitled(tree_part(comparison, 2 * TOP)),),
        ),
        Section(
            "operations",
            said("Shapes and kernels"),
            (*operation_parts(comparison, TOP), sample),
        ),
        Section(
            "calls",
            said("Calls"),
            (_untitled(calls_part(comparison, TOP)),),
        ),
        Section("times", said("Times"), (times, *metric_parts(comparison, TOP))),
        Section("runs", said("Runs"), (_runs(comparison),)),
    )
    shown = tuple(
        Section(one.key, one.title, parts)
        for one in sections
        if (parts := tuple(part for part in one.parts if part.shows_something))
    )
    return Report(Summary(headline(comparison), facts=facts), shown, verdicts(gates))


def _untitled(part: Part) -> Part:
    """The part below a heading that says the same."""
    return replace(part, title="")


def _runs(comparison: Comparison) -> Part:
    notes = tuple(sentence(worded(note)) for note in comparison.notes)
    return Part(table=runs_part(comparison).table, notes=notes)

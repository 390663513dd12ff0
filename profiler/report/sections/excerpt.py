"""The short reports of a notebook: an analysis by its submodules and findings, a run by its calls.

They are made of the parts of the whole report, so that both say the same.
"""

from __future__ import annotations

from profiler.analysis.result import Analysis
from profiler.analysis.submodules.columns import SUBMODULES
from profiler.analysis.submodules.recorded import recorded_submodules
from profiler.report.model import Part, Report, Section, Summary
from profiler.report.sections.findings import findings_part
from profiler.report.sections.headline import headline
from profiler.report.sections.time import submodules_part
from profiler.report.views import renamed, table
from profiler.run.run import Run
from profiler.text import counted, said

__all__ = ["analysis_excerpt", "run_excerpt"]

_OF_RUN = (
    "submodule",
    "device",
    "calls",
    renamed(SUBMODULES, "duration_ns", label="duration", importance=0),
    "first_ns",
    "median_ns",
)


def analysis_excerpt(analysis: Analysis) -> Report:
    """The headline, submodules and findings of an analysis."""
    total = analysis.accounting.end_to_end_ns
    lines = (headline(analysis, 0),) if total else ()
    parts = [submodules_part(analysis)]
    if analysis.findings:
        parts.append(findings_part(analysis.findings))
    return Report(Summary(analysis.run.run_id, lines), (Section("time", parts=tuple(parts)),))


def run_excerpt(run: Run) -> Report:
    """What ran, and the submodules of a run as recorded."""
    facts = [
        run.info.model,
        run.info.pipeline,
        counted(len(run.calls), "call"),
        counted(len(run.commands), "command"),
    ]
    if run.drops:
        facts.append(f"{_drops(len(run.drops))} (run.drops)")
    rows = recorded_submodules(run.calls)
    made = table("submodules", "submodules", _OF_RUN, SUBMODULES, rows, shown=20)
    part = Part(said("Submodules"), table=made)
    return Report(
        Summary(run.run_id, tuple(fact for fact in facts if fact)),
        (Section("time", parts=(part,)),),
    )


def _drops(number: int) -> str:
    return f"{number} {'drop' if number == 1 else 'drops'}"

"""What stands out: findings with their evidence, worst first."""

from __future__ import annotations

from profiler.analysis.findings.finding import Finding
from profiler.analysis.findings.rules import RULES
from profiler.report.model import Part, ReportInput, SectionKind
from profiler.text import counted, said

__all__ = ["SECTION", "findings_part"]


def _parts(of: ReportInput) -> tuple[Part, ...]:
    """All findings, or that no rule has evidence."""
    return (findings_part(of.analysis.findings),)


def findings_part(found: tuple[Finding, ...]) -> Part:
    """The findings, worst first, and how many there are."""
    lead = said("{findings}.", findings=counted(len(found), "finding"))
    if len(found) > 1:
        lead = said(
            "{findings}, worst first. Their gains may be of the same time and do not add up.",
            findings=counted(len(found), "finding"),
        )
    elif not found:
        lead = said("None: {rules} found no evidence.", rules=counted(len(RULES), "rule"))
    return Part(lead=lead, findings=found, always=True)


SECTION = SectionKind(
    "findings",
    30,
    said("Findings"),
    _parts,
    tables=("findings",),
)

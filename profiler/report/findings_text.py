"""Findings in the terminal: what stands out, by which numbers, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.text import Text

from profiler.analysis.findings.finding import Finding, Severity
from profiler.report.layout import clean, shorten
from profiler.report.lines import of_all
from profiler.report.sentences.findings.words import evidence_pairs, words
from profiler.report.units import counted

__all__ = ["evidence_text", "findings_section"]

_WHOLE = 5  # findings with evidence and remedy; of the others the title
_NUMBERS = 5  # of the evidence
_TEXT = 48  # characters of a text in it
_INDENT = 8
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[nµm]?s|[KMGT]?i?B)\b)")
_STYLES: dict[Severity, str] = {"high": "bold red", "medium": "yellow", "low": "dim"}


def findings_section(findings: Sequence[Finding], rules: int, width: int) -> tuple[str, list[Text]]:
    """Title and parts of the section; `rules` is how many rules looked."""
    if not findings:
        return "Findings", [Text(f"none: {counted(rules, 'rule')} found no evidence", style="dim")]
    whole = min(_WHOLE, len(findings))
    title = f"Findings, {of_all(whole, len(findings))} with evidence, worst first"
    text_width = max(width - _INDENT, 20)
    parts = []
    for number, finding in enumerate(findings):
        lines = [*_title(finding, text_width)]
        if number < whole:
            lines += _reasons(finding, text_width)
        parts.append(Text("\n").join(lines))
    return title, parts


def evidence_text(finding: Finding, numbers: int | None = None) -> str:
    """`"host wait 424 ms, host wait share 36 %"`: the first `numbers` of the evidence, or all."""
    pairs = list(evidence_pairs(finding))[:numbers]
    return ", ".join(f"{name} {shorten(text, _TEXT)}" for name, text in pairs)


def _title(finding: Finding, width: int) -> Iterator[Text]:
    """Severity and title."""
    for number, part in enumerate(_wrapped(words(finding).title, width)):
        label = Text(f"{'' if number else finding.severity:<{_INDENT}}", _STYLES[finding.severity])
        yield label.append(part, style="not dim not bold default")


def _reasons(finding: Finding, width: int) -> Iterator[Text]:
    """Evidence and remedy."""
    for part in _wrapped(evidence_text(finding, _NUMBERS), width):
        yield Text(" " * _INDENT + part, style="dim")
    for part in _wrapped(f"→ {words(finding).remedy}", width):
        yield Text(" " * _INDENT + part)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """Lines that part no number from its unit."""
    for part in wrap(_BEFORE_UNIT.sub(_NO_BREAK, clean(text)), width):
        yield part.replace(_NO_BREAK, " ")

"""Findings in the terminal: what stands out, by which numbers, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from profiler.analysis.findings.finding import Finding, Severity
from profiler.report.sentences.findings.words import evidence_pairs, gained, words
from profiler.report.terminal.layout import shorten, wrapped
from profiler.text import Noun

__all__ = ["STYLES", "evidence_text", "finding_texts"]

_WHOLE = 5  # findings with evidence and recommendation; of the others the title
_NUMBERS = 5  # of the evidence
_TEXT = 48  # characters of a text in it
_INDENT = 8
STYLES: dict[Severity, str] = {"high": "bold red", "medium": "yellow", "low": "dim"}
"""Of what stands before a finding's title."""


def finding_texts(
    findings: Sequence[Finding], width: int, noun: Noun = Noun.COMMANDS
) -> Iterator[Text]:
    """The findings; those after the first few with their title only. `noun` is what commands are
    called."""
    text_width = max(width - _INDENT, 20)
    for number, finding in enumerate(findings):
        lines = [*_title(finding, text_width)]
        if number < _WHOLE:
            lines += _reasons(finding, text_width, noun)
        yield Text("\n").join(lines)


def evidence_text(finding: Finding, numbers: int | None = None, noun: Noun = Noun.COMMANDS) -> str:
    """`"host wait 424 ms, host wait share 36 %"`: the first `numbers` of the evidence, or all."""
    pairs = [pair for pair in evidence_pairs(finding, noun) if not pair[0].startswith("gain")]
    pairs = pairs[:numbers]
    return ", ".join(f"{name} {shorten(text, _TEXT)}" for name, text in pairs)


def _title(finding: Finding, width: int) -> Iterator[Text]:
    """Severity and title."""
    for number, part in enumerate(wrapped(words(finding).title, width)):
        label = Text(f"{'' if number else finding.severity:<{_INDENT}}", STYLES[finding.severity])
        yield label.append(part, style="not dim not bold default")


def _reasons(finding: Finding, width: int, noun: Noun) -> Iterator[Text]:
    """Evidence, what a replay says of it, and recommendation."""
    for part in wrapped(evidence_text(finding, _NUMBERS, noun), width):
        yield Text(" " * _INDENT + part, style="dim")
    gain = gained(finding)
    for part in wrapped(gain, width) if gain is not None else ():
        yield Text(" " * _INDENT + part)
    for part in wrapped(f"→ {words(finding).recommendation}", width):
        yield Text(" " * _INDENT + part)

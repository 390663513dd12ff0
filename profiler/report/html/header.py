"""What stands above the sections of the page, by its place in `templates/report.html`. All of it is
HTML, and every text in it is escaped."""

from __future__ import annotations

from profiler.report.html.markup import of_whole
from profiler.report.language import spoken
from profiler.report.model import Summary

__all__ = ["header_html"]

_ROW = 7  # key figures that stand side by side


def header_html(summary: Summary) -> dict[str, str]:
    """Subject, notices, key figures and the accounting."""
    names = (f"<bdi>{spoken(part)}</bdi>" for part in summary.subject)
    return {
        "subject": " · ".join(names),
        "selection": _paragraph("notice", summary.selection),
        "drops": _missing(summary.missing),
        "against": _against(summary.against),
        "facts": _facts(summary) + _paragraph("accounting", summary.accounting),
    }


def _paragraph(style: str, text: str) -> str:
    return f'<p class="{style}">{spoken(text)}</p>' if text else ""


def _missing(lines: tuple[str, ...]) -> str:
    """What was executed but is not in the trace, below a line that says so; "" where that is
    nothing."""
    if not lines:
        return ""
    opening, *rest = lines
    items = "".join(f"<li>{spoken(line)}</li>" for line in rest)
    return (
        f'<div class="notice drops" role="alert"><strong>{spoken(opening)}</strong>'
        f"<ul>{items}</ul></div>"
    )


def _against(text: str) -> str:
    """How the run compares with its baseline, which leads to the section."""
    return f'<p class="against"><a href="#comparison">{spoken(text)}</a></p>' if text else ""


def _facts(summary: Summary) -> str:
    """The key figures in one row, or in two of the same length."""
    facts = summary.facts
    columns = len(facts) if len(facts) <= _ROW else -(-len(facts) // 2)
    cards = "".join(
        f"<div{' class=alert' if fact.alert else ''}><dt>{spoken(fact.label)}</dt>"
        f'<dd class="value">{spoken(fact.value)}</dd>'
        f'<dd class="note">{spoken(fact.note)}</dd></div>'
        for fact in facts
    )
    return f'<dl class="facts" style="--columns:{columns}">{cards}</dl>{of_whole()}'

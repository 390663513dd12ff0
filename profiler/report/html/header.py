"""What stands above the sections of the page, by its place in `templates/report.html`. All of it is
HTML, and every text in it is escaped."""

from __future__ import annotations

from profiler.report.html.first_screen import answers_html, findings_html, shapes_html
from profiler.report.html.markup import of_whole
from profiler.report.language import spoken
from profiler.report.model import Fact, Opening, Report, Summary
from profiler.text import Said, said

__all__ = ["header_html"]

_ROW = 7  # key figures that stand side by side


def header_html(report: Report) -> dict[str, str]:
    """Subject, notices, the bookkeeping in a line that opens to drops, key figures and the
    accounting, and what a reader with thirty seconds needs."""
    summary, opening = report.summary, report.opening or Opening(report.summary.headline)
    names = (f"<bdi>{spoken(part)}</bdi>" for part in summary.subject)
    findings = [part.findings for section in report.sections for part in section.parts]
    return {
        "subject": " · ".join(names),
        "selection": _paragraph("notice", summary.selection),
        "against": _against(summary.against),
        "answers": answers_html(opening.facts),
        "bookkeeping": _bookkeeping(summary, opening.checks),
        "gains": findings_html(opening, next(filter(None, findings), ())),
        "costliest": shapes_html(opening.shapes),
    }


def _paragraph(style: str, text: str) -> str:
    return f'<p class="{style}">{spoken(text)}</p>' if text else ""


def _bookkeeping(summary: Summary, checks: tuple[Fact, ...]) -> str:
    """One line on how far the report can be trusted; what is wrong stands out in it, and first."""
    wrong = any(fact.alert for fact in checks)
    items = "".join(map(_item, sorted(checks, key=lambda fact: not fact.alert)))
    body = _missing(summary.missing) + _facts(summary.facts)
    body += _paragraph("accounting", summary.accounting)
    style = "bookkeeping wrong" if wrong else "bookkeeping"
    return (
        f'<details class="{style}"><summary><span class="items">{items}</span> '
        f'<span class="more">{spoken(_MORE)}</span></summary>{body}</details>'
    )


_MORE: Said = said("Key figures")


def _item(fact: Fact) -> str:
    """A fact with its note where it is bad news."""
    text = f"{spoken(fact.label)} <b>{spoken(fact.value)}</b>"
    if not fact.alert:
        return f"<span>{text}</span>"
    return (
        f'<strong role="alert"><span aria-hidden="true">⚠ </span>{text} '
        f"<span>{spoken(fact.note)}</span></strong>"
    )


def _missing(lines: tuple[str, ...]) -> str:
    """What was executed but is not in the trace, below a line that says so; "" where that is
    nothing."""
    if not lines:
        return ""
    opening, *rest = lines
    items = "".join(f"<li>{spoken(line)}</li>" for line in rest)
    return f'<div class="notice drops"><strong>{spoken(opening)}</strong><ul>{items}</ul></div>'


def _against(text: str) -> str:
    """How the run compares with its baseline, which leads to the section."""
    return f'<p class="against"><a href="#comparison">{spoken(text)}</a></p>' if text else ""


def _facts(facts: tuple[Fact, ...]) -> str:
    """The key figures in one row, or in two of the same length."""
    columns = len(facts) if len(facts) <= _ROW else -(-len(facts) // 2)
    cards = "".join(
        f"<div{' class=alert' if fact.alert else ''}><dt>{spoken(fact.label)}</dt>"
        f'<dd class="value">{spoken(fact.value)}</dd>'
        f'<dd class="note">{spoken(fact.note)}</dd></div>'
        for fact in facts
    )
    return f'<dl class="facts" style="--columns:{columns}">{cards}</dl>{of_whole()}'

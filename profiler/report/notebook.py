"""A run and an analysis as notebooks show them: a short report, in the notebook's own colours.

`_repr_html_` of a run and of an analysis reach `as_html` through a hook that the package root sets
(`table.drawing`): so runs know nothing of reports, and every notebook that asks for it shows it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from profiler.analysis.findings.finding import Finding
from profiler.analysis.result import Analysis
from profiler.plugins import plain_text
from profiler.report.model import Part, Report, TableView
from profiler.report.sections.excerpt import analysis_excerpt, run_excerpt
from profiler.report.sentences.findings.words import words
from profiler.report.terminal.layout import Drawn, shorten
from profiler.report.terminal.tables import drawn
from profiler.run.run import Run
from profiler.text import count

__all__ = ["as_html"]

_ROWS = 12  # of a table; more are counted
_FINDINGS = 5
_IMPORTANCE = 1  # of columns that are shown; higher ones have no room
_NAME = 60  # characters
_CELL, _LINE = 200, 400
_PADDING = "padding:0 0.7em"


def as_html(shown: Run | Analysis) -> str:
    """The summary of a run or of an analysis, a piece of HTML without styles of colour; every
    name in it is escaped."""
    report = run_excerpt(shown) if isinstance(shown, Run) else analysis_excerpt(shown)
    return _page(report)


def _page(report: Report) -> str:
    summary = report.summary
    line = ", ".join(summary.subject)
    parts = (
        piece for section in report.sections for part in section.parts for piece in _part(part)
    )
    return (
        f'<div style="line-height:1.5"><b>{_text(summary.headline)}</b>'
        f"<div>{_text(line, _LINE)}</div>{''.join(parts)}</div>"
    )


def _part(part: Part) -> Iterator[str]:
    if part.table is not None:
        yield _table(part.table)
    if part.findings:
        yield _findings(part.findings)


def _table(view: TableView) -> str:
    """The most important columns of a table, and its first rows."""
    kept = tuple(column for column in view.columns if column.importance <= _IMPORTANCE)
    cells = drawn(replace(view, columns=kept, shown=_ROWS, totals=None), view.printed)
    return _grid(cells) + _more(len(view.printed) - _ROWS)


def _findings(findings: Sequence[Finding]) -> str:
    """Severity and title of the worst."""
    shown = findings[:_FINDINGS]
    severities = tuple(finding.severity for finding in shown)
    titles = tuple(words(finding).title for finding in shown)
    columns = [Drawn("findings", severities, right=False), Drawn("", titles, right=False)]
    return _grid(columns) + _more(len(findings) - len(shown), " in <code>analysis.findings</code>")


def _more(number: int, where: str = "") -> str:
    return f"<div>… and {count(number)} more{where}</div>" if number > 0 else ""


def _grid(columns: Sequence[Drawn]) -> str:
    sides = ["right" if column.right else "left" for column in columns]
    top = _row("th", [_text(column.header) for column in columns], sides)
    rows = zip(*(column.cells for column in columns), strict=True)
    body = (_row("td", [_text(cell, _CELL) for cell in row], sides) for row in islice(rows, _ROWS))
    return f"<table><thead>{top}</thead><tbody>{''.join(body)}</tbody></table>"


def _row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    aligned = (
        f'<{tag} style="text-align:{side};{_PADDING}">{cell}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(aligned)}</tr>"


def _text(value: str, most: int = _NAME) -> str:
    return html.escape(plain_text(shorten(value, most)))

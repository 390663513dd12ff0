"""What stands on the page's first screen beside its canvases: how long it took, what to change, the
costliest shapes. The figures are those of the report's opening, which a terminal prints.

All of it is HTML, and every text in it is escaped; `templates/first_screen.js` draws the canvases.
"""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analysis.findings.finding import Finding
from profiler.messages import Said, said
from profiler.report.html.markup import finding_id
from profiler.report.language import spoken
from profiler.report.model import Advice, Fact, Opening, TableView
from profiler.report.terminal.tables import drawn
from profiler.report.views import worded
from profiler.table.columns import Column

__all__ = ["answers_html", "findings_html", "shapes_html"]


def answers_html(facts: tuple[Fact, ...]) -> str:
    """The facts in a line or two: how long it took, how busy each device was, the steps."""
    items = "".join(
        f"<div><dt>{spoken(fact.label)}</dt><dd><b>{spoken(fact.value)}</b>"
        + (f" <span>{spoken(fact.note)}</span>" if fact.note else "")
        + "</dd></div>"
        for fact in facts
    )
    return f'<dl class="answers">{items}</dl>' if items else ""


def findings_html(opening: Opening, findings: tuple[Finding, ...]) -> str:
    """What to change first, with its gain; each leads to the finding with its evidence."""
    if not opening.advice_title:
        return ""
    numbers = {id(finding): number for number, finding in enumerate(findings)}
    items = "".join(_advice(advice, numbers.get(id(advice.finding))) for advice in opening.advice)
    return (
        f'<div class="gains"><h2>{spoken(opening.advice_title)}</h2>'
        + (f"<ol>{items}</ol>" if items else "")
        + "</div>"
    )


def _advice(advice: Advice, number: int | None) -> str:
    title = spoken(advice.title)
    if number is not None:
        title = f'<a href="#{finding_id(number)}">{title}</a>'
    return (
        f'<li><p>{title} <b class="gain">{spoken(advice.gain)}</b></p>'
        f'<p class="change">{spoken(advice.change)}</p></li>'
    )


def shapes_html(view: TableView | None) -> str:
    """The costliest shapes as a table that needs no script."""
    if view is None:
        return ""
    head, body = zip(*_columns(view), strict=True)
    rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*body, strict=True))
    return (
        f'<div class="costliest"><h2>{spoken(view.name)}</h2><div class="scroll"><table>'
        f"<thead><tr>{''.join(head)}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )


def _columns(view: TableView) -> Iterator[tuple[str, list[str]]]:
    """The heading and the cells of each column, as a terminal writes their values."""
    shown = view.frame.head(view.shown)
    for column, cells in zip(view.columns, drawn(view, view.frame), strict=True):
        style = "number" if cells.right else "layer" if column.kind == "layer" else "text"
        texts: list[str] = [*cells.cells]
        if column.codes is not None:
            words = worded(column, shown[column.name])
            texts = [said(word) if word else cell for word, cell in zip(words, texts, strict=True)]
        heading = _heading(column, cells.header)
        yield heading, [f'<td class="{style}">{spoken(text)}</td>' for text in texts]


def _heading(column: Column, header: str) -> str:
    """The column's label with the unit that its values have."""
    label: Said = said(column.label)
    unit = header.removeprefix(column.label).strip()
    style = "layer" if column.kind == "layer" else "text"
    sign = f' <span class="unit">{spoken(unit)}</span>' if unit else ""
    return f'<th class="{style}" scope="col">{spoken(label)}{sign}</th>'

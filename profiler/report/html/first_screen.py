"""What stands on the page's first screen beside its canvases: how long it took, what to change, the
costliest shapes. The figures are those of the report's opening, which a terminal prints.

All of it is HTML, and every text in it is escaped; `templates/first_screen.js` draws the canvases.
"""

from __future__ import annotations

from typing import Any

from profiler.analysis.findings.finding import Finding
from profiler.report.html.markup import finding_id, of_whole
from profiler.report.html.table_json import table_json
from profiler.report.language import spoken
from profiler.report.model import Advice, Fact, Opening, TableView
from profiler.text import said

__all__ = ["answers_html", "findings_html", "shapes_html", "shapes_json"]


def answers_html(facts: tuple[Fact, ...]) -> str:
    """The facts in a line or two: how long it took, how busy each device was, the steps."""
    items = "".join(
        f"<div><dt>{spoken(fact.label)}</dt><dd><b>{spoken(fact.value)}</b>"
        + (f"<span>, {spoken(fact.note)}</span>" if fact.note else "")
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
        + f"{of_whole()}</div>"
    )


def _advice(advice: Advice, number: int | None) -> str:
    title = spoken(advice.title)
    if number is not None:
        title = f'<a href="#{finding_id(number)}">{title}</a>'
    return (
        f'<li><p>{title} <b class="gain">{spoken(said("gain {gain}", gain=advice.gain))}</b></p>'
        f'<p class="change">{spoken(advice.change)}</p></li>'
    )


def shapes_html(view: TableView | None) -> str:
    """The place of the costliest shapes; `shapes_json` fills it."""
    if view is None:
        return ""
    name = spoken(view.name)
    return f'<div class="costliest"><h2>{name}</h2><div id="first-shapes"></div>{of_whole()}</div>'


def shapes_json(opening: Opening | None) -> dict[str, Any] | None:
    """The costliest shapes as the scripts take them."""
    view = opening.shapes if opening else None
    return None if view is None else table_json(view) | {"name": said("costliest shapes")}

"""All sections of the page, in their order: findings and comparison first, then from the whole to
its parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.result import Analysis
from profiler.messages import said
from profiler.report.charts.style import Chart
from profiler.report.sections.comparison import comparison_section
from profiler.report.model import Part, Section
from profiler.report.sections.guidance import guidance_section
from profiler.report.html.findings import finding_section
from profiler.report.html.markup import contents, sections_html
from profiler.report.sections.memory import memory_section
from profiler.report.sections.operators import operator_section
from profiler.report.sections.roles import role_section
from profiler.report.sections.roofline import roofline_section
from profiler.report.sections.time import call_section, step_section, time_section
from profiler.report.sections.idle import waiting_section
from profiler.report.charts.palette import Theme

__all__ = ["Page", "page_of", "page_tables"]

_THEMES: tuple[Theme, Theme] = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Page:
    """The page below its header: HTML of the list of contents, of what stands above the timeline
    (`first`: findings, comparison) and of the other `sections`; as JSON the `tables` by key and the
    `figures` by theme and key."""

    contents: str
    first: str
    sections: str
    tables: dict[str, Any]
    figures: dict[str, dict[str, Chart]]


def page_of(analysis: Analysis, begin_ns: int, against: Comparison | None = None) -> Page:
    """Everything that the page shows of `analysis`, and how it compares; starts become relative to
    `begin_ns`."""
    found = [finding_section(analysis)]
    if against is not None:
        found.append(comparison_section(against, selected=bool(analysis.run.selection)))
    after = _sections(analysis, begin_ns)
    figures: dict[str, dict[str, Chart]] = {
        theme: {
            figure.key: figure.draw(analysis, theme)
            for section in (*found, *after)
            for figure in section.figures()
        }
        for theme in _THEMES
    }
    drawn = {key for key, chart in figures["light"].items() if _draws_something(chart)}
    shown, first = _shown(after, drawn), _shown(found, drawn)
    heights = {key: figures["light"][key]["layout"]["height"] for key in drawn}
    names = [(section.key, section.contents) for section in (*first, *shown)]
    names[len(first) : len(first)] = [("timeline", said("Timeline"))]
    return Page(
        contents=contents([*names, ("ran", said("Provenance"))]),
        first=sections_html(first, heights),
        sections=sections_html(shown, heights),
        tables=_tables([*first, *shown]),
        figures={
            theme: {key: of_theme[key] for key in of_theme if key in drawn}
            for theme, of_theme in figures.items()
        },
    )


def page_tables(analysis: Analysis, begin_ns: int) -> dict[str, Any]:
    """Every table of the page as JSON; starts become relative to `begin_ns`."""
    return _tables(_sections(analysis, begin_ns))


def _sections(analysis: Analysis, begin_ns: int) -> list[Section]:
    return [
        time_section(analysis, begin_ns),
        step_section(analysis),
        operator_section(analysis),
        role_section(analysis),
        memory_section(analysis, begin_ns),
        roofline_section(analysis),
        waiting_section(analysis),
        guidance_section(analysis),
        call_section(analysis, begin_ns),
    ]


def _draws_something(chart: Chart) -> bool:
    return any(len(trace["x"]) for trace in chart["data"])


def _shown(sections: Iterable[Section], drawn: set[str]) -> list[Section]:
    """Sections with the parts that have something to show."""
    kept = []
    for section in sections:
        parts = [_with_drawn(part, drawn) for part in section.parts]
        parts = [p for p in parts if p.always or p.figure or p.table or p.findings]
        if parts:
            kept.append(replace(section, parts=tuple(parts)))
    return kept


def _with_drawn(part: Part, drawn: set[str]) -> Part:
    if part.figure is None or part.figure.key in drawn:
        return part
    return replace(part, figure=None)


def _tables(sections: Iterable[Section]) -> dict[str, Any]:
    return {table.key: dict(table.document) for section in sections for table in section.tables()}

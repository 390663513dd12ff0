"""The report as the page takes it: HTML of its sections, and as JSON its tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.report.charts.style import draw
from profiler.report.html.assets import THEMES
from profiler.report.html.figure_rooms import room_of
from profiler.report.html.markup import contents, sections_html
from profiler.report.html.table_json import table_json
from profiler.report.model import Part, Report, Section
from profiler.text import said

__all__ = ["Body", "body_of"]


class Body(Struct, frozen=True):
    """The page below its header: HTML of the list of contents and of the `sections`; as JSON the
    `tables` by key and the `figures` by theme and key."""

    contents: str
    sections: str
    tables: dict[str, Any]
    figures: dict[str, dict[str, dict[str, Any]]]


def body_of(report: Report) -> Body:
    """The sections of `report`, without figures that draw nothing and what they leave empty."""
    figures: dict[str, dict[str, dict[str, Any]]] = {
        theme: {
            part.figure.key: draw(part.figure, theme)
            for section in report.sections
            for part in section.parts
            if part.figure is not None
        }
        for theme in THEMES
    }
    drawn = {key for key, chart in figures["light"].items() if _draws_something(chart)}
    sections = list(_with_drawn(report.sections, drawn))
    rooms = {key: room_of(figures["light"][key]) for key in drawn}
    names = [(section.key, section.title) for section in sections]
    return Body(
        contents=contents([("timeline", said("Timeline")), *names]),
        sections=sections_html(sections, rooms),
        tables={
            part.table.key: table_json(part.table)
            for section in sections
            for part in section.parts
            if part.table is not None
        },
        figures={
            theme: {key: of_theme[key] for key in of_theme if key in drawn}
            for theme, of_theme in figures.items()
        },
    )


def _draws_something(chart: dict[str, Any]) -> bool:
    return any(len(trace["x"]) for trace in chart["data"])


def _with_drawn(sections: Iterable[Section], drawn: set[str]) -> Iterable[Section]:
    for section in sections:
        parts = [_without_empty(part, drawn) for part in section.parts]
        kept = tuple(part for part in parts if part.shows_something)
        if kept:
            yield replace(section, parts=kept)


def _without_empty(part: Part, drawn: set[str]) -> Part:
    if part.figure is None or part.figure.key in drawn:
        return part
    return replace(part, figure=None)

"""Sections as HTML: headings, sentences, and places that scripts fill with figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from profiler.report.html.figure_rooms import Room
from profiler.report.html.findings import finding_html
from profiler.report.language import spoken
from profiler.report.model import Group, Part, Section, TableView
from profiler.text import count, said

__all__ = ["contents", "finding_id", "of_whole", "sections_html"]


def contents(names: Iterable[tuple[str, str]]) -> str:
    """Links to the sections with these keys and names."""
    return "".join(f'<a href="#{key}">{spoken(name)}</a>' for key, name in names)


def sections_html(sections: Sequence[Section], rooms: Mapping[str, Room]) -> str:
    """The sections one after another; figures get their `rooms` (by key) at once, so that nothing
    moves when they are drawn."""
    return "\n".join(_section(section, rooms) for section in sections)


def _section(section: Section, rooms: Mapping[str, Room]) -> str:
    key = section.key
    body = "".join(_rows(section.parts, rooms))
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{spoken(section.title)}</h2>{body}</section>'
    )


def _rows(parts: Sequence[Part], rooms: Mapping[str, Room]) -> Iterator[str]:
    """Parts below each other, those that stand beside another in one row with it."""
    starts = [i for i, part in enumerate(parts) if not part.beside or i == 0]
    row_of = {i: max(start for start in starts if start <= i) for i in range(len(parts))}
    for _, numbers in groupby(range(len(parts)), key=row_of.__getitem__):
        row = [_part(parts[i], rooms) for i in numbers]
        yield f'<div class="pair">{"".join(row)}</div>' if len(row) > 1 else row[0]


def _part(part: Part, rooms: Mapping[str, Room]) -> str:
    heading = f"<h3>{spoken(part.title)}</h3>" if part.title else ""
    pieces = [
        f'<p class="lead">{spoken(part.lead)}</p>{of_whole()}' if part.lead else "",
        "".join(
            finding_html(finding, part.noun, finding_id(number))
            for number, finding in enumerate(part.findings)
        ),
        _figure(part, rooms),
        _table(part.table),
        _groups(part.groups),
        *(f'<p class="help">{spoken(note)}</p>' for note in part.notes),
    ]
    body = "".join(pieces)
    anchor = f' id="{part.anchor}"' if part.anchor else ""
    if part.folded:
        return f'<details class="part"{anchor}><summary>{heading}</summary>{body}</details>'
    return f'<div class="part"{anchor}>{heading}{body}</div>'


def finding_id(number: int) -> str:
    """What a link to the finding names."""
    return f"finding-{number + 1}"


def of_whole() -> str:
    """What stands below sentences and values that do not follow what a reader selects; it is seen
    while something is selected."""
    return f'<p class="scope of-whole">{spoken(said("Of the whole run."))}</p>'


def _figure(part: Part, rooms: Mapping[str, Room]) -> str:
    if part.figure is None:
        return ""
    key = part.figure.key
    place = f'<div class="figure" data-figure="{key}" {rooms[key].attributes}></div>'
    return f'{place}<p class="saves-figure"></p>'  # the page's button to save it comes into that


def _table(view: TableView | None) -> str:
    """The place of a table, and of how many rows the page holds only the first."""
    if view is None:
        return ""
    place = f'<div data-table="{view.key}"></div>'
    held, total = len(view.rows), len(view.frame)
    if held == total:
        return place
    note = said(
        "This page holds the first {held} of {total} rows.", held=count(held), total=count(total)
    )
    return f'{place}<p class="help">{spoken(note)}</p>'


def _groups(groups: Sequence[Group]) -> str:
    """Pairs of name and value, a list a title."""
    lists = "".join(
        f"<div><h3>{spoken(group.title)}</h3><dl>{_definitions(group)}</dl></div>"
        for group in groups
    )
    return f'<div class="groups">{lists}</div>{of_whole()}' if lists else ""


def _definitions(group: Group) -> str:
    return "".join(
        f"<div><dt>{spoken(name)}</dt><dd>{spoken(value)}</dd></div>" for name, value in group.rows
    )

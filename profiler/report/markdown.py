"""A report as Markdown with tables, for a pull request.

    markdown(comparison_report(comparison, gates))

Figures have no place in it. Cells are written as a terminal writes them, and every text is escaped:
names of a model or a trace become no markup, no link, no mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import polars as pl
from msgspec.structs import replace

from profiler.report.model import Part, Report, Summary, TableView
from profiler.report.sentences.findings.words import words
from profiler.report.terminal.findings import evidence_text
from profiler.report.terminal.layout import clean
from profiler.report.terminal.tables import drawn
from profiler.text import count

__all__ = ["escaped", "markdown"]

_NO_BREAK = "\N{NO-BREAK SPACE}"
_SPECIAL = re.compile(r"([\\`*_|<>\[\]&~$#])")
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # GitHub makes links of these
_LINE_BEGIN = re.compile(r"^(\s*[0-9]*)([-+.)=])(?=\s|=|$)")  # of a list, a heading
_NOBODY = "@<!-- -->"  # GitHub would tell whoever is called so


def markdown(report: Report) -> str:
    """The report; ends with a newline."""
    lines = [f"**{escaped(report.summary.headline)}**", ""]
    lines += [_item(f"{each.label}: {each.value}") for each in report.verdicts]
    lines += map(_item, _below_headline(report.summary))
    for section in report.sections:
        if section.title:
            lines += ["", f"## {escaped(section.title)}"]
        for part in section.parts:
            lines += _part(part)
    return "\n".join(lines).replace(_NO_BREAK, " ") + "\n"


def escaped(text: str) -> str:
    """Text for a cell or a line of Markdown: no markup, link or mention of anybody's."""
    plain = _LINKED.sub(r"\\", _SPECIAL.sub(r"\\\1", clean(text)))
    return _LINE_BEGIN.sub(r"\1\\\2", plain).replace("@", _NOBODY)


def _item(text: str) -> str:
    return f"- {escaped(text)}"


def _below_headline(summary: Summary) -> Iterator[str]:
    yield from summary.subject
    yield from filter(None, (summary.selection, *summary.missing, summary.against))
    for fact in summary.facts:
        yield f"{fact.label}: {fact.value}" + (f", {fact.note}" if fact.note else "")
    yield from filter(None, (summary.accounting,))


def _part(part: Part) -> Iterator[str]:
    if part.title:
        yield from ("", f"### {escaped(part.title)}")
    if part.lead:
        yield from ("", escaped(part.lead))
    items = [
        *(f"{each.severity}: {words(each).title}; {evidence_text(each)}" for each in part.findings),
        *(f"{group.title}: {_pairs(group.rows)}" for group in part.groups),
    ]
    if items:
        yield from ("", *map(_item, items))
    if part.table is not None:
        yield from _table(part.table)
    if part.notes:
        yield from ("", *map(_item, part.notes))


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return "; ".join(" ".join(filter(None, pair)) for pair in rows)


def _table(view: TableView) -> Iterator[str]:
    """The first rows, those of each variant by itself, and how many there are of them."""
    for label, frame in ((view.label, view.printed), *view.variants):
        if view.variants:
            yield from ("", escaped(f"One row per {label}:"))
        yield from ("", *_rows(view, frame))
        if len(frame) > view.shown:
            yield from ("", f"{count(view.shown)} of {count(len(frame))} rows")


def _rows(view: TableView, frame: pl.DataFrame) -> Iterator[str]:
    below = () if view.below is None else (view.below,)
    columns = drawn(replace(view, columns=(*view.columns, *below)), frame)
    yield _row(column.header for column in columns)
    yield "|" + "|".join("---:" if column.right else "---" for column in columns) + "|"
    yield from map(_row, zip(*(column.cells for column in columns), strict=True))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"

"""What a section of the HTML page consists of: headings, sentences, figures and tables.

A part without anything to show is left out when the page is written, and so is a section without
parts. Every text is plain here; `page.markup` escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import polars as pl

from profiler.analysis.findings.finding import Finding
from profiler.analysis.notes import NoteCode
from profiler.analysis.result import Analysis
from profiler.messages import said
from profiler.report.chart_style import Chart
from profiler.report.palette import Theme
from profiler.report.sentences.worded import labels, worded_cell
from profiler.table.columns import Column

__all__ = ["Figure", "Part", "Section", "Shown", "Table", "described", "table"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A column as the page shows it: `kind` says how `templates/tables.js` writes its values
    (`text`, `word` of the column's codes, `list` of names, `layer`, `ns`,
    `instant` of the run, `count`, `number`, `bytes`, `ratio`, `share` with a bar, `factor`,
    `calibration` with 1 as within noise, `change` with its sign, `flag`, `step`).
    `minor` ones stay away from paper, and go first where a table has no room. `meaning` is that of
    a column that no table declares, `none` what stands for null in a column of words."""

    name: str
    label: str
    kind: str
    minor: bool = False
    meaning: str = ""
    none: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table under its `key`; `document` is what `templates/tables.js` takes."""

    key: str
    document: Mapping[str, Any]

    @property
    def rows(self) -> int:
        values = self.document["values"]
        return max((len(column) for column in values.values()), default=0)


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart under its `key`, drawn for each theme."""

    key: str
    draw: Callable[[Analysis, Theme], Chart]


@dataclass(frozen=True, slots=True)
class Part:
    """Below `title` a sentence, a figure, a table and small print; `beside` stands next to the
    part before, where there is room."""

    title: str = ""
    lead: str = ""
    figure: Figure | None = None
    table: Table | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    beside: bool = False
    folded: bool = False  # only its title is seen until a click
    always: bool = False  # worth its sentence alone


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading; `contents` is its name in the list of contents."""

    key: str
    title: str
    contents: str
    parts: Sequence[Part] = field(default_factory=tuple)

    def figures(self) -> Iterator[Figure]:
        return (part.figure for part in self.parts if part.figure is not None)

    def tables(self) -> Iterator[Table]:
        return (part.table for part in self.parts if part.table is not None)


_MAY_BE_ALL_ZERO = frozenset(
    {
        *("dma_ns", "copy_ns", "sync_ns", "other_ns", "host_ns", "data_ns", "other_device_ns"),
        *("queued_ns", "transfer_ns", "overlapped_ns", "unknown_ns", "modulation_ns"),
        *("long_gaps", "long_gap_ns", "warmup_steps", "warmup_ns"),
        "modulation_share",
    }
)


# Columns by which the page's choice filters rows, shown or not (`templates/choice.js`).
_DIMENSIONS = {
    "stage": "stage",
    "submodule": "submodule",
    "branch": "branch",
    "step": "step",
    "device": "device",
    "role": "role",
    "layer": "operator",
    "call": "call",
}


def table(
    key: str,
    name: str,
    shown_columns: Sequence[Shown],
    declared: Sequence[Column],
    frame: pl.DataFrame,
    *,
    shown: int = 10,
    search: bool = False,
    sort: str = "",
) -> Table | None:
    """The columns of `frame` that say something, `shown` rows at first; None without rows."""
    if frame.is_empty():
        return None
    first = shown_columns[0]
    kept = [c for c in shown_columns if c is first or _says_something(frame[c.name])]
    names = {column.name for column in kept}
    keys = {
        dimension: _plain(frame[name])
        for name, dimension in _DIMENSIONS.items()
        if name in frame.columns and name not in names
    }
    codes = {column.name: column.codes for column in declared if column.codes is not None}
    said_values = {
        column.name: _said(frame[column.name], column, codes[column.name])
        for column in kept
        if column.kind == "word"
    }
    document = {
        "name": said(name),
        "columns": described(kept, declared),
        "values": {column.name: _plain(frame[column.name]) for column in kept} | said_values,
        "shown": shown,
        "search": search,
        "keys": keys,
    }
    words = sorted({text for column in said_values.values() for text in column if text})
    known = {"words": words} if words else {}
    return Table(key, document | known | ({"sort": sort} if sort else {}))


def _said(values: pl.Series, column: Shown, codes: type[StrEnum]) -> list[str]:
    """What is said for codes, or for notes: the page gets their languages with these texts."""
    if issubclass(codes, NoteCode):
        return [worded_cell(text, codes) for text in values]
    return labels(values, codes, column.none)


def _says_something(column: pl.Series) -> bool:
    """Whether a column holds any value, and one that is often 0 any other."""
    known = column.drop_nulls()
    if known.dtype == pl.String:
        known = known.filter(known != "")
    if known.is_empty():
        return False
    return column.name not in _MAY_BE_ALL_ZERO or bool((known != 0).any())


def _plain(column: pl.Series) -> list[Any]:
    """Values as JSON has them: what is no number is null; reals with five digits."""
    if not column.dtype.is_float():
        return column.to_list()
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
        for value in column
    ]


def described(shown: Sequence[Shown], declared: Sequence[Column]) -> list[dict[str, Any]]:
    """The columns with their meanings, as `templates/tables.js` takes them."""
    meanings = {column.name: column.meaning for column in declared}
    return [
        {
            "name": column.name,
            "label": said(column.label),
            "kind": column.kind,
            "meaning": said(column.meaning or meanings[column.name]),
            "minor": column.minor,
        }
        for column in shown
    ]

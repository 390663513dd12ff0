"""A comparison for who has half a minute: from one end-to-end time to the other, and where.

    print_brief(Console(highlight=False), brief_report(comparison, gates, rows))

Where the time went stands in lines that add up to the difference of the whole. Why it went there is
told by the modules that differ most, and by the shapes that do, with rates and kernels of both
sides; by nodes or kernels where the sides know no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from profiler.analysis.comparison.codes import ComparisonNote, Level, Side
from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.report.changed_rows import largest, only_in, with_blocks_together
from profiler.report.changed_tables import lines_view, operations_view, waterfall_view
from profiler.report.comparing import side_facts, verdicts
from profiler.report.model import Part, Report, Section, Summary
from profiler.report.sentences.changes import (
    change_text,
    headline,
    notes_beside,
    row_name,
    sample_text,
)
from profiler.report.sentences.worded import label, worded
from profiler.text import counted, duration, said

__all__ = ["ROOMS", "Room", "brief_report"]

_FIRST = (  # what decides how the rest is read
    ComparisonNote.SAME_RUN,
    ComparisonNote.COMPARED_BY,
    ComparisonNote.COMPARED_BY_FINEST,
    ComparisonNote.TOGETHER,
    ComparisonNote.PAIRED,
    ComparisonNote.OTHER_TRAIT,
    ComparisonNote.TRACED_ON_ONE_SIDE,
    ComparisonNote.ASYNCHRONOUS,
)
_MORE = said("--full prints everything, --section NAME some of it, --list-sections the names")


@dataclass(frozen=True, slots=True)
class Room:
    """How many lines there are for what: notes, lines of the waterfall, modules, and shapes,
    kernels or nodes."""

    notes: int = 4
    lines: int = 10
    modules: int = 5
    operations: int = 4


ROOMS = (
    Room(),
    Room(notes=3, lines=9, modules=4),
    Room(notes=3, lines=8, modules=3, operations=3),
    Room(notes=2, lines=7, modules=2, operations=2),
    Room(notes=1, lines=5, modules=1, operations=1),
    Room(notes=1, lines=3, modules=0, operations=0),
)
"""From the largest; a terminal takes the first whose lines fit."""


def brief_report(
    comparison: Comparison, gates: Sequence[Gate] = (), room: Room = ROOMS[0], *, hints: bool = True
) -> Report:
    """What matters most of a comparison, as far as there is room; with `hints` at options of `diff`
    that print the rest, for who can give them."""
    facts = side_facts(comparison)
    more = (_MORE,) if hints else ()
    several = comparison.metrics.filter(pl.col("level") == "submodule")["submodule"].n_unique() > 1
    parts = (
        Part(notes=(*_notes(comparison, room.notes, hints=hints),), always=True),
        _waterfall(comparison, room.lines),
        _modules(comparison, room.modules, several=several),
        _operations(comparison, room.operations),
        Part(notes=(*_alone(comparison), *more), always=True),
    )
    shown = tuple(part for part in parts if part.shows_something and (part.notes or part.table))
    return Report(
        Summary(headline(comparison), facts=facts),
        (Section("brief", parts=shown),),
        verdicts(gates),
    )


def _notes(comparison: Comparison, shown: int, *, hints: bool) -> Iterator[str]:
    first = [note for code in _FIRST for note in comparison.notes if note.code is code]
    yield from map(worded, first[:shown])
    left = len(notes_beside(comparison)) - len(first[:shown])
    if left:
        yield said("{n} more notes: --full", n=left) if hints else said("{n} more notes", n=left)


def _waterfall(comparison: Comparison, shown: int) -> Part:
    title = said("Where the difference is: means, in lines that add up")
    return Part(title, table=waterfall_view(comparison.waterfall, shown))


def _modules(comparison: Comparison, shown: int, *, several: bool) -> Part:
    """The modules that differ most, equal blocks together; roles where there are none."""
    metrics = comparison.metrics.drop_nulls(["base_ns", "new_ns"])
    modules = with_blocks_together(metrics)
    if modules.is_empty() or not shown or comparison.level is not Level.MODULE:
        return Part()
    rows = largest(modules).head(shown)
    found = [
        (
            row_name(row if several else {**row, "submodule": None}),
            duration(row["base_ns"]),
            duration(row["new_ns"]),
            "" if row["change"] is None else change_text(row["change"]),
        )
        for row in rows.iter_rows(named=True)
    ]
    title = said("Modules that differ most: medians {sample}", sample=sample_text(comparison))
    return Part(title, table=lines_view("brief_modules", found))


def _operations(comparison: Comparison, shown: int) -> Part:
    """Nodes, shapes or kernels, whichever the sides know first, with what tells why."""
    sample = sample_text(comparison)
    for title, frame in (
        (said("ONNX nodes that differ most: means {sample}", sample=sample), comparison.nodes),
        (
            said("Shapes that differ most, with kernels: means {sample}", sample=sample),
            comparison.shapes,
        ),
        (said("Kernels that differ most: means {sample}", sample=sample), comparison.kernels),
    ):
        both = frame.drop_nulls("difference_ns")
        if len(both):
            return Part(title, table=operations_view("brief_operations", both, shown))
    return Part()


def _alone(comparison: Comparison) -> Iterator[str]:
    """What only one side has, in a line each."""
    for side in Side:
        rows = only_in(comparison.metrics, side)
        nodes = comparison.nodes.filter(pl.col(f"{side.other}_ns").is_null())
        if len(nodes):
            rows = nodes.select(what=pl.col(f"{side}_layers"), ns=pl.col(f"{side}_ns")).sort(
                "ns", descending=True, maintain_order=True
            )
        if not rows["ns"].sum():
            continue
        first, others = rows["what"][0], len(rows) - 1
        more = said(" and {others}", others=counted(others, "other")) if others else ""
        yield said(
            "{only}: {name}{more}, {time}",
            only=label(side.alone),
            name=first,
            more=more,
            time=duration(int(rows["ns"].sum())),
        )

"""Three or more runs in the terminal and as Markdown: a column each, differences to the first.

    print_columns(Console(highlight=False), "main", columns, top=15)

A change that exceeds noise has a star.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import polars as pl
from rich.console import Console
from rich.text import Text

from profiler.analysis.comparison.codes import Side
from profiler.analysis.comparison.columns import METRICS
from profiler.analysis.comparison.side_by_side import Compared
from profiler.report.diff_text import (
    CALLED,
    change_text,
    escaped,
    gate_line,
    headline,
    of_whole,
    row_name,
    side_line,
    with_blocks_together,
)
from profiler.report.sentences.worded import worded
from profiler.report.terminal.layout import Drawn, clean, shorten, table, texts
from profiler.report.units import duration, of_all
from profiler.table.columns import schema

__all__ = ["markdown", "print_columns"]

_NO_BREAK = "\N{NO-BREAK SPACE}"
_PLACES = ("metric", "level", "submodule", "branch", "step", "role", "module")
_NAME, _HEADER, _GAP = 30, 12, 2  # letters
_LEGEND = "changes are to {base}; * beyond noise"


def print_columns(
    console: Console, base: str, columns: Sequence[Compared], *, top: int = 15
) -> None:
    """Print the runs side by side, the `top` roles and modules, and the gates."""
    for column in columns:
        line = clean(f"{column.name}: {headline(column.comparison)}")
        for part in wrap(line, console.width, subsequent_indent="  "):
            console.print(Text(part.replace(_NO_BREAK, " "), style="bold"))
    for line in _lines(base, columns):
        for part in wrap(clean(line), console.width, subsequent_indent="  "):
            console.print(Text(part.replace(_NO_BREAK, " "), style="dim"))
    for title, shown, beyond in _sections(base, columns, top):
        console.print()
        console.print(Text(title, style="bold"))
        for some in _fitting(shown, console.width):
            console.print(table(some, console.width, strong=beyond))
    gates = list(_gates(columns))
    if gates:
        console.print()
    for line, failed in gates:
        style = "bold red" if failed else ""
        console.print(Text(clean(line).replace(_NO_BREAK, " "), style=style))


def markdown(base: str, columns: Sequence[Compared], *, top: int = 15) -> str:
    """The same as Markdown with tables, for a pull request; ends with a newline."""
    lines = [
        f"- **{escaped(column.name)}: {escaped(headline(column.comparison))}**"
        for column in columns
    ]
    lines += [f"- {escaped(line)}" for line, _ in _gates(columns)]
    lines += [f"- {escaped(line)}" for line in _lines(base, columns)]
    for title, shown, _ in _sections(base, columns, top):
        rule = (("---:" if column.right else "---") for column in shown)
        lines += ["", f"### {escaped(title)}", "", _row([column.header for column in shown])]
        lines += ["|" + "|".join(rule) + "|"]
        lines += map(_row, zip(*(column.cells for column in shown), strict=True))
    return "\n".join(lines).replace(_NO_BREAK, " ") + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def _gates(columns: Sequence[Compared]) -> Iterator[tuple[str, bool]]:
    for column in columns:
        for gate in column.gates:
            yield f"{column.name}: {gate_line(gate)}", gate.failed


def _lines(base: str, columns: Sequence[Compared]) -> Iterator[str]:
    """What was compared."""
    yield f"{base}: {side_line(columns[0].comparison, Side.BASE)}"
    for column in columns:
        yield f"{column.name}: {side_line(column.comparison, Side.NEW)}"
    notes = [[*map(worded, column.comparison.notes)] for column in columns]
    shared = [note for note in notes[0] if all(note in others for others in notes)]
    yield from shared
    for column, told in zip(columns, notes, strict=True):
        own = (note for note in told if note not in shared)
        yield from (f"{column.name}: {note}" for note in own)
    yield _LEGEND.format(base=base)


def _sections(
    base: str, columns: Sequence[Compared], top: int
) -> Iterator[tuple[str, list[Drawn], list[int]]]:
    """Titles, columns, and the rows with a change beyond noise."""
    metrics = _metrics(columns)
    whole = metrics.filter(of_whole())
    if len(whole):
        yield "Times", *_shown(base, columns, whole, "metric")
    steps = metrics.filter(pl.col("step").is_not_null() & pl.col("beyond"))
    roles = metrics.filter(pl.col("level") == "role")
    for noun, rows in (
        ("Single steps beyond noise", steps),
        ("Roles", roles),
        ("Modules", with_blocks_together(metrics)),
    ):
        largest = rows.sort(("beyond", "apart_ns"), descending=True, maintain_order=True).head(top)
        if len(largest):
            title = f"{noun}, {of_all(len(largest), len(rows))} by difference"
            yield title, *_shown(base, columns, largest, "what")


def _metrics(columns: Sequence[Compared]) -> pl.DataFrame:
    """A row a metric that any comparison has: its places, `base_ns`, whether any change is beyond
    noise, the largest difference, and `cells`, one a column."""
    found: dict[str, dict[str, Any]] = {}
    for number, column in enumerate(columns):
        for row in column.comparison.metrics.iter_rows(named=True):
            nothing = {"base_ns": None, "beyond": False, "apart_ns": 0}
            places = {name: row[name] for name in _PLACES}
            entry = found.setdefault(
                row["metric"], {**places, **nothing, "cells": ["-"] * len(columns)}
            )
            entry["cells"][number] = _cell(row)
            entry["beyond"] |= row["verdict"] in CALLED
            entry["apart_ns"] = max(entry["apart_ns"], abs(row["difference_ns"] or 0))
            if entry["base_ns"] is None:
                entry["base_ns"] = row["base_ns"]
    declared = schema(METRICS)
    dtypes: dict[str, Any] = {name: declared[name] for name in (*_PLACES, "base_ns")}
    dtypes |= {"beyond": pl.Boolean(), "apart_ns": pl.Int64(), "cells": pl.List(pl.String())}
    return pl.DataFrame(list(found.values()), schema=dtypes)


def _cell(row: Mapping[str, Any]) -> str:
    """`"70.1 ms, +3.1 %*"`; the time alone where the first run has none of it."""
    if row["new_ns"] is None:
        return "-"
    time = duration(row["new_ns"])
    if row["change"] is None:
        return time
    star = "*" if row["verdict"] in CALLED else ""
    return f"{time}, {change_text(row['change'])}{star}"


def _shown(
    base: str, columns: Sequence[Compared], rows: pl.DataFrame, name: str
) -> tuple[list[Drawn], list[int]]:
    named = rows["metric"] if name == "metric" else map(row_name, rows.iter_rows(named=True))
    times = ("-" if ns is None else duration(ns) for ns in rows["base_ns"])
    cells = rows["cells"].to_list()
    shown = [
        texts(name, named, shrink=_NAME),
        Drawn(shorten(clean(base), _HEADER), tuple(map(_breaking, times))),
        *(
            Drawn(shorten(clean(column.name), _HEADER), tuple(_breaking(row[at]) for row in cells))
            for at, column in enumerate(columns)
        ),
    ]
    return shown, [at for at, beyond in enumerate(rows["beyond"]) if beyond]


def _fitting(shown: Sequence[Drawn], width: int) -> Iterator[list[Drawn]]:
    """The columns in tables that fit the width, each with the names and the first run's times."""
    first, base, *others = shown
    taken = min(_width(first), _NAME) + _width(base) - _GAP  # none behind the last
    while others:
        some = [others.pop(0)]
        while others and taken + sum(map(_width, (*some, others[0]))) <= width:
            some.append(others.pop(0))
        yield [first, base, *some]


def _width(column: Drawn) -> int:
    return max(map(len, (column.header, *column.cells))) + _GAP


def _breaking(text: str) -> str:
    return text.replace(_NO_BREAK, " ")

"""Tables of a comparison: lines that add up, what two sides did at a shape, a kernel or a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from profiler.analysis.comparison.codes import Step
from profiler.report.changed_operations import rates, why
from profiler.report.model import TableView
from profiler.report.sentences.changes import change_text, difference_text
from profiler.report.sentences.worded import label
from profiler.report.views import table
from profiler.run.columns import STRING, Column
from profiler.text import counted, duration, said

__all__ = [
    "Difference",
    "Line",
    "durations",
    "lines_view",
    "operations_view",
    "waterfall_steps",
    "waterfall_view",
    "what",
]

Line = tuple[str, str, str, str]
"""What, its time on both sides, and the difference or change."""

Difference = tuple[str, int, int, int]
"""What, its time on both sides and the difference, ns."""

_TIMES = ("base_ns", "new_ns", "difference_ns")
_PARTS = (Step.ROLE.value, Step.IDLE.value)
_FIGURES = (
    Column("base", STRING, "", "its time in the baseline", kind="figure"),
    Column("new", STRING, "", "its time in the new runs", kind="figure"),
    Column("change", STRING, "", "how much that differs", kind="figure"),
)
_RATES = Column("rates", STRING, "", "FLOPs / time of both", label="TFLOP/s", kind="figure")
_KERNELS = Column("kernels", STRING, "", "how often it ran where that differs, and its kernels")
_INDENT = "  "


def what(name: str) -> Column:
    """The column that says what a row is of, under that name."""
    return Column(name, STRING, "", "what the times are of", kind="layer")


def lines_view(key: str, lines: Sequence[Line], *, totals: Sequence[Line] = ()) -> TableView | None:
    """These lines as a table; what they add up to below them."""
    names = ("what", "base", "new", "change")
    schema = dict.fromkeys(names, STRING)
    frame, below = (pl.DataFrame(some, schema=schema, orient="row") for some in (lines, totals))
    return table(
        key,
        "lines",
        (what("what"), *_FIGURES),
        _FIGURES,
        frame,
        shown=max(len(frame), 1),
        totals=below if len(below) else None,
    )


def waterfall_view(waterfall: pl.DataFrame, shown: int | None = None) -> TableView | None:
    """Lines that add up to the difference: the parts of the only submodule; of several these, with
    the parts of each below it. At most as many as are `shown` and the total: then the smallest are
    one line, and there are parts of the submodule alone that differs most."""
    found = waterfall.filter(pl.any_horizontal(pl.col(_TIMES) != 0))
    if found.is_empty():
        return None
    level = pl.col("level")
    submodules = found.filter(level == Step.SUBMODULE.value)
    parts = found.filter(level.is_in(_PARTS))
    between = found.filter(level == Step.BETWEEN.value)
    whole = found.filter(level == Step.END_TO_END.value)
    room = len(found) if shown is None else shown - len(between)
    if len(submodules) == 1 and len(parts):
        lines = _lines(parts, room)
    else:
        lines = _of_submodules(submodules, parts, room, every=shown is None)
    lines += [_line(_name(row), row) for row in between.iter_rows(named=True)]
    totals = [_line(label(Step.END_TO_END), row) for row in whole.iter_rows(named=True)]
    return lines_view("waterfall", lines, totals=totals)


def waterfall_steps(waterfall: pl.DataFrame, shown: int) -> list[Difference]:
    """From one end-to-end time to the other in at most `shown` steps that add up: each part of each
    submodule, the largest difference first, then what is left of them, and what is between
    calls."""
    level = pl.col("level")
    parts = waterfall.filter(level.is_in(_PARTS))
    known = parts["submodule"].unique().to_list()
    bare = waterfall.filter((level == Step.SUBMODULE.value) & ~pl.col("submodule").is_in(known))
    between = waterfall.filter((level == Step.BETWEEN.value) & (pl.col("difference_ns") != 0))
    rows = pl.concat([parts, bare, between]).filter(pl.col("difference_ns") != 0)
    ranked = rows.sort(pl.col("difference_ns").abs(), descending=True, maintain_order=True)
    kept = ranked if len(ranked) <= shown else ranked.head(shown - 1)
    several = waterfall.filter(level == Step.SUBMODULE.value).height > 1
    found = [
        (_of_several(row) if several else _name(row), *(row[time] for time in _TIMES))
        for row in kept.iter_rows(named=True)
    ]
    rest = ranked.slice(len(kept))
    if len(rest):
        sums = (int(rest[time].sum()) for time in _TIMES)
        found.append((counted(len(rest), "other"), *sums))
    return found


def _of_several(row: dict[str, Any]) -> str:
    """What a step is of, with its submodule where that is not all of it."""
    name = _name(row)
    if row["submodule"] is None or row["level"] == Step.SUBMODULE.value:
        return name
    return said("{submodule}: {part}", submodule=row["submodule"], part=name)


def _of_submodules(
    submodules: pl.DataFrame, parts: pl.DataFrame, room: int, *, every: bool
) -> list[Line]:
    """Submodules by their difference, and below them the parts of each, or of the first."""
    heads = _lines(submodules, room)
    left = room - len(heads)
    found = []
    for number, head in enumerate(heads):
        found.append(head)
        if number and not every:
            continue
        if number < len(submodules):
            own = parts.filter(pl.col("submodule") == submodules["submodule"][number])
            inside = _lines(own, left, _INDENT) if left > 1 and len(own) else []
            found += inside
    return found


def _lines(rows: pl.DataFrame, shown: int, indent: str = "") -> list[Line]:
    """The first rows, and the others as one."""
    ranked = rows.sort(pl.col("difference_ns").abs(), descending=True, maintain_order=True)
    kept = ranked if len(ranked) <= shown else ranked.head(max(shown - 1, 1))
    found = [_line(f"{indent}{_name(row)}", row) for row in kept.iter_rows(named=True)]
    rest = ranked.slice(len(kept))
    if len(rest):
        name = f"{indent}{counted(len(rest), 'other')}"
        found.append(_line(name, {time: int(rest[time].sum()) for time in _TIMES}))
    return found


def _line(name: str, row: dict[str, Any]) -> Line:
    base, new, difference = (row[time] for time in _TIMES)
    return name, duration(base), duration(new), difference_text(difference)


def _name(row: dict[str, Any]) -> str:
    """What a line is of; a remainder below 0 is what ran at the same time."""
    overlap = min(row["base_ns"], row["new_ns"]) < 0
    if row["level"] == Step.IDLE.value:
        return said("not executing, less overlap") if overlap else label(Step.IDLE)
    if row["level"] == Step.BETWEEN.value:
        return said("between calls, less overlap") if overlap else label(Step.BETWEEN)
    return str(row["role"] or row["submodule"])


def operations_view(key: str, rows: pl.DataFrame, shown: int) -> TableView | None:
    """Shapes with the rates and kernels of both sides, kernels, or groups of nodes; what only one
    side has at the end."""
    texts: dict[str, list[Any]] = {
        "what": rows["what"].to_list(),
        "base": durations(rows["base_ns"]),
        "new": durations(rows["new_ns"]),
        "change": [None if one is None else change_text(one) for one in rows["change"]],
    }
    shapes = "base_kernel" in rows.columns
    if shapes:
        both = [*rows.iter_rows(named=True)]
        texts |= {"rates": [*map(rates, both)], "kernels": [*map(why, both)]}
    frame = pl.DataFrame(texts, schema=dict.fromkeys(texts, STRING))
    columns = (what("what"), *_FIGURES, *((_RATES,) if shapes else ()))
    below = _KERNELS if shapes else None
    return table(key, "operations", columns, columns, frame, shown=shown, below=below)


def durations(values: pl.Series) -> list[str | None]:
    """Times in ns as text, None where there is none."""
    return [None if ns is None else duration(ns) for ns in values]

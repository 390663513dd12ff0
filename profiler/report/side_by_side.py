"""The report of three or more runs: a column each, differences to the first.

    print_report(Console(highlight=False), columns_report("main", columns, top=15))

A change that exceeds noise has a star, and its row stands out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from profiler.analysis.comparison.codes import Side
from profiler.analysis.comparison.columns import METRICS
from profiler.analysis.comparison.side_by_side import Compared
from profiler.report.changed_operations import kernels_text
from profiler.report.changed_rows import of_whole, with_blocks_together
from profiler.report.changed_tables import what
from profiler.report.comparing import TITLES, verdicts
from profiler.report.model import TOP, Fact, Part, Report, Section, Summary, TableView
from profiler.report.sentences.changes import (
    CALLED,
    change_text,
    headline,
    notes_beside,
    row_name,
    sample_line,
    settings_text,
    side_text,
)
from profiler.report.sentences.worded import worded
from profiler.run.columns import STRING, Column, schema
from profiler.text import counted, duration, said

__all__ = ["columns_report"]

_KEYS = {"Times": "times", **{title: key for key, title in TITLES.items()}}
_KERNELS = Column("kernels", STRING, "", "the kernel of each run with most of its time")
_PLACES = ("metric", "level", "submodule", "branch", "step", "role", "module")


def columns_report(base: str, columns: Sequence[Compared], *, top: int = TOP) -> Report:
    """The runs side by side, the `top` roles and modules, and the gates."""
    facts = (
        *(Fact(column.name, headline(column.comparison)) for column in columns),
        Fact(base, side_text(columns[0].comparison, Side.BASE)),
        *(Fact(column.name, side_text(column.comparison, Side.NEW)) for column in columns),
        *_settings(columns),
    )
    legend = f"Changes are relative to {base}; * beyond noise."
    said_of_all = (*_notes(columns), sample_line(columns[0].comparison), legend)
    parts = (Part(notes=said_of_all, always=True), *_parts(base, columns, top))
    shown = tuple(part for part in parts if part.shows_something)
    found = tuple(one for column in columns for one in verdicts(column.gates, column.name))
    summary = Summary(f"{counted(len(columns), 'run')} against {base}", facts=facts)
    sections = tuple(Section(_KEYS.get(part.title, "notes"), parts=(part,)) for part in shown)
    return Report(summary, sections, found)


def _settings(columns: Sequence[Compared]) -> Iterator[Fact]:
    """The settings in which each differs from the first."""
    for column in columns:
        differing = settings_text(column.comparison)
        if differing is not None:
            yield Fact(said("settings of {run}", run=column.name), differing)


def _notes(columns: Sequence[Compared]) -> Iterator[str]:
    """What is said of all comparisons, and of each by itself."""
    notes = [[*map(worded, notes_beside(column.comparison))] for column in columns]
    shared = [note for note in notes[0] if all(note in others for others in notes)]
    yield from shared
    for column, told in zip(columns, notes, strict=True):
        yield from (f"{column.name}: {note}" for note in told if note not in shared)


def _parts(base: str, columns: Sequence[Compared], top: int) -> Iterator[Part]:
    metrics = _metrics(columns)
    whole = metrics.filter(of_whole())
    names = [base, *(column.name for column in columns)]
    yield Part(
        TITLES["times"], table=_table(names, whole, whole["metric"].to_list(), "metric", len(whole))
    )
    steps = metrics.filter(pl.col("step").is_not_null() & pl.col("beyond"))
    roles = metrics.filter(pl.col("level") == "role")
    for title, found in (
        (TITLES["steps"], steps),
        (TITLES["roles"], roles),
        (TITLES["modules"], with_blocks_together(metrics)),
    ):
        rows = found.sort(("beyond", "apart_ns"), descending=True, maintain_order=True)
        named = [*map(row_name, rows.iter_rows(named=True))]
        yield Part(title, table=_table(names, rows, named, "what", top))
    for key in ("nodes", "shapes", "kernels"):
        yield _operations(base, columns, key, top)


def _operations(base: str, columns: Sequence[Compared], key: str, shown: int) -> Part:
    """What each run did at a shape, a kernel or a node, what lies furthest apart first; below a
    shape the kernels of all."""
    names = [base, *(column.name for column in columns)]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number, column in enumerate(columns, 1):
        for row in getattr(column.comparison, key).iter_rows(named=True):
            nothing = {"what": row["what"], "apart_ns": 0, "kernels": [None] * len(names)}
            entry = found.setdefault((row["submodule"], row["what"]), nothing)
            entry["apart_ns"] = max(entry["apart_ns"], _apart(row))
            for at, side in ((0, "base"), (number, "new")):
                if row[f"{side}_ns"] is not None:
                    entry[f"run{at}"] = _operation(row, side)
                    entry["kernels"][at] = row.get(f"{side}_kernel")
    rows = sorted(found.values(), key=lambda entry: -entry["apart_ns"])
    for row in rows:
        row["kernels"] = kernels_text(row["kernels"])
    if not rows or not shown:
        return Part()
    schema = dict.fromkeys(("what", *(f"run{at}" for at in range(len(names))), "kernels"), STRING)
    frame = pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
    below = _KERNELS if frame["kernels"].null_count() < len(frame) else None
    view = TableView(
        f"side_by_side_{key}",
        "operations",
        (what("what"), *_runs(names)),
        frame,
        shown,
        repeated=1,
        below=below,
    )
    return Part(TITLES[key], table=view)


def _apart(row: Mapping[str, Any]) -> int:
    """How far both sides are apart, in ns: by all of it where one has none."""
    base, new = (int(row[name] or 0) for name in ("base_ns", "new_ns"))
    return abs(new - base)


def _operation(row: Mapping[str, Any], side: str) -> str:
    """`"5.31 ms, +32.2 %, 466 TFLOP/s"`; of the first run without a change."""
    parts = [duration(row[f"{side}_ns"])]
    if side == "new" and row["change"] is not None:
        parts.append(change_text(row["change"]))
    rate = row.get(f"{side}_teraflops_per_s")
    if rate is not None and rate >= 1:
        parts.append(f"{rate:.3g} TFLOP/s")
    return ", ".join(parts)


def _metrics(columns: Sequence[Compared]) -> pl.DataFrame:
    """A row a metric that any comparison has: its places, whether any change is beyond noise, the
    largest difference, and the times: `run0` of the first run, `run1` and on of the columns."""
    found: dict[str, dict[str, Any]] = {}
    for number, column in enumerate(columns, 1):
        for row in column.comparison.metrics.iter_rows(named=True):
            places = {name: row[name] for name in _PLACES}
            nothing = {"beyond": False, "apart_ns": 0}
            entry = found.setdefault(row["metric"], {**places, **nothing})
            entry[f"run{number}"] = _cell(row)
            entry["beyond"] |= row["verdict"] in CALLED
            entry["apart_ns"] = max(entry["apart_ns"], abs(row["difference_ns"] or 0))
            if row["base_ns"] is not None:
                entry["run0"] = duration(row["base_ns"])
    declared = schema(METRICS)
    dtypes: dict[str, Any] = {name: declared[name] for name in _PLACES}
    dtypes |= {"beyond": pl.Boolean(), "apart_ns": pl.Int64()}
    dtypes |= {f"run{number}": STRING for number in range(len(columns) + 1)}
    return pl.DataFrame(list(found.values()), schema=dtypes)


def _cell(row: Mapping[str, Any]) -> str | None:
    """`"70.1 ms, +3.1 %*"`; the time alone where the first run has none of it."""
    if row["new_ns"] is None:
        return None
    time = duration(row["new_ns"])
    if row["change"] is None:
        return time
    star = "*" if row["verdict"] in CALLED else ""
    return f"{time}, {change_text(row['change'])}{star}"


def _table(
    names: Sequence[str], rows: pl.DataFrame, named: Sequence[str], name: str, shown: int
) -> TableView | None:
    """A column a run, whether or not it has any of the rows."""
    if rows.is_empty() or not shown:
        return None
    frame = rows.with_columns(pl.Series(name, named, dtype=STRING))
    return TableView(
        f"side_by_side_{name}",
        name,
        (what(name), *_runs(names)),
        frame,
        shown,
        strong="beyond",
        repeated=2,
    )


def _runs(names: Sequence[str]) -> Iterator[Column]:
    for at, run in enumerate(names):
        yield Column(f"run{at}", STRING, "", f"times of {run}", label=run, kind="figure")

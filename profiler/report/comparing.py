"""The report of a comparison: what was compared, times from the whole to single modules, what is
only in one side.

    print_report(Console(highlight=False), comparison_report(comparison, gates, top=15))

Rows that exceed noise stand out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from profiler.analysis.comparison.codes import Side
from profiler.analysis.comparison.columns import METRICS
from profiler.analysis.comparison.compare import Comparison
from profiler.analysis.comparison.gate import Gate
from profiler.bootstrap import CONFIDENCE, Resampled
from profiler.report.changed_rows import largest, of_whole, only_in, with_blocks_together
from profiler.report.changed_tables import (
    durations,
    operations_view,
    waterfall_view,
    what,
)
from profiler.report.model import TOP, Fact, Part, Report, Section, Summary
from profiler.report.sentences.changes import (
    CALLED,
    change_text,
    gate_text,
    gate_words,
    headline,
    interval_text,
    notes_beside,
    row_name,
    sample_line,
    settings_text,
    side_text,
)
from profiler.report.sentences.worded import label, worded
from profiler.report.views import renamed, table
from profiler.run.columns import STRING, Column
from profiler.text import said

__all__ = ["TITLES", "comparison_report", "side_facts", "verdicts"]

_CHANGES = (
    renamed(METRICS, "base_ns", kind="figure"),
    renamed(METRICS, "new_ns", kind="figure"),
    renamed(METRICS, "change", kind="figure"),
    Column("interval", STRING, "", "the interval of the change", kind="figure", importance=2),
    "verdict",
    renamed(METRICS, "resampled", kind="text", codes=None, importance=3),
    renamed(METRICS, "calls", importance=4),
)
_ALONE = (
    Column("what", STRING, "", "submodule, role and module, or the metric", kind="layer"),
    Column("blocks", STRING, "", "which blocks it stands for, and which the other side has"),
    Column("ns", STRING, "", "its time", label="time", kind="figure"),
)


TITLES: Mapping[str, str] = {
    "notes": "What else differs, and what intervals do not know",
    "waterfall": "From one end-to-end time to the other",
    "times": f"Times, and {CONFIDENCE:.0%} intervals of the change",
    "steps": "Single steps beyond noise, by difference",
    "roles": "Roles, by difference",
    "modules": "Modules, by difference",
    "nodes": "ONNX nodes, by difference",
    "shapes": "Shapes, by difference",
    "kernels": "Kernels, by difference",
    "alone": "What only one side has",
}
"""The sections of a comparison, in their order."""


def comparison_report(
    comparison: Comparison, gates: Sequence[Gate] = (), *, top: int = TOP
) -> Report:
    """How the new runs differ from the base: the `top` roles and modules, and the gates."""
    facts = side_facts(comparison)
    told = (*map(worded, notes_beside(comparison)), sample_line(comparison))
    notes = Part(notes=told, always=True)
    waterfall = waterfall_view(comparison.waterfall)
    sections = (
        Section("notes", parts=(notes,) if notes.shows_something else ()),
        Section("waterfall", parts=(Part(TITLES["waterfall"], table=waterfall),)),
        *_changed(comparison.metrics, top),
        *_operations(comparison, top),
        Section("alone", parts=tuple(_alone(comparison.metrics, top))),
    )
    shown = tuple(
        replace(section, parts=tuple(part for part in section.parts if part.shows_something))
        for section in sections
    )
    return Report(
        Summary(headline(comparison), facts=facts),
        tuple(section for section in shown if section.parts),
        verdicts(gates),
    )


def side_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """What the sides are made of, and which settings differ: with other work, other times."""
    settings = settings_text(comparison)
    sides = tuple(Fact(label(side), side_text(comparison, side)) for side in Side)
    return sides if settings is None else (*sides, Fact(said("settings"), settings))


def _operations(comparison: Comparison, top: int) -> Iterator[Section]:
    """What both sides did by node, shape and kernel."""
    for key in ("nodes", "shapes", "kernels"):
        made = operations_view(key, getattr(comparison, key), top)
        yield Section(key, parts=(Part(TITLES[key], table=made),))


def verdicts(gates: Sequence[Gate], of: str = "") -> tuple[Fact, ...]:
    """What the gates say, `of` a run that is named where there are several."""
    head = f"{of}: " if of else ""
    return tuple(
        Fact(f"{head}{gate_words(gate)}", gate_text(gate), alert=gate.failed) for gate in gates
    )


def _changed(metrics: pl.DataFrame, top: int) -> Iterator[Section]:
    """What both sides have."""
    both = metrics.filter(~pl.col("verdict").is_in([side.alone.value for side in Side]))
    whole = both.filter(of_whole())
    times = _part(TITLES["times"], whole, whole["metric"].to_list(), "metric", len(whole))
    yield Section("times", parts=(times,))
    steps = both.filter(pl.col("step").is_not_null() & pl.col("verdict").is_in(CALLED))
    roles = both.filter(pl.col("level") == "role")
    for key, found in (
        ("steps", steps),
        ("roles", roles),
        ("modules", with_blocks_together(both)),
    ):
        rows = largest(found)
        named = [*map(row_name, rows.iter_rows(named=True))]
        yield Section(key, parts=(_part(TITLES[key], rows, named, "what", top),))


def _part(title: str, rows: pl.DataFrame, names: Sequence[str], name: str, shown: int) -> Part:
    made = table(
        f"comparison_{name}",
        name,
        (what(name), *_CHANGES),
        METRICS,
        _written(rows).with_columns(pl.Series(name, names, dtype=STRING)),
        shown=shown,
        strong="called",
    )
    return Part(title, table=made)


def _written(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their values as texts, each in its own unit, and whether a change is called
    one."""
    intervals = [
        None if low is None else interval_text(low, high, change)
        for low, high, change in rows.select("low", "high", "change").iter_rows()
    ]
    counts = [
        None if unit is None else f"{base} and {new} {label(Resampled(unit))}"
        for unit, base, new in rows.select("resampled", "base_count", "new_count").iter_rows()
    ]
    changes = [None if change is None else change_text(change) for change in rows["change"]]
    texts = {
        "base_ns": durations(rows["base_ns"]),
        "new_ns": durations(rows["new_ns"]),
        "change": changes,
        "interval": intervals,
        "resampled": counts,
    }
    return rows.with_columns(
        *(pl.Series(name, values, dtype=STRING) for name, values in texts.items()),
        called=pl.col("verdict").is_in(CALLED),
    )


def _alone(metrics: pl.DataFrame, top: int) -> Iterator[Part]:
    """What only one side has."""
    for side in Side:
        rows = only_in(metrics, side)
        frame = rows.with_columns(ns=pl.Series(durations(rows["ns"]), dtype=STRING))
        made = table(f"only_in_{side}", "parts", _ALONE, _ALONE, frame, shown=top)
        yield Part(f"{label(side.alone)}, by time".capitalize(), table=made)

"""What is said of how runs differ: changes, the whole of a comparison, its sides, its gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from profiler.analysis.comparison.codes import ComparisonNote, Verdict
from profiler.report.sentences.worded import label, worded
from profiler.text import Note, Said, Value, counted, duration, joined, said

if TYPE_CHECKING:
    from profiler.analysis.comparison.compare import Comparison
    from profiler.analysis.comparison.gate import Gate

__all__ = [
    "CALLED",
    "change_text",
    "difference_text",
    "gate_text",
    "gate_words",
    "headline",
    "interval_text",
    "notes_beside",
    "row_name",
    "sample_line",
    "sample_text",
    "settings_text",
    "side_text",
]

CALLED = (Verdict.SLOWER.value, Verdict.FASTER.value)
"""The verdicts that call a change one."""

_NO_BREAK = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_NAMED = 3  # runs of a side that are named
_SETTINGS = 4  # that differ and are named
_RATIO = 3.0  # from here on a change reads better as a factor


def headline(comparison: Comparison) -> str:
    """`"denoise.step 2.1 % slower (68.4 ms → 69.8 ms), end_to_end within noise"`."""
    parts = []
    for name in ("end_to_end", "denoise.step"):
        rows = comparison.metrics.filter(pl.col("metric") == name)
        for row in rows.iter_rows(named=True):
            if row["base_ns"] is None or row["new_ns"] is None:
                continue
            change = f" {change_text(row['change'])}," if row["change"] is not None else ""
            part = said(
                "{metric}{change} {verdict} ({base} → {new})",
                metric=name,
                change=change,
                verdict=label(Verdict(row["verdict"])),
                base=duration(row["base_ns"]),
                new=duration(row["new_ns"]),
            )
            parts.append(part)
    if parts:
        return joined("; ", parts)
    called = comparison.metrics.filter(pl.col("verdict").is_in(CALLED))
    return said(
        "{differences} beyond noise in {metrics} metrics",
        differences=counted(len(called), "difference"),
        metrics=len(comparison.metrics),
    )


def side_text(comparison: Comparison, side: str) -> str:
    """What a side is made of: `"1 run (20270115-080000), 1 pipeline call, 28 steps, 36 calls"`."""
    runs = comparison.runs.filter(pl.col("side") == side)
    named = ", ".join(runs["run_id"].head(_NAMED))
    left = len(runs) - _NAMED
    pipelines, steps, calls = (int(runs[n].sum()) for n in ("pipelines", "steps", "calls"))
    return said(
        "{runs} ({named}{more}), {counts}",
        runs=counted(len(runs), "run"),
        named=named,
        more=said(" and {others} more", others=left) if left > 0 else "",
        counts=joined(
            ", ",
            [
                counted(number, noun)
                for number, noun in (
                    (pipelines, "pipeline call"),
                    (steps, "step"),
                    (calls, "submodule call"),
                )
                if number
            ],
        ),
    )


def settings_text(comparison: Comparison) -> Said | None:
    """The settings that both sides tell and that differ: `"resolution 384×384 → 256×256"`."""
    pairs = _settings_pairs(comparison)
    if not pairs:
        return None
    named, left = joined(", ", map(worded, pairs[:_SETTINGS])), len(pairs) - _SETTINGS
    return said("{named} and {others} more", named=named, others=left) if left > 0 else named


def notes_beside(comparison: Comparison) -> list[Note]:
    """The notes of a comparison that `settings_text` does not say in full."""
    told = len(_settings_pairs(comparison)) <= _SETTINGS
    return [
        note
        for note in comparison.notes
        if not (told and note.code is ComparisonNote.SETTINGS_DIFFER)
    ]


def _settings_pairs(comparison: Comparison) -> tuple[Note, ...]:
    for note in comparison.notes:
        if note.code is ComparisonNote.SETTINGS_DIFFER:
            pairs = note.values["pairs"]
            return tuple(pair for pair in _each(pairs) if isinstance(pair, Note))
    return ()


def _each(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def sample_text(comparison: Comparison) -> Said:
    """What the times of modules, shapes and kernels are of: `"per step, else per pipeline call"`,
    where `else` is outside of steps."""
    if int(comparison.runs["steps"].sum()):
        return said("per step, else per pipeline call")
    calls = int(comparison.runs["pipelines"].sum())
    return said("per pipeline call") if calls else said("per call")


def sample_line(comparison: Comparison) -> Said:
    """What the times of the tables are of, in a sentence."""
    return said(
        "roles and modules: medians {sample}; shapes, nodes and kernels: means",
        sample=sample_text(comparison),
    )


def gate_words(gate: Gate) -> str:
    """Whether it failed: `"FAILED"`, `"passed"`."""
    return "FAILED" if gate.failed else "passed"


def gate_text(gate: Gate) -> str:
    """`"denoise.step +7.2 % (+5.1 to +9.0 %), slower by more than +5.0 %"`."""
    found = interval_text(gate.low, gate.high, gate.change)
    text = f"{gate.metric} {change_text(gate.change)} ({found})"
    limit = change_text(gate.limit)
    if gate.failed:
        return f"{text}, slower by more than {limit}"
    if gate.change > gate.limit:
        return f"{text}, more than {limit} but {label(gate.verdict)}"
    return f"{text}, at most {limit}"


def row_name(row: Mapping[str, Any]) -> str:
    """What a row is of, shorter than its metric: `transformer mlp blocks.*.ff`."""
    if row["role"] is None:
        return str(row["metric"])
    parts = (row["submodule"], row["role"], row["module"])
    return " ".join(str(part) for part in parts if part)


def change_text(change: float) -> str:
    """`"+3.1 %"`; a factor where it is large: `"4.20 times"`."""
    if change + 1 >= _RATIO:
        return f"{change + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(change)}{_NO_BREAK}%"


def difference_text(ns: int) -> str:
    """`"+1.29 ms"`."""
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def interval_text(low: float, high: float, change: float) -> str:
    """The interval of a change, in its unit."""
    if change + 1 >= _RATIO:
        return f"{low + 1:,.2f} to {high + 1:,.2f}{_NO_BREAK}times"
    return f"{_signed(low)} to {_signed(high)}{_NO_BREAK}%"


def _signed(change: float) -> str:
    text = f"{abs(change) * 100:,.1f}"
    return text if text == "0.0" else f"{'+' if change > 0 else _MINUS}{text}"

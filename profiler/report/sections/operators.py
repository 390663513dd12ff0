"""Operators of devices, and those that were split."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.operators.columns import GEOMETRY, OPERATORS
from profiler.messages import joined, said
from profiler.report.charts.operators import operators as chart
from profiler.report.excerpts import split_operators
from profiler.report.model import Figure, Part, ReportInput, Shown, TableView
from profiler.report.patterns import by_pattern
from profiler.report.units import count, counted
from profiler.report.views import table

__all__ = ["LAYERS", "operator_parts"]

_SPLIT = 50  # operators that a page holds
LAYERS = Shown(
    "layers", "layers", "count", meaning="layers of repeated blocks that this row stands for"
)
_OPERATORS = (
    Shown("layer", "layer", "layer"),
    Shown("submodule", "submodule", "text", 1),
    Shown("op_types", "op types", "list", 4),
    LAYERS,
    Shown("commands", "commands", "count", 2),
    Shown("calls", "calls", "count", 4),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("share", "share", "share"),
    Shown("wall_union_ns", "wall union", "ns", 1),
    Shown("parallel_efficiency", "par. eff.", "ratio", 2),
    Shown("imbalance", "imbal.", "factor", 5),
    Shown("devices", "devices", "list", 4),
    Shown("calibrated_ns", "calibrated", "ns", 3),
    Shown("median_ns", "median a call", "ns", 6),
    Shown("tracks", "tracks", "count", 6),
)
_SPLIT_PARTS = (
    Shown("layer", "operator", "layer"),
    Shown("part", "part", "word"),
    Shown("submodule", "submodule", "text", 3),
    Shown("device", "device", "text"),
    Shown("calls", "calls", "count", 5),
    Shown("commands", "commands", "count", 4),
    Shown("tracks", "tracks", "count", 1),
    Shown("wall_union_ns", "wall union", "ns"),
    Shown("busy_sum_ns", "busy sum", "ns"),
    Shown("gap_ns", "gaps", "ns", 1),
    Shown("parallel_efficiency", "par. eff.", "ratio"),
    Shown("imbalance", "imbal.", "factor"),
    Shown("device_imbalance", "of devices", "factor", 2),
)


def operator_parts(of: ReportInput) -> Iterator[Part]:
    """All operators of devices, folded and one by one, and how the split ones were cut."""
    analysis = of.analysis
    operators = analysis.operators.filter(~pl.col("host"))
    if operators.is_empty():
        return
    lead = said(
        "{operators}, by the sum of their commands' time on devices.",
        operators=counted(len(operators), "operator"),
    )
    if (operators["calibrated_ns"] != operators["busy_sum_ns"]).any():
        calibrated = said("Calibrated: scaled to calls that ran without tracing operators.")
        lead = joined(" ", [lead, calibrated])
    yield Part(
        said("Operators"),
        lead=lead,
        figure=Figure("operators", lambda theme: chart(analysis, theme=theme)),
        table=_operators(operators, of.top),
        anchor="operators",
    )
    yield _split(of)


def _operators(operators: pl.DataFrame, top: int) -> TableView | None:
    """Operators folded by pattern, and one by one, for the reader to choose."""
    single = operators.with_columns(layers=pl.lit(1, dtype=pl.UInt32))
    folded = by_pattern(operators)
    every = (said("operator"), single)
    together = len(folded) < len(single)
    return table(
        "operators",
        "operators",
        [column for column in _OPERATORS if together or column is not LAYERS],
        OPERATORS,
        folded,
        shown=top,
        search=True,
        sort="busy_sum_ns",
        label=said("operation, blocks folded"),
        variants=(every,) if together else (),
    )


def _split(of: ReportInput) -> Part:
    rows, number = split_operators(of.analysis.geometry, _SPLIT)
    left = said(
        "The {shown} of {total} split operators with most busy time.",
        shown=count(_SPLIT),
        total=count(number),
    )
    return Part(
        said("Split operators, by busy time"),
        said("Operators that ran on several tracks or devices, or moved data beside computing."),
        table=table(
            "split",
            "split operators",
            _SPLIT_PARTS,
            GEOMETRY,
            rows,
            shown=of.rows(10),
            search=True,
        ),
        notes=(left,) if number > _SPLIT else (),
    )

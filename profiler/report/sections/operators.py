"""Operators of devices, and those that were split."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.operators.columns import GEOMETRY, OPERATORS
from profiler.messages import joined, said
from profiler.report.charts.operators import operators as chart
from profiler.report.excerpts import split_operators
from profiler.report.model import Figure, Part, ReportInput, TableView
from profiler.report.patterns import by_pattern
from profiler.report.units import count, counted
from profiler.report.views import renamed, table
from profiler.table.columns import Column

__all__ = ["LAYERS", "operator_parts"]

_SPLIT = 50  # operators that a page holds
LAYERS = Column(
    "layers",
    pl.UInt32(),
    "",
    "layers of repeated blocks that this row stands for",
    label="layers",
    kind="count",
)
_OPERATORS = (
    "layer",
    renamed(OPERATORS, "submodule", importance=1),
    "op_types",
    LAYERS,
    renamed(OPERATORS, "commands", importance=3),
    "calls",
    "busy_sum_ns",
    "share",
    renamed(OPERATORS, "wall_union_ns", importance=2),
    renamed(OPERATORS, "parallel_efficiency", importance=4),
    renamed(OPERATORS, "imbalance", label="imbal."),
    "devices",
    "calibrated_ns",
    "median_ns",
    "tracks",
)
_SPLIT_PARTS = (
    "layer",
    "part",
    "submodule",
    "device",
    "calls",
    "commands",
    "tracks",
    "wall_union_ns",
    "busy_sum_ns",
    "gap_ns",
    "parallel_efficiency",
    renamed(GEOMETRY, "imbalance", label="imbal."),
    "device_imbalance",
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

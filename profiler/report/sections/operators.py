"""Operators of devices, and those that were split."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from profiler.analysis.operators.columns import OPERATORS, PARTITIONING
from profiler.analysis.result import Analysis
from profiler.report.excerpts import split_operators
from profiler.report.model import (
    TOP,
    Figure,
    Opens,
    Part,
    ReportInput,
    Selected,
    TableView,
)
from profiler.report.nouns import on_gpus
from profiler.report.patterns import by_pattern
from profiler.report.views import renamed, table
from profiler.run.columns import Column, Distinct, Share
from profiler.text import count, counted, joined, said

__all__ = ["LAYERS", "operator_parts", "operators_figure"]

_SPLIT = 50  # operators that a page holds
LAYERS = Column(
    "layers",
    pl.UInt32(),
    "",
    "layers of repeated blocks that this row stands for",
    label="layers",
    kind="count",
    combine=Distinct(("layer",)),
)
_OPERATORS = (
    "layer",
    renamed(OPERATORS, "submodule", importance=1),
    "op_types",
    LAYERS,
    renamed(OPERATORS, "commands", importance=3),
    "calls",
    "total_ns",
    renamed(OPERATORS, "share", combine=Share("total_ns", within=("host",))),
    renamed(OPERATORS, "wall_ns", importance=2),
    renamed(OPERATORS, "parallel_utilization", importance=4),
    renamed(OPERATORS, "imbalance", label="imbal."),
    "devices",
    "corrected_ns",
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
    "wall_ns",
    "total_ns",
    "gap_ns",
    "parallelism",
    "parallel_utilization",
    renamed(PARTITIONING, "imbalance", label="imbal."),
    "device_imbalance",
)


def operators_figure(analysis: Analysis, top: int = TOP, *, patterns: bool = True) -> Figure:
    """The `top` operators by time; with `patterns`, equal layers of repeated blocks are one."""
    names = [part.submodule for part in analysis.accounting.submodules]
    rows = by_pattern(analysis.operators) if patterns else analysis.operators
    return Figure("operators", "operators", (rows, names, top))


def operator_parts(of: ReportInput) -> Iterator[Part]:
    """All operators of devices, folded and one by one, and how the split ones were cut."""
    analysis = of.analysis
    operators = analysis.operators.filter(~pl.col("host"))
    if operators.is_empty():
        return
    number = counted(len(operators), "operator")
    lead = said("{operators}, by the sum of their commands' time on devices.", operators=number)
    if on_gpus(analysis):
        lead = said("{operators}, by the sum of their kernels' time.", operators=number)
    if (operators["corrected_ns"] != operators["total_ns"]).any():
        corrected = said("Corrected: scaled to calls that ran without tracing operators.")
        lead = joined(" ", [lead, corrected])
    yield Part(
        said("Operators"),
        lead=lead,
        figure=operators_figure(analysis),
        table=_operators(operators, of.rows(TOP)),
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
        sort="total_ns",
        label=said("operation, blocks aggregated"),
        variants=(every,) if together else (),
        selected=Selected("operators", where={"host": False}),
        opens=Opens.LAYERS,
        folded=together,
    )


def _split(of: ReportInput) -> Part:
    rows, number = split_operators(of.analysis.partitioning, _SPLIT)
    left = said(
        "The {shown} of {total} split operators with the most total time.",
        shown=count(_SPLIT),
        total=count(number),
    )
    return Part(
        said("Split operators, by total time"),
        said("Operators that ran on several tracks or devices, or moved data beside computing."),
        table=table(
            "split",
            "split operators",
            _SPLIT_PARTS,
            PARTITIONING,
            rows,
            shown=of.rows(10),
            search=True,
        ),
        notes=(left,) if number > _SPLIT else (),
    )

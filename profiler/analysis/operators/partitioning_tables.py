"""The table of the parts of split operators."""

from __future__ import annotations

import polars as pl

from profiler.analysis.inputs import Inputs
from profiler.analysis.operators.columns import PARTITIONING
from profiler.analysis.operators.partitioning import partitioning_table
from profiler.analysis.operators.tables import folds
from profiler.analysis.table import Table

__all__ = ["TABLES"]


def _partitioning(of: Inputs) -> pl.DataFrame:
    return partitioning_table(folds(of), of.calls, of.frame, of.commands)


TABLES = (
    Table(
        name="partitioning",
        row="one part of a split operator",
        section="roofline",
        columns=PARTITIONING,
        make=_partitioning,
        title="Split operators",
        about="The table lists operators that were split over tracks or devices, or that both "
        "compute and move data, longest first. Each has rows for the whole, for its computing "
        "and its data movement, and for its part on each device. [operators.md](operators.md) "
        "has details.",
    ),
)

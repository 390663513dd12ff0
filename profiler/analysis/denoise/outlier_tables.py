"""The table of parts of steps that stand out."""

from __future__ import annotations

import polars as pl

from profiler.analysis.denoise.columns import STEP_OUTLIERS
from profiler.analysis.denoise.outlier_causes import outlier_table
from profiler.analysis.denoise.tables import steps_matrix
from profiler.analysis.inputs import Inputs
from profiler.analysis.table import Table

__all__ = ["TABLES"]


def _outliers(of: Inputs) -> pl.DataFrame:
    return outlier_table(
        steps_matrix(of), of.run, of.everything, of.calls, of.frame, of.commands, of.kinds
    )


TABLES = (
    Table(
        name="step_outliers",
        row="one part in one step that stands out",
        section="time",
        columns=STEP_OUTLIERS,
        make=_outliers,
        title="Outliers and what explains them",
        about="The table lists outliers of at least a thousandth of a step, largest `excess_ns` "
        "first, and what in the rest of the trace explains each of them. It has at most the 50 "
        "outliers that cost most. `step_outliers_total` in JSON is the number of all outliers, "
        "which is the sum of `outliers` in [step_operators](#step_operators).",
        reads=("steps",),
        rank=("-excess_ns",),
    ),
)

"""What part a shape reaches of the peak that bounds it, as one column."""

from __future__ import annotations

import polars as pl

from profiler.analysis.roofline.codes import Bound
from profiler.run.columns import Column

__all__ = ["OF_PEAK", "with_of_peak"]

OF_PEAK = Column(
    "of_peak",
    pl.Float64(),
    "ratio",
    "of the peak that bounds it: FLOP/s, or the memory's bandwidth; else the larger of the two",
    True,
    label="of peak",
    kind="share",
)
_RATES = {Bound.COMPUTE: pl.col("flops_of_peak"), Bound.MEMORY: pl.col("bandwidth_of_peak")}


def with_of_peak(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `analysis.shapes` with the column `OF_PEAK`."""
    return rows.with_columns(
        of_peak=pl.when(bound=Bound.COMPUTE)
        .then(_RATES[Bound.COMPUTE])
        .when(bound=Bound.MEMORY)
        .then(_RATES[Bound.MEMORY])
        .otherwise(pl.max_horizontal(*_RATES.values()))
    )

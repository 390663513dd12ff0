"""Submodules as a run has them, without its commands."""

from __future__ import annotations

import polars as pl

__all__ = ["recorded_submodules"]


def recorded_submodules(calls: pl.DataFrame) -> pl.DataFrame:
    """A row for each submodule and device of `calls` (those of a run), in order of first
    calls: `calls`, `duration_ns`, `first_ns` and `median_ns` (of all but the first where there are
    several) as in `SUBMODULES`, by what their device noted where it did."""
    duration = pl.coalesce("device_duration_ns", "duration_ns")
    return (
        calls.group_by("submodule", "device", maintain_order=True)
        .agg(
            calls=pl.len(),
            duration_ns=duration.sum(),
            first_ns=duration.first(),
            median_ns=duration.slice(pl.when(pl.len() > 1).then(1).otherwise(0)).median(),
        )
        .with_columns(pl.col("submodule", "device").cast(pl.String), pl.col("median_ns").round())
        .cast({"median_ns": pl.Int64})
    )

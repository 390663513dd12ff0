"""Which rows of shapes answer what costs most."""

from __future__ import annotations

import polars as pl

__all__ = ["costliest_shapes"]


def costliest_shapes(shapes: pl.DataFrame, timelines: pl.DataFrame) -> pl.DataFrame:
    """The rows of `shapes` that calls executed, in their order, all where none did. Of parts of a
    run that were recorded one by one (`analysis.timelines`), those that tell shapes, where any
    does: an inference as a whole is no shape beside its layers."""
    of_calls = shapes.filter(pl.col("submodule").is_not_null())
    rows = shapes if of_calls.is_empty() else of_calls
    if timelines["timeline"].n_unique() < 2:
        return rows
    told = rows.filter(pl.col("shapes").is_not_null()).join(timelines, on="submodule")
    names = timelines.filter(pl.col("timeline").is_in(told["timeline"].implode()))
    kept = rows.filter(pl.col("submodule").is_in(names["submodule"].implode()))
    return rows if kept.is_empty() else kept

"""The submodule whose blocks a figure shows."""

from __future__ import annotations

import polars as pl

__all__ = ["submodule_of_blocks"]


def submodule_of_blocks(blocks: pl.DataFrame) -> str:
    """The submodule whose repeated blocks took most device time, "" where none has two."""
    found = blocks.drop_nulls("submodule").filter(pl.col("total_ns") > 0)
    sums = found.group_by("submodule").agg(pl.col("total_ns").sum(), pl.len())
    several = sums.filter(pl.col("len") > 1).sort("total_ns", "submodule", descending=[True, False])
    return str(several["submodule"][0]) if len(several) else ""

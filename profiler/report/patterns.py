"""Operators of repeated blocks, folded: `transformer_blocks.7.ff` → `transformer_blocks.*.ff`.

A transformer of 24 equal blocks fills the top of an operator table with 24 equal rows. Folding
the numbers in layer names shows the operation once, with how many layers it stands for.
"""

from __future__ import annotations

import polars as pl

__all__ = ["by_pattern", "pattern"]

_INDEX = r"(^|[^0-9A-Za-z])[0-9]+($|[^0-9A-Za-z])"


def pattern(layer: pl.Expr) -> pl.Expr:
    """Layer names with every number that stands alone replaced by `*`; `conv1` stays."""
    replaced = layer.str.replace_all(_INDEX, "${1}*${2}")
    return replaced.str.replace_all(_INDEX, "${1}*${2}")  # "0.1": neighbours share a separator


def by_pattern(operators: pl.DataFrame) -> pl.DataFrame:
    """`Analysis.operators` with one row a submodule, pattern and host.

    Adds `layers`, how many layers a row stands for; `op_types` are those of the longest of them.
    Times, commands and shares are sums; `calls` is the largest; `tracks` too; the parallel
    efficiency is the mean over their wall unions. Imbalance does not add up and is null. A row that
    stands for one layer keeps its name and its imbalance.
    """
    worked = pl.col("parallel_efficiency") * pl.col("wall_union_ns")
    devices = pl.col("devices").str.split(", ").explode().unique().sort().str.join(", ")
    folded = (
        operators.with_columns(_pattern=pattern(pl.col("layer")), _worked=worked)
        .group_by("submodule", "_pattern", "host", maintain_order=True)
        .agg(
            pl.len().alias("layers"),
            devices,
            pl.col("op_types", "track_names").first(),
            pl.col("tracks", "calls").max(),
            pl.col("commands", "wall_union_ns", "busy_sum_ns", "gap_ns", "share", "_worked").sum(),
            pl.col("first_ns", "median_ns").sum(),
            layer=pl.when(pl.len() == 1)
            .then(pl.col("layer").first())
            .otherwise(pl.col("_pattern").first()),
            calibrated_ns=pl.when(pl.col("calibrated_ns").is_not_null().all()).then(
                pl.col("calibrated_ns").sum()
            ),
            imbalance=pl.when(pl.len() == 1).then(pl.col("imbalance").first()),
        )
        .with_columns(
            commands_per_call=pl.col("commands") / pl.col("calls"),
            parallel_efficiency=pl.when(pl.col("wall_union_ns") > 0).then(
                pl.col("_worked") / pl.col("wall_union_ns")
            ),
        )
    )
    ordered = folded.sort("busy_sum_ns", descending=True, maintain_order=True)
    return ordered.select(*operators.columns, "layers")

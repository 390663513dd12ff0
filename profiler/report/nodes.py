"""What a node of the module tree is called: `24 × JointTransformerBlock` of equal blocks."""

from __future__ import annotations

import polars as pl

from profiler.analysis.module_tree.codes import Node
from profiler.report.sentences.worded import label

__all__ = ["labelled"]


def labelled(tree: pl.DataFrame) -> pl.DataFrame:
    """The tree with a column `label`."""
    several = (pl.col("count") > 1) & (pl.col("kind") == Node.MODULE)
    blocks = several & pl.col("name").str.contains(r"[*\]]$")
    text = (
        pl.when(blocks)
        .then(pl.format("{} × {}", "count", pl.coalesce("class", "name")))
        .when(pl.col("kind") == Node.UNTRACED)
        .then(pl.lit(str(label(Node.UNTRACED))))
        .when((pl.col("name") == "") & (pl.col("kind") == Node.RUN))
        .then(pl.lit(str(label(Node.RUN))))
        .otherwise("name")
    )
    return tree.with_columns(label=text)
